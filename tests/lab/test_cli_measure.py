"""`specgain measure` and `specgain predict`, on the random tiny pair: shapes, resumption, and what is not known."""

import contextlib
import io
import json
from importlib.resources import files

import jsonschema
import pytest

from specgain import cli

SMALL = ("--domains", "json,viet", "--prompts", "2", "--tokens", "16")


@pytest.fixture
def call(capsys, tiny_folder):
    """Return a function that runs a command with --json and gives (status, JSON), checked against its schema."""

    def run(command, *arguments):
        words = command.split()
        pair = ["--pair", tiny_folder] if words[0] == "measure" else []
        status = cli.main([*words, *(str(a) for a in (*pair, *arguments)), "--json"])
        data = json.loads(capsys.readouterr().out)
        jsonschema.validate(data, json.loads((files("specgain") / "schemas" / f"{words[0]}.json").read_text("utf-8")))
        return status, data

    return run


@pytest.fixture(scope="module")
def records(tiny_folder, tmp_path_factory):
    """Return the paths of a cost, an acceptance and a run record of the tiny pair."""
    paths = {name: tmp_path_factory.mktemp("records") / f"{name}.json" for name in ("cost", "acceptance", "run")}
    for name, path in paths.items():
        gamma = [] if name == "acceptance" else ["--gamma", "1,2"]
        with contextlib.redirect_stdout(io.StringIO()):
            assert cli.main(["measure", name, "--pair", str(tiny_folder), *SMALL, *gamma, "--out", str(path)]) == 0
    return paths


def test_records_are_written_as_they_are_printed(call, tmp_path):
    _, printed = call("measure acceptance", *SMALL, "--out", tmp_path / "record.json")
    assert json.loads((tmp_path / "record.json").read_text("utf-8")) == printed
    assert set(printed["domains"]) == {"json", "viet"}
    assert all(len(string) == 16 for string in printed["domains"]["viet"]["agreement"]["strong"])


def test_an_interrupted_run_goes_on_from_its_file(call, tmp_path):
    path = tmp_path / "run.json"
    one = ("--domains", "json", "--tokens", "16", "--gamma", "2", "--out", path)
    _, first = call("measure run", *one, "--prompts", "1")
    _, both = call("measure run", *one, "--prompts", "2")
    assert len(both["requests"]) == 2 * len(first["requests"])
    assert both["requests"][: len(first["requests"])] == first["requests"]  # measured once, kept


def test_a_prediction_is_held_against_the_run(call, records):
    given = ("--cost", records["cost"], "--acceptance", records["acceptance"], "--gamma", "1,2")
    status, alone = call("predict", *given)
    assert status == 0 and alone["summary"] is None and len(alone["cells"]) == 2 * 3 * 2
    status, held = call("predict", *given, "--run", records["run"])
    assert status == 0 and held["summary"]["cells"] == 12
    for before, after in zip(alone["cells"], held["cells"], strict=True):
        assert before["speedup"] == after["speedup"]  # the prediction has not seen the run
        assert after["measured_speedup"] > 0
        error = 100 * (after["speedup"] / after["measured_speedup"] - 1)
        assert after["residual_percent"] == pytest.approx(error, rel=1e-6)


def test_what_was_not_measured_is_named(call, records):
    given = ("--cost", records["cost"], "--acceptance", records["acceptance"], "--run", records["run"])
    status, report = call("predict", *given, "--gamma", "2,8")
    assert status == 1 and len(report["cells"]) == 6
    assert all("γ = 8" in line and "was not measured" in line for line in report["missing"])


def test_tables_for_people(records, capsys, tiny_folder):
    few = ["--pair", str(tiny_folder), "--domains", "json", "--prompts", "1", "--tokens", "8"]
    for name in ("cost", "acceptance", "run"):
        extra = [] if name == "acceptance" else ["--gamma", "1"]
        assert cli.main(["measure", name, *few, *extra]) == 0
    given = ["--cost", str(records["cost"]), "--acceptance", str(records["acceptance"]), "--run", str(records["run"])]
    assert cli.main(["predict", *given, "--gamma", "1,2"]) == 0
    out = capsys.readouterr().out
    for text in ("Ordinary decoding", "distinct 4-grams", "ms per token", "S run", "in the median"):
        assert text in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gamma", "0"), "1 or more"),
        (("--domains", "poems"), "poems"),
        (("--prompts", "1000"), "1000"),
    ],
)
def test_bad_input_is_named(call, arguments, message):
    status, data = call("measure cost", *arguments)
    assert status == 2 and message in data["error"]


def test_records_of_another_kind_are_refused(call, records, tmp_path):
    status, data = call("predict", "--cost", records["acceptance"], "--acceptance", records["acceptance"])
    assert status == 2 and "specgain.cost/1" in data["error"]
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    status, data = call("predict", "--cost", tmp_path / "broken.json", "--acceptance", records["acceptance"])
    assert status == 2 and "not JSON" in data["error"]
