"""What one record says, in counts, and the one normalised summary that is computed from it.

Every reader fills a `Record` with what its engine wrote and nothing else; what cannot be known stays None. `summary`
turns it into rates by one set of definitions, whatever the engine calls them:

    rounds                            rounds with a draft, the base of the acceptance counters
    rounds_all                        all rounds, those without a draft as well
    accepted, drafted                 draft tokens, no bonus token
    survival[i-1]                     rounds with K ≥ i over `rounds` (vLLM's "per-position acceptance rate")
    conditional[i-1]                  accepted at i over rounds that reached i and offered it
    pooled_acceptance                 accepted / drafted
    committed_length_drafting_rounds  1 + accepted / rounds, bonus in, before any cut by EOS or a limit
    committed_length                  tokens delivered per round over *all* rounds: the E[L] of the ledger
"""

from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from statistics import NormalDist

from specgain.acceptance import bounded_mean, conditional, constant_acceptance, wilson
from specgain.records.source import RecordError, Warn, shown

Z = NormalDist().inv_cdf(0.975)
GAMMA_MAX = 4096
# what only counters of drafts can give, for engines that print tokens and rounds alone
COUNTERS = (
    "drafted", "accepted", "pooled_acceptance", "survival", "conditional", "committed_length_drafting_rounds",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """One request's decode phase: `tokens` delivered after the first, all its `rounds` (None: not known), `seconds`."""

    tokens: int
    seconds: float | None
    rounds: int | None = None


@dataclass
class Record:
    """One run as its record shows it. Counts are whole numbers, times seconds; None means the record cannot tell."""

    engine: str
    format: str
    version: str | None = None
    aggregation: str = ""
    name: str = ""  # the file it comes from
    gamma: int | None = None  # the longest draft: configured, or seen
    rounds: int | None = None
    drafting_known: bool = True  # False: `rounds` are all rounds, how many had a draft is not known
    drafted: int | None = None
    accepted: int | None = None
    accepted_at: tuple | None = None  # rounds with K ≥ i, i = 1…γ
    survival: tuple | None = None  # given only where the counts are not known
    conditional: tuple | None = None  # given only where it does not follow from the survival
    rounds_all: int | None = None
    committed: int | None = None
    length_drafting: float | None = None  # given only where the counts are not known
    length: float | None = None
    length_bounds: tuple | None = None  # (low, high) of E[L] where a count is known only within limits
    decode_seconds: float | None = None  # of all rounds of all requests together, as `committed` counts them
    t_round: float | None = None  # given only where decode_seconds and rounds_all are not known
    tokens_per_second: float | None = None
    requests: list = field(default_factory=list)
    windows: list = field(default_factory=list)
    per_request: list = field(default_factory=list)
    details: dict = field(default_factory=dict)  # more numbers, named with their units
    reported: dict = field(default_factory=dict)  # numbers as the engine printed them, under its own names
    workload: dict = field(default_factory=dict)  # what must be equal on both sides of a comparison
    outputs: list = field(default_factory=list)  # a hash per generated text, to see whether greedy outputs agree
    warnings: list = field(default_factory=list)
    missing: dict = field(default_factory=dict)  # what cannot be known → how to get it from this engine

    def warn(self, code, text):
        """Add a warning, once."""
        if Warn(code, text) not in self.warnings:
            self.warnings.append(Warn(code, text))

    @property
    def has_acceptance(self):
        """True if the record says anything about acceptance."""
        return self.accepted is not None or self.length_drafting is not None or self.length is not None

    @property
    def speculative(self):
        """True if drafts were made; a run without any speculation is plain decoding."""
        return bool(self.drafted or self.rounds) or (self.length_drafting or self.length or 1) > 1

    @property
    def mixed_widths(self):
        """True if drafts of different lengths were made: then s_i mixes "rejected" with "not offered"."""
        if None in (self.gamma, self.rounds, self.drafted):
            return False
        return self.drafted != self.gamma * self.rounds

    @property
    def tokens_cut(self):
        """Tokens accepted but never delivered, by the identity rounds + accepted − cut = committed; None if unknown."""
        if None in (self.rounds_all, self.committed):
            return None
        if self.accepted is None:
            return 0 if self.rounds_all == self.committed else None
        return self.rounds_all + self.accepted - self.committed

    def seconds_per_token(self):
        """Seconds of decoding per delivered token (after the first), or None."""
        if self.decode_seconds is not None and self.committed:
            return self.decode_seconds / self.committed
        return 1 / self.tokens_per_second if self.tokens_per_second else None


def check(record):
    """Return `record` if its counts agree with each other; raises RecordError that says which do not."""
    r, d, a, at = record.rounds, record.drafted, record.accepted, record.accepted_at
    if (record.gamma or 0) > GAMMA_MAX:
        raise RecordError(f"{record.name}: drafts of {record.gamma} tokens; above {GAMMA_MAX} no record is believed")
    if None not in (record.committed, record.rounds_all):
        if record.committed < record.rounds_all - max(1, len(record.requests)):
            raise RecordError(f"{record.name}: {record.committed} tokens delivered in {record.rounds_all} rounds")
    if None not in (a, d) and a > d:
        raise RecordError(f"{record.name}: accepted = {a} exceeds drafted = {d}")
    if None not in (r, a, record.gamma) and a > r * record.gamma:
        raise RecordError(f"{record.name}: accepted = {a} exceeds {r} rounds of {record.gamma} draft tokens")
    if None not in (r, d, record.gamma) and d > r * record.gamma:
        raise RecordError(f"{record.name}: drafted = {d} exceeds {r} rounds of {record.gamma} draft tokens")
    if r == 0 and (a or d):
        raise RecordError(f"{record.name}: {d} drafted and {a} accepted tokens in no round")
    if at is not None:
        if a is not None and sum(at) != a:
            raise RecordError(f"{record.name}: the positions add up to {sum(at)} accepted tokens, the total says {a}")
        if any(later > earlier for earlier, later in zip((r or max(at, default=0), *at), at, strict=False)):
            raise RecordError(f"{record.name}: more tokens accepted at a later position than before it: {list(at)}")
    if record.survival and rises(record.survival, 1e-3):
        raise RecordError(f"{record.name}: survival rises along the draft, {shown(str(record.survival))}; it cannot")
    if record.tokens_cut is not None and record.tokens_cut < 0:
        raise RecordError(
            f"{record.name}: {record.committed} tokens delivered, but {record.rounds_all} rounds with "
            f"{record.accepted or 0} accepted tokens can give no more than {record.rounds_all + (record.accepted or 0)}"
        )
    return record


def rises(survival, slack=0.0):
    """Return True if Pr(K ≥ i) rises with i by more than `slack` (rounding): no counter can do that."""
    return any(later > earlier + slack + 1e-12 for earlier, later in pairwise(survival))


def rates(record):
    """Return the rates of a record as a dict: every key of the contract that is a number or a list of numbers."""
    r, d, a = record.rounds, record.drafted, record.accepted
    survival, conditional_ = _survival(record), _conditional(record)
    return {
        "rounds": r,
        "drafted": d,
        "accepted": a,
        "pooled_acceptance": a / d if d and a is not None else None,
        "committed_length": committed_length(record),
        "committed_length_drafting_rounds": _length_drafting(record),
        "survival": list(survival) if survival is not None else None,
        "conditional": list(conditional_) if conditional_ is not None else None,
    }


def committed_length(record):
    """Return E[L] over all rounds, or None."""
    if record.rounds_all and record.committed is not None:
        return record.committed / record.rounds_all
    return record.length


def _length_drafting(record):
    if record.rounds and record.accepted is not None and record.drafting_known:
        return 1 + record.accepted / record.rounds
    return record.length_drafting


def _survival(record):
    if record.accepted_at is not None and record.rounds:
        return tuple(hits / record.rounds for hits in record.accepted_at)
    return record.survival


def _conditional(record):
    """Return a_1…a_γ, or None where drafts of different lengths hide which positions were offered.

    Where no round reached position i, a_i is None.
    """
    if record.conditional is not None:
        return record.conditional
    survival = _survival(record)
    if survival is None or record.mixed_widths:
        return None
    falling = tuple(accumulate(survival, min))  # rounded rates may rise by a unit of their last digit
    return tuple(None if reached == 0 else a for reached, a in zip((1, *falling), conditional(falling), strict=False))


def t_round(record):
    """Return the mean time of a round in seconds, or None."""
    if record.rounds_all and record.decode_seconds is not None:
        return record.decode_seconds / record.rounds_all
    return record.t_round


# ------------------------------------------------------------------------------------------------- the contract

HOW = {
    "rounds": "the number of rounds: the draft length, if it is fixed (--num-speculative-tokens)",
    "drafted": "the number of drafted tokens",
    "accepted": "the engine's acceptance counters",
    "pooled_acceptance": "the numbers of accepted and of drafted tokens",
    "committed_length": "a count of all rounds, also those without a draft, and the tokens delivered",
    "committed_length_drafting_rounds": "the number of rounds with a draft and of accepted tokens",
    "survival": "acceptance per position",
    "conditional": "what each round drafted and accepted (the drafts differ in length), or a fixed draft length",
}


def summary(record):
    """Return the contract dict of `specgain read`: rates, intervals, warnings and what is missing. Times are in ms."""
    values, warnings = rates(record), all_warnings(record)
    seconds = t_round(record)
    missing = {key: record.missing.get(key, HOW[key]) for key, value in values.items() if value is None}
    missing |= {key: how for key, how in record.missing.items() if key not in values}
    result = {
        "engine": record.engine,
        "format": record.format,
        "version": record.version,
        "aggregation": record.aggregation,
        **values,
        "intervals": intervals(record, values),
        "warnings": [warning.to_json() for warning in warnings],
        "missing": list(missing),
        "how_to_get": missing,
        "gamma": record.gamma,
        "rounds_all": record.rounds_all,
        "rounds_without_draft": rounds_without_draft(record),
        "tokens_cut": record.tokens_cut,
        "t_round_ms": None if seconds is None else seconds * 1e3,
        "tokens_per_second": record.tokens_per_second,
        "constant_acceptance": _constant(record, values),
        "windows": record.windows,
        "per_request": record.per_request,
        "details": record.details,
        "reported": record.reported,
    }
    if record.length_bounds:
        result["details"] = record.details | {"committed_length_bounds": list(record.length_bounds)}
    return result


def rounds_without_draft(record):
    """Return the number of rounds without a draft, or None."""
    if None in (record.rounds_all, record.rounds) or not record.drafting_known:
        return None
    return max(0, record.rounds_all - record.rounds)


def _constant(record, values):
    """Return the one a that gives the same E[L] over drafting rounds at fixed γ, or None."""
    length = values["committed_length_drafting_rounds"]
    if length is None or not record.gamma or record.mixed_widths or not 1 <= length <= record.gamma + 1:
        return None
    return constant_acceptance(length, record.gamma)


def intervals(record, values):
    """Return 95 % confidence intervals [low, high] by key: Wilson score for rates, `bounded_mean` for E[L].

    They take rounds as independent. Rounds of one request are not quite, so the true intervals are wider; `compare`
    resamples whole requests instead.
    """
    found, r = {}, record.rounds
    if record.drafted and record.accepted is not None:
        found["pooled_acceptance"] = _wilson(record.accepted, record.drafted)
    if r and values["survival"] is not None:
        found["survival"] = [_wilson(s * r, r) for s in values["survival"]]
        if values["conditional"] is not None:
            reached = [r, *(s * r for s in values["survival"])]
            found["conditional"] = [
                None if a is None else _wilson(a * n, n) for a, n in zip(values["conditional"], reached, strict=False)
            ]
        if values["committed_length_drafting_rounds"] is not None:
            falling = [1.0, *accumulate(values["survival"], min), 0.0]
            counts = [(k, r * (now - then)) for k, (now, then) in enumerate(pairwise(falling), start=1)]
            interval = bounded_mean(counts, len(counts), Z)
            found["committed_length_drafting_rounds"] = [interval.low, interval.high]
    return found


def _wilson(hits, trials):
    interval = wilson(hits, trials, Z)
    return [interval.low, interval.high]


def all_warnings(record):
    """Return the warnings of a record, with those for numbers that are possible but point to a fault or a trap."""
    values = rates(record)
    _warn_acceptance(record, values["survival"])
    if record.mixed_widths and values["survival"] is not None:
        record.warn(
            "mixed-draft-widths",
            f"drafts differ in length ({record.drafted} tokens in {record.rounds} rounds, up to {record.gamma} each): "
            "survival mixes tokens rejected with tokens never offered, so it is no acceptance of a position",
        )
    if record.tokens_cut:
        record.warn(
            "tokens-cut",
            f"{record.tokens_cut} accepted token{'s were' if record.tokens_cut > 1 else ' was'} cut off by EOS or an output limit and "
            "never delivered",
        )
    without = rounds_without_draft(record)
    both = values["committed_length"], values["committed_length_drafting_rounds"]
    if without and None not in both:
        record.warn(
            "rounds-without-draft",
            f"{without} of {record.rounds_all} rounds had no draft: E[L] over all rounds is {both[0]:.4f}, the "
            f"engine's counters say {both[1]:.4f}",
        )
    return record.warnings


def _warn_acceptance(record, survival):
    """Warn of acceptance that is exactly 0 or 1, and of a cliff to 0: text does not do that, faults do."""
    a, d = record.accepted, record.drafted
    if d and a == 0:
        record.warn(
            "acceptance-zero",
            f"not one of {d} drafted tokens was accepted: a loading, template or feature fault is likelier than a "
            "weak draft; the output is still the target's, only time is lost",
        )
    if d and a == d:
        record.warn(
            "acceptance-one",
            f"all {d} drafted tokens were accepted: true for copied text, else check how the engine counts (some "
            "count again after restoring a checkpoint)",
        )
    if survival and survival[0] > 0 and len(survival) > 1:
        cliff = next(
            (i for i, (s, t) in enumerate(zip(survival, survival[1:], strict=False), 1) if s > 0 and t == 0), 0
        )
        if cliff and (record.rounds or 0) * survival[cliff - 1] >= 4:
            record.warn(
                "cliff-to-zero",
                f"acceptance falls from {survival[cliff - 1]:.3f} at position {cliff} to exactly 0 after it: text "
                "does not do that; look for a window, position or mask fault of the draft",
            )


# ------------------------------------------------------------------------------------------------------ pooling

COUNTS = ("rounds", "drafted", "accepted", "rounds_all", "committed", "decode_seconds")


def pool(records):
    """Return one Record of several runs of the same setting: counts are added, then divided; never rates averaged.

    Raises RecordError for records of different engines or different draft lengths.
    """
    first = records[0]
    if len(records) == 1:
        return first
    if len({r.engine for r in records}) > 1:
        named = ", ".join(sorted({f"{r.engine} ({r.name})" for r in records}))
        raise RecordError(f"records of different engines cannot be pooled: {named}")
    if len({repr(r.details.get("parameters")) for r in records}) > 1:
        raise RecordError(
            "the rows of a sweep have different parameters and cannot be pooled: `schedule derive` reads them"
        )
    gammas = {r.gamma for r in records} - {None}
    if len(gammas) > 1:
        raise RecordError(f"runs with different draft lengths cannot be pooled: γ = {sorted(gammas)}; read them apart")
    pooled = replace(first, name=", ".join(dict.fromkeys(r.name for r in records)), details={}, reported={})
    for key in COUNTS:
        setattr(pooled, key, _sum([getattr(r, key) for r in records]))
    pooled.accepted_at = sum_places([r.accepted_at for r in records])
    if pooled.accepted_at is None:
        pooled.survival = _weighted([r.rounds for r in records], [_survival(r) for r in records])
    for key in ("requests", "windows", "per_request"):
        setattr(pooled, key, [entry for r in records for entry in getattr(r, key)])
    pooled.conditional = pooled.length = pooled.length_drafting = pooled.t_round = None
    pooled.tokens_per_second = pooled.length_bounds = None
    _pool_means(pooled, records)
    pooled.gamma, pooled.drafting_known = next(iter(gammas), None), all(r.drafting_known for r in records)
    pooled.warnings = list(dict.fromkeys(w for r in records for w in r.warnings))
    pooled.missing = {key: how for r in records for key, how in r.missing.items()}
    pooled.aggregation = f"{len(records)} records pooled by counts ({first.aggregation})"
    return pooled


def _pool_means(pooled, records):
    """Pool what runs give as means over requests (TPOT, the time of a round), with their requests as weights."""
    requests = [r.details.get("requests") for r in records]
    means = [r.details.get("latency_ms", {}).get("tpot", {}).get("mean") for r in records]
    if None in requests or not sum(requests):
        return
    if None not in means:
        mean = sum(n * m for n, m in zip(requests, means, strict=True)) / sum(requests)
        pooled.details["latency_ms"] = {"tpot": {"mean": mean}}
    if all(r.t_round is not None for r in records):
        pooled.t_round = sum(n * r.t_round for n, r in zip(requests, records, strict=True)) / sum(requests)


def _sum(values):
    return None if None in values else sum(values)


def sum_places(rows):
    """Return the sums of rows of counts place by place, as a tuple as long as the longest; None if a row is None."""
    if None in rows:
        return None
    width = max(map(len, rows), default=0)
    return tuple(sum(row[i] for row in rows if i < len(row)) for i in range(width))


def tail_counts(histogram):
    """Return the rounds with K ≥ i, i = 1…γ, of a histogram of K = 0…γ.

    >>> tail_counts([5, 2, 1])
    (3, 1)
    """
    return tuple(sum(histogram[i:]) for i in range(1, len(histogram)))


def _weighted(weights, rows):
    """Return the mean of rows of rates, each with its number of rounds as weight; None if one is not known."""
    if None in weights or None in rows or not sum(weights) or len(set(map(len, rows))) > 1:
        return None
    return tuple(
        sum(w * s for w, s in zip(weights, column, strict=True)) / sum(weights) for column in zip(*rows, strict=True)
    )
