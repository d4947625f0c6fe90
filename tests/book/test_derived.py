"""What is derived stands as it would be derived now; what the tools decide, they decide rightly."""

import doctest
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool(name):
    """Return tools/<name>.py as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_twins_set_up_cells_and_readme_are_in_step():
    run = subprocess.run([sys.executable, ROOT / "tools" / "sync.py", "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_every_package_is_pinned_exactly():
    run = subprocess.run([sys.executable, ROOT / "tools" / "pins.py", "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


# --- README -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_quick_start_is_two_commands(readme):
    quick_start = readme.split("## Quick start")[1].split("\n## ")[0]
    assert re.findall(r"```\n(.*?)```", quick_start, re.DOTALL) == ["make book\nmake test\n"]
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name in re.findall(r"`make ([a-z0-9-]+)", readme)} <= set(targets)


def test_the_library_examples_give_what_they_show(readme):
    examples = doctest.DocTestParser().get_doctest(readme, {}, "README.md", "README.md", 0)
    assert len(examples.examples) > 5
    assert doctest.DocTestRunner().run(examples).failed == 0


def test_the_readme_names_only_what_exists(readme):
    for name in re.findall(r"^\| `([^`]+)`", readme, re.MULTILINE):
        assert (ROOT / name).exists(), name


def test_every_make_target_says_what_it_does():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())
    assert phony == set(re.findall(r"^([a-z0-9-]+):[^=\n]*## \S", text, re.MULTILINE))


# --- notebook twins ---------------------------------------------------------------------------------------------------

CHAPTER = """\
---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

(the-label)=
# Title

Text with {eq}`eq-b`, {cite:p}`someone2023` and [a chapter](02-ledger.md#part).

$$ a = b $$ (eq-a)

```{math}
:label: eq-b
c = d
```

:::{admonition} Where this breaks
:class: warning
It breaks for $x < 0$.
:::

```{solution} ex-one
:class: dropdown
It is 1.
```

```{literalinclude} ../specgain/acceptance.py
:language: python
:pyobject: survival
```

```{code-cell} python3
print("a cell")
```
"""


def test_a_twin_is_plain_markdown(tmp_path):
    sync = tool("sync")
    path = tmp_path / "chapter.md"
    path.write_text(CHAPTER, encoding="utf-8")
    notebook = nbformat.reads(sync.twin(path), as_version=4)
    nbformat.validate(notebook)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert not re.search(r"^[`:]{3,}\{|\{[\w:]+\}`", text, re.MULTILINE)
    assert "```python\ndef survival(" in text
    assert "Text with (2), [someone2023] and a chapter." in text
    assert "\\tag{1}" in text and "\\tag{2}" in text and "(the-label)" not in text
    assert "> **Where this breaks.**" in text and "<summary>Solution</summary>" in text
    assert notebook.cells[0].source == "# Title"
    assert notebook.cells[1].source.startswith(sync.SETUP_MARK)
    assert [cell.source for cell in notebook.cells if cell.cell_type == "code"][1:] == ['print("a cell")']
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    assert sync.twin(path) == sync.twin(path)


def test_twins_of_the_chapters_hold_no_myst():
    twins = sorted((ROOT / "book").glob("*.ipynb"))
    assert twins
    for path in twins:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                assert not re.search(r"^(`{3,}|:{3,})\{|\{[\w:-]+\}`", cell.source, re.MULTILINE), path.name


@pytest.mark.parametrize("address", ["https://github.com/OWNER/specgain", "https://github.com/someone/specgain"])
def test_the_set_up_cell_follows_the_address(monkeypatch, address):
    sync = tool("sync")
    url = "" if "OWNER" in address else address
    monkeypatch.setattr(sync, "addresses", lambda: {"url": url, "branch": "main", "book": ""})
    source = sync.setup_source("book")
    compile(source, "set-up", "exec")
    assert ("someone/specgain" in source) is bool(url) and "OWNER" not in source
    assert "torch" not in source and "numpy" not in source and "requirements" not in source


# --- coverage of claims -----------------------------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path):
    """A small course with one claim of each kind and one objective, all covered."""
    row = dict.fromkeys(tool("coverage_claims").ROW, "x") | {"claim": "C1.2"}
    entry = {"objective": "O1"}
    files = {
        "_toc.yml": "format: jb-book\nroot: book/one\n",
        "book/one.md": '---\nclaims: [C1.1, C1.2]\n---\n# One\nclaims: [C9.9]\n',
        "book/evidence/claims.json": json.dumps({
            "claims": {"C1.1": {"kinds": ["proved", "computed"]}, "C1.2": {"kinds": ["measured", "documented"]}},
            "objectives": {"O1": "do it"},
        }),
        "book/evidence/documented.json": json.dumps([row]),
        "book/quizzes/01.json": json.dumps({"questions": 3 * [entry], "exercises": [entry]}),
        "specgain/proofs/a.py": 'theorem("P1", claims=["C1.1"])\n',
        "tests/test_a.py": 'import pytest\n\n@pytest.mark.claims("C1.1")\ndef test_it():\n    pass\n',
        "notebooks/01-timing.ipynb": json.dumps({"metadata": {"claims": ["C1.2"]}}),
        "notebooks/measurements/cpu/timing.json": "{}",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_covered_course_has_no_hole(course, capsys):
    assert tool("coverage_claims").main(course) == 0
    assert capsys.readouterr().out == "2/2 claims, 1/1 objectives\n"


@pytest.mark.parametrize(
    ("gone", "instead", "hole"),
    [
        ("book/one.md", "# No front matter\n", "C1.1"),
        ("book/one.md", "---\nclaims:\n- C1.1\n---\n", "C1.2"),
        ("_toc.yml", "root: book/other\n", "C1.1"),
        ("specgain/proofs/a.py", "", "C1.1"),
        ("tests/test_a.py", "# claims('C1.1')\n", "C1.1"),
        ("tests/test_a.py", "import pytest\n@pytest.mark.claims('C1.1', 'C7.7')\ndef test_a(): pass\n", "C7.7"),
        ("notebooks/01-timing.ipynb", '{"metadata": {}}', "C1.2"),
        ("book/evidence/documented.json", '[{"claim": "C1.2", "version": "1"}]', "C1.2"),
        ("book/quizzes/01.json", '{"questions": [{"objective": "O1"}], "exercises": []}', "O1"),
    ],
)
def test_each_missing_piece_is_a_hole(course, capsys, gone, instead, hole):
    (course / gone).write_text(instead, encoding="utf-8")
    assert tool("coverage_claims").main(course) == 1
    assert re.search(rf"^{re.escape(hole)} ", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.claims("C0.2", "C0.4")
def test_documented_statements_say_version_date_source_and_how_to_check_again():
    rows = json.loads((ROOT / "book" / "evidence" / "documented.json").read_text(encoding="utf-8"))
    claims = json.loads((ROOT / "book" / "evidence" / "claims.json").read_text(encoding="utf-8"))["claims"]
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert set(row) == {"id", *tool("coverage_claims").ROW} and all(row.values()), row
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row["date"])
        assert row["claim"] in claims


def test_the_list_of_claims_is_whole():
    course = json.loads((ROOT / "book" / "evidence" / "claims.json").read_text(encoding="utf-8"))
    assert len(course["claims"]) == 40 and len(course["objectives"]) == 10
    kinds = {kind for about in course["claims"].values() for kind in about["kinds"]}
    assert kinds == {"proved", "computed", "measured", "documented"}


def test_it_needs_the_standard_library_only():
    run = subprocess.run(
        [sys.executable, "-I", "-S", ROOT / "tools" / "coverage_claims.py"], capture_output=True, text=True, timeout=20
    )
    assert re.fullmatch(r"\d+/40 claims, \d+/10 objectives", run.stdout.strip().split("\n")[-1]), run.stderr


LABS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("lab", LABS, ids=lambda path: path.stem)
@pytest.mark.parametrize("address", ["", "https://github.com/someone/specgain"])
def test_a_lab_has_one_badge_where_the_repository_is_known(monkeypatch, tmp_path, address, lab):
    sync = tool("sync")
    monkeypatch.setattr(sync, "addresses", lambda: {"url": address, "branch": "main", "book": ""})
    copy = tmp_path / lab.name
    copy.write_text(sync.lab(lab), encoding="utf-8")
    title = nbformat.read(copy, as_version=4).cells[0].source
    link = f"(https://colab.research.google.com/github/someone/specgain/blob/main/notebooks/{lab.name})"
    assert title.count("[![Open in Colab](") == title.count(link) == bool(address)
    assert title.startswith("# Lab ") and sync.lab(copy) == copy.read_text(encoding="utf-8")  # written once, and again
