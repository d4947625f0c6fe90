"""Layouts that are public but were not handed over: own numbers in the engines' own words."""

import json
from pathlib import Path

import pytest

from specgain.compare import compare
from specgain.records.read import read_file, summary_of
from specgain.records.sglang import rate_meanings
from specgain.records.source import RecordError

LAYOUTS = Path(__file__).resolve().parent.parent / "data" / "layouts"
DRAFTING = "committed_length_drafting_rounds"


@pytest.fixture
def summarise(tmp_path):
    def write(text, gamma=None):
        path = tmp_path / "record.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return summary_of([path], gamma)

    return write


def codes(summary):
    return {warning["code"] for warning in summary["warnings"]}


VLLM_TABLE = """
============ Serving Benchmark Result ============
Successful requests:                     32        
Benchmark duration (s):                  12.50     
Total input tokens:                      4096      
Total generated tokens:                  8000      
Output token throughput (tok/s):         640.00    
---------------Time to First Token----------------
Mean TTFT (ms):                          96.40     
P99 TTFT (ms):                           240.70    
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          9.60      
---------------Inter-token Latency----------------
Mean ITL (ms):                           22.08     
---------------Speculative Decoding---------------
Acceptance rate (%):                     43.33     
Acceptance length:                       2.30      
Drafts:                                  3000      
Draft tokens:                            9000      
Accepted tokens:                         3900      
Per-position acceptance (%):
  Position 0:                            70.00     
  Position 1:                            40.00     
  Position 2:                            20.00     
==================================================
"""  # noqa: W291


def test_vllm_bench_table(summarise):
    summary = summarise("warming up\n" + VLLM_TABLE)
    assert (summary["engine"], summary["rounds"], summary["gamma"]) == ("vLLM", 3000, 3)
    assert summary[DRAFTING] == pytest.approx(2.3) and summary["survival"] == pytest.approx([0.7, 0.4, 0.2])
    assert summary["details"]["latency_ms"]["itl"]["mean"] == 22.08 and summary["committed_length"] is None


def test_a_cut_table_keeps_what_it_shows(summarise):
    summary = summarise(VLLM_TABLE[: VLLM_TABLE.index("Position 1")])
    assert summary["rounds"] == 3000 and summary["survival"] is None and "left-out" in codes(summary)


def test_first_v1_releases_print_a_v0_line_per_interval(summarise):
    line = (
        "INFO 03-20 10:00:{:02} [metrics.py:60] Speculative metrics: Draft acceptance rate: 0.500, Number of accepted "
        "tokens: {}, Number of draft tokens: {}, Number of emitted tokens: {}.\n"
    )
    summary = summarise(line.format(0, 60, 120, 100) + line.format(10, 30, 60, 50))
    assert (summary["rounds"], summary["accepted"], summary[DRAFTING]) == (60, 90, 2.5)
    assert summary["aggregation"] == "per log interval" and not summary["windows"]


def test_v0_restart_adds_segments(summarise):
    line = (
        "INFO metrics.py:367] Speculative metrics: Draft acceptance rate: 0.500, System efficiency: {:.3f}, Number "
        "of speculative tokens: 4, Number of accepted tokens: {}, Number of draft tokens: {}, "
        "Number of emitted tokens: {}.\n"
    )
    text = line.format(0.4, 2000, 4000, 2000) + line.format(0.4, 200, 400, 200)
    summary = summarise(text)
    assert (summary["rounds"], summary[DRAFTING]) == (1100, 2.0) and "restart" in codes(summary)
    other = line.replace("tokens: 4,", "tokens: 5,").format(0.5, 50, 100, 60)  # another length: left out
    summary = summarise(text + other + other)
    assert (summary["rounds"], summary[DRAFTING]) == (1100, 2.0) and {"restart", "left-out"} <= codes(summary)


def test_a_line_with_next_to_nothing_accepted(summarise):
    """The printed length is 1.00, so only the rates tell the rounds: one accepted token at 0.2 to 0.4 %."""
    summary = summarise(
        "INFO SpecDecoding metrics: Mean acceptance length: 1.00, Accepted throughput: 0.10 tokens/s, Drafted "
        "throughput: 59.90 tokens/s, Accepted: 1 tokens, Drafted: 599 tokens, Per-position acceptance rate: 0.003, "
        "0.000, Avg Draft acceptance rate: 0.2%\n"
    )
    assert (summary["accepted"], summary["rounds"], summary["windows"][0]["rounds_range"]) == (1, 333, [300, 500])


LLAMA = """\
slot print_timing: id  3 | task 7 | prompt eval time =      64.00 ms /    16 tokens (    4.00 ms per token,   250.00 tokens per second)
slot print_timing: id  3 | task 7 |        eval time =    2000.00 ms /   101 tokens (   19.80 ms per token,    50.50 tokens per second)
slot print_timing: id  3 | task 7 |       total time =    2064.00 ms /   117 tokens
slot print_timing: id  3 | task 7 |    graphs reused =         40
slot print_timing: id  3 | task 7 | draft acceptance = 0.50000 (   60 accepted /   120 generated), mean len =  2.50
"""  # noqa: E501


def test_llamacpp_log_since_2026(summarise):
    summary = summarise(LLAMA)
    assert (summary["rounds"], summary["rounds_all"]) == (40, 41)  # mean len 2.50 leaves just 40 verification steps
    assert summary[DRAFTING] == 2.5 and summary["t_round_ms"] == pytest.approx(2000 / 41)
    assert summary["version"] == "2026-06 or later"


def test_llamacpp_statistics_add_up_over_requests_and_are_differenced(summarise):
    block = (
        "prompt eval time =     224.00 ms /    64 tokens (    3.50 ms per token,   285.71 tokens per second)\n"
        "       eval time =    1000.00 ms /    61 tokens (   16.39 ms per token,    61.00 tokens per second)\n"
        "draft acceptance rate = 0.40000 (   20 accepted /    50 generated)\n"
        "statistics draft: #calls(b,g,a) = {} {} {}, #gen drafts = {}, #acc drafts = 5, #gen tokens = {}, "
        "#acc tokens = {}, dur(b,g,a) = 0.001, {}.000, 0.010 ms\n"
    )
    summary = summarise(block.format(1, 40, 25, 25, 50, 20, 80) + block.format(2, 80, 50, 50, 100, 40, 160))
    assert summary["rounds"] == 50 and summary["rounds_all"] == 82
    assert summary["details"]["draft_ms_per_call"] == pytest.approx(2.0)
    rotated = summarise(block.format(9, 400, 250, 250, 500, 200, 800))  # the start of the counters is not in the log
    assert rotated["rounds"] == rotated["rounds_all"] == 41 and rotated[DRAFTING] is None


def test_llamacpp_plain_log_is_the_other_side_of_a_comparison(summarise):
    summary = summarise("\n".join(LLAMA.splitlines()[:4]) + "\n")
    assert (
        summary["accepted"] is None
        and summary["rounds_all"] == 101
        and summary["t_round_ms"] == pytest.approx(19.80198)
    )


def test_llamacpp_tail_without_its_acceptance_line_is_left_out(summarise):
    summary = summarise(LLAMA + "\n".join(LLAMA.splitlines()[:2]) + "\n")
    assert summary["rounds_all"] == 41 and "left-out" in codes(summary)


def test_llamacpp_metrics(summarise):
    text = "".join(
        f"llamacpp:{name} {value}\n"
        for name, value in {
            "tokens_predicted_total": 1000, "tokens_predicted_seconds_total": 20, "n_decode_total": 500,
            "spec_decode_num_draft_tokens_total": 900, "spec_decode_num_accepted_tokens_total": 540,
            "spec_decode_num_drafts_total": 300, 'spec_decode_num_accepted_tokens_per_pos_total{position="0"}': 240,
            'spec_decode_num_accepted_tokens_per_pos_total{position="1"}': 180,
            'spec_decode_num_accepted_tokens_per_pos_total{position="2"}': 120,
        }.items()
    )  # fmt: skip
    summary = summarise(text)
    assert summary["engine"] == "llama.cpp" and summary[DRAFTING] == pytest.approx(2.8)
    assert summary["survival"] == pytest.approx([0.8, 0.6, 0.4])


def test_lm_studio_responses(summarise):
    response = {
        "usage": {"prompt_tokens": 66, "completion_tokens": 300, "total_draft_tokens_count": 492,
                  "accepted_draft_tokens_count": 176, "rejected_draft_tokens_count": 316},
        "stats": {"tokens_per_second": 17.5, "time_to_first_token": 1.1, "generation_time": 17.4},
    }  # fmt: skip
    summary = summarise(json.dumps(response))
    assert (summary["engine"], summary["rounds_all"]) == ("LM Studio", 124)
    assert summary["committed_length"] == pytest.approx(300 / 124) and summary["t_round_ms"] == pytest.approx(
        17400 / 124
    )
    moved = {
        "usage": {"completion_tokens": 40},
        "stats": {"total_draft_tokens_count": 40, "accepted_draft_tokens_count": 30},
    }
    assert summarise(json.dumps(moved))["pooled_acceptance"] == 0.75


META = {
    "text": "…",
    "meta_info": {
        "completion_tokens": 101, "spec_verify_ct": 40, "spec_accept_length": 2.525, "spec_accept_rate": 0.5,
        "spec_accept_token_num": 60, "spec_draft_token_num": 120, "spec_accept_histogram": [10, 10, 10, 10],
    },
}  # fmt: skip


def test_sglang_meta_info_leaves_out_the_first_token(summarise):
    summary = summarise(json.dumps(META))
    assert summary["committed_length"] == 2.5 and summary[DRAFTING] == 2.5  # the engine prints 101/40 = 2.525
    assert summary["survival"] == [0.75, 0.5, 0.25] and "first-token" in codes(summary)


def test_sglang_meta_info_by_its_new_names(summarise):
    info = META["meta_info"]
    renamed = {
        "completion_tokens": 101, "spec_verify_ct": 40, "spec_num_correct_drafts": 60, "spec_num_proposed_drafts": 120,
        "spec_correct_drafts_histogram": info["spec_accept_histogram"],
    }  # fmt: skip
    chat = {"choices": [{"message": {}, "meta_info": renamed}], "usage": {"completion_tokens": 101}}
    assert summarise(json.dumps(chat))["survival"] == [0.75, 0.5, 0.25]
    counts_only = {"meta_info": {"completion_tokens": 101, "spec_verify_ct": 40, "spec_accept_length": 2.525}}
    summary = summarise(json.dumps(counts_only))
    assert summary["committed_length"] == 2.5 and summary["accepted"] is None


def bench_serving(gap, tokens_per_gap, length=None):
    result = {
        "backend": "sglang", "completed": 3, "duration": 9.0, "total_output_tokens": 303,
        "total_output_tokens_retokenized": 300, "mean_tpot_ms": 20.0, "mean_itl_ms": 1e3 * gap, "max_concurrency": 1,
        "output_lens": [101] * 3, "itls": [[gap] * (100 // tokens_per_gap)] * 3, "errors": [""] * 3,
    }  # fmt: skip
    return json.dumps(result | ({"accept_length": length} if length else {}))


def test_sglang_bench_details_give_requests_if_they_add_up(summarise, tmp_path):
    from specgain.records.read import read

    for gap, step, requests in ((0.020, 1, 3), (0.050, 2, 0), (0.040, 2, 3)):  # per token; divided away; per chunk
        path = tmp_path / "bench.json"
        path.write_text(bench_serving(gap, step, 2.0))
        record = read([path])
        assert len(record.requests) == requests
    assert summarise(bench_serving(0.020, 1, 2.0))["t_round_ms"] == pytest.approx(40.0)
    assert summarise(bench_serving(0.020, 1))["committed_length"] is None


def test_sglang_strict_rate_is_told_from_the_biased_one(summarise):
    line = (
        "[2026-05-01 10:00:0{}] Decode batch, #running-req: 2, #full token: 900, accept len: {}, accept rate: {}, "
        "cuda graph: True, gen throughput (token/s): {}, #queue-req: 0\n"
    )
    summary = summarise(line.format(0, 2.80, 0.60, 400) + line.format(1, 1.90, 0.30, 300))
    assert summary["version"] == "after PR #23530 (2026-04)" and summary["gamma"] == 3
    assert [w["pooled_acceptance"] for w in summary["windows"]] == pytest.approx([0.6, 0.3])
    odd = summarise(line.format(0, 2.80, 0.91, 400) + line.format(1, 1.90, 0.30, 300))
    assert odd["gamma"] is None and "ambiguous-accept-rate" in codes(odd)


def test_rate_meanings():
    biased = [(2.2, 0.005, 0.55, 0.005), (2.8, 0.005, 0.70, 0.005)]
    assert rate_meanings(biased) == ([4], [])
    assert rate_meanings([(2.8, 0.005, 0.6, 0.005), (2.2, 0.005, 0.4, 0.005)]) == ([], [3])


def test_sglang_tensor_parallel_ranks_are_counted_once(summarise):
    line = (
        "[2026-05-01 10:00:00 TP{}] Decode batch. #running-req: 1, accept len: 2.00, gen throughput (token/s): 100.0\n"
    )
    summary = summarise("".join(line.format(rank) for rank in (0, 1, 2, 3)))
    assert len(summary["windows"]) == 1 and summary["t_round_ms"] == pytest.approx(20)


def test_prompts_that_quote_a_log_line_are_not_log_lines(summarise):
    real = (
        "INFO 06-20 08:11:55 [metrics.py:92] SpecDecoding metrics: Draft acceptance rate: 60.0%, Mean acceptance "
        "length: 2.80, Accepted: 1800 tokens, Drafted: 3000 tokens, Per-position acceptance rate: 0.800, 0.600, 0.400\n"
    )
    quoted = f'INFO Received request: prompt: "what means {real.strip()} ?", params: …\n'
    assert summarise(quoted + real)["rounds"] == 1000
    with pytest.raises(RecordError, match="unknown format"):
        summarise(quoted)


def test_csv_of_rounds(summarise):
    rows = ["request,round,num_candidates,n_matches,n_new,draft_ms,verify_ms,other_ms", "a,0,3,3,4,1,5,0.5",
            "a,1,3,0,1,1,5,0.5", "b,0,3,1,2,1,5,0.5"]  # fmt: skip
    summary = summarise("\n".join(rows) + "\n")
    assert summary["committed_length"] == pytest.approx(7 / 3) and summary["t_round_ms"] == pytest.approx(6.5)
    with pytest.raises(RecordError, match="row 3 has 3 columns, the header 8"):
        summarise("\n".join([*rows[:2], "a,1,3"]) + "\n")


def test_sweep_summary_has_one_run_a_row(tmp_path):
    from specgain.records.sweep import settings

    path = tmp_path / "summary.csv"
    header = (
        ",duration,completed,total_output_tokens,max_concurrency,spec_decode_num_drafts,spec_decode_draft_tokens,"
        "spec_decode_accepted_tokens,spec_decode_acceptance_rate,mean_tpot_ms,run_number,"
        "speculative_config.num_speculative_tokens\n"
    )
    path.write_text(header + "0,10.0,8,800,4,300,900,450,50.0,9.5,0,3\n1,9.0,8,800,16,310,930,465,50.0,20.0,1,3\n")
    found = read_file(path)
    assert [settings(r) for r in found] == [(3, 4), (3, 16)]
    assert [r.details["latency_ms"]["tpot"]["mean"] for r in found] == [9.5, 20.0]


def test_utf16_and_colours(summarise):
    text = (
        "\x1b[1;36m(EngineCore pid=1)\x1b[0;0m INFO 04-09 15:20:07 [metrics.py:70] SpecDecoding metrics: Draft "
        "acceptance rate: 62.1%, Accepted: 1863 tokens, Drafted: 3000 tokens\r\n"
    )
    assert summarise(text)["accepted"] == 1863
    assert summarise(text.encode("utf-16"))["accepted"] == 1863
    assert summarise(b"\xef\xbb\xbf" + text.encode() + b"\xff\xfe broken bytes \x80\n")["drafted"] == 3000


# ------------------------------------------------------------------------- layouts read in the engines' own source


def trtllm(**changes):
    """Return a report of trtllm-bench: 10 requests of 64 tokens in 280 passes, drafts of 3."""
    report = json.loads((LAYOUTS / "trtllm_bench.json").read_text())
    for key, value in changes.items():
        report["decoding_stats"][f"{key}_percentiles"]["average"] = value
    return report


def test_tensorrt_llm_report(summarise):
    """(640 − 10) tokens in (280 − 10) rounds; the printed 64/28 counts the first token and its pass."""
    summary = summarise(json.dumps(trtllm()))
    assert (summary["engine"], summary["version"], summary["gamma"]) == ("TensorRT-LLM", "1.1.0", 3)
    assert summary["rounds_all"] == 270 and summary["committed_length"] == pytest.approx(630 / 270)
    assert summary["reported"]["acceptance_length"] == pytest.approx(64 / 28) and "first-token" in codes(summary)
    assert summary["t_round_ms"] == pytest.approx(9.0 * 630 / 270)
    assert summary["details"]["latency_ms"]["tpot"] == {"mean": 9.0, "median": 8.8, "p99": 12.0}
    assert summary[DRAFTING] is None and summary["tokens_cut"] is None  # neither is counted there


def test_tensorrt_llm_pair_gives_a_verdict(tmp_path):
    plain = {key: value for key, value in trtllm().items() if key != "decoding_stats"}
    for name, data, tpots in (("plain", plain, (20.0, 20.5, 19.8)), ("spec", trtllm(), (9.0, 9.2, 8.9))):
        for i, tpot in enumerate(tpots):
            data["streaming_metrics"]["tpot_percentiles"]["average"] = tpot
            (tmp_path / f"{name}{i}.json").write_text(json.dumps(data, indent=4))
    found = compare(sorted(tmp_path.glob("plain*")), sorted(tmp_path.glob("spec*")))
    assert found.verdict == "faster" and found.speedup_decode == pytest.approx(60.3 / 27.1)
    assert found.committed_length == pytest.approx(630 / 270)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_accepted_draft_tokens": 36.05}, "average of no whole numbers"),
        ({"num_accepted_draft_tokens": 64.0}, "fit no iterations"),
        ({"num_draft_tokens": 83.0}, "fit no iterations"),
        ({"acceptance_length": float("nan")}, "acceptance_length = nan is not a finite number"),
    ],
)
def test_tensorrt_llm_reports_that_contradict_themselves(summarise, changes, message):
    with pytest.raises(RecordError, match=message):
        summarise(json.dumps(trtllm(**changes)))


def trt_requests(rounds, ms_per_round):
    """Return the requests of --request_json: 31 tokens each after the first, in so many rounds."""
    return [
        {"id": i, "num_input_tokens": 20, "start_timestamp": 10**12, "first_token_timestamp": 10**12 + 10**7,
         "end_timestamp": 10**12 + 10**7 + round((rounds + i % 3) * ms_per_round * 1e6), "decode_iteration": rounds + i % 3,
         "error_tokens": 0, "output": f"text {i}", "output_tokens": 32}
        for i in range(12)
    ]  # fmt: skip


def test_tensorrt_llm_requests_give_an_interval(tmp_path):
    (tmp_path / "spec.json").write_text(json.dumps(trt_requests(14, 12.0)))
    plain = [row | {"decode_iteration": 31, "end_timestamp": row["first_token_timestamp"] + 31 * 10**7}
             for row in trt_requests(31, 10.0)]  # fmt: skip
    (tmp_path / "plain.json").write_text(json.dumps(plain))
    found = compare([tmp_path / "plain.json"], [tmp_path / "spec.json"])
    assert found.verdict == "faster" and found.committed_length == pytest.approx(12 * 31 / (12 * 15))
    assert found.t_decode == pytest.approx(0.010) and found.t_round == pytest.approx(0.012)
    assert "outputs-differ" not in {w.code for w in found.warnings} and found.to_json()["requests"]["spec"] == 12


@pytest.mark.parametrize(
    "wrong", [{"decode_iteration": 40}, {"output_tokens": 0}, {"end_timestamp": 5}, {"decode_iteration": 0}]
)
def test_tensorrt_llm_requests_that_contradict_themselves(summarise, wrong):
    rows = trt_requests(14, 12.0)
    with pytest.raises(RecordError, match="contradict each other"):
        summarise(json.dumps([rows[0] | wrong, *rows[1:]]))


MLC = json.loads((LAYOUTS / "mlc_engine_metrics.json").read_text())


@pytest.mark.parametrize("wrapped", [False, True])
def test_mlc_engine_metrics(summarise, wrapped):
    """Place 0 is the target's own token: 200 rounds, K ≥ 1 in 150 of them, and accept_len 2.4 has the bonus in."""
    value = {"choices": [], "usage": {"prompt_tokens": 0, "extra": MLC}} if wrapped else MLC
    summary = summarise(json.dumps(value))
    assert (summary["engine"], summary["gamma"], summary["rounds"]) == ("MLC LLM", 3, 200)
    assert (summary["drafted"], summary["accepted"]) == (600, 280) and summary[DRAFTING] == pytest.approx(2.4)
    assert summary["survival"] == pytest.approx([0.75, 0.45, 0.2])
    assert summary["conditional"] == pytest.approx([150 / 200, 90 / 150, 40 / 90])
    assert summary["committed_length"] is None and "first tokens" in summary["how_to_get"]["committed_length"]


def test_mlc_plain_decoding_has_a_step_time(summarise):
    """A step at batch 4 gives four tokens, each of which waited for the whole step."""
    times = {
        "mean{batch_size=1}": 0.010,
        "count{batch_size=1}": 100,
        "mean{batch_size=4}": 0.016,
        "count{batch_size=4}": 50,
    }
    plain = {key: value for key, value in MLC.items() if key != "spec_decode"} | {"decode_time_by_batch_size": times}
    summary = summarise(json.dumps(plain))
    assert summary["rounds_all"] == 300 and summary["rounds"] is None
    assert summary["t_round_ms"] == pytest.approx(1e3 * (1.0 + 4 * 50 * 0.016) / 300)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"draft_count": [200, 200], "accept_count": [199, 150]}, "begin with the same number"),
        ({"draft_count": [200, 140], "accept_count": [200, 150]}, "more tokens accepted than drafted"),
        ({"draft_count": [200, 200, 200], "accept_count": [200, 90, 100]}, "at a later position than before"),
        ({"draft_count": "200", "accept_count": [200]}, "is no list"),
    ],
)
def test_mlc_metrics_that_contradict_themselves(summarise, spec, message):
    with pytest.raises(RecordError, match=message):
        summarise(json.dumps(MLC | {"spec_decode": spec}))


OPENVINO = (LAYOUTS / "openvino_sample.txt").read_text()


@pytest.mark.parametrize("cpp", [False, True])
def test_openvino_sample(summarise, cpp):
    """99 tokens after the first in 39 rounds after the prompt's pass."""
    text = OPENVINO.replace("MODEL\n", "MODEL \n").replace("MAIN", "\nMAIN") if cpp else OPENVINO
    summary = summarise(text)
    assert summary["engine"] == "OpenVINO GenAI" and summary["rounds_all"] == 39
    assert summary["committed_length"] == pytest.approx(99 / 39) and summary["accepted"] is None
    assert summary["details"]["draft_model_tokens"] == 161 and summary["t_round_ms"] is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Num generated token: 100", "Num generated token: 101", "please send a sample"),
        (OPENVINO[OPENVINO.index("DRAFT") :], "", "was cut before its draft model"),
        ("  Num accepted token: 60 tokens\n", "", "was cut"),
    ],
)
def test_openvino_blocks_that_cannot_be_used(summarise, old, new, message):
    with pytest.raises(RecordError, match=message):
        summarise(OPENVINO.replace(old, new))
