"""Check and time the lab on a GPU: `make gpu-check OUT=folder SECONDS=420`, or `CPU=1` for the same on a CPU, in small.

Needs torch 2.4 or newer and NumPy; nothing is downloaded. Writes up to six JSON files into OUT, each whole at any time:

    summary.json      what ran, what did not, and how long it took
    ceilings.json     bytes and operations per second that the device reaches
    correctness.json  speculative against plain output, on this device, by type, γ and batch; sampling against exact chances
    prediction.json   the tiny pair: speedup from cost and acceptance of calibration prompts, held against test prompts
    cells.json        time of a round by γ, batch and context: the tiny pair, and random weights of real sizes
    int8.json         the same for int8 weights, if this version has them

A committed result lies in notebooks/measurements/<device>/gpu-<name>.json; `specgain.lab.gpu_results` reads it.
"""

import argparse
import gc
import json
import os
import sys
import traceback
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from math import erf, sqrt
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch

from specgain import acceptance, gain
from specgain.lab.device import (
    NoDevice,
    ceilings,
    device_defaults,
    device_environment,
    kv_numbers,
    need,
    pass_floor,
    round_floor,
    timed,
    weights_read,
)
from specgain.lab.gpu_results import SCHEMA
from specgain.lab.graphs import GraphLoop, batch_bucket
from specgain.lab.linear import Plain
from specgain.lab.loop import ModelDraft, generate
from specgain.lab.model import Cache, Config, Model, load, random_weights
from specgain.lab.pair import DOMAINS, WEIGHTS, load_pair
from specgain.lab.prediction import rounds_of
from specgain.lab.sampling import Sampling
from specgain.lab.shapes import shape_pair

# The first difference of a greedy text from the plain one must lie where the two tokens' logits are this close. Rounding
# moved a logit of the tiny target by at most 0.27 in bfloat16 and 0.03 in float16 (seen on CPU, against float32), and a
# difference of two logits by twice that; plain text changes just so from one batch size to another.
NEAR_TIE = {torch.float32: 2e-4, torch.float16: 0.1, torch.bfloat16: 0.7}
NEAR_TIE_INT8 = 0.3  # the least rounding before a product can move one activation of 8 bits by one
RESERVE = 40  # seconds that the cells leave to what comes after them
DIAL = 0.8  # conditional acceptance at every position of the scripted cells


@dataclass(frozen=True)
class Plan:
    """How much is done. A visit is (batch, context, gammas) of a pair; every visit times γ = 0 as well."""

    dtypes: tuple
    prompts: int  # per domain, in the correctness part
    new_tokens: int
    arms: tuple  # (γ, batch) of the correctness part
    sample_rows: int
    predict: tuple  # (domain, γ, batch) of the prediction part
    predict_prompts: int
    visits: dict  # {pair: visits}
    int8: tuple  # (pair, visits) of the int8 part
    room: int  # tokens that a row may commit before its cell begins again
    rounds: int  # at least, per cell
    seconds_per_cell: float
    megabytes: int
    width: int


MINI = (
    Config(96, 32, 4, 48, 2, 512, kv_heads=2, tied=False),
    Config(96, 16, 2, 24, 1, 512),
)
MAP = [  # (batch, context), the most telling ones first; 128 tokens more and the cache holds 2k, 8k and 32k
    (1, 1920), (16, 1920), (64, 1920), (1, 32640), (16, 8064), (4, 1920), (1, 256), (64, 256), (1, 8064), (64, 8064),
    (16, 256), (4, 8064), (16, 32640), (4, 32640), (4, 256), (64, 32640),
]  # fmt: skip


def full_plan(dtype):
    """Return the `Plan` for a GPU; `dtype` is its fast type."""
    domains = ("json", "prose")
    return Plan(
        dtypes=(torch.float32, dtype),
        prompts=4,
        new_tokens=64,
        arms=((0, 1), (4, 1), (8, 1), (0, 16), (1, 16), (4, 16), (8, 16)),
        sample_rows=16384,
        predict=tuple((d, g, b) for b in (1, 16) for d in domains for g in (4, 8)),
        predict_prompts=64,
        visits={
            "tiny": [(b, 256, (4, 8, 2, 1)) for b in (1, 16, 64, 4)],
            "0.5b-7b": [(*where, (4,)) for where in MAP] + [(*where, (8, 2, 1)) for where in MAP],
            "0.6b-4b": [(*where, (4, 8)) for where in MAP[:9]],
        },
        int8=("0.5b-7b", [(b, 1920, (4,)) for b in (1, 16, 64)]),
        room=128,
        rounds=12,
        seconds_per_cell=0.6,
        megabytes=4096,
        width=8192,
    )


def mini_plan(small=False):
    """Return the `Plan` that a CPU does in less than a minute; `small`: in a few seconds, for tests."""
    return Plan(
        dtypes=(torch.float32,) if small else (torch.float32, torch.bfloat16),
        prompts=1,
        new_tokens=8 if small else 16,
        arms=((0, 1), (4, 1), (2, 3)) if small else ((0, 1), (4, 1), (4, 4)),
        sample_rows=1024 if small else 4096,
        predict=(("json", 4, 1), ("prose", 4, 2)),
        predict_prompts=2 if small else 4,
        visits={"tiny": [(1, 64, (2,))], "mini": [(2, 64, (0, 4)), (4, 100, (1,)), (1, 10**9, (1,))]},
        int8=("mini", [(2, 64, (2,))]),
        room=24,
        rounds=2 if small else 6,
        seconds_per_cell=0.01 if small else 0.2,
        megabytes=8,
        width=64 if small else 256,
    )


class Budget:
    """The seconds that are left, and one line of progress at a time."""

    def __init__(self, seconds, quiet=False):
        self.begin, self.seconds, self.quiet = perf_counter(), seconds, quiet

    @property
    def spent(self):
        return perf_counter() - self.begin

    @property
    def left(self):
        return self.seconds - self.spent

    def say(self, text):
        if not self.quiet:
            print(f"[{self.spent:4.0f} s, {max(0, self.left):4.0f} s left] {text}", flush=True)


def write(path, data):
    """Write JSON so that the file is whole at any time."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(draft, path)


def tokens_of(pair, which, domain, count):
    return pair.prompts(which)[domain][:count].astype(np.int64).tolist()


# --- correctness ---------------------------------------------------------------------------------------------------


def check_correctness(plan, device, budget, save):
    """Fill {"checks": [...], "sampling": [...], "passed"}: see `NEAR_TIE`, and `check_sampling`."""
    result = {"near_tie_logit_gap": {name_of(d): gap for d, gap in NEAR_TIE.items()}, "checks": [], "sampling": []}
    for dtype in plan.dtypes:
        pair = load_pair(["strong", "weak"], dtype=dtype, device=device)
        prompts = [p for domain in DOMAINS for p in tokens_of(pair, "test", domain, plan.prompts)]
        plain = [o.tokens for o in generate(pair.target, prompts, plan.new_tokens).outputs]
        for draft in ("strong", "weak"):
            for gamma, batch in plan.arms:
                if gamma or draft == "strong":
                    result["checks"].append(compare(pair, prompts, plain, draft, gamma, batch, plan.new_tokens))
                    budget.say("correctness: {dtype} {draft} γ={gamma} B={batch}: {different} of {outputs} differ".format(
                        **result["checks"][-1]))  # fmt: skip
                    save(result)
    for sampling in (Sampling(1.0), Sampling(0.7, top_k=3), Sampling(1.3, top_p=0.8)):
        result["sampling"].append(check_sampling(sampling, device, plan.sample_rows))
        budget.say(
            "sampling: {temperature} {top_k} {top_p}: χ² {chi2:.0f} of {degrees}".format(**result["sampling"][-1])
        )
    result["passed"] = all(check["passed"] for check in result["checks"] + result["sampling"])
    save(result)
    return result


def compare(pair, prompts, plain, draft, gamma, batch, new_tokens, bound=None):
    """Return how many outputs of the static loop differ from `plain`, and how close the two logits lie where they part."""
    capacity = max(map(len, prompts)) + new_tokens
    loop = GraphLoop(pair.target, pair.drafts[draft], batch, capacity, gamma)
    texts = []
    for first in range(0, len(prompts), batch):
        texts += [o.tokens for o in loop.generate(prompts[first : first + batch], new_tokens, gamma).outputs]
    gaps = [gap_at(pair.target, p, a, b) for p, a, b in zip(prompts, plain, texts, strict=True) if a != b]
    bound = NEAR_TIE[pair.target.dtype] if bound is None else bound
    row = {"dtype": name_of(pair.target.dtype), "draft": draft, "gamma": gamma, "batch": batch, "outputs": len(texts)}
    row |= {"tokens": sum(map(len, texts)), "different": len(gaps), "worst_logit_gap": max(gaps, default=0.0)}
    return row | {"passed": all(gap <= bound for gap in gaps)}


def gap_at(target, prompt, plain, other):
    """Return how far apart the logits of the two tokens lie where two greedy texts part."""
    at = next(i for i, (a, b) in enumerate(zip(plain, other, strict=True)) if a != b)
    context = torch.tensor([prompt + plain[:at]], device=target.device)
    logits = target(context, Cache(target, 1, context.shape[1]))[0, -1].float()
    return float((logits[plain[at]] - logits[other[at]]).abs())


def check_sampling(sampling, device, rows, tokens=3, vocab=5):
    """Return χ² of `rows` sampled texts on a toy pair against the exact chances of every text; none that has chance 0."""
    config, generator = Config(vocab, 8, 2, 8, 1, context=16), torch.Generator().manual_seed(3)
    weights = {name: torch.randn(shape, generator=generator) for name, shape in config.shapes().items()}
    other = {name: w + 0.3 * torch.randn(w.shape, generator=generator) for name, w in weights.items()}
    target, draft = (Model(config, w, torch.float32, device=device) for w in (weights, other))
    loop = GraphLoop(target, draft, rows, 16, 4, sampling=sampling, seed=11)
    run = loop.generate([[1, 2]] * rows, tokens, 4)
    seen = np.zeros([vocab] * tokens)
    np.add.at(seen, tuple(np.array([o.tokens for o in run.outputs]).T), 1)
    texts = torch.cartesian_prod(*[torch.arange(vocab)] * tokens).to(device)
    fed = torch.cat((torch.tensor([[1, 2]], device=device).expand(len(texts), 2), texts[:, :-1]), dim=1)
    probs = sampling.probs(target(fed, Cache(target, len(fed)))[:, 1:].double())
    exact = probs.gather(2, texts[:, :, None])[:, :, 0].prod(1).view(seen.shape).cpu().numpy() * rows
    often = exact > 5
    chi2, degrees = float(((seen - exact)[often] ** 2 / exact[often]).sum()), int(often.sum())
    normal = ((chi2 / degrees) ** (1 / 3) - 1 + 2 / (9 * degrees)) / sqrt(2 / (9 * degrees))  # Wilson and Hilferty
    p_value = 0.5 * (1 - erf(normal / sqrt(2)))
    row = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "rows": rows}
    row |= {"chi2": chi2, "degrees": degrees, "p_value": p_value, "impossible": int(seen[exact == 0].sum())}
    return row | {"passed": p_value > 1e-5 and row["impossible"] == 0}


# --- prediction ----------------------------------------------------------------------------------------------------


def check_prediction(plan, device, dtype, budget, save):
    """Fill {"cells": [...], "summary"}: the tiny pair, predicted from calibration prompts and run on test prompts."""
    pair, cells, memory = load_pair(["strong"], dtype=dtype, device=device), [], {}
    for domain, gamma, batch in plan.predict:
        if budget.left <= 0:
            break
        if domain not in memory:
            memory[domain] = agreements(pair, domain, plan)
        cells.append(predict_cell(pair, domain, gamma, batch, memory[domain], plan))
        budget.say("prediction: {domain} γ={gamma} B={batch}: {speedup:.2f} predicted, {measured_speedup:.2f} measured".format(
            **cells[-1]))  # fmt: skip
        errors = [abs(cell["residual_percent"]) for cell in cells]
        summary = {"cells": len(cells), "residual_median_percent": float(np.median(errors)),
                   "residual_worst_percent": max(errors)}  # fmt: skip
        save({"dtype": name_of(dtype), "weights": pair.weights_hash, "cells": cells, "summary": summary})
    return {"cells": cells}


def agreements(pair, domain, plan):
    """Return one string per calibration prompt: "1" where the draft would choose the target's next token."""
    prompts, strings = tokens_of(pair, "calibration", domain, plan.predict_prompts), []
    loop, draft = GraphLoop(pair.target, None, 16, len(prompts[0]) + plan.new_tokens), pair.drafts["strong"].model
    for first in range(0, len(prompts), 16):
        group = prompts[first : first + 16]
        text = torch.tensor(
            [o.tokens for o in loop.generate(group, plan.new_tokens).outputs], device=pair.target.device
        )
        fed = torch.cat((torch.tensor(group, device=text.device), text[:, :-1]), dim=1)
        choices = draft(fed, Cache(draft, len(fed), fed.shape[1]))[:, len(group[0]) - 1 :].argmax(dim=-1)
        strings += ["".join("01"[hit] for hit in row) for row in (choices == text).tolist()]
    return strings


def predict_cell(pair, domain, gamma, batch, strings, plan):
    """Return one predicted and measured cell. A batch lasts as long as its slowest row, so rounds are maxima over rows."""
    loop = GraphLoop(pair.target, pair.drafts["strong"], batch, 64 + plan.new_tokens, gamma)

    def runs(which):
        prompts = tokens_of(pair, which, domain, plan.predict_prompts)
        groups = [prompts[i : i + batch] for i in range(0, len(prompts) - batch + 1, batch)]
        for g in (0, gamma, 0, gamma):  # graphs are captured here, not in the run
            loop.generate(groups[0], plan.new_tokens, g)
        return [[loop.generate(group, plan.new_tokens, g) for g in (0, gamma)] for group in groups]

    calibration, test = (
        [[(run.time, len(run.rounds)) for run in arms] for arms in runs(w)] for w in ("calibration", "test")
    )
    calibration, measured = np.array(calibration), np.array(test)  # (groups, plain or speculative, time or rounds)
    rounds = np.array([len(rounds_of(string, gamma)) for string in strings])
    predicted_rounds = np.random.default_rng(0).choice(rounds, (20_000, batch)).max(axis=1).mean()
    t_plain, t_round = calibration[:, :, 0].sum(0) / calibration[:, :, 1].sum(0)
    plain_rounds = plan.new_tokens  # γ = 0 commits one token a round in every row
    own_plain, own_round = measured[:, :, 0].sum(0) / measured[:, :, 1].sum(0)
    speedup = plain_rounds * t_plain / (predicted_rounds * t_round)
    times = measured[:, :, 0]
    actual = times[:, 0].sum() / times[:, 1].sum()
    spread = gain.bootstrap([times], lambda t: t[:, 0] / t[:, 1]) if len(times) > 1 else np.array([actual])
    own_rounds = measured[:, 1, 1].mean()
    return {
        "domain": domain, "gamma": gamma, "batch": batch, "groups": len(times),
        "t_decode_ms": t_plain * 1e3, "t_round_ms": t_round * 1e3,
        "predicted_rounds": float(predicted_rounds), "measured_rounds": float(own_rounds),
        "speedup": float(speedup), "measured_speedup": float(actual),
        "measured_interval": [float(v) for v in np.quantile(spread, [0.025, 0.975])],
        "residual_percent": float(100 * (speedup / actual - 1)),
        "cost_error_percent": float(100 * (plain_rounds * t_plain / (own_rounds * t_round) / actual - 1)),
        "acceptance_error_percent": float(100 * (plain_rounds * own_plain / (predicted_rounds * own_round) / actual - 1)),
    }  # fmt: skip


# --- cells ---------------------------------------------------------------------------------------------------------


def make_models(name, dtype, device, kernel=None):
    """Return (target, draft): the tiny pair, or random weights of these sizes, made where they are used."""
    if name == "tiny":
        pair = load_pair(["strong"], dtype=dtype, device=device)
        return pair.target, pair.drafts["strong"].model
    if name == "mini":
        return tuple(Model(c, random_weights(c, i, dtype=dtype), dtype, kernel, device) for i, c in enumerate(MINI))
    return shape_pair(name, device, dtype, kernel)


def time_cells(plan, device, dtype, ceiling, budget, save):
    """Fill {"pairs", "cells", "skipped"}: the time of a round by pair, γ, batch and context; acceptance is scripted."""
    result = {"dtype": name_of(dtype), "dial": DIAL, "passed": True, "pairs": {}, "cells": [], "skipped": []}
    for name, visits in plan.visits.items():
        if budget.left <= RESERVE:
            result["skipped"].append({"pair": name, "reason": "time"})
            continue
        try:
            target, draft = make_models(name, dtype, device)
        except ValueError as error:  # the weights alone are too large
            result["skipped"].append({"pair": name, "reason": str(error)})
            continue
        result["pairs"][name] = {
            role: describe(model.config, dtype) for role, model in (("target", target), ("draft", draft))
        }
        for count, (batch, context, gammas) in enumerate(visits, 1):
            where = {"pair": name, "batch": batch, "context": context}
            reason = "time" if budget.left <= RESERVE else why_not(target, draft, batch, context, max(gammas), plan)
            if reason is None:
                try:
                    visit(target, draft, where, gammas, plan, ceiling, result["cells"])
                except torch.cuda.OutOfMemoryError:
                    reason = "memory"
                except RuntimeError as error:  # of CUDA; the other visits may still work
                    reason, result["passed"] = f"error: {error}"[:300], False
            if reason:
                result["skipped"].append(where | {"gammas": list(gammas), "reason": reason})
            budget.say(
                f"cells: {name} B={batch} context={context} ({count} of {len(visits)}): {reason or told(result['cells'], where)}"
            )
            save(result)
            free(device)
        del target, draft
        free(device)
    save(result)
    return result


def describe(config, dtype):
    return asdict(config) | {"weight_bytes_read": weights_read(config) * dtype.itemsize,
                             "kv_bytes_per_token": kv_numbers(config) * dtype.itemsize}  # fmt: skip


def capacity_of(context, plan):
    """Return the positions of a cell's cache: whole blocks of 128."""
    return -(-(context + plan.room) // 128) * 128


def why_not(target, draft, batch, context, gamma, plan):
    """Return why a visit cannot be made, "context" or "memory"; None if it can."""
    positions = capacity_of(context, plan)
    if positions > min(target.config.context, draft.config.context):
        return "context"
    if target.device.type == "cuda":
        rows, size = batch_bucket(batch), target.dtype.itemsize
        cache = rows * positions * (kv_numbers(target.config) + kv_numbers(draft.config)) * size
        logits = rows * (gamma + 1) * target.config.vocab * (size + 4) * 2
        free_bytes, total = torch.cuda.mem_get_info()
        between = min(6e9, total / 8)  # workspaces, and what a pass holds on its way
        if cache + logits + between > free_bytes:
            return "memory"
    return None


def visit(target, draft, where, gammas, plan, ceiling, cells, weight_bytes=None):
    """Time γ = 0 and all `gammas` at one batch and context, and append the cells."""
    batch, context = where["batch"], where["context"]
    capacity = capacity_of(context, plan)
    loop = GraphLoop(target, draft, batch, capacity, max(gammas), dial=[DIAL] * max(gammas))
    loop.pretend(context, plan.room)
    plain = None
    for gamma in (0, *(g for g in gammas if g)):
        rounds, wall = time_rounds(loop, gamma, context, plan)
        cell = where | {"gamma": gamma, "span": capacity} | phases(rounds, wall)
        plain = cell["t_round_ms"] if plain is None else plain
        cell |= ledger(cell, plain, target, draft, ceiling, weight_bytes)
        cells.append(cell | {"attention": attention(loop, gamma)})
    if batch == 1 and target.device.type == "cuda":  # what the graphs are worth: the last γ again without them
        del loop  # its caches make room
        loop = GraphLoop(target, draft, batch, capacity, max(gammas), dial=[DIAL] * max(gammas), capture=False)
        loop.pretend(context, plan.room)
        cells[-1]["t_round_without_graphs_ms"] = phases(*time_rounds(loop, gamma, context, plan))["t_round_ms"]


def time_rounds(loop, gamma, context, plan, warm_up=3):
    """Return ([(committed, t_draft, t_verify, t_other)], wall seconds) of rounds at this context; see `Plan`."""
    rounds, wall, longest = [], 0.0, context
    end = loop.capacity - gamma  # one span for all rounds of a visit
    while len(rounds) < plan.rounds + warm_up or (wall < plan.seconds_per_cell and len(rounds) < 400):
        if longest == context or longest + 2 * (gamma + 1) > context + plan.room:
            with torch.inference_mode():
                loop.length.fill_(context)
            loop.clock.marks.clear()
            loop.clock.mark()
            longest = context
        begin = perf_counter()
        (_, _, committed, _), times = loop.round(gamma, end)
        wall += perf_counter() - begin if len(rounds) >= warm_up else 0.0
        rounds.append((float(np.mean(committed)), *times))
        longest += max(committed)
    return rounds[warm_up:], wall


def phases(rounds, wall):
    """Return the means of a cell in ms, the quartiles of the round, and what the host's clock says."""
    committed, *parts = np.array(rounds).T
    total = sum(parts) * 1e3
    low, median, high = np.quantile(total, [0.25, 0.5, 0.75])
    means = {
        f"t_{name}_ms": float(part.mean() * 1e3) for name, part in zip(("draft", "verify", "other"), parts, strict=True)
    }
    return {"rounds": len(rounds), "committed_length": float(committed.mean()), **means, "t_round_ms": float(total.mean()),
            "t_round_quartiles_ms": [float(low), float(median), float(high)], "wall_round_ms": wall / len(rounds) * 1e3}  # fmt: skip


def ledger(cell, t_decode_ms, target, draft, ceiling, weight_bytes=None):
    """Return the rest of a cell: speedup and break-even, share of overhead, and how far from the device's floor."""
    gamma, batch, context = cell["gamma"], cell["batch"], cell["context"]
    t_round, t_decode = cell["t_round_ms"], t_decode_ms
    how = target.dtype, ceiling, weight_bytes
    floor = round_floor(target.config, draft.config, batch, gamma, context, *how) * 1e3
    verify = pass_floor(target.config, batch, gamma + 1, context, *how) * 1e3
    expected = acceptance.committed_length_constant(DIAL, gamma)
    return {
        "t_decode_ms": t_decode,
        "speedup": cell["committed_length"] * t_decode / t_round,
        "speedup_expected": expected * t_decode / t_round,
        "break_even_length": gain.break_even_length(t_decode, t_round),
        "break_even_acceptance": gain.break_even_acceptance(gamma, t_decode, t_round) if gamma else None,
        "overhead_share": cell["t_other_ms"] / t_round,
        "floor_ms": floor,
        "times_floor": t_round / floor,
        "verify_times_floor": cell["t_verify_ms"] / verify,
    }


def attention(loop, gamma):
    chosen = loop.cache.mix.get(gamma + 1)
    return getattr(chosen, "__name__", "scaled_dot_product_attention") if chosen else "scaled_dot_product_attention"


def told(cells, where):
    last = [c for c in cells if all(c[k] == v for k, v in where.items())]
    return ", ".join(f"γ={c['gamma']} {c['t_round_ms']:.2f} ms" for c in last)


# --- int8 ----------------------------------------------------------------------------------------------------------


def check_int8(plan, device, dtype, ceiling, budget, save):
    """Fill {"rows_ms", "checks", "cells", "passed"}: int8 weights against `dtype`, product by product and round by round.

    `times_faster` of a cell: the round of the same pair in `dtype`, timed just before, over the round in int8.
    """
    from specgain.lab.quantize import Int8, exact_product

    result = {"dtype": name_of(dtype), "product": exact_product(device.type), "checks": [], "cells": []}
    weight = torch.randn(plan.width, plan.width, device=device).to(dtype)
    result["rows_ms"] = {
        name: {
            n: timed(partial(kernel, weight[:n]), device) * 1e3
            for n in (1, 2, 5, 9, 16, 64, 144, 576)
            if n <= plan.width
        }
        for name, kernel in ((name_of(dtype), Plain(weight)), ("int8", Int8(weight)))
    }
    where = {"kernel": Int8, "device": device}
    target = load(WEIGHTS / "target.safetensors", **where)
    draft = ModelDraft(load(WEIGHTS / "draft-strong.safetensors", embed=target.embed, **where))
    pair = replace(load_pair([], device=device), target=target, drafts={"strong": draft})
    prompts = [p for domain in DOMAINS for p in tokens_of(pair, "test", domain, plan.prompts)]
    plain = [o.tokens for o in generate(target, prompts, plan.new_tokens).outputs]
    for gamma, batch in plan.arms:
        result["checks"].append(compare(pair, prompts, plain, "strong", gamma, batch, plan.new_tokens, NEAR_TIE_INT8))
    result["passed"] = all(check["passed"] for check in result["checks"])
    budget.say(
        f"int8: {sum(check['different'] for check in result['checks'])} of {len(prompts) * len(plan.arms)} texts differ"
    )
    save(result)
    name, visits = plan.int8
    for kernel in (None, Int8):
        try:
            target, draft = make_models(name, dtype, device, kernel)
        except ValueError as error:  # the weights alone are too large
            save(result | {"skipped": str(error)})
            return result
        for batch, context, gammas in visits:
            weights, cells = "int8" if kernel else name_of(dtype), []
            where = {"pair": name, "weights": weights, "batch": batch, "context": context}
            if budget.left > 0 and why_not(target, draft, batch, context, max(gammas), plan) is None:
                visit(target, draft, where, gammas, plan, ceiling, cells, 1 if kernel else None)
                result["cells"] += [c | faster(c, result["cells"]) for c in cells]
                budget.say(f"int8: {weights} B={batch}: {told(cells, where)}")
                save(result)
        del target, draft
        free(device)
    return result


def faster(cell, before):
    """Return {"times_faster"} of a cell in int8, {} if its partner was not timed."""
    same = [
        c
        for c in before
        if cell["weights"] == "int8" != c["weights"] and all(c[k] == cell[k] for k in ("batch", "context", "gamma"))
    ]
    return {"times_faster": same[0]["t_round_ms"] / cell["t_round_ms"]} if same else {}


def free(device):
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


# --- the whole -----------------------------------------------------------------------------------------------------


def run(plan, device, dtype, out, budget):
    """Run all parts into the folder `out`; return the summary. A part that fails is named, and the others go on."""
    out.mkdir(parents=True, exist_ok=True)
    head = {"schema": SCHEMA, "reproduce": "make gpu-check", "environment": device_environment(device)}
    summary = {"parts": {}, "seconds": budget.seconds, "plan": "full" if device.type == "cuda" else "mini"}

    def saver(part):
        return lambda data: write(out / f"{part}.json", head | {"part": part} | data)

    ceiling = {}

    def measure_ceilings(save):
        ceiling.update(ceilings(device, sorted({*plan.dtypes, dtype}, key=str), plan.megabytes, plan.width))
        budget.say(f"ceilings: {ceiling['read_bytes_per_s'] / 1e9:.0f} GB/s read")
        save(dict(ceiling))

    parts = {
        "ceilings": measure_ceilings,
        "correctness": lambda save: check_correctness(plan, device, budget, save),
        "prediction": lambda save: check_prediction(plan, device, dtype, budget, save),
        "cells": lambda save: time_cells(plan, device, dtype, ceiling, budget, save),
        "int8": lambda save: check_int8(plan, device, dtype, ceiling, budget, save),
    }
    if find_spec("specgain.lab.quantize") is None:
        del parts["int8"]
    for part, body in parts.items():
        begin = perf_counter()
        try:
            passed = (body(saver(part)) or {}).get("passed", True)
            summary["parts"][part] = {
                "status": "done" if passed else "failed",
                "seconds": round(perf_counter() - begin, 1),
            }
        except Exception as error:  # one part must not take the others with it
            traceback.print_exc()
            summary["parts"][part] = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
        saver("summary")(summary)
        free(device)  # may fail too, after an error of CUDA
    return summary


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="gpu_check", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("_build/gpu-check"), help="folder for the JSON files")
    parser.add_argument("--seconds", type=float, default=420.0, help="time after which nothing new begins")
    parser.add_argument("--cpu", action="store_true", help="the same on the CPU, in small")
    chosen = parser.parse_args(arguments)
    try:
        device = need("cpu" if chosen.cpu else "cuda")
    except NoDevice as error:
        print(f"{error}. Use CPU=1 for the same checks on the CPU, in small.", file=sys.stderr)
        return 2
    dtype = torch.float32 if chosen.cpu else device_defaults().dtype
    if chosen.cpu:
        torch.set_num_threads(1)  # threads that wait for each other make small products slower
    else:
        gc.freeze()  # older versions of PyTorch collect garbage before every capture; what is imported is none
    budget = Budget(chosen.seconds)
    summary = run(mini_plan() if chosen.cpu else full_plan(dtype), device, dtype, chosen.out, budget)
    for part, row in summary["parts"].items():
        budget.say(f"{part}: {row['status']} {row.get('error', '')}")
    return int(any(row["status"] != "done" for row in summary["parts"].values()))


if __name__ == "__main__":
    sys.exit(main())
