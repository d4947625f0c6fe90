"""The strict build: every page is there, executed, small, and without a button that leads nowhere."""

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from bs4 import BeautifulSoup
from docutils import nodes

ROOT = Path(__file__).resolve().parents[2]
PAGE_LIMIT = 1_200_000  # bytes of one page with its own pictures, without the assets that all pages share


def extension():
    """Return the book's Sphinx extension as a module."""
    spec = importlib.util.spec_from_file_location("specgain_book", ROOT / "book" / "_ext" / "specgain_book.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parsed(book, page_name):
    return BeautifulSoup((book / f"{page_name}.html").read_text(encoding="utf-8"), "html.parser")


def test_the_tool_chain_is_jupyter_book_1():
    assert version("jupyter-book").startswith("1.")
    assert version("sphinx").startswith("7.")


def test_page_has_a_title_and_text(book, page_name):
    article = parsed(book, page_name).select_one("article")
    assert article.select_one("h1").get_text(strip=True)
    assert len(article.get_text().split()) > 100


def test_no_error_or_raw_markup_is_on_the_page(book, page_name):
    article = parsed(book, page_name).select_one("article")
    for part in article.select("pre, code, script, style"):
        if "Traceback (most recent call last)" in part.get_text():
            pytest.fail(part.get_text()[-800:])
        part.decompose()
    text = article.get_text()
    assert not re.search(r"\{(code-cell|note|exercise|solution|prf:\w+|eq|ref|cite\S*|term|doc)\}", text)


def test_every_cell_was_executed(book, page_name):
    executed = ROOT / "_build" / "jupyter_execute" / f"{page_name}.ipynb"
    if not executed.exists():
        pytest.skip("a page without cells")
    cells = [c for c in nbformat.read(executed, as_version=4).cells if c.cell_type == "code" and c.source.strip()]
    assert cells and all(cell.execution_count for cell in cells)
    assert all(output.output_type != "error" for cell in cells for output in cell.outputs)


def test_page_is_small(book, page_name):
    path = book / f"{page_name}.html"
    pictures = {(path.parent / image["src"]).resolve() for image in parsed(book, page_name).select("article img[src]")}
    size = path.stat().st_size + sum(picture.stat().st_size for picture in pictures if picture.exists())
    assert size <= PAGE_LIMIT, f"{size / 1e6:.2f} MB"


@functools.cache
def places(path):
    """Return the ids that links can point to on the page at `path`."""
    return set(re.findall(r"\bid=\"([^\"]+)\"", path.read_text(encoding="utf-8")))


def test_every_local_link_leads_somewhere(book, page_name):
    path = book / f"{page_name}.html"
    for link in parsed(book, page_name).select("a[href]"):
        target, _, anchor = link["href"].partition("#")
        if re.match(r"\w+:", target):
            continue
        there = (path.parent / target).resolve() if target else path
        assert there.exists(), f"{link['href']} is on no page"
        if anchor and there.suffix == ".html":
            assert anchor in places(there), f"{link['href']} has no such place"


def test_page_says_what_it_is_about(book, page_name):
    page = parsed(book, page_name)
    tags = {tag["property"]: tag["content"] for tag in page.select("meta[property^='og:']")}
    assert tags["og:title"] == page.select_one("article h1").get_text().removesuffix("#").strip()
    assert 20 < len(tags["og:description"]) <= 203 and "<" not in tags["og:description"]
    assert page.select_one("meta[name=description]")["content"] == tags["og:description"]
    assert "og:url" not in tags and not (book / "sitemap.xml").exists()  # while the address is a placeholder


def test_placeholder_addresses_are_nowhere_in_the_book(book, page_name):
    assert "OWNER" not in (book / f"{page_name}.html").read_text(encoding="utf-8")


def test_no_path_of_the_machine_that_built_it_is_on_a_page(book, page_name):
    assert f"{ROOT}/" not in (book / f"{page_name}.html").read_text(encoding="utf-8")


def options(url):
    return SimpleNamespace(
        html_title="T",
        html_baseurl="https://OWNER.github.io/x/",
        html_theme_options={"repository_url": url, "launch_buttons": {"colab_url": "x"}, "use_issues_button": True},
    )


def test_buttons_depend_on_the_repository_address():
    placeholder, real = options("https://github.com/OWNER/specgain"), options("https://github.com/someone/specgain")
    for config in (placeholder, real):
        extension().set_addresses(None, config)
    assert not placeholder.html_theme_options["repository_url"]
    assert not placeholder.html_theme_options["launch_buttons"]
    assert not placeholder.html_theme_options["use_issues_button"]
    assert placeholder.html_baseurl == ""
    assert real.html_theme_options["launch_buttons"] and real.html_theme_options["use_issues_button"]


@pytest.fixture
def executable_page(book):
    pages = sorted((ROOT / "book").glob("*.ipynb"))
    assert pages, "no chapter has a notebook twin"
    return pages[0].stem


def test_with_a_real_repository_the_launch_button_opens_the_twin(executable_page, tmp_path):
    config, toc = tmp_path / "_config.yml", tmp_path / "_toc.yml"
    text = (ROOT / "_config.yml").read_text(encoding="utf-8").replace("OWNER", "someone")
    config.write_text(text.replace("book/_ext", str(ROOT / "book" / "_ext")), encoding="utf-8")
    toc.write_text(f"format: jb-book\nroot: book/{executable_page}\n", encoding="utf-8")
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ROOT, "--config", config, "--toc", toc]
    run = subprocess.run([*command, "--path-output", tmp_path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    page = parsed(tmp_path / "_build" / "html", f"book/{executable_page}")
    links = [a["href"] for a in page.select("a[href*='colab.research']")]
    assert links == [f"https://colab.research.google.com/github/someone/specgain/blob/main/book/{executable_page}.ipynb"]
    assert page.select("a[href^='https://github.com/someone/specgain/issues/new']")
    address = f"https://someone.github.io/specgain/book/{executable_page}.html"
    assert page.select_one("meta[property='og:url']")["content"] == address
    sitemap = (tmp_path / "_build" / "html" / "sitemap.xml").read_text(encoding="utf-8")
    assert f"<loc>{address}</loc>" in sitemap
    assert "sitemap.xml" in (tmp_path / "_build" / "html" / "robots.txt").read_text(encoding="utf-8")


@pytest.fixture
def copied_sources(tmp_path, monkeypatch):
    """A small copy of what the cells depend on, under the extension's eyes."""
    module = extension()
    for name in module.CELLS_DEPEND_ON:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "weights"))
        elif source.exists():
            shutil.copy(source, tmp_path / name)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module, tmp_path


@pytest.mark.parametrize("changed", ["specgain/gain.py", "book/quizzes/new.json", "notebooks/measurements/m/x.json"])
def test_a_change_in_what_cells_depend_on_changes_the_key(copied_sources, changed):
    module, root = copied_sources
    before = module.content_key()
    assert module.content_key() == before
    (root / changed).parent.mkdir(parents=True, exist_ok=True)
    with open(root / changed, "a", encoding="utf-8") as file:
        file.write("\n# changed\n")
    assert module.content_key() != before


def test_compiled_files_do_not_change_the_key(copied_sources):
    module, root = copied_sources
    before = module.content_key()
    (root / "specgain" / "__pycache__").mkdir(exist_ok=True)
    (root / "specgain" / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert module.content_key() == before


def test_a_changed_style_makes_sphinx_write_every_page_again(tmp_path):
    module = extension()
    shutil.copytree(ROOT / "book" / "_static", tmp_path, dirs_exist_ok=True)
    before = module.static_key(tmp_path)
    assert module.static_key() == before
    (tmp_path / "specgain.css").write_text("p { color: red }", encoding="utf-8")
    assert module.static_key(tmp_path) != before


def test_printed_numbers_have_a_real_minus_and_printed_sentences_may_break():
    module = extension()
    printed = {"M = -9.2 ms, from -3 to 2026-11-29": "M = −9.2 ms, from −3 to 2026-11-29", "a  -1\nb  2": "a  −1\nb  2"}
    printed |= {text: text for text in ('{"margin_ms": -9.2}', "$ head -1 log", "e-5 n-gram a-1")}
    for text, wanted in printed.items():
        block = nodes.literal_block(text, text, classes=["output", "stream"])
        code = nodes.literal_block("-1", "-1", classes=["output", "text_plain"])
        said = nodes.paragraph("", "from -9 to +134%")
        output = nodes.container("", block, code, said, nb_element="cell_code_output")
        module.set_outputs(None, nodes.section("", output, nodes.paragraph("", "-1")))
        assert block.astext() == block.rawsource == wanted and code.astext() == "-1"
        assert said.astext() == "from −9 to +134\u00a0%"
        assert ("sg-sentences" in block["classes"]) == ("  " not in text)


def test_what_a_cell_printed_is_broken_only_where_the_cell_broke_it():
    said = [{"output_type": "stream", "name": "stdout", "text": text} for text in ("S = ", "1.39,", " M = 2\n")]
    shown = {"output_type": "display_data", "data": {}}
    outputs = [said[0], shown, *said[1:]]
    for _ in range(2):  # the outputs themselves are left alone
        assert extension().joined_streams(outputs) == [said[0] | {"text": "S = 1.39, M = 2\n"}, shown]


def test_the_line_under_the_title():
    module = extension()
    front_matter = {"claims": '["C2.1", "C2.2", "C2.3", "C3.1"]', "minutes": 30, "checked": "vLLM 0.32.0"}
    assert module.facts(front_matter) == ["Covers C2.1–C2.3, C3.1", "30 minutes", "Checked against vLLM 0.32.0"]
    assert module.facts({}) == []
