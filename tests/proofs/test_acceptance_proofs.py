"""P1–P5 once more without the checker: every law on a grid of fractions for γ ≤ 6, and random dependent laws."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from specgain import acceptance
from specgain.proofs import all_proofs

pytestmark = pytest.mark.claims("C2.1", "C2.2", "C2.3", "C3.1", "C8.2")
GRID = (Fraction(0), Fraction(1, 3), Fraction(1))


def outcomes(conditional):
    """Return [(k, Pr(K = k))] by walking through every accept/reject pattern of one round."""
    mass = {}
    for pattern in product((True, False), repeat=len(conditional)):
        accepted = next((i for i, ok in enumerate(pattern) if not ok), len(pattern))
        chance = Fraction(1)
        for a, ok in zip(conditional, pattern, strict=True):
            chance *= a if ok else 1 - a
        mass[accepted] = mass.get(accepted, 0) + chance
    return sorted(mass.items())


@pytest.mark.parametrize("gamma", range(1, 7))
def test_p1_p2_p4_p5_for_every_law_on_the_grid(gamma):
    for a in product(GRID, repeat=gamma):
        law = outcomes(a)
        mean = sum((k + 1) * chance for k, chance in law)
        tails = [sum(chance for k, chance in law if k >= i) for i in range(1, gamma + 1)]
        assert mean == 1 + sum(tails) == acceptance.committed_length(a)
        assert tuple(tails) == acceptance.survival(a)
        assert mean - (acceptance.committed_length(a[:-1]) if gamma > 1 else 1) == tails[-1]
        assert all(now <= before for before, now in zip(tails, tails[1:], strict=False))


@pytest.mark.parametrize("gamma", range(7))
@pytest.mark.parametrize("a", [Fraction(0), Fraction(1, 7), Fraction(4, 5), Fraction(1)])
def test_p3_the_closed_form_on_every_pattern(gamma, a):
    mean = sum((k + 1) * chance for k, chance in outcomes([a] * gamma))
    assert mean == acceptance.committed_length_constant(a, gamma)


def test_p2_holds_for_dependent_positions_where_the_product_of_marginals_does_not():
    joint = {(1, 1, 1): Fraction(2, 5), (1, 0, 1): Fraction(1, 5), (0, 1, 1): Fraction(1, 5), (0, 0, 0): Fraction(1, 5)}
    tails = [sum(m for pattern, m in joint.items() if all(pattern[:i])) for i in (1, 2, 3)]
    assert acceptance.committed_length(acceptance.conditional(tails)) == 1 + sum(tails) == Fraction(12, 5)
    marginals = [sum(m for pattern, m in joint.items() if pattern[i]) for i in range(3)]
    assert acceptance.committed_length(marginals) != Fraction(12, 5)


def test_p1_for_random_joint_tables():
    rng = np.random.default_rng(0)
    for _ in range(200):
        gamma = rng.integers(1, 7)
        joint = rng.dirichlet(np.full(2**gamma, 0.3)).reshape((2,) * gamma)
        prefix = [joint[(1,) * i].sum() for i in range(1, gamma + 1)]
        by_pattern = sum(m * (1 + next((i for i, b in enumerate(w) if not b), gamma)) for w, m in np.ndenumerate(joint))
        assert by_pattern == pytest.approx(1 + sum(prefix), abs=1e-12)


@pytest.mark.parametrize("proof", all_proofs(), ids=lambda proof: proof.id)
def test_the_proof_stands_and_every_mutant_is_refuted_by_exact_values(proof):
    assert [(step.why, v) for step, v in proof.check().verdicts if v.status != "proved"] == []
    assert [m.mistake for m in proof.mutants if not m.rejected] == []
    result = proof.prove()
    assert result.status == "proved" and result.machine_steps >= 1 and result.mutants_total >= 3
