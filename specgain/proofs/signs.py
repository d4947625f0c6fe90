"""When the checker says that a formula is ≥ 0 or > 0: a premise, a proved step, or one of a few plain rules."""

from dataclasses import dataclass
from functools import lru_cache

import sympy as sp
from sympy.core.function import AppliedUndef

from specgain.proofs.algebra import exact


@dataclass(frozen=True)
class Fact:
    """formula ≥ 0 (> 0 if `strict`), for all values of the symbols in `each` that fit their assumptions."""

    formula: sp.Expr
    strict: bool = False
    each: tuple = ()

    @classmethod
    def of(cls, relation, each=()):
        """Return the facts in one relation: one for an inequality, two for an equation, none for True."""
        if relation is sp.false:
            raise ValueError("a premise is false for every value that its symbols may have")
        if relation is sp.true:
            return []
        if isinstance(relation, sp.Eq):
            gap = exact(relation.lhs - relation.rhs)
            return [cls(gap, False, tuple(each)), cls(-gap, False, tuple(each))]
        return [cls(exact(relation.gts - relation.lts), relation.rel_op in "<>", tuple(each))]

    def covers(self, e, facts):
        """Return True if `e` is this fact's formula, at some value of `each`, times a positive number."""
        if not self.each:
            return _same_ray(e, self.formula)
        wild = {symbol: sp.Wild(symbol.name) for symbol in self.each}
        template = self.formula.xreplace(wild)
        found = e.match(template)
        if not found or sp.expand(template.xreplace(found) - e) != 0:
            return False
        return all(fits(found[wild[symbol]], symbol, facts) for symbol in self.each)


def _same_ray(e, formula):
    return (
        e.free_symbols == formula.free_symbols
        and sp.expand(e.as_content_primitive()[1] - formula.as_content_primitive()[1]) == 0
    )


def fits(value, symbol, facts):
    """Return True if `value` satisfies the assumptions under which `symbol` was declared."""
    kinds = ("integer", "real", "even", "odd", "prime", "irrational")
    if any(getattr(symbol, f"is_{kind}") and not getattr(value, f"is_{kind}") for kind in kinds):
        return False
    facts = tuple(f for f in facts if not f.each)
    if symbol.is_nonnegative:
        return known_sign(value, facts, bool(symbol.is_positive))
    if symbol.is_nonpositive:
        return known_sign(-value, facts, bool(symbol.is_negative))
    return not symbol.is_nonzero or bool(value.is_nonzero)


def known_sign(e, facts=(), strict=False):
    """Return True if a rule below shows e ≥ 0 (e > 0 if `strict`); False means "not shown", never "wrong"."""
    e, facts = sp.sympify(e), tuple(facts)
    if _known_sign(e, facts, strict):
        return True
    if not e.is_Add or e.has(sp.Sum, sp.Product):
        return False
    forms = sp.factor(sp.together(e)), sp.expand(e)
    return any(form != e and _known_sign(form, facts, strict) for form in forms)


@lru_cache(maxsize=65536)
def _known_sign(e, facts, strict):
    def know(x, strict=strict):
        return _known_sign(x, facts, strict)

    if e.is_Rational:
        return bool(e > 0 if strict else e >= 0)
    if e in (sp.E, sp.pi) or any(f.covers(e, facts) for f in facts if f.strict or not strict):
        return True
    if isinstance(e, (sp.Symbol, sp.Indexed, AppliedUndef)):
        return bool(e.is_positive if strict else e.is_nonnegative)
    if e.is_Add:
        return _sign_of_terms(e, facts, strict)
    if e.is_Mul:
        return _sign_of_product(e.args, know)
    if e.is_Pow or isinstance(e, sp.exp):
        return _sign_of_power(e, know, strict)
    if isinstance(e, sp.log):
        return known_sign(e.args[0] - 1, facts, strict)
    if isinstance(e, sp.Abs):
        return not strict
    if isinstance(e, (sp.Max, sp.Min)):
        return (any if isinstance(e, sp.Max) else all)(known_sign(x, facts, strict) for x in e.args)
    if isinstance(e, (sp.Sum, sp.Product)):
        return _sign_of_sum(e, know, strict)
    return False


def _sign_of_terms(e, facts, strict, depth=2):
    """Return True if every term has the sign, or if up to two premises taken out of the sum leave such a rest."""
    if all(_known_sign(x, facts, False) for x in e.args):
        return not strict or any(_known_sign(x, facts, True) for x in e.args)
    if e.is_integer and (e.is_positive if strict else e.is_nonnegative):
        return True
    if any(f.covers(e, facts) for f in facts if f.strict or not strict):
        return True
    for fact in (f for f in facts if depth and not f.each and f.formula.free_symbols & e.free_symbols):
        rest = e - fact.formula
        if len(sp.Add.make_args(rest)) <= len(e.args) and _rest_has_sign(
            rest, facts, strict and not fact.strict, depth - 1
        ):
            return True
    return False


def _rest_has_sign(rest, facts, strict, depth):
    return _sign_of_terms(rest, facts, strict, depth) if rest.is_Add else _known_sign(rest, facts, strict)


def _sign_of_product(factors, know):
    """Return True if an even number of factors is known to be negative and the others to be positive."""
    below = [x for x in factors if not know(x, False) and (x.is_Rational or x.is_Add) and know(-x, False)]
    above = [x for x in factors if x not in below]
    return len(below) % 2 == 0 and all(map(know, above)) and all(know(-x) for x in below)


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
    """Return True if no limit is reversed and every term (factor) has the sign, whatever the indices."""
    inside = {}
    for i, low, _ in reversed(e.limits):  # the outermost index first: inner limits may depend on it
        low = low.subs(inside)  # a sign of the lowest index holds for all; that it has none says nothing
        signs = {"nonnegative": low.is_nonnegative or None, "positive": low.is_positive or None}
        inside[i] = sp.Dummy("i", integer=True, **signs)
    counts = [(high - low + 1).subs(inside) for _, low, high in e.limits]
    return all(know(m, strict and isinstance(e, sp.Sum)) for m in counts) and know(e.function.subs(inside))
