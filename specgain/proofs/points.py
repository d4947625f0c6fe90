"""Exact counter-examples: points with rational coordinates at which the premises hold and a claim fails.

The evaluator here writes every sum out and shares no rule with the normal form, so that the one checks the other.
"""

import random
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import product
from operator import add, mul

import sympy as sp
from sympy.core.function import AppliedUndef

from specgain.proofs.algebra import Definition, head_of, indices_of

UNIT = [Fraction(x) for x in "1/2 1/3 3/4 2/3 1/4 4/5 9/10 1/5 1/10 1 1 0 0".split()]  # most premises want these
LARGE = [Fraction(x) for x in "2 3 5/2 5 10".split()]
HOLDS = {"=": lambda x: x == 0, ">=": lambda x: x >= 0, ">": lambda x: x > 0}
UNROLLED = 6  # premises "for every i" are checked for i up to the largest index in sight, at most this


class Point:
    """Values for symbols and for terms of sequences, drawn when first needed and kept."""

    def __init__(self, definitions, seed):
        self.definitions, self.random, self.values, self.terms = definitions, random.Random(seed), {}, {}

    def value(self, e, bound=None):
        """Return the exact value of `e`: a Fraction, or a SymPy number where roots or logarithms occur."""
        bound = bound or {}
        if e.is_Rational:
            return Fraction(e.p, e.q)
        if isinstance(e, sp.Symbol):
            return bound[e] if e in bound else self._symbol(e)
        if isinstance(e, (sp.Indexed, AppliedUndef)):
            return self._term(e, tuple(self.value(x, bound) for x in indices_of(e)))
        if isinstance(e, (sp.Sum, sp.Product)):
            return self._sum(e, list(e.limits), bound)
        return _apply(e, [self.value(x, bound) for x in e.args])

    def _symbol(self, symbol):
        if symbol not in self.values:
            defined = next((d for d in self.definitions if d.head == symbol), None)
            if defined:
                return self.value(sp.sympify(defined.body))
            self.values[symbol] = self._draw(symbol)
        return self.values[symbol]

    def _term(self, e, index):
        head = head_of(e)
        if (head, index) not in self.terms:
            written = (
                e.func(e.base, *map(_number, index)) if isinstance(e, sp.Indexed) else e.func(*map(_number, index))
            )
            defined = next((d for d in self.definitions if d.head == head), None)
            self.terms[head, index] = self._defined(defined, written) if defined else self._draw(written)
            if not defined:
                self.values[written] = self.terms[head, index]
        return self.terms[head, index]

    def _defined(self, definition, written):
        if not isinstance(definition, Definition) and indices_of(written)[0] < definition.first:
            raise ZeroDivisionError(f"{written} lies before the first value")
        return self.value(_written_out(definition, written))

    def _sum(self, e, limits, bound):
        """Return the sum or product written out; a reversed range takes its terms away (Karr's convention)."""
        if not limits:
            return self.value(e.function, bound)
        *inner, (i, low, high) = limits
        low, high = int(self.value(low, bound)), int(self.value(high, bound))
        join, unit = (add, Fraction(0)) if isinstance(e, sp.Sum) else (mul, Fraction(1))
        forward = reduce(join, (self._sum(e, inner, {**bound, i: Fraction(m)}) for m in range(low, high + 1)), unit)
        backward = reduce(join, (self._sum(e, inner, {**bound, i: Fraction(m)}) for m in range(high + 1, low)), unit)
        return forward - backward if isinstance(e, sp.Sum) else forward / backward

    def _draw(self, atom):
        """Return a value for one symbol or sequence term that fits its assumptions."""
        if atom.is_integer:
            return Fraction(self.random.randint(1 if atom.is_positive else 0 if atom.is_nonnegative else -2, 4))
        pool = LARGE if self.random.random() < 0.2 else [x for x in UNIT if x] if atom.is_positive else UNIT
        value = self.random.choice(pool)
        return value if atom.is_nonnegative or self.random.random() < 0.5 else -value

    def satisfies(self, facts):
        """Return True if every premise holds here, at every index in sight."""
        return all(holds(self.value(e), ">" if f.strict else ">=") for f in facts for e in self._instances(f))

    def _instances(self, fact):
        if not fact.each:
            return [fact.formula]
        whole = [value for atom, value in self.values.items() if isinstance(atom, sp.Symbol) and atom.is_integer]
        seen = whole + [x for _, index in self.terms for x in index]
        last = min(UNROLLED, max(map(int, seen), default=0))
        points = product(*(range(1 if i.is_positive else 0, last + 1) for i in fact.each))
        return [_instance(fact, point) for point in points]


@lru_cache(maxsize=65536)
def _written_out(definition, written):
    """Return what a defined term, such as E(3), stands for (one step of it, for a recursion)."""
    if isinstance(definition, Definition):
        return sp.sympify(definition.body(*indices_of(written)))
    (index,) = indices_of(written)
    if index == definition.first:
        return sp.sympify(definition.value)
    return sp.sympify(definition.step(index, written.subs(index, index - 1)))


@lru_cache(maxsize=65536)
def _instance(fact, point):
    return fact.formula.subs(dict(zip(fact.each, point, strict=True)))


def _number(value):
    return sp.Rational(value.numerator, value.denominator) if isinstance(value, Fraction) else value


def _apply(e, args):
    if all(isinstance(x, Fraction) for x in args):
        if e.is_Add:
            return sum(args, Fraction(0))
        if e.is_Mul:
            return reduce(mul, args, Fraction(1))
        if e.is_Pow and args[1].denominator == 1:
            return args[0] ** int(args[1])
        if isinstance(e, (sp.Max, sp.Min)):
            return max(args) if isinstance(e, sp.Max) else min(args)
        if isinstance(e, sp.Abs):
            return abs(args[0])
    value = e.func(*map(_number, args)) if args else e
    return Fraction(value.p, value.q) if value.is_Rational else value


def holds(value, relation):
    """Return whether an exact value satisfies the relation to zero; None if that cannot be told.

    An irrational value (a logarithm, a root) counts as different from zero only with 30 digits to spare.
    """
    if isinstance(value, Fraction):
        return HOLDS[relation](value)
    if not value.is_comparable:
        return None
    size = value.evalf(50)
    return bool(HOLDS[relation](size)) if abs(size) > sp.Float("1e-30") else None


def counterexample(claims, facts, definitions, tries):
    """Return ((values, left-over, relation), points tried) for a claim that fails, or (None, points tried).

    `claims` holds (formula, relation) pairs: formula = 0, ≥ 0 or > 0.  Points at which a premise fails, or where the
    formula is not defined, do not count as tried; if none counts, the premises may contradict each other.
    """
    tried = 0
    for seed in range(30 * tries):
        if tried >= tries * len(claims):
            break
        for formula, relation in claims:
            point = Point(definitions, seed)
            try:
                value = point.value(formula)
                shown = dict(point.values)  # not the values that only a premise asks for
                if not point.satisfies(facts):
                    continue
            except ZeroDivisionError:
                continue
            tried += 1
            if holds(value, relation) is False:
                return (shown, _number(value), relation), tried
    return None, tried
