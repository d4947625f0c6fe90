"""Round time: curves, measured tables, and the sum of the three parts."""

import pytest

from specgain.round_time import Affine, Quadratic, RoundTime, Table


@pytest.mark.claims("C2.5")
def test_a_round_is_the_sum_of_its_parts():
    cost = RoundTime(draft=Affine(0, 0.001), verify=Table({0: 0.010, 4: 0.012, 8: 0.020}), other=0.0005)
    for gamma in range(9):
        assert cost(gamma) == pytest.approx(cost.t_draft(gamma) + cost.t_verify(gamma) + cost.t_other(gamma))
    assert cost(4) == pytest.approx(0.0165)
    assert cost.gamma_range() == (0, 8)


def test_curves():
    assert Affine(0.010, 0.001)(4) == pytest.approx(0.014)
    assert Quadratic(0.010, 0.0007, 0.0001)(8) == pytest.approx(0.022)
    assert Table({1: 1.0, 3: 2.0})(2) == 1.5
    assert RoundTime.of(Affine(1.0, 0.5))(2) == 2.0
    assert RoundTime(verify=1.0).gamma_range() == (0, None)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Affine(-1, 0), "base = -1"),
        (lambda: Quadratic(1, float("nan"), 0), "linear = nan"),
        (lambda: Affine(1, 1)(-1), "gamma = -1"),
        (lambda: Table({}), "at least one measured time"),
        (lambda: Table({1: -2.0}), r"seconds\[1\] = -2.0"),
        (lambda: Table({1: 1.0, 4: 2.0})(8), "was not measured"),
        (lambda: Table({1: 1.0, 4: 2.0})(0), "was not measured"),
        (lambda: RoundTime(draft="fast"), "draft = 'fast'"),
        (lambda: RoundTime.of(3), "not a cost curve"),
        (lambda: RoundTime.of(Affine(1, 1)).t_draft(1), "only the whole round is known"),
        (lambda: RoundTime(draft=Table({1: 1.0}), verify=Table({2: 1.0})).gamma_range(), "share no γ"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
