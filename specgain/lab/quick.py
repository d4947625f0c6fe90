"""The lab for a reader in a hurry: a few seconds of measuring now, or without torch the committed measurement."""

import json
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

COMMITTED = Path(__file__).parents[2] / "notebooks" / "measurements" / "cpu-2core" / "round-timing.json"
NEEDED = ("torch", "tokenizers", "safetensors")
SHORTEST, LONGEST, PATIENCE = 24, 48, 2  # tokens of an answer; see `_what_fits`


def live(seconds=8.0, domains=("viet", "prose"), draft="strong", gammas=(0, 1, 2, 4, 8), threads=1):
    """Return a small measurement: {origin, environment, cost, cells, summary, note}, keys as in the committed one.

    `origin` is "live" if it was taken now, and "committed" where torch is missing; then it is the committed measurement
    of the same domains, draft and γ. Acceptance, cost and test get a third of `seconds` each; where the machine is too
    slow or too busy for that, there are fewer prompts and shorter texts, down to a least measurement.
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
        pair, third = measure.load_pair([draft]), seconds / 3
        prompts, tokens = _what_fits(pair, third, domains, gammas)
        shape = {"domains": domains, "new_tokens": tokens}
        cost, cost_log = measure.measure_cost(pair, 64, gammas, seconds=third, **shape)
        acceptance = measure.measure_acceptance(pair, prompts, **shape)
        log = measure.measure_run(pair, 64, gammas, seconds=third, **shape)
    finally:
        torch.set_num_threads(before)
    cells = predict(cost, acceptance, gammas, log, Cost.resampled(cost_log))
    note = f"measured now on {log.environment['device']}, {cells[0]['requests']} test prompts per text"
    return {"origin": "live", "environment": log.environment, "cost": cost.to_json(), "cells": cells,
            "summary": summary(cells), "note": note}  # fmt: skip


def _what_fits(pair, seconds, domains, gammas):
    """Return (prompts, new tokens) per domain: acceptance and the least run with them take about `seconds` each.

    A plain step of one prompt, and one of 16 prompts together, are timed first. The least run is counted in plain steps,
    16 more for each arm to warm up; speculation is mostly faster, hence PATIENCE.
    """
    import torch

    from specgain.lab import measure
    from specgain.lab.sampling import GREEDY

    rows, times = torch.from_numpy(pair.prompts("calibration")[domains[0]][:16].astype("int64")), []
    for some in (rows[:1], rows[:1], rows):  # the first to warm up
        begin = perf_counter()
        measure.continuations(pair.target, some, 8, GREEDY)
        times.append((perf_counter() - begin) / 8)
    _, alone, together = times
    steps = PATIENCE * seconds / (alone * len({0, *gammas})) - 16
    tokens = min(LONGEST, max(SHORTEST, int(steps / (measure.LEAST_PROMPTS * len(domains)))))
    batches = max(1, int(seconds / (len(domains) * tokens * together)))
    return min(64, 16 * batches), tokens


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
