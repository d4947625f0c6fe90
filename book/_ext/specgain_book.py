"""The book's own Sphinx extension: what Jupyter Book does not do by itself.

1. Results of cells are kept under a key made of everything that the cells depend on, so that a change in the
   library, a quiz or a measurement runs the chapters again (Jupyter Book's cache looks at the chapter only).
2. Repository, edit, issue and launch buttons appear only when _config.yml names a real repository.
3. The front matter of a chapter (claims, minutes, ...) becomes a line under its title.
4. MathJax comes from the installed package, and only the files that a page can load.
5. The notebook twin of a chapter is what its download button gives.
6. The theorem index says which pages use a theorem.
7. A screen reader reads the bibliography as a list.
8. The pages of the library list every public module, and the docstrings' few marks become reStructuredText.
9. A page says what it is about to search engines and to whoever gets its link; with a real address there is a sitemap.
10. The quizzes of a page share one copy of their script.
11. A work has one name in the text and in the list; works of one author and year are told apart by a letter.
12. A change of a style or a script reaches a book that is built already.
13. The link in a solution's title does not begin with a blank.
"""

import hashlib
import html
import importlib.util
import json
import pkgutil
import re
import shutil
import time
from pathlib import Path

from docutils import nodes
from myst_nb.core import render
from pybtex.plugin import register_plugin
from pybtex.richtext import Text
from pybtex.style.formatting.alpha import Style as AlphaStyle
from pybtex.style.labels.alpha import LabelStyle
from pybtex.style.template import node
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective
from sphinxcontrib.bibtex.style.referencing import basic_author_year

from specgain._quiz_html import once_per_page

ROOT = Path(__file__).resolve().parent.parent.parent
CELLS_DEPEND_ON = ("specgain", "book/quizzes", "book/evidence", "notebooks/measurements", "requirements.txt")
MATHJAX_FILES = ("tex-chtml.js", "output/chtml/fonts/woff-v2", "input/tex/extensions")


# --- 1. the key of the cells' results ---------------------------------------------------------------------------


def content_key():
    """Return a short hash of every file that cells depend on, and of whether torch is there."""
    digest = hashlib.sha256(f"torch: {importlib.util.find_spec('torch') is not None}".encode())
    for top in (ROOT / name for name in CELLS_DEPEND_ON):
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"\n{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def set_cache(app, config):
    """Put the execution cache under the key, and drop caches that no build has used for a day."""
    caches = ROOT / "_build" / ".jupyter_cache"
    config.specgain_content_key = content_key()
    used = caches / config.specgain_content_key
    used.mkdir(parents=True, exist_ok=True)
    used.touch()
    for cache in caches.iterdir():
        if time.time() - cache.stat().st_mtime > 24 * 3600:
            shutil.rmtree(cache, ignore_errors=True)
    config.nb_execution_cache_path = str(used)


# --- 2. addresses ------------------------------------------------------------------------------------------------


def set_addresses(app, config):
    """Take away every button that would lead nowhere while the addresses are placeholders."""
    options = config.html_theme_options
    options["navbar_persistent"] = []  # the search field stands in the side bar already
    options["logo"] = {"text": config.html_title}
    if "OWNER" in options.get("repository_url", "OWNER"):
        options["repository_url"] = ""
        options["launch_buttons"] = {}
        for button in ("use_repository_button", "use_issues_button", "use_edit_page_button"):
            options[button] = False
    if "OWNER" in config.html_baseurl:
        config.html_baseurl = ""


# --- 3. the line under the title ----------------------------------------------------------------------------------


def as_list(value):
    """Return front matter's value as a list of strings: a YAML list, JSON text of one, or one string."""
    if isinstance(value, str) and value.startswith("["):
        value = json.loads(value)
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def joined(ids):
    """Return ids with runs written as ranges: C2.1, C2.2, C2.3, C3.1 -> "C2.1–C2.3, C3.1"."""
    runs = []
    for name in ids:
        head, _, last = name.rpartition(".")
        if runs and head and runs[-1][-1] == f"{head}.{int(last) - 1}":
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def facts(metadata):
    """Return the facts of a chapter's front matter in the order in which they are shown."""
    found = []
    if "claims" in metadata:
        found.append("Covers " + joined(as_list(metadata["claims"])))
    if "objectives" in metadata:
        found.append("Objectives " + joined(as_list(metadata["objectives"])))
    if "minutes" in metadata:
        found.append(f"{metadata['minutes']} minutes")
    if "needs" in metadata:
        found.append("Needs " + "; ".join(as_list(metadata["needs"])))
    if any(as_list(metadata.get("checked", []))):
        found.append("Checked against " + ", ".join(as_list(metadata["checked"])))
    return found


def add_facts(app, doctree):
    """Insert the line of facts after the page's title."""
    found = facts(app.env.metadata[app.env.docname])
    title = next(doctree.findall(nodes.title), None)
    if found and title is not None:
        line = nodes.bullet_list("", *(nodes.list_item("", nodes.paragraph("", fact)) for fact in found))
        line["classes"].append("chapter-facts")
        title.parent.insert(title.parent.index(title) + 1, line)


def joined_streams(outputs):
    """Return a cell's outputs, what it printed in one piece: MyST-NB breaks the line wherever the kernel's message ended."""
    joined = {}
    for output in outputs:
        place = output["name"] if output["output_type"] == "stream" else id(output)
        if place in joined:
            joined[place]["text"] += output["text"]
        else:
            joined[place] = type(output)(output)
    return list(joined.values())


MINUS = re.compile(r"(?<![^\s(=:|])-(?=\.?\d)")  # a hyphen that stands for the sign of a number
PERCENT = re.compile(r"(?<=\d)%")  # as cells print it; running text has a space that does not break
ALIGNED = re.compile(r"\S {2,}\S")  # columns, which must not be broken
CODE = re.compile(r"^\s*[\[{]|^\$ |^\w+ [^:\n]*--\w", re.MULTILINE)  # JSON and command lines keep their characters


def set_outputs(app, doctree):
    """Set what cells print and return: a real minus, a space before % in sentences, lines that may break on a phone."""
    outputs = [node for node in doctree.findall(nodes.container) if node.get("nb_element") == "cell_code_output"]
    for block in [block for output in outputs for block in output.findall(nodes.literal_block)]:
        text = MINUS.sub("−", block.astext())
        block["classes"] += [] if ALIGNED.search(text) or "\n " in text else ["sg-sentences"]
        if ("stream" in block["classes"] or text.startswith(("'", "✓", "✗"))) and not CODE.search(text):
            block.rawsource, block[:] = text, [nodes.Text(text)]
    for text in [text for output in outputs for text in output.findall(nodes.Text)]:
        if isinstance(text.parent, nodes.paragraph | nodes.strong | nodes.emphasis):
            text.parent.replace(text, nodes.Text(PERCENT.sub("\u00a0%", MINUS.sub("−", text))))


# --- 4. MathJax --------------------------------------------------------------------------------


def copy_mathjax(app, exception):
    """Copy the MathJax files that pages load from the installed package into the book."""
    package = Path(importlib.util.find_spec("sphinx-mathjax-offline").origin).parent / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    if exception is None and app.builder.format == "html" and not target.exists():
        for name in MATHJAX_FILES:
            source = package / name
            if source.is_dir():
                shutil.copytree(source, target / name, dirs_exist_ok=True)
            else:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target / name)


# --- 5. notebook twins ---------------------------------------------------------------------------------------------


def offer_twin(app, pagename, templatename, context, doctree):
    """Let the download button offer the notebook twin of the page, if it has one."""
    if (ROOT / f"{pagename}.ipynb").exists():
        context["ipynb_source"] = f"{pagename}.ipynb"


def copy_twins(app, exception):
    """Copy the twins to where the download buttons point."""
    if exception is None and app.builder.format == "html":
        for docname in app.env.found_docs:
            twin = ROOT / f"{docname}.ipynb"
            if twin.exists():
                target = Path(app.outdir) / "_sources" / f"{docname}.ipynb"
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(twin, target)


# --- 6. where a theorem is used -------------------------------------------------------------------------------------


class UsedIn(SphinxDirective):
    """`{used-in} P9`: a line of links to the pages that show this proof, that is, have a cell with get("P9")."""

    required_arguments = 1

    def run(self):
        line = nodes.paragraph("", "Used in ", classes=["used-in"])
        for docname in sorted(self.env.found_docs - {self.env.docname}):
            page = self.env.doc2path(docname)
            self.env.note_dependency(page)
            if f'get("{self.arguments[0]}")' in Path(page).read_text(encoding="utf-8"):
                line += [nodes.Text(", ")] if len(line) > 1 else []
                about = {"refdomain": "std", "reftype": "doc", "reftarget": f"/{docname}", "refdoc": self.env.docname}
                line += addnodes.pending_xref("", nodes.inline("", docname), refexplicit=False, refwarn=True, **about)
        return [line if len(line) > 1 else nodes.paragraph("", "Shown on this page only.", classes=["used-in"])]


# --- 7. the bibliography as a list ------------------------------------------------------------------------------------


def list_the_works(app, pagename, templatename, context, doctree):
    """Make the works items of the list that Sphinx says they stand in; the role that it gives them is deprecated."""
    context["body"] = context.get("body", "").replace('role="doc-biblioentry"', 'role="listitem"')


# --- 8. the page of the library -----------------------------------------------------------------------------------------

MODULES = re.compile(r"<!-- modules of ([\w. ]+) -->")
AUTOMODULE = """
{marks} `{name}`

```{{eval-rst}}
.. automodule:: {name}
   :members:
   :member-order: bysource
   :ignore-module-all:
   :no-value:
```
"""


def modules_of(name):
    """Return the dotted names of the public modules right under `specgain`, or of another package and all its parts."""
    parts = pkgutil.iter_modules([str(ROOT / name.replace(".", "/"))])
    parts = [part for part in parts if not part.name.startswith("_")]
    if name == "specgain":
        return [f"specgain.{part.name}" for part in parts if not part.ispkg]
    return [name, *(found for part in parts for found in modules_of(f"{name}.{part.name}"))]


def list_modules(app, docname, source):
    """Put a heading and an automodule for every module into the pages that ask for the modules of a package."""
    source[0] = MODULES.sub(lambda match: _modules(match[1].split()), source[0])


def _modules(packages):
    names = [name for package in packages for name in modules_of(package)]
    texts = [
        AUTOMODULE.format(marks="##" if name in packages or packages == ["specgain"] else "###", name=name)
        for name in names
    ]
    return "\n".join(texts)


def own_members_only(app, what, name, obj, skip, options):
    """Leave out what matplotlib and named tuples put into a class, and SymPy functions such as E, which have no home."""
    if isinstance(obj, type) and obj.__module__ is None:
        return True
    inherited = not str(getattr(obj, "__module__", None) or "specgain").startswith("specgain")
    return True if inherited or str(getattr(obj, "__doc__", "")).startswith("Alias for field") else None


def own_signature_only(app, what, name, obj, options, signature, annotation):
    """Leave out the arguments of a class that only come from a base class elsewhere, such as a protocol or a command."""
    made_by = getattr(obj.__init__, "__module__", None) if what == "class" else None
    return ("", None) if made_by and not made_by.startswith("specgain") else None


def plain_docstring(app, what, name, obj, options, lines):
    """Rewrite a docstring as reStructuredText: backquotes, --options and "" are code, indented blocks are literal."""
    blocks = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    lines[:] = "\n\n".join(map(_block, blocks)).split("\n") + [""]


SHORT_SUM = re.compile(r"(?<=[\w\])…]) ([−+·]) (?=\d\b)")  # γ + 1 stays on one line
ESCAPED = re.compile(r"(?<![\w*])(\*\w+\*)(?![\w*])|([\\*_|])")  # *word* stays: it is stressed


def _block(block):
    if block.lstrip().startswith(">>>"):
        return block
    if block.startswith(" "):
        return (".. code-block:: text\n\n" if ALIGNED.search(block) else "::\n\n") + block
    parts = re.split(r"(\{eq\}`[^`]+`|`[^`]+`|(?<![\w-])--[a-z][\w-]*|\"\")", block)
    text = "".join(
        _mark(part)
        if number % 2
        else ESCAPED.sub(lambda m: m[1] or "\\" + m[2], SHORT_SUM.sub("\u00a0\\1\u00a0", part))
        for number, part in enumerate(parts)
    )
    lines, in_list = [], False
    for line in text.split("\n"):
        begins = re.match(r"(- |\d+\. )", line)
        if bool(begins) != in_list and (begins or not line.startswith(" ")):
            lines.append("")
            in_list = bool(begins)
        lines.append(line if in_list else line.lstrip())
    return "\n".join(lines)


def _mark(part):
    return f":eq:`{part[5:-1]}`" if part.startswith("{eq}") else f"\\ ``{part.strip('` ')}``\\ "


# --- 9. for search engines and shared links ---------------------------------------------------------------------------------


def description(doctree, longest=200):
    """Return the first paragraph of a page as one line, cut at a word if it is longer; "" without one."""
    paragraphs = (p for p in doctree.findall(nodes.paragraph) if not isinstance(p.parent, nodes.list_item))
    text = " ".join(next((p.astext() for p in paragraphs), "").split())
    return text if len(text) <= longest else text[:longest].rsplit(" ", 1)[0] + " …"


def describe_page(app, pagename, templatename, context, doctree):
    """Add the description and the Open Graph data of a page; its address only where the book has one."""
    if doctree is None:
        return
    title = html.unescape(re.sub("<[^>]+>", "", context.get("title", "")))
    found = {"title": title, "description": description(doctree), "type": "article", "site_name": app.config.html_title}
    if app.config.html_baseurl:
        found["url"] = app.config.html_baseurl.rstrip("/") + "/" + app.builder.get_target_uri(pagename)
    tags = [f'<meta property="og:{key}" content="{html.escape(text)}">' for key, text in found.items() if text]
    if found["description"]:
        tags.append(f'<meta name="description" content="{html.escape(found["description"])}">')
    context["metatags"] = context.get("metatags", "") + "\n".join(tags)


def write_sitemap(app, exception):
    """Write sitemap.xml, and robots.txt that names it, if the book has an address."""
    base = app.config.html_baseurl.rstrip("/")
    if exception is None and app.builder.format == "html" and base:
        pages = [html.escape(f"{base}/{app.builder.get_target_uri(name)}") for name in sorted(app.env.found_docs)]
        entries = "".join(f"<url><loc>{page}</loc></url>\n" for page in pages)
        space = "http://www.sitemaps.org/schemas/sitemap/0.9"
        text = f'<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="{space}">\n{entries}</urlset>\n'
        (Path(app.outdir) / "sitemap.xml").write_text(text, encoding="utf-8")
        (Path(app.outdir) / "robots.txt").write_text(f"Sitemap: {base}/sitemap.xml\n", encoding="utf-8")


# --- 10. one engine for all quizzes of a page ---------------------------------------------------------------------------------


def share_engine(app, pagename, templatename, context, doctree):
    """Keep the first copy of the quizzes' script and style on a page (each output of a cell brings its own)."""
    if 'class="sg-engine"' in context.get("body", ""):
        context["body"] = once_per_page(context["body"])


# --- 11. names of works ---------------------------------------------------------------------------------------------------------


class NamesOfWorks(LabelStyle):
    """Labels such as "Chen et al., 2023": what the text says in brackets."""

    def format_label(self, entry):
        """Return the name of a work; LabelStyle adds a letter where two are alike."""
        names = [str(Text.from_latex(" ".join(p.prelast_names + p.last_names))) for p in entry.persons["author"]]
        who = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
        return f"{who}, {entry.fields.get('year', 'n.d.')}"


class NamedWorks(AlphaStyle):
    """The list of works as pybtex sorts and sets it, with the names above."""

    default_label_style = NamesOfWorks


@node
def lettered_year(children, data):
    """Return the year of a work, with the letter that its label in the bibliography ends in, if any."""
    letter = re.search(r"\d([a-z])$", data["formatted_entry"].label)
    return Text(data["entry"].fields.get("year", "n.d.") + (letter[1] if letter else ""))


# --- 12. styles and scripts -----------------------------------------------------------------------------------------------------


def static_key(folder=ROOT / "book" / "_static"):
    """Return a short hash of the files that pages link to (styles, scripts, fonts)."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()[:16]


# --- 13. titles of solutions ----------------------------------------------------------------------------------------------------


def blank_before_link(app, pagename, templatename, context, doctree):
    """Move the blank between "Solution to" and its exercise out of the link, where it would be underlined."""
    context["body"] = re.sub(r'(Solution to)(<a class="reference internal" [^>]*>) ', r"\1 \2", context.get("body", ""))


def setup(app):
    render.coalesce_streams = joined_streams
    register_plugin("pybtex.style.formatting", "named", NamedWorks)
    basic_author_year.year = lettered_year  # its own `year` leaves out the letter, so that six works look like one
    app.add_config_value("specgain_content_key", "", "env")  # a new key makes Sphinx read every page again
    app.add_config_value("specgain_static_key", static_key(), "html")  # a new key makes Sphinx write every page again
    app.add_directive("used-in", UsedIn)
    app.connect("config-inited", set_cache)
    app.connect("config-inited", set_addresses)
    app.connect("source-read", list_modules)
    app.connect("autodoc-skip-member", own_members_only)
    app.connect("autodoc-process-signature", own_signature_only)
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("doctree-read", add_facts)
    app.connect("doctree-read", set_outputs)
    app.connect("html-page-context", offer_twin)
    app.connect("html-page-context", list_the_works)
    app.connect("html-page-context", describe_page)
    app.connect("html-page-context", blank_before_link)
    app.connect("html-page-context", share_engine)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", copy_twins, priority=900)
    app.connect("build-finished", write_sitemap)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
