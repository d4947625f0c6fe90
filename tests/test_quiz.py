"""Quiz banks: format, recomputed keys, the checker's answers, and the fields in a real browser."""

import ast
import html
import json
import re
import sys
import types
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain import _quiz_html, quiz

BANKS = sorted(quiz.bank_folder().glob("*.json"))


@pytest.fixture(scope="module")
def bank():
    return quiz.load(quiz.bank_folder() / "00.json")


def write(tmp_path, bank, name="00.json"):
    path = tmp_path / name
    path.write_text(json.dumps(bank), encoding="utf-8")
    return path


# --- the banks of the book ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", BANKS, ids=lambda path: path.stem)
def test_every_bank_keeps_the_format_and_every_key_is_recomputed(path):
    assert quiz.load(path)["questions"]


@pytest.mark.parametrize("path", BANKS, ids=lambda path: path.stem)
def test_a_key_is_computed_never_typed(path):
    """The expression of a numeric key must compute something: a bare number would be a typed key."""
    bank = quiz.load(path)
    keyed = [q for q in bank["questions"] if q["type"] == "numeric"]
    keyed += [e for e in bank["exercises"] if e["kind"] == "numeric"]
    for entry in keyed:
        tree = ast.parse(entry["expression"], mode="eval").body
        assert isinstance(tree, (ast.Call, ast.BinOp, ast.Subscript, ast.IfExp)), entry["id"]


@pytest.mark.parametrize("path", BANKS, ids=lambda path: path.stem)
def test_no_message_gives_an_exercise_away(path):
    """Nothing that the checker says to a wrong number holds the right number."""
    for entry in quiz.load(path)["exercises"]:
        if entry["kind"] != "numeric":
            continue
        key = float(quiz.evaluate(entry["expression"]))
        wrong = [2 * key + 1, -key, 1000 * key, key / 1000, 100 * key, key * 1.02, 0, "x", None, float("nan")]
        wrong += [quiz._slip(entry, hint) for hint in entry.get("hints", [])]
        for answer in wrong:
            verdict = quiz.check_answer(entry, answer)
            numbers = [float(n) for n in re.findall(r"\d+\.\d+|\d+", verdict.message)]
            assert not verdict.correct
            assert not any(abs(n - key) < 1e-3 * abs(key) for n in numbers), verdict.message


@pytest.mark.parametrize("path", BANKS, ids=lambda path: path.stem)
def test_no_hint_and_no_feedback_on_a_wrong_answer_holds_the_right_one(path):
    bank = quiz.load(path)
    for entry in bank["questions"]:
        wrong = [answer["feedback"] for answer in entry["answers"] if not answer.get("correct")]
        right = next((answer for answer in entry["answers"] if answer.get("correct")), {})
        if entry["type"] == "numeric":
            assert not any(holds(text, [quiz.evaluate(entry["expression"])]) for text in wrong), entry["id"]
        if entry["type"] == "string":
            words = "|".join(map(re.escape, (right["answer"], *right.get("also", ()))))
            assert not any(re.search(rf"\b({words})\b", text, re.IGNORECASE) for text in wrong), entry["id"]
    for entry in (entry for entry in bank["exercises"] if entry["kind"] == "list"):
        for hint in entry.get("hints", []):
            assert not holds(hint["hint"], quiz.evaluate(entry["expression"])), entry["id"]


def holds(text, keys):
    """Return True if one of the numbers in a text is one of the keys, to half a percent."""
    numbers = [float(number.replace("−", "-")) for number in re.findall(r"(?<![\w.])[-−]?\d+(?:\.\d+)?", text)]
    return any(abs(number - key) <= 5e-3 * abs(key) for number in numbers for key in map(float, keys))


def test_the_bank_on_the_opening_pages_covers_recap_and_glossary(bank):
    assert len(bank["questions"]) >= 5
    assert {entry["claim"] for entry in bank["questions"]} >= {"C0.1", "C0.4", "C0.5"}


def test_the_package_ships_the_books_own_banks():
    """specgain/quizzes is a link to book/quizzes: one copy in the repository, and the banks inside every wheel."""
    package = Path(quiz.__file__).parent
    assert (package / "quizzes").resolve() == (package.parent / "book" / "quizzes").resolve()


# --- faults that the loader must name -------------------------------------------------------------------------------


def spoil(bank, part, identifier, **changes):
    """Return a copy of the bank in which one entry has other values (None takes a key away)."""
    copy = json.loads(json.dumps(bank))
    entry = next(e for e in copy[part] if e["id"] == identifier)
    for name, value in changes.items():
        entry.pop(name, None)
        if value is not None:
            entry[name] = value
    return copy


@pytest.mark.parametrize("path", BANKS, ids=lambda path: path.stem)
def test_the_place_of_the_right_option_gives_nothing_away(path):
    asked = [entry["answers"] for entry in quiz.load(path)["questions"] if entry["type"] == "multiple_choice"]
    places = [next(place for place, answer in enumerate(options) if answer["correct"]) for options in asked]
    assert len(places) < 5 or max(map(places.count, places)) <= 0.6 * len(places)


def answers(bank, identifier, place, **changes):
    """Return a copy of the bank in which one answer of a question has other values."""
    copy = json.loads(json.dumps(bank))
    entry = next(e for e in copy["questions"] if e["id"] == identifier)
    for name, value in changes.items():
        entry["answers"][place].pop(name, None)
        if value is not None:
            entry["answers"][place][name] = value
    return copy


SLIP = {"misconception": "x", "hint": "y"}
FAULTS = {
    "no feedback": (lambda b: answers(b, "00-lossless", 0, feedback=None), "needs feedback"),
    "no misconception": (lambda b: answers(b, "00-lossless", 0, misconception=None), "name of its misconception"),
    "no right answer": (lambda b: answers(b, "00-lossless", 1, correct=False), "exactly one correct"),
    "two right answers": (lambda b: answers(b, "00-lossless", 0, correct=True), "exactly one correct"),
    "a wrong key": (lambda b: answers(b, "00-pooled", 0, range=[5.3, 5.4]), "the key is 4.3288"),
    "a key in a wrong range": (lambda b: answers(b, "00-pooled", 1, range=[4.0, 5.0]), "marked correct = False"),
    "a wrong printed number": (lambda b: answers(b, "00-survival", 3, answer="0.657"), "the expression gives 0.646"),
    "a wrong misconception": (lambda b: answers(b, "00-survival", 2, answer="0.444"), "does not print the value"),
    "an unknown claim": (lambda b: spoil(b, "questions", "00-pooled", claim="chapter 2"), "must be a claim's id"),
    "an unknown objective": (lambda b: spoil(b, "questions", "00-pooled", objective="O11"), "O1 to O10"),
    "another bank's id": (lambda b: spoil(b, "questions", "00-pooled", id="01-pooled"), 'must begin with "00-"'),
    "the same id twice": (lambda b: spoil(b, "questions", "00-pooled", id="00-survival"), "the id occurs twice"),
    "TeX": (lambda b: spoil(b, "questions", "00-pooled", question="What is $a$?"), "write maths in Unicode"),
    "an accidental link": (lambda b: spoil(b, "questions", "00-pooled", question="E[L](γ)?"), "write maths in Unicode"),
    "an unknown type": (lambda b: spoil(b, "questions", "00-pooled", type="essay"), "must be one of"),
    "a misspelt key": (lambda b: spoil(b, "questions", "00-pooled", expresion="1"), "expresion is not a key"),
    "no expression": (lambda b: spoil(b, "questions", "00-pooled", expression=None), "needs the expression"),
    "no place to read on": (lambda b: spoil(b, "questions", "00-pooled", read=None), "read is missing"),
    "an unknown name": (lambda b: spoil(b, "exercises", "00-pooled", expression="pool(8)"), "'pool', which is not"),
    "more than a formula": (
        lambda b: spoil(b, "exercises", "00-pooled", expression="[].__class__"),
        "more than a formula (Attribute)",
    ),
    "a hint that hits the key": (
        lambda b: spoil(b, "exercises", "00-conditional", hints=[SLIP | {"expression": "[0.6, 0.75, 0.8]"}]),
        "does not lead to its own hint",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_loader_names_the_fault(fault, bank, tmp_path):
    spoiled, message = FAULTS[fault]
    with pytest.raises(quiz.BankError) as caught:
        quiz.load(write(tmp_path, spoiled(bank)))
    assert message in str(caught.value)
    assert "00.json: 0" in str(caught.value)  # file and id are named


@pytest.mark.parametrize("text", ["{", "[]", '{"questions": []}', '{"questions": [], "exercises": [], "more": 1}'])
def test_a_file_that_is_no_bank_is_refused(text, tmp_path):
    (tmp_path / "00.json").write_text(text, encoding="utf-8")
    with pytest.raises(quiz.BankError, match=r"00\.json"):
        quiz.load(tmp_path / "00.json")


def test_an_unknown_id_is_answered_with_the_known_ones():
    with pytest.raises(KeyError, match="00-survival"):
        quiz.question("00-nowhere")
    with pytest.raises(KeyError, match="no bank '77'"):
        quiz.exercise("77-nowhere")
    with pytest.raises(ValueError, match="at least one"):
        quiz.show()


# --- other types of questions ----------------------------------------------------------------------------------------

ORDER = {
    "id": "00-order", "objective": "O1", "claim": "C1.1", "type": "order", "question": "Sort.", "read": "here",
    "feedback": "Yes.",
    "answers": [
        {"answer": text, "place": place, "misconception": "m", "feedback": f"not {text}", "expression": expression}
        for text, place, expression in (("c", 3, "2 + 1"), ("a", 1, "0 + 1"), ("b", 2, "1 + 1"))
    ],
}  # fmt: skip
WORD = {
    "id": "00-word", "objective": "O1", "claim": "C1.1", "type": "string", "question": "Which word?", "read": "here",
    "answers": [
        {"answer": "yes", "also": ["yea"], "correct": True, "feedback": "Right."},
        {"answer": "no", "correct": False, "misconception": "m", "feedback": "Turn it."},
        {"type": "default", "feedback": "Another word."},
    ],
}  # fmt: skip


def with_changes(entry, at=None, /, **changes):
    copy = json.loads(json.dumps(entry))
    (copy if at is None else copy["answers"][at]).update(changes)
    return copy


def test_an_order_and_a_word_keep_the_format(tmp_path):
    bank = {"questions": [ORDER, WORD], "exercises": []}
    assert quiz.load(write(tmp_path, bank)) == bank
    assert quiz.answer_text(ORDER) == "b, c, a: Yes."
    assert quiz.answer_text(WORD) == "yes: Right."
    assert quiz.answer_text(with_changes(WORD, 0, feedback="Yes: of both.")) == "yes: Of both."


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (with_changes(ORDER, 0, place=4), "whose `place` numbers them from 1"),
        (with_changes(ORDER, answers=ORDER["answers"][:2]), "three or more"),
        (with_changes(ORDER, answers=[ORDER["answers"][i] for i in (1, 2, 0)]), "right order already"),
        (with_changes(ORDER, feedback=""), "needs `feedback`"),
        (with_changes(ORDER, 0, expression="0 + 0"), "neither rise nor fall"),
        (with_changes(ORDER, 0, misconception=""), "name of its misconception"),
        (with_changes(WORD, answers=WORD["answers"][:2]), 'type "default"'),
        (with_changes(WORD, 1, answer="YEA"), "all different"),
        (with_changes(WORD, 1, correct=True), "exactly one correct"),
    ],
)
def test_faults_of_an_order_or_a_word_are_named(entry, message, tmp_path):
    with pytest.raises(quiz.BankError, match=re.escape(message)):
        quiz.load(write(tmp_path, {"questions": [entry], "exercises": []}))


def test_tests_hold_questions_of_every_objective_and_share_none():
    """Two for each objective in the entry test, three in the exit test, in the order of the objectives."""
    asked = {name: [quiz.question(i) for i in quiz.questions_of(name)] for name in ("entry", "exit")}
    for name, each in (("entry", 2), ("exit", 3)):
        assert [entry["objective"] for entry in asked[name]] == [f"O{k}" for k in range(1, 11) for _ in range(each)]
    assert not set(quiz.questions_of("entry")) & set(quiz.questions_of("exit"))
    assert {entry["type"] for entry in asked["exit"]} == set(quiz.TYPES) - {"many_choice"}
    with pytest.raises(KeyError, match="entry, exit"):
        quiz.questions_of("final")


# --- other systems ----------------------------------------------------------------------------------------------------


def test_moodle_gets_every_question_with_full_marks_for_the_right_answer():
    root = ElementTree.fromstring(quiz.export("moodle"))
    assert [name.text for name in root.iterfind("question/name/text")] == quiz.identifiers()
    for question in root.iterfind("question"):
        entry = quiz.question(question.findtext("name/text"))
        earned = [float(answer.get("fraction")) for answer in question.iterfind("answer")]
        assert sum(share for share in earned if share > 0) == pytest.approx(
            100 * (1 if entry["type"] not in ("order", "string") else sum(e > 0 for e in earned))
        )
        assert all(answer.findtext("feedback/text") for answer in question.iterfind("answer"))
        if entry["type"] == "numeric":
            key = float(quiz.evaluate(entry["expression"]))
            right = next(a for a in question.iterfind("answer") if a.get("fraction") == "100")
            assert float(right.findtext("text")) == key
        if entry["type"] == "order":
            places = {html.escape(a["answer"], quote=False): a["place"] for a in entry["answers"]}
            assert [places[a.findtext("text")] for a in question.iterfind("answer")] == sorted(places.values())


def test_json_holds_the_computed_keys(capsys):
    entries = json.loads(quiz.export("json"))["questions"]
    assert [entry["id"] for entry in entries] == quiz.identifiers()
    assert all("key" in entry for entry in entries if entry["type"] == "numeric")
    assert quiz.main(["export", "json", "00-pooled"]) == 0
    assert json.loads(capsys.readouterr().out)["questions"][0]["key"] == pytest.approx(4.3288)
    assert quiz.main(["export", "scorm"]) == 2 and "json, moodle, qti" in capsys.readouterr().err


QTI = {"q": "http://www.imsglobal.org/xsd/ims_qtiasiv1p2"}


@pytest.fixture(scope="module")
def qti_items(tmp_path_factory):
    """The items of the QTI package that the command writes, by the ids of their questions."""
    path = tmp_path_factory.mktemp("qti") / "quiz.zip"
    assert quiz.main(["export", "qti", "--out", str(path)]) == 0
    with zipfile.ZipFile(path) as package:
        manifest = ElementTree.fromstring(package.read("imsmanifest.xml"))
        named = next(
            f.get("href") for f in manifest.iter() if f.tag.endswith("}file") and "assessment_meta" not in f.get("href")
        )
        items = ElementTree.fromstring(package.read(named)).iterfind(".//q:item", QTI)
        return {item.get("title"): item for item in items}


def shown_texts(item):
    """Return the texts of a QTI item as a reader sees them: without marks, entities resolved."""
    return [html.unescape(re.sub("<[^>]*>", "", text.text)) for text in item.iterfind(".//q:mattext", QTI)]


def full_marks(item):
    """Return the condition of a QTI item under which 100 points are given."""
    rules = item.iterfind(".//q:respcondition", QTI)
    return next(rule for rule in rules if rule.findtext("q:setvar", namespaces=QTI) == "100").find(
        "q:conditionvar", QTI
    )


def test_qti_holds_every_question_word_for_word(qti_items):
    """No mark of Markdown is lost or added on the way: underscores, brackets, stars and quotes arrive as they are."""
    assert list(qti_items) == quiz.identifiers()
    for name, item in qti_items.items():
        entry, texts = quiz.question(name), " ".join(shown_texts(item))
        options = (
            [a["answer"] for a in entry["answers"]]
            if entry["type"] in ("multiple_choice", "many_choice", "order")
            else []
        )
        feedback = [
            a["feedback"] for a in entry["answers"] if options or a.get("correct") or a.get("type") == "default"
        ]
        for text in [entry["question"], entry["read"], entry.get("feedback", ""), *options, *feedback]:
            assert text in texts, (name, text)


def test_qti_gives_full_marks_for_the_right_answer(qti_items):
    for name, item in qti_items.items():
        entry, condition = quiz.question(name), full_marks(item)
        equal = [e.text for e in condition.findall("q:varequal", QTI)]
        right = [a for a in entry["answers"] if a.get("correct")]
        if entry["type"] == "numeric":
            low, high = (float(condition.findtext(f".//q:{tag}", namespaces=QTI)) for tag in ("vargte", "varlte"))
            assert low <= float(quiz.evaluate(entry["expression"])) <= high
        elif entry["type"] == "string":
            assert equal == [right[0]["answer"], *right[0].get("also", [])]
        elif entry["type"] == "order":
            assert equal == [quiz.answer_text(entry).partition(":")[0].replace(", ", "")]
        else:
            chosen = equal or [e.text for e in condition.findall("q:and/q:varequal", QTI)]
            labels = {e.get("ident"): shown_texts(e)[0] for e in item.iterfind(".//q:response_label", QTI)}
            assert [labels[ident] for ident in chosen] == [a["answer"] for a in right], name


def test_an_export_that_cannot_be_written_says_why(tmp_path, capsys, monkeypatch):
    assert quiz.main(["export", "json", "--out"]) == 2 and "needs the name of a file" in capsys.readouterr().err
    assert (
        quiz.main(["export", "json", "--out", str(tmp_path / "no" / "x")]) == 2
        and "No such file" in capsys.readouterr().err
    )
    assert quiz.main(["export", "moodle", "00-pooled", "--out", str(tmp_path / "x.xml")]) == 0
    assert (tmp_path / "x.xml").read_text(encoding="utf-8") == quiz.export("moodle", "00-pooled")
    monkeypatch.setitem(sys.modules, "text2qti.quiz", None)
    assert quiz.main(["export", "qti"]) == 2 and "pip install text2qti" in capsys.readouterr().err


# --- the checker ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (0.41611, "Right."),
        ("0.416", "Right."),
        (0.8, "conditional rate"),
        (41.61, "percentage"),
        (416.1, "factor of 1000"),
        (-0.4161, "sign"),
        (1 / 0.41611, "upside down"),
        (0.42, "Very near, but a little too large"),
        (0.2, "Too small."),
        (float("inf"), "not a finite number"),
        ("about 0.4", "not a formula"),
        (True, "not a finite number"),
        (None, "not a finite number"),
    ],
)
def test_a_number_is_told_what_is_wrong_with_it(answer, message):
    verdict = quiz.check("00-pooled", answer)
    assert message in verdict.message
    assert bool(verdict) == verdict.correct == (message == "Right.")


def test_a_list_is_told_which_entry_is_wrong():
    assert quiz.check("00-residual", ["2/3", "1/3", 0])
    assert "Entry 2" in quiz.check("00-residual", ["2/3", "1/4", 0]).message
    assert "add up to one" in quiz.check("00-residual", [0.25, 0.125, 0]).message
    assert "asks for 3" in quiz.check("00-residual", [1, 0]).message
    assert "not a list" in quiz.check("00-residual", 0.5).message


FORMULA = {
    "kind": "expression",
    "variables": {"a": "fraction", "gamma": "whole"},
    "expression": "(1 - a**(gamma + 1)) / (1 - a)",
    "hints": [
        {"expression": "(1 - a**gamma) / (1 - a)", "misconception": "no bonus", "hint": "Who adds the last token?"}
    ],
}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("(1-a^(γ+1))/(1-a)", "Right."),
        ("(a**(gamma+1) - 1)/(a - 1)", "Right."),
        (lambda a, gamma: sum(a**i for i in range(gamma + 1)), "Right."),
        ("(1-a^γ)/(1-a)", "Who adds the last token?"),
        ("1 + gamma*a", "your formula gives"),
        ("1 + gamma*b", "uses 'b'"),
        ("__import__('os').getcwd()", "more than a formula"),
        ("import os", "not a formula"),
        (lambda a: a, "unexpected keyword argument"),
    ],
)
def test_formulas_are_compared_as_formulas(answer, message):
    assert message in quiz.check_answer(FORMULA, answer).message


EQUAL = [  # to L*t - g*d - o
    "t*L - o - d*g", "-(g*d + o) + L*t", "L*t - (g*d + o)", "(2*L*t - 2*g*d - 2*o)/2", "L·t − g·d − o", "L×t - o - g×d",
    "t*(L - g*d/t - o/t)", "(L²*t - L*g*d - L*o)/L", "L*t - g*d - o*(g - 1)/(g - 1)",
    lambda L, t, g, d, o: L * t - g * d - o,
]  # fmt: skip
NEAR = [
    "L*t - g*d + o", "(L - 1)*t - g*d - o", "L*t - (g + 1)*d - o", "L*t - g*(d + o)", "L*t/(g*d + o)", "L*t - g*d - o - t",
    "L*t - g*d - 1.0001*o", "abs(L*t - g*d - o)", "L*t - g^2*d - o", "min(L*t - g*d - o, 20)",
]  # fmt: skip
CLUMSY = {
    "1/0": "divides by zero", "(L*t)/(t - t)": "divides by zero", "0**-1": "divides by zero",
    "9**9**9": "a power that is too large", "L^10^10^10": "a power that is too large", "(2**5000)**5000": "too large",
    "exp(1e9)": "cannot be worked out", "log(0)": "cannot be worked out", "sqrt(-1)": "cannot be worked out",
    "1e400": "not a finite number", "(-1)**0.5": "not a finite number", "exp": "not a finite number",
    "2(L)": "a product needs *", "L(t)": "a product needs *", "L t": "a product needs *",
    "__import__('os').getcwd()": "a formula", "L.__class__": "a formula", "'a'*10**10": "a formula", "1 << 10**9": "a formula",
    "print(L)": "'print', which is not known", "sum(range(10**12))": "not known", "round(L, 10**9)": "not known",
    "(" * 5000: "5000 characters", "-" * 99999 + "1": "characters", "L if t else o": "a formula", "True": "a formula",
}  # fmt: skip


def test_equal_formulas_are_right_and_near_misses_are_not():
    for form in EQUAL:
        assert quiz.check("drill-verify", form), form
    for form in NEAR:
        verdict = quiz.check("drill-verify", form)
        assert not verdict and "At L = " in verdict.message, form


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("answer", CLUMSY)
def test_an_impossible_or_malicious_formula_is_answered_at_once(answer):
    """Nothing of it is run, nothing keeps the reader waiting, and a division by zero is not taken for an equal formula."""
    verdict = quiz.check("drill-verify", answer)
    assert not verdict and CLUMSY[answer] in verdict.message and len(verdict.message) < 300


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("", "empty"),
        ("0,4161", "write the decimal point as a point"),
        ("41.6 %", "give the number alone"),
        ("0.416 tokens", "give the number alone"),
        ("9**9**9", "too large"),
        ("pooled", "digits alone"),
        (list(range(999)), "not a finite number"),
    ],
)
def test_a_number_in_a_wrong_form_is_told_the_right_one(answer, message):
    verdict = quiz.check("00-pooled", answer)
    assert not verdict and message in verdict.message and len(verdict.message) < 200


LINES = ["1 + a + a^2 + a^3 + a^4", "(1 - a^5) / (1 - a)"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (LINES, "Right."),
        ("\n".join([LINES[0], "= (a^5 - 1)/(a - 1)"]), "Right."),
        ([LINES[0], "a^4 + a^3 + a*a + a + 1", "(1 - a**5) / (1 - a)"], "Right."),
        ([LINES[0], "(1 - a^4) / (1 - a)"], "the sum has five terms"),
        ([LINES[0], "1 + a", LINES[1]], "Line 2: At a = "),
        ([LINES[0], "(1 - b^5) / (1 - b)"], "Line 2: "),
        ([LINES[0], LINES[0]], "not yet as short"),
        (LINES[1:], "two lines at least"),
        ([], "two lines at least"),
        ("", "two lines at least"),
        (5, "not a derivation"),
        ([1, 2], "not a derivation"),
        (["1 +", "2"], "not a formula"),
    ],
)
def test_a_derivation_is_compared_line_by_line(answer, message):
    verdict = quiz.check("drill-closed", answer)
    assert message in verdict.message
    assert verdict.correct == (message == "Right.")


def broken(**_):
    raise RuntimeError("a student's function")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers()
    | st.sampled_from([broken, object(), 10**400, "1/0", "exp(1e9)", "(" * 500, "\x00", "a = 1", "lambda: 1", "9**9**9", "-" * 9999]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2) | st.tuples(inner),
    max_leaves=6,
)  # fmt: skip
ONE_OF_EACH = ("00-pooled", "02-table", "drill-verify", "drill-closed", "08-gate-decide")


@given(st.sampled_from(ONE_OF_EACH), ANYTHING)
def test_whatever_is_given_the_checker_answers_with_a_message(identifier, answer):
    verdict = quiz.check(identifier, answer)
    assert verdict.message and isinstance(verdict.message, str)


@given(st.text() | st.integers() | st.none())
def test_an_unknown_id_is_a_message_too(identifier):
    verdict = quiz.check(identifier, 1)
    assert not verdict and "there " in verdict.message


def test_an_answer_that_fails_by_itself_is_a_message():
    assert "a student's function" in quiz.check("drill-verify", broken).message
    assert "two lines" not in quiz.check("drill-closed", object()).message


def test_a_choice_is_compared_without_case():
    entry = {"kind": "choice", "choices": ["faster", "slower"], "answer": "slower", "hints": []}
    assert quiz.check_answer(entry, " Slower")
    assert "No." in quiz.check_answer(entry, "faster").message
    assert "not one of the choices" in quiz.check_answer(entry, "equal").message


def test_a_verdict_prints_its_mark():
    assert repr(quiz.check("00-pooled", 0.41611)) == "✓ Right."
    assert repr(quiz.check("00-pooled", 0.8)).startswith("✗ ")


# --- what is shown --------------------------------------------------------------------------------------------------


def markup(*identifiers):
    _quiz_html._shown.clear()
    entries = [quiz.question(identifier) for identifier in identifiers]
    return _quiz_html.interactive(entries, [quiz.answer_text(entry) for entry in entries])


def test_the_html_depends_on_the_id_alone():
    assert markup("00-survival") == markup("00-survival")


def test_a_second_copy_on_a_page_has_its_own_element():
    first = markup("00-survival")
    entry = quiz.question("00-survival")
    second = _quiz_html.interactive([entry], [quiz.answer_text(entry)])
    assert 'id="quiz_00_survival"' in first and 'id="quiz_00_survival_2"' in second
    assert first.count("<div") == first.count("</div>")


def test_the_printed_form_has_question_options_and_answers():
    text = quiz.printed("00-survival", "00-acceptance")
    assert "   d) 0.647" in text
    assert text.index("Answers") > text.index("2. Three possible tokens")
    assert "1. d: 0.478 / 0.739." in text and "2. 0.625: The smaller" in text


def test_on_paper_a_question_says_that_it_has_several_right_answers():
    entry = quiz.question("05-record")
    hint = "(More than one answer is right.)"
    assert hint in quiz.printed("05-record") and hint in _quiz_html.paper([entry], [quiz.answer_text(entry)])
    assert hint not in quiz.printed("00-survival")


def test_a_terminal_gets_the_printed_form(capsys):
    quiz.show("00-survival")
    assert capsys.readouterr().out.startswith("1. A vLLM log line")


def test_a_notebook_without_jupyterquiz_shows_the_list(monkeypatch):
    """No traceback where nothing but Jupyter is installed: the questions with folded answers, and what to install."""
    shown = []
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=object))
    monkeypatch.setitem(
        sys.modules, "IPython.display", types.SimpleNamespace(display=lambda data, raw: shown.append(data))
    )
    monkeypatch.setitem(sys.modules, "jupyterquiz", None)
    quiz.show("00-survival", "drill-round")
    page = shown[0]["text/html"]
    assert "pip install jupyterquiz" in page and "<script" not in page and page.count("<summary>Answer</summary>") == 2
    assert "<strong>2. One round of speculative decoding" in page and "<li>The draft proposes γ tokens.</li>" in page


def test_main_reports_every_bank(capsys):
    assert quiz.main() == 0
    assert f"{BANKS[0].name}: " in capsys.readouterr().out


def test_main_refuses_what_it_does_not_know(capsys):
    assert quiz.main(["exprot", "moodle"]) == 2
    said = capsys.readouterr()
    assert "'exprot' is not known here" in said.err and "export KIND" in said.err and not said.out


def test_ids_of_another_part_are_refused():
    assert len(quiz.identifiers("exercises")) != len(quiz.identifiers("questions")) == len(quiz.identifiers())
    with pytest.raises(ValueError, match="'answers' must be 'questions' or 'exercises'"):
        quiz.identifiers("answers")


def test_a_number_from_an_array_is_a_number():
    assert quiz.check("00-pooled", np.array(0.41611392)) and not quiz.check("00-pooled", np.array([0.41611392]))


def test_an_id_that_leads_out_of_the_banks_is_answered():
    assert "there is no bank 'tests/entry'" in quiz.check("tests/entry-x", 3).message


# --- in a browser ---------------------------------------------------------------------------------------------------

IDS = ("00-two-numbers", "00-pooled", "00-same-run", "drill-survival", "drill-round")


@pytest.fixture
def shown(page, request):
    """Return a page that shows three questions on the given ground, and the list of what its console said."""
    theme = getattr(request, "param", "light")
    ground = {"light": "#ffffff; color: #1a1a1a", "dark": "#121212; color: #e6e6e6"}[theme]
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    # a page whose MathJax is not ready yet: jupyterquiz by itself fails here, or loads MathJax from another host
    page.set_content(
        f'<html lang="en" data-theme="{theme}"><head><title>Quiz</title><script>MathJax = {{}};</script></head>'
        f'<body style="background: {ground}"><main><h1>Quiz</h1>{markup(*IDS)}</main></body></html>'
    )
    page.wait_for_timeout(600)  # jupyterquiz's own delay
    return page, said


@pytest.mark.browser
def test_answers_are_judged_and_explained(shown):
    page, said = shown
    first, number, many, word, _ = (page.locator(".Quiz").nth(i) for i in range(5))
    first.locator("label").nth(0).click()
    assert "how often guesses hit" in first.locator(".Feedback").inner_text()
    assert "Read on: the opening page" in first.locator(".Feedback").inner_text()
    first.locator("label").nth(2).click()
    assert first.locator(".Feedback").inner_text().startswith("Yes.")
    number.locator("input").fill("1,71")  # a decimal comma, as a phone's keyboard may offer nothing else
    number.get_by_role("button", name="Check").click()
    assert "pooled rate into the closed form" in number.locator(".Feedback").inner_text()
    number.locator("input").click()
    number.locator("input").fill("4.33")
    number.locator("input").press("Enter")
    assert "every acceptance law" in number.locator(".Feedback").inner_text()
    for place in (0, 1, 2, 4):
        many.locator("label").nth(place).click()
    assert "[4/4]" in many.locator(".Feedback").inner_text()
    word.locator("input").fill("conditional  rate")
    word.get_by_role("button", name="Check").click()
    assert "may rise" in word.locator(".Feedback").inner_text()
    word.locator("input").click()
    word.locator("input").fill("Survival")
    word.locator("input").press("Enter")
    assert word.locator(".Feedback").inner_text().startswith("Yes.")
    assert said == []


@pytest.mark.browser
def test_a_keyboard_is_enough_and_focus_is_seen(shown):
    page, _ = shown
    for _ in range(3):  # each option is a stop of its own: nothing is judged on the way
        page.keyboard.press("Tab")
    option = page.locator(".Quiz label").nth(2)
    assert option.evaluate("e => getComputedStyle(e).outlineWidth") == "3px"
    assert page.locator(".Feedback").first.inner_text() == ""
    page.keyboard.press("Space")
    assert page.locator(".Feedback").first.inner_text().startswith("Yes.")
    assert page.locator(".Feedback").first.get_attribute("role") == "status"


def tab_to(page, name):
    """Press Tab until the focused element has this accessible text or is that element's input."""
    for _ in range(80):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "(() => { const e = document.activeElement; return e === document.body ? '' : e.getAttribute('aria-label') || "
            "e.textContent || (e.labels && e.labels[0] ? e.labels[0].textContent : ''); })()"
        )
        if name in focused:
            return
    pytest.fail(f"the keyboard does not reach {name!r}")


@pytest.mark.browser
def test_right_and_wrong_path_of_each_type_by_keyboard_alone(shown):
    page, said = shown
    feedback = [page.locator(".Quiz").nth(i).locator(".Feedback") for i in range(5)]
    options = [a["answer"] for a in quiz.question(IDS[0])["answers"]]
    tab_to(page, options[0])
    page.keyboard.press("Space")
    assert "how often guesses hit" in feedback[0].inner_text()
    tab_to(page, options[2])
    page.keyboard.press("Space")
    assert feedback[0].inner_text().startswith("Yes.")

    for text, found in (("1.71", "pooled rate into the closed form"), ("4.33", "every acceptance law")):
        tab_to(page, "Your number")
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        assert found in feedback[1].inner_text()
    for answer in quiz.question(IDS[2])["answers"]:
        tab_to(page, answer["answer"])
        page.keyboard.press("Space")
        assert feedback[2].inner_text()
    for text, found in (("acceptance", "may rise"), ("survival", "Yes.")):
        tab_to(page, "Your answer")
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        assert found in feedback[3].inner_text()

    tab_to(page, "Check the order")
    page.keyboard.press("Enter")
    assert feedback[4].inner_text().startswith("Place 1: ") and "incorrect" in feedback[4].get_attribute("class")
    places = [a["place"] for a in quiz.question(IDS[4])["answers"]]
    texts = [a["answer"] for a in sorted(quiz.question(IDS[4])["answers"], key=lambda a: a["place"])]
    for target, text in enumerate(texts):  # each line in turn up to its place
        items = page.locator(".sg-order li span").all_inner_texts()
        steps = items.index(text) - target
        if steps:
            tab_to(page, f"Move up: {text}")
        for _ in range(steps):
            page.keyboard.press("Enter")
            assert feedback[4].inner_text().startswith("Now at place")
    tab_to(page, "Check the order")
    page.keyboard.press("Enter")
    assert places != sorted(places) and feedback[4].inner_text().startswith("Yes:")
    assert said == []


@pytest.mark.browser
@pytest.mark.parametrize("shown", ["light", "dark"], indirect=True)
def test_accessible_in_both_themes(shown):
    from axe_playwright_python.sync_playwright import Axe

    page, _ = shown
    for i in range(5):
        quiz_ = page.locator(".Quiz").nth(i)
        if quiz_.locator("label.MCButton").count():
            quiz_.locator("label").nth(i).click()
        else:
            if quiz_.locator("input").count():
                quiz_.locator("input").fill("3")
            quiz_.locator("button").last.click()
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


@pytest.mark.browser
@pytest.mark.parametrize("java_script_enabled", [False])
def test_without_javascript_the_list_stands_there(browser, java_script_enabled):
    page = browser.new_page(java_script_enabled=java_script_enabled)
    page.set_content(markup("00-survival"))
    assert page.get_by_text("0.647").first.is_visible()
    answer = page.get_by_text("the quotient of neighbours")
    assert not answer.is_visible()
    page.get_by_text("Answer", exact=True).click()
    assert answer.is_visible()


@pytest.mark.browser
def test_print_shows_the_list_and_its_answers(shown):
    page, _ = shown
    page.emulate_media(media="print")
    assert not page.locator(".Quiz").first.is_visible()
    assert page.locator(".sg-paper details p").first.is_visible()
