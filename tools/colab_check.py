"""Try the labs in a stand-in for Colab, and check that torch and NumPy stay as they were (`make colab-check`).

    python tools/colab_check.py [--pip-arguments "--find-links FOLDER"] [--torch 2.13.0] [--numpy 2.3.5] [--lab 02-acceptance]

A clean environment gets another torch and another NumPy than the course's own. There a lab's set-up cell runs in three
ways, each with a folder of its own in place of /content: with the zip of `make colab` in it, with a clone of this
repository, and with the wheel alone. A round of the tiny pair follows each. Then one whole lab runs from the zip, with
the small settings that the tests use. Every file of torch and NumPy must be the same, byte for byte, before and after.

Where pip is given the course's own torch, it is relabelled after the installation: the same build under another
version, so that an installer which wants the course's version would replace it. About 1 GB of disk, and some minutes.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import pack
import sync

KEPT = ("torch", "numpy")
LIKE_COLAB = ("tokenizers", "safetensors", "matplotlib", "ipykernel", "nbclient")  # what a room has, besides KEPT
LABEL = "2.9.1"
COLAB = """
import json
from pathlib import Path
got = Path(__file__).with_name("downloads.json")
class files:
    @staticmethod
    def download(path):
        got.write_text(json.dumps([*(json.loads(got.read_text()) if got.exists() else []), Path(path).name]))
"""
ROUND = """
import json, numpy, torch, specgain
from specgain import lab
pair = lab.load_pair(["strong"])
prompt = pair.prompts("test")["json"][0].tolist()
plain, spec = (lab.generate(pair.target, [prompt], 16, draft, gamma).outputs[0] for draft, gamma in
               ((None, 0), (pair.drafts["strong"], 4)))
assert plain.tokens == spec.tokens and spec.log.rounds < plain.log.rounds
print(json.dumps({"numpy": numpy.__version__, "torch": torch.__version__, "specgain": specgain.__file__}))
"""
RUN_LAB = """
import sys, nbformat, nbclient
lab = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(lab, timeout=600, kernel_name="python3").execute()
"""


class Failed(SystemExit):
    """Something is not as it should be; the message says what."""


def environment(folder, torch, numpy, arguments):
    """Make a clean environment like Colab's; return its Python and its site-packages."""
    python = folder / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    wanted = [f"torch=={torch}", f"numpy=={numpy}", *LIKE_COLAB]
    subprocess.run([python, "-m", "pip", "install", "-q", *arguments, *wanted], check=True)
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    (site / "google" / "colab").mkdir(parents=True)
    (site / "google" / "colab" / "__init__.py").write_text(COLAB, encoding="utf-8")
    return python, site


def relabel(site, label):
    """Give the installed torch another version number, in its metadata and in torch.__version__."""
    info = next(site.glob("torch-*.dist-info"))
    for path, pattern in (
        (info / "METADATA", r"(?m)^(Version: )\S+"),
        (site / "torch/version.py", r"(__version__ = ')[^']+"),
    ):
        path.write_text(re.sub(pattern, rf"\g<1>{label}", path.read_text(encoding="utf-8"), count=1), encoding="utf-8")
    info.rename(site / f"torch-{label}.dist-info")


def fingerprint(site):
    """Return {file: digest} of everything that belongs to the kept packages, byte code left out."""
    files = (f for name in KEPT for part in site.glob(f"{name}*") for f in part.rglob("*") if f.is_file())
    return {str(f.relative_to(site)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files if f.suffix != ".pyc"}


def set_up(python, content, **addresses):
    """Run the set-up cell with `content` as /content, and a round of the tiny pair; return what the round printed."""
    source = sync.setup_source("notebooks", **addresses).replace("/content", str(content))
    (content.parent / "cell.py").write_text("import google.colab\n" + source + ROUND, encoding="utf-8")
    run = subprocess.run([python, "../cell.py"], cwd=content, env=quiet(), capture_output=True, text=True)
    if run.returncode:
        raise Failed(f"the set-up cell or the round failed:\n{run.stdout}{run.stderr}")
    return json.loads(run.stdout.strip().splitlines()[-1])


def whole_lab(python, content, name):
    """Run a lab from top to bottom, its settings small, with `content` as /content."""
    notebook = nbformat.read(pack.ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("/content", str(content))
        small = cell.metadata.get("nbmake", {}).get("mock", {})
        cell.source += "".join(f"\n{setting} = {value!r}" for setting, value in small.items())
    notebook.cells.insert(0, nbformat.v4.new_code_cell("import google.colab"))
    nbformat.write(notebook, content / f"{name}.ipynb")
    run = subprocess.run(
        [python, "-c", RUN_LAB, f"{name}.ipynb"], cwd=content, env=quiet(), capture_output=True, text=True
    )
    if run.returncode:
        raise Failed(f"lab {name} failed:\n{run.stdout}{run.stderr}")


def here():
    """Return the address and the branch of this checkout; what is not committed is not in a clone of it."""
    branch = subprocess.run(["git", "-C", pack.ROOT, "branch", "--show-current"], capture_output=True, text=True)
    return {"url": pack.ROOT.as_uri(), "branch": branch.stdout.strip() or "main"}


def quiet():
    """Return the settings of a process that writes no byte code and sees nothing of this checkout."""
    return {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONDONTWRITEBYTECODE": "1"}


def check(folder, torch, numpy, arguments, lab):
    """Return what was found; Failed says what went wrong."""
    python, site = environment(folder, torch, numpy, arguments)
    course = re.search(r"^torch==(\S+)$", (pack.ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if own := torch.partition("+")[0] == course[1].partition("+")[0]:
        relabel(site, LABEL)
    before, found, seconds = fingerprint(site), {}, {}
    for way in ("zip", "clone", "wheel"):  # the wheel last: it is the one that installs the course
        content = folder / way / "content"
        content.mkdir(parents=True)
        if way == "zip":
            pack.write(content / "specgain-course.zip")
        elif way == "wheel":
            pack.wheel(content)
        begin = time.perf_counter()
        found[way] = set_up(python, content, **(here() if way == "clone" else {}))
        seconds[way] = time.perf_counter() - begin
        home = site if way == "wheel" else content
        if not Path(found[way]["specgain"]).is_relative_to(home) or found[way]["numpy"] != numpy:
            raise Failed(f"{way}: this was not the course in {home} with NumPy {numpy}: {found[way]}")
        if way == "zip":
            whole_lab(python, content, lab)
            seconds[lab] = time.perf_counter() - begin - seconds[way]
    after = fingerprint(site)
    if changed := sorted(f for f in before.keys() | after.keys() if before.get(f) != after.get(f)):
        raise Failed(f"{len(changed)} files of torch or NumPy changed, such as {changed[0]}")
    downloads = site / "google" / "colab" / "downloads.json"
    if not downloads.exists() or len(json.loads(downloads.read_text(encoding="utf-8"))) != 1:
        raise Failed(f"lab {lab} did not hand its results to Colab's download")
    name = f"{found['zip']['torch']} ({torch} under another label)" if own else found["zip"]["torch"]
    return found["zip"] | {
        "torch": name,
        "files": len(before),
        "seconds": {name: round(s, 1) for name, s in seconds.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pip-arguments", default="", help="passed on to pip for torch, NumPy and what Colab has")
    parser.add_argument(
        "--torch", default="2.13.0", help="the course's own is relabelled, another one is taken as it is"
    )
    parser.add_argument("--numpy", default="2.3.5", help="a version other than the one in requirements.txt")
    parser.add_argument("--lab", default="02-acceptance", help="the lab that runs from top to bottom")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder), arguments.torch, arguments.numpy, shlex.split(arguments.pip_arguments)
        found = check(*where, arguments.lab)
    times = ", ".join(f"{name} {seconds} s" for name, seconds in found["seconds"].items())
    print(f"{found['files']} files of torch {found['torch']} and NumPy {found['numpy']} as before; {times}")


if __name__ == "__main__":
    main()
