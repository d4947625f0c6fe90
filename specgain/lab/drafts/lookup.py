"""Prompt lookup: guess that the text goes on as it did the last time its last few tokens came up."""

import numpy as np

from specgain import _checks
from specgain.lab.loop import Proposal


class Lookup:
    """A draft without weights. It looks for the last `longest` tokens earlier in the text, then for fewer, to `shortest`.

    The most recent match counts. A guess that reaches the end of the text goes on in the guess itself, so that a text
    that repeats is continued as a repetition. Without a match there is no guess, and the round is an ordinary step.
    """

    def __init__(self, vocab, longest=3, shortest=1):
        _checks.whole("shortest", shortest, least=1)
        _checks.whole("longest", longest, least=shortest)
        self.vocab, self.longest, self.shortest = vocab, longest, shortest

    def begin(self, batch, rows):
        """Nothing to get ready."""

    def propose(self, batch, wanted, sampling, rng):
        """Return the `Proposal` of each row's continuation of its own match."""
        guesses = [self.guess(batch.text[r, : batch.length[r]], w) if w else [] for r, w in enumerate(wanted)]
        return pack(guesses)

    def guess(self, text, n):
        """Return n token ids (n,) that follow `text`, none if its end is new to it."""
        follow = self._match(text)
        if follow is None:
            return text[:0]
        known = len(text) - follow
        return text[follow : follow + n] if n <= known else text[follow + np.arange(n) % known]

    def _match(self, text):
        """Return the place behind the longest, then latest, match of the end; or None."""
        ends, size, found = np.flatnonzero(text[:-1] == text[-1]), 1, None
        while len(ends):
            found = ends[-1] + 1 if size >= self.shortest else found
            if size == self.longest or size == len(text):
                break
            ends = ends[np.searchsorted(ends, size) :]  # must begin in the text
            ends = ends[text[ends - size] == text[-1 - size]]
            size += 1
        return found


def pack(guesses):
    """Return the `Proposal` of one sequence of token ids per row."""
    tokens = [np.asarray(guess).tolist() for guess in guesses]
    return Proposal(tokens, [len(guess) for guess in tokens])
