"""The committed records of what the tiny drafts propose along the target's text and how sure they are; no torch.

`drafted.json` comes from `specgain.lab.drafted`, `confidence.json` from tools/train_confidence.py.
"""

import json
from dataclasses import dataclass
from pathlib import Path

COMMITTED = Path(__file__).parents[2] / "notebooks" / "measurements" / "cpu-2core" / "drafted.json"
JUDGED = COMMITTED.with_name("confidence.json")


@dataclass(frozen=True)
class Recorded:
    """One prompt: `ranks[t]`, the place of the target's token t among the draft's choices (0 its first, 9 tenth or later);
    `confidences[t]`, the draft's probability of each of its own next tokens from there on, or None if not recorded."""

    ranks: tuple
    confidences: tuple | None

    @property
    def agreement(self):
        """The string of "1" and "0" that `rounds_of` and `control.replay` read."""
        return "".join("01"[rank == 0] for rank in self.ranks)


def recorded(draft, domains, half=None, sure=False, path=COMMITTED):
    """Return {(domain, number): Recorded}, the kinds of text in turns; `half` 0 or 1 keeps every second prompt.

    What is chosen or fitted on one half is judged on the other.  `sure=True` keeps the prompts with confidences.
    """
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    if draft not in record["domains"][next(iter(record["domains"]))] or set(domains) - set(record["domains"]):
        raise ValueError(f"draft = {draft!r} with domains = {domains} is not in this record: {list(record['domains'])}")
    found, width = {}, record["setup"]["longest"]
    for number in range(half or 0, record["setup"]["prompts"], 1 if half is None else 2):
        for domain in domains:
            row = record["domains"][domain][draft][number]
            if "confidence" in row or not sure:
                found[domain, number] = Recorded(tuple(map(int, row["ranks"])), _rows(row.get("confidence"), width))
    return found


def _rows(digits, width):
    """Return rows of `width` probabilities from a string of two-digit percentages, or None."""
    if digits is None:
        return None
    values = [int(digits[i : i + 2]) / 100 for i in range(0, len(digits), 2)]
    return tuple(tuple(values[i : i + width]) for i in range(0, len(values), width))


def guesses(draft, which, path=JUDGED):
    """Return {"hits", "raw", "head"}: of every guess along the texts of a prompt set, whether it was right, the draft's
    own probability of it, and what its confidence head says (on "test" prompts only, which the head has not seen).
    """
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    if draft not in record["drafts"] or which not in record["drafts"][draft]:
        raise ValueError(f"draft = {draft!r} on {which!r} prompts is not in this record: {list(record['drafts'])}")
    found = record["drafts"][draft][which]
    mille = {key: digits for key, digits in found.items() if key != "hits"}
    said = {key: [int(digits[i : i + 3]) / 1000 for i in range(0, len(digits), 3)] for key, digits in mille.items()}
    return {"hits": [digit == "1" for digit in found["hits"]]} | said
