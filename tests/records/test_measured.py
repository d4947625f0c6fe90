"""Committed measurements name device, date and versions, and the checker says what a reader's own file lacks."""

import json
from pathlib import Path

import pytest

from specgain.records.measured import inventory, main, problems

ROOT = Path(__file__).resolve().parents[2]
GOOD = {"environment": {"device": "NVIDIA H100 SXM", "date": "2026-11-29T10:00:00+00:00", "torch": "2.13.0"}}


def changed(**environment):
    return {"environment": GOOD["environment"] | environment}


@pytest.mark.parametrize("found", inventory(ROOT), ids=lambda found: f"{found.path.parent.name}/{found.path.stem}")
def test_every_committed_measurement_can_be_committed_and_made_again(found):
    assert found.reproduce, "no tool or notebook writes a file of this name, and it has no key `reproduce`"
    assert found.path.parent.name == found.path.parent.name.lower().replace(" ", "-")
    if not found.is_plan:
        assert problems(found.data, found.path.name) == []
        assert found.versions


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
