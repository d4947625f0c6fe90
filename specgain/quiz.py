"""Quizzes and exercises: load the banks, show a question, check an answer.

A bank is `book/quizzes/NN.json` with two lists.

*questions* follow jupyterquiz's own schema, plus `id`, `objective`, `claim`, `read` (where to read on), for every
wrong answer a `misconception`, and for a numeric question the `expression` that computes its key.  A `string` question
wants a word or two; `also` lists other spellings of an answer.  An `order` question, a type of ours, has its answers in
the order in which they are shown, each with its right `place` (1, 2, …), the `misconception` of who sets it elsewhere
and the feedback for that, and the question's own `feedback` for the right order.

*exercises* have `id`, `objective`, `claim`, `difficulty` (1–3), `minutes`, `kind` and `expression`.  The kinds are
`numeric` (a number, right within the relative `tolerance`), `list` (several such numbers), `expression` (a formula in
the exercise's `variables`, as text or as a function), `derivation` (a list of formulas, line by line: each must
equal `expression`, and the last may have at most so many `operations`; `solution` holds the lines of one) and `choice`
(one of `choices`; its key stands in `answer`).
`hints` pairs the `expression` or `answer` of a typical mistake with its `misconception` and a `hint`.

An `expression` is Python over the public names of specgain.  Keys are computed from it, never typed in.
Tests in `book/quizzes/tests/` are lists of questions: `show(*questions_of("entry"))`.
Run `python -m specgain.quiz` to check every bank, `python -m specgain.quiz export moodle --out quiz.xml` for another
system's file.
"""

import ast
import functools
import itertools
import json
import math
import random
import re
import reprlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from pathlib import Path

from specgain import _quiz_export, _quiz_html, acceptance, gain, length, round_time

TYPES = ("multiple_choice", "many_choice", "numeric", "string", "order")
KINDS = ("numeric", "list", "expression", "derivation", "choice")
TOLERANCE = 0.005  # relative: three digits of the right number are enough unless an exercise says otherwise


class BankError(ValueError):
    """A bank breaks the agreed format; the message lists every place and what would be right."""


# ------------------------------------------------------------------------------------------------ expressions

_ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.UAdd, ast.USub, ast.Constant, ast.Name, ast.Load, ast.Call)
_ARITHMETIC += (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_LIBRARY = _ARITHMETIC + (ast.keyword, ast.Attribute, ast.Subscript, ast.Slice, ast.List, ast.Tuple, ast.Dict)
_LIBRARY += (ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.IfExp)
_LIBRARY += (ast.GeneratorExp, ast.ListComp, ast.comprehension, ast.Store)
_FUNCTIONS = {name: getattr(math, name) for name in ("exp", "expm1", "log", "log1p", "sqrt", "floor", "ceil")}
_FUNCTIONS |= {f.__name__: f for f in (abs, min, max)}
_BANK_FUNCTIONS = {f.__name__: f for f in (math.prod, sum, round, len, range, float, Fraction)}  # not for answers: range(10**12)
_LONGEST, _LARGEST = 1000, 20_000  # characters of an answer, bits of an exact power: more would keep a reader waiting


@functools.cache
def library_names():
    """Return the dict of names that a bank's `expression` may use: specgain's public names and simple functions."""
    modules = (acceptance, gain, length, round_time)
    public = {n: v for m in modules for n, v in vars(m).items() if not n.startswith("_") and callable(v)}
    return _FUNCTIONS | _BANK_FUNCTIONS | {n: v for n, v in public.items() if v.__module__.startswith("specgain.")}


def evaluate(expression, names=None):
    """Return the value of `expression` over `names` (default: `library_names()`).

    Only formulas are evaluated: an import, an assignment, a private attribute or an unknown name raises ValueError.
    With `names`, as for a reader's answer, only numbers and arithmetic are; a huge power raises ValueError too.

    >>> evaluate("committed_length([0.5, 0.5])")
    1.75
    """
    allowed, known = (_LIBRARY, library_names()) if names is None else (_ARITHMETIC, names)
    if names is not None and len(expression) > _LONGEST:
        raise ValueError(f"{_brief(expression)} has {len(expression)} characters; {_LONGEST} are enough for any formula here")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{_brief(expression)} is not a formula: {error.msg} (a product needs *)") from None
    names_here = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    known = known | {node.id: None for node in names_here if isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        _refuse_all_but(allowed, known, node, expression)
    code = compile(ast.fix_missing_locations(_Powers().visit(tree)), "<expression>", "eval")
    try:
        return eval(code, {"__builtins__": {}, "_power": _power} | known)  # checked above, node by node
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{_brief(expression)} cannot be worked out: {error}") from None


def _refuse_all_but(allowed, known, node, expression):
    """Raise ValueError if a node of a formula is not of the allowed kinds, or is a name that is not known."""
    text = isinstance(node, ast.Constant) and type(node.value) not in (int, float) and allowed is _ARITHMETIC
    if text or not isinstance(node, allowed) or (isinstance(node, ast.Attribute) and node.attr.startswith("_")):
        raise ValueError(f"{_brief(expression)} holds more than a formula ({type(node).__name__})")
    called = node.func if isinstance(node, ast.Call) and allowed is _ARITHMETIC else None
    variable = isinstance(called, ast.Name) and called.id in set(known) - set(_FUNCTIONS)
    if variable or isinstance(called, (ast.Constant, ast.BinOp)):
        raise ValueError(f"{_brief(expression)} has a bracket right behind a number or a variable; a product needs *")
    if isinstance(node, ast.Name) and node.id not in known:
        instead = f"known are {_listed(known)}" if known else "give digits alone"
        raise ValueError(f"{_brief(expression)} uses {node.id!r}, which is not known here; {instead}")


class _Powers(ast.NodeTransformer):
    """Turns each power of a formula into a call of `_power`."""

    def visit_BinOp(self, node):
        self.generic_visit(node)
        power = ast.Call(ast.Name("_power", ast.Load()), [node.left, node.right], [])
        return power if isinstance(node.op, ast.Pow) else node


def _power(base, exponent):
    """Return base**exponent; ValueError if both are exact and the result would fill more than `_LARGEST` bits."""
    if isinstance(base, (int, Fraction)) and isinstance(exponent, (int, Fraction)):
        bits = max(abs(base.numerator), base.denominator).bit_length()
        if abs(base) != 1 and bits * abs(exponent) > _LARGEST:
            raise ValueError("it holds a power that is too large")
    return base**exponent


def _brief(answer):
    """Return an answer as Python writes it, shortened if it is long."""
    return _SHORT.repr(answer)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def _listed(names):
    """Return the names that a formula may use, as a list to read."""
    if "Ledger" in names:
        return "the public functions and classes of specgain"
    words = sorted(set(names) - set(_FUNCTIONS))
    return ", ".join(words) + " and functions such as sqrt and exp"


# ---------------------------------------------------------------------------------------------------- banks


def bank_folder():
    """Return the folder of the banks: inside an installed package, or `book/quizzes` of the repository."""
    here = Path(__file__).resolve().parent
    for folder in (here / "quizzes", here.parent / "book" / "quizzes"):
        if folder.is_dir():
            return folder
    raise FileNotFoundError("no quiz bank was found, neither in the package nor in book/quizzes of a checkout")


def load(path):
    """Return the bank in the JSON file at `path`; raises BankError that lists all that is wrong with it."""
    path = Path(path)
    try:
        bank = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BankError(f"{path.name} is not JSON: {error}") from None
    if not isinstance(bank, dict) or set(bank) != {"questions", "exercises"}:
        raise BankError(f'{path.name} must be {{"questions": [...], "exercises": [...]}}')
    wrong = _problems(bank, path.stem)
    if wrong:
        raise BankError("\n".join(f"{path.name}: {line}" for line in wrong))
    return bank


@functools.cache
def _bank(number):
    banks = {path.stem: path for path in bank_folder().glob("*.json")}
    if number not in banks:
        raise KeyError(f"there is no bank {number!r}; there are {', '.join(sorted(banks))}")
    return load(banks[number])


def _find(identifier, part):
    """Return the entry with this id; its first characters, up to the hyphen, name the bank."""
    entries = {entry["id"]: entry for entry in _bank(str(identifier).partition("-")[0])[part]}
    if identifier not in entries:
        raise KeyError(f"no entry of {part} has the id {identifier!r}; there are {', '.join(entries)}")
    return entries[identifier]


def question(identifier):
    """Return the question with this id, as a dict; KeyError names the ids there are."""
    return _find(identifier, "questions")


def exercise(identifier):
    """Return the exercise with this id, as a dict; KeyError names the ids there are."""
    return _find(identifier, "exercises")


# ------------------------------------------------------------------------------------ what a bank must hold

_HEAD = {"id", "objective", "claim"}
_QUESTION = _HEAD | {"type", "question", "answers", "read"}
_EXERCISE = _HEAD | {"difficulty", "minutes", "kind", "question"}
_OPTIONAL = {"expression", "precision", "answer_cols", "code", "feedback"}
_EXERCISE_OPTIONAL = {"expression", "tolerance", "hints", "unit", "variables", "choices", "answer", "operations", "solution"}


def _problems(bank, stem):
    """Return one line per fault of a bank; an empty list means that it keeps the format."""
    wrong = []
    for part, check_one in (("questions", _question_problems), ("exercises", _exercise_problems)):
        seen = set()
        for place, entry in enumerate(bank[part]):
            name = entry.get("id", f"{part}[{place}]") if isinstance(entry, dict) else f"{part}[{place}]"
            try:
                for line in itertools.chain(_head_problems(entry, stem, seen), check_one(entry)):
                    wrong.append(f"{name}: {line}")
            except (TypeError, KeyError, AttributeError, ValueError, ArithmeticError) as error:
                wrong.append(f"{name}: {type(error).__name__}: {error}")
    return wrong


def _head_problems(entry, stem, seen):
    if not re.fullmatch(rf"{re.escape(stem)}-[a-z0-9]+(-[a-z0-9]+)*", entry["id"]):
        yield f'the id must begin with "{stem}-" and go on in small letters, digits and single hyphens'
    if entry["id"] in seen:
        yield "the id occurs twice"
    seen.add(entry["id"])
    if not re.fullmatch(r"O([1-9]|10)", entry["objective"]):
        yield f"objective = {entry['objective']!r} must be one of O1 to O10"
    if not re.fullmatch(r"C\d\.\d+", entry["claim"]):
        yield f"claim = {entry['claim']!r} must be a claim's id, such as C2.6"
    for text in _texts(entry):
        if "$" in text or "\\" in text or "](" in text:
            yield f"{text!r} holds $, a backslash or ]( , which break in notebooks; write maths in Unicode"


def _texts(entry):
    """Return the strings of an entry that readers see."""
    answers = [answer.get(name, "") for answer in entry.get("answers", []) for name in ("answer", "feedback")]
    return [entry.get("question", ""), entry.get("feedback", ""), *answers, *(hint.get("hint", "") for hint in entry.get("hints", []))]


def _key_problems(entry, needed, optional):
    for name in sorted(needed - set(entry)):
        yield f"{name} is missing"
    for name in sorted(set(entry) - needed - optional):
        yield f"{name} is not a key of this format"


def _question_problems(entry):
    yield from _key_problems(entry, _QUESTION, _OPTIONAL)
    if entry["type"] not in TYPES:
        yield f"type = {entry['type']!r} must be one of {', '.join(TYPES)}"
        return
    rights = sum(bool(answer.get("correct")) for answer in entry["answers"])
    if entry["type"] == "many_choice" and rights < 2:
        yield "a many_choice question needs two or more correct answers"
    if entry["type"] not in ("many_choice", "order") and rights != 1:
        yield f"a {entry['type']} question needs exactly one correct answer"
    for answer in entry["answers"]:
        yield from _answer_problems(answer, printed=entry["type"] != "order")
    more = {"numeric": _numeric_problems, "string": _string_problems, "order": _order_problems}
    yield from more.get(entry["type"], _choice_problems)(entry)


def _answer_problems(answer, printed):
    name = answer.get("answer", answer.get("value", answer.get("range", answer.get("type"))))
    if not answer.get("feedback"):
        yield f"answer {name!r} needs feedback"
    if answer.get("type") != "default" and not answer.get("correct") and not answer.get("misconception"):
        yield f"wrong answer {name!r} needs the name of its misconception"
    if printed and "expression" in answer and "answer" in answer:
        value = evaluate(answer["expression"])
        if not _printed_right(answer["answer"], value):
            yield f"answer {name!r} does not print the value of its expression, {value}"


def _printed_right(text, value):
    """Return True if a number in `text` equals `value` to the digits that it is printed with."""
    numbers = re.findall(r"[-−]?\d+(?:\.\d+)?", text)
    return any(round(float(value), len(n.partition(".")[2])) == float(n.replace("−", "-")) for n in numbers)


def _choice_problems(entry):
    texts = [answer.get("answer") for answer in entry["answers"]]
    if len(texts) < 2 or len(set(texts)) < len(texts) or not all(texts):
        yield "needs two or more answers, all different, each with its text in `answer`"
    if "expression" in entry:
        value = evaluate(entry["expression"])
        for answer in entry["answers"]:
            if bool(answer["correct"]) != _printed_right(answer["answer"], value):
                yield f"answer {answer['answer']!r}: correct = {answer['correct']}, but the expression gives {value}"


def _numeric_problems(entry):
    if "expression" not in entry:
        yield "a numeric question needs the expression that computes its key"
        return
    key = float(evaluate(entry["expression"]))
    if sum(answer.get("type") == "default" for answer in entry["answers"]) != 1:
        yield 'needs one answer of type "default", whose feedback all other numbers get'
    for answer in (answer for answer in entry["answers"] if answer.get("type") != "default"):
        if _accepts(answer, key, entry.get("precision")) != bool(answer["correct"]):
            yield f"the key is {key}, yet answer {answer} is marked correct = {answer['correct']}"
        own = float(evaluate(answer.get("expression", "0")))
        if "expression" in answer and not _accepts(answer, own, entry.get("precision")):
            yield f"answer {answer} does not hold its own expression's value {own}"


def _string_problems(entry):
    given = [answer for answer in entry["answers"] if answer.get("type") != "default"]
    if len(entry["answers"]) - len(given) != 1:
        yield 'needs one answer of type "default", whose feedback all other words get'
    words = [word.casefold() for answer in given for word in (answer["answer"], *answer.get("also", []))]
    if len(words) < 2 or len(set(words)) < len(words) or not all(words):
        yield "needs a right and a wrong word at least, all different, each in `answer` or `also`"


def _order_problems(entry):
    places = [answer["place"] for answer in entry["answers"]]
    if len(places) < 3 or sorted(places) != list(range(1, len(places) + 1)):
        yield "needs three or more answers, whose `place` numbers them from 1"
    if places == sorted(places):
        yield "the answers are shown in the right order already"
    if not entry.get("feedback"):
        yield "needs `feedback` for the right order"
    placed = sorted(entry["answers"], key=lambda answer: answer["place"])
    values = [evaluate(answer["expression"]) for answer in placed if "expression" in answer]
    if values not in (sorted(set(values)), sorted(set(values), reverse=True)):
        yield f"the expressions give {values} in the right order, which neither rise nor fall"


def _accepts(answer, number, precision):
    """Return True if jupyterquiz would take `number` for this numeric answer (a range is half-open there)."""
    if "range" in answer:
        return answer["range"][0] <= number < answer["range"][1]
    if precision:
        return f"{number:.{precision}g}" == f"{answer['value']:.{precision}g}"
    return number == answer["value"]


def _exercise_problems(entry):
    yield from _key_problems(entry, _EXERCISE, _EXERCISE_OPTIONAL)
    if entry["kind"] not in KINDS:
        yield f"kind = {entry['kind']!r} must be one of {', '.join(KINDS)}"
    if entry["difficulty"] not in (1, 2, 3) or not 0 < entry["minutes"] <= 60:
        yield "difficulty must be 1, 2 or 3 and minutes 1 to 60"
    if not check_answer(entry, _key(entry)).correct:
        yield "the checker refuses the exercise's own key"
    for hint in entry.get("hints", []):
        yield from _key_problems(hint, {"misconception", "hint"}, {"expression", "answer"})
        if check_answer(entry, _slip(entry, hint)).message != hint["hint"]:
            yield f"the mistake {hint['misconception']!r} does not lead to its own hint (is it right after all?)"


# ----------------------------------------------------------------------------------------- checking answers


@dataclass(frozen=True)
class Verdict:
    """What `check` found: `correct`, and a `message` for the reader.  True in a condition when correct."""

    correct: bool
    message: str

    def __bool__(self):
        return self.correct

    def __repr__(self):
        return ("✓ " if self.correct else "✗ ") + self.message


RIGHT = Verdict(True, "Right.")


def check(identifier, answer):
    """Return the `Verdict` on an answer to the exercise with this id.

    A wrong answer is told what is wrong with it (a typical mistake, a unit, a direction), never the right value.

    Whatever is given, even an unknown id, is answered with a message and never with an error.

    >>> check("00-pooled", 0.8)
    ✗ 0.8 is the conditional rate. Of all drafted tokens, those behind a rejection never had a chance.
    """
    try:
        entry = exercise(identifier)
    except KeyError as error:
        return Verdict(False, error.args[0])
    return check_answer(entry, answer)


def check_answer(entry, answer):
    """Return the `Verdict` on `answer` to the exercise `entry` (a dict of a bank)."""
    compare, key = _COMPARE[entry["kind"]], _key(entry)
    slips = [(_slip(entry, hint), hint["hint"]) for hint in entry.get("hints", [])]
    try:
        verdict = compare(entry, answer, key)
        if verdict.correct:
            return verdict
        return next((Verdict(False, text) for slip, text in slips if compare(entry, answer, slip).correct), verdict)
    except Exception as error:  # an answer may be any object, or a function of the reader's that fails
        about = str(error).partition("\n")[0][:200]
        return Verdict(False, f"This answer cannot be read ({type(error).__name__}: {about}). {_WANTED[entry['kind']]}")


def _key(entry):
    """Return the right answer, computed from `expression`; for a formula its text, for a choice its `answer`."""
    if entry["kind"] in ("choice", "derivation"):
        return entry["answer"] if entry["kind"] == "choice" else entry["solution"]
    return entry["expression"] if entry["kind"] == "expression" else evaluate(entry["expression"])


def key_text(entry):
    """Return the right answer of an exercise as text, numbers to five digits; for teachers."""
    key = _key(entry)
    if entry["kind"] in ("numeric", "list"):
        numbers = [key] if isinstance(key, Real) else key
        words = [f"{float(number):.5g}" if isinstance(number, Real) else str(number) for number in numbers]
        return f"{', '.join(words)} {entry.get('unit', '')}".strip()
    return "; ".join(key) if isinstance(key, list) else key


def _slip(entry, hint):
    """Return the wrong answer that a hint is for; for a derivation the wrong line."""
    if entry["kind"] == "derivation":
        return hint["expression"]
    return hint["answer"] if "answer" in hint else _key({"kind": entry["kind"], "expression": hint["expression"]})


def _number(answer):
    """Return the answer as a number; text may hold arithmetic such as "27/10", an array or tensor one number."""
    if getattr(answer, "ndim", None) == 0:
        answer = answer.item()
    if isinstance(answer, str):
        if not answer.strip():
            raise ValueError("The answer is empty; give digits, or a fraction as text")
        if re.fullmatch(r"\s*[-−+]?\d+,\d+\s*", answer):
            raise ValueError(f"{_brief(answer)} has a comma; write the decimal point as a point")
        if re.fullmatch(r"\s*[-−+]?[\d.]+\s*(%|[A-Za-zµ/]+)\s*", answer):
            raise ValueError(f"{_brief(answer)} has a unit or a mark behind the number; give the number alone")
        answer = evaluate(_python(answer), {})
    if isinstance(answer, bool) or not isinstance(answer, Real) or not math.isfinite(answer):
        raise ValueError(f"{_brief(answer)} is not a finite number; give digits, or a fraction as text")
    return answer


def _near(value, key, tolerance):
    return abs(value - key) <= tolerance * abs(key) + 1e-12


def _compare_number(entry, answer, key):
    try:
        value = _number(answer)
    except ValueError as error:
        return Verdict(False, str(error))
    tolerance = entry.get("tolerance", TOLERANCE)
    if _near(value, key, tolerance):
        return RIGHT
    return Verdict(False, _what_is_wrong(value, key, tolerance, entry.get("unit", "")))


def _what_is_wrong(value, key, tolerance, unit):
    """Return what a wrong number shares with the key: its digits, its size, its reciprocal, or else the direction."""
    if _near(value, 1000 * key, tolerance) or _near(1000 * value, key, tolerance):
        return "The digits are right, but a factor of 1000 is not." + (
            f" The answer is wanted in {unit}." if unit else ""
        )
    if _near(value, 100 * key, tolerance):
        return "That is a percentage; give the number itself, a hundredth of it."
    if _near(value, -key, tolerance):
        return "The size is right, the sign is not: which of the two is subtracted from which?"
    if value and key and _near(1 / value, key, tolerance):
        return "The fraction is upside down: what is divided by what?"
    direction = "large" if value > key else "small"
    if _near(value, key, 10 * tolerance):
        return f"Very near, but a little too {direction}: keep more digits until the last step."
    return f"Too {direction}."


def _compare_list(entry, answer, key):
    if isinstance(answer, (str, bytes)) or not (isinstance(answer, Sequence) or getattr(answer, "ndim", 0) == 1):
        return Verdict(False, f"{_brief(answer)} is not a list; give one number per entry, in square brackets.")
    if len(answer) != len(key):
        return Verdict(False, f"Entries in the list: {len(answer)}; the question asks for {len(key)}.")
    for place, (given, right) in enumerate(zip(answer, key, strict=True), start=1):
        verdict = _compare_number(entry, given, right)
        if not verdict.correct:
            return Verdict(False, f"Entry {place}: {verdict.message}")
    return RIGHT


def _compare_choice(entry, answer, key):
    words = [str(choice).casefold() for choice in entry["choices"]]
    given = str(answer).strip().casefold()
    if answer is None or given not in words:
        return Verdict(False, f"{_brief(answer)} is not one of the choices: {', '.join(map(str, entry['choices']))}.")
    return RIGHT if given == str(key).casefold() else Verdict(False, "No. What in the question speaks against it?")


def _compare_formula(entry, answer, key):
    """Compare two formulas at points whose exact fractions no two different formulas of this size share by chance."""
    undefined = 0
    for point in (points := _points(entry["variables"])):
        try:
            value, right = _formula_value(answer, point), _formula_value(key, point)
        except ZeroDivisionError:
            undefined += 1
            continue
        except (TypeError, ValueError) as error:
            return Verdict(False, str(error))
        exact = not isinstance(value, float) and not isinstance(right, float)
        if value != right if exact else not _near(value, right, 1e-9):
            where = ", ".join(f"{name} = {number}" for name, number in point.items())
            direction = "large" if value > right else "small"
            return Verdict(False, f"At {where} your formula gives {float(value):.6g}, which is too {direction}.")
    if 2 * undefined > len(points):  # at one or two points an equal formula may divide by zero, as (a² − 1)/(a − 1) at 1
        return Verdict(False, "Your formula divides by zero.")
    return RIGHT


def _compare_derivation(entry, answer, key):
    """Compare line by line; with the text of one wrong line as `key`, return whether the first wrong line equals it."""
    lines = answer.split("\n") if isinstance(answer, str) else answer
    if not isinstance(lines, Sequence) or not all(isinstance(line, str) for line in lines):
        return Verdict(False, f"{_brief(answer)} is not a derivation. {_WANTED['derivation']}")
    lines = [line.strip().lstrip("= ") for line in lines if line.strip()]
    for place, line in enumerate(lines, start=1):
        verdict = _compare_formula(entry, line, entry["expression"])
        if not verdict.correct:
            slip = isinstance(key, str)
            return _compare_formula(entry, line, key) if slip else Verdict(False, f"Line {place}: {verdict.message}")
    if len(lines) < 2:
        return Verdict(False, "Give two lines at least: where you start, and where you arrive.")
    if _operations(lines[-1]) > entry["operations"]:
        return Verdict(False, "Every line is right, but the last is not yet as short as the question wants it.")
    return RIGHT


def _operations(formula):
    """Return how many operations and calls a formula holds."""
    tree = ast.parse(_python(formula), mode="eval")
    return sum(isinstance(node, (ast.BinOp, ast.Call)) for node in ast.walk(tree))


_COMPARE = {
    "numeric": _compare_number,
    "list": _compare_list,
    "expression": _compare_formula,
    "derivation": _compare_derivation,
    "choice": _compare_choice,
}
_WANTED = {
    "numeric": "Give a number, or arithmetic as text such as '27/10'.",
    "list": "Give a list of numbers in square brackets.",
    "expression": "Give a formula as text, or a function of the variables.",
    "derivation": "Give a list of formulas as text, one for each line.",
    "choice": "Give one of the choices as text.",
}


def _points(variables, count=7):
    """Return `count` dicts of exact values, always the same ones: whole numbers 1–6, or fractions between 0 and 1.

    `variables` maps each name to "whole" or "fraction".
    """
    source = random.Random(0)
    draw = {"whole": lambda: source.randint(1, 6), "fraction": lambda: Fraction(source.randint(2, 95), 97)}
    return [{name: draw[sort]() for name, sort in variables.items()} for _ in range(count)]


def _python(formula):
    """Return a formula's text as Python reads it."""
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda power: "**" + power[0].translate(_SUPERSCRIPTS), str(formula).strip())
    return text.replace("^", "**").replace("γ", "gamma").translate(_SIGNS)


_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_SIGNS = str.maketrans("·×÷−", "**/-")


def _formula_value(formula, point):
    """Return the value at a point of a formula given as a function or as text (`^` and `γ` are understood)."""
    if callable(formula):
        value = formula(**point)
    else:
        value = evaluate(_python(formula), _FUNCTIONS | point)
    if isinstance(value, bool) or not isinstance(value, Real) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"the formula gives {_brief(value)}, which is not a finite number")
    return value


# ------------------------------------------------------------------------------------------------- showing


def show(*identifiers):
    """Display the questions with these ids: clickable where JavaScript runs, else a list with folded answers.

    Works in JupyterLab, Colab and the built book; a terminal prints the list, and a notebook without jupyterquiz shows it
    with folded answers.  The output depends on the ids alone.
    """
    if not identifiers:
        raise ValueError("show() needs the id of at least one question, such as show('00-survival')")
    entries = [question(identifier) for identifier in identifiers]
    if "IPython" not in sys.modules or sys.modules["IPython"].get_ipython() is None:
        print(printed(*identifiers))
        return
    from IPython.display import display

    answers = [answer_text(entry) for entry in entries]
    try:
        markup = _quiz_html.interactive(entries, answers)
    except ImportError as missing:
        markup = _quiz_html.paper(_quiz_html.numbered(entries), answers) + f"<p>{missing}</p>"
    display({"text/html": markup, "text/plain": printed(*identifiers)}, raw=True)


def printed(*identifiers):
    """Return the questions with these ids as plain text: question, lettered options, and the answers last."""
    blocks, keys = [], []
    for number, identifier in enumerate(identifiers, start=1):
        entry = question(identifier)
        options = [f"   {letter}) {answer['answer']}" for letter, answer in _quiz_html.lettered(entry)]
        blocks.append("\n".join([f"{number}. {_quiz_html.asked(entry)}", *options]))
        keys.append(f"{number}. {answer_text(entry)}")
    return "\n\n".join([*blocks, "Answers\n" + "\n".join(keys)])


def answer_text(entry):
    """Return the right answer of a question and why it is right, as one line; a numeric key to four digits."""
    kind, options = entry["type"], _quiz_html.lettered(entry)
    rights = [answer for answer in entry["answers"] if answer.get("correct")]
    if kind == "numeric":
        key = f"{float(evaluate(entry['expression'])):.4g}"
    elif kind == "string":
        key = rights[0]["answer"]
    elif kind == "order":
        key = ", ".join(letter for _, letter in sorted((answer["place"], letter) for letter, answer in options))
    else:
        key = ", ".join(letter for letter, answer in options if answer["correct"])
    told = [entry["feedback"]] if kind == "order" else [answer["feedback"] for answer in rights]
    return f"{key}: {' '.join(map(_without_yes, told))}"


def _without_yes(feedback):
    """Return the feedback on a right answer without the "Yes" that speaks to who has just chosen it."""
    rest = re.sub(r"^Yes[.:] ", "", feedback)
    return re.sub("^[a-z]{2,}", lambda word: word[0].capitalize(), rest)


# --------------------------------------------------------------------------------------- tests, other systems


def questions_of(name):
    """Return the ids of the questions of a test, in order: "entry" or "exit"; KeyError names the tests there are.

    >>> len(questions_of("entry")), len(questions_of("exit"))
    (20, 30)
    """
    folder = bank_folder() / "tests"
    if not (folder / f"{name}.json").is_file():
        raise KeyError(f"there is no test {name!r}; there are {', '.join(sorted(p.stem for p in folder.glob('*.json')))}")
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["questions"]


def identifiers(part="questions"):
    """Return the ids of all "questions", or of all "exercises", bank by bank; ValueError for another part."""
    if part not in ("questions", "exercises"):
        raise ValueError(f"part = {part!r} must be 'questions' or 'exercises'")
    return [entry["id"] for path in sorted(bank_folder().glob("*.json")) for entry in _bank(path.stem)[part]]


def export(kind, *ids):
    """Return the questions with these ids (default: all) for another system: "json" and "moodle" as text, "qti" as bytes.

    json: this module's own format, with the `key` of each numeric question.  moodle: Moodle XML, which Moodle and other
    systems import; every option keeps its feedback, and orders need Moodle 4.5 or newer.  qti: a QTI 1.2 package for
    Canvas and others, written by text2qti; options keep their feedback, wrong numbers and words share one.
    KeyError for an unknown id; ValueError for another kind, and for qti where text2qti is not installed.
    """
    if kind not in _quiz_export.WRITERS:
        raise ValueError(f"kind = {kind!r} must be one of {', '.join(_quiz_export.WRITERS)}")
    entries = [question(identifier) for identifier in ids or identifiers()]
    keyed = [e | {"key": float(evaluate(e["expression"]))} if e["type"] == "numeric" else e for e in entries]
    return _quiz_export.WRITERS[kind](keyed)


def _write_export(arguments):
    """Write an export into the file after `--out`, or print it; `arguments` are those of the command behind "export"."""
    place = arguments.index("--out") if "--out" in arguments else len(arguments)
    target = arguments[place + 1 :][:1]
    if place < len(arguments) and not target:
        raise ValueError("--out needs the name of a file, such as --out quiz.xml")
    made = export(*(arguments[:place] + arguments[place + 2 :] or [""]))
    if target:
        Path(target[0]).write_bytes(made if isinstance(made, bytes) else made.encode())
    elif isinstance(made, bytes):
        sys.stdout.buffer.write(made)
    else:
        print(made)


def main(arguments=()):
    """Print one line per bank; return 0 if all keep the format, else 1 after listing what is wrong.

    With the arguments `export KIND [ID ...] [--out FILE]`, print or write the questions for another system instead.
    Return 2 for any other arguments, and for an export that cannot be made, after saying why.
    """
    if arguments and arguments[0] == "export":
        try:
            _write_export(list(arguments[1:]))
        except (KeyError, ValueError, OSError) as error:
            print(error if isinstance(error, OSError) else error.args[0], file=sys.stderr)
            return 2
        return 0
    if arguments:
        print(f"{arguments[0]!r} is not known here; give nothing, or export KIND [ID ...] [--out FILE]", file=sys.stderr)
        return 2
    status = 0
    for path in sorted(bank_folder().glob("*.json")):
        try:
            bank = load(path)
            print(
                f"{path.name}: {len(bank['questions'])} questions, {len(bank['exercises'])} exercises, keys recomputed"
            )
        except BankError as error:
            print(error)
            status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
