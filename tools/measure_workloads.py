"""Measure six kinds of work on SmolLM2-135M with drafts that have no weights: acceptance, and, when idle, time.

    make smollm2
    python tools/measure_workloads.py plan     # the cells; commit them before the run
    python tools/measure_workloads.py run      # the texts, and the rounds of every draft and γ on them; temperatures
    python tools/measure_workloads.py --time   # a few cells end to end on an idle machine, beside their prediction

`run` needs no clock: the target writes each text once, and the rounds of a draft that does not sample follow from the
text exactly (`specgain.lab.replay`), at any temperature. A stopped run goes on with the texts that it has.
`--time` lets all arms of a prompt, plain decoding among them, take turns of a few tokens, so that a slow moment of the
machine hits them alike. Costs come from the first prompt of each kind, speedups from the others.
"""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
import workloads

from specgain import gain
from specgain.lab.drafts import Lookup, Suffix
from specgain.lab.gguf_file import load_smollm2
from specgain.lab.loop import NOTHING, Stop, generate, in_turns, stepwise
from specgain.lab.measure import continuations, distinct_ngrams, environment
from specgain.lab.model import Cache
from specgain.lab.pair import DOMAINS, load_pair
from specgain.lab.pair import DRAFTS as DRAFTS_OF_PAIR
from specgain.lab.replay import replay
from specgain.lab.sampling import Sampling

FOLDER = Path(__file__).resolve().parent.parent / "notebooks" / "measurements" / "cpu-2core"
PLAN, RESULT, TIME = FOLDER / "workloads-plan.json", FOLDER / "workloads.json", FOLDER / "workloads-time.json"
AGAIN = "python tools/measure_workloads.py --time"
CLAIMS = ["C4.1", "C4.2", "C4.3"]
DRAFTS = ("lookup", "suffix, cold", "suffix, warm")
GAMMAS, TEMPERATURES, NEW_TOKENS = (2, 4, 8), (0.0, 1.0), 128
SETTINGS = [
    (0.0, 1.0),
    (0.25, 1.0),
    (0.5, 1.0),
    (0.75, 1.0),
    (1.0, 1.0),
    (1.25, 1.0),
    (1.5, 1.0),
    (1.0, 0.9),
    (1.0, 0.5),
]
TIMED = [(kind, draft, gamma) for kind in ("copy", "extract", "chat", "random") for draft, gamma in
         (("lookup", 4), ("lookup", 8), ("suffix, cold", 8))]  # fmt: skip


def make_plan():
    """The cells that `run` will fill and those that `--time` will time."""
    names = ("kind", "temperature", "draft", "gamma")
    cells = [
        dict(zip(names, (k, t, d, g), strict=True))
        for k in workloads.KINDS
        for t in TEMPERATURES
        for d in DRAFTS
        for g in GAMMAS
    ]
    timed = [dict(zip(names, (k, 0.0, d, g), strict=True)) for k, d, g in TIMED]
    return {
        "schema": "specgain.workloads-plan/1",
        "kinds": workloads.KINDS,
        "prompts": workloads.PROMPTS,
        "random_tokens": workloads.RANDOM_TOKENS,
        "new_tokens": NEW_TOKENS,
        "lookup": {"longest": 3, "shortest": 1},
        "suffix": {"longest": 24, "least": 0.1},
        "warm": "the draft has seen the prompts and outputs of the other requests of the same kind",
        "cells": cells,
        "timed_cells": timed,
    }


# --- texts ---------------------------------------------------------------------------------------------------------


def prompts_of(model, kind):
    """The token ids of a kind's prompts."""
    if kind == "random":
        special = [i for i, t in model.tokenizer.get_added_tokens_decoder().items() if t.special]
        return workloads.random_ids(model.model.config.vocab, special)
    return [model.chat(text) for text in workloads.prompts(kind)]


def write_texts(model, kinds, temperature, new_tokens):
    """What the target says after every prompt, {kind: a list of texts}. Random prompts run to the cap, as benchmarks do."""
    prompts = [(kind, prompt) for kind in kinds for prompt in prompts_of(model, kind)]
    run = generate(
        model.model, [p for _, p in prompts], new_tokens, sampling=Sampling(temperature), seed=workloads.SEED
    )
    texts = {kind: [] for kind in kinds}
    for (kind, prompt), output in zip(prompts, run.outputs, strict=True):
        ended = kind != "random" and model.eos in output.tokens
        tokens = output.tokens[: output.tokens.index(model.eos) + 1] if ended else output.tokens
        distinct = distinct_ngrams(tokens) if len(tokens) > 3 else 1.0
        text = {"prompt": prompt, "tokens": tokens, "text": model.decode(tokens), "distinct_4grams": distinct}
        texts[kind].append(text | {"finish": "stop" if ended else "length"})
    return texts


# --- rounds --------------------------------------------------------------------------------------------------------


def rounds_of(texts, draft, gamma, vocab, new_tokens):
    """The rounds [(drafted, accepted), …] of every text with this draft."""
    if draft == "lookup":
        return [replay(Lookup(vocab), t["prompt"], t["tokens"], gamma, new_tokens) for t in texts]
    return [
        replay(
            _suffix(texts, i if draft == "suffix, warm" else None, vocab), t["prompt"], t["tokens"], gamma, new_tokens
        )
        for i, t in enumerate(texts)
    ]


def _suffix(texts, but, vocab):
    """A suffix draft that has seen all texts but one, or (None) nothing."""
    draft = Suffix(vocab)
    for i, text in enumerate(texts if but is not None else ()):
        if i != but:
            replay(draft, text["prompt"], text["tokens"], 1)
    return draft


def cell_of(texts, rounds, gamma):
    """The acceptance of one cell, E[L] in tokens per round; the interval is a 95 % bootstrap by request.

    `first_accepted` counts among the rounds with a draft, `rounds_by_width` the rounds by candidates drafted, 0 to γ.
    """
    sums = np.array([(len(t["tokens"]), len(r)) for t, r in zip(texts, rounds, strict=True)])
    flat = [pair for request in rounds for pair in request]
    offered = [(d, k) for d, k in flat if d]
    widths = [d for d, _ in flat]
    return {
        "committed_length": float(sums[:, 0].sum() / sums[:, 1].sum()),
        "interval": gain.interval(gain.bootstrap([sums], lambda s: s[:, 0] / s[:, 1])),
        "by_request": (sums[:, 0] / sums[:, 1]).round(3).tolist(),
        "rounds": len(flat),
        "rounds_without_draft": len(flat) - len(offered),
        "drafted": sum(widths),
        "accepted": sum(k for _, k in flat),
        "first_accepted": sum(k > 0 for _, k in offered),
        "rounds_by_width": {str(w): widths.count(w) for w in range(gamma + 1)},
    }


def run(plan):
    """Fill every cell of the plan; texts are kept as they come."""
    done = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    texts = done.get("texts", {}) if done.get("plan") == plan else {}
    model = load_smollm2()
    vocab, new_tokens = model.model.config.vocab, plan["new_tokens"]
    facts = environment() | {"model": model.facts}
    head = {"claims": CLAIMS, "plan": plan, "environment": facts, "vocab": vocab}
    for temperature in TEMPERATURES:
        if f"{temperature:g}" not in texts:
            texts[f"{temperature:g}"] = write_texts(model, plan["kinds"], temperature, new_tokens)
            write(RESULT, head | {"texts": texts, "cells": []})
    cells = []
    for cell in plan["cells"]:
        own = texts[f"{cell['temperature']:g}"][cell["kind"]]
        rounds = rounds_of(own, cell["draft"], cell["gamma"], vocab, new_tokens)
        cells.append(cell | cell_of(own, rounds, cell["gamma"]))
    write(RESULT, head | {"texts": texts, "cells": cells, "sampling": acceptance_by_sampling()})


# --- temperature, top-p and alignment, on the tiny pair ------------------------------------------------------------


@torch.inference_mode()
def acceptance_by_sampling(prompts=12, new_tokens=40):
    """{domain: {draft: {setting: a_1}}}: the chance that a first guess is kept, by what the sampling does.

    At every place of texts that the target sampled so itself. A draft that samples alike: the mean of the sum over the
    vocabulary of min(p, q). Lookup: the mean of p at its guess, where it has one. No accept-or-reject draw is needed.
    """
    pair, lookup, found = load_pair([*DRAFTS_OF_PAIR]), Lookup(2048), {}
    for domain, count in ((d, i) for i, d in enumerate(DOMAINS)):
        rows = torch.from_numpy(pair.prompts("calibration")[domain][:prompts].astype(np.int64))
        for temperature, top_p in SETTINGS:
            how = Sampling(temperature, top_p=top_p)
            texts = torch.cat((rows, continuations(pair.target, rows, new_tokens, how, workloads.SEED + count)), dim=1)
            p, *qs = (
                how.probs(m(texts[:, :-1], Cache(m, len(rows)))[:, rows.shape[1] - 1 :])
                for m in (pair.target, *(pair.drafts[name].model for name in DRAFTS_OF_PAIR))
            )
            entry = {n: float(torch.minimum(p, q).sum(-1).mean()) for n, q in zip(DRAFTS_OF_PAIR, qs, strict=True)}
            entry["lookup"] = _guessed(lookup, texts.numpy(), p, rows.shape[1])
            for name, value in entry.items():
                setting = f"T = {temperature:g}" + (f", top-p {top_p:g}" if top_p < 1 else "")
                found.setdefault(domain, {}).setdefault(name, {})[setting] = value
    return {"weights": pair.weights_hash, "prompts": prompts, "new_tokens": new_tokens, "first_acceptance": found}


def _guessed(lookup, texts, p, start):
    """The mean probability under the target of what lookup guesses at each place, where it guesses."""
    kept = []
    for row, probs in zip(texts, p, strict=True):
        for place in range(start, len(row)):
            guess = lookup.guess(row[:place], 1)
            kept += [float(probs[place - start, token]) for token in guess]
    return float(np.mean(kept))


# --- time ----------------------------------------------------------------------------------------------------------


def time(plan, repeats, prompts, new_tokens):
    """Time the planned cells beside plain decoding, and hold the cost of the first prompts against the others."""
    model, logs = load_smollm2(), {}
    arms = [("plain", 0), *dict.fromkeys((c["draft"], c["gamma"]) for c in plan["timed_cells"])]
    kinds = dict.fromkeys(c["kind"] for c in plan["timed_cells"])
    for repeat, kind in ((r, k) for r in range(repeats) for k in kinds):
        for i, prompt in enumerate(prompts_of(model, kind)[: prompts + 1]):
            outputs = outputs_of(model, prompt, arms, new_tokens, NOTHING if kind == "random" else Stop(model.eos))
            for arm, output in zip(arms, outputs, strict=True):
                logs.setdefault((kind, *arm), {}).setdefault(i, []).append((prompt, output))
            print(f"\r{repeat + 1}/{repeats} {kind} {i}      ", end="", flush=True)
    print()
    cost = cost_of({arm: [o.log for _, o in runs[0]] for arm, runs in logs.items()})
    cells = [c | timed_cell(logs, c, cost, model.model.config.vocab, new_tokens) for c in plan["timed_cells"]]
    facts = environment() | {"model": model.facts, "repeats": repeats, "prompts": prompts, "new_tokens": new_tokens}
    write(TIME, {"claims": CLAIMS, "reproduce": AGAIN, "environment": facts, "cost": cost, "cells": cells})


def outputs_of(model, prompt, arms, new_tokens, stop):
    """The greedy output of a prompt with every arm (draft, γ); the arms take turns."""
    vocab, loops = model.model.config.vocab, []
    for draft, gamma in arms:
        own = None if draft == "plain" else Lookup(vocab) if draft == "lookup" else Suffix(vocab)
        loops.append(stepwise(model.model, [prompt], new_tokens, own, gamma, stop=stop))
    return [run.outputs[0] for run in in_turns(loops)]


def cost_of(logs):
    """Mean times in ms of an ordinary step ("plain") and of rounds by the number of tokens drafted.

    `logs` maps arms (kind, draft, γ) to lists of `RequestLog`: the calibration prompts.
    """
    times = {}
    for (_, draft, _), log in ((arm, log) for arm, own in logs.items() for log in own):
        for width, *parts in zip(log.drafted, log.t_draft, log.t_verify, log.t_other, strict=True):
            times.setdefault("plain" if draft == "plain" else str(width), []).append(parts)
    names = ("t_draft_ms", "t_verify_ms", "t_other_ms")
    means = {width: (np.mean(rows, axis=0) * 1e3).tolist() for width, rows in times.items()}
    return {
        width: {"rounds": len(times[width])} | dict(zip(names, means[width], strict=True))
        for width in sorted(times, key=lambda width: (width != "plain", len(width), width))
    }


def timed_cell(logs, cell, cost, vocab, new_tokens):
    """Predicted and measured speedup of one cell over the prompts that gave no costs, and each prompt's times in ms.

    The rounds of the prediction are those that the draft makes on the plain text; a round's cost goes by its width,
    straight between the widths that were timed. `different_outputs` counts texts that are not the plain one.
    """
    plain, spec = (logs[cell["kind"], arm, gamma] for arm, gamma in (("plain", 0), (cell["draft"], cell["gamma"])))
    total = {width: sum(v for k, v in row.items() if k != "rounds") for width, row in cost.items()}
    widths = sorted(int(width) for width in total if width != "plain")
    means, sums, told, other = [total[str(width)] for width in widths], [], [], 0
    for i in sorted(plain)[1:]:
        sums.append([sum(o.log.time for _, o in outputs) * 1e3 / len(outputs) for outputs in (plain[i], spec[i])])
        text = {"prompt": plain[i][0][0], "tokens": plain[i][0][1].tokens}
        rounds = rounds_of([text], cell["draft"], cell["gamma"], vocab, new_tokens)[0]
        steps = plain[i][0][1].log.rounds
        told.append([steps * total["plain"], sum(np.interp(d, widths, means) for d, _ in rounds)])
        other += sum(a.tokens != b.tokens for (_, a), (_, b) in zip(plain[i], spec[i], strict=True))
    sums, told = np.array(sums), np.array(told)
    outputs = [o.log for i in sorted(spec)[1:] for _, o in spec[i]]
    return {
        "committed_length": sum(log.tokens for log in outputs) / sum(log.rounds for log in outputs),
        "predicted_speedup": float(told[:, 0].sum() / told[:, 1].sum()),
        "measured_speedup": float(sums[:, 0].sum() / sums[:, 1].sum()),
        "measured_interval": gain.interval(gain.bootstrap([sums], lambda s: s[:, 0] / s[:, 1])),
        "plain_ms": sums[:, 0].tolist(),
        "speculative_ms": sums[:, 1].tolist(),
        "different_outputs": other,
    }


def write(path, data):
    path.write_text(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    print(f"wrote {path.name}, {path.stat().st_size / 1e3:.0f} kB, {datetime.now(UTC):%H:%M}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", nargs="?", choices=["plan", "run"])
    parser.add_argument("--time", action="store_true", help="time a few cells; let the machine be idle")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=3, help="judged prompts per kind")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.stage is None and not arguments.time:
        parser.error("give a stage, plan or run, or --time")
    if arguments.stage == "plan" and arguments.time:
        parser.error("commit the plan first; --time comes after it, alone or with run")
    torch.set_num_threads(arguments.threads)
    if arguments.stage == "plan":
        return write(PLAN, make_plan())
    plan = json.loads(PLAN.read_text(encoding="utf-8"))
    if arguments.stage == "run":
        run(plan)
    if arguments.time:
        time(plan, arguments.repeats, arguments.prompts, arguments.tokens)
    return None


if __name__ == "__main__":
    sys.exit(main())
