"""Record what chapters 1 and 2 show of single rounds: timed rounds, and the tokens of one passage.

    python tools/record_rounds.py

Writes two files to notebooks/measurements/cpu-2core/: `rounds.json`, a round log of every text kind with the plain arm
and every γ in turn, and `tokens.json`, what draft and target said in the rounds of one passage (no times in it).
"""

import json
from collections import deque
from pathlib import Path

import torch

from specgain import lab
from specgain.lab.loop import Batch, Stop
from specgain.lab.sampling import GREEDY, verify_greedy

FOLDER = Path(__file__).resolve().parent.parent / "notebooks" / "measurements" / "cpu-2core"
PROMPTS, GAMMAS, DRAFT = 3, (0, 1, 2, 4, 8), "strong"
PASSAGE = {"domain": "func", "prompt": 3, "gamma": 8, "new_tokens": 96}


def passage(pair, domain, prompt, gamma, new_tokens):
    """Return {prompt, rounds: [{drafted, target}]}: the draft's γ tokens and the target's γ + 1, as text, per round."""
    context, draft = pair.prompts("test")[domain][prompt].tolist(), pair.drafts[DRAFT]
    batch, rounds = Batch(1, len(context) + new_tokens + gamma + 1, new_tokens + gamma + 1), []
    batch.admit(deque([(0, context)]))
    draft.begin(batch, [0])
    while batch.length[0] < len(context) + new_tokens:
        (drafted,) = draft.propose(batch, [gamma], GREEDY, None).tokens
        fed = torch.tensor([batch.text[0, : batch.length[0]].tolist() + drafted])
        logits = pair.target(fed, lab.Cache(pair.target))[0, -gamma - 1 :]
        (accepted,), (own,) = verify_greedy(logits, [drafted], [gamma])
        rounds.append({"drafted": [pair.decode([t]) for t in drafted], "target": [pair.decode([t]) for t in own]})
        batch.commit(0, own[: accepted + 1], Stop())
    return {"prompt": pair.decode(context), "rounds": rounds}


def main():
    torch.set_num_threads(1)
    pair = lab.load_pair([DRAFT])
    log = lab.run_rounds(pair, "test", PROMPTS, GAMMAS)
    log.write(FOLDER / "rounds.json")
    found = {"environment": lab.environment(pair), "setup": PASSAGE | {"draft": DRAFT}} | passage(pair, **PASSAGE)
    text = json.dumps(found, ensure_ascii=False, indent=1)
    (FOLDER / "tokens.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
