"""Who asks, what a step costs, and the limits of the scheduler.  All times are seconds."""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np

from specgain import _checks
from specgain.acceptance import Acceptance
from specgain.round_time import RoundTime


@dataclass(frozen=True)
class Request:
    """One request: its prompt, the cap on its output, and where its text would end by itself.

    `stop_at` is the output token at which EOS or a stop string ends the text (None: only the cap does).  `acceptance`
    is its own law, instead of the run's.  `rounds` are recorded (drafted, accepted) pairs, which then decide both the
    lengths and what is accepted.
    """

    prompt_tokens: int
    output_tokens: int
    arrival: float = 0.0
    stop_at: int | None = None
    acceptance: Acceptance | None = None
    rounds: tuple | None = None

    def __post_init__(self):
        _checks.whole("prompt_tokens", self.prompt_tokens, least=1)
        _checks.whole("output_tokens", self.output_tokens, least=1)
        _checks.time("arrival", self.arrival)
        if self.stop_at is not None:
            _checks.whole("stop_at", self.stop_at, least=1)
        if self.acceptance is not None and not isinstance(self.acceptance, Acceptance):
            raise TypeError(f"acceptance = {self.acceptance!r} is not an Acceptance; build Acceptance.constant(0.8)")
        if self.rounds is not None:
            self._check_rounds()

    def _check_rounds(self):
        for r, (drafted, accepted) in enumerate(self.rounds):
            if not 0 <= _checks.whole("accepted", accepted) <= _checks.whole("drafted", drafted):
                raise ValueError(f"rounds[{r}] accepted {accepted} of {drafted} drafted tokens; K cannot exceed γ")
        able = 1 + sum(accepted + 1 for _, accepted in self.rounds)
        if able < self.length:
            raise ValueError(
                f"the {len(self.rounds)} recorded rounds and the prefill commit {able} tokens, the request ends after "
                f"{self.length}; give all of its rounds, those without a draft as (0, 0)"
            )

    @property
    def length(self):
        """The tokens that the output will have: the cap, or less if the text stops before it."""
        return self.output_tokens if self.stop_at is None else min(self.output_tokens, self.stop_at)

    @property
    def stops(self):
        """True if the text stops by itself."""
        return self.stop_at is not None and self.stop_at <= self.output_tokens


def poisson(rate, count, request, seed=0):
    """Yield `count` requests that arrive at random, `rate` per second on average.

    `request` is a `Request` to repeat, or a function number → Request.  The same seed gives the same arrivals.
    """
    if not 0 < rate < math.inf:
        raise ValueError(f"rate = {rate} is outside its range; rate must be above 0 requests per second")
    rng, now = np.random.default_rng(seed), 0.0
    for number in range(_checks.whole("count", count, least=1)):
        now += rng.exponential(1 / rate)
        yield replace(request(number) if callable(request) else request, arrival=now)


@dataclass(frozen=True)
class StepCost:
    """What one engine step takes: called with its positions, context, drafts and length, it returns three times.

    The pass over the target takes `base` + `per_position` · positions + `per_kv_token` · context; positions are
    padded to the next of `sizes` (CUDA graphs: a staircase), context are the cached tokens that attention reads.
    Drafting takes γ passes one after the other, each `draft_base` + `draft_per_request` · requests; at γ = 0 a draft
    with a cache of its own still needs `idle_passes` (1 in vLLM) to keep that cache in step.  `other` is the host's
    time per step: scheduling, sampling, sending.

    >>> cost = StepCost(base=0.010, per_position=0.001, draft_base=0.002, other=0.003, sizes=(8, 16))
    >>> [round(t, 4) for t in cost(positions=9, context=100, drafting=3, gamma=2)]
    [0.004, 0.026, 0.003]
    """

    base: float
    per_position: float = 0.0
    per_kv_token: float = 0.0
    draft_base: float = 0.0
    draft_per_request: float = 0.0
    idle_passes: int = 0
    other: float = 0.0
    sizes: tuple = ()

    def __post_init__(self):
        for name in ("base", "per_position", "per_kv_token", "draft_base", "draft_per_request", "other"):
            _checks.time(name, getattr(self, name))
        _checks.whole("idle_passes", self.idle_passes)
        if list(self.sizes) != sorted({_checks.whole("sizes", size, least=1) for size in self.sizes}):
            raise ValueError(f"sizes = {self.sizes} must be rising whole numbers of positions, such as (8, 16, 32)")

    def padded(self, positions):
        """Return the positions that are computed: the next size, or all of them beyond the largest size."""
        place = bisect_left(self.sizes, positions)
        return self.sizes[place] if place < len(self.sizes) else positions

    def __call__(self, positions, context, drafting, gamma):
        """Return (t_draft, t_verify, t_other) of a step, in seconds."""
        passes = (gamma or self.idle_passes) if drafting else 0
        verify = self.base + self.per_position * self.padded(positions) + self.per_kv_token * context
        return passes * (self.draft_base + self.draft_per_request * drafting), verify, self.other

    def round_time(self, batch_size=1, context=0):
        """Return the ledger's RoundTime of a step in which `batch_size` requests decode with the same γ."""
        part = [lambda gamma, i=i: self(batch_size * (gamma + 1), context, batch_size, gamma)[i] for i in range(3)]
        return RoundTime(*part)


@dataclass(frozen=True)
class Engine:
    """The limits of a server, named as in vLLM, and its step cost: a `StepCost` or any function with its arguments.

    `num_blocks` = None is a cache without end.  `lookahead` slots are reserved behind the positions of a step, for the
    candidates that are drafted at its end (γ for EAGLE-like drafts and draft models in vLLM, 0 for n-gram and suffix).
    `asynchronous` scheduling prepares the next step while the device works: the host's time hides behind the
    device's, and a request that stops by itself is found out one step too late.
    """

    cost: StepCost
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    num_blocks: int | None = None
    block_size: int = 16
    lookahead: int = 0
    chunked_prefill: bool = True
    asynchronous: bool = False

    def __post_init__(self):
        if not callable(self.cost):
            raise TypeError(f"cost = {self.cost!r} is not a step cost; give StepCost(base=0.010) or a function")
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
            _checks.whole(name, getattr(self, name), least=1)
        _checks.whole("lookahead", self.lookahead)
        if self.num_blocks is not None:
            _checks.whole("num_blocks", self.num_blocks, least=1)
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens = {self.max_num_batched_tokens} is less than max_num_seqs = "
                f"{self.max_num_seqs}: the budget must hold one token for every request of a full step"
            )

    def blocks(self, slots):
        """Return the blocks that hold this many slots, the last one rounded up."""
        return -(-slots // self.block_size)

    def refusal(self, request, longest):
        """Return why this request could never be finished, or None if it can; `longest` is the greatest γ."""
        whole = request.prompt_tokens + request.length - 1
        needed = self.blocks(whole + max(longest, 0) + self.lookahead)
        if self.num_blocks is not None and needed > self.num_blocks:
            return f"needs {needed} blocks at its end, the cache has {self.num_blocks}"
        if not self.chunked_prefill and whole > self.max_num_batched_tokens:
            return (
                f"{whole} tokens may have to be prefilled in one step, max_num_batched_tokens is "
                f"{self.max_num_batched_tokens}; without chunked prefill it cannot be divided"
            )
        return None
