"""What a teacher relies on: no hole in the bank, one script per page, labs that follow the conventions, the zip."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

from specgain import _quiz_html, quiz

ROOT = Path(__file__).resolve().parents[2]
LABS = sorted((ROOT / "notebooks").glob("*.ipynb"))
INSTRUCTOR = ROOT / "book" / "instructor"


def tool(name):
    """Return tools/<name>.py as a module."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(ROOT / "tools"))


# --- the learning check -----------------------------------------------------------------------------------------------


def test_every_objective_is_taught_asked_and_practised():
    """By the system's Python alone, as a teacher may run it: standard library only."""
    run = subprocess.run([sys.executable, "-S", ROOT / "tools" / "learning_check.py"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


ROW = {
    "questions": 3, "types": ["numeric", "order"], "exercises": 1, "pages": ["02-ledger"], "entry": 2, "exit": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "hole"),
    [
        ("questions", 2, "2 of 3 questions"),
        ("types", ["numeric"], "one type alone"),
        ("exercises", 0, "0 of 1 exercise"),
        ("pages", [], "no chapter"),
        ("entry", 0, "entry test"),
        ("exit", 0, "exit test"),
    ],
)
def test_each_hole_is_found(key, value, hole):
    check = tool("learning_check")
    assert check.row_holes(ROW) == []
    assert hole in " ".join(check.row_holes(ROW | {key: value}))


@pytest.fixture
def copy(tmp_path):
    """What the learning check reads, as a copy that a test may spoil."""
    shutil.copytree(ROOT / "book", tmp_path / "book", ignore=shutil.ignore_patterns("*.ipynb", "_static", "_ext"))
    shutil.copy(ROOT / "_toc.yml", tmp_path)
    return tmp_path


def rewritten(path, change):
    """Apply a change to the JSON file at `path`."""
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def without_objective(root, objective, part, keep=0):
    """Take all entries of an objective but some out of every bank."""
    seen = []

    def change(bank):
        mine = [entry for entry in bank[part] if entry["objective"] == objective]
        seen.extend(mine)
        bank[part] = [entry for entry in bank[part] if entry not in mine or seen.index(entry) < keep]

    for path in sorted((root / "book/quizzes").glob("*.json")):
        rewritten(path, change)


MUTATIONS = {
    "O2: 2 of 3 questions": lambda root: without_objective(root, "O2", "questions", keep=2),
    "O9: 0 of 1 exercise": lambda root: without_objective(root, "O9", "exercises"),
    "O6: no chapter names it": lambda root: (root / "book/04-workloads.md").unlink(),
    "O3: not in the entry test": lambda root: rewritten(root / "book/quizzes/tests/entry.json", lambda t: t.update(questions=["00-survival"])),
    "00-survival: an option without feedback": lambda root: rewritten(
        root / "book/quizzes/00.json", lambda bank: next(q for q in bank["questions"] if q["id"] == "00-survival")["answers"][0].pop("feedback")
    ),
    "02-log: no page has a solution that runs": lambda root: (root / "book/02-ledger.md").write_text(
        (root / "book/02-ledger.md").read_text(encoding="utf-8").replace('check("02-log"', 'print("02-log"'), encoding="utf-8"
    ),
}  # fmt: skip


@pytest.mark.parametrize("hole", ["none", *MUTATIONS])
def test_the_learning_check_fails_on_a_spoiled_course(hole, copy, capsys):
    MUTATIONS.get(hole, lambda root: None)(copy)
    assert tool("learning_check").main(copy) == (hole != "none")
    assert hole == "none" or hole in capsys.readouterr().out


def test_an_exercise_without_solution_and_a_test_with_an_unknown_question_are_holes(tmp_path):
    (tmp_path / "book/quizzes/tests").mkdir(parents=True)
    silent = {"id": "01-q", "answers": [{"feedback": ""}]}
    bank = {"questions": [silent], "exercises": [{"id": "01-a"}, {"id": "01-b"}]}
    (tmp_path / "book/quizzes/01.json").write_text(json.dumps(bank), encoding="utf-8")
    (tmp_path / "book/quizzes/tests/entry.json").write_text('{"questions": ["01-q", "01-q", "01-z"]}', encoding="utf-8")
    text = 'Check with `check("01-b", x)`.\n\n```{code-cell} python3\ncheck("01-a", 1)\n```\n'
    holes = tool("learning_check").other_holes(tmp_path, {"one": text})
    assert [hole.partition(":")[0] for hole in holes] == ["01-b", "01-q", "entry test", "entry test"]


def test_the_bank_is_as_large_and_as_mixed_as_promised():
    questions = [quiz.question(i) for i in quiz.identifiers()]
    exercises = [quiz.exercise(i) for i in quiz.identifiers("exercises")]
    assert len(questions) >= 60 and len(exercises) >= 30
    assert {entry["type"] for entry in questions} == set(quiz.TYPES)
    assert {entry["kind"] for entry in exercises} == set(quiz.KINDS)
    assert {entry["objective"] for entry in exercises} == {f"O{k}" for k in range(1, 11)}


def test_the_exit_test_asks_nothing_that_stands_on_another_page():
    """A question that a reader has met shows memory more than transfer."""
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "book").glob("*.md") if path.stem != "exit-test"]
    calls = " ".join(re.findall(r"\bshow\(([^)]*)\)", " ".join(pages)))
    met = set(re.findall(r'"([\w-]+)"', calls)) | set(quiz.questions_of("entry"))
    assert len(met) >= 60 and not met & set(quiz.questions_of("exit"))


# --- pages ------------------------------------------------------------------------------------------------------------


def shown(identifier):
    entry = quiz.question(identifier)
    return _quiz_html.interactive([entry], [quiz.answer_text(entry)])


def test_a_page_keeps_one_copy_of_the_script_of_its_quizzes():
    page = "<p>before</p>" + shown("00-survival") + "<p>between</p>" + shown("drill-round") + shown("00-pooled")
    once = _quiz_html.once_per_page(page)
    assert page.count("class OrderQuestion") == 3 and once.count("class OrderQuestion") == 1
    assert len(shown("00-survival")) - len(_quiz_html.engine()) < 6000  # what each further question adds
    assert once.index("class OrderQuestion") < once.index("<p>between</p>")
    assert once.count("specgainQuiz(") == 3 and "<p>between</p>" in once
    assert _quiz_html.once_per_page("<p>no quiz</p>") == "<p>no quiz</p>"


def test_the_built_pages_hold_the_script_once(book):
    for path in sorted((book / "book").glob("*.html")):
        assert path.read_text(encoding="utf-8").count("class OrderQuestion") <= 1, path.name


def test_the_syllabus_names_every_chapter_and_each_meeting_fits_its_minutes():
    text = (INSTRUCTOR / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d)\. (.*)\|$", text, re.MULTILINE)
    assert [number for number, _ in rows] == list("12345678")
    for number, row in rows:
        long, short = row.split("|")[2:4]
        assert sum(map(int, re.findall(r" (\d+)(?=[,;]|\s*$)", long))) == 90, (number, long)
        assert sum(map(int, re.findall(r" (\d+)(?=[,;]|\s*$)", short))) == 45, (number, short)


def test_each_lesson_plan_is_whole():
    text = (INSTRUCTOR / "lessons.md").read_text(encoding="utf-8")
    lessons = re.split(r"^## Lesson \d\. ", text, flags=re.MULTILINE)[1:]
    assert len(lessons) == 8
    for lesson in lessons:
        assert all(f"**{part}.**" in lesson for part in ("Goal", "Order", "Board", "Demo", "Ask", "Common mistakes"))
        assert "```{code-cell}" in lesson
        assert len(re.findall(r"^- \*", lesson, re.MULTILINE)) >= 4
    assert set(re.findall(r"O\d+", text)) == {f"O{k}" for k in range(1, 11)}


PART = re.compile(r"([a-z][a-z ]*?) (\d+)(?=[,;]|\s*$)")  # "the condition 20", also at the end of a cell


def test_the_order_of_each_lesson_is_that_of_the_syllabus():
    """The same parts with the same minutes, so that a teacher may follow either page."""
    rows = re.findall(r"^\| (\d)\. (.*)\|$", (INSTRUCTOR / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    lessons = re.split(r"^## Lesson \d\. ", (INSTRUCTOR / "lessons.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for (number, row), lesson in zip(rows, lessons, strict=True):
        order = re.findall(r"^\| ([a-z][a-z ]*) \| (\d*) \| (\d*) \|", lesson, re.MULTILINE)
        for place, planned in zip((1, 2), row.split("|")[2:4], strict=True):
            assert [(part[0], part[place]) for part in order if part[place]] == PART.findall(planned), (number, planned)


def test_each_slide_that_a_lesson_names_is_a_section_with_a_figure():
    chapters = [path.read_text(encoding="utf-8") for path in (ROOT / "book").glob("0[1-8]-*.md")]
    sections = [section for text in chapters for section in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]]
    with_figure = {section.partition("\n")[0].replace("'", "’") for section in sections if "name: fig-" in section}
    named = set(re.findall("“([^”]+)”", " ".join(re.findall(r"^\|.*[Ss]lides? .*$", (INSTRUCTOR / "lessons.md").read_text(encoding="utf-8"), re.MULTILINE))))
    assert len(named) >= 16 and not named - with_figure


def test_the_keys_stand_outside_the_book():
    instructor = tool("instructor")
    page = instructor.keys()
    for identifier in [*quiz.identifiers(), *quiz.identifiers("exercises")]:
        assert f"<h3>{identifier}," in page
    assert quiz.key_text(quiz.exercise("06-four-cells")) == "1.5, 2, 2.4, 3"
    exit_key = page.partition("<h2>Test: exit</h2>")[2].partition("</ol>")[0]
    assert re.findall(r"<li>([\w-]+):", exit_key) == quiz.questions_of("exit")
    names = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    assert "keys" not in names


def test_slides_hold_each_figure_with_heading_and_caption(tmp_path):
    (tmp_path / "figure.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>', encoding="utf-8")
    body = '<h1>T<a class="headerlink">#</a></h1><h2>Part</h2><figure><img alt="what" src="figure.svg"><figcaption>Says so.</figcaption></figure>'
    (tmp_path / "01-a.html").write_text(f"<article>{body}</article>", encoding="utf-8")
    title, found = tool("instructor").slides(tmp_path / "01-a.html")
    assert title == "T" and len(found) == 1
    assert "<h2>Part</h2>" in found[0] and 'alt="what" src="data:image/svg+xml;base64,' in found[0] and "Says so." in found[0]


OVERFLOW = """() => [...document.querySelectorAll("section")].filter(slide => {
  const parts = [slide, slide.querySelector("div")], picture = slide.querySelector("img, svg").getBoundingClientRect();
  return Math.abs(slide.clientHeight - innerHeight) > 1 || picture.height < innerHeight / 4
    || parts.some(part => part.scrollHeight > part.clientHeight + 2 || part.scrollWidth > part.clientWidth + 2);
}).map(slide => slide.querySelector("h2").textContent)"""


@pytest.mark.browser
def test_every_slide_fits_a_screen_and_the_arrows_turn_the_pages(book, page, tmp_path):
    instructor, pages = tool("instructor"), sorted((book / "book").glob("[0-9][0-9]-*.html"))
    for path in pages:
        text, count = instructor.deck(path)
        (tmp_path / path.name).write_text(text, encoding="utf-8")
        page.goto((tmp_path / path.name).as_uri())
        for width, height in ((1280, 720), (1024, 768)):
            page.set_viewport_size({"width": width, "height": height})
            assert page.evaluate(OVERFLOW) == [], (path.name, width)
        for _ in range(count):
            page.keyboard.press("ArrowRight")
        last = page.locator("section").last.evaluate("slide => slide.getBoundingClientRect().top")
        assert abs(last) < 2, path.name
        page.keyboard.press("ArrowLeft")
        assert page.locator("section").last.evaluate("slide => slide.getBoundingClientRect().top") > 100
    assert len(pages) >= 10


# --- labs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lab", LABS, ids=lambda path: path.stem)
def test_a_lab_follows_the_conventions(lab):
    """A title, the set-up cell first, no installation by hand, no path of one machine, claims named."""
    notebook = nbformat.read(lab, as_version=4)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# Lab ")
    assert code[0].startswith(tool("sync").SETUP_MARK)
    for source in code[1:]:
        assert not re.search(r"^\s*[!%]\s*pip|pip install", source, re.MULTILINE), "only the set-up cell installs"
        assert not re.search(r"[\"'](/\w+/|[A-Z]:\\\\)", source)
    assert re.fullmatch(r"\d\d-[a-z0-9-]+", lab.stem)
    assert notebook.metadata.get("claims"), "metadata.claims names what the lab supports"


# --- the zip ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The zip of `make colab`, unpacked in an empty folder."""
    folder = tmp_path_factory.mktemp("course")
    target = tool("pack").write(folder / "course.zip")
    with zipfile.ZipFile(target) as archive:
        archive.extractall(folder)
    return folder


def test_the_zip_holds_labs_weights_banks_and_a_wheel(unpacked):
    assert {path.name for path in (unpacked / "notebooks").glob("*.ipynb")} == {path.name for path in LABS}
    assert (unpacked / "specgain/lab/weights/target.safetensors").stat().st_size > 1e6
    assert (unpacked / "specgain/quizzes/01.json").is_file() and (unpacked / "specgain/quizzes/tests/exit.json").is_file()
    assert list(unpacked.glob("specgain-*.whl"))
    assert not any(path.is_symlink() for path in unpacked.rglob("*"))
    assert "--no-index --no-deps --find-links . specgain" in (unpacked / "README.txt").read_text(encoding="utf-8")


def test_the_zip_holds_the_chapters_and_all_files_that_their_cells_read(unpacked):
    chapters = sorted((unpacked / "book").glob("*.ipynb"))
    assert {path.name for path in chapters} == {path.name for path in (ROOT / "book").glob("*.ipynb")}
    for path in chapters:
        code = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code")
        for name in re.findall(r"[\"']((?:\.\.|evidence)/[\w./-]*[\w/])", code):
            here, there = (folder / "book" / name for folder in (ROOT, unpacked))
            begins = [part.name for part in here.parent.glob(f"{here.name}*")]  # a name that goes on after a variable
            wanted = [here.name] if here.exists() else begins
            assert all((there.parent / part).exists() for part in wanted), (path.name, name)


def test_the_set_up_cell_uses_the_unpacked_folder_and_installs_nothing(unpacked):
    source = tool("sync").setup_source("notebooks")
    code = source + "\nimport specgain; print(specgain.__file__)\nfrom specgain.quiz import questions_of; print(len(questions_of('exit')))"
    run = subprocess.run([sys.executable, "-c", code], cwd=unpacked / "notebooks", capture_output=True, text=True)
    assert run.stdout.split() == [str(unpacked / "specgain" / "__init__.py"), "30"], run.stderr


COLAB = """
import os, shutil, subprocess, sys, types
sys.modules["google.colab"] = types.ModuleType("google.colab")
subprocess.run = lambda command, **options: print("ran", *command[1:])
os.path.isdir = lambda path: False
os.path.isfile = lambda path: False
import glob
glob.glob = lambda pattern: {found}
shutil.unpack_archive = lambda *what: print("unpacked", *what)
exec(open({cell!r}).read())
"""


@pytest.mark.parametrize(
    ("address", "found", "says"),
    [
        ("", "[]", "upload specgain-course.zip"),
        ("", "[pattern.replace('*', '')] if pattern.endswith('zip') else []", "unpacked /content/specgain-course.zip"),
        ("", "[pattern] if pattern.endswith('whl') else []", "-m pip install -q --no-deps /content/specgain-*.whl"),
        ("https://example.org/x", "[]", "clone -q --depth 1 -b main https://example.org/x /content/specgain"),
    ],
)
def test_on_colab_the_set_up_cell_takes_zip_wheel_or_address_and_never_replaces_a_package(
    address, found, says, tmp_path, monkeypatch
):
    sync = tool("sync")
    monkeypatch.setattr(sync, "addresses", lambda: {"url": address, "branch": "main", "book": ""})
    (tmp_path / "cell.py").write_text(sync.setup_source("notebooks"), encoding="utf-8")
    code = COLAB.format(found=found, cell=str(tmp_path / "cell.py"))
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert says in run.stdout + run.stderr
    installs = [line for line in run.stdout.splitlines() if "pip install" in line]
    assert not any(re.search("torch|numpy", line) for line in installs)
