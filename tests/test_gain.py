"""The ledger: speedup, margin, break-even in each variable, averages, and published tables reproduced."""

import csv
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm, t

from specgain import Acceptance, Ledger, RoundTime, acceptance, gain
from specgain.round_time import Affine, Quadratic

PUBLISHED = Path(__file__).parent / "data" / "published"
CHEAP = RoundTime.of(Quadratic(0.010, 0.0007, 0.0001))
DEAR = RoundTime.of(Quadratic(0.010, 0.005, 0.0008))
LAW = Acceptance.constant(0.8)


def rows(name):
    with open(PUBLISHED / name, encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.claims("C8.1")
def test_the_worked_ledger():
    cheap, dear = Ledger(LAW, CHEAP, 0.010), Ledger(LAW, DEAR, 0.010)
    assert [round(r.speedup, 3) for r in cheap.rows([1, 2, 4, 8])] == [1.667, 2.068, 2.334, 1.968]
    assert [round(r.speedup, 3) for r in dear.rows([1, 2, 4, 8])] == [1.139, 1.052, 0.785, 0.428]
    assert [round(r.t_round * 1e3, 1) for r in dear.rows([1, 2, 4, 8])] == [15.8, 23.2, 42.8, 101.2]
    assert all((r.margin > 0) == (r.speedup > 1) for r in cheap.rows(range(1, 20)) + dear.rows(range(1, 20)))


@pytest.mark.claims("C2.6")
@given(st.floats(1, 50), st.floats(1e-6, 10), st.floats(1e-6, 10))
def test_margin_and_speedup_agree_on_the_verdict(length, t_decode, t_round):
    s, m = gain.speedup(length, t_decode, t_round), gain.margin(length, t_decode, t_round)
    if not math.isclose(s, 1):
        assert (s > 1) == (m > 0)
    log_length, log_cost = gain.log_split(length, t_decode, t_round)
    assert log_length + log_cost == pytest.approx(math.log(s), abs=1e-9)
    assert gain.margin(length, t_decode, gain.break_even_round_time(length, t_decode)) == 0


@given(st.integers(1, 12), st.floats(0.2, 20))
def test_break_even_acceptance_is_the_root(gamma, ratio):
    a = gain.break_even_acceptance(gamma, 1.0, ratio)
    if ratio > gamma + 1:
        assert a is None
    elif ratio <= 1:
        assert a == 0
    else:
        assert acceptance.committed_length_constant(a, gamma) == pytest.approx(ratio, rel=1e-9)


@pytest.mark.claims("C8.1")
def test_break_even_acceptance_of_the_worked_ledger():
    def table(cost):
        return [gain.break_even_acceptance(g, 0.010, cost(g)) for g in (1, 2, 4, 8)]

    assert [round(a, 3) for a in table(CHEAP)] == [0.08, 0.156, 0.307, 0.547]
    assert gain.break_even_acceptance(4, 1.0, 5.0) == 1  # at the very end the root is certain acceptance
    assert [round(a, 3) for a in table(DEAR)[:3]] == [0.58, 0.753, 0.922] and table(DEAR)[3] is None


@pytest.mark.claims("C2.7")
@given(st.lists(st.tuples(st.integers(1, 9), st.fractions(Fraction(1, 9), 9, max_denominator=9)), min_size=1))
def test_the_averaging_identity_is_exact(rounds):
    committed, times = zip(*rounds, strict=True)
    gap = gain.averaging_gap(committed, times)
    assert gap == gain.mean_of_rates(committed, times) - gain.pooled_rate(committed, times)
    if len(set(times)) == 1:
        assert gap == 0


def test_narrow_integers_do_not_overflow():
    committed, times = np.full(100, 9, dtype=np.int8), [1.0] * 100  # 900 tokens, far above what an int8 holds
    assert gain.pooled_rate(committed, times) == 9
    assert gain.averaging_gap(committed, times) == 0
    assert gain.break_even_acceptance(np.uint8(255), 1.0, 2.0) == pytest.approx(0.5)


@pytest.mark.claims("C2.6", "C2.7")
def test_leviathan_table_1():
    table = rows("leviathan2023_table1_ops_vs_speed.csv")
    checked = 0
    for row in table:
        length = acceptance.committed_length_constant(float(row["alpha"]), int(row["gamma"]))
        assert f"{gain.speedup(length, 1.0, 1.0):.2f}" == row["speed_factor_printed"]
        assert f"{1 / acceptance.fill_rate(length, int(row['gamma'])):.2f}" == row["ops_factor_printed"]
        checked += 2
    assert checked == 12


@pytest.mark.claims("C2.6")
def test_leviathan_table_4_with_interval_arithmetic():
    """S rises with α and falls with c, so the printed inputs ± half a last digit bound it from both sides."""
    table = rows("leviathan2023_table4_expected_vs_measured.csv")
    nominal = 0
    for row in table:
        alpha, c, gamma = float(row["alpha"]), float(row["c"]), int(row["gamma"])
        printed = float(row["speedup_expected_printed"])

        def model(alpha, c, gamma=gamma):
            return Ledger(Acceptance.constant(alpha), RoundTime(verify=1.0, draft=Affine(0, c)), 1.0).speedup(gamma)

        assert model(alpha - 0.005, c + 0.005) <= printed + 0.05 and printed - 0.05 <= model(alpha + 0.005, c - 0.005)
        nominal += round(model(alpha, c), 1) == printed
    assert len(table) == 12 and nominal == 9


def test_bootstrap_interval_contains_the_value_and_shrinks_with_requests():
    def speedup_interval(requests):
        times = np.random.default_rng(0).gamma(20, 0.05, size=requests)
        spec, plain = np.stack([np.full(requests, 200), times], 1), np.stack([np.full(requests, 100), times], 1)
        rates = gain.bootstrap([spec, plain], lambda a, b: (a[:, 0] / a[:, 1]) / (b[:, 0] / b[:, 1]))
        return gain.interval(rates)

    narrow, wide = speedup_interval(400), speedup_interval(20)
    assert narrow[0] < 2.0 < narrow[1] and wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])
    assert narrow == speedup_interval(400)  # deterministic by seed


def test_bootstrap_matches_the_normal_interval_of_a_mean():
    values = [[float(i % 10), 1.0] for i in range(400)]
    low, high = gain.interval(gain.bootstrap([values], lambda s: s[:, 0] / s[:, 1]))
    assert low == pytest.approx(4.5 - 1.96 * 2.872 / 20, abs=0.03)
    assert high == pytest.approx(4.5 + 1.96 * 2.872 / 20, abs=0.03)


@pytest.mark.parametrize("groups", [4, 8, 30])
def test_an_interval_of_few_groups_is_as_wide_as_students(groups):
    low, high = gain.interval(np.linspace(-1, 1, 1001), 0.95, groups)
    wider = (groups / (groups - 1)) ** 0.5 * t.ppf(0.975, groups - 1) / norm.ppf(0.975)
    assert (low, high) == pytest.approx((-0.95 * wider, 0.95 * wider), rel=0.01)


def test_an_interval_of_few_groups_holds_the_truth_as_often_as_it_says():
    samples, held = np.random.default_rng(0).normal(5, 1, (400, 8)), {None: 0, 8: 0}
    for sample in samples:
        means = gain.bootstrap([np.stack([sample, np.ones(8)], 1)], lambda s: s[:, 0] / s[:, 1])
        for groups in held:
            low, high = gain.interval(means, groups=groups)
            held[groups] += low <= 5 <= high
    assert held[None] < 0.9 * len(samples) and 0.92 * len(samples) < held[8] < 0.97 * len(samples)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gain.speedup(0.5, 1, 1), "committed_length = 0.5 .* 1 or more"),
        (lambda: gain.speedup(2, 0, 1), "t_decode = 0 .* above 0 s"),
        (lambda: gain.margin(2, 1, -1), "t_round = -1"),
        (lambda: gain.speedup(2, 1, float("inf")), "t_round = inf"),
        (lambda: gain.pooled_rate([1], []), "at least one"),
        (lambda: gain.pooled_rate([1], [0.0]), "times = 0.0"),
        (lambda: gain.averaging_gap([1.5], [1.0]), "not a whole number"),
        (lambda: Ledger(0.8, CHEAP, 0.01), "not an Acceptance"),
        (lambda: Ledger(LAW, 3, 0.01), "not a RoundTime"),
        (lambda: Ledger(LAW, CHEAP, 0), "t_decode = 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
