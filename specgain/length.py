"""How long to speculate: the step rule, the best γ, and its closed form.

One more candidate pays as long as the tokens it adds per second it costs exceed the tokens per second the
round already makes.  For a convex round time the first step that fails is the last word.
"""

import math

from specgain import _checks
from specgain.round_time import Affine, Quadratic


def marginal_tokens(acceptance, gamma):
    """Return E[L] at γ + 1 less E[L] at γ: s_{γ+1}, a^(γ+1) for a constant a.

    >>> from specgain.acceptance import Acceptance
    >>> round(marginal_tokens(Acceptance.constant(0.8), 7), 3)
    0.168
    """
    return acceptance.survival(_checks.whole("gamma", gamma) + 1)[-1]


def step_pays(ledger, gamma):
    """Return True if S(γ + 1) > S(γ): the next candidate brings more per second.

    In full: s_{γ+1}·T(γ) > E[L]·(T(γ + 1) − T(γ)).  Source: P8.
    """
    gamma = _checks.whole("gamma", gamma)
    law, t_now = ledger.acceptance, ledger.round_time(gamma)
    step = ledger.round_time(gamma + 1) - t_now
    tokens = law.committed_length(gamma)
    return marginal_tokens(law, gamma) * t_now > tokens * step


def best_gamma(ledger, gamma_max=None):
    """Return the whole γ ≥ 0 with the greatest speedup; 0 means: do not speculate (S = 1).

    The shortest wins a tie.  None when no γ is best, since every further candidate still pays (free candidates).
    Lengths are limited by `gamma_max`, by a law that knows only some positions, and by measured tables; without any
    limit the law must be constant and the cost affine or quadratic, else ValueError asks for `gamma_max`.
    """
    if gamma_max is not None:
        gamma_max = _checks.whole("gamma_max", gamma_max)
    least, greatest = ledger.round_time.gamma_range()
    limits = [limit for limit in (gamma_max, ledger.acceptance.gamma_max, greatest) if limit is not None]
    if limits:
        if 0 < min(limits) < least:
            raise ValueError(
                f"no length can be judged: the times begin at γ = {least}, the other limits end at γ = {min(limits)}"
            )
        lengths = range(max(1, least), min(limits) + 1)
        return max([0, *lengths], key=lambda g: (ledger.speedup(g) if g else 1.0, -g))
    polynomial = _polynomial(ledger.round_time)
    if polynomial is None:
        raise ValueError(
            "this round time is neither affine nor quadratic nor measured, so no scan is sure to end; give gamma_max"
        )
    return _best_of_convex(ledger, *polynomial)


def _best_of_convex(ledger, base, linear, quadratic):
    """Return the best γ for a constant a and a convex polynomial cost: gallop to the first step that fails (P9)."""
    a = ledger.acceptance.conditional(1)[0]
    if quadratic == 0 and ((a == 1 and linear < base) or (a > 0 and linear == 0)):
        least_time_per_token = linear if a == 1 else base * (1 - a)
        return None if ledger.t_decode > least_time_per_token else 0
    high = 1
    while _polynomial_step_pays(ledger, high, linear, quadratic):
        high *= 2
    low = high // 2  # the step from `low` pays (or low is 0, where the rule does not start), the one from `high` fails
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _polynomial_step_pays(ledger, middle, linear, quadratic) else (low, middle)
    return high if ledger.speedup(high) > 1 else 0


def _polynomial_step_pays(ledger, gamma, linear, quadratic):
    """Return `step_pays` with the cost difference taken in closed form, so that no digits are lost at large γ."""
    a = ledger.acceptance.conditional(1)[0]
    t_step = linear + quadratic * (2 * gamma + 1)
    return a ** (gamma + 1) * ledger.round_time(gamma) > ledger.acceptance.committed_length(gamma) * t_step


def _polynomial(round_time):
    """Return (base, linear, quadratic) of a round time made of affine and quadratic curves, else None."""
    curves = [round_time.curve] if round_time.curve else [round_time.t_draft, round_time.t_verify, round_time.t_other]
    if not all(isinstance(curve, (Affine, Quadratic)) for curve in curves):
        return None
    terms = [(c.base, c.slope, 0) if isinstance(c, Affine) else (c.base, c.linear, c.quadratic) for c in curves]
    return tuple(map(sum, zip(*terms, strict=True)))


def best_gamma_continuous(a, base, slope):
    """Return the real γ ≥ 0 at which S is greatest for a constant a and T(γ) = base + slope·γ; inf if it never stops
    rising.

    With λ = −ln a, c = slope/base and m = λ(1 − c)/c, γ* = −1 + (−W₋₁(−e^(−1−m)) − 1 − m)/λ.  The argument of W
    underflows for m above 700, so y = −W₋₁ is found from y − ln y = 1 + m itself: Newton's method from the right of
    the root of a convex function, which cannot overshoot.  The best whole γ is one of the two neighbours, since S is
    unimodal.  Whether S exceeds 1 there is another question (`best_gamma`).  Source: P10, {eq}`eq-gamma-star`.

    >>> round(best_gamma_continuous(0.8, base=1.0, slope=0.05), 3)
    7.857
    """
    _checks.probability("a", a)
    _checks.positive_time("base", base)
    _checks.time("slope", slope)
    c = slope / base
    if c >= 1 or a == 0:
        return 0.0
    if a == 1 or c == 0:
        return math.inf
    decay = -math.log(a)
    m = decay * (1 - c) / c
    u = m + math.sqrt(2 * m)  # u = y − 1 and u − ln(1 + u) = m; the start lies right of the root
    while True:
        smaller = u - (u - math.log1p(u) - m) * (1 + u) / u
        if not smaller < u:
            return max(0.0, math.log1p(u) / decay - 1)
        u = smaller
