"""Theorems about exact verification: nothing is lost, what acceptance is, and how far two rules can go."""

from fractions import Fraction

from sympy import Abs, Eq, IndexedBase, Max, Min, Rational, Sum, Symbol

from specgain.proofs.algebra import Definition
from specgain.proofs.kernel import AtLeast, Given, Human, Identity, Needed, Route, Where, theorem
from specgain.proofs.symbols import i, j, n, p, positive, q
from specgain.verification import committed_length, output_law, round_law, strings

u_, v_ = IndexedBase("u", nonnegative=True), IndexedBase("v", nonnegative=True)  # not all zero


def total(term, index=i):
    """Return the sum of `term` over the vocabulary, tokens 1…n+1."""
    return Sum(term, (index, 1, n + 1))


@theorem(
    "P16",
    "Exact verification loses nothing",
    says=r"Draft $x\sim q$, accept with probability $\min(1,p_x/q_x)$, else draw from the residual $\propto(p-q)_+$: "
    r"the token has "
    r"law $p$, for any $p$ and $q$. Acceptance is $\alpha=\sum_x\min(p_x,q_x)=1-\tfrac12\sum_x|p_x-q_x|$; "
    r"per position no rule that "
    r"keeps the law $p$ accepts more. A greedy draft is accepted with probability $p(x)$. "
    r"Verifying a block jointly is exact too and never accepts fewer tokens.",
    plain="accept with min(1, p/q), else draw from (p - q)+: the law is p; acceptance is sum min(p, q) = 1 - TV(p, q)",
    source="Leviathan et al. 2023, Theorem 3.5 and appendix A.1; Chen et al. 2023; block verification: Sun et al. "
    "2025.",
    claims=["C0.5", "C4.2", "C6.0", "C6.1"],
    mutants={
        "the residual is (q − p)+": dict(residual=lambda p, q: Max(q - p, 0)),
        "the residual is p − q without the positive part": dict(residual=lambda p, q: p - q),
        "accepted with probability p, not min(1, p/q)": dict(kept=lambda p, q: p * q),
        "acceptance is one minus the whole L1 distance": dict(half=2),
        "a greedy draft is accepted with probability Σ min(p, q)": dict(peak=Sum(Min(p[i], q[i]), (i, 1, n + 1))),
        "a block's residual forgets the carried factor": dict(carried=lambda P: 1),
        "a block stops with the chance of the residual alone": dict(stop=lambda r, P: r),
    },
    notes=r"Above temperature zero a greedy draft is accepted with probability $p(x)$ of its one token, "
    r"not with $\sum\min(p,q)$ of the "
    r"distribution whose peak it took. That the token rule is optimal per position does not contradict block "
    r"verification, which "
    r"decides about many positions together.",
)
def lossless(
    residual=lambda p, q: Max(p - q, 0), kept=Min, half=1, peak=None, carried=lambda P: P,
    stop=lambda r, P: r / (r + 1 - P),
):  # fmt: skip
    yield Given(
        r"$p$ and $q$ are distributions over the same $n+1$ tokens; at each position they depend on the prefix only."
    )
    yield Where(r"$p_x=u_x/\sum_y u_y$, the target", Definition(p, lambda x: u_[x] / total(u_[j], j)))
    yield Where(r"$q_x=v_x/\sum_y v_y$, the draft", Definition(q, lambda x: v_[x] / total(v_[j], j)))
    yield Route("one position, token by token")
    x, d = positive("x", "d")
    yield Identity(r"$q\min(1,p/q)=\min(p,q)$: where $p=q+d$,", x * Min(1, (x + d) / x), Min(x + d, x))
    yield Identity(r"and where $q=p+d$.", (x + d) * Min(1, x / (x + d)), Min(x, x + d))
    yield Identity("Target probabilities sum to one,", total(p[i]), 1)
    yield Identity("and so do draft probabilities.", total(q[i]), 1)
    keep, rest = kept(p[i], q[i]), residual(p[i], q[i])
    yield Identity("What is accepted and what is then missing add up to the target.", keep + rest, p[i])
    yield Identity("So a rejection has the chance of all that is missing.", 1 - total(keep), total(rest))
    again = total(rest) * (rest / total(rest))
    yield Identity("Accepted, or rejected and drawn again: the token has the target's law.", keep + again, p[i])
    yield Identity("If nothing is missing, every token is accepted and has it too.", Min(x, x), x)
    yield Identity("Acceptance is one minus the total variation.", total(keep), 1 - half * total(Abs(p[i] - q[i])) / 2)
    yield from _no_rule_accepts_more()
    yield from _greedy_draft(p[n + 1] if peak is None else peak)
    yield from _block(carried, stop)
    yield _two_tokens()


def _no_rule_accepts_more():
    """Yield the steps that no joint law of drafted and kept token agrees more often than Σ min(p, q)."""
    yield Route("no rule per position accepts more")
    both = IndexedBase("c", nonnegative=True)  # c_{x,y}: x was drafted and y kept
    k = Symbol("k", integer=True, positive=True)
    row, column = Sum(both[k, j], (j, 1, n + k)), Sum(both[i, k], (i, 1, n + k))
    others = [Sum(both[k, j], (j, 1, k - 1)), Sum(both[k, j], (j, k + 1, n + k))]
    yield AtLeast(r"In any joint law $c$ of the drafted and the kept token: drafted and kept is at most drafted,",
                  row, both[k, k], because=others)  # fmt: skip
    others = [Sum(both[i, k], (i, 1, k - 1)), Sum(both[i, k], (i, k + 1, n + k))]
    yield AtLeast("and at most kept.", column, both[k, k], because=others)
    smaller = Min(row - both[k, k], column - both[k, k])
    yield AtLeast(r"So $c_{k,k}\le\min(q_k,p_k)$, and the sum over $k$ is at most $\alpha$.",
                  Min(row, column), both[k, k], because=smaller)  # fmt: skip


def _greedy_draft(peak):
    """Yield the steps that a draft which is sure of token n + 1 is accepted with the probability `peak`."""
    yield Route("a greedy draft")
    top = p[n + 1]
    yield AtLeast("A probability is at most one.", 1, top, because=Sum(p[i], (i, 1, n)))
    one_hot = Sum(Min(p[i], 0), (i, 1, n)) + Min(top, 1)
    yield AtLeast(
        r"With $q=1$ at token $n+1$, $\sum\min(p,q)$ is at least $p_{n+1}$,", one_hot, peak, because=Min(0, 1 - top)
    )
    yield AtLeast("and at most.", peak, one_hot, because=Max(0, top - 1))


def _block(carried, stop):
    """Yield the steps that verifying a block jointly (Sun et al. 2025) is exact and keeps no fewer tokens."""
    yield Route("a block, verified jointly")
    P, M, d, r = positive("P", "M", "d", "r")
    yield Given(r"$P\le1$ is the carried factor: $P_0=1$, $P_{i+1}=\min(P_i\,p/q,1)$ along the draft.", P <= 1)
    yield Given(r"$M\le P$ is the chance that token-wise verification keeps the same prefix.", M <= P)
    C = carried(P)
    keep, rest = Min(P * p[i], q[i]), Max(C * p[i] - q[i], 0)
    yield Identity(r"Token $x$ comes next: drafted, with $qP_{i+1}=\min(Pp,q)$, or drawn from the residual. Together $Pp$.",
                   keep + rest, P * p[i])  # fmt: skip
    yield Identity(
        r"Over all tokens: continuing has chance $P-r$, with $r=\sum(Pp-q)_+$.", total(keep), P - total(rest)
    )
    halt = stop(r, P)
    yield Identity(r"A test with chance $r/(r+1-P)$ at each prefix keeps at least this prefix with chance $P$.",
                   halt + (1 - halt) * (P - r), P)  # fmt: skip
    yield Identity(
        r"So it stops exactly here with chance $r$, and the residual is drawn as often as needed.", P - (P - r), r
    )
    larger = Min(P * (1 + d) - M, 1 - M)
    yield AtLeast(r"It keeps no less than token by token: where $p/q=1+d\ge1$,", Min(P * (1 + d), 1), M, because=larger)
    smaller = Min((P - M) / (1 + d), 1 - M / (1 + d))
    yield AtLeast(r"and where $p/q=1/(1+d)\le1$.", Min(P / (1 + d), 1), M / (1 + d), because=smaller)
    yield Human(
        "By induction over positions every prefix of the output has the target's law; later rounds start afresh."
    )


def _two_tokens():
    """Return the counter-example to the token rule's optimality over a block, by walking through all drafts."""
    target = lambda prefix: (Fraction(1, 3), Fraction(2, 3))  # noqa: E731
    draft = lambda prefix: (Fraction(2, 3), Fraction(1, 3))  # noqa: E731
    laws = [round_law(target, draft, 2, rule) for rule in ("token", "block")]
    token, block = (Rational(kept.numerator, kept.denominator) for kept in (committed_length(law) - 1 for law in laws))
    return Needed(
        "token by token",
        r"with $p=(\tfrac13,\tfrac23)$, $q=(\tfrac23,\tfrac13)$ and $\gamma=2$ the token rule keeps $10/9$ tokens, "
        r"the block rule $11/9$; "
        "both laws equal the target's on all eight strings.",
        Eq(token, Rational(10, 9)),
        Eq(block, Rational(11, 9)),
        all(output_law(law, target, 3) == strings(target, 3) for law in laws),
    )
