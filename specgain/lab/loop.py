"""Greedy decoding, plain and speculative, in one loop that times its own phases.

One round: the draft proposes, the target verifies all candidates in one pass, the loop commits the accepted prefix plus
the target's own next token. The output equals plain greedy decoding token for token; only rounding of two logits that
tie could tell them apart. With γ = 0 the same loop is plain decoding.
"""

from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import torch

from specgain import _checks
from specgain.lab.model import Cache
from specgain.records.roundlog import RequestLog


class Draft(Protocol):
    """What the loop needs from a draft."""

    vocab: int

    def begin(self, prompt):
        """Get ready for a new request with this prompt (a list of token ids)."""

    def propose(self, context, gamma):
        """Return `gamma` candidate ids to follow `context`, which begins with the context of the call before."""


class ModelDraft:
    """A draft that is a small model with a cache of its own."""

    def __init__(self, model):
        self.model, self.vocab = model, model.config.vocab

    def begin(self, prompt):
        """Prefill all but the last token of the prompt."""
        self.cache, self.fed, self.agreed = Cache(self.model), list(prompt[:-1]), len(prompt) - 1
        if self.fed:
            self.model(torch.tensor([self.fed]), self.cache)

    def propose(self, context, gamma):
        """Return the draft's greedy continuation of `context`, `gamma` token ids."""
        self._roll_back(context)
        new = context[len(self.fed) :]  # one token, or two after a full acceptance: the last guess was never fed
        guesses = []
        for _ in range(gamma):
            logits = self.model(torch.tensor([new]), self.cache)
            self.fed += new
            new = [int(logits[0, -1].argmax())]
            guesses += new
        return guesses

    def _roll_back(self, context):
        """Forget the fed tokens that `context` does not confirm. All up to `agreed` were confirmed before."""
        keep, end = self.agreed, min(len(self.fed), len(context) - 1)
        while keep < end and self.fed[keep] == context[keep]:
            keep += 1
        self.cache.length[0] = self.agreed = keep
        del self.fed[keep:]


@dataclass
class Decoded:
    """The tokens after the prompt, and the round-by-round record."""

    tokens: list
    log: RequestLog


def decode(target, prompt, max_tokens, /, draft=None, gamma=0, eos=None, **labels):
    """Return `Decoded`: greedy continuation of `prompt` (token ids) by `max_tokens` tokens, or up to and with `eos`.

    The prompt's prefill is not timed; every token comes from a round. γ shrinks at the end so that the length is exact.
    `labels` (id, arm, domain, prompt, repeat) go into the record.
    """
    _check_request(target, prompt, max_tokens, draft, gamma)
    columns = {name: [] for name in ("drafted", "accepted", "committed", "t_draft", "t_verify", "t_other")}
    tokens, produced, finish = list(prompt), 0, None
    cache = Cache(target, capacity=len(prompt) + max_tokens)
    if len(prompt) > 1:
        target(torch.tensor([tokens[:-1]]), cache)
    if gamma:
        draft.begin(tokens)
    t0 = perf_counter()
    while finish is None:
        length = min(gamma, max_tokens - produced - 1)
        guesses = draft.propose(tokens, length) if length else []
        t1 = perf_counter()
        logits = target(torch.tensor([[tokens[-1], *guesses]]), cache)
        t2 = perf_counter()
        choices = logits[0].argmax(dim=-1).tolist()
        accepted = accepted_prefix(guesses, choices)
        new, finish = commit(choices[: accepted + 1], eos, max_tokens - produced)
        tokens += new
        produced += len(new)
        cache.length[0] = len(tokens) - 1  # roll back; the last token is fed by the next round
        t3 = perf_counter()
        row = (len(guesses), accepted, len(new), t1 - t0, t2 - t1, t3 - t2)
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        t0 = t3
    labels = {"id": "request", "arm": f"gamma {gamma}" if gamma else "plain"} | labels
    log = RequestLog(
        gamma=gamma,
        prompt_tokens=len(prompt),
        output_tokens=produced,
        prefill_tokens=0,
        finish=finish,
        **labels,
        **columns,
    )
    return Decoded(tokens[len(prompt) :], log)


def accepted_prefix(guesses, choices):
    """Return K, the number of leading guesses that equal the target's own choices."""
    for k, (guess, choice) in enumerate(zip(guesses, choices, strict=False)):
        if guess != choice:
            return k
    return len(guesses)


def commit(new, eos, room):
    """Return (tokens to commit, finish): cut after `eos` ("stop"), "length" if the room is used up, else None."""
    if eos is not None and eos in new:
        return new[: new.index(eos) + 1], "stop"
    return new, "length" if len(new) == room else None


def _check_request(target, prompt, max_tokens, draft, gamma):
    vocab, context = target.config.vocab, target.config.context
    _checks.gamma(gamma)
    _checks.gamma(max_tokens, "max_tokens", least=1)
    if len(prompt) == 0 or not all(0 <= token < vocab for token in prompt):
        raise ValueError(f"prompt must hold one or more token ids from 0 to {vocab - 1}")
    if len(prompt) + max_tokens > context:
        raise ValueError(
            f"{len(prompt)} prompt tokens and max_tokens = {max_tokens} need {len(prompt) + max_tokens} positions; "
            f"this model has {context}"
        )
    if gamma and draft is None:
        raise ValueError(f"gamma = {gamma} needs a draft; pass draft=ModelDraft(...) or use gamma = 0")
    if gamma and draft.vocab != vocab:
        raise ValueError(
            f"draft and target must share a vocabulary; the draft has {draft.vocab} tokens, the target {vocab}"
        )
