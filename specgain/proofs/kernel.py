"""Proofs that can fail: a theorem is a function that yields steps, and every step is checked.

    @theorem("P4", "What one more candidate adds", ..., mutants={"exponent off by one": dict(power=g)})
    def marginal(power=g + 1):
        yield Identity("Subtract the two closed forms.", closed(g + 1) - closed(g), a**power)

A mutant calls the same function with one wrong ingredient.  It counts as rejected only if some step is then
*refuted*: exact values are found that satisfy every premise and make the step false.
"""

import time
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations

import sympy as sp

from specgain.proofs import render
from specgain.proofs.algebra import Definition, exact, names_in, normal, residual, same_notation, unfold
from specgain.proofs.points import counterexample
from specgain.proofs.signs import Fact, fits, known_sign

PROOF_TRIES = 12  # points at which a step that is proved is checked once more, exactly
NOT = {"=": "≠", ">=": "<", ">": "≤"}
MUTANT_TRIES = 400  # points tried before a wrong variant is called "not refuted"


@dataclass
class Context:
    """What a step may rely on: premises and earlier inequalities as sign facts, and the definitions in force."""

    facts: list = field(default_factory=list)  # the premises only; exact points are drawn to satisfy them
    known: list = field(default_factory=list)  # the premises and what earlier steps have proved
    definitions: list = field(default_factory=list)
    equations: list = field(default_factory=list)  # formulas that earlier steps have shown to be zero
    path: tuple = ()  # ids of the proofs being checked, to catch a circle of lemmas

    def residual(self, formula):
        """Return 0 if the formula is zero by the rules, or by them and one equation proved before; else the rest."""
        rest = self._residual(formula)
        by_equation = rest != 0 and any(
            self._residual(formula + sign * e) == 0 for e in self.equations for sign in (1, -1)
        )
        return sp.S.Zero if by_equation else rest

    def _residual(self, formula):
        if residual(formula) == 0:  # true whatever the names stand for
            return sp.S.Zero
        return residual(unfold(normal(unfold(formula, self.definitions)), self.definitions))

    def tied(self, each):
        """Return why a step proved for a symbol may not be used for every value of it, as a list of reasons."""
        premises = set().union(*(f.formula.free_symbols - set(f.each) for f in self.facts))
        return [f"{x} is tied down by a premise" for x in _symbols(each) if x in premises] + self.inside(each)

    def inside(self, each):
        """Return the symbols that a definition hides, as a list of reasons: what is put for them would not reach it."""
        hidden = set().union(*({d.head} | set().union(*(e.free_symbols for e in _said(d))) for d in self.definitions))
        return [f"{x} is tied down by a definition" for x in _symbols(each) if x in hidden]

    def sign(self, formula, strict):
        written_out = unfold(formula, self.definitions)
        return any(known_sign(e, self.known, strict) for e in (formula, written_out))


# -------------------------------------------------------------------------------------------------- premises


class Given:
    """A premise in words, with the relations (such as a <= 1) that it makes available.

    `each` names an index for whose every value the relations hold: Given("…", a[i] <= 1, each=i).
    Relations that SymPy already knows from a symbol's assumptions need not be listed.
    """

    def __init__(self, words, *relations, each=None):
        self.words, self.facts = words, _facts(relations, each)

    def enter(self, context):
        context.facts.extend(self.facts)
        context.known.extend(self.facts)


def _facts(relations, each):
    return [fact for relation in relations for fact in Fact.of(relation, _symbols(each))]


def _said(definition):
    """Return the formulas in a definition; raise NotExact if one holds a float."""
    plain = isinstance(definition.head, sp.Symbol)
    return tuple(map(exact, [definition.body] if plain else definition.spelled()))


def _symbols(each):
    return () if each is None else each if isinstance(each, tuple) else (each,)


class Where:
    """A notation used in the steps: Where("E(γ) is the mean committed length", Recursion(E, 0, 1, …))."""

    def __init__(self, words, definition):
        self.words, self.definition = words, definition

    def enter(self, context):
        if any(d.head == self.definition.head for d in context.definitions):
            raise ValueError(f"{self.definition.head} is defined twice in one proof; take another letter")
        _said(self.definition)  # raises NotExact for a float
        context.definitions.append(self.definition)


# -------------------------------------------------------------------------------------------------- steps


@dataclass(frozen=True)
class Verdict:
    """What the checker found: `status` is proved, refuted or undecided (undecided is a failure too)."""

    status: str
    reason: str = ""
    values: tuple = ()  # the exact point at which a refuted step is false


class Step:
    """One step of a proof.  `claims` says what it asserts, `gaps` tries to show it and names what is missing."""

    machine = True
    why = ""

    def claims(self):
        """Return (formula, relation) pairs: each formula is asserted to be = 0, >= 0 or > 0."""
        return []

    def gaps(self, context):
        """Return the reasons why the step is not shown; an empty list means that it is proved."""
        return []

    def teach(self, context):
        """Tell the context what later steps may use, now that this one is proved."""

    def check(self, context, tries=PROOF_TRIES):
        """Return the Verdict: refuted if an exact counter-example turns up, proved if no gap is left."""
        found, tried = self._counterexample(context, PROOF_TRIES)
        gaps = [] if found else self.gaps(context)
        if gaps and tries > PROOF_TRIES:
            found, tried = self._counterexample(context, tries)
        if found:
            values, value, relation = found
            return Verdict("refuted", f"{value} {NOT[relation]} 0", tuple(values.items()))
        if self.claims() and not tried:
            return Verdict("undecided", "no exact point satisfies the premises: they may contradict each other")
        return Verdict("undecided", "; ".join(gaps)) if gaps else Verdict("proved")

    def _counterexample(self, context, tries):
        return counterexample(self.claims(), context.facts, context.definitions, tries)


class Identity(Step):
    """left = right: the difference is brought to exactly zero."""

    def __init__(self, why, left, right):
        self.left, self.right, self.why = exact(left), exact(right), why

    def claims(self):
        return [(self.left - self.right, "=")]

    def gaps(self, context):
        rest = context.residual(self.left - self.right)
        return [f"the residual {rest} is not shown to be zero"] if rest != 0 else []

    def teach(self, context):
        context.equations.append(self.left - self.right)

    def relation(self):
        return sp.Eq(self.left, self.right, evaluate=False)


class Induction(Step):
    """left(n) = right(n) for all n ≥ base: the base case, and the step from n to n + 1.

    The step shows left(n+1) − right(n+1) = times·(left(n) − right(n)), which is zero by hypothesis.  With `names`,
    right is a name such as s[n], and later steps read it as left.
    """

    def __init__(self, why, n, left, right, base=0, times=1, names=False):
        self.n, self.left, self.right, self.why = n, exact(left), exact(right), why
        self.base, self.times, self.names = exact(base), exact(times), names

    def claims(self):
        return [(self._gap(self.n + self.base), "="), (self._gap(self.base), "=")]

    def _gap(self, n):
        return (self.left - self.right).subs(self.n, n)

    def gaps(self, context):
        base = context.residual(self._gap(self.base))
        step = context.residual(self._gap(self.n + 1) - self.times * self._gap(self.n))
        named = [(f"base case {self.n} = {self.base}", base), (f"step {self.n} → {self.n} + 1", step)]
        gaps = [f"{name}: the residual {rest} is not shown to be zero" for name, rest in named if rest != 0]
        if not (self.n.is_integer and self.base.is_integer):
            gaps.append(f"{self.n} and {self.base} must be whole numbers, for a step from {self.n} to {self.n} + 1")
        below = sp.denom(sp.together(self.times))
        if not (context.sign(below, True) or context.sign(-below, True)):
            gaps.append(f"no rule shows that {below}, which divides in the step, is never zero")
        return gaps + context.inside(self.n)

    def teach(self, context):
        context.equations.append(self.left - self.right)
        if self.names:
            head = self.right.base if isinstance(self.right, sp.Indexed) else self.right.func
            context.definitions.insert(0, Definition(head, lambda index: self.left.subs(self.n, index)))

    def relation(self):
        return sp.Eq(self.left, self.right, evaluate=False)


class AtLeast(Step):
    """left ≥ right: the difference equals `because`, whose sign the listed rules give.  `Greater` makes it >.

    `because` may be a list of terms, each of known sign, that add up to the difference.
    """

    strict = False

    def __init__(self, why, left, right, because=None, each=None):
        self.left, self.right, self.why, self.each = exact(left), exact(right), why, each
        terms = because if isinstance(because, list) else [self.left - self.right if because is None else because]
        self.because = [exact(term) for term in terms]

    def claims(self):
        return [(self.left - self.right, ">" if self.strict else ">=")]

    def gaps(self, context):
        rest = context.residual(self.left - self.right - sp.Add(*self.because))
        gaps = [f"the difference is not {sp.Add(*self.because)}: {rest} is left"] if rest != 0 else []
        gaps += [f"no rule shows {term} >= 0" for term in self.because if not context.sign(term, False)]
        if self.strict and not any(context.sign(term, True) for term in self.because):
            gaps.append(f"no rule shows {sp.Add(*self.because)} > 0")
        return gaps + context.tied(self.each)

    def teach(self, context):
        context.known.extend(_facts([self.relation()], self.each))

    def relation(self):
        return (sp.Gt if self.strict else sp.Ge)(self.left, self.right, evaluate=False)


class Greater(AtLeast):
    """left > right, shown like AtLeast."""

    strict = True


class EveryOrder(AtLeast):
    """left ≥ right where max and min stand in the way: shown in every order that the `quantities` can have.

    In each order the smallest quantity is z₀ ≥ 0, the next z₀ + z₁, and so on with z_i ≥ 0; then no max or min is
    left, and every term of the difference must have a known sign.  `ordered` lists pairs (less, more) that are given.
    """

    def __init__(self, why, left, right, quantities, ordered=()):
        super().__init__(why, left, right)
        self.quantities, self.ordered = quantities, ordered

    def gaps(self, context):
        signs = [f"{q} may be negative" for q in self.quantities if not q.is_nonnegative]
        unknown = [pair for pair in self.ordered if not context.sign(pair[1] - pair[0], False)]
        missing = [f"{less} <= {more} is not a premise" for less, more in unknown]
        return signs + missing + [gap for order in self.orders() if (gap := self._gap(order))]

    def orders(self):
        """Return the orders, from least to greatest, that the given pairs allow."""
        rank = [{q: place for place, q in enumerate(order)} for order in permutations(self.quantities)]
        return [list(r) for r in rank if all(r[less] < r[more] for less, more in self.ordered)]

    def _gap(self, order):
        slack = [sp.Dummy(f"z{i}", nonnegative=True) for i in range(len(order))]
        values = {q: sp.Add(*slack[: i + 1]) for i, q in enumerate(order)}
        rest = sp.expand((self.left - self.right).subs(values, simultaneous=True))
        shown = not rest.has(sp.Max, sp.Min) and known_sign(rest)
        return "" if shown else f"not shown for {' <= '.join(map(str, order))}: {rest}"


class Tangent(AtLeast):
    """left ≥ right for every x: at x = at they touch with equal slopes, and left − right is convex in x."""

    def __init__(self, why, left, right, x, at):
        super().__init__(why, left, right, each=x)
        self.x, self.at = x, exact(at)

    def gaps(self, context):
        gap = self.left - self.right
        slope, bend = sp.diff(gap, self.x), sp.diff(gap, self.x, 2)
        rests = {
            "value": context.residual(gap.subs(self.x, self.at)),
            "slope": context.residual(slope.subs(self.x, self.at)),
        }
        gaps = [f"at {self.x} = {self.at} their {name} differs by {rest}" for name, rest in rests.items() if rest != 0]
        gaps += [] if context.sign(bend, False) else [f"no rule shows {bend} >= 0"]
        gaps += [] if fits(self.at, self.x, context.known) else [f"{self.at} is not among the values of {self.x}"]
        return gaps + context.tied(self.each)


class Rising(Step):
    """formula rises strictly with x, on the interval that the premises leave to x: its slope is > 0."""

    def __init__(self, why, formula, x, because):
        self.why, self.formula, self.x, self.because = why, exact(formula), x, exact(because)

    def claims(self):
        return [(sp.diff(self.formula, self.x), ">")]

    def gaps(self, context):
        rest = context.residual(sp.diff(unfold(self.formula, context.definitions), self.x) - self.because)
        gaps = [f"the slope is not {self.because}: {rest} is left"] if rest != 0 else []
        return gaps if context.sign(self.because, True) else [*gaps, f"no rule shows {self.because} > 0"]

    def relation(self):
        return sp.Gt(sp.Derivative(self.formula, self.x), 0, evaluate=False)


class SameSign(Step):
    """left and right have one sign (both > 0, both < 0 or both = 0): left = factor · right with factor > 0."""

    def __init__(self, why, left, right, factor):
        self.left, self.right, self.factor, self.why = exact(left), exact(right), exact(factor), why

    def claims(self):
        return [(self.left - self.factor * self.right, "="), (self.factor, ">")]

    def gaps(self, context):
        rest = context.residual(self.left - self.factor * self.right)
        gaps = [f"left is not factor · right: {rest} is left"] if rest != 0 else []
        return gaps if context.sign(self.factor, True) else [*gaps, f"no rule shows {self.factor} > 0"]

    def relation(self):
        return sp.Eq(sp.Function("sign")(self.left), sp.Function("sign")(self.right), evaluate=False)


class Limit(Step):
    """The limit of formula as variable → point is value (Gruntz's algorithm, then an exact comparison)."""

    def __init__(self, why, formula, variable, point, value):
        self.formula, self.variable, self.point = exact(formula), variable, exact(point)
        self.value, self.why = exact(value), why

    @cached_property
    def found(self):
        return sp.limit(self.formula, self.variable, self.point, "-" if self.point is sp.oo else "+-")

    def claims(self):
        return [] if self.found.is_infinite and self.found == self.value else [(self.found - self.value, "=")]

    def gaps(self, context):
        rest = context.residual(self.found - self.value) if self.claims() else 0
        return [f"the limit is {self.found}, not {self.value}"] if rest != 0 else []

    def relation(self):
        return sp.Eq(sp.Limit(self.formula, self.variable, self.point, "+-"), self.value, evaluate=False)


class Lemma(Step):
    """Another proof, which must itself be proved; `gives` are relations that it states, usable from here on.

    `at` puts values for its symbols.  The lemma's own premises must be known here, at those values.
    """

    def __init__(self, why, proof_id, *gives, each=None, at=()):
        self.proof_id, self.why, self.gives, self.each, self.at = proof_id, why, gives, each, dict(at)

    def claims(self):
        return [(f.formula, ">" if f.strict else ">=") for f in _facts(self.gives, self.each)]

    def gaps(self, context):
        if self.proof_id in context.path:
            return [f"{' → '.join(context.path)} → {self.proof_id} is a circle"]
        proof = get(self.proof_id)
        if proof.check(context.path).status != "proved":
            return [f"{self.proof_id} is not proved"]
        stated = [step.relation().subs(self.at) for step in proof.steps if hasattr(step, "relation")]
        gaps = [f"{self.proof_id} does not state {gives}" for gives in self.gives if gives not in stated]
        facts = [fact for premise in proof.premises for fact in premise.facts]
        unknown = [f.formula for f in facts if not context.sign(_at_any(f).subs(self.at), f.strict)]
        gaps += [f"the premise {formula} >= 0 of {self.proof_id} is not known here" for formula in unknown]
        wild = [x for x, value in self.at.items() if not fits(exact(value), x, context.known)]
        gaps += [f"{self.at[x]} is not among the values of {x}" for x in wild]
        gaps += [f"{head} means something else in {self.proof_id}" for head in self._other_names(proof, context)]
        return gaps + context.tied(self.each)

    def _other_names(self, proof, context):
        """Return the names that the cited relations rest on and that are defined differently here."""
        cited = [part.definition for part in proof.parts if isinstance(part, Where)]
        used = names_in(self.gives, cited)
        here = {d.head: d for d in reversed(context.definitions)}
        used |= {d.head for d in cited if isinstance(d.head, sp.Symbol)}
        return [d.head for d in cited if d.head in used and not (d.head in here and _same(d, here[d.head]))]

    def teach(self, context):
        context.known.extend(_facts(self.gives, self.each))
        context.equations.extend(gives.lhs - gives.rhs for gives in self.gives if isinstance(gives, sp.Eq))


def _at_any(fact):
    """Return the fact's formula with new letters for `each`, about which nothing else is known."""
    return fact.formula.xreplace({x: sp.Dummy(x.name, **x.assumptions0) for x in fact.each})


def _same(cited, here):
    plain = isinstance(cited.head, sp.Symbol)
    return _said(cited) == _said(here) if plain else same_notation(cited, here)


class Human(Step):
    """An argument in words.  It is counted and shown as such; no machine has checked it."""

    machine = False

    def __init__(self, why):
        self.why = why


class Needed:
    """Exact values that show what goes wrong without a premise: all `relations` hold, against the theorem."""

    def __init__(self, premise, why, *relations):
        self.premise, self.why, self.relations = premise, why, relations

    def holds(self):
        """Return True if every relation, evaluated exactly, is true."""
        return all(bool(relation) for relation in self.relations)


@dataclass(frozen=True)
class Route:
    """A heading: the steps that follow, up to the next heading, prove the theorem in this way."""

    title: str


# -------------------------------------------------------------------------------------------------- proofs


@dataclass(frozen=True)
class Result:
    """What `prove` returns: the status, the counts and the seconds that checking took."""

    id: str
    status: str
    machine_steps: int
    human_steps: int
    mutants_rejected: int
    mutants_total: int
    seconds: float


@dataclass(frozen=True)
class Checked:
    """The verdicts of one run through a proof's steps, in order; `status` is proved only if all of them are."""

    verdicts: tuple

    @property
    def status(self):
        return "proved" if self.verdicts and all(v.status == "proved" for _, v in self.verdicts) else "failed"


@dataclass(frozen=True)
class Mutant:
    """A wrong variant and what became of it: rejected only if a step was refuted by exact values."""

    mistake: str
    rejected: bool
    step: int
    verdict: Verdict


class Proof:
    """A theorem: id, title, statement, where it comes from, premises, steps, mutants, and what they cover."""

    def __init__(self, id, title, build, says, plain, source, claims, mutants, notes=""):
        self.id, self.title, self.build, self.says, self.plain = id, title, build, says, plain
        self.source, self.claims, self.mutations, self.notes = source, tuple(claims), mutants, notes

    @cached_property
    def parts(self):
        """The premises, notations and steps, in the order in which the theorem's function yields them."""
        return tuple(self.build())

    @property
    def steps(self):
        return tuple(part for part in self.parts if isinstance(part, Step))

    @property
    def premises(self):
        return tuple(part for part in self.parts if isinstance(part, Given))

    @property
    def needed(self):
        return tuple(part for part in self.parts if isinstance(part, Needed))

    @property
    def routes(self):
        """{title of a route: its steps}; empty if the proof takes one route only."""
        routes, here = {}, []
        for part in self.parts:
            if isinstance(part, Route):
                routes[part.title] = here = []
            elif isinstance(part, Step):
                here.append(part)
        return routes

    def check(self, path=()):
        """Return `Checked`, the verdict of every step (remembered after the first run)."""
        if not hasattr(self, "_checked"):
            self._checked = _run(self.parts, (*path, self.id))
        return self._checked

    @cached_property
    def mutants(self):
        """Each wrong variant with its fate; see `Mutant`."""
        return tuple(self._mutant(mistake, wrong) for mistake, wrong in self.mutations.items())

    def _mutant(self, mistake, wrong):
        checked = _run(self.build(**wrong), (self.id,), MUTANT_TRIES)
        if checked.status == "proved":
            return Mutant(mistake, False, 0, Verdict("proved", "the checker accepted it"))
        _, verdict = checked.verdicts[-1]
        return Mutant(mistake, verdict.status == "refuted", len(checked.verdicts), verdict)

    def prove(self):
        """Return the `Result` of checking every step and every mutant (remembered after the first run)."""
        return self._result

    @cached_property
    def _result(self):
        start = time.perf_counter()
        status = self.check().status
        rejected = sum(mutant.rejected for mutant in self.mutants)
        machine = sum(step.machine for step in self.steps)
        sound = status == "proved" and machine and rejected == len(self.mutants) and all(n.holds() for n in self.needed)
        counts = machine, len(self.steps) - machine, rejected, len(self.mutants)
        return Result(self.id, "proved" if sound else "failed", *counts, time.perf_counter() - start)

    def _repr_markdown_(self):
        return render.markdown(self)

    def __str__(self):
        return render.text(self)


def _run(parts, path, tries=PROOF_TRIES):
    """Return `Checked` for parts in order; a step sees the premises and definitions that stand before it."""
    context, verdicts = Context(path=path), []
    for part in parts:
        if isinstance(part, Step):
            verdicts.append((part, part.check(context, tries)))
            if verdicts[-1][1].status == "proved":
                part.teach(context)
            elif tries == MUTANT_TRIES:
                break  # a mutant is judged by its first step that fails
        elif isinstance(part, (Given, Where)):
            part.enter(context)
    return Checked(tuple(verdicts))


REGISTRY = {}


def theorem(id, title, *, says, plain, source, mutants, claims=(), notes=""):
    """Register the decorated function, which yields a proof's premises and steps, and return its Proof."""

    if len(mutants) < 3:
        raise ValueError(f"{id} has {len(mutants)} mutants; a proof needs at least three mistakes to reject")

    def register(build):
        REGISTRY[id] = Proof(id, title, build, says, plain, source, claims, mutants, notes)
        return REGISTRY[id]

    return register


def all_proofs():
    """Return every proof, in the order P1, P2, …"""
    return [REGISTRY[id] for id in sorted(REGISTRY, key=lambda id: int(id[1:]))]


def get(id):
    """Return the proof with this id; raise KeyError that lists the ids there are."""
    if id not in REGISTRY:
        raise KeyError(f"there is no proof {id!r}; the proofs are {', '.join(p.id for p in all_proofs())}")
    return REGISTRY[id]


def prove(id):
    """Return the Result of checking one proof and its mutants."""
    return get(id).prove()


def to_json():
    """Return {"proofs": [{id, statement, status, machine_steps, human_steps, mutants_rejected}]} for all proofs."""
    keys = ("status", "machine_steps", "human_steps", "mutants_rejected")
    results = [(proof, proof.prove()) for proof in all_proofs()]
    return {
        "proofs": [{"id": p.id, "statement": p.plain, **{key: getattr(r, key) for key in keys}} for p, r in results]
    }
