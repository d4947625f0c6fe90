"""Run every benchmark on this machine and write benchmarks/results/<name>.json: `make bench`, on an idle machine.

    python -m benchmarks [--name NAME] [--only map kernels proofs] [--threads 2]

The others are commands of their own: `python -m benchmarks.peers`, `.kernels`, `.overhead`, `.records`, `.serving`.

Ratios within one run are the result; times are data about this machine. Arms take turns, so that a slow moment hits
all of them alike; medians are shown with their quartiles.
"""

import argparse
import json
import re
from pathlib import Path
from time import perf_counter

import numpy as np

from specgain import acceptance, lab, proofs

RESULTS = Path(__file__).parent / "results"
WEIGHTS = Path(lab.__file__).parent / "weights"
FLOAT = {"F.linear": "plain", "W @ x.T": "public", "packed": "packed", "mixed": "mixed"}  # the names in `linear.KERNELS`


def spread(values, scale=1e3):
    """Return {median, low, high}: median and quartiles, by default in ms."""
    low, median, high = np.quantile(np.asarray(values) * scale, [0.25, 0.5, 0.75])
    return {"median": round(float(median), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def time_calls(arms, repeats):
    """Return {arm: seconds of each call}: all arms once per turn in rotating order, each right after an untimed call of it.

    So an arm finds in the caches what its own last call left there, as in a loop that does nothing else, and not what its
    neighbour left.
    """
    times, names = {name: [] for name in arms}, list(arms)
    for turn in range(repeats):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            arms[name]()
            begin = perf_counter()
            arms[name]()
            times[name].append(perf_counter() - begin)
    return times


def write(path, result):
    """Write a result as indented JSON, each list of numbers (raw times) on one line."""
    text = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False)
    text = re.sub(r"\[\s+([-+.\deE,\s]+?)\s+\]", lambda found: "[" + " ".join(found[1].split()) + "]", text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def raw(seconds):
    """Return the single times in ms, to four digits behind the point."""
    return [round(float(s) * 1e3, 4) for s in seconds]


def bench_map():
    """A million-cell map of E[L] over (a, γ): one vectorised call against a plain Python loop over every hundredth."""
    a, gamma = np.linspace(0, 1, 1000)[:, None], np.arange(1000)[None, :]
    some_a, some_gamma = a.ravel()[::10].tolist(), gamma.ravel()[::10].tolist()
    arms = {
        "one call, 1,000,000 cells": lambda: acceptance.committed_length_constant(a, gamma),
        "loop, 10,000 cells": lambda: [acceptance.committed_length_constant(x, g) for x in some_a for g in some_gamma],
    }
    times = time_calls(arms, 15)
    medians = [np.median(seconds) for seconds in times.values()]
    return {name: spread(seconds) for name, seconds in times.items()} | {
        "unit": "ms",
        "turns_ms": {name: raw(seconds) for name, seconds in times.items()},
        "cells_per_second_ratio": round(float(100 * medians[1] / medians[0]), 1),
    }


def bench_kernels(positions=(1, 2, 3, 5, 9, 17), context=112, repeats=60):
    """Verifying n positions over decoding one, by the kernel of the linear layers, on the tiny target."""
    import torch

    from specgain.lab.measure import one_pass

    target = lab.load(WEIGHTS / "target.safetensors")
    targets = {"as used": target} | {name: target.with_kernel(kernel) for name, kernel in FLOAT.items()}
    times = time_calls({(k, n): one_pass(t, n, context) for k, t in targets.items() for n in positions}, repeats)
    fastest_step = min(np.median(times[k, 1]) for k in targets)
    return {
        "unit": "multiples of the fastest single step",
        "fastest_step_ms": round(float(fastest_step) * 1e3, 4),
        "threads": torch.get_num_threads(),
        "kernels": {k: {n: spread(np.array(times[k, n]) / fastest_step, 1) for n in positions} for k in targets},
        "turns_ms": {k: {n: raw(times[k, n]) for n in positions} for k in targets},
    }


def bench_proofs():
    """Seconds to check every proof and to refute every mutant."""
    results = [proofs.prove(proof.id) for proof in proofs.all_proofs()]
    return {
        "unit": "s",
        "proofs": len(results),
        "machine_steps": sum(r.machine_steps for r in results),
        "mutants_rejected": sum(r.mutants_rejected for r in results),
        "seconds": round(sum(r.seconds for r in results), 1),
        "slowest": {r.id: round(r.seconds, 1) for r in sorted(results, key=lambda r: -r.seconds)[:3]},
    }


BENCHES = {"map": bench_map, "kernels": bench_kernels, "proofs": bench_proofs}


def main():
    import torch

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--name", default="this-machine", help="file name of the result, such as cpu-2core")
    parser.add_argument("--only", nargs="+", choices=BENCHES, default=list(BENCHES))
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    path = RESULTS / f"{chosen.name}.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name in chosen.only:
        results[name] = {"about": BENCHES[name].__doc__, "environment": lab.environment()} | BENCHES[name]()
        shown = {key: value for key, value in results[name].items() if key not in ("environment", "turns_ms")}
        print(f"{name}: {json.dumps(shown, indent=1, ensure_ascii=False)}\n", flush=True)
    write(path, results)


if __name__ == "__main__":
    main()
