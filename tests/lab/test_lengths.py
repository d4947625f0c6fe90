"""The live measurement of lengths on a random tiny pair: every cell is there, and what it counts is right; no clock."""

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from specgain.lab import lengths
from specgain.lab.lengths import StepCost, Varied, compare, make_plan, shares
from specgain.lab.loop import Round, Run
from specgain.lab.pair import load_pair
from specgain.records.measured import problems

MEASURED = Path(__file__).parents[2] / "notebooks" / "measurements" / "cpu-2core" / "lengths.json"

RULES = ("moving average", "step rule", "budget", "stop by probability")
LOADS = {"both": ("json", "viet"), "json": ("json",)}
SMALL = {"rows": (1, 2), "fixed": (0, 1, 3), "adaptive": RULES, "loads": LOADS, "requests": 4, "uniform_requests": 3,
         "new_tokens": 14, "cost_rows": 3, "turn": 4, "repeats": 2}  # fmt: skip


@pytest.fixture(scope="module")
def measured(tiny_pair):
    return lengths.lengths(make_plan(tiny_pair.weights_hash, **SMALL), tiny_pair)


def test_every_planned_cell_is_measured_and_no_text_differs(measured):
    assert json.dumps(measured, allow_nan=False) and problems(measured) == []
    names = ("rows", "load", "arm")
    assert [[c[n] for n in names] for c in measured["cells"]] == [
        [c[n] for n in names] for c in measured["plan"]["cells"]
    ]
    assert measured["different_output"] == [] and [c["rows"] for c in measured["cost"]] == [1, 2]
    assert all(len(cell["ratio_by_repeat"]) == 2 for cell in measured["cells"])


def test_every_load_has_one_best_fixed_length(measured):
    for cell in measured["cells"]:
        assert cell["interval"][0] <= cell["ratio"] <= cell["interval"][1]
        assert cell["ratio"] == pytest.approx(1 / (1 + cell["regret_percent"] / 100))
        assert cell["adaptive"] or cell["ratio"] <= 1
    best = [c for c in measured["cells"] if c["arm"] == c["best_fixed"]]
    assert len(best) == 4 and all(c["ratio"] == 1 and c["interval"] == [1, 1] for c in best)
    plain = next(c for c in measured["cells"] if c["arm"] == "γ = 0")
    assert plain["committed_length"] == 1 and plain["drafted_per_round"] == 0


def test_the_summary_says_the_worst_and_the_best(measured):
    assert list(measured["summary"]) == list(RULES)
    for arm, kinds in measured["summary"].items():
        for kind, mixed in (("mixed", True), ("uniform", False)):
            own = [c for c in measured["cells"] if c["arm"] == arm and c["mixed"] == mixed]
            assert kinds[kind]["least"] == min(c["ratio"] for c in own) and len(own) == 2
            assert kinds[kind]["least_low"] == min(c["interval"][0] for c in own)


def test_a_plan_for_other_weights_is_refused(tiny_pair):
    with pytest.raises(ValueError, match="make it anew"):
        lengths.lengths(make_plan("0" * 16, **SMALL), tiny_pair)


def one_round(requests, drafted, seconds, t_draft=0.0):
    committed = [d + 1 for d in drafted]
    return Round(requests, drafted, [0] * len(drafted), committed, t_draft, seconds - t_draft, 0.0)


def test_the_cost_of_a_step_is_found_from_rounds_of_equal_and_of_unequal_lengths():
    """Equal rows are 0.4 s below the line of the unequal ones where each has two candidates: the two are told apart."""
    equal = (4.0, 6.5, 7.7, 8.9, 10.3)
    true = StepCost(3, equal, 5.0, 0.7, 0.2, 1.5)
    varied = Varied(4, 1)
    drafted = [[0, 0, 0], [1, 1, 1], [2, 2, 2], [4, 4, 4], *(varied.gammas(3, [0, 1, 2]) for _ in range(60))]
    drafted = [d for d in drafted if d != [3, 3, 3]]
    rounds = [
        one_round([0, 1, 2], d, float(true.step(max(d), 3 + sum(d))), 1.5 + 0.1 * max(d) + 0.05 * sum(d) if any(d) else 0.0)
        for d in drafted
    ]
    rounds.append(one_round([0, 1], [4, 4], 99.0))  # an emptying batch does not count
    found = StepCost.fit(rounds, 3)
    assert found.equal == pytest.approx((4.0, 6.5, 7.7, 9.0, 10.3))  # 3 was not tried: halfway between 2 and 4
    assert list(asdict(found).values())[2:] == pytest.approx([5.0, 0.7, 0.2, 1.5, 0.0])
    assert found.round(2, 3) == found.step(2, 9) == equal[2] and found.round(0, 3) == found.step(0, 3) == 4.0
    assert found.step(2, 8) == pytest.approx(5.0 + 2 * 0.7 + 8 * 0.2)  # rows of unequal width
    assert found.step(np.array([[1], [2]]), np.array([6, 9])) == pytest.approx(np.array([[6.5, 7.5], [7.6, 7.7]]))
    assert {max(d) for d in drafted} == {0, 1, 2, 3, 4} and len(set(map(tuple, drafted))) > 20


def test_the_price_of_choosing_is_the_median_over_choices(monkeypatch):
    pair, asked, now = load_pair(["multi"]), [], iter(range(10**6))
    draft = SimpleNamespace(share=lambda entries, wanted, *rest: asked.append((entries.shape, wanted)))
    monkeypatch.setattr(
        lengths, "perf_counter", lambda: next(now) ** 2
    )  # the n-th choice takes 4 n + 1 of these seconds
    assert lengths.measure_choice(pair, draft, 3, times=5) == 9
    assert asked == [((3, pair.target.config.width), [8] * 3)] * 5


def test_a_price_below_nothing_is_nothing():
    drafted = [[0, 0], [1, 1], [2, 2], [0, 2], [1, 0], [2, 1], [0, 1]]
    rounds = [one_round([0, 1], d, 4.0 if not any(d) else 5.0 + max(d) - 0.1 * sum(d)) for d in drafted]
    found = StepCost.fit(rounds, 2)
    assert found.per_position == 0 and found.base == pytest.approx(5.05) and found.per_pass == pytest.approx(0.85)


def test_a_row_alone_is_never_unequal():
    rounds = [one_round([0], [d], 4.0 if d == 0 else 5.0 + 0.9 * d, 0.5 * d) for d in (0, 1, 2, 3, 4)]
    found = StepCost.fit(rounds, 1)
    assert found.equal == pytest.approx((4.0, 5.9, 6.8, 7.7, 8.6)) and found.round(3, 1) == found.step(3, 4)
    assert [found.base, found.per_pass, found.per_position] == pytest.approx([5.0, 0.9, 0.0])  # the line of all rounds


@pytest.mark.claims("C3.4")
def test_a_head_that_drafts_in_one_pass_is_measured_with_its_budget():
    pair, arms = load_pair(["multi"]), ["γ = 0", "γ = 2", "γ = 8", "budget", "budget by head"]
    plan = make_plan(pair.weights_hash, "multi", (3,), (0, 2, 8), arms[3:], {"both": ("json", "prose")}, 4, 3, 16, 2, 4)
    found = lengths.lengths(plan, pair)
    assert [cell["arm"] for cell in found["cells"]] == arms and found["different_output"] == []
    head = found["cells"][-1]
    assert head["adaptive"] and 0 < head["drafted_per_round"] < 8


def test_a_request_pays_its_share_of_full_passes():
    run = Run([], [one_round([0, 1], [1, 3], 2.0), one_round([0, 2], [0, 0], 1.0), one_round([2], [5], 9.0)])
    assert shares(run, 2, 2).tolist() == [[3.0, 1.5], [4.0, 1.0]]


def test_the_best_fixed_length_is_the_yardstick():
    rng = np.random.default_rng(1)
    seconds = rng.uniform(0.9, 1.1, 40)
    totals = {"γ = 0": np.stack([np.ones(40), seconds], 1)[None], "γ = 2": np.stack([np.ones(40), seconds / 1.25], 1)[None],
              "step rule": np.stack([np.ones(40), seconds / 1.5], 1)[None]}  # fmt: skip
    plain, fixed, rule = compare(totals, (0, 2))
    assert {c["best_fixed"] for c in (plain, fixed, rule)} == {"γ = 2"}
    assert rule["ratio"] == pytest.approx(1.2) and rule["interval"] == pytest.approx([1.2, 1.2])
    assert plain["ratio"] == pytest.approx(0.8) and plain["regret_percent"] == pytest.approx(25)
    assert plain["selection_percent"] == rule["selection_percent"] == 0  # γ = 2 is the best of every resample


def test_what_differs_from_repeat_to_repeat_widens_the_interval():
    """The rule is 10 % faster, in one repeat 14 % and in another 6 %, with all requests alike."""
    seconds = np.stack([np.ones((3, 20)), np.outer([1.0, 1.04, 0.96], np.ones(20))], axis=2)
    steady = np.ones((3, 20, 2)) * [1.0, 1.1]
    rule = next(c for c in compare({"γ = 0": steady, "rule": seconds}, (0,)) if c["arm"] == "rule")
    assert rule["ratio"] == pytest.approx(1.1) and rule["ratio_by_repeat"] == pytest.approx(
        [1.1, 1.1 / 1.04, 1.1 / 0.96]
    )
    assert rule["interval"][0] < 1.08 and rule["interval"][1] > 1.12


def test_the_best_of_equals_owes_something_to_luck():
    """Four lengths of one speed and 5 % of noise per request: the best of 40 requests each leads by its luck alone."""
    rng, leads, owed = np.random.default_rng(3), [], []
    for _ in range(60):
        totals = {f"γ = {g}": np.stack([np.ones(40), rng.normal(1.0, 0.05, 40)], 1)[None] for g in range(4)}
        cells = compare(totals, range(4))
        leads.append(100 * max(cell["tokens_per_s"] for cell in cells) - 100)
        owed.append(cells[0]["selection_percent"])
    assert np.mean(leads) == pytest.approx(0.82, abs=0.2)  # 1.03 standard errors of 0.79 %
    assert 0.25 < np.mean(owed) / np.mean(leads) < 1


@pytest.mark.claims("C3.4", "C3.5")
def test_what_the_chapter_says_about_the_committed_measurement():
    """No rule reaches the best fixed length, the budget is the closest; passes are dear, and unequal rows save little."""
    record = json.loads(MEASURED.read_text(encoding="utf-8"))
    assert record["plan"] == json.loads(MEASURED.with_name("lengths-plan.json").read_text(encoding="utf-8"))
    assert problems(record) == [] and record["different_output"] == []
    assert all(cell["ratio"] < 1 for cell in record["cells"] if cell["adaptive"])
    for kind in ("mixed", "uniform"):
        for end in ("least", "most"):
            assert max(record["summary"], key=lambda arm: record["summary"][arm][kind][end]) == "budget"
    few, many = record["cost"]
    assert all(0 < cost["per_position_ms"] < cost["per_pass_ms"] / 10 for cost in (few, many))
    named = {(c["rows"], c["load"], c["arm"]): c for c in record["cells"]}
    budget, fixed = named[4, "json", "budget"], named[4, "json", "γ = 3"]
    assert budget["best_fixed"] == "γ = 3" and budget["t_round_ms"] > fixed["t_round_ms"]
    assert budget["drafted_per_round"] == pytest.approx(fixed["drafted_per_round"], rel=0.08)
    assert budget["committed_length"] == pytest.approx(fixed["committed_length"], rel=0.03)


@pytest.mark.claims("C3.4", "C3.5")
def test_what_the_chapter_says_about_a_draft_of_one_pass():
    """The budget by head wins on eight of nine mixed loads, loses at most 1 % on one kind, and beats the one by history."""
    path = MEASURED.with_name("lengths-block.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["plan"] == json.loads(path.with_name("lengths-block-plan.json").read_text(encoding="utf-8"))
    assert problems(record) == [] and record["different_output"] == []
    named = {(c["rows"], c["load"], c["arm"]): c for c in record["cells"]}
    by_head = [cell for cell in record["cells"] if cell["arm"] == "budget by head"]
    mixed = [cell for cell in by_head if cell["mixed"]]
    assert sum(cell["ratio"] > 1 for cell in mixed) == 8 and sum(cell["interval"][0] > 1 for cell in mixed) == 7
    worst = min(mixed, key=lambda cell: cell["ratio"])
    assert (worst["rows"], worst["load"]) == (16, "func and prose") and worst["ratio"] > 0.98 and worst["interval"][1] > 1
    assert min(cell["ratio"] for cell in by_head if not cell["mixed"]) > 0.985
    assert all(cell["ratio"] > named[cell["rows"], cell["load"], "budget"]["ratio"] for cell in by_head)
    assert all(0 <= cell["selection_percent"] < 2 for cell in by_head)
    assert record["plan"]["stagger"] > 0  # the rows of every arm are out of step
    for cost in record["cost"]:
        assert 0.05 < cost["t_choose_ms"] < cost["t_ask_ms"] < 1
        for gamma in record["plan"]["fixed"][1:]:
            positions = cost["rows"] * (gamma + 1)
            line = cost["base_ms"] + gamma * cost["per_pass_ms"] + positions * cost["per_position_ms"]
            assert 1 < line / cost["equal_ms"][gamma] < 1.1  # equal rows cost less than the line of the unequal ones
