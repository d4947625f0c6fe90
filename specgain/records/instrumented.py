"""Records of single rounds: the round log (`roundlog`), and one round a line as JSON or CSV from your own loop.

A line holds `num_candidates` (drafted), `n_matches` (accepted), `n_new` (committed) and, if measured, `draft_ms`,
`verify_ms`, `other_ms`; `truncated_by` names what cut the last round; `request` tells requests apart (without it a
round number that does not rise starts a new one).
"""

from specgain.acceptance import estimate
from specgain.records.roundlog import RequestLog, RoundLog, RoundLogError
from specgain.records.source import RecordError, count, csv_rows, real, shown
from specgain.records.summary import GAMMA_MAX, Record, Request, check

ENGINE = "specgain"
COUNTS = {"num_candidates": "drafted", "n_matches": "accepted", "n_new": "committed"}
TIMES = {"draft_ms": "t_draft", "verify_ms": "t_verify", "other_ms": "t_other"}


def is_round(value):
    """Return True for one round of an instrumented loop."""
    return isinstance(value, dict) and set(COUNTS) <= set(value)


def is_roundlog(value):
    """Return True for a JSON document with the schema of a round log (of any version)."""
    return isinstance(value, dict) and str(value.get("schema", "")).startswith("specgain.roundlog/")


def rounds(values, name):
    """Return the one Record of round lines."""
    requests, last, key = [], None, None
    for value in values:
        number = value.get("round")
        if not requests or value.get("request") != key or (number is not None and last is not None and number <= last):
            requests.append([])
        key, last = value.get("request"), number
        requests[-1].append(value)
    try:
        logs = [_request(rows, index) for index, rows in enumerate(requests)]
    except RoundLogError as error:
        raise RecordError(f"{name}: {error}") from None
    return record(logs, name, "instrumented-rounds", timed=_timed(values, name))


def _timed(values, name):
    """Return True if every round is timed; a time that only some rounds lack would count as 0, so it is refused."""
    phases = {key for value in values for key in TIMES if value.get(key) is not None}
    for number, value in enumerate(values, start=1):
        lacks = {key for key in phases if value.get(key) is None and (key != "draft_ms" or value["num_candidates"])}
        if lacks:
            raise RecordError(f"{name}: round {number} lacks {', '.join(sorted(lacks))}, which other rounds have")
    return bool(phases)


def _request(rows, index):
    """Return the RequestLog of the rounds of one request."""
    columns = {field: [count(row[key], key) for row in rows] for key, field in COUNTS.items()}
    times = {field: [real(row.get(key) or 0.0, key) / 1e3 for row in rows] for key, field in TIMES.items()}
    gamma = max(columns["drafted"])
    if gamma > GAMMA_MAX:
        raise RecordError(f"num_candidates = {gamma}: above {GAMMA_MAX} no record is believed")
    cut = any(row.get("truncated_by") for row in rows)
    return RequestLog(
        id=str(index), arm="rounds", gamma=gamma, finish="length" if cut else "unknown", **columns, **times
    )


def roundlog(value, name):
    """Return one Record per arm of a round log."""
    try:
        log = RoundLog.from_json(value)
    except (RoundLogError, TypeError) as error:
        raise RecordError(f"{name}: {error}") from None
    arms = {}
    for request in log.requests:
        arms.setdefault((request.arm, request.gamma), []).append(request)
    if not arms:
        raise RecordError(f"{name}: the round log holds no request")
    found = []
    for (arm, gamma), requests in arms.items():
        one = record(requests, name, "roundlog", version="1")
        one.workload |= {"arm": arm, "device": log.environment.get("device")}
        one.gamma = gamma if gamma else None
        found.append(one)
    return found


def record(logs, name, format_, version=None, timed=True):
    """Return the Record of RequestLogs that share one arm."""
    out = Record(ENGINE, format_, version, "per round", name)
    drafting = [pair for r in logs for pair in zip(r.drafted, r.accepted, strict=True) if pair[0]]
    out.rounds_all, out.committed = sum(r.rounds for r in logs), sum(r.tokens for r in logs)
    if timed:
        out.decode_seconds = sum(r.time for r in logs)
        out.details |= _phases(logs, out.rounds_all)
        out.tokens_per_second = out.committed / out.decode_seconds if out.decode_seconds else None
    out.requests = [Request(r.tokens, r.time if timed else None, r.rounds) for r in logs]
    if drafting:
        _acceptance(out, drafting)
    else:
        out.missing["accepted"] = "drafts: this is plain decoding"
    whole = [r for log in logs for r in zip(log.committed, log.cut, strict=True)]
    kept = [committed for committed, cut in whole if not cut]
    if kept and len(kept) < len(whole):
        out.details["without_cut_rounds"] = {
            "rounds": len(kept), "committed": sum(kept), "committed_length": sum(kept) / len(kept),
        }  # fmt: skip
    return check(out)


def _acceptance(out, drafting):
    drafted, accepted = zip(*drafting, strict=True)
    out.rounds, out.drafted, out.accepted = len(drafting), sum(drafted), sum(accepted)
    out.gamma = max(drafted)
    out.accepted_at = tuple(sum(a >= i for a in accepted) for i in range(1, out.gamma + 1))
    if out.mixed_widths:
        out.conditional = tuple(
            entry.value if entry.trials else None for entry in estimate(accepted, drafted).conditional
        )


def _phases(logs, rounds_):
    """Return the mean time per round of each phase, in ms."""
    return {f"{name}_ms": 1e3 * sum(sum(getattr(r, name)) for r in logs) / rounds_ for name in TIMES.values()}


def csv_rounds(text, name):
    """Return the Record of a CSV file with one round a line and the same columns."""
    rows = [{key: _cell(value, key) for key, value in row.items() if value != ""} for row in csv_rows(text, name)]
    for number, row in enumerate(rows, start=2):
        if not is_round(row):
            raise RecordError(f"{name}: row {number} lacks one of {', '.join(COUNTS)}")
    return rounds(rows, name)


def _cell(text, key):
    if key in ("request", "truncated_by", "arm"):
        return text
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise RecordError(f"{key} = {shown(text)} is not a number") from None
