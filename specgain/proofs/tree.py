"""Theorem about drafts that branch: the committed length of a tree, and which nodes to keep."""

from sympy import IndexedBase, Rational, Sum, Symbol

from specgain.acceptance import committed_length_constant
from specgain.proofs.algebra import Definition
from specgain.proofs.kernel import AtLeast, Given, Human, Identity, Induction, Needed, Where, theorem
from specgain.proofs.symbols import gamma, h, i, j, k, n, positive, s_

f = IndexedBase("f", nonnegative=True)  # f_{d,v}, the path survival of node v on level d
g = IndexedBase("g", nonnegative=True)
width = IndexedBase("w", integer=True, nonnegative=True)  # w_d, the nodes on level d


@theorem(
    "P21",
    "The committed length of a tree",
    says=r"$\mathrm E[L]=1+\sum_v f_v$, the sum over all drafted nodes of their path survival $f_v$ (the chance that "
    r"the path to $v$ is "
    r"accepted), whatever the tree. A chain is the case of one node per level; "
    r"a complete tree whose level survives with chance $P$ "
    r"has the closed form with $P$ for $a$. For a given number of nodes, those of largest path survival are best, "
    r"and they form a tree.",
    plain="E[L] = 1 + sum over nodes of path survival; for a given number of nodes the largest survivals are best",
    source="Chen et al. 2024 (Sequoia), Proposition 3.4; the greedy choice is an exchange argument, "
    "used by several authors.",
    claims=["C2.4", "C3.2"],
    mutants={
        "the root is not counted": dict(root=0),
        "the sum over nodes leaves out the last level": dict(levels=n - 1),
        "a child may survive longer than its parent": dict(child=Symbol("c", positive=True)),
        "nodes are chosen by something else than path survival": dict(by_survival=False),
        "the complete tree is short of its last level": dict(power=gamma),
    },
    notes=r"Sequoia's table of best trees rests on the recursion shown in the steps; "
    r"that the optimum is found level by level is the "
    r"principle of dynamic programming.",
)
def tree(root=1, levels=n, child=None, by_survival=True, power=gamma + 1):
    yield Given(
        "On each level at most one node is accepted (siblings propose different tokens), so their chances add up."
    )
    mean = Sum((k + root) * (s_[k] - s_[k + 1]), (k, 0, n - 1)) + (n + root) * s_[n]
    yield Induction(
        "The tail sum (P1, P2) for the accepted depth, with $s_0=1$ the root.", n, mean, s_[0] + Sum(s_[i], (i, 1, n))
    )
    yield Where(r"$s_d=\sum_{v=1}^{w_d}f_{d,v}$", Definition(s_, lambda d: Sum(f[d, j], (j, 1, width[d]))))
    nodes = Sum(Sum(f[i, j], (j, 1, width[i])), (i, 1, levels))
    yield Identity("Put the nodes of a level for its survival.", Sum(s_[i], (i, 1, n)), nodes)
    level = lambda m: Sum(f[k, j], (j, 1, m))  # noqa: E731
    yield Identity("One more node adds its own path survival, as in P4.", level(h + 1) - level(h), f[k, h + 1])
    yield Identity("A chain has one node per level.", Sum(level(1), (k, 1, n)), Sum(f[k, 1], (k, 1, n)))
    (P,) = positive("P")
    yield Given(r"Where it divides, $P\ne1$.")
    yield Induction(r"A complete tree: level $d$ survives with chance $P^d$.", gamma, Sum(P**i, (i, 0, gamma)),
                    committed_length_constant(P, power - 1))  # fmt: skip
    (p,) = (IndexedBase("p", nonnegative=True),)
    below = Sum(p[k] * (1 + Sum(f[k, j], (j, 1, width[k]))), (k, 1, n))
    split = Sum(p[k], (k, 1, n)) + Sum(Sum(p[k] * f[k, j], (j, 1, width[k])), (k, 1, n))
    yield Identity(r"A tree is its root and its subtrees: each commits $p_k\,(1+\dots)$.", below, split)
    yield from _greedy(child, by_survival)
    yield Needed(
        "siblings propose different tokens",
        r"two siblings with the same token, each accepted with chance $3/5$: "
        r"the sum $1+6/5$ exceeds the most a round of depth 1 commits.",
        1 + 2 * Rational(3, 5) > 2,
    )


def _greedy(child, by_survival):
    """Yield why the nodes of largest path survival are the best choice."""
    parent, a, tau = positive("f", "a", "tau")
    yield Given(r"A node survives if its parent does and it is accepted itself, with chance $a\le1$.", a <= 1)
    kid = parent * (a if child is None else child)
    yield AtLeast(
        "So no node survives longer than its parent.",
        parent,
        kid,
        because=parent * (1 - a) if child is None else parent - kid,
    )
    yield Human(
        "Hence the nodes of largest survival (ties: the nearer to the root) contain every parent of theirs: "
        "they form a tree."
    )
    top, other = IndexedBase("f", nonnegative=True), g
    if by_survival:
        yield Given(
            r"$\tau$ lies between the survivals chosen, $f_i\ge\tau$, and those left out, $g_i\le\tau$.",
            top[i] >= tau,
            other[i] <= tau,
            each=i,
        )
    yield AtLeast(
        r"Exchange any $n$ chosen nodes for $n$ others: never a gain.",
        Sum(top[i], (i, 1, n)),
        Sum(other[i], (i, 1, n)),
        because=[Sum(top[i] - tau, (i, 1, n)), Sum(tau - other[i], (i, 1, n))],
    )
