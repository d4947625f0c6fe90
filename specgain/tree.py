"""Drafts that branch: what a tree commits, what it makes the target verify, and which tree is best.

A node is one drafted token.  It survives if its whole path is accepted, and E[L] = 1 + Σ of the nodes' survivals (P21).
Depth is paid in draft passes, one after the other; the number of nodes is paid in the target's pass.  So every result
here names both: `depth` and `nodes` (verified per round beside the text's own position).

`chances` says how likely children are accepted: `chances[k]` is Pr(the child of rank k is the one accepted | its parent
was), the positional acceptance vector of Chen et al. 2024 (Sequoia); or one such row per depth, the first row for the
children of the root.  Children of one parent exclude each other, so a row sums to at most 1, and a parent has children
of rank 0, 1, …  without a gap.  Floats and `Fraction`s alike.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from specgain import _checks
from specgain.gain import margin, speedup


@dataclass(frozen=True)
class Node:
    """One drafted token: its parent's index in the tree (−1: the text), depth from 1, rank from 0, path survival."""

    parent: int
    depth: int
    rank: int
    survival: float


class Row(NamedTuple):
    """One tree's line of the ledger; `nodes` are verified besides the text's own position, times in seconds."""

    nodes: int
    depth: int
    committed_length: float
    t_round: float
    speedup: float
    margin: float


@dataclass(frozen=True)
class Tree:
    """A tree of candidates: its nodes, every parent before its children.  Position 0 of arrays is the text's last token.

    >>> Tree.chain([0.5, 0.5])
    <Tree: 2 nodes verified, depth 2, E[L] = 1.75>
    """

    nodes: tuple

    def __post_init__(self):
        taken = set()
        for place, node in enumerate(self.nodes):
            above = self.nodes[node.parent] if 0 <= node.parent < place else None
            if above is None and node.parent != -1 or node.depth != 1 + (above.depth if above else 0):
                raise ValueError(f"nodes[{place}] = {node} does not stand one level below an earlier node")
            if (node.parent, node.rank) in taken:
                raise ValueError(f"nodes[{place}] = {node} has the parent and the rank of another node")
            if not 0 <= node.survival <= (above.survival if above else 1):
                raise ValueError(f"nodes[{place}] = {node} survives longer than its parent, or with less than 0")
            taken.add((node.parent, node.rank))

    @classmethod
    def of(cls, paths, chances):
        """Return the tree of `paths`, tuples of ranks from the root; its survivals are the products of `chances`."""
        order = sorted({tuple(path) for path in paths}, key=lambda path: (len(path), path))
        rows = _rows(chances, max(map(len, order), default=0))
        index, nodes = {(): -1}, []
        for path in order:
            if path[:-1] not in index:
                raise ValueError(f"the path {path} has no parent {path[:-1]} in the tree; a tree holds whole paths")
            above = nodes[index[path[:-1]]].survival if len(path) > 1 else 1
            if path[-1] >= len(rows[len(path) - 1]):
                raise ValueError(f"the path {path} has a rank of which `chances` says nothing")
            index[path] = len(nodes)
            nodes.append(Node(index[path[:-1]], len(path), path[-1], above * rows[len(path) - 1][path[-1]]))
        return cls(tuple(nodes))

    @classmethod
    def chain(cls, conditional):
        """Return the chain with acceptances a_1, a_2, …"""
        return cls.of([(0,) * d for d in range(1, len(conditional) + 1)], [[a] for a in conditional])

    @classmethod
    def complete(cls, chances, width, depth):
        """Return the tree in which every node above `depth` has `width` children."""
        paths, level = [], [()]
        for _ in range(depth):
            level = [(*path, rank) for path in level for rank in range(width)]
            paths += level
        return cls.of(paths, chances)

    def __len__(self):
        return len(self.nodes)

    def __repr__(self):
        length = float(self.committed_length)
        return f"<Tree: {len(self)} nodes verified, depth {self.depth}, E[L] = {length:.4g}>"

    @property
    def depth(self):
        """The number of levels, which is the number of draft passes, one after the other."""
        return max((node.depth for node in self.nodes), default=0)

    @property
    def committed_length(self):
        """E[L] = 1 + Σ survivals, the root's own token included.  Source: P21."""
        return 1 + sum(node.survival for node in self.nodes)

    @property
    def paths(self):
        """One tuple of ranks per node, from the root down to it."""
        found = []
        for node in self.nodes:
            found.append((*(found[node.parent] if node.parent >= 0 else ()), node.rank))
        return tuple(found)

    @property
    def survivals(self):
        """A dict {path: survival}, the form in which `figures.trees` draws a tree."""
        return {path: node.survival for path, node in zip(self.paths, self.nodes, strict=True)}

    def accepted(self, ranks):
        """Return how many tokens of a text the tree accepts, given the text's `ranks` among the draft's choices.

        `ranks[i]` is the place of the i-th next token of the target's own text among the draft's choices there, from 0.
        Exact for greedy decoding with a tree whose shape does not depend on the text.
        """
        paths, depth = self._paths, 0
        while depth < len(ranks) and tuple(ranks[: depth + 1]) in paths:
            depth += 1
        return depth

    def rounds_of(self, ranks):
        """Return the accepted tokens of every round of greedy decoding over a whole recorded text (see `accepted`)."""
        position, rounds = 0, []
        while position < len(ranks):
            rounds.append(self.accepted(ranks[position : len(ranks) - 1]))
            position += rounds[-1] + 1
        return rounds

    @cached_property
    def _paths(self):
        return frozenset(self.paths)

    def levels(self):
        """Return the number of nodes on each level, from depth 1 on."""
        return [sum(node.depth == d for node in self.nodes) for d in range(1, self.depth + 1)]

    def row(self, t_decode, t_draft, t_verify, t_other=0.0):
        """Return the `Row` of this tree: `t_draft(depth)` and `t_verify(positions)` in seconds, positions = nodes + 1."""
        terms = (self.committed_length, t_decode, _t_round(len(self), self.depth, t_draft, t_verify, t_other))
        return Row(len(self), self.depth, self.committed_length, terms[2], speedup(*terms), margin(*terms))

    def offsets(self, size=None):
        """Return a NumPy array (size,): each position's distance from the text's last token, padding at 0."""
        import numpy as np

        found = np.zeros(self._size(size), dtype=np.int64)
        found[1 : len(self) + 1] = [node.depth for node in self.nodes]
        return found

    def attention_mask(self, size=None):
        """Return a NumPy bool array (size, size): position i sees j if j is i itself, an ancestor, or the text's token.

        `size` ≥ nodes + 1 pads to a static shape; a padding position sees only itself, and nobody sees it.
        """
        import numpy as np

        mask = np.eye(self._size(size), dtype=bool)
        mask[: len(self) + 1, 0] = True
        for place, node in enumerate(self.nodes, start=1):
            if node.parent >= 0:
                mask[place] |= mask[node.parent + 1]
        return mask

    def _size(self, size):
        if size is not None and size < len(self) + 1:
            raise ValueError(f"size = {size} is too small for {len(self)} nodes and the text's own position")
        return len(self) + 1 if size is None else size

    def largest(self, count):
        """Return the indices of the `count` nodes of largest survival, in order; they hold all of their parents (P21)."""
        _checks.whole("count", count)
        order = sorted(range(len(self)), key=lambda place: (-self.nodes[place].survival, place))
        return sorted(order[:count])

    def select(self, indices):
        """Return the tree of these nodes alone; ValueError if a parent is missing."""
        new = {-1: -1} | {old: place for place, old in enumerate(sorted(indices))}
        chosen = [self.nodes[old] for old in sorted(indices)]
        if missing := [node for node in chosen if node.parent not in new]:
            raise ValueError(f"the parent of {missing[0]} is not among the indices; keep whole paths")
        return Tree(tuple(Node(new[n.parent], n.depth, n.rank, n.survival) for n in chosen))


def _rows(chances, depth):
    """Return one row of children's chances per depth; a single vector serves every depth."""
    per_depth = len(chances) > 0 and hasattr(chances[0], "__len__")
    rows = [tuple(row) for row in chances] if per_depth else [tuple(chances)] * depth
    for d, row in enumerate(rows, start=1):
        for rank, chance in enumerate(row):
            _checks.probability(f"chance of rank {rank} at depth {d}", chance)
        if sum(row) > 1 + 1e-9:
            raise ValueError(
                f"the chances at depth {d} sum to {float(sum(row))}; siblings exclude each other, so at most 1"
            )
    if len(rows) < depth:
        raise ValueError(f"chances knows {len(rows)} depths and the tree has {depth}; give one row per depth")
    return rows[:depth]


def _t_round(nodes, depth, t_draft, t_verify, t_other):
    return t_draft(depth) + t_verify(nodes + 1) + t_other


# ------------------------------------------------------------------------------------------ the best tree


def best_tree(chances, nodes, depth):
    """Return the tree with the largest E[L] of at most `nodes` nodes and `depth` levels, by dynamic programming.

    Ties go to fewer nodes.  The time grows as depth · ranks · nodes².  Source: Chen et al. 2024 (Sequoia), section 4.1,
    here with chances that may differ from depth to depth.

    >>> best_tree([0.6, 0.2], nodes=3, depth=4)
    <Tree: 3 nodes verified, depth 3, E[L] = 2.176>
    """
    rows = _rows(chances, _checks.whole("depth", depth))
    return _read(_tables(rows, _checks.whole("nodes", nodes)), rows, nodes)


def _tables(rows, nodes):
    """Return one table per depth for the children of one node there: table[k][n] = (tokens, nodes used, m).

    These are the most tokens that its children of rank k and on bring if they and theirs are at most n nodes, and m is
    the size of the subtree of child k in that choice (0: no such child).
    """
    tables, below = (
        [],
        [(1, 1)] * (nodes + 1),
    )  # below[m]: tokens and nodes of a child whose subtree has m nodes at most
    for row in reversed(rows):
        table = [[(0, 0, 0)] * (nodes + 1)]
        for chance in reversed(row):
            table.insert(0, [_best_split(chance, below, table[0], n) for n in range(nodes + 1)])
        below = [(1, 1)] + [(1 + tokens, 1 + used) for tokens, used, _ in table[0][:-1]]
        tables.insert(0, table)
    return tables


def _best_split(chance, below, after, n):
    """Return the best entry for n nodes: m for a child of this chance, the others after it."""
    options = [(0, 0, 0)]
    for m in range(1, n + 1):
        (tokens, used), (more, others, _) = below[m], after[n - m]
        options.append((chance * tokens + more, used + others, m))
    return max(options, key=lambda entry: (entry[0], -entry[1], -entry[2]))


def _read(tables, rows, nodes):
    """Return the tree that the tables choose for `nodes` nodes."""
    paths, waiting = [], [((), nodes)]
    while waiting:
        path, left = waiting.pop()
        for rank, table in enumerate(tables[len(path)][:-1] if len(path) < len(tables) else []):
            if (size := table[left][2]) == 0:
                break
            paths.append((*path, rank))
            waiting.append(((*path, rank), size - 1))
            left -= size
    return Tree.of(paths, rows)


def fastest_tree(chances, nodes, depth, t_draft, t_verify, t_other=0.0):
    """Return the tree with the most tokens per second, E[L] / (T_draft(depth) + T_verify(nodes + 1) + T_other).

    `t_draft(depth)` and `t_verify(positions)` are seconds, of any shape: every number of nodes up to `nodes` and every
    depth up to `depth` is tried, each with its tree of largest E[L].  Ties go to fewer nodes, then to less depth.
    Source of the objective: Chen et al. 2024 (Sequoia), section 4.3.
    """
    return _best(chances, nodes, depth, t_draft, t_verify, t_other, lambda length, t_round: length / t_round)


def best_tree_within(seconds, chances, nodes, depth, t_draft, t_verify, t_other=0.0):
    """Return the tree with the largest E[L] whose round takes at most `seconds`; None if not even the bare round fits."""
    _checks.positive_time("seconds", seconds)
    costs = (t_draft, t_verify, t_other)
    return _best(chances, nodes, depth, *costs, lambda length, t_round: length if t_round <= seconds else None)


def _best(chances, nodes, depth, t_draft, t_verify, t_other, worth):
    """Return the tree of greatest `worth(E[L], t_round)` among the best trees of every size and depth, or None."""
    rows, found = _rows(chances, _checks.whole("depth", depth)), []
    for levels in range(depth + 1):
        tables = _tables(rows[:levels], _checks.whole("nodes", nodes))
        for n in range(levels, nodes + 1 if levels else 1):
            tokens, used, _ = tables[0][0][n] if levels else (0, 0, 0)
            value = worth(1 + tokens, _t_round(used, levels, t_draft, t_verify, t_other))
            if value is not None:
                found.append(((value, -used, -levels), tables, rows[:levels], n))
    if not found:
        return None
    _, tables, rows, n = max(found, key=lambda entry: entry[0])
    return _read(tables, rows, n)


# ------------------------------------------------------------------------------------------ grown by confidence


def expand(confidences, depth, width, beam):
    """Return the tree of all candidates that a draft proposes in `depth` passes; then keep `select(largest(m))` of it.

    Each pass expands the `beam` nodes of the last level with the largest path product into `width` children each.
    `confidences(paths)` is that pass: given paths (tuples of ranks) it returns, for each, the chances of the next token
    from the most likely down, which stand in for acceptance.  Source: Li et al. 2024 (EAGLE-2).
    """
    index, nodes, level = {(): -1}, [], [()]
    for _ in range(_checks.whole("depth", depth)):
        proposed = confidences(level)
        for path, chances in zip(level, proposed, strict=True):
            above = nodes[index[path]].survival if path else 1
            for rank, chance in enumerate(_rows(list(chances)[:width], 1)[0]):
                index[*path, rank] = len(nodes)
                nodes.append(Node(index[path], len(path) + 1, rank, above * chance))
        grown = [path for path in index if len(path) == len(level[0]) + 1]
        level = sorted(grown, key=lambda path: -nodes[index[path]].survival)[:beam]
        if not level:
            break
    return Tree(tuple(nodes))
