"""The pages around the course: the library's modules, the citation, the lists of evidence and of engine statements."""

import importlib.util
import json
import pkgutil
import re
from pathlib import Path

import pytest
import yaml
from sympy import Function

import specgain
from specgain.figures import PageTable

ROOT = Path(__file__).resolve().parents[2]
BOOK = ROOT / "book"


@pytest.fixture(scope="module")
def extension():
    spec = importlib.util.spec_from_file_location("specgain_book", BOOK / "_ext" / "specgain_book.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def api_texts(extension):
    """Return the sources of the library's pages after the modules were put in."""
    texts = []
    for path in sorted(BOOK.glob("api*.md")):
        source = [path.read_text(encoding="utf-8")]
        extension.list_modules(None, f"book/{path.stem}", source)
        texts.append(source[0])
    return texts


def test_every_public_module_stands_once_on_the_librarys_pages(extension):
    listed = re.findall(r"automodule:: (\S+)", "\n".join(api_texts(extension)))
    there = [m.name for m in pkgutil.walk_packages(specgain.__path__, "specgain.", onerror=lambda name: None)]
    assert sorted(listed) == sorted(name for name in there if "._" not in name)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("Return `a` from {eq}`eq-length`.", "Return \\ ``a``\\  from :eq:`eq-length`."),
        ("a_1·…·a_i and W_-1 * |x|", "a\\_1·…·a\\_i and W\\_-1 \\* \\|x\\|"),
        ('with --json, or "" if', 'with \\ ``--json``\\ , or \\ ``""``\\  if'),
        (">>> f(a_1)\n2", ">>> f(a_1)\n2"),
        ("Text:\n\n    S = E[L]·t_D", "Text:\n\n::\n\n    S = E[L]·t_D"),
        ("    K    accepted", ".. code-block:: text\n\n    K    accepted"),  # columns, no Python
        ("of γ + 1 and a + b", "of γ\u00a0+\u00a01 and a + b"),
        ("Two lines\n    of one paragraph", "Two lines\nof one paragraph"),
        ("Kinds:\n- one,\n  more\n- two\nThe end", "Kinds:\n\n- one,\n  more\n- two\n\nThe end"),
    ],
)
def test_docstrings_become_restructured_text(extension, written, wanted):
    lines = written.split("\n")
    extension.plain_docstring(None, "function", "f", None, None, lines)
    assert "\n".join(lines).strip("\n") == wanted


def test_what_other_packages_put_into_a_class_is_left_out(extension):
    from specgain.figures import Drawing
    from specgain.gates import Gate

    assert extension.own_members_only(None, "class", "set", Drawing.set, False, None) is True
    assert extension.own_members_only(None, "class", "add", Gate.add, False, None) is None
    assert extension.own_members_only(None, "module", "E", Function("E"), False, None) is True


def test_arguments_that_a_base_class_elsewhere_takes_are_left_out(extension):
    from specgain.cli_records import ManyFiles
    from specgain.gates import Gate

    assert extension.own_signature_only(None, "class", "ManyFiles", ManyFiles, None, "(name)", None) == ("", None)
    assert extension.own_signature_only(None, "class", "Gate", Gate, None, "(name)", None) is None
    assert extension.own_signature_only(None, "function", "f", len, None, "(obj)", None) is None


def test_page_table_escapes_and_can_be_read_as_text():
    table = PageTable(["file", "a < b"], [["`x.json`", "1 < 2\nnext"]], sortable=True)
    page = table._repr_html_()
    assert "<code>x.json</code>" in page and "1 &lt; 2<br>next" in page and 'data-label="a &lt; b"' in page
    assert 'class="sg-table sg-sortable"' in page and repr(table).startswith("file")
    assert 'class="sg-table sg-cards"' in PageTable(["a"], [["x"]], cards=True)._repr_html_()
    with pytest.raises(ValueError, match="1 entries for 2 heads"):
        PageTable(["a", "b"], [["x"]])


def test_every_engine_statement_belongs_to_a_chapter():
    for row in json.loads((BOOK / "evidence" / "documented.json").read_text(encoding="utf-8")):
        assert re.fullmatch(r"C[0-8]\.\d+", row["claim"])
        assert not row["recheck"].endswith(".") and not row["source"].endswith(".")  # the page adds the full stop


def test_the_changelog_page_and_the_citation_show_the_files_themselves():
    assert "{include} ../CHANGELOG.md" in (BOOK / "changelog.md").read_text(encoding="utf-8")
    assert "{literalinclude} ../CITATION.cff" in (BOOK / "cite.md").read_text(encoding="utf-8")


def test_citation_changelog_and_package_name_one_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[1]
    released = cited.get("date-released")
    assert cited["version"] == specgain.__version__
    assert newest == specgain.__version__ + (f" - {released}" if released else ", not released yet")


@pytest.mark.browser
def test_a_table_can_be_sorted_by_keyboard(page, site):
    page.goto(f"{site}/book/valid-for.html")
    head = page.locator("table.sg-sortable th").nth(1)
    column = page.locator("table.sg-sortable tbody td:nth-child(2)")
    head.locator("button").focus()
    page.keyboard.press("Enter")
    rising = column.all_inner_texts()
    assert head.get_attribute("aria-sort") == "ascending" and len(rising) > 20
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert column.all_inner_texts() == rising[::-1] and rising[0] != rising[-1]
