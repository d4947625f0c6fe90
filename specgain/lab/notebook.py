"""What the lab notebooks share: the machine at a glance, progress, results kept as JSON, the book's own, published pairs.

Every lab calls `start` in its cell of settings, shows its `progress`, and ends with `book` and `keep`.
"""

import json
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from specgain.lab.device import Defaults, device_defaults, device_environment
from specgain.lab.family import held
from specgain.lab.graphs import GraphLoop
from specgain.lab.loop import ModelDraft
from specgain.lab.prediction import summary
from specgain.lab.quick import COMMITTED
from specgain.records.roundlog import RoundLog

QUESTIONS = (  # for published pairs; every second one judges
    "Write a Python function that counts the words of a text file.",
    "Explain to a child why the sky is blue.",
    "Write a JSON object for three books with title, author and year.",
    "List the steps of repairing a flat bicycle tyre.",
    "Translate into French: The train leaves at eight, and we are late.",
    "Write a short story about a lighthouse keeper and a whale.",
)


def start(seed=0, threads=1, gpu=False):
    """Set seed and threads, print device, versions and seed; returns the `device.Defaults` (device, type, message).

    `gpu`: the lab has a part for a GPU. Only then is one looked for, and is it said how to get one on Colab.
    """
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    found = device_defaults() if gpu else Defaults("cpu", torch.float32, "This lab runs on the CPU.")
    facts = device_environment(torch.device("cpu"))
    print(found.message)
    versions = ", ".join(f"{name} {facts[name]}" for name in ("specgain", "torch", "numpy", "python"))
    print(f"{versions}; {threads} of {facts['cores']} CPU threads; seed {seed}")
    return found


def progress(seconds=None):
    """Return a function (done, total, text) that rewrites one line: how much is done, and the minutes left.

    With `seconds` the work ends after that time, if not before; then the bar follows the clock.
    """
    begin = perf_counter()

    def show(done, total, text=""):
        spent = perf_counter() - begin
        share = done / total if seconds is None else min(1, max(done / total, spent / seconds))
        bar, left = "█" * int(20 * share), spent * (1 / share - 1) if share else 0.0
        count = f"{done}/{total}" if seconds is None else f"{done} done,"
        line = f"\r{bar:·<20} {count} {text:24} {left / 60:4.1f} min left"
        print(line, end="\n" if done == total else "", flush=True)

    return show


def each(items, text=""):
    """Yield the items one after the other, and after each show the bar of `progress`."""
    items, show = list(items), progress()
    for done, item in enumerate(items, start=1):
        yield item
        show(done, len(items), text)


def keep(name, cells, claims=(), device="cpu", pair=None, folder="results"):
    """Write cells (JSON-ready) with the environment to results/<name>.json; returns a link to it, on Colab a download."""
    facts = device_environment(torch.device(device), pair)
    data = {"schema": f"specgain.{name}/1", "claims": list(claims), "environment": facts, "cells": cells}
    path = Path(folder) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, ensure_ascii=False, allow_nan=False, default=_plain) + "\n", encoding="utf-8")
    if "google.colab" in sys.modules:
        from google.colab import files

        files.download(str(path))
        return path
    from IPython.display import FileLink

    return FileLink(path)


def _plain(value):
    """A NumPy number as Python's own."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is not JSON-ready")


def book(name, device="cpu-2core"):
    """Return the course's committed measurement as a dict; None, and a line that says why, where it is not at hand."""
    path = COMMITTED.parents[1] / device / f"{name}.json"
    if not path.is_file():
        print(f"the course's measurement notebooks/measurements/{device}/{name}.json is not beside this package")
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    facts = data.get("environment") or {}
    print(f"the book: {facts.get('device', device)}, {facts.get('date', '')[:10]}")
    return data


def compare(here, there, same=("domain", "draft", "gamma"), values=None):
    """Print the cells `here` beside the book's cells `there` that agree in all of `same`.

    `values` is {heading: key of a number that both hold}, by default the measured speedup S.
    """
    values, known = values or {"S": "measured_speedup"}, {_labels(cell, same): cell for cell in there}
    rows = []
    for cell in here:
        book = known.get(_labels(cell, same))
        pairs = ((cell[key], book[key] if book else "not measured") for key in values.values())
        rows.append([*_labels(cell, same), *(number for pair in pairs for number in pair)])
    _table(same, [text for name in values for text in (f"{name} here", "in the book")], rows)


def residuals(cells, what, predicted, measured, same=("domain", "draft", "gamma")):
    """Print the `predicted` and `measured` numbers (keys) of each cell and the residual, and note it as residual_percent."""
    for cell in cells:
        cell["residual_percent"] = 100 * (cell[predicted] / cell[measured] - 1)
    rows = [
        [*_labels(cell, same), cell[predicted], cell[measured], f"{cell['residual_percent']:+.1f} %"] for cell in cells
    ]
    _table(same, [f"{what} predicted", "measured", "residual"], rows)


def _labels(cell, names):
    """The values of a cell that say which one it is."""
    return tuple(cell[name] for name in names)


def _table(labels, headings, rows):
    """Print a table: labels to the left, numbers with two decimals to the right."""
    texts = [[f"{x:.2f}" if isinstance(x, float) else str(x) for x in row] for row in ([*labels, *headings], *rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        cells = [
            text.ljust(w) if i < len(labels) else text.rjust(w)
            for i, (text, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells))


def published(pair, gammas=(2, 4), questions=QUESTIONS, new_tokens=128, report=None):
    """Return cells (see `predict`) of two `Pretrained` models with one vocabulary: target and draft, greedy, one request.

    The questions take turns: one half predicts, the other judges. On a GPU every phase is a replayed CUDA graph.
    """
    target, draft = pair
    prompts = [target.chat(question) for question in questions]
    capacity = max(map(len, prompts)) + new_tokens + max(gammas)
    loop = GraphLoop(target.model, ModelDraft(draft.model), 1, capacity, max(gammas), eos=target.eos)
    arms, logs = (0, *gammas), {"calibration": [], "test": []}
    for gamma in arms:
        loop.generate(prompts[:1], new_tokens, gamma)  # captures the graphs of every span
    for i, prompt in enumerate(prompts):
        for gamma in arms[i % len(arms) :] + arms[: i % len(arms)]:
            log = loop.generate([prompt], new_tokens, gamma).outputs[0].log
            log.id, log.arm, log.domain, log.prompt = f"{i}/{gamma}", "draft" if gamma else "plain", "questions", i // 2
            logs["test" if i % 2 else "calibration"].append(log)
        if report:
            report(i + 1, len(prompts), "published pair")
    return held({which: RoundLog({}, {}, own) for which, own in logs.items()}, "questions", "draft", gammas)


def verdict(cells):
    """Print prediction, measurement and residual of cells in one table, and the residual's median, worst and coverage."""
    print("text      draft     rows   γ   E[L]  predicted  measured  residual   95 % interval")
    for c in cells:
        low, high = c["residual_interval_percent"]
        print(
            f"{c['domain']:9} {c['draft']:9} {c.get('rows', 1):4} {c['gamma']:3} {c['measured_committed_length']:6.2f}"
            f"{c['speedup']:10.2f} {c['measured_speedup']:9.2f} {c['residual_percent']:+8.1f} %  [{low:+.1f}, {high:+.1f}]"
        )
    s = summary(cells)
    print(
        f"residual: median {s['residual_median_percent']:.1f} %, worst {s['residual_worst_percent']:.1f} %; "
        f"{s['covered']} of {s['cells']} intervals hold 0"
    )
