"""Speculation with a tree of candidates: one pass verifies all branches, and the path that the target takes is kept.

The draft fills the tree with its most likely tokens. The target then chooses at every node, by its own rule (greedy or
sampling), and the round walks down from the text's last token as long as the choice is a child that was drafted. So
every committed token is the target's own choice: the output is exact for every tree, and the tree decides only how far
a round gets. The candidates are not drawn, so no rule that keeps the target's law gets further than this walk, and
`Sampling.verification` changes nothing here. Accepted nodes lie scattered in the cache; they are moved together, the
rest is forgotten.
"""

from collections import deque
from itertools import pairwise

import numpy as np
import torch

from specgain.lab.loop import NOTHING, Batch, Round, check_request, device_clock, finished, in_turns, prefill
from specgain.lab.model import Cache
from specgain.lab.sampling import GREEDY, uniform
from specgain.tree import Tree, expand


class TreeDraft:
    """A small model that fills a `Tree` of fixed shape, level by level: one pass of the model for each level."""

    def __init__(self, model, tree):
        self.model, self.vocab, self.tree, self.batch = model, model.config.vocab, tree, None
        self.nodes = self.candidates = len(tree)  # verified; proposed
        depth = np.array([node.depth for node in tree.nodes])
        self._look_at(tree)
        # what each pass needs: its nodes (all levels so far), which of them have children, and where these go
        self._passes = [self._level(depth, d) for d in range(int(depth.max(initial=0)))]

    def _look_at(self, tree):
        """Set the depth of each node, from 0, and which nodes each one sees; the text before them is seen by all."""
        distance, sees = shape_of(tree)
        self._depth, self._sees = distance[1:] - 1, sees[1:, 1:]

    def _level(self, depth, above):
        """(nodes of the levels so far, per child its parent's place among them, the child's place, its rank)."""
        fed = np.flatnonzero(depth <= above)
        place = {node: i for i, node in enumerate(fed.tolist())}
        children = [i for i, node in enumerate(self.tree.nodes) if node.depth == above + 1]
        parents = [place.get(self.tree.nodes[i].parent, -1) for i in children]
        return fed, parents, children, [self.tree.nodes[i].rank for i in children]

    def begin(self, batch, rows):
        """Prefill all but the last token of the new prompts."""
        if batch is not self.batch:
            slots, capacity = batch.text.shape
            self.batch, self.cache = batch, Cache(self.model, slots, capacity + self.candidates)
        prefill(self.model, self.cache, batch, rows)

    def fill(self, batch):
        """Return (tree, tokens (rows, nodes)): the draft's candidates after each row's text."""
        tokens = torch.zeros(len(batch.length), self.nodes, dtype=torch.long)
        logits = self.read(batch)[:, None]  # (rows, 1, vocab), after the text
        for (fed, parents, children, ranks), upcoming in pairwise([*self._passes, None]):
            best = logits.topk(max(ranks) + 1, dim=-1).indices
            tokens[:, children] = best[:, parents if len(fed) else [0] * len(parents), ranks].cpu()
            if upcoming is not None:
                logits = self.pass_over(tokens, upcoming[0])
        return self.tree, tokens

    def read(self, batch):
        """Feed what is new in the text; returns the logits (rows, vocab) after it."""
        self.cache.length = [min(a, n - 1) for a, n in zip(self.cache.length, batch.length, strict=True)]
        feed = [n - a for n, a in zip(batch.length, self.cache.length, strict=True)]
        return self.model.last(batch.tail(feed), self.cache, feed)[1]

    def pass_over(self, tokens, nodes):
        """Return the logits (rows, nodes, vocab) after these nodes of the tree; the cache keeps the text alone."""
        tree, length = (self._depth[nodes], self._sees[nodes][:, nodes]), list(self.cache.length)
        x, place = self.model.hidden(tokens[:, nodes], self.cache, tree=tree)
        self.cache.length = length
        return place.pad(self.model.logits(x))


class GrownTree(TreeDraft):
    """A tree that grows where the draft is confident (EAGLE-2): of all it proposed, the `nodes` best are verified.

    One request at a time, since the shape changes from round to round.
    """

    def __init__(self, model, nodes, depth=4, width=3, beam=3):
        super().__init__(model, Tree(()))
        self.nodes, self.shape = nodes, (depth, width, beam)
        self.candidates = width * (1 + beam * (depth - 1))

    def fill(self, batch):
        """Return (tree, tokens (1, nodes)); ValueError for more than one row."""
        if len(batch.length) > 1:
            raise ValueError("a grown tree takes one request at a time; use rows=1, or a TreeDraft of fixed shape")
        token, width = {}, self.shape[1]

        def confidences(paths):
            if paths == [()]:
                logits = self.read(batch)
            else:
                fed = sorted(token, key=len)
                shape = Tree.of(fed, [[0.0] * width] * self.shape[0])
                self._look_at(shape)
                place = {path: i for i, path in enumerate(shape.paths)}
                every = torch.tensor([[token[path] for path in shape.paths]])
                logits = self.pass_over(every, np.arange(len(every[0])))[0, [place[path] for path in paths]]
            best = logits.softmax(-1).topk(width, dim=-1)
            for path, tokens in zip(paths, best.indices.tolist(), strict=True):
                token.update({(*path, rank): t for rank, t in enumerate(tokens)})
            return best.values.tolist()

        grown = expand(confidences, *self.shape)
        tree = grown.select(grown.largest(min(self.nodes, len(grown))))
        return tree, torch.tensor([[token[path] for path in tree.paths]])


def generate_tree(target, prompts, max_tokens, draft, *, rows=None, sampling=GREEDY, stop=NOTHING, seed=0):
    """Return the `Run` of `generate`, with a tree of candidates in every round; `drafted` counts the nodes verified."""
    loop = stepwise_tree(target, prompts, max_tokens, draft, rows=rows, sampling=sampling, stop=stop, seed=seed)
    return in_turns([loop])[0]


@torch.inference_mode()
def stepwise_tree(target, prompts, max_tokens, draft, *, rows=None, sampling=GREEDY, stop=NOTHING, seed=0):
    """Yield, after each round of `generate_tree`, how many tokens it committed; return the `Run`."""
    prompts = [list(prompt) for prompt in prompts]
    rows = min(rows or len(prompts), len(prompts))
    check_request(target, prompts, max_tokens + draft.nodes, draft, rows)
    batch = Batch(rows, max(map(len, prompts)) + max_tokens + draft.nodes, max_tokens)
    cache, queue = Cache(target, *batch.text.shape), deque(enumerate(prompts))
    rng, clock, rounds, known = uniform(seed), device_clock(target.device), [], None
    while True:
        if queue and (fresh := batch.admit(queue)):
            prefill(target, cache, batch, fresh)
            draft.begin(batch, fresh)
            t0 = clock()
        if not (active := batch.active):
            return finished(prompts, batch.ends, rounds, gamma=draft.nodes)
        tree, tokens = draft.fill(batch)
        if tree is not known:  # a tree of fixed shape stays the same from round to round
            known, shape = tree, shape_of(tree)
        t1 = clock()
        inputs = torch.cat((batch.tail([1] * rows), tokens), dim=1)
        x, _ = target.hidden(inputs, cache, tree=shape)
        logits = target.logits(x)
        t2 = clock()
        choices = np.reshape(sampling.choose(logits, rng)[0], (rows, -1))
        paths = walk(tree, tokens.numpy(), choices)
        requests, accepted, committed = [batch.request[row] for row in active], [], []
        for row in active:
            start, path = batch.length[row] - 1, paths[row]
            new = choices[row, path][: batch.room[row]].tolist()
            committed.append(batch.commit(row, new, stop))
            keep_path(cache, row, start, path)
            accepted.append(len(path) - 1)
        cache.length = [n - 1 for n in batch.length]
        t3 = clock()
        drafted = [len(tree)] * len(active)
        rounds.append(Round(requests, drafted, accepted, committed, t1 - t0, t2 - t1, t3 - t2))
        yield sum(committed)
        t0 = clock()


def shape_of(tree):
    """Return what `Cache.place` needs of a tree and the text's last token before it: (distances, who sees whom)."""
    return torch.from_numpy(tree.offsets()), torch.from_numpy(tree.attention_mask())


def walk(tree, tokens, choices):
    """Return per row the positions of the path that the target's choices take, from 0 (the text's last token) down.

    `tokens` (rows, nodes) are the candidates, `choices` (rows, nodes + 1) what the target says after each position.
    """
    parents = np.array([node.parent + 1 for node in tree.nodes])
    rows, at, paths = np.arange(len(tokens)), np.zeros(len(tokens), np.int64), [[0] for _ in tokens]
    alive = np.full(len(tokens), bool(len(tree)))
    while alive.any():
        hits = (parents == at[:, None]) & (tokens == choices[rows, at][:, None])
        alive &= hits.any(axis=1)
        at = np.where(alive, hits.argmax(axis=1) + 1, at)
        for row in np.flatnonzero(alive):
            paths[row].append(int(at[row]))
    return paths


def keep_path(cache, row, start, path):
    """Move the keys and values of a path, positions after slot `start`, into consecutive slots."""
    source = [start + position for position in path]
    if source[-1] - start != len(path) - 1:
        slots = range(start, start + len(path))
        for store in (cache.keys, cache.values):
            store[:, row, :, slots] = store[:, row, :, source]
