"""How a token is chosen, and how guesses are verified so that no choice is changed by them.

Greedy: a guess is kept if it is the target's own choice. Sampling by token verification: guess x, drawn from q, is kept
with probability min(1, p(x) / q(x)); at the first rejection the token comes from the residual (p − q)₊. Block
verification (Sun et al. 2025) judges prefixes, and keeps as much or more on average. The output follows p exactly by
both rules (proof P16; `specgain.verification` counts every case). A draft that does not sample has q = 1 at its guess.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import chain, count, islice

import numpy as np
import torch
import torch.nn.functional as F

from specgain import _checks


@dataclass(frozen=True)
class Sampling:
    """Temperature, then top-k (0: all), then top-p; `verification` of guesses is by "token" or by "block".

    Temperature 0 is greedy, and top-k, top-p and the rule of verification then change nothing.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    verification: str = "token"

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature = {self.temperature} must be a finite number, 0 (greedy) or more")
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or self.top_k < 0:
            raise ValueError(f"top_k = {self.top_k!r} must be a whole number of tokens, 0 for all")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p = {self.top_p} must be above 0 and at most 1")
        if self.verification not in RULES:
            raise ValueError(f"verification = {self.verification!r} unknown; choose from {', '.join(RULES)}")

    @property
    def greedy(self):
        """True if the most likely token is always taken."""
        return self.temperature == 0

    def probs(self, logits):
        """Return the distribution (…, vocab) that tokens are drawn from; one-hot for greedy."""
        if self.greedy:
            return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        logits = logits if logits.dtype in READABLE else logits.float()  # chances do not add up to 1 in 16 bits
        logits = logits if self.temperature == 1 else logits / self.temperature
        if 0 < self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k, dim=-1).values[..., -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        probs = logits.softmax(dim=-1)
        if self.top_p < 1:
            values, order = probs.sort(dim=-1, descending=True)
            beyond = values.cumsum(dim=-1) - values >= self.top_p  # the mass before it is enough already
            probs = torch.zeros_like(probs).scatter_(-1, order, values.masked_fill(beyond, 0.0))
            probs /= probs.sum(dim=-1, keepdim=True)
        return probs

    def choose(self, logits, rng):
        """Return (a list of token ids, one a row, the distribution (rows, vocab) they were drawn from, None if greedy)."""
        if self.greedy:
            return greedy(logits), None
        probs = self.probs(logits)
        return draw(probs, rng), probs

    def verify(self, logits, guesses, widths, draft_probs, rng):
        """Return what `verify_sampled` says of these guesses, by this rule, after the target's `logits`."""
        return verify_sampled(self.probs(logits), guesses, widths, draft_probs, rng, self.verification)


READABLE = torch.float32, torch.float64


def on_host(x):
    """True if NumPy can read this tensor where it lies. After a pass its calls take a fraction of PyTorch's time."""
    return x.is_cpu and x.dtype in READABLE


def greedy(logits):
    """Return the list of the likeliest tokens, one for each row of `logits` (rows, vocab)."""
    return (logits.numpy() if on_host(logits) else logits).argmax(-1).tolist()


def uniform(seed):
    """Return an endless iterator of random numbers in [0, 1), drawn a thousand at a time: one alone takes 10 µs after a
    pass. ValueError for a `seed` that is no whole number of 0 or more."""
    rng = np.random.default_rng(_checks.whole("seed", seed))
    return chain.from_iterable(rng.random(1000).tolist() for _ in count())


def draw(weights, rng):
    """Return a list of one token per row, drawn in proportion to its `weights` (rows, vocab): one random number a row.

    Several times as fast as `torch.multinomial`, which takes a random number per token of the vocabulary. On the host the
    sums are added up in float64 and kept in the type of the weights: a chance is off by its rounding, 6e-8 in float32.
    """
    if on_host(weights):
        return [pick(sums, next(rng)) for sums in weights.cumsum(dim=-1).numpy()]
    sums = weights.cumsum(dim=-1, dtype=torch.float64)
    points = _numbers(rng, len(sums), sums.device) * sums[:, -1:]
    return torch.searchsorted(sums, points, right=True)[:, 0].tolist()


def _numbers(rng, rows, device):
    """Return one random number per row, (rows, 1), on the device."""
    return torch.tensor([[next(rng)] for _ in range(rows)], dtype=torch.float64, device=device)


def pick(sums, number):
    """Return the token at `number` in [0, 1) of these running sums (vocab,): its weight is not 0."""
    return bisect_right(memoryview(sums), number * sums.item(-1))  # a view reads sooner than an array


def verify_greedy(logits, guesses, widths):
    """Return ([K of each row], [the tokens to choose from of each row, of which it commits K + 1]), lists.

    `logits` (tokens, vocab) belong to the last token of each row and its `widths[r]` guesses, row after row;
    `guesses[r]` is a list. A row with width −1 takes no part.
    """
    choice, accepted, table, start = greedy(logits), [], [], 0
    for guess, width in zip(guesses, widths, strict=True):
        k = 0
        while k < width and guess[k] == choice[start + k]:
            k += 1
        accepted.append(k)
        table.append(choice[start : start + k + 1] if width >= 0 else [])
        start += width + 1
    return accepted, table


def verify_sampled(probs, guesses, widths, draft_probs, rng, verification="token"):
    """Return ([K of each row], [the tokens to choose from of each row, of which it commits K + 1]), lists.

    `probs` are those of `judge`, `guesses` and `draft_probs` a `Proposal`'s. One random number per row decides about its
    K guesses, one about its own token.
    """
    device, rows, n = probs.device, len(widths), max(widths)
    if n <= 0:  # a plain step: nothing to judge
        own = iter(draw(probs, rng))
        return [0] * rows, [[next(own)] if width == 0 else [] for width in widths]
    hosted = on_host(probs) and (draft_probs is None or on_host(draft_probs[0]))
    if hosted and (verification == "token" or draft_probs is None):
        return _verify_rows(probs, guesses, widths, draft_probs, rng)
    listed, (guesses, draft_probs) = guesses, stacked(guesses, widths, draft_probs, device)
    survival, carried = judge(probs, guesses, widths, draft_probs, verification)
    widths = torch.as_tensor(widths, device=device)[:, None]
    accepted = (_numbers(rng, rows, device) < survival).sum(dim=1, keepdim=True)
    p = probs[(places(widths[:, 0], 1) + accepted)[:, 0].clamp_(max=len(probs) - 1)]
    rest, rejected, at = p * carried.gather(1, accepted), accepted < widths, accepted.clamp(max=n - 1)
    if draft_probs is None:
        guess = guesses.gather(1, at)
        rest.scatter_(1, guess, rest.gather(1, guess).masked_fill(rejected, 0.0))
    else:
        rest -= draft_probs[torch.arange(rows, device=device), at[:, 0]] * rejected
    rest.clamp_(min=0.0)
    rest = torch.where(rest.sum(dim=1, keepdim=True) > 0, rest, p)  # all 0 by rounding alone: p and q are then the same
    accepted = accepted[:, 0].tolist()
    return accepted, [[*guess[:k], own] for guess, k, own in zip(listed, accepted, draw(rest, rng), strict=True)]


def stacked(guesses, widths, draft_probs, device):
    """Return a `Proposal`'s guesses (rows, n) and distributions (rows, n, vocab), None if there are none, as tensors."""
    n = max(0, *widths)
    padded = [[*guess[:n], *[0] * (n - len(guess))] for guess in guesses]
    guesses = torch.tensor(padded, dtype=torch.long, device=device)
    return guesses, None if draft_probs is None else torch.stack(tuple(draft_probs[:n]), dim=1).to(device)


def _verify_rows(probs, guesses, widths, draft_probs, rng):
    """Return what `verify_sampled` does by token, row after row in NumPy: in a small batch on CPU that is far sooner."""
    p, q = probs.numpy(), None if draft_probs is None else [column.numpy() for column in draft_probs]
    numbers, accepted, table, start = list(islice(rng, len(widths))), [], [], 0
    for row, (guess, width, number) in enumerate(zip(guesses, widths, numbers, strict=True)):
        k, survival = 0, 1.0
        while k < width:
            survival *= min(1.0, p.item(start + k, guess[k]) / (1.0 if q is None else q[k].item(row, guess[k])))
            if number >= survival:
                break
            k += 1
        own = p[min(start + k, len(p) - 1)]
        sums = None
        if k < width:
            guessed = np.eye(1, len(own), guess[k])[0] if q is None else q[k][row]
            sums = _sums(np.maximum(own - guessed, 0))
        if sums is None or not sums.item(-1):  # all 0 by rounding alone: p and q are then the same
            sums = _sums(own)
        accepted.append(k)
        table.append([*guess[:k], pick(sums, next(rng))])
        start += width + 1
    return accepted, table


def _sums(weights):
    """Return the running sums of an array; PyTorch adds them up in half of NumPy's time."""
    return torch.from_numpy(weights).cumsum(0).numpy()


def judge(probs, guesses, widths, draft_probs, verification="token"):
    """Return (Pr(K ≥ i | the guesses) for i = 1…n, (rows, n); the factor of p in the residual after k, (rows, n + 1)).

    `probs` (tokens, vocab) is the target's distribution after the last token of each row and its `widths[r]` guesses;
    `draft_probs` (rows, n, vocab) the draft's own, None if it does not sample. A row with width −1 takes no part.
    """
    widths, n = torch.as_tensor(widths, device=probs.device)[:, None], guesses.shape[1]
    place = places(widths[:, 0], n).clamp_(max=len(probs) - 1)
    guesses = guesses.to(probs.device)
    q = 1.0 if draft_probs is None else draft_probs.gather(2, guesses[:, :, None])[:, :, 0]
    inside = torch.arange(n, device=probs.device) < widths
    ratio = (probs[place, guesses] / q).masked_fill(~inside, 0.0)
    if draft_probs is None or not n:  # a path that is given: no rule goes on with more than the target's chance of it
        verification = "token"
    return RULES[verification](ratio, widths, probs, place, draft_probs)


def places(widths, n):
    """Return (rows, n): where the positions 0…n − 1 of each row stand among the tokens of all rows, row after row."""
    start = (widths + 1).cumsum(0) - widths - 1
    return start[:, None] + torch.arange(n, device=widths.device)


def _by_token(ratio, *_):
    """Keep each guess with min(1, p/q); the first rejection ends the round."""
    return ratio.clamp(max=1).cumprod(1), ratio.new_ones(len(ratio), ratio.shape[1] + 1)


def _by_block(ratio, widths, probs, place, draft_probs):
    """Keep the longest prefix that passes a test of its own; `carried` is a prefix's p/q, cut at 1 on the way."""
    carried = [torch.ones_like(ratio[:, 0])]
    for step in ratio.unbind(1):
        carried.append((carried[-1] * step).clamp(max=1))
    carried = torch.stack(carried, dim=1)  # 0 behind a row's width, and so is `spare`
    w, last = carried[:, 1:], torch.arange(1, ratio.shape[1] + 1, device=ratio.device) == widths
    spare = (w[:, :-1, None] * probs[place[:, 1:]] - draft_probs[:, 1:]).clamp_(min=0.0).sum(dim=2)
    passes = spare / (spare + (1 - w[:, :-1])).clamp(min=torch.finfo(w.dtype).tiny)
    passes = torch.where(last, w, F.pad(passes, (0, 1)))
    return 1 - (1 - passes).flip(1).cumprod(1).flip(1), carried


RULES = {"token": _by_token, "block": _by_block}
GREEDY = Sampling()
