"""Read what `make gpu-check` wrote and somebody committed: notebooks/measurements/<device>/gpu-<part>.json. No torch."""

import json
from pathlib import Path

from specgain.round_time import RoundTime, Table

SCHEMA = "specgain.gpu-check/1"
PARTS = ("summary", "ceilings", "correctness", "prediction", "cells", "int8")
MEASUREMENTS = Path(__file__).parents[2] / "notebooks" / "measurements"


def devices(folder=MEASUREMENTS):
    """Return {folder name: what it holds, a list of parts} of all devices with a committed GPU check."""
    found = {}
    for path in sorted(Path(folder).glob("*/gpu-*.json")):
        found.setdefault(path.parent.name, []).append(path.stem.removeprefix("gpu-"))
    return found


def read(part, device, folder=MEASUREMENTS):
    """Return one part of a device's check as a dict; ValueError if it is something else, FileNotFoundError if absent."""
    if part not in PARTS:
        raise ValueError(f"part = {part!r} unknown; a GPU check has {', '.join(PARTS)}")
    path = Path(folder) / device / f"gpu-{part}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} of {device} is not committed; there are {devices(folder) or 'none'}")
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.get("schema") != SCHEMA or data.get("part") != part:
        raise ValueError(
            f"{path.name} has schema {data.get('schema')!r} and part {data.get('part')!r}; this reads {SCHEMA!r}, {part!r}"
        )
    return data


def caption(data):
    """Return the words for under a figure: device and date."""
    return f"{data['environment']['device']}, {data['environment']['date'][:10]}"


def cost(data, pair, batch, context):
    """Return (t_decode, `RoundTime` over the γ measured) of one pair, batch and context, in seconds.

    `data` is the part "cells". A γ that was timed twice counts with its mean. ValueError says what there is.
    """
    rows = {}
    for cell in data["cells"]:
        if (cell["pair"], cell["batch"], cell["context"]) == (pair, batch, context):
            rows.setdefault(cell["gamma"], []).append(cell)
    if 0 not in rows:
        there = sorted({(c["pair"], c["batch"], c["context"]) for c in data["cells"]})
        raise ValueError(f"no cell of pair = {pair!r}, batch = {batch}, context = {context}; there are {there}")
    tables = {
        name: Table({g: sum(c[f"t_{name}_ms"] for c in cells) / len(cells) / 1e3 for g, cells in rows.items()})
        for name in ("draft", "verify", "other")
    }
    times = RoundTime(**tables)
    return times(0), times
