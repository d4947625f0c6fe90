"""A bigram draft: guess the commonest successor of the last token, counted once over the training text."""

from pathlib import Path

import numpy as np

from specgain.lab.loop import Proposal
from specgain.lab.model import WeightsError
from specgain.lab.tensors import read_tensors

FILE = "bigram.safetensors"


class Bigram:
    """A draft that is one table: `table[token]` (vocab,) is the token that follows most often."""

    def __init__(self, table):
        self.chains, self.vocab = np.asarray(table, np.int64)[:, None], len(table)

    @classmethod
    def load(cls, folder):
        """Return the draft of the pair in `folder`."""
        path = Path(folder) / FILE
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist: this pair has no bigram table")
        table = read_tensors(path)[0]["next"].numpy()
        if table.ndim != 1 or int(table.max(initial=0)) >= len(table):
            raise WeightsError(f"{FILE}: next must hold one token id below {len(table)} for each token")
        return cls(table)

    def begin(self, batch, rows):
        """Nothing to get ready."""

    def propose(self, batch, wanted, sampling, rng):
        """Return the `Proposal` of each row's chain of commonest successors."""
        while self.chains.shape[1] < max(wanted):  # column i: the i + 1 st successor of every token
            self.chains = np.column_stack((self.chains, self.chains[self.chains[:, -1], 0]))
        last = batch.text[np.arange(len(wanted)), np.array(batch.length) - 1]
        return Proposal(self.chains[last, : max(wanted)].tolist(), list(wanted))


def count(parts, vocab):
    """Return the table of the commonest successor (vocab,) uint16; `parts` are pairs (weight of a token, token array)."""
    counts = np.zeros(vocab * vocab)
    for weight, tokens in parts:
        pairs = tokens[:-1].astype(np.int64) * vocab + tokens[1:]
        counts += weight * np.bincount(pairs, minlength=vocab * vocab)
    return counts.reshape(vocab, vocab).argmax(axis=1).astype(np.uint16)
