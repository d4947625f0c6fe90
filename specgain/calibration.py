"""Are the estimates of acceptance true?  Reliability, expected calibration error, and a map that repairs them.

An estimate of 0.7 is calibrated if seven of ten candidates that carry it are accepted.
"""

from bisect import bisect_right
from dataclasses import dataclass

from specgain import _checks
from specgain.acceptance import Interval, wilson


@dataclass(frozen=True)
class Bin:
    """The estimates from `low` to `high`: their mean, and the share that came true with its 95 % interval."""

    low: float
    high: float
    predicted: float
    observed: Interval


def reliability(predicted, happened, bins=10):
    """Return one `Bin` per non-empty range of estimates, `bins` ranges of equal width from 0 to 1.

    `predicted[i]` is an estimate in [0, 1], `happened[i]` is true if that candidate was accepted.

    >>> [(b.predicted, b.observed.value) for b in reliability([0.25, 0.25, 0.75, 0.75], [0, 1, 1, 1], bins=2)]
    [(0.25, 0.5), (0.75, 1.0)]
    """
    groups = [[] for _ in range(_checks.whole("bins", bins, least=1))]
    for estimate, outcome in _pairs(predicted, happened):
        groups[min(int(estimate * bins), bins - 1)].append((estimate, bool(outcome)))
    return [
        Bin(
            i / bins,
            (i + 1) / bins,
            sum(p for p, _ in group) / len(group),
            wilson(sum(h for _, h in group), len(group)),
        )
        for i, group in enumerate(groups)
        if group
    ]


def calibration_error(predicted, happened, bins=10):
    """Return the expected calibration error in [0, 1]: the mean |estimate − share that came true|, weighted by bin."""
    found = reliability(predicted, happened, bins)
    total = sum(b.observed.trials for b in found)
    return sum(b.observed.trials * abs(b.predicted - b.observed.value) for b in found) / total


def brier_score(predicted, happened):
    """Return the mean of (estimate − outcome)² in [0, 1], outcome 1 or 0; small if easy and hard are told apart as well.

    Source: Brier (1950), for two outcomes.

    >>> brier_score([0.5, 0.5], [0, 1]), brier_score([0.0, 1.0], [0, 1])
    (0.25, 0.0)
    """
    pairs = _pairs(predicted, happened)
    return sum((estimate - bool(outcome)) ** 2 for estimate, outcome in pairs) / len(pairs)


def isotonic(predicted, happened):
    """Return the rising step function estimate → chance that fits best in least squares, as a callable.

    Fit it on rounds that are not used to judge it.  Method: pool adjacent violators.

    >>> chance = isotonic([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1])
    >>> [chance(p) for p in (0.1, 0.3, 0.5, 0.9)]
    [0.0, 0.0, 0.5, 1.0]
    """
    counts = {}
    for estimate, outcome in _pairs(predicted, happened):
        hits, count = counts.get(estimate, (0, 0))
        counts[estimate] = hits + bool(outcome), count + 1
    blocks = []  # (first estimate, hits, count), shares rising
    for estimate, (hits, count) in sorted(counts.items()):
        while blocks and blocks[-1][1] * count >= hits * blocks[-1][2]:
            estimate, more, others = blocks.pop()
            hits, count = hits + more, count + others
        blocks.append((estimate, hits, count))
    firsts, values = [b[0] for b in blocks], [b[1] / b[2] for b in blocks]
    return lambda estimate: values[max(0, bisect_right(firsts, estimate) - 1)]


def _pairs(predicted, happened):
    """Return the (estimate, outcome) pairs; ValueError if there is none, or they differ in number."""
    if len(predicted) != len(happened) or len(predicted) == 0:
        raise ValueError(
            f"predicted has {len(predicted)} entries and happened {len(happened)}; give one of each, at least one"
        )
    return [(_checks.probability("predicted", p), h) for p, h in zip(predicted, happened, strict=True)]
