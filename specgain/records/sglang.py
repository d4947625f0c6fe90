"""What SGLang writes: decode log lines, `meta_info` of responses, benchmark results.

- `Decode batch` lines (scheduler metrics; sgl-project/sglang#11948, PR #6201, #13212, #23530): one line for a fixed
  number of decode batches. `accept len` has the bonus in. `accept rate` came with 0.5: first accept_len/draft tokens,
  that is (accepted + 1)/(k + 1), from PR #23530 (2026-04) on the strict accepted/k; the numbers themselves tell which.
  The throughput of a line counts the time since the line before, prefill and idle time included.
- `meta_info` (0.4 and later): spec_accept_length = completion_tokens/spec_verify_ct holds the first token, which the
  prefill made, and is cut by EOS; newer releases rename the counters (spec_num_correct_drafts, …).
- bench_serving: the accept length is the server's running average since it started, not of this run; for chat back ends
  the printed ITL is already divided by it (PR #12064, 2025-10).
"""

import re
from math import ceil, floor

from specgain.records.source import RecordError, count, real
from specgain.records.summary import GAMMA_MAX, Record, Request, check, sum_places, tail_counts
from specgain.records.text import KEPT, LeftOut, decimal, fields, from_engine, number, whole
from specgain.records.vllm_results import histogram_entry, latencies, table

ENGINE = "SGLang"
RANK = re.compile(r"\bTP(\d+)\b")
COUNTERS = "meta_info of the responses (spec_verify_ct and the accepted and drafted counts)"
CANDIDATES = range(2, 129)  # numbers of draft tokens tried to explain the printed rate


class DecodeLog:
    """Collects `Decode batch` lines into one Record of lengths and round times, without counts."""

    format = "sglang-decode-log"
    markers = ("Decode batch", "Prefill batch")

    def __init__(self, name, gamma=None):
        self.record = Record(ENGINE, self.format, name=name, gamma=gamma)
        self.record.aggregation = "per log interval; every line covers the same number of decode batches"
        self.left_out, self.lines, self.after_prefill = LeftOut(), 0, False
        self.sums = {"rounds": 0, "tokens": 0.0, "timed": 0, "seconds": 0.0}
        self.rates, self.ranks, self.graphs, self.longest = [], set(), set(), 0.0

    def feed(self, marker, line, is_cut):
        """Take one line."""
        body = from_engine(line, marker)
        if body is None:
            return
        if marker == "Prefill batch":
            self.after_prefill = True
            return
        try:
            self._add(fields(re.sub(r"^\s*(\[\d+\])?[.,]", "", body)), RANK.search(line), is_cut)
        except (RecordError, KeyError) as error:
            self.left_out.add(error)

    def _add(self, values, rank, is_cut):
        throughput, half = number(values["gen throughput (token/s)"], "gen throughput")
        if is_cut and half != 0.005:
            raise RecordError("the line was cut within its throughput")
        throughput = real(throughput, "gen throughput")
        running = whole(values["#running-req"], "#running-req")
        self.ranks.add(int(rank[1]) if rank else 0)
        if rank and int(rank[1]) != min(self.ranks):
            return  # every tensor-parallel rank prints the same step
        self.lines += 1
        self.graphs.add(values.get("cuda graph"))
        window = {"running": running, "tokens_per_s": throughput}
        if "accept len" in values:
            self._acceptance(window, values)
        self._time(window, running, throughput)
        if len(self.record.windows) < KEPT:
            self.record.windows.append(window)

    def _acceptance(self, window, values):
        length, half = number(values["accept len"], "accept len")
        window["committed_length"] = real(length, "accept len", low=1 - half, high=GAMMA_MAX + 1)
        self.longest = max(self.longest, length)
        self.sums["rounds"] += window["running"]
        self.sums["tokens"] += window["running"] * length
        if "accept rate" in values:
            rate, rate_half = number(values["accept rate"], "accept rate")
            window["reported_accept_rate"] = real(rate, "accept rate", high=1 + rate_half)
            self.rates.append((length, half, rate, rate_half))

    def _time(self, window, running, throughput):
        """Add the round time, requests × length / throughput, unless the interval holds prefill or idle time."""
        if self.after_prefill or not throughput or not running:
            window["t_round_ms"] = None
            window["skipped"] = "the interval holds a prefill or idle time"
        else:
            seconds = running * window.get("committed_length", 1.0) / throughput
            window["t_round_ms"] = seconds * 1e3
            self.sums["timed"] += running
            self.sums["seconds"] += running * seconds
        self.after_prefill = False

    def records(self):
        """Return the Record as a one-element list."""
        record, sums = self.record, self.sums
        if not self.lines:
            return []
        if sums["timed"]:
            record.t_round = sums["seconds"] / sums["timed"]
        record.version = "0.5 or later" if self.rates else "0.4.x or later, without accept rate"
        if sums["rounds"]:
            record.length = record.length_drafting = sums["tokens"] / sums["rounds"]
            self._rate()
            if self.lines > 1:
                record.warn("pooled-by-line", f"{record.name}: E[L] pools {self.lines} lines as equally many rounds")
        else:
            record.format = "sglang-decode-log-plain"
        if {"True", "False"} <= self.graphs:
            record.warn("mixed-graphs", f"{record.name}: some steps ran in a CUDA graph and some did not")
        self._missing()
        self.left_out.warn(record)
        return [record]

    def _rate(self):
        """Find out which rate is printed, and give every window the strict rate accepted/k."""
        biased, strict = rate_meanings(self.rates)
        record = self.record
        if biased and not strict:
            record.gamma = biased[0] - 1 if len(biased) == 1 else record.gamma
            record.version = "0.5.3 to before PR #23530 (2026-04)"
            record.warn(
                "biased-accept-rate",
                f"{record.name}: the printed accept rate is accept_len/draft tokens = (accepted + 1)/(k + 1); with "
                "nothing accepted it would print 1/(k + 1), not 0",
            )
        elif strict and not biased:
            record.gamma = strict[0] if len(strict) == 1 else record.gamma
            record.version = "after PR #23530 (2026-04)"
        elif self.rates:
            record.warn(
                "ambiguous-accept-rate", f"{record.name}: the printed accept rate fits no one definition; unused"
            )
        if record.gamma and self.longest > record.gamma + 1.01:
            record.warn(
                "draft-length-changes",
                f"{record.name}: an accept length of {self.longest} does not fit the {record.gamma} draft tokens of other lines",
            )
            record.gamma = None
        for window in record.windows:
            length = window.get("committed_length")
            window["pooled_acceptance"] = (length - 1) / record.gamma if record.gamma and length else None

    def _missing(self):
        for key in ("rounds", "drafted", "accepted", "pooled_acceptance", "survival", "conditional"):
            self.record.missing[key] = COUNTERS


def rate_meanings(lines):
    """Return (biased, strict): the numbers of draft tokens under which rate = length/n, or (length − 1)/n, throughout.

    `lines` holds (length, its half unit, rate, its half unit).
    """
    biased, strict = set(CANDIDATES), set(range(1, 128))
    for length, half, rate, rate_half in lines:
        for found, tokens in ((biased, length), (strict, length - 1)):
            low, high = tokens - half - 1e-9, tokens + half + 1e-9
            least = low / (rate + rate_half + 1e-9)
            most = high / (rate - rate_half - 1e-9) if rate > rate_half + 1e-9 else 1e9
            found.intersection_update(range(ceil(max(least, 1)), floor(min(most, 200)) + 1))
    longest = max((length for length, *_ in lines), default=1.0)
    return sorted(n for n in biased if n >= longest - 0.01), sorted(k for k in strict if k + 1 >= longest - 0.01)


# ------------------------------------------------------------------------------------------------------- meta_info

ALIASES = {
    "accepted": ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num"),
    "drafted": ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num"),
    "histogram": ("spec_correct_drafts_histogram", "spec_accept_histogram"),
}


def meta_info(value):
    """Return the `meta_info` object inside a response of either API, or None."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("meta_info"), dict):
        return value["meta_info"]
    if "spec_verify_ct" in value:
        return value
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and isinstance(first.get("meta_info"), dict):
        return {**(value.get("usage") or {}), **first["meta_info"]}
    return None


def is_meta(value):
    """Return True for a response with SGLang's speculative counters."""
    info = meta_info(value)
    return info is not None and "spec_verify_ct" in info


def responses(values, name):
    """Return the one Record of responses with `meta_info`, pooled by counts."""
    record = Record(ENGINE, "sglang-meta-info", "0.4 or later", "per request, pooled by counts", name)
    totals = {"rounds": 0, "committed": 0, "accepted": 0, "drafted": 0}
    for value in values:
        entry = _response(meta_info(value), name)
        record.per_request.append(entry)
        record.requests.append(Request(entry["committed"], None, entry["rounds"]))
        totals = {k: None if None in (t, entry[k]) else t + entry[k] for k, t in totals.items()}
    record.rounds = record.rounds_all = totals["rounds"]
    record.committed, record.accepted, record.drafted = totals["committed"], totals["accepted"], totals["drafted"]
    _places(record)
    record.warn(
        "first-token",
        f"{name}: spec_accept_length counts the first token of a request, which its prefill made; it is left out here",
    )
    for key in ("drafted", "accepted", "pooled_acceptance"):
        record.missing[key] = "a release whose meta_info holds the accepted and drafted counts"
    record.missing["survival"] = record.missing["conditional"] = "the histogram in meta_info"
    return check(record)


def _places(record):
    total = sum_places([entry.get("histogram") for entry in record.per_request])
    if total is not None:
        record.gamma, record.accepted_at = len(total) - 1, tail_counts(total)


def _response(info, name):
    """Return counts and rates of one request; raises RecordError if they contradict each other."""
    rounds = count(info["spec_verify_ct"], "spec_verify_ct")
    tokens = count(info.get("completion_tokens"), "completion_tokens")
    found = {key: next((info[a] for a in names if info.get(a) is not None), None) for key, names in ALIASES.items()}
    entry = {"rounds": rounds, "committed": max(0, tokens - 1), "tokens": tokens}
    for key in ("accepted", "drafted"):
        entry[key] = None if found[key] is None else count(found[key], key)
    if isinstance(found["histogram"], list) and None not in (entry["accepted"], entry["drafted"]):
        histogram = [count(h, "histogram") for h in found["histogram"]]
        if not histogram:
            raise RecordError(f"{name}: the histogram is empty")
        entry |= histogram_entry(histogram, rounds, entry["drafted"], entry["accepted"], name)
    elif None not in (entry["accepted"], entry["drafted"]) and entry["accepted"] > entry["drafted"]:
        raise RecordError(f"{name}: accepted {entry['accepted']} exceeds drafted {entry['drafted']}")
    entry["reported_accept_length"] = info.get("spec_accept_length")
    if rounds:
        entry["committed_length"] = entry["committed"] / rounds
    return entry


# ------------------------------------------------------------------------------------------------------- benchmarks


def printed_bench(text, name):
    """Return the Record of a printed bench_serving result; `text` starts at its title."""
    return table(text, Record(ENGINE, "sglang-bench-table", aggregation="per run", name=name), _accept_length)


def _accept_length(record, values, closed):
    length = values.get("Accept length")
    length = None if length is None else real(decimal(length, "Accept length"), "Accept length", low=1.0)
    _bench(record, length, values.get("Backend", ""))


def is_bench(value):
    """Return True for the JSON of SGLang's bench_serving."""
    return isinstance(value, dict) and "total_output_tokens_retokenized" in value


def bench(value, name):
    """Return the Record of one bench_serving result in JSON."""
    record = Record(ENGINE, "sglang-bench-json", aggregation="per run", name=name)
    record.details = {
        "requests": count(value.get("completed"), "completed"),
        "duration_s": real(value.get("duration"), "duration"),
        "generation_tokens": count(value.get("total_output_tokens"), "total_output_tokens"),
        "latency_ms": latencies(value),
    }
    record.workload = {key: value.get(key) for key in WORKLOAD if value.get(key) is not None}
    _bench_requests(record, value)
    length = value.get("accept_length")
    _bench(record, None if length is None else real(length, "accept_length", low=1.0), str(value.get("backend", "")))
    return record


WORKLOAD = ("max_concurrency", "request_rate", "dataset_name", "num_prompts", "total_input_tokens")


def _bench_requests(record, value):
    """Read the lists of --output-details, if their gaps add up to the printed TPOT (some versions divide the gaps)."""
    lens, gaps, tpot = (
        value.get("output_lens"),
        value.get("itls"),
        record.details["latency_ms"].get("tpot", {}).get("mean"),
    )
    if not isinstance(lens, list) or not isinstance(gaps, list) or len(lens) != len(gaps) or not tpot:
        return
    rows = [
        (count(n, "output_lens") - 1, sum(real(g, "itls") for g in gap))
        for n, gap, error in zip(lens, gaps, value.get("errors") or [""] * len(lens), strict=False)
        if not error and n
    ]
    rows = [(tokens, seconds) for tokens, seconds in rows if tokens > 0]
    mean = sum(seconds / tokens for tokens, seconds in rows) / len(rows) if rows else 0.0
    if abs(1e3 * mean / tpot - 1) > 0.02:
        record.warn(
            "gaps-unused", f"{record.name}: the gaps between chunks do not add up to the printed TPOT; left out"
        )
        return
    record.requests = [Request(tokens, seconds) for tokens, seconds in rows]
    record.committed, record.decode_seconds = sum(t for t, _ in rows), sum(s for _, s in rows)


def _bench(record, length, backend):
    """Add the accept length, and the time of a round from TPOT; say whether the printed ITL was divided by it."""
    latency = record.details["latency_ms"]
    tpot, itl = latency.get("tpot", {}).get("mean"), latency.get("itl", {}).get("mean")
    record.details["backend"] = backend
    for key in ("rounds", "drafted", "accepted", "pooled_acceptance", "survival", "conditional"):
        record.missing[key] = COUNTERS
    if length is None:
        record.missing["committed_length"] = "an accept length: this run made no drafts"
        return
    record.length = record.length_drafting = length
    record.warn(
        "cumulative-length",
        f"{record.name}: the accept length is the server's average since it started; restart it before the run, or "
        "take meta_info of the run's own responses",
    )
    if record.decode_seconds:
        record.t_round = length * record.decode_seconds / record.committed
    elif tpot:
        record.t_round = tpot * length / 1e3
    if tpot and itl and length > 1.2:
        divided = abs(itl / tpot - 1) < abs(itl / tpot - length)
        record.version = "after PR #12064 (2025-10)" if divided else "before PR #12064 (2025-10)"
        record.details["chunk_gap_ms"] = itl * length if divided else itl
        if divided:
            record.warn(
                "itl-divided",
                f"{record.name}: the printed ITL is already divided by the accept length; the gap between chunks that "
                f"a reader sees is {itl * length:.3f} ms",
            )
