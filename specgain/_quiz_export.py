"""The questions for other systems: text in the formats that `specgain.quiz.export` offers."""

import html
import json
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
WRITERS = {"json": as_json, "moodle": moodle}
