"""Write _build/specgain-course.zip, the course for a room without a network (`make colab`).

    .venv/bin/python tools/pack.py

Inside: the chapters and the labs as notebooks, what their cells read, the package with its banks and tiny weights, as a
folder and as a wheel, and README.txt. The set-up cell of each notebook uses the folder, so that nothing need be
installed; on Colab it unpacks the uploaded zip.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "_build" / "specgain-course.zip"
PARTS = (
    "notebooks/*.ipynb",
    "notebooks/measurements/**/*.json",
    "book/*.ipynb",
    "book/evidence/*.json",  # from here on: what the cells of the chapters read
    "book/_static/*.js",
    "benchmarks/results/*.json",
    "tests/data/engine/**/*",
    "tests/data/published/*",
    "tests/data/roofline/*",
    "CITATION.cff",
)
README = """\
The Gain Margin of Speculative Decoding: chapters and labs, for a room without a network.

Needed: Python 3.11 or newer with Jupyter, numpy, matplotlib, torch, tokenizers and safetensors.
Nothing here replaces what is installed of them.

1. Unzip this file and start Jupyter in its folder.
2. Open a chapter in book/, such as 01-commit.ipynb. It holds the text, and its cells show the figures and the quizzes.
3. Open its lab in notebooks/, such as 01-round-timing.ipynb, and run it from the top.

The first cell of each finds the course beside it; nothing is installed.

To use the course in notebooks of your own, on Windows too, open a terminal (a command prompt) in this folder and run

       python -m pip install --no-index --no-deps --find-links . specgain

It needs no network, no git and no make. Quizzes that can be clicked want jupyterquiz; without it they
are shown as a list with folded answers. Proofs want sympy.

On Colab: upload this zip to Colab's files, open a lab, and run its first cell.
"""


def wheel(folder):
    """Build the package's wheel into a folder, from a copy of the sources and without a network; return its path."""
    copy = folder / "sources"
    shutil.copytree(ROOT / "specgain", copy / "specgain", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", folder, copy], check=True)
    return next(folder.glob("*.whl"))


def contents(folder):
    """Return {name in the zip: path} of all files but README.txt."""
    built = wheel(folder)
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("specgain/")])
    files = {built.name: built}
    files |= {
        path.relative_to(folder).as_posix(): path for path in sorted((folder / "specgain").rglob("*")) if path.is_file()
    }
    paths = sorted(path for part in PARTS for path in ROOT.glob(part) if path.is_file())
    return files | {path.relative_to(ROOT).as_posix(): path for path in paths}


def write(target):
    """Write the zip and return its path. It appears there whole: two runs at once do not spoil each other's."""
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=target.parent) as beside:
        draft = Path(beside) / target.name
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("README.txt", README)
            for name, path in contents(Path(folder)).items():
                archive.write(path, name)
        os.replace(draft, target)
    return target


if __name__ == "__main__":
    target = write(TARGET)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 2**20:.1f} MB")
