"""Time one step of the draft behind other work, to see why a tight loop flatters it.

    python tools/measure_draft_after.py [--folder FOLDER]

Behind itself, as in a tight loop; behind a pass of the target, as in a round; behind a wait in which nothing is read; and
behind as long a time of reading 8 MB again and again. The arms take turns, and before each the draft makes two steps. The
same waits stand before reading plain arrays. It takes half a minute on an idle machine and writes draft-after.json, by
default to notebooks/measurements/cpu-2core.
"""

import argparse
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from measure_round_timing import FOLDER, write

from specgain.lab.measure import environment, no_garbage_collection, one_pass
from specgain.lab.pair import load_pair

WAITS, CALLS, CONTEXT = (1, 2, 4, 8), 100, 88  # ms, turns, tokens
READ, ARRAYS = 8.0, (0.5, 4.0)  # MB


def array(megabytes):
    """Return a float32 tensor of so many MB."""
    return torch.zeros(int(megabytes * 1e6) // 4)


def nothing():
    """Do nothing."""


def busy(ms, work=nothing):
    """Return a function that repeats `work` for `ms` milliseconds, without ever sleeping."""

    def wait():
        end = perf_counter() + ms / 1e3
        while perf_counter() < end:
            work()

    return wait


def timed(step, arms, calls):
    """Return {name: seconds (calls,) of `step` behind each of `arms` {name: function}}, the arms in turns."""
    found = {name: np.zeros(calls) for name in arms}
    with no_garbage_collection():
        for turn in range(calls):
            for name, before in arms.items():
                step()
                step()
                before()
                begin = perf_counter()
                step()
                found[name][turn] = perf_counter() - begin
    return found


def measured(pair, waits=WAITS, calls=CALLS, context=CONTEXT):
    """Return cells: what was timed (`step`), `behind` what, for how many `ms`, and its median and quartiles in ms."""
    draft, target = (one_pass(model, 1, context) for model in (next(iter(pair.drafts.values())).model, pair.target))
    passes = 1e3 * np.median(timed(target, {"": nothing}, calls)[""])
    arms = {("itself", 0): nothing, ("target", float(passes)): target}
    arms |= {("waiting", ms): busy(ms) for ms in waits} | {("reading", ms): busy(ms, array(READ).sum) for ms in waits}
    found = {"draft": timed(draft, arms, calls)}
    alone = {key: arm for key, arm in arms.items() if key[0] in ("itself", "waiting")}
    found |= {f"{size} MB": timed(array(size).sum, alone, calls) for size in ARRAYS}
    return [
        {"step": step, "behind": behind, "ms": ms, "median_ms": quartiles[1], "quartiles_ms": quartiles[::2]}
        for step, by_arm in found.items()
        for (behind, ms), seconds in by_arm.items()
        for quartiles in [(1e3 * np.quantile(seconds, (0.25, 0.5, 0.75))).tolist()]
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    pair = load_pair(["strong"])
    setup = {"draft": "strong", "context": CONTEXT, "calls": CALLS, "reading_mb": READ, "threads": 1}
    write(folder / "draft-after.json", {"environment": environment(pair), "setup": setup, "cells": measured(pair)})


if __name__ == "__main__":
    main()
