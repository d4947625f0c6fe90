"""Damaged and hostile records: an error with a reason, or the good part with what was left out named. Never nonsense."""

import contextlib
import gc
import gzip
import json
import os
import random
import sys
import time
import tracemalloc
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain import schedule
from specgain.audit import audit_file
from specgain.compare import compare_runs
from specgain.gates import gates, load
from specgain.records.read import read_file, runs, summary_of
from specgain.records.source import LINE_MAX, RecordError
from specgain.schedule_derive import derive, emit, points

sys.path.insert(0, str(Path(__file__).resolve().parent))  # tests are modules without a package
import fuzz  # noqa: E402

V1 = fuzz.SEEDS["vllm_v1_0.11_plus_two_intervals.txt"]
KEYS = "rounds rounds_all drafted accepted committed_length committed_length_drafting_rounds gamma t_round_ms".split()


def codes(found):
    return {warning["code"] for warning in found["warnings"]}


def numbers(data):
    """Return the top-level numbers of a summary, or {} if it is refused."""
    try:
        found = fuzz.read_bytes(data)
    except RecordError:
        return {}
    return {key: found[key] for key in (*KEYS, "survival", "conditional") if found[key] is not None}


@pytest.mark.parametrize("name", sorted(fuzz.SEEDS))
def test_cut_anywhere_it_says_what_whole_lines_say(name):
    """Each number of a file cut at any byte is a number of the file cut at the line before or after, or missing."""
    data = fuzz.SEEDS[name][:2500]
    seen = {}

    def at(end):
        if end not in seen:
            seen[end] = numbers(data[:end])
        return seen[end]

    for cut in range(1, len(data), 1 if len(data) < 1300 or os.environ.get("SPECGAIN_LONG") else 7):
        before, after = data.rfind(b"\n", 0, cut) + 1, data.find(b"\n", cut) + 1 or len(data)
        allowed = [at(before), at(after)] if after < len(data) else [at(before), numbers(fuzz.SEEDS[name])]
        for key, value in at(cut).items():
            assert any(value == whole.get(key) for whole in allowed), f"cut at {cut}: {key} = {value}"


def test_a_log_with_a_cut_last_line_keeps_its_good_lines():
    first = V1.split(b"\n(APIServer pid=4242) INFO 02-03 12:00:20 [metrics")[0] + b"\n"
    cut = V1[: V1.rindex(b"Per-position")]
    found = fuzz.read_bytes(cut)
    assert found["rounds"] == fuzz.read_bytes(first)["rounds"] == 410
    assert "left-out" in codes(found) and "1 line is left out" in str(found["warnings"])


def test_lines_that_contradict_themselves_are_left_out():
    for old, new in (
        (b"Accepted: 738", b"Accepted: 1738"),  # more than drafted
        (b"Avg Draft acceptance rate: 60.0%", b"Avg Draft acceptance rate: 16.0%"),
        (b"0.800, 0.600, 0.400", b"0.400, 0.600, 0.800"),  # survival cannot rise
        (b"Mean acceptance length: 2.80", b"Mean acceptance length: 1.80"),
        (b"Drafted: 1230 tokens", b"Drafted: 1230 tokens, Drafted: 1231 tokens"),
        (b"Accepted: 738 tokens", b"Accepted: NaN tokens"),
        (b"Accepted: 738 tokens", b"Accepted: -738 tokens"),
        (b"Accepted: 738 tokens", b"Accepted: " + b"7" * 400 + b" tokens"),
    ):
        found = fuzz.read_bytes(V1.replace(old, new))
        assert found["rounds"] == 190 and "left-out" in codes(found), new


HOSTILE = {
    "duplicate key": b'{"timings": {"predicted_n": 240, "predicted_ms": 1, "predicted_per_second": 1, "draft_n": 420, "draft_n": 42}}',
    "negative": b'{"timings": {"predicted_n": -240, "predicted_ms": 1, "predicted_per_second": 1, "draft_n": 4}}',
    "nan": b'{"timings": {"predicted_n": 240, "predicted_ms": NaN, "predicted_per_second": 1, "draft_n": 4}}',
    "huge": b'{"timings": {"predicted_n": 1e300, "predicted_ms": 1, "predicted_per_second": 1, "draft_n": 4}}',
    "digits": b'{"timings": {"predicted_n": ' + b"9" * 5000 + b', "predicted_ms": 1, "predicted_per_second": 1}}',
    "accepted > drafted": b'{"timings": {"predicted_n": 240, "predicted_ms": 1, "predicted_per_second": 1, "draft_n": 4, "draft_n_accepted": 5}}',
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 50_000,
    "truncated": b'{"timings": {"predicted_n": 240, "predicted_ms": 1',
    "text": b'{"timings": {"predicted_n": "240", "predicted_ms": 1, "predicted_per_second": 1}}',
    "binary": b"\x7fELF\x00\x00\x01",
    "gzip": gzip.compress(V1),
    "empty": b"",
    "blank": b" \n\t\n",
    "long line": b"x" * (3 * LINE_MAX),
    "only a bracket": b"[",
    "list of lists": b"[[[[]]]]",
    "html": b"<html><body>502 Bad Gateway</body></html>",
    "one key only": b'{"num_candidates": 5}',
    "rounds without a draft token": b'{"round": 0, "num_candidates": 99999999, "n_matches": 1, "n_new": 2}',
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_input_is_refused_with_a_reason(kind):
    with pytest.raises(RecordError) as caught:
        fuzz.read_bytes(HOSTILE[kind])
    assert "fuzzed" in str(caught.value) and len(str(caught.value)) < 600


def test_paths_that_are_no_files(tmp_path):
    for path in (tmp_path, tmp_path / "none", tmp_path / "a\0b"):
        with pytest.raises(RecordError):
            read_file(path)


@pytest.mark.filterwarnings("error::ResourceWarning")
@pytest.mark.parametrize("kind", ["binary", "gzip", "empty", "truncated", "html"])
def test_a_refused_file_is_closed(tmp_path, kind):
    path = tmp_path / "record"
    path.write_bytes(HOSTILE[kind])
    with pytest.raises(RecordError), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        read_file(path)
    gc.collect()
    assert not seen


def test_a_million_characters_without_a_line_end_do_not_hide_the_lines_after_them():
    found = fuzz.read_bytes(V1 + b"x" * (2 * LINE_MAX) + b"\n" + V1)
    assert found["rounds"] == 1200 and "long-lines" in codes(found)
    joined = fuzz.read_bytes(b"x" * 10**6 + b" " + V1)  # one long line, shorter than the limit
    assert joined["rounds"] == 600


def test_concatenated_logs_add_up_and_concatenated_json_is_a_list():
    assert fuzz.read_bytes(V1 + V1)["rounds"] == 1200
    timings = fuzz.SEEDS["llamacpp_server_timings_json.txt"].strip()
    assert fuzz.read_bytes(timings * 3)["rounds"] == 270
    found = fuzz.read_bytes(timings + b"\n" + timings[:-40])
    assert found["rounds"] == 90 and "left-out" in codes(found)
    found = fuzz.read_bytes(timings[40:] + b"\n" + timings + b"\n")  # a log that was rotated in the middle of a line
    assert found["rounds"] == 90 and "left-out" in codes(found)


def test_scrapes_of_a_restarted_server_and_of_another_server(tmp_path):
    data = fuzz.SEEDS["vllm_v1_metrics_prometheus_before_after.txt"]
    before, after = data.split(b"### scrape B (after)\n")
    mixed = before + b"### scrape B (after)\n" + after.replace(b"5700.0", b"2900.0").replace(b"1900.0", b"990.0")
    with pytest.raises(RecordError, match="rise in neither order"):
        fuzz.read_bytes(mixed)
    with pytest.raises(RecordError, match="rise in neither order"):  # the counters rise, but the server began anew
        fuzz.read_bytes(before + after.replace(b"1.7958712e+09", b"1.7958999e+09"))
    swapped = fuzz.read_bytes(after + before)
    assert swapped["rounds"] == 1200  # the order is found by the counters
    with pytest.raises(RecordError, match="several models"):
        fuzz.read_bytes(data + before.replace(b"demo/target-8b", b"other"))
    with pytest.raises(RecordError, match="occurs twice in one scrape"):
        fuzz.read_bytes(before + before.splitlines(keepends=True)[3])
    with pytest.raises(RecordError, match="in one file; split it"):
        fuzz.read_bytes(before + V1)


def test_counters_that_are_no_counts():
    data = fuzz.SEEDS["vllm_v1_metrics_prometheus_before_after.txt"]
    for value in (b"NaN", b"-5.0", b"1e400", b"+Inf", b"1900.5"):
        with pytest.raises(RecordError):
            fuzz.read_bytes(data.replace(b'drafts_total{engine="0",model_name="demo/target-8b"} 1900.0',
                                         b'drafts_total{engine="0",model_name="demo/target-8b"} ' + value))  # fmt: skip


ROUNDS = "request,round,num_candidates,n_matches,n_new,verify_ms,draft_ms\n" + "".join(
    f"{i // 20},{i},3,{i % 4},{i % 4 + 1},10.5,1.5\n" for i in range(80)
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ROUNDS.replace(",", ";").replace(".", ","), "semicolons between the columns; save it with commas"),
        (ROUNDS.replace(",", "\t"), "tabs between the columns"),
        (ROUNDS.replace("10.5", "", 1), "round 1 lacks verify_ms, which other rounds have"),  # it would count as 0 ms
        (ROUNDS.replace("10.5", "-1", 1), "verify_ms = -1 is outside its range"),
    ],
)
def test_tables_of_rounds_that_are_refused(tmp_path, text, reason):
    path = tmp_path / "rounds.csv"
    path.write_text(text)
    with pytest.raises(RecordError, match=f"{path.name}: {reason}"):
        summary_of([path])


def test_a_round_without_candidates_needs_no_draft_time(tmp_path):
    path = tmp_path / "rounds.csv"
    path.write_text(ROUNDS.replace("3,0,1,10.5,1.5", "0,0,1,10.5,"))
    assert summary_of([path])["t_round_ms"] == pytest.approx(10.5 + 1.5 * 3 / 4)


def test_a_number_in_quotes_is_named_as_text(tmp_path):
    bench = {"completed": 1, "total_output_tokens": 9, "duration": "19"}
    (tmp_path / "bench.json").write_text(json.dumps(bench))
    with pytest.raises(RecordError, match=r'duration = "19" \(text\) is not a finite number'):
        summary_of([tmp_path / "bench.json"])


@pytest.mark.parametrize("hits", [[20, 20, 20], [0, 0, 0], [12, 7, 1]])
def test_the_interval_of_the_length_stays_in_range_and_has_a_width(tmp_path, hits):
    """Twenty rounds that were all accepted, or none: that leaves doubt, and no length is beyond γ + 1."""
    name = 'vllm:spec_decode_num_{}_total{{model_name="m"{}}} {}\n'
    rows = [("drafts", "", 20), ("draft_tokens", "", 60), ("accepted_tokens", "", sum(hits))]
    rows += [("accepted_tokens_per_pos", f',position="{i}"', n) for i, n in enumerate(hits)]
    (tmp_path / "metrics.txt").write_text("".join(name.format(*row) for row in rows))
    found = summary_of([tmp_path / "metrics.txt"])
    low, high = found["intervals"]["committed_length_drafting_rounds"]
    assert 1 <= low <= found["committed_length_drafting_rounds"] <= high <= 4 and high - low > 0.2


# ------------------------------------------------------------------------------------------------------------ fuzz


def test_fuzz_sample():
    counts = fuzz.run("sample", 1500)
    assert counts["read"] > 300 and counts["refused"] > 300


@pytest.mark.parametrize("seed", ["1795975924433030156-633475"])
def test_inputs_that_once_broke_a_reader(seed):
    before = {name: data for name, data in fuzz.SEEDS.items() if not (fuzz.DATA / "layouts" / name).exists()}
    fuzz.outcome(fuzz.damage(random.Random(seed), before))


@pytest.mark.slow
def test_fuzz_a_million():
    """`make long`: 10⁶ inputs, other ones in every run; SPECGAIN_FUZZ sets another number."""
    seed, wanted = f"{time.time_ns()}", int(os.environ.get("SPECGAIN_FUZZ", 1_000_000))
    counts = fuzz.run(seed, wanted)
    print(f"seed {seed}: {counts}")


SCHEDULES = {
    f"{path}-{i}": json.dumps(case.get("schedule", case.get("speculative_config"))).encode()
    for path in ("vllm/dynamic_schedule_cases.json", "engine/config/config_cases.json")
    for i, case in enumerate(json.loads((fuzz.DATA / path).read_text()))
}
LIMITS = {"quality": {"metric": "exact match", "reference": 0.812, "value": 0.809, "max_drop": 0.01},
          "latency": {"load": {"max_concurrency": 1}, "ttft_ms": {"p99": 500}, "tpot_ms": {"mean": 30}, "speedup_min": 1},
          "capacity": {"throughput_ratio_min": 1.0, "kv_cache_tokens_min": 100000, "preemptions_max": 0}}  # fmt: skip
COSTS = {
    "conditional": [0.8, 0.7],
    "t_decode_ms": {"1": 10, "8": 12},
    "t_round_ms": {"1": {"0": 10.5, "2": 14}, "8": {"1": 12}},
}


def pair(*names):
    return runs([fuzz.DATA / f"engine/bench/{name}.json" for name in names])


def other_inputs():
    """Return {kind: (seeds, work on a damaged file)} of every file that is not a record of a run."""
    both = pair("plain_b_repeat_c1", "ngram3_repeat_c1")
    return {
        "audit": ({p.name: p.read_bytes() for p in (fuzz.DATA / "published").glob("*.csv")}, audit_file),
        "schedule": (SCHEDULES, lambda path: schedule.check(schedule.load(str(path)), 64, 3).to_json()),
        "emit": (SCHEDULES, lambda path: emit(str(path), "tensorrt-llm")),
        "derive": ({"model": json.dumps(COSTS).encode()}, lambda path: derive(points([path])).to_json()),
        "thresholds": ({"limits": json.dumps(LIMITS).encode()}, lambda path: gates(both, load(path)).to_json()),
        "compare": ({"run": (fuzz.DATA / "engine/bench/draft26k3_repeat_c1.json").read_bytes()},
                    lambda path: compare_runs(pair("plain_b_repeat_c1"), runs([path])).to_json()),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["audit", "schedule", "emit", "derive", "thresholds", "compare"])
def test_fuzz_of_everything_else_that_is_read(tmp_path, kind):
    """A damaged table, schedule, model or threshold file is refused with a reason, or gives finite numbers."""
    seeds, work = other_inputs()[kind]
    path = tmp_path / ("model.json" if kind == "derive" else "input")
    for number in range((20 if kind == "compare" else 150) * (100 if os.environ.get("SPECGAIN_LONG") else 1)):
        path.write_bytes(fuzz.damage(random.Random(f"{kind}-{number}"), seeds))
        with contextlib.suppress(RecordError):
            json.dumps(work(path), allow_nan=False)


@given(st.binary(max_size=400))
def test_any_bytes(data):
    fuzz.outcome(data)


TEXTS = st.text(alphabet=st.sampled_from('{}[]":,0123456789.-eE abcndrftkl_\n'), max_size=200)


@given(TEXTS, st.sampled_from(sorted(fuzz.SEEDS)))
def test_any_text_before_a_record(text, name):
    fuzz.outcome(text.encode() + b"\n" + fuzz.SEEDS[name][:3000])


def test_memory_does_not_grow_with_the_log(tmp_path):
    """Lines without a marker cost nothing, and only the first thousand windows are kept."""
    path, metrics = tmp_path / "big.log", [line for line in V1.splitlines(keepends=True) if b"SpecDecoding" in line][0]
    with open(path, "wb") as file:
        for _ in range(3000):
            file.write(
                metrics + b"INFO:     127.0.0.1 - POST /v1/chat/completions 200 OK, and so on and on and on\n" * 9
            )
    tracemalloc.start()
    found = summary_of([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["rounds"] == 3000 * 410 and len(found["windows"]) == 1000
    assert peak < 12e6, f"{peak / 1e6:.1f} MB"
