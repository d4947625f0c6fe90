"""What a round costs on paper: the bytes and operations of every pass, against the ceilings of a machine.

A pass over a batch runs three kinds of kernels: the *linear* layers read the weights once, whatever the number of
positions; *attention* reads every request's cache; the *head* makes one row of logits per position.  A kernel takes the
time of its bytes or of its operations, whichever is longer, or something between that and their sum (`overlap`).
Weights and arithmetic are those of `hardware`; `fit` takes the ceilings from a measured table instead.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from specgain import _checks
from specgain.acceptance import Acceptance
from specgain.hardware import Accelerator, ModelShape, bytes_per_number
from specgain.memory import kv_bytes_per_token
from specgain.round_time import RoundTime

LOGIT_BYTES = 4  # logits are written in 32 bits


# ------------------------------------------------------------------------------------------ the work of a pass


@dataclass(frozen=True)
class Pass:
    """What one pass works on, summed over its requests; passes add up, so prefills and decodes can share a step.

    `positions` computed; `cached` tokens read from the caches; `attended` pairs of a position and a token before it
    (itself included); `logits` rows of the head.
    """

    positions: float
    cached: float
    attended: float
    logits: float

    @classmethod
    def of(cls, batch_size, positions=1, context=0, logits=None):
        """Return the pass of `batch_size` requests with `positions` new positions each, behind `context` cached tokens.

        `logits` rows per request: every position by default (decoding, verification), 1 for a prefill.

        >>> Pass.of(batch_size=2, positions=4, context=100)
        Pass(positions=8, cached=200, attended=820, logits=8)
        """
        n = _checks.whole("positions", positions, least=1)
        rows = n if logits is None else _checks.whole("logits", logits)
        b, context = _checks.whole("batch_size", batch_size, least=1), _context(context)
        return cls(b * n, b * context, b * (n * context + n * (n + 1) // 2), b * rows)

    def __add__(self, other):
        if not isinstance(other, Pass):
            return NotImplemented
        return Pass(
            self.positions + other.positions,
            self.cached + other.cached,
            self.attended + other.attended,
            self.logits + other.logits,
        )


def _context(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(
            f"context = {value!r} is outside its range; context must be a finite number of tokens, 0 or more"
        )
    return value


class Kernel(NamedTuple):
    """Bytes moved and operations done by one kind of kernel in one pass, over all layers."""

    name: str
    bytes: float
    flops: float


def kernels(shape, work, format="fp16", kv_format="fp16"):
    """Return the three `Kernel`s of a pass: linear layers, attention, head.

    Experts are read by union (P19), embedding rows are gathered, candidates
    are written to the cache.
    """
    number, kv = bytes_per_number(format), kv_bytes_per_token(shape, kv_format)
    shared, experts = shape.shared_weights, shape.experts
    each = shape.moe_layers * shape.expert_weights
    touched = experts.touched(work.positions) * each if experts else 0
    used = experts.active * each if experts else 0
    linear = (shared + touched + work.positions * shape.width) * number
    cache = (work.cached + work.positions) * kv
    head = shape.head_weights * number if work.logits else 0
    logits = work.logits * shape.vocab * LOGIT_BYTES
    return (
        Kernel("linear", linear, 2 * work.positions * (shared + used)),
        Kernel("attention", cache, work.attended * shape.attention_flops),
        Kernel("head", head + logits, 2 * work.logits * shape.head_weights),
    )


# ------------------------------------------------------------------------------------------ the time of a pass


@dataclass(frozen=True)
class Roofline:
    """Times of passes and rounds of `target` (and `draft`) on an accelerator; all in seconds.

    `format`, `draft_format`, `kv_format`: how weights and caches are stored; `arithmetic`: the format of the operations
    (fp16 where the machine has it, else its first).  `overhead` seconds per pass and `layer_overhead` per layer in it
    come on top.  `overlap`: reads and arithmetic of a kernel take (r^p + w^p)^(1/p) with p = overlap, from 1 (one after
    the other) to infinity (the longer of the two).  `together`: the whole pass is one kernel, as P17 and P18 assume.
    `padding`: sizes that a pass is padded up to (captured graphs); above the last it runs as it is.  `other`: what a
    speculative round takes beside its passes.  `parallel`: the draft makes all candidates in one pass.  `sync`: with
    length 0 the draft still runs one pass, to keep its cache in step.

    >>> from specgain.hardware import H100, LLAMA_31_8B
    >>> roof = Roofline(H100, LLAMA_31_8B)
    >>> f"{roof.t_decode(1) * 1e3:.2f} ms, verifying 4: {roof.t_verify(3) * 1e3:.2f} ms"
    '4.48 ms, verifying 4: 4.48 ms'
    """

    accelerator: Accelerator
    target: ModelShape
    draft: ModelShape | None = None
    format: str = "fp16"
    draft_format: str | None = None
    kv_format: str = "fp16"
    arithmetic: str | None = None
    overhead: float = 0.0
    layer_overhead: float = 0.0
    other: float = 0.0
    overlap: float = math.inf
    together: bool = False
    padding: tuple = ()
    parallel: bool = False
    sync: bool = True

    def __post_init__(self):
        if not isinstance(self.accelerator, Accelerator):
            raise TypeError(
                f"accelerator = {self.accelerator!r} is not an Accelerator; take one from specgain.hardware"
            )
        for name, shape in (("target", self.target), ("draft", self.draft)):
            if not (isinstance(shape, ModelShape) or (shape is None and name == "draft")):
                raise TypeError(f"{name} = {shape!r} is not a ModelShape; take one from specgain.hardware.MODELS")
        for format in (self.format, self.draft_format or self.format, self.kv_format):
            bytes_per_number(format)
        for name in ("overhead", "layer_overhead", "other"):
            _checks.time(name, getattr(self, name))
        if not self.overlap >= 1:
            raise ValueError(f"overlap = {self.overlap} is outside its range; give 1 (none) to infinity (full)")
        sizes = tuple(_checks.whole("padding", size, least=1) for size in self.padding)
        if sizes != tuple(sorted(set(sizes))):
            raise ValueError(f"padding = {self.padding} must be rising numbers of positions")
        object.__setattr__(self, "padding", sizes)
        known = self.accelerator.flops
        chosen = self.arithmetic or ("fp16" if {"fp16", "bf16"} & set(known) else next(iter(known)))
        self.accelerator.peak(chosen)
        object.__setattr__(self, "arithmetic", chosen)

    def padded(self, work):
        """Return the pass as it is computed: its positions and logits padded up to the next captured size."""
        size = next((size for size in self.padding if size >= work.positions), work.positions)
        if size == work.positions:
            return work
        return replace(work, positions=size, logits=work.logits + (size - work.positions if work.logits else 0))

    def parts(self, work, draft=False):
        """Return {kernel: seconds} of one pass of the target (or the draft), its overhead included."""
        shape, format = self._model(draft)
        found = kernels(shape, self.padded(work), format, self.kv_format)
        if self.together:
            found = (Kernel("pass", sum(k.bytes for k in found), sum(k.flops for k in found)),)
        times = {kernel.name: self._kernel_time(kernel) for kernel in found}
        return times | {"overhead": self.overhead + self.layer_overhead * shape.layers}

    def t_pass(self, work, draft=False):
        """Return the seconds of one pass over `work`."""
        return sum(self.parts(work, draft).values())

    def _model(self, draft):
        if not draft:
            return self.target, self.format
        if self.draft is None:
            raise ValueError("this Roofline has no draft; build it with draft=, a ModelShape")
        return self.draft, self.draft_format or self.format

    def _kernel_time(self, kernel):
        read, work = kernel.bytes / self.accelerator.bandwidth, kernel.flops / self.accelerator.peak(self.arithmetic)
        longer, shorter = max(read, work), min(read, work)
        if math.isinf(self.overlap) or shorter == 0:
            return longer
        return longer * (1 + (shorter / longer) ** self.overlap) ** (1 / self.overlap)

    # ---- rounds

    def t_decode(self, batch_size=1, context=0):
        """Return the seconds of an ordinary decode step of `batch_size` requests with `context` tokens each."""
        return self.t_pass(Pass.of(batch_size, 1, context))

    def t_verify(self, gamma, batch_size=1, context=0):
        """Return T_verify: one target pass over γ + 1 positions per request."""
        return self.t_pass(Pass.of(batch_size, _checks.whole("gamma", gamma) + 1, context))

    def t_draft(self, gamma, batch_size=1, context=0):
        """Return T_draft: γ draft passes over one position per request, or one pass over γ (`parallel`).

        With γ = 0 the draft still runs one pass if `sync`; without a draft model (n-gram) nothing is drafted here.
        The token that a draft reads in addition after a fully accepted round is left out.
        """
        gamma = _checks.whole("gamma", gamma)
        if self.draft is None or (gamma == 0 and not self.sync):
            return 0.0
        if self.parallel:
            return self.t_pass(Pass.of(batch_size, max(gamma, 1), context), draft=True)
        return max(gamma, 1) * self.t_pass(Pass.of(batch_size, 1, context), draft=True)

    def t_prefill(self, tokens, cached=0):
        """Return the seconds to compute `tokens` prompt tokens of one request behind `cached` ones, draft included.

        This is also what a preempted request costs: `tokens` = `memory.recompute_tokens(...)`.
        """
        work = Pass.of(1, tokens, cached, logits=1)
        return self.t_pass(work) + (self.t_pass(work, draft=True) if self.draft else 0.0)

    def round_time(self, batch_size=1, context=0):
        """Return the `RoundTime` of `batch_size` requests with `context` tokens each: three curves γ → seconds."""
        return RoundTime(
            draft=lambda gamma: self.t_draft(gamma, batch_size, context),
            verify=lambda gamma: self.t_verify(gamma, batch_size, context),
            other=self.other,
        )

    def step(self, positions, context, drafting, gamma):
        """Return (t_draft, t_verify, t_other) of one step of a server: the step cost of `specgain.serving.Engine`.

        `positions` over all requests behind `context` cached tokens in all; `drafting` requests end the step with a
        token each, and γ candidates are drafted for them.  Every position attends to the mean context; what is more than
        the γ + 1 positions of each drafting request is prefill, which the draft reads too.
        """
        requests = max(drafting, 1)
        rows = min(positions, requests * (gamma + 1))
        attended = context / requests + 1
        verify = self.t_pass(Pass(positions, context, positions * attended, rows))
        if self.draft is None:
            return 0.0, verify, self.other
        read = positions - rows  # prompt tokens, which the draft has to read as well
        draft = self.t_pass(Pass(read, context, read * attended, 0), draft=True) if read else 0.0
        if drafting and (gamma or self.sync):
            n, passes = (max(gamma, 1), 1) if self.parallel else (1, max(gamma, 1))
            one = Pass(drafting * n, context, drafting * n * attended, drafting * n)
            draft += passes * self.t_pass(one, draft=True)
        return draft, verify, self.other

    def schedule_model(self, acceptance, batches, gammas, context=0):
        """Return what `schedule_derive.points_of_model` reads: acceptance and times (ms) per batch size and length."""
        if not isinstance(acceptance, Acceptance):
            raise TypeError(
                f"acceptance = {acceptance!r} is not an Acceptance; build one with Acceptance.constant(0.8)"
            )
        gammas = sorted({0, *gammas})
        plain, rounds = {}, {}
        for batch_size in batches:
            cost = self.round_time(batch_size, context)
            plain[str(batch_size)] = self.t_decode(batch_size, context) * 1e3
            rounds[str(batch_size)] = {str(gamma): cost(gamma) * 1e3 for gamma in gammas}
        law = list(acceptance.conditional(gammas[-1]))
        return {"conditional": law, "t_decode_ms": plain, "t_round_ms": rounds}


# ------------------------------------------------------------------------------------------ thresholds


def saturation_batch(accelerator, gamma, format="fp16", arithmetic=None):
    """Return the batch size B at which B·(γ + 1) positions use up the spare arithmetic of the linear layers.

    Dense weights, no cache.  Source: P17, B(γ + 1) = R·bytes/(2·b).

    >>> from specgain.hardware import H100
    >>> round(saturation_batch(H100, gamma=3), 1)
    73.8
    """
    return accelerator.ridge(format, arithmetic) / (_checks.whole("gamma", gamma) + 1)


def critical_context(accelerator, shape, gamma, kv_format="fp16", arithmetic="fp16"):
    """Return the context from which verification is memory-bound at every batch size, or None if no context is.

    One kernel per pass and perfect overlap.  Source: P18, 2P(γ + 1)/R / (m/b − (γ + 1)A/R), P all active parameters.

    >>> from specgain.hardware import A100, LLAMA_31_8B
    >>> round(critical_context(A100, LLAMA_31_8B, gamma=3))
    3577
    """
    positions, rate = _checks.whole("gamma", gamma) + 1, accelerator.peak(arithmetic)
    margin = kv_bytes_per_token(shape, kv_format) / accelerator.bandwidth - positions * shape.attention_flops / rate
    return 2 * shape.active_parameters * positions / rate / margin if margin > 0 else None


def verdicts(ledger_of, gamma, values):
    """Return [(value, faster)]: the verdict at the first of `values`, and at each later one where it changes.

    `ledger_of(value)` gives the Ledger at a batch size, a context, or whatever is varied.
    """
    found = []
    for value in values:
        faster = ledger_of(value).margin(gamma) > 0
        if not found or found[-1][1] != faster:
            found.append((value, faster))
    return found


# ------------------------------------------------------------------------------------------ ceilings from a table


@dataclass(frozen=True)
class Fit:
    """A `Roofline` with ceilings taken from measured passes, and how well it repeats them.

    `residuals` are predicted/measured − 1, one per row of the table.
    """

    roofline: Roofline
    residuals: tuple

    @property
    def median(self):
        """Median size of the residuals."""
        sizes = sorted(map(abs, self.residuals))
        return (sizes[(len(sizes) - 1) // 2] + sizes[len(sizes) // 2]) / 2

    @property
    def worst(self):
        """Largest size of a residual."""
        return max(map(abs, self.residuals))


def residuals(roofline, table):
    """Return predicted/measured − 1 for each (Pass, seconds) of a table."""
    wrong = next((work for work, _ in table if not isinstance(work, Pass)), None)
    if wrong is not None:
        raise TypeError(
            f"table holds {wrong!r}, which is not a Pass; give rows (Pass.of(batch_size, n, context), seconds)"
        )
    return tuple(roofline.t_pass(work) / _checks.positive_time("seconds", t) - 1 for work, t in table)


def fit(roofline, table, overlaps=(1, 1.5, 2, 4, math.inf), date=""):
    """Return the `Fit` of bandwidth, arithmetic, overhead per pass and overlap to measured [(Pass, seconds), …].

    Least squares of the relative error, by Gauss-Newton on the logarithms from the ceilings of `roofline`; the best of
    `overlaps` is kept.  Needs NumPy.  ValueError if fewer than three different passes were measured.
    """
    if len({work for work, _ in table}) < 3:
        raise ValueError(
            f"table holds {len({work for work, _ in table})} different passes; three or more fix three ceilings"
        )
    best = None
    for overlap in overlaps:
        fitted = _gauss_newton(replace(roofline, overlap=overlap), table, date)
        found = Fit(fitted, residuals(fitted, table))
        if best is None or sum(r * r for r in found.residuals) < sum(r * r for r in best.residuals):
            best = found
    return best


def _gauss_newton(roofline, table, date, steps=60):
    import numpy as np

    machine, least = roofline.accelerator, min(t for _, t in table)

    def of(theta):
        b, f, o = map(float, np.exp(np.clip(theta, -30, 60)))
        measured = machine.measured(
            bandwidth=b, flops={roofline.arithmetic: f}, source="fitted to measured passes", date=date
        )
        return replace(roofline, accelerator=measured, overhead=o)

    def error(theta):
        return np.log1p(np.array(residuals(of(theta), table)))

    theta = np.log([machine.bandwidth, machine.peak(roofline.arithmetic), roofline.overhead or 0.1 * least])
    damping, now = 1e-3, error(theta)
    for _ in range(steps):
        slope = np.stack([(error(theta + 1e-5 * unit) - now) / 1e-5 for unit in np.eye(3)], axis=1)
        step = np.linalg.solve(slope.T @ slope + damping * np.eye(3), -slope.T @ now)
        tried = error(theta + np.clip(step, -1, 1))
        better = tried @ tried < now @ now
        done = better and now @ now - tried @ tried < 1e-9 * (now @ now)
        theta, now = (theta + np.clip(step, -1, 1), tried) if better else (theta, now)
        damping = max(damping / 5, 1e-12) if better else damping * 5
        if done or damping > 1e9:
            break
    return of(theta)
