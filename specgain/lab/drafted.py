"""What a draft would propose everywhere along the target's text: ranks for trees, confidences for lengths; no timing.

From such a record every static tree and every rule that stops a draft can be replayed exactly, since a round's
candidates depend on the text before it and on nothing else.  `python -m specgain.lab.drafted FILE` writes it.
"""

import json
import sys

import numpy as np
import torch

from specgain.lab.measure import DOMAINS, environment, greedy
from specgain.lab.model import Cache
from specgain.lab.pair import load_pair

SCHEMA = "specgain.drafted/1"
LONGEST = 8  # candidates written at each position


def record_drafts(pair, prompts=24, domains=DOMAINS, new_tokens=64, longest=LONGEST, prompt_set="calibration"):
    """Return a JSON-ready dict: per domain, draft and prompt two strings about the target's greedy text.

    `ranks`: one digit per token, the place of the target's token among the draft's choices ("0": its first choice, "9":
    tenth or later), given the target's text so far.  `confidence`: for each position `longest` numbers of two digits,
    the draft's probability of its own first choice in percent, as it writes on from the target's text by itself.
    """
    tokens, entries = pair.prompts(prompt_set), {}
    for domain in domains:
        context = torch.from_numpy(tokens[domain][:prompts].astype(np.int64))
        text = greedy(pair.target, context, new_tokens)
        entries[domain] = {
            name: [_along(draft.model, *row, longest) for row in zip(context, text, strict=True)]
            for name, draft in pair.drafts.items()
        }
    setup = {"prompt_set": prompt_set, "prompts": prompts, "new_tokens": new_tokens, "longest": longest}
    return {"schema": SCHEMA, "claims": ["C3.2", "C3.4"], "environment": environment(pair), "setup": setup,
            "domains": entries}  # fmt: skip


@torch.inference_mode()
def _along(draft, prompt, text, longest):
    """Return {ranks, confidence} of one prompt: row t of the batch has the target's first t tokens behind the prompt."""
    n, start = len(text), len(prompt)
    fed = torch.cat((prompt, text))
    cache = Cache(draft, n, start + n + longest)
    logits = draft(fed[None, :-1].expand(n, -1), cache)[0, start - 1 :]
    places = (logits > logits.gather(1, text[:, None])).sum(dim=1).clamp(max=9)
    cache.length = [start + t for t in range(n)]  # forget what lies ahead of row t
    percents = []
    for step in range(longest):
        percents.append((logits.softmax(dim=-1).amax(dim=-1) * 100).round().clamp(0, 99).int())
        if step + 1 < longest:
            logits = draft(logits.argmax(dim=-1, keepdim=True), cache)[:, -1]
    confidence = torch.stack(percents, dim=1).flatten().tolist()
    return {"ranks": "".join(map(str, places.tolist())), "confidence": "".join(f"{c:02d}" for c in confidence)}


def main(path):
    """Write the record of the committed pair's weak and strong draft to `path`."""
    torch.set_num_threads(1)
    record = record_drafts(load_pair(("weak", "strong")))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1, ensure_ascii=False)
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
