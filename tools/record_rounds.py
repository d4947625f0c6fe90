"""Record what chapters 1 and 2 show of single rounds: timed rounds, and the tokens of one passage.

    python tools/record_rounds.py

Writes two files to notebooks/measurements/cpu-2core/: `rounds.json`, a round log of every text kind with the plain arm
and every γ in turn, and `tokens.json`, what draft and target said in the rounds of one passage (no times in it).
"""

import json
from pathlib import Path

import torch

from specgain import lab
from specgain.lab.loop import accepted_prefix

FOLDER = Path(__file__).resolve().parent.parent / "notebooks" / "measurements" / "cpu-2core"
PROMPTS, GAMMAS, DRAFT = 3, (0, 1, 2, 4, 8), "strong"
PASSAGE = {"domain": "func", "prompt": 3, "gamma": 8, "new_tokens": 96}


def passage(pair, domain, prompt, gamma, new_tokens):
    """Return {prompt, rounds: [{drafted, target}]}: the draft's γ tokens and the target's γ + 1, as text, per round."""
    context, draft = pair.prompts("test")[domain][prompt].tolist(), pair.drafts[DRAFT]
    text, rounds = pair.decode(context), []
    draft.begin(context)
    end = len(context) + new_tokens
    while len(context) < end:
        guesses = draft.propose(context, gamma)
        logits = pair.target(torch.tensor([context + guesses]), lab.Cache(pair.target))
        own = logits[0, -gamma - 1 :].argmax(dim=-1).tolist()
        rounds.append({"drafted": [pair.decode([t]) for t in guesses], "target": [pair.decode([t]) for t in own]})
        context = context + own[: accepted_prefix(guesses, own) + 1]
    return {"prompt": text, "rounds": rounds}


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
