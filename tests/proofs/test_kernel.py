"""The checker itself: what is false is refuted, what is not shown fails, and nothing inexact gets in."""

import pytest
import sympy as sp

from specgain.proofs import kernel, points
from specgain.proofs.acceptance import SURVIVAL
from specgain.proofs.algebra import Definition, NotExact, Recursion, normal, residual
from specgain.proofs.kernel import (
    AtLeast,
    Context,
    EveryOrder,
    Given,
    Greater,
    Human,
    Identity,
    Induction,
    Lemma,
    Limit,
    Rising,
    SameSign,
    Tangent,
    Where,
)
from specgain.proofs.signs import Fact, known_sign
from specgain.proofs.symbols import E, a, a_, gamma, i, j, k, n, p, s_

x, y = sp.symbols("x y", real=True)
t = sp.Symbol("t", positive=True)


def verdict(step, *parts):
    (*_, (_, last)) = kernel._run((*parts, step), ("test",)).verdicts
    return last.status


def test_a_true_identity_is_proved_and_a_false_one_is_refuted():
    assert verdict(Identity("", (x + y) ** 2, x**2 + 2 * x * y + y**2)) == "proved"
    assert verdict(Identity("", (x + y) ** 2, x**2 + y**2)) == "refuted"


def test_a_step_that_holds_at_some_points_only_is_refuted():
    assert verdict(Identity("", x * (x - 1) * (x - 2) * (x + 1) * (2 * x - 1), 0)) == "refuted"


def test_an_unknown_function_is_undecided_and_that_is_a_failure():
    square = (x - sp.Rational(1, 2)) ** 2
    assert verdict(AtLeast("true, but no rule sees it", x**2 - x + 1, 0)) == "undecided"
    assert verdict(AtLeast("", x**2 - x + 1, 0, because=square + sp.Rational(3, 4))) == "proved"


def test_a_certificate_must_equal_the_difference():
    assert verdict(AtLeast("", x**2 + 1, 0, because=x**2)) == "undecided"


def test_strict_needs_strictness():
    assert verdict(Greater("", x**2, 0)) == "refuted"
    assert verdict(Greater("", x**2 + t, 0)) == "proved"


@pytest.mark.parametrize(
    "build",
    [
        lambda: Identity("", 0.5 * x, x / 2),
        lambda: AtLeast("", sp.Float(1) * x, 0),
        lambda: Given("", x <= 0.5).enter(Context()),
        lambda: Where("", Definition(t, 0.5)).enter(Context()),
        lambda: Where("", Recursion(s_, 0, 1, lambda index, before: 0.5 * before)).enter(Context()),
        lambda: Induction("", n, n * x, n * x, base=0.0),
    ],
)
def test_floating_point_is_refused(build):
    with pytest.raises(NotExact, match="fraction"):
        build()


def test_induction_needs_base_and_step():
    triangle = sp.Sum(k * p[0], (k, 1, n))
    assert verdict(Induction("", n, sp.Sum(k, (k, 1, n)), n * (n + 1) / 2)) == "proved"
    assert verdict(Induction("", n, triangle, p[0] * n**2)) == "refuted"
    assert (
        verdict(Induction("wrong base only", n, sp.Sum(p[k], (k, 1, n)), sp.Sum(p[k], (k, 1, n)) + p[0])) == "refuted"
    )


def test_induction_from_another_base():
    assert verdict(Induction("", n, sp.Sum(p[k], (k, 1, n)) - p[1], sp.Sum(p[k], (k, 2, n)), base=1)) == "proved"


def test_a_premise_that_is_always_false_is_refused():
    with pytest.raises(ValueError, match="false for every value"):
        Given("", t < -1)


def test_limits_are_compared_exactly():
    assert verdict(Limit("", sp.sin(x) / x, x, 0, 1)) == "proved"
    assert verdict(Limit("", (1 - a ** (gamma + 1)) / (1 - a), a, 1, gamma)) == "refuted"


def test_same_sign_needs_a_positive_factor():
    assert verdict(SameSign("", t * x, x, t)) == "proved"
    assert verdict(SameSign("", -t * x, x, -t)) == "refuted"


def test_a_tangent_lies_below_a_convex_function():
    assert verdict(Tangent("", t - 1, sp.log(t), t, 1)) == "proved"
    assert verdict(Tangent("", sp.exp(x), 1 + x, x, 0)) == "proved"
    assert verdict(Tangent("", sp.log(t), t - 1, t, 1)) == "refuted"
    assert verdict(Tangent("touches elsewhere", t, sp.log(t), t, 1)) == "undecided"


def test_every_order_covers_all_orders():
    u, v, w = sp.symbols("u v w", nonnegative=True)
    larger = EveryOrder("", sp.Max(u, v) * w, u * sp.Min(v, w), [u, v, w])
    assert len(larger.orders()) == 6 and verdict(larger) == "proved"
    assert verdict(EveryOrder("", sp.Max(u, v), w, [u, v, w])) == "refuted"
    assert verdict(EveryOrder("", v, sp.Max(u, 0), [u, v], ordered=[(u, v)]), Given("", u <= v)) == "proved"
    assert verdict(EveryOrder("the order is not given", v, sp.Max(u, 0), [u, v], ordered=[(u, v)])) == "refuted"


def test_every_order_refuses_quantities_that_may_be_negative():
    assert verdict(EveryOrder("", sp.Max(x, y), sp.Min(x, y), [x, y])) == "undecided"


def test_a_step_is_not_used_for_every_value_of_a_symbol_that_a_premise_ties_down():
    u = sp.Symbol("u", nonnegative=True)
    assert verdict(AtLeast("", u, 1, each=u), Given("", u >= 1)) == "undecided"
    assert verdict(AtLeast("", u, 1), Given("", u >= 1)) == "proved"
    assert verdict(AtLeast("", u + t, 0, each=u), Where("", Definition(t, u + 1))) == "undecided"


# False statements that hold at every point which the search for counter-examples visits: only the rules can stop them.

ZERO_TO_FOUR = sp.prod([n - m for m in range(5)])
POOL = {sp.Rational(c.numerator, c.denominator) for c in points.UNIT + points.LARGE}


def unseen(z):
    """Return a square that is zero at every value that is ever drawn for a real z."""
    return sp.prod([(z - c) ** 2 * (z + c) ** 2 for c in POOL if c] + [z**2])


negative = sp.Symbol("m", integer=True, negative=True)
bound = sp.Symbol("b", integer=True, nonnegative=True)
u, z0 = sp.symbols("u z0", nonnegative=True)
TINY = sp.Rational(1, 10**6)
FALSE = {
    "a sum from 0 does not stay at its first index": [AtLeast("", sp.Sum(3 - i, (i, 0, n)), 0)],
    "a sum from -9 does not stay below zero": [AtLeast("", sp.Sum(-1 - i, (i, -10, n)), 0)],
    "a product likewise": [AtLeast("", sp.Product(3 - i, (i, 0, n)), 0)],
    "for every negative m is not for every n": [AtLeast("", 5 - negative, 0, each=negative), AtLeast("", 5, n)],
    "an induction step that divides by zero": [Induction("", n, ZERO_TO_FOUR, 0, times=(n + 1) / (n - 4))],
    "an induction over the real numbers": [Induction("", x, sp.sin(60 * sp.pi * x), 0)],
    "an induction whose n hides in a letter": [
        Where("", Definition(t, n)),
        Induction("", n, ZERO_TO_FOUR * (n - 1 - t), 0, times=0),
    ],
    "an induction whose n hides in a function": [
        Where("", Definition(E, lambda index: index + n)),
        Induction("", n, ZERO_TO_FOUR * (n - 1 - E(0)), 0, times=0),
    ],
    "for every x, while x hides in a function": [
        Where("", Definition(E, lambda index: index + x)),
        AtLeast("", unseen(x) * (E(1) - x), 0, because=unseen(x), each=x),
        AtLeast("", unseen(y) * (E(1) - y), 0),
    ],
    "a tangent at a point where x cannot be": [Tangent("", t**3, 3 * TINY**2 * t + 2 * TINY**3, t, -TINY)],
    "a letter of the reader's that EveryOrder uses too": [EveryOrder("", unseen(z0) * u, unseen(z0) * z0, [u])],
}


@pytest.mark.parametrize("parts", FALSE.values(), ids=FALSE)
def test_a_false_statement_without_a_visible_counterexample_is_not_proved(parts):
    assert verdict(parts[-1], *parts[:-1]) == "undecided"


CITED = {
    "for every b, which a premise ties down": (
        [Given("", bound <= 2), AtLeast("", 5, bound, because=[2 - bound, sp.Integer(3)])],
        [Given("", bound <= 2), Lemma("", "P90", sp.Integer(5) >= bound, each=bound)],
    ),
    "a letter that stands for 1 only there": (
        [Where("", Definition(t, sp.Integer(1))), AtLeast("", unseen(t), unseen(t) * t, because=0)],
        [Lemma("", "P90", unseen(t) >= unseen(t) * t)],
    ),
    "a value that the letter cannot have": (
        [AtLeast("", unseen(t) * t, 0)],
        [Lemma("", "P90", unseen(x) * x >= 0, at={t: x})],
    ),
    "a premise for every i that is known for one i": (
        [Given("", a_[i] <= 1, each=i), AtLeast("", ZERO_TO_FOUR**2 * (1 - a_[j + 1]), 0)],
        [Given("", a_[i] <= 1), Lemma("", "P90", ZERO_TO_FOUR**2 * (1 - a_[j + 1]) >= 0)],
    ),
}


@pytest.mark.parametrize(("cited", "parts"), CITED.values(), ids=CITED)
def test_a_lemma_is_not_stretched_beyond_what_it_states(monkeypatch, cited, parts):
    monkeypatch.setattr(kernel, "REGISTRY", dict(kernel.REGISTRY))
    proof = kernel.theorem("P90", "", says="", plain="", source="", mutants=dict.fromkeys("abc", {}))(
        lambda: iter(cited)
    )
    assert proof.check().status == "proved"
    assert verdict(parts[-1], *parts[:-1]) == "undecided"


def test_a_letter_means_one_thing():
    with pytest.raises(ValueError, match="twice"):
        kernel._run((Where("", Definition(t, x)), Where("", Definition(t, y))), ())


def test_a_lemma_whose_names_mean_something_else_is_not_used():
    other = Where("", Recursion(s_, 0, 1, lambda index, before: before / 2))
    bounded = Given("", a_[i] <= 1, each=i)
    assert verdict(Lemma("true here, but not what P5 says", "P5", s_[i] >= s_[i + 1]), bounded, other) == "undecided"


def test_rising_needs_a_positive_slope():
    assert verdict(Rising("", t**3, t, 3 * t**2)) == "proved"
    assert verdict(Rising("", t**2 - t, t, 2 * t - 1)) == "refuted"


def test_premises_that_contradict_each_other_prove_nothing():
    assert verdict(AtLeast("", x, 0), Given("", x >= 1), Given("", x <= -1)) == "undecided"


def test_a_lemma_must_be_proved_itself_and_state_what_is_used():
    bounded = Given("", a_[i] <= 1, each=i)
    assert verdict(Lemma("", "P5", s_[i] >= s_[i + 1], each=i), bounded, SURVIVAL) == "proved"
    assert verdict(Lemma("", "P5", 2 * s_[i] >= s_[i + 1], each=i), bounded, SURVIVAL) == "undecided"
    assert verdict(Lemma("its premise a_i <= 1 is not given", "P5", s_[i] >= s_[i + 1]), SURVIVAL) != "proved"
    with pytest.raises(KeyError, match="P1, P2"):
        verdict(Lemma("", "P99"))


def test_a_circle_of_lemmas_is_refused(monkeypatch):
    monkeypatch.setattr(kernel, "REGISTRY", dict(kernel.REGISTRY))
    wrong = {"a": {}, "b": {}, "c": {}}
    circle = kernel.theorem("P90", "", says="", plain="", source="", mutants=wrong)(lambda: iter([Lemma("", "P91")]))
    kernel.theorem("P91", "", says="", plain="", source="", mutants=wrong)(lambda: iter([Lemma("", "P90")]))
    assert circle.check().status == "failed"


def test_an_accepted_mutant_and_an_undecided_mutant_both_fail_the_proof(monkeypatch):
    monkeypatch.setattr(kernel, "REGISTRY", dict(kernel.REGISTRY))

    def build(step=None):
        yield step or Identity("", x, x)

    hard = AtLeast("true, so it cannot be refuted", x**2 - x + 1, 0)
    mutants = {"false": dict(step=Identity("", x, y)), "true": {}, "not shown": dict(step=hard)}
    proof = kernel.theorem("P92", "", says="", plain="", source="", mutants=mutants)(build)
    assert [m.rejected for m in proof.mutants] == [True, False, False]
    assert proof.prove().status == "failed"


def test_a_proof_in_words_only_is_not_proved(monkeypatch):
    monkeypatch.setattr(kernel, "REGISTRY", dict(kernel.REGISTRY))
    wrong = {name: dict(step=Identity("", x, x + 1)) for name in "abc"}
    proof = kernel.theorem("P93", "", says="", plain="", source="", mutants=wrong)(
        lambda step=None: iter([step or Human("trust me")])
    )
    assert proof.prove().status == "failed"


def test_three_mutants_are_the_least():
    with pytest.raises(ValueError, match="at least three"):
        kernel.theorem("P94", "", says="", plain="", source="", mutants={})


def test_a_recursion_unfolds_down_to_its_first_value():
    rule = Recursion(s_, 0, 1, lambda index, before: a_[index] * before)
    assert rule.unfold(s_[n + 2]) == a_[n + 2] * a_[n + 1] * s_[n]
    assert rule.unfold(s_[2]) == a_[2] * a_[1]
    assert rule.unfold(s_[n]) == s_[n]


FORMULAS = [
    sp.Sum(p[k], (k, 0, n + 2)),
    sp.Sum(p[k], (k, n - 1, n + 1)),
    sp.Sum(k * p[k] + 2, (k, 1, n - 1)),
    sp.Sum(p[k], (k, n + 1, 2 * n)),
    sp.Sum(sp.Sum(p[k] * p[i], (k, i, n + 1)), (i, 1, n)),
    sp.Product(2 * p[j], (j, 1, n + 1)),
    sp.Sum(sp.Product(a_[j], (j, 1, i)), (i, 1, n + 1)),
    sp.Sum(a**i, (i, 2, n + 1)),
    sp.Product(p[j] ** 2, (j, 2, n + 2)),
]


@pytest.mark.parametrize("size", range(5))
@pytest.mark.parametrize("formula", FORMULAS, ids=str)
def test_the_normal_form_keeps_the_value(formula, size):
    """Written out for concrete n, a formula and its normal form agree (empty and reversed sums included)."""
    terms = [p[m] for m in range(-2, 12)] + [a_[m] for m in range(12)]
    weights = {term: sp.Rational(m + 2, 3 + m * m) for m, term in enumerate(terms)}
    here, there = (add_up(e.subs(n, size)).xreplace(weights) for e in (formula, normal(formula)))
    assert here == there


def add_up(e):
    """Return `e` with its sums and products over numbers written out by a plain loop (reversed ones taken away)."""
    if not e.has(sp.Sum, sp.Product):
        return e
    if not isinstance(e, (sp.Sum, sp.Product)):
        return e.func(*map(add_up, e.args))
    *inner, (index, low, high) = e.limits
    body = e.func(e.function, *inner) if inner else e.function
    here = [add_up(body.subs(index, m)) for m in range(low, high + 1)]
    taken = [add_up(body.subs(index, m)) for m in range(high + 1, low)]
    return sp.Add(*here) - sp.Add(*taken) if isinstance(e, sp.Sum) else sp.Mul(*here) / sp.Mul(*taken)


def test_sign_rules_say_yes_only_when_they_know():
    fact = [Fact(1 - a_[i], each=(i,))]
    assert known_sign(s_[n] * (1 - a_[n + 3]), fact)
    assert not known_sign(s_[n] * (1 - a_[n + 3]), [])
    assert not known_sign(s_[n] * (2 - a_[n + 3]) - 1, fact)
    assert known_sign((-t) * (-t - 1), strict=True) and not known_sign(-t)
    assert known_sign(sp.Sum(p[k], (k, 1, n))) and not known_sign(sp.Sum(p[k], (k, 1, n - 2)))
    assert known_sign(sp.exp(x), strict=True) and not known_sign(x**3) and known_sign(x**2)
    assert residual(sp.Max(x, y) + sp.Min(x, y) - x - y) == 0
