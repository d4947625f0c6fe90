"""What the lab notebooks share: the machine at a glance, progress, results kept as JSON, the book's own, published pairs."""

import json
import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from specgain.lab.device import device_defaults, device_environment
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


def start(seed=0, threads=1):
    """Set seed and threads, print device, versions and seed; returns the `device.Defaults` (device, type, message)."""
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    found, facts = device_defaults(), device_environment(torch.device("cpu"))
    print(found.message)
    versions = ", ".join(f"{name} {facts[name]}" for name in ("specgain", "torch", "numpy", "python"))
    print(f"{versions}; {threads} of {facts['cores']} CPU threads; seed {seed}")
    return found


def progress():
    """Return a function (done, total, text) that rewrites one line: how much is done, and the minutes left."""
    begin = perf_counter()

    def show(done, total, text=""):
        left = (perf_counter() - begin) * (total - done) / max(done, 1)
        bar = "█" * (20 * done // total) + "·" * (20 - 20 * done // total)
        print(f"\r{bar} {done}/{total} {text:24} {left / 60:4.1f} min left", end="" if done < total else "\n", flush=True)

    return show


def keep(name, cells, claims=(), device="cpu", pair=None, folder="results"):
    """Write cells (JSON-ready) with the environment to results/<name>.json; returns a link to it, on Colab a download."""
    facts = device_environment(torch.device(device), pair)
    data = {"schema": f"specgain.{name}/1", "claims": list(claims), "environment": facts, "cells": cells}
    path = Path(folder) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, ensure_ascii=False, allow_nan=False, default=_plain) + "\n", encoding="utf-8")
    if "google.colab" in sys.modules:
        sys.modules["google.colab"].files.download(str(path))
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
