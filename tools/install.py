"""Make .venv and install the pinned tool-chain into it. Called by the Makefile; standard library only.

    python3 tools/install.py --stamp FILE [--without-lab] -- [PIP ARGUMENTS]
"""

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"

ABOUT_TORCH = """\
Next comes torch. On Linux the standard wheel of torch is a CUDA build: the download can be several GB.
  A smaller CPU build:  make book PIP_ARGS='--extra-index-url URL'   (PyTorch's install page names the CPU index)
                        make book PIP_ARGS='--find-links FOLDER'     (a wheel that you already have)
  No torch at all:      make book LAB=0                              (the book then shows committed measurements)
"""
NO_TORCH = """
torch could not be installed: the message of pip stands above.
  With another source:  make book PIP_ARGS='--extra-index-url URL'  or  PIP_ARGS='--find-links FOLDER'
  Without torch:        make book LAB=0
"""
NO_VENV = """
Python's venv module could not make .venv ({error}).
On Debian and Ubuntu it is a package of its own: apt install python3-venv
"""
NO_PACKAGES = """
The packages of requirements.txt could not be installed: the message of pip stands above.
Run the same command again when the cause is gone; what was installed so far is kept.
"""


def make_environment():
    """Create .venv unless it holds a working Python."""
    if subprocess.run([PYTHON, "-c", ""], capture_output=True).returncode if PYTHON.exists() else True:
        print(f"Creating {ENVIRONMENT} with Python {sys.version.split()[0]} (tested with 3.11; others are untested)")
        try:
            venv.create(ENVIRONMENT, clear=True, with_pip=True)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(NO_VENV.format(error=error))


def pip(*arguments, otherwise):
    """Run pip install in .venv; end with the message `otherwise` if it fails."""
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check"]
    if subprocess.run([PYTHON, "-m", "pip", "install", *quiet, *arguments]).returncode:
        sys.exit(otherwise)


def installed(requirement):
    """Return True if .venv holds exactly this `name==version`, a local build such as +cpu included."""
    name, version = requirement.split("==")
    code = f"import importlib.metadata as m; print(m.version({name!r}).split('+')[0])"
    return subprocess.run([PYTHON, "-c", code], capture_output=True, text=True).stdout.strip() == version


def install_torch(requirement, pip_arguments):
    """Install torch itself, and say beforehand what that may cost."""
    if installed(requirement):
        return
    if sys.platform == "linux":
        print(ABOUT_TORCH, flush=True)
    pip(*pip_arguments, "-c", "requirements.txt", requirement, otherwise=NO_TORCH)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stamp", type=Path, required=True)
    parser.add_argument("--without-lab", action="store_true")
    parser.add_argument("pip_arguments", nargs="*")
    options = parser.parse_args()
    os.chdir(ROOT)
    make_environment()
    lines = Path("requirements.txt").read_text(encoding="utf-8").splitlines()
    torch = next(line for line in lines if line.startswith("torch=="))
    rest = ENVIRONMENT / "requirements-without-torch.txt"
    rest.write_text("\n".join(line for line in lines if line != torch) + "\n", encoding="utf-8")
    print("Installing the pinned packages into .venv (some minutes the first time)", flush=True)
    pip(*options.pip_arguments, "-r", str(rest), otherwise=NO_PACKAGES)
    if not options.without_lab:
        install_torch(torch, options.pip_arguments)
    pip("--no-deps", "--no-build-isolation", "-e", ".", otherwise=NO_PACKAGES)
    for old in ENVIRONMENT.glob("installed-*"):
        old.unlink()
    options.stamp.touch()


if __name__ == "__main__":
    main()
