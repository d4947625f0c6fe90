"""The audit: what it finds in published tables, and that rounding alone never makes it cry foul."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specgain.acceptance import committed_length_constant
from specgain.audit import Band, audit, audit_file, audit_rows, check_mean, printed
from specgain.records.source import RecordError

PUBLISHED = Path(__file__).resolve().parent / "data" / "published"


def table(name):
    with open(PUBLISHED / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def verdicts(name):
    return [one.verdict for one in audit_rows(table(name))]


def test_leviathan_table_1_all_twelve_numbers_fit():
    found = audit_rows(table("leviathan2023_table1_ops_vs_speed"))
    assert [[rule for rule, ok, _ in one.findings if ok] for one in found] == [["operations", "model"]] * 6


def test_leviathan_table_4_all_twelve_predictions_fit_once_inputs_are_intervals():
    rows = table("leviathan2023_table4_expected_vs_measured")
    found = audit_rows(rows)
    assert all(ok for one in found for rule, ok, _ in one.findings if rule == "model")
    plugged_in = [
        round(committed_length_constant(float(r["alpha"]), int(r["gamma"])) / (int(r["gamma"]) * float(r["c"]) + 1), 1)
        for r in rows
    ]
    assert sum(a == float(r["speedup_expected_printed"]) for a, r in zip(plugged_in, rows, strict=True)) == 9


def test_leviathan_table_4_three_rows_beat_a_free_verification():
    """Their measured speedup needs a round cheaper than a plain step, whatever the rounding."""
    rows = table("leviathan2023_table4_expected_vs_measured")
    odd = [
        f"{r['task']} {r['draft']} T={r['temp']}" for r, one in zip(rows, audit_rows(rows), strict=True) if one.baseline
    ]
    assert odd == ["CNNDM T5-small T=0", "CNNDM T5-small T=1", "CNNDM T5-base T=1"]


def test_chen_table_1_one_printed_speedup_is_not_the_ratio_of_the_printed_times():
    rows = table("chen2023_table1")
    found = [
        audit(plain=plain["ms_per_token"], spec=spec["ms_per_token"], speedup=spec["speedup_printed"])
        for plain, spec in zip(rows[::2], rows[1::2], strict=True)
    ]
    assert [one.verdict for one in found] == ["impossible", "consistent", "consistent"]
    assert "1.867…1.883" in found[0].findings[0][2]


def test_eagle3_table_1_one_speedup_above_tau_and_two_means_that_are_none():
    rows = table("eagle3_table1")
    flagged = [r for r, one in zip(rows, audit_rows(rows), strict=True) if one.verdict != "consistent"]
    assert [(r["target"], r["method"], r["task"]) for r in flagged] == [("DSL-8B", "EAGLE-2", "CNN/DM")]
    groups = [rows[i : i + 6] for i in range(0, len(rows), 6)]
    wrong = [
        (group[0]["target"], group[0]["method"], group[0]["temp"])
        for group in groups
        for key in ("speedup_printed", "tau_printed")
        if not check_mean([row[key] for row in group[:5]], group[5][key])
    ]
    assert wrong == [("L33-70B", "EAGLE-3", "0"), ("L31-8B", "EAGLE-3", "1")]


def test_tables_without_a_flag():
    assert verdicts("specbench_leaderboard") == ["consistent"] * 41
    assert verdicts("inventivehq_draft_size_sweep") == ["consistent"] * 3
    assert verdicts("chapter8_worked_example") == ["consistent"] * 4


def test_which_rate_was_meant():
    pooled = audit(alpha="0.42", gamma=8, tau="4.33")
    assert pooled.readings == ["accepted over drafted tokens"]
    assert audit(alpha="0.80", gamma=8, tau="4.33").readings == ["conditional acceptance, the same at every position"]
    assert audit(alpha="0.48", gamma=8, tau="4.33").readings == ["tokens per round over γ + 1"]
    assert audit(alpha="0.60", gamma=8, tau="4.33").verdict == "impossible"


@pytest.mark.parametrize(
    ("numbers", "verdict"),
    [
        ({"tau": "5.2", "gamma": 4}, "impossible"),  # at most γ + 1
        ({"tau": "0.9", "gamma": 4}, "impossible"),
        ({"tau": "3.33", "speedup": "3.53"}, "not-against-this-baseline"),
        ({"tau": "3.33", "speedup": "3.33"}, "consistent"),
        ({"alpha": "0.8", "gamma": 4, "c": "0.05", "expected": "4.9"}, "impossible"),
        ({"alpha": "1.2", "gamma": 4, "tau": "3"}, "impossible"),
        ({"alpha": "0.80", "gamma": 5, "c": 0, "operations": "1.63"}, "consistent"),  # 6/E = 1.626, a free draft
        ({"alpha": "0.80", "gamma": 5, "c": 0, "operations": "1.76"}, "impossible"),
        ({"alpha": "0.80", "gamma": 5, "c": "0.1", "operations": "1.76"}, "consistent"),  # the draft computes as well
        ({"alpha": "0.80", "gamma": 5, "c": "0.1", "operations": "1.40"}, "impossible"),
        ({"alpha": "0.8"}, "cannot-tell"),
        ({"plain": "31.3", "spec": "52.9", "speedup": "1.69", "per": "tok/s"}, "consistent"),
    ],
)
def test_verdicts(numbers, verdict):
    found = audit(**numbers)
    assert found.verdict == verdict
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize("bad", ["nan", "inf", "1e400", "", "0,75", "three", "1" * 50, True, None, [1]])
def test_what_is_no_printed_number(bad):
    with pytest.raises(RecordError, match="not a number as a table prints it|value = "):
        printed(bad)


def test_unit_of_a_ratio():
    with pytest.raises(RecordError, match="per = 's' is not known"):
        audit(plain="31.3", spec="52.9", speedup="1.69", per="s")


def test_printed_precision_is_kept():
    assert printed("0.80") == pytest.approx((0.795, 0.805)) and printed("0.8") == pytest.approx((0.75, 0.85))
    assert printed("62%") == pytest.approx((0.615, 0.625)) and printed("1.92x") == pytest.approx((1.915, 1.925))
    assert printed(".80") == printed("0.80") and printed("-.5x") == printed("-0.5") and printed("3.") == printed("3")
    assert printed(5) == Band(5, 5) and printed("0.8", decimals=2) == pytest.approx((0.795, 0.805))


def test_files(tmp_path):
    found = audit_file(PUBLISHED / "eagle3_table1.csv")
    assert found["counts"] == {"consistent": 143, "not-against-this-baseline": 1}
    bad = tmp_path / "bad.csv"
    bad.write_text("alpha,gamma\n0.8\n")
    with pytest.raises(RecordError, match="row 2 has 1 columns"):
        audit_file(bad)
    bad.write_text("x,y\n1,2\n")
    with pytest.raises(RecordError, match="none of the columns is known"):
        audit_file(bad)


@given(st.floats(0.0, 1.0), st.integers(1, 20), st.floats(0.0, 0.5), st.integers(1, 3), st.floats(1.0, 3.0))
def test_rounding_alone_is_never_called_impossible(a, gamma, c, digits, cost):
    """Soundness: numbers made by the model and then rounded are consistent, whatever their precision."""
    length = committed_length_constant(a, gamma)
    speedup = length / (gamma * c + 1)
    measured = length / cost
    assume(min(speedup, measured) > 0.6 * 10**-digits)

    def text(value):
        return f"{value:.{digits}f}"

    model = audit(alpha=text(a), gamma=gamma, c=text(c), expected=text(speedup), operations=text((gamma + 1) / length))
    assert model.verdict == "consistent"
    rate = audit(alpha=text(a), gamma=gamma, tau=text(length), speedup=text(measured))
    assert rate.verdict == "consistent" and "conditional acceptance, the same at every position" in rate.readings
    pooled = audit(alpha=text((length - 1) / gamma), gamma=gamma, tau=text(length))
    assert "accepted over drafted tokens" in pooled.readings
