"""The family portrait: every way of drafting on one target and the same prompts, each predicted before it is judged.

Cost and acceptance come from calibration prompts, the test prompts judge. Cost is timed in the running loop, on few
prompts, and the two sides take turns. Acceptance needs no clock: for single requests it comes from more prompts, decoded
sixteen at a time on all cores, since the rounds of a request do not depend on who shares its passes.

`PARTS`, `NEW_TOKENS` and `FIRST` are the plan of the committed measurement. An earlier one took 8, 6 and 32 test prompts
of a text, the first of the set, and four methods missed the aim: heads that lose the thread of a text differ most from
prompt to prompt, and its plain steps ran in blocks, in few moments. So there are more and shorter requests now, most on
the texts where prompts differ most by the calibration prompts, and turns are scattered. Since the outcome was known, other
prompts judge: those from number `FIRST` on, which no portrait had used when this plan was committed.
"""

import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter

import numpy as np
import torch

from specgain import acceptance
from specgain.lab.drafts import Bigram, Suffix
from specgain.lab.loop import in_turns
from specgain.lab.measure import (
    Side,
    chain_or_tree,
    environment,
    prompt_tokens,
    request_totals,
    run_together,
    speculative_arms,
)
from specgain.lab.pair import load_pair
from specgain.lab.prediction import Cost, Setting, predict, rows_of, summary
from specgain.lab.recorded import recorded
from specgain.lab.sampling import Sampling
from specgain.lab.trees import TreeDraft
from specgain.tree import best_tree

METHODS = ("weak", "strong", "eagle", "eagle3", "multi", "block", "bigram", "lookup", "suffix", "tree")
TREE_DRAFT, TREE_DEPTH, RANKS = "weak", 4, 6  # whose candidates the tree holds, its levels, children it may have
TOGETHER = 16  # requests decoded together where nothing is timed
SCHEMA = "specgain.family/1"
# (requests in a pass, temperature, kinds of text, lengths, prompts of each kind for cost, acceptance and test): greedy
# where the text does not loop. With 0 prompts for acceptance it comes from the rounds of the cost.
PARTS = (
    (1, 0.0, ("json",), (2, 4, 8), (4, 32, 24)),
    (1, 0.0, ("viet", "func"), (4,), (4, 48, 24)),
    (1, 1.0, ("prose", "stdlib"), (4,), (4, 32, 8)),
    (16, 0.0, ("json", "viet"), (4,), (32, 0, 32)),
)
NEW_TOKENS = 32
FIRST = 64  # the number of the first test prompt


def family(methods=METHODS, parts=PARTS, new_tokens=NEW_TOKENS, folder=None, progress=None, first=0):
    """Return the portrait, JSON-ready: `cells` per (part, text, method, γ), `memory` per method, `seconds` it took.

    A cell holds prediction, measurement and residual (see `predict`), conditional acceptance, and the mean times of the
    phases of a round, T_draft, T_verify and T_other, in ms. `first` is the number of the first test prompt.
    `progress(done, total, text)` reports.
    """
    names, begin = [m for m in methods if m != "tree"], perf_counter()
    pair = load_pair(names) if folder is None else load_pair(names, folder)
    cells, totals, different = [], [], []
    for rows, temperature, domains, gammas, prompts in parts:
        if "tree" in methods:
            pair.drafts["tree"] = tree_draft(pair, domains, max(gammas))
        context = pair.prompts("test")[domains[0]].shape[1]
        setting, (few, many, judges) = Setting(rows, temperature, context), prompts
        shape = {"drafts": list(methods), "domains": domains, "new_tokens": new_tokens}
        rounds = untimed_rounds(pair, many, setting, gammas, **shape) if many else None
        counts = {"calibration": few, "test": judges}
        logs = both_sides(pair, counts, setting, progress, first, gammas=(0, *gammas), **shape)
        for method in methods:
            for domain in domains:
                cells += [
                    setting.to_json() | cell | _rounds(logs["test"], domain, method, cell["gamma"])
                    for cell in held(logs, domain, method, gammas, rounds)
                ]
        totals.append(setting.to_json() | {"requests": request_totals(logs["test"])})
        different += [d for log in logs.values() for d in log.setup["different_output"]]
    return {"schema": SCHEMA, "environment": environment(pair), "methods": list(methods), "new_tokens": new_tokens,
            "prompts": [dict(zip(("cost", "acceptance", "test"), part[-1], strict=True)) for part in parts],
            "first_test_prompt": first, "cells": cells, "summary": summary(cells), "by_method": by_method(cells),
            "memory": {m: memory(pair.drafts[m]) for m in methods}, "different_output": different, "totals": totals,
            "seconds": round(perf_counter() - begin, 1)}  # fmt: skip


def both_sides(pair, prompts, setting, progress=None, first=0, **shape):
    """Return {"calibration": `RoundLog`, "test": `RoundLog`} of so many `prompts` {which: per text}, timed side by side.

    All arms of both sides and of all texts take turns: a calibration prompt of each text with its share of the test
    prompts, which begin at number `first`, or whole batches. Single requests are also decoded plainly for calibration, as
    many as for the test: every prediction rests on that step.
    """
    sides = {which: Side(pair, which, count, log=None, setting=setting, **shape) for which, count in prompts.items()}
    if setting.rows == 1:
        prompts = prompts | {"plain": prompts["test"]}
        sides["plain"] = Side(pair, "calibration", prompts["test"], log=None, setting=setting, **shape | {"drafts": []})
    sides["test"].tokens = {d: later(t, first, prompts["test"]) for d, t in sides["test"].tokens.items()}
    sides["test"].warm_up()
    steps = 1 if setting.rows > 1 else prompts["calibration"]
    for step in range(1, steps + 1):
        jobs = [job for which, side in sides.items() for job in side.jobs(prompts[which] * step // steps)]
        run_together([job for job in jobs if job.group], scattered=True)
        if progress:
            progress(step, steps, f"{setting.rows} in a pass, {', '.join(shape['domains'])}")
    logs = {which: side.log for which, side in sides.items()}
    logs["calibration"].requests += logs.pop("plain").requests if "plain" in logs else []
    return logs


def later(prompts, first, count):
    """Return the prompts (n, tokens) from number `first` on, those before it behind; ValueError if `count` do not follow."""
    most = len(prompts) - count
    if not 0 <= first <= most:
        raise ValueError(f"first = {first} must be from 0 to {most}, so that {count} of {len(prompts)} prompts follow")
    return np.roll(prompts, -first, axis=0)


def untimed_rounds(pair, prompts, setting, gammas, drafts, domains, new_tokens):
    """Return {(domain, draft, γ): [`RequestLog` of each calibration prompt]}, for its rounds: its times mean nothing.

    A draft with a memory begins each text cold, as it does where one request is measured at a time.
    """
    texts = {d: prompt_tokens(pair, "calibration", d, setting.context)[:prompts].tolist() for d in domains}
    arms = [(domain, *arm) for domain in domains for arm in speculative_arms(pair, drafts, gammas)]

    def rounds(arm):
        domain, draft, gamma = arm
        loop = chain_or_tree(pair.target, texts[domain], new_tokens, _cold(pair.drafts[draft]), gamma, rows=TOGETHER,
                             sampling=Sampling(setting.temperature), seed=zlib.crc32(f"acceptance/{arm}".encode()))  # fmt: skip
        return [output.log for output in in_turns([loop])[0].outputs]

    with ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return dict(zip(arms, pool.map(rounds, arms), strict=True))


def _cold(draft):
    """A suffix draft that learns from each text alone; any other draft as it is."""
    return Suffix(draft.vocab, draft.longest, draft.least, shared=False) if isinstance(draft, Suffix) else draft


def held(logs, domain, method, gammas, rounds=None):
    """Return the cells of one method and text: predicted from calibration prompts, held against the test log.

    A pass of one request costs the same for every text, and verifying a chain about the same for every draft, so all give
    its cost; in a batch draft and text decide how wide the pass is. `rounds` are those of `untimed_rounds`; without them
    acceptance comes from the timed prompts.
    """
    calibration, test = logs["calibration"], logs["test"].select(domain=domain)
    if rounds is None:
        calibration = calibration.select(domain=domain)
        rounds = {(domain, method, g): calibration.select(arm=method, gamma=g).requests for g in gammas}
    chains = rows_of(calibration) == 1 and method != "tree"
    own = [r for r in calibration.requests if r.arm in ("plain", method) or (chains and r.arm != "tree")]
    cost, cells = Cost.by_width(replace(calibration, requests=own), method), []
    for gamma in gammas:
        if entries := rounds.get((domain, method, gamma)):  # a tree has one size
            record = {"domains": {domain: {"agreement": {method: entries}}}}
            cells += predict(cost, record, (gamma,), test, cost_of=Cost.by_width)
    return cells


def by_method(cells):
    """Return {method: `summary` of its cells}."""
    return {m: summary([c for c in cells if c["draft"] == m]) for m in dict.fromkeys(c["draft"] for c in cells)}


def tree_draft(pair, domains, nodes):
    """Return the `TreeDraft` with the best tree for these texts, from the recorded ranks of the draft's choices."""
    ranks = [rank for prompt in recorded(TREE_DRAFT, domains).values() for rank in prompt.ranks]
    chances = [ranks.count(k) / len(ranks) for k in range(RANKS)]
    return TreeDraft(pair.drafts[TREE_DRAFT].model, best_tree(chances, nodes, TREE_DEPTH))


def _rounds(log, domain, method, gamma):
    requests = log.select(domain=domain, arm=method, gamma=gamma).requests
    columns = {name: [v for r in requests for v in getattr(r, name)] for name in ("accepted", "drafted", "cut")}
    found = acceptance.estimate(**columns)
    phases = {part: [t for r in requests for t in getattr(r, f"t_{part}")] for part in ("draft", "verify", "other")}
    return {
        "conditional": [round(a.value, 4) if a.value == a.value else None for a in found.conditional],
        "drafted_per_round": sum(columns["drafted"]) / len(columns["drafted"]),
        **{f"t_{part}_ms": 1e3 * sum(times) / len(times) for part, times in phases.items()},
    }


def memory(draft):
    """Return {weights_bytes, kv_bytes_per_token} of a draft beyond what it shares with the target."""
    model = getattr(draft, "model", None)
    if model is None:
        table = 2 * draft.vocab if isinstance(draft, Bigram) else 0  # one successor of two bytes per token
        return {"weights_bytes": table, "kv_bytes_per_token": 0}
    c = model.config
    own = sum(x.weight.nbytes for layer in model.layers for x in layer if hasattr(x, "weight"))
    own += sum(w.nbytes for w in getattr(draft, "extra", {}).values())
    item = model.embed.element_size()
    return {"weights_bytes": own, "kv_bytes_per_token": 2 * c.layers * c.kv_heads * c.head_width * item}
