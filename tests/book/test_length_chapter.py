"""Chapter 3: what its cells compute, by other routes; and that what it says about schedules is what the checker says."""

from fractions import Fraction
from itertools import product
from math import e

import numpy as np
import pytest

from specgain import Acceptance, Ledger, RoundTime, lab, schedule
from specgain.acceptance import committed_length_constant
from specgain.lab.recorded import recorded
from specgain.length import best_gamma, step_pays
from specgain.round_time import Affine
from specgain.tree import fastest_tree

CHANCES = Fraction(3, 5), Fraction(1, 5)


def per_token(a, gamma, c=0.05):
    return (1 + c * gamma) / committed_length_constant(a, gamma)


@pytest.mark.claims("C3.5", "C0.3")
def test_no_single_length_serves_the_mixed_load():
    mixed = {(g, h): 2 / (per_token(0.95, g) + per_token(0.2, h)) for g, h in product(range(41), repeat=2)}
    assert max(mixed, key=mixed.get) == (21, 1)
    assert max(range(41), key=lambda g: mixed[g, g]) == 4
    assert [round(mixed[pair], 2) for pair in ((4, 4), (21, 1))] == [1.63, 1.95]


@pytest.mark.claims("C3.1")
def test_a_fixed_overhead_breaks_the_corollary_and_the_rule_from_one_on_does_not_care():
    burdened = Ledger(Acceptance.constant(0.8), RoundTime(draft=Affine(0, 0.05), verify=1.0, other=0.9), 1.0)
    assert burdened.speedup(1) < 1 < burdened.speedup(3)
    assert next(g for g in range(1, 99) if not step_pays(burdened, g)) == best_gamma(burdened) == 10


def walk(tree, path=()):
    """Return E[L] of a tree by walking down: the root's token, then one of the children or none."""
    children = [path + (rank,) for rank in range(len(CHANCES)) if path + (rank,) in tree]
    return 1 + sum(CHANCES[child[-1]] * walk(tree, child) for child in children)


def survival(path):
    value = Fraction(1)
    for rank in path:
        value *= CHANCES[rank]
    return value


@pytest.mark.claims("C3.2")
def test_three_trees_of_depth_four_and_their_bills():
    every = sorted((p for d in (1, 2, 3, 4) for p in product((0, 1), repeat=d)), key=lambda p: (-survival(p), len(p)))
    trees = {"chain": [(0,) * d for d in (1, 2, 3, 4)], "eight": every[:8], "all": every}
    sums = {name: 1 + sum(map(survival, tree)) for name, tree in trees.items()}
    assert sums == {name: walk(tree) for name, tree in trees.items()}
    assert [len(tree) for tree in trees.values()] == [4, 8, 30]
    assert {max(map(len, tree)) for tree in trees.values()} == {4}
    bill = {
        (n, v): float(sums[n] / (1 + Fraction(2, 5) + v * len(t)))
        for n, t in trees.items()
        for v in (Fraction(1, 100), Fraction(1, 20))
    }
    assert sorted(trees, key=lambda n: bill[n, Fraction(1, 100)]) == ["chain", "eight", "all"]
    assert sorted(trees, key=lambda n: bill[n, Fraction(1, 20)]) == ["all", "chain", "eight"]


@pytest.mark.claims("C3.2")
def test_no_tree_of_five_nodes_beats_the_greedy_one():
    """All trees of five nodes with two ranks, by brute force, against the five largest path survivals."""
    trees = {frozenset()}
    for _ in range(5):
        trees = {t | {p} for t in trees for q in [(), *t] for p in (q + (0,), q + (1,)) if p not in t}
    every = sorted((p for d in range(1, 6) for p in product((0, 1), repeat=d)), key=survival, reverse=True)
    assert max(map(walk, trees)) == 1 + sum(map(survival, every[:5]))


@pytest.mark.claims("C3.2")
@pytest.mark.parametrize(("price", "nodes", "depth"), [(0.01, 13, 3), (0.05, 5, 2)])
def test_the_best_tree_for_a_clock(price, nodes, depth):
    """Every size and depth by another route: the largest path survivals of the full tree of that depth."""
    rates = {}
    for d in range(1, 7):
        paths = sorted((float(survival(p)) for n in range(1, d + 1) for p in product((0, 1), repeat=n)), reverse=True)
        for n in range(1, min(30, len(paths)) + 1):
            rates[n, d] = (1 + sum(paths[:n])) / (1 + 0.1 * d + price * n)
    assert max(rates, key=rates.get) == (nodes, depth)
    full = (1 + 0.8 + 0.8**2 + 0.8**3 + 0.8**4) / (1.4 + price * 30)
    assert max(rates.values()) > full


def tiny_tree(draft, text, ranks):
    """Return the fastest tree of at most 8 nodes and its speedup, from the committed times and ranks."""
    cost = lab.Cost.from_json(lab.committed()["cost"])
    steady = cost.round_time(full=0.3)
    prices = steady.t_draft, lambda n: steady.t_verify(n - 1), steady.t_other(4)
    seen = [rank for one in recorded(draft, [text], half=0).values() for rank in one.ranks]
    tree = fastest_tree([seen.count(k) / len(seen) for k in range(ranks)], 8, 8, *prices)
    return tree, tree.row(cost.t_decode, *prices).speedup


@pytest.mark.claims("C3.2")
def test_what_the_chapter_says_about_the_tiny_drafts_trees():
    """Side by side pays for the weak draft on functions, where its chain hardly does; a sure draft wants a chain."""
    (wide, ours), (_, chain) = tiny_tree("weak", "func", 4), tiny_tree("weak", "func", 1)
    assert wide.depth == 1 and len(wide) > 2 and ours > 1.05 > chain
    sure, _ = tiny_tree("strong", "json", 4)
    assert set(sure.levels()) == {1}


def lead(a, c):
    """Return how far the oracle is ahead of the best fixed length, plain decoding included."""
    return 1 / (1 - a + c * a) / max(1.0, *(1 / per_token(a, g, c) for g in range(1, 400)))


@pytest.mark.claims("C3.5")
def test_foresight_is_bounded_for_one_kind_of_text_only():
    leads = [lead(a, c) for a in (0.5, 0.8, 0.9, 0.95, 0.98) for c in (0.01, 0.05, 0.2, 0.5)]
    assert 1.5 < max(leads) < e / (e - 1)
    length = lambda g: (1 + committed_length_constant(0.999, g)) / 2  # noqa: E731
    fixed = max(length(g) / (1 + 0.05 * g) for g in range(1, 1000))
    assert round(500.5 / (1 + 0.05 * 499.5) / fixed, 2) == 2.31


TABLE = [[1, 64, 3], [65, 128, 1], [129, 512, 0]]


@pytest.mark.claims("C3.3")
@pytest.mark.parametrize(
    ("table", "limits", "effective", "code"),
    [
        (TABLE, (512, 3), TABLE, "zero-not-free"),
        ([[1, 16, 3], [32, 128, 2], [256, 512, 0]], (300, 3), [[1, 31, 3], [32, 255, 2], [256, 300, 0]], "gap"),
        (TABLE[:2], (256, 3), [[1, 64, 3], [65, 256, 1]], "tail"),
        ([[1, 16, 5], [17, 32, 4], [33, 64, 3], *TABLE[1:]], (256, 3), [[1, 64, 3], [65, 128, 1], [129, 256, 0]], "clamp"),
    ],
)  # fmt: skip
def test_what_the_chapter_says_the_engine_makes_of_a_table(table, limits, effective, code):
    found = schedule.check(table, *limits, method="eagle3")
    assert found.effective == effective and code in [warning.code for warning in found.warnings]


@pytest.mark.claims("C3.3")
def test_data_parallelism_drops_the_schedule_and_a_draft_model_keeps_its_width():
    assert schedule.check(TABLE, 512, 3, method="eagle3", data_parallel_size=2).effective == [[1, 512, 3]]
    assert "full-width" in [w.code for w in schedule.check(TABLE, 512, 3, method="draft_model").warnings]


@pytest.mark.claims("C3.3")
def test_the_derived_schedule_is_best_at_every_load():
    derived = [[1, 1, 4], [2, 9, 3], [10, 32, 2], [33, 134, 1], [135, 512, 0]]
    for first, last, gamma in schedule.check(derived, 512, 4, method="eagle3").effective:
        for batch in range(first, last + 1):
            t = lambda g: 8 + 0.08 * batch * (g + 1) + 0.5 * g  # noqa: B023, E731
            speeds = [committed_length_constant(0.6, g) / t(g) for g in range(8)]
            assert max(range(8), key=speeds.__getitem__) == gamma


@pytest.mark.claims("C3.3")
def test_the_examples_first_two_ranges_end_at_the_same_step():
    assert [last * (gamma + 1) for _, last, gamma in TABLE] == [256, 256, 512]


@pytest.mark.claims("C2.7")
def test_the_rounds_that_one_percent_needs_are_what_a_simulation_needs():
    """10⁴ runs of the 1,898 rounds that chapter 2 names: 95 % of their means lie within 1 %."""
    rng = np.random.default_rng(3)
    means = 1 + rng.binomial(1898, 0.8, size=10_000) / 1898
    assert 0.94 < np.mean(abs(means / 1.8 - 1) < 0.01) < 0.96
    law = Acceptance.constant(0.8)
    assert round(100 * 1.96 * (law.variance(4) / 300) ** 0.5 / law.committed_length(4)) == 5
