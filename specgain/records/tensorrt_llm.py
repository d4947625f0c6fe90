"""What TensorRT-LLM's benchmark writes: the JSON of `trtllm-bench … throughput --report_json` and `--request_json`.

Layout and definitions: tensorrt_llm/bench/dataclasses/reporting.py and statistics.py (NVIDIA/TensorRT-LLM at 0249976 and
385626d; times in ns). `decode_iteration` numbers a request's passes from 0, the one that makes its first token. The
report's `decoding_stats` are computed, not counted: per request `accepted = tokens − iterations`, `drafted = max_draft_len ·
iterations`, `acceptance length = tokens / iterations`, where both counts hold the first token and the pass that made it,
and every round is taken for a full draft. So the printed length is drawn towards 1, and tokens and iterations are
recovered from the averages, which are sums over the number of requests.
"""

import hashlib

from specgain.records.source import RecordError, count, real
from specgain.records.summary import COUNTERS, Record, Request, check

PERCENTILES = {"average": "mean", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99", "maximum": "max"}
COUNTED = "counters: what trtllm-bench prints of drafts is computed from tokens and iterations"


def is_bench(value):
    """Return True for a report of trtllm-bench."""
    parts = (value.get("request_info"), value.get("performance")) if isinstance(value, dict) else (None, None)
    return all(isinstance(p, dict) for p in parts) and "system_output_throughput_tok_s" in parts[1]


def bench(value, name):
    """Return the Record of one report; raises RecordError if its averages are of no whole counts."""
    version = (value.get("engine") or {}).get("version")
    version = version if isinstance(version, str) else None
    record = Record("TensorRT-LLM", "trtllm-bench-json", version, "per run", name)
    asked, speed = value["request_info"], value["performance"]
    requests = count(asked["num_requests"], "num_requests")
    tokens = _total(asked["avg_output_length"], requests, "avg_output_length")
    record.details = {
        "requests": requests,
        "generation_tokens": tokens,
        "duration_s": real(speed["total_latency_ms"], "total_latency_ms") / 1e3,
        "output_tokens_per_s": real(speed["system_output_throughput_tok_s"], "system_output_throughput_tok_s"),
        "latency_ms": _latencies(value.get("streaming_metrics") or {}),
    }
    concurrency = asked.get("avg_num_concurrent_requests")
    record.details |= (
        {} if concurrency is None else {"mean_concurrency": real(concurrency, "avg_num_concurrent_requests")}
    )
    record.workload = {"num_prompts": requests, "dataset": (value.get("dataset") or {}).get("dataset_path")}
    if value.get("decoding_stats") is not None:
        _rounds(record, value["decoding_stats"], requests, tokens)
    record.missing |= dict.fromkeys(COUNTERS, COUNTED)
    return check(record)


REQUEST = {"decode_iteration", "first_token_timestamp", "end_timestamp", "output_tokens"}


def is_request(value):
    """Return True for one request of --request_json."""
    return isinstance(value, dict) and REQUEST <= set(value)


def requests(values, name):
    """Return the one Record of the requests of a run: tokens, rounds and time after the first token of each."""
    record = Record("TensorRT-LLM", "trtllm-bench-requests", aggregation="per request, pooled by counts", name=name)
    for value in values:
        tokens, rounds = (count(value[key], key) for key in ("output_tokens", "decode_iteration"))
        first, end = (count(value[key], key) for key in ("first_token_timestamp", "end_timestamp"))
        if tokens < 1 or not rounds <= tokens - 1 or end < first or (tokens > 1 and not rounds):
            raise RecordError(
                f"{name}: {tokens} tokens in {rounds + 1} passes from {first} to {end} ns contradict each other"
            )
        record.requests.append(Request(tokens - 1, (end - first) / 1e9, rounds))
        if isinstance(value.get("output"), str):
            record.outputs.append(hashlib.sha256(value["output"].encode("utf-8", "replace")).hexdigest()[:16])
    record.rounds_all, record.committed = (sum(getattr(r, k) for r in record.requests) for k in ("rounds", "tokens"))
    record.decode_seconds = sum(r.seconds for r in record.requests)
    record.details = {"requests": len(values), "generation_tokens": record.committed + len(values)}
    if record.committed > record.rounds_all:
        record.rounds, record.drafting_known = record.rounds_all, False
    record.missing |= dict.fromkeys(COUNTERS, COUNTED)
    return check(record)


def _total(average, requests, name):
    """Return the whole number behind an average over requests."""
    exact = real(average, name) * requests
    if abs(exact - round(exact)) > 1e-6 * max(1.0, exact):
        raise RecordError(f"{name} = {average} over {requests} requests is the average of no whole numbers")
    return round(exact)


def _rounds(record, stats, requests, tokens):
    """Add the rounds after each request's first token, from the averages of its decoding statistics."""
    averages = {key: (stats.get(f"{key}_percentiles") or {}).get("average") for key in
                ("num_draft_tokens", "num_accepted_draft_tokens", "acceptance_length")}  # fmt: skip
    if averages["num_accepted_draft_tokens"] is None:
        record.missing["committed_length"] = "decoding statistics: the report names speculation and gives no numbers"
        return
    beyond = _total(averages["num_accepted_draft_tokens"], requests, "num_accepted_draft_tokens")
    iterations = tokens - beyond
    drafted = _total(averages["num_draft_tokens"] or 0, requests, "num_draft_tokens")
    if not requests <= iterations <= tokens or not drafted or drafted % iterations:
        raise RecordError(f"{record.name}: {tokens} tokens, {beyond} accepted and {drafted} drafted fit no iterations")
    record.gamma = drafted // iterations
    record.rounds = record.rounds_all = iterations - requests
    record.drafting_known, record.committed = False, tokens - requests
    tpot = record.details["latency_ms"].get("tpot", {}).get("mean")
    if tpot and record.rounds_all:
        record.t_round = tpot / 1e3 * record.committed / record.rounds_all
    if averages["acceptance_length"] is not None:
        record.reported = {"acceptance_length": real(averages["acceptance_length"], "acceptance_length")}
    record.warn(
        "first-token",
        f"{record.name}: the printed acceptance length counts each request's first token and pass, which its prefill made; "
        "they are left out here",
    )


def _latencies(streaming):
    """Return {"ttft": {"mean": ms, "p99": …}, "tpot": …}; both are there only with --streaming."""
    found = {}
    for kind in ("ttft", "tpot"):
        printed = streaming.get(f"{kind}_percentiles")
        if isinstance(printed, dict):
            found[kind] = {ours: real(printed[key], key) for key, ours in PERCENTILES.items() if key in printed}
    return found
