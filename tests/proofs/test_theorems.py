"""P6–P23 once more without the checker: random laws, brute force, simulation and the oracle values of the literature."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import sympy as sp

from specgain import acceptance, gain, length, verification
from specgain.proofs import all_proofs, kernel
from specgain.proofs.batch import critical_context

TWO_ROUTES = ["P9", "P12", "P13", "P15", "P18", "P20"]


def random_laws(rng, laws, gammas):
    """Return survival s_0…s_γ of random acceptance laws, of several shapes, as an array (laws, gammas + 1)."""
    a = rng.beta(rng.uniform(0.2, 4, (laws, 1)), rng.uniform(0.2, 4, (laws, 1)), (laws, gammas))
    a[::4] = np.sort(a[::4], axis=1)[:, ::-1]  # acceptance that decays
    a[1::4] = a[1::4, :1]  # constant acceptance
    a[2::4] *= rng.random((len(a[2::4]), gammas)) > 0.1  # positions that are never accepted
    return np.concatenate([np.ones((laws, 1)), np.cumprod(a, axis=1)], axis=1)


def convex_costs(rng, laws, gammas):
    """Return T(0)…T(γ), positive and convex (steps that never shrink, sometimes negative at first)."""
    steps = np.cumsum(rng.exponential(0.02, (laws, gammas)) * (rng.random((laws, gammas)) > 0.5), axis=1)
    steps += rng.uniform(-0.02, 0.3, (laws, 1))
    return 1 + np.concatenate([np.zeros((laws, 1)), np.cumsum(steps, axis=1)], axis=1)


# ------------------------------------------------------------------------------------------------ the whole set


def test_there_are_23_proofs_and_none_is_all_human():
    proofs = all_proofs()
    assert [proof.id for proof in proofs] == [f"P{n}" for n in range(1, 24)]
    assert all(any(step.machine for step in proof.steps) for proof in proofs)
    assert sum(len(proof.mutations) for proof in proofs) >= 69


@pytest.mark.parametrize("proof", [p for p in all_proofs() if p.id in TWO_ROUTES], ids=lambda p: p.id)
def test_results_not_seen_elsewhere_are_proved_by_two_routes(proof):
    with_machine_steps = [title for title, steps in proof.routes.items() if any(step.machine for step in steps)]
    assert len(with_machine_steps) >= 2
    assert "not seen it stated" in proof.source or "not seen this" in proof.source


def test_every_claim_named_by_a_proof_looks_like_a_claim():
    assert all(claim[0] == "C" and claim[1:].replace(".", "").isdigit() for p in all_proofs() for claim in p.claims)


# ------------------------------------------------------------------------------------------------ gain


@pytest.mark.claims("C2.6", "C8.2")
def test_p6_bounds_for_random_laws():
    rng = np.random.default_rng(6)
    s = random_laws(rng, 2000, 8)
    E, T = s.sum(axis=1), rng.uniform(1, 9, 2000)
    S = gain.speedup(E, 1.0, T)
    assert np.all(S <= E + 1e-12) and np.all(E <= 9) and np.all(S <= 9 / T + 1e-12)


def test_p7_the_root_is_unique_and_missing_outside_the_range():
    for gamma, ratio in product((1, 2, 5, 9), (1.0, 1.3, 1.9)):
        a = gain.break_even_acceptance(gamma, 1.0, ratio)
        assert gain.speedup(acceptance.committed_length_constant(a, gamma), 1.0, ratio) == pytest.approx(1, abs=1e-9)
        grid = np.linspace(0, 1, 1001)
        S = gain.speedup(acceptance.committed_length_constant(grid, gamma), 1.0, ratio)
        assert np.all((S > 1 + 1e-9) <= (grid > a)) and np.all((S < 1 - 1e-9) <= (grid < a))
    assert gain.break_even_acceptance(2, 1.0, 3.5) is None
    assert gain.break_even_acceptance(2, 1.0, 3.0) == pytest.approx(1)


@pytest.mark.claims("C3.1")
def test_p8_the_step_rule_agrees_with_the_speedups():
    rng = np.random.default_rng(8)
    s, T = random_laws(rng, 2000, 6), rng.uniform(0.5, 3, (2000, 7))
    E = np.cumsum(s, axis=1)
    rule = s[:, 1:] * T[:, :-1] - E[:, :-1] * np.diff(T, axis=1)
    rise = np.diff(E / T, axis=1)
    clear = np.abs(rise) > 1e-12
    assert np.all((rule > 0)[clear] == (rise > 0)[clear])


@pytest.mark.claims("C2.7")
def test_p13_the_gap_is_the_covariance_and_vanishes_for_constant_times():
    rng = np.random.default_rng(13)
    for _ in range(200):
        tokens, seconds = rng.integers(1, 6, 40).tolist(), rng.gamma(4, 0.01, 40).tolist()
        gap = gain.mean_of_rates(tokens, seconds) - gain.pooled_rate(tokens, seconds)
        assert gain.averaging_gap(tokens, seconds) == pytest.approx(gap, abs=1e-9)
        steady = [0.02] * 40
        assert gain.mean_of_rates(tokens, steady) == pytest.approx(gain.pooled_rate(tokens, steady))
    exact = [Fraction(x) for x in (1, 2, 2)]
    assert gain.averaging_gap([4, 2, 1], exact) == gain.mean_of_rates([4, 2, 1], exact) - gain.pooled_rate(
        [4, 2, 1], exact
    )


def test_p13_the_librarys_identity_holds_with_symbols():
    L, T = sp.symbols("L1:4", positive=True, integer=True), sp.symbols("T1:4", positive=True)
    gap = gain.mean_of_rates(L, T) - gain.pooled_rate(L, T)
    assert sp.simplify(gap - gain.averaging_gap(L, T)) == 0


def test_p23_operations_never_fall():
    rng = np.random.default_rng(23)
    E = random_laws(rng, 1000, 7).sum(axis=1)
    assert np.all((7 * rng.random(1000) + 8) / E >= 1)


# ------------------------------------------------------------------------------------------------ length


@pytest.mark.claims("C3.1", "C3.5")
def test_p9_no_second_peak_in_ten_thousand_random_laws_with_convex_costs():
    rng = np.random.default_rng(9)
    s, T = random_laws(rng, 10_000, 24), convex_costs(rng, 10_000, 24)
    assert np.all(T > 0) and np.all(np.diff(T, 2, axis=1) >= -1e-12)
    E = np.cumsum(s, axis=1)
    D = s[:, 1:] * T[:, :-1] - E[:, :-1] * np.diff(T, axis=1)
    assert np.all(np.diff(D, axis=1) <= 1e-12)
    S = E / T
    first_failure = np.where((D <= 0).any(axis=1), (D <= 0).argmax(axis=1), 24)
    assert np.all(S[np.arange(10_000), first_failure] >= S.max(axis=1) * (1 - 1e-12))
    assert len(set(first_failure)) > 15  # the laws and costs do differ


def test_p9_needs_convexity():
    stairs = {g: 1 + 0.02 * g + 0.9 * (g >= 4) + 0.3 * (g >= 8) for g in range(13)}
    S = [acceptance.committed_length_constant(0.9, g) / stairs[g] for g in range(13)]
    expected = [1.000, 1.863, 2.606, 3.244, 2.068, 2.343, 2.583, 2.792, 2.596, 2.737, 2.859, 2.965, 3.057]
    assert pytest.approx(expected, abs=5e-4) == S


def extreme_pairs(count):
    """Return (a, c) pairs, dense near 0 and 1 in both, and uniform in between."""
    rng = np.random.default_rng(10)
    near = 10 ** rng.uniform(-4, -0.3, (count, 2))
    ends = np.where(rng.random((count, 2)) < 0.5, near, 1 - near)
    return np.clip(np.where(rng.random((count, 1)) < 0.3, rng.random((count, 2)), ends), 1e-4, 1 - 1e-4)


@pytest.mark.claims("C3.1")
def test_p10_the_closed_form_agrees_with_brute_force_on_ten_thousand_pairs():
    a, c = extreme_pairs(10_500).T
    continuous = np.array([length.best_gamma_continuous(x, base=1.0, slope=y) for x, y in zip(a, c, strict=True)])
    assert np.isfinite(continuous).all()
    neighbours = np.stack([np.floor(continuous), np.ceil(continuous)])
    S = acceptance.committed_length_constant(a, neighbours.astype(int)) / (1 + c * neighbours)
    for low in range(0, len(a), 500):
        part = slice(low, low + 500)
        gammas = np.arange(int(continuous[part].max()) + 50)[:, None]
        brute = (acceptance.committed_length_constant(a[part], gammas) / (1 + c[part] * gammas)).max(axis=0)
        assert np.all(S[:, part].max(axis=0) >= brute * (1 - 1e-12))


@pytest.mark.parametrize(
    "a, c, gamma, whole",
    [(0.8, 0.05, 7.857, 8), (0.6, 0.02, 5.619, 6), (0.9, 0.01, 24.099, 24), (0.75, 0.02, 9.044, 9)],
)
def test_p10_known_values(a, c, gamma, whole):
    assert length.best_gamma_continuous(a, base=1.0, slope=c) == pytest.approx(gamma, abs=5e-4)
    S = [acceptance.committed_length_constant(a, g) / (1 + c * g) for g in range(80)]
    assert int(np.argmax(S)) == whole


@pytest.mark.parametrize("known", [{}, {"real": True}, {"positive": True}])
def test_p10_sympys_solve_returns_the_other_branch(known):
    """The trap: the first-order condition handed to `solve` gives W_0 alone, a length below −1."""
    x, (lam, m) = sp.Symbol("x", **known), sp.symbols("lambda m", positive=True)
    (root,) = sp.solve(sp.exp(-lam * x) * (1 + m + lam * x) - 1, x)
    at = {lam: sp.log(sp.Rational(5, 4)), m: 19 * sp.log(sp.Rational(5, 4))}
    assert float(root.subs(at)) - 1 == pytest.approx(-24.458, abs=1e-3)
    right = (-sp.LambertW(-sp.exp(-1 - m), -1) - 1 - m) / lam - 1
    assert float(right.subs(at)) == pytest.approx(length.best_gamma_continuous(0.8, base=1.0, slope=0.05), rel=1e-12)


def test_p11_the_first_candidate_decides_when_costs_are_convex_from_a_plain_step():
    rng = np.random.default_rng(11)
    s, T = random_laws(rng, 5000, 20), convex_costs(rng, 5000, 20)
    S = np.cumsum(s, axis=1) / T
    worth = s[:, 1] - (T[:, 1] - T[:, 0])
    clear = np.abs(worth) > 1e-9
    assert np.all((S[:, 1:].max(axis=1) > 1)[clear] == (worth > 0)[clear])


def test_p12_foresight_gains_at_most_e_over_e_minus_1():
    a = 1 - 10 ** np.linspace(-4, -0.01, 120)[:, None]
    c = (1 - a) * 10 ** np.linspace(-3, 3, 121)[None, :]
    c = np.minimum(c, 0.999)
    best = np.zeros(a.shape[0] * c.shape[1]).reshape(a.shape[0], c.shape[1])
    for g in np.unique(np.round(np.geomspace(1, 60_000, 900)).astype(int) - 1):
        best = np.maximum(best, acceptance.committed_length_constant(a, g) / (1 + c * g))
    lead = 1 / (1 - a + c * a) / best
    assert 1.58 < lead.max() <= math.e / (math.e - 1) + 1e-3  # the grid of γ is coarse above 900


@pytest.mark.parametrize(
    "a, lead", [(0.5, 1.168), (0.6, 1.210), (0.7, 1.269), (0.8, 1.348), (0.9, 1.475), (0.95, 1.554)]
)
def test_p12_known_leads_at_c_one_twentieth(a, lead):
    best = max(acceptance.committed_length_constant(a, g) / (1 + 0.05 * g) for g in range(200))
    assert 1 / (1 - a + 0.05 * a) / best == pytest.approx(lead, abs=6e-4)


def test_p12_an_oracle_simulated():
    rng = np.random.default_rng(12)
    K = rng.geometric(0.2, 200_000) - 1
    assert (K + 1).sum() / (1 + 0.05 * K).sum() == pytest.approx(1 / (1 - 0.8 + 0.05 * 0.8), rel=0.01)


def test_p22_the_threshold_rule_beats_every_fixed_length_on_mixed_rounds():
    """Rounds of two kinds, known before drafting: drafting while u > ρ·c reaches the best rate of all pairs of lengths."""
    a, c = np.array([0.3, 0.9]), 0.05
    rates = {
        (g, h): sum((1 - x ** (m + 1)) / (1 - x) for x, m in zip(a, (g, h), strict=True)) / (2 + c * (g + h))
        for g in range(40)
        for h in range(60)
    }
    rho = max(rates.values())
    rule = tuple(next(m for m in range(100) if x ** (m + 1) <= rho * c) for x in a)
    assert rates[rule] == pytest.approx(rho, rel=1e-12)
    assert rho > max(rate for (g, h), rate in rates.items() if g == h) * 1.05


# ------------------------------------------------------------------------------------------------ estimates


@pytest.mark.claims("C0.4")
def test_p14_and_p15_on_simulated_rounds():
    rng = np.random.default_rng(14)
    K = np.minimum(rng.geometric(0.2, 400_000) - 1, 8)
    estimate = K.sum() / (K.sum() + (K < 8).sum())
    assert estimate == pytest.approx(0.8, abs=0.002)
    assert K.sum() / (8 * len(K)) == pytest.approx(0.4161, abs=0.002)
    assert K.var() == pytest.approx(acceptance.variance_constant(0.8, 8), rel=0.01)


def test_p15_for_every_small_law_exactly():
    for a in product((Fraction(0), Fraction(1, 3), Fraction(4, 5), Fraction(1)), repeat=4):
        weights = acceptance.pmf(a)
        mean = sum(k * w for k, w in enumerate(weights))
        assert acceptance.variance(a) == sum((k - mean) ** 2 * w for k, w in enumerate(weights))


@pytest.mark.parametrize("gamma, value", [(4, 2.57005), (8, 8.14113)])
def test_p15_known_values(gamma, value):
    assert acceptance.variance_constant(0.8, gamma) == pytest.approx(value, abs=5e-6)


# ------------------------------------------------------------------------------------------------ sampling


def accepted_and_law(p, q, gamma, rule):
    """Return (E[K], the law of the γ + 1 tokens that a round begins) for the same p and q at every position."""
    target, draft = (lambda prefix: p), (lambda prefix: q)
    law = verification.round_law(target, draft, gamma, rule)
    return verification.committed_length(law) - 1, verification.output_law(law, target, gamma + 1)


@pytest.mark.claims("C0.5", "C6.0")
@pytest.mark.parametrize(
    "gamma, token, block", [(1, "2/3", "2/3"), (2, "10/9", "11/9"), (3, "38/27", "5/3"), (4, "130/81", "166/81")]
)
def test_p16_block_and_token_rule_on_all_strings(gamma, token, block):
    p, q = [Fraction(1, 3), Fraction(2, 3)], [Fraction(2, 3), Fraction(1, 3)]
    for rule, kept in (("token", token), ("block", block)):
        mean, law = accepted_and_law(p, q, gamma, rule)
        assert mean == Fraction(kept)
        assert all(law[s] == math.prod(p[t] for t in s) for s in product(range(2), repeat=gamma + 1))


def test_p16_for_random_distributions_both_rules_are_exact_and_the_block_rule_keeps_more():
    rng = np.random.default_rng(16)
    for _ in range(20):
        p, q = ([Fraction(int(x), int(w.sum())) for x in w] for w in rng.integers(1, 9, (2, 3)))
        (token, law), (block, other) = (accepted_and_law(p, q, 2, rule) for rule in ("token", "block"))
        target = {s: math.prod(p[t] for t in s) for s in product(range(3), repeat=3)}
        assert law == target and other == target and block >= token
        alpha = sum(map(min, p, q))
        assert token == alpha + alpha**2 and alpha == 1 - sum(abs(x - y) for x, y in zip(p, q, strict=True)) / 2


def test_p16_a_greedy_draft_is_accepted_with_the_targets_probability():
    rng = np.random.default_rng(17)
    p = np.array([0.5, 0.3, 0.2])
    q = np.array([0.0, 1.0, 0.0])  # the draft always proposes token 1
    accepted = rng.random(200_000) < np.minimum(1, p[1] / q[1])
    residual = np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()
    tokens = np.where(accepted, 1, rng.choice(3, 200_000, p=residual))
    assert accepted.mean() == pytest.approx(p[1], abs=0.005)
    assert np.bincount(tokens, minlength=3) / 200_000 == pytest.approx(p, abs=0.005)


# ------------------------------------------------------------------------------------------------ the rest


@pytest.mark.claims("C6.3")
def test_p17_no_violation_in_random_triples():
    rng = np.random.default_rng(18)
    W, F, d = rng.exponential(2, 20_000), rng.exponential(1, 20_000), rng.exponential(1, 20_000)
    W1, n = W * rng.random(20_000), rng.integers(1, 9, 20_000)
    plain, quant = np.maximum(W, F), np.maximum(W1, F)
    S_spec, S_both = plain / (d + np.maximum(W, n * F)), plain / (d + np.maximum(W1, n * F))
    assert np.all(S_both <= plain / quant * S_spec * (1 + 1e-12))
    free = np.isclose(plain / np.maximum(W1, n * F), plain / quant * plain / np.maximum(W, n * F), rtol=1e-12)
    clear = (W > F) & (n > 1)
    assert np.all(free[clear] == (W1 >= n * F)[clear])


# weights, layers, attention width, cache bytes per token, from the models' published configurations (FP16)
MODELS = {
    "Llama-3.1-8B": (8.03e9, 32, 4096, 131_072),
    "Llama-2-7B": (6.74e9, 32, 4096, 524_288),
    "70B": (70.6e9, 80, 8192, 327_680),
}
CHIPS = {"A100": (312e12, 2.039e12), "H100": (989e12, 3.35e12)}


@pytest.mark.claims("C5.3")
@pytest.mark.parametrize("model, chip, tokens", [("Llama-3.1-8B", "A100", 3577), ("Llama-3.1-8B", "H100", 1755), ("Llama-2-7B", "A100", 690),
                                                 ("Llama-2-7B", "H100", 353), ("70B", "A100", 14243), ("70B", "H100", 6548)])  # fmt: skip
def test_p18_critical_context_of_known_models(model, chip, tokens):
    (weights, layers, width, cache), (rate, band) = MODELS[model], CHIPS[chip]
    values = {"P": weights, "A": 4 * layers * width, "m": cache, "R": rate, "b": band}
    formula = critical_context(4)
    assert float(formula.subs({s: values[s.name] for s in formula.free_symbols})) == pytest.approx(tokens, rel=0.01)


@pytest.mark.parametrize("experts, top, batch, ratio", [(8, 2, 1, 2.73), (8, 2, 4, 1.45), (8, 2, 16, 1.01), (256, 8, 1, 3.82), (256, 8, 4, 3.34),
                                                        (256, 8, 16, 2.18), (256, 8, 64, 1.15)])  # fmt: skip
def test_p19_known_ratios_and_a_simulation(experts, top, batch, ratio):
    y = (1 - top / experts) ** batch
    assert acceptance.committed_length_constant(y, 3) == pytest.approx(ratio, abs=0.006)
    rng = np.random.default_rng(19)
    if experts == 8:
        touched = [
            np.mean([len(set(np.concatenate([rng.permutation(8)[:2] for _ in range(t)]))) for _ in range(2000)])
            for t in (batch, 4 * batch)
        ]
        assert touched[1] / touched[0] == pytest.approx(ratio, rel=0.02)


@pytest.mark.claims("C7.3")
def test_p20_on_simulated_streams():
    rng = np.random.default_rng(20)
    L = np.minimum(rng.geometric(0.2, 100_000), 9)
    T = rng.gamma(9, 0.002, 100_000) * (1 + 0.05 * L)  # longer rounds commit more
    gaps = np.zeros(L.sum())
    gaps[np.concatenate([[0], np.cumsum(L)[:-1]])] = T
    assert gaps.mean() == pytest.approx(T.mean() / L.mean(), rel=1e-12)
    assert (gaps == 0).mean() == pytest.approx(1 - 1 / L.mean(), rel=1e-12)
    cv2 = lambda x: x.var() / x.mean() ** 2  # noqa: E731
    assert cv2(gaps) == pytest.approx(L.mean() * (1 + cv2(T)) - 1, rel=1e-9)
    assert np.median(gaps) == 0


@pytest.mark.claims("C3.2")
def test_p21_on_random_trees_by_enumeration():
    """Each parent accepts at most one child; walk through all outcomes and compare with the sum of path survivals."""
    rng = np.random.default_rng(21)

    def grow(depth):
        chances = rng.dirichlet(np.ones(3))[: rng.integers(0, 3) if depth else 0]
        return [(chance, grow(depth - 1)) for chance in chances]

    def committed(children):
        return 1 + sum(chance * committed(below) for chance, below in children)

    def survivals(children, path=1.0):
        return [v for chance, below in children for v in (path * chance, *survivals(below, path * chance))]

    for _ in range(200):
        tree = grow(4)
        assert committed(tree) == pytest.approx(1 + sum(survivals(tree)))


def test_p21_the_largest_survivals_are_the_best_tree_of_their_size():
    """Brute force over all ancestor-closed subsets of a small tree."""
    parent = [-1, -1, 0, 0, 1, 2, 2, 4]
    chance = [0.6, 0.3, 0.5, 0.4, 0.9, 0.7, 0.2, 0.8]
    survival = []
    for up, a in zip(parent, chance, strict=True):
        survival.append(a * (survival[up] if up >= 0 else 1))
    for size in range(9):
        trees = [
            s
            for s in product((0, 1), repeat=8)
            if sum(s) == size and all(not x or up < 0 or s[up] for x, up in zip(s, parent, strict=True))
        ]
        best = max(sum(f for f, x in zip(survival, s, strict=True) if x) for s in trees)
        assert best == pytest.approx(sum(sorted(survival, reverse=True)[:size]))


# Premises that only say what the letters mean: the identities of these proofs hold without them.
MEANING = {
    ("P2", "0\\le a_i"),
    ("P4", "0\\le a_i"),
    ("P8", "0\\le a_i"),
    ("P15", "0\\le a_i"),
    ("P19", "Each token"),
    ("P20", "n\\ge1"),
}
PREMISES = [
    (proof, premise)
    for proof in all_proofs()
    for premise in proof.premises
    if premise.facts
    and not any(proof.id == id and premise.words.lstrip("$").startswith(start) for id, start in MEANING)
]


@pytest.mark.slow
@pytest.mark.parametrize("proof, premise", PREMISES, ids=[f"{p.id}-{n}" for n, (p, _) in enumerate(PREMISES)])
def test_no_proof_goes_through_without_one_of_its_premises(proof, premise):
    rest = [part for part in proof.parts if part is not premise]
    assert kernel._run(rest, (proof.id,)).status == "failed"
