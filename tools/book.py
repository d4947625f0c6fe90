"""Build the book, strictly; or one chapter alone, quickly.

    .venv/bin/python tools/book.py                the book in _build/html, warnings are errors
    .venv/bin/python tools/book.py 02-ledger      that chapter in _build/chapter/02-ledger

A second run re-reads only pages that changed. Results of cells are kept until the chapter itself or anything
that cells depend on changes; the extension in book/_ext sees to that.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "_build"
# no questions, no debugger notes in the pages, the same order of sets in every run
ENVIRONMENT = os.environ | {"PYTHONHASHSEED": "0", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def jupyter_book(*arguments):
    """Run `jupyter-book build` on the repository; return its exit status."""
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ROOT, *arguments]
    return subprocess.run(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL).returncode


def build_book():
    """Build all pages of _toc.yml; return the exit status."""
    status = jupyter_book("-W", "-n", "--keep-going")
    if status:  # or the next run would take the pages that warned for done
        shutil.rmtree(BUILD / ".doctrees", ignore_errors=True)
        print("\nThe book was not built: the warnings above are errors here.", file=sys.stderr)
        return status
    print(f"\nThe book is in {BUILD / 'html' / 'index.html'}\nOpen that file, or run `make serve`.")
    return 0


def build_chapter(name):
    """Build the chapter book/<name>.md alone; links into other chapters only warn. Return the exit status."""
    if not (ROOT / "book" / f"{name}.md").exists():
        known = ", ".join(sorted(path.stem for path in (ROOT / "book").glob("*.md")))
        print(f"There is no chapter '{name}'. There are: {known}", file=sys.stderr)
        return 2
    output = BUILD / "chapter" / name
    output.mkdir(parents=True, exist_ok=True)
    toc = output / "_toc.yml"
    toc.write_text(f"format: jb-book\nroot: book/{name}\n", encoding="utf-8")
    status = jupyter_book("--toc", toc, "--path-output", output)
    if status == 0:
        print(f"\nThe chapter is in {output / '_build' / 'html' / 'book' / name}.html")
    return status


if __name__ == "__main__":
    sys.exit(build_chapter(sys.argv[1]) if len(sys.argv) > 1 else build_book())
