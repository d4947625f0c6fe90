"""Trees: E[L] by walking, the best tree against brute force, masks by ancestry, growth by confidence."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain import Acceptance, Ledger, RoundTime
from specgain.lab.prediction import rounds_of
from specgain.length import best_gamma
from specgain.tree import Node, Tree, best_tree, best_tree_within, expand, fastest_tree

MODELS = ((0.1, 0.01), (0.05, 0.05), (0.3, 0.02))  # per draft pass, per node, in plain steps


def random_chances(seed, depths=9, ranks=3):
    """Return a random acceptance matrix: rows of chances that sum to at most 1, in no particular order."""
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.ones(ranks + 1), size=depths)[:, :ranks]
    return [[Fraction(float(p)).limit_denominator(1000) * Fraction(99, 100) for p in row] for row in rows]


def decaying(seed, depths=8, ranks=4):
    """Return a random acceptance matrix as drafts have it: the first choice is the likeliest, deeper is less sure."""
    rng = np.random.default_rng(seed)
    first, fade, decay = rng.uniform(0.3, 0.95), rng.uniform(0.9, 1.0), rng.uniform(0.2, 0.7)
    return [[first * fade**d * ((1 - first * fade**d) * decay) ** k for k in range(ranks)] for d in range(depths)]


@cache
def shapes(nodes, ranks):
    """Return all trees of exactly `nodes` nodes, a tree as the tuple of its children's subtrees, ranks without gaps."""
    if nodes == 0:
        return [()]
    found = []

    def split(left, children):
        if left == 0:
            found.append(children)
        elif len(children) < ranks:
            for size in range(1, left + 1):
                for child in shapes(size - 1, ranks):
                    split(left - size, (*children, child))

    split(nodes, ())
    return found


def worth(shape, rows, depth=0):
    """Return the expected accepted nodes of a shape by walking it: another route than summing path products."""
    return sum(rows[depth][k] * (1 + worth(child, rows, depth + 1)) for k, child in enumerate(shape))


@pytest.mark.claims("C3.2")
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_dynamic_programme_is_as_good_as_brute_force(ranks):
    """All trees of at most 9 nodes, for 100 random acceptance matrices at once."""
    matrices = [random_chances(seed, ranks=ranks) for seed in range(100)]
    rows, best = np.moveaxis(np.array(matrices, dtype=float), 0, -1), np.zeros(100)
    for nodes in range(10):
        for shape in shapes(nodes, ranks):
            best = np.maximum(best, worth(shape, rows))
        found = [best_tree(matrix, nodes, depth=9) for matrix in matrices]
        assert [float(tree.committed_length) for tree in found] == pytest.approx(1 + best, rel=1e-12)
        assert max(map(len, found)) == nodes


@given(st.integers(0, 10**6), st.integers(0, 8), st.integers(1, 4))
def test_the_depth_is_a_limit(seed, nodes, depth):
    rows = random_chances(seed, ranks=2)
    best = max(worth(s, rows) for n in range(nodes + 1) for s in shapes(n, 2) if height(s) <= depth)
    found = best_tree(rows, nodes, depth)
    assert found.committed_length == 1 + best and found.depth <= depth


def height(shape):
    return max((1 + height(child) for child in shape), default=0)


@pytest.mark.claims("C3.2")
@given(st.integers(0, 10**6), st.integers(0, 12))
def test_the_largest_survivals_are_the_best_tree_when_ranks_are_sorted(seed, nodes):
    """Two routes to the same optimum (P21): dynamic programming, and cutting the largest survivals out of a big tree."""
    rows = [sorted(row, reverse=True) for row in random_chances(seed, depths=4, ranks=2)]
    every = Tree.complete(rows, 2, 4)
    greedy = every.select(every.largest(nodes))
    assert greedy.committed_length == best_tree(rows, nodes, 4).committed_length


@pytest.mark.claims("C3.2")
@given(st.integers(0, 10**6), st.sampled_from(MODELS))
def test_the_fastest_tree_is_never_slower_than_a_chain_or_a_complete_tree(seed, model):
    best, plain = rates(decaying(seed), *model)
    assert best >= max(plain) * (1 - 1e-12)


def rates(rows, per_pass, per_node, nodes=20):
    """Return tokens per plain step of the fastest tree, and of every chain and complete tree within the same limits."""
    draft, verify = lambda d: per_pass * d, lambda n: 1 + per_node * (n - 1)  # noqa: E731
    rate = lambda tree: tree.row(1.0, draft, verify).speedup  # noqa: E731
    plain = [
        rate(tree)
        for width in range(1, 5)
        for depth in range(9)
        if sum(width**d for d in range(1, depth + 1)) <= nodes
        for tree in [Tree.complete(rows, width, depth)]
    ]
    return rate(fastest_tree(rows, nodes, 8, draft, verify)), plain


@pytest.mark.claims("C3.2")
def test_the_share_of_cases_in_which_the_fastest_tree_is_strictly_faster():
    """100 random drafts under three costs: how often shape alone brings more than 0.1 %, and more than 5 %."""
    leads = [(lambda best, plain: best / max(plain))(*rates(decaying(seed), *m)) for seed in range(100) for m in MODELS]
    assert min(leads) >= 1 - 1e-12
    share = [sum(lead > 1 + least for lead in leads) / len(leads) for least in (0.001, 0.05)]
    assert share == pytest.approx([0.62, 0.067], abs=0.01)


@pytest.mark.claims("C3.2")
def test_the_fastest_tree_is_the_best_of_all_trees_under_any_cost():
    """Brute force over all trees of at most six nodes, with stairs in both costs."""
    for seed in range(20):
        rows, rng = random_chances(seed, ranks=2), np.random.default_rng(seed)
        drafts, verifies = np.cumsum(rng.uniform(0, 0.4, 8)), 1 + rng.uniform(0, 1, 8)
        draft, verify = lambda d: float(drafts[d]), lambda n: float(verifies[n])  # noqa: B023, E731
        every = [(s, n) for n in range(7) for s in shapes(n, 2)]
        rate = lambda s, n: (1 + float(worth(s, rows))) / (draft(height(s)) + verify(n + 1) + 0.1)  # noqa: B023, E731
        found = fastest_tree(rows, 6, 6, draft, verify, 0.1)
        got = float(found.committed_length) / (draft(found.depth) + verify(len(found) + 1) + 0.1)
        assert got == pytest.approx(max(rate(*entry) for entry in every), rel=1e-12)
        budget = 1.8
        fits = [s for s, n in every if draft(height(s)) + verify(n + 1) + 0.1 <= budget]
        inside = best_tree_within(budget, rows, 6, 6, draft, verify, 0.1)
        if inside is None:
            assert not fits
        else:
            assert inside.committed_length == 1 + max(worth(s, rows) for s in fits)
            assert draft(inside.depth) + verify(len(inside) + 1) + 0.1 <= budget


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_a_chain_is_the_chain_of_the_first_chapter(a):
    tree = Tree.chain(a)
    assert tree.committed_length == pytest.approx(Acceptance(a).committed_length(len(a)))
    assert (len(tree), tree.depth, tree.levels()) == (len(a), len(a), [1] * len(a))


@given(st.floats(0.05, 0.95), st.floats(0.01, 0.5))
def test_with_one_rank_the_fastest_tree_is_the_best_length(a, slope):
    book = Ledger(Acceptance([a] * 12), RoundTime.of(lambda g: 1 + slope * g), 1.0)
    tree = fastest_tree([a], 12, 12, lambda d: 0.0, lambda n: 1 + slope * (n - 1))
    gamma = best_gamma(book)
    assert tree.row(1, lambda d: 0.0, lambda n: 1 + slope * (n - 1)).speedup == pytest.approx(
        book.speedup(gamma) if gamma else 1.0, rel=1e-9
    )


@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_complete_tree_has_the_closed_form_of_its_levels(width):
    chances = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)]
    tree, level = Tree.complete(chances, width, 3), sum(chances[:width])
    assert tree.committed_length == sum(level**d for d in range(4))
    assert tree.levels() == [width, width**2, width**3]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(0, 10**6), st.integers(0, 8))
def test_a_tree_replays_a_text_as_the_target_would_walk_it(ranks, seed, nodes):
    """Node by node down the tree; and a chain does what the lab's replay of agreement strings does."""
    tree = best_tree(random_chances(seed), nodes, 4)
    children = {(node.parent, node.rank): place for place, node in enumerate(tree.nodes)}
    position, rounds = 0, []
    while position < len(ranks):
        here, count = -1, 0
        while position + count < len(ranks) - 1 and (here, ranks[position + count]) in children:
            here, count = children[here, ranks[position + count]], count + 1
        rounds.append(count)
        position += count + 1
    assert tree.rounds_of(ranks) == rounds
    text = "".join("10"[rank > 0] for rank in ranks)
    assert Tree.chain([0.5] * nodes).rounds_of(ranks) == [k for _, k in rounds_of(text, nodes)]


def test_mask_and_offsets_follow_ancestry():
    tree = Tree.of([(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 1, 0)], [0.5, 0.3])
    mask, paths = tree.attention_mask(), [(), *tree.paths]
    for i, mine in enumerate(paths):
        for j, other in enumerate(paths):
            assert mask[i, j] == (mine[: len(other)] == other)
    assert tree.offsets().tolist() == [len(path) for path in paths]
    padded = tree.attention_mask(size=10)
    assert (padded[:7, :7] == mask).all() and (padded[7:] == np.eye(10, dtype=bool)[7:]).all()
    assert not padded[:7, 7:].any() and tree.offsets(size=10).tolist()[7:] == [0, 0, 0]


def test_a_chains_mask_is_the_causal_one():
    assert (Tree.chain([0.9] * 4).attention_mask() == np.tri(5, dtype=bool)).all()


def table(paths):
    """A draft whose confidence depends on the path, so that a static tree could not follow it."""
    return [[0.7, 0.2] if sum(path) % 2 == 0 else [0.5, 0.4] for path in paths]


def test_expansion_by_confidence_keeps_the_largest_path_products():
    """With a beam that holds every node, the chosen nodes are the largest of all path products, by brute force."""
    full = expand(table, depth=4, width=2, beam=16)
    assert full.levels() == [2, 4, 8, 16]
    for m in range(1, 12):
        tree = full.select(full.largest(m))
        products = sorted((node.survival for node in full.nodes), reverse=True)[:m]
        assert sorted((node.survival for node in tree.nodes), reverse=True) == products
        assert set(path[:-1] for path in tree.paths) <= {(), *tree.paths}
    for path, node in zip(full.paths, full.nodes, strict=True):
        product = 1.0
        for d in range(len(path)):
            product *= table([path[:d]])[0][path[d]]
        assert node.survival == pytest.approx(product)


def test_a_beam_limits_each_pass():
    asked = []
    tree = expand(lambda paths: asked.append(len(paths)) or table(paths), depth=4, width=2, beam=3)
    assert asked == [1, 2, 3, 3] and tree.levels() == [2, 4, 6, 6]
    assert expand(table, depth=0, width=2, beam=3) == Tree(())


def test_a_row_reports_nodes_beside_depth():
    row = Tree.complete([Fraction(3, 5), Fraction(1, 5)], 2, 4).row(
        1.0, lambda d: 0.1 * d, lambda n: 1 + 0.01 * (n - 1)
    )
    assert (row.nodes, row.depth) == (30, 4) and row.t_round == pytest.approx(1.7)
    assert row.speedup == pytest.approx(1.977, abs=1e-3)
    assert "30 nodes verified, depth 4" in repr(Tree.complete([0.6, 0.2], 2, 4))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tree((Node(0, 1, 0, 0.5),)), r"nodes\[0\]"),
        (lambda: Tree((Node(-1, 2, 0, 0.5),)), "one level below"),
        (lambda: Tree((Node(-1, 1, 0, 0.5), Node(-1, 1, 0, 0.4))), "the parent and the rank"),
        (lambda: Tree((Node(-1, 1, 0, 0.5), Node(0, 2, 0, 0.6))), "survives longer"),
        (lambda: Tree.of([(0, 0)], [0.5]), "no parent"),
        (lambda: Tree.of([(1,)], [0.5]), "says nothing"),
        (lambda: Tree.of([(0,), (0, 0)], [[0.5]]), "knows 1 depths"),
        (lambda: best_tree([0.7, 0.4], 3, 3), "at most 1"),
        (lambda: best_tree([1.2], 3, 3), "rank 0 at depth 1 = 1.2"),
        (lambda: best_tree([0.5], -1, 3), "nodes = -1"),
        (lambda: best_tree([0.5], 3, -1), "depth = -1"),
        (lambda: best_tree_within(0, [0.5], 3, 3, lambda d: 0, lambda n: 1), "seconds = 0"),
        (lambda: Tree.chain([0.5]).attention_mask(size=1), "size = 1"),
        (lambda: Tree.chain([0.5, 0.5]).select([1]), "keep whole paths"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
