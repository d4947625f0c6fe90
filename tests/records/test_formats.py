"""Every reader gives the right values for its layout, and never one of the wrong answers that the layout invites."""

import json
from pathlib import Path

import pytest

from specgain.records.read import read_file, summary_of
from specgain.records.source import RecordError

DATA = Path(__file__).resolve().parent.parent / "data" / "formats"
NAMES = sorted(path.name.removesuffix(".expected.json") for path in DATA.glob("*.expected.json"))
DRAFTING, ALL = "committed_length_drafting_rounds", "committed_length"

COUNTERS = {
    "rounds": "rounds", "drafted": "drafted", "accepted": "accepted", "acceptance_rate": "pooled_acceptance",
    "survival": "survival", "conditional": "conditional", "mean_acceptance_length": DRAFTING,
}  # fmt: skip
INTERVAL = {
    "rounds": "rounds", "accepted": "accepted", "drafted": "drafted", "mean_acceptance_length": DRAFTING,
    "interval_s": "interval_s", "survival": "survival", "conditional": "conditional", "rounds_per_s": "rounds_per_s",
    "round_time_ms_at_1_req": "t_round_ms_if_one_request",
}  # fmt: skip
REQUEST = {
    "E_L": DRAFTING, "survival": "survival", "conditional": "conditional", "mean_draft_length": "mean_draft_length",
}  # fmt: skip
LLAMA = {"accepted": "accepted", "acceptance_rate": "pooled_acceptance", "mean_acceptance_length": ALL}

# expected key → where the summary has it; every key of `expected` is named here, so none goes unchecked
WHERE = {
    "aiperf_acceptance_record_json": COUNTERS,
    "hf_instrumented_rounds_jsonl": {
        "rounds": "rounds", "drafted": "drafted", "accepted_matched": "accepted", "mean_committed_length": ALL,
        "committed": lambda s: s["committed_length"] * s["rounds_all"], "E_L_if_untruncated": DRAFTING,
        "round_time_ms_mean": "t_round_ms", "tok_s": "tokens_per_second", "mean_of_round_speeds_tok_s": None,
        "boundary_rounds_excluded": lambda s: {
            "rounds": s["details"]["without_cut_rounds"]["rounds"],
            "committed": s["details"]["without_cut_rounds"]["committed"],
            "E_L": s["details"]["without_cut_rounds"]["committed_length"],
        },
    },
    "llamacpp_llama_speculative_stdout": LLAMA | {
        "rounds": "rounds", "drafted": "drafted", "mean_draft_length": lambda s: s["details"]["mean_draft_length"],
        "round_time_ms": "t_round_ms", "draft_eval_ms_per_round": lambda s: s["details"]["t_draft_ms"],
        "break_even_baseline_tok_s": lambda s: s["details"]["break_even_plain_tokens_per_s"],
    },
    "llamacpp_server_log_2025": LLAMA | {
        "generated": "drafted", "rounds_from_tokens": "rounds_all", "drafts_made": "rounds",
        "tokens_per_drafting_round": DRAFTING, "draft_ms_per_call": lambda s: s["details"]["draft_ms_per_call"],
    },
    "llamacpp_server_timings_json": LLAMA | {
        "rounds": "rounds", "drafted": "drafted", "round_time_ms": "t_round_ms", "uncertainty": None,
    },
    "mlx_lm_generate_stdout": {
        "tokens": lambda s: s["details"]["generation_tokens"], "tok_s": "tokens_per_second",
        "acceptance_rate": "pooled_acceptance", "mean_acceptance_length": ALL,
    },
    "mlx_vlm_timings_json": COUNTERS | {"round_time_ms": "t_round_ms"},
    "sglang_0.4_decode_log": {
        "mean_acceptance_length": ALL, "acceptance_rate": "pooled_acceptance", "round_time_ms": "t_round_ms",
    },
    "sglang_0.5_decode_log_biased_rate": {"k": "gamma", "lines": "windows"},
    "sglang_bench_serving_table": {
        "mean_acceptance_length": ALL, "mean_tpot_ms": lambda s: s["details"]["latency_ms"]["tpot"]["mean"],
        "chunk_gap_ms": lambda s: s["details"]["chunk_gap_ms"], "round_time_ms_estimate": "t_round_ms",
    },
    "vllm_bench_serve_result_json": COUNTERS,
    "vllm_offline_spec_decode_example": COUNTERS | {"k": "gamma", "constant_a_fit": "constant_acceptance"},
    "vllm_per_request_metrics_jsonl": {"per_request": "per_request", "pooled": COUNTERS | {
        "histogram": lambda s: s["details"]["acceptance_histogram"]}},
    "vllm_v0_0.6.3_speculative_metrics": {
        "last": {
            "k": "gamma", "rounds": "rounds", "drafted": "drafted", "prefix_accepted": "accepted",
            "accepted_any_position": lambda s: s["reported"]["accepted"], "emitted": lambda s: s["reported"]["emitted"],
            "reported_rate": lambda s: s["reported"]["draft_acceptance_rate"],
            "system_efficiency": lambda s: s["reported"]["system_efficiency"],
            "mean_acceptance_length": DRAFTING, "prefix_acceptance_rate": "pooled_acceptance",
        },
        "interval": {
            "rounds": lambda s: s["windows"][0]["rounds"], "emitted": lambda s: s["windows"][0]["emitted"],
            "mean_acceptance_length": lambda s: s["windows"][0][DRAFTING],
        },
    },
    "vllm_v1_0.11_plus_two_intervals": {"intervals": "windows", "pooled": COUNTERS},
    "vllm_v1_0.8.3_specdecoding_short": COUNTERS,
    "vllm_v1_0.9_AL_with_bonus": COUNTERS,
    "vllm_v1_metrics_prometheus_before_after": COUNTERS | {
        "delta": {
            "rounds": "rounds", "drafted": "drafted", "accepted": "accepted",
            "preemptions": lambda s: s["details"]["preemptions"],
            "generation_tokens": lambda s: s["details"]["generation_tokens"],
        },
        "per_engine": lambda s: [
            {"engine": int(e["engine"]), "rounds": e["rounds"], "mean_acceptance_length": e[DRAFTING]}
            for e in s["details"]["engines"]
        ],
    },
}  # fmt: skip
ROWS = {"intervals": INTERVAL, "per_request": REQUEST, "lines": {
    "E_L": ALL, "strict_rate": "pooled_acceptance", "round_time_ms": "t_round_ms", "skip": None}}  # fmt: skip


def compare(expected, where, summary, path):
    for key, value in expected.items():
        place = where[key]
        if key in ROWS:
            compare_rows(value, ROWS[key], summary[place], f"{path}.{key}")
        elif isinstance(place, dict):
            compare(value, place, summary, f"{path}.{key}")
        elif place is not None:
            found = place(summary) if callable(place) else summary[place]
            assert same(found, value), f"{path}.{key}: {found} is not {value}"


def compare_rows(expected, where, rows, path):
    assert len(rows) == len(expected), path
    for i, (value, row) in enumerate(zip(expected, rows, strict=True)):
        assert (row is None) == (value is None)
        if value is not None:
            compare({k: v for k, v in value.items() if k != "note"}, where, row, f"{path}[{i}]")


def same(found, value):
    if isinstance(value, dict):
        return found.keys() == value.keys() and all(same(found[k], v) for k, v in value.items())
    if isinstance(value, list):
        return len(found) == len(value) and all(map(same, found, value))
    return found is None if value is None else found == pytest.approx(value, abs=1.0e-6, rel=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_handed_format(name):
    expected = json.loads((DATA / f"{name}.expected.json").read_text())
    summary = summary_of([DATA / f"{name}.txt"])
    compare(expected["expected"], WHERE[name], summary, name)
    numbers = [v for v in summary.values() if isinstance(v, float)]
    for wrong in expected.get("wrong_answers", {}).values():
        for value in wrong if isinstance(wrong, list) else [wrong]:
            assert not any(found == pytest.approx(value, rel=1e-4) for found in numbers if isinstance(value, float))
    json.dumps(summary, allow_nan=False)


def test_all_handed_formats_are_here():
    assert len(NAMES) == 18 and set(NAMES) == set(WHERE)


def test_contract_of_read():
    summary = summary_of([DATA / "vllm_v1_0.11_plus_two_intervals.txt"])
    contract = (
        "engine format version aggregation rounds drafted accepted pooled_acceptance committed_length "
        "committed_length_drafting_rounds survival conditional intervals warnings missing"
    )
    assert list(summary)[: len(contract.split())] == contract.split()
    nulls = {key for key in contract.split() if summary[key] is None}
    assert nulls == set(summary["missing"]) == {"committed_length"}
    assert all(summary["how_to_get"][key] for key in nulls)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_unknown_is_null_and_named(name):
    summary = summary_of([DATA / f"{name}.txt"])
    rates = {*COUNTERS.values(), ALL}
    assert {key for key in rates if summary[key] is None} <= set(summary["missing"])


def test_draft_length_given_by_the_user():
    summary = summary_of([DATA / "vllm_v1_0.8.3_specdecoding_short.txt"], gamma=3)
    wanted = json.loads((DATA / "vllm_v1_0.8.3_specdecoding_short.expected.json").read_text())[
        "conditional_on_user_input"
    ]
    assert (summary["rounds"], summary["gamma"]) == (wanted["rounds"], wanted["k"])
    assert summary[DRAFTING] == pytest.approx(wanted["mean_acceptance_length"])


def codes(summary):
    return {warning["code"] for warning in summary["warnings"]}


def test_traps_are_named():
    def warnings(name):
        return codes(summary_of([DATA / f"{name}.txt"]))

    assert "accepted-any-position" in warnings("vllm_v0_0.6.3_speculative_metrics")
    assert "biased-accept-rate" in warnings("sglang_0.5_decode_log_biased_rate")
    assert {"itl-divided", "cumulative-length"} <= warnings("sglang_bench_serving_table")
    assert {"mixed-draft-widths", "no-metrics"} <= warnings("vllm_per_request_metrics_jsonl")
    assert "rounds-without-draft" in warnings("llamacpp_server_log_2025")
    assert "first-token" in warnings("llamacpp_server_timings_json")
    assert "tokens-cut" in warnings("hf_instrumented_rounds_jsonl")


def test_one_scrape_alone_is_not_a_run(tmp_path):
    text = (DATA / "vllm_v1_metrics_prometheus_before_after.txt").read_text()
    after = tmp_path / "after.prom"
    after.write_text(text[text.index("### scrape B") :])
    summary = summary_of([after])
    assert "cumulative" in codes(summary) and "cumulative" in summary["aggregation"]
    assert summary[DRAFTING] == pytest.approx(2.596154, abs=1e-6)  # since the start; the run itself has 2.625


@pytest.mark.parametrize("text", ["hello\nworld\n", '{"a": 1}', "[1, 2]", "a,b,c\n1,2,3\n", "GET /metrics 200\n"])
def test_unknown_format_asks_for_a_sample(tmp_path, text):
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(RecordError, match="unknown format.*send a sample"):
        read_file(path)


def test_two_kinds_in_one_file_are_not_guessed(tmp_path):
    path = tmp_path / "both.log"
    path.write_text(
        "".join((DATA / f"{n}.txt").read_text() for n in ("sglang_0.4_decode_log", "vllm_v1_0.9_AL_with_bonus"))
    )
    with pytest.raises(RecordError, match="more than one kind.*SGLang.*vLLM|more than one kind.*vLLM.*SGLang"):
        read_file(path)
    path.write_text(
        "".join((DATA / f"{n}.txt").read_text() for n in ("mlx_vlm_timings_json", "vllm_bench_serve_result_json"))
    )
    with pytest.raises(RecordError, match="two kinds of records"):
        read_file(path)
