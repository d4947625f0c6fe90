"""The committed workload measurement: every number in it follows from the texts in it, and says what chapter 4 says."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
RESULT = json.loads((ROOT / "notebooks/measurements/cpu-2core/workloads.json").read_text(encoding="utf-8"))
TIMED = json.loads((ROOT / "notebooks/measurements/cpu-2core/workloads-time.json").read_text(encoding="utf-8"))
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
    assert cell("agent", 1.0)["committed_length"] < 1.2  # "next to nothing is left"
    for kind in ("edit", "extract"):
        cold, warm = (cell(kind, draft=f"suffix, {state}")["committed_length"] for state in ("cold", "warm"))
        assert warm > 1.2 * cold
    states = {
        k: [cell(k, draft=f"suffix, {state}")["committed_length"] for state in ("cold", "warm")] for k in PLAN["kinds"]
    }
    assert max(states, key=lambda kind: states[kind][1] / states[kind][0]) == "extract"  # "gains most"
    assert all(states[kind][1] < 1.05 * states[kind][0] for kind in ("copy", "chat"))
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
def test_four_prompts_carry_worst_where_one_of_the_judged_did_not_loop():
    worst = {}
    for kind in PLAN["kinds"]:
        tokens, lengths = [len(t["tokens"]) for t in RESULT["texts"]["0"][kind]], cell(kind)["by_request"]
        rounds = [t / e for t, e in zip(tokens, lengths, strict=True)]
        told, counted = (sum(tokens[half]) / sum(rounds[half]) for half in (slice(4), slice(4, 8)))
        worst[kind] = abs(told / counted - 1), max(rounds[4:]) / sum(rounds[4:])
    assert sorted(worst, key=worst.get)[-2:] == ["agent", "random"] and worst["agent"][0] > 0.5
    assert all(worst[kind][1] > 0.45 for kind in ("agent", "random"))  # "holds half of the rounds or more"


def test_two_copies_were_made():
    """Top right in the figure: all new, and every line of the code stands in the prompt."""
    import workloads

    texts, prompts = RESULT["texts"]["0"]["copy"], workloads.prompts("copy")
    high = [i for i, t in enumerate(texts) if t["distinct_4grams"] == 1 and cell("copy")["by_request"][i] > 5]
    assert len(high) == 2
    for i in high:
        code = texts[i]["text"].split("```python\n")[1].split("```")[0]
        assert (
            set(code.splitlines()) <= set(prompts[i].splitlines())
            and code.strip() != prompts[i].split("```python\n")[1]
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
    for domain, sign in (("json", 1), ("prose", -1)):  # "up on the records, down on prose"
        strong = [table[domain]["strong"][f"T = 1{cut}"] for cut in ("", ", top-p 0.9", ", top-p 0.5")]
        assert sign * strong[0] < min(sign * s for s in strong[1:])
    assert table["prose"]["lookup"]["T = 1"] < 0.2 < 0.6 < table["prose"]["strong"]["T = 1"]


# --- time ----------------------------------------------------------------------------------------------------------

SECONDS = {0: 0.010, 1: 0.011, 2: 0.012, 4: 0.013, 8: 0.016}  # of a round by its width, in every arm


def decoded(tokens, rounds):
    """An output whose rounds (drafted, accepted) take SECONDS, a third of it in each phase."""
    third = [SECONDS[drafted] / 3 for drafted, _ in rounds]
    log = SimpleNamespace(
        drafted=[drafted for drafted, _ in rounds], t_draft=third, t_verify=third, t_other=third, rounds=len(rounds),
        tokens=len(tokens), time=3 * sum(third),
    )  # fmt: skip
    return SimpleNamespace(tokens=tokens, log=log)


def test_with_known_round_times_the_predicted_speedup_is_the_measured_one(tool):
    texts = RESULT["texts"]["0"]["copy"][:3]
    logs = {("copy", "plain", 0): {}, ("copy", "lookup", 2): {}}
    for i, text in enumerate(texts):
        steps = decoded(text["tokens"], [(0, 0)] * len(text["tokens"]))
        rounds = [(min(d, 2), k) for d, k in tool.rounds_of([text], "lookup", 2, RESULT["vocab"], 128)[0]]
        logs["copy", "plain", 0][i] = [(text["prompt"], steps)] * 2
        logs["copy", "lookup", 2][i] = [(text["prompt"], decoded(text["tokens"], rounds))] * 2
    cost = tool.cost_of({arm: [o.log for _, o in runs[0]] for arm, runs in logs.items()})
    assert next(iter(cost)) == "plain" and {"0", "2"} <= set(cost) <= {"plain", "0", "1", "2"}
    for width, row in cost.items():
        parts = sum(row[f"t_{part}_ms"] for part in ("draft", "verify", "other"))
        assert parts == pytest.approx(1e3 * SECONDS[0 if width == "plain" else int(width)])
    cell = tool.timed_cell(logs, {"kind": "copy", "draft": "lookup", "gamma": 2}, cost, RESULT["vocab"], 128)
    assert cell["predicted_speedup"] == pytest.approx(cell["measured_speedup"]) and cell["different_outputs"] == 0
    judged = [o.log for i in (1, 2) for _, o in logs["copy", "lookup", 2][i]]
    assert cell["committed_length"] == sum(log.tokens for log in judged) / sum(log.rounds for log in judged)
    low, high = cell["measured_interval"]
    assert low <= cell["measured_speedup"] <= high


def test_the_timed_cells_are_the_planned_ones():
    names = ("kind", "temperature", "draft", "gamma")
    assert [{name: c[name] for name in names} for c in TIMED["cells"]] == PLAN["timed_cells"]
    best = {(c["kind"], c["draft"], c["gamma"]): c["measured_speedup"] for c in TIMED["cells"]}
    assert (
        max(best, key=best.get) == ("random", "lookup", 8) and min(best.values()) > 1
    )  # what the chapter says of them
    price = {width: sum(t for name, t in row.items() if name != "rounds") for width, row in TIMED["cost"].items()}
    assert price["8"] < 1.3 * price["plain"]  # "nine positions cost this processor little more than one"
    for c in TIMED["cells"]:
        assert c["measured_speedup"] == pytest.approx(sum(c["plain_ms"]) / sum(c["speculative_ms"]))
