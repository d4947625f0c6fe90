"""A draft length for every batch size, from measured rounds; and how an engine wants it written.

At each measured batch size the candidates are the draft lengths that were run there and no speculation at all. Their
worth is S, the plain time per token over theirs. The shortest length within `tolerance` of the best is taken (it holds
less memory and disturbs others less), and none if the best does not beat plain decoding, and length 0 where that was
measured, by more than `tolerance`. Sizes between two measured ones take the nearer one (by ratio). Draft length 0 inside
a schedule is not free for a draft with its own cache; where it was measured, its own S is used, else a warning says so.
"""

import json
import math
from dataclasses import dataclass, field
from itertools import pairwise

from specgain.acceptance import Acceptance
from specgain.compare import seconds_per_token
from specgain.records.read import runs
from specgain.records.source import RecordError, Source, Warn, count, parse_json, real
from specgain.records.summary import committed_length, pool, t_round
from specgain.records.sweep import settings
from specgain.schedule import KEY, config_rows, effective, load, lookup_errors

TOLERANCE = 0.02
GAMMA = "num_speculative_tokens"


@dataclass(frozen=True)
class Point:
    """One setting at one batch size: γ (None: no speculation), seconds per token, and what is known of the round.

    `repeats` are the seconds per token of its runs, one by one.
    """

    batch: int
    gamma: int | None
    seconds: float
    committed_length: float | None = None
    t_round: float | None = None
    repeats: tuple = ()


@dataclass
class Schedule:
    """Ranges [first, last, draft length] with the reason and the expected gain of each, warnings and advice."""

    ranges: list = field(default_factory=list)  # dicts: first, last, gamma, speedup, batch (where measured), reason
    warnings: list = field(default_factory=list)
    advice: list = field(default_factory=list)

    @property
    def table(self):
        """The schedule as the engine takes it, neighbours of equal length in one range."""
        rows = [[r["first"], r["last"], r["gamma"]] for r in self.ranges]
        return effective(rows, rows[-1][1], max(k for *_, k in rows)) if rows else []

    def to_json(self):
        """Return the JSON of `specgain schedule derive`."""
        return {
            "schedule": self.table,
            "ranges": self.ranges,
            "warnings": [warning.to_json() for warning in self.warnings],
            "advice": self.advice,
        }


# ------------------------------------------------------------------------------------------------------- points


def points(paths):
    """Return the Points in files: one JSON model, or any number of benchmark results and sweep summaries."""
    if len(paths) == 1 and str(paths[0]).endswith(".json"):
        source = Source(paths[0])
        try:
            data = parse_json(source.whole())
        except RecordError:
            data = None  # several values in one file: records, then
        finally:
            source.close()
        if isinstance(data, dict) and "t_round_ms" in data:
            return points_of_model(data)
    return points_of_runs(runs(paths))


def points_of_runs(records):
    """Return one Point per (batch size, γ) of runs, pooled over repeats; one without a batch size raises RecordError.

    The batch size is max_concurrency of the benchmark; γ is swept or seen in the counters.
    """
    groups = {}
    for run in records:
        gamma, batch = _setting(run)
        if batch is None:
            raise RecordError(f"{run.name}: no max_concurrency in this record, so its batch size is not known")
        groups.setdefault((batch, gamma), []).append(run)
    found = []
    for (batch, gamma), same in groups.items():
        record = pool(same)
        seconds = seconds_per_token(record)[0]
        if seconds is None:
            raise RecordError(f"{record.name}: no time per token in this record")
        repeats = tuple(seconds_per_token(run)[0] for run in same)
        found.append(Point(batch, gamma, seconds, committed_length(record), t_round(record), repeats))
    return found


def _setting(run):
    """Return (γ, batch): γ is None for no speculation and 0 for a schedule that was all zeros."""
    if "parameters" in run.details:
        gamma, batch = settings(run)
        zeros = any(key.endswith(KEY) for key in run.details["parameters"]) and not run.speculative
        return (0 if zeros else gamma if run.speculative else None), batch
    batch = run.workload.get("max_concurrency")
    return run.gamma if run.speculative else None, batch if isinstance(batch, int) else None


def points_of_model(data):
    """Return Points from measured costs and an acceptance law, a JSON object in ms:

        {"conditional": [0.8, 0.7], "t_decode_ms": {"1": 10}, "t_round_ms": {"1": {"0": 10.5, "1": 12, "2": 14}}}

    `t_round_ms` holds the time of a round per batch size and draft length, length 0 with the draft's upkeep.
    """
    try:
        law = Acceptance([real(a, "conditional", high=1.0) for a in data["conditional"]])
        plain = {_size(b): real(ms, "t_decode_ms") / 1e3 for b, ms in data["t_decode_ms"].items()}
        rounds = {_size(b): {_size(g, 0): real(ms, "t_round_ms") / 1e3 for g, ms in row.items()}
                  for b, row in data["t_round_ms"].items()}  # fmt: skip
    except (KeyError, AttributeError, TypeError) as error:
        raise RecordError(f"the model needs conditional, t_decode_ms and t_round_ms per batch size ({error})") from None
    found = [Point(batch, None, seconds) for batch, seconds in plain.items()]
    for batch, row in rounds.items():
        for gamma, seconds in row.items():
            if gamma > (law.gamma_max or 0):
                raise RecordError(f"no acceptance at position {gamma}; `conditional` knows {law.gamma_max} positions")
            length = law.committed_length(gamma)
            found.append(Point(batch, gamma, seconds / length, length, seconds))
    return found


def _size(text, least=1):
    if not str(text).isdecimal() or int(text) < least:
        raise RecordError(f"{text!r} is no batch size or draft length ({least} or more)")
    return count(int(text), "size")


# ------------------------------------------------------------------------------------------------------- derive


def derive(points, max_num_seqs=None, tolerance=TOLERANCE):
    """Return the `Schedule` for measured Points, up to the largest measured size, or `max_num_seqs` if that is larger.

    Raises RecordError if a batch size lacks its plain run, a time is 0, or nothing was measured.
    """
    by_batch = {}
    for point in points:
        if not point.seconds > 0:
            raise RecordError(f"batch size {point.batch}, draft length {point.gamma}: {point.seconds} s per token; a "
                              "measured time is above 0")  # fmt: skip
        by_batch.setdefault(point.batch, {})[point.gamma] = point
    without = sorted(batch for batch, row in by_batch.items() if None not in row)
    if without or not by_batch:
        raise RecordError(f"no plain run at batch size {', '.join(map(str, without)) or '(nothing was measured)'}")
    out, sizes = Schedule(), sorted(by_batch)
    most = max(max_num_seqs or sizes[-1], sizes[-1])
    for number, size in enumerate(sizes):
        first = 1 if number == 0 else _between(sizes[number - 1], size)
        last = most if number + 1 == len(sizes) else _between(size, sizes[number + 1]) - 1
        out.ranges.append({"first": first, "last": last} | _choose(by_batch[size], tolerance))
    _warn(out, by_batch, sizes, most)
    return out


def _between(size, larger):
    """Return the first batch size that is nearer to `larger` than to `size`, by ratio."""
    return math.isqrt(size * larger) + 1


def _choose(row, tolerance):
    """Return {gamma, speedup, batch, reason} of one measured batch size."""
    plain = row[None].seconds
    gains = {gamma: plain / point.seconds for gamma, point in row.items() if gamma is not None}
    drafting = {gamma: s for gamma, s in gains.items() if gamma > 0}
    best = max(drafting.values(), default=0.0)
    listed = ", ".join(f"{gamma}: {s:.3f}" for gamma, s in sorted(gains.items()))
    zero = gains.get(0)
    if best <= max(1.0, zero or 0.0) + tolerance:
        rival = "length 0" if (zero or 0.0) > 1.0 else "plain decoding"
        reason = f"no draft length beats {rival} by more than {tolerance:.0%} (S by length: {listed or 'none run'})"
        return {"gamma": 0, "speedup": zero if zero is not None else 1.0, "batch": row[None].batch, "reason": reason}
    gamma = min(g for g, s in drafting.items() if s >= best * (1 - tolerance))
    reason = f"the shortest length within {tolerance:.0%} of the best (S by length: {listed})"
    return {"gamma": gamma, "speedup": drafting[gamma], "batch": row[None].batch, "reason": reason}


def _warn(out, by_batch, sizes, most):
    add = out.warnings.append
    if sizes[0] > 1:
        add(Warn("extrapolated", f"nothing was measured below batch size {sizes[0]}; its length is used from 1 on"))
    if most > sizes[-1]:
        add(Warn("extrapolated", f"nothing was measured above batch size {sizes[-1]}; its length goes on up to {most}"))
    zero = [r for r in out.ranges if r["gamma"] == 0]
    unmeasured = [r["batch"] for r in zero if 0 not in by_batch[r["batch"]]]
    if unmeasured:
        add(
            Warn(
                "zero-not-measured",
                f"draft length 0 inside a schedule was not measured at batch size {', '.join(map(str, unmeasured))}: a "
                "draft with its own cache still runs one pass a step; run an all-zero schedule there, or serve that "
                "load without speculation",
            )
        )
    taxed = [f"{r['batch']}: {r['speedup']:.3f}" for r in zero if r["speedup"] < 1 - TOLERANCE]
    if taxed:
        add(
            Warn("zero-not-free", f"draft length 0 is slower than no speculation (S by batch size: {', '.join(taxed)})")
        )
    if all(r["gamma"] == 0 for r in out.ranges):
        out.advice.append("no measured batch size gains: serve this workload without speculation")
    elif len({r["gamma"] for r in out.ranges}) > 1:
        out.advice.append(
            "the engine looks the batch size up every step, prefills included, and has no hysteresis (vllm#49548): keep "
            "thresholds away from the usual load, and prefer few ranges"
        )
    rising = [(a, b) for a, b in pairwise(out.ranges) if b["gamma"] > a["gamma"]]
    if rising:
        add(Warn("rises", "the best length rises with the batch size somewhere: measure again before trusting it"))


# --------------------------------------------------------------------------------------------------------- emit


def emit(text, to="vllm", config=None):
    """Return what `to` ("vllm" or "tensorrt-llm") wants for the schedule in `text` (JSON or a file, see `load`)."""
    data = load(text)
    table = data.get("schedule", data.get(KEY)) if isinstance(data, dict) else data
    if to == "vllm":
        return emit_vllm(table, config)
    if to == "tensorrt-llm":
        return emit_tensorrt_llm(table)
    raise RecordError(f"to = {to!r} is not known; known are vllm and tensorrt-llm")


def emit_vllm(table, config=None):
    """Return {"json", "flag"}: the speculative configuration with the schedule in it, and the option of `vllm serve`.

    `config` is the rest of the configuration; num_speculative_tokens is the longest length if it is missing.
    Raises RecordError for a schedule that the engine would refuse.
    """
    rows = _valid(table)
    longest = max(k for *_, k in rows)
    if longest == 0:
        raise RecordError("the schedule is all zeros: serve without speculation instead")
    config = {GAMMA: longest} | (config or {}) | {KEY: rows}
    text = json.dumps(config)
    quoted = text.replace("'", "'\\''")
    return {"json": config, "flag": f"--speculative-config '{quoted}'"}


def emit_tensorrt_llm(table):
    """Return {"json", "yaml"}: `draft_len_schedule`, {largest batch size: draft length}, of TensorRT-LLM's configuration.

    Above its last key TensorRT-LLM does not speculate (NVIDIA/TensorRT-LLM PR #10860, LLM API reference 1.3), so a
    schedule that is zero between two lengths cannot be written and raises RecordError.
    """
    valid = _valid(table)
    rows = effective(valid, max(last for _, last, _ in valid), max(k for *_, k in valid))
    drafting = [row for row in rows if row[2] > 0]
    if not drafting or rows[: len(drafting)] != drafting:
        raise RecordError(
            "draft_len_schedule knows length 0 only above the last batch size; this schedule has it before"
        )
    lengths = {last: k for _, last, k in drafting}
    return {
        "json": {"speculative_config": {"draft_len_schedule": {str(last): k for last, k in lengths.items()}}},
        "yaml": "speculative_config:\n  draft_len_schedule:\n" + "".join(f"    {b}: {k}\n" for b, k in lengths.items()),
    }


def emit_sweep(config, gammas, concurrencies):
    """Return {"serve_params", "bench_params"} for `vllm bench sweep serve`: no speculation, every γ, an all-zero table.

    Write each list to a file; the tool runs their product and writes summary.csv, which `derive` reads back. Keys are
    dotted (speculative_config.method), as the tool passes them on and writes them into summary.csv.
    """
    if not gammas or not concurrencies or min(gammas) < 1 or min(concurrencies) < 1:
        raise RecordError("a sweep needs draft lengths and concurrencies of 1 or more, such as 1,3,5 and 1,8,32")
    base = {f"speculative_config.{key}": value for key, value in config.items() if key not in (KEY, GAMMA)}
    serve = [{"_benchmark_name": "off"}]
    for gamma in sorted(set(gammas)):
        serve.append({"_benchmark_name": f"k{gamma}"} | base | {f"speculative_config.{GAMMA}": gamma})
    zero = {f"speculative_config.{GAMMA}": max(gammas), f"speculative_config.{KEY}": [[1, max(concurrencies), 0]]}
    serve.append({"_benchmark_name": "k0"} | base | zero)
    bench = [{"max_concurrency": c, "num_prompts": max(32, 8 * c)} for c in sorted(set(concurrencies))]
    return {"serve_params": serve, "bench_params": bench}


def _valid(table):
    rows, errors = config_rows(table)
    errors = errors or lookup_errors(rows)
    if errors or not rows:
        raise RecordError(f"the engine would refuse this schedule: {errors[0][1] if errors else 'it is empty'}")
    return rows
