"""The ledger: what a round commits against what it costs.

    S = E[L]·t_D / T_round        the speedup
    M = E[L]·t_D − T_round        the gain margin, the time one round saves

S > 1 and M > 0 say the same thing.  All times are in seconds.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from specgain import _checks
from specgain.acceptance import Acceptance, constant_acceptance
from specgain.round_time import RoundTime


def speedup(committed_length, t_decode, t_round):
    """Return S = E[L]·t_D / T_round, the factor by which tokens come faster than in ordinary decoding.

    Source: {eq}`eq-speedup`.  Valid for one request in steady decoding, first and last round left out.

    >>> round(speedup(3.3616, 0.010, 0.0144), 4)
    2.3344
    """
    _check_ledger(committed_length, t_decode, t_round)
    return committed_length * t_decode / t_round


def margin(committed_length, t_decode, t_round):
    """Return M = E[L]·t_D − T_round in seconds: the time that one round saves.

    Speculative decoding is faster if and only if M > 0.

    >>> round(margin(3.3616, 0.010, 0.0144), 6)
    0.019216
    """
    _check_ledger(committed_length, t_decode, t_round)
    return committed_length * t_decode - t_round


def break_even_round_time(committed_length, t_decode):
    """Return E[L]·t_D in seconds: a round that takes longer makes decoding slower."""
    return _checks.length("committed_length", committed_length) * _checks.positive_time("t_decode", t_decode)


def break_even_length(t_decode, t_round):
    """Return T_round / t_D: the mean committed length at which a round of this time pays for itself exactly."""
    return _checks.positive_time("t_round", t_round) / _checks.positive_time("t_decode", t_decode)


def break_even_acceptance(gamma, t_decode, t_round):
    """Return the constant a at which γ candidates break even, or None if not even a = 1 would do.

    0.0 when the round costs no more than a plain step.  Source: P7, the unique root of E_γ(a) = T_round/t_D.

    >>> round(break_even_acceptance(4, 0.010, 0.0144), 3)
    0.307
    """
    gamma = _checks.whole("gamma", gamma, least=1)
    needed = break_even_length(t_decode, t_round)
    if needed > gamma + 1:
        return None
    return constant_acceptance(max(needed, 1.0), gamma)


def log_split(committed_length, t_decode, t_round):
    """Return (ln E[L], −ln(T_round/t_D)): what acceptance and what cost contribute to ln S, which is their sum."""
    _check_ledger(committed_length, t_decode, t_round)
    return math.log(committed_length), -math.log(t_round / t_decode)


def _check_ledger(committed_length, t_decode, t_round):
    _checks.length("committed_length", committed_length)
    _checks.positive_time("t_decode", t_decode)
    _checks.positive_time("t_round", t_round)


# Averages over rounds: tokens over time, never the mean of the rounds' own rates.


def pooled_rate(committed, times):
    """Return Σ L / Σ T in tokens per second: the rate a user sees over many rounds."""
    _check_rounds(committed, times)
    return sum(_checks.whole("committed", tokens) for tokens in committed) / sum(times)


def mean_of_rates(committed, times):
    """Return the mean of L/T over rounds, in tokens per second: a different number (see `averaging_gap`)."""
    _check_rounds(committed, times)
    return sum(tokens / time for tokens, time in zip(committed, times, strict=True)) / len(times)


def averaging_gap(committed, times):
    """Return `mean_of_rates` − `pooled_rate` by the identity −Cov(T, L/T) / E[T], in tokens per second.

    Zero when every round takes the same time.  Source: P13, {eq}`eq-averaging`.

    >>> tokens, seconds = [1, 4], [1.0, 2.0]
    >>> mean_of_rates(tokens, seconds), round(pooled_rate(tokens, seconds), 4), round(averaging_gap(tokens, seconds), 4)
    (1.5, 1.6667, -0.1667)
    """
    _check_rounds(committed, times)
    rates = [tokens / time for tokens, time in zip(committed, times, strict=True)]
    mean_time, mean_rate = sum(times) / len(times), sum(rates) / len(rates)
    covariance = sum((t - mean_time) * (r - mean_rate) for t, r in zip(times, rates, strict=True)) / len(times)
    return -covariance / mean_time


def _check_rounds(committed, times):
    if len(committed) != len(times) or len(times) == 0:
        raise ValueError(
            f"committed has {len(committed)} rounds and times {len(times)}; give one of each per round, at least one"
        )
    for tokens, time in zip(committed, times, strict=True):
        _checks.whole("committed", tokens)
        _checks.positive_time("times", time)


def bootstrap(groups, statistic, resamples=2000, seed=0):
    """Return `resamples` bootstrap values of `statistic(*totals)` as a NumPy array; the same for the same seed.

    `groups` is a list of arrays (requests, quantities), such as tokens and seconds per request.  Groups are resampled
    independently, whole requests at a time, since the rounds of one request are not independent.  `statistic` gets for
    each group an array (resamples, quantities) of sums, and so forms totals over totals anew.  Needs NumPy.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    return statistic(*(rng.multinomial(len(g), np.full(len(g), 1 / len(g)), resamples) @ np.asarray(g) for g in groups))


def interval(values, level=0.95, groups=None):
    """Return the percentile interval [low, high] of bootstrap values.

    With `groups`, how many groups were resampled, it is widened about the median: a bootstrap of n groups spreads too
    little by √((n − 1)/n), and so few need Student's t with n − 1 degrees of freedom for the normal z. (One group alone
    shows no spread; it counts as two.)
    """
    import numpy as np

    low, middle, high = np.quantile(values, [(1 - level) / 2, 0.5, (1 + level) / 2])
    factor = 1.0 if groups is None else small_sample(groups, level)
    return [float(middle + factor * (end - middle)) for end in (low, high)]


def small_sample(groups, level=0.95):
    """Return √(n/(n − 1)) · t/z; t/z by the expansion in 1/(n − 1) (Abramowitz and Stegun 26.7.5)."""
    z, dof = NormalDist().inv_cdf((1 + level) / 2), max(groups, 2) - 1
    orders = (z**2 + 1) / 4, (5 * z**4 + 16 * z**2 + 3) / 96, (3 * z**6 + 19 * z**4 + 17 * z**2 - 15) / 384
    return (1 + 1 / dof) ** 0.5 * (1 + sum(term / dof**k for k, term in enumerate(orders, 1)))


class Row(NamedTuple):
    """One line of the ledger; times in seconds."""

    gamma: int
    committed_length: float
    t_round: float
    speedup: float
    margin: float


@dataclass(frozen=True)
class Ledger:
    """An acceptance law, a round time and the ordinary decode time t_D: everything a verdict needs.

    >>> from specgain.round_time import Quadratic
    >>> ledger = Ledger(Acceptance.constant(0.8), RoundTime.of(Quadratic(0.010, 0.0007, 0.0001)), t_decode=0.010)
    >>> round(ledger.speedup(4), 4)
    2.3344
    """

    acceptance: Acceptance
    round_time: RoundTime
    t_decode: float

    def __post_init__(self):
        if not isinstance(self.acceptance, Acceptance):
            raise TypeError(
                f"acceptance = {self.acceptance!r} is not an Acceptance; build one with Acceptance.constant(0.8)"
            )
        if not isinstance(self.round_time, RoundTime):
            raise TypeError(
                f"round_time = {self.round_time!r} is not a RoundTime; build RoundTime(draft=, verify=, other=)"
            )
        _checks.positive_time("t_decode", self.t_decode)

    def speedup(self, gamma):
        """Return S at γ."""
        return speedup(self.acceptance.committed_length(gamma), self.t_decode, self.round_time(gamma))

    def margin(self, gamma):
        """Return the gain margin M at γ, in seconds."""
        return margin(self.acceptance.committed_length(gamma), self.t_decode, self.round_time(gamma))

    def row(self, gamma):
        """Return the `Row` of one γ."""
        length, t_round = self.acceptance.committed_length(gamma), self.round_time(gamma)
        terms = (length, self.t_decode, t_round)
        return Row(gamma, length, t_round, speedup(*terms), margin(*terms))

    def rows(self, gammas):
        """Return one `Row` per γ."""
        return [self.row(gamma) for gamma in gammas]
