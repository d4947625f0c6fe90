"""The benchmarks measure what they say: turns are fair, medians are medians, and the committed results are complete."""

import json

import pytest

from benchmarks import __main__ as benchmarks


def test_arms_take_turns_in_rotating_order():
    order = []
    times = benchmarks.time_calls({name: lambda name=name: order.append(name) for name in "abc"}, repeats=3)
    assert "".join(order) == "aabbcc" + "bbccaa" + "ccaabb"  # three turns; each call right after an untimed one
    assert {name: len(seconds) for name, seconds in times.items()} == {"a": 3, "b": 3, "c": 3}


def test_spread_is_median_and_quartiles_in_ms():
    assert benchmarks.spread([0.001, 0.002, 0.003, 0.004, 0.005]) == {"median": 3.0, "low": 2.0, "high": 4.0}


def test_written_results_keep_each_list_of_numbers_on_a_line(tmp_path):
    result = {"a": {"turns_ms": [1.5, -2e-5, 3], "empty": []}, "names": ["x, 1", "[1,"], "pairs": [[1, 2], [3, 4]]}
    benchmarks.write(tmp_path / "new" / "r.json", result)
    text = (tmp_path / "new" / "r.json").read_text(encoding="utf-8")
    assert json.loads(text) == result and "[1.5, -2e-05, 3]" in text and "[3, 4]" in text


def test_kernels_are_compared_with_the_fastest_step():
    pytest.importorskip("specgain.lab.model", reason="needs torch", exc_type=ImportError)
    found = benchmarks.bench_kernels(positions=(1, 2), repeats=2)
    assert list(found["kernels"]) == ["as used", "F.linear", "W @ x.T", "packed", "mixed"]
    assert min(row[1]["median"] for row in found["kernels"].values()) == pytest.approx(1.0)


def test_kernels_share_their_weights_and_are_held_against_the_fastest_float_step():
    pytest.importorskip("specgain.lab.model", reason="needs torch", exc_type=ImportError)
    import torch

    from benchmarks import kernels
    from specgain.lab.model import Cache, Config, Model, random_weights

    config = Config(61, 64, 4, 128, 2, context=64)
    plain = Model(config, random_weights(config), kernel="plain")
    models = {name: plain.with_kernel(kernels.kernel(name)) for name in ("F.linear", "W @ x.T", "int8")}
    assert models["W @ x.T"].layers[0][1].weight is plain.layers[0][1].weight
    tokens = torch.arange(6)[None]
    one, two = (m(tokens, Cache(m)) for m in (plain, models["W @ x.T"]))
    assert torch.allclose(one, two, atol=1e-5)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # these products are too small to share
    try:
        found = kernels.table(models, 2, 16, [1, 3], repeats=3)
    finally:
        torch.set_num_threads(threads)
    assert found["fastest_step"] in ("F.linear", "W @ x.T") and set(found["rows"]) == set(models)
    assert found["rows"][found["fastest_step"]][1]["ratio"]["median"] == 1.0
    assert all(row[1]["own_ratio"]["median"] == 1.0 and row[3]["ms"]["median"] > 0 for row in found["rows"].values())
    assert len(kernels.shown(2, found)) == 2 + len(models)


def test_committed_results_say_where_they_were_taken():
    results = json.loads((benchmarks.RESULTS / "cpu-2core.json").read_text(encoding="utf-8"))
    assert set(results) == set(benchmarks.BENCHES)
    assert all({"device", "date", "torch"} <= entry["environment"].keys() for entry in results.values())


def test_committed_run_of_the_kernels_keeps_its_bar():
    """Five positions cost at most 1.1 of the fastest float32 step, whichever kernel takes it; int8 does not count."""
    found = json.loads((benchmarks.RESULTS / "kernels.json").read_text(encoding="utf-8"))
    one, bar = found["batches"]["1"], found["bar"]
    floats = {name: row for name, row in one["rows"].items() if "int8" not in name}
    assert one["fastest_step_ms"] == min(row["1"]["ms"]["median"] for row in floats.values())
    assert (found["threads"], found["context"], bar["ratio"]) == (2, 128, 1.1)
    assert one["rows"][found["in_use"]]["5"]["ratio"]["median"] <= bar["ratio"]
    for row in one["rows"].values():
        assert all(len(cell["turns_ms"]) == found["repeats"] for cell in row.values())


def test_committed_run_of_the_serving_simulator_keeps_its_bars():
    """2 µs a request-round, time linear in the rounds, memory flat, and the SimPy model agrees to the last moment."""
    found = json.loads((benchmarks.RESULTS / "serving.json").read_text(encoding="utf-8"))
    costs = [size["us_per_request_round"] for size in found["ours"]]
    assert found["ours"][-1]["request_rounds"] > 990_000 and costs[-1] <= 2 and max(costs) < 1.3 * min(costs)
    assert found["peak_mb"]["120000"] < 1.1 * found["peak_mb"]["30000"]
    assert (
        found["same_recorded_rounds"]["preemptions"] > 50
        and found["same_recorded_rounds"]["largest_difference_s"] < 1e-6
    )
    ends = found["simulated_seconds"]
    assert abs(ends["ours"] / ends["simpy"] - 1) < 0.02
