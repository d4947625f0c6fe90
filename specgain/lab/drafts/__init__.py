"""Drafts that are no model of their own. A draft is one file here, with `vocab`, `begin` and `propose` (see `lab.loop.Draft`).

    lookup     guesses what followed the last tokens earlier in the same text; needs nothing
    suffix     what followed them most often in every text seen so far; needs memory, reset() makes it cold
    bigram     the commonest successor of the last token; needs a table of the pair
    scripted   the right token, or with a dialled probability a wrong one; needs the answer, for timing only

`ModelDraft`, the draft that is a small model, lives in `lab.loop`.
"""

from specgain.lab.drafts.bigram import Bigram
from specgain.lab.drafts.lookup import Lookup
from specgain.lab.drafts.scripted import Scripted
from specgain.lab.drafts.suffix import Suffix

__all__ = ["NAMES", "Bigram", "Lookup", "Scripted", "Suffix", "make_draft"]
NAMES = ("lookup", "suffix", "bigram", "scripted:a")


def make_draft(name, pair):
    """Return a new draft for the target of `pair`: "lookup", "suffix", "bigram", or "scripted:a" or "scripted:a1,a2,…".

    "scripted:0.8" accepts every guess with probability 0.8; a list dials the positions one by one.
    """
    kind, _, dial = name.partition(":")
    vocab = pair.target.config.vocab
    if kind == "scripted" and dial:
        return Scripted(pair.target, _dialled(dial))
    if name == "lookup":
        return Lookup(vocab)
    if name == "suffix":
        return Suffix(vocab)
    if name == "bigram":
        return Bigram.load(pair.folder)
    raise ValueError(f"draft {name!r} unknown; choose from {', '.join(NAMES)}, with a a probability or a list a1,a2,…")


def _dialled(text):
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"scripted:{text} must name probabilities, as in scripted:0.8 or scripted:0.9,0.7") from None
    return values if "," in text else values[0]
