"""Chapter 5: what its prose says about its own cells, by other routes and with other seeds."""

import re
from dataclasses import replace
from pathlib import Path

import jupytext
import pytest

from specgain import Acceptance, Ledger, memory
from specgain.acceptance import committed_length_constant
from specgain.hardware import H100, H200, LLAMA_31_8B, QWEN3_06B, QWEN3_4B, QWEN3_30B_A3B, T4
from specgain.roofline import Pass, Roofline, critical_context
from specgain.serving import Engine, Request, poisson, simulate

CHAPTER = Path(__file__).resolve().parents[2] / "book" / "05-load-and-context.md"
ONE_LAYER = QWEN3_4B.cut(1)


def afternoon(draft, seed, rate=1.0, shared=False, count=200):
    gamma = 3 if draft else 0
    space = memory.split(T4.memory_bytes, QWEN3_4B, draft, shared_embeddings=shared).kv
    cache = memory.KvCache.of(space, QWEN3_4B, draft)
    engine = Engine(Roofline(T4, QWEN3_4B, draft).step, num_blocks=cache.blocks, lookahead=gamma)
    asked = list(poisson(rate, count, Request(1500, 500), seed))
    return simulate(engine, asked, gamma, Acceptance.constant(0.8) if draft else None, seed=seed)


@pytest.mark.claims("C5.4")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_faster_rounds_and_slower_requests(seed):
    plain, spec, thin = afternoon(None, seed), afternoon(QWEN3_06B, seed), afternoon(ONE_LAYER, seed, shared=True)
    assert spec.totals.token_time < 0.6 * plain.totals.token_time and spec.mean("tpot") < 0.6 * plain.mean("tpot")
    assert spec.totals.preemptions > plain.totals.preemptions > 0
    assert spec.mean("latency") > plain.mean("latency")
    assert spec.totals.tokens / spec.totals.time < 0.95 * plain.totals.tokens / plain.totals.time
    assert thin.totals.preemptions == 0 and thin.mean("latency") < plain.mean("latency") / 3
    lengths = [run.totals.committed_length for run in (spec, thin)]
    assert lengths == pytest.approx([committed_length_constant(0.8, 3)] * 2, rel=0.01)  # the same acceptance


@pytest.mark.claims("C5.4")
def test_a_quiet_morning_says_the_opposite():
    plain, spec = afternoon(None, 2, rate=0.5, count=100), afternoon(QWEN3_06B, 2, rate=0.5, count=100)
    assert spec.mean("latency") < 0.6 * plain.mean("latency") and plain.totals.preemptions == 0
    alone = Roofline(T4, QWEN3_4B, QWEN3_06B)
    ledger = Ledger(Acceptance.constant(0.8), alone.round_time(1, 1750), alone.t_decode(1, 1750))
    assert 1.9 < ledger.speedup(3) < 2.0  # "almost twice as fast"


def test_the_chapter_s_afternoon_is_this_one():
    """The folded first cell, run as it stands with fewer requests."""
    cell = next(c for c in jupytext.read(CHAPTER).cells if c.cell_type == "code")
    source = re.sub(r"^:tags:.*\n", "", cell.source).split("busy = ")[0]
    names = {}
    exec(compile(source, "<chapter 5>", "exec"), names)
    theirs, ours = names["afternoon"](QWEN3_06B, count=30), afternoon(QWEN3_06B, 2, count=30)
    assert theirs.mean("latency") == ours.mean("latency")


@pytest.mark.claims("C5.3", "C5.4")
def test_what_the_prose_says_about_room():
    space = {draft: memory.split(T4.memory_bytes, QWEN3_4B, draft).kv for draft in (None, QWEN3_06B)}
    tokens = {draft: memory.KvCache.of(kv, QWEN3_4B, draft).tokens for draft, kv in space.items()}
    assert tokens[QWEN3_06B] < tokens[None] / 2  # "takes more than half of the room"
    assert QWEN3_06B.kv_heads == QWEN3_4B.kv_heads and QWEN3_06B.head_dim == QWEN3_4B.head_dim
    family = Roofline(T4, QWEN3_4B, QWEN3_06B)
    cost = [family.t_draft(1, 16, n) / family.t_decode(16, n) for n in (0, 8000)]
    assert cost[0] == pytest.approx(1 / 7, abs=0.01) and cost[1] > 0.5
    one = LLAMA_31_8B.cut(1)
    assert memory.kv_bytes_per_token(LLAMA_31_8B) == 32 * memory.kv_bytes_per_token(one)


@pytest.mark.claims("C5.1", "C5.2")
def test_what_the_prose_says_about_load():
    server = Roofline(H100, LLAMA_31_8B, LLAMA_31_8B.cut(1, vocab=32000))
    ratio = [server.t_verify(3, b, 1000) / server.t_decode(b, 1000) for b in (1, 64)]
    assert max(ratio) < 1.01
    linear = [server.parts(pass_) for pass_ in (Pass.of(256, 1, 1000), Pass.of(256, 4, 1000))]
    assert 3.4 < linear[1]["linear"] / linear[0]["linear"] < 3.6
    law = Acceptance.constant(0.6)

    def gain(roof, batch, law=law):
        return Ledger(law, roof.round_time(batch, 500), roof.t_decode(batch, 500)).speedup(3)

    better, parallel = Acceptance.constant(0.9), replace(server, parallel=True)
    fp8 = replace(server, format="fp8", arithmetic="fp8")
    for batch in (16, 128, 256):
        assert gain(server, batch, better) > 1.4 * gain(server, batch)
        assert gain(server, batch) < gain(parallel, batch) < 1.1 * gain(server, batch)
    assert gain(fp8, 256) > 1.2 * gain(server, 256)  # the threshold moved
    for roof, its_law in ((server, law), (server, better), (parallel, law), (fp8, law)):
        gains = [gain(roof, batch, its_law) for batch in (16, 128, 256, 512)]
        assert gains == sorted(gains, reverse=True) and gains[-1] < 0.75 * gains[0]  # none makes it go away


@pytest.mark.claims("C5.2")
def test_a_mixture_of_experts_gains_with_the_load():
    dense = replace(QWEN3_30B_A3B.cut(1), experts=None)
    roof, law = Roofline(H200, QWEN3_30B_A3B, dense), Acceptance.constant(0.7)
    gain = {b: Ledger(law, roof.round_time(b, 500), roof.t_decode(b, 500)).speedup(3) for b in (1, 16, 128)}
    assert gain[1] < 0.9 < 1.5 < gain[16] < gain[128]


@pytest.mark.claims("C5.3")
def test_the_context_brings_the_gain_back_until_the_memory_is_full():
    head = LLAMA_31_8B.cut(1, vocab=32000)
    server, law = Roofline(H100, LLAMA_31_8B, head), Acceptance.constant(0.7)
    cache = memory.KvCache.of(memory.split(H100.memory_bytes, LLAMA_31_8B, head).kv, LLAMA_31_8B, head)
    gains = [Ledger(law, server.round_time(256, n), server.t_decode(256, n)).speedup(3) for n in (64, 500, 1500, 4000)]
    assert gains[0] < 1 < gains[1] < 1.2 < gains[2] < gains[3]
    assert cache.admits(4000) < 256 <= cache.admits(1500)
    assert cache.admits(64) > 256 and critical_context(H100, LLAMA_31_8B, 3) < 4000


def test_the_exercises_end_where_the_text_says():
    length = committed_length_constant(0.7, 3)

    def t_pass(n):
        return max(10, n / 16)

    turn = next(b for b in range(1, 999) if t_pass(4 * b) + 1.5 >= length * t_pass(b))
    assert turn > 2 * 160 / 4
    cache = memory.KvCache(250, 64)
    assert cache.admits(600, 4) - cache.admits(1000, 4) == 10
    assert 30e9 / (2 * 40 * 8 * 128 * 2 + 2 * 20 * 4 * 128 * 2) == pytest.approx(0.8 * 30e9 / (2 * 40 * 8 * 128 * 2))
