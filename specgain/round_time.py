"""How long a round takes: T_round(γ) = T_draft(γ) + T_verify(γ) + T_other(γ).

A cost curve is a callable from γ to seconds.  `Affine` and `Quadratic` are models, `Table` is a measurement.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from specgain import _checks


@dataclass(frozen=True)
class Affine:
    """T(γ) = base + slope·γ, in seconds.  Convex, so the step rule finds the best γ.

    >>> Affine(base=0.010, slope=0.001)(4)
    0.014
    """

    base: float
    slope: float

    def __post_init__(self):
        _checks.time("base", self.base)
        _checks.time("slope", self.slope)

    def __call__(self, gamma):
        return self.base + self.slope * _checks.whole("gamma", gamma)


@dataclass(frozen=True)
class Quadratic:
    """T(γ) = base + linear·γ + quadratic·γ², in seconds.  Convex, so the step rule finds the best γ.

    >>> round(Quadratic(base=0.010, linear=0.0007, quadratic=0.0001)(4), 6)
    0.0144
    """

    base: float
    linear: float
    quadratic: float

    def __post_init__(self):
        _checks.time("base", self.base)
        _checks.time("linear", self.linear)
        _checks.time("quadratic", self.quadratic)

    def __call__(self, gamma):
        return self.base + self.linear * _checks.whole("gamma", gamma) + self.quadratic * gamma**2


@dataclass(frozen=True)
class Table:
    """Measured times {γ: seconds}.  Between measured lengths it is interpolated linearly, outside it refuses.

    Raises ValueError for a γ outside the measured range: a measurement says nothing about it.

    >>> Table({1: 0.010, 3: 0.014})(2)
    0.012
    """

    seconds: Mapping
    gammas: tuple = field(init=False)

    def __post_init__(self):
        if not isinstance(self.seconds, Mapping) or not self.seconds:
            raise ValueError("a Table needs at least one measured time, such as {4: 0.0144}")
        for gamma, seconds in self.seconds.items():
            _checks.time(f"seconds[{_checks.whole('gamma', gamma)}]", seconds)
        object.__setattr__(self, "seconds", dict(sorted(self.seconds.items())))
        object.__setattr__(self, "gammas", tuple(self.seconds))

    def __call__(self, gamma):
        _checks.whole("gamma", gamma)
        if gamma in self.seconds:
            return self.seconds[gamma]
        if not self.gammas[0] < gamma < self.gammas[-1]:
            raise ValueError(
                f"gamma = {gamma} was not measured; this table holds γ = {self.gammas[0]} to {self.gammas[-1]}"
            )
        right = bisect_left(self.gammas, gamma)
        g0, g1 = self.gammas[right - 1], self.gammas[right]
        return self.seconds[g0] + (self.seconds[g1] - self.seconds[g0]) * (gamma - g0) / (g1 - g0)

    def __hash__(self):
        return hash(tuple(self.seconds.items()))


def _as_curve(name, cost):
    """Return `cost` if it is callable, else the constant curve of that many seconds."""
    if callable(cost):
        return cost
    return Affine(_checks.time(name, cost), 0)


class RoundTime:
    """The time of a whole round in seconds: T_draft + T_verify + T_other.

    Each part is a curve γ → seconds, or a constant.

    >>> RoundTime(draft=Affine(0.0, 0.001), verify=0.011, other=0.0005)(4)
    0.0155
    """

    def __init__(self, draft=0, verify=0, other=0):
        self.t_draft = _as_curve("draft", draft)
        self.t_verify = _as_curve("verify", verify)
        self.t_other = _as_curve("other", other)
        self._whole = None

    @classmethod
    def of(cls, curve):
        """Return a RoundTime whose total is `curve` and whose parts are not known."""
        if not callable(curve):
            raise TypeError(f"curve = {curve!r} is not a cost curve; give Affine, Quadratic, Table or a function of γ")
        whole = cls()
        whole._whole = curve
        whole.t_draft = whole.t_verify = whole.t_other = _unknown_part
        return whole

    @property
    def curve(self):
        """The single curve behind `RoundTime.of`, or None when the three parts are known."""
        return self._whole

    def __call__(self, gamma):
        """Return T_round(γ) in seconds."""
        if self._whole is not None:
            return self._whole(gamma)
        return self.t_draft(gamma) + self.t_verify(gamma) + self.t_other(gamma)

    def gamma_range(self):
        """Return (least, greatest) γ at which every measured table in it can answer; (0, None) without tables."""
        curves = [self._whole] if self._whole is not None else [self.t_draft, self.t_verify, self.t_other]
        tables = [curve for curve in curves if isinstance(curve, Table)]
        least = max((t.gammas[0] for t in tables), default=0)
        greatest = min((t.gammas[-1] for t in tables), default=None)
        if greatest is not None and greatest < least:
            raise ValueError("the measured tables of this round share no γ; measure the parts at the same lengths")
        return least, greatest


def _unknown_part(gamma):
    raise ValueError("only the whole round is known here; build RoundTime(draft=, verify=, other=) to split it")
