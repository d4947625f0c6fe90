"""What the checker knows about algebra: definitions, a normal form of finite sums, and when a formula is zero.

Everything here is exact: a floating-point number in a formula is refused, and `normal` rewrites sums and products
by rules that hold for every integer limit.
"""

from dataclasses import dataclass
from functools import lru_cache, reduce

import sympy as sp
from sympy.core.function import AppliedUndef


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
        return formula.replace(lambda e: head_of(e) == self.head, lambda e: self._at(*indices_of(e)))

    def spelled(self):
        """Return what it says, for comparison: first index, first value, and the step from a generic term."""
        index, before = sp.Symbol("#i", integer=True, positive=True), sp.Symbol("#x")
        return sp.Integer(self.first), sp.sympify(self.value), sp.sympify(self.step(index, before))

    def _at(self, index):
        shift, rest = index.as_coeff_Add()
        if rest == 0 and index == self.first:
            return exact(self.value)
        if not shift.is_Integer or (shift <= 0 if rest != 0 else shift < self.first):
            return self.head[index] if isinstance(self.head, sp.IndexedBase) else self.head(index)
        return exact(self.step(index, self._at(index - 1)))


@dataclass(frozen=True)
class Definition:
    """A name for a formula: head(i) stands for body(i), for every i (or for a plain symbol, body itself)."""

    head: object
    body: object

    def unfold(self, formula):
        if isinstance(self.head, sp.Expr) and not isinstance(self.head, sp.IndexedBase):
            return formula.subs(self.head, exact(self.body))
        return formula.replace(lambda e: head_of(e) == self.head, lambda e: exact(self.body(*indices_of(e))))

    def spelled(self):
        """Return what it says, for comparison: the body at a generic index."""
        if not callable(self.body):
            return (sp.sympify(self.body),)
        generic = sp.symbols(f"#i:{self.body.__code__.co_argcount}", integer=True, positive=True)
        return (sp.sympify(self.body(*generic)),)


def same_notation(cited, here):
    """Return True if a name means here what it means in a cited proof (whose first value may be any symbol)."""
    pairs = zip(cited.spelled(), here.spelled(), strict=False)
    return type(cited) is type(here) and all(a == b or (n == 1 and a.is_Symbol) for n, (a, b) in enumerate(pairs))


def names_in(formulas, definitions):
    """Return the heads that occur in the formulas, in what those stand for, and so on."""
    heads, todo = set(), list(formulas)
    while todo:
        new = {head_of(t) for t in todo.pop().atoms(sp.Indexed, AppliedUndef)} - heads
        heads |= new
        todo += [formula for d in definitions if d.head in new for formula in d.spelled()]
    return heads


def head_of(e):
    """Return the IndexedBase of a[i] or the function of f(i); None for anything else."""
    return e.base if isinstance(e, sp.Indexed) else e.func if isinstance(e, AppliedUndef) else None


def indices_of(e):
    """Return the indices of a[i] or the arguments of f(i)."""
    return e.indices if isinstance(e, sp.Indexed) else e.args


def unfold(formula, definitions):
    """Return `formula` with every defined name replaced by what it stands for, again and again until none is left."""
    formula = exact(formula)
    for _ in range(10):
        written_out = reduce(lambda e, definition: definition.unfold(e), definitions, formula)
        if written_out == formula:
            break
        formula = written_out
    return formula


# ---------------------------------------------------------------------------------------------- normal form


def normal(e):
    """Return `e` with its finite sums and products in one normal form, equal to `e` for all integer limits.

    Sums are split over +, constant factors leave, every sum starts at 1, a limit n + 1 becomes n and the last term
    stands alone, numeric sums are written out.  With Karr's convention (a sum from n + 1 to n is empty, one that runs
    backwards takes terms away) each rule is an identity.
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
    if sp.expand(high - low).is_Integer:
        return sp.expand(outside * _span(sp.Sum, term, i, low, int(high - low) + 1))
    return sp.expand(outside * (_from_one(sp.Sum, term, i, high) - _from_one(sp.Sum, term, i, low - 1)))


def _product(body, i, low, high):
    return sp.Mul(*(_product_of_factor(t, i, low, high) for t in sp.Mul.make_args(sp.powsimp(body))))


def _product_of_factor(factor, i, low, high):
    if not factor.has(i):
        return factor ** sp.expand(high - low + 1)
    if factor.is_Pow and not factor.exp.has(i):
        return _product_of_factor(factor.base, i, low, high) ** factor.exp
    if sp.expand(high - low).is_Integer:
        return _span(sp.Product, factor, i, low, int(high - low) + 1)
    return _from_one(sp.Product, factor, i, high) / _from_one(sp.Product, factor, i, low - 1)


def _from_one(kind, term, i, high):
    """Return the sum (product) from 1 to `high`: the last terms, counted off a limit n + 3, stand alone."""
    last, rest = sp.expand(high).as_coeff_Add()
    if rest == 0:
        return _span(kind, term, i, 1, int(last))
    core, end = _named(kind, term, i, sp.S.One, rest), _span(kind, term, i, rest + 1, int(last))
    return core + end if kind is sp.Sum else core * end


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


@lru_cache(maxsize=4096)
def residual(e):
    """Return 0 if the rules bring `e` to exactly zero, else what is left of it."""
    e = normal(exact(e).rewrite(sp.Abs) if e.has(sp.Max, sp.Min) else exact(e))
    names = {part: sp.Dummy(f"x{m}", **_signs(part)) for m, part in enumerate(_largest_sums(e))}
    short = e.xreplace(names)
    if not _clearly_not_zero(short):
        short = sp.cancel(sp.together(sp.expand(short)))
        short = short if short == 0 or short.is_rational_function() else sp.simplify(short)
    return sp.S.Zero if short == 0 else short.xreplace({name: part for part, name in names.items()})


def _clearly_not_zero(e):
    """Return True if `e` is far from zero at one point: then no time is spent on it.

    The only place where a number is rounded.  It can make a step fail sooner; it cannot make one pass.
    """
    point = {s: sp.Integer(m + 2) if s.is_integer else sp.Rational(m + 3, m + 8) for m, s in enumerate(_in_order(e))}
    value = e.subs(point).evalf(30)
    return bool(value.is_comparable and abs(value) > sp.Float("1e-15"))


def _in_order(e):
    return sorted(e.free_symbols, key=sp.default_sort_key)


def _largest_sums(e):
    """Return the sums, products and sequence terms of `e` that stand in no other one, in a fixed order."""
    if isinstance(e, (sp.Sum, sp.Product, sp.Indexed, AppliedUndef)):
        return [e]
    return sorted({part for x in e.args for part in _largest_sums(x)}, key=sp.default_sort_key)


def _signs(part):
    return {"real": True, "nonnegative": part.is_nonnegative, "positive": part.is_positive}
