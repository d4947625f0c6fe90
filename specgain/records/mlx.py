"""What MLX programs write: the closing lines of mlx-lm's generate, and mlx-vlm's timings.

- mlx-lm generate prints token counts and rates, no acceptance (ml-explore/mlx-examples PR #1155, mlx-lm PR #66).
- mlx-vlm server: timings with draft_kind, draft_rounds, draft_n, draft_n_accepted (Blaizzy/mlx-vlm PR #1788, 2026-08).
"""

import re

from specgain.records.source import RecordError, count, real
from specgain.records.summary import Record, Request, check

GENERATION = re.compile(r"^Generation: (\d{1,15}) tokens, (\d{1,12}\.\d{3}) tokens-per-sec\s*$", re.MULTILINE)
NO_COUNTERS = "acceptance counters, which mlx-lm does not print: only the speedup against a second run can be told"


def generate(text, name):
    """Return the Record of mlx-lm's closing lines; it has no acceptance in it."""
    match = GENERATION.search(text)
    if not match:
        raise RecordError(f"{name}: the Generation line was cut")
    record = Record("mlx-lm", "mlx-lm-generate", "generate CLI of 0.2x to 0.31", "per run", name)
    tokens = count(int(match[1]), "tokens")
    record.tokens_per_second = real(float(match[2]), "tokens-per-sec")
    record.details["generation_tokens"] = tokens
    for key in ("accepted", "drafted", "rounds", "pooled_acceptance", "survival", "conditional"):
        record.missing[key] = NO_COUNTERS
    record.missing["committed_length"] = record.missing["committed_length_drafting_rounds"] = NO_COUNTERS
    return record


def is_timings(value):
    """Return True for a response with mlx-vlm's draft timings."""
    timings = value.get("timings") if isinstance(value, dict) else None
    return (
        isinstance(timings, dict) and "predicted_n" in timings and bool({"draft_rounds", "draft_kind"} & set(timings))
    )


def responses(values, name):
    """Return the one Record of mlx-vlm responses, pooled by counts."""
    record = Record("mlx-vlm", "mlx-vlm-timings", "2026-08 or later (PR #1788)", "per request, pooled by counts", name)
    record.rounds = record.drafted = record.accepted = record.committed = record.rounds_all = 0
    record.decode_seconds = 0.0
    for value in values:
        entry = _request(value["timings"], name)
        record.per_request.append(entry)
        for key in ("rounds", "drafted", "accepted"):
            setattr(record, key, getattr(record, key) + entry[key])
        record.committed += entry["tokens"]
        record.rounds_all += entry["tokens"] - entry["accepted"]
        record.decode_seconds += entry["seconds"]
        record.requests.append(Request(entry["tokens"], entry["seconds"], entry["tokens"] - entry["accepted"]))
    if not record.drafted:
        record.rounds = record.drafted = record.accepted = None
        record.missing["accepted"] = "drafts: no drafter ran"
    record.missing["survival"] = record.missing["conditional"] = "acceptance per position, which is not in the timings"
    return check(record)


def _request(timings, name):
    entry = {
        "tokens": count(timings["predicted_n"], "predicted_n"),
        "seconds": real(timings.get("predicted_ms"), "predicted_ms") / 1e3,
        "rounds": count(timings.get("draft_rounds") or 0, "draft_rounds"),
        "drafted": count(timings.get("draft_n") or 0, "draft_n"),
        "accepted": count(timings.get("draft_n_accepted") or 0, "draft_n_accepted"),
    }
    if entry["accepted"] > entry["drafted"] or entry["tokens"] - entry["accepted"] < max(1, entry["rounds"] - 1):
        raise RecordError(f"{name}: {entry} contradicts itself: tokens − accepted are the rounds")
    return entry
