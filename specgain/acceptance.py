"""How many tokens a round commits: conditional acceptance, survival, Pr(K = k), E[L] and its variance.

K is the length of the accepted prefix, 0 ≤ K ≤ γ, and L = K + 1 the tokens that a round commits when
nothing cuts it.  The functions take floats, `Fraction`s, SymPy expressions and NumPy arrays alike, so
that one function serves the text, the proofs and the measurements.  In a sequence or an array the
first axis is the position in the draft: entry i−1 belongs to position i.
"""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from statistics import NormalDist

from specgain import _checks


def survival(conditional):
    """Return s_1…s_γ in [0, 1], with s_i = Pr(K ≥ i) = a_1·…·a_i; shape as given.

    `conditional` holds a_1…a_γ.  Only the definition of conditional probability
    is used: the positions need not be independent.  Raises ValueError for an a_i
    outside [0, 1].  Source: the chain rule.

    >>> survival([0.5, 0.5])
    (0.5, 0.25)
    """
    a = _checks.positions("conditional", conditional)
    for i, value in enumerate(a, start=1):
        _checks.probability(f"a_{i}", value)
    np = _checks.numpy_if_array(a)
    return np.cumprod(a, axis=0) if np else tuple(accumulate(a, mul))


def conditional(survival):
    """Return a_1…a_γ from s_1…s_γ, with a_i = s_i / s_{i−1}: the inverse of `survival`.

    vLLM's and llama.cpp's "per-position acceptance rate" is s_i; this gives the a_i behind it.  Where no
    round reaches position i (s_{i−1} = 0) nothing is known about a_i, and 0 is returned.  Raises ValueError
    if s_i rises or leaves [0, 1].

    >>> conditional([0.5, 0.25])
    (0.5, 0.5)
    """
    s = _checks.positions("survival", survival)
    _check_survival(s)
    np = _checks.numpy_if_array(s)
    if np:
        before = np.concatenate([np.ones_like(s[:1]), s[:-1]])
        return np.divide(s, before, out=np.zeros(s.shape), where=before > 0)
    return tuple(now / before if before != 0 else before for before, now in zip((1, *s), s, strict=False))


def _check_survival(s):
    for i, value in enumerate(s, start=1):
        _checks.probability(f"s_{i}", value)
    for i, (before, now) in enumerate(zip(s, s[1:], strict=False), start=2):
        if not _checks.is_symbolic(now - before) and not _checks.holds(now - before, lambda d: d <= 0):
            raise ValueError(
                f"survival rises from s_{i - 1} = {before} to s_{i} = {now}; Pr(K ≥ i) can only fall with i"
            )


def committed_length(conditional):
    """Return E[L] = 1 + Σ_i a_1·…·a_i in [1, γ+1]: mean tokens a round commits.

    `conditional` holds a_1…a_γ.  The target's own token is included.  No
    independence is assumed.  Source: one plus the tail sum of K.

    >>> committed_length([0.5, 0.5, 0.5])
    1.875
    """
    return 1 + sum(survival(conditional))


def committed_length_constant(a, gamma):
    """Return E[L] = (1 − a^(γ+1)) / (1 − a) for one a everywhere; γ + 1 at a = 1.

    Broadcasts over arrays of a and γ.  Stable where 1 − a is tiny.
    Source: Leviathan et al. 2023, equation (1).

    >>> round(committed_length_constant(0.8, 4), 4)
    3.3616
    """
    _checks.probability("a", a)
    gamma = _checks.whole("gamma", gamma)
    np = _checks.numpy_if_array(a, gamma)
    if np:
        return _closed_form_array(np, np.asarray(a, dtype=float), np.asarray(gamma))
    if not _checks.is_symbolic(a) and a >= 1:  # SymPy's 1.0 is not equal to 1
        return gamma + 1
    if isinstance(a, float) and a > 0 and not _checks.is_symbolic(gamma):
        return -math.expm1((gamma + 1) * math.log(a)) / (1 - a)
    return (1 - a ** (gamma + 1)) / (1 - a)


def _closed_form_array(np, a, gamma):
    """Return the closed form for arrays: expm1 keeps the digits that 1 − a^(γ+1) would lose near a = 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = -np.expm1((gamma + 1) * np.log(a)) / (1 - a)
    return np.where(a == 1, gamma + 1.0, value)


def pmf(conditional):
    """Return Pr(K = k) for k = 0…γ: s_k − s_{k+1}, with s_0 = 1 and s_{γ+1} = 0.

    Sums to 1.

    >>> pmf([0.5, 0.5])
    (0.5, 0.25, 0.25)
    """
    s = survival(conditional)
    np = _checks.numpy_if_array(s)
    if np:
        return -np.diff(s, axis=0, prepend=1.0, append=0.0)
    return tuple(before - now for before, now in zip((1, *s), (*s, 0), strict=True))


def variance(conditional):
    """Return Var K = Var L = Σ (2i − 1)·s_i − (Σ s_i)², in tokens².

    >>> round(variance([0.8] * 4), 5)
    2.57005
    """
    s = survival(conditional)
    return sum((2 * i - 1) * value for i, value in enumerate(s, start=1)) - sum(s) ** 2


def variance_constant(a, gamma):
    """Return Var K for one a at every position: a·[1 − (2γ+1)·a^γ·(1−a) − a^(2γ+1)] / (1−a)²; 0 at a = 1.

    The closed form loses digits when 1 − a is tiny; a float above 0.99 is therefore summed, an array is not.
    """
    _checks.probability("a", a)
    gamma = _checks.whole("gamma", gamma)
    np = _checks.numpy_if_array(a)
    if np:
        return np.where(a == 1, 0.0, _variance_below_one(np.where(a == 1, 0.0, a), gamma))
    if not _checks.is_symbolic(a) and a >= 1:
        return 0 * a
    if isinstance(a, float) and not _checks.is_symbolic(gamma) and 1 - a < 1e-2:
        return variance((a,) * gamma) if gamma else 0.0
    return _variance_below_one(a, gamma)


def _variance_below_one(a, gamma):
    return a * (1 - (2 * gamma + 1) * a**gamma * (1 - a) - a ** (2 * gamma + 1)) / (1 - a) ** 2


# Four numbers are called "acceptance rate".  Each can be had from E[L] and γ; none may stand for another.


def pooled_acceptance(committed_length, gamma):
    """Return E[K]/γ = (E[L] − 1)/γ, accepted over drafted tokens: the rate most engines print, in [0, 1]."""
    gamma = _checks.whole("gamma", gamma, least=1)
    _check_length(committed_length, gamma)
    return (committed_length - 1) / gamma


def committed_length_from_pooled(pooled, gamma):
    """Return E[L] = 1 + γ·r from the pooled rate r = accepted/drafted.  Exact for every acceptance law.

    >>> committed_length_from_pooled(0.75, 4)
    4.0
    """
    return 1 + _checks.whole("gamma", gamma, least=1) * _checks.probability("pooled", pooled)


def fill_rate(committed_length, gamma):
    """Return E[L]/(γ+1), the share of the verified positions that commit a token: Chen et al. 2023's rate."""
    gamma = _checks.whole("gamma", gamma)
    _check_length(committed_length, gamma)
    return committed_length / (gamma + 1)


def constant_acceptance(committed_length, gamma):
    """Return the constant a in [0, 1] whose closed form gives this E[L]: the inverse of `committed_length_constant`.

    Bisection to the last digit of a float; E[L] rises strictly with a, so the root is unique.
    Raises ValueError when E[L] is outside [1, γ+1].

    >>> round(constant_acceptance(3.3616, 4), 6)
    0.8
    """
    gamma = _checks.whole("gamma", gamma, least=1)
    _check_length(committed_length, gamma)
    if committed_length == 1:
        return 0.0
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        if committed_length_constant(middle, gamma) < committed_length:
            low = middle
        else:
            high = middle
    return high


def _check_length(committed_length, gamma):
    _checks.length("committed_length", committed_length)
    excess = committed_length - (gamma + 1)
    if not _checks.is_symbolic(excess) and not _checks.holds(excess, lambda e: e <= 0):
        raise ValueError(
            f"committed_length = {committed_length} exceeds γ + 1 = {gamma + 1}; a round commits at most γ + 1 tokens"
        )


class Acceptance:
    """An acceptance law: the a_i of a draft on a workload, from which E[L] at every γ follows.

    `Acceptance([a_1, a_2, …])` knows γ up to the number of entries (`gamma_max`); `Acceptance.constant(a)`
    has one a at every position and no limit.  Immutable; equal laws compare equal.

    >>> round(Acceptance.constant(0.8).committed_length(2), 2)
    2.44
    """

    __slots__ = ("_a", "_constant")

    def __init__(self, conditional):
        survival(conditional)  # raises for an a_i outside [0, 1]
        object.__setattr__(self, "_a", tuple(conditional))
        object.__setattr__(self, "_constant", None)

    def __setattr__(self, name, value):
        raise AttributeError(f"an acceptance law does not change; build a new one instead of setting {name}")

    @classmethod
    def constant(cls, a):
        """Return the law with a_i = a at every position, for any γ."""
        law = cls([a])
        object.__setattr__(law, "_constant", a)
        return law

    @classmethod
    def from_survival(cls, survival):
        """Return the law with the given s_1…s_γ (vLLM's per-position acceptance rates)."""
        return cls(conditional(survival))

    @property
    def gamma_max(self):
        """The longest γ this law knows, or None when it knows every γ."""
        return len(self._a) if self._constant is None else None

    @property
    def is_constant(self):
        """True for a law built by `Acceptance.constant`."""
        return self._constant is not None

    def conditional(self, gamma):
        """Return (a_1, …, a_γ).  Raises ValueError beyond `gamma_max`."""
        gamma = _checks.whole("gamma", gamma)
        if _checks.is_symbolic(gamma):
            raise TypeError(f"gamma = {gamma} is symbolic; a law lists its positions, so γ must be a number here")
        if self.is_constant:
            return (self._constant,) * gamma
        if gamma > len(self._a):
            raise ValueError(
                f"gamma = {gamma} is beyond the {len(self._a)} positions this law knows; measure longer drafts"
            )
        return self._a[:gamma]

    def survival(self, gamma):
        """Return (s_1, …, s_γ)."""
        a = self.conditional(gamma)
        return survival(a) if a else a

    def committed_length(self, gamma):
        """Return E[L] at γ, bonus token included."""
        if self.is_constant:
            return committed_length_constant(self._constant, gamma)
        return 1 + sum(self.survival(gamma))

    def pmf(self, gamma):
        """Return (Pr(K = 0), …, Pr(K = γ))."""
        a = self.conditional(gamma)
        return pmf(a) if a else (1,)

    def variance(self, gamma):
        """Return Var K = Var L at γ, in tokens²."""
        a = self.conditional(gamma)
        return variance(a) if a else 0

    def pooled_acceptance(self, gamma):
        """Return E[K]/γ, accepted over drafted, for γ ≥ 1."""
        return pooled_acceptance(self.committed_length(gamma), gamma)

    def __reduce__(self):  # what copy and pickle build it from
        return (Acceptance.constant, (self._constant,)) if self.is_constant else (Acceptance, (self._a,))

    def __eq__(self, other):
        return isinstance(other, Acceptance) and (self._a, self._constant) == (other._a, other._constant)

    def __hash__(self):
        return hash((self._a, self._constant))

    def __repr__(self):
        return f"Acceptance.constant({self._constant!r})" if self.is_constant else f"Acceptance({list(self._a)!r})"


@dataclass(frozen=True)
class Interval:
    """A measured value with the ends of its confidence interval; `trials` is what it was counted over."""

    value: float
    low: float
    high: float
    trials: int = 0


@dataclass(frozen=True)
class Estimate:
    """What a set of rounds says about acceptance; every entry carries its interval.

    `conditional` and `survival` have one entry per position; `constant` is the maximum-likelihood a of the
    constant model; `committed_length` is E[L] over all rounds (cut rounds left out).
    """

    rounds: int
    conditional: tuple
    survival: tuple
    constant: Interval
    committed_length: Interval

    @property
    def acceptance(self):
        """The measured law as an `Acceptance`: the a_i at every position that some round reached."""
        reached = [entry.value for entry in self.conditional if entry.trials]
        return Acceptance(reached)


def estimate(accepted, drafted, cut=None, level=0.95):
    """Return an `Estimate` of the acceptance law from rounds.

    `accepted[r]` is K of round r, `drafted[r]` the γ offered in it (one number if always the same); `cut[r]`
    is true for a round that EOS or a length limit ended, which says nothing about the draft and is left out.
    A round with K = γ is censored: it was stopped by γ, not by a rejection.  So a_i is counted over the rounds
    that reached position i *and* offered it, and the constant a is ΣK / (ΣK + number of rounds with K < γ).
    Intervals: Wilson score for a_i, a and survival; for E[L] the normal one with about one more round at each end.
    With lengths that differ from round to round, s_i is counted over the rounds that offered position i.
    """
    k, g = _clean_rounds(accepted, drafted, cut)
    if not 0 < level < 1:
        raise ValueError(
            f"level = {level} is outside its range; level must be a probability between 0 and 1, such as 0.95"
        )
    z = NormalDist().inv_cdf((1 + level) / 2)
    reached, hit, offered = Counter(), Counter(), Counter()
    for accepted_r, drafted_r in zip(k, g, strict=True):
        offered.update(range(1, drafted_r + 1))
        hit.update(range(1, accepted_r + 1))
        reached.update(range(1, min(accepted_r + 1, drafted_r) + 1))
    stops = sum(a < b for a, b in zip(k, g, strict=True))
    places = range(1, max(g) + 1)
    return Estimate(
        rounds=len(k),
        conditional=tuple(wilson(hit[i], reached[i], z) for i in places),
        survival=tuple(wilson(hit[i], offered[i], z) for i in places),
        constant=wilson(sum(k), sum(k) + stops, z),
        committed_length=bounded_mean([(value + 1, rounds) for value, rounds in Counter(k).items()], max(g) + 1, z),
    )


def _clean_rounds(accepted, drafted, cut):
    """Return the K and γ of the rounds that were not cut, checked against each other."""
    accepted = [int(_checks.whole("accepted", v)) for v in accepted]
    drafted = [drafted] * len(accepted) if not hasattr(drafted, "__len__") else list(drafted)
    drafted = [int(_checks.whole("drafted", v)) for v in drafted]
    cut = [False] * len(accepted) if cut is None else list(cut)
    if not len(accepted) == len(drafted) == len(cut):
        raise ValueError(
            f"accepted, drafted and cut have {len(accepted)}, {len(drafted)} and {len(cut)} rounds; they must agree"
        )
    for r, (a, b) in enumerate(zip(accepted, drafted, strict=True)):
        if a > b:
            raise ValueError(f"round {r} accepted {a} of {b} drafted tokens; K cannot exceed γ")
    rounds = [(a, b) for a, b, c in zip(accepted, drafted, cut, strict=True) if not c]
    if not any(b for _, b in rounds):
        raise ValueError("no complete round with a draft is left; give at least one round with γ ≥ 1 that was not cut")
    return [a for a, _ in rounds], [b for _, b in rounds]


def wilson(hits, trials, z=1.959963984540054):
    """Return hits/trials with its Wilson score interval (two-sided, z standard deviations); [0, 1] without trials."""
    if trials == 0:
        return Interval(math.nan, 0.0, 1.0, 0)
    p, n = hits / trials, trials
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Interval(p, max(0.0, min(p, middle - half)), min(1.0, max(p, middle + half)), n)


def bounded_mean(counts, top, z):
    """Return the mean of (value, number of rounds) pairs, values in [1, top], as an Interval inside [1, top].

    The normal interval after z²/4 more rounds (about one) at each end, as Agresti and Coull do for a proportion: without
    them twenty rounds that were all accepted would leave no doubt at all.
    """
    n, extra = sum(rounds for _, rounds in counts), z * z / 4
    weighted = [*counts, (1, extra), (top, extra)]
    total = n + 2 * extra
    middle = sum(value * weight for value, weight in weighted) / total
    spread = sum(weight * (value - middle) ** 2 for value, weight in weighted) / total
    half, mean = z * math.sqrt(spread / total), sum(value * rounds for value, rounds in counts) / n
    return Interval(mean, max(1.0, min(mean, middle - half)), min(float(top), max(mean, middle + half)), n)
