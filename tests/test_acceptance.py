"""Acceptance: every formula against exhaustive enumeration with exact fractions, and the errors for bad input."""

import copy
import math
import pickle
import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from specgain import acceptance
from specgain.acceptance import Acceptance, estimate

probabilities = st.fractions(0, 1, max_denominator=20)
laws = st.lists(probabilities, min_size=1, max_size=6)


def enumerate_rounds(a):
    """Return {k: probability} by walking through every accept/reject pattern: an independent definition of K."""
    outcome = {k: Fraction(0) for k in range(len(a) + 1)}
    for pattern in product([True, False], repeat=len(a)):
        weight = math.prod((p if hit else 1 - p for p, hit in zip(a, pattern, strict=True)), start=Fraction(1))
        k = next((i for i, hit in enumerate(pattern) if not hit), len(a))
        outcome[k] += weight
    return outcome


@pytest.mark.claims("C2.1", "C2.2")
@given(laws)
def test_formulas_equal_enumeration_exactly(a):
    law = enumerate_rounds(a)
    mean = sum(k * p for k, p in law.items())
    assert acceptance.pmf(a) == tuple(law[k] for k in range(len(a) + 1))
    assert acceptance.survival(a) == tuple(sum(law[k] for k in range(i, len(a) + 1)) for i in range(1, len(a) + 1))
    assert acceptance.committed_length(a) == 1 + mean
    assert acceptance.variance(a) == sum(k * k * p for k, p in law.items()) - mean**2


@pytest.mark.claims("C2.3", "C8.2")
@given(probabilities, st.integers(0, 12))
def test_closed_form_equals_chain_rule_exactly(a, gamma):
    law = Acceptance.constant(a)
    expected = 1 + sum(a**i for i in range(1, gamma + 1))
    assert law.committed_length(gamma) == expected
    assert acceptance.variance_constant(a, gamma) == law.variance(gamma)


@pytest.mark.claims("C8.2")
@pytest.mark.parametrize("gamma", [0, 1, 2, 4, 8, 100])
@pytest.mark.parametrize("kind", [int, float, Fraction, sympy.Integer, np.array])
def test_limits(gamma, kind):
    assert acceptance.committed_length_constant(kind(0), gamma) == 1
    assert acceptance.committed_length_constant(kind(1), gamma) == gamma + 1


@pytest.mark.claims("C8.1")
def test_worked_lengths():
    lengths = [acceptance.committed_length_constant(Fraction(4, 5), g) for g in (1, 2, 4, 8)]
    assert lengths == [Fraction(9, 5), Fraction(61, 25), Fraction(2101, 625), (1 - Fraction(4, 5) ** 9) * 5]
    assert [round(float(x), 3) for x in lengths] == [1.8, 2.44, 3.362, 4.329]


def test_one_function_serves_text_proof_and_measurement():
    a, gamma = sympy.symbols("a gamma", positive=True)
    closed = acceptance.committed_length_constant(a, gamma)
    assert closed == (1 - a ** (gamma + 1)) / (1 - a)
    array = acceptance.committed_length_constant(np.array([0.5, 0.8, 1.0]), 4)
    exact = [float(acceptance.committed_length_constant(x, 4)) for x in (Fraction(1, 2), Fraction(4, 5), 1)]
    assert array == pytest.approx(exact, rel=1e-14)
    symbols = sympy.symbols("a1:4")
    assert sympy.expand(acceptance.committed_length(symbols)) == 1 + symbols[0] + symbols[0] * symbols[1] + math.prod(
        symbols
    )
    columns = np.array([[0.8, 0.5], [0.5, 0.5]])  # two laws side by side, positions along the first axis
    assert acceptance.committed_length(columns) == pytest.approx([2.2, 1.75])
    assert acceptance.pmf(columns).sum(axis=0) == pytest.approx([1, 1])


@pytest.mark.parametrize("narrow", [np.int8(127), np.uint8(255), np.int16(32767), np.int32(2**31 - 1)])
def test_narrow_integers_do_not_overflow(narrow):
    wide = acceptance.committed_length_constant(0.5, int(narrow))
    assert acceptance.committed_length_constant(0.5, narrow) == wide
    assert acceptance.committed_length_constant(np.array([0.5]), narrow) == [wide]
    assert acceptance.committed_length_constant(0.5, np.array([narrow])) == [wide]
    assert acceptance.committed_length_from_pooled(1, narrow) == int(narrow) + 1
    assert acceptance.fill_rate(3.0, narrow) == 3.0 / (int(narrow) + 1)
    assert acceptance.pooled_acceptance(3.0, narrow) == 2.0 / int(narrow)


def test_every_kind_of_one_and_of_whole_number_counts():
    assert acceptance.committed_length_constant(sympy.Float(1), 4) == 5
    assert acceptance.variance_constant(sympy.Float(1), 4) == 0
    assert Acceptance([0.5, 0.5]).committed_length(Fraction(2)) == Acceptance.constant(0.5).committed_length(2)
    assert acceptance.variance_constant(np.array([0.5, 1.0]), 4) == pytest.approx([acceptance.variance([0.5] * 4), 0])


def test_a_million_cells_in_one_call():
    lengths = acceptance.committed_length_constant(np.linspace(0, 1, 1000)[:, None], np.arange(1000)[None, :])
    assert lengths.shape == (1000, 1000) and np.isfinite(lengths).all()
    rounding = 1e-12 * lengths
    assert (np.diff(lengths, axis=0) >= -rounding[1:]).all() and (np.diff(lengths, axis=1) >= -rounding[:, 1:]).all()


@pytest.mark.parametrize("exponent", range(1, 16))
@pytest.mark.parametrize("gamma", [1, 8, 1000])
def test_closed_form_keeps_its_digits_near_one(exponent, gamma):
    a = 1 - 10.0**-exponent
    exact = acceptance.committed_length_constant(Fraction(a), gamma)
    assert acceptance.committed_length_constant(a, gamma) == pytest.approx(float(exact), rel=1e-12)
    assert acceptance.committed_length_constant(np.array(a), gamma) == pytest.approx(float(exact), rel=1e-12)


@given(laws)
def test_conditional_and_survival_are_inverse(a):
    s = acceptance.survival(a)
    back = acceptance.conditional(s)
    assert acceptance.survival(back) == s
    reached = [i for i in range(len(a)) if i == 0 or s[i - 1] > 0]
    assert all(back[i] == a[i] for i in reached)
    assert acceptance.conditional(np.array(s, float)) == pytest.approx([float(x) for x in back], abs=1e-9)


@pytest.mark.claims("C0.4")
@given(st.fractions(Fraction(1, 50), 1, max_denominator=50), st.integers(1, 10))
def test_the_four_rates_convert_into_each_other(a, gamma):
    length = acceptance.committed_length_constant(a, gamma)
    pooled = acceptance.pooled_acceptance(length, gamma)
    assert acceptance.committed_length_from_pooled(pooled, gamma) == length
    assert acceptance.fill_rate(length, gamma) == (1 + gamma * pooled) / (gamma + 1)
    assert acceptance.constant_acceptance(float(length), gamma) == pytest.approx(float(a), abs=1e-9)


@pytest.mark.claims("C2.3")
@given(st.lists(st.fractions(Fraction(1, 20), 1, max_denominator=20), min_size=2, max_size=8))
def test_one_constant_for_a_falling_law_promises_too_little_first_and_too_much_last(law):
    """Chapter 3, where this breaks: the constant that explains a falling law's length."""
    survival = acceptance.survival(sorted(law, reverse=True))
    a = acceptance.constant_acceptance(1 + float(sum(survival)), len(law))
    assert float(survival[0]) >= a - 1e-9 and float(survival[-1]) <= a ** len(law) + 1e-9


@pytest.mark.claims("C0.4")
def test_the_pooled_rate_in_the_closed_form_errs_by_sixty_percent():
    true = acceptance.committed_length_constant(Fraction(4, 5), 8)
    pooled = acceptance.pooled_acceptance(true, 8)
    wrong = acceptance.committed_length_constant(pooled, 8)
    assert round(float(pooled), 4) == 0.4161 and round(float(wrong), 3) == 1.712
    assert round(float(wrong / true - 1), 2) == -0.60


def simulate(a, gammas, seed):
    """Return K of one round per entry of `gammas`, drawn from the law a."""
    rng = random.Random(seed)
    return [next((i for i in range(g) if rng.random() >= a[i]), g) for g in gammas]


def test_estimate_counts_what_it_says():
    found = estimate(accepted=[2, 0, 1, 2], drafted=[2, 2, 2, 2])
    assert [e.value for e in found.conditional] == [3 / 4, 2 / 3]
    assert [e.value for e in found.survival] == [3 / 4, 2 / 4]
    assert found.constant.value == 5 / 7  # ΣK / (ΣK + rounds with K < γ)
    assert found.committed_length.value == 1 + 5 / 4
    assert found.acceptance == Acceptance([3 / 4, 2 / 3])


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"), [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (1, 29, 0.0061, 0.1718)]
)
def test_wilson_gives_published_intervals(hits, trials, low, high):
    """Newcombe 1998, Statistics in Medicine 17, table I, method 3."""
    found = acceptance.wilson(hits, trials)
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


def test_the_interval_of_the_mean_is_a_normal_one_with_more_rounds_at_the_ends():
    found = estimate([0, 1, 2, 2, 0], 2, level=0.9).committed_length  # L = 1, 2, 3, 3, 1: s² = 4/5 with divisor 5
    extra = 1.6448536269514722**2 / 4  # rounds added at L = 1 and at L = 3, each 1 away from the mean of 2
    half = 1.6448536269514722 * math.sqrt((4 + 2 * extra) / (5 + 2 * extra) / (5 + 2 * extra))
    assert (found.value, found.low, found.high) == pytest.approx((2, 2 - half, 2 + half))


@pytest.mark.parametrize(("a", "gamma", "rounds"), [(0.8, 4, 60), (0.98, 4, 20), (0.99, 2, 30), (0.3, 8, 40)])
def test_the_interval_of_the_mean_covers_the_truth_near_its_ends_too(a, gamma, rounds):
    true, hits = acceptance.committed_length_constant(a, gamma), 0
    for seed in range(300):
        found = estimate(simulate([a] * gamma, [gamma] * rounds, seed), gamma).committed_length
        assert 1 <= found.low < found.high <= gamma + 1 and found.low <= found.value <= found.high
        hits += found.low <= true <= found.high
    assert hits / 300 >= 0.92


def test_variance_keeps_its_digits_near_one():
    for a in (0.99, 1 - 1e-6, 1 - 1e-9):
        exact = acceptance.variance([Fraction(a)] * 8)
        assert acceptance.variance_constant(a, 8) == pytest.approx(float(exact), rel=1e-4)


def test_positions_are_counted_over_the_rounds_that_offer_or_reach_them():
    found = estimate([1, 0, 0], [1, 3, 3])
    assert [e.trials for e in found.survival] == [3, 2, 2] and [e.trials for e in found.conditional] == [3, 0, 0]
    assert found.acceptance == Acceptance([1 / 3])  # nothing is known about the positions that no round reached
    assert (found.conditional[1].low, found.conditional[1].high) == (0, 1)


def test_estimate_is_right_under_censoring_and_mixed_lengths():
    a, gammas = [0.9, 0.8, 0.7, 0.6], [1, 2, 4, 4] * 5000
    found = estimate(simulate(a, gammas, seed=1), gammas)
    for entry, true in zip(found.conditional, a, strict=True):
        assert entry.low < true < entry.high and entry.high - entry.low < 0.04


def test_estimate_leaves_cut_rounds_out():
    whole = estimate([2, 0, 1], 2)
    with_cut = estimate([2, 0, 1, 1], 2, cut=[False, False, False, True])
    assert whole == with_cut


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    a, gamma, hits = 0.8, 4, 0
    for seed in range(300):
        found = estimate(simulate([a] * gamma, [gamma] * 60, seed), gamma)
        hits += found.constant.low <= a <= found.constant.high
    assert 0.92 <= hits / 300 <= 0.98


@given(laws, st.integers(0, 6))
def test_laws_are_consistent_at_every_length(a, gamma):
    law = Acceptance(a)
    if gamma > len(a):
        with pytest.raises(ValueError, match="beyond the"):
            law.committed_length(gamma)
        return
    assert sum(law.pmf(gamma)) == 1
    assert law.committed_length(gamma) == 1 + sum(k * p for k, p in enumerate(law.pmf(gamma)))
    assert Acceptance.from_survival(law.survival(len(a))).committed_length(gamma) == law.committed_length(gamma)


def test_a_law_is_a_value():
    assert Acceptance([0.5]) == Acceptance([0.5]) != Acceptance.constant(0.5)
    assert len({Acceptance([0.5]), Acceptance([0.5])}) == 1
    assert eval(repr(Acceptance([0.5, 0.25]))) == Acceptance([0.5, 0.25])
    for law in (Acceptance([0.5, 0.25]), Acceptance.constant(0.5)):
        assert copy.deepcopy(law) == copy.copy(law) == pickle.loads(pickle.dumps(law)) == law
        assert pickle.loads(pickle.dumps(law)).gamma_max == law.gamma_max
    with pytest.raises(AttributeError, match="does not change"):
        Acceptance([0.5]).gamma = 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: acceptance.survival([0.5, 1.2]), r"a_2 = 1.2 .* from 0 to 1"),
        (lambda: acceptance.survival([float("nan")]), "a_1 = nan"),
        (lambda: acceptance.survival([True]), "not a number"),
        (lambda: acceptance.survival([]), "empty"),
        (lambda: acceptance.survival(np.array([])), "without positions"),
        (lambda: acceptance.survival("0.8"), "not a sequence"),
        (lambda: acceptance.survival(0.8), "not a sequence"),
        (lambda: acceptance.survival(np.array([0.5, -0.1])), "a_2 = -0.1"),
        (lambda: acceptance.conditional([0.5, 0.6]), r"rises from s_1 = 0.5 to s_2 = 0.6"),
        (lambda: acceptance.committed_length_constant(0.5, -1), "gamma = -1 .* 0 or more"),
        (lambda: acceptance.committed_length_constant(0.5, 1.5), "not a whole number"),
        (lambda: acceptance.committed_length_constant(np.array([0.5, np.nan]), 1), "from 0 to 1"),
        (lambda: acceptance.committed_length_constant(0.5, np.array([1.5])), "whole number"),
        (lambda: acceptance.pooled_acceptance(6, 4), "exceeds γ"),
        (lambda: acceptance.pooled_acceptance(0.5, 4), "1 or more"),
        (lambda: acceptance.committed_length_from_pooled(1.5, 4), "pooled = 1.5"),
        (lambda: acceptance.constant_acceptance(5.5, 4), "exceeds γ"),
        (lambda: acceptance.committed_length_constant(0.5, np.array([True])), "whole number"),
        (lambda: acceptance.survival(np.array([[True, False]])), "from 0 to 1"),
        (lambda: Acceptance([0.5]).committed_length(0.0), "not a whole number"),
        (lambda: Acceptance([0.5]).pmf(False), "gamma = False is not a number"),
        (lambda: Acceptance([0.5]).variance(0.0), "not a whole number"),
        (lambda: Acceptance.constant("x"), "not a number"),
        (lambda: Acceptance([0.5]).committed_length(-1), "gamma = -1"),
        (lambda: estimate([3], [2]), "K cannot exceed γ"),
        (lambda: estimate([1, 1], [2]), "must agree"),
        (lambda: estimate([], []), "no complete round"),
        (lambda: estimate([0], [2], cut=[True]), "no complete round"),
        (lambda: estimate([1], [2], level=95), "level = 95"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
