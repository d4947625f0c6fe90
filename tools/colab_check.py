"""Run a lab's set-up cell in a stand-in for Colab, and check that torch and NumPy stay as they were (`make colab-check`).

    python tools/colab_check.py [--pip-arguments "--find-links FOLDER"] [--numpy 2.3.5]

A clean environment gets torch 2.13.0 and another NumPy than the course's own. There the set-up cell runs, with a folder
in place of /content that holds the wheel, and after it a round of the tiny pair. Every file of torch and NumPy must be
the same, byte for byte, before and after. About 1 GB of disk, and some minutes.
"""

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pack
import sync

TORCH = "2.13.0"
KEPT = ("torch", "numpy")
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


def fingerprint(site):
    """Return {file: digest} of everything that belongs to the kept packages, byte code left out."""
    files = (f for name in KEPT for part in site.glob(f"{name}*") for f in part.rglob("*") if f.is_file())
    return {str(f.relative_to(site)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files if f.suffix != ".pyc"}


def check(folder, numpy, arguments):
    """Return what the round printed; SystemExit says what went wrong."""
    content, python = folder / "content", folder / "env" / "bin" / "python"
    content.mkdir()
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    wanted = [f"torch=={TORCH}", f"numpy=={numpy}", "tokenizers", "safetensors"]
    subprocess.run([python, "-m", "pip", "install", "-q", *arguments, *wanted], check=True)
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    before = fingerprint(site)
    pack.wheel(content)
    source = "import sys, types\nsys.modules['google.colab'] = types.ModuleType('google.colab')\n"
    source += sync.setup_source("notebooks").replace("/content", str(content))
    (folder / "cell.py").write_text(source + ROUND, encoding="utf-8")
    begin, settings = time.perf_counter(), os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run([python, "cell.py"], cwd=folder, env=settings, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"the set-up cell or the round failed:\n{run.stdout}{run.stderr}")
    after = fingerprint(site)
    if changed := sorted(f for f in before.keys() | after.keys() if before.get(f) != after.get(f)):
        raise SystemExit(f"{len(changed)} files of torch or NumPy changed, such as {changed[0]}")
    found = json.loads(run.stdout.strip().splitlines()[-1])
    if Path(found["specgain"]).is_relative_to(pack.ROOT) or found["numpy"] != numpy:
        raise SystemExit(f"this was not the wheel with NumPy {numpy}: {found}")
    return found | {"files": len(before), "seconds": round(time.perf_counter() - begin, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pip-arguments", default="", help="passed on to pip for torch, NumPy and what Colab has")
    parser.add_argument("--numpy", default="2.3.5", help="a version other than the one in requirements.txt")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = check(Path(folder), arguments.numpy, shlex.split(arguments.pip_arguments))
    print(f"{found['files']} files of torch {found['torch']} and NumPy {found['numpy']} as before; "
          f"set-up cell and one round {found['seconds']} s")  # fmt: skip


if __name__ == "__main__":
    main()
