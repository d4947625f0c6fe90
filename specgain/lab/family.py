"""The family portrait: every way of drafting on one target and the same prompts, each predicted before it is judged.

Cost and acceptance come from the calibration prompts, in the running loop; the test prompts judge. Calibration and test
take turns prompt by prompt, all methods in turn inside.
"""

from dataclasses import replace

from specgain import acceptance
from specgain.lab.drafts import Bigram
from specgain.lab.measure import environment, request_totals, run_rounds
from specgain.lab.pair import load_pair
from specgain.lab.prediction import Cost, Setting, predict, summary
from specgain.lab.recorded import recorded
from specgain.lab.trees import TreeDraft
from specgain.tree import best_tree

METHODS = ("weak", "strong", "eagle", "eagle3", "multi", "block", "bigram", "lookup", "suffix", "tree")
TREE_DRAFT, TREE_DEPTH, RANKS = "weak", 4, 6  # whose candidates the tree holds, its levels, children it may have
SCHEMA = "specgain.family/1"
# (requests in a pass, temperature, kinds of text, lengths, prompts of each set): greedy where the text does not loop
PARTS = (
    (1, 0.0, ("json", "viet", "func"), (2, 4, 8), 8),
    (1, 1.0, ("prose", "stdlib"), (4,), 10),
    (16, 0.0, ("json", "viet"), (4,), 32),
)


def family(methods=METHODS, parts=PARTS, new_tokens=64, blocks=4, progress=None, folder=None):
    """Return the portrait, JSON-ready: `cells` per (part, text, method, γ) and `memory` per method.

    A cell holds prediction, measurement and residual (see `predict`), conditional acceptance, and the mean times of the
    phases of a round, T_draft, T_verify and T_other, in ms.
    """
    names = [m for m in methods if m != "tree"]
    pair = load_pair(names) if folder is None else load_pair(names, folder)
    cells, totals, different = [], [], []
    for rows, temperature, domains, gammas, prompts in parts:
        if "tree" in methods:
            pair.drafts["tree"] = tree_draft(pair, domains, max(gammas))
        context = pair.prompts("test")[domains[0]].shape[1]
        setting, logs = Setting(rows, temperature, context), {"calibration": None, "test": None}
        for block in range(1, blocks + 1):
            for which in list(logs) if block % 2 else list(logs)[::-1]:
                logs[which] = run_rounds(pair, which, prompts * block // blocks, (0, *gammas), list(methods), domains,
                                         new_tokens=new_tokens, log=logs[which], progress=progress,
                                         setting=setting)  # fmt: skip
        for method in methods:
            for domain in domains:
                cells += [
                    setting.to_json() | cell | _rounds(logs["test"], domain, method, cell["gamma"])
                    for cell in held(logs, domain, method, gammas)
                ]
        totals.append(setting.to_json() | {"requests": request_totals(logs["test"])})
        different += [d for log in logs.values() for d in log.setup["different_output"]]
    return {"schema": SCHEMA, "environment": environment(pair), "methods": list(methods), "new_tokens": new_tokens,
            "cells": cells, "summary": summary(cells), "memory": {m: memory(pair.drafts[m]) for m in methods},
            "different_output": different, "totals": totals}  # fmt: skip


def held(logs, domain, method, gammas):
    """Return the cells of one method and text: predicted from the calibration log, held against the test log."""
    calibration, test = (log.select(domain=domain) for log in (logs["calibration"], logs["test"]))
    cells = []
    for gamma in gammas:
        own = calibration.select(arm=method, gamma=gamma)
        if not own.requests:
            continue  # a tree has one size
        cost = Cost.from_log(replace(own, requests=calibration.select(arm="plain").requests + own.requests))
        agreement = [_string(request) for request in own.requests]
        record = {"domains": {domain: {"agreement": {method: agreement}}}}
        cells += predict(cost, record, (gamma,), test)
    return cells


def _string(request):
    """The agreement string that has the rounds of this request at its own γ; see `rounds_of`."""
    return "".join("1" * (tokens - 1) + "0" for tokens in request.committed)


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
