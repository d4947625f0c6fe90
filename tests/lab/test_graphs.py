"""The static loop on CPU, where its phases run as they are: the tokens and rounds of the ordinary loop, whatever the shape."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specgain.lab.graphs import (
    GraphLoop,
    StaticCache,
    batch_bucket,
    generate_static,
    span_bucket,
    split_attention,
)
from specgain.lab.loop import ModelDraft, Stop, generate
from specgain.lab.model import Cache, Config, Model
from specgain.lab.quantize import ExactInt8, exact_attention
from specgain.lab.sampling import Sampling


@pytest.fixture(scope="module")
def pairs(make_pair):
    return {seed: make_pair(seed, torch.float64) for seed in range(4)}


def counts(run):
    return [(o.log.drafted, o.log.accepted, o.log.committed, o.log.finish) for o in run.outputs]


@given(
    seed=st.integers(0, 3),
    prompts=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=12), min_size=1, max_size=5),
    gamma=st.integers(0, 6),
    max_tokens=st.integers(1, 20),
    eos=st.sampled_from([None, *range(0, 61, 5)]),
)
@pytest.mark.claims("C1.1", "C1.2")
def test_tokens_and_rounds_are_those_of_the_loop(pairs, seed, prompts, gamma, max_tokens, eos):
    target, draft = pairs[seed]
    stop = Stop(eos)
    loop = generate(target, prompts, max_tokens, ModelDraft(draft), gamma, stop=stop)
    static = generate_static(target, prompts, max_tokens, ModelDraft(draft), gamma, eos=eos)
    assert [o.tokens for o in static.outputs] == [o.tokens for o in loop.outputs]
    assert counts(static) == counts(loop)


@pytest.mark.parametrize("context", [62, 63, 64, 65, 66, 126, 127, 128])
@pytest.mark.parametrize("gamma", [0, 1, 4])
def test_no_token_differs_where_the_span_or_the_context_ends(pairs, context, gamma):
    """Texts that end just before, at and behind a span's last slot, and that fill the model's last position."""
    target, draft = pairs[1]
    prompts = [[i % 61 for i in range(1, context - 5)], [7], [3, 4]]
    loop = generate(target, prompts, 6, ModelDraft(draft), gamma)
    static = generate_static(target, prompts, 6, ModelDraft(draft), gamma)
    assert [o.tokens for o in static.outputs] == [o.tokens for o in loop.outputs]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 9])
def test_batches_around_a_bucket_leave_the_idle_rows_alone(pairs, rows):
    target, draft = pairs[2]
    prompts = [[i + 1, 2 * i + 1] for i in range(rows)]
    loop = GraphLoop(target, draft, rows, 40, 3)
    assert loop.rows == batch_bucket(rows) >= rows
    run = loop.generate(prompts, 9, 3)
    assert [o.tokens for o in run.outputs] == [generate(target, [p], 9).outputs[0].tokens for p in prompts]
    assert (loop.length[rows:] == loop.end[rows:]).all() and (loop.length[rows:] == 1).all()


def test_attention_that_a_kernel_brings_is_used_here_too(make_pair):
    target, draft = make_pair(3, torch.float32)
    exact, masks = target.with_kernel(ExactInt8), []

    def mix(queries, keys, values, attn_mask):
        masks.append(attn_mask)
        return exact_attention(queries, keys, values, attn_mask)

    exact.mix = mix
    prompts = [[5] * 20, [1, 2]]
    plain = [o.tokens for o in generate_static(exact, prompts, 12).outputs]
    assert any(mask is not None and mask.is_floating_point() for mask in masks)  # not only in the prefill
    assert [o.tokens for o in generate_static(exact, prompts, 12, ModelDraft(draft), 3).outputs] == plain
    assert [o.tokens for o in generate(exact, prompts, 12).outputs] == plain


def test_one_loop_serves_request_after_request(pairs):
    target, draft = pairs[3]
    loop = GraphLoop(target, draft, 2, 100, 4)
    for prompts, gamma in (([[5] * 60, [1]], 4), ([[1, 2]], 2), ([[9], [8, 7, 6]], 0), ([[1, 2], [3]], 4)):
        expected = [o.tokens for o in generate(target, prompts, 30, ModelDraft(draft), gamma).outputs]
        assert [o.tokens for o in loop.generate(prompts, 30, gamma).outputs] == expected
    assert {gamma for gamma, _ in loop.phases} == {0, 2, 4} and (4, 64) in loop.phases and (4, 100) in loop.phases


def test_grouped_heads_and_norms_per_head(make_weights):
    config = Config(61, 32, 4, 48, 2, context=64, kv_heads=2, head_width=12, qk_norm=True, tied=False)
    target = Model(config, make_weights(config, 1), torch.float64)
    prompts = [[1, 2, 3], [4]]
    loop = generate(target, prompts, 12)
    static = generate_static(target, prompts, 12, ModelDraft(target), 3)
    assert [o.tokens for o in static.outputs] == [o.tokens for o in loop.outputs]
    assert [o.log.committed for o in static.outputs] == [[4, 4, 4]] * 2


def test_in_single_precision_a_difference_is_a_tie(make_pair):
    """The bar for every device but CPU: identical, or the first difference is between two logits that all but tie."""
    differences = 0
    for seed in range(4):
        target, draft = make_pair(seed, torch.float32)
        for prompt in ([1, 2, 3], [60], list(range(40))):
            plain = generate(target, [prompt], 40).outputs[0].tokens
            tokens = generate_static(target, [prompt], 40, ModelDraft(draft), 4).outputs[0].tokens
            if tokens != plain:
                differences += 1
                at = next(i for i, (a, b) in enumerate(zip(plain, tokens, strict=True)) if a != b)
                logits = target(torch.tensor([prompt + plain[:at]]), Cache(target))[0, -1]
                assert abs(logits[plain[at]] - logits[tokens[at]]) < 1e-3
    assert differences <= 2


@given(st.integers(1, 40_000), st.integers(1, 40_000))
def test_a_span_covers_its_slots_and_wastes_little(slots, capacity):
    span = span_bucket(min(slots, capacity), capacity)
    assert min(slots, capacity) <= span <= capacity
    assert span <= max(64, slots * 1.125 + 1) or slots < 512
    assert span == span_bucket(span, capacity)


def test_buckets_by_hand():
    assert [span_bucket(n, 10_000) for n in (1, 64, 65, 512, 513, 1024, 1025, 2113)] == [
        64,
        64,
        128,
        512,
        576,
        1024,
        1152,
        2304,
    ]
    assert [batch_bucket(n) for n in (1, 2, 3, 4, 5, 16, 17, 64)] == [1, 2, 4, 4, 8, 16, 32, 64]


def test_the_dial_sets_the_acceptance(pairs):
    target, draft = pairs[0]
    loop = GraphLoop(target, draft, 64, 120, 3, dial=[0.9, 0.5, 0.2], seed=4)
    loop.pretend(20, 90)
    accepted, longest = [], 20
    for _ in range(20):
        (_, kept, committed, _), times = loop.round(3, longest)
        accepted += kept
        assert committed == [k + 1 for k in kept] and len(times) == 3
        longest += 4
    share = np.mean([[k >= i for i in (1, 2, 3)] for k in accepted], axis=0)
    assert np.abs(share - [0.9, 0.45, 0.09]).max() < 4 * (0.25 / len(accepted)) ** 0.5
    GraphLoop(target, draft, 1, 40, 3, dial=[1.0] * 3).pretend(30, 10)


@pytest.mark.parametrize("span", [2048, 1000])
def test_attention_in_pieces_is_attention(span):
    generator = torch.Generator().manual_seed(0)
    queries, keys, values = (torch.randn(2, 3, n, 8, generator=generator, dtype=torch.float64) for n in (5, span, span))
    mask = (torch.arange(span) < torch.tensor([[700], [span]]))[:, None, None].expand(2, 1, 5, span)
    expected = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    bias = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    assert torch.allclose(split_attention(queries, keys, values, attn_mask=bias), expected, atol=1e-12)


def test_another_attention_can_be_put_in(pairs):
    target, draft = pairs[0]
    expected = generate_static(target, [[1, 2, 3]], 12, ModelDraft(draft), 3).outputs[0].tokens
    loop, used = GraphLoop(target, draft, 1, 15, 3), []

    def attention(*arguments, attn_mask):
        used.append(arguments[0].shape)
        return split_attention(*arguments, attn_mask)

    loop.cache.mix[4] = attention
    assert loop.generate([[1, 2, 3]], 12, 3).outputs[0].tokens == expected and used


# --- sampling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.7, top_k=3), Sampling(1.2, top_p=0.8)])
def test_sampled_text_follows_the_target_exactly(sampling):
    """χ² of the first three tokens of 4096 rows against the exact distribution; also the cut at a row's end."""
    config = Config(5, 8, 2, 8, 1, context=16)
    generator = torch.Generator().manual_seed(3)
    weights = {name: torch.randn(shape, generator=generator) for name, shape in config.shapes().items()}
    other = {name: w + 0.3 * torch.randn(w.shape, generator=generator) for name, w in weights.items()}
    target, draft = Model(config, weights, torch.float64), Model(config, other, torch.float64)
    rows = 4096
    loop = GraphLoop(target, draft, rows, 16, 4, sampling=sampling, seed=11)
    run = loop.generate([[1, 2]] * rows, 3, 4)  # γ is beyond the end: three tokens are all there is room for
    seen = np.zeros((5, 5, 5))
    np.add.at(seen, tuple(np.array([o.tokens for o in run.outputs]).T), 1)
    texts = torch.cartesian_prod(*[torch.arange(5)] * 3)
    logits = target(torch.cat((torch.tensor([[1, 2]]).expand(125, 2), texts[:, :2]), 1), Cache(target, 125))[:, 1:]
    exact = sampling.probs(logits).gather(2, texts[:, :, None])[:, :, 0].prod(1).view(5, 5, 5).numpy() * rows
    assert (seen[exact == 0] == 0).all()
    often = exact > 5
    chi2 = ((seen - exact)[often] ** 2 / exact[often]).sum()
    degrees = often.sum()
    assert abs(chi2 - degrees) < 4 * (2 * degrees) ** 0.5
    assert 0 < sum(sum(o.log.accepted) for o in run.outputs) < sum(sum(o.log.drafted) for o in run.outputs)


def test_sampling_is_repeatable_by_seed(pairs):
    target, draft = pairs[0]
    texts = [
        generate_static(target, [[1, 2], [3]], 12, ModelDraft(draft), 3, sampling=Sampling(1.0), seed=s).outputs
        for s in (1, 1, 2)
    ]
    assert [o.tokens for o in texts[0]] == [o.tokens for o in texts[1]] != [o.tokens for o in texts[2]]


def test_block_verification_is_refused_where_it_would_change_rounds(pairs):
    target, draft = pairs[0]
    with pytest.raises(ValueError, match="verification = 'block' is not built in static shapes; use 'token' here"):
        generate_static(target, [[1]], 3, ModelDraft(draft), 2, sampling=Sampling(1.0, verification="block"))
    greedy = generate_static(target, [[1]], 3, ModelDraft(draft), 2, sampling=Sampling(verification="block"))
    assert greedy.outputs[0].tokens == generate_static(target, [[1]], 3).outputs[0].tokens


# --- capture, played on a CPU -------------------------------------------------------------------------------------


class Recorder(TorchDispatchMode):
    """Writes down every operation with its tensors, and refuses what a stream that is captured refuses."""

    refused = ("_local_scalar_dense", "nonzero", "_unique", "masked_select", "is_nonzero")

    def __init__(self, operations):
        super().__init__()
        self.operations = operations

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not any(word in str(func) for word in self.refused), f"{func} makes the host wait"
        result = func(*args, **kwargs or {})
        self.operations.append((func, args, kwargs or {}, result))
        return result


class Graph:
    """What a CUDA graph is: the same operations on the same memory, and no line of Python in between."""

    def __init__(self):
        self.operations, self.generators = [], []

    def register_generator_state(self, generator):
        self.generators.append(generator)

    @torch.inference_mode()
    def replay(self):
        for func, args, kwargs, old in self.operations:
            for before, new in zip(tree_leaves(old), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(new, torch.Tensor) and new.data_ptr() != before.data_ptr():  # no view, not in place
                    before.copy_(new)


@pytest.fixture
def graphs_on_cpu(monkeypatch):
    stream, made = SimpleNamespace(wait_stream=lambda other: None), []

    @contextmanager
    def graph(graph, pool, stream):
        made.append(graph)
        with Recorder(graph.operations):
            yield

    for name, fake in {"Stream": lambda: stream, "current_stream": lambda device: stream, "stream": lambda s: nullcontext(),
                       "CUDAGraph": Graph, "graph": graph}.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, fake)
    return made


def captured_loop(*arguments, **options):
    loop = GraphLoop(*arguments, **options)
    loop.pool, loop.stream = "a pool", torch.cuda.Stream()
    return loop


@pytest.mark.parametrize("eos", [None, 7])
def test_replays_of_what_was_captured_write_the_same_text(pairs, graphs_on_cpu, eos):
    """Captured at one length, replayed at all others and for other prompts: nothing of the capture may be left in it."""
    target, draft = pairs[1]
    loop = captured_loop(target, draft, 3, 80, 4, eos=eos)
    for prompts, gamma in (
        ([[1, 2, 3], [9], [4] * 20], 4),
        ([[5] * 60, [8]], 4),
        ([[2, 1], [60]], 0),
        ([[7], [3, 3]], 4),
    ):
        expected = generate(target, prompts, 12, ModelDraft(draft), gamma, stop=Stop(eos))
        run = loop.generate(prompts, 12, gamma)
        assert [o.tokens for o in run.outputs] == [o.tokens for o in expected.outputs]
        assert counts(run) == counts(expected)
    assert len(graphs_on_cpu) == sum(3 if gamma else 2 for gamma, _ in loop.phases) and not graphs_on_cpu[0].generators


def test_a_capture_changes_no_text(pairs, graphs_on_cpu):
    target, draft = pairs[0]
    loop = captured_loop(target, draft, 2, 64, 3)
    loop.start([[1, 2, 3], [4]], 20)
    before = [t.clone() for t in (loop.text, loop.length, loop.end)]
    with torch.inference_mode():
        loop._phases(3, 64)
    assert all(torch.equal(a, b) for a, b in zip(before, (loop.text, loop.length, loop.end), strict=True))


def test_replayed_sampling_draws_anew(pairs, graphs_on_cpu):
    target, draft = pairs[0]
    loop = captured_loop(target, draft, 32, 40, 3, sampling=Sampling(1.0))
    run = loop.generate([[1, 2]] * 32, 20, 3)
    assert graphs_on_cpu[0].generators == [loop.rng] and len({tuple(o.tokens) for o in run.outputs}) == 32
    dialled = captured_loop(target, draft, 32, 40, 3, dial=[0.5] * 3)
    dialled.pretend(10, 25)
    assert len({tuple(dialled.round(3, 30)[0][1]) for _ in range(5)}) == 5


# --- errors -------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_named(pairs):
    target, draft = pairs[0]
    loop = GraphLoop(target, draft, 2, 20, 3)
    with pytest.raises(ValueError, match="3 prompts do not fit into 2 rows"):
        loop.generate([[1], [2], [3]], 4, 2)
    with pytest.raises(ValueError, match="need 24 positions; this loop has capacity = 20"):
        loop.generate([[1] * 10], 14, 2)
    with pytest.raises(ValueError, match="gamma = 4: this loop was made for 0 to 3"):
        loop.generate([[1]], 4, 4)
    with pytest.raises(ValueError, match="gamma = 1: this loop was made for 0 to 0"):
        GraphLoop(target, None, 1, 20).generate([[1]], 4, 1)
    with pytest.raises(ValueError, match="exceed capacity = 20"):
        loop.pretend(18, 3)
    with pytest.raises(ValueError, match="capacity = 129 must be from 1 to the model's context of 128"):
        GraphLoop(target, draft, 1, 129)
    with pytest.raises(ValueError, match="needs a draft"):
        generate_static(target, [[1]], 4, None, 2)


def test_a_static_cache_with_a_list_of_lengths_is_an_ordinary_one(pairs):
    target, _ = pairs[0]
    a, b = StaticCache(target, 1, 20), Cache(target, 1, 20)
    tokens = torch.tensor([[1, 2, 3, 4]])
    a.length = [0]
    assert torch.equal(target(tokens, a), target(tokens, b)) and a.length == b.length == [4]
