"""Two sides of a measurement → ledger, interval, verdict, the term at fault, and what is missing.

    E[L]      tokens delivered per round over all rounds of the speculative side
    t_D       seconds per token of the plain side
    T_round   seconds per round of the speculative side
    M         E[L]·t_D − T_round, the time one round saves
    S         E[L]·t_D / T_round

Counts and times are added over runs and requests and then divided. The interval is a 95 % percentile bootstrap: the two
sides are resampled independently, runs first where there are several, then whole requests (chunks of one request share
their steps with other requests, so they are never resampled). A few runs spread too little when they are resampled, so
then the interval is widened by Student's t. An interval of M that holds 0 is `within-noise`. There is no verdict where
the sides differ in engine, model, device or load, or where a round is clearly cheaper than a plain step.
"""

import math
from dataclasses import dataclass, field

from specgain.gain import break_even_length, break_even_round_time, log_split, margin, small_sample, speedup
from specgain.records.read import runs
from specgain.records.source import RecordError, Warn
from specgain.records.summary import (
    Record,
    all_warnings,
    committed_length,
    pool,
    rates,
    rounds_without_draft,
    t_round,
)

LEVEL, RESAMPLES = 0.95, 4000
FEW, MANY = 8, 2000  # requests: fewer make a rough interval, for more the bootstrap has reached its normal limit
DEAREST = 100  # plain steps; a dearer round is a mistake in the units, since 16 candidates of a full-size draft cost 33
SAME = ("model_id", "device", "max_concurrency", "request_rate", "burstiness")  # of both sides, or S is undefined
FAULTS = ("acceptance", "draft", "verify", "other", "capacity", "none", "unknown")


@dataclass
class Comparison:
    """A plain and a speculative side, each a list of runs and their pooled Record, with what follows from them.

    Times are seconds; `to_json` gives the contract of `specgain compare` in ms, `table` and `to_markdown` the report.
    """

    plain: Record
    spec: Record
    plain_runs: list
    spec_runs: list
    verdict: str = "cannot-tell"
    fault_term: str = "unknown"
    t_decode: float | None = None
    margin_interval: tuple | None = None
    speedup_interval: tuple | None = None
    warnings: list = field(default_factory=list)
    missing: dict = field(default_factory=dict)

    @property
    def committed_length(self):
        """E[L] over all rounds, or None."""
        return committed_length(self.spec)

    @property
    def t_round(self):
        """Mean time of a round in seconds, or None."""
        return t_round(self.spec)

    @property
    def margin(self):
        """The gain margin in seconds, or None."""
        known = (self.committed_length, self.t_decode, self.t_round)
        return None if None in known else margin(*known)

    @property
    def speedup_decode(self):
        """S of the decode phase, the ratio of the times per token; or None."""
        known = (self.committed_length, self.t_decode, self.t_round)
        if None not in known:
            return speedup(*known)
        spent = seconds_per_token(self.spec)[0]
        return self.t_decode / spent if self.t_decode and spent else None

    @property
    def speedup_throughput(self):
        """Output tokens per second of the speculative side over those of the plain side, prefill and waiting in."""
        sides = [_throughput(side) for side in (self.spec_runs, self.plain_runs)]
        return None if None in sides else sides[0] / sides[1]

    @property
    def speedups(self):
        """What each number of the records claims as S, {how it is got: S or None}; only the second is the ledger's."""
        length, counters = self.committed_length, rates(self.spec)["committed_length_drafting_rounds"]
        by_counters = None if None in (length, counters, self.margin) else self.speedup_decode * counters / length
        tpot = [_latency(side).get("tpot", {}).get("mean") for side in (self.plain_runs, self.spec_runs)]
        return {
            "1 + accepted/drafts as E[L]": by_counters,
            "E[L] over all rounds": None if self.margin is None else self.speedup_decode,
            "ratio of mean TPOTs": tpot[0] / tpot[1] if all(tpot) else None,
            "ratio of throughputs": self.speedup_throughput,
        }

    @property
    def parts(self):
        """The parts of a round in seconds, {"draft", "verify", "other"}, None where the record does not time them."""
        details = self.spec.details or self.spec_runs[0].details
        times = {name: details.get(f"t_{name}_ms") for name in ("draft", "verify", "other")}
        return {name: None if ms is None else ms / 1e3 for name, ms in times.items()}

    def to_json(self):
        """Return the contract dict of `specgain compare`."""
        length, rate = self.committed_length, rates(self.spec)
        values = {
            "committed_length": length,
            "committed_length_drafting_rounds": rate["committed_length_drafting_rounds"],
            "rounds": self.spec.rounds_all,
            "rounds_without_draft": rounds_without_draft(self.spec),
            "tokens_cut": self.spec.tokens_cut,
            "t_decode_ms": _ms(self.t_decode),
            "t_round_ms": _ms(self.t_round),
            "break_even_ms": None
            if None in (length, self.t_decode)
            else _ms(break_even_round_time(length, self.t_decode)),
            "margin_ms": _ms(self.margin),
            "margin_interval_ms": None if self.margin_interval is None else [_ms(end) for end in self.margin_interval],
            "speedup_decode": self.speedup_decode,
            "speedup_throughput": self.speedup_throughput,
        }
        missing = {key: HOW.get(key, "see `specgain read`") for key, value in values.items() if value is None}
        missing |= self.missing
        return values | {
            "verdict": self.verdict,
            "fault_term": self.fault_term,
            "warnings": [warning.to_json() for warning in self.warnings],
            "missing": list(missing),
            "how_to_get": missing,
            "speedup_interval": None if self.speedup_interval is None else list(self.speedup_interval),
            "rounds_with_draft": self.spec.rounds if self.spec.drafting_known else None,
            "runs": {"plain": len(self.plain_runs), "spec": len(self.spec_runs)},
            "requests": {"plain": len(self.plain.requests), "spec": len(self.spec.requests)},
            "ln_split": self._split(),
            "advice": advice(self),
            "latency_ms": {"plain": _latency(self.plain_runs), "spec": _latency(self.spec_runs)},
            "capacity": {"plain": _capacity(self.plain_runs), "spec": _capacity(self.spec_runs)},
        }

    def _split(self):
        """Return ln S as its two parts, acceptance and cost, or None."""
        known = (self.committed_length, self.t_decode, self.t_round)
        if None in known:
            return None
        acceptance, cost = log_split(*known)
        return {"acceptance": acceptance, "cost": cost}

    def table(self):
        """Return the ledger as rows (quantity, symbol, value, unit), for a notebook or a report."""
        j = self.to_json()
        rows = [
            ("tokens delivered per round, all rounds", "E[L]", j["committed_length"], "tokens"),
            ("the same by the engine's counters", "1 + A/D", j["committed_length_drafting_rounds"], "tokens"),
            ("rounds", "R", j["rounds"], ""),
            ("rounds without a draft", "R − D", j["rounds_without_draft"], ""),
            ("accepted tokens cut at the end", "", j["tokens_cut"], "tokens"),
            ("plain decode step", "t_D", j["t_decode_ms"], "ms"),
            ("round", "T_round", j["t_round_ms"], "ms"),
            ("longest round that breaks even", "E[L]·t_D", j["break_even_ms"], "ms"),
            ("gain margin per round", "M", j["margin_ms"], "ms"),
            ("speedup of decoding", "S", j["speedup_decode"], "×"),
            ("speedup of throughput", "", j["speedup_throughput"], "×"),
        ]
        return rows

    def to_markdown(self):
        """Return the report as Markdown: verdict, ledger, warnings, what is missing and what to try."""
        j = self.to_json()
        lines = [
            f"**Verdict: {self.verdict}**"
            + (f" (term at fault: {self.fault_term})" if self.fault_term != "none" else "")
        ]
        lines += ["", "| quantity | symbol | value |", "|---|---|---|"]
        lines += [f"| {what} | {symbol} | {_shown(value, unit)} |" for what, symbol, value, unit in self.table()]
        if self.margin_interval:
            low, high = j["margin_interval_ms"]
            alone = "; it rests on requests alone, how much runs differ is not in it" if 1 in j["runs"].values() else ""
            lines += ["", f"95 % interval of M: {_minus(f'{low:.2f}')} to {_minus(f'{high:.2f}')} ms{alone}."]
        lines += _side_by_side(j)
        for title, entries in (
            ("Warnings", [f"`{w['code']}` {w['text']}" for w in j["warnings"]]),
            ("Missing", [f"`{key}`: {how}" for key, how in j["how_to_get"].items()]),
            ("Next", j["advice"]),
        ):
            if entries:
                lines += ["", f"{title}:", "", *(f"- {entry}" for entry in entries)]
        return "\n".join(lines) + "\n"

    _repr_markdown_ = to_markdown


def _side_by_side(j):
    """Return the table of latencies and capacity that both sides have, as Markdown lines."""
    plain, spec = j["latency_ms"]["plain"], j["latency_ms"]["spec"]
    worst = " of the worst run" if max(j["runs"].values()) > 1 else ""
    rows = [
        (
            f"{kind.upper()} {statistic}" + (worst if statistic != "mean" else ""),
            plain[kind][statistic],
            spec[kind][statistic],
            "ms",
        )
        for kind in ("ttft", "tpot", "itl", "e2el")
        for statistic in ("mean", "p95", "p99", "max")
        if statistic in plain.get(kind, {}) and statistic in spec.get(kind, {})
    ]
    for what, key in (("KV cache", "kv_cache_tokens"), ("preemptions", "preemptions")):
        values = [j["capacity"][side][key] for side in ("plain", "spec")]
        if None not in values:
            rows.append((what, *values, "tokens" if key == "kv_cache_tokens" else ""))
    table = [f"| {what} | {_shown(a, unit)} | {_shown(b, unit)} |" for what, a, b, unit in rows]
    return ["", "| | plain | speculative |", "|---|---|---|", *table] if rows else []


HOW = {
    "committed_length": "all rounds and the tokens delivered: /metrics before and after the run, or --save-detailed",
    "rounds": "all rounds, those without a draft as well: /metrics before and after the run, or --save-detailed",
    "rounds_without_draft": "all rounds and the rounds with a draft: /metrics before and after the run",
    "tokens_cut": "all rounds, accepted tokens and tokens delivered: /metrics before and after the run",
    "t_decode_ms": "a plain run with decode times: the same server without speculation",
    "t_round_ms": "decode times of the speculative run and its rounds",
    "break_even_ms": "E[L] over all rounds and the plain step time",
    "margin_ms": "E[L] over all rounds, the plain step time and the round time",
    "margin_interval_ms": "times per request: `vllm bench serve --save-result --save-detailed`, or several runs a side",
    "speedup_decode": "decode times of both sides",
    "speedup_throughput": "output tokens per second of both sides (benchmark results)",
    "committed_length_drafting_rounds": "the engine's acceptance counters",
}


def compare(plain, spec, gamma=None):
    """Return the `Comparison` of the files `plain` and `spec` (paths, any number, in any order).

    Raises RecordError if a side is empty or is not what it is said to be.
    """
    return compare_runs(runs(plain), runs(spec, gamma))


def compare_runs(plain, spec):
    """Return the `Comparison` of two lists of runs (`specgain.records.read.runs` gives them)."""
    plain_runs, plain_context = _side(plain, speculative=False)
    spec_runs, spec_context = _side(spec, speculative=True)
    found = Comparison(pool(plain_runs), pool(spec_runs), plain_runs, spec_runs)
    _add_context(found, plain_context, spec_context)
    found.t_decode, exact_plain = seconds_per_token(found.plain)
    _intervals(found)
    _warn(found, exact_plain and seconds_per_token(found.spec)[1])
    _verdict(found)
    found.fault_term = fault(found)
    _name_missing(found)
    return found


def _side(records, speculative):
    """Return (runs that count, context such as logs) of one side; raises RecordError for the wrong kind of run."""
    name = "speculative" if speculative else "plain"
    arms = [r for r in records if r.speculative == speculative]
    mixed_file = {r.name for r in records if r.format == "roundlog"}
    wrong = [r for r in records if r.speculative and not speculative and r.name not in mixed_file]
    if wrong:
        raise RecordError(f"{wrong[0].name}: this run made drafts, so it cannot be the plain side")
    kept = arms if arms and mixed_file else records
    if not kept:
        raise RecordError(f"the {name} side holds no run of that kind")
    timed = _distinct([r for r in kept if seconds_per_token(r)[0] is not None])
    if speculative and any(r.rounds_all for r in timed):  # one ledger: runs that do not know their rounds stand aside
        timed = [r for r in timed if r.rounds_all]
    settings = {(r.workload.get("arm"), r.gamma) for r in timed if r.format == "roundlog"}
    if len(settings) > 1:
        raise RecordError(f"the {name} side holds several settings {sorted(settings, key=str)}; give one at a time")
    for key in SAME:
        values = {str(r.workload[key]) for r in timed if key in r.workload}
        if len(values) > 1:
            raise RecordError(
                f"the {name} side holds runs of different {key}, {', '.join(sorted(values))}; give one at a time"
            )
    if instant := next((r for r in timed if not seconds_per_token(r)[0]), None):
        raise RecordError(f"{instant.name}: its decode times add up to 0 s, so they tell no time per token")
    return (timed, [r for r in kept if not any(r is run for run in timed)]) if timed else (kept, [])


def _distinct(runs_):
    """Return the runs without copies: a file given twice is no repeat."""
    found = {}
    for run in runs_:
        key = (run.engine, run.decode_seconds, run.committed, run.tokens_per_second, tuple(run.requests[:9]))
        found.setdefault(key if run.decode_seconds is not None else id(run), run)
    return list(found.values())


def _add_context(found, plain_context, spec_context):
    """Take capacity and acceptance from logs that stand beside timed runs."""
    for runs_, context in ((found.plain_runs, plain_context), (found.spec_runs, spec_context)):
        for entry in context:
            for key in {"kv_cache_tokens", "engine_core"} & entry.details.keys():
                runs_[0].details.setdefault(key, entry.details[key])
    if found.spec.accepted is None and spec_context:
        told = [r for r in spec_context if r.accepted is not None]
        if len(told) == 1:
            for key in ("gamma", "rounds", "drafted", "accepted", "accepted_at", "survival", "drafting_known"):
                setattr(found.spec, key, getattr(told[0], key))


def seconds_per_token(record):
    """Return (seconds per delivered token or None, True if it is total time over total tokens, not a mean of means)."""
    exact = record.seconds_per_token()
    if exact is not None:
        return exact, True
    mean = record.details.get("latency_ms", {}).get("tpot", {}).get("mean")
    return (mean / 1e3, False) if mean else (None, True)


def _throughput(side):
    """Return output tokens per second over the runs of a side, or None."""
    tokens = [r.details.get("generation_tokens") for r in side]
    seconds = [r.details.get("duration_s") for r in side]
    if None in tokens or None in seconds or not sum(seconds) or not sum(tokens):
        return None
    return sum(tokens) / sum(seconds)


# ------------------------------------------------------------------------------------------------------ intervals


def _intervals(found):
    """Fill the 95 % intervals of M and S by bootstrap, where both sides have at least two units to resample."""
    sides = [_units(side) for side in (found.plain_runs, found.spec_runs)]
    if None in sides or found.t_decode is None:
        return
    import numpy as np

    rng = np.random.default_rng(0)
    plain, spec = (_replicates(np, rng, side) for side in sides)
    if max(map(len, sides)) > 1:
        plain, spec = _widened(np, (plain, spec), sides)
    t_decode = plain[:, 2] / plain[:, 0]
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    found.speedup_interval = tuple(map(float, np.quantile(t_decode * spec[:, 0] / spec[:, 2], ends)))
    if found.margin is not None and np.isfinite(spec[:, 1]).all():
        margins = (t_decode * spec[:, 0] - spec[:, 2]) / spec[:, 1]
        found.margin_interval = tuple(map(float, np.quantile(margins, ends)))


def _units(side):
    """Return one list of (tokens, rounds, seconds) per run, or None if nothing in it can be resampled.

    A run without times per request is one unit. The times of requests come from the client; they are scaled so that
    they add up to the engine's own total where that is known.
    """
    found = []
    for run in side:
        rows = [(r.tokens, math.nan if r.rounds is None else r.rounds, r.seconds) for r in run.requests if r.tokens > 0]
        if rows and all(seconds is not None for *_, seconds in rows):
            total = sum(seconds for *_, seconds in rows)
            scale = run.decode_seconds / total if run.decode_seconds and total else 1.0
            found.append([(tokens, rounds, seconds * scale) for tokens, rounds, seconds in rows])
        elif run.committed and run.decode_seconds is not None:
            found.append([(run.committed, run.rounds_all or math.nan, run.decode_seconds)])
        elif (tokens := run.details.get("generation_tokens")) and (spent := seconds_per_token(run)[0]):
            found.append([(tokens, math.nan, tokens * spent)])
        else:
            return None
    return found if len(found) > 1 or len(found[0]) > 1 else None


def _replicates(np, rng, side):
    """Return RESAMPLES bootstrap totals (tokens, rounds, seconds) of a side: runs drawn first, then their requests."""
    totals = np.zeros((RESAMPLES, 3))
    for _ in side:  # one draw of a run for each run there is
        drawn = rng.integers(len(side), size=RESAMPLES)
        for number, rows in enumerate(side):
            here = np.flatnonzero(drawn == number)
            totals[here] += _resampled(np, rng, np.asarray(rows, float), len(here))
    return totals


def _widened(np, totals, sides):
    """Return both sides' bootstrap totals, spread wider (in logs, about their means) as their few runs need.

    Student's t for the normal z, with the degrees of freedom of Welch and Satterthwaite: n − 1 for n runs, or for the
    requests of a lone run, weighted by what each side adds to the variance of ln S.
    """
    logs = [np.log(side) for side in totals]
    spread = [(side[:, 2] - side[:, 0]).var() for side in logs]
    free = [(len(side) if len(side) > 1 else len(side[0])) - 1 for side in sides]
    share = sum(v * v / n for v, n in zip(spread, free, strict=True))
    factor = small_sample(1 + sum(spread) ** 2 / share, LEVEL) if share else 1.0
    return [np.exp(side.mean(axis=0) + factor * (side - side.mean(axis=0))) for side in logs]


def _resampled(np, rng, rows, size):
    """Return `size` totals of len(rows) requests drawn with replacement; for many requests by their normal limit."""
    n, step = len(rows), max(1, 400_000 // len(rows))
    if n > MANY:
        covariance = np.cov(rows, rowvar=False) * n
        return rng.multivariate_normal(rows.sum(axis=0), covariance, size=size, method="eigh")
    parts = [rows[rng.integers(n, size=(min(step, size - at), n))].sum(axis=1) for at in range(0, size, step)]
    return np.concatenate(parts) if parts else np.zeros((0, rows.shape[1]))


# -------------------------------------------------------------------------------------------------------- verdict


def _verdict(found):
    """Set the verdict from the interval of S (S > 1 and M > 0 are the same), or cannot-tell."""
    if found.speedup_interval is None or found.missing:  # what is missing by now is a fair baseline
        return
    low, high = found.speedup_interval
    if found.margin is not None and low > found.committed_length:
        found.missing["comparable_plain_step"] = (
            "a plain run whose step takes no longer than a round: the same kernels, graphs and scheduling on both sides"
        )
        return
    if found.margin_interval is not None:
        low, high = (1 + math.copysign(1, end) * (end != 0) for end in found.margin_interval)
    found.verdict = "faster" if low > 1 else "slower" if high < 1 else "within-noise"


def fault(found):
    """Return the term at fault, one of FAULTS.

    Against full acceptance at the price of a plain step, ln S falls short by ln((γ+1)/E[L]) through acceptance and by
    ln(T_round/t_D) through cost: the larger part is at fault. The cost is laid to draft, verification or other where
    the record times them, and to capacity where only the speculative side was preempted.
    """
    if found.verdict == "faster" or (found.verdict == "within-noise" and found.speedup_decode >= 1):
        return "none"
    gamma = found.spec.gamma or next((g for r in found.spec_runs if (g := r.details.get("gamma_max"))), None)
    if found.verdict == "cannot-tell" or None in (found.committed_length, found.t_round, gamma):
        return "unknown"
    if math.log((gamma + 1) / found.committed_length) > math.log(break_even_length(found.t_decode, found.t_round)):
        return "acceptance"
    preempted = [_capacity(side)["preemptions"] or 0 for side in (found.plain_runs, found.spec_runs)]
    return "capacity" if preempted[1] > preempted[0] else _phase(found)


def _phase(found):
    """Return the phase of the round that costs most beyond a plain step, or unknown if they are not timed."""
    times = found.parts
    if times["draft"] is None:
        return "unknown"
    if None in times.values():
        rest = found.t_round - found.t_decode - times["draft"]
        return "draft" if times["draft"] > rest else "unknown"
    excess = times | {"verify": times["verify"] - found.t_decode}
    return max(excess, key=excess.get)


NEXT = {
    "acceptance": "drafts are seldom made or accepted here: another draft or method for this workload, or none; first "
    "rule out a fault (template, tokenizer, quantized features)",
    "draft": "drafting costs most: a smaller or parallel draft, or fewer draft tokens",
    "verify": "verification costs most: fewer draft tokens, or speculation only at smaller batches",
    "other": "the rest of the round costs most: graphs, synchronisation, sampling or scheduling of this engine",
    "capacity": "requests were preempted: give the cache more memory, a smaller draft, or admit fewer requests",
}


def advice(found):
    """Return what to try next, as sentences."""
    steps = []
    if found.fault_term in NEXT:
        steps.append(NEXT[found.fault_term])
    if found.fault_term == "unknown" and found.verdict == "slower":
        steps.append(
            "the round is too dear for what it commits: time its parts, or run the same set-up at draft lengths 0 and "
            "1, where the differences are draft and verification"
        )
    if found.verdict in ("within-noise", "cannot-tell"):
        steps.append("record both sides again, interleaved, after a warm-up, at least three runs each")
    return steps


# ------------------------------------------------------------------------------------------- warnings, what is missing


def _warn(found, exact):
    found.warnings = list(dict.fromkeys(w for r in found.plain_runs + found.spec_runs for w in all_warnings(r)))
    add = found.warnings.append
    s, length = found.speedup_decode, found.committed_length
    if None not in (s, length) and s > length:
        add(
            Warn(
                "speedup-exceeds-length",
                f"S = {s:.4f} exceeds E[L] = {length:.4f}: a round ({found.t_round * 1e3:.2f} ms) took less than a "
                f"plain step ({found.t_decode * 1e3:.2f} ms). Either noise: repeat the plain run. Or the plain step "
                "ran on a slower kernel or graph than the round: check that both use the same ones",
            )
        )
    if not exact and s is not None:
        add(
            Warn(
                "mean-of-ratios",
                "the times per token are means over requests of TPOT, not total time over total tokens",
            )
        )
    counter = rates(found.spec)["committed_length_drafting_rounds"]
    if rounds_without_draft(found.spec) and None not in (s, length, counter):
        wrong = s * counter / length
        add(Warn("counter-length", f"with the counters' {counter:.4f} as E[L] one would predict S = {wrong:.2f}"))
    if None not in (found.t_round, found.t_decode) and found.t_round > DEAREST * found.t_decode:
        dear = found.t_round / found.t_decode
        add(Warn("units", f"a round takes {dear:,.0f} plain steps: are the times of both sides in the same unit?"))
    _warn_sides(found, add)
    _warn_requests(found, add)


def _warn_sides(found, add):
    """Warn where the two sides did not do the same work, or not on the same engine."""
    names = [_engine(side) for side in (found.plain_runs, found.spec_runs)]
    if names[0][0] != names[1][0] or (None not in (names[0][1], names[1][1]) and names[0] != names[1]):
        plain, spec = (" ".join(filter(None, name)) for name in names)
        add(Warn("different-engine", f"plain on {plain}, speculative on {spec}: S is undefined"))
        found.missing["same_engine_baseline"] = "a plain run on the same engine, engine core and version"
    differ = {
        key: (a.workload[key], b.workload[key])
        for a, b in ((found.plain, found.spec),)
        for key in a.workload.keys() & b.workload.keys() - {"arm"}
        if a.workload[key] != b.workload[key]
    }
    if differ:
        pairs = ", ".join(f"{key} {a} against {b}" for key, (a, b) in sorted(differ.items()))
        add(Warn("different-workload", f"the sides differ in more than speculation: {pairs}"))
    if changed := [key for key in SAME if key in differ]:
        found.missing["same_workload_baseline"] = f"a plain run with the same {', '.join(changed)}"
    if not any(run.speculative for run in found.spec_runs):
        add(Warn("no-drafts", "no record of the speculative side shows a draft: check that this run did speculate"))
    if found.plain.outputs and len(found.plain.outputs) == len(found.spec.outputs):
        changed = sum(a != b for a, b in zip(found.plain.outputs, found.spec.outputs, strict=True))
        if changed:
            add(
                Warn(
                    "outputs-differ",
                    f"{changed} of {len(found.plain.outputs)} outputs differ: expected when sampling; with greedy "
                    "decoding compare the logits at the first difference (a near tie is rounding, a wide gap a fault)",
                )
            )
    sizes = [_capacity(side)["kv_cache_tokens"] for side in (found.plain_runs, found.spec_runs)]
    if None not in sizes and sizes[1] < sizes[0]:
        add(Warn("kv-capacity", f"the draft leaves room for {sizes[1]:,} tokens of KV cache instead of {sizes[0]:,}"))
    lengths = {}  # E[L] of the runs that gave the same outputs
    for run in found.spec_runs:
        if run.outputs and committed_length(run):
            lengths.setdefault(tuple(run.outputs), []).append(committed_length(run))
    for again in lengths.values():
        if max(again) > 1.1 * min(again):
            add(
                Warn(
                    "warm-prompts",
                    f"the same outputs came from E[L] = {min(again):.2f} and {max(again):.2f}: a drafter that remembers "
                    "earlier answers has met these prompts before; restart the server between runs",
                )
            )
    if _capacity(found.spec_runs)["preemptions"]:
        add(Warn("preemptions", f"{_capacity(found.spec_runs)['preemptions']} preemptions on the speculative side"))


def _engine(side):
    """Return (engine, engine core or None) of a side; vLLM's old and new cores are as different as two engines."""
    return side[0].engine, next((r.details["engine_core"] for r in side if "engine_core" in r.details), None)


def _warn_requests(found, add):
    for name, side in (("plain", found.plain_runs), ("speculative", found.spec_runs)):
        units, what = (len(side), "runs") if len(side) > 1 else (len((_units(side) or [[]])[0]), "requests")
        if found.speedup_interval is not None and units < FEW:
            narrow = ", and likely too narrow" if what == "requests" else ""
            add(Warn("few-requests", f"{units} {what} on the {name} side: the interval is rough{narrow}"))


def _name_missing(found):
    for name, side in (("plain", found.plain_runs), ("spec", found.spec_runs)):
        if len(side) < 2:
            found.missing[f"{name}_repeat"] = (
                f"a repeat of the {name} run: one run cannot show how much runs differ (interleave the sides, warm up, "
                "record at least three runs each)"
            )
    if found.fault_term == "unknown" and found.verdict == "slower":
        found.missing["phase_times"] = (
            "the times of draft and verification: an instrumented loop, llama.cpp's statistics lines, or runs at draft "
            "length 0 and 1"
        )


def _capacity(side):
    """Return {"kv_cache_tokens", "preemptions"} of a side, None where unknown."""
    tokens = [r.details.get("kv_cache_tokens") for r in side]
    preemptions = [r.details.get("preemptions") for r in side]
    return {
        "kv_cache_tokens": min((t for t in tokens if t is not None), default=None),
        "preemptions": None if None in preemptions else sum(preemptions),
    }


def _latency(side):
    """Return {"ttft": {"mean": ms, "p99": …}, …} of a side: means weighted by requests, other statistics of the worst run.

    A run without latencies is passed over; a statistic that one of the others lacks is left out.
    """
    told = [r for r in side if r.details.get("latency_ms")]
    kinds = [r.details["latency_ms"] for r in told]
    weights = [r.details.get("requests") or 1 for r in told]
    found = {}
    for kind in kinds[0] if kinds else ():
        for statistic in kinds[0][kind]:
            values = [entry.get(kind, {}).get(statistic) for entry in kinds]
            if None not in values:
                mean = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
                found.setdefault(kind, {})[statistic] = mean if statistic == "mean" else max(values)
    return found


def _ms(seconds):
    return None if seconds is None else seconds * 1e3


def _shown(value, unit):
    if value is None:
        return "not known"
    text = _minus(f"{value:,}" if isinstance(value, int) else f"{value:.4g}")
    return f"{text} {unit.removesuffix('s') if value == 1 and unit == 'tokens' else unit}".strip()


def _minus(text):
    return text.replace("-", "−", 1) if text.startswith("-") else text
