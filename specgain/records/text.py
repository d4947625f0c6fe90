"""Lines of the form "key: value, key: value" as engines print them, and what rounded numbers still tell exactly."""

import re
from math import ceil, floor, inf
from typing import NamedTuple

from specgain.records.source import RecordError, Warn, count, real, shown

NUMBER = re.compile(r"\s*(-?\d+(?:\.(\d+))?)\s*(.*?)\.?\s*$")
QUOTED = re.compile(r"[\"'`{}\\]")
KEPT = 1000  # windows kept one by one; the sums run over all
TINY = 1e-9  # rounding half to even and half up differ exactly at the half


def fields(text):
    """Return {key: value text} of "key: value, key: value"; what has no colon belongs to the value before it.

    Raises RecordError if a key occurs twice.
    """
    found, last = {}, None
    for part in text.split(","):
        key, colon, value = part.partition(":")
        if colon:
            last = key.strip()
            if last in found:
                raise RecordError(f"{shown(last)} occurs twice in one line")
            found[last] = value.strip()
        elif last is not None and part.strip():
            found[last] += "," + part
    return found


def number(text, name, unit=""):
    """Return (value, half): a printed number such as "62.1%" with its unit, and half a unit of its last digit.

    Raises RecordError for anything else, such as a number that was cut before its unit.
    """
    match = NUMBER.match(text)
    if not match or match[3] != unit:
        raise RecordError(f"{name}: {shown(text)} is not a number{f' with the unit {unit}' if unit else ''}")
    if len(match[1]) > 30:
        raise RecordError(f"{name}: {shown(text)} has too many digits")
    return (float(match[1]), 0.5 * 10.0 ** -len(match[2])) if match[2] else (int(match[1]), 0.0)


def whole(text, name, unit=""):
    """Return the count in a text such as "738 tokens"."""
    return count(number(text, name, unit)[0], name)


def decimal(text, name, unit="", high=inf):
    """Return the number ≥ 0 in a text such as "73.80 tokens/s"."""
    return real(number(text, name, unit)[0], name, high=high)


def numbers(text, name):
    """Return (values, half) of a list such as "0.800, 0.600, 0.400", all printed with as many decimals."""
    pairs = [number(part, name) for part in text.split(",")]
    if len({half for _, half in pairs}) > 1:
        raise RecordError(f"{name}: {shown(text)} was cut, its numbers have different numbers of decimals")
    return tuple(real(value, name, high=1.0) for value, _ in pairs), pairs[0][1]


def from_engine(line, marker):
    """Return the text from `marker` on, or None if the line only quotes it (an echoed prompt, a JSON string)."""
    before, marker, after = line.partition(marker)
    return None if QUOTED.search(before) else after


class LeftOut:
    """Counts lines that look right and cannot be used, and keeps the first reason."""

    def __init__(self):
        self.lines, self.reason = 0, ""

    def add(self, reason):
        self.lines, self.reason = self.lines + 1, self.reason or str(reason)

    def warn(self, record):
        """Add the warning to `record`, if anything was left out."""
        if self.lines:
            plural = "line is" if self.lines == 1 else "lines are"
            record.warnings.append(
                Warn("left-out", f"{record.name}: {self.lines} {plural} left out (the first: {self.reason})")
            )


# ------------------------------------------------------------------------- whole rounds behind rounded numbers


class Printed(NamedTuple):
    """A number as printed: the true one lies within `half` of `value`."""

    value: float
    half: float


def rounds_behind(accepted, drafted, per_round=(), gamma=None):
    """Return (rounds, low, high): the number of rounds that the rounded numbers of one line allow, and its range.

    `per_round` holds `Printed` values of accepted/rounds (E[L] − 1, the sum of the survival), `gamma` the longest
    draft. Where drafted = γ·rounds fits, drafts were of full length and rounds = drafted/γ. `rounds` is None and
    `high` None where nothing bounds it. Raises RecordError when no whole number fits.
    """
    low, high = 1.0, inf
    if gamma:
        low = max(low, drafted / gamma)
    for printed in per_round if accepted else ():
        low = max(low, accepted / (printed.value + printed.half + TINY))
        if printed.value - printed.half > TINY:
            high = min(high, accepted / (printed.value - printed.half - TINY))
    low, high = ceil(low - TINY), high if high == inf else floor(high + TINY)
    if low > high:
        raise RecordError(f"no number of rounds fits {accepted} accepted of {drafted} drafted tokens as printed")
    if gamma and drafted % gamma == 0 and low <= drafted // gamma <= high:
        return drafted // gamma, low, None if high == inf else high
    if high == inf:
        return None, low, None
    best = min((printed for printed in per_round if printed.value), key=lambda printed: printed.half / printed.value)
    return min(max(round(accepted / best.value), low), high), low, high
