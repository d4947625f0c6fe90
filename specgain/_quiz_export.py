"""The questions for other systems: text in the formats that `specgain.quiz.export` offers."""

import html
import json
import re
import string
import xml.etree.ElementTree as ET


def as_json(entries):
    """Return the entries as JSON text, as {"questions": [...]}."""
    return json.dumps({"questions": entries}, ensure_ascii=False, indent=1)


def moodle(entries):
    """Return the entries as a Moodle XML file's text; its question types are those of Moodle 4.5."""
    quiz = ET.Element("quiz")
    for entry in entries:
        sort = {"numeric": "numerical", "string": "shortanswer", "order": "ordering"}.get(entry["type"], "multichoice")
        question = ET.SubElement(quiz, "question", type=sort)
        _text(ET.SubElement(question, "name"), entry["id"])
        _html(question, "questiontext", entry["question"])
        _html(question, "generalfeedback", f"{entry['objective']}, {entry['claim']}. Read on: {entry['read']}.")
        tags = ET.SubElement(question, "tags")
        for tag in (entry["objective"], entry["claim"]):
            _text(ET.SubElement(tags, "tag"), tag)
        _BODY[sort](question, entry)
    ET.indent(quiz)
    return ET.tostring(quiz, encoding="unicode", xml_declaration=True)


def _text(parent, text):
    ET.SubElement(parent, "text").text = text


def _html(parent, name, text):
    """Add an element whose text Moodle shows as HTML."""
    _text(ET.SubElement(parent, name, format="html"), html.escape(text, quote=False))


def _answer(question, text, fraction, feedback, as_html=False):
    """Add an answer that earns `fraction` percent; return its element."""
    form = "html" if as_html else "moodle_auto_format"
    answer = ET.SubElement(question, "answer", fraction=f"{fraction:.7g}", format=form)
    _text(answer, html.escape(text, quote=False) if as_html else text)
    _html(answer, "feedback", feedback)
    return answer


def _choices(question, entry):
    """Add the options; with several right ones, each earns its share and each wrong one costs its share."""
    rights = sum(answer["correct"] for answer in entry["answers"])
    wrongs = len(entry["answers"]) - rights
    several = entry["type"] == "many_choice"
    ET.SubElement(question, "single").text = "false" if several else "true"
    ET.SubElement(question, "shuffleanswers").text = "true"
    for answer in entry["answers"]:
        cost = -100 / wrongs if several and wrongs else 0
        _answer(question, answer["answer"], 100 / rights if answer["correct"] else cost, answer["feedback"], as_html=True)


def _number(question, entry):
    """Add the key with half the width of the accepted range as tolerance, and the typical wrong numbers."""
    for answer in sorted(entry["answers"], key=lambda answer: answer.get("type") == "default"):
        low, high = answer.get("range", (answer.get("value"),) * 2)
        default = answer.get("type") == "default"
        middle = "*" if default else entry["key"] if answer["correct"] else (low + high) / 2
        given = _answer(question, str(middle), 100 if answer.get("correct") else 0, answer["feedback"])
        if not default:
            half = (high - low) / 2 or 10 ** -entry.get("precision", 6) * abs(middle) / 2
            ET.SubElement(given, "tolerance").text = f"{half:.6g}"


def _word(question, entry):
    ET.SubElement(question, "usecase").text = "0"
    for answer in sorted(entry["answers"], key=lambda answer: answer.get("type") == "default"):
        for word in (answer.get("answer", "*"), *answer.get("also", ())):
            _answer(question, word, 100 if answer.get("correct") else 0, answer["feedback"])


def _order(question, entry):
    """Add the lines in the right order, as Moodle wants them; it shuffles them itself."""
    ET.SubElement(question, "layouttype").text = "VERTICAL"
    ET.SubElement(question, "selecttype").text = "ALL"
    ET.SubElement(question, "gradingtype").text = "ALL_OR_NOTHING"
    _html(question, "correctfeedback", entry["feedback"])
    for answer in sorted(entry["answers"], key=lambda answer: answer["place"]):
        _answer(question, answer["answer"], 100, answer["feedback"], as_html=True)


_BODY = {"multichoice": _choices, "numerical": _number, "shortanswer": _word, "ordering": _order}


# --- QTI, by way of text2qti's own plain text ------------------------------------------------------------------------


def qti(entries):
    """Return the entries as the bytes of a QTI 1.2 package (a zip), written by text2qti."""
    try:
        from text2qti.config import Config
        from text2qti.qti import QTI
        from text2qti.quiz import Quiz
    except ImportError as error:
        raise ValueError("QTI is written by text2qti, which is not installed: pip install text2qti") from error
    return QTI(Quiz(text2qti_source(entries), config=Config())).zip_bytes()


def text2qti_source(entries):
    """Return the entries in the plain text that text2qti reads.

    Its QTI has no questions about an order and no feedback on a single wrong number or word: the letters of the right
    order are typed, and every wrong number or word gets the question's general feedback.
    """
    blocks = ["Quiz title: specgain", *(_text2qti_question(entry) for entry in entries)]
    return "\n\n".join(blocks) + "\n"


def _text2qti_question(entry):
    about, body = _plain(f"{entry['objective']}, {entry['claim']}. Read on: {entry['read']}."), _TEXT2QTI[entry["type"]]
    question, lines = body(entry)
    return "\n".join([f"Title: {entry['id']}", f"1. {question}", f"... {about}", *lines])


def _plain(text):
    """Return text in which nothing is Markdown or HTML any more."""
    return re.sub(r"([\\`*_{}\[\]()>#+.!'\"-])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))


def _marked(entry, right, wrong):
    """Return the question and its options, each behind the mark of a right or a wrong one and followed by its feedback."""
    marks = [right if answer["correct"] else wrong for answer in entry["answers"]]
    options = [f"{mark} {_plain(a['answer'])}\n... {_plain(a['feedback'])}" for mark, a in zip(marks, entry["answers"], strict=True)]
    return _plain(entry["question"]), options


def _typed(entry, answers):
    """Return the question and the lines of a typed answer: the feedback of the right one, that of all others, the answers."""
    right = next(answer for answer in entry["answers"] if answer.get("correct"))
    other = next(answer for answer in entry["answers"] if answer.get("type") == "default")
    return _plain(entry["question"]), [f"+ {_plain(right['feedback'])}", f"- {_plain(other['feedback'])}", *answers(right, entry)]


def _accepted_numbers(right, entry):
    low, high = right.get("range", (right.get("value"),) * 2)
    half = 0 if high > low else 10 ** -entry.get("precision", 6) * abs(low) / 2
    return [f"= [{low - half}, {high + half}]"]


def _accepted_words(right, _):
    return [f"* {word}" for word in (right["answer"], *right.get("also", ()))]


def _letters(entry):
    """Return a question about an order as one whose answer is the row of letters."""
    lettered = list(zip(string.ascii_lowercase, entry["answers"], strict=False))
    key = "".join(letter for letter, _ in sorted(lettered, key=lambda pair: pair[1]["place"]))
    lines = "".join(f"\n\n   {letter}: {_plain(answer['answer'])}" for letter, answer in lettered)
    question = f"{_plain(entry['question'] + ' Type the letters in the right order, without spaces.')}{lines}"
    hints = " ".join(f"About {letter}: {answer['feedback']}" for letter, answer in lettered)
    return question, [f"+ {_plain(entry['feedback'])}", f"- {_plain('Another order is right. ' + hints)}", f"* {key}"]


_TEXT2QTI = {
    "multiple_choice": lambda entry: _marked(entry, "*a)", "a)"),
    "many_choice": lambda entry: _marked(entry, "[*]", "[ ]"),
    "numeric": lambda entry: _typed(entry, _accepted_numbers),
    "string": lambda entry: _typed(entry, _accepted_words),
    "order": _letters,
}
WRITERS = {"json": as_json, "moodle": moodle, "qti": qti}
