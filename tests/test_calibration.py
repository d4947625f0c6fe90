"""Reliability, calibration error and the repairing map: known cases, other routes, and the recorded draft."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain.calibration import brier_score, calibration_error, isotonic, reliability
from specgain.lab.recorded import recorded

PAIRS = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=7)


def test_a_calibrated_forecast_has_no_error_but_noise():
    rng = np.random.default_rng(1)
    predicted = rng.uniform(size=20_000)
    happened = rng.uniform(size=20_000) < predicted
    assert calibration_error(predicted, happened) < 0.02
    inside = [b.observed.low <= b.predicted <= b.observed.high for b in reliability(predicted, happened)]
    assert sum(inside) >= 8 and len(inside) == 10
    assert calibration_error(predicted**2, happened) == pytest.approx(1 / 6, abs=0.01)  # mean of p − p²


def test_the_brier_score_asks_more_than_calibration():
    """A forecast that always says the mean is calibrated, and worse than one that knows."""
    rng = np.random.default_rng(2)
    knows = rng.uniform(size=20_000)
    happened = rng.uniform(size=20_000) < knows
    mean = np.full(20_000, happened.mean())
    assert calibration_error(mean, happened) < 0.01
    assert brier_score(knows, happened) == pytest.approx(1 / 6, abs=0.01)  # mean of p·(1 − p)
    assert brier_score(mean, happened) == pytest.approx(1 / 4, abs=0.01)


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
    halves = []
    for half in (0, 1):
        prompts = recorded(draft, ("json", "func", "viet", "stdlib", "prose"), half, sure=True).values()
        sure = [row[0] for one in prompts for row in one.confidences]
        halves.append((sure, [rank == 0 for one in prompts for rank in one.ranks]))
    chance = isotonic(*halves[0])
    predicted, happened = halves[1]
    assert calibration_error([chance(p) for p in predicted], happened) < 0.05 < calibration_error(predicted, happened)


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
