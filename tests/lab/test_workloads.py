"""The committed workload measurement: every number in it follows from the texts in it, and says what chapter 4 says."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
RESULT = json.loads((ROOT / "notebooks/measurements/cpu-2core/workloads.json").read_text(encoding="utf-8"))
PLAN = json.loads((ROOT / "notebooks/measurements/cpu-2core/workloads-plan.json").read_text(encoding="utf-8"))
CELLS = RESULT["cells"]


@pytest.fixture(scope="module")
def tool():
    import measure_workloads

    return measure_workloads


def cell(kind, temperature=0.0, draft="lookup", gamma=8):
    wanted = {"kind": kind, "temperature": temperature, "draft": draft, "gamma": gamma}
    (found,) = (c for c in CELLS if wanted.items() <= c.items())
    return found


def new(kind, temperature):
    return np.mean([text["distinct_4grams"] for text in RESULT["texts"][temperature][kind]])


def test_the_measurement_is_the_planned_one(tool):
    assert RESULT["plan"] == PLAN == tool.make_plan()
    names = ("kind", "temperature", "draft", "gamma")
    assert [{name: c[name] for name in names} for c in CELLS] == PLAN["cells"]
    assert all(len(texts) == PLAN["prompts"] for kinds in RESULT["texts"].values() for texts in kinds.values())


@pytest.mark.parametrize("number", range(0, 108, 5))
def test_rounds_follow_from_the_texts(tool, number):
    """Every fifth cell is replayed from the stored token ids (all of them take half a minute)."""
    stored = CELLS[number]
    texts = RESULT["texts"][f"{stored['temperature']:g}"][stored["kind"]]
    rounds = tool.rounds_of(texts, stored["draft"], stored["gamma"], RESULT["vocab"], PLAN["new_tokens"])
    assert stored == {name: stored[name] for name in ("kind", "temperature", "draft", "gamma")} | tool.cell_of(
        texts, rounds, stored["gamma"]
    )


def test_the_shares_of_new_text_are_those_of_the_tokens(tool):
    for kinds in RESULT["texts"].values():
        for texts in kinds.values():
            for text in texts:
                assert text["distinct_4grams"] == (
                    tool.distinct_ngrams(text["tokens"]) if len(text["tokens"]) > 3 else 1
                )


@pytest.mark.claims("C4.3")
def test_random_prompts_flatter_and_hide():
    """What the scene of chapter 4 says, and why."""
    greedy = {kind: cell(kind)["committed_length"] for kind in ("copy", "edit", "extract", "chat", "random")}
    assert max(greedy, key=greedy.get) == "random" and new("random", "0") < 0.2 < 0.6 < new("extract", "0")
    hot = {kind: cell(kind, 1.0)["committed_length"] for kind in greedy}
    assert hot["random"] < 1.1 and min(hot, key=hot.get) == "random" and new("random", "1") > 0.9
    assert min(greedy[kind] for kind in ("copy", "edit", "extract")) > hot["random"] + 0.5


@pytest.mark.claims("C4.1", "C4.2")
def test_what_the_prose_says_about_the_kinds():
    copies = cell("copy")["by_request"]
    assert max(copies) > 2 * min(copies)  # "more than twice as good"
    edits = cell("edit")["by_request"]
    assert max(edits) > 2 * min(edits)  # the quiz: "differ by more than a factor of two"
    assert cell("copy")["committed_length"] > cell("chat")["committed_length"] + 1
    assert new("agent", "0") < 0.3 < 0.9 < new("agent", "1")  # the circle is greedy's
    for kind in ("edit", "extract"):
        cold, warm = (cell(kind, draft=f"suffix, {state}")["committed_length"] for state in ("cold", "warm"))
        assert warm > 1.2 * cold
    lone = cell("chat")
    assert (
        lone["rounds_without_draft"] / lone["rounds"]
        > 2 * cell("copy")["rounds_without_draft"] / cell("copy")["rounds"]
    )
    assert (
        "return [" in RESULT["texts"]["0"]["copy"][0]["text"]
        and "open(path)" not in RESULT["texts"]["0"]["copy"][0]["text"]
    )


@pytest.mark.claims("C4.2")
def test_what_the_prose_says_about_temperature():
    table = RESULT["sampling"]["first_acceptance"]
    for draft in ("weak", "middle", "strong"):
        records, code = table["json"][draft], table["stdlib"][draft]
        assert records["T = 0"] > records["T = 1"] > records["T = 1.5"]
        assert code["T = 0"] < code["T = 1"] < code["T = 1.5"]
    assert table["stdlib"]["lookup"]["T = 0"] > 0.5 > 0.1 > table["stdlib"]["lookup"]["T = 1.5"]
    assert all(table[d]["strong"]["T = 1"] > table[d]["weak"]["T = 1"] for d in table)  # training is a match
