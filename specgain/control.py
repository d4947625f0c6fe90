"""Who decides the speculation length, step by step: controllers, what they learn from, and what they lose.

A controller is asked before a step and told after it.  It sees what earlier rounds accepted and never the tokens that
it decides about, so the output keeps the target's law.

    gamma(batch_size, request) -> int            how many candidates this request gets in the next step
    gammas(batch_size, requests) -> [int, …]     the same for all requests of a step at once
    observe(request, drafted, accepted)          what came of it
    finish(request)                              the request is over; forget it

`batch_size` counts all requests of the step, prefills included.  `request` is any hashable name.
"""

from bisect import bisect_right

from specgain import _checks


class Controller:
    """The interface.  A subclass decides in `gamma`, or in `gammas` if it weighs requests against each other."""

    def gamma(self, batch_size, request):
        """Return the number of candidates for `request` in a step of `batch_size` requests, 0 or more."""
        return self.gammas(batch_size, [request])[0]

    def gammas(self, batch_size, requests):
        """Return one length per request of `requests`, those that decode in this step."""
        return [self.gamma(batch_size, request) for request in requests]

    def observe(self, request, drafted, accepted):
        """Learn that `request` was offered `drafted` candidates and accepted a prefix of `accepted` of them."""

    def finish(self, request):
        """Forget what is kept for `request`."""


class Fixed(Controller):
    """One length for every request at every load."""

    def __init__(self, gamma):
        self._gamma = _checks.gamma(gamma)

    def gamma(self, batch_size, request):
        return self._gamma


class ByBatch(Controller):
    """A length per range of batch sizes: rows [first, last, length], as `specgain schedule derive` writes them.

    Sizes in a gap and beyond the last range keep the length of the range before, as in vLLM.

    >>> ByBatch([[1, 64, 3], [65, 128, 1], [129, 512, 0]]).gamma(100, "any")
    1
    """

    def __init__(self, ranges):
        rows = [tuple(_checks.gamma(value, "ranges") for value in row) for row in ranges]
        if not rows or rows[0][0] != 1 or any(a[1] >= b[0] for a, b in zip(rows, rows[1:], strict=False)):
            raise ValueError(f"ranges = {ranges} must be rows [first, last, length] that rise from 1 without overlap")
        self._firsts, self._lengths = [row[0] for row in rows], [row[2] for row in rows]

    def gamma(self, batch_size, request):
        return self._lengths[bisect_right(self._firsts, _checks.gamma(batch_size, "batch_size", least=1)) - 1]


class MovingAverage(Controller):
    """One more candidate than the request accepted lately: round(mean accepted) + 1, from 1 to `longest`.

    A rule of thumb without a clock: it knows what is accepted and not what it costs.  `memory` is the weight that a
    round's result keeps from one round to the next.
    """

    def __init__(self, longest, memory=0.8):
        self.longest, self.memory = _checks.gamma(longest, "longest", least=1), _checks.probability("memory", memory)
        self._mean = {}

    def gamma(self, batch_size, request):
        return max(1, min(self.longest, round(self._mean.get(request, self.longest / 2)) + 1))

    def observe(self, request, drafted, accepted):
        if drafted:
            before = self._mean.get(request, self.longest / 2)
            self._mean[request] = self.memory * before + (1 - self.memory) * accepted

    def finish(self, request):
        self._mean.pop(request, None)


class OnlineAcceptance:
    """An acceptance law learnt round by round: discounted counts per position, and a prior worth `weight` trials.

    Position i starts from what all positions say together, a Beta law: with A accepted and R rejected candidates, prior
    included, the chance that candidate i is accepted once i − 1 were is (A + i − 1)/(A + R + i − 1).  It rises with i,
    for a request that came so far is one of the easy ones.  The position's own counts then take over.

    `prior` is the acceptance expected of an unknown request: a number or another `OnlineAcceptance` (the load's), which
    is asked anew each time.  All counts lose the share 1 − `memory` with every round, one without candidates included;
    so a draft that was switched off is tried again.

    >>> law = OnlineAcceptance(prior=0.5, weight=2.0, memory=1.0)
    >>> law.observe(drafted=4, accepted=3)
    >>> [round(a, 3) for a in law.conditional(2)]
    [0.778, 0.81]
    """

    def __init__(self, prior=0.6, weight=2.0, memory=0.98):
        self._prior = prior if isinstance(prior, OnlineAcceptance) else _checks.probability("prior", prior)
        self.weight, self.memory = _checks.positive_time("weight", weight), _checks.probability("memory", memory)
        self._hits, self._trials = [], []  # by position, discounted

    @property
    def mean(self):
        """The acceptance over all positions, prior included."""
        prior = self._prior.mean if isinstance(self._prior, OnlineAcceptance) else self._prior
        return (sum(self._hits) + self.weight * prior) / (sum(self._trials) + self.weight)

    def observe(self, drafted, accepted):
        """Count one round; position i was tried if i − 1 candidates were accepted and i were drafted."""
        if not 0 <= _checks.gamma(accepted, "accepted") <= _checks.gamma(drafted, "drafted"):
            raise ValueError(f"accepted = {accepted} of drafted = {drafted} candidates; K cannot exceed γ")
        self._hits = [value * self.memory for value in self._hits] + [0.0] * (drafted - len(self._hits))
        self._trials = [value * self.memory for value in self._trials] + [0.0] * (drafted - len(self._trials))
        for i in range(min(accepted + 1, drafted)):
            self._trials[i] += 1
            self._hits[i] += i < accepted

    def conditional(self, gamma):
        """Return the estimated (a_1, …, a_γ)."""
        trials = sum(self._trials) + self.weight
        hits = self.mean * trials
        own = [*zip(self._hits, self._trials, strict=True)] + [(0.0, 0.0)] * (gamma - len(self._hits))
        pooled = [(hits + i) / (trials + i) for i in range(gamma)]
        return [(h + self.weight * p) / (n + self.weight) for (h, n), p in zip(own, pooled, strict=False)]

    def survival(self, gamma):
        """Return the estimated (s_1, …, s_γ)."""
        found, product = [], 1.0
        for a in self.conditional(gamma):
            found.append(product := product * a)
        return found


class _Learner(Controller):
    """A controller with an `OnlineAcceptance` per request (or one for all) over that of the whole load."""

    def __init__(self, lengths, per_request, prior, weight, memory):
        self.lengths = sorted({_checks.gamma(length, "lengths") for length in lengths})
        if not self.lengths:
            raise ValueError("lengths is empty; give the lengths to choose from, such as range(9)")
        self._load = OnlineAcceptance(prior, weight, memory)
        self._new = (lambda: OnlineAcceptance(self._load, weight, memory)) if per_request else (lambda: self._load)
        self._own = {}

    def survival(self, request):
        """Return what is expected of the next round of `request`, (s_1, …) up to the longest length."""
        return self._own.get(request, self._load).survival(self.lengths[-1])

    def observe(self, request, drafted, accepted):
        own = self._own.setdefault(request, self._new())
        own.observe(drafted, accepted)
        if own is not self._load:
            self._load.observe(drafted, accepted)

    def finish(self, request):
        self._own.pop(request, None)


class StepRule(_Learner):
    """The length with the most tokens per second, by acceptance learnt online and a cost table.

    `t_round(gamma, batch_size)` is the time of a round in seconds when all requests draft gamma; length 0 with what a
    waiting draft costs.  Over convex costs this is where the step rule stops (P8, P9); over stairs it looks at every
    length.  A request is judged as if all of the batch were like it.  `per_request=False` learns one law for all.
    """

    def __init__(self, t_round, lengths, per_request=True, prior=0.6, weight=2.0, memory=0.98):
        super().__init__(lengths, per_request, prior, weight, memory)
        self.t_round = t_round

    def gamma(self, batch_size, request):
        survival = self.survival(request)
        return max(self.lengths, key=lambda g: ((1 + sum(survival[:g])) / self.t_round(g, batch_size), -g))


class Budget(_Learner):
    """A length per request from one budget for the step: `best_lengths` over the survivals learnt online.

    `t_step(depth, positions)` is the time of a step in seconds when the draft makes `depth` passes and the target
    verifies `positions` positions, one bonus position per request included.
    """

    def __init__(self, t_step, longest, prior=0.6, weight=2.0, memory=0.98):
        super().__init__(range(_checks.gamma(longest, "longest") + 1), True, prior, weight, memory)
        self.t_step = t_step

    def gammas(self, batch_size, requests):
        return best_lengths([self.survival(request) for request in requests], self.t_step, batch_size)


def best_lengths(survivals, t_step, batch_size=None):
    """Return one length per request, those with the most expected tokens per second of the step.

    `survivals[r]` are the estimates s_1 ≥ s_2 ≥ … of request r, made *before* the step drafts; `t_step` as in `Budget`.
    For every depth and number of positions the best choice is the largest survivals (P21), and all of them are tried,
    so this is the optimum for any cost that does not fall with depth, convex or not.  `batch_size` counts all requests
    of the step, each of which takes one position (default: those in `survivals`).
    """
    survivals = [list(row) for row in survivals]
    for r, row in enumerate(survivals):
        if any(not 0 <= now <= before for before, now in zip([1, *row], row, strict=False)):
            raise ValueError(f"survivals[{r}] = {row} must fall from at most 1 to at least 0; give s_1, s_2, …")
    batch_size = max(len(survivals), batch_size or 0)
    best = (len(survivals) / t_step(0, batch_size), [0] * len(survivals)) if survivals else (0, [])
    for depth in range(1, max(map(len, survivals), default=0) + 1):
        places = [(-s, i, r) for r, row in enumerate(survivals) for i, s in enumerate(row[:depth])]
        tokens, chosen = len(survivals), [0] * len(survivals)
        for drafted, (minus, _, r) in enumerate(sorted(places), start=1):
            tokens, chosen[r] = tokens - minus, chosen[r] + 1
            rate = tokens / t_step(depth, batch_size + drafted)
            if rate > best[0]:
                best = (rate, list(chosen))
    return best[1]
