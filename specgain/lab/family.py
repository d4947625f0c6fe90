"""The family portrait: every way of drafting on one target and the same prompts, each predicted before it is judged.

Cost and acceptance come from calibration prompts, the test prompts judge. Cost is timed in the running loop, on few
prompts, and the two sides take turns. Acceptance needs no clock: for single requests it comes from more prompts, decoded
many at a time on all cores, since the rounds of a request do not depend on who shares its passes.

`PARTS` to `JUDGES` are the plan of the committed measurement. Two earlier portraits had one number of prompts for all, and
so spent most of their time where requests are alike: some drafts need the same number of rounds on every text, others lose
the thread of one and not of the next. Now the calibration prompts say how many prompts an arm takes, on either side: as
many as a relative standard error of its mean asks for. Since the outcome was known, other prompts judge: `JUDGES`, which
had judged no portrait when this plan was committed. It kept to five minutes and missed the aim with three methods; so the
portrait that is held against the aim is `longer`, on longer prompts, and its texts had judged none.
"""

import math
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter

import numpy as np
import torch

from specgain import acceptance
from specgain.lab.drafts import Bigram, Suffix
from specgain.lab.loop import in_turns, private
from specgain.lab.measure import (
    GOLDEN,
    Side,
    chain_or_tree,
    continuations,
    environment,
    prompt_tokens,
    request_totals,
    run_together,
    speculative_arms,
)
from specgain.lab.pair import load_pair
from specgain.lab.prediction import Cost, Setting, predict, rows_of, summary
from specgain.lab.recorded import recorded
from specgain.lab.replay import replay
from specgain.lab.sampling import Sampling
from specgain.lab.trees import TreeDraft
from specgain.records.roundlog import RequestLog
from specgain.tree import best_tree

METHODS = ("weak", "strong", "eagle", "eagle3", "multi", "block", "bigram", "lookup", "suffix", "tree")
TABLES = ("bigram", "lookup", "suffix")  # without weights: their rounds can be replayed over a text
# whose chains cost the target the same to verify, by what lies in the caches then: weights of a draft, or those of plain
# decoding, which has a product of its own and takes turns with verification where nothing was found
ALIKE = (("weak", "strong", "eagle", "eagle3", "multi", "block"), ("lookup", "suffix"))
TREE_DRAFT, TREE_DEPTH, RANKS = "weak", 4, 6  # whose candidates the tree holds, its levels, children it may have
TOGETHER = 64  # requests decoded together where nothing is timed
SCHEMA = "specgain.family/1"
# (requests in a pass, temperature, kinds of text, lengths, prompts of each kind: for cost, for more plain decoding, since
# every prediction rests on that step, and to judge an arm at least): greedy where the text does not loop
PARTS = (
    (1, 0.0, ("json",), (2, 4, 8), (4, 14, 12)),
    (1, 0.0, ("viet", "func"), (4,), (4, 14, 12)),
    (1, 1.0, ("prose", "stdlib"), (4,), (4, 14, 12)),
    (16, 0.0, ("json", "viet"), (4,), (32, 0, 32)),
)
NEW_TOKENS = 32
ERRORS = (0.025, 0.04)  # relative standard error of the mean that acceptance and test prompts of an arm are to have
JUDGES = (*range(32, 64), *range(96, 128))  # the numbers of the test prompts


def longer(times, parts=PARTS, errors=ERRORS):
    """Return {parts, errors} of a portrait that takes so many `times` the prompts."""
    parts = [(*part, tuple(times * count for count in counts)) for *part, counts in parts]
    return {"parts": parts, "errors": [error / times**0.5 for error in errors]}


def family(methods=METHODS, parts=PARTS, new_tokens=NEW_TOKENS, folder=None, progress=None, judges=JUDGES, errors=ERRORS,
           context=0):  # fmt: skip
    """Return the portrait, JSON-ready: `cells` per (part, text, method, γ), `memory` per method, `seconds` it took.

    A cell holds prediction, measurement and residual (see `predict`), conditional acceptance, and the mean times of the
    phases of a round, T_draft, T_verify and T_other, in ms. `judges` are the numbers of the test prompts, each of `context`
    tokens: 0 as they are, above that several in a row.
    Without `errors` all arms take the prompts that `parts` name, and acceptance comes from those for cost.
    `progress(done, total, text)` reports.
    """
    names, begin = [m for m in methods if m != "tree"], perf_counter()
    pair = load_pair(names) if folder is None else load_pair(names, folder)
    cells, totals, different, rounds = [], [], [], {}
    for rows, temperature, domains, gammas, (few, plain, least) in parts:
        if "tree" in methods:
            pair.drafts["tree"] = tree_draft(pair, domains, max(gammas))
        setting = Setting(rows, temperature, context or pair.prompts("test")[domains[0]].shape[1])
        shape = {"drafts": list(methods), "domains": domains, "new_tokens": new_tokens}
        known, takes = rounds.setdefault(temperature, {}), least
        if rows == 1 and errors:
            known |= untimed_rounds(pair, errors[0], setting, gammas, **shape)
            wanted = {arm: max(least, enough(found, errors[1])) for arm, found in known.items() if arm[0] in domains}
            takes = {arm: min(count, len(judges)) for arm, count in wanted.items()}
        else:  # in company the rounds are those of one request, but for a draft that learns from it and for another tree
            known = {arm: found for arm, found in known.items() if arm[1] not in ("suffix", "tree")}
        logs = both_sides(pair, few, plain, takes, judges, setting, progress, gammas=(0, *gammas), **shape)
        for method in methods:
            for domain in domains:
                cells += [
                    setting.to_json() | cell | _rounds(logs["test"], domain, method, cell["gamma"])
                    for cell in held(logs, domain, method, gammas, known)
                ]
        totals.append(setting.to_json() | {"requests": request_totals(logs["test"])})
        different += [d for log in logs.values() for d in log.setup["different_output"]]
    return {"schema": SCHEMA, "environment": environment(pair), "methods": list(methods), "new_tokens": new_tokens,
            "context": setting.context, "standard_errors": list(errors or ()), "cost_prompts": [few for *_, (few, _, _) in parts],
            "test_prompts": list(judges), "cells": cells, "summary": summary(cells), "by_method": by_method(cells),
            "memory": {m: memory(pair.drafts[m]) for m in methods}, "different_output": different, "totals": totals,
            "seconds": round(perf_counter() - begin, 1)}  # fmt: skip


def both_sides(pair, few, plain, takes, judges, setting, progress=None, **shape):
    """Return {"calibration": `RoundLog`, "test": `RoundLog`}, timed side by side: `few` prompts of each text for cost, and
    of the test prompts `judges` as many as an arm (text, draft, γ) `takes`, or all arms if that is one number.

    All arms of both sides and of all texts take turns: a calibration prompt of each text with its share of the test
    prompts, or whole batches. So do `plain` calibration prompts that are decoded plainly only.
    """
    differ, own = isinstance(takes, dict), {"log": None, "setting": setting}
    counts = {"calibration": few, "test": max(takes.values()) if differ else takes}
    sides = {which: Side(pair, which, count, **own, **shape) for which, count in counts.items()}
    if plain:
        counts["plain"] = plain
        sides["plain"] = Side(pair, "calibration", plain, **own, **shape | {"drafts": []})
    sides["test"].tokens = {domain: tokens[list(judges)] for domain, tokens in sides["test"].tokens.items()}
    sides["test"].warm_up()
    steps = few if setting.rows == 1 else 1
    for step in range(1, steps + 1):
        jobs = [job for which, side in sides.items() for job in side.jobs(counts[which] * step // steps)]
        jobs = [_taken(job, takes) if differ and job.side is sides["test"] else job for job in jobs]
        run_together([job for job in jobs if job.group])
        if progress:
            progress(step, steps, f"{setting.rows} in a pass, {', '.join(shape['domains'])}")
    logs = {which: side.log for which, side in sides.items()}
    logs["calibration"].requests += logs.pop("plain").requests if plain else []
    return logs


def _taken(job, takes):
    """The job with those arms that take its prompt, plain decoding too; empty if there are none.

    The prompts of an arm are spread evenly over all, and those of an arm that takes fewer are among them.
    """
    spread = [i * GOLDEN % 1 for i in range(job.side.prompts)]
    place = sum(other < spread[i] for i in job.group for other in spread)
    arms = [(arm, g) for arm, g in job.arms if not g or place < takes[job.domain, arm, g]]
    return job._replace(arms=arms, group=job.group if len(arms) > 1 else [])


def enough(requests, error):
    """Return how many requests give a mean number of rounds with this relative standard error, if they vary as these do."""
    counts = np.array([request.rounds for request in requests])
    if len(counts) < 2:
        return 2  # one alone says nothing about how they vary
    return math.ceil((counts.std(ddof=1) / counts.mean() / error) ** 2)


def untimed_rounds(pair, error, setting, gammas, drafts, domains, new_tokens):
    """Return {(domain, draft, γ): [`RequestLog` of each calibration prompt]}, for its rounds: its times mean nothing.

    Every arm takes `TOGETHER` prompts at a time until there are `enough` for this `error`, or no more. Drafts that only
    read the text are replayed over what the target says. A draft with a memory begins each text cold, as it does where one
    request is measured at a time.
    """
    prompts = {domain: prompt_tokens(pair, "calibration", domain, setting.context) for domain in domains}
    arms = [(domain, *arm) for domain in domains for arm in speculative_arms(pair, drafts, gammas)]
    sampling = Sampling(setting.temperature)

    def text(domain):
        tokens, seed = torch.from_numpy(prompts[domain].astype(np.int64)), zlib.crc32(f"acceptance/{domain}".encode())
        return continuations(pair.target, tokens, new_tokens, sampling, seed, TOGETHER).tolist()

    def rounds(arm):
        (domain, draft, gamma), found = arm, []
        while not found or len(found) < min(enough(found, error), len(prompts[domain])):
            some = slice(len(found), len(found) + TOGETHER)
            own, given = _cold(pair.drafts[draft]), prompts[domain][some].tolist()
            if draft in TABLES:
                found += [_replayed(own, gamma, *one) for one in zip(given, texts[domain][some], strict=True)]
            else:
                loop = chain_or_tree(pair.target, given, new_tokens, own, gamma, sampling=sampling,
                                     seed=zlib.crc32(f"acceptance/{arm}/{len(found)}".encode()))  # fmt: skip
                found += [output.log for output in in_turns([loop])[0].outputs]
        return found

    with ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        texts = dict(zip(domains, pool.map(text, domains), strict=True)) if {*TABLES} & {*drafts} else {}
        return dict(zip(arms, pool.map(rounds, arms), strict=True))


def _replayed(draft, gamma, prompt, text):
    """The `RequestLog` of a draft on the way to this text, with no times."""
    drafted, accepted = (list(column) for column in zip(*replay(private(draft), prompt, text, gamma), strict=True))
    times = {f"t_{part}": [0.0] * len(drafted) for part in ("draft", "verify", "other")}
    return RequestLog(id="", arm="", gamma=gamma, drafted=drafted, accepted=accepted,
                      committed=[k + 1 for k in accepted], **times)  # fmt: skip


def _cold(draft):
    """A suffix draft that learns from each text alone; any other draft as it is."""
    return Suffix(draft.vocab, draft.longest, draft.least, shared=False) if isinstance(draft, Suffix) else draft


def held(logs, domain, method, gammas, rounds=None):
    """Return the cells of one method and text: predicted from calibration prompts, held against the test log.

    Alone, a method is priced on all texts, and verification together with the methods that are `ALIKE`; in a batch draft
    and text decide how wide the pass is. Acceptance comes from `rounds` (see `untimed_rounds`); an arm that they lack has
    that of the timed prompts.
    """
    calibration, test, alike = logs["calibration"], logs["test"].select(domain=domain), (method,)
    if rows_of(calibration) > 1:
        calibration = calibration.select(domain=domain)
    else:
        alike = next((group for group in ALIKE if method in group), alike)
    own = [request for request in calibration.requests if request.arm in ("plain", *alike)]
    cost, cells = Cost.by_width(replace(calibration, requests=own), method), []
    for gamma in gammas:
        timed = calibration.select(domain=domain, arm=method, gamma=gamma).requests
        if entries := (rounds or {}).get((domain, method, gamma), timed):  # a tree has one size
            record = {"domains": {domain: {"agreement": {method: entries}}}}
            found = predict(cost, record, (gamma,), test, cost_of=Cost.by_width)
            cells += [cell | {"calibration_requests": len(entries)} for cell in found]
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
