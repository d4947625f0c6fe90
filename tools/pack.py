"""Write _build/specgain-course.zip, the course for a room without a network (`make colab`).

    .venv/bin/python tools/pack.py

Inside: the labs with the committed measurements, the package with its banks and tiny weights, as a folder and as a
wheel, and README.txt. The set-up cell of each lab uses the folder, so that nothing need be installed; on Colab it
unpacks the uploaded zip.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "_build" / "specgain-course.zip"
README = """\
The Gain Margin of Speculative Decoding: the labs, for a room without a network.

Needed: Python 3.11 or newer with Jupyter, numpy, matplotlib, torch, tokenizers and safetensors.
Nothing here replaces what is installed of them.

1. Unzip this file and start Jupyter in its folder.
2. Open a lab in notebooks/ and run it. Its first cell finds the course beside it; nothing is installed.

To use the course in notebooks of your own, on Windows too, open a terminal (a command prompt) in this folder and run

       python -m pip install --no-index --no-deps --find-links . specgain

It needs no network, no git and no make. Quizzes want jupyterquiz; without it printed("00-survival") from specgain.quiz
shows a question as text. Proofs want sympy.

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
    files |= {path.relative_to(folder).as_posix(): path for path in sorted((folder / "specgain").rglob("*")) if path.is_file()}
    labs = [*(ROOT / "notebooks").glob("*.ipynb"), *(ROOT / "notebooks" / "measurements").rglob("*.json")]
    return files | {path.relative_to(ROOT).as_posix(): path for path in sorted(labs)}


def write(target):
    """Write the zip and return its path."""
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README.txt", README)
        for name, path in contents(Path(folder)).items():
            archive.write(path, name)
    return target


if __name__ == "__main__":
    target = write(TARGET)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 2**20:.1f} MB")
