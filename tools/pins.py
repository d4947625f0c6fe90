"""Write requirements.txt: the exact version of every package that the book, the library and the tests need.

    .venv/bin/python tools/pins.py            rewrite requirements.txt from what this environment holds
    .venv/bin/python tools/pins.py --check    say what differs and exit 1

The starting points are the dependencies and extras of pyproject.toml; the rest is found by following each
installed package's own requirements. To take newer versions: install them, run the tests, run this.
"""

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
HEADER = """\
# Exact versions of the whole tool-chain (Python 3.11). Written by tools/pins.py; `make` installs it.
# Without torch (`make book LAB=0`) the line torch== is left out.
"""
NOT_PINNED = ("nvidia-", "cuda-", "triton")  # parts of torch's CUDA builds: torch pins them itself, per platform


def starting_points():
    """Return the requirements that pyproject.toml names, the extras `all`, `book` and `dev` included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    names = {name for name in extras if name != "all"}
    return project["dependencies"] + [line for name in sorted(names) for line in extras[name]]


def pins():
    """Return {canonical name: "name==version"} of everything reachable from the starting points."""
    found, seen, waiting = {}, set(), [Requirement(line) for line in starting_points()]
    while waiting:
        requirement = waiting.pop()
        key = canonicalize_name(requirement.name)
        new = {(key, extra) for extra in {"", *requirement.extras}} - seen
        if new and not key.startswith(NOT_PINNED):
            seen |= new
            package = installed(requirement)
            found[key] = f"{key}=={package.version.split('+')[0]}"
            for line, (_, extra) in product(package.requires or [], new):
                if applies(Requirement(line), extra):
                    waiting.append(Requirement(line))
    return found


def installed(requirement):
    """Return the installed package that `requirement` names, or end with a message."""
    try:
        return distribution(requirement.name)
    except PackageNotFoundError:
        sys.exit(f"{requirement.name} is needed but not installed: pip install '{requirement}' first")


def applies(requirement, extra):
    """Return True if `requirement` holds on this platform with this extra ("" for none)."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def main():
    text = HEADER + "\n".join(line for _, line in sorted(pins().items())) + "\n"
    path = ROOT / "requirements.txt"
    if "--check" not in sys.argv:
        path.write_text(text, encoding="utf-8")
    elif text != path.read_text(encoding="utf-8"):
        differing = set(text.splitlines()) ^ set(path.read_text(encoding="utf-8").splitlines())
        sys.exit("requirements.txt differs from this environment: " + ", ".join(sorted(differing)))


if __name__ == "__main__":
    main()
