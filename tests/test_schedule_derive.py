"""Schedules from measurements: the best length per batch size, merged into ranges; and how engines want them written."""

import json
import shlex

import pytest

from specgain.acceptance import Acceptance
from specgain.gain import Ledger
from specgain.length import best_gamma
from specgain.records.source import RecordError
from specgain.round_time import Affine, RoundTime
from specgain.schedule import check
from specgain.schedule_derive import (
    Point,
    derive,
    emit,
    emit_sweep,
    emit_tensorrt_llm,
    emit_vllm,
    points,
    points_of_model,
)


def model(batches, gammas=range(0, 8), a=0.8, sync=0.0):
    """Costs that grow with verified positions once they exceed what one weight read covers (B·(γ+1) > 64)."""

    def verify(batch, gamma):
        return 10.0 * max(1.0, batch * (gamma + 1) / 64)

    return {
        "conditional": [a] * (max(gammas)),
        "t_decode_ms": {str(b): verify(b, 0) for b in batches},
        "t_round_ms": {str(b): {str(g): verify(b, g) + 0.5 * g + sync for g in gammas} for b in batches},
    }


def test_the_best_length_of_each_batch_is_the_ledger_s():
    data = model([1], gammas=range(0, 13))
    found = derive(points_of_model(data), tolerance=0.0)
    ledger = Ledger(Acceptance.constant(0.8), RoundTime.of(Affine(0.010, 0.0005)), 0.010)
    assert found.ranges[0]["gamma"] == best_gamma(ledger) == 8
    assert found.ranges[0]["speedup"] == pytest.approx(ledger.speedup(8))


def test_lengths_fall_with_the_batch_and_the_engine_accepts_the_result():
    found = derive(points_of_model(model([1, 4, 16, 32, 64, 256])), max_num_seqs=512)
    lengths = [r["gamma"] for r in found.ranges]
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > 3 and lengths[-1] == 0
    checked = check(found.table, 512, max(lengths), method="eagle3", runner="V2")
    assert checked.ok and checked.effective == found.table and found.table[-1][1] == 512
    assert {"gap", "unsorted", "clamp", "tail"}.isdisjoint(w.code for w in checked.warnings)
    assert any("prefer few ranges" in text for text in found.advice)


def test_shortest_length_within_the_tolerance():
    rows = [Point(1, None, 0.010), Point(1, 2, 0.00505), Point(1, 5, 0.0050), Point(1, 7, 0.0060)]
    assert derive(rows).ranges[0]["gamma"] == 2 and derive(rows, tolerance=0.0).ranges[0]["gamma"] == 5


def test_the_reason_names_what_no_length_beats():
    rows = [Point(1, None, 1 / 100), Point(1, 0, 1 / 105), Point(1, 3, 1 / 106)]
    assert derive(rows).ranges[0]["reason"].startswith("no draft length beats length 0 by more than 2%")
    rows[1] = Point(1, 0, 1 / 95)
    assert derive(rows).ranges[0]["gamma"] == 3
    assert "beats plain decoding" in derive(rows, tolerance=0.1).ranges[0]["reason"]


@pytest.mark.parametrize("rows", [[Point(1, None, 0.0), Point(1, 2, 0.01)], [Point(1, None, 0.01), Point(1, 2, 0.0)]])
def test_a_time_of_zero_is_no_measurement(rows):
    with pytest.raises(RecordError, match="a measured time is above 0"):
        derive(rows)


def test_draft_upkeep_at_length_zero_is_counted():
    found = derive(points_of_model(model([128, 256], sync=6.0)))
    assert found.table == [[1, 256, 0]] and "without speculation" in found.advice[0]
    assert found.ranges[0]["speedup"] == pytest.approx(20 / 26)
    assert {"zero-not-free", "extrapolated"} <= {w.code for w in found.warnings}
    unmeasured = derive([Point(1, None, 0.010), Point(1, 3, 0.005), Point(64, None, 0.02), Point(64, 3, 0.03)])
    assert unmeasured.table == [[1, 8, 3], [9, 64, 0]]
    assert "zero-not-measured" in {w.code for w in unmeasured.warnings}


def test_sweep_summary_becomes_a_schedule(tmp_path):
    gamma = "speculative_config.num_speculative_tokens"
    header = (
        f",_benchmark_name,run_number,duration,completed,total_output_tokens,max_concurrency,mean_tpot_ms,{gamma},"
        f"{gamma}_per_batch_size,spec_decode_num_drafts,spec_decode_draft_tokens,spec_decode_accepted_tokens"
    )
    lines = [header]
    for batch, plain, k1, k3, k0 in (
        (1, 10.0, 7.0, 5.0, 10.2),
        (16, 12.0, 9.0, 9.6, 12.5),
        (64, 20.0, 24.0, 33.0, 21.0),
    ):
        for run in (0, 1):
            base = f"{len(lines)},{{}},{run},9.5,8,800,{batch}"
            lines += [
                f"{base.format('off')},{plain},,,,,",
                f"{base.format('k1')},{k1},1,,400,400,300",
                f"{base.format('k3')},{k3},3,,300,900,480",
                f'{base.format("k0")},{k0},3,"[[1, 64, 0]]",,,',
            ]
    path = tmp_path / "summary.csv"
    path.write_text("\n".join(lines) + "\n")
    found = derive(points([path]))
    assert [(r["batch"], r["gamma"]) for r in found.ranges] == [(1, 3), (16, 1), (64, 0)]
    assert [r["speedup"] for r in found.ranges] == pytest.approx([2.0, 12 / 9, 20 / 21])
    assert found.table == [[1, 4, 3], [5, 32, 1], [33, 64, 0]]
    assert "zero-not-free" in {w.code for w in found.warnings}


def test_json_model_from_a_file(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model([1, 32])))
    assert derive(points([path])).ranges[0]["first"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conditional": [0.8]}, "no acceptance at position 2"), ({"t_decode_ms": {}}, "no plain run at batch size 1"),
        ({"t_round_ms": {"x": {}}}, "no batch size"), ({"conditional": [1.2]}, "outside its range"),
        ({"t_round_ms": {"1": {"1": -3}}}, "outside its range"), ({"t_round_ms": 3}, "the model needs"),
    ],
)  # fmt: skip
def test_bad_models(change, message):
    with pytest.raises(RecordError, match=message):
        derive(points_of_model(model([1]) | change))


def test_emit_for_vllm_is_a_flag_a_shell_understands():
    found = emit("[[1, 4, 4], [5, 32, 1]]", "vllm", {"method": "draft_model", "model": "it's mine"})
    option, text = shlex.split(found["flag"])
    assert option == "--speculative-config" and json.loads(text) == found["json"]
    assert found["json"]["num_speculative_tokens"] == 4 and check(found["json"], 32).ok


def test_emit_for_tensorrt_llm():
    """The documented example: 4 up to batch 4, 2 up to 8, 1 up to 32, none above."""
    found = emit_tensorrt_llm([[1, 4, 4], [5, 8, 2], [9, 32, 1], [33, 64, 0]])
    assert found["json"]["speculative_config"]["draft_len_schedule"] == {"4": 4, "8": 2, "32": 1}
    assert emit_tensorrt_llm([["1", 4, 4], [5, "8", "2"], [9, 32, 1], [33, 64, 0]]) == found  # as vLLM reads them
    with pytest.raises(RecordError, match="knows length 0 only above"):
        emit_tensorrt_llm([[1, 4, 0], [5, 8, 2]])


def test_nothing_is_emitted_that_the_engine_would_refuse():
    with pytest.raises(RecordError, match="would refuse this schedule: .*overlap"):
        emit_vllm([[1, 4, 4], [4, 8, 2]])
    with pytest.raises(RecordError, match="all zeros"):
        emit_vllm([[1, 4, 0]])
    with pytest.raises(RecordError, match="it is empty"):
        emit_vllm([])
    with pytest.raises(RecordError, match="not known; known are"):
        emit("[[1, 4, 2]]", "sglang")


def test_sweep_parameters():
    found = emit_sweep({"method": "ngram", "prompt_lookup_max": 4}, [3, 1], [8, 1])
    names = [row["_benchmark_name"] for row in found["serve_params"]]
    assert names == ["off", "k1", "k3", "k0"] and [r["max_concurrency"] for r in found["bench_params"]] == [1, 8]
    zero = {k.partition(".")[2]: v for k, v in found["serve_params"][-1].items() if "." in k}
    assert check(zero, 8).ok and check(zero, 8).effective == [[1, 8, 0]]
