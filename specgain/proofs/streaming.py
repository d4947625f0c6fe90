"""Theorem about what a reader of the stream sees: gaps, their mean, their spread, their zeros."""

from sympy import Eq, Rational, Sum, Symbol

from specgain.gain import speedup
from specgain.proofs.kernel import Given, Identity, Needed, Route, SameSign, theorem
from specgain.proofs.symbols import L_, T_, T, i, j, n, positive, t_D


def over_rounds(term):
    """Return the sum of `term` over the rounds 1…n."""
    return Sum(term, (i, 1, n))


@theorem(
    "P20",
    "Gaps between tokens",
    says=r"A round of $L$ tokens returns them together, after a gap $T$. "
    r"Per token: the mean gap is TPOT $=\mathrm E[T]/\mathrm E[L]$, a share "
    r"$1-1/\mathrm E[L]$ of the gaps is zero, and $\mathrm{CV}^2=\mathrm E[L]\,(1+\mathrm{CV}_T^2)-1$, "
    r"however $L$ and $T$ depend on each other. "
    r"Per chunk the mean gap is $\mathrm{TPOT}\cdot\mathrm E[L]$. "
    r"With constant $T$ the median gap is $0$ once $\mathrm E[L]>2$, and the 95th "
    r"percentile is $T$ while $\mathrm E[L]<20$.",
    plain="per token: mean gap TPOT, share of zero gaps 1 - 1/E[L], CV^2 = E[L](1 + CV_T^2) - 1; per chunk: TPOT E[L]",
    source="Built from textbook tools; we have not seen it stated for speculative decoding.",
    claims=["C7.3"],
    mutants={
        "the mean gap is the round time": dict(tokens=1),
        "the share of zero gaps is 1/E[L]": dict(zeros=1),
        "CV² = E[L] + CV_T² − 1": dict(cv=lambda mean, cv: mean + cv - 1),
        "the median is zero from E[L] > 1 on": dict(half=1),
        "the longest gap grows by E[L]": dict(worse=lambda S: 1),
    },
    notes="A client that stamps chunks, not tokens, sees the gaps T only and reports their spread; say which is meant.",
)
def gaps(tokens=None, zeros=None, cv=lambda mean, cv: mean * (1 + cv) - 1, half=2, worse=lambda S: S):
    yield Given(
        r"$n\ge1$ rounds with times $T_r>0$ and $L_r\ge1$ tokens; the first token of a chunk waits $T_r$, "
        r"the others $0$.",
        n >= 1,
    )
    count, total, square = over_rounds(L_[i]), over_rounds(T_[i]), over_rounds(T_[i] ** 2)
    mean_L, mean_T = count / n, total / n
    cv_T = (square / n) / mean_T**2 - 1
    tpot = total / count
    yield Route("by totals")
    yield Identity(
        "One gap of $T_r$ and $L_r-1$ gaps of zero: as many gaps as tokens.", over_rounds(1 + (L_[i] - 1)), count
    )
    yield Identity("Mean gap per token.", total / (count if tokens is None else n), mean_T / mean_L)
    share = over_rounds(L_[i] - 1) / count
    yield Identity("Share of zero gaps.", share, 1 - 1 / mean_L if zeros is None else 1 / mean_L)
    spread = (square / count) / tpot**2 - 1
    yield Identity("Spread of the gaps.", spread, cv(mean_L, cv_T))
    yield Identity("Mean gap per chunk.", total / n, tpot * mean_L)
    yield Route("by a token picked at random")
    power = Symbol("m", positive=True, integer=True)
    moment = over_rounds((L_[i] / count.subs(i, j)) * (1 / L_[i]) * T_[i] ** power)
    yield Identity(
        r"It lies in round $r$ with chance $L_r/\sum L$ and comes first with chance $1/L_r$: "
        r"the $m$-th moment of its gap.",
        moment,
        (over_rounds(T_[i] ** power) / n) / mean_L,
    )
    yield Identity(
        "Moments one and two give the spread again.",
        moment.subs(power, 2) / moment.subs(power, 1) ** 2 - 1,
        cv(mean_L, cv_T),
    )
    later = over_rounds((L_[i] / count.subs(i, j)) * (1 - 1 / L_[i]))
    yield Identity("It does not come first with the share of zeros.", later, share)
    yield Route("constant round time")
    (E,) = positive("E")
    yield Identity("Then only the bursts are left.", cv(E, 0), E - 1)
    yield SameSign(
        r"More than half of the gaps are zero from $\mathrm E[L]>2$ on.",
        (1 - 1 / E) - Rational(1, 2),
        E - half,
        1 / (2 * E),
    )
    yield SameSign(
        r"More than one in twenty is not, up to $\mathrm E[L]<20$.", 1 / E - Rational(1, 20), 20 - E, 1 / (20 * E)
    )
    S = speedup(E, t_D, T)
    yield Identity(r"TPOT is better by $S$ and the longest gap worse by $\mathrm E[L]/S$.", T / t_D, E / worse(S))
    yield Needed(
        "gaps per token",
        r"three rounds of 10 ms with 1, 2 and 3 tokens: per chunk every gap is equal, per token $\mathrm{CV}^2=1$.",
        Eq((Rational(300) / 6) / (Rational(30) / 6) ** 2 - 1, 1),
    )
