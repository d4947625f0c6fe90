"""Do published numbers fit together? (α, γ, c, τ, S) as printed, by interval arithmetic.

A printed number stands for every value that rounds to it: 0.75 is [0.745, 0.755]. A rule fails only if no choice of
values satisfies it. Failing the ceiling S ≤ τ means "not against this baseline", never "wrong": S compares two
programs, and a slow plain step breaks the ceiling legitimately.

    E_γ(a) = 1 + a + … + a^γ                    tokens per round for one a at every position (Leviathan et al., eq. 1)
    S      = E_γ(a)/(γ·c + 1)                   their theorem 3.8: verification at the price of a plain step
    S ≤ τ                                       unless a round is cheaper than a plain step
    (γ·ĉ + γ + 1)/E_γ(a)                        growth of arithmetic (theorem 3.11); ĉ is 0 if c is, else from 0 to 1
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from specgain.acceptance import committed_length_constant
from specgain.records.source import RecordError, Source, Warn, csv_rows, shown

NUMBER = re.compile(r"\s*([+-]?(?=\.?\d)\d*(?:\.(\d*))?)\s*(%?)(?:x|×|ms)?\s*")
TINY = 1e-9


class Band(NamedTuple):
    """All values that a printed number can stand for, as an interval [low, high]."""

    low: float
    high: float

    def meets(self, other):
        """Return True if the two intervals have a value in common."""
        return self.low <= other.high + TINY and other.low <= self.high + TINY

    def __truediv__(self, other):
        return Band(self.low / other.high, self.high / other.low)

    def __str__(self):
        return f"{self.low:.4g}…{self.high:.4g}"


def printed(value, name="value", decimals=0):
    """Return the Band of a number as printed (text such as "0.75", "62%", "1.92x"); an int is exact.

    `decimals`: printed with at least so many, for tables whose trailing zeros were lost. Raises RecordError for what
    is no finite number.
    """
    if isinstance(value, Band):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Band(value, value)
    match = NUMBER.fullmatch(repr(value) if isinstance(value, float) else str(value))
    if not match or len(match[1]) > 40:
        raise RecordError(f"{name} = {shown(str(value))} is not a number as a table prints it, such as 0.75 or 62%")
    half = 0.5 * 10.0 ** -max(decimals, len(match[2] or ""))
    scale = 0.01 if match[3] else 1.0
    return Band((float(match[1]) - half) * scale, (float(match[1]) + half) * scale)


def whole(value, name):
    """Return a whole number ≥ 1 given as int or text."""
    text = str(value).strip().removesuffix(".0")
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise RecordError(f"{name} = {shown(str(value))} is not a draft length (a whole number from 1 on)")
    return int(text)


def length_band(alpha, gamma):
    """Return the Band of E_γ(a) over all a in `alpha`, cut to [0, 1]; E rises with a, so the ends suffice."""
    low, high = (min(max(end, 0.0), 1.0) for end in alpha)
    return Band(committed_length_constant(low, gamma), committed_length_constant(high, gamma))


@dataclass
class Audit:
    """What the numbers say together: `verdict` is consistent, impossible, not-against-this-baseline or cannot-tell.

    `readings` are the definitions under which the printed rate fits τ; `implied` holds intervals that follow.
    """

    findings: list = field(default_factory=list)  # (rule, ok, text)
    readings: list = field(default_factory=list)
    implied: dict = field(default_factory=dict)
    baseline: bool = False
    missing: list = field(default_factory=list)

    @property
    def verdict(self):
        if any(not ok for _, ok, _ in self.findings):
            return "impossible"
        if self.baseline:
            return "not-against-this-baseline"
        return "consistent" if self.findings else "cannot-tell"

    def add(self, rule, ok, text):
        self.findings.append((rule, bool(ok), text))

    def to_json(self):
        """Return the JSON of `specgain audit`."""
        return {
            "verdict": self.verdict,
            "findings": [{"rule": rule, "ok": ok, "text": text} for rule, ok, text in self.findings],
            "readings": self.readings,
            "implied": {key: list(band) for key, band in self.implied.items()},
            "warnings": [] if not self.baseline else [Warn("ceiling", self._ceiling()).to_json()],
            "missing": self.missing,
        }

    def _ceiling(self):
        band = self.implied["round_cost"]
        return f"a round would cost {band} plain steps, less than one: not against this baseline"


RATES = {
    "conditional acceptance, the same at every position": length_band,
    "accepted over drafted tokens": lambda rate, gamma: Band(1 + gamma * rate.low, 1 + gamma * rate.high),
    "tokens per round over γ + 1": lambda rate, gamma: Band((gamma + 1) * rate.low, (gamma + 1) * rate.high),
}


def audit(
    alpha=None,
    gamma=None,
    c=None,
    tau=None,
    speedup=None,
    expected=None,
    operations=None,
    plain=None,
    spec=None,
    per="ms",
):
    """Return the `Audit` of the numbers given, each as printed (text), γ whole.

    `speedup` is measured, `expected` the printed result of the model; `plain` and `spec` are times per token
    (per="ms") or speeds (per="tok/s"). Raises RecordError for a number that is none.
    """
    out = Audit()
    gamma = None if gamma is None else whole(gamma, "gamma")
    given = {"alpha": alpha, "c": c, "tau": tau, "speedup": speedup, "expected": expected, "operations": operations}
    bands = {name: printed(value, name) for name, value in given.items() if value is not None}
    _ranges(out, bands, gamma)
    if gamma is not None and {"alpha", "tau"} <= bands.keys():
        _rate(out, bands["alpha"], bands["tau"], gamma)
    if gamma is not None and "alpha" in bands:
        _model(out, bands, gamma)
    if {"tau", "speedup"} <= bands.keys():
        _ceiling(out, bands["tau"], bands["speedup"])
    if None not in (plain, spec) and "speedup" in bands:
        _ratio(out, printed(plain, "plain"), printed(spec, "spec"), bands["speedup"], per)
    if not out.findings and not out.baseline:
        out.missing = ["numbers that bear on each other: (α, γ, τ), (α, γ, c, S), (τ, S) or two times and their ratio"]
    return out


def _ranges(out, bands, gamma):
    """Check what each number can be by itself."""
    if "alpha" in bands and not bands["alpha"].meets(Band(0, 1)):
        out.add("range", False, f"α = {bands['alpha']} is no probability")
    if "c" in bands and bands["c"].high < 0:
        out.add("range", False, f"c = {bands['c']} is negative")
    for name in ("speedup", "expected", "operations"):
        if name in bands and bands[name].high <= 0:
            out.add("range", False, f"{name} = {bands[name]} is not positive")
    if "tau" in bands:
        most = gamma + 1 if gamma is not None else float("inf")
        fits = bands["tau"].meets(Band(1, most))
        if gamma is not None or not fits:
            out.add("bounds", fits, f"1 ≤ τ = {bands['tau']} ≤ γ + 1 = {most:g}" if fits else f"τ = {bands['tau']} is "
                    f"outside 1 to γ + 1 = {most:g} (a round commits at least one token, at most all drafts and one)")  # fmt: skip


def _rate(out, alpha, tau, gamma):
    """Find the definitions of a rate under which α and τ fit."""
    bands = {name: reading(alpha, gamma) for name, reading in RATES.items()}
    out.readings = [name for name, band in bands.items() if band.meets(tau)]
    text = "; ".join(f"{name}: τ would be {band}" for name, band in bands.items())
    out.add("rate", out.readings, f"α = {alpha}, γ = {gamma}, τ = {tau} — {text}")


def _model(out, bands, gamma):
    """Check the model's speedup and operations, and what the measured speedup implies."""
    length = length_band(bands["alpha"], gamma)
    out.implied["length_of_the_model"] = length
    if "operations" in bands:
        free = "c" in bands and bands["c"].high == 0
        growth = Band(gamma + 1, gamma + 1 + (0 if free else gamma)) / length
        text = f"(γ·ĉ + γ + 1)/E = {growth}, printed {bands['operations']}"
        out.add("operations", growth.meets(bands["operations"]), text)
    if "c" not in bands:
        return
    cost = Band(1 + gamma * max(0.0, bands["c"].low), 1 + gamma * bands["c"].high)
    model = length / cost
    if "expected" in bands:
        fits = model.meets(bands["expected"])
        out.add("model", fits, f"E/(γ·c + 1) = {model}, printed {bands['expected']}")
    if "speedup" in bands and "tau" not in bands:
        implied = out.implied["round_cost"] = length / bands["speedup"]
        out.baseline = implied.high < 1 - TINY
        out.implied["measured_over_model"] = bands["speedup"] / model
        out.add(
            "measured",
            True,
            f"measured {bands['speedup']} against a model of {model}: a round of {implied} plain steps",
        )


def _ceiling(out, tau, speedup):
    """S ≤ τ: else a round would be cheaper than a plain step."""
    if speedup.low <= 0:
        return
    implied = out.implied["round_cost"] = tau / speedup
    out.baseline = implied.high < 1 - TINY
    if not out.baseline:
        out.add("ceiling", True, f"S = {speedup} ≤ τ = {tau}: a round of {implied} plain steps")


def _ratio(out, plain, spec, speedup, per):
    """Check that a printed speedup is the ratio of the printed times or speeds."""
    if per not in TIMES:
        raise RecordError(f"per = {per!r} is not known; known are {', '.join(TIMES)}")
    if min(plain.low, spec.low) <= 0:
        raise RecordError("plain and spec must be positive")
    ratio = plain / spec if per == "ms" else spec / plain
    out.add("ratio", ratio.meets(speedup), f"the printed values give {ratio}, the printed speedup is {speedup}")


# --------------------------------------------------------------------------------------------------------- tables

COLUMNS = {
    "alpha": ("alpha",), "gamma": ("gamma",), "c": ("c",), "tau": ("tau", "tau_printed", "mean_tokens_per_step", "expected_length"),
    "speedup": ("speedup", "speedup_printed", "speedup_measured", "sp_overall"),
    "expected": ("speedup_expected_printed", "speed_factor_printed"), "operations": ("ops_factor_printed",),
}  # fmt: skip
TIMES = {"ms": ("plain_ms", "spec_ms"), "tok/s": ("baseline_tps", "spec_tps")}


def audit_rows(rows):
    """Return one `Audit` per row of a table (dicts with the printed texts), by its column names.

    A table with operations or an expected speed and no column c is read as c = 0. Raises RecordError when no column
    is known.
    """
    known = (
        {name: [column for column in columns if column in rows[0]] for name, columns in COLUMNS.items()} if rows else {}
    )
    pairs = [(per, names) for per, names in TIMES.items() if rows and set(names) <= set(rows[0])]
    if not any(known.values()) and not pairs:
        listed = ", ".join(sorted({c for columns in COLUMNS.values() for c in columns}))
        raise RecordError(f"none of the columns is known here; known are {listed}")
    places = {column: decimals(row[column] for row in rows) for column in rows[0]} if rows else {}
    found = []
    for row in rows:
        values = {name: row[columns[0]] for name, columns in known.items() if columns and row[columns[0]] != ""}
        for name in values.keys() - {"gamma"}:
            values[name] = printed(values[name], name, places[known[name][0]])
        if "c" not in values and {"expected", "operations"} & values.keys():
            values["c"] = 0
        for per, names in pairs:
            values |= {"per": per} | {
                key: printed(row[name], name, places[name]) for key, name in zip(("plain", "spec"), names, strict=True)
            }
        found.append(audit(**values))
    return found


def decimals(texts):
    """Return the most decimals in a column: a table prints all its numbers alike, but trailing zeros get lost."""
    return max((len(match[2] or "") for match in map(NUMBER.fullmatch, map(str, texts)) if match), default=0)


def check_mean(cells, mean):
    """Return True if a printed mean can be the mean of printed cells: both taken as intervals."""
    places = decimals([*cells, mean])
    bands = [printed(cell, "cell", places) for cell in cells]
    band = Band(*(sum(ends) / len(bands) for ends in zip(*bands, strict=True)))
    return band.meets(printed(mean, "mean", places))


def audit_file(path):
    """Return {"rows": audits with their row number and cells, "counts": rows by verdict} of a CSV file."""
    source = Source(path)
    try:
        rows = csv_rows(source.whole(), str(path))
    finally:
        source.close()
    found = [
        {"row": number, "cells": {k: v for k, v in row.items() if k != "source"}, **one.to_json()}
        for number, (row, one) in enumerate(zip(rows, audit_rows(rows), strict=True), start=1)
    ]
    return {"rows": found, "counts": dict(Counter(row["verdict"] for row in found))}
