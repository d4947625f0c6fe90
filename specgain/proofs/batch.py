"""Theorems about batches: the context length from which verification rides on the cache reads, and experts touched."""

from sympy import Integer, Product, Rational, Sum, Symbol, exp, oo

from specgain.acceptance import committed_length_constant
from specgain.proofs.algebra import Definition
from specgain.proofs.kernel import (
    AtLeast,
    Given,
    Identity,
    Induction,
    Limit,
    Needed,
    Rising,
    Route,
    SameSign,
    Where,
    theorem,
)
from specgain.proofs.symbols import gamma, i, j, positive

P, R, b, m, A, B, N = positive("P", "R", "b", "m", "A", "B", "N")
weights = Symbol("w", positive=True)


def read_time(batch, context):
    """Return the time in seconds to read the weights, w bytes, once and every request's cache: (w + B·N·m)/b."""
    return (weights + batch * context * m) / b


def work_time(batch, context, positions):
    """Return the time in seconds of the arithmetic on n positions of every request: B·n·(2P + A·N)/R."""
    return batch * positions * (2 * P + A * context) / R


def critical_context(positions, per_weight=2, attention=1):
    """Return N_crit, the context at which one request's cache read takes as long as its arithmetic.

    Each weight costs `per_weight` operations a position, each context token `attention`·A.
    """
    return per_weight * P * positions / R / (m / b - attention * A * positions / R)


@theorem(
    "P18",
    "The context from which verification is free at any batch",
    says=r"Roofline model, $P$ weights, $m$ cache bytes and $A=4\,n_\text{layers}d_\text{attn}$ attention operations "
    r"per context token, "
    r"$R$ operations and $b$ bytes per second. If $m/b>(\gamma+1)A/R$, "
    r"verification of $\gamma+1$ positions is memory-bound at every "
    r"batch size as soon as the context is at least "
    r"$N_\text{crit}=\dfrac{2P(\gamma+1)/R}{m/b-(\gamma+1)A/R}$; it then takes as long as a plain step. "
    r"Below it, a large enough batch makes verification compute-bound.",
    plain="if N >= N_crit = 2P(g+1)/R / (m/b - (g+1)A/R), verification is memory-bound at every batch size",
    source="Built from the roofline model (textbook); we have not seen this threshold stated in closed form for "
    "speculative decoding.",
    claims=["C5.1", "C5.2", "C5.3"],
    mutants={
        "γ positions are verified": dict(positions=gamma),
        "attention is forgotten": dict(attention=0),
        "one operation per weight": dict(per_weight=1),
        "the premise m/b > (γ+1)A/R is missing": dict(premise=False),
        "the intensity grows with the context": dict(sign=-1),
    },
    notes=r"The premise is a condition of its own: with few KV heads (small $m$) and a long draft it can fail, "
    r"and then no context is long "
    r"enough. At a finite batch the weights' read helps, so the threshold is lower. Vendor peaks shift both.",
)
def critical(positions=gamma + 1, attention=1, per_weight=2, premise=True, sign=1):
    e = Symbol("e", nonnegative=True)
    margin = m / b - (gamma + 1) * A / R
    if premise:
        yield Given(r"$m/b-(\gamma+1)A/R>0$: a token's cache takes longer to read than to attend to.", margin > 0)
    yield Given("A pass takes the longer of its reads and its arithmetic; weights are read once per pass.")
    threshold = critical_context(positions, per_weight, attention)
    read, work = read_time(B, N), work_time(B, N, gamma + 1)
    yield Route("by times")
    yield SameSign(
        "Per request, the cache read exceeds the arithmetic above the threshold.",
        N * m / b - work / B,
        N - threshold,
        margin,
    )
    at = {N: threshold + e}
    yield AtLeast("So from the threshold on reads take longer, at every batch size.", read.subs(at), work.subs(at),
                  because=[weights / b, B * e * margin])  # fmt: skip
    yield AtLeast("A plain step needs less arithmetic, so both take the time of the reads.", work, work_time(B, N, 1),
                  because=B * gamma * (2 * P + A * N) / R)  # fmt: skip
    yield SameSign(
        "At a finite batch the weights' read lowers the threshold.",
        read - work,
        N - (threshold - weights / (b * B * margin)),
        B * margin,
    )
    yield Limit(
        "In a large batch that help vanishes, so below the threshold arithmetic wins.", weights / (b * B), B, oo, 0
    )
    yield Route("by arithmetic intensity")
    intensity = B * (gamma + 1) * (2 * P + A * N) / (weights + B * N * m)
    ceiling = (gamma + 1) * (2 * P + A * N) / (N * m)
    slope = (gamma + 1) * (2 * P + A * N) * weights / (weights + B * N * m) ** 2
    yield Rising("Operations per byte grow with the batch,", intensity, B, slope)
    yield Limit("towards a ceiling", intensity, B, oo, ceiling)
    yield Rising("that falls as the context grows", -sign * ceiling, N, sign * (gamma + 1) * 2 * P / (N**2 * m))
    yield Identity("and meets the machine's own ratio at the same threshold.", ceiling.subs(N, threshold), R / b)
    yield Needed(
        r"$m/b>(\gamma+1)A/R$",
        "with $m/b=1$, $A/R=1$, $P/R=1$ and one candidate, a request's arithmetic takes longer than its cache read "
        "at any context: here at a million tokens.",
        Integer(10**6) < 2 * (2 + Integer(10**6)),
    )


@theorem(
    "P19",
    "Experts touched by a batch",
    says=r"Uniform, independent routing of $t$ tokens to $k$ of $X$ experts touches $U(t)=X\,(1-(1-k/X)^t)$ experts "
    r"on average. "
    r"Verification reads $U(B(\gamma+1))/U(B)=\sum_{i=0}^{\gamma}y^i$ times the experts of a plain step, "
    r"$y=(1-k/X)^B$: "
    r"the closed form of $\mathrm E[L]$ with $y$ for $a$. It lies between $1$ and $\gamma+1$ and falls to $1$ as the "
    r"batch grows.",
    plain="U(t) = X (1 - (1 - k/X)^t); U(B(g+1))/U(B) = 1 + y + ... + y^g with y = (1 - k/X)^B",
    source="Textbook (occupancy); used for mixture-of-experts models by several authors; "
    "the closed form of the ratio is elementary.",
    claims=["C2.8", "C5.1"],
    mutants={
        "every token touches new experts": dict(union=lambda X, x, t, k: t * k),
        "the ratio has γ terms": dict(last=gamma),
        "y is (1 − k/X), whatever the batch": dict(y=lambda x, B: x),
        "the ratio tends to γ + 1": dict(limit=gamma + 1),
    },
    notes="Real routing is neither uniform nor independent: neighbouring tokens share experts, which lowers the ratio.",
)
def experts(union=lambda X, x, t, k: X * (1 - x**t), last=gamma + 1, y=lambda x, B: x**B, limit=1):
    X, t = (Symbol(name, integer=True, positive=True) for name in ("X", "t"))
    batch = Symbol("B", integer=True, positive=True)
    k, x, share = positive("k", "x", "y")
    yield Given(r"Each token takes each expert with probability $k/X\le1$, independently of the other tokens.", k <= X)
    yield Given(r"$0<y<1$.", share < 1)
    yield Where(r"$x=1-k/X$", Definition(x, 1 - k / X))
    yield Identity("An expert escapes all tokens with this chance.", Product(1 - k / X, (j, 1, t)), x**t)
    touched = Sum(1 - Product(1 - k / X, (j, 1, t)), (i, 1, X))
    yield Identity("Means add up over experts, dependent or not.", touched, union(X, x, t, k))
    yield Identity("One token touches $k$.", X * (1 - x**1), k)
    ratio = union(X, x, batch * (gamma + 1), k) / union(X, x, batch, k)
    yield Identity(
        "The ratio is the closed form of a geometric sum.", ratio, committed_length_constant(y(x, batch), last - 1)
    )
    yield Induction("A power of y", j, 1 - share**j, (1 - share) * Sum(share**i, (i, 0, j - 1)))
    yield AtLeast("is at most one.", 1, share**j, because=(1 - share) * Sum(share**i, (i, 0, j - 1)), each=j)
    terms = Sum(share**i, (i, 0, gamma))
    yield AtLeast("So the ratio is at least one", terms, 1, because=Sum(share**i, (i, 1, gamma)))
    yield AtLeast("and at most the positions verified.", gamma + 1, terms, because=Sum(1 - share**i, (i, 0, gamma)))
    yield Rising("It rises with $y$ (two candidates or more add steeper terms),", 1 + share + Sum(share**i, (i, 2, gamma + 2)), share,
                 1 + Sum(i * share ** (i - 1), (i, 2, gamma + 2)))  # fmt: skip
    lam, size = positive("lambda", "B")
    y_of = exp(-lam * size)
    yield Limit(
        r"and $y=e^{-\lambda B}$ falls to zero as the batch grows.",
        (1 - y_of ** (gamma + 1)) / (1 - y_of),
        size,
        oo,
        limit,
    )
    yield Needed(
        "independent routing",
        "if all tokens of a round take the same 2 of 8 experts, the ratio is 1; "
        "independence gives more than 2 for one request and three candidates.",
        committed_length_constant(Rational(3, 4), 3) > 2,
    )
