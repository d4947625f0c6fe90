"""The lab for a reader in a hurry: a few seconds of measuring now, or without torch the committed measurement."""

import json
from importlib.util import find_spec
from pathlib import Path

COMMITTED = Path(__file__).parents[2] / "notebooks" / "measurements" / "cpu-2core" / "round-timing.json"
NEEDED = ("torch", "tokenizers", "safetensors")


def live(seconds=8.0, domains=("viet", "prose"), draft="strong", gammas=(0, 1, 2, 4, 8), threads=1):
    """Return a small measurement: {origin, environment, cost, cells, summary, note}, keys as in the committed one.

    `origin` is "live" if it was taken now, in about `seconds` s, and "committed" where torch is missing; then it is the
    committed measurement of the same domains, draft and γ. Two thirds of the time go to calibration, one to the test.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        result = committed(domains, draft, gammas)
        how = f"not here, since {' and '.join(missing)} cannot be imported: `pip install specgain[lab]`"
        return result | {"note": f"{result['note']} ({how})"}
    return _measure(seconds, domains, draft, gammas, threads)


def _measure(seconds, domains, draft, gammas, threads):
    import torch

    from specgain.lab import measure
    from specgain.lab.prediction import Cost, predict, summary

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        pair = measure.load_pair([draft])
        shape, third = {"domains": domains, "new_tokens": 48}, seconds / 3
        cost, cost_log = measure.measure_cost(pair, 64, gammas, seconds=third, **shape)
        acceptance = measure.measure_acceptance(pair, min(64, max(8, 4 * round(seconds))), **shape)
        log = measure.measure_run(pair, 64, gammas, seconds=third, **shape)
    finally:
        torch.set_num_threads(before)
    cells = predict(cost, acceptance, gammas, log, Cost.resampled(cost_log))
    note = f"measured now on {log.environment['device']}, {cells[0]['requests']} test prompts per text"
    return {"origin": "live", "environment": log.environment, "cost": cost.to_json(), "cells": cells,
            "summary": summary(cells), "note": note}  # fmt: skip


def committed(domains=None, draft=None, gammas=None, path=None):
    """Return the committed round-timing measurement with `origin` "committed", cut down to what is asked for."""
    from specgain.lab.prediction import summary

    path = Path(COMMITTED if path is None else path)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path.name} is not beside this package; it lies in the repository under notebooks/measurements/cpu-2core"
        )
    result = json.loads(path.read_text(encoding="utf-8"))
    result["cells"] = [
        cell
        for cell in result["cells"]
        if (domains is None or cell["domain"] in domains)
        and (draft is None or cell["draft"] == draft)
        and (gammas is None or cell["gamma"] in gammas)
    ]
    device, date = result["environment"]["device"], result["environment"]["date"][:10]
    return result | {
        "origin": "committed",
        "summary": summary(result["cells"]),
        "note": f"measured on {device}, {date}",
    }
