"""The page side of `specgain.quiz`: one piece of HTML per question, made from jupyterquiz's own.

jupyterquiz draws the fields and judges the clicks.  Around it stand colours with enough contrast, a visible focus, a
live region for feedback, a button beside each field, questions about an order, and the same questions as a plain list
for readers without JavaScript and for print.  All of it travels with the cell's output, so that it works in JupyterLab
and Colab too; a built page keeps the first copy of the engine alone (`once_per_page`).
"""

import functools
import html
import json
import re
import string
import sys

COLORS = {  # each pair of text and ground has a contrast of 7 : 1 or more
    "--jq-multiple-choice-bg": "#1f3b57",
    "--jq-many-choice-bg": "#3b2a5c",
    "--jq-numeric-bg": "#1f3b57",
    "--jq-string-bg": "#1f3b57",
    "--jq-mc-button-bg": "#ffffff",
    "--jq-mc-button-border": "#6b7280",
    "--jq-numeric-input-bg": "#ffffff",
    "--jq-numeric-input-label": "inherit",
    "--jq-correct-color": "#0b5d2e",
    "--jq-incorrect-color": "#8f1d1d",
    "--jq-text-color": "#ffffff",
    "--jq-link-color": "#cfe3ff",
}

STYLE = """
.sg-quiz { margin: 1rem 0; max-width: 44rem; --sg-ground: #ffffff; --sg-text: #1a1a1a; --sg-edge: #6b7280;
  --sg-right: #e5f3ea; --sg-right-text: #0b4d27; --sg-wrong: #fbeaea; --sg-wrong-text: #7a1717; }
:is(html[data-theme="dark"], body[data-jp-theme-light="false"], html[theme="dark"]) .sg-quiz {
  --sg-ground: #22272e; --sg-text: #f0f3f6; --sg-edge: #8b949e;
  --sg-right: #10301d; --sg-right-text: #b9e6c9; --sg-wrong: #3a1717; --sg-wrong-text: #f6c9c9; }
.sg-quiz .Quiz { max-width: none !important; margin: 0 0 1rem; padding: 0; font-size: 1rem; line-height: 1.45; }
.sg-quiz :is(.MultipleChoiceQn, .ManyChoiceQn, .NumericQn, .StringQn, .OrderQn) { padding: .8rem 1rem; border-radius: .5rem; }
.sg-quiz .OrderQn { background: #3b2a5c; color: #ffffff; }
.sg-quiz .sg-order { margin: .3rem 0; padding-left: 1.6rem; }
.sg-quiz .sg-order li { margin: .35rem 0; }
.sg-quiz .sg-order span { display: inline-block; width: calc(100% - 7.6rem); margin-right: .6rem; }
.sg-quiz .sg-order div { display: inline-block; white-space: nowrap; }
.sg-quiz .sg-order button { margin-right: .3rem; }
.sg-quiz .Answer { grid-template-columns: 1fr; grid-gap: .5rem; margin: .5rem 0; border-radius: .5rem; }
.sg-quiz :is(.MCButton, .Input-text, button) { background: var(--sg-ground); color: var(--sg-text);
  border: 1px solid var(--sg-edge); border-radius: .4rem; }
.sg-quiz .MCButton { justify-content: flex-start; text-align: left; font-size: 1rem; margin: 0;
  padding: .55rem .9rem; position: relative; }
.sg-quiz .MCButton input { position: absolute; opacity: 0; width: 1px; height: 1px; margin: 0; }
.sg-quiz .MCButton:hover { box-shadow: inset 0 0 0 1px var(--sg-edge); }
.sg-quiz :is(.MCButton:focus-within, .Input-text:focus, button:focus-visible) {
  outline: 3px solid #c2570c; outline-offset: 2px; }
.sg-quiz :is(.correctButton, .incorrectButton) { animation: none; box-shadow: none; color: #ffffff; }
.sg-quiz .correctButton { background: #0b5d2e; }
.sg-quiz .incorrectButton { background: #8f1d1d; }
.sg-quiz label.correctButton::before { content: "✓"; margin-right: .6rem; }
.sg-quiz label.incorrectButton::before { content: "✗"; margin-right: .6rem; }
.sg-quiz .InpLabel { float: none; display: block; margin: 0 0 .3rem; font-size: 1rem; color: inherit; }
.sg-quiz .Input-text { display: inline-block; margin: 0 .5rem 0 0; font-size: 1rem; line-height: 1.6; max-width: 60%; }
.sg-quiz button { font: inherit; padding: .3rem .9rem; cursor: pointer; }
.sg-quiz .Feedback { font-size: 1rem; text-align: left; }
.sg-quiz .Feedback:is(.correct, .incorrect) { padding: .6rem 1rem; border-left: .3rem solid; border-radius: .25rem; }
.sg-quiz .Feedback.correct { background: var(--sg-right); color: var(--sg-right-text); }
.sg-quiz .Feedback.incorrect { background: var(--sg-wrong); color: var(--sg-wrong-text); }
.sg-quiz-live .sg-paper { display: none; }
.sg-paper ol { list-style: lower-alpha; }
@media (max-width: 576px) { .sg-quiz .sg-order span { display: block; width: auto; } }
@media print {
  .sg-quiz .Quiz { display: none; }
  .sg-quiz .sg-paper { display: block; }
  .sg-paper > :is(p, ol) { break-inside: avoid; break-after: avoid; }
  .sg-paper details::details-content { content-visibility: visible; }
}
"""

# jupyterquiz has no question about an order: this is one, in its own pattern. Each line has two buttons, which the keyboard
# reaches like any other; a move is announced in the live region.
ORDER = """
class OrderQuestion extends Question {
  render() {
    var qa = this.qa, list = document.createElement("ol"), check = document.createElement("button"), told = this.fbDiv;
    this.outerqDiv.className = "OrderQn";
    this.aDiv.style.display = "block";
    list.className = "sg-order";
    function say(text, kind) { told.className = "Feedback " + kind; told.innerHTML = text; }
    qa.answers.forEach(function (answer) {
      var item = document.createElement("li"), text = document.createElement("span"), moves = document.createElement("div");
      text.innerHTML = answer.answer;
      item.dataset.place = answer.place;
      item.dataset.feedback = answer.feedback;
      item.append(text, moves);
      [["up", "↑"], ["down", "↓"]].forEach(function (way) {
        var button = document.createElement("button");
        button.type = "button";
        button.textContent = way[1];
        button.setAttribute("aria-label", "Move " + way[0] + ": " + text.textContent);
        button.onclick = function () {
          var other = way[0] === "up" ? item.previousElementSibling : item.nextElementSibling;
          if (other && way[0] === "up") other.before(item);
          if (other && way[0] === "down") other.after(item);
          button.focus();
          say("Now at place " + (1 + Array.from(list.children).indexOf(item)) + ".", "");
        };
        moves.append(button);
      });
      list.append(item);
    });
    check.type = "button";
    check.textContent = "Check the order";
    check.onclick = function () {
      var place = Array.from(list.children).findIndex((item, i) => Number(item.dataset.place) !== i + 1);
      if (place < 0) say(qa.feedback, "correct");
      else say("Place " + (place + 1) + ": " + list.children[place].dataset.feedback, "incorrect");
    };
    this.aDiv.append(list, check);
    this.wrapper.append(this.fbDiv);
  }
}
Question.register("order", OrderQuestion);
"""

# Runs after jupyterquiz has built its fields: names for assistive technology, a tab stop for each option, a button.
FINISH = """
  box.parentElement.classList.add("sg-quiz-live");
  box.querySelectorAll(".Feedback").forEach(function (f) { f.setAttribute("role", "status"); });
  box.querySelectorAll(".Quiz").forEach(function (quiz) {
    var text = quiz.querySelector("[id^=quizQn]"), answers = quiz.querySelector(".Answer");
    var number = quiz.querySelector(".NumericQn") !== null;
    answers.setAttribute("role", "group");
    answers.setAttribute("aria-labelledby", text.id);
    answers.querySelectorAll("input[type=radio]").forEach(function (input) {
      input.removeAttribute("name");
      input.addEventListener("change", function () {
        answers.querySelectorAll("input").forEach(function (other) { other.checked = other === input; });
      });
    });
    answers.querySelectorAll("input[type=text]").forEach(function (input) {
      var label = answers.querySelector("label"), button = document.createElement("button");
      label.htmlFor = input.id;
      label.textContent = number ? "Your number" : "Your answer";
      input.autocomplete = "off";
      input.onpaste = null;
      button.type = "button";
      button.textContent = "Check";
      button.onclick = function () {
        input.value = number ? input.value.replace(",", ".") : input.value.trim().replace(/\\s+/g, " ");
        input.dispatchEvent(new KeyboardEvent("keypress", { keyCode: 13, which: 13 }));
      };
      input.after(button);
    });
  });
"""

_ENGINE_KEYS = ("answer", "correct", "feedback", "type", "value", "range", "code", "place")
_shown = {}  # element → how often it was shown in this process, so that a second copy on a page has its own name


def interactive(questions, answers):
    """Return one piece of HTML with the questions (dicts of a bank): clickable, and as a list without JavaScript.

    `answers` holds the text of the right answer for each question, for the list.
    """
    questions = numbered(questions)
    markup, _, identifier = _jupyterquiz(load_js=False)
    name = "quiz_" + re.sub(r"\W", "_", questions[0]["id"])
    _shown[name] = _shown.get(name, 0) + 1
    name += f"_{_shown[name]}" if _shown[name] > 1 else ""
    box = markup.partition("<style>")[0].replace(identifier, name) + "</div>"  # jupyterquiz leaves its element open
    given = json.dumps([for_engine(entry) for entry in questions], ensure_ascii=False).replace("</", "<\\/")
    call = f'<script>specgainQuiz("{name}", {given});</script>'
    return f'<div class="sg-quiz">{box}{paper(questions, answers)}{engine()}{call}</div>'


def numbered(questions):
    """Return the questions with a number in front of each, unless there is only one."""
    if len(questions) == 1:
        return questions
    return [entry | {"question": f"{i}. {entry['question']}"} for i, entry in enumerate(questions, start=1)]


@functools.cache
def engine():
    """Return the style and the script that every output needs: they define `specgainQuiz(id, questions)`."""
    markup, script, identifier = _jupyterquiz(load_js=True)
    style = markup.partition("<style>")[2].replace(f"#{identifier}", ".sg-quiz").replace("</style>", "")
    changes = {
        f"var questions{identifier}=[]": f"var questions{identifier} = questions",
        f'getElementById("{identifier}")': "getElementById(id)",
        "function try_show() {": ORDER + "\nfunction try_show() {",
    }
    for old, new in changes.items():
        if old not in script:
            raise ImportError(f"this jupyterquiz has no {old!r} in its script; specgain works with 2.9.6")
        script = script.replace(old, new)
    script = script.replace(identifier, "box")
    # The engine sees neither MathJax, which it would load from another host, nor the console, where it logs each click.
    head = "window.specgainQuiz = function (id, questions) {\nvar box = document.getElementById(id);\n"
    body = "(function (MathJax, console) {\n" + script + "\n})(undefined, { log() {}, error() {} });"
    return f'<style class="sg-engine">{style}{STYLE}</style><script class="sg-engine">{head}{body}{FINISH}}};</script>'


def once_per_page(body):
    """Return a page's HTML with the first copy of the engine alone; the other outputs use that one."""
    first, mark, rest = body.partition(engine())
    return first + mark + rest.replace(engine(), "")


def for_engine(entry):
    """Return the question with jupyterquiz's keys only; text is escaped, since jupyterquiz sets it as HTML."""
    answers = []
    for answer in entry["answers"]:
        keep = {name: value for name, value in answer.items() if name in _ENGINE_KEYS}
        if not answer.get("correct"):
            keep["feedback"] += f" Read on: {entry['read']}."
        escaped = {name: html.escape(v, quote=False) if isinstance(v, str) else v for name, v in keep.items()}
        if entry["type"] == "string" and "answer" in keep:  # compared with what is typed, so not escaped
            answers += [escaped | {"answer": word} for word in (keep["answer"], *answer.get("also", ()))]
        else:
            answers.append(escaped)
    own = {name: entry[name] for name in ("type", "precision", "answer_cols", "code", "feedback") if name in entry}
    if "feedback" in own:
        own["feedback"] = html.escape(own["feedback"], quote=False)
    return own | {"question": html.escape(entry["question"], quote=False), "answers": answers}


def _jupyterquiz(load_js):
    """Return (markup, JavaScript, element id) as jupyterquiz makes them for no question at all."""
    try:
        from jupyterquiz import display_quiz
    except ImportError as error:
        raise ImportError("Questions that can be clicked need jupyterquiz 2.9.6: pip install jupyterquiz") from error
    module, pieces = sys.modules[display_quiz.__module__], []
    display, module.display = module.display, pieces.append  # take what it would display
    try:
        display_quiz([], shuffle_answers=False, max_width=704, colors=COLORS, load_js=load_js)
    finally:
        module.display = display
    markup, script = (piece.data for piece in pieces)
    return markup, script, re.search(r'<div id="(\w+)"', markup).group(1)


def lettered(entry):
    """Return (letter, answer) for each option of a question; none where the reader writes the answer."""
    return (
        []
        if entry["type"] in ("numeric", "string")
        else list(zip(string.ascii_lowercase, entry["answers"], strict=False))
    )


def asked(entry):
    """Return the text of a question; one with several right answers says so."""
    return entry["question"] + " (More than one answer is right.)" * (entry["type"] == "many_choice")


def paper(questions, answers):
    """Return the HTML form without JavaScript: question, lettered options, and the answer folded (open in print)."""
    blocks = []
    for entry, text in zip(questions, answers, strict=True):
        options = "".join(f"<li>{html.escape(answer['answer'])}</li>" for _, answer in lettered(entry))
        blocks.append(
            f"<p><strong>{html.escape(asked(entry))}</strong></p>" + (f'<ol type="a">{options}</ol>' if options else "")
        )
        blocks.append(f"<details><summary>Answer</summary><p>{html.escape(text)}</p></details>")
    return f'<div class="sg-paper">{"".join(blocks)}</div>'
