"""Length: the step rule, the best whole γ and the closed form γ*, each against brute force."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain import Acceptance, Ledger, RoundTime
from specgain.length import best_gamma, best_gamma_continuous, marginal_tokens, step_pays
from specgain.round_time import Affine, Quadratic, Table

LAW = Acceptance.constant(0.8)


def ledger(law, curve, t_decode=1.0):
    return Ledger(law, RoundTime.of(curve), t_decode)


@pytest.mark.claims("C3.1")
def test_the_eighth_candidate_adds_a_sixth_of_a_token():
    gains = [marginal_tokens(LAW, g) for g in range(8)]
    assert [round(x, 6) for x in gains] == [0.8, 0.64, 0.512, 0.4096, 0.32768, 0.262144, 0.209715, 0.167772]
    for g, gain in enumerate(gains):
        assert gain == pytest.approx(LAW.committed_length(g + 1) - LAW.committed_length(g))


@pytest.mark.claims("C8.1", "C3.1")
def test_the_worked_ledger_has_its_best_lengths():
    assert best_gamma(ledger(LAW, Quadratic(10, 0.7, 0.1), 10)) == 4
    assert best_gamma(ledger(LAW, Quadratic(10, 5, 0.8), 10)) == 1


@pytest.mark.claims("C3.1", "C3.5")
@given(
    st.lists(st.floats(0.01, 1), min_size=2, max_size=8),
    st.floats(0.1, 10),
    st.floats(0, 5),
    st.floats(0, 2),
)
def test_the_step_rule_and_the_scan_agree(a, base, linear, quadratic):
    book = ledger(Acceptance(a), Quadratic(base, linear, quadratic))
    for gamma in range(1, len(a)):
        now, then = book.speedup(gamma), book.speedup(gamma + 1)
        if not math.isclose(now, then, rel_tol=1e-12):
            assert step_pays(book, gamma) == (then > now)
    best = best_gamma(book)
    top = max([1.0] + [book.speedup(g) for g in range(1, len(a) + 1)])
    assert (book.speedup(best) if best else 1.0) == top


@given(st.floats(0.01, 0.995), st.floats(0, 1), st.floats(0, 0.1), st.floats(0.5, 5))
def test_the_gallop_equals_brute_force(a, linear, quadratic, t_decode):
    if linear + quadratic < 1e-3:
        return
    book = ledger(Acceptance.constant(a), Quadratic(1.0, linear, quadratic), t_decode)
    found = best_gamma(book)
    top = max([1.0] + [book.speedup(g) for g in range(1, 3000)])
    assert (book.speedup(found) if found else 1.0) == pytest.approx(top, rel=1e-12)


@pytest.mark.parametrize(
    ("a", "c", "gamma", "whole"),
    [(0.8, 0.05, 7.857, 8), (0.6, 0.02, 5.619, 6), (0.9, 0.01, 24.099, 24), (0.75, 0.02, 9.044, 9)],
)
def test_known_closed_forms(a, c, gamma, whole):
    assert round(best_gamma_continuous(a, 1.0, c), 3) == gamma
    assert best_gamma(ledger(Acceptance.constant(a), Affine(1.0, c))) == whole


@given(
    st.one_of(st.floats(1e-12, 1 - 1e-12), st.sampled_from([1e-300, 1e-9, 1 - 1e-9, 0.5])),
    st.one_of(st.floats(1e-9, 0.999), st.sampled_from([1e-12, 1e-9, 0.999999])),
)
def test_the_closed_form_is_stationary_and_brackets_the_best_whole_length(a, c):
    gamma = best_gamma_continuous(a, 1.0, c)
    assert math.isfinite(gamma) and gamma >= 0
    decay = -math.log(a)
    if gamma > 0:  # the first-order condition e^(λ(γ+1)) = 1 + m + λ(γ+1), in logarithms so that nothing overflows
        m, x = decay * (1 - c) / c, decay * (gamma + 1)
        assert x == pytest.approx(math.log1p(m + x), rel=1e-6, abs=1e-9)
    book = ledger(Acceptance.constant(a), Affine(1.0, c), t_decode=1e6)  # t_D so large that 0 is never the answer
    assert best_gamma(book) in {max(1, math.floor(gamma)), max(1, math.ceil(gamma))}


def test_no_best_length_when_candidates_are_free():
    assert best_gamma(ledger(LAW, Affine(1.0, 0.0))) is None
    assert best_gamma(ledger(LAW, Affine(6.0, 0.0))) == 0  # E[L] stays below 5, so a round of 6 never pays
    assert best_gamma(ledger(Acceptance.constant(1.0), Affine(1.0, 0.5))) is None
    assert best_gamma(ledger(Acceptance.constant(1.0), Affine(3.0, 1.5))) == 0
    assert best_gamma(ledger(Acceptance.constant(0.0), Affine(1.0, 0.0))) == 0
    assert math.isinf(best_gamma_continuous(0.8, 1.0, 0.0)) and math.isinf(best_gamma_continuous(1.0, 1.0, 0.5))
    assert best_gamma_continuous(0.0, 1.0, 0.1) == 0 and best_gamma_continuous(0.9, 1.0, 1.5) == 0


def test_tables_and_laws_limit_the_scan():
    staircase = Table({1: 1.02, 2: 1.04, 3: 1.06, 4: 1.98, 8: 2.06})
    book = ledger(Acceptance.constant(0.9), staircase)
    assert best_gamma(book) == max(range(1, 9), key=book.speedup)
    assert best_gamma(book, gamma_max=2) == 2
    assert best_gamma(ledger(Acceptance.constant(1.0), Table({1: 1.0, 3: 2.0}))) == 1  # a tie goes to the shortest
    assert best_gamma(ledger(Acceptance([0.9, 0.9]), Affine(1.0, 0.0))) == 2
    assert best_gamma(ledger(LAW, lambda gamma: 1.0 + 0.3 * gamma), gamma_max=6) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: best_gamma(ledger(LAW, lambda gamma: 1.0)), "give gamma_max"),
        (lambda: best_gamma(ledger(Acceptance([0.9]), Table({4: 1.0}))), "no length can be judged"),
        (lambda: best_gamma(ledger(LAW, Affine(1, 1)), gamma_max=-1), "gamma_max = -1"),
        (lambda: best_gamma_continuous(1.5, 1, 1), "a = 1.5"),
        (lambda: best_gamma_continuous(0.5, 0, 1), "base = 0"),
        (lambda: best_gamma_continuous(0.5, 1, -1), "slope = -1"),
        (lambda: marginal_tokens(LAW, -1), "gamma = -1"),
        (lambda: marginal_tokens(Acceptance([0.5]), 1), "beyond the 1 positions"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
