"""What LM Studio's REST API returns: draft counts in `stats` (since 0.3.10) or in `usage` of a response.

Layout: LM Studio API changelog, 0.3.10 (2025-02-18), and responses of later versions, which moved the counts to `usage`.
Its engine is llama.cpp: steps are tokens − accepted, within one for the first token (see `llamacpp`).
"""

from specgain.records.llamacpp import fill
from specgain.records.source import RecordError, count, real
from specgain.records.summary import Record, check

KEYS = ("total_draft_tokens_count", "accepted_draft_tokens_count")


def counts(value):
    """Return the object that holds LM Studio's draft counts, or None."""
    for key in ("stats", "usage"):
        found = value.get(key) if isinstance(value, dict) else None
        if isinstance(found, dict) and set(KEYS) <= set(found):
            return found
    return None


def is_response(value):
    """Return True for a response with LM Studio's draft counts."""
    return counts(value) is not None


def responses(values, name):
    """Return the one Record of responses, pooled by counts."""
    record = Record("LM Studio", "lmstudio-response", "0.3.10 or later", "per request, pooled by counts", name)
    record.per_request = [_entry(value, name) for value in values]
    fill(record, record.per_request)
    return check(record)


def _entry(value, name):
    found, stats = counts(value), value.get("stats") or {}
    drafted, accepted = (count(found[key], key) for key in KEYS)
    if accepted > drafted:
        raise RecordError(f"{name}: {accepted} accepted of {drafted} drafted tokens")
    tokens, seconds = (value.get("usage") or {}).get("completion_tokens"), stats.get("generation_time")
    return {
        "tokens": None if tokens is None else count(tokens, "completion_tokens"),
        "seconds": None if seconds is None else real(seconds, "generation_time"),
        "drafted": drafted, "accepted": accepted, "drafts": None,
    }  # fmt: skip
