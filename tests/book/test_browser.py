"""The built book in a real browser that can reach no other host: what a reader meets."""

import json
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from specgain import quiz

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
PHONE = {"width": 390, "height": 844}
LOUD = ("serious", "critical")


@pytest.fixture
def watched(page, site):
    """A browser page that refuses every other host and notes what goes wrong: returns (page, list of troubles)."""
    troubles = []

    def guard(route):
        if route.request.url.startswith((site, "data:", "blob:")):
            return route.continue_()
        troubles.append(f"asks another host: {route.request.url}")
        return route.abort()

    page.route("**/*", guard)
    page.on("requestfailed", lambda request: troubles.append(f"failed: {request.url}"))
    page.on("response", lambda reply: troubles.append(f"{reply.status}: {reply.url}") if reply.status > 399 else None)
    page.on("pageerror", lambda error: troubles.append(f"script error: {error}"))
    page.on("console", lambda line: troubles.append(f"console: {line.text}") if line.type == "error" else None)
    return page, troubles


def visit(page, address):
    """Open a page and wait until its formulas are typeset."""
    page.goto(address, wait_until="load")
    if page.locator("article .math").count():
        page.wait_for_function("window.MathJax && MathJax.startup && MathJax.startup.promise")
        page.evaluate("MathJax.startup.promise")
    page.wait_for_timeout(700)  # quizzes look for MathJax half a second after loading


def test_page_opens_without_trouble(watched, site, page_name):
    page, troubles = watched
    visit(page, f"{site}/{page_name}.html")
    assert not troubles


def test_formulas_are_typeset(watched, site, page_name):
    page, _ = watched
    visit(page, f"{site}/{page_name}.html")
    formulas = page.locator("article :is(span, div).math")
    if formulas.count() == 0:
        pytest.skip("a page without formulas")
    bare = formulas.evaluate_all("all => all.filter(f => !f.querySelector('mjx-container')).map(f => f.textContent)")
    assert not bare
    assert page.locator("article mjx-merror").count() == 0


def test_nothing_is_wider_than_a_phone(watched, site, page_name):
    page, _ = watched
    page.set_viewport_size(PHONE)
    visit(page, f"{site}/{page_name}.html")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(watched, site, page_name, scheme):
    page, _ = watched
    page.emulate_media(color_scheme=scheme)
    visit(page, f"{site}/{page_name}.html")
    found = Axe().run(page).response["violations"]
    loud = [
        f"{violation['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for violation in found
        if violation["impact"] in LOUD
        for node in violation["nodes"]
    ]
    assert not loud, "\n".join(loud)


@pytest.fixture
def quiz_page(watched, site, page_names):
    """The first published page with a quiz, opened."""
    page, troubles = watched
    for name in page_names:
        visit(page, f"{site}/{name}.html")
        if page.locator(".Quiz .MultipleChoiceQn").count():
            return page, troubles
    pytest.fail("no published page has a multiple-choice question")


def test_a_quiz_says_wrong_and_right(quiz_page):
    page, troubles = quiz_page
    quiz = page.locator(".Quiz:has(.MultipleChoiceQn)").first
    feedback = quiz.locator(".Feedback")
    quiz.locator("label.MCButton[data-correct=false]").first.click()
    assert "incorrect" in feedback.get_attribute("class") and feedback.inner_text()
    wrong = feedback.inner_text()
    quiz.locator("label.MCButton[data-correct=true]").click()
    assert "incorrect" not in feedback.get_attribute("class") and "correct" in feedback.get_attribute("class")
    assert feedback.inner_text() and feedback.inner_text() != wrong
    assert not troubles


def test_a_quiz_can_be_used_by_keyboard(quiz_page):
    page, _ = quiz_page
    quiz = page.locator(".Quiz:has(.MultipleChoiceQn)").first
    quiz.locator("input[type=radio]").first.focus()
    outline = quiz.locator("label.MCButton").first.evaluate("l => getComputedStyle(l).outlineStyle")
    assert outline != "none", "the focused answer shows no ring"
    page.keyboard.press("Space")
    assert quiz.locator(".Feedback").inner_text()


def typed(quiz, right):
    """Type a right or a wrong answer into the question's field, and press Enter."""
    field = quiz.locator("input[type=text]")
    answers = [answer for answer in json.loads(field.get_attribute("data-answers")) if answer.get("correct")]
    low, high = answers[0].get("range", (answers[0].get("value"),) * 2)
    text = answers[0].get("answer") or (f"{low:.10g}" if low == high else f"{(low + high) / 2:.6g}")
    field.blur()
    field.focus()
    quiz.page.keyboard.type(text if right else "-98765")
    quiz.page.keyboard.press("Enter")


def chosen(quiz, right):
    """Focus a right or a wrong option, and press the space bar."""
    quiz.locator(f"label.MCButton[data-correct={str(right).lower()}] input").first.focus()
    quiz.page.keyboard.press("Space")


def ordered(quiz, right):
    """Press the check button at once, or after the lines were moved up to their places."""
    places = [int(item.get_attribute("data-place")) for item in quiz.locator("li").all()]
    for place in sorted(places) if right else ():
        index = next(i for i, item in enumerate(quiz.locator("li").all()) if item.get_attribute("data-place") == str(place))
        quiz.locator("li").nth(index).get_by_role("button").first.focus()
        for _ in range(index + 1 - place):
            quiz.page.keyboard.press("Enter")
    quiz.get_by_role("button", name="Check the order").focus()
    quiz.page.keyboard.press("Enter")


WAYS = {  # a type of the bank: its element on the page, and how its questions are answered
    "multiple_choice": ("MultipleChoiceQn", chosen),
    "many_choice": ("ManyChoiceQn", chosen),
    "numeric": ("NumericQn", typed),
    "string": ("StringQn", typed),
    "order": ("OrderQn", ordered),
}


def asked(page_name):
    """Return the types of the questions that a page's source shows."""
    source = (ROOT / f"{page_name}.md").read_text(encoding="utf-8")
    shows = " ".join(re.findall(r"^show\((.*)\)$", source, re.MULTILINE))
    ids = [i for i in re.findall(r'"([\w-]+)"', shows) if "-" in i]
    ids += [i for name in re.findall(r'questions_of\("(\w+)"\)', shows) for i in quiz.questions_of(name)]
    return {quiz.question(i)["type"] for i in ids}


def test_wrong_and_right_by_keyboard_for_each_type_on_the_page(watched, site, page_name):
    """Every page that asks shows every type that it asks, and the first question of each takes both paths."""
    types = asked(page_name)
    if not types:
        pytest.skip("a page without questions")
    page, troubles = watched
    visit(page, f"{site}/{page_name}.html")
    for name in sorted(types):
        element, answer = WAYS[name]
        quizzes = page.locator(f".Quiz:has(.{element})")
        with_wrong = quizzes.filter(has=page.locator("[data-correct=false]"))
        question = with_wrong.first if answer is chosen and with_wrong.count() else quizzes.first
        feedback = question.locator(".Feedback")
        for right in (False, True) if question.locator("[data-correct=false]").count() or answer is not chosen else (True,):
            answer(question, right)
            said = feedback.get_attribute("class").split()
            assert ("correct" if right else "incorrect") in said and feedback.inner_text(), (name, right)
    assert not troubles


def test_every_type_of_question_stands_on_a_page(page_names):
    assert set().union(*map(asked, page_names)) == set(quiz.TYPES) == set(WAYS)


def test_search_finds_a_word_of_the_book(watched, site):
    page, troubles = watched
    page.goto(f"{site}/search.html?q=round")
    page.wait_for_selector("#search-results li")
    assert not troubles


def test_the_book_opens_as_a_file(page, book):
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("requestfailed", lambda request: errors.append(request.url))
    visit(page, (book / "index.html").as_uri())
    page.wait_for_selector("article h1")
    assert not errors


def test_print_shows_what_is_folded(watched, site, page_names):
    page, _ = watched
    page.emulate_media(media="print", color_scheme="dark")
    for name in page_names:
        visit(page, f"{site}/{name}.html")
        if page.locator("article details:not([open]), article .toggle-hidden").count():
            page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
            assert page.locator("article details:not([open]), article .toggle-hidden").count() == 0
            moving = "[...document.querySelectorAll('details *')].filter((e) => e.getAnimations().length).length"
            assert page.evaluate(moving) == 0, "what still fades in is printed blank"
            assert page.locator("html").get_attribute("data-theme") == "light"
            return
    pytest.skip("nothing is folded yet")
