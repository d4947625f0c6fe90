"""A matrix product for a handful of rows, by the fastest kernel there is: it decides whether verification is cheap.

Which kernel that is depends on the processor. On AMD's, `F.linear` punishes two to nine rows so much that verifying five
positions can cost twice one position; a weight packed once for oneDNN does not, and its product of four rows even takes
less time than that of one, so a plain step gains by adding empty rows. On Intel's, MKL reads a weight for up to three
rows faster than oneDNN does for any. `python -m benchmarks.kernels` shows it, `plain_steps` checks it on any machine.
"""

import os
import platform
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F

# oneDNN compiles a product for every number of rows and forgets all but the last 1024 of them; a batch whose rows have
# unequal lengths brings a new number in every pass. Read when the first product is compiled.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")
ROWS = 4  # the packed product of so many rows is the fastest; fewer are padded
LARGE = 2**18  # weights in a matrix (1 MiB in float32); below, a call of oneDNN costs more than it saves on one row
FEW, LARGE_FOR_MKL = 3, 2**19  # MKL is faster up to so many rows, or below so many weights


class Plain:
    """x ↦ x·Wᵀ by `F.linear`, for x (rows, inputs). The right choice on a GPU; on CPU the slow one, kept to compare."""

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, x):
        return F.linear(x, self.weight)


class Public(Plain):
    """A matrix-vector product for one row and `W @ x.T` for more: the fastest that public functions give on CPU."""

    def __call__(self, x):
        return torch.mv(self.weight, x[0])[None] if len(x) == 1 else (self.weight @ x.T).T


class Packed(Plain):
    """A second copy of the weight, packed for oneDNN; one row of a small weight is a matrix-vector product. CPU, float32.

    The choice rests on the weight's size alone, not on the clock or on the number of threads, so it can be repeated.
    A row of a large weight is then computed by the same kernel in any company (and here with the same bits).
    """

    def __init__(self, weight):
        super().__init__(weight)
        self.packed, self.large = _pack(weight), weight.numel() >= LARGE

    def __call__(self, x):
        n = len(x)
        if n < ROWS and self.large:
            return _packed_product(F.pad(x, (0, 0, 0, ROWS - n)), self.packed)[:n]
        return torch.mv(self.weight, x[0])[None] if n == 1 else _packed_product(x, self.packed)


class Mixed(Plain):
    """`F.linear` where MKL is fast, that is for few rows or a small weight; a packed copy of the weight elsewhere.

    For Intel's processors, in float32.
    """

    def __init__(self, weight):
        super().__init__(weight)
        self.packed = _pack(weight) if weight.numel() >= LARGE_FOR_MKL else None

    def __call__(self, x):
        few = len(x) <= FEW or self.packed is None
        return F.linear(x, self.weight) if few else _packed_product(x, self.packed)


KERNELS = {"plain": Plain, "public": Public, "packed": Packed, "mixed": Mixed}


def best_kernel(dtype, device="cpu"):
    """Return the name of the fastest kernel for this type and device, and on CPU for this maker of processors."""
    if torch.device(device).type != "cpu":
        return "plain"
    if dtype != torch.float32:
        return "public"
    with_packed, without = ("mixed", "plain") if mkl_is_fast() else ("packed", "public")
    return with_packed if can_pack() else without


@cache
def mkl_is_fast():
    """True if PyTorch has MKL and the processor is Intel's: for others MKL does not take its fastest kernels."""
    try:
        processor = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        processor = platform.processor()
    return torch.backends.mkl.is_available() and "GenuineIntel" in processor


def can_pack():
    """True if this PyTorch has oneDNN's packed linear for CPU. The two operators are private, so they are tried out."""
    try:
        weight, x = torch.randn(8, 8), torch.randn(3, 8)
        return torch.allclose(_packed_product(x, _pack(weight)), F.linear(x, weight), atol=1e-5)
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return False


def _pack(weight):
    return torch.ops.mkldnn._reorder_linear_weight(weight, 8)  # 8: the number of rows to expect


def _packed_product(x, packed):
    return torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")
