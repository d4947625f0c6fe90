"""Theorem about stacking: quantizing the target and speculating do not multiply."""

from sympy import Integer, Max, Min, Rational

from specgain.proofs.kernel import EveryOrder, Given, Greater, Identity, Needed, Route, SameSign, theorem
from specgain.proofs.symbols import positive


def roofline(read, work):
    """Return the time of a pass: reading the weights or computing, whichever takes longer."""
    return Max(read, work)


@theorem(
    "P17",
    "Speedups do not multiply",
    says=r"A pass over $n$ positions takes $\max(W,nF)$: reading the weights, or the arithmetic. "
    r"Quantizing the weights shortens the "
    r"read to $W'\le W$ and leaves $F$. Then $S_\text{both}\le S_\text{quant}\,S_\text{spec}$. "
    r"If plain decoding was memory-bound "
    r"($F<W$), $W'<W$, $n>1$ and drafting is free, the two are equal if and only if verification stays memory-bound "
    r"($W'\ge nF$); "
    r"a draft that costs time makes the inequality strict.",
    plain="pass time max(W, nF), W' <= W: S_both <= S_quant S_spec; "
    "equal only if the quantized verification stays memory-bound",
    source="Follows from the roofline model (textbook); the warning is common, we have not seen this proof.",
    claims=["C6.3"],
    mutants={
        "quantization makes reading slower": dict(order=lambda less, more: (more, less)),
        "the inequality is flipped": dict(sign=-1),
        "verification reads the weights once per position": dict(verify=lambda read, work: 4 * read + work),
        "equal also where verification has become compute-bound": dict(bound=lambda f, v, u: f),
        "the draft's cost ratio falls with quantization": dict(power=-1),
        "4-bit weights keep the batch at which arithmetic takes over": dict(nibble=1),
    },
    notes=r"Equality needs the premise $F<W$ as well: where plain decoding is compute-bound already, "
    r"quantizing gains nothing and the "
    r"product is trivially exact.",
)
def do_not_multiply(
    order=lambda less, more: (less, more), sign=1, verify=roofline, bound=lambda f, v, u: f + v + u, power=1, nibble=4
):
    W, W1, F, V, d, E = positive("W", "W'", "F", "V", "d", "E")
    less, more = order(W1, W)
    yield Given(r"Quantizing leaves the arithmetic as it is and never makes reading slower: $W'\le W$.", less <= more)
    yield Given(r"$V=nF$ is the arithmetic of $n\ge1$ positions: $V\ge F$.", F <= V)
    A, A1, B, B1 = positive("A", "A'", "B", "B'")
    S_quant, S_spec, S_both = A / A1, E * A / (d + B), E * A / (d + B1)
    yield Route("any draft")
    yield SameSign(
        r"With pass times $A=\max(W,F)$, $B=\max(W,V)$ (primed: quantized) and a draft of $d$ per round.",
        S_quant * S_spec - S_both,
        A * (d + B1) - A1 * (d + B),
        E * A / (A1 * (d + B) * (d + B1)),
    )
    yield EveryOrder(
        "That is not negative, in whatever order the four times stand.",
        sign * roofline(W, F) * (d + verify(W1, V)),
        sign * roofline(W1, F) * (d + verify(W, V)),
        [W1, W, F, V],
        ordered=[(less, more), (F, V)],
    )
    yield Identity(r"The draft's cost ratio $d/A$ grows by $S_\text{quant}$.", d / A1, (d / A) * S_quant**power)
    yield from _equality(bound)
    P, rate, band, batch, n = positive("P", "R", "b", "B", "n")
    yield Route("where arithmetic takes over")
    read = lambda size: size * P / band  # noqa: E731
    work = batch * n * 2 * P / rate
    yield SameSign(
        r"$P$ weights of 2 bytes, $R$ operations and $b$ bytes per second: memory-bound while $Bn$ is below $R/b$.",
        read(2) - work,
        rate / band - batch * n,
        2 * P / rate,
    )
    yield SameSign(
        r"With 4-bit weights and the same arithmetic: below a quarter of it.",
        read(Rational(1, 2)) - work,
        rate / (nibble * band) - batch * n,
        2 * P / rate,
    )
    yield _arithmetic_quantized()


def _equality(bound):
    """Yield the two cases of a free draft; F = f, V = f + v, and W = W' + w."""
    yield Route("a free draft: when the two are equal")
    f, v, u, w = positive("f", "v", "u", "w")
    read = bound(f, v, u)
    both, product = roofline(read + w, f) * roofline(read, f + v), roofline(read, f) * roofline(read + w, f + v)
    yield Identity(r"Equal where verification stays memory-bound, $W'=nF+u$.", both, product)
    W, W1, F, V = positive("W", "W'", "F", "V")
    yield Given(r"Otherwise $W'<nF$; and $F<W$, $W'<W$, $n>1$.", W1 < V, F < V, F < W, W1 < W)
    slow = roofline(W1, F)
    yield Greater(
        r"Then $\max(W,F)\max(W',V)=WV$ exceeds $\max(W',F)\,W$", W * V, slow * W, because=W * Min(V - W1, V - F)
    )
    yield Greater(r"and $\max(W',F)\,V$: it exceeds the product.", W * V, slow * V, because=V * Min(W - W1, W - F))


def _arithmetic_quantized():
    """Return an example in which quantization speeds up arithmetic even more than reading, and the two do multiply."""
    S = lambda before, after: Rational(before) / after  # noqa: E731
    plain, fast = (Integer(4), Integer(2)), (Integer(3), Rational(1, 2))  # (W, F) before and after
    quant = S(roofline(*plain), roofline(*fast))
    spec = 2 * S(roofline(*plain), roofline(plain[0], 4 * plain[1]))
    both = 2 * S(roofline(*plain), roofline(fast[0], 4 * fast[1]))
    return Needed(
        "the arithmetic is left as it is",
        r"with $n=4$, $\mathrm E[L]=2$, let quantization take $W$ from 4 to 3 and $F$ from 2 to $1/2$: "
        r"$S_\text{both}=8/3>4/3$.",
        both > quant * spec,
    )
