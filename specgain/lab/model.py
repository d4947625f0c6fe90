"""A small decoder-only transformer for inference: RMSNorm, rotary positions, SwiGLU, tied head, no biases.

Keys and values live in a `Cache` whose rows have their own lengths, and every position is explicit.  So a row is
rolled back by moving one number, and a verify pass over γ + 1 positions is the same call as a decode step.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open

FORMAT = "specgain.weights/1"


class WeightsError(ValueError):
    """A weight file that is damaged, of another format, or does not fit its own configuration."""


@dataclass(frozen=True)
class Config:
    """The shape of a model; `context` is the greatest number of positions, `hidden` the width inside SwiGLU."""

    vocab: int
    width: int
    heads: int
    hidden: int
    layers: int
    context: int = 512
    rope_base: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head_width(self):
        """Numbers per head."""
        return self.width // self.heads

    def shapes(self):
        """{tensor name: shape} of all weights; a matrix is stored as (outputs, inputs)."""
        d, shapes = self.width, {"embed": (self.vocab, self.width), "final_norm": (self.width,)}
        for i in range(self.layers):
            shapes |= {f"layers.{i}.norm1": (d,), f"layers.{i}.qkv": (3 * d, d), f"layers.{i}.out": (d, d)}
            shapes |= {f"layers.{i}.norm2": (d,), f"layers.{i}.gate_up": (2 * self.hidden, d)}
            shapes |= {f"layers.{i}.down": (d, self.hidden)}
        return shapes


# A matrix product by the fastest kernel for its number of rows. On CPU `F.linear` punishes a handful of rows so much
# that verifying 5 positions can cost twice one position; a weight packed once for oneDNN does not.


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


class Linear:
    """x ↦ x·Wᵀ for x (rows, inputs): a matrix-vector product for one row, the packed kernel for more."""

    def __init__(self, weight, pack):
        self.weight = weight
        self.packed = _pack(weight) if pack else None

    def __call__(self, x):
        if len(x) == 1:
            return torch.mv(self.weight, x[0])[None]
        if self.packed is not None:
            return _packed_product(x, self.packed)
        return (self.weight @ x.T).T


class Cache:
    """Keys and values of `batch` rows with room for `capacity` positions; `length[row]` of them count.

    To roll a row back, lower its length: what lies behind is overwritten by the next call.
    """

    def __init__(self, model, batch=1, capacity=None):
        config = model.config
        capacity = config.context if capacity is None else capacity
        if not 0 < capacity <= config.context:
            raise ValueError(
                f"capacity = {capacity} must be from 1 to the model's context of {config.context} positions"
            )
        shape = (config.layers, batch, config.heads, capacity, config.head_width)
        self.keys, self.values = (torch.zeros(shape, dtype=model.dtype) for _ in range(2))
        self.capacity, self.length = capacity, [0] * batch

    def positions(self, n):
        """Positions (batch, n) that the next n tokens of every row take; ValueError if a row is full."""
        if max(self.length) + n > self.capacity:
            raise ValueError(
                f"{n} more positions do not fit: the cache holds {self.capacity} and a row has {max(self.length)}; "
                "make the cache larger or γ smaller"
            )
        return torch.tensor(self.length)[:, None] + torch.arange(n)

    def write(self, layer, keys, values, positions):
        """Store (batch, heads, n, head width) at `positions`; returns all keys and values of the layer so far."""
        end, n = max(self.length) + keys.shape[2], keys.shape[2]
        for store, new in ((self.keys[layer], keys), (self.values[layer], values)):
            if min(self.length) == max(self.length):
                store[:, :, end - n : end] = new
            else:
                rows = torch.arange(len(self.length))[:, None]
                store.transpose(1, 2)[rows, positions] = new.transpose(1, 2)
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


class Model:
    """Weights and the forward pass. `model(tokens, cache)` appends tokens to every row and returns their logits."""

    def __init__(self, config, weights, dtype=torch.float32, pack=None):
        pack = dtype == torch.float32 and can_pack() if pack is None else pack
        weights = {name: weight.to(dtype).contiguous() for name, weight in weights.items()}
        self.config, self.dtype, self.embed = config, dtype, weights["embed"]
        self.final_norm, self.head = weights["final_norm"], Linear(self.embed, pack)
        self.layers = [
            (
                weights[f"layers.{i}.norm1"],
                *(Linear(weights[f"layers.{i}.{name}"], pack) for name in ("qkv", "out")),
                weights[f"layers.{i}.norm2"],
                *(Linear(weights[f"layers.{i}.{name}"], pack) for name in ("gate_up", "down")),
            )
            for i in range(config.layers)
        ]
        half = config.head_width // 2
        angles = torch.arange(config.context)[:, None] * config.rope_base ** (-torch.arange(half) / half)
        self.cos = torch.cat((angles.cos(), angles.cos()), dim=1).to(dtype)
        self.sin = torch.cat((-angles.sin(), angles.sin()), dim=1).to(dtype)

    @torch.inference_mode()
    def __call__(self, tokens, cache):
        """Logits (batch, n, vocab) after each of the new token ids (batch, n); `cache` grows by n in every row."""
        (batch, n), c = tokens.shape, self.config
        positions = cache.positions(n)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]  # (batch, 1, n, head width)
        mask = self._mask(positions, max(cache.length) + n)
        x = self.embed[tokens].flatten(0, 1)  # (batch · n, width)
        for i, (norm1, qkv, out, norm2, gate_up, down) in enumerate(self.layers):
            heads = qkv(self._norm(x, norm1)).view(batch, n, 3 * c.heads, c.head_width).transpose(1, 2)
            queries, keys, values = heads.split(c.heads, dim=1)
            keys, values = cache.write(i, self._rotate(keys, cos, sin), values, positions)
            mixed = F.scaled_dot_product_attention(self._rotate(queries, cos, sin), keys, values, attn_mask=mask)
            x = x + out(mixed.transpose(1, 2).reshape(batch * n, c.width))
            gate, up = gate_up(self._norm(x, norm2)).chunk(2, dim=1)
            x = x + down(F.silu(gate) * up)
        cache.length = [length + n for length in cache.length]
        return self.head(self._norm(x, self.final_norm)).view(batch, n, c.vocab)

    def _norm(self, x, gain):
        return F.rms_norm(x, gain.shape, gain, self.config.norm_eps)

    @staticmethod
    def _rotate(x, cos, sin):
        """Turn the two halves of each head by the position's angles."""
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)

    @staticmethod
    def _mask(positions, end):
        """True where a position (batch, 1, n, end) may look: at itself and before. None if that is everywhere."""
        if positions.numel() == 1:
            return None
        return (torch.arange(end) <= positions[:, :, None])[:, None]


# --- files ---------------------------------------------------------------------------------------------------------


def save(path, config, weights, metadata):
    """Write weights as float16 safetensors. `metadata` is a dict of strings; a draft's "embed" may be left out."""
    from safetensors.torch import save_file

    header = {"format": FORMAT, "config": json.dumps(asdict(config)), **metadata}
    save_file({name: w.detach().to(torch.float16).contiguous() for name, w in weights.items()}, path, header)


def load(path, embed=None, dtype=torch.float32):
    """The Model in the file at `path`, computed in `dtype`; a draft stored without "embed" takes the one given.

    WeightsError for a damaged file, an unknown format, wrong shapes, or numbers that are not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; the committed weights lie in specgain/lab/weights")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}
    except SafetensorError as error:
        raise WeightsError(f"{path.name} is damaged or not a safetensors file ({error})") from error
    config = _read_config(path.name, metadata)
    if "embed" not in weights and embed is not None:
        weights["embed"] = embed
    _check_weights(path.name, config, weights)
    return Model(config, weights, dtype)


def read_metadata(path):
    """The dict of strings in the header of a weight file."""
    with safe_open(path, framework="np") as file:
        return file.metadata() or {}


def _read_config(name, metadata):
    if metadata.get("format") != FORMAT:
        raise WeightsError(f"{name} has format {metadata.get('format')!r}; this version reads {FORMAT!r}")
    try:
        config = Config(**json.loads(metadata["config"]))
        _check_config(config)
        return config
    except (KeyError, TypeError, ValueError) as error:
        known = ", ".join(field.name for field in fields(Config))
        raise WeightsError(f"{name}: the header's config is unusable ({error}); it must hold {known}") from error


def _check_config(config):
    for name, value in asdict(config).items():
        whole = name not in ("rope_base", "norm_eps")
        if type(value) is not int if whole else not isinstance(value, (int, float)):
            raise TypeError(f"{name} = {value!r} must be a {'whole ' if whole else ''}number")
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} = {value} must be a finite number above 0")
    if config.width % (2 * config.heads):
        raise ValueError(f"width = {config.width} must be an even number for each of heads = {config.heads}")


def _check_weights(name, config, weights):
    expected = config.shapes()
    if missing := sorted(expected.keys() - weights.keys()):
        hint = "; this draft shares the target's embedding: pass embed=target.embed" if missing == ["embed"] else ""
        raise WeightsError(f"{name} lacks {', '.join(missing)}{hint}")
    if unknown := sorted(weights.keys() - expected.keys()):
        raise WeightsError(f"{name} holds {', '.join(unknown)}, which a model of {config.layers} layers does not have")
    for tensor, shape in expected.items():
        if tuple(weights[tensor].shape) != shape:
            raise WeightsError(
                f"{name}: {tensor} has shape {tuple(weights[tensor].shape)}; the config asks for {shape}"
            )
        if not weights[tensor].is_floating_point():
            kind = weights[tensor].dtype
            raise WeightsError(f"{name}: {tensor} holds {kind}; weights must be floating-point numbers")
        if not torch.isfinite(weights[tensor]).all():
            raise WeightsError(f"{name}: {tensor} holds numbers that are not finite; the file is damaged")
