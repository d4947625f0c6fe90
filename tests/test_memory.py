"""The memory account: bytes per token, the engine's own blocks, admission, recomputation, and the split that adds up."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain import memory
from specgain.hardware import DEEPSEEK_V3, GEMMA_2B, H100, LLAMA_2_7B, LLAMA_31_8B, MODELS, SMOLLM2_135M
from specgain.memory import GIB, KvCache, kv_bytes_per_token

METRICS = Path(__file__).parent / "data" / "engine" / "metrics"
DRAFT = SMOLLM2_135M.cut(26)
SHAPES = st.sampled_from(list(MODELS.values()))


def cache_config(run):
    """Return {key: text} of `vllm:cache_config_info` as the engine printed it after a run."""
    text = (METRICS / f"{run}.after.txt").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("vllm:cache_config_info{"))
    return dict(re.findall(r'(\w+)="([^"]*)"', line))


@pytest.mark.claims("C5.3", "C5.4")
@pytest.mark.parametrize(
    ("run", "draft", "blocks", "tokens"),
    [("plain_repeat_c1", None, 182, 23_296), ("ngram3_repeat_c1", None, 182, 23_296),
     ("draft26k3_repeat_c1", DRAFT, 97, 12_416)],
)  # fmt: skip
def test_the_engine_s_own_blocks(run, draft, blocks, tokens):
    info = cache_config(run)
    space, size = int(info["kv_cache_memory_bytes"]), int(info["block_size"])
    assert space == GIB and size == 128
    cache = KvCache.of(space, SMOLLM2_135M, draft, format="fp32", block_tokens=size)
    assert (cache.blocks, cache.tokens) == (blocks, tokens)
    assert (int(info["num_gpu_blocks"]), int(info["kv_cache_size_tokens"])) == (blocks, tokens)
    full = float(info["kv_cache_max_concurrency"])  # requests of the greatest length, 2,048 tokens
    assert full == blocks / cache.blocks_for(2048) and cache.admits(2048) == int(full)


@pytest.mark.claims("C5.3")
def test_bytes_per_token_of_every_kind_of_attention():
    assert kv_bytes_per_token(LLAMA_2_7B) == 2 * 32 * 32 * 128 * 2  # MHA: 512 KiB
    assert kv_bytes_per_token(LLAMA_31_8B) == 131_072  # GQA: 128 KiB
    assert kv_bytes_per_token(GEMMA_2B) == 2 * 18 * 256 * 2  # MQA
    assert kv_bytes_per_token(DEEPSEEK_V3) == 61 * (512 + 64) * 2  # MLA: one latent vector
    assert kv_bytes_per_token(LLAMA_31_8B, "fp8") == 65_536
    assert memory.candidate_bytes(LLAMA_31_8B, 64, 3) == 64 * 3 * 131_072
    assert memory.weight_bytes(LLAMA_31_8B) == 2 * 8_030_261_248


@given(st.integers(0, 5000), st.integers(1, 256), st.integers(0, 6000), st.integers(0, 16))
def test_blocks_round_up_and_no_block_is_lost(blocks, block_tokens, tokens, lookahead):
    cache = KvCache(blocks, block_tokens)
    needed = cache.blocks_for(tokens, lookahead)
    assert 0 <= needed * block_tokens - (tokens + lookahead) < block_tokens
    admitted = cache.admits(tokens, lookahead)
    assert admitted * needed <= blocks
    if needed:
        assert (admitted + 1) * needed > blocks


@given(SHAPES, SHAPES, st.integers(0, 2**36), st.integers(1, 256))
def test_a_draft_never_adds_blocks(target, draft, space, block_tokens):
    alone = KvCache.of(space, target, block_tokens=block_tokens)
    both = KvCache.of(space, target, draft, block_tokens=block_tokens)
    assert both.blocks <= alone.blocks
    assert alone.tokens * kv_bytes_per_token(target) <= space


@given(st.integers(1, 4000), st.integers(0, 4000), st.integers(0, 8))
def test_longer_requests_are_fewer(prompt, output, lookahead):
    admission = KvCache(2000, 16).admission(prompt, output, lookahead)
    assert admission.arriving >= admission.average >= admission.full


@pytest.mark.claims("C5.4")
def test_recomputation_is_the_whole_text_less_whole_cached_blocks():
    assert memory.recompute_tokens(1000, 300) == 1300
    assert memory.recompute_tokens(1000, 300, cached=1000, block_tokens=16) == 1300 - 62 * 16
    assert memory.recompute_tokens(1000, 300, cached=15, block_tokens=16) == 1300


@pytest.mark.claims("C5.4")
@given(st.sampled_from([LLAMA_2_7B, LLAMA_31_8B, GEMMA_2B]), st.booleans(), st.floats(0, 0.5))
def test_the_split_adds_up(target, shared, reserved):
    draft = target.cut(1)
    found = memory.split(H100.memory_bytes, target, draft, reserved=reserved, shared_embeddings=shared)
    assert sum(found) == pytest.approx(H100.memory_bytes)
    assert found.draft_kv / found.kv == pytest.approx(1 / (target.layers + 1))
    alone = memory.split(H100.memory_bytes, target, reserved=reserved)
    assert alone.kv - found.kv == pytest.approx(found.draft_weights)
    assert alone.draft_weights == alone.draft_kv == 0


def test_lookahead_of_the_engine():
    assert [memory.lookahead_slots(m, 4) for m in ("ngram", "suffix", "eagle3", "draft_model", "dflash")] == [
        0,
        0,
        4,
        4,
        5,
    ]


@pytest.mark.parametrize(
    ("wrong", "error", "names"),
    [
        (lambda: kv_bytes_per_token("llama"), TypeError, "ModelShape"),
        (lambda: kv_bytes_per_token(LLAMA_31_8B, "fp13"), ValueError, "fp13"),
        (lambda: KvCache(-1, 16), ValueError, "blocks"),
        (lambda: KvCache(1, 0), ValueError, "block_tokens must be a whole number, 1 or more"),
        (lambda: KvCache.of(-1, LLAMA_31_8B), ValueError, "space_bytes"),
        (lambda: KvCache.of(float("inf"), LLAMA_31_8B), ValueError, "space_bytes"),
        (lambda: KvCache(1, 16).blocks_for(-1), ValueError, "tokens"),
        (lambda: memory.candidate_bytes(LLAMA_31_8B, 1.5, 3), TypeError, "batch"),
        (lambda: memory.lookahead_slots("tree", 3), ValueError, "tree"),
        (lambda: memory.recompute_tokens(10, 1, cached=12), ValueError, "cached"),
        (lambda: memory.split(16e9, LLAMA_31_8B), ValueError, "no cache fits"),
        (lambda: memory.split(-1, LLAMA_31_8B), ValueError, "memory_bytes"),
        (lambda: memory.split(float("nan"), LLAMA_31_8B), ValueError, "memory_bytes"),
        (lambda: memory.split(80e9, LLAMA_31_8B, reserved=1), ValueError, "reserved"),
    ],
)
def test_bad_input_is_named(wrong, error, names):
    with pytest.raises(error, match=names):
        wrong()
