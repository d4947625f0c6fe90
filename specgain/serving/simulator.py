"""The simulator: one engine step after the other, the state of all running requests in a few arrays.

A step does what vLLM's V1 scheduler does.  The running requests come first, in the order of their admission: each
wants its unread tokens (one in decoding, the rest of the prompt in prefill) and its candidates, as far as the token
budget lasts.  Slots for these, and `lookahead` more, are reserved in blocks; if there are too few blocks, the request
admitted last is preempted and later computes its cache anew.  Then waiting requests are admitted.  The target runs once
over all positions.  Each request that has read all its tokens commits its accepted prefix and one token more, the
slots of rejected candidates are rolled back (their blocks stay with the request), and the draft proposes candidates,
which the *next* step verifies.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from specgain import _checks
from specgain.acceptance import Acceptance
from specgain.control import ByBatch, Controller, Fixed
from specgain.serving.model import Engine
from specgain.streaming import Stream

ENDLESS = 1 << 60  # blocks of a cache without end

# One row per quantity, one column per running request, in the order of admission.
(ID, KNOWN, END, COMPUTED, BLOCKS, GAMMA, PREFILL, ROUNDS, DRAFTED, ACCEPTED, LAW, CUT, PREFILLS, PREEMPTED, PROMPT,
 REMADE, STOPS, RECORD) = range(18)  # fmt: skip
ARRIVAL, SCHEDULED, FIRST, LAST, LONGEST = range(5)  # times


class Served(NamedTuple):
    """A finished request; times in seconds.  `tokens` are its output, `prefill_tokens` of them came from a prefill."""

    id: int
    prompt_tokens: int
    tokens: int
    rounds: int
    drafted: int
    accepted: int
    cut: int
    prefill_tokens: int
    preemptions: int
    recomputed_tokens: int
    finish: str
    arrival: float
    scheduled: float
    first: float
    last: float
    longest_gap: float

    @property
    def ttft(self):
        """Seconds from arrival to the first token, queue and prefill in."""
        return self.first - self.arrival

    @property
    def queue(self):
        """Seconds from arrival until it was first scheduled."""
        return self.scheduled - self.arrival

    @property
    def latency(self):
        """Seconds from arrival to the last token."""
        return self.last - self.arrival

    @property
    def tpot(self):
        """Mean seconds per token after the first; NaN for one token."""
        return (self.last - self.first) / (self.tokens - 1) if self.tokens > 1 else float("nan")


@dataclass
class Totals:
    """Counts and seconds of a whole run.  Rounds are request-rounds; `area` is ∫ requests in the system · dt."""

    time: float = 0.0
    idle: float = 0.0
    t_draft: float = 0.0
    t_verify: float = 0.0
    t_other: float = 0.0
    hidden: float = 0.0
    area: float = 0.0
    arrived: int = 0
    finished: int = 0
    refused: int = 0
    steps: int = 0
    rounds: int = 0
    round_seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0
    committed: int = 0
    cut: int = 0
    prefill_tokens: int = 0
    prefilled: int = 0
    positions: int = 0
    wasted: int = 0
    preemptions: int = 0
    recomputed_tokens: int = 0

    @property
    def committed_length(self):
        """E[L]: tokens committed by rounds over rounds, those without a draft included."""
        return self.committed / self._some_rounds()

    @property
    def round_time(self):
        """Mean seconds of the steps that the rounds were part of."""
        return self.round_seconds / self._some_rounds()

    @property
    def token_time(self):
        """Seconds of round per committed token, T_round/E[L]."""
        return self.round_time / self.committed_length

    def _some_rounds(self):
        if not self.rounds:
            raise ValueError("no request decoded a round in this run; all tokens came from prefills")
        return self.rounds

    @property
    def tokens(self):
        """All output tokens, those of prefills included."""
        return self.committed + self.prefill_tokens

    @property
    def throughput(self):
        """Output tokens per second of the whole run."""
        return self.tokens / self.time


@dataclass(frozen=True)
class Step:
    """What one step did; arrays have one entry per request of the step, in the order of admission."""

    start: float
    end: float
    t_draft: float
    t_verify: float
    t_other: float
    positions: int
    ids: tuple
    prefill: tuple
    granted: tuple
    drafted: tuple
    accepted: tuple
    committed: tuple
    rolled_back: tuple
    context: tuple
    blocks: tuple
    free_blocks: int | None
    waiting: int
    preempted: tuple


@dataclass
class Result:
    """A run: its totals, its finished requests, those refused as (id, reason), and its steps if they were kept."""

    engine: Engine
    totals: Totals
    requests: list = field(default_factory=list)
    refused: list = field(default_factory=list)
    steps: list = field(default_factory=list)

    def mean(self, name):
        """Return the mean over finished requests of a quantity such as "ttft", "tpot" or "latency"."""
        return float(np.nanmean(self.column(name)))

    def column(self, name):
        """Return a quantity of all finished requests as an array, in the order in which they finished."""
        if not self.requests:
            raise ValueError('no finished request was kept; run with keep="requests" or keep="steps"')
        return np.array([getattr(request, name) for request in self.requests], dtype=float)

    def stream(self, identifier):
        """Return the `Stream` of a finished request; needs keep="steps"."""
        served = next((r for r in self.requests if r.id == identifier), None)
        if served is None or not self.steps:
            raise ValueError(f'request {identifier} did not finish or its steps were not kept; run with keep="steps"')
        chunks = [
            (step.end, step.committed[step.ids.index(identifier)])
            for step in self.steps
            if step.start < served.last and step.end > served.arrival and identifier in step.ids
        ]
        times, tokens = zip(*(chunk for chunk in chunks if chunk[1]), strict=True)
        return Stream(served.arrival, served.scheduled, times, tokens)


def simulate(engine, requests, gamma=0, acceptance=None, clients=None, seed=0, keep="requests", gamma_max=None):
    """Return the `Result` of serving all `requests`; arguments as for `Simulation`."""
    return Simulation(engine, requests, gamma, acceptance, clients, seed, keep, gamma_max).run()


class Simulation:
    """A run that can be advanced step by step.

    `requests` are served as they arrive, in rising order of arrival; with `clients` = c they are a closed loop instead:
    c at once, the next one as soon as one ends, arrivals of their own ignored.  `gamma` is a number, rows
    [first, last, length] by batch size, or a `control.Controller`, whose answers are cut to `gamma_max`.
    `acceptance` is the law of requests that have none of their own.  `keep` is "totals" (memory stays flat),
    "requests" or "steps".  The same seed gives the same run.
    """

    def __init__(
        self, engine, requests, gamma=0, acceptance=None, clients=None, seed=0, keep="requests", gamma_max=None
    ):
        if keep not in ("totals", "requests", "steps"):
            raise ValueError(f'keep = {keep!r} is not known; give "totals", "requests" or "steps"')
        if clients is not None:
            _checks.whole("clients", clients, least=1)
        self.engine, self.keep, self.now = engine, keep, 0.0
        self.result = Result(engine, Totals())
        self.controller, self.longest = _controller(gamma, gamma_max)
        self._uniform = isinstance(self.controller, (Fixed, ByBatch))
        self._draws = _Draws(acceptance, self.longest, seed)
        self._source, self._coming, self._recorded = iter(requests), deque(), {}
        self._number, self._latest = 0, 0.0
        self._clients, self._waiting = clients, deque()
        self._ints = np.zeros((18, engine.max_num_seqs), dtype=np.int64)
        self._times = np.zeros((5, engine.max_num_seqs))
        self._resize(0)
        self._total_blocks = ENDLESS if engine.num_blocks is None else engine.num_blocks
        self._steady = False  # no row is in prefill and nothing was admitted since
        self._ghosts, self._ghost_blocks = 0, 0
        for _ in range(1 if clients is None else clients):
            self._pull()

    # -------------------------------------------------------------------------------------------- inspection

    @property
    def running(self):
        """The ids of the running requests, in the order of their admission."""
        return tuple(self._i[ID].tolist())

    @property
    def waiting(self):
        """The ids of the waiting requests, the next one first."""
        return tuple(ints[ID] for ints, _ in self._waiting)

    @property
    def used_blocks(self):
        """The blocks held by running requests, and by those that ended but are still in flight."""
        return int(self._i[BLOCKS].sum()) + self._ghost_blocks

    def state(self):
        """Return one dict per running request: its tokens, cached slots, blocks, and candidates for the next step."""
        names = {"id": ID, "known": KNOWN, "computed": COMPUTED, "blocks": BLOCKS, "gamma": GAMMA, "prefill": PREFILL}
        columns = {name: self._i[row].tolist() for name, row in names.items()}
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    # ---------------------------------------------------------------------------------------------- arrivals

    def _pull(self):
        """Take the next request from the source: its arrival is its own, or now for a client that just got its answer."""
        while (request := next(self._source, None)) is not None:
            arrival = request.arrival if self._clients is None else self.now
            if arrival < self._latest:
                raise ValueError(
                    f"request {self._number} arrives at {arrival} s, before the one in front of it at {self._latest} s; "
                    "sort the requests by arrival"
                )
            number, self._number, self._latest = self._number, self._number + 1, arrival
            reason = self.engine.refusal(request, max((d for d, _ in request.rounds or ()), default=self.longest))
            if reason is None:
                self._coming.append((arrival, number, request))
                return
            self.result.totals.refused += 1
            self.result.refused.append((number, reason))

    def _arrive(self):
        totals = self.result.totals
        while self._coming and self._coming[0][0] <= self.now:
            arrival, number, request = self._coming.popleft()
            totals.arrived += 1
            totals.area += self.now - arrival
            ints = [0] * 18
            ints[ID], ints[KNOWN], ints[PROMPT] = number, request.prompt_tokens, request.prompt_tokens
            ints[END], ints[PREFILL], ints[STOPS] = request.prompt_tokens + request.length, 1, int(request.stops)
            ints[LAW] = self._draws.law(request.acceptance)
            if request.rounds is not None:
                ints[RECORD], self._recorded[number] = 1, request.rounds
            self._waiting.append((ints, [arrival, -1.0, -1.0, 0.0, 0.0]))
            if self._clients is None:
                self._pull()

    # -------------------------------------------------------------------------------------------- scheduling

    def _resize(self, n):
        self._n, self._i, self._t = n, self._ints[:, :n], self._times[:, :n]

    def _budget(self, want):
        """Return what each request gets of the token budget, those in front first."""
        budget = self.engine.max_num_batched_tokens - self._ghosts
        before = np.cumsum(want) - want
        return np.minimum(want, np.maximum(budget - before, 0))

    def _schedule(self):
        """Return (positions granted per running request, ids preempted)."""
        s, preempted = self._i, ()
        want = s[KNOWN] + s[GAMMA]
        want -= s[COMPUTED]
        total = int(np.add.reduce(want))
        if total + self._ghosts > self.engine.max_num_batched_tokens:
            want = self._budget(want)
            total = int(np.add.reduce(want))
            self._steady = False
        blocks = self._needed(want)
        used = int(np.add.reduce(blocks)) + self._ghost_blocks
        if used > self._total_blocks:
            want, preempted = self._make_room(want)
        else:
            s[BLOCKS] = blocks
            if self._waiting and self._n < self.engine.max_num_seqs:
                want = self._admit(want, total, used)
        return want, preempted

    def _needed(self, want):
        """Return the blocks of each request once it has slots for `want` positions more and the lookahead."""
        s, size = self._i, self.engine.block_size
        slots = s[COMPUTED] + want
        slots += self.engine.lookahead + size - 1
        slots //= size
        if not self._steady:
            slots[want == 0] = 0
        return np.maximum(slots, s[BLOCKS], out=slots)

    def _make_room(self, want):
        """Reserve in order; while blocks are missing, preempt the request admitted last, the asking one itself included."""
        self._steady, preempted, place = False, [], 0
        blocks = self._i[BLOCKS].tolist()
        needed = self._needed(want).tolist()
        free = self._total_blocks - self._ghost_blocks - sum(blocks)
        while place < len(blocks):
            while needed[place] - blocks[place] > free:
                free += blocks.pop()
                preempted.append(len(blocks))
                if len(blocks) == place:
                    break
            else:
                free -= needed[place] - blocks[place]
                blocks[place] = needed[place]
                place += 1
        ids = tuple(self._preempt(column) for column in preempted)
        self._resize(len(blocks))
        self._i[BLOCKS] = blocks
        return want[: len(blocks)], ids

    def _preempt(self, column):
        """Put the request of a column back to the front of the queue, without its cache; return its id."""
        ints, totals = self._ints[:, column].tolist(), self.result.totals
        totals.preemptions += 1
        totals.recomputed_tokens += ints[COMPUTED]
        ints[REMADE] += ints[COMPUTED]
        ints[PREEMPTED] += 1
        ints[COMPUTED], ints[BLOCKS], ints[GAMMA], ints[PREFILL] = 0, 0, 0, 1
        self._waiting.appendleft((ints, self._times[:, column].tolist()))
        return ints[ID]

    def _admit(self, want, total, used):
        """Admit waiting requests while there are places, budget and blocks; return the positions granted."""
        engine, granted = self.engine, want.tolist()
        budget = engine.max_num_batched_tokens - self._ghosts - total
        while self._waiting and self._n < engine.max_num_seqs and budget > 0:
            ints, times = self._waiting[0]
            wanted = ints[KNOWN]
            if wanted > budget and not engine.chunked_prefill:
                break
            wanted = min(wanted, budget)
            blocks = engine.blocks(wanted + engine.lookahead)
            if used + blocks > self._total_blocks:
                break
            self._waiting.popleft()
            ints[BLOCKS] = blocks
            if times[SCHEDULED] < 0:
                times[SCHEDULED] = self.now
            self._ints[:, self._n], self._times[:, self._n] = ints, times
            self._resize(self._n + 1)
            used, budget, self._steady = used + blocks, budget - wanted, False
            granted.append(wanted)
        return np.array(granted, dtype=np.int64)

    # -------------------------------------------------------------------------------------------------- a step

    def step(self):
        """Run one engine step and return it (None unless steps are kept); False when nothing is left to do."""
        if not self._wake():
            return False
        ghosts, ghost_blocks = self._ghosts, self._ghost_blocks
        want, preempted = self._schedule()
        s, n = self._i, self._n
        offered, sampled = self._offered(want)
        accepted = np.minimum(self._draws.accepted(s, n), offered)
        if self._recorded:
            self._use_records(accepted, offered)
        before = (s[PREFILL].copy(), s[COMPUTED].copy()) if self.keep == "steps" else None
        positions = int(np.add.reduce(want)) + ghosts
        context = int(np.add.reduce(s[COMPUTED] if sampled is None else s[COMPUTED][want > 0]))
        committed = self._commit(want, offered, accepted, sampled)
        drafting, length = self._draft(want, offered, accepted, sampled)
        start, times = self.now, self.engine.cost(positions, context, drafting, length)
        self._advance(times, positions, n + len(self._waiting))
        self._clock(sampled)
        self._count(positions, ghosts, offered, accepted, committed, sampled, self.now - start)
        done = s[KNOWN] >= s[END]
        held = (tuple(s[ID].tolist()), tuple(s[BLOCKS].tolist())) if before else None
        self._ghosts, self._ghost_blocks = 0, 0
        if done.any():
            self._finish(done)
        if before is None:
            return None
        head = (start, self.now, *times, positions)
        columns = (before[0], want, offered, accepted, committed, offered - accepted, before[1])
        return self._record(head, held, columns, ghost_blocks, preempted)

    def _record(self, head, held, columns, ghost_blocks, preempted):
        """Keep and return the `Step`: its times, the ids and blocks held in it, one column per quantity, who was preempted."""
        ids, blocks = held
        free = self._total_blocks - sum(blocks) - ghost_blocks if self.engine.num_blocks is not None else None
        kept = (tuple(column.tolist()) for column in columns)
        self.result.steps.append(Step(*head, ids, *kept, blocks, free, len(self._waiting), preempted))
        return self.result.steps[-1]

    def _wake(self):
        """Let time pass until there is something to do; False if there never will be."""
        self._arrive()
        if not (self._n or self._waiting or self._ghosts):
            if not self._coming:
                return False
            self.result.totals.idle += self._coming[0][0] - self.now
            self.now = self._coming[0][0]
            self._arrive()
        return True

    def _offered(self, want):
        """Return (candidates verified per request, which requests have read all their tokens: None for all)."""
        s = self._i
        if self._steady:
            return s[GAMMA].copy(), None
        unread = s[KNOWN] - s[COMPUTED]
        sampled = want >= unread
        return np.where(sampled, want - unread, 0), sampled

    def _use_records(self, accepted, offered):
        for column in np.flatnonzero(self._i[RECORD]).tolist():
            if not self._i[PREFILL, column]:
                record = self._recorded[int(self._i[ID, column])][int(self._i[ROUNDS, column])]
                accepted[column] = min(record[1], offered[column])

    def _commit(self, want, offered, accepted, sampled):
        """Return the tokens that each request commits: advance all by their
        positions, roll back the slots of rejected candidates, cut what lies behind
        the end.
        """
        s = self._i
        if sampled is None:
            committed = accepted + 1
            s[COMPUTED] += committed
        else:
            committed = np.where(sampled, accepted + 1, 0)
            s[COMPUTED] += want - offered + accepted
        s[KNOWN] += committed
        over = s[KNOWN] - s[END]
        if over.max(initial=0) > 0:
            over = np.maximum(over, 0)
            s[CUT] += over
            s[KNOWN] -= over
            committed = committed - over
            self.result.totals.cut += int(over.sum())
        return committed

    def _draft(self, want, offered, accepted, sampled):
        """Set the candidates of the next step; return (requests drafted for, longest length)."""
        s = self._i
        batch = max(1, self._n if sampled is None else int(np.count_nonzero(want)))
        if self._uniform and not self._recorded:
            gamma = min(self.controller.gamma(batch, None), self.longest)
            s[GAMMA] = gamma if sampled is None else np.where(sampled, gamma, s[GAMMA])
            return self._n if sampled is None else int(np.count_nonzero(sampled)), gamma
        columns = range(self._n) if sampled is None else np.flatnonzero(sampled).tolist()
        ids = s[ID].tolist()
        for column in columns:
            if offered[column] or not s[PREFILL, column]:
                self.controller.observe(ids[column], int(offered[column]), int(accepted[column]))
        asked = [ids[column] for column in columns]
        lengths = self.controller.gammas(batch, asked) if asked else []
        for column, gamma in zip(columns, lengths, strict=True):
            s[GAMMA, column] = self._next_length(column, gamma)
        return len(asked), max((int(s[GAMMA, column]) for column in columns), default=0)

    def _next_length(self, column, gamma):
        """Return the candidates for the next round of a request: what its record says, else the controller's answer."""
        s = self._i
        if s[RECORD, column]:
            rounds = self._recorded[int(s[ID, column])]
            place = int(s[ROUNDS, column]) + (not s[PREFILL, column])
            return rounds[place][0] if place < len(rounds) else 0
        return min(_checks.whole("gamma", gamma), self.longest)

    def _advance(self, times, positions, in_system):
        """Let the step's time pass.  With asynchronous scheduling the host hides behind the device."""
        t_draft, t_verify, t_other = times
        totals, device = self.result.totals, t_draft + t_verify
        took = max(device, t_other) if self.engine.asynchronous else device + t_other
        if not 0 < took < float("inf"):
            raise ValueError(
                f"the cost of a step of {positions} positions is {times}; it must be more than 0 s and finite"
            )
        totals.t_draft, totals.t_verify, totals.t_other = (
            totals.t_draft + t_draft, totals.t_verify + t_verify, totals.t_other + t_other
        )  # fmt: skip
        totals.hidden += device + t_other - took
        totals.area += in_system * took
        self.now += took

    def _clock(self, sampled):
        """Note first tokens, last tokens and the longest gap of every request that got a chunk."""
        t, end = self._t, self.now
        if sampled is None:
            np.maximum(t[LONGEST], end - t[LAST], out=t[LONGEST])
            t[LAST] = end
            return
        fresh = sampled & (t[FIRST] < 0)
        old = sampled & ~fresh
        t[LONGEST, old] = np.maximum(t[LONGEST, old], end - t[LAST, old])
        t[FIRST, fresh] = end
        t[LAST, sampled] = end

    def _count(self, positions, ghosts, offered, accepted, committed, sampled, took):
        s, totals = self._i, self.result.totals
        if sampled is None:
            s[ROUNDS] += 1
            rounds, prefilled, tokens = self._n, 0, int(np.add.reduce(committed))
        else:
            decoding = sampled & (s[PREFILL] == 0)
            ended = sampled & (s[PREFILL] == 1)
            s[ROUNDS] += decoding
            s[PREFILLS] += ended
            s[PREFILL, ended] = 0
            rounds, tokens = int(np.count_nonzero(decoding)), int(committed[decoding].sum())
            totals.prefill_tokens += int(committed[ended].sum())
            prefilled = positions - ghosts - rounds - int(np.add.reduce(offered))
            self._steady = not s[PREFILL].any()
        drafted, kept = int(np.add.reduce(offered)), int(np.add.reduce(accepted))
        if drafted:
            s[DRAFTED] += offered
            s[ACCEPTED] += accepted
        totals.steps += 1
        totals.rounds += rounds
        totals.round_seconds += rounds * took
        totals.committed += tokens
        totals.drafted += drafted
        totals.accepted += kept
        totals.positions += positions
        totals.prefilled += prefilled
        totals.wasted += ghosts

    def _finish(self, done):
        """Take finished requests out.  A stop found out late leaves its next round in flight."""
        s, totals = self._i, self.result.totals
        finished = self._ints[:, : self._n][:, done]
        moments = self._times[:, : self._n][:, done]
        if self.engine.asynchronous:
            late = finished[:, finished[STOPS] == 1]
            self._ghosts = int((late[GAMMA] + 1).sum())
            self._ghost_blocks = int(late[BLOCKS].sum())
        left = ~done
        kept = int(np.count_nonzero(left))
        self._ints[:, :kept], self._times[:, :kept] = s[:, left], self._t[:, left]
        self._resize(kept)
        totals.finished += finished.shape[1]
        for identifier in finished[ID].tolist():
            self.controller.finish(identifier)
            self._recorded.pop(identifier, None)
            if self._clients is not None:
                self._pull()
        if self.keep != "totals":
            self.result.requests += map(_served, finished.T.tolist(), moments.T.tolist())

    def run(self, until=float("inf")):
        """Run until nothing is left to do, or until the clock passes `until` seconds; return the `Result`."""
        while self.now < until and self.step() is not False:
            pass
        self.result.totals.time = self.now
        return self.result


def _served(ints, times):
    return Served(
        ints[ID], ints[PROMPT], ints[KNOWN] - ints[PROMPT], ints[ROUNDS], ints[DRAFTED], ints[ACCEPTED], ints[CUT],
        ints[PREFILLS], ints[PREEMPTED], ints[REMADE], "stop" if ints[STOPS] else "length", *times,
    )  # fmt: skip


def _controller(gamma, gamma_max):
    """Return (controller, longest length) of a number, rows by batch size, or a controller."""
    if isinstance(gamma, Controller):
        longest = 8 if gamma_max is None else _checks.whole("gamma_max", gamma_max)
        if isinstance(gamma, Fixed):
            longest = gamma.gamma(1, None) if gamma_max is None else longest
        return gamma, longest
    if isinstance(gamma, (list, tuple)):
        controller, longest = ByBatch(gamma), max(row[2] for row in gamma)
    else:
        controller, longest = Fixed(gamma), _checks.whole("gamma", gamma)
    return controller, longest if gamma_max is None else min(longest, _checks.whole("gamma_max", gamma_max))


class _Draws:
    """Accepted prefixes drawn from the laws of the requests, in blocks of uniform numbers."""

    SIZE = 1 << 14

    def __init__(self, acceptance, longest, seed):
        if longest and acceptance is not None and not isinstance(acceptance, Acceptance):
            raise TypeError(f"acceptance = {acceptance!r} is not an Acceptance; build Acceptance.constant(0.8)")
        self._longest, self._rng = longest, np.random.default_rng(seed)
        self._laws = {}
        self._table = np.zeros((0, longest))
        self._default = acceptance
        self._place, self._block, self._single = self.SIZE, None, True

    def law(self, acceptance):
        """Return the row of the law in the table; without any law nothing is accepted."""
        acceptance = acceptance or self._default
        if acceptance not in self._laws:
            self._laws[acceptance] = len(self._laws)
            row = acceptance.survival(self._longest) if acceptance else [0.0] * self._longest
            self._table = np.vstack([self._table, np.array(row, dtype=float).reshape(1, self._longest)])
            self._place = self.SIZE
        return self._laws[acceptance]

    def accepted(self, s, n):
        """Return how many of `longest` candidates each of the n requests would accept."""
        if self._place + n > self.SIZE:
            drawn = self._rng.random(max(self.SIZE, n))
            self._single = len(self._laws) == 1
            self._block = np.searchsorted(-self._table[0], -drawn, side="left") if self._single else drawn
            self._place = 0
        self._place += n
        block = self._block[self._place - n : self._place]
        return block if self._single else (self._table[s[LAW]] > block[:, None]).sum(axis=1)
