"""What the checker knows about algebra: one normal form, a few sign rules, and exact counter-examples.

Everything here is exact.  A floating-point number in a formula is refused, `normal` rewrites finite sums and
products by rules that hold for every integer limit, `known_sign` says yes only when a listed rule applies, and
`counterexample` looks for rational values at which a claim is false.
"""

import random
from dataclasses import dataclass, field
from functools import reduce

import sympy as sp
from sympy.core.function import AppliedUndef

WILD = sp.Wild("w", properties=[lambda e: e.is_integer is not False])


class NotExact(ValueError):
    """A formula holds a floating-point number; a proof step must be exact."""


def exact(formula):
    """Return `formula` as a SymPy expression; raise NotExact if it holds a float."""
    formula = sp.sympify(formula)
    if formula.has(sp.Float):
        raise NotExact(f"{formula} holds a floating-point number; write it as a fraction, such as Rational(4, 5)")
    return formula


# ---------------------------------------------------------------------------------------------- definitions


@dataclass(frozen=True)
class Recursion:
    """A sequence given by its first value and one step: x[first] = value, x[i] = step(i, x[i−1]).

    `head` is an IndexedBase or a Function.  `unfold` replaces x[n + 2] by its definition in terms of x[n].
    """

    head: object
    first: int
    value: object
    step: object

    def unfold(self, formula):
        return formula.replace(lambda e: _head(e) == self.head, lambda e: self._at(_index(e)))

    def _at(self, index):
        shift, rest = index.as_coeff_Add()
        if rest == 0 and index == self.first:
            return sp.sympify(self.value)
        if not shift.is_Integer or (shift <= 0 if rest != 0 else shift < self.first):
            return self.head[index] if isinstance(self.head, sp.IndexedBase) else self.head(index)
        return sp.sympify(self.step(index, self._at(index - 1)))


@dataclass(frozen=True)
class Definition:
    """A name for a formula: head(i) stands for body(i), for every i (or for a plain symbol, body itself)."""

    head: object
    body: object

    def unfold(self, formula):
        if isinstance(self.head, sp.Expr) and not isinstance(self.head, sp.IndexedBase):
            return formula.subs(self.head, self.body)
        return formula.replace(lambda e: _head(e) == self.head, lambda e: sp.sympify(self.body(_index(e))))


def _head(e):
    return e.base if isinstance(e, sp.Indexed) else e.func if isinstance(e, AppliedUndef) else None


def _index(e):
    return e.indices[0] if isinstance(e, sp.Indexed) else e.args[0]


def unfold(formula, definitions):
    """Return `formula` with every defined name replaced by what it stands for, in order."""
    return reduce(lambda e, definition: definition.unfold(e), definitions, exact(formula))


# ---------------------------------------------------------------------------------------------- normal form


def normal(e):
    """Return `e` with its finite sums and products in one normal form, equal to `e` for all integer limits.

    Sums are split over +, constant factors leave, a limit n + 1 becomes n and the last term stands alone, numeric
    sums are written out.  With the convention that a sum from n + 1 to n is empty, each rule is an identity.
    """
    if not isinstance(e, sp.Basic) or not e.has(sp.Sum, sp.Product):
        return e
    if isinstance(e, (sp.Sum, sp.Product)):
        *inner, (i, low, high) = e.limits
        body = normal(e.func(e.function, *inner) if inner else e.function)
        low, high = normal(low), normal(high)
        return _sum(body, i, low, high) if isinstance(e, sp.Sum) else _product(body, i, low, high)
    return e.func(*map(normal, e.args))


def _sum(body, i, low, high):
    return sp.Add(*(_sum_of_term(t, i, low, high) for t in sp.Add.make_args(sp.expand(body))))


def _sum_of_term(term, i, low, high):
    outside, term = term.as_independent(i, as_Add=False)
    if not term.has(i):
        return outside * term * sp.expand(high - low + 1)
    if term.is_polynomial(i) and not term.has(sp.Indexed, AppliedUndef, sp.Sum, sp.Product):
        return outside * sp.summation(term, (i, low, high))
    before, core, after = _trim(sp.Sum, term, i, low, high)
    return sp.expand(outside * (core + after - before))


def _product(body, i, low, high):
    return sp.Mul(*(_product_of_factor(t, i, low, high) for t in sp.Mul.make_args(sp.powsimp(body))))


def _product_of_factor(factor, i, low, high):
    if not factor.has(i):
        return factor ** sp.expand(high - low + 1)
    if factor.is_Pow and not factor.exp.has(i):
        return _product_of_factor(factor.base, i, low, high) ** factor.exp
    before, core, after = _trim(sp.Product, factor, i, low, high)
    return core * after / before


def _trim(kind, term, i, low, high):
    """Return (terms in front, sum with trimmed limits, terms behind): the sum is core + behind − front."""
    count = sp.expand(high - low + 1)
    if count.is_Integer:
        return _span(kind, term, i, low, 0), _span(kind, term, i, low, int(count)), _span(kind, term, i, low, 0)
    start, stop = sp.S.One if low.is_Integer else low.as_coeff_Add()[1], high.as_coeff_Add()[1] or high
    front, behind = int(start - low), int(high - stop)
    core = _named(kind, term, i, start, stop)
    return _span(kind, term, i, start, -front), core, _span(kind, term, i, stop + 1, behind)


def _span(kind, term, i, start, count):
    """Return the sum (product) of `count` terms from `start`; a negative count takes terms away."""
    where = range(count) if count >= 0 else range(count, 0)
    terms = [normal(term.subs(i, start + j)) for j in where]
    if kind is sp.Sum:
        return sp.Add(*terms) if count >= 0 else -sp.Add(*terms)
    return sp.Mul(*terms) if count >= 0 else 1 / sp.Mul(*terms)


def _named(kind, term, i, low, high):
    """Return the sum with a standard name for its index, so that equal sums look equal."""
    height = 1 + max((int(s.name[1:]) for s in term.atoms(sp.Symbol) - {i} if s.name[0] == "#"), default=0)
    name = sp.Symbol(f"#{height}", integer=True)
    return kind(term.subs(i, name), (name, low, high))


def residual(e):
    """Return 0 if the rules bring `e` to exactly zero, else what is left of it."""
    e = normal(exact(e).rewrite(sp.Abs) if e.has(sp.Max, sp.Min) else exact(e))
    for route in (sp.expand, _over_one_denominator, sp.simplify):
        e = route(e)
        if e == 0:
            return sp.S.Zero
    return e


def _over_one_denominator(e):
    return sp.cancel(sp.together(sp.expand(e, power_base=True, force=False)))


# ---------------------------------------------------------------------------------------------- sign rules


def known_sign(e, facts=(), strict=False):
    """Return True if a rule below shows e ≥ 0 (e > 0 if `strict`); False means "not shown", never "wrong".

    `facts` holds (template, strict) pairs taken as true; a template with the wildcard WILD holds for every index.
    """
    e = sp.sympify(e)

    def know(x, strict=strict):
        return known_sign(x, facts, strict)

    if e.is_Rational:
        return bool(e > 0 if strict else e >= 0)
    if _is_fact(e, facts, strict) or e in (sp.E, sp.pi):
        return True
    if isinstance(e, (sp.Symbol, sp.Indexed, AppliedUndef)):
        return bool(e.is_positive if strict else e.is_nonnegative)
    if e.is_Add:
        return all(know(x, False) for x in e.args) and (not strict or any(know(x, True) for x in e.args))
    if e.is_Mul:
        return _sign_of_product(e.args, know)
    if e.is_Pow or isinstance(e, sp.exp):
        return _sign_of_power(e, know, strict)
    if isinstance(e, sp.log):
        return know(e.args[0] - 1)
    if isinstance(e, sp.Abs):
        return not strict
    if isinstance(e, (sp.Max, sp.Min)):
        return (any if isinstance(e, sp.Max) else all)(map(know, e.args))
    if isinstance(e, (sp.Sum, sp.Product)):
        return _sign_of_sum(e, know, strict)
    return False


def _is_fact(e, facts, strict):
    for template, fact_is_strict in facts:
        if strict and not fact_is_strict:
            continue
        if e.match(template) if template.has(WILD) else _proportional(e, template):
            return True
    return False


def _proportional(e, template):
    """Return True if e is the template times a positive rational number."""
    ratio = e.as_content_primitive()[1], template.as_content_primitive()[1]
    return sp.expand(ratio[0] - ratio[1]) == 0


def _sign_of_product(factors, know):
    flipped = [x for x in factors if not know(x, False) and know(-x, False)]
    rest = [x for x in factors if x not in flipped]
    return len(flipped) % 2 == 0 and all(map(know, rest)) and all(know(-x) for x in flipped)


def _sign_of_power(e, know, strict):
    base, power = e.as_base_exp()
    if not (base.is_real or know(base, False)) or power.is_real is not True:
        return False
    if know(base, True):
        return True
    if power.is_Integer and power % 2 == 0:
        return not strict and (power > 0 or base.is_nonzero is True)
    return not strict and know(base, False) and know(power, False)


def _sign_of_sum(e, know, strict):
    (i, low, high), *outer = e.limits
    if outer:
        return know(e.func(e.func(e.function, e.limits[0]), *outer))
    inside = sp.Dummy("i", integer=True, nonnegative=low.is_nonnegative, positive=low.is_positive)
    if not know(high - low + 1, strict and isinstance(e, sp.Sum)):
        return False
    return know(e.function.subs(i, inside))


# ---------------------------------------------------------------------------------------------- counter-examples

FRACTIONS = [sp.Rational(x) for x in "1/2 1/3 2 1 3/4 2/3 3 1/4 5/2 4/5 9/10 1/5 0 5 1/10 10".split()]
HOLDS = {"=": lambda x: x == 0, ">=": lambda x: x >= 0, ">": lambda x: x > 0}


@dataclass
class Sampler:
    """Draws exact values that satisfy the premises, and evaluates formulas at them."""

    facts: tuple
    definitions: tuple
    seed: int = 0
    values: dict = field(default_factory=dict)

    def __post_init__(self):
        self.random = random.Random(self.seed)

    def draw(self, atom):
        """Return an exact value for one symbol or term of a sequence that fits its assumptions."""
        if atom.is_integer:
            least = 1 if atom.is_positive else 0 if atom.is_nonnegative else -2
            return sp.Integer(self.random.randint(least, 4))
        pool = [x for x in FRACTIONS if not (x == 0 and atom.is_positive)]
        value = self.random.choice(pool)
        return value if atom.is_nonnegative or self.random.random() < 0.5 else -value

    def number(self, formula):
        """Return the exact value of `formula` at the values drawn so far, drawing what is missing."""
        formula = unfold(formula, self.definitions)
        labels = {base.label for base in formula.atoms(sp.IndexedBase)}
        for s in sorted(formula.free_symbols, key=str):
            if isinstance(s, sp.Symbol) and s not in labels and s not in self.values:
                self.values[s] = self.draw(s)
        formula = formula.subs({s: v for s, v in self.values.items() if isinstance(s, sp.Symbol)}, simultaneous=True)
        formula = unfold(normal(formula), self.definitions)
        for atom in sorted(formula.atoms(sp.Indexed, AppliedUndef), key=str):
            if atom not in self.values:
                self.values[atom] = self.draw(atom)
        value = formula.xreplace(self.values)
        return value if value.is_Rational else sp.simplify(value)

    def premises_hold(self):
        """Return True if every premise holds at the values drawn (templates at every index in sight)."""
        instances = [(f, ">" if strict else ">=") for template, strict in self.facts for f in self._instances(template)]
        return all(_true(self.number(formula), relation) for formula, relation in instances)

    def _instances(self, template):
        if not template.has(WILD):
            return [template]
        heads = {_head(e) for e in template.atoms(sp.Indexed, AppliedUndef)}
        seen = {int(_index(a)) for a in self.values if _head(a) in heads and _index(a).is_Integer}
        span = range(min(seen), max(seen) + 1) if seen else ()
        instances = [template.subs(WILD, k) for k in span]
        terms = [{t for t in f.atoms(sp.Indexed, AppliedUndef) if _head(t) in heads} for f in instances]
        return [f for f, needed in zip(instances, terms, strict=True) if needed <= self.values.keys()]


def _true(value, relation):
    """Return whether an exact value satisfies the relation to zero; None if that cannot be told."""
    try:
        return bool(HOLDS[relation](value)) if value.is_comparable or value.is_Rational else None
    except TypeError:
        return None


def counterexample(claims, facts, definitions, tries, seed=0):
    """Return (values, left-over) where some claim fails although all premises hold; None if none was found.

    `claims` holds (formula, relation) pairs: formula = 0, ≥ 0 or > 0.  The second result is the number of
    points tried at which the premises held; zero would mean that the premises contradict each other.
    """
    tried = 0
    for attempt in range(tries):
        for formula, relation in claims:
            sampler = Sampler(tuple(facts), tuple(definitions), seed=seed + attempt)
            value = sampler.number(formula)
            if value.has(sp.nan, sp.zoo, sp.oo) or not sampler.premises_hold():
                continue
            tried += 1
            if _true(value, relation) is False:
                return (sampler.values, value, relation), tried
    return None, tried
