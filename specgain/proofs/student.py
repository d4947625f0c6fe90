"""Checks a reader's proof: a text file with one formula per slot of the prover's exercises.

The file looks like Python (`X1_step = 1 - s[gamma + 1]`) and is read, not run: only formulas are understood.
"""

import ast
import difflib
import operator
from dataclasses import asdict, dataclass
from pathlib import Path

import sympy as sp

from specgain.proofs.algebra import normal
from specgain.proofs.exercises import EXERCISES, NAMES
from specgain.proofs.kernel import MUTANT_TRIES, Context, Given, Where

LARGEST_FILE = 65_536  # bytes
LARGEST_NUMBER = 1000
SLOTS = {slot: exercise for exercise in EXERCISES.values() for slot in exercise.slots}
OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip


class StudentFileError(ValueError):
    """The file cannot be read as answers; the message says where and what would be right."""


@dataclass(frozen=True)
class SlotResult:
    """What became of one slot: `status` is right, wrong, unclear or empty; `message` helps on."""

    exercise: str
    slot: str
    status: str
    message: str


@dataclass(frozen=True)
class StudentReport:
    """The result for every slot of every exercise that the file answers at least in part."""

    results: tuple

    @property
    def passed(self):
        """True if every slot reported on is right."""
        return bool(self.results) and all(result.status == "right" for result in self.results)

    def to_json(self):
        """Return {"passed": bool, "slots": [{exercise, slot, status, message}]}."""
        return {"passed": self.passed, "slots": [asdict(result) for result in self.results]}

    def __str__(self):
        marks = {"right": "✓", "wrong": "✗", "unclear": "?", "empty": "·"}
        return "\n".join(f"{marks[r.status]} {r.slot}: {r.message}" for r in self.results)


def template():
    """Return the text of an answer file with every slot empty, each with its statement: the reader's starting point."""
    lines = ["# Answers to the prover's exercises.", "# Check this file with: specgain prove --student FILE",
             f"# A formula may use {', '.join(NAMES)}.", "# Write fractions exactly, such as 4/5.", "# None means: not answered yet."]  # fmt: skip
    for ex in EXERCISES.values():
        lines += ["", f"# {ex.id} ({'*' * ex.stars}) {ex.title}", f"# {ex.plain}"]
        lines += [line for slot, wanted in ex.slots.items() for line in ("", f"# {wanted}", f"{slot} = None")]
    return "\n".join(lines) + "\n"


def check_student(path):
    """Return the `StudentReport` for an answer file; raise StudentFileError if it cannot be read as one."""
    answers = read_answers(path)
    chosen = [ex for ex in EXERCISES.values() if any(slot in answers for slot in ex.slots)]
    return StudentReport(tuple(result for ex in chosen for result in _check_exercise(ex, answers)))


# -------------------------------------------------------------------------------------------------- reading


def read_answers(path):
    """Return {slot: formula} from a file of `slot = formula` lines; slots that are None are left out."""
    answers, seen = {}, set()
    for statement in _parse(_text(path)).body:
        if _is_comment(statement):
            continue
        slot = _slot(statement)
        if slot in seen:
            raise StudentFileError(f"line {statement.lineno}: {slot} is answered twice; keep one answer")
        seen.add(slot)
        if not (isinstance(statement.value, ast.Constant) and statement.value.value is None):
            answers[slot] = _formula(statement.value)
    if not seen:
        raise StudentFileError(
            f"the file answers no slot; start from the template, with lines such as {next(iter(SLOTS))} = …"
        )
    return answers


def _text(path):
    path = Path(path)
    if not path.is_file():
        raise StudentFileError(f"{path} is not a file; give a text file with lines such as {next(iter(SLOTS))} = …")
    if path.stat().st_size > LARGEST_FILE:
        raise StudentFileError(f"{path} is larger than {LARGEST_FILE} bytes; an answer file is a page of text")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise StudentFileError(f"{path} is not UTF-8 text; save it as plain text") from None


def _parse(text):
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise StudentFileError(
            f"line {line}: this is not a formula that I can read ({getattr(error, 'msg', error)})"
        ) from None


def _is_comment(statement):
    return isinstance(statement, ast.Expr) and isinstance(getattr(statement.value, "value", None), str)


def _slot(statement):
    """Return the slot that a statement answers."""
    plain = (
        isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name)
    )
    if not plain:
        raise StudentFileError(
            f"line {statement.lineno}: only lines of the form slot = formula are read; nothing here is run"
        )
    name = statement.targets[0].id
    if name not in SLOTS:
        near = difflib.get_close_matches(name, SLOTS, n=1)
        raise StudentFileError(
            f"line {statement.lineno}: there is no slot {name}; "
            + (f"did you mean {near[0]}?" if near else f"the slots are {', '.join(SLOTS)}")
        )
    return name


def _formula(node):
    """Return the SymPy formula of a syntax tree that holds only numbers, names, + − * / ** and Sum."""
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int(value)) if abs(value) <= LARGEST_NUMBER:
            return sp.Integer(value)
        case ast.Constant(value=float(value)):
            raise StudentFileError(
                f"line {node.lineno}: {value} is a decimal number; write it exactly, such as 4/5 for 0.8"
            )
        case ast.Constant(value=int(value)):
            raise StudentFileError(
                f"line {node.lineno}: {value} is too large a number; up to {LARGEST_NUMBER} is enough here"
            )
        case ast.Name(id=name):
            return _name(node, name)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_formula(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _combine(node, type(op), _formula(left), _formula(right))
        case ast.Subscript(value=ast.Name(id="s"), slice=index) if not isinstance(index, (ast.Tuple, ast.Slice)):
            return NAMES["s"][_formula(index)]
        case ast.Call(func=ast.Name(id="E"), args=[index], keywords=[]):
            return NAMES["E"](_formula(index))
        case ast.Call(func=ast.Name(id="Rational"), args=[top, bottom], keywords=[]):
            return _combine(node, ast.Div, _formula(top), _formula(bottom))
        case ast.Call(
            func=ast.Name(id="Sum"),
            args=[body, ast.Tuple(elts=[ast.Name(id=("i" | "j") as index), low, high])],
            keywords=[],
        ):
            return sp.Sum(_formula(body), (NAMES[index], _formula(low), _formula(high)))
        case ast.BinOp(op=ast.BitXor()):
            raise StudentFileError(f"line {node.lineno}: write a power as a**2, not a^2")
    raise StudentFileError(f"line {node.lineno}: {ast.unparse(node)[:60]!r} is not part of a formula here; use {', '.join(NAMES)}, "
                           "+ - * / **, s[i], E(gamma) and Sum(term, (i, 1, gamma))")  # fmt: skip


def _name(node, name):
    if name not in NAMES or not isinstance(NAMES[name], sp.Symbol):
        hint = (
            "write it with an index, such as s[i] or E(gamma)" if name in NAMES else f"the names are {', '.join(NAMES)}"
        )
        raise StudentFileError(f"line {node.lineno}: {name} cannot stand here; {hint}")
    return NAMES[name]


def _combine(node, op, left, right):
    if op is ast.Pow and (right.is_number and abs(right) > 64 or left.is_number and not left.is_Rational):
        raise StudentFileError(
            f"line {node.lineno}: the power {ast.unparse(node)[:60]} is larger than any proof here needs"
        )
    if op is ast.Div and right == 0:
        raise StudentFileError(f"line {node.lineno}: {ast.unparse(node)[:60]} divides by zero")
    return OPERATORS[op](left, right)


# -------------------------------------------------------------------------------------------------- checking


def _check_exercise(ex, answers):
    """Yield a SlotResult for each slot: the verdicts of the steps that need it, the first failure deciding."""
    given = {slot: answers.get(slot, sp.Dummy(slot)) for slot in ex.slots}
    context, verdicts = Context(path=(ex.id,)), {slot: [] for slot in ex.slots}
    for needed, part in ex.build(**given):
        if isinstance(part, (Given, Where)):
            part.enter(context)
        elif all(slot in answers for slot in needed):
            verdict = part.check(context, MUTANT_TRIES)
            if verdict.status == "proved":
                part.teach(context)
            for slot in needed:
                verdicts[slot].append((part, verdict))
    for slot in ex.slots:
        yield _result(ex, slot, answers, verdicts[slot])


def _result(ex, slot, answers, verdicts):
    if slot not in answers:
        return SlotResult(ex.id, slot, "empty", f"not answered yet: {ex.slots[slot]}")
    failed = next(((part, verdict) for part, verdict in verdicts if verdict.status != "proved"), None)
    if not verdicts:
        others = next(s for s in ex.slots if s not in answers)
        return SlotResult(ex.id, slot, "empty", f"read; it can be checked once {others} is answered too")
    holds, otherwise = ex.forms.get(slot, (lambda formula: True, ""))
    if failed is None and not holds(answers[slot]):
        return SlotResult(ex.id, slot, "unclear", f"true, but it does not say enough. {otherwise}")
    if failed is None:
        return SlotResult(ex.id, slot, "right", "right. " + verdicts[-1][0].why)
    return _advice(ex, slot, answers[slot], *failed)


def _advice(ex, slot, answer, step, verdict):
    """Return the result for a wrong or unclear answer, with a point to look at and a hint where one is known."""
    known = [hint for text, hint in ex.hints.get(slot, {}).items() if _same(answer, text)]
    if verdict.status == "undecided":
        text = (
            known[0]
            if known
            else "no point was found where it is false, but it is not shown either. Write it in the form that the slot asks for."
        )
        return SlotResult(ex.id, slot, "unclear", f"{text} ({verdict.reason[:200]})")
    point = ", ".join(f"{name} = {value}" for name, value in verdict.values)
    where = (
        f"at {point} the step “{step.why.rstrip('.')}” is off by {verdict.reason.split()[0]}"
        if point
        else f"the step “{step.why.rstrip('.')}” is off by {verdict.reason.split()[0]}"
    )
    return SlotResult(
        ex.id, slot, "wrong", f"{where}. {known[0] if known else 'Put these values into both sides by hand.'}"
    )


def _same(answer, text):
    return normal(sp.expand(answer - _formula(ast.parse(text, mode="eval").body))) == 0
