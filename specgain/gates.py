"""Four gates before production: correctness, quality, latency, capacity. Records and a file of thresholds in, report out.

The engineer supplies what no record holds: which checks were made, the quality numbers, the target load, the limits. A
gate passes only on evidence, fails on evidence, and is `insufficient` where evidence is missing; so is the whole.

    {"correctness": {"same_target": true, "same_sampling": true, "same_history": true, "outputs_equal_min": 1.0},
     "quality": {"metric": "exact match", "reference": 0.812, "value": 0.809, "max_drop": 0.01},
     "latency": {"load": {"max_concurrency": 16}, "ttft_ms": {"p95": 500}, "tpot_ms": {"mean": 30},
                 "itl_ms": {"p99": 200}, "workload": "production"},
     "capacity": {"throughput_ratio_min": 1.0, "kv_cache_tokens_min": 100000, "preemptions_max": 0, "failed_max": 0}}
"""

from dataclasses import dataclass, field

from specgain.compare import Comparison, compare_runs, seconds_per_token
from specgain.records.source import RecordError, Source, parse_json, real, shown
from specgain.records.summary import pool

PASS, FAIL, INSUFFICIENT = "pass", "fail", "insufficient"
KEYS = {
    "correctness": {"same_target", "same_sampling", "same_history", "outputs_equal_min"},
    "quality": {"metric", "reference", "value", "max_drop", "approximate_verification"},
    "latency": {"load", "ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "workload", "speedup_min"},
    "capacity": {"throughput_ratio_min", "kv_cache_tokens_min", "preemptions_max", "failed_max"},
}
REMEDY = {
    "correctness": "isolate implementation and configuration: plain decoding first, then the simplest draft, then one "
    "feature at a time",
    "quality": "separate quantization, training and approximate verification: judge each alone against its own reference",
    "latency": "change the draft length or the method, or speculate only at the loads where it gains",
    "capacity": "a smaller draft, a method without a model, or no speculation",
}
UNFIT = {"random": "random prompts have no text to predict", "synthetic": "invented prompts show no real acceptance"}


@dataclass
class Gate:
    """One gate: its checks as dicts {name, value, limit, ok, text}; ok is None where evidence is missing."""

    name: str
    checks: list = field(default_factory=list)

    @property
    def verdict(self):
        outcomes = [check["ok"] for check in self.checks]
        return FAIL if False in outcomes else INSUFFICIENT if None in outcomes or not outcomes else PASS

    def add(self, name, value, limit, ok, text):
        self.checks.append({"name": name, "value": value, "limit": limit, "ok": ok, "text": text})

    def at_most(self, name, value, limit, how, unit=""):
        """Add a check value ≤ limit; without a value, `how` says how to get it."""
        ok = None if value is None else value <= limit
        self.add(name, value, limit, ok, how if value is None else f"{value:g}{unit}, at most {limit:g}{unit} allowed")

    def at_least(self, name, value, limit, how, unit=""):
        """Add a check value ≥ limit."""
        ok = None if value is None else value >= limit
        self.add(name, value, limit, ok, how if value is None else f"{value:g}{unit}, at least {limit:g}{unit} wanted")

    def to_json(self):
        remedy = [REMEDY[self.name]] if self.verdict == FAIL else []
        return {"gate": self.name, "verdict": self.verdict, "checks": self.checks, "try": remedy}


@dataclass
class Report:
    """The four gates, the comparison behind them, and the fault tree."""

    gates: list
    comparison: Comparison | None
    tree: list

    @property
    def verdict(self):
        verdicts = [gate.verdict for gate in self.gates]
        return FAIL if FAIL in verdicts else INSUFFICIENT if INSUFFICIENT in verdicts else PASS

    @property
    def failing_term(self):
        """The first gate that fails, with the ledger's term at fault if it is about the gain; None if none fails."""
        gate = next((gate for gate in self.gates if gate.verdict == FAIL), None)
        if gate is None:
            return None
        term = self.comparison.fault_term if self.comparison else "none"
        return (
            f"{gate.name}: {term}"
            if gate.name in ("latency", "capacity") and term not in ("none", "unknown")
            else gate.name
        )

    def to_json(self):
        """Return the JSON of `specgain gates`."""
        gates = [gate.to_json() for gate in self.gates]
        return {
            "verdict": self.verdict,
            "failing_term": self.failing_term,
            "gates": gates,
            "fault_tree": self.tree,
            "comparison": None if self.comparison is None else self.comparison.to_json(),
            "missing": [f"{g['gate']}: {c['name']}" for g in gates for c in g["checks"] if c["ok"] is None],
        }

    def to_markdown(self):
        """Return the report as Markdown, ready for a review."""
        word = {True: "holds", False: "**fails**", None: "not shown"}
        lines = [f"# Speculative decoding: {self.verdict}", ""]
        if self.failing_term:
            lines += [f"First to fail: {self.failing_term}.", ""]
        for gate in self.gates:
            lines += [f"## {gate.name.capitalize()}: {gate.verdict}", "", "| check | outcome | |", "|---|---|---|"]
            lines += [f"| {c['name']} | {word[c['ok']]} | {c['text']} |" for c in gate.checks]
            lines += ["", *(f"To try: {text}." for text in gate.to_json()["try"]), ""]
        if self.tree:
            lines += ["## Where to look", "", *(f"{i}. {step}" for i, step in enumerate(self.tree, 1)), ""]
        if self.comparison:
            lines += ["## Ledger", "", self.comparison.to_markdown()]
        return "\n".join(lines)


def load(path):
    """Return the thresholds in a JSON file; raises RecordError for unknown gates, keys or values that make no sense."""
    source = Source(path)
    try:
        data = parse_json(source.whole())
    except RecordError as error:
        raise RecordError(f"{path}: {error}") from None
    finally:
        source.close()
    return check_thresholds(data, str(path))


def check_thresholds(data, name="thresholds"):
    """Return `data` if it has the form above, else raise RecordError."""
    if not isinstance(data, dict):
        raise RecordError(f"{name}: the thresholds are no object")
    for gate, keys in data.items():
        if gate not in KEYS:
            raise RecordError(f"{name}: {shown(gate)} is no gate; the gates are {', '.join(KEYS)}")
        if not isinstance(keys, dict) or set(keys) - KEYS[gate]:
            wrong = ", ".join(map(shown, set(keys) - KEYS[gate])) if isinstance(keys, dict) else "no object"
            raise RecordError(f"{name}: {gate} has {wrong}; known are {', '.join(sorted(KEYS[gate]))}")
        for key, value in keys.items():
            if (key == "load" or key.endswith("_ms")) and not isinstance(value, dict):
                example = '{"max_concurrency": 16}' if key == "load" else '{"p99": 500}'
                raise RecordError(f"{name}: {gate}.{key} = {shown(value)} is no object such as {example}")
            single = value.values() if key == "load" else [value] if key == "workload" else ()
            if wrong := [v for v in single if isinstance(v, (list, dict))]:
                raise RecordError(f"{name}: {gate}.{key} holds {shown(wrong[0])}; it must be a text or a number")
    return data


def gates(records, thresholds):
    """Return the `Report` for runs (plain and speculative mixed) and thresholds (a dict, see above)."""
    check_thresholds(thresholds)
    plain, spec = [r for r in records if not r.speculative], [r for r in records if r.speculative]
    if not spec:
        raise RecordError("no record with drafts: the gates judge a speculative setting")
    wanted = thresholds.get("latency", {}).get("load", {})
    at_load = [[r for r in side if _at(r, wanted)] for side in (plain, spec)]
    loads = {r.workload["max_concurrency"] for side in at_load for r in side if "max_concurrency" in r.workload}
    comparison = compare_runs(*at_load) if all(at_load) and len(loads) < 2 else None  # compared at one load only
    found = [
        _correctness(thresholds.get("correctness", {}), comparison),
        _quality(thresholds.get("quality", {})),
        _latency(thresholds.get("latency", {}), at_load[1], comparison, wanted),
        _capacity(thresholds.get("capacity", {}), at_load[1], comparison),
    ]
    return Report(found, comparison, fault_tree(comparison, by_load(plain, spec), wanted.get("max_concurrency")))


def _at(record, wanted):
    return all(record.workload.get(key) == value for key, value in wanted.items())


# ----------------------------------------------------------------------------------------------------- the gates

ALIGNED = {
    "same_target": "both sides run the same target weights and precision",
    "same_sampling": "both sides use the same sampling parameters",
    "same_history": "both sides start from the same cache history",
}


def _correctness(given, comparison):
    gate = Gate("correctness")
    for key, text in ALIGNED.items():
        value = given.get(key)
        gate.add(key, value, True, value if isinstance(value, bool) else None, text)
    share = _outputs_equal(comparison)
    if "outputs_equal_min" in given:
        how = "generated texts of both sides in the same order (--save-detailed), greedy"
        gate.at_least("outputs_equal", share, _limit(given, "outputs_equal_min"), how)
    return gate


def _outputs_equal(comparison):
    """Return the share of outputs that agree, or None."""
    if comparison is None:
        return None
    plain, spec = comparison.plain.outputs, comparison.spec.outputs
    if not plain or len(plain) != len(spec):
        return None
    return sum(a == b for a, b in zip(plain, spec, strict=True)) / len(plain)


def _quality(given):
    gate = Gate("quality")
    reference, value = given.get("reference"), given.get("value")
    if given.get("approximate_verification"):
        gate.add(
            "reference", None, None, None,
            "approximate verification changes the distribution: the reference is sampling from the changed one",
        )  # fmt: skip
    drop = None
    if None not in (reference, value):
        drop = real(reference, "reference", low=float("-inf")) - real(value, "value", low=float("-inf"))
    limit = _limit(given, "max_drop") if "max_drop" in given else 0.0
    gate.at_most(
        f"drop of {given.get('metric', 'the agreed metric')}", drop, limit,
        "the agreed task metric with and without speculation (reference, value)",
    )  # fmt: skip
    return gate


def _latency(given, spec, comparison, wanted):
    gate = Gate("latency")
    if wanted:
        text = ", ".join(f"{key} = {value}" for key, value in wanted.items())
        gate.add(
            "load",
            len(spec),
            text,
            True if spec else None,
            f"{len(spec)} speculative run{'s' * (len(spec) != 1)} at the target load, {text}",
        )
    else:
        gate.add("load", None, None, None, "the target load (latency.load), at which the records must be taken")
    if given.get("workload") in UNFIT:
        gate.add(
            "workload",
            given["workload"],
            "production",
            None,
            f"{UNFIT[given['workload']]}: use the real mix of prompts",
        )
    for kind in ("ttft", "tpot", "itl", "e2el"):
        for statistic, limit in given.get(f"{kind}_ms", {}).items():
            how = (
                f"{statistic} of {kind.upper()}: `vllm bench serve` with --percentile-metrics and --metric-percentiles"
            )
            gate.at_most(f"{kind} {statistic}", _worst(spec, kind, statistic), real(limit, f"{kind}_ms"), how, " ms")
    verdict = comparison.verdict if comparison else "cannot-tell"
    ok = {"faster": True, "slower": False}.get(verdict)
    text = f"{verdict}, by the margin and its interval" if comparison else "a plain run at the target load"
    gate.add("gain", verdict, "faster", ok, text)
    if "speedup_min" in given:
        value = comparison.speedup_decode if comparison else None
        gate.at_least("speedup of decoding", value, _limit(given, "speedup_min"), "decode times of both sides", "×")
    return gate


def _worst(runs, kind, statistic):
    """Return the largest value of a latency statistic over the runs, or None if a run lacks it."""
    values = [r.details.get("latency_ms", {}).get(kind, {}).get(statistic) for r in runs]
    return None if not values or None in values else max(values)


def _capacity(given, spec, comparison):
    gate = Gate("capacity")
    if "throughput_ratio_min" in given:
        value = comparison.speedup_throughput if comparison else None
        gate.at_least(
            "throughput", value, _limit(given, "throughput_ratio_min"), "benchmark results of both sides", "×"
        )
    for name, key, add, how in (
        ("KV cache tokens", "kv_cache_tokens", gate.at_least, "the engine's start-up log or /metrics"),
        ("preemptions", "preemptions", gate.at_most, "/metrics before and after the run"),
        ("failed requests", "failed", gate.at_most, "the benchmark result"),
    ):
        limit = next((k for k in (f"{key}_min", f"{key}_max") if k in given), None)
        if limit:
            values = [r.details.get(key) for r in spec]
            known = None if not values or None in values else (min if add == gate.at_least else max)(values)
            add(name, known, _limit(given, limit), how)
    if not gate.checks:
        gate.add("limits", None, None, None, "limits for throughput, KV cache, preemptions or failed requests")
    return gate


def _limit(given, key):
    return real(given[key], key)


# ------------------------------------------------------------------------------------------------------ fault tree


def by_load(plain, spec):
    """Return {max_concurrency: S} for every load that both sides were measured at, by pooled times per token."""
    sides = [{}, {}]
    for side, found in zip((plain, spec), sides, strict=True):
        for record in side:
            if record.workload.get("max_concurrency") is not None:
                found.setdefault(record.workload["max_concurrency"], []).append(record)
    times = [{load: seconds_per_token(pool(group))[0] for load, group in found.items()} for found in sides]
    both = sorted(load for load in times[0].keys() & times[1].keys() if times[0][load] and times[1][load])
    return {load: times[0][load] / times[1][load] for load in both}


def too_dear(comparison):
    """Return True if a round commits clearly more than one token and speculation is still not shown to be faster."""
    unproven = comparison is not None and comparison.verdict in ("slower", "within-noise")
    return unproven and (comparison.committed_length or 0) > 1.1


def cheaper_load(speedups, target=None):
    """Return (load, target) if speculation is faster at the smallest load measured and not at the target, else None.

    The largest load in {load: S} stands for a `target` that is None or not measured (see `unmeasured_target`).
    """
    if len(speedups) < 2:
        return None
    target = target if target in speedups else max(speedups)
    low = min(speedups)
    return (low, target) if speedups[low] > 1 >= speedups[target] else None


def unmeasured_target(speedups, target=None):
    """Return the sentence that says which load of {load: S} stands for a target that was not measured, else ""."""
    if target is None or target in speedups or len(speedups) < 2:
        return ""
    return f"the target load, {target}, was not measured on both sides, and {max(speedups)} stands for it: measure there"


def fault_tree(comparison, speedups=(), target=None):
    """Return where to look, in order, as sentences.

    More tokens a round and yet no faster: the round is too dear, so draft, verification, sampling, cache, in this
    order, each with its time where it is known. Good only when idle: measure at the target load, then decide by load.
    """
    steps = []
    if too_dear(comparison):
        known = comparison.parts
        steps.append(f"a round commits {comparison.committed_length:.2f} tokens and is no faster: it takes too long")
        for name, key in (("draft", "draft"), ("verification", "verify"), ("sampling", "other")):
            spent = f"{known[key] * 1e3:.2f} ms a round" if known[key] is not None else "not timed in this record"
            steps.append(f"{name}: {spent}")
        steps.append("cache upkeep: rolled-back slots, copies, preemptions")
    if loads := cheaper_load(speedups, target):
        low, at = loads
        steps.append(
            f"faster at {low} concurrent request{'s' * (low != 1)} ({speedups[low]:.2f}×) and not at {at} "
            f"({speedups[at]:.2f}×): speculate by scenario, or let a schedule step down"
        )
    elif len(speedups) < 2 and target is None and steps:
        steps.append("measure at the target load before deciding")
    if stands_in := unmeasured_target(speedups, target):
        steps.append(stands_in)
    return steps
