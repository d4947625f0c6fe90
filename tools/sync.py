"""Rewrite what is derived from other files, so that nothing is written twice by hand.

    .venv/bin/python tools/sync.py            rewrite
    .venv/bin/python tools/sync.py --check    list what is out of step and exit 1

1. book/NN.ipynb, the notebook twin of every executable chapter: the same text in plain Markdown, which Colab and
   JupyterLab can show, and the same cells, without outputs.
2. The set-up cell of the twins and of notebooks/*.ipynb, and the links in README.md: they hold the address of the
   repository, which stands in _config.yml only. While that is a placeholder, no link is written. The labs get their
   badge and the metadata by which Colab offers a GPU.
3. The output under every `$ specgain ...` in README.md.
"""

import ast
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import jupytext
import nbformat
import yaml

ROOT = Path(__file__).resolve().parent.parent
SETUP_MARK = "# Set-up, written by tools/sync.py"
README_MARKS = ("<!-- links: written by tools/sync.py -->", "<!-- end of links -->")
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
ON_COLAB = {"accelerator": "GPU", "colab": {"gpuType": "T4", "provenance": []}}

SETUP = '''\
{mark}: uses the course's folder around this notebook; on Colab it fetches the course.
import glob, importlib.util, os, shutil, subprocess, sys

if os.path.isfile("../specgain/__init__.py"):
    sys.path.insert(0, os.path.abspath(".."))
elif "google.colab" in sys.modules:
    url, home = "{url}", "/content/specgain"
    packed, wheels = glob.glob("/content/specgain-course*.zip"), glob.glob("/content/specgain-*.whl")
    pip = [sys.executable, "-m", "pip", "install", "-q"]
    if packed:  # from `make colab`, uploaded to Colab's files
        shutil.unpack_archive(packed[0], home)
    elif wheels:
        subprocess.run([*pip, "--no-deps", wheels[0]], check=True)
    elif url and not os.path.isdir(home):
        subprocess.run(["git", "clone", "-q", "--depth", "1", "-b", "{branch}", url, home], check=True)
    elif not url:
        raise RuntimeError("upload specgain-course.zip (`make colab` writes it) to Colab's files and run this cell again")
    missing = [name for name in ("tokenizers", "safetensors") if importlib.util.find_spec(name) is None]
    missing += ["jupyterquiz{quiz_pin}"] if importlib.util.find_spec("jupyterquiz") is None else []
    if missing:
        subprocess.run([*pip, *missing])
    if os.path.isdir(home):
        sys.path.insert(0, home)
        os.chdir(home + "/{folder}")
'''


# --- addresses ----------------------------------------------------------------------------------------------------


def addresses():
    """Return {"url", "branch", "book"} from _config.yml; an address that is still a placeholder is ""."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    found = {"url": config["repository"]["url"], "book": config["html"]["baseurl"]}
    found = {name: "" if "OWNER" in address else address.rstrip("/") for name, address in found.items()}
    return found | {"branch": config["repository"]["branch"]}


def setup_source(folder, **other):
    """Return the source of the set-up cell for a notebook in `folder`; `other` are addresses to use instead."""
    where = addresses() | other
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    quiz_pin = re.search(r"^jupyterquiz(==\S+)$", pins, re.MULTILINE).group(1)
    return SETUP.format(mark=SETUP_MARK, quiz_pin=quiz_pin, folder=folder, **where).rstrip("\n")


def readme():
    """Return README.md with the links between its marks and the outputs of its commands written anew."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"```console\n\$ ([^\n]+)\n.*?```", lambda block: console(block[1]), text, flags=re.DOTALL)
    where = addresses()
    lines = []
    if where["book"]:
        lines.append(f"**[Read the book online]({where['book']}/)**")
    if where["url"]:
        lines.append(f"[![Tests]({where['url']}/actions/workflows/pages.yml/badge.svg)]({where['url']}/actions)")
    start, end = README_MARKS
    before, rest = text.split(start)
    return before + "\n".join([start, *lines, end]) + rest.split(end)[1]


def console(command):
    """Return the block of a command and of what it prints, in 80 columns and without colour."""
    program, *arguments = shlex.split(command)
    settings = os.environ | {"COLUMNS": "80", "NO_COLOR": "1"}
    path = Path(sys.executable).with_name(program)
    printed = subprocess.run([path, *arguments], capture_output=True, text=True, check=True, env=settings).stdout
    return "\n".join(["```console", f"$ {command}", *map(str.rstrip, printed.strip("\n").split("\n")), "```"])


# --- MyST to plain Markdown ------------------------------------------------------------------------------------------

FENCE = re.compile(r"^(?P<fence>`{3,}|:{3,})\{(?P<name>[\w:-]+)\}[ ]*(?P<title>[^\n]*)$")
TITLES = {"prf:theorem": "Theorem", "prf:proof": "Proof", "prf:lemma": "Lemma", "prf:definition": "Definition"}
GATES = {"exercise-start": "Exercise", "solution-start": "Solution"}
SKIPPED = ("bibliography", "tableofcontents", "exercise-end", "solution-end", "used-in")


def plain_markdown(text, numbers):
    """Return MyST text as Markdown that any notebook shows: boxes become quotes, labels and roles become text.

    `numbers` maps the labels of the page's equations to their numbers.
    """
    lines, out = text.split("\n"), []
    while lines:
        line = lines.pop(0)
        opened = FENCE.match(line)
        if opened:
            body = []
            while lines and lines[0].rstrip() != opened["fence"]:
                body.append(lines.pop(0))
            del lines[:1]
            out += box(opened["name"], opened["title"], body, numbers)
        elif not re.fullmatch(r"\([\w-]+\)=\s*", line):
            out.append(line)
    return inline("\n".join(out), numbers)


def equation_numbers(text):
    """Return {label: number} of the equations of a whole page; Sphinx numbers them in the same order."""
    found = re.finditer(r"\$\$[ ]*\(([\w-]+)\)|^[`:]{3,}\{math\}\n:label: ([\w-]+)", text, re.MULTILINE)
    return {next(filter(None, match.groups())): number for number, match in enumerate(found, start=1)}


def box(name, title, body, numbers):
    """Return the lines that stand for one directive."""
    options = {}
    while body and (option := re.match(r":([\w-]+):[ ]*(.*)", body[0])):
        options[option[1]] = option[2]
        del body[:1]
    if name in SKIPPED:
        return []
    if name == "math":
        label = f" ({options['label']})" if "label" in options else ""
        return ["$$", *body, f"$${label}"]
    if name in GATES:
        return [f"**{GATES[name]}.**"]
    if name == "literalinclude":
        return ["```python", *source_of(title, options.get("pyobject")), "```"]
    inner = plain_markdown("\n".join(body), numbers).strip("\n").split("\n")
    if name == "glossary":
        return inner
    if name in ("solution", "dropdown"):
        summary = title if name == "dropdown" else "Solution"
        return [f"<details><summary>{summary}</summary>", "", *inner, "", "</details>"]
    if name in ("figure", "image"):
        return [f"![{options.get('alt', '')}]({title})", "", *inner]
    heading = title if name == "admonition" else TITLES.get(name, name.split(":")[-1].capitalize())
    heading += f" ({title})" if title and name != "admonition" else ""
    return [f"> **{heading.rstrip('.')}.**", ">", *(f"> {line}".rstrip() for line in inner)]


def source_of(path, name):
    """Return the lines of a file of the repository, given relative to book/, or of one function or class in it."""
    text = (ROOT / "book" / path).read_text(encoding="utf-8")
    if name is None:
        return text.rstrip("\n").split("\n")
    body = ast.parse(text)
    for part in name.split("."):
        body = next(node for node in body.body if getattr(node, "name", None) == part)
    start = min([body.lineno, *(decorator.lineno for decorator in body.decorator_list)])
    return textwrap.dedent("\n".join(text.split("\n")[start - 1 : body.end_lineno])).split("\n")


def inline(text, numbers):
    """Return text without roles, equation labels and links to other pages' sources."""

    def tag(match):
        return f"\\tag{{{numbers[match[1]]}}}\n$$" if match[1] in numbers else "$$"

    text = re.sub(r"\{eq\}`([\w-]+)`", lambda m: f"({numbers.get(m[1], m[1])})", text)
    text = re.sub(r"\n?\$\$[ ]*\(([\w-]+)\)", tag, text)
    text = re.sub(r"\{(?:cite|cite:\w+)\}`([^`]+)`", r"[\1]", text)
    text = re.sub(r"\{(?:ref|doc|term|numref|prf:ref)\}`([^`<]+?)(?:\s*<[^>]+>)?`", r"\1", text)
    text = re.sub(r"\{\w[\w:-]*\}(`[^`]+`)", r"\1", text)
    book = addresses()["book"]
    link = rf"[\1]({book}/book/\2.html\3)" if book else r"\1"
    return re.sub(r"\[([^\]]+)\]\((?:\./)?([\w-]+)\.md(#[\w-]+)?\)", link, text)


# --- notebooks -----------------------------------------------------------------------------------------------------


def chapters():
    """Return the paths of the executable chapters: the MyST text notebooks of book/."""
    found = sorted((ROOT / "book").glob("*.md"))
    return [path for path in found if "\nkernelspec:" in path.read_text(encoding="utf-8").split("\n---", 1)[0]]


def as_json(notebook):
    """Return a notebook's text: no outputs, ids that depend on place and content only."""
    for place, cell in enumerate(notebook.cells):
        cell["id"] = hashlib.sha256(f"{place}{cell.source}".encode()).hexdigest()[:8]
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def twin(path):
    """Return the text of the notebook twin of the chapter at `path`."""
    chapter = jupytext.read(path)
    numbers = equation_numbers(path.read_text(encoding="utf-8"))
    cells = [nbformat.v4.new_code_cell(setup_source("book"))]
    for cell in chapter.cells:
        if cell.cell_type == "markdown":
            cell.source = plain_markdown(cell.source, numbers)
        cells.append(cell)
    if cells[1].cell_type == "markdown":  # the title first, then the set-up
        cells[:2] = split_title(cells[1]) + cells[:1] + rest_of(cells[1])
    return as_json(nbformat.v4.new_notebook(cells=[c for c in cells if c.source.strip()], metadata=METADATA))


def split_title(cell):
    """Return the list of one cell that holds only the page's title."""
    return [nbformat.v4.new_markdown_cell(cell.source.split("\n\n", 1)[0])]


def rest_of(cell):
    """Return the list of one cell that holds what follows the page's title."""
    return [nbformat.v4.new_markdown_cell("".join(cell.source.split("\n\n", 1)[1:]))]


BADGE = re.compile(r"\n\n\[!\[Open in Colab\][^\n]*")


def badge(name):
    """Return the line that opens a lab in Colab; "" while the repository's address is a placeholder."""
    where = addresses()
    if not where["url"]:
        return ""
    page = f"colab.research.google.com/github/{where['url'].split('/', 3)[3]}/blob/{where['branch']}/notebooks/{name}"
    return f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://{page})"


def lab(path):
    """Return the text of a lab notebook with metadata, badge and set-up cell (it starts with the mark) written anew."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.update(METADATA | ON_COLAB)
    title, *rest = BADGE.sub("", notebook.cells[0].source).split("\n\n", 1)
    notebook.cells[0].source = "\n\n".join([part for part in (title, badge(path.name)) if part] + rest)
    for cell in notebook.cells:
        if cell.source.startswith(SETUP_MARK):
            cell.source = setup_source("notebooks")
    return as_json(notebook)


def derived():
    """Return {path: the text that should stand there} of every derived file."""
    files = {path.with_suffix(".ipynb"): twin(path) for path in chapters()}
    files |= {path: lab(path) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
    return files | {ROOT / "README.md": readme()}


def main():
    files = derived()
    stale = [p for p, text in files.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    stale += [p for p in (ROOT / "book").glob("*.ipynb") if p not in files]  # twins of chapters that are gone
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    if "--check" in sys.argv:
        sys.exit(f"out of step, run `make sync`: {names}" if stale else 0)
    for path in stale:
        path.write_text(files[path], encoding="utf-8") if path in files else path.unlink()
    print(f"rewritten: {names}" if stale else "everything is in step")


if __name__ == "__main__":
    main()
