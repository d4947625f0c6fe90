"""Trees of candidates: exact output for every shape, rounds as the tree's own arithmetic says, paths moved together."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specgain.lab.loop import ModelDraft, Stop, generate
from specgain.lab.sampling import Sampling
from specgain.lab.trees import GrownTree, TreeDraft, generate_tree, walk
from specgain.tree import Tree

HALF = [0.5, 0.25, 0.1]
SHAPES = {
    "chain": Tree.chain([0.8] * 4),
    "wide": Tree.complete(HALF, 3, 1),
    "binary": Tree.complete(HALF, 2, 3),
    "mixed": Tree.of([(0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 1, 0), (0, 0, 0, 0)], [HALF] * 4),
}
PROMPTS = [[5, 7, 11], [1], [9, 8, 7, 6, 5, 4], [33, 60, 2, 2]]


@pytest.fixture(scope="module")
def pairs(make_pair):
    return [make_pair(seed, torch.float64, noise=0.02) for seed in range(3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_greedy_output_is_that_of_plain_decoding(pairs, shape, rows):
    for target, model in pairs:
        plain = [o.tokens for o in generate(target, PROMPTS, 21).outputs]
        run = generate_tree(target, PROMPTS, 21, TreeDraft(model, SHAPES[shape]), rows=rows)
        assert [o.tokens for o in run.outputs] == plain
        assert all(set(o.log.drafted) == {len(SHAPES[shape])} for o in run.outputs)


def test_a_chain_has_the_rounds_of_the_ordinary_loop(pairs):
    for target, model in pairs:
        tree = generate_tree(target, PROMPTS, 40, TreeDraft(model, SHAPES["chain"])).outputs
        chain = generate(target, PROMPTS, 40, ModelDraft(model), 4).outputs
        for a, b in zip(tree, chain, strict=True):
            assert a.log.accepted[:-2] == b.log.accepted[: len(a.log.accepted) - 2]


def test_rounds_are_what_the_ranks_foretell(pairs):
    """The rank of each token among the draft's choices decides every round of every static tree."""
    from specgain.lab.model import Cache

    deep = 0
    for target, model in pairs:
        for prompt in PROMPTS:
            text = generate(target, [prompt], 30).outputs[0].tokens
            logits = model(torch.tensor([prompt + text]), Cache(model))[0, len(prompt) - 1 : -1]
            order = logits.argsort(dim=-1, descending=True).tolist()
            ranks = [row.index(token) for row, token in zip(order, text, strict=True)]
            for shape in SHAPES.values():
                log = generate_tree(target, [prompt], 30, TreeDraft(model, shape)).outputs[0].log
                expected = shape.rounds_of(ranks)
                assert log.accepted[: len(expected) - 1] == expected[:-1]
                deep = max(deep, *expected)
    assert deep >= 3


@pytest.mark.parametrize("shape", [(4, 3, 2), (1, 2, 1), (3, 3, 3)])
def test_a_grown_tree_is_exact_and_as_large_as_asked(pairs, shape):
    target, model = pairs[0]
    plain = generate(target, [PROMPTS[0]], 25).outputs[0].tokens
    draft = GrownTree(model, 5, *shape)
    log = generate_tree(target, [PROMPTS[0]], 25, draft)
    assert log.outputs[0].tokens == plain and max(log.outputs[0].log.drafted) <= 5
    with pytest.raises(ValueError, match="a grown tree takes one request at a time"):
        generate_tree(target, PROMPTS, 5, draft)


@given(eos=st.integers(0, 60), max_tokens=st.integers(1, 12), shape=st.sampled_from(list(SHAPES)))
def test_ends_inside_a_path_cut_as_in_plain_decoding(pairs, eos, max_tokens, shape):
    target, _ = pairs[1]
    plain = generate(target, PROMPTS, max_tokens, stop=Stop(eos)).outputs
    own = generate_tree(target, PROMPTS, max_tokens, TreeDraft(target, SHAPES[shape]), stop=Stop(eos), rows=2).outputs
    assert [(o.tokens, o.log.finish) for o in own] == [(o.tokens, o.log.finish) for o in plain]


def test_sampled_output_follows_the_target(pairs):
    """The first two tokens over many seeds against the exact law, by χ²."""
    from scipy.stats import chisquare

    target, model = pairs[0]
    prompt, sampling = [5, 7], Sampling(1.0, top_k=4)
    run = generate_tree(
        target, [prompt] * 6000, 2, TreeDraft(model, SHAPES["mixed"]), rows=600, sampling=sampling, seed=2
    )
    from specgain.lab.model import Cache

    first = sampling.probs(target(torch.tensor([prompt]), Cache(target))[0, -1])
    expected = {}
    for a in first.nonzero()[:, 0].tolist():
        second = sampling.probs(target(torch.tensor([[*prompt, a]]), Cache(target))[0, -1])
        expected |= {(a, b): float(first[a] * second[b]) for b in second.nonzero()[:, 0].tolist()}
    counts = dict.fromkeys(expected, 0)
    for output in run.outputs:
        counts[tuple(output.tokens)] += 1
    likely = [pair for pair, p in expected.items() if p * 6000 >= 5]
    observed, wanted = [counts[p] for p in likely], [expected[p] * 6000 for p in likely]
    rest = 6000 - sum(observed), 6000 - sum(wanted)
    if rest[1] > 1:
        observed.append(rest[0])
        wanted.append(rest[1])
    assert chisquare(observed, np.array(wanted) * sum(observed) / sum(wanted)).pvalue > 1e-3


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_block_verification_changes_nothing_for_a_tree(pairs, temperature):
    """The candidates of a tree are not drawn, so the walk goes as far as any rule that keeps the law."""
    target, model = pairs[0]
    runs = [
        generate_tree(
            target,
            [[5, 7]] * 8,
            12,
            TreeDraft(model, SHAPES["mixed"]),
            sampling=Sampling(temperature, verification=rule),
        )
        for rule in ("token", "block")
    ]
    assert len({str([(o.tokens, o.log.accepted) for o in run.outputs]) for run in runs}) == 1


def test_walk_takes_the_child_that_was_chosen():
    tree = SHAPES["binary"]
    tokens = np.array([[10, 11, 20, 21, 22, 23, *range(30, 38)]])
    choices = np.full((1, 15), 99)
    choices[0, 0] = 11  # the second child of the root, at position 2
    children = [i + 1 for i, node in enumerate(tree.nodes) if node.parent == 1]
    choices[0, 2] = tokens[0, children[0] - 1]
    assert walk(tree, tokens, choices) == [[0, 2, children[0]]]
