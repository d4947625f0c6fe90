"""A suffix draft: guess what followed the text's end most often, in all texts seen so far."""

import numpy as np

from specgain import _checks
from specgain.lab.drafts.lookup import pack


class Suffix:
    """A draft without weights and with a memory across requests: cold at first, warm after texts like the present one.

    It finds every place where the longest known end of the text (at most `longest` tokens) stood before, in any text,
    and follows the most frequent continuation, the latest one among equals. It stops where the share of those places
    that still agree falls below `least`: it offers few tokens when unsure. The memory is one array, searched as a
    whole, so a round costs more the more is remembered; `reset()` empties it. Rows of one batch learn from each other
    too. With `shared=False` each request learns from its own text alone, as if it were the first and only one.
    """

    def __init__(self, vocab, longest=24, least=0.1, shared=True):
        _checks.whole("longest", longest, least=1)
        if not 0 <= least <= 1:
            raise ValueError(f"least = {least} must be a share from 0 to 1")
        self.vocab, self.longest, self.least, self.shared = vocab, longest, least, shared
        self.reset()

    def reset(self):
        """Forget all texts."""
        self.memory, self.fill, self.batch = np.full(1024, -1, np.int32), 1, None  # −1 parts the texts
        self.starts, self.known = {}, {}

    def begin(self, batch, rows):
        """Give each new request its place in the memory."""
        if batch is not self.batch:
            self._finish()
            self.batch = batch
        capacity = batch.text.shape[1] + 1
        self._reserve(capacity * len(rows))
        for row in rows:
            self.starts[row], self.known[row] = self.fill, 0
            self.fill += capacity

    def propose(self, batch, wanted, sampling, rng):
        """Return the `Proposal` of each row's most frequent continuation."""
        for row, n in enumerate(batch.length):
            if batch.request[row] is not None:
                self._learn(row, n)
        return pack([self._guess(r, batch.length[r], w) if w else [] for r, w in enumerate(wanted)])

    def _learn(self, row, n):
        """Copy what was committed since the last time."""
        start, known = self.starts[row], self.known[row]
        self.memory[start + known : start + n] = self.batch.text[row, known:n]
        self.known[row] = n

    def _guess(self, row, length, n):
        first, behind = (0, self.fill) if self.shared else (self.starts[row] - 1, self.starts[row] + length + 1)
        text, last = self.memory[first:behind], self.starts[row] + length - 1 - first
        ends, guess = self._match(text, last, min(length, self.longest)), []
        total = len(ends)
        for _ in range(n if total else 0):
            ends = ends + 1
            tokens = text[ends]
            best = self._commonest(tokens)
            ends = ends[tokens == best]
            if best < 0 or len(ends) < self.least * total:
                break
            guess.append(best)
        return guess

    @staticmethod
    def _match(text, last, longest):
        """Return the places where the longest known end of the text up to `last` stood before."""
        ends = np.flatnonzero(text[:-1] == text[last])
        ends, back = ends[text[ends + 1] >= 0], np.arange(longest)  # its own end is followed by nothing
        same = np.logical_and.accumulate(text[ends[:, None] - back] == text[last - back], axis=1).sum(axis=1)
        return ends[same == same.max(initial=0)]

    @staticmethod
    def _commonest(tokens):
        """Return the most frequent token, the latest among equals; the end of a text (−1) only if nothing else is there."""
        if (tokens == tokens[-1]).all():
            return tokens[-1]
        _, inverse, counts = np.unique(tokens, return_inverse=True, return_counts=True)
        counts = counts[inverse] * (tokens >= 0)
        return tokens[len(tokens) - 1 - np.argmax(counts[::-1])]

    def _finish(self):
        """Learn the end of every text of the last batch, and close the gaps behind them."""
        if self.batch is not None:
            for row, n in enumerate(self.batch.length):
                if row in self.starts:
                    self._learn(row, n)
        text = self.memory[: self.fill]
        text = text[(text >= 0) | np.append(True, text[:-1] >= 0)]
        self.memory, self.fill, self.starts, self.known = text, len(text), {}, {}

    def _reserve(self, more):
        if self.fill + more > len(self.memory):
            self.memory = np.append(self.memory, np.full(self.fill + 2 * more, -1, np.int32))
        self.memory[self.fill : self.fill + more] = -1
