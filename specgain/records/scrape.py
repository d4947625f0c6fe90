"""Prometheus scrapes of /metrics: counters of vLLM, SGLang and llama.cpp, differenced over a run.

A counter runs since the server started, so one scrape tells about everything the server has done; two tell about the
time between them. Engines behind one server are added up. Lines `*_created` are times, never counts.

- vLLM (vllm/v1/spec_decode/metrics.py, vllm/v1/metrics/loggers.py): `vllm:spec_decode_*`, position labels from 0;
  `vllm:inter_token_latency_seconds` has one sample per engine output after the first, that is per round.
- llama.cpp (tools/server): the same names with the prefix `llamacpp:`, where a draft is a verification step;
  `tokens_predicted_total` and `tokens_predicted_seconds_total` give the time per token.
- SGLang (scheduler and tokenizer metrics): acceptance only as gauges of the last interval, not of a window;
  `inter_token_latency_seconds` is spread over the tokens of a chunk, so its count is a count of tokens.
The text is parsed by prometheus-client (extra `records`).
"""

import re
from dataclasses import dataclass, field

from specgain.records.source import COUNT_MAX, RecordError, Warn, as_float, count, real
from specgain.records.summary import Record, check

COUNTERS = ("_total", "_count", "_sum")
PREFIX = {"vllm:": "vLLM", "sglang:": "SGLang", "llamacpp:": "llama.cpp"}
SAMPLE = re.compile(r"^(vllm:|sglang:|llamacpp:)[A-Za-z0-9_:]*[{ ]", re.MULTILINE)
UNUSED = re.compile(r"_bucket[{ ]")
METRIC = re.compile(r"\s*$|#|[A-Za-z_:][A-Za-z0-9_:]*(?:\{.*\})?\s+[0-9eE.+-]+(?:NaN|Inf)?(?:\s+-?\d+)?\s*$")
WHOLE = re.compile(r"^\S*_(?:total|count)[{ ].*[} ]\s*\d+\.0\s*$")


@dataclass
class Scrape:
    """The samples of one scrape, {(name, labels): value}; labels as sorted (key, value) pairs."""

    engine: str
    name: str
    samples: dict
    warnings: list = field(default_factory=list)

    def total(self, name, **labels):
        """Return the sum of a metric over all engines and other labels, or None if it is not there."""
        values = [v for (n, pairs), v in self.samples.items() if n == name and labels.items() <= dict(pairs).items()]
        return sum(values) if values else None

    def values_of(self, name, label):
        """Return the values that a label takes in a metric, in order."""
        return sorted({dict(pairs)[label] for n, pairs in self.samples if n == name and label in dict(pairs)})


def looks_like(head):
    """Return True if the beginning of a file (text) holds samples of an engine that is known here."""
    return bool(SAMPLE.search(head))


def scrapes(source, markers=()):
    """Return the Scrapes in a file (several if it was appended to); raises RecordError for what is no scrape.

    `markers` are phrases of log lines: a file that has both is ambiguous.
    """
    text = source.whole()
    both = next((marker for marker in markers if marker in text), None)
    if both:
        raise RecordError(f"{source.name}: metrics and log lines ({both!r}) in one file; split it")
    lines, dropped = _wanted(text, source)
    engines = {PREFIX[SAMPLE.match(line)[1]] for line in lines}
    if len(engines) != 1:
        raise RecordError(f"{source.name}: metrics of {' and of '.join(sorted(engines)) or 'no known engine'}")
    found = [{}]
    for key, value in _samples(lines, source):
        if key in found[-1]:
            found.append({})
        found[-1][key] = value
    _one_model({key for samples in found for key in samples}, source)
    if any(set(samples) != set(found[0]) for samples in found):
        raise RecordError(f"{source.name}: a metric occurs twice in one scrape, with no telling which is right")
    return [Scrape(next(iter(engines)), source.name, samples, list(dropped)) for samples in found]


def _wanted(text, source):
    """Return the lines that matter (no comments, no buckets), and warnings; a cut last line is left out."""
    lines = [line for line in text.splitlines() if SAMPLE.match(line) and not UNUSED.search(line)]
    odd = sum(not METRIC.match(line) for line in text.splitlines())
    if odd:
        source.notes.append(Warn("left-out", f"{source.name}: {odd} lines are no metrics and are left out"))
    if text.endswith("\n") or not lines or not text.endswith(lines[-1]) or WHOLE.search(lines[-1]):
        return lines, []
    note = Warn("left-out", f"{source.name}: the last line has no line end and may be cut; left out")
    return lines[:-1], [note]


def _samples(lines, source):
    """Yield ((name, labels), value) of every line."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise RecordError("reading /metrics needs prometheus-client: pip install 'specgain[records]'") from None
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                yield (sample.name, tuple(sorted(sample.labels.items()))), as_float(sample.value)
    except (ValueError, IndexError, KeyError) as error:
        raise RecordError(f"{source.name}: this is no Prometheus text ({error})") from None


def _one_model(samples, source):
    models = {dict(labels).get("model_name") for _, labels in samples} - {None}
    if len(models) > 1:
        raise RecordError(
            f"{source.name}: metrics of several models ({', '.join(sorted(models))}); scrape one server each"
        )


# ------------------------------------------------------------------------------------------------------- windows


def follows(before, after):
    """Return True if `after` can be a later scrape of the same server: the same start, and no counter fell."""
    shared = [key for key in before.samples if key in after.samples]
    counters = [key for key in shared if key[0].endswith(COUNTERS)]
    return (
        before.engine == after.engine
        and bool(counters)
        and all(after.samples[key] >= before.samples[key] for key in counters)
        and all(after.samples[key] == before.samples[key] for key in shared if key[0].endswith("_created"))
    )


def window(before, after):
    """Return the Record of the time between two scrapes, in whichever order they come.

    Raises RecordError if counters fell both ways: different servers, or a restart in between.
    """
    if not follows(before, after):
        before, after = after, before
    if not follows(before, after):
        raise RecordError(
            f"{before.name}, {after.name}: the counters rise in neither order; the server was restarted, or the "
            "scrapes are of different servers"
        )
    samples = {key: value - before.samples.get(key, 0.0) for key, value in after.samples.items()}
    gauges = {key: value for key, value in after.samples.items() if not key[0].endswith(COUNTERS)}
    change = Scrape(after.engine, f"{before.name}, {after.name}", samples | gauges, before.warnings + after.warnings)
    return record(change, "counters differenced over two scrapes, engines added up")


def since_start(scrape):
    """Return the Record of one scrape alone: everything since the server started."""
    found = record(scrape, "cumulative since the server started")
    found.warn(
        "cumulative",
        f"{scrape.name}: one scrape counts everything since the server started; scrape before and after the run",
    )
    return found


def record(scrape, aggregation):
    """Return the Record of differenced (or cumulative) counters."""
    out = Record(scrape.engine, "prometheus", aggregation=aggregation, name=scrape.name)
    out.warnings = list(scrape.warnings)
    {"vLLM": _vllm, "llama.cpp": _llamacpp, "SGLang": _sglang}[scrape.engine](out, scrape)
    return check(out)


def _count(scrape, name, **labels):
    value = scrape.total(name, **labels)
    return None if value is None else count(value, name)


def _drafts(out, scrape, prefix):
    """Read the four acceptance counters, which vLLM and llama.cpp name alike."""
    name = f"{prefix}spec_decode_num_"
    out.rounds = _count(scrape, f"{name}drafts_total")
    out.drafted = _count(scrape, f"{name}draft_tokens_total")
    out.accepted = _count(scrape, f"{name}accepted_tokens_total")
    per_position = f"{name}accepted_tokens_per_pos_total"
    places = scrape.values_of(per_position, "position")
    if places:
        if sorted(places, key=lambda p: int(p) if p.isdecimal() else -1) != [str(i) for i in range(len(places))]:
            raise RecordError(f"{out.name}: the positions {places} are not 0, 1, 2, …")
        out.accepted_at = tuple(_count(scrape, per_position, position=str(i)) for i in range(len(places)))
        out.gamma = len(places)
    if out.rounds is None:
        out.missing["accepted"] = "spec_decode counters: this server made no drafts"
    elif not out.rounds:
        out.rounds = out.drafted = out.accepted = out.accepted_at = None
        out.missing["accepted"] = "drafts: none were made between the scrapes"


def _vllm(out, scrape):
    out.version = "0.9 or later (V1 engine)"
    _drafts(out, scrape, "vllm:")
    latency = next(
        (
            n
            for n in ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
            if f"{n}_count" in _names(scrape)
        ),
        None,
    )
    tokens, first = (
        _count(scrape, "vllm:generation_tokens_total"),
        _count(scrape, "vllm:time_to_first_token_seconds_count"),
    )
    finished = [_count(scrape, "vllm:request_success_total", finished_reason=r) for r in ("stop", "length")]
    requests = first if first is not None else (None if None in finished else sum(finished))
    if latency:
        out.rounds_all = _count(scrape, f"{latency}_count")
        total = scrape.total(f"{latency}_sum")
        out.decode_seconds = None if total is None else real(total, f"{latency}_sum")
    if tokens is not None and requests is not None and out.rounds_all:
        out.committed = tokens - requests
    _vllm_details(out, scrape, tokens, requests)
    _consistent(out, finished, first)


def _names(scrape):
    return {name for name, _ in scrape.samples}


def _vllm_details(out, scrape, tokens, requests):
    out.details = {
        "generation_tokens": tokens,
        "requests": requests,
        "engine_steps": _count(scrape, "vllm:iteration_tokens_total_count"),
        "preemptions": _count(scrape, "vllm:num_preemptions_total"),
        "prompt_tokens": _count(scrape, "vllm:prompt_tokens_total"),
        "latency_ms": _latencies(scrape),
        "latency_means": {
            "ttft_ms": "from arrival at the server, queue included",
            "itl_ms": "gap per engine output, one per round",
            "tpot_ms": "decode time / (tokens − 1), mean over requests",
        },
    }
    for _, labels in (key for key in scrape.samples if key[0] == "vllm:cache_config_info"):
        info = dict(labels)
        for key, label in (("kv_blocks", "num_gpu_blocks"), ("kv_block_tokens", "block_size")):
            if info.get(label, "").isdecimal() and len(info[label]) < 16:
                out.details[key] = int(info[label])
    if {"kv_blocks", "kv_block_tokens"} <= set(out.details):
        out.details["kv_cache_tokens"] = out.details["kv_blocks"] * out.details["kv_block_tokens"]
    engines = scrape.values_of("vllm:spec_decode_num_drafts_total", "engine")
    if len(engines) > 1:
        out.details["engines"] = [_one_engine(scrape, engine) for engine in engines]


HISTOGRAMS = {
    "ttft": "vllm:time_to_first_token_seconds", "tpot": "vllm:request_time_per_output_token_seconds",
    "itl": "vllm:inter_token_latency_seconds", "e2el": "vllm:e2e_request_latency_seconds",
    "prefill": "vllm:request_prefill_time_seconds",
}  # fmt: skip


def _latencies(scrape):
    """Return {"ttft": {"mean": ms}, …} of the histograms that are there, sums over counts."""
    found = {}
    for kind, name in HISTOGRAMS.items():
        samples, total = _count(scrape, f"{name}_count"), scrape.total(f"{name}_sum")
        if samples and total is not None:
            found[kind] = {"mean": 1e3 * real(total, f"{name}_sum") / samples}
    return found


def _one_engine(scrape, engine):
    rounds = _count(scrape, "vllm:spec_decode_num_drafts_total", engine=engine)
    accepted = _count(scrape, "vllm:spec_decode_num_accepted_tokens_total", engine=engine)
    length = 1 + accepted / rounds if rounds and accepted is not None else None
    return {"engine": engine, "rounds": rounds, "committed_length_drafting_rounds": length}


def _consistent(out, finished, first):
    """Warn about a window that cuts through requests, and drop totals that cannot be right."""
    if None not in finished and first is not None and sum(finished) != first:
        out.warn(
            "requests-in-flight",
            f"{out.name}: {first} requests began and {sum(finished)} ended by stop or length between the scrapes; "
            "scrape while the server is idle",
        )
    if out.tokens_cut is not None and out.tokens_cut < 0:
        out.warn("requests-in-flight", f"{out.name}: more tokens than the rounds can have given; E[L] left out")
        out.committed = out.rounds_all = out.decode_seconds = None
    if out.rounds_all is None:
        out.missing["committed_length"] = (
            "vllm:inter_token_latency_seconds_count and vllm:generation_tokens_total in both scrapes"
        )


def _llamacpp(out, scrape):
    _drafts(out, scrape, "llamacpp:")
    tokens = _count(scrape, "llamacpp:tokens_predicted_total")
    seconds = scrape.total("llamacpp:tokens_predicted_seconds_total")
    if tokens is not None and seconds is not None:
        out.committed, out.decode_seconds = tokens, real(seconds, "tokens_predicted_seconds_total", high=COUNT_MAX)
    out.missing["committed_length"] = (
        "the verification steps without a draft and the number of requests: the server log"
    )
    out.details = {"generation_tokens": tokens, "decode_calls": _count(scrape, "llamacpp:n_decode_total")}


def _sglang(out, scrape):
    """SGLang's acceptance gauges show the last interval only, so they are reported and not used."""
    tokens = _count(scrape, "sglang:inter_token_latency_seconds_count")
    seconds = scrape.total("sglang:inter_token_latency_seconds_sum")
    if tokens and seconds is not None:
        out.committed, out.decode_seconds = tokens, real(seconds, "inter_token_latency_seconds_sum")
    for key in ("spec_accept_length", "spec_accept_rate"):
        value = scrape.total(f"sglang:{key}")
        if value is not None:
            out.reported[key] = real(value, key)
    out.details["generation_tokens"] = _count(scrape, "sglang:generation_tokens_total")
    how = "meta_info of the responses: the gauges in /metrics show the last interval only"
    for key in ("rounds", "drafted", "accepted", "pooled_acceptance", "survival", "conditional", "committed_length"):
        out.missing[key] = how
    out.missing["committed_length_drafting_rounds"] = how
