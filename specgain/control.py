"""Who decides the speculation length, step by step: controllers, what they learn from, and what they lose.

A controller is asked before a step and told after it.  It sees what earlier rounds accepted and never the tokens that
it decides about, so the output keeps the target's law.

    gamma(batch_size, request) -> int            how many candidates this request gets in the next step
    gammas(batch_size, requests) -> [int, …]     the same for all requests of a step at once
    observe(request, drafted, accepted)          what came of it
    finish(request)                              the request is over; forget it

`batch_size` counts all requests of the step, prefills included.  `request` is any hashable name.
"""

import math
from bisect import bisect_right
from heapq import heapify, heapreplace
from itertools import accumulate
from operator import mul

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
        self._gamma = _checks.whole("gamma", gamma)

    def gamma(self, batch_size, request):
        return self._gamma


class ByBatch(Controller):
    """A length per range of batch sizes: rows [first, last, length], as `specgain schedule derive` writes them.

    Sizes in a gap and beyond the last range keep the length of the range before, as in vLLM.

    >>> ByBatch([[1, 64, 3], [65, 128, 1], [129, 512, 0]]).gamma(100, "any")
    1
    """

    def __init__(self, ranges):
        rows = [tuple(_checks.whole("ranges", value) for value in row) for row in ranges]
        if not rows or rows[0][0] != 1 or any(a[1] >= b[0] for a, b in zip(rows, rows[1:], strict=False)):
            raise ValueError(f"ranges = {ranges} must be rows [first, last, length] that rise from 1 without overlap")
        self._firsts, self._lengths = [row[0] for row in rows], [row[2] for row in rows]

    def gamma(self, batch_size, request):
        return self._lengths[bisect_right(self._firsts, _checks.whole("batch_size", batch_size, least=1)) - 1]


class MovingAverage(Controller):
    """One more candidate than the request accepted lately: round(mean accepted) + 1, from 1 to `longest`.

    A rule of thumb without a clock: it knows what is accepted and not what it costs.  `memory` is the weight that a
    round's result keeps from one round to the next.
    """

    def __init__(self, longest, memory=0.8):
        self.longest, self.memory = _checks.whole("longest", longest, least=1), _checks.probability("memory", memory)
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
    """An acceptance law learnt round by round: discounted counts per position, and a prior worth `weight` candidates.

    `prior` is a number or another `OnlineAcceptance`: the load's, for the law of one request.  Without own rounds a
    request has the load's law; its own share of accepted candidates then shifts that law (its odds, by one factor at
    every position), and its own counts per position take over.  All counts keep the share `memory` from round to round.

    >>> law = OnlineAcceptance(prior=0.5, weight=2.0, memory=1.0)
    >>> law.observe(drafted=4, accepted=3)
    >>> [round(a, 3) for a in law.conditional(5)]
    [0.778, 0.778, 0.778, 0.444, 0.667]
    """

    def __init__(self, prior, weight, memory):
        self._prior = prior if isinstance(prior, OnlineAcceptance) else _checks.probability("prior", prior)
        self.weight, self.memory = _checks.positive_time("weight", weight), _checks.probability("memory", memory)
        self._hits, self._trials = [], []  # by position, discounted

    @property
    def mean(self):
        """The share of accepted candidates, prior included."""
        prior = self._prior.mean if isinstance(self._prior, OnlineAcceptance) else self._prior
        return (sum(self._hits) + self.weight * prior) / (sum(self._trials) + self.weight)

    def observe(self, drafted, accepted):
        """Count one round; position i was tried if i − 1 candidates were accepted and i were drafted."""
        if not 0 <= _checks.whole("accepted", accepted) <= _checks.whole("drafted", drafted):
            raise ValueError(f"accepted = {accepted} of drafted = {drafted} candidates; K cannot exceed γ")
        new, tried = [0.0] * (drafted - len(self._hits)), min(accepted + 1, drafted)
        self._hits = [h * self.memory + (i < accepted) for i, h in enumerate(self._hits + new)]
        self._trials = [n * self.memory + (i < tried) for i, n in enumerate(self._trials + new)]

    def conditional(self, gamma, errors=0.0):
        """Return the estimated (a_1, …, a_γ), each raised by `errors` standard errors: most where little was tried."""
        own = [*zip(self._hits, self._trials, strict=True)] + [(0.0, 0.0)] * (gamma - len(self._hits))
        w = self.weight
        found = [(h + w * b) / (n + w) for (h, n), b in zip(own, self._base(gamma), strict=False)]
        if errors:
            tried = (n + 1 for _, n in own)
            found = [min(1.0, a + errors * (a * (1 - a) / n) ** 0.5) for a, n in zip(found, tried, strict=False)]
        return found

    def _base(self, gamma):
        """Return what is expected at each position before its own counts."""
        if not isinstance(self._prior, OnlineAcceptance):
            return [self.mean] * gamma
        factor = _odds(self.mean) / _odds(self._prior.mean)
        return [a * factor / (1 - a + a * factor) for a in self._prior.conditional(gamma)]

    def survival(self, gamma):
        """Return the estimated (s_1, …, s_γ)."""
        return list(accumulate(self.conditional(gamma), mul))


def _odds(p):
    p = min(max(p, 1e-6), 1 - 1e-6)
    return p / (1 - p)


class Spread:
    """How much requests differ: the weight of the load's law in that of a new request, from the finished ones.

    If a request's own acceptance is drawn from a Beta law of weight w around the load's, the squared error of its count
    is n·m·(1 − m)·(1 + (n − 1)/(w + 1)) on average for n candidates at load mean m.  Solved for w over all finished
    requests, with `start` as the answer of four more.  Requests alike give a large weight, mixed ones a small one.
    """

    start, most = 8.0, 200.0

    def __init__(self):
        self._sums, self._count = (0.0,) * 5, 0

    def add(self, hits, trials):
        """Count a finished request."""
        self._count += 1
        terms = (hits * hits, hits * trials, trials * trials, hits, trials)
        self._sums = tuple(a + b for a, b in zip(self._sums, terms, strict=True))

    @property
    def weight(self):
        """The weight w in candidates, at most `most`."""
        hh, hn, nn, h, n = self._sums
        if nn <= n or not 0 < h < n:
            return self.start
        mean = h / n
        square = hh - 2 * mean * hn + mean * mean * nn
        correlation = min(1.0, max(0.0, (square / (mean * (1 - mean)) - n) / (nn - n)))
        correlation = (self._count * correlation + 4 / (1 + self.start)) / (self._count + 4)
        return min(self.most, 1 / correlation - 1)


class _Learner(Controller):
    """A controller that learns one law for the load and, over it, one for each request.

    The load starts from `prior`, high on purpose and worth `weight` candidates: it drafts until it knows better.  A
    request that is not drafted is tried again, or nothing more would be learnt about it: after `patience` rounds, and
    after twice as many rounds each time that the try did not convince.
    """

    def __init__(self, lengths, prior=0.8, weight=50.0, memory=0.9, load_memory=0.999, patience=20):
        self.lengths = sorted({_checks.whole("lengths", length) for length in lengths})
        if not self.lengths or self.lengths[-1] == 0:
            raise ValueError("lengths has no length above 0; give the lengths to choose from, such as range(9)")
        self.load, self.spread = OnlineAcceptance(prior, weight, load_memory), Spread()
        self.memory, self.patience = memory, _checks.whole("patience", patience, least=1)
        self._laws, self._counts, self._idle, self._wait = {}, {}, {}, {}

    def law(self, request):
        """Return the `OnlineAcceptance` of a request."""
        if request not in self._laws:
            self._laws[request] = OnlineAcceptance(self.load, self.spread.weight, self.memory)
        return self._laws[request]

    def due(self, request):
        """Return True if the request should be drafted for the sake of knowing: a new one, or one that waited."""
        return request not in self._idle or self._idle[request] >= self._wait[request]

    def observe(self, request, drafted, accepted):
        if drafted:
            tried_again = self.due(request) and request in self._idle
            self._wait[request] = 2 * self._wait[request] if tried_again else self.patience
            self.law(request).observe(drafted, accepted)
            self.load.observe(drafted, accepted)
            hits, trials = self._counts.get(request, (0, 0))
            self._counts[request] = hits + accepted, trials + min(accepted + 1, drafted)
        self._wait.setdefault(request, self.patience)
        self._idle[request] = 0 if drafted else self._idle.get(request, 0) + 1

    def finish(self, request):
        if request in self._counts:
            self.spread.add(*self._counts.pop(request))
        for kept in (self._laws, self._idle, self._wait):
            kept.pop(request, None)


class StepRule(_Learner):
    """The length with the most tokens per second, by acceptance learnt online and a cost table.

    `t_round(gamma, batch_size)` is the time of a round in seconds when all requests draft gamma; length 0 with what a
    waiting draft costs.  Over convex costs this is where the step rule stops (P8, P9); over stairs it looks at every
    length.  A request is judged as if all of the batch were like it, and leaves the load's best length only for one
    that promises `margin` more: what a few rounds say is noisy, and the top is flat.

    Rounds of length 4 say nothing about a fifth candidate.  So where drafting pays, the load's best length is sought with
    acceptances `errors` standard errors too high: it grows until what lies behind it is known, but to no length that
    seems to lose more than `margin`, as requests leave such a one.
    """

    def __init__(self, t_round, lengths, margin=0.05, errors=0.5, **learning):
        super().__init__(lengths, **learning)
        self.t_round, self.margin, self.errors = t_round, margin, errors

    def gammas(self, batch_size, requests):
        load = self.rates(self.load, batch_size)
        if max(load, key=load.get):
            load = self.rates(self.load, batch_size, self.errors)
        return [self._choose(load, batch_size, request) for request in requests]

    def _choose(self, load, batch_size, request):
        """Return the length of one request, given the `rates` of the load."""
        own = self.rates(self.law(request), batch_size)
        common, best = max(load, key=load.get), max(own, key=own.get)
        chosen = best if own[best] > own[common] * (1 + self.margin) else common
        if chosen == 0 and self.due(request):
            return max(filter(None, load), key=load.get)
        return chosen

    def rates(self, law, batch_size, errors=0.0):
        """Return {length: expected tokens per second} under an `OnlineAcceptance`."""
        survival = accumulate(law.conditional(self.lengths[-1], errors), mul)
        tokens = list(accumulate(survival, initial=1.0))
        return {g: tokens[g] / self.t_round(g, batch_size) for g in self.lengths}


class StopRule(StepRule):
    """A draft that looks at its own confidence after every pass and goes on while that pays (P22).

    `calibrate` turns a confidence into a chance of acceptance, such as `calibration.isotonic`.  `gammas` gives 0 or the
    longest length; the draft then asks `goes_on` before each further pass.  The candidates of earlier passes are always
    verified, so the choice does not look at the token that it decides about.
    """

    def __init__(self, t_round, longest, calibrate=float, **learning):
        super().__init__(t_round, range(_checks.whole("longest", longest, least=1) + 1), **learning)
        self.calibrate, self._known = calibrate, {}  # what `goes_on` needs of a request's law, for one round

    def gammas(self, batch_size, requests):
        return [self.lengths[-1] if length else 0 for length in super().gammas(batch_size, requests)]

    def observe(self, request, drafted, accepted):
        super().observe(request, drafted, accepted)
        self._known.pop(request, None)

    def goes_on(self, batch_size, request, confidences):
        """Return True if the draft should make another pass after those with these `confidences`.

        It should if some number of further candidates brings more than the request's tokens per second over their time.
        """
        if request not in self._known:
            law = self.law(request)
            self._known[request] = max(self.rates(law, batch_size).values()), law.conditional(self.lengths[-1])
        (rate, conditional), done = self._known[request], len(confidences)
        alive, more, base = math.prod(map(self.calibrate, confidences)), 0.0, self.t_round(done, batch_size)
        for gamma, a in enumerate(conditional[done:], start=done + 1):
            alive *= a
            more += alive
            if more > rate * (self.t_round(gamma, batch_size) - base):
                return True
        return False


class Budget(_Learner):
    """A length per request from one budget for the step: `best_lengths` over the survivals learnt online.

    `t_step(depth, positions)` is the time of a step in seconds when the draft makes `depth` passes and the target
    verifies `positions` positions, one per request for its own token included; of numbers, or of arrays of them.
    """

    def __init__(self, t_step, longest, **learning):
        super().__init__(range(_checks.whole("longest", longest, least=1) + 1), **learning)
        self.t_step = t_step

    def gammas(self, batch_size, requests):
        survivals = [self.law(request).survival(self.lengths[-1]) for request in requests]
        chosen = best_lengths(survivals, self.t_step, batch_size)
        return [g or int(self.due(request)) for g, request in zip(chosen, requests, strict=True)]


def best_lengths(survivals, t_step, batch_size=None):
    """Return one length per request, those with the most expected tokens per second of the step.

    `survivals[r]` are the estimates s_1 ≥ s_2 ≥ … of request r, made *before* the step drafts; `t_step` as in `Budget`.
    For every depth and number of positions the best choice is the largest survivals (P21), and all of them are tried,
    so this is the optimum for any cost that does not fall with depth, convex or not.  `batch_size` counts all requests of
    the step, each of which takes one position (default: those in `survivals`).
    """
    import numpy as np

    for r, row in enumerate(survivals):
        if any(not 0 <= now <= before for before, now in zip([1, *row], row, strict=False)):
            raise ValueError(f"survivals[{r}] = {row} must fall from at most 1 to at least 0; give s_1, s_2, …")
    count, depth = len(survivals), max(map(len, survivals), default=0)
    if not depth:
        return [0] * count
    places = np.array([[*row, *[-math.inf] * (depth - len(row))] for row in survivals])
    return StepTimes(t_step, count, depth, max(count, batch_size or 0)).best(places)[0]


class StepTimes:
    """The times of a step in which `count` of `batch_size` requests get up to `depth` candidates each, for many choices.

    `t_step` as in `Budget`; it gets all depths above 0 and all numbers of positions at once, as NumPy arrays.
    """

    def __init__(self, t_step, count, depth, batch_size):
        import numpy as np

        depths, drafted = np.arange(1, depth + 1)[:, None], np.arange(1, count * depth + 1)
        self.batch_size, self.plain = batch_size, t_step(0, batch_size)
        self.drafting = t_step(depths, batch_size + drafted)  # (depth, candidates − 1)
        self.beyond = np.where(np.arange(depth) < depths, 0.0, -math.inf)[:, None]  # what a draft so deep does not have

    def best(self, places):
        """Return (the lengths, the expected tokens, the seconds) of the step with the most tokens per second.

        `places` (count, depth) are the survivals of each request, −inf where it has no such place.
        """
        import numpy as np

        ranked = (places + self.beyond).reshape(len(self.beyond), -1)
        ranked.sort()
        tokens = ranked[:, ::-1].cumsum(axis=1) + self.batch_size  # for each depth the largest survivals first
        rates = tokens / self.drafting
        depth, last = divmod(int(rates.argmax()), tokens.shape[1])
        rate = rates.item(depth, last)
        if rate <= self.batch_size / self.plain:
            return [0] * len(places), self.batch_size, self.plain
        order = np.argsort(-places[:, : depth + 1].T, axis=None, kind="stable")  # among equals parents before children
        lengths = np.bincount(order[: last + 1] % len(places), minlength=len(places))
        return lengths.tolist(), tokens.item(depth, last), tokens.item(depth, last) / rate


def cut_lengths(survivals, t_verify, batch_size=None):
    """Return how many candidates of each request to verify when all are drafted already: the largest survivals first.

    `survivals[r]` are estimates that the draft made as it went, each from the candidates before it; `t_verify(positions)`
    is the step's time in seconds.  A candidate is taken while it raises the tokens per second of the step, and the first
    that does not ends the search (P22; the optimum for a convex time).  No estimate behind that place is read: they
    depend on the very candidates that are decided about, and using them would change the law of the output.
    """
    chosen, positions = [0] * len(survivals), max(len(survivals), batch_size or 0)
    tokens, seconds = len(survivals), t_verify(positions)
    rows = [iter(row) for row in survivals]
    heap = [(-s, r) for r, row in enumerate(rows) for s in [next(row, None)] if s is not None]
    heapify(heap)
    while heap:
        minus, r = heap[0]
        longer = t_verify(positions + 1)
        if (tokens - minus) * seconds <= tokens * longer:
            break
        tokens, seconds, positions, chosen[r] = tokens - minus, longer, positions + 1, chosen[r] + 1
        following = min(next(rows[r], 0.0), -minus)
        heapreplace(heap, (-following, r))
    return chosen


# ------------------------------------------------------------------------------------------ replay on recorded rounds


def replay(controller, agreements, rows=1, confidences=None):
    """Return the steps that `controller` would have made on recorded greedy requests: lists of (request, drafted, accepted).

    `agreements` maps a request to its string of "1" (the draft chooses the target's token) and "0"; they are served in
    order, `rows` at a time.  Each round of a draft depends on the text alone, so the replay is exact.  For a `StopRule`,
    `confidences[request][t]` holds the draft's confidences as it writes on from position t.
    """
    for request, text in agreements.items():
        if not text or set(text) - set("01"):
            raise ValueError(f"the agreement of {request!r} holds {text!r}; it must be a string of 0 and 1")
    waiting, place, steps = list(agreements), {}, []
    while waiting or place:
        while waiting and len(place) < rows:
            place[waiting.pop(0)] = 0
        active = list(place)
        steps.append([])
        for request, wanted in zip(active, controller.gammas(len(active), active), strict=True):
            text, at = agreements[request], place[request]
            drafted = min(wanted, len(text) - at - 1)
            if confidences is not None and drafted:
                sure = confidences[request][at]
                stops = (g for g in range(1, drafted) if not controller.goes_on(len(active), request, sure[:g]))
                drafted = next(stops, drafted)
            miss = text.find("0", at, at + drafted)
            accepted = drafted if miss < 0 else miss - at
            steps[-1].append((request, drafted, accepted))
            place[request] += accepted + 1
        for request, drafted, accepted in steps[-1]:
            controller.observe(request, drafted, accepted)
            if place[request] >= len(agreements[request]):
                controller.finish(request)
                del place[request]
    return steps


def rounds_by_request(steps):
    """Return {request: [(drafted, accepted), …]} from the steps of `replay`."""
    rounds = {}
    for request, drafted, accepted in (entry for step in steps for entry in step):
        rounds.setdefault(request, []).append((drafted, accepted))
    return rounds


def foresight(agreement, t_round, lengths):
    """Return the least seconds in which any choice of `lengths` decodes a recorded request whose agreement is known.

    `t_round(gamma, full)` is the time of a round in seconds; `full` says that the round before was accepted to the end,
    as the draft then has one more token to feed.  A bound for every controller; by dynamic programming from the end.
    """
    n = len(agreement)
    least = {(n, full): 0.0 for full in (False, True)}
    for at in reversed(range(n)):
        run = len(agreement[at:]) - len(agreement[at:].lstrip("1"))
        for full in (False, True):
            options = []
            for drafted in {min(g, n - at - 1) for g in lengths}:
                accepted = min(drafted, run)
                after = least[at + accepted + 1, drafted == accepted > 0]
                options.append(t_round(drafted, full) + after)
            least[at, full] = min(options)
    return least[0, False]
