"""Measure quantization and speculation together: four runs, whose text it is, and what heads lose.

    python tools/measure_quantization.py plan                        # what will be run; commit it first
    python tools/measure_quantization.py run                         # the clock, 4 minutes: let the machine be idle
    python tools/measure_quantization.py texts                       # no clock: equal texts, KL, the task metric
    python tools/measure_quantization.py heads --tokens tokens.npz   # no clock: heads on a quantized target

`run` takes its arms in turns, in rotated order; a time is the median over the repeats, a speedup the total of the plain
times over the total of the others, its interval a bootstrap by prompt. The calibration prompts of `run` predict, the
test prompts judge. `heads` also trains each head on for a few steps, on features of the rounded target and, to compare,
of the original; `tokens.npz` is what tools/train_pair.py makes.
"""

import argparse
import json
import sys
import zlib
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F
import workloads

from specgain import gain
from specgain.lab.drafts import Lookup
from specgain.lab.gguf_file import load_smollm2
from specgain.lab.heads import KINDS, Tapped, load_head
from specgain.lab.loop import generate
from specgain.lab.measure import environment, first_difference
from specgain.lab.model import Cache, load
from specgain.lab.pair import WEIGHTS, load_pair, load_prompts, weights_hash
from specgain.lab.quality import judge
from specgain.lab.quantize import Dynamic, ExactInt8, Int8, divergence, rounded
from specgain.lab.sampling import Sampling
from specgain.lab.tensors import read_tensors

FOLDER = Path(__file__).resolve().parent.parent / "notebooks" / "measurements" / "cpu-2core"
PLAN, RESULT = FOLDER / "quantization-plan.json", FOLDER / "quantization.json"
CLAIMS = ["C6.1", "C6.2", "C6.3"]

KERNEL = {"fp32": None, "int8": Int8}
INT8 = {"int8": Int8, "int8 exact": ExactInt8, "int8 dynamic": Dynamic}
ROUNDED = {"fp32": None, "int8": Int8, "4 bits": rounded(4), "3 bits": rounded(3)}  # from fine to coarse
SEED = 2029


def make_plan():
    """What the stages will run."""
    return {
        "schema": "specgain.quantization-plan/1",
        "weights": weights_hash(),
        "tiny": {
            "threads": 1,
            "temperature": {"json": 0.0, "viet": 0.0, "prose": 1.0},
            "prompts": {"calibration": 3, "test": 8},
            "repeats": 3,
            "new_tokens": 64,
            "targets": ["fp32", "int8"],
            "arms": [["none", 0], ["fp32", 2], ["fp32", 4], ["int8", 4]],  # the draft's format and γ
        },
        "smollm2": {
            "threads": 2,
            "kernel": "fp32: packed for one row as well, which is faster here; int8: a scale per row",
            "temperature": {"copy": 0.0},
            "prompts": {"calibration": 1, "test": 3},
            "repeats": 2,
            "new_tokens": 48,
            "targets": ["fp32", "int8"],
            "arms": [["none", 0], ["lookup", 4], ["lookup", 8]],
        },
        "texts": {"domains": ["json", "func", "viet"], "prompts": 8, "new_tokens": 64, "gamma": 4},
        "quality": {"domains": ["json", "func", "viet"], "prompts": 16, "new_tokens": 192},
        "heads": {
            "temperature": {"json": 0.0, "viet": 0.0, "prose": 1.0},
            "prompts": 16,
            "new_tokens": 48,
            "gamma": 4,
            "targets": list(ROUNDED),
            "trained_on": "3 bits",
            "steps": 20,
        },
    }


# --- the clock: two by two -----------------------------------------------------------------------------------------


def run(plan, only=None):
    """Time the tiny pair and SmolLM2, or `only` one of them; write requests and cells."""
    done = stored(plan).get("time", {}) if only else {}
    parts = done | ({} if only == "smollm2" else {"tiny": timed_tiny(plan)})
    keep(plan, time=parts)
    if only != "tiny":
        keep(plan, time=parts | {"smollm2": timed_smollm2(plan)})


def timed_tiny(plan):
    """The tiny pair's part."""
    tiny = {f: load_pair(["strong"], kernel=KERNEL[f], draft_kernel=KERNEL[f]) for f in KERNEL}
    targets, drafts = {f: p.target for f, p in tiny.items()}, {f: p.drafts["strong"] for f, p in tiny.items()}
    prompts = {which: load_prompts(which) for which in ("calibration", "test")}
    return timed(plan["tiny"], targets, drafts, lambda w, d, i: prompts[w][d][i].tolist())


def timed_smollm2(plan):
    """SmolLM2's part."""
    models = {f: load_smollm2(kernel=KERNEL[f]) for f in KERNEL}
    texts, shift = workloads.prompts("copy"), {"calibration": 0, "test": plan["smollm2"]["prompts"]["calibration"]}
    found = timed(
        plan["smollm2"],
        {f: m.model for f, m in models.items()},
        {"lookup": Lookup(models["fp32"].model.config.vocab)},
        lambda which, _, i: models["fp32"].chat(texts[shift[which] + i]),
    )
    return found | {"model": models["fp32"].facts}


def timed(part, targets, drafts, prompt_of):
    """Return {environment, requests, cells} of one part of the plan."""
    torch.set_num_threads(part["threads"])
    arms = [(target, draft, gamma) for target in part["targets"] for draft, gamma in part["arms"]]
    logs, outputs, count = {}, {}, 0
    for target, draft, gamma in arms:  # warm
        prompt = prompt_of("test", next(iter(part["temperature"])), 0)
        generate(targets[target], [prompt], 8, drafts.get(draft), gamma)
    for repeat in range(part["repeats"]):
        for which, prompts in part["prompts"].items():
            for i, domain in ((i, d) for i in range(prompts) for d in part["temperature"]):
                order, count = arms[count % len(arms) :] + arms[: count % len(arms)], count + 1
                for target, draft, gamma in order:
                    seed = zlib.crc32(f"{which}/{domain}/{i}".encode())  # the same text in every repeat
                    output = generate(
                        targets[target], [prompt_of(which, domain, i)], part["new_tokens"], drafts.get(draft), gamma,
                        sampling=Sampling(part["temperature"][domain]), seed=seed).outputs[0]  # fmt: skip
                    key = (which, domain, i, target, draft, gamma)
                    logs.setdefault(key, []).append(output.log)
                    outputs[key] = output.tokens
                print(f"\r{repeat + 1}/{part['repeats']} {which} {domain} {i}      ", end="", flush=True)
    print()
    requests = [request_of(key, own, outputs) for key, own in logs.items()]
    for key, request in zip(logs, requests, strict=True):
        if not request["plain_text"] and part["temperature"][key[1]] == 0:
            plain = outputs[(*key[:4], "none", 0)]
            prompt = prompt_of(key[0], key[1], key[2])
            request["difference"] = first_difference(targets[key[3]], prompt, plain, outputs[key])
    return {"environment": environment(), "requests": requests, "cells": cells_of(part, requests),
            "verify": verify_of(part, logs)}  # fmt: skip


def request_of(key, logs, outputs):
    """One request: median time over its repeats, its rounds, and whether its text is its own target's plain text."""
    names = ("set", "domain", "prompt", "target", "draft", "gamma")
    log = logs[0]
    return dict(zip(names, key, strict=True)) | {
        "time_ms": median(one.time for one in logs) * 1e3,
        "times_ms": [round(one.time * 1e3, 3) for one in logs],
        "tokens": log.output_tokens,
        "rounds": log.rounds,
        "accepted": sum(log.accepted),
        "drafted": sum(log.drafted),
        "plain_text": outputs[key] == outputs[(*key[:4], "none", 0)],
    }


def verify_of(part, logs):
    """{target: {positions: median ms of a pass}}: what more positions cost, by format; full drafts only."""
    found = {target: {} for target in part["targets"]}
    for (_, _, _, target, _, gamma), own in logs.items():
        times = [t for log in own for d, t in zip(log.drafted, log.t_verify, strict=True) if d == gamma]
        found[target].setdefault(gamma + 1, []).extend(times)
    return {t: {str(n): median(own) * 1e3 for n, own in sorted(rows.items())} for t, rows in found.items()}


def cells_of(part, requests):
    """The four runs of every text, draft and γ: the two gains, what their product would promise, and both together."""
    table = {(r["set"], r["domain"], r["prompt"], r["target"], r["draft"], r["gamma"]): r for r in requests}
    cells = []
    for domain in part["temperature"]:
        for draft, gamma in part["arms"][1:]:
            runs = (("fp32", "none", 0), ("int8", "none", 0), ("fp32", draft, gamma), ("int8", draft, gamma))
            sides = {w: [[table[w, domain, i, *run] for run in runs] for i in range(part["prompts"][w])]
                     for w in part["prompts"]}  # fmt: skip
            test = np.array([[r["time_ms"] for r in row] for row in sides["test"]])
            told, both = [row[0] for row in sides["calibration"]], [row[3] for row in sides["calibration"]]
            cell = {"domain": domain, "temperature": part["temperature"][domain], "draft": draft, "gamma": gamma}
            for name, statistic in STATISTICS.items():
                cell[name] = float(statistic(test.sum(axis=0)[None])[0])
                cell[f"{name}_interval"] = gain.interval(gain.bootstrap([test], statistic))
            lengths = [sum(r["tokens"] for r in own) / sum(r["rounds"] for r in own)
                       for own in ([row[2] for row in sides["test"]], [row[3] for row in sides["test"]])]  # fmt: skip
            cell |= dict(zip(("committed_length_fp32", "committed_length_int8"), lengths, strict=True))
            cells.append(cell | {"predicted": ledger(told, both)})
    return cells


STATISTICS = {  # columns: plain, quantized, speculative, both
    "quantized": lambda t: t[:, 0] / t[:, 1],
    "speculative": lambda t: t[:, 0] / t[:, 2],
    "both": lambda t: t[:, 0] / t[:, 3],
    "product": lambda t: t[:, 0] ** 2 / t[:, 1] / t[:, 2],
    "both_over_product": lambda t: t[:, 1] * t[:, 2] / t[:, 0] / t[:, 3],
}


def ledger(plain, both):
    """S = E[L]·t_D / T_round of the calibration prompts, t_D from the requests `plain`, the round from `both`."""
    tokens, rounds = sum(r["tokens"] for r in both), sum(r["rounds"] for r in both)
    t_decode = sum(r["time_ms"] for r in plain) / sum(r["tokens"] for r in plain)
    return gain.speedup(tokens / rounds, t_decode, sum(r["time_ms"] for r in both) / rounds)


# --- no clock: whose text, how good --------------------------------------------------------------------------------


def texts(plan):
    """Count the texts that are equal, and say how far a quantized reference is from the original and how good it is."""
    part, names = plan["texts"], {"fp32": None} | INT8
    pairs = {f: load_pair(["strong"], kernel=k, draft_kernel=k) for f, k in names.items()}
    runs = [(target, draft) for target in names for draft in ("none", "fp32", "int8")]
    said, rows = {}, {d: load_prompts("test")[d][: part["prompts"]].tolist() for d in part["domains"]}
    for target, draft in runs:
        for domain, prompts in rows.items():
            for i, prompt in enumerate(prompts):
                own = None if draft == "none" else pairs[draft].drafts["strong"]
                gamma = 0 if own is None else part["gamma"]
                output = generate(pairs[target].target, [prompt], part["new_tokens"], own, gamma).outputs[0]
                said[target, draft, domain, i] = output.tokens
        print(target, draft, flush=True)
    equal = [
        {"target": t, "draft": d, "texts": part["prompts"] * len(rows)}
        | {
            f"equal_to_{r.replace(' ', '_')}": sum(
                said[t, d, x, i] == said[r, "none", x, i] for x in rows for i in range(part["prompts"])
            )
            for r in names
        }  # fmt: skip
        for t, d in runs
    ]
    keep(plan, texts={"equal": equal, "smollm2": smollm2_texts(plan), "quality": quality(plan["quality"])})


def smollm2_texts(plan):
    """[{kernel, prompts, differ, logit_gaps}]: SmolLM2's plain texts against those with lookup, kernel by kernel."""
    part, found = plan["smollm2"], []
    for name, kernel in INT8.items():
        model, gaps = load_smollm2(kernel=kernel), []
        prompts = [model.chat(text) for text in workloads.prompts("copy")[: sum(part["prompts"].values())]]
        for prompt in prompts:
            said = [generate(model.model, [prompt], part["new_tokens"], draft, gamma).outputs[0].tokens
                    for draft, gamma in ((None, 0), (Lookup(model.model.config.vocab), 4))]  # fmt: skip
            if said[0] != said[1]:
                gaps.append(first_difference(model.model, prompt, *said)["logit_gap"])
        found.append({"kernel": name, "prompts": len(prompts), "differ": len(gaps), "logit_gaps": gaps})
        print(found[-1], flush=True)
    return found


def quality(part):
    """{target: {kl, agreement, …, domains: the task metric}} of every reference; the texts are its own."""
    prompts, found, own = load_prompts("test"), {}, {}
    names = ROUNDED | {"int8 dynamic": Dynamic}
    for name, kernel in names.items():
        pair = load_pair([], kernel=kernel)
        said = {}
        for domain in part["domains"]:
            rows = prompts[domain][: part["prompts"]].tolist()
            outputs = generate(pair.target, rows, part["new_tokens"], rows=16).outputs
            said[domain] = [row + output.tokens for row, output in zip(rows, outputs, strict=True)]
        own.setdefault("fp32", (pair, said))  # the original comes first
        original, its = own["fp32"]
        skip = prompts[part["domains"][0]].shape[1] - 1
        apart = divergence(original.target, pair.target, sum(its.values(), []), skip)
        found[name] = apart | {"domains": judge(pair, said)}
        print(name, {k: round(v, 4) for k, v in apart.items()}, flush=True)
    return found


# --- no clock: heads on a quantized target -------------------------------------------------------------------------


class Borrowed(Tapped):
    """A target whose heads read the features of another model, `source`, of the same text: what if nothing had shifted?"""

    def __init__(self, target, source):
        super().__init__(target)
        self.source, self.twin = Tapped(source), None

    def hidden(self, tokens, cache, *args, **kwargs):
        """As `Tapped.hidden`; the source passes the same tokens."""
        before = list(cache.length)
        x, place = super().hidden(tokens, cache, *args, **kwargs)
        if self.twin is None or self.twin.keys.shape != cache.keys.shape or self.owner is not cache:
            self.owner, self.twin = cache, Cache(self.source, len(before), cache.capacity)
        self.twin.length = before
        self.source.hidden(tokens, self.twin, *args, **kwargs)
        self.features = self.source.features
        return x, place


def heads(plan, tokens, steps):
    """Count what heads commit per round on every target: with its own features, with the original's, and retrained."""
    part, original = plan["heads"], load(WEIGHTS / "target.safetensors")
    steps = part["steps"] if steps is None else steps
    targets = {name: original if kernel is None else load(WEIGHTS / "target.safetensors", kernel=kernel)
               for name, kernel in ROUNDED.items()}  # fmt: skip
    cells = []
    for name, target in targets.items():
        strong = load_pair(["strong"]).drafts["strong"]
        cells += counted(part, {"target": name, "draft": "strong", "features": "none"}, target, strong)
        for kind in KINDS:
            tapped = {"own": Tapped(target)} | ({} if target is original else {"original": Borrowed(target, original)})
            for features, reads in tapped.items():
                label = {"target": name, "draft": kind, "features": features}
                cells += counted(part, label, reads, load_head(kind, reads))
        print(name, flush=True)
    result = {"cells": cells, "trained_on": part["trained_on"], "steps": steps}
    keep(plan, heads=result)
    for source in (part["trained_on"], "fp32") if tokens is not None else ():
        batches = features_of(tokens, targets[source], steps)
        for kind in KINDS:
            weights = tuned(kind, targets[source], batches)
            for name in dict.fromkeys((part["trained_on"], source)):
                tapped = Tapped(targets[name])
                label = {"target": name, "draft": kind, "features": "own", "trained_on": source}
                cells += counted(part, label, tapped, KINDS[kind](kind, weights, tapped))
            keep(plan, heads=result)


def counted(part, label, target, draft):
    """One cell per text: E[L] with its interval by request, and the share of first guesses that were kept."""
    cells = []
    for domain, temperature in part["temperature"].items():
        rows = load_prompts("test")[domain][: part["prompts"]].tolist()
        outputs = generate(target, rows, part["new_tokens"], draft, part["gamma"],
                           sampling=Sampling(temperature), seed=SEED).outputs  # fmt: skip
        sums = np.array([(o.log.output_tokens, o.log.rounds) for o in outputs])
        first = [k > 0 for o in outputs for d, k in zip(o.log.drafted, o.log.accepted, strict=True) if d]
        cells.append(label | {
            "domain": domain, "gamma": part["gamma"],
            "committed_length": float(sums[:, 0].sum() / sums[:, 1].sum()),
            "interval": gain.interval(gain.bootstrap([sums], lambda s: s[:, 0] / s[:, 1])),
            "first_accepted": sum(first) / len(first),
            "by_request": [[int(t), int(r)] for t, r in sums],
        })  # fmt: skip
    return cells


def features_of(path, target, steps):
    """Batches for training heads on this target: its features, and what it says itself."""
    from train_heads import LENGTH, TAPS, Batch
    from train_pair import BATCH, batches

    class Own(Batch):
        def __init__(self, tokens, stack, weights, last):
            super().__init__(tokens, stack, weights)
            self.logits_of = last

        def wanted(self, target, rows):
            return F.log_softmax(self.logits_of(self.last.flatten(0, 1)[rows]).clone(), dim=-1)

    weights, found = {"embed": target.embed}, []
    for _, batch in zip(range(steps), batches(dict(np.load(path)), SEED), strict=False):
        taps = dict.fromkeys(TAPS)
        target.hidden(batch, Cache(target, BATCH, LENGTH + 1), taps=taps)
        stack = torch.stack([taps[layer].clone().view(BATCH, LENGTH + 1, -1) for layer in TAPS])
        found.append(Own(batch, stack.clone(), weights, target.logits))
    return found


def tuned(kind, target, batches):
    """The committed head of this kind, trained on: the optimizers of tools/train_heads.py at a third of their rates."""
    from train_heads import LOSS, Muon, schedule

    weights, _ = read_tensors(WEIGHTS / f"head-{kind}.safetensors")
    w = {name: tensor.float().clone().requires_grad_() for name, tensor in weights.items()}
    shared = {"embed": target.embed, "final_norm": target.final_norm}
    muon = Muon([p for n, p in w.items() if p.ndim == 2 and n != "places"])
    adam = torch.optim.AdamW([p for n, p in w.items() if p.ndim == 1 or n == "places"] or [torch.zeros(1)], lr=7e-4)
    generator, log = torch.Generator().manual_seed(SEED), []
    for step, batch in enumerate(batches):
        loss = LOSS[kind](w, batch, shared, generator)
        loss.backward()
        factor = schedule(step, len(batches))
        muon.step(0.0033 * factor)
        adam.param_groups[0]["lr"] = 7e-4 * factor
        adam.step()
        for p in w.values():
            p.grad = None
        log.append(loss.item())
    print(kind, f"loss {np.mean(log[:10]):.3f} to {np.mean(log[-10:]):.3f}", flush=True)
    return {name: p.detach() for name, p in w.items()}


# --- files ---------------------------------------------------------------------------------------------------------


def stored(plan):
    """The result so far; {} if there is none or if it was measured by another plan."""
    done = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    return done if done.get("plan") == plan else {}


def keep(plan, **parts):
    """Put parts of the result into its file, beside what the other stages wrote for the same plan."""
    here = environment()
    facts = {name: part | {"environment": here} for name, part in parts.items()} | {"environment": here}
    data = stored(plan) | {"schema": "specgain.quantization/1", "claims": CLAIMS, "plan": plan} | facts
    RESULT.write_text(json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    print(f"wrote {', '.join(parts)}, {RESULT.stat().st_size / 1e3:.0f} kB, {datetime.now(UTC):%H:%M}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["plan", "run", "texts", "heads"])
    parser.add_argument("--only", choices=["tiny", "smollm2"], help="part of `run` to take again")
    parser.add_argument(
        "--tokens", type=Path, help="tokens.npz of tools/train_pair.py; without it no head is trained on"
    )
    parser.add_argument("--steps", type=int, help="training steps, instead of the planned number")
    parser.add_argument("--threads", type=int, default=2, help="of the stages without a clock")
    arguments = parser.parse_args()
    if arguments.only and arguments.stage != "run":
        parser.error(f"--only is a part of `run`, not of `{arguments.stage}`")
    if arguments.stage != "heads" and (arguments.tokens or arguments.steps is not None):
        parser.error(f"--tokens and --steps are for `heads`, not for `{arguments.stage}`")
    if arguments.tokens and not arguments.tokens.is_file():
        parser.error(
            f"--tokens {arguments.tokens} is no file; tools/train_pair.py makes tokens.npz in its --work folder"
        )
    torch.set_num_threads(arguments.threads)
    if arguments.stage == "plan":
        PLAN.write_text(json.dumps(make_plan(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return
    plan = json.loads(PLAN.read_text(encoding="utf-8"))
    if arguments.stage == "heads":
        heads(plan, arguments.tokens, arguments.steps)
    elif arguments.stage == "run":
        run(plan, arguments.only)
    else:
        texts(plan)


if __name__ == "__main__":
    sys.exit(main())
