"""How a token is chosen, and how guesses are verified so that no choice is changed by them.

Greedy: a guess is kept if it is the target's own choice. Sampling: guess x, drawn from q, is kept with probability
min(1, p(x) / q(x)); at the first rejection the token comes from the residual (p − q)₊. The output then follows p exactly
(proof P16). A draft that does not sample has q = 1 at its guess.
"""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Sampling:
    """Temperature, then top-k (0: all), then top-p. Temperature 0 is greedy, and top-k and top-p then change nothing."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self):
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature = {self.temperature} must be a finite number, 0 (greedy) or more")
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or self.top_k < 0:
            raise ValueError(f"top_k = {self.top_k!r} must be a whole number of tokens, 0 for all")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p = {self.top_p} must be above 0 and at most 1")

    @property
    def greedy(self):
        """True if the most likely token is always taken."""
        return self.temperature == 0

    def probs(self, logits):
        """Return the distribution (…, vocab) that tokens are drawn from; one-hot for greedy."""
        if self.greedy:
            return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        logits = logits / self.temperature
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
        """Return (token ids (rows,), the distribution (rows, vocab) they were drawn from, None if greedy)."""
        if self.greedy:
            return logits.argmax(dim=-1), None
        probs = self.probs(logits)
        return torch.multinomial(probs, 1, generator=rng)[:, 0], probs


GREEDY = Sampling()


def verify_greedy(logits, guesses, widths):
    """Return (K (rows,), the tokens to commit (rows, n + 1), of which row r has K + 1): NumPy arrays.

    `logits` (tokens, vocab) belong to the last token of each row and its `widths[r]` guesses, row after row;
    `guesses` is (rows, n). A row with width −1 takes no part.
    """
    choices = logits.argmax(dim=-1).cpu().numpy()
    columns, widths = np.arange(guesses.shape[1] + 1), np.asarray(widths)[:, None]
    table = np.full((len(guesses), len(columns)), -1)
    table[columns <= widths] = choices
    hits = (guesses == table[:, :-1]) & (columns[:-1] < widths)
    return np.logical_and.accumulate(hits, axis=1).sum(axis=1), table


def verify_sampled(probs, guesses, widths, draft_probs, rng):
    """Return (K (rows,), the tokens to commit (rows, n + 1), of which row r has K + 1): NumPy arrays.

    `probs` (tokens, vocab) is the target's distribution after the last token of each row and its `widths[r]` guesses;
    `draft_probs` (rows, n, vocab) the draft's own, None if it does not sample. A row with width −1 takes no part.
    """
    device, rows, n = probs.device, *guesses.shape
    guesses, widths = guesses.to(device), torch.as_tensor(widths, device=device)
    start = (widths + 1).cumsum(0) - widths - 1  # where each row begins in `probs`
    place = (start[:, None] + torch.arange(n, device=device)).clamp_(max=len(probs) - 1)
    p = probs[place, guesses]
    q = 1.0 if draft_probs is None else draft_probs.gather(2, guesses[:, :, None])[:, :, 0]
    keep = torch.rand(rows, n, generator=rng, device=device, dtype=p.dtype) * q < p
    keep &= torch.arange(n, device=device) < widths[:, None]
    accepted = keep.long().cumprod(1).sum(1)
    rest = probs[(start + accepted).clamp_(max=len(probs) - 1)].clone()
    if n:
        at, rejected = accepted.clamp(max=n - 1), (accepted < widths).nonzero()[:, 0]
        if draft_probs is None:
            rest[rejected, guesses[rejected, at[rejected]]] = 0.0
        else:
            rest[rejected] -= draft_probs[rejected, at[rejected]]
        empty = rest.clamp_(min=0.0).sum(dim=1) <= 0  # only rounding can do that: p and q are then the same
        rest[empty] = probs[(start + accepted).clamp_(max=len(probs) - 1)][empty]
    own = torch.multinomial(rest, 1, generator=rng)
    table = torch.cat((guesses, own), dim=1)
    table[torch.arange(rows, device=device), accepted] = own[:, 0]
    return accepted.cpu().numpy(), table.cpu().numpy()
