"""Accelerators and models: every value has a source, shapes give the published counts, formats have their bytes."""

import json
import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain import hardware
from specgain.hardware import ACCELERATORS, H100, LLAMA_2_7B, LLAMA_31_8B, MODELS, Accelerator, Experts

WEIGHTS = Path(hardware.__file__).parent / "lab" / "weights"


def header(name):
    """Return the header of a safetensors file: {tensor: {shape, ...}, __metadata__}."""
    with open(WEIGHTS / name, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


@pytest.mark.claims("C5.1", "C5.3")
@pytest.mark.parametrize("shape", MODELS.values(), ids=MODELS)
def test_parameters_match_the_published_count(shape):
    assert shape.parameters == pytest.approx(shape.published, rel=0.01)
    if shape.published_active:
        assert shape.active_parameters == pytest.approx(shape.published_active, rel=0.02)
    assert shape.source and shape.date == "2026-11-29"


def test_exact_counts():
    """Counts of the checkpoints themselves; DeepSeek-V3's has one more bias per expert and layer."""
    counts = {name: MODELS[name].parameters for name in ("Llama-2-7B", "Llama-3.1-8B", "Llama-3.1-70B", "Mixtral-8x7B")}
    assert counts == {
        "Llama-2-7B": 6_738_415_616,
        "Llama-3.1-8B": 8_030_261_248,
        "Llama-3.1-70B": 70_553_706_496,
        "Mixtral-8x7B": 46_702_792_704,
    }
    assert MODELS["SmolLM2-135M"].parameters == 134_515_008
    assert MODELS["Qwen3-0.6B"].parameters == 596_049_920  # norms of queries and keys
    assert MODELS["Qwen3-30B-A3B"].parameters == 30_532_122_624
    assert MODELS["DeepSeek-V3"].parameters + 58 * 256 == 671_026_419_200


@pytest.mark.parametrize(("shape", "file"), [(hardware.TINY_TARGET, "target"), (hardware.TINY_DRAFT, "draft-strong")])
def test_the_tiny_pair_is_the_committed_one(shape, file):
    tensors = header(f"{file}.safetensors")
    config = json.loads(tensors.pop("__metadata__")["config"])
    assert (shape.vocab, shape.width, shape.heads, shape.hidden, shape.layers) == tuple(
        config[key] for key in ("vocab", "width", "heads", "hidden", "layers")
    )

    def size(shape):
        return shape[0] * size(shape[1:]) if shape else 1

    kept = sum(size(t["shape"]) for t in tensors.values())
    shared = 0 if "embed" in tensors else shape.embedding_weights  # the drafts use the target's embedding
    assert shape.parameters == kept + shared


def test_kinds_of_attention_are_all_there():
    assert LLAMA_2_7B.kv_heads == LLAMA_2_7B.heads  # MHA
    assert 1 < LLAMA_31_8B.kv_heads < LLAMA_31_8B.heads  # GQA
    assert hardware.GEMMA_2B.kv_heads == 1  # MQA
    assert hardware.DEEPSEEK_V3.mla and hardware.DEEPSEEK_V3.experts  # MLA, MoE
    assert hardware.QWEN3_30B_A3B.experts and len(MODELS) >= 12


@pytest.mark.claims("C5.1")
def test_ridges_are_those_of_the_data_sheets():
    ridges = {name: round(ACCELERATORS[name].ridge("fp16")) for name in ("A100", "H100", "T4", "L4")}
    assert ridges == {"A100": 153, "H100": 295, "T4": 203, "L4": 403}
    assert H100.ridge("int4", arithmetic="fp16") == pytest.approx(H100.ridge("fp16") / 4)  # P17: a quarter of it
    assert all(a.source and a.date for a in ACCELERATORS.values())


def test_measured_ceilings_replace_the_data_sheet():
    here = H100.measured(bandwidth=3.0e12, flops=700e12, source="this machine", date="2026-11-29")
    assert (here.bandwidth, here.peak("fp16"), here.source) == (3.0e12, 700e12, "this machine")
    assert here.peak("fp8") / here.peak("fp16") == pytest.approx(H100.peak("fp8") / H100.peak("fp16"))
    assert here.peak("bf16") == here.peak("fp16") and here.memory_bytes == H100.memory_bytes
    only = H100.measured(flops={"fp8": 1e15})
    assert (only.peak("fp8"), only.peak("fp16"), only.bandwidth) == (1e15, 989e12, 3.35e12)
    assert H100.peak("fp16") == 989e12  # the original is as it was


def test_frozen_hashable_and_picklable():
    with pytest.raises(FrozenInstanceError):
        H100.bandwidth = 1
    with pytest.raises(TypeError):
        H100.flops["fp16"] = 1
    assert pickle.loads(pickle.dumps(H100)) == H100 and len({H100, H100.measured(bandwidth=1e12)}) == 2
    assert pickle.loads(pickle.dumps(LLAMA_31_8B)) == LLAMA_31_8B


@given(st.integers(1, 300), st.integers(1, 20), st.integers(0, 5000), st.integers(1, 50))
def test_experts_touched_rises_to_all(count, active, tokens, more):
    experts = Experts(count, min(active, count), 8)
    now, later = experts.touched(tokens), experts.touched(tokens + more)
    assert 0 <= now <= later <= count and experts.touched(1) == pytest.approx(experts.active)


def test_a_cut_is_a_smaller_model():
    whole, part = hardware.SMOLLM2_135M, hardware.SMOLLM2_135M.cut(26)
    assert part.kv_numbers_per_token / whole.kv_numbers_per_token == pytest.approx(26 / 30)
    assert whole.parameters - part.parameters == 4 * (whole.attention_weights + 3 * 576 * 1536 + 2 * 576)
    assert hardware.DEEPSEEK_V3.cut(1).moe_layers == 0
    assert LLAMA_31_8B.cut(1, vocab=32000).head_weights == 32000 * 4096


@pytest.mark.parametrize(
    ("wrong", "error", "names"),
    [
        (lambda: hardware.bytes_per_number("fp13"), ValueError, "fp13"),
        (lambda: H100.peak("q4_1"), ValueError, "q4_1"),
        (lambda: H100.measured(bandwidth=-1.0), ValueError, "bandwidth"),
        (lambda: H100.measured(flops=0), ValueError, "flops"),
        (lambda: replace(H100, flops={}), ValueError, "flops"),
        (lambda: replace(H100, memory_bytes=float("inf")), ValueError, "memory_bytes"),
        (lambda: Accelerator("x", 1.0, {"fp13": 1.0}, 1.0, "", ""), ValueError, "fp13"),
        (lambda: replace(LLAMA_31_8B, layers=0), ValueError, "layers"),
        (lambda: replace(LLAMA_31_8B, kv_heads=7), ValueError, "kv_heads"),
        (lambda: Experts(4, 5, 1), ValueError, "active"),
        (lambda: LLAMA_31_8B.cut(33), ValueError, "layers"),
        (lambda: LLAMA_31_8B.cut(1.5), TypeError, "layers must be a whole number, 1 or more"),
    ],
)
def test_bad_input_is_named(wrong, error, names):
    with pytest.raises(error, match=names):
        wrong()
