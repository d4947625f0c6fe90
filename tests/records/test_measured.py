"""Committed measurements name device, date and versions, and the checker says what a reader's own file lacks."""

import copy
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from specgain.records.measured import file_problems, inventory, main, problems

ROOT = Path(__file__).resolve().parents[2]
GOOD = {"environment": {"device": "NVIDIA H100 SXM", "date": "2026-11-29T10:00:00+00:00", "torch": "2.13.0"}}


def changed(**environment):
    return {"environment": GOOD["environment"] | environment}


@pytest.mark.parametrize("found", inventory(ROOT), ids=lambda found: f"{found.path.parent.name}/{found.path.stem}")
def test_every_committed_measurement_can_be_committed_and_made_again(found):
    assert found.reproduce, "no tool or notebook writes a file of this name, and it has no key `reproduce`"
    assert file_problems(str(found.path)) == []
    assert found.is_plan or found.versions


def test_a_good_file_has_no_problem():
    assert problems(GOOD) == []
    assert problems(GOOD | {"claims": ["C2.6"], "t_draft_ms": None}) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "no JSON object"),
        ({}, 'no "environment"'),
        (changed(device=" "), "environment.device is missing"),
        (changed(date="29.11.2026"), "must be a date such as"),
        (changed(date=None), "must be a date such as"),
        (changed(torch=None), "names no version"),
        (GOOD | {"claims": ["2.6"]}, "must be a list of the course's ids"),
        (GOOD | {"cells": [{"t_ms": float("nan")}]}, "not finite"),
        (GOOD | {"schema": "specgain.roundlog/1"}, "measurement:"),
    ],
)
def test_what_is_missing_is_named(data, said):
    assert len(problems(data)) == 1 and said in problems(data)[0]


def test_the_command_checks_files(tmp_path, capsys):
    good, bad, broken = (tmp_path / name for name in ("good.json", "bad.json", "broken.json"))
    good.write_text(json.dumps(GOOD))
    bad.write_text("{}")
    broken.write_text("{")
    assert main([str(good)]) == 0 and "can be committed" in capsys.readouterr().out
    assert main([str(good), str(bad), str(broken), str(tmp_path / "gone.json")]) == 1
    said = capsys.readouterr().out
    assert 'bad.json has no "environment"' in said and "broken.json: Expecting" in said and "gone.json" in said


TIMES = {f"t_{part}_ms": 1.5 for part in ("draft_after_rejection", "draft_after_acceptance", "verify", "other")}
COST = {
    "schema": "specgain.cost/1",
    "environment": GOOD["environment"] | {"specgain": "0.1.0"},
    "source": "measured",
    "rows": 1,
    "t_decode_ms": 2.5,
    "gammas": {"0": TIMES, "4": dict(TIMES)},
}


def placed(root, data, device="h100-sxm"):
    """Write a measurement where a reader would put it; return its path."""
    folder = root / "notebooks" / "measurements" / device
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cost.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_readers_cost_file_passes_and_wrong_ones_fail_in_a_process_of_their_own(tmp_path):
    """As a reader runs it: `python -m specgain.records.measured FILE` on a good record and on a damaged copy."""
    command = [sys.executable, "-m", "specgain.records.measured"]
    good = placed(tmp_path, COST | {"reproduce": "specgain measure cost --gamma 4", "claims": ["C2.8"]})
    done = subprocess.run([*command, good], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "") and "can be committed" in done.stdout
    wrong = copy.deepcopy(COST)
    wrong["gammas"]["4"]["t_verify_ms"] = "1.5 ms"
    del wrong["t_decode_ms"]
    done = subprocess.run([*command, placed(tmp_path, wrong)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert (
        "t_decode_ms' is a required property" in done.stdout
        and "gammas['4'].t_verify_ms: '1.5 ms' is not of type" in done.stdout
    )


@pytest.mark.parametrize(
    ("change", "device", "said"),
    [
        ({}, "h100-sxm", "nothing here writes a file of this name"),
        ({"reproduce": "x"}, "H100 SXM", "must be small letters, digits and hyphens"),
        ({"schema": "specgain.cost/9"}, "h100-sxm", "must be 'specgain.cost/1'"),
        ({"gammas": {"four": TIMES}}, "h100-sxm", "'four' does not match"),
        ({"t_step_ms": 1.0}, "h100-sxm", "'t_step_ms' was unexpected"),
    ],
)
def test_what_is_wrong_with_the_place_or_the_schema_is_named(tmp_path, change, device, said):
    found = file_problems(str(placed(tmp_path, COST | change, device)))
    assert len(found) == 1 and said in found[0]


def test_what_specgain_measure_writes_has_the_schema_that_is_checked(tmp_path):
    """The record of `specgain measure acceptance` in the tests of the command line is judged by the same rules."""
    domains = {
        "json": {"sample": {"prompt": "a", "continuation": "b"}, "distinct_4grams": 1.0, "agreement": {"d": ["01"]}}
    }
    record = {"schema": "specgain.acceptance/1", "environment": COST["environment"], "setup": {}, "domains": domains}
    assert problems(record) == []
    domains["json"]["agreement"]["d"] = ["0x"]
    assert len(problems(record)) == 1


def test_the_workflow_checks_measurements_publishes_and_rebuilds_every_week():
    text = (ROOT / ".github" / "workflows" / "pages.yml").read_text(encoding="utf-8")
    flow = yaml.safe_load(text)
    runs = {name: [step.get("run", step.get("uses")) for step in job["steps"]] for name, job in flow["jobs"].items()}
    checked = runs["measurements"][-1].removeprefix("python -m specgain.records.measured ")
    assert {*ROOT.glob(checked)} == {found.path for found in inventory(ROOT)}
    assert "bash .ci/run" in runs["test"] and flow["jobs"]["publish"]["needs"] == "test"
    assert any(step.startswith("actions/deploy-pages") for step in runs["publish"])
    assert re.search(r"schedule:\n    - cron: \"\d+ \d+ \* \* \d\"", text)


def test_a_new_file_appears_in_the_inventory_by_itself(tmp_path):
    folder = tmp_path / "notebooks" / "measurements" / "my-gpu"
    folder.mkdir(parents=True)
    (folder / "rounds.json").write_text(json.dumps(GOOD | {"reproduce": "specgain measure run"}))
    (folder / "timing.json").write_text(json.dumps(GOOD))
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "time_it.py").write_text('write("timing.json")')
    found = {m.path.stem: m for m in inventory(tmp_path)}
    assert (
        found["rounds"].reproduce == "specgain measure run" and found["timing"].reproduce == "python tools/time_it.py"
    )
