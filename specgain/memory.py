"""Where the memory goes: weights, the draft's weights, two key-value caches, candidates; and what that admits.

A serving engine cuts its cache space into blocks of some tokens.  A request holds whole blocks, for its text and for
the slots that its candidates will be written to (look-ahead).  When no block is free, a request is preempted: its
blocks are given back, and later its whole text is computed again.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from specgain import _checks
from specgain.hardware import ModelShape, bytes_per_number

GIB = 2**30


def _model(name, shape):
    if not isinstance(shape, ModelShape):
        raise TypeError(f"{name} = {shape!r} is not a ModelShape; take one from specgain.hardware.MODELS")
    return shape


# ------------------------------------------------------------------------------------------ bytes


def kv_bytes_per_token(shape, format="fp16"):
    """Return the bytes that one token takes in the key-value cache of `shape`, over all layers.

    Per layer 2·kv_heads·head_dim numbers (MHA, GQA, MQA), or kv_rank + rope_dim with latent attention (MLA).

    >>> from specgain.hardware import DEEPSEEK_V3, LLAMA_31_8B
    >>> kv_bytes_per_token(LLAMA_31_8B), kv_bytes_per_token(DEEPSEEK_V3)
    (131072, 70272)
    """
    return _whole(_model("shape", shape).kv_numbers_per_token * bytes_per_number(format))


def weight_bytes(shape, format="fp16", shared_embeddings=False):
    """Return the bytes of a model's weights; without embedding and head if the draft shares the target's."""
    numbers = _model("shape", shape).parameters - (shape.embedding_weights if shared_embeddings else 0)
    return _whole(numbers * bytes_per_number(format))


def candidate_bytes(shape, batch_size, gamma, format="fp16"):
    """Return B·γ·m_KV: the bytes in the target's cache that one round's candidates take, page rounding left out.

    >>> from specgain.hardware import LLAMA_31_8B
    >>> candidate_bytes(LLAMA_31_8B, batch_size=64, gamma=3) / 2**20
    24.0
    """
    return _checks.whole("batch_size", batch_size) * _checks.whole("gamma", gamma) * kv_bytes_per_token(shape, format)


def _whole(value):
    return int(value) if value == int(value) else value


# look-ahead slots per request and step that vLLM 0.32.0 reserves, by method, for γ candidates
LOOKAHEAD = {
    "none": lambda gamma: 0, "ngram": lambda gamma: 0, "suffix": lambda gamma: 0, "eagle": lambda gamma: gamma,
    "eagle3": lambda gamma: gamma, "mtp": lambda gamma: gamma, "draft_model": lambda gamma: gamma,
    "dflash": lambda gamma: gamma + 1,
}  # fmt: skip


def lookahead_slots(method, gamma):
    """Return the slots per request that vLLM 0.32.0 reserves ahead for γ candidates; ValueError for other methods.

    The reservation stays at the static γ when a schedule lowers the length.
    """
    if method not in LOOKAHEAD:
        raise ValueError(f"method = {method!r} is not known here; known are {', '.join(LOOKAHEAD)}")
    return LOOKAHEAD[method](_checks.whole("gamma", gamma))


# ------------------------------------------------------------------------------------------ blocks


@dataclass(frozen=True)
class KvCache:
    """`blocks` blocks of `block_tokens` tokens each; every block holds the tokens of all layers, the draft's included.

    >>> from specgain.hardware import SMOLLM2_135M
    >>> KvCache.of(GIB, SMOLLM2_135M, format="fp32", block_tokens=128)
    KvCache(blocks=182, block_tokens=128)
    >>> KvCache.of(GIB, SMOLLM2_135M, SMOLLM2_135M.cut(26), format="fp32", block_tokens=128).tokens
    12416
    """

    blocks: int
    block_tokens: int

    def __post_init__(self):
        _checks.whole("blocks", self.blocks)
        _checks.whole("block_tokens", self.block_tokens, least=1)

    @classmethod
    def of(cls, space_bytes, target, draft=None, format="fp16", block_tokens=16):
        """Return the cache that `space_bytes` make: space over the bytes of a block, rounded down.

        A draft with its own cache keeps as many tokens as the target, so its layers lie in the same blocks.
        """
        per_token = kv_bytes_per_token(target, format) + (kv_bytes_per_token(draft, format) if draft else 0)
        if isinstance(space_bytes, bool) or not space_bytes >= 0 or math.isinf(space_bytes):
            raise ValueError(f"space_bytes = {space_bytes!r} is outside its range; give a finite number, 0 or more")
        return cls(int(space_bytes // (per_token * _checks.whole("block_tokens", block_tokens, least=1))), block_tokens)

    @property
    def tokens(self):
        """Tokens that fit if every block is full."""
        return self.blocks * self.block_tokens

    def blocks_for(self, tokens, lookahead=0):
        """Return the whole blocks that one request needs for `tokens` tokens and its look-ahead slots."""
        return -(-(_checks.whole("tokens", tokens) + _checks.whole("lookahead", lookahead)) // self.block_tokens)

    def admits(self, tokens, lookahead=0):
        """Return how many requests of `tokens` tokens fit at once; 0 if not even one does."""
        return self.blocks // max(1, self.blocks_for(tokens, lookahead))

    def admission(self, prompt, output, lookahead=0):
        """Return the `Admission` of requests with `prompt` tokens that write `output` tokens."""
        at = [_checks.whole("prompt", prompt, least=1), prompt + _checks.whole("output", output) // 2, prompt + output]
        return Admission(*(self.admits(tokens, lookahead) for tokens in at))


class Admission(NamedTuple):
    """How many requests fit at once: when they arrive, on average over their life, and at their full length.

    An engine that admits by what fits now takes `arriving`; what exceeds `full` may have to be preempted later.
    """

    arriving: int
    average: int
    full: int


def recompute_tokens(prompt, generated, cached=0, block_tokens=16):
    """Return the tokens that a preempted request has to compute again: its prompt and all it has written.

    `cached` tokens at its start that a prefix cache still holds are spared, in whole blocks.

    >>> recompute_tokens(prompt=1000, generated=300), recompute_tokens(1000, 300, cached=1000)
    (1300, 308)
    """
    text = _checks.whole("prompt", prompt, least=1) + _checks.whole("generated", generated)
    if _checks.whole("cached", cached) > text:
        raise ValueError(f"cached = {cached} tokens, but the text has {text}; it cannot exceed the text")
    return text - cached // _checks.whole("block_tokens", block_tokens, least=1) * block_tokens


# ------------------------------------------------------------------------------------------ the whole memory


class MemorySplit(NamedTuple):
    """Bytes of an accelerator's memory by use; they add up to its memory."""

    target_weights: float
    draft_weights: float
    reserved: float  # activations, graphs, and what the engine leaves alone
    target_kv: float
    draft_kv: float

    @property
    def kv(self):
        """Bytes for both caches: what the engine cuts into blocks."""
        return self.target_kv + self.draft_kv


def split(memory_bytes, target, draft=None, format="fp16", draft_format=None, kv_format="fp16", reserved=0.1,
          shared_embeddings=False):  # fmt: skip
    """Return the `MemorySplit` of `memory_bytes`: weights first, a `reserved` share off, the rest for the caches.

    The caches share the rest in proportion to their bytes per token.  ValueError if the weights leave nothing.
    """
    if not 0 <= reserved < 1:
        raise ValueError(f"reserved = {reserved} is outside its range; give a share of the memory from 0 to below 1")
    if isinstance(memory_bytes, bool) or not 0 < memory_bytes < math.inf:
        raise ValueError(f"memory_bytes = {memory_bytes!r} is outside its range; give a finite number above 0")
    target_weights = weight_bytes(target, format)
    draft_weights = weight_bytes(draft, draft_format or format, shared_embeddings) if draft else 0
    rest = memory_bytes * (1 - reserved) - target_weights - draft_weights
    if rest <= 0:
        raise ValueError(
            f"the weights take {target_weights + draft_weights:.3g} bytes and {1 - reserved:.0%} of memory_bytes are "
            f"{memory_bytes * (1 - reserved):.3g}: no cache fits; take a larger memory or a smaller format"
        )
    of_target = kv_bytes_per_token(target, kv_format)
    of_draft = kv_bytes_per_token(draft, kv_format) if draft else 0
    share = of_target / (of_target + of_draft)
    return MemorySplit(target_weights, draft_weights, memory_bytes * reserved, rest * share, rest * (1 - share))
