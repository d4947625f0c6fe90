"""A decoder-only transformer for inference: RMSNorm, rotary positions, SwiGLU, no biases.

Keys and values live in a `Cache` whose rows have their own lengths, and every position is explicit.  So a row is
rolled back by moving one number, a verify pass over γ + 1 positions is the same call as a decode step, and rows of
one pass may bring different numbers of tokens: only the tokens that are there go through the matrix products.
"""

import json
from collections.abc import Callable
from copy import copy
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from specgain.lab.linear import KERNELS, best_kernel
from specgain.lab.tensors import DamagedFile, read_tensors

FORMAT = "specgain.weights/1"
LARGEST = {"layers": 1000, "context": 2**20}


class WeightsError(ValueError):
    """A weight file that is damaged, of another format, or does not fit its own configuration."""


@dataclass(frozen=True)
class Config:
    """The shape of a model; `context` is the greatest number of positions, `hidden` the width inside SwiGLU.

    `kv_heads` heads of keys and values serve all `heads` (0: as many), each `head_width` wide (0: width / heads).
    `qk_norm` normalizes queries and keys per head (Qwen3). `tied`: the embedding is the output head too.
    """

    vocab: int
    width: int
    heads: int
    hidden: int
    layers: int
    context: int = 512
    rope_base: float = 10000.0
    norm_eps: float = 1e-5
    kv_heads: int = 0
    head_width: int = 0
    qk_norm: bool = False
    tied: bool = True

    def __post_init__(self):
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "head_width", self.head_width or self.width // max(1, self.heads))

    def shapes(self):
        """{tensor name: shape} of all weights; a matrix is stored as (outputs, inputs)."""
        d, w = self.width, self.head_width
        shapes = {"embed": (self.vocab, d), "final_norm": (d,)} | ({} if self.tied else {"head": (self.vocab, d)})
        for i in range(self.layers):
            shapes |= {f"layers.{i}.norm1": (d,), f"layers.{i}.qkv": ((self.heads + 2 * self.kv_heads) * w, d)}
            shapes |= {f"layers.{i}.out": (d, self.heads * w), f"layers.{i}.norm2": (d,)}
            shapes |= {f"layers.{i}.gate_up": (2 * self.hidden, d), f"layers.{i}.down": (d, self.hidden)}
            if self.qk_norm:
                shapes |= {f"layers.{i}.q_norm": (w,), f"layers.{i}.k_norm": (w,)}
        return shapes


@dataclass(frozen=True)
class Place:
    """Where the new tokens of one pass go. `rows`, `slots` and `positions` have one entry per token."""

    batch: int
    n: int  # columns of the padded rectangle
    rows: torch.Tensor
    there: torch.Tensor | None  # (tokens,): the place of each in the rectangle, row after row; None: no row is shorter
    slots: torch.Tensor  # in the cache
    positions: torch.Tensor  # of the rotary angles; differ from the slots only in a tree
    start: int | None  # the first slot, where it is the same in all rows and nothing is ragged
    end: int  # slots in use after the pass
    mask: torch.Tensor | None  # (batch, 1, n, end), True where a token may look; None: everywhere
    causal: bool = False  # the pass begins an empty cache: a plain triangle instead of a mask
    mix: Callable | None = None  # None: the model's own attention
    token: torch.Tensor | None = None  # (batch · n,): the token at each place, any other where there is none

    def pad(self, x):
        """Return x (tokens, …) as (batch, n, …); where a row is shorter it holds another token, which must not count."""
        x = x if self.there is None else x.index_select(0, self.token)
        return x.view(self.batch, self.n, *x.shape[1:])

    def unpad(self, x):
        """Return x (batch, n, …) as (tokens, …)."""
        x = x.flatten(0, 1)
        return x if self.there is None else x.index_select(0, self.there)


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
        shape = (config.layers, batch, config.kv_heads, capacity, config.head_width)
        self.keys, self.values = (torch.zeros(shape, dtype=model.dtype, device=model.device) for _ in range(2))
        self.capacity, self.length = capacity, [0] * batch

    def place(self, n, widths=None, tree=None):
        """Return the `Place` of the next n tokens of every row, or of `widths[row]` ≤ n; ValueError if a row is full.

        `tree`, a pair (depth of each token (n,), which tokens each one sees (n, n)), makes them the nodes of a tree.
        """
        length, batch, device = self.length, len(self.length), self.keys.device
        ragged = widths is not None and min(widths) != n
        end = max(a + w for a, w in zip(length, widths, strict=True)) if ragged else max(length) + n
        if end > self.capacity:
            raise ValueError(
                f"{end - max(length)} more positions do not fit: the cache holds {self.capacity} and a row has "
                f"{max(length)}; make the cache larger or γ smaller"
            )
        even = min(length) == max(length)
        first, offsets = torch.tensor(length, device=device)[:, None], torch.arange(n, device=device)
        slots = first + offsets
        positions = slots if tree is None else first + tree[0].to(device)
        causal = end == n and tree is None and not ragged and n > 1
        mask = None if causal or (even and n == 1) else self._mask(slots, end, first, tree)
        rows = torch.arange(batch, device=device)[:, None].expand(batch, n)
        if not ragged:
            start = length[0] if even else None
            return Place(batch, n, rows.flatten(), None, slots.flatten(), positions.flatten(), start, end, mask, causal)
        inside = (offsets < torch.tensor(widths, device=device)[:, None]).flatten()
        there, token = inside.nonzero()[:, 0], inside.cumsum(0).sub_(1).clamp_(min=0)
        rows, slots, positions = (x.flatten().index_select(0, there) for x in (rows, slots, positions))
        return Place(batch, n, rows, there, slots, positions, None, end, mask, token=token)

    @staticmethod
    def _mask(slots, end, first, tree):
        """True where a token (batch, 1, n, end) may look: at itself and what leads to it."""
        every = torch.arange(end, device=slots.device)
        if tree is None:
            return (every <= slots[:, :, None])[:, None]
        n = slots.shape[1]
        sees = (every < first)[:, None].repeat(1, n, 1)
        inside = every - first  # (batch, end): the node that lies in a slot
        node = inside.clamp(0, n - 1)[:, None].expand(-1, n, -1)
        sees |= (
            tree[1].to(slots.device).expand(len(first), n, n).gather(2, node) & ((inside >= 0) & (inside < n))[:, None]
        )
        return sees[:, None]

    def write(self, layer, keys, values, place):
        """Store keys and values (tokens, kv heads, head width); returns those of the layer so far, (batch, …, end, …)."""
        for store, new in ((self.keys[layer], keys), (self.values[layer], values)):
            if place.start is None:
                store.transpose(1, 2)[place.rows, place.slots] = new
            else:
                store[:, :, place.start : place.end] = place.pad(new).transpose(1, 2)
        return self.keys[layer, :, :, : place.end], self.values[layer, :, :, : place.end]

    def advance(self, n, widths=None):
        """Count the tokens of a pass."""
        self.length = [a + w for a, w in zip(self.length, widths or [n] * len(self.length), strict=True)]


class Model:
    """Weights and the forward pass. `model(tokens, cache)` appends tokens to every row and returns their logits."""

    def __init__(self, config, weights, dtype=torch.float32, kernel=None, device="cpu"):
        self.config, self.dtype, self.device = config, dtype, torch.device(device)
        linear = self._take(best_kernel(dtype, device) if kernel is None else kernel)

        def w(name):  # one tensor at a time: `weights` may be a mapping that reads each from its file when asked
            return weights[name].to(self.device, dtype).contiguous()

        self.embed, self.final_norm = w("embed"), w("final_norm")
        self.head = linear(self.embed if config.tied else w("head"))
        names = [f"layers.{i}." for i in range(config.layers)]
        self.layers = [
            (
                w(name + "norm1"), linear(w(name + "qkv")), linear(w(name + "out")),
                w(name + "norm2"), linear(w(name + "gate_up")), linear(w(name + "down")),
                (w(name + "q_norm"), w(name + "k_norm")) if config.qk_norm else None,
            )
            for name in names
        ]  # fmt: skip
        half = config.head_width // 2
        angles = torch.arange(config.context)[:, None] * (1 / config.rope_base ** (torch.arange(half) / half))
        self.cos = torch.cat((angles.cos(), angles.cos()), dim=1).to(self.device, dtype)
        self.sin = torch.cat((-angles.sin(), angles.sin()), dim=1).to(self.device, dtype)

    def _take(self, kernel):
        """Keep the name of a kernel (a name of `KERNELS` or a class) and its attention, if it brings one; return the class."""
        linear = KERNELS[kernel] if isinstance(kernel, str) else kernel
        self.kernel = kernel if linear is not kernel else kernel.__name__
        self.mix = getattr(linear, "mix", F.scaled_dot_product_attention)
        return linear

    def with_kernel(self, kernel):
        """Return this model with another kernel, on the same weights (packed copies come on top). Its own must keep them,
        as those of `KERNELS` do."""
        other = copy(self)
        linear = other._take(kernel)
        other.head = linear(self.head.weight)
        other.layers = [
            (norm1, linear(qkv.weight), linear(out.weight), norm2, linear(gate_up.weight), linear(down.weight), qk_norm)
            for norm1, qkv, out, norm2, gate_up, down, qk_norm in self.layers
        ]
        return other

    def __call__(self, tokens, cache, widths=None):
        """Logits (batch, n, vocab) after each of the new token ids (batch, n); `cache` grows by n in every row.

        With `widths` row r has only its first `widths[r]` tokens, and the logits are (all tokens there, vocab), row
        after row.
        """
        x, place = self.hidden(tokens, cache, widths)
        logits = self.logits(x)
        return logits.view(place.batch, place.n, -1) if widths is None else logits

    @torch.inference_mode()
    def last(self, tokens, cache, widths):
        """Return (the last layer's output, the logits), (rows, …), at the last new token of each row that has any."""
        x = ends(self.hidden(tokens, cache, widths)[0], widths)
        return x, self.logits(x)

    @torch.inference_mode()
    def hidden(self, tokens, cache, widths=None, tree=None, taps=None, inputs=None):
        """Return (the last layer's output (tokens there, width), the `Place`); see `__call__` and `Cache.place`.

        `inputs`, a function of the `Place`, replaces the embedding of `tokens`, of which then only the shape counts.
        A dict `taps` {layer: None} is filled with the output of those layers; layer −1 is the embedding.
        """
        c, n = self.config, tokens.shape[1]
        place = cache.place(n, widths, tree)
        cos, sin = self.cos[place.positions][:, None], self.sin[place.positions][:, None]  # (tokens, 1, head width)
        x = self.embed[place.unpad(tokens.to(self.device))] if inputs is None else inputs(place)
        for i, (norm1, qkv, out, norm2, gate_up, down, qk_norm) in enumerate(self.layers):
            if taps is not None and i - 1 in taps:
                taps[i - 1] = x
            heads = qkv(self._norm(x, norm1)).view(len(x), -1, c.head_width)
            turning, values = heads.split((c.heads + c.kv_heads, c.kv_heads), dim=1)
            if qk_norm:
                parts = turning.split((c.heads, c.kv_heads), dim=1)
                turning = torch.cat([self._norm(part, gain) for part, gain in zip(parts, qk_norm, strict=True)], dim=1)
            queries, keys = self._rotate(turning, cos, sin).split((c.heads, c.kv_heads), dim=1)
            x = x + out(self._attend(queries, *cache.write(i, keys, values, place), place))
            gate, up = gate_up(self._norm(x, norm2)).chunk(2, dim=1)
            x = x + down(F.silu(gate) * up)
        if taps is not None and c.layers - 1 in taps:
            taps[c.layers - 1] = x
        cache.advance(n, widths)
        return x, place

    @torch.inference_mode()
    def logits(self, x):
        """Return the logits (rows, vocab) of the last layer's outputs (rows, width)."""
        return self.head(self._norm(x, self.final_norm))

    def _attend(self, queries, keys, values, place):
        """Mix the values (tokens, heads · head width). Heads that share keys stand behind each other as one longer row."""
        c, batch, n = self.config, place.batch, place.n
        group = c.heads // c.kv_heads
        queries = place.pad(queries).view(batch, n, c.kv_heads, group, -1).permute(0, 2, 3, 1, 4)
        if place.causal:
            keys, values = (x[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2) for x in (keys, values))
            mixed = F.scaled_dot_product_attention(queries.flatten(1, 2), keys, values, is_causal=True)
        else:
            mask = place.mask if group == 1 or place.mask is None else place.mask.repeat(1, 1, group, 1)
            mixed = (place.mix or self.mix)(queries.flatten(2, 3), keys, values, attn_mask=mask)
        mixed = mixed.view(batch, c.kv_heads, group, n, -1).permute(0, 3, 1, 2, 4).reshape(batch, n, -1)
        return place.unpad(mixed)

    def _norm(self, x, gain):
        return F.rms_norm(x, gain.shape, gain, self.config.norm_eps)

    @staticmethod
    def _rotate(x, cos, sin):
        """Turn the two halves of each head by the position's angles."""
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def ends(x, widths):
    """Return the last output of each row that was fed, of x (tokens, width): `widths[r]` tokens of each, row after row."""
    fed = [w for w in widths if w]
    if len(fed) == 1:
        return x[-1:]
    return x if len(fed) == len(x) else x[torch.from_numpy(np.cumsum(fed) - 1).to(x.device)]


def random_weights(config, seed=0, scale=0.02, dtype=torch.float32, device="cpu"):
    """Return random weights of this shape (norms are 1): for timing, where what the model says does not matter."""
    generator = torch.Generator(device).manual_seed(seed)
    return {
        name: torch.ones(shape, dtype=dtype, device=device)
        if len(shape) == 1
        else torch.empty(shape, dtype=dtype, device=device).normal_(0, scale, generator=generator)
        for name, shape in config.shapes().items()
    }


# --- files ---------------------------------------------------------------------------------------------------------


def save(path, config, weights, metadata):
    """Write weights as float16 safetensors. `metadata` is a dict of strings; a draft's "embed" may be left out."""
    from safetensors.torch import save_file

    header = {"format": FORMAT, "config": json.dumps(asdict(config)), **metadata}
    save_file({name: w.detach().to(torch.float16).contiguous() for name, w in weights.items()}, path, header)


def load(path, embed=None, dtype=torch.float32, **options):
    """The Model in the file at `path`, computed in `dtype`; a draft stored without "embed" takes the one given.

    `options` go to `Model` (kernel, device).
    WeightsError for a damaged file, an unknown format, wrong shapes, or numbers that are not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; the committed weights lie in specgain/lab/weights")
    try:
        weights, metadata = read_tensors(path)
    except DamagedFile as error:
        raise WeightsError(f"{path.name} is damaged or not a safetensors file ({error})") from error
    config = _read_config(path.name, metadata)
    if "embed" not in weights and embed is not None:
        weights["embed"] = embed
    _check_weights(path.name, config, weights)
    return Model(config, weights, dtype, **options)


def _read_config(name, metadata):
    if metadata.get("format") != FORMAT:
        raise WeightsError(f"{name} has format {metadata.get('format')!r}; this version reads {FORMAT!r}")
    try:
        config = Config(**json.loads(metadata["config"]))
        check_config(config)
        return config
    except (KeyError, TypeError, ValueError) as error:
        known = ", ".join(field.name for field in fields(Config))
        raise WeightsError(f"{name}: the header's config is unusable ({error}); it must hold {known}") from error


def check_config(config):
    for name, value in asdict(config).items():
        if name in ("qk_norm", "tied"):
            if not isinstance(value, bool):
                raise TypeError(f"{name} = {value!r} must be true or false")
            continue
        whole = name not in ("rope_base", "norm_eps")
        if type(value) is not int if whole else not isinstance(value, (int, float)):
            raise TypeError(f"{name} = {value!r} must be a {'whole ' if whole else ''}number")
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} = {value} must be a finite number above 0")
        if value > LARGEST.get(name, value):  # a damaged header must not ask for tables of many GB
            raise ValueError(f"{name} = {value} must be at most {LARGEST[name]}")
    if config.head_width % 2 or config.heads % config.kv_heads:
        raise ValueError(
            f"heads = {config.heads} with kv_heads = {config.kv_heads} and head_width = {config.head_width}: the head "
            "width must be even, and the heads a multiple of the heads of keys and values"
        )


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
