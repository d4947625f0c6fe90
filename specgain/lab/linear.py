"""A matrix product for a handful of rows, by the fastest kernel there is: it decides whether verification is cheap.

On CPU `F.linear` punishes two to nine rows so much that verifying five positions can cost twice one position. A weight
packed once for oneDNN does not, and neither, up to five rows, does `W @ x.T`. The packed product of four rows even takes
less time than that of one, so a plain step gains by adding empty rows. `python -m benchmarks.kernels` shows it.
"""

import os

import torch
import torch.nn.functional as F

# oneDNN compiles a product for every number of rows and forgets all but the last 1024 of them; a batch whose rows have
# unequal lengths brings a new number in every pass. Read when the first product is compiled.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")
ROWS = 4  # the packed product of so many rows is the fastest; fewer are padded
LARGE = 2**18  # weights in a matrix (1 MiB in float32); below, a call of oneDNN costs more than it saves on one row


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


KERNELS = {"plain": Plain, "public": Public, "packed": Packed}


def best_kernel(dtype, device="cpu"):
    """Return the name of the fastest kernel for this type and device."""
    if torch.device(device).type != "cpu":
        return "plain"
    return "packed" if dtype == torch.float32 and can_pack() else "public"


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
