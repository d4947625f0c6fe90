"""What MLC LLM's serving engine writes: its metrics as JSON, bare or as `usage.extra` of a response.

Layout and definitions: cpp/serve/metrics.h and metrics.cc (mlc-ai/mlc-llm at 07f113f). `draft_count` and `accept_count`
begin with the target's own token: draft_count[0] is the number of verified rounds, and accept_count[i] counts the rounds
with K ≥ i. `accept_len` therefore has the bonus in, `accept_rate{step=i}` is conditional and `accept_prob{step=i}` is
accepted over offered at that place. Times by batch size leave the first pass out and stop at a batch of 64.
"""

import re

from specgain.records.source import RecordError, count, real, shown
from specgain.records.summary import Record, check

LABEL = re.compile(r"(mean|count)\{batch_size=(\d{1,4})\}$")
ALL = "the number of requests, to leave their first tokens out, and the rounds that ran without verification"


def metrics(value):
    """Return the engine's metrics object in a JSON value, or None."""
    usage = value.get("usage") if isinstance(value, dict) else None
    found = usage.get("extra") if isinstance(usage, dict) else value
    return found if isinstance(found, dict) and "engine_decode_time_sum" in found else None


def is_metrics(value):
    """Return True for the engine's metrics."""
    return metrics(value) is not None


def engine(value, name):
    """Return the Record of one dump of metrics; they run since the engine's start or its last reset."""
    found = metrics(value)
    record = Record("MLC LLM", "mlc-engine-metrics", aggregation="since the engine's start or reset", name=name)
    record.details = {
        "generation_tokens_with_first": count(found["completion_tokens_sum"], "completion_tokens_sum"),
        "engine_decode_s": real(found["engine_decode_time_sum"], "engine_decode_time_sum"),
    }
    spec = found.get("spec_decode")
    if spec is not None:
        _acceptance(record, spec)
    else:
        _plain(record, found.get("decode_time_by_batch_size") or {})
    record.missing["committed_length"] = ALL
    return check(record)


def _acceptance(record, spec):
    """Fill the counts of drafts; place 0 of both lists is the target's own token."""
    offered, accepted = ([count(n, key) for n in _list(spec, key)] for key in ("draft_count", "accept_count"))
    if len(offered) != len(accepted) or not offered or offered[0] != accepted[0]:
        raise RecordError(
            f"{record.name}: draft_count and accept_count must be equally long and begin with the same number"
        )
    if any(a > d for a, d in zip(accepted, offered, strict=True)):
        raise RecordError(f"{record.name}: more tokens accepted than drafted at a place")
    record.gamma = len(offered) - 1 or None
    record.rounds = offered[1] if record.gamma else 0
    record.drafted, record.accepted, record.accepted_at = sum(offered[1:]), sum(accepted[1:]), tuple(accepted[1:])
    record.details["verified_rounds"] = offered[0]


def _list(spec, key):
    found = spec.get(key) if isinstance(spec, dict) else None
    if not isinstance(found, list):
        raise RecordError(f"{key} = {shown(found)} is no list")
    return found


def _plain(record, times):
    """Fill tokens and seconds of plain decoding: a step at batch size B gives B tokens, and each waits for all of it."""
    steps = {"count": {}, "mean": {}}
    for label, value in times.items():
        if match := LABEL.match(label):
            steps[match[1]][int(match[2])] = value
    if not steps["count"] or steps["count"].keys() != steps["mean"].keys():
        return
    rows = [(batch, count(n, "count"), real(steps["mean"][batch], "mean")) for batch, n in steps["count"].items()]
    record.committed = record.rounds_all = sum(batch * n for batch, n, _ in rows)
    record.decode_seconds = sum(batch * n * seconds for batch, n, seconds in rows)
