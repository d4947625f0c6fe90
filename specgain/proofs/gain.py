"""Theorems about the ledger: bounds, break-even, the averaging rule and what speculation costs in operations."""

from sympy import Eq, Integer, Rational, Sum, Symbol

from specgain.acceptance import committed_length_constant
from specgain.gain import averaging_gap, mean_of_rates, pooled_rate, speedup
from specgain.proofs.acceptance import LENGTH, PROBABILITIES, SURVIVAL
from specgain.proofs.algebra import Definition
from specgain.proofs.kernel import (
    AtLeast,
    Given,
    Greater,
    Human,
    Identity,
    Induction,
    Needed,
    Rising,
    Route,
    SameSign,
    Where,
    theorem,
)
from specgain.proofs.symbols import L_, T_, E, T, a, a_, c, c_hat, gamma, i, j, n, positive, s_, t_D, u_, w_


def survival_is_at_most_one():
    """Yield the two steps that show s_i ≤ 1 from a_i ≤ 1."""
    lost = Sum(s_[j] * (1 - a_[j + 1]), (j, 0, i - 1))
    yield Induction("What has not survived was lost at some position.", i, 1 - s_[i], lost)
    yield AtLeast("So survival is at most one.", 1, s_[i], because=lost, each=i)


@theorem(
    "P6",
    "The bounds of the speedup",
    says=r"If a round takes at least as long as a plain step ($T\ge t_D$): $S\le\mathrm E[L]\le\gamma+1$ and "
    r"$S\le(\gamma+1)\,t_D/T$. For constant $a<1$ also $\mathrm E[L]\le1/(1-a)$, whatever $\gamma$.",
    plain="if T_round >= t_D: S <= E[L] <= g + 1; for constant a < 1 also E[L] <= 1/(1 - a)",
    source="Leviathan et al. 2023, sections 3.1 and 3.6, for constant acceptance; the general form is elementary.",
    claims=["C2.6", "C8.2"],
    mutants={
        "the bound is γ: no bonus token": dict(most=gamma),
        "the premise T ≥ t_D is missing": dict(dearer=False),
        "the ceiling is a/(1 − a)": dict(ceiling=a / (1 - a)),
        "what is left below the ceiling is a^γ/(1 − a)": dict(power=gamma),
    },
    notes=r"A published $S>\mathrm E[L]$ is not impossible: it says that the plain baseline was slower than the pass "
    r"inside a round.",
)
def bounds(most=gamma + 1, dearer=True, ceiling=1 / (1 - a), power=gamma + 1):
    yield PROBABILITIES
    if dearer:
        yield Given(
            r"$T\ge t_D$: a round holds a pass of the target, so it is not shorter than a plain step.", T >= t_D
        )
    yield Given(r"Where $1/(1-a)$ stands, every $a_i=a<1$.", a < 1)
    yield SURVIVAL
    yield LENGTH
    yield from survival_is_at_most_one()
    missing = Sum(1 - s_[i], (i, 1, gamma))
    yield AtLeast(r"So each of the $\gamma$ terms of $E(\gamma)$ is.", most, E(gamma), because=missing)
    S = speedup(E(gamma), t_D, T)
    spent = E(gamma) * (T - t_D) / T
    yield AtLeast("The time of the target's own pass cannot be saved.", E(gamma), S, because=spent)
    full = speedup(most, t_D, T)
    yield AtLeast("The same with the most tokens that a round can commit.", full, S, because=missing * t_D / T)
    closed = committed_length_constant(a, gamma)
    rest = a**power / (1 - a)
    yield Identity("Constant acceptance: what the geometric series still lacks.", ceiling - closed, rest)
    yield AtLeast("It is never negative.", ceiling, closed, because=rest)
    yield Needed(
        r"$T\ge t_D$",
        r"a plain step of 12 ms against a round of 10 ms with $\mathrm E[L]=2$ gives $S=12/5>2$.",
        speedup(Integer(2), Integer(12), Integer(10)) > 2,
    )


@theorem(
    "P7",
    "The acceptance at which a round breaks even",
    says=r"For constant $a$, $\gamma\ge1$ and $1\le T/t_D\le\gamma+1$ there is exactly one $a^*\in[0,1]$ with $S=1$; "
    r"it solves "
    r"$\sum_{i=1}^{\gamma}a^i=T/t_D-1$. Above $\gamma+1$ there is none; below $1$ every $a$ gains. "
    r"At $\gamma=1$: $a^*=T/t_D-1$.",
    plain="S = 1 at exactly one a* in [0, 1] if 1 <= T/t_D <= g + 1; sum_{i=1..g} a*^i = T/t_D - 1; none above g + 1",
    source="Elementary; the case of γ = 1 is Leviathan et al. 2023, Corollary 3.9.",
    claims=["C2.6"],
    mutants={
        "the sum starts at 0: the bonus token is counted twice": dict(start=0),
        "E[L] ends at γ": dict(top=gamma),
        "at γ = 1 the root is T/t_D": dict(root=T / t_D),
        "with affine cost γ = 1 gains from a > 1 − c": dict(threshold=1 - c),
        "a round longer than γ plain steps can never break even": dict(longest=gamma),
    },
    notes=r"The two ends matter: at $T/t_D=\gamma+1$ the root is $a^*=1$ (break-even, never a gain), "
    r"and for $T<t_D$ there is none: even $a=0$ gains.",
)
def break_even(start=1, top=gamma + 1, root=T / t_D - 1, threshold=c, longest=gamma + 1):
    chance = Symbol("a", positive=True)
    yield Given(r"Every $a_i=a$ with $0\le a\le1$; $\gamma\ge1$.")
    powers = Sum(chance**i, (i, start, gamma))
    S = speedup(1 + Sum(chance**i, (i, 1, gamma)), t_D, T)
    yield SameSign(r"$S$ exceeds one exactly if the sum exceeds $T/t_D-1$.", S - 1, powers - (T / t_D - 1), t_D / T)
    slope = Sum(i * chance ** (i - 1), (i, 1, n + 1))
    yield Rising(r"With $\gamma=n+1$: $E[L]$ rises strictly with $a$.", 1 + powers.subs(gamma, n + 1), chance, slope)
    yield Identity("It starts at one,", committed_length_constant(Integer(0), gamma), 1)
    yield Identity("and ends at the full round.", committed_length_constant(Integer(1), gamma), top)
    yield Human(r"A continuous function that rises strictly takes every value between its ends exactly once.")
    over = Symbol("r", positive=True)
    yield Greater("A round above the largest possible gain is lost.", 1, speedup(gamma + 1, t_D, longest * t_D + over))
    tokens = 1 + Sum(a**i, (i, 1, gamma))
    yield Greater("A round shorter than a plain step gains at any acceptance.", speedup(tokens, T + over, T), 1,
                  because=[tokens - 1, over * tokens / T])  # fmt: skip
    yield Identity(r"The root at $\gamma=1$.", speedup(committed_length_constant(root, 1), t_D, T), 1)
    S1 = speedup(committed_length_constant(a, 1), t_D, t_D * (1 + c))
    yield SameSign(
        r"With $T=t_D(1+c\gamma)$, one candidate gains if and only if $a>c$.", S1 - 1, a - threshold, 1 / (1 + c)
    )


def mean(term):
    """Return the mean of `term` over rounds i = 1…n with weights w_i."""
    return Sum(w_[i] * term, (i, 1, n))


WEIGHTS = Where(
    r"Means are over rounds $r=1,\dots,n$ with weights $w_r=u_r/\sum_s u_s$, so that the weights sum to one.",
    Definition(w_, lambda i: u_[i] / Sum(u_[j], (j, 1, n))),
)


@theorem(
    "P13",
    "Totals over totals, not the mean of rates",
    says=r"$\displaystyle\mathrm E\!\left[\frac LT\right]-\frac{\mathrm E[L]}{\mathrm "
    r"E[T]}=-\frac{\mathrm{Cov}(T,L/T)}{\mathrm E[T]}$: "
    r"the mean of the rounds' rates exceeds the true rate exactly if slower rounds have lower rates. "
    r"If every round takes the same time, the two are equal.",
    plain="E[L/T] - E[L]/E[T] = -Cov(T, L/T)/E[T]; zero if every round takes the same time",
    source="The covariance identity is textbook algebra; we have not seen it stated for speculative decoding.",
    claims=["C2.7"],
    mutants={
        "the sign is wrong": dict(sign=-1),
        "divided by E[L] instead of E[T]": dict(over=lambda: mean(L_[i])),
        "the covariance of T and L instead of T and L/T": dict(rate=L_[i]),
        "the time of a round does not weigh its rate": dict(share=1),
        "the means of T and 1/L multiply to at most one": dict(jensen=-1),
    },
    notes=r"Averaging is not always biased: with constant round time the gap is zero. "
    r"Jensen's inequality concerns another mean, "
    r"that of the time per token: $\mathrm E[1/L]\ge1/\mathrm E[L]$.",
)
def averaging(sign=1, over=lambda: mean(T_[i]), rate=L_[i] / T_[i], share=None, jensen=1):
    yield Given(r"$n\ge1$ rounds with times $T_r>0$ and tokens $L_r>0$.", n >= 1)
    yield WEIGHTS
    gap = mean(L_[i] / T_[i]) - mean(L_[i]) / mean(T_[i])
    centred = (T_[i] - mean(T_[i]).subs(i, j)) * (rate - mean(rate).subs(i, j))
    covariance = mean(T_[i] * rate) - mean(T_[i]) * mean(rate)
    yield Route("by the covariance")
    yield Identity("The covariance, multiplied out; the weights sum to one.", mean(centred), covariance)
    yield Identity(
        r"Since $T\cdot L/T=L$, the gap is the covariance over the mean time.", gap, -sign * covariance / over()
    )
    yield Route("by two weightings of the same rates")
    weight = T_[i] / mean(T_[i]).subs(i, j) if share is None else share
    yield Identity(
        "The true rate is a mean of rates, each weighted by its time.",
        mean(L_[i]) / mean(T_[i]),
        mean(weight * L_[i] / T_[i]),
    )
    pairs = Sum(Sum(w_[i] * w_[j] * (T_[i] - T_[j]) * (L_[i] / T_[i] - L_[j] / T_[j]), (i, 1, n)), (j, 1, n))
    yield Identity(
        "So the gap is a sum over pairs of rounds, negative for a pair whose slower round has the higher rate.",
        gap * mean(T_[i]),
        -sign * pairs / 2,
    )
    yield Route("consequences")
    yield Identity("Equal times: no gap.", mean(L_[i] / T), mean(L_[i]) / T)
    spread = Sum(Sum(w_[i] * w_[j] * (L_[i] - L_[j]) ** 2 / (L_[i] * L_[j]), (i, 1, n)), (j, 1, n)) / 2
    yield AtLeast(
        "Jensen's inequality, for the mean time per token.",
        jensen * mean(1 / L_[i]) * mean(L_[i]),
        jensen,
        because=jensen * spread,
    )
    yield Human(
        r"Over ever more rounds, total tokens over total time tends to $\mathrm E[L]/\mathrm E[T]$ (law of large "
        r"numbers)."
    )
    yield Needed(
        "the round times differ",
        r"rounds of 1 s with 1, 2 and 4 tokens: both means are $7/3$ tokens per second. "
        r"With times 1, 2 and 2 s the gap is not zero.",
        Eq(pooled_rate([Integer(1), Integer(2), Integer(4)], [Integer(1)] * 3), Rational(7, 3)),
        Eq(mean_of_rates([Integer(1), Integer(2), Integer(4)], [Integer(1)] * 3), Rational(7, 3)),
        averaging_gap([Integer(1), Integer(2), Integer(4)], [Integer(1), Integer(2), Integer(2)]) < 0,
        averaging_gap([Integer(4), Integer(2), Integer(1)], [Integer(1), Integer(2), Integer(2)]) > 0,
    )


@theorem(
    "P23",
    "Speculation never saves operations",
    says=r"With $\hat c\ge0$ draft operations per target operation, "
    r"a committed token costs $(\gamma\hat c+\gamma+1)/\mathrm E[L]\ge1$ "
    r"times the operations of a plain step. Where time follows operations, $S\le1$; "
    r"what falls is the number of target passes, $1/\mathrm E[L]$ per token.",
    plain="operations per token rise by (g c + g + 1) / E[L] >= 1 for every acceptance law; "
    "passes per token fall to 1/E[L]",
    source="Leviathan et al. 2023, Theorem 3.11, for constant acceptance; the inequality for every law is elementary.",
    claims=["C2.8", "C3.5"],
    mutants={
        "the verified bonus position is forgotten": dict(positions=gamma),
        "a draft with negative cost is allowed": dict(free=Symbol("chat", real=True)),
        "the inequality is flipped": dict(sign=-1),
        "E[L] target passes per token": dict(passes=1),
    },
    notes="Energy and money can still fall: they weigh reads as well as operations, "
    "and reads of the weights fall with the passes.",
)
def operations(positions=gamma + 1, free=c_hat, sign=1, passes=-1):
    yield PROBABILITIES
    yield Given(
        r"A draft step costs $\hat c\ge0$ times the operations of a target position; $\gamma+1$ positions are verified."
    )
    yield SURVIVAL
    yield LENGTH
    yield from survival_is_at_most_one()
    factor = (gamma * free + positions) / E(gamma)
    missing = Sum(1 - s_[i], (i, 1, gamma))
    yield AtLeast(
        "What the draft costs and what was verified in vain are both non-negative.",
        sign * factor,
        sign,
        because=[sign * gamma * free / E(gamma), sign * missing / E(gamma)],
    )
    closed = committed_length_constant(a, gamma)
    printed = (1 - a) * (gamma * free + gamma + 1) / (1 - a ** (gamma + 1))
    yield Identity("Constant acceptance: the printed factor.", printed, (gamma * free + gamma + 1) / closed)
    bound_by_operations = speedup(E(gamma), t_D, t_D * (gamma * free + gamma + 1))
    yield AtLeast(
        "Where time follows operations there is no gain.",
        1,
        bound_by_operations,
        because=[gamma * free / (gamma * free + gamma + 1), missing / (gamma * free + gamma + 1)],
    )
    yield AtLeast(
        "One pass commits at least one token, so passes per token fall.",
        1,
        E(gamma) ** passes,
        because=Sum(s_[i], (i, 1, gamma)) / E(gamma),
    )
    per_op, per_read = positive("e_op", "e_read")
    plain, spec = per_op + per_read, (per_op * (gamma * free + gamma + 1) + per_read) / E(gamma)
    saved = per_read * (E(gamma) - 1) - per_op * (gamma * free + gamma + 1 - E(gamma))
    yield SameSign(
        "A cost of both kinds falls if and only if the reads that are saved outweigh the operations that are added.",
        plain - spec,
        saved,
        1 / E(gamma),
    )
