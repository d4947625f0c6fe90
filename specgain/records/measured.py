"""Committed measurements: what a file under notebooks/measurements/<device>/ must say about itself, and their list.

One command checks a file before it is offered:

    python -m specgain.records.measured notebooks/measurements/my-device/cost.json

Every measurement is JSON with an `environment`: the `device`, the `date` (ISO 8601) and the version of at least one
program. `weights` names the weights by their hash. `reproduce` may hold the command that made it; without it the tool
or notebook that writes a file of this name is looked up. A round log is checked in full, a record of `specgain measure`
against its schema. `NAME-plan.json` is a plan, written before the run, and needs none of this.
"""

import json
import math
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from specgain.records.roundlog import RoundLog, RoundLogError

SHARED = ("claims", "reproduce")  # any measurement may bear them beside the keys of its schema
VERSIONS = ("specgain", "python", "torch", "numpy", "vllm", "driver", "cuda", "transformers", "engine")


@dataclass(frozen=True)
class Measurement:
    """One committed file: where it stands, what it says about itself, and how to make it again ("" if unknown)."""

    path: Path
    data: dict
    reproduce: str

    @property
    def environment(self):
        return self.data.get("environment", {})

    @property
    def is_plan(self):
        return self.path.stem.endswith("-plan")

    @property
    def weights(self):
        """The hash of the weights, or "" if the file names none."""
        return next((place["weights"] for place in (self.environment, self.data) if place.get("weights")), "")

    @property
    def versions(self):
        """{program: version} of those that the environment names."""
        return {name: str(self.environment[name]) for name in VERSIONS if self.environment.get(name)}


def problems(data, name="measurement"):
    """Return what is wrong with a measurement, one sentence each; an empty list if it can be committed."""
    if not isinstance(data, dict):
        return [f"{name} holds no JSON object"]
    environment = data.get("environment")
    if not isinstance(environment, dict):
        return [f'{name} has no "environment"; it must name at least device, date and one version']
    found = _environment_problems(environment, name)
    claims = data.get("claims", [])
    if not isinstance(claims, list) or not all(re.fullmatch(r"C\d\.\d+", str(claim)) for claim in claims):
        found.append(f'{name}: claims = {claims!r} must be a list of the course\'s ids, such as ["C2.6"]')
    if any(not math.isfinite(number) for number in _numbers(data)):
        found.append(f"{name} holds a number that is not finite; a value that is not known is null")
    if str(data.get("schema", "")).startswith("specgain.roundlog/"):
        try:
            RoundLog.from_json(data)
        except (RoundLogError, TypeError) as error:
            found.append(f"{name}: {error}")
        return found
    return found + _schema_problems(data, name)


def _schema_problems(data, name):
    """Return where a record of `specgain measure` departs from specgain/schemas/measure.json; [] for other files."""
    contract = json.loads((files("specgain") / "schemas" / "measure.json").read_text(encoding="utf-8"))
    kinds = {
        kind["properties"]["schema"]["const"]: kind for kind in contract["oneOf"] if "schema" in kind["properties"]
    }
    schema = str(data.get("schema", ""))
    if schema not in kinds:
        known = [kind for kind in kinds if kind.split("/")[0] == schema.split("/")[0]]
        return [f"{name}: schema = {schema!r} is not known here; it must be {known[0]!r}"] if known else []
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        return [f"{name}: {schema} cannot be checked without the package jsonschema; `make book` installs it"]
    record = {key: value for key, value in data.items() if key not in SHARED}
    found = Draft202012Validator(kinds[schema]).iter_errors(record)
    return [f"{name}: {error.json_path}: {error.message}" for error in found]


def _environment_problems(environment, name):
    found = []
    if not isinstance(environment.get("device"), str) or not environment["device"].strip():
        found.append(f'{name}: environment.device is missing; name the processor, such as "NVIDIA H100 SXM"')
    try:
        datetime.fromisoformat(environment.get("date", ""))
    except (TypeError, ValueError):
        found.append(f"{name}: environment.date = {environment.get('date')!r} must be a date such as 2026-11-29")
    if not any(environment.get(program) for program in VERSIONS):
        found.append(f"{name}: environment names no version; give one of {', '.join(VERSIONS)}")
    return found


def _numbers(value):
    """Return every float inside a JSON value."""
    if isinstance(value, float):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [number for part in parts for number in _numbers(part)]


def inventory(root):
    """Return the `Measurement`s under root/notebooks/measurements, by device and name."""
    root = Path(root)
    paths = sorted((root / "notebooks" / "measurements").glob("*/*.json"))
    return [_measurement(path, root) for path in paths]


def _measurement(path, root):
    data = json.loads(path.read_text(encoding="utf-8"))
    return Measurement(path, data, data.get("reproduce") or _written_by(path, root))


def _written_by(path, root):
    """Return the command of the tool, or the notebook, that writes a file of this name; "" if none is found."""
    stem = path.stem.removesuffix("-plan")
    notebooks = [p for p in (root / "notebooks").glob("*.ipynb") if re.sub(r"^\d+-", "", p.stem) == stem]
    tools = [p for p in sorted((root / "tools").glob("*.py")) if f"{path.stem}.json" in p.read_text(encoding="utf-8")]
    found = [f"python {p.relative_to(root)}" for p in tools] + [f"run {p.relative_to(root)}" for p in notebooks]
    return ", or ".join(found)


def file_problems(name):
    """Return what is wrong with a file, one sentence each; [] if it can be committed, or is a plan.

    Of a file in notebooks/measurements/DEVICE/ the place is judged too: its folder, and how it is made again.
    """
    path = Path(name).resolve()
    data = json.loads(path.read_text(encoding="utf-8"))
    wrong = [] if path.stem.endswith("-plan") else problems(data, name)
    if wrong or path.parts[-4:-2] != ("notebooks", "measurements"):
        return wrong
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", path.parent.name):
        wrong.append(f"{name}: the folder {path.parent.name!r} must be small letters, digits and hyphens")
    if not _measurement(path, path.parents[3]).reproduce:
        wrong.append(f'{name}: nothing here writes a file of this name; add "reproduce": "the command that made it"')
    return wrong


def main(arguments=None):
    """Check the files named; print what is wrong with each and return 1 if anything is."""
    wrong = []
    for name in sys.argv[1:] if arguments is None else arguments:
        try:
            found = file_problems(name)
        except (OSError, ValueError) as error:
            found = [f"{name}: {error}"]
        print("\n".join(found) if found else f"{name}: can be committed")
        wrong += found
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
