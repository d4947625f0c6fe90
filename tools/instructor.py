"""Write what belongs to teachers alone into _build/instructor/: the keys, and slides of every figure (`make instructor`).

    .venv/bin/python tools/instructor.py

keys.html    the answers of both tests in their order; every question with its answers, misconceptions and feedback;
             every exercise with its computed key
slides-*.html  one slide for each figure of a chapter, with the heading it stands under and its caption; one file
             without any other, for a screen (space, arrows) and for print, since slides of reveal.js need a network

The slides are made from the built book, so `make book` comes first. The students' book holds none of this.
"""

import base64
import html
import mimetypes
import re
import sys
from pathlib import Path

from bs4 import BeautifulSoup

from specgain import quiz

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "_build" / "html" / "book"
TARGET = ROOT / "_build" / "instructor"
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>
<body><main><h1>{title}</h1>{body}</main>{script}</body></html>
"""
KEYS_STYLE = "body { font: 1rem/1.5 sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem } section { break-inside: avoid } .right { font-weight: bold }"
SLIDES_STYLE = """
body { margin: 0; font: 1.2rem/1.4 sans-serif; color: #1a1a1a; background: #ffffff }
h1, section { box-sizing: border-box; height: 100vh; margin: 0; padding: 4vh 5vw; display: flex; flex-direction: column; justify-content: center }
section h2 { margin: 0 0 2vh } section > p { margin: 2vh 0 0; font-size: 1rem }
section > div { overflow: hidden } section img, section .sg-figure svg { display: block; width: 100%; max-width: none; max-height: 68vh; margin: auto }
@page { size: 254mm 143mm; margin: 0 } @media print { h1, section { height: 143mm; break-after: page; break-inside: avoid } }
"""
SLIDES_SCRIPT = """<script>
document.addEventListener("keydown", function (event) {
  var step = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  window.scrollTo(0, (Math.round(window.scrollY / window.innerHeight) + step) * window.innerHeight);
});
</script>"""


# --- keys -----------------------------------------------------------------------------------------------------------


def question_key(entry):
    """Return a question with its answers as HTML."""
    lines = []
    for answer in entry["answers"]:
        words = answer.get("answer", answer.get("value", answer.get("range", "anything else")))
        mark = "right" if answer.get("correct") else f"place {answer['place']}" if "place" in answer else "wrong"
        slip = f" ({answer['misconception']})" if "misconception" in answer else ""
        text = html.escape(f"{words}: {mark}{slip}. {answer['feedback']}")
        lines.append(f'<li class="{mark}">{text}</li>')
    head = f"{entry['id']}, {entry['objective']}, {entry['claim']}"
    text = f"<p>{html.escape(entry['question'])}</p><ul>{''.join(lines)}</ul><p>{html.escape(quiz.answer_text(entry))}</p>"
    return f"<section><h3>{head}</h3>{text}</section>"


def exercise_key(entry):
    """Return an exercise with its computed key and its typical mistakes as HTML."""
    key = quiz.key_text(entry)
    slips = [f"<li>{html.escape(hint['misconception'] + ': ' + hint['hint'])}</li>" for hint in entry.get("hints", [])]
    head = f"{entry['id']}, {entry['objective']}, {entry['claim']}, {entry['minutes']} minutes"
    text = f'<p>{html.escape(entry["question"])}</p><p class="right">{html.escape(key)}</p><ul>{"".join(slips)}</ul>'
    return f"<section><h3>{head}</h3>{text}</section>"


def key_of_test(name):
    """Return the right answers of a test, in the order of its questions, as HTML."""
    answers = [f"<li>{i}: {html.escape(quiz.answer_text(quiz.question(i)))}</li>" for i in quiz.questions_of(name)]
    return f"<h2>Test: {name}</h2><ol>{''.join(answers)}</ol>"


def keys():
    """Return the page of all keys."""
    body = [key_of_test("entry"), key_of_test("exit"), "<h2>Questions</h2>"]
    body += [question_key(quiz.question(i)) for i in quiz.identifiers()]
    body += ["<h2>Exercises</h2>", *(exercise_key(quiz.exercise(i)) for i in quiz.identifiers("exercises"))]
    return PAGE.format(title="Answer keys", style=KEYS_STYLE, body="".join(body), script="")


# --- slides ---------------------------------------------------------------------------------------------------------


def embed_images(figure, folder):
    """Put the files of a figure's images into the figure itself."""
    for image in figure.select("img"):
        path = folder / image["src"]
        if not image["src"].startswith(("http", "data:")) and path.exists():
            data = base64.b64encode(path.read_bytes()).decode("ascii")
            image["src"] = f"data:{mimetypes.guess_type(path.name)[0]};base64,{data}"


def slides(path):
    """Return (title, list of slides) of a built page: for each figure its heading, the figure and its caption."""
    soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser").select_one("article")
    for anchor in soup.select("a.headerlink"):
        anchor.decompose()
    found = []
    for figure in soup.select("figure"):
        heading = figure.find_previous(["h1", "h2", "h3"]).get_text(" ", strip=True)
        caption = figure.figcaption.extract().get_text(" ", strip=True) if figure.figcaption else ""
        embed_images(figure, path.parent)
        about = html.escape(re.sub(r"\s+", " ", caption))
        found.append(f"<section><h2>{html.escape(heading)}</h2><div>{figure.decode_contents()}</div><p>{about}</p></section>")
    return soup.select_one("h1").get_text(" ", strip=True), found


def deck(path):
    """Return (HTML of the slides, their number) of a built page."""
    title, found = slides(path)
    return PAGE.format(title=html.escape(title), style=SLIDES_STYLE, body="".join(found), script=SLIDES_SCRIPT), len(found)


def main():
    TARGET.mkdir(parents=True, exist_ok=True)
    (TARGET / "keys.html").write_text(keys(), encoding="utf-8")
    pages = sorted(BOOK.glob("[0-9][0-9]-*.html"))
    if not pages:
        sys.exit("keys.html is written; for the slides build the book first: make book")
    for path in pages:
        page, count = deck(path)
        (TARGET / f"slides-{path.name}").write_text(page, encoding="utf-8")
        print(f"{path.stem}: {count} slides")
    print(f"The keys and the slides are in {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
