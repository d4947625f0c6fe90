"""Real captures of vLLM 0.32.0 give the hand-computed ledger, whatever files they come in and in whatever order."""

import json
import re
from itertools import permutations
from pathlib import Path

import pytest

from specgain.records.read import read, runs, summary_of
from specgain.records.summary import t_round

ENGINE = Path(__file__).resolve().parent.parent / "data" / "engine"
VLLM = ENGINE.parent / "vllm"
SIDES = [
    (pair[side], pair[f"{side}_side"], pair)
    for pair in json.loads((ENGINE / "expected_ledger.json").read_text())
    for side in ("plain", "spec")
]


def files(tag):
    return ENGINE / f"bench/{tag}.json", ENGINE / f"metrics/{tag}.before.txt", ENGINE / f"metrics/{tag}.after.txt"


@pytest.mark.parametrize(("tag", "side", "pair"), SIDES, ids=[tag for tag, *_ in SIDES])
def test_counts_and_times_are_the_hand_computed_ones(tag, side, pair):
    bench, *scrapes = files(tag)
    for chosen in ([bench], scrapes, [bench, *scrapes]):
        record = read(chosen)
        assert record.rounds_all == side["request_rounds"]
        assert record.committed == side["generated_tokens"] - side["requests"]
        if tag == pair["spec"]:
            assert (record.rounds, record.drafted, record.accepted) == tuple(
                side[k] for k in ("drafts", "draft_tokens", "accepted_tokens")
            )
            assert list(record.accepted_at) == side["accepted_per_position"]
            assert record.tokens_cut == pair["tokens_cut_at_output_limit"]
        else:
            assert record.accepted is None and not record.speculative
        if len(chosen) > 1:  # the engine's clock; a benchmark alone has the client's
            assert record.decode_seconds == pytest.approx(side["itl_sum_s"], rel=1e-12)
            assert record.details["engine_steps"] == side["engine_steps"]
            assert record.details["preemptions"] == side["preemptions"]
        else:
            assert record.decode_seconds == pytest.approx(side["itl_sum_s"], rel=5e-3)


@pytest.mark.parametrize("tag", ["plain_repeat_c1", "ngram3_repeat_c1"])
def test_the_engine_check_holds_for_a_capture_and_fails_when_a_request_is_missing(tag, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ENGINE.parents[2] / "tools"))
    import engine_check

    bench, *scrapes = files(tag)
    data = json.loads(bench.read_text(encoding="utf-8")) | {"generated_texts": []}
    for completed, holds in ((4, True), (3, False)):
        path = tmp_path / bench.name
        path.write_text(json.dumps(data | {"completed": completed}), encoding="utf-8")
        checks = engine_check.Checks()
        engine_check.check_side(checks, tag, [path, *scrapes], speculative=tag != "plain_repeat_c1")
        assert checks.seen >= 7 and (checks.failed == 0) == holds
        assert ("FAILS  " + tag + ": all 4 requests end" in capsys.readouterr().out) != holds


def test_summary_of_a_capture():
    pair = SIDES[1][2]
    summary = summary_of(files(pair["spec"]))
    assert summary["committed_length"] == pytest.approx(pair["mean_committed_per_round"])
    assert summary["committed_length_drafting_rounds"] == pytest.approx(pair["counter_acceptance_length"])
    assert summary["survival"] == pytest.approx(pair["survival_per_position"])
    assert summary["conditional"] == pytest.approx(pair["conditional_per_position"])
    assert summary["t_round_ms"] == pytest.approx(pair["T_round_ms"])
    assert summary["rounds_without_draft"] == pair["rounds_without_draft"]
    assert summary["details"]["kv_cache_tokens"] == 23296
    assert {"rounds-without-draft", "tokens-cut"} <= {w["code"] for w in summary["warnings"]}


def test_order_of_files_does_not_matter():
    assert len({round(t_round(read(order)), 15) for order in permutations(files("ngram3_repeat_c1"))}) == 1


def test_scrapes_of_several_runs_are_paired_by_the_counts_of_their_results():
    tags = ["plain_repeat_c1", "plain_b_repeat_c1", "plain_chat_c4"]  # the first two count alike
    found = runs([path for tag in tags for path in sorted(files(tag), reverse=True)])
    assert sorted(round(r.decode_seconds, 3) for r in found) == [15.818, 24.741, 35.287]
    assert all(r.requests and "prometheus" in r.format for r in found)


def test_scrapes_that_hold_more_than_the_result_are_left_out(tmp_path):
    """A warm-up between the scrapes: the result alone counts, and the cache size is taken along."""
    bench, before, after = files("ngram3_repeat_c1")
    more = tmp_path / "more.after.txt"
    more.write_text(re.sub(r"(time_to_first_token_seconds_count{.*}) 4.0", r"\1 5.0", after.read_text()))
    (found,) = runs([bench, before, more])
    assert found.format == "vllm-bench-serve-json" and found.details["kv_cache_tokens"] == 23296
    assert "scrapes-unmatched" in {w.code for w in found.warnings}


def test_pooling_runs_adds_counts():
    pooled = read([path for tag in ("plain_repeat_c1", "plain_b_repeat_c1") for path in files(tag)])
    assert pooled.committed == 376 and pooled.decode_seconds == pytest.approx(24.741422 + 15.818123)


def test_logs_tell_that_most_rounds_had_no_draft():
    summary = summary_of([ENGINE / "log/ngram3.log"])
    assert summary["committed_length"] is None
    assert summary["details"]["committed_length_estimate"] < 1.5 < summary["committed_length_drafting_rounds"]
    assert "rounds-without-draft" in {w["code"] for w in summary["warnings"]}
    assert summary["accepted"] == 876 and summary["drafted"] == 1460
    plain = summary_of([ENGINE / "log/plain.log"])
    assert plain["accepted"] is None and plain["details"]["kv_cache_tokens"] == 23296


def test_per_request_metrics_bound_what_they_do_not_count():
    summary = summary_of([ENGINE / "per_request/ngram3.json"])
    assert (summary["rounds"], summary["drafted"], summary["accepted"]) == (34, 102, 51)
    low, high = summary["details"]["committed_length_bounds"]
    assert summary["committed_length"] is None and 1.30 < low < high < 1.38
    assert summary["conditional"] == pytest.approx([22 / 34, 15 / 22, 14 / 15])
    assert summary["details"]["latency_ms"]["tpot"]["mean"] == pytest.approx(80.2123, abs=1e-3)
    assert "so it is TPOT" in summary["details"]["latency_means"]["tpot_ms"]


@pytest.mark.parametrize(
    "chosen",
    [["metrics_before.prom", "metrics_after.prom"], ["bench_serve_detailed.json"], ["spec_log_line.txt"],
     ["metrics_after.prom", "bench_serve_detailed.json", "metrics_before.prom"]],
)  # fmt: skip
def test_the_sample_set_agrees_with_itself(chosen):
    record = read([VLLM / name for name in chosen])
    assert (record.rounds, record.accepted, record.drafted) == (50, 95, 141)
    summary = summary_of([VLLM / name for name in chosen])
    assert summary["committed_length_drafting_rounds"] == pytest.approx(2.9)
    assert summary["survival"] == pytest.approx([0.86, 0.66, 0.38])
    assert summary["conditional"] is None  # drafts of 2 and 3 tokens are mixed
    if chosen != ["spec_log_line.txt"]:
        assert summary["committed_length"] == pytest.approx(2.76) and summary["tokens_cut"] == 7


def test_detailed_responses_tell_the_conditional_acceptance_of_mixed_drafts():
    summary = summary_of([VLLM / "response_metrics_detailed.json"])
    assert summary["conditional"] == pytest.approx([9 / 10, 8 / 9, 4 / 6])
    assert summary["committed_length_drafting_rounds"] == pytest.approx(3.1)
