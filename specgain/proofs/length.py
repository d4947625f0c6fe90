"""Theorems about the speculation length: step rule, one peak, the closed form, when any length gains, foresight."""

from sympy import Function, IndexedBase, Integer, LambertW, Rational, Sum, Symbol, diff, exp, log, oo, solve, symbols

from specgain.acceptance import committed_length_constant
from specgain.gain import margin, speedup
from specgain.proofs.acceptance import LENGTH, PROBABILITIES, SAME_PREFIX, SURVIVAL
from specgain.proofs.algebra import Definition, Recursion
from specgain.proofs.kernel import (
    AtLeast,
    Given,
    Greater,
    Human,
    Identity,
    Induction,
    Lemma,
    Limit,
    Needed,
    Rising,
    Route,
    SameSign,
    Tangent,
    Where,
    theorem,
)
from specgain.proofs.symbols import D_of, E, S_of, T_of, a_, c, gamma, h, i, j, positive, s_, t_D

TIMES = Given("Every round time is positive.", T_of(i) > 0, each=i)
SPEEDUP = Where(r"$S(\gamma)=E(\gamma)\,t_D/T(\gamma)$.", Definition(S_of, lambda g: speedup(E(g), t_D, T_of(g))))
RULE = Where(
    r"$D(\gamma)=s_{\gamma+1}T(\gamma)-E(\gamma)\,(T(\gamma+1)-T(\gamma))$: "
    r"the step from $\gamma$ pays if $D(\gamma)>0$ (P8).",
    Definition(D_of, lambda g: s_[g + 1] * T_of(g) - E(g) * (T_of(g + 1) - T_of(g))),
)
d_ = IndexedBase("d", real=True)  # d_γ = T(γ + 1) − T(γ)
e_ = IndexedBase("e", nonnegative=True)  # e_γ = d_{γ+1} − d_γ: not negative means convex


def convex_times(first, bend=e_):
    """Yield the premise that T is convex, written with its first and second differences."""
    yield Given(r"The round time is convex in $\gamma$: its steps $d_\gamma=T(\gamma+1)-T(\gamma)$ never shrink.")
    yield Where(r"$T(\gamma+1)=T(\gamma)+d_\gamma$", Recursion(T_of, 0, first, lambda g, before: before + d_[g - 1]))
    yield Where(
        r"$d_{\gamma+1}=d_\gamma+e_\gamma$ with $e_\gamma\ge0$",
        Recursion(d_, 0, Symbol("d_0", real=True), lambda g, before: before + bend[g - 1]),
    )


@theorem(
    "P8",
    "The step rule",
    says=r"$S(\gamma+1)>S(\gamma)$ if and only if $s_{\gamma+1}\,T(\gamma)>E(\gamma)\,\Delta T(\gamma)$: "
    r"the marginal tokens per marginal second exceed the present tokens per second.",
    plain="S(g+1) > S(g) if and only if s_(g+1) T(g) > E(g) (T(g+1) - T(g))",
    source="Elementary (the mediant of two fractions).",
    claims=["C3.1", "C3.5"],
    mutants={
        "the survival at γ instead of γ + 1": dict(position=gamma),
        "E at γ + 1 with T at γ": dict(length=E(gamma + 1)),
        "the marginal time is left out": dict(marginal=T_of(gamma + 1)),
        "the margin's rule is taken for the speedup's": dict(
            rule=s_[gamma + 1] * t_D - (T_of(gamma + 1) - T_of(gamma))
        ),
    },
    notes=r"If the next candidate costs no time ($\Delta T\le0$), it always pays; "
    r"only then the form with two rates has no meaning. "
    r"The margin $M$ has a rule of its own: it grows as long as $s_{\gamma+1}t_D>\Delta T$, "
    r"which is further than $S$ does when $S>1$.",
)
def step_rule(position=gamma + 1, length=None, marginal=None, rule=None):
    yield SAME_PREFIX
    yield PROBABILITIES
    yield TIMES
    yield SURVIVAL
    yield LENGTH
    yield SPEEDUP
    now, later = T_of(gamma), T_of(gamma + 1)
    more = later - now if marginal is None else marginal
    pays = s_[position] * now - (E(gamma) if length is None else length) * more if rule is None else rule
    yield Identity(r"One more candidate adds $s_{\gamma+1}$ tokens (P4).", E(gamma + 1), E(gamma) + s_[gamma + 1])
    yield SameSign(
        "Bring the difference of the two speedups over one denominator.",
        S_of(gamma + 1) - S_of(gamma),
        pays,
        t_D / (now * later),
    )
    step = positive("d")[0]
    rates = s_[gamma + 1] / step - E(gamma) / now
    yield SameSign(
        r"For $\Delta T=d>0$ the same as a comparison of two rates.",
        s_[gamma + 1] * now - E(gamma) * step,
        rates,
        now * step,
    )
    M = [margin(E(gamma + m), t_D, T_of(gamma + m)) for m in (0, 1)]
    yield Identity("The margin's own rule is another one.", M[1] - M[0], s_[gamma + 1] * t_D - (later - now))


def after_a_step(g):
    """Return P9's inequality S(g + h) − S(g) ≤ D(g)·(a positive number), for every h."""
    weight = Sum(t_D / (T_of(g + j) * T_of(g + j + 1)), (j, 0, h - 1))
    return AtLeast("", D_of(g) * weight, S_of(g + h) - S_of(g)).relation()


@theorem(
    "P9",
    "One peak, whatever the acceptance law",
    says=r"If the round time is convex in $\gamma$, then for every acceptance law $D(\gamma)$ never rises, and "
    r"$S(\gamma+h)-S(\gamma)\le D(\gamma)\sum_{j<h}\frac{t_D}{T(\gamma+j)T(\gamma+j+1)}$ for all $h\ge0$: "
    r"the first length whose next step does not pay is the best of all that follow.",
    plain="for convex T and every acceptance law: S has one peak; the first step that fails ends it",
    source="Built from textbook tools (concave over convex); we have not seen it stated for speculative decoding.",
    claims=["C3.1", "C3.5"],
    mutants={
        "the premise of convexity is missing": dict(bend=IndexedBase("e", real=True)),
        "the premise a ≤ 1 is missing": dict(bounded=False),
        "D rises": dict(sign=-1),
        "the second difference of T enters with the wrong sign": dict(curve=-1),
        "the weights of the steps are forgotten": dict(weight=1),
    },
    notes=r"Start the rule at $\gamma=1$ when $T$ is convex only from there, "
    r"as with a fixed overhead $T_\text{other}$ that "
    r"plain decoding does not pay, and compare the winner with $\gamma=0$.",
)
def one_peak(bend=e_, bounded=True, sign=1, curve=1, weight=None):
    yield SAME_PREFIX
    if bounded:
        yield PROBABILITIES
    yield TIMES
    yield SURVIVAL
    yield LENGTH
    yield from convex_times(positive("T_0")[0], bend)
    yield SPEEDUP
    yield RULE
    bent = T_of(gamma + 2) - 2 * T_of(gamma + 1) + T_of(gamma)
    yield Route("the step rule's difference never rises")
    yield Identity(
        "Write out two neighbouring steps.",
        D_of(gamma + 1) - D_of(gamma),
        (s_[gamma + 2] - s_[gamma + 1]) * T_of(gamma + 1) - curve * E(gamma + 1) * bent,
    )
    yield AtLeast("Survival never rises (P5).", s_[i], s_[i + 1], because=s_[i] * (1 - a_[i + 1]), each=i)
    yield AtLeast("The round time is convex.", bent, 0, because=bend[gamma])
    fall = [sign * (s_[gamma + 1] - s_[gamma + 2]) * T_of(gamma + 1), sign * E(gamma + 1) * bend[gamma]]
    yield AtLeast(r"So $D$ never rises.", sign * D_of(gamma), sign * D_of(gamma + 1), because=fall, each=gamma)
    falls = Sum(D_of(gamma + j) - D_of(gamma + j + 1), (j, 0, h - 1))
    yield Induction("Many steps are single steps in a row.", h, D_of(gamma) - D_of(gamma + h), falls)
    yield AtLeast(r"So no later $D$ is above the present one.", D_of(gamma), D_of(gamma + h), because=falls, each=h)
    each = t_D / (T_of(gamma + j) * T_of(gamma + j + 1)) if weight is None else weight
    gains = Sum(D_of(gamma + j) * each, (j, 0, h - 1))
    yield Induction(r"$S$ changes by the $D$ of every step on the way (P8).", h, S_of(gamma + h) - S_of(gamma), gains)
    slack = Sum((D_of(gamma) - D_of(gamma + j)) * each, (j, 0, h - 1))
    relation = after_a_step(gamma)
    yield AtLeast("Put the present $D$ for the later ones.", relation.lhs, relation.rhs, because=slack)
    yield Human(r"If $D(\gamma)\le0$ the bound is not positive: no longer draft is better. Before, every step paid.")
    yield from _level_sets(bend, sign)
    yield _staircase()


def _level_sets(bend, sign):
    """Yield the second route: lengths with S ≥ σ form an interval, because E·t_D − σT is concave."""
    yield Route("the lengths with a speedup of at least σ form an interval")
    sigma = positive("sigma")[0]
    F = Function("F", real=True)
    yield Where(
        r"$F(\gamma)=E(\gamma)\,t_D-\sigma\,T(\gamma)$.", Definition(F, lambda g: margin(E(g), t_D, sigma * T_of(g)))
    )
    yield SameSign(r"$S\ge\sigma$ says $F\ge0$.", S_of(gamma) - sigma, F(gamma), 1 / T_of(gamma))
    second = F(gamma + 2) - 2 * F(gamma + 1) + F(gamma)
    bends = [sign * t_D * (s_[gamma + 1] - s_[gamma + 2]), sign * sigma * bend[gamma]]
    yield AtLeast(r"$F$ is concave: gains shrink and costs do not.", 0, sign * second, because=bends)
    x, y = symbols("x y", integer=True, nonnegative=True)
    before, after = IndexedBase("alpha", nonnegative=True), IndexedBase("beta", nonnegative=True)
    step, here = symbols("f F", real=True)
    left = here - Sum(step + before[i], (i, 1, x))
    right = here + Sum(step - after[i], (i, 1, y))
    chord = y * Sum(before[i], (i, 1, x)) + x * Sum(after[i], (i, 1, y))
    yield AtLeast(
        r"A concave sequence lies above its chords: steps before a point are its step $f$ plus $\alpha_i\ge0$, "
        r"those after it $f-\beta_i$.",
        (x + y) * here,
        y * left + x * right,
        because=chord,
    )
    yield Human(r"So $F\ge0$ at two lengths makes $F\ge0$ between them: no valley, hence one peak.")


def _staircase():
    """Return the counter-example to one peak when the cost climbs in stairs."""
    a = Rational(9, 10)
    stairs = lambda g: 1 + Rational(g, 50) + (Rational(9, 10) if g >= 4 else 0) + (Rational(3, 10) if g >= 8 else 0)  # noqa: E731
    S = [speedup(committed_length_constant(a, Integer(g)), Integer(1), stairs(g)) for g in range(27)]
    return Needed(
        "convex round time",
        r"a staircase (graph sizes, tiles): $T=1+\gamma/50$, plus $0.9$ from $\gamma=4$ and $0.3$ more from "
        r"$\gamma=8$; at $a=0.9$ "
        r"$S$ peaks at $\gamma=3$, falls, and peaks again at $\gamma=7$ and, highest, at $\gamma=25$.",
        S[2] < S[3],
        S[3] > S[4],
        S[6] < S[7],
        S[7] > S[8],
        S[24] < S[25],
        S[25] > S[26],
        S[25] > S[3],
    )


@theorem(
    "P10",
    "The best length in closed form",
    says=r"For constant $0<a<1$ and $T(\gamma)=T(0)\,(1+c\gamma)$ with $0<c<1$, "
    r"the speedup over real $\gamma$ has one maximum, "
    r"$\gamma^*=-1+\dfrac{-W_{-1}(-e^{-1-m})-1-m}{\lambda}=-1+\dfrac{\ln\bigl(-W_{-1}(-e^{-1-m})\bigr)}{\lambda}$, "
    r"with "
    r"$\lambda=-\ln a$ and $m=\lambda(1-c)/c$. It is positive if and only if $a\lambda>c(1-a)$. "
    r"The best whole length is a neighbour of $\gamma^*$, or $0$ if $\gamma^*<0$.",
    plain="g* = -1 + (-W_-1(-e^(-1-m)) - 1 - m) / lambda, lambda = -ln a, m = lambda (1 - c)/c; "
    "the branch -1 of Lambert's W",
    source="We have not seen this closed form in the sources we searched; Leviathan et al. 2023 find it numerically.",
    claims=["C3.1"],
    mutants={
        "the other branch of W": dict(branch=lambda u: 1 / (1 + u)),
        "the exponent is γ instead of γ + 1": dict(shift=1),
        "m without the −1: λ/c": dict(spare=1),
        "λ = ln a": dict(decay=-1),
        "the plain criterion a > c decides whether γ* is positive": dict(criterion=lambda a, lam, c: a - c),
    },
    notes=r"A fixed overhead only changes what $c$ means: it is the cost of one more candidate over the cost of a "
    r"round with none. "
    r"A computer algebra system that solves the first-order condition may return the branch $W_0$; "
    r"its $\gamma$ is below $-1$. "
    r"For $c\ge1$ the slope is negative for all $\gamma\ge0$, and $\gamma^*$ does not exist (or is $-1$, at $c=1$).",
)
def closed_form_length(
    branch=lambda u: 1 + u, shift=0, spare=0, decay=1, criterion=lambda a, lam, c: a * lam - c * (1 - a)
):
    a, x, r, lam, y, u = positive("a", "x", "r", "lambda", "y", "u")
    m = Symbol("m", real=True)
    yield Given(r"$0<a<1$ at every position.", a < 1)
    yield Given(r"$T(\gamma)/T(0)=1+c\gamma$ with $0<c<1$; write $r=(1-c)/c>0$, so that $1+c\gamma=c\,(r+\gamma+1)$.")
    yield Where(r"$c=1/(1+r)$", Definition(c, 1 / (1 + r)))
    yield Where(r"$\lambda=-\ln a$", Definition(lam, -decay * log(a)))
    S = speedup(committed_length_constant(a, x - 1 - shift), 1, 1 + c * (x - 1))
    slope = a**x * (1 + lam * (r + spare + x)) - 1
    yield Route("the first-order condition")
    yield SameSign(
        r"With $x=\gamma+1$: the slope of $S$ has the sign of $a^x(1+\lambda(r+x))-1$.",
        diff(S, x),
        slope,
        (1 + r) / ((1 - a) * (r + x) ** 2),
    )
    fall = lam**2 * a**x * (r + x)
    yield Greater(r"$\lambda$ is positive.", -log(a), 0, because=log(1 / a))
    yield Rising("That expression falls all the way, so it vanishes at most once, at a maximum.", -slope, x, fall)
    yield Where(
        r"Let $y=-W$ with $We^W=-e^{-1-m}$, that is $m=y-1-\ln y$; and $m=\lambda r$.", Definition(m, y - 1 - log(y))
    )
    yield Identity(r"$W=-y$ solves Lambert's equation.", -y * exp(-y), -exp(-1 - m))
    yield Identity(r"$y-1-m$ is $\ln y$.", y - 1 - m, log(y))
    yield Identity(r"$a^x$ is $e^{-\lambda x}$.", a**x, exp(-lam * x))
    condition = exp(-(y - 1 - m)) * (1 + m + (y - 1 - m)) - 1
    yield Identity(r"At $x=(y-1-m)/\lambda$ the slope vanishes.", condition, 0)
    yield Route("the branch")
    yield Rising(r"$y-1-\ln y$ rises strictly for $y=1+u>1$,", u - log(1 + u), u, u / (1 + u))
    yield Identity("from zero", (u - log(1 + u)).subs(u, 0), 0)
    yield Limit("without bound: one $y>1$ for every $m>0$.", u - log(1 + u), u, oo, oo)
    yield Greater(r"$y=1+u$ is the branch $W_{-1}$, and its $x=\gamma^*+1$ is positive.", log(branch(u)) / lam, 0)
    yield Greater(r"$y=1/(1+u)$ is the branch $W_0$, and its $x$ is negative: below $\gamma=-1$.", 0, -log(1 + u) / lam)
    at_zero = a * (1 + lam * (r + 1)) - 1
    yield SameSign(r"$\gamma^*>0$ if the slope at $\gamma=0$ is positive.", at_zero, criterion(a, lam, c), 1 / c)
    yield Human(
        r"$S$ rises up to $\gamma^*$ and falls after it, so no whole length beats both neighbours of $\gamma^*$."
    )
    yield _other_branch()


def _other_branch():
    """Return the trap: a computer algebra system's own solution of the first-order condition is the other branch."""
    x, lam, m = positive("x", "lambda", "m")
    (root,) = solve(exp(-lam * x) * (1 + m + lam * x) - 1, x)
    at = {lam: log(Rational(5, 4)), m: 19 * log(Rational(5, 4))}  # a = 4/5, c = 1/20
    right = log(-LambertW(-exp(-1 - m), -1)) / lam
    return Needed(
        r"the branch $W_{-1}$",
        r"at $a=4/5$, $c=1/20$ it gives $\gamma^*=7.857$; SymPy's `solve` returns the branch $W_0$ alone, "
        r"$\gamma=-24.46$, "
        r"even for an unknown declared positive.",
        root.subs(at) < -23,
        right.subs(at) > 8,
        right.subs(at) < 9,
    )


@theorem(
    "P11",
    "When any length gains",
    says=r"If $T(0)=t_D$ and $T$ is convex, some length gains if and only if the first candidate does: "
    r"$a_1>\Delta T(0)/t_D$. Then $S\ge(1+a_1)/(1+\Delta T(0)/t_D)$ is within reach. Any acceptance law.",
    plain="if T(0) = t_D and T is convex: some length gains if and only if a_1 > (T(1) - T(0)) / t_D",
    source="Leviathan et al. 2023, Corollary 3.9, for constant acceptance and a linear round time; "
    "we have not seen it for every law.",
    claims=["C3.1", "C2.6"],
    mutants={
        "the second acceptance decides": dict(first=a_[2]),
        "the premise of convexity is missing": dict(bend=IndexedBase("e", real=True)),
        "the first step is compared with T(1)": dict(against=T_of(1)),
        "a fixed overhead is paid by γ = 0 as well": dict(start=2 * t_D),
    },
)
def any_gain(first=a_[1], bend=e_, against=t_D, start=t_D):
    yield SAME_PREFIX
    yield PROBABILITIES
    yield TIMES
    yield Given(r"A round without candidates is a plain step: $T(0)=t_D$ (no fixed overhead).")
    yield SURVIVAL
    yield LENGTH
    yield from convex_times(start, bend)
    yield SPEEDUP
    yield RULE
    yield Identity("No candidates, no gain.", S_of(0), 1)
    step = T_of(1) - T_of(0)
    yield Identity(r"The step rule at $\gamma=0$.", D_of(0), first * against - step)
    yield SameSign("One candidate gains exactly then.", S_of(1) - 1, first * against - step, 1 / T_of(1))
    yield Identity("And then it gains this much.", S_of(1), (1 + first) / (1 + step / t_D))
    bound = after_a_step(gamma).subs(gamma, 0)
    yield Lemma("No length gains more than the first step allows.", "P9", bound, each=h, at={gamma: 0})
    yield Human(r"If $D(0)\le0$, the lemma gives $S(h)\le S(0)=1$ for all $h$; if $D(0)>0$, then $S(1)>1$.")
    a, T = Rational(4, 5), lambda g: Rational(19, 10) + Rational(g, 20)
    S = [speedup(committed_length_constant(a, Integer(g)), Integer(1), T(g)) for g in (1, 3)]
    yield Needed(
        r"$T(0)=t_D$: no overhead that only a speculative round pays",
        r"at $a=4/5$, $c=1/20$ and overhead $9/10$ of a step, $\gamma=1$ loses and $\gamma=3$ gains.",
        S[0] < 1,
        S[1] > 1,
    )


def log_below_tangent():
    """Yield the step ln x ≤ x − 1."""
    x = Symbol("x", positive=True)
    yield Tangent(r"The logarithm lies below its tangent at one.", x - 1, log(x), x, 1)


def at_most_one_over_e(v, words, u, log_u, tangents):
    """Yield the steps from v = −1 − ln u ≥ 0, which `tangents` show, to u ≤ 1/e."""
    x, v = symbols(["x", v], real=True)
    yield Where(rf"${v}=-1-\ln\left({words}\right)$", Definition(v, -1 - log_u))
    yield AtLeast("Each logarithm lies below its tangent; the tangents add up to one.", v, 0, because=tangents)
    yield Tangent("The exponential lies above its tangent at zero.", exp(x), 1 + x, x, 0)
    yield AtLeast(rf"So ${words}\le1/e$.", exp(-1), u, because=[u * (exp(v) - 1 - v), u * v])


@theorem(
    "P12",
    "What foresight can gain at most",
    says=r"Constant acceptance $a$, $T(\gamma)=t_D(1+c\gamma)$. An oracle that drafts exactly the tokens that will "
    r"be accepted has "
    r"$S_\text{or}=1/(1-a+ca)$, and the best fixed length has at least $(1-1/e)\,S_\text{or}$: "
    r"foresight gains a factor of at most $e/(e-1)\approx1.58$, and no smaller constant will do.",
    plain="constant a, T = t_D (1 + c γ): an oracle beats the best fixed length by at most e/(e-1); "
    "the constant is sharp",
    source="Built from textbook tools; we have not seen it stated for speculative decoding. Leviathan et al. "
    "2023, section 3.5, "
    "report about 60 % numerically.",
    claims=["C3.1", "C3.5"],
    mutants={
        "the oracle's tokens without the bonus token": dict(bonus=0),
        "the exponent is f instead of f + 1": dict(power=0),
        "the mixture of lengths is not centred on the mean": dict(theta=lambda mu, f: 1 - mu + f),
        "the best length reaches 1 − 1/e² of the oracle": dict(order=2),
        "the ratio at a tie without the factor γ + 1": dict(times=0),
    },
    notes=r"Constant acceptance is needed: when half of the rounds accept nothing and half nearly everything, "
    r"foresight gains much more. "
    r"The bound with finite $n=\gamma+1$ is sharper: at most $1/(1-(n/(n+1))^{n+1})$ where lengths $n-1$ and $n$ tie.",
)
def foresight(bonus=1, power=1, theta=lambda mu, f: mu - f, order=1, times=1):
    mu, best = positive("mu", "S")
    f = Symbol("f", integer=True, nonnegative=True)
    odds = mu / (1 + mu)
    length, cost = lambda g: committed_length_constant(odds, g), lambda g: 1 + c * g  # noqa: E731
    yield Given(r"$a=\mu/(1+\mu)$ at every position, so $\mu=a/(1-a)>0$; times are in units of $t_D$.")
    yield Given(r"$f=\lfloor\mu\rfloor$ and $\theta=\mu-f$.", mu - f >= 0, f + 1 - mu >= 0)
    yield Given(
        r"$S$ is the best speedup of any fixed length, so at least that of $f$ and of $f+1$.",
        best * cost(f) >= length(f),
        best * cost(f + 1) >= length(f + 1),
    )
    lam, g = positive("lambda", "g")
    yield Limit(r"An oracle accepts $1/(1-a)-1=\mu$ tokens a round on average ($a=e^{-\lambda}$).",
                (1 - exp(-lam * (g + 1))) / (1 - exp(-lam)), g, oo, 1 / (1 - exp(-lam)))  # fmt: skip
    oracle = (mu + bonus) / (1 + c * mu)
    yield Identity("It pays for just those.", oracle, 1 / (1 - odds + c * odds))
    yield Route("a mixture of the two lengths around the mean")
    share = theta(mu, f)
    mixed = (1 - share) * length(f) + share * length(f + 1)
    lost = odds ** (f + power) * (1 - share * (1 - odds))
    yield Identity("Tokens of the mixture.", mixed, (1 + mu) * (1 - lost))
    yield Identity("Its time is the oracle's.", (1 - share) * cost(f) + share * cost(f + 1), 1 + c * mu)
    shares = [(1 - share) * (best * cost(f) - length(f)), share * (best * cost(f + 1) - length(f + 1))]
    yield AtLeast("A mixture is no faster than its better part.", best * (1 + c * mu), mixed, because=shares)
    yield from log_below_tangent()
    inner = (1 + f) / (1 + mu)
    tangents = [(f + 1) * (odds - 1 - log(odds)), inner - 1 - log(inner)]
    logarithm = (f + 1) * log(odds) + log(inner)
    yield from at_most_one_over_e("v", r"a^{f+1}\,(1-\theta(1-a))", odds ** (f + 1) * inner, logarithm, tangents)
    final = [
        (best * (1 + c * mu) - mixed) / (1 + c * mu),
        (exp(-1) - odds ** (f + 1) * inner) * (1 + mu) / (1 + c * mu),
    ]
    yield AtLeast("Together.", best, (1 - exp(-order)) * oracle, because=final)
    yield from _worst_cost(times)
    yield _mixed_acceptance()


def _worst_cost(times):
    """Yield the second route: for a given a the worst c lies where two neighbouring lengths tie."""
    yield Route("the worst cost for a given acceptance")
    a, y = positive("a", "y")
    n = Symbol("n", integer=True, positive=True)
    tie = Symbol("c_n", positive=True)
    yield Given(r"Here $0<a<1$, $n\ge1$, and $c_n$ is the cost at which lengths $n-1$ and $n$ tie.", a < 1)
    yield Where(
        r"$c_n=a^n/(E(n-1)-(n-1)a^n)$", Definition(tie, a**n / (committed_length_constant(a, n - 1) - (n - 1) * a**n))
    )
    S = lambda g: speedup(committed_length_constant(a, g), 1, 1 + tie * g)  # noqa: E731
    yield Identity(r"At $c_n$ they do tie.", S(n - 1), S(n))
    ratio = lambda g, c, tokens: (1 + c * g) / (tokens * (1 - a + c * a))  # noqa: E731
    u = n**times * (1 - a) * a**n
    yield Identity(
        "There the oracle is ahead by exactly this.",
        ratio(n - 1, tie, committed_length_constant(a, n - 1)),
        1 / (1 - u),
    )
    yield SameSign(
        r"For one length the oracle's lead is monotone in $c$: its slope has the sign of $\gamma(1-a)-a$.",
        diff(ratio(gamma, c, E(gamma)), c),
        gamma * (1 - a) - a,
        1 / (E(gamma) * (1 - a + c * a) ** 2),
    )
    yield Human(r"Each $\gamma$ is best between two ties (P9), so the lead is largest at a tie.")
    tangents = [n * (1 - a) - 1 - log(n * (1 - a)), n * (a - 1 - log(a))]
    yield from at_most_one_over_e("w", r"n(1-a)a^n", n * (1 - a) * a**n, log(n * (1 - a)) + n * log(a), tangents)
    yield Identity(r"At $a=n/(n+1)$ the tie's value is a power,", u.subs(a, n / (n + 1)), (n / (n + 1)) ** (n + 1))
    yield Limit(r"and it tends to $1/e$: the constant is sharp.", (y / (y + 1)) ** (y + 1), y, oo, exp(-1))


def _mixed_acceptance():
    """Return the counter-example with mixed acceptance; its best fixed length is the first whose next step fails."""
    a, c = Rational(999, 1000), Rational(1, 20)
    s = lambda g: a**g / 2  # noqa: E731
    E = lambda g: (1 + committed_length_constant(a, g)) / 2  # noqa: E731
    g = 182
    oracle = (1 + 1 / (1 - a)) / 2 / (1 + c * a / (1 - a) / 2)
    return Needed(
        "constant acceptance",
        r"rounds half with $a=0$, half with $a=999/1000$, at $c=1/20$: "
        r"the oracle is more than twice as fast as the best fixed length "
        r"(which one that is follows from P9).",
        s(g) * (1 + c * (g - 1)) > E(g - 1) * c,
        s(g + 1) * (1 + c * g) <= E(g) * c,
        oracle > 2 * E(g) / (1 + c * g),
    )


FALL = IndexedBase("alpha", nonnegative=True)  # α_j, what survival loses from one candidate to the next
CLIMB = IndexedBase("beta", nonnegative=True)  # β_j, what the time of a candidate gains


@theorem(
    "P22",
    "Stopping while drafting",
    says=r"Let $\rho$ be the best tokens per second that any policy reaches. "
    r"A policy is best if and only if it maximises "
    r"$\mathrm E[L]-\rho\,\mathrm E[T]$. One more candidate then pays exactly if its survival $u$, "
    r"given all that is known, exceeds "
    r"$\rho\,\delta$ with $\delta$ its time. If survival never rises and $\delta$ never falls along the draft, "
    r"all further steps "
    r"together gain at most $h\,(u-\rho\delta)$: the first step that does not pay ends the draft.",
    plain="draft on while survival u > rho * delta; if u never rises and delta never falls, "
    "the first failing step is the last",
    source="Textbook (Dinkelbach 1967 for ratios, the monotone case of optimal stopping); "
    "adaptive drafts by threshold are known.",
    claims=["C3.4", "C3.5"],
    mutants={
        "the policy maximises tokens, without time": dict(price=0),
        "the last acceptance, which may rise, is taken for survival": dict(drop=IndexedBase("alpha", real=True)),
        "later candidates may get cheaper": dict(climb=IndexedBase("beta", real=True)),
        "the bound counts one step only": dict(steps=1),
    },
    notes="Survival of a path is a product of confidences and so never rises. "
    "If the time per step falls later, looking one step ahead "
    "can stop too early. A table of lengths by batch size is the same rule with δ depending on the batch.",
)
def stopping(price=1, drop=FALL, climb=CLIMB, steps=h):
    rho, tokens, seconds = positive("rho", "L", "T")
    u, delta = IndexedBase("u", real=True), IndexedBase("delta", real=True)
    yield Given(r"Rounds follow one another, and the long-run rate of a policy is $\mathrm E[L]/\mathrm E[T]$ (P13).")
    yield SameSign(
        r"A policy reaches the rate $\rho$ exactly if $\mathrm E[L]-\rho\,\mathrm E[T]$ reaches zero.",
        tokens / seconds - rho,
        tokens - price * rho * seconds,
        1 / seconds,
    )
    yield Where(r"$u_{j+1}=u_j-\alpha_j$, $\alpha_j\ge0$: survival of the next candidates, from now.",
                Recursion(u, 0, Symbol("u_0", real=True), lambda j, before: before - drop[j - 1]))  # fmt: skip
    yield Where(r"$\delta_{j+1}=\delta_j+\beta_j$, $\beta_j\ge0$: their times.",
                Recursion(delta, 0, Symbol("delta_0", real=True), lambda j, before: before + climb[j - 1]))  # fmt: skip
    gain = lambda j: u[j] - rho * delta[j]  # noqa: E731
    yield Identity("One more candidate changes the objective by its net worth.", (tokens + u[0]) - rho * (seconds + delta[0]),
                   (tokens - rho * seconds) + gain(0))  # fmt: skip
    for name, sequence, change, sign in (("survival", u, drop, 1), ("time", delta, climb, -1)):
        steps_so_far = Sum(change[j], (j, 0, h - 1))
        yield Induction(
            f"Along the draft, {name} changes by its steps.", h, sign * (sequence[0] - sequence[h]), steps_so_far
        )
        yield AtLeast(
            f"So its {name} is at its best now.", sign * sequence[0], sign * sequence[h], because=steps_so_far, each=h
        )
    worth = [Sum(u[0] - u[j], (j, 0, h - 1)), rho * Sum(delta[j] - delta[0], (j, 0, h - 1))]
    yield AtLeast("Further candidates are worth at most as much each as the next one.", steps * gain(0),
                  Sum(gain(j), (j, 0, h - 1)), because=worth)  # fmt: skip
    yield Human(
        "If the next step does not pay, no continuation does, whatever is learnt on the way; "
        "if it pays, taking it is no loss."
    )
