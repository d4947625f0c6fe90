"""What a draft would propose everywhere along the target's text: ranks for trees, confidences for lengths; no timing.

From such a record every static tree and every rule that stops a draft can be replayed exactly, since a round's
candidates depend on the text before it and on nothing else.  `python -m specgain.lab.drafted FILE` writes it.
"""

import json
import sys

import numpy as np
import torch

from specgain.lab.measure import continuations, environment
from specgain.lab.model import Cache
from specgain.lab.pair import DOMAINS, load_pair
from specgain.lab.sampling import GREEDY

SCHEMA = "specgain.drafted/1"
REPRODUCE = "python -m specgain.lab.drafted notebooks/measurements/cpu-2core/drafted.json"
LONGEST = 8  # candidates written at each position


@torch.inference_mode()
def record_drafts(pair, prompts=64, sure=24, domains=DOMAINS, new_tokens=64, longest=LONGEST, prompt_set="calibration"):
    """Return a JSON-ready dict: per domain, draft and prompt a dict about the target's greedy text.

    `ranks`: one digit per token, the place of the target's token among the draft's choices ("0": its first choice, "9":
    tenth or later), given the target's text so far.  `confidence`, for the first `sure` prompts: for each position
    `longest` numbers of two digits, the draft's probability of its own first choice in percent, as it writes on from
    the target's text by itself.
    """
    tokens, entries = pair.prompts(prompt_set), {}
    for domain in domains:
        context = [torch.from_numpy(row.astype(np.int64)) for row in tokens[domain][:prompts]]
        texts = [continuations(pair.target, row[None], new_tokens, GREEDY)[0] for row in context]
        entries[domain] = {
            name: [
                _along(draft.model, prompt, text, longest if i < sure else 1)
                for i, (prompt, text) in enumerate(zip(context, texts, strict=True))
            ]
            for name, draft in pair.drafts.items()
        }
    setup = {"prompt_set": prompt_set, "prompts": prompts, "sure": sure, "new_tokens": new_tokens, "longest": longest}
    return {"schema": SCHEMA, "claims": ["C3.2", "C3.4"], "reproduce": REPRODUCE, "environment": environment(pair), "setup": setup,
            "domains": entries}  # fmt: skip


def _along(draft, prompt, text, longest):
    """Return {ranks, confidence} of one prompt; for `longest` 1 the ranks alone."""
    n, start, rows = len(text), len(prompt), len(text) if longest > 1 else 1
    fed = torch.cat((prompt, text))[None, :-1].expand(rows, -1)
    cache = Cache(draft, rows, start + n + longest)
    logits = draft(fed, cache)[0, start - 1 :]
    places = (logits > logits.gather(1, text[:, None])).sum(dim=1).clamp(max=9)
    ranks = "".join(map(str, places.tolist()))
    if longest == 1:
        return {"ranks": ranks}
    cache.length = [start + t for t in range(n)]  # row t has the target's first t tokens; forget what lies ahead
    percents = []
    for step in range(longest):
        percents.append((logits.softmax(dim=-1).amax(dim=-1) * 100).round().clamp(0, 99).int())
        if step + 1 < longest:
            logits = draft(logits.argmax(dim=-1, keepdim=True), cache)[:, -1]
    confidence = torch.stack(percents, dim=1).flatten().tolist()
    return {"ranks": ranks, "confidence": "".join(f"{c:02d}" for c in confidence)}


def main(path):
    """Write the record of the committed pair's weak and strong draft to `path`."""
    torch.set_num_threads(1)
    record = record_drafts(load_pair(("weak", "strong")))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1, ensure_ascii=False)
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
