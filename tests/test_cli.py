"""The command line: its numbers, its JSON contract, its exit status, and what it imports."""

import json
import subprocess
import sys
from importlib.resources import files

import jsonschema
import pytest

from specgain import cli

CHEAP = "quadratic:10,0.7,0.1"
DEAR = "quadratic:10,5,0.8"


def run(capsys, *arguments):
    """Return (status, output, errors) of the command line."""
    status = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def run_json(capsys, command, *arguments):
    """Return (status, parsed JSON) after checking the output against the command's schema."""
    status, out, _ = run(capsys, command, *arguments, "--json")
    data = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    jsonschema.validate(data, json.loads((files("specgain") / "schemas" / f"{command}.json").read_text("utf-8")))
    return status, data


def gain(capsys, cost, *more, a="0.8", t_decode="10ms"):
    return run_json(capsys, "gain", "--a", a, "--t-decode", t_decode, "--round-cost", cost, *more)


# --- gain -----------------------------------------------------------------------------------------------------------


@pytest.mark.claims("C0.1", "C0.3", "C8.1")
def test_same_acceptance_opposite_verdicts(capsys):
    """80 % everywhere: the cheap draft is fastest at γ = 4, the dear one slower there and best at γ = 1."""
    status, cheap = gain(capsys, CHEAP, "--gamma", "1,2,4,8")
    _, dear = gain(capsys, DEAR, "--gamma", "1,2,4,8")
    lengths = [row["committed_length"] for row in cheap["rows"]]
    assert status == 0
    assert lengths == pytest.approx([1.8, 2.44, 3.3616, 4.32891136], rel=1e-11)
    assert lengths == [row["committed_length"] for row in dear["rows"]]
    assert [round(row["speedup"], 4) for row in cheap["rows"]] == [1.6667, 2.0678, 2.3344, 1.9677]
    assert [round(row["speedup"], 4) for row in dear["rows"]] == [1.1392, 1.0517, 0.7854, 0.4278]
    assert (cheap["best_gamma"], dear["best_gamma"]) == (4, 1)
    assert cheap["best_gamma_continuous"] is None
    assert [round(row["margin_ms"], 4) for row in dear["rows"]] == [2.2, 1.2, -9.184, -57.9109]


def test_break_even_rows_are_the_ledger_solved_for_each_term(capsys):
    _, report = gain(capsys, DEAR)
    for row, limit in zip(report["rows"], report["break_even"], strict=True):
        assert limit["t_round_max_ms"] == pytest.approx(row["committed_length"] * 10)
        assert limit["committed_length_min"] == pytest.approx(row["t_round_ms"] / 10)
        if limit["conditional_min"] is not None:  # at that a, S is 1
            _, there = gain(capsys, DEAR, "--gamma", row["gamma"], a=str(limit["conditional_min"]))
            assert there["rows"][0]["speedup"] == pytest.approx(1)
    assert report["break_even"][3]["conditional_min"] is None  # needs E[L] = 10.12 of at most 9


def test_the_best_length_is_sought_over_all_lengths_not_only_the_listed(capsys):
    assert gain(capsys, CHEAP, "--gamma", "1,2")[1]["best_gamma"] == 4


def test_the_real_best_length_for_an_affine_cost(capsys):
    """a = 0.8, c = 0.05: 7.857, hence 8 (Lambert W; checked in tests/test_length.py against brute force)."""
    report = gain(capsys, "affine:10,0.5")[1]
    assert report["best_gamma_continuous"] == pytest.approx(7.857, abs=5e-4)
    assert report["best_gamma"] == 8
    assert gain(capsys, "affine:10,0.5", a="0.8,0.8")[1]["best_gamma_continuous"] is None


def test_no_length_that_pays_is_reported_as_zero(capsys):
    assert gain(capsys, "affine:10,9", a="0.3")[1]["best_gamma"] == 0
    _, out, _ = run(capsys, "gain", "--a", "0.3", "--t-decode", "10", "--round-cost", "affine:10,9")
    assert "do not speculate" in out


def test_free_candidates_have_no_best_length(capsys):
    status, report = gain(capsys, "affine:10,0")
    assert (status, report["best_gamma"], report["best_gamma_continuous"]) == (1, None, None)
    assert report["missing"] == [
        "best_gamma: there is none, since every further candidate still pays (candidates are free)"
    ]


@pytest.mark.parametrize("t_decode", ["10ms", "0.01s", "10", "10 ms", "10000us", "1e1ms"])
def test_times_may_bear_a_unit(capsys, t_decode):
    assert gain(capsys, CHEAP, t_decode=t_decode)[1] == gain(capsys, CHEAP)[1]


def test_a_list_of_acceptances_knows_its_positions_only(capsys):
    status, report = gain(capsys, "affine:10,0.5", "--gamma", "1,2,3", a="0.9,0.8")
    assert status == 1
    assert [row["committed_length"] for row in report["rows"]] == [1.9, 2.62, None]
    assert report["rows"][2] == {
        "gamma": 3, "committed_length": None, "t_round_ms": 11.5, "speedup": None, "margin_ms": None,
    }  # fmt: skip
    assert report["missing"] == [
        "committed_length: gamma = 3 is beyond the 2 positions this law knows; measure longer drafts"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "gamma,t_round_ms\n1,10.8\n2,11.8\n4,14.4\n"),
        ("t.csv", "t_round_ms, gamma\n10.8, 1\n11.8, 2\n14.4, 4\n"),
        ("t.csv", "\ufeffgamma,t_round_ms\n1,10.8\n2,11.8\n4,14.4\n"),
        ("t.json", '{"1": 10.8, "2": 11.8, "4": 14.4}'),
        ("t.json", json.dumps([{"gamma": g, "t_round_ms": t} for g, t in ((1, 10.8), (2, 11.8), (4, 14.4))])),
    ],
)  # fmt: skip
def test_a_measured_table_answers_where_it_was_measured(capsys, tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    status, report = gain(capsys, f"table:{tmp_path / name}", "--gamma", "1,2,4")
    assert (status, report["best_gamma"]) == (0, 4)
    assert [round(row["speedup"], 4) for row in report["rows"]] == [1.6667, 2.0678, 2.3344]
    status, report = gain(capsys, f"table:{tmp_path / name}", "--gamma", "4,8")
    assert (status, report["rows"][1]["t_round_ms"]) == (1, None)
    assert "was not measured" in report["missing"][0]


def test_the_table_output_says_the_same(capsys):
    status, out, _ = run(capsys, "gain", "--a", "0.8", "--t-decode", "10ms", "--round-cost", DEAR)
    assert status == 0
    for text in ("γ", "E[L]", "speedup S", "0.785", "-9.184", "a min", "0.922", "Best γ of all known lengths: 1"):
        assert text in out


BAD = [
    (["--a", "1.8"], "a_1 must be a probability"),
    (["--a", "many"], "0.8 or 0.9,0.8,0.7"),
    (["--a", "nan"], "probability"),
    (["--t-decode", "ten"], "10ms, 0.01s or 10"),
    (["--t-decode", "0"], "above 0 ms"),
    (["--t-decode", "-5ms"], "not negative"),
    (["--t-decode", "inf"], "not a time"),
    (["--gamma", "1,1"], "each once"),
    (["--gamma", "-1"], "0 or more"),
    (["--gamma", "1.5"], "1,2,4,8"),
    (["--round-cost", "linear:1,2"], "affine:BASE,SLOPE"),
    (["--round-cost", "affine:10"], "affine takes 2"),
    (["--round-cost", "affine:10,-1"], "none of them negative"),
    (["--round-cost", "affine:nan,1"], "finite"),
    (["--gamma", "1" + "0" * 400], "too large"),
    (["--round-cost", "quadratic:0,0,0"], "t_round"),
    (["--round-cost", "table:nowhere.csv"], "nowhere.csv"),
    (["--verbose"], "--verbose"),
]


@pytest.mark.parametrize(
    ("wrong", "message"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_ends_with_2_and_names_what_would_be_right(capsys, wrong, message):
    right = ["--a", "0.8", "--t-decode", "10ms", "--round-cost", CHEAP]
    status, data = run_json(capsys, "gain", *right, *wrong)
    assert status == 2 and set(data) == {"error"} and message in data["error"]
    status, out, err = run(capsys, "gain", *right, *wrong)
    assert status == 2 and out == "" and message in err


@pytest.mark.parametrize("cost", ["affine:1e308,1e308", "affine:1e-320,0", "quadratic:1e308,0,0"])
def test_a_result_beyond_every_number_has_one_status(capsys, cost):
    call = ["gain", "--a", "0.8", "--t-decode", "1e308", "--round-cost", cost]
    status, data = run_json(capsys, *call)
    assert status == 2 and "= inf is beyond" in data["error"]
    status, out, err = run(capsys, *call)
    assert status == 2 and out == "" and "= inf is beyond" in err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "gamma,t_round_ms\n", "no row"),
        ("t.csv", "gamma,t_round_ms\n1,10\n1,11\n", "repeats a gamma"),
        ("t.json", '{"1": 10, "1": 11}', "the key 1 occurs more than once"),
        ("t.csv", "gamma,t_round_ms\n1,fast\n", "whole gamma and a number"),
        ("t.csv", "gamma,ms\n1,10\n", "no column 't_round_ms'"),
        ("t.csv", "gamma;t_round_ms\n1;10\n", "no column 'gamma'"),
        ("t.json", '[{"gamma": 1.5, "t_round_ms": 10}]', "whole gamma"),
        ("t.json", '[{"gamma": true, "t_round_ms": 10}]', "whole gamma"),
        ("t.json", '[{"gamma": 1}]', "no column 't_round_ms'"),
        ("t.json", '{"1": NaN}', "nan"),
        *(("t.json", text, "whole gamma and a number") for text in ("3", "null", '"x"', "[1]", "{", "[" * 9999)),
    ],
    ids=lambda value: value[:40],
)
def test_a_broken_table_is_refused(capsys, tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    status, data = gain(capsys, f"table:{tmp_path / name}")
    assert status == 2 and message in data["error"]


COST_RECORD = {"schema": "specgain.cost/1", "t_decode_ms": 1, "source": "x", "gammas": {
    g: {f"t_{part}_ms": 1 for part in ("draft_after_rejection", "draft_after_acceptance", "verify", "other")}
    for g in ("0", "1")
}}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "domains"),
    [
        ({}, []),
        ({}, {"prose": {}}),
        ({}, {"prose": {"agreement": {"weak": [""]}}}),
        ({}, {"prose": {"agreement": {"weak": ["012"]}}}),
        ({"gammas": [1]}, {}),
        ({"t_decode_ms": "1"}, {}),
    ],
)
def test_a_damaged_record_is_bad_input(capsys, tmp_path, change, domains):
    pytest.importorskip("numpy")
    cost, acceptance = tmp_path / "cost.json", tmp_path / "acceptance.json"
    cost.write_text(json.dumps(COST_RECORD | change), encoding="utf-8")
    acceptance.write_text(json.dumps({"schema": "specgain.acceptance/1", "domains": domains}), encoding="utf-8")
    status, data = run_json(capsys, "predict", "--cost", cost, "--acceptance", acceptance, "--gamma", "1")
    assert status == 2 and set(data) == {"error"}


def test_a_missing_option_is_named(capsys):
    status, data = run_json(capsys, "gain", "--a", "0.8")
    assert status == 2 and "--t-decode" in data["error"]


# --- prove ----------------------------------------------------------------------------------------------------------


def test_prove_runs_the_proofs_asked_for(capsys):
    status, data = run_json(capsys, "prove", "P3", "P1")
    assert status == 0
    assert [proof["id"] for proof in data["proofs"]] == ["P3", "P1"]
    assert all(p["status"] == "proved" and p["mutants_rejected"] >= 3 and p["machine_steps"] for p in data["proofs"])
    status, out, _ = run(capsys, "prove", "P3")
    assert status == 0 and "P3  proved" in out


def test_an_unknown_proof_is_bad_input(capsys):
    status, data = run_json(capsys, "prove", "P99")
    assert status == 2 and "P99" in data["error"] and "P1" in data["error"]


@pytest.mark.parametrize(("answers", "status", "marks"), [
    ("X1_base = 0\nX1_step = 1 - s[gamma + 1]", 0, ["right", "right"]),
    ("X1_base = 0\nX1_step = 1 - s[gamma]", 1, ["right", "wrong"]),
])  # fmt: skip
def test_a_readers_answers_are_checked(capsys, tmp_path, answers, status, marks):
    (tmp_path / "answers.txt").write_text(answers, encoding="utf-8")
    result, data = run_json(capsys, "prove", "--student", tmp_path / "answers.txt")
    found = [slot["status"] for slot in data["slots"] if slot["slot"] in {"X1_base", "X1_step"}]
    assert found == marks and (result == 0) == data["passed"]


def test_an_answer_file_starts_from_the_template(capsys, tmp_path):
    status, text, _ = run(capsys, "prove", "--template")
    assert status == 0 and "X1_step = None" in text
    (tmp_path / "answers.txt").write_text(text, encoding="utf-8")
    assert run_json(capsys, "prove", "--student", tmp_path / "answers.txt")[0] == 1  # nothing answered yet


@pytest.mark.parametrize("arguments", [["--student", "x", "--template"], ["P1", "--template"], ["P1", "--student", "x"]])
def test_prove_refuses_two_tasks_at_once(capsys, arguments):
    status, data = run_json(capsys, "prove", *arguments)
    assert status == 2 and "ids of proofs, or --student FILE, or --template" in data["error"]


@pytest.mark.parametrize(
    ("text", "message"), [("import os", "line 1"), ("x = 1", "no slot x"), ("", "answers no slot")]
)
def test_a_file_that_is_no_answer_file_is_bad_input(capsys, tmp_path, text, message):
    (tmp_path / "mine.txt").write_text(text, encoding="utf-8")
    status, data = run_json(capsys, "prove", "--student", tmp_path / "mine.txt")
    assert status == 2 and message in data["error"]


# --- imports and start ----------------------------------------------------------------------------------------------

HEAVY = {"numpy", "scipy", "sympy", "torch", "matplotlib", "IPython"}


@pytest.mark.parametrize("arguments", [["--help"], ["gain", "--a", "0.8", "--t-decode", "9", "--round-cost", CHEAP]])
def test_nothing_heavy_is_imported(arguments):
    """A short start is a matter of imports: none of the heavy ones for help and for `gain`."""
    program = "import sys; from specgain.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stderr.split())
    assert done.stdout


def test_python_m_specgain_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "specgain", "gain", "--json"], capture_output=True, text=True)
    assert done.returncode == 2 and "error" in json.loads(done.stdout)


def test_a_table_of_another_encoding_is_named(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("gamma,t_round_ms,Größe\n1,12.0,3\n".encode("latin-1"))
    with pytest.raises(ValueError, match="latin.csv: every row needs"):
        cli.read_table(path)
