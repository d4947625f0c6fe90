"""Theorems about the tokens of a round: tail sum, chain rule, closed form, marginal tokens, concavity."""

from sympy import IndexedBase, Integer, Product, Sum, Symbol, diff, exp, log, oo

from specgain.acceptance import committed_length_constant, variance_constant
from specgain.proofs.algebra import Definition, Recursion
from specgain.proofs.kernel import AtLeast, Given, Human, Identity, Induction, Limit, Route, SameSign, Where, theorem
from specgain.proofs.symbols import E, a, a_, gamma, i, j, k, n, p, positive, s_

FROM_CONDITIONAL = Recursion(s_, 0, 1, lambda i, before: a_[i] * before)
PROBABILITIES = Given(
    r"$0\le a_i\le1$ for every $i$: they are probabilities. The positions may depend on each other.", a_[i] <= 1, each=i
)
SAME_PREFIX = Given("A longer draft does not change the acceptance of the positions before it.")
LENGTH = Where(
    r"$E(\gamma)=1+\sum_{i=1}^{\gamma}s_i$ is $\mathrm E[L]$ with $\gamma$ candidates (P2).",
    Definition(E, lambda g: 1 + Sum(s_[i], (i, 1, g))),
)
SURVIVAL = Where(
    r"Survival: $s_0 = 1$ and $s_i = a_i\,s_{i-1}$, which is what “conditional” means (no division, "
    r"so $s_{i-1} = 0$ is allowed).",
    FROM_CONDITIONAL,
)


@theorem(
    "P1",
    "The tail sum",
    says=r"For $K$ with values $0,\dots,n$: $\mathrm E[K]=\sum_{i=1}^{n}\Pr(K\ge i)$.",
    plain="E[K] = sum over i = 1..n of Pr(K >= i), for every K with values 0..n",
    source="Textbook identity; its use for accepted prefixes is common.",
    claims=["C2.1"],
    mutants={
        "the sum starts at i = 0": dict(start=0),
        "Pr(K > i) instead of Pr(K ≥ i)": dict(strictly=1),
        "the last position is dropped": dict(stop=-1),
        "the bonus token is counted in K": dict(bonus=1),
    },
)
def tail_sum(start=1, strictly=0, stop=0, bonus=0):
    yield Given(r"$p_k=\Pr(K=k)$ for $k=0,\dots,n$; no other property is used, not even that they sum to one.")
    mean = Sum((k + bonus) * p[k], (k, 0, n))
    tails = Sum(Sum(p[k], (k, i + strictly, n)), (i, start, n + stop))
    yield Induction(r"Let the support grow by one value: both sides gain $(n+1)\,p_{n+1}$.", n, mean, tails)
    # a second route that does not use the first
    w = IndexedBase("w", real=True)
    by_column = Sum(Sum(w[i, k], (i, start, k)), (k, 1, n))
    by_row = Sum(Sum(w[i, k], (k, i + strictly, n)), (i, start, n + stop))
    yield Induction(
        r"Second route: a triangle of numbers $w_{i,k}$, $i\le k$, added by columns or by rows.", n, by_column, by_row
    )
    yield Identity(
        r"With $w_{i,k}=p_k$ the columns give $\mathrm E[K]$, since $k$ is a sum of $k$ ones; the rows give the tails.",
        mean,
        Sum(Sum(p[k], (i, start, k)), (k, 1, n)),
    )


@theorem(
    "P2",
    "The chain of conditional acceptances",
    says=r"$\Pr(K\ge i)=\prod_{j\le i}a_j$, hence $\mathrm E[L]=1+\sum_{i=1}^{\gamma}\prod_{j=1}^{i}a_j$. "
    r"No independence is assumed.",
    plain="E[L] = 1 + sum over i = 1..g of a_1 a_2 ... a_i, with a_i = Pr(K >= i given K >= i-1); no independence",
    source="Textbook probability (the chain rule).",
    claims=["C2.2", "C8.2"],
    mutants={
        "the bonus token is dropped": dict(bonus=0),
        "the product stops one factor early": dict(stop=-1),
        "the sum runs to γ + 1": dict(longest=gamma + 1),
        "only the last acceptance counts, not the chain": dict(factor=lambda j: a_[i]),
    },
)
def chain_rule(bonus=1, stop=0, longest=gamma, factor=lambda j: a_[j]):
    yield Given(r"$a_i=\Pr(K\ge i\mid K\ge i-1)$; $K\le\gamma$ and $L=K+1$: nothing cuts the round short.")
    yield PROBABILITIES
    yield SURVIVAL
    mean = Sum((k + bonus) * (s_[k] - s_[k + 1]), (k, 0, gamma - 1)) + (gamma + bonus) * s_[gamma]
    yield Induction(
        r"$\Pr(K=k)=s_k-s_{k+1}$ for $k<\gamma$, and $s_\gamma$ for $k=\gamma$: "
        r"$\mathrm E[K+1]$ is one plus the survivals.",
        gamma,
        mean,
        1 + Sum(s_[i], (i, 1, longest)),
    )
    chain = Product(factor(j), (j, 1, i + stop))
    yield Induction(
        r"One more position multiplies both sides by $a_{i+1}$.", i, chain, s_[i], times=a_[i + 1], names=True
    )
    yield Identity(
        "Put the products for the survivals.", 1 + Sum(s_[i], (i, 1, gamma)), 1 + Sum(chain, (i, 1, longest))
    )


@theorem(
    "P3",
    "The closed form for constant acceptance",
    says=r"If every $a_i=a$: $\mathrm E[L]=\dfrac{1-a^{\gamma+1}}{1-a}$ for $a\ne1$, "
    r"and $\gamma+1$ both at $a=1$ and in the limit $a\to1$.",
    plain="if every a_i = a: E[L] = (1 - a^(g+1)) / (1 - a); g + 1 at a = 1 and in the limit",
    source="Leviathan et al. 2023, equation (1).",
    claims=["C2.3", "C8.2"],
    mutants={
        "the exponent is γ": dict(power=gamma),
        "the sum starts at 1: no bonus token": dict(start=1),
        "the limit is γ": dict(limit=gamma),
        "1 + a in the denominator": dict(sign=-1),
    },
)
def closed_form(power=gamma + 1, start=0, limit=gamma + 1, sign=1):
    yield Given(r"$a_i=a\ge0$ for every $i$; where $1-a$ divides, $a\ne1$.")
    powers = Sum(a**i, (i, start, gamma))
    yield Identity(
        "A product of equal factors is a power, and the bonus token is the power zero.",
        1 + Sum(Product(a, (j, 1, i)), (i, 1, gamma)),
        powers,
    )
    yield Induction("No division yet, so this holds at $a=1$ as well.", gamma, (1 - sign * a) * powers, 1 - a**power)
    closed = committed_length_constant(sign * a, power - 1)
    yield Induction(r"Divide by $1-a$: the closed form, by induction on its own.", gamma, powers, closed)
    yield Limit(r"Certain acceptance commits all $\gamma$ candidates and the bonus token.", closed, a, 1, limit)
    yield Identity("At $a=1$ itself, a sum of ones.", powers.subs(a, 1), limit)
    yield Identity("At $a=0$ one token.", committed_length_constant(Integer(0), power - 1), 1)


@theorem(
    "P4",
    "What one more candidate adds",
    says=r"From $\gamma$ to $\gamma+1$ candidates, $\mathrm E[L]$ grows by exactly $s_{\gamma+1}$; "
    r"for constant acceptance that is $a^{\gamma+1}$.",
    plain="E[L](g+1) - E[L](g) = s_(g+1); for constant acceptance a^(g+1)",
    source="Textbook algebra; the geometric case follows from Leviathan et al. 2023, equation (1).",
    claims=["C3.1"],
    mutants={
        "the exponent is γ": dict(power=gamma),
        "the gain is s at γ": dict(position=gamma),
        "the gain is the conditional acceptance alone": dict(gain=a_[gamma + 1]),
    },
)
def marginal_tokens(power=gamma + 1, position=gamma + 1, gain=None):
    yield SAME_PREFIX
    yield PROBABILITIES
    yield SURVIVAL
    yield LENGTH
    yield Identity(
        "The two sums differ in their last term.", E(gamma + 1) - E(gamma), s_[position] if gain is None else gain
    )
    chain = Product(a_[j], (j, 1, gamma + 1))
    yield Induction(
        "Survival is the product of the acceptances (as in P2).",
        gamma,
        Product(a_[j], (j, 1, gamma)),
        s_[gamma],
        times=a_[gamma + 1],
        names=True,
    )
    yield Identity("So the gain is a product that shrinks with every factor below one.", s_[gamma + 1], chain)
    closed = committed_length_constant(a, gamma)
    yield Identity("Constant acceptance: subtract the closed forms.", closed.subs(gamma, gamma + 1) - closed, a**power)


@theorem(
    "P5",
    "Every acceptance law has diminishing returns",
    says=r"$\mathrm E[L]$ is concave in $\gamma$ for every acceptance law: "
    r"the second difference is $s_{\gamma+2}-s_{\gamma+1}=-s_{\gamma+1}(1-a_{\gamma+2})\le0$.",
    plain="E[L](g+2) - 2 E[L](g+1) + E[L](g) = s_(g+2) - s_(g+1) <= 0 for every acceptance law",
    source="Textbook: survival functions do not increase. Independence is not needed.",
    claims=["C3.1"],
    mutants={
        "the inequality is flipped": dict(sign=-1),
        "the premise a ≤ 1 is missing": dict(bounded=False),
        "the second difference is off by one position": dict(shift=1),
        "constant acceptance: a^(γ+1)(1 − a) without the minus": dict(geometric=a ** (gamma + 1) * (1 - a)),
    },
)
def concavity(sign=1, bounded=True, shift=0, geometric=a ** (gamma + 1) * (a - 1)):
    yield SAME_PREFIX
    if bounded:
        yield PROBABILITIES
    yield SURVIVAL
    yield LENGTH
    second = E(gamma + 2) - 2 * E(gamma + 1) + E(gamma)
    fall = s_[gamma + 1 + shift] * (1 - a_[gamma + 2 + shift])
    yield Identity(
        r"Only two terms of the three sums are left, and $s_{\gamma+2}=a_{\gamma+2}\,s_{\gamma+1}$.", second, -fall
    )
    yield AtLeast("Survival never rises.", s_[i], s_[i + 1], because=s_[i] * (1 - a_[i + 1]), each=i)
    yield AtLeast("A product of non-negative factors with a minus sign.", 0, sign * second, because=sign * fall)
    closed = [committed_length_constant(a, gamma + step) for step in range(3)]
    yield Identity("For constant acceptance.", closed[2] - 2 * closed[1] + closed[0], geometric)


@theorem(
    "P14",
    "Estimating a constant acceptance from truncated rounds",
    says=r"Rounds that reach $\gamma$ (or are cut earlier) are censored: they show no rejection. "
    r"The maximum-likelihood estimate is "
    r"$\hat a=\dfrac{\sum K}{\sum K+F}$ with $F$ the number of rounds that ended in a rejection. "
    r"It is right on average counts: $\mathrm E[K]/(\mathrm E[K]+\Pr(K<\gamma))=a$; "
    r"the pooled rate $\mathrm E[K]/\gamma$ is not above $a$.",
    plain="a^ = sum K / (sum K + number of rounds with a rejection) maximises the likelihood; E[K]/g <= a",
    source="Textbook (maximum likelihood for a geometric law with censoring).",
    claims=["C0.4", "C2.3"],
    mutants={
        "every round is counted as a rejection": dict(ended=1),
        "the pooled rate is taken for a": dict(estimate=lambda total, ended, rounds: total / (rounds * gamma)),
        "rejections are left out of the denominator": dict(
            estimate=lambda total, ended, rounds: total / (total + rounds)
        ),
        "the chance of a rejection is 1 − a^(γ+1)": dict(power=2),
        "the pooled rate exceeds a": dict(sign=-1),
    },
    notes="A round cut by the end of text or by a length limit counts like one that reached γ: "
    "its K joins the sum, it adds no rejection.",
)
def likelihood(ended=None, estimate=lambda total, ended, rounds: total / (total + ended), power=1, sign=1):
    a = Symbol("a", positive=True)
    K, F = IndexedBase("K", integer=True, nonnegative=True), IndexedBase("F", integer=True, nonnegative=True)
    total, rejections = Sum(K[i], (i, 1, n)), Sum(F[i], (i, 1, n))
    yield Given(r"$0<a<1$ at every position; rounds are independent.", a < 1)
    yield Given(
        r"$F_r=1$ if round $r$ ended in a rejection, $0$ if it was cut or accepted all; not all $K_r$ and $F_r$ are 0.",
        F[i] <= 1,
        total + rejections > 0,
        each=i,
    )
    yield Identity(
        r"A round with a rejection after $k$ tokens has $\Pr(K=k)=a^k(1-a)$.", a**k - a ** (k + 1), a**k * (1 - a)
    )
    loglik = Sum(K[i] * log(a) + (F[i] if ended is None else ended) * log(1 - a), (i, 1, n))
    yield SameSign(
        r"The slope of the log-likelihood is positive below $\hat a$ and negative above: one maximum.",
        diff(loglik, a),
        estimate(total, rejections, n) - a,
        (total + rejections) / (a * (1 - a)),
    )
    mean = committed_length_constant(a, n + 1) - 1
    yield Identity(
        r"With mean counts, $\gamma=n+1$: the estimate is $a$ itself.", mean / (mean + 1 - a ** (n + power)), a
    )
    yield Induction("A power of a probability", j, 1 - a**j, (1 - a) * Sum(a**i, (i, 0, j - 1)))
    yield AtLeast("is at most one.", 1, a**j, because=(1 - a) * Sum(a**i, (i, 0, j - 1)), each=j)
    pooled = Sum(a**i, (i, 1, n + 1)) / (n + 1)
    lost = Sum(a * (1 - a ** (i - 1)), (i, 1, n + 1)) / (n + 1)
    yield AtLeast(r"So the pooled rate is not above $a$.", sign * a, sign * pooled, because=sign * lost)


@theorem(
    "P15",
    "How much the tokens of a round vary",
    says=r"$\mathrm{Var}\,L=\mathrm{Var}\,K=\sum_{i=1}^{\gamma}(2i-1)\,s_i-\bigl(\sum_i s_i\bigr)^2$ for every "
    r"acceptance law. For constant $a$ it is "
    r"$\dfrac{a\,[1-(2\gamma+1)a^{\gamma}(1-a)-a^{2\gamma+1}]}{(1-a)^2}$, which tends to $a/(1-a)^2$. "
    r"A relative standard error $\varepsilon$ of the mean of $L$ needs $\mathrm{Var}\,L/(\varepsilon\,\mathrm "
    r"E[L])^2$ independent rounds.",
    plain="Var L = sum (2i-1) s_i - (sum s_i)^2; closed form for constant a, limit a/(1-a)^2; "
    "rounds = Var L/(eps E[L])^2",
    source="Built from textbook tools; we have not seen it stated for speculative decoding.",
    claims=["C2.2", "C2.7"],
    mutants={
        "2i + 1 instead of 2i − 1": dict(odd=1),
        "the square of the mean is not taken off": dict(centre=0),
        "2γ − 1 instead of 2γ + 1 in the closed form": dict(shift=-1),
        "the limit is a/(1 − a)": dict(power=1),
        "ε is not squared": dict(order=1),
    },
)
def variance(odd=-1, centre=1, shift=0, power=2, order=2):
    yield PROBABILITIES
    yield SURVIVAL
    yield Route("by summation of differences")
    M = Symbol("M", real=True)
    squares = Sum((k - M) ** 2 * (s_[k] - s_[k + 1]), (k, 0, gamma - 1)) + (gamma - M) ** 2 * s_[gamma]
    weighted, first = Sum((2 * i + odd) * s_[i], (i, 1, gamma)), Sum(s_[i], (i, 1, gamma))
    yield Induction(r"The mean square distance from any $M$.", gamma, squares, weighted - 2 * M * first + M**2)
    yield Identity(
        "At the mean, M = Σ s.", (weighted - 2 * M * first + M**2).subs(M, first), weighted - centre * first**2
    )
    yield Given(r"In the closed form every $a_i=a\ne1$.")
    closed = variance_constant(a, gamma + shift)
    mean = committed_length_constant(a, gamma) - 1
    powers = Sum((2 * i - 1) * a**i, (i, 1, gamma))
    yield Induction(r"Constant acceptance, by induction on $\gamma$.", gamma, powers, closed + mean**2)
    yield Route("by columns and rows, and by a derivative")
    yield Identity(r"A square is a sum of odd numbers.", Sum(2 * i + odd, (i, 1, k)), k**2)
    columns = Sum(Sum((2 * i - 1) * p[k], (i, 1, k)), (k, 1, n))
    rows = Sum((2 * i - 1) * Sum(p[k], (k, i, n)), (i, 1, n))
    yield Induction(r"So $\mathrm E[K^2]$ by columns is $\sum(2i-1)\Pr(K\ge i)$ by rows.", n, columns, rows)
    yield Induction(
        r"$\sum i\,a^i$ is $a$ times the derivative of $\sum a^i$.",
        gamma,
        Sum(i * a**i, (i, 1, gamma)),
        a * diff(mean, a),
    )
    yield Identity("Which gives the same closed form.", 2 * a * diff(mean, a) - mean - mean**2, closed)
    yield Route("consequences")
    lam, g, eps, var = positive("lambda", "g", "epsilon", "V")
    limit = exp(-lam) / (1 - exp(-lam)) ** power
    yield Limit(r"Long drafts ($a=e^{-\lambda}$).", variance_constant(exp(-lam), g), g, oo, limit)
    yield Human(r"The variance of a mean of $N$ independent rounds is $\mathrm{Var}\,L/N$.")
    needed = var / (eps**order * E(gamma) ** 2)
    yield Identity(r"Solve for the number of rounds ($V=\mathrm{Var}\,L$).", var / needed / E(gamma) ** 2, eps**2)
