"""Weights of 8 bits, as kernels for `Model(kernel=…)`: one that speculation leaves exact, and two that teach why.

A row of weights w becomes integers from −127 to 127 times one scale. `Int8` does the same to each row of activations, by
that row alone. Products and sums of integers are exact in any order, so a row's result is the same bits, alone or among
others: what verification computes in a wide pass is what plain decoding computes in a narrow one. That holds for the
whole model only if its attention keeps it: the last bit of a sum, which differs with the width of a pass, is enough to
round an activation to the next of 127 steps. `ExactInt8` brings an attention without that difference.
"""

import math
import warnings

import torch
import torch.nn.functional as F

from specgain.lab.linear import KERNELS, best_kernel
from specgain.lab.model import Cache

EXACT_COLUMNS = 1024  # 1024 · 127 · 127 < 2²⁴: so many products add up exactly in float32


def quantize_rows(x, bits=8):
    """Return (integers −127 … 127 as floats, scale (rows, 1)) with x ≈ integers · scale, each row by itself.

    With fewer `bits` the integers go to 2^(bits − 1) − 1 only.
    """
    most = 2 ** (bits - 1) - 1
    scale = x.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny * most) / most
    return (x / scale).round_(), scale


def exact_attention(queries, keys, values, attn_mask=None):
    """Return attention (batch, heads, n, width) summed in float64: rounded back, it no longer depends on the pass.

    `attn_mask` is True where a token may look, or holds numbers to add to the scores.
    """
    scores = queries.double() @ keys.double().transpose(-1, -2) / math.sqrt(queries.shape[-1])
    if attn_mask is not None:
        added = attn_mask.dtype != torch.bool
        scores = scores + attn_mask if added else scores.masked_fill(~attn_mask, -torch.inf)
    return (scores.softmax(dim=-1) @ values.double()).to(queries.dtype)


class Int8:
    """x ↦ x·Wᵀ with W in int8, a scale per row, and each row of x rounded to 8 bits by its own scale.

    The product of integers is done by the first of `PRODUCTS` that is exact here.
    """

    def __init__(self, weight):
        integers, scale = quantize_rows(weight.float())
        self.dtype, self.scale = weight.dtype, scale.flatten()
        product = PRODUCTS[exact_product(weight.device.type)]
        self.product = product(integers.to(torch.int8))

    def __call__(self, x):
        integers, scale = quantize_rows(x.float())
        return (self.product(integers) * scale * self.scale).to(self.dtype)


class ExactInt8(Int8):
    """`Int8` with `exact_attention`: the whole model is exact under speculation, at the price of a slower attention."""

    mix = staticmethod(exact_attention)


class Fbgemm:
    """Integers (rows, inputs) times int8 weights (outputs, inputs), by the kernel that PyTorch's quantized layers use."""

    def __init__(self, weight):
        self.packed = _pack(weight, torch.ones(len(weight), dtype=torch.float64))

    def __call__(self, x):  # its activations are 0 … 255, with 128 for zero
        return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(x, 1.0, 128, self.packed)


class IntMM:
    """The same by `torch._int_mm`. On CUDA it wants more than 16 rows and whole blocks of 8, so rows are added."""

    def __init__(self, weight):
        self.weight = weight.contiguous()

    def __call__(self, x):
        rows, needed = len(x), 24 if x.is_cuda else 1
        x = x.to(torch.int8)
        if x.is_cuda:
            x = F.pad(x, (0, 0, 0, max(needed - rows, -rows % 8)))
        return torch._int_mm(x, self.weight.T)[:rows].float()


class Blocks:
    """The same in float32, a block of columns at a time, small enough to be exact. Works everywhere, and is slow."""

    def __init__(self, weight):
        self.blocks = weight.split(EXACT_COLUMNS, dim=1)

    def __call__(self, x):
        parts = zip(x.split(EXACT_COLUMNS, dim=1), self.blocks, strict=True)
        return sum(F.linear(part, block.float()).double() for part, block in parts).float()


PRODUCTS = {"fbgemm": Fbgemm, "int_mm": IntMM, "blocks": Blocks}  # the fastest first
_chosen = {}


def exact_product(device="cpu"):
    """Return the name of the first of `PRODUCTS` that works on this device and is exact."""
    if device not in _chosen:
        _chosen[device] = next(name for name in PRODUCTS if is_exact(name, device))
    return _chosen[device]


def is_exact(name, device="cpu"):
    """True if a product works here and gets the largest integers right.

    Processors without 8-bit dot products may saturate at 16 bits; then the kernel is passed over.
    """
    weight = torch.tensor([127, -127]).repeat_interleave(8)[:, None].repeat(1, 64).to(device, torch.int8)
    x = torch.full((3, 64), 127.0, device=device)
    x[1], x[2, ::2] = -127, 0
    try:
        return torch.equal(PRODUCTS[name](weight)(x).double(), x.double() @ weight.double().T)
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return False


def _pack(weight, scale):
    """int8 weights with a scale per row, packed for `torch.ops.quantized`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # this way to make quantized tensors is going to be replaced
        zero = torch.zeros(len(scale), dtype=torch.long)
        quantized = torch._make_per_channel_quantized_tensor(weight, scale.double(), zero, 0)
        return torch.ops.quantized.linear_prepack(quantized, None)


# --- counter-examples ----------------------------------------------------------------------------------------------


class Dynamic:
    """PyTorch's dynamic quantization: one scale for *all* rows of a call. Fast, and not exact under speculation.

    A candidate with a large activation makes the scale of the whole pass coarse, so a row's logits depend on its
    neighbours, right or wrong. CPU only.
    """

    def __init__(self, weight):
        integers, scale = quantize_rows(weight.float())
        self.packed = _pack(integers.to(torch.int8), scale.flatten())

    def __call__(self, x):
        return torch.ops.quantized.linear_dynamic(x, self.packed, False)


class WeightOnly:
    """Weights in int8, activations untouched, by `torch._weight_int8pack_mm`: exact, and on CPU n rows cost n times one."""

    def __init__(self, weight):
        integers, scale = quantize_rows(weight.float())
        self.weight, self.scale = integers.to(torch.int8), scale.flatten().to(weight.dtype)

    def __call__(self, x):
        return torch._weight_int8pack_mm(x.contiguous(), self.weight, self.scale)


QUANTIZED = {"int8": Int8, "int8 exact": ExactInt8, "int8 dynamic": Dynamic, "int8 weight-only": WeightOnly}


def rounded(bits):
    """Return a kernel whose weights are rounded to `bits` bits, a scale per row, and that computes in full precision.

    It shows what rounding does to a text. It says nothing about speed: the numbers are stored as they were before.
    """
    if isinstance(bits, bool) or not isinstance(bits, int) or not 2 <= bits <= 8:
        raise ValueError(f"bits = {bits!r} must be a whole number from 2 to 8")

    def kernel(weight):
        integers, scale = quantize_rows(weight.float(), bits)
        return KERNELS[best_kernel(weight.dtype, weight.device)]((integers * scale).to(weight.dtype))

    return kernel


# --- what is lost --------------------------------------------------------------------------------------------------


def divergence(original, quantized, rows, skip=0):
    """Return {kl, kl_max, agreement, positions}: how far the next-token distributions of two models are apart.

    KL(original ‖ quantized) in nats, its mean and maximum over all positions of the token `rows` behind the first `skip`;
    agreement is the share of positions where both have the same most probable token.
    """
    divergences, same = [], []
    for row in rows:
        tokens = torch.as_tensor([list(map(int, row))], device=original.device)
        p, q = (
            F.log_softmax(m(tokens, Cache(m, 1, tokens.shape[1]))[0, skip:].double(), dim=1)
            for m in (original, quantized)
        )
        divergences += (p.exp() * (p - q)).sum(dim=1).tolist()
        same += (p.argmax(dim=1) == q.argmax(dim=1)).tolist()
    if not divergences:
        raise ValueError(f"rows hold no position behind the first {skip}; give longer rows or a smaller skip")
    positions = len(divergences)
    return {
        "kl": math.fsum(divergences) / positions,
        "kl_max": max(divergences),
        "agreement": sum(same) / positions,
        "positions": positions,
    }
