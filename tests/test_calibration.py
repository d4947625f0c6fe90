"""Reliability, calibration error and the repairing map: known cases, other routes, and the recorded draft."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain.calibration import calibration_error, isotonic, reliability

MEASUREMENTS = Path(__file__).parents[1] / "notebooks" / "measurements" / "cpu-2core"
PAIRS = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=7)


def test_a_calibrated_forecast_has_no_error_but_noise():
    rng = np.random.default_rng(1)
    predicted = rng.uniform(size=20_000)
    happened = rng.uniform(size=20_000) < predicted
    assert calibration_error(predicted, happened) < 0.02
    inside = [b.observed.low <= b.predicted <= b.observed.high for b in reliability(predicted, happened)]
    assert sum(inside) >= 8 and len(inside) == 10
    assert calibration_error(predicted**2, happened) == pytest.approx(1 / 6, abs=0.01)  # mean of p − p²


@given(PAIRS, st.integers(1, 12))
def test_bins_hold_every_estimate_once(pairs, bins):
    predicted, happened = zip(*pairs, strict=True)
    found = reliability(predicted, happened, bins)
    assert sum(b.observed.trials for b in found) == len(pairs)
    assert sum(b.observed.trials * b.observed.value for b in found) == pytest.approx(sum(happened))
    assert all(b.low <= b.predicted <= b.high for b in found)
    assert 0 <= calibration_error(predicted, happened, bins) <= 1


@given(PAIRS)
def test_the_rising_map_fits_best_of_all(pairs):
    """Against every way to cut the sorted estimates into blocks whose means rise."""
    predicted, happened = zip(*pairs, strict=True)
    chance, levels = isotonic(predicted, happened), sorted(set(predicted))
    error = lambda f: sum((f(p) - h) ** 2 for p, h in pairs)  # noqa: E731
    values = [chance(p) for p in levels]
    assert values == sorted(values)
    best = min(
        error(dict(zip(levels, fit, strict=True)).__getitem__)
        for n in range(len(levels))
        for cuts in combinations(range(1, len(levels)), n)
        for fit in [blockwise(levels, cuts, pairs)]
        if fit == sorted(fit)
    )
    assert error(chance) == pytest.approx(best, abs=1e-12)


def blockwise(levels, cuts, pairs):
    found = []
    for first, last in zip((0, *cuts), (*cuts, len(levels)), strict=True):
        hits = [h for p, h in pairs if p in levels[first:last]]
        found += [sum(hits) / len(hits)] * (last - first)
    return found


@pytest.mark.claims("C3.4")
@pytest.mark.parametrize("draft", ["weak", "strong"])
def test_the_recorded_drafts_are_too_sure_or_too_shy_and_a_map_repairs_it(draft):
    """Fitted on every second prompt, judged on the others."""
    record = json.loads((MEASUREMENTS / "drafted.json").read_text(encoding="utf-8"))
    halves = []
    for half in (0, 1):
        rows = [row for entry in record["domains"].values() for row in entry[draft][half::2]]
        step = 2 * record["setup"]["longest"]
        predicted = [
            int(row["confidence"][t : t + 2]) / 100 for row in rows for t in range(0, len(row["confidence"]), step)
        ]
        halves.append((predicted, [place == "0" for row in rows for place in row["ranks"]]))
    chance = isotonic(*halves[0])
    predicted, happened = halves[1]
    assert calibration_error([chance(p) for p in predicted], happened) < 0.05 < calibration_error(predicted, happened)


def test_the_record_is_of_the_same_pair_and_texts_as_the_round_timing():
    drafted, timing = (json.loads((MEASUREMENTS / f"{name}.json").read_text()) for name in ("drafted", "round-timing"))
    again = "record it again: python -m specgain.lab.drafted notebooks/measurements/cpu-2core/drafted.json"
    for domain, entry in drafted["domains"].items():
        for draft, rows in entry.items():
            agreements = timing["acceptance"]["domains"][domain]["agreement"][draft]
            for row, text in zip(rows, agreements, strict=False):
                assert "".join("01"[place == "0"] for place in row["ranks"]) == text, again


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reliability([0.5], [1, 0]), "1 entries and happened 2"),
        (lambda: reliability([], []), "at least one"),
        (lambda: reliability([1.5], [1]), "predicted = 1.5"),
        (lambda: reliability([0.5], [1], bins=0), "bins = 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
