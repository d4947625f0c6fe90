"""What NVIDIA AIPerf records per request: `spec_decode_acceptance` (ai-dynamo/aiperf PR #1191; 0.11 and later).

The record is engine-neutral; its histogram of K is sparse, with string keys and zero buckets left out.
"""

from specgain.records.source import RecordError, count, shown
from specgain.records.summary import Record, check, sum_places, tail_counts
from specgain.records.vllm_results import histogram_entry

KEY = "spec_decode_acceptance"


def acceptance(value):
    """Return the `spec_decode_acceptance` object of a record, at the top or under "metrics", or None."""
    for holder in (value, value.get("metrics") if isinstance(value, dict) else None):
        if isinstance(holder, dict) and isinstance(holder.get(KEY), dict):
            found = holder[KEY]
            return found["value"] if isinstance(found.get("value"), dict) else found
    return None


def is_record(value):
    """Return True for an AIPerf record with acceptance in it."""
    return acceptance(value) is not None


def responses(values, name):
    """Return the one Record of AIPerf records, pooled by counts."""
    record = Record("AIPerf", "aiperf-record", "0.11 or later", "per request, pooled by counts", name)
    record.rounds = record.drafted = record.accepted = 0
    engines = set()
    for value in values:
        found = acceptance(value)
        engines.add(found.get("engine"))
        entry = _entry(found, name)
        record.per_request.append(entry)
        for key in ("rounds", "drafted", "accepted"):
            setattr(record, key, getattr(record, key) + entry[key])
    total = sum_places([entry["histogram"] for entry in record.per_request])
    record.gamma, record.accepted_at = len(total) - 1, tail_counts(total)
    record.details = {"acceptance_histogram": list(total), "served_by": sorted(filter(None, engines))}
    record.missing["committed_length"] = "a count of all rounds, also those without a draft: the engine's own metrics"
    return check(record)


def _entry(found, name):
    histogram = found.get("acceptance_histogram")
    gamma = count(found.get("num_spec_tokens"), "num_spec_tokens")
    if not isinstance(histogram, dict) or gamma > 1000:
        raise RecordError(f"{name}: acceptance_histogram = {shown(histogram)} is no object, or γ = {gamma} too large")
    dense = [0] * (gamma + 1)
    for key, hits in histogram.items():
        if not key.isdecimal() or len(key) > 4 or int(key) > gamma:
            raise RecordError(f"{name}: the histogram has the bucket {shown(key)}; K goes from 0 to {gamma}")
        dense[int(key)] = count(hits, "acceptance_histogram")
    return histogram_entry(
        dense,
        count(found.get("num_spec_steps"), "num_spec_steps"),
        count(found.get("num_draft_tokens"), "num_draft_tokens"),
        count(found.get("num_accepted_draft_tokens"), "num_accepted_draft_tokens"),
        name,
    )
