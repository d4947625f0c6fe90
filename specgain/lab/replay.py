"""The rounds of a draft over a text that is already there, without the target: exact, and as fast as the draft is."""

from collections import deque

import numpy as np

from specgain.lab.loop import NOTHING, Batch
from specgain.lab.sampling import GREEDY


def replay(draft, prompt, text, gamma, max_tokens=None):
    """Return the rounds [(drafted, accepted), …] that `draft` would have had on the way to `text` at this γ.

    `text` (token ids) is what the target said after `prompt`, greedy or sampled. A draft that does not sample has q = 1
    at its guess, so the guess is kept exactly when it is the token that came, with probability min(1, q/p) = 1. With
    `max_tokens` above the length of the text (it ended early) the last round may offer tokens beyond the end.
    """
    text = np.asarray(text)
    batch = Batch(1, len(prompt) + len(text), len(text) if max_tokens is None else max_tokens)
    beyond, rounds = batch.max_tokens - len(text), []
    batch.admit(deque([(0, prompt)]))
    draft.begin(batch, [0])
    while batch.room[0] > beyond:
        rest = text[len(text) + beyond - batch.room[0] :]
        wanted = min(gamma, batch.room[0] - 1)
        guesses = draft.propose(batch, [wanted], GREEDY, None).tokens[0] if wanted else []
        hits = [guess == own for guess, own in zip(guesses, rest.tolist(), strict=False)]
        accepted = (hits + [False]).index(False)
        rounds.append((len(guesses), accepted))
        batch.commit(0, rest[: accepted + 1].tolist(), NOTHING)
    return rounds
