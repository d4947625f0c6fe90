"""The lab without torch, and the committed measurement."""

import json
import statistics
import subprocess
import sys

import pytest

from specgain.lab import quick

WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('torch', 'tokenizers', 'safetensors'))); "


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_importing_the_lab_does_not_import_torch():
    done = run("import sys, specgain.lab; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False", done.stderr


def test_without_torch_the_message_says_how_to_get_it():
    done = run(WITHOUT + "from specgain import lab; lab.load_pair()")
    assert "`pip install specgain[lab]`" in done.stderr, done.stderr


def test_an_unknown_name_is_an_attribute_error():
    from specgain import lab

    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = lab.nothing
    assert "measure_cost" in dir(lab) and "live" in dir(lab)


@pytest.fixture
def record(tmp_path):
    cells = [
        {"domain": domain, "draft": draft, "gamma": gamma, "residual_percent": 1.0 * gamma, "cost_error_percent": 0.5,
         "acceptance_error_percent": -0.5, "residual_interval_percent": [-2.0, 3.0]}
        for domain in ("json", "viet", "prose") for draft in ("weak", "strong") for gamma in (1, 2, 4, 8)
    ]  # fmt: skip
    path = tmp_path / "round-timing.json"
    path.write_text(
        json.dumps({"environment": {"device": "a CPU", "date": "2026-11-29T10:00:00+00:00"}, "cells": cells})
    )
    return path


def test_the_committed_measurement_can_be_cut_down(record):
    result = quick.committed(["viet", "prose"], "strong", (0, 2, 4), record)
    assert result["origin"] == "committed" and result["note"] == "measured on a CPU, 2026-11-29"
    assert {(c["domain"], c["gamma"]) for c in result["cells"]} == {(d, g) for d in ("viet", "prose") for g in (2, 4)}
    assert result["summary"]["cells"] == 4 and result["summary"]["residual_worst_percent"] == 4.0
    assert len(quick.committed(path=record)["cells"]) == 24


def test_without_torch_live_gives_the_committed_measurement_and_says_so(record):
    code = WITHOUT + f"from specgain.lab import quick; quick.COMMITTED = {str(record)!r}; "
    done = run(code + "r = quick.live(seconds=1); print(r['origin'], len(r['cells'])); print(r['note'])")
    assert done.stdout.startswith("committed 8\nmeasured on a CPU"), done.stderr
    assert "torch and tokenizers and safetensors cannot be imported" in done.stdout


def test_a_missing_measurement_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="round-timing.json is not beside this package"):
        quick.committed(path=tmp_path / "round-timing.json")


@pytest.mark.claims("C2.2", "C2.5")
def test_the_committed_predictions_keep_their_bars():
    """Listed before the run; medians, worst cases, intervals, and two clear wins and losses among the judged cells."""
    record = json.loads(quick.COMMITTED.read_text(encoding="utf-8"))
    plan = json.loads(quick.COMMITTED.with_name("round-timing-plan.json").read_text(encoding="utf-8"))
    assert record["plan"] == plan
    listed = [cell for part in (record, *record["more"]) for cell in part["cells"]]
    planned = [cell for part in (plan, *plan["more"]) for cell in part["cells"]]
    assert planned == [{name: cell[name] for name in planned[0]} for cell in listed] and len(planned) >= 60
    judged, found = [cell for cell in listed if not cell["not_judged"]], record["summary_judged"]
    assert len(judged) == found["cells"] >= 50 and found["covered"] >= 0.9 * len(judged)
    assert found["cost_error_median_percent"] <= 1 and found["cost_error_worst_percent"] <= 4
    assert found["residual_median_percent"] <= 2 and found["residual_worst_percent"] <= 8
    widths = [high - low for low, high in (cell["residual_interval_percent"] for cell in judged)]
    assert statistics.median(widths) / 2 <= 3
    wins, losses = (
        sum(sign * cell["measured_speedup"] > sign * bar for cell in judged) for sign, bar in ((1, 1.3), (-1, 0.95))
    )
    assert wins >= 2 and losses >= 2
    assert all(part["different_output"] == [] for part in (record, *record["more"]))


@pytest.mark.claims("C2.2", "C2.5")
def test_the_same_list_on_another_processor():
    """Predictions as close as on the first; intervals too narrow; the same tokens, other times, and verdicts that turn."""
    first = json.loads(quick.COMMITTED.read_text(encoding="utf-8"))
    folder = quick.COMMITTED.parent.with_name("cpu-2core-intel")
    second = json.loads((folder / quick.COMMITTED.name).read_text(encoding="utf-8"))
    assert second["plan"] == first["plan"] == json.loads((folder / "round-timing-plan.json").read_text(encoding="utf-8"))
    assert first["environment"]["device"].startswith("AMD") and second["environment"]["device"].startswith("Intel")
    found = second["summary_judged"]
    assert found["residual_median_percent"] <= 2 and found["residual_worst_percent"] <= 8
    assert found["cells"] / 2 < found["covered"] < 0.9 * found["cells"]
    assert all(part["different_output"] == [] for part in (second, *second["more"]))
    four = next(part for part in second["more"] if part["rows"] == 4)
    steps = four["t_decode_by_block_ms"]
    assert all(calibration > test for calibration, test in zip(steps["calibration"], steps["test"], strict=True))
    assert all(cell["cost_error_percent"] > 0 for cell in four["cells"])  # so they promise too much
    key = ("domain", "draft", "gamma", "rows", "temperature", "context")
    here, there = (
        {tuple(c[k] for k in key): c for part in (run, *run["more"]) for c in part["cells"] if not c["not_judged"]}
        for run in (first, second)
    )
    both = [(here[k], there[k]) for k in here if k in there]
    lengths = [b["measured_committed_length"] / a["measured_committed_length"] for a, b in both]
    assert max(abs(ratio - 1) for ratio in lengths) < 0.02
    ends = [[cell["measured_interval"] for cell in pair] for pair in both]
    assert any(max(low for low, _ in pair) > 1 > min(high for _, high in pair) for pair in ends)
