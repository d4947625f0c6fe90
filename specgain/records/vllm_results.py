"""vLLM's results: `bench serve` as JSON and as a table, per-request metrics, the offline example's output.

- `bench serve --save-result` (vllm/benchmarks/serve.py): the acceptance rate is in percent, per-position rates are
  fractions (survival); the counters are differences of /metrics, so other traffic leaks in; `itls` (only with
  --save-detailed) has one entry per streamed chunk, that is per round after the first token.
- `metrics.speculative_decoding` of a response, 0.29 and later (docs: Per-Request Acceptance Metrics): drafting rounds
  only; drafts that a grammar voided are not counted as drafted; acceptance is counted before EOS cuts (#56101).
- `examples/offline_inference/spec_decode.py` (PR #26498): rates per position with two decimals.
"""

import hashlib
import re

from specgain.acceptance import estimate
from specgain.records.source import RecordError, count, real, shown
from specgain.records.summary import Record, Request, check, rises, sum_places, tail_counts
from specgain.records.text import decimal, number, whole
from specgain.records.vllm import ALL_ROUNDS, ENGINE

STATISTIC = re.compile(r"(mean|median|std|min|max|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el)_ms$")
WORKLOAD = ("model_id", "num_prompts", "max_concurrency", "request_rate", "burstiness", "total_input_tokens")
ROW = re.compile(r"^\s*([A-Z][^:\n]*?):[ \t]+(\S[^\n]*?)[ \t]*$", re.MULTILINE)
SUMMARY_ONLY = "per-request lists: run `vllm bench serve` with --save-result --save-detailed"


# --------------------------------------------------------------------------------------------- bench serve, JSON


def is_bench(value):
    """Return True for the JSON of `vllm bench serve` (SGLang's has the retokenized count as well)."""
    keys = set(value) if isinstance(value, dict) else set()
    return {"completed", "total_output_tokens", "duration"} <= keys and "total_output_tokens_retokenized" not in keys


def bench(value, name):
    """Return the Record of one `bench serve` result; raises RecordError if its numbers contradict each other."""
    record = Record(ENGINE, "vllm-bench-serve-json", version="about 0.14 or later", aggregation="per run", name=name)
    requests, tokens = (
        count(value["completed"], "completed"),
        count(value["total_output_tokens"], "total_output_tokens"),
    )
    record.details = {
        "requests": requests,
        "failed": count(value.get("failed") or 0, "failed"),
        "generation_tokens": tokens,
        "duration_s": real(value["duration"], "duration"),
        "output_tokens_per_s": real(value.get("output_throughput") or 0.0, "output_throughput"),
        "latency_ms": latencies(value),
        "latency_means": {
            "itl_ms": "gap between streamed chunks, one per round",
            "tpot_ms": "(latency − TTFT) / (tokens − 1), mean over requests",
            "ttft_ms": "at the client: queue and network included",
        },
    }
    record.workload = {key: value.get(key) for key in WORKLOAD}
    _bench_counters(record, value)
    _bench_requests(record, value)
    if record.rounds_all is None:
        _gap(record)
        record.missing["committed_length"] = ALL_ROUNDS
        record.missing["per_request"] = SUMMARY_ONLY
    if record.accepted is None:
        record.missing["accepted"] = "drafts: this run made none, or its server speaks no /metrics"
    _texts(record, value.get("generated_texts"))
    return check(record)


def _gap(record):
    """Take the mean gap between chunks as the time of a round, where rounds are not listed one by one."""
    gap = record.details["latency_ms"].get("itl", {}).get("mean")
    record.t_round = gap / 1e3 if gap else None


def latencies(value):
    """Return {"ttft": {"mean": ms, …}, "tpot": …, "itl": …} of the keys such as `mean_ttft_ms`."""
    found = {}
    for key, number_ in value.items():
        match = STATISTIC.match(key)
        if match and isinstance(number_, (int, float)) and number_ == number_:
            found.setdefault(match[2], {})[match[1]] = real(number_, key)
    return found


def _bench_counters(record, value):
    """Read the `spec_decode_*` keys; where they are absent nothing was drafted, which is not zero acceptance."""
    if value.get("spec_decode_num_drafts") is None:
        return
    record.rounds = count(value["spec_decode_num_drafts"], "spec_decode_num_drafts")
    record.drafted = count(value["spec_decode_draft_tokens"], "spec_decode_draft_tokens")
    record.accepted = count(value["spec_decode_accepted_tokens"], "spec_decode_accepted_tokens")
    rate = value.get("spec_decode_acceptance_rate")
    if rate is not None and record.drafted:
        percent = real(rate, "spec_decode_acceptance_rate", high=100)
        if abs(percent - 100 * record.accepted / record.drafted) > 0.1:
            raise RecordError(f"{record.name}: acceptance rate {percent} % is not {record.accepted}/{record.drafted}")
    places = value.get("spec_decode_per_position_acceptance_rates")
    if places:
        if not isinstance(places, list):
            raise RecordError(f"{record.name}: per-position rates {shown(places)} are no list")
        record.survival = tuple(real(rate, "per-position rate", high=1) for rate in places)
        record.gamma = len(places)
        if record.rounds and abs(sum(record.survival) - record.accepted / record.rounds) > 0.01 * len(places):
            raise RecordError(f"{record.name}: the rates per position do not add up to accepted tokens per draft")
        record.accepted_at = _counts_of(record.survival, record.rounds, record.accepted)


def _counts_of(survival, rounds, accepted):
    """Return the counts behind unrounded rates, or None if they are no whole numbers that add up to `accepted`."""
    exact = [rate * rounds for rate in survival]
    counts = tuple(round(hits) for hits in exact)
    whole_ = all(abs(hits - near) < 1e-6 * max(1, rounds) for hits, near in zip(exact, counts, strict=True))
    return counts if whole_ and sum(counts) == accepted else None


def _bench_requests(record, value):
    """Read the lists of --save-detailed: one request each, rounds = chunks after the first."""
    lens, gaps = value.get("output_lens"), value.get("itls")
    if lens is None or gaps is None:
        return
    if not isinstance(lens, list) or not isinstance(gaps, list) or len(lens) != len(gaps):
        raise RecordError(f"{record.name}: output_lens and itls are no lists of equal length")
    errors = value.get("errors") or [""] * len(lens)
    for tokens, gap, error in zip(lens, gaps, errors, strict=False):
        if error or not tokens:
            continue
        seconds = sum(real(g, "itls") for g in gap)
        if seconds > 1.01 * record.details["duration_s"]:
            raise RecordError(f"{record.name}: itls add up to {seconds:.4g} s in one request, but the run took "
                              f"{record.details['duration_s']:.4g} s; both must be in seconds")  # fmt: skip
        record.requests.append(Request(count(tokens, "output_lens") - 1, seconds, len(gap)))
    record.committed = sum(request.tokens for request in record.requests)
    record.decode_seconds = sum(request.seconds for request in record.requests)
    record.rounds_all = sum(request.rounds for request in record.requests)
    if len(record.requests) != record.details["requests"]:
        record.warn("requests", f"{record.name}: {record.details['requests']} completed, {len(record.requests)} listed")
    _check_chunks(record)


def _check_chunks(record):
    """A chunk is a round only if the client saw every chunk apart: rounds + accepted must cover what was delivered."""
    spare = record.rounds_all + (record.accepted or 0) - record.committed
    if spare < 0:
        plain = record.accepted is None  # plain decoding: a round is a token
        record.rounds_all = record.committed if plain else None
        record.requests = [Request(r.tokens, r.seconds, r.tokens if plain else None) for r in record.requests]
        record.warn("chunks-merged", f"{record.name}: at least {-spare} chunks reached the client merged with others")
    elif record.gamma and spare > record.gamma * len(record.requests):
        record.warn(
            "foreign-traffic",
            f"{record.name}: {spare} accepted tokens were never delivered to this client: the counters also hold other "
            "traffic",
        )


def _texts(record, texts):
    """Keep a hash per text, and warn if the texts loop: a looping model makes n-gram drafts look good."""
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return
    record.outputs = [hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16] for text in texts]
    words = [text.split() for text in texts if len(text.split()) >= 40]
    if words and len(words) * 2 >= len(texts):
        total = sum(len(w) - 2 for w in words)
        distinct = sum(len(set(zip(w, w[1:], w[2:], strict=False))) for w in words)
        record.details["distinct_trigram_share"] = distinct / total
        if distinct < 0.5 * total:
            record.warn(
                "degenerate-text",
                f"only {distinct / total:.0%} of the three-word sequences in the outputs are distinct: the model "
                "loops, which flatters n-gram and suffix drafts",
            )


# --------------------------------------------------------------------------------------- per-request metrics, JSON


def is_response(value):
    """Return True for a response (or a part of one) with vLLM's per-request `metrics`."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("metrics"), dict)
        and ("speculative_decoding" in value["metrics"] or "mean_itl_ms" in value["metrics"])
    )


def responses(values, name):
    """Return the one Record of many responses; requests without acceptance metrics (null) stand as None."""
    record = Record(ENGINE, "vllm-response-metrics", "0.29 or later", "per request, pooled by counts", name)
    record.rounds = record.drafted = record.accepted = 0
    steps, ends, none = ([], []), [], 0
    for value in values:
        entry = _response(value, steps, record)
        record.per_request.append(entry)
        none += entry is None
        if entry:
            for key in ("rounds", "drafted", "accepted"):
                setattr(record, key, getattr(record, key) + entry[key])
            ends.append(entry.get("rounds_bounds"))
    _finish_responses(record, steps, ends, none)
    _response_times(record, values)
    return check(record)


def _finish_responses(record, steps, ends, none):
    histogram = sum_places([entry["histogram"] for entry in record.per_request if entry])
    if none:
        record.warn("no-metrics", f"{none} requests carry no acceptance metrics (null: n > 1, or collection was off)")
    if len(histogram) > 1 and record.rounds:
        record.gamma = len(histogram) - 1
        record.accepted_at = tail_counts(histogram)
        record.details["acceptance_histogram"] = list(histogram)
    elif not record.rounds:
        record.rounds = record.drafted = record.accepted = None
    if record.rounds and record.mixed_widths and len(steps[0]) == record.rounds:
        record.conditional = tuple(e.value if e.trials else None for e in estimate(*steps).conditional)
    tokens = sum(request.tokens for request in record.requests)
    if ends and None not in ends and not none:
        low, high = (sum(end[i] for end in ends) for i in (0, 1))
        record.length_bounds = (tokens / high, tokens / low)
    if record.requests and not none and all(r.seconds is not None for r in record.requests):
        record.committed, record.decode_seconds = tokens, sum(r.seconds for r in record.requests)
    record.missing["committed_length"] = ALL_ROUNDS


RESPONSE_TIMES = {"ttft": "time_to_first_token_ms", "tpot": "mean_itl_ms", "queue": "queue_time_ms"}


def _response_times(record, values):
    """Keep the means of the times in responses, which mean other things here than in metrics and benchmarks."""
    for kind, key in RESPONSE_TIMES.items():
        times = [real(v["metrics"][key], key) for v in values if v["metrics"].get(key) is not None]
        if times:
            record.details.setdefault("latency_ms", {})[kind] = {"mean": sum(times) / len(times)}
    if "latency_ms" in record.details:
        record.details["latency_means"] = {
            "ttft_ms": "from scheduling: the queue is apart (queue)",
            "tpot_ms": "named mean_itl_ms there: decode time / (tokens − 1), so it is TPOT",
        }


def _response(value, steps, record):
    """Return one request as JSON, or None; append its rounds to `steps` and its decode phase to record.requests."""
    metrics, usage = value["metrics"], value.get("usage") or {}
    spec = metrics.get("speculative_decoding")
    tokens = usage.get("completion_tokens")
    seconds = metrics.get("generation_time_ms")
    if tokens is not None:
        tokens = max(0, count(tokens, "completion_tokens") - 1)
        seconds = real(seconds, "generation_time_ms") / 1e3 if seconds is not None else None
        record.requests.append(Request(tokens, seconds))
    if spec is None:
        return None
    if not isinstance(spec, dict):
        raise RecordError(f"{record.name}: speculative_decoding = {shown(spec)} is no object")
    entry = _counts_of_response(spec, record.name)
    taken, offered = spec.get("per_step_accepted"), spec.get("per_step_drafted")
    if taken is not None and offered is not None:
        _check_steps(taken, offered, entry, record.name)
        steps[0].extend(taken)
        steps[1].extend(offered)
    if tokens is not None:
        entry["tokens"] = tokens
        last = taken[-1] if taken else len(entry["histogram"]) - 1
        least = max(entry["rounds"], tokens - entry["accepted"])
        entry["rounds_bounds"] = [least, max(least, tokens - entry["accepted"] + last)]
    return entry


def _counts_of_response(spec, name):
    """Return counts and rates of one `speculative_decoding` object, checked against each other."""
    histogram = spec.get("acceptance_histogram")
    if not isinstance(histogram, list):
        raise RecordError(f"{name}: acceptance_histogram = {shown(histogram)} is no list")
    histogram = [count(h, "acceptance_histogram") for h in histogram]
    return histogram_entry(
        histogram,
        count(spec.get("num_spec_steps"), "num_spec_steps"),
        count(spec.get("num_draft_tokens"), "num_draft_tokens"),
        count(spec.get("num_accepted_draft_tokens"), "num_accepted_draft_tokens"),
        name,
    )


def histogram_entry(histogram, rounds, drafted, accepted, name):
    """Return counts and rates of one request from its histogram of K; raises RecordError if they do not agree."""
    gamma = len(histogram) - 1
    if sum(histogram) != rounds or sum(k * h for k, h in enumerate(histogram)) != accepted:
        raise RecordError(f"{name}: the histogram {histogram} does not hold {rounds} rounds with {accepted} accepted")
    if not accepted <= drafted <= rounds * gamma:
        raise RecordError(f"{name}: {drafted} drafted tokens do not fit {rounds} rounds of up to {gamma}")
    places = [rounds, *tail_counts(histogram)]
    full = drafted == rounds * gamma
    return {
        "rounds": rounds,
        "drafted": drafted,
        "accepted": accepted,
        "histogram": histogram,
        "committed_length_drafting_rounds": 1 + accepted / rounds if rounds else None,
        "mean_draft_length": drafted / rounds if rounds else None,
        "survival": [hits / rounds for hits in places[1:]] if rounds else None,
        "conditional": [b / a if a else None for a, b in zip(places, places[1:], strict=False)] if full else None,
    }


def _check_steps(taken, offered, entry, name):
    if not isinstance(taken, list) or not isinstance(offered, list) or len(taken) != len(offered):
        raise RecordError(f"{name}: per_step_accepted and per_step_drafted are no lists of equal length")
    for label, row, total in (("accepted", taken, entry["accepted"]), ("drafted", offered, entry["drafted"])):
        if sum(count(value, f"per_step_{label}") for value in row) != total:
            raise RecordError(f"{name}: per_step_{label} adds up to {sum(row)}, the total says {total}")
    if any(a > d for a, d in zip(taken, offered, strict=True)):
        raise RecordError(f"{name}: a step accepts more tokens than it drafted")


# -------------------------------------------------------------------------------------------------- printed blocks


END = re.compile(r"^={20,}\s*$", re.MULTILINE)


def rows(text):
    """Return {label: value text} of the lines "Label:   value" up to a closing line of =====, and whether it closed."""
    match = END.search(text)
    return dict(ROW.findall(text[: match.start()] if match else text)), bool(match)


def table(text, record, add):
    """Return `record` filled from a printed benchmark table, whose rows vLLM and SGLang share; `text` starts at its title.

    `add(record, values, closed)` reads the rows that only its engine prints; a table that was cut keeps its whole rows.
    """
    values, closed = rows(text)
    if not closed:
        record.warn("left-out", f"{record.name}: the table has no closing line; what was cut off is missing")
        values = dict(list(values.items())[:-1])
    table_details(record, values)
    add(record, values, closed)
    return check(record)


def printed_bench(text, name):
    """Return the Record of the printed result of `vllm bench serve`."""
    return table(text, Record(ENGINE, "vllm-bench-serve-table", aggregation="per run", name=name), _drafts)


def _drafts(record, values, closed):
    """Add the rows about drafts; without the closing line the positions may be incomplete and are left out."""
    _gap(record)
    if "Drafts" in values:
        record.rounds, record.drafted = whole(values["Drafts"], "Drafts"), _row(values, "Draft tokens", whole)
        record.accepted = _row(values, "Accepted tokens", whole)
        places = [values[f"Position {i}"] for i in range(len(values)) if f"Position {i}" in values]
        record.survival = tuple(decimal(p, "Position", high=100) / 100 for p in places) if places and closed else None
        record.gamma = len(places) if closed and places else None
        _check_printed(record, 0.5e-4)
    record.missing["committed_length"] = ALL_ROUNDS


def _row(values, key, read):
    return read(values[key], key) if key in values else None


def table_details(record, values):
    """Fill details with counts and latencies of a printed benchmark table (vLLM's and SGLang's share these rows)."""
    named = {
        "requests": ("Successful requests", whole), "duration_s": ("Benchmark duration (s)", decimal),
        "generation_tokens": ("Total generated tokens", whole), "input_tokens": ("Total input tokens", whole),
        "output_tokens_per_s": ("Output token throughput (tok/s)", decimal),
    }  # fmt: skip
    record.details = {key: read(values[row], row) for key, (row, read) in named.items() if row in values}
    latency = {}
    for row, value in values.items():
        match = re.match(r"(Mean|Median|P\d+|Max|Std) (TTFT|TPOT|ITL|E2EL|E2E Latency) \(ms\)$", row)
        if match:
            kind = match[2].lower().replace("e2e latency", "e2el")
            latency.setdefault(kind, {})[match[1].lower()] = decimal(value, row)
    record.details["latency_ms"] = latency


def _check_printed(record, half):
    """Drop printed rates that do not add up to accepted/rounds within their rounding."""
    if record.survival is None or not record.rounds or record.accepted is None:
        return
    gap = abs(sum(record.survival) - record.accepted / record.rounds)
    if gap > half * len(record.survival) + 1e-9 or rises(record.survival, 2 * half):
        record.survival = record.gamma = None
        record.warn("left-out", f"{record.name}: the rates per position do not add up to accepted/rounds; left out")


OFFLINE = {
    "rounds": "num_drafts", "drafted": "num_draft_tokens", "accepted": "num_accepted_tokens",
}  # fmt: skip


def offline(text, name):
    """Return the Record of the offline example's printed block; `text` starts at its first line."""
    whole_lines, _, last = text.rpartition("\n")  # a last line without its end may be cut
    values = dict(re.findall(r"^([a-z_ ]+?(?: \d+)?): (\S+)\s*$", whole_lines, re.MULTILINE))
    values |= dict(re.findall(r"^(acceptance at token \d+): (\d\.\d\d)$", last))
    record = Record(ENGINE, "vllm-offline-example", "examples of 0.10 to 0.2x", "per run", name)
    for key, label in OFFLINE.items():
        if label not in values:
            raise RecordError(f"{name}: the block was cut, {label} is missing")
        setattr(record, key, whole(values[label], label))
    record.details["generation_tokens"] = whole(values["total_num_output_tokens"], "total_num_output_tokens")
    places = []
    while f"acceptance at token {len(places)}" in values:
        places.append(number(values[f"acceptance at token {len(places)}"], "acceptance"))
    if places and len({half for _, half in places}) == 1:
        record.survival, record.gamma = tuple(real(p, "acceptance", high=1) for p, _ in places), len(places)
        _check_printed(record, places[0][1])
    if not record.survival:
        record.missing["survival"] = record.missing["conditional"] = "the lines `acceptance at token …`, all of them"
    record.missing["committed_length"] = (
        "the number of requests, to subtract their first tokens, and the rounds without a draft; or " + ALL_ROUNDS
    )
    return check(record)
