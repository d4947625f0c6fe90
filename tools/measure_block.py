"""Count what block verification adds: tokens per round by either rule, on the committed pair at temperature 1.

    python tools/measure_block.py

Nothing is timed, so the counts do not depend on the machine's speed. In the rounds of a loop with token verification
both rules judge the same candidates; then a second loop runs by block verification and counts its own rounds. It takes
a few minutes and writes notebooks/measurements/cpu-2core/block-verification.json.
"""

import zlib
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import torch
from measure_round_timing import FOLDER, write

from specgain import gain
from specgain.lab.loop import generate
from specgain.lab.measure import environment
from specgain.lab.pair import DOMAINS, load_pair
from specgain.lab.sampling import RULES, Sampling, judge, stacked

DRAFTS, GAMMAS, PROMPTS, NEW_TOKENS = ("weak", "strong", "eagle"), (2, 4, 8), 48, 40


@dataclass(frozen=True)
class Judged(Sampling):
    """Sampling that notes in every round how many candidates each rule expects to keep of those just drawn."""

    rounds: list = field(default_factory=list)

    def verify(self, logits, guesses, widths, draft_probs, rng):
        """Return what `Sampling.verify` does; `rounds` gets (widths, K by token, K by block), each by row."""
        probs = self.probs(logits)
        offered, own = stacked(guesses, widths, draft_probs, probs.device)
        kept = [judge(probs, offered, widths, own, rule)[0].sum(1).tolist() for rule in RULES]
        self.rounds.append((widths, *kept))
        return super().verify(logits, guesses, widths, draft_probs, rng)


def totals(pair, domain, name, gamma, rule, prompts, new_tokens):
    """Return per prompt (rounds with all γ candidates, K that token and block expect in them, K seen): (prompts, 4)."""
    draft, how = pair.drafts[name], Judged(1.0, verification=rule)
    texts = pair.prompts("test")[domain][:prompts].tolist()
    seed = zlib.crc32(f"{domain}/{name}/{gamma}".encode())
    run = generate(getattr(draft, "target", pair.target), texts, new_tokens, draft, gamma, sampling=how, seed=seed)
    found = np.zeros((len(texts), 4))
    for widths, *kept in how.rounds:
        full = np.array(widths) == gamma
        found[full, :3] += np.transpose([np.ones(len(texts)), *kept])[full]
    for row, output in zip(found, run.outputs, strict=True):
        log = output.log
        row[3] = sum(k for width, k in zip(log.drafted, log.accepted, strict=True) if width == gamma)
    return found


def length(sums):
    """Return E[L] of sums (…, 2) of (rounds, K)."""
    return 1 + sums[..., 1] / sums[..., 0]


def gained(*sums):
    """Return by how many percent E[L] by block exceeds that by token, of sums (…, 4): (rounds, K) by token, by block."""
    total = sum(sums)
    return 100 * (length(total[..., 2:]) / length(total[..., :2]) - 1)


def compare(parts):
    """Return {rule: E[L], gain_percent, interval_percent} of arrays (prompts, 4); prompts are drawn anew in each part."""
    total = sum(part.sum(0) for part in parts)
    both = {rule: float(length(sums)) for rule, sums in zip(RULES, (total[:2], total[2:]), strict=True)}
    low, high = gain.interval(gain.bootstrap(parts, gained))
    return both | {"gain_percent": float(gained(total)), "interval_percent": [float(low), float(high)]}


def row(parts, **labels):
    """Return one JSON-ready row of [(token loop, block loop)], arrays of `totals`: both rules on the candidates of the
    token loops, and the two kinds of loop against each other."""
    same = [token[:, [0, 1, 0, 2]] for token, _ in parts]
    loops = [np.hstack([token[:, [0, 3]], block[:, [0, 3]]]) for token, block in parts]
    rounds = [int(sum(loop[:, 0].sum() for loop in kind)) for kind in zip(*parts, strict=True)]
    return labels | {"rounds": rounds, "same_candidates": compare(same), "own_loops": compare(loops)}


def measured(pair, domains=DOMAINS, drafts=DRAFTS, gammas=GAMMAS, prompts=PROMPTS, new_tokens=NEW_TOKENS):
    """Return {"cells": one row per (domain, draft, γ), "pooled": one per (draft, γ) over all domains}."""
    found = {}
    for key in product(domains, drafts, gammas):
        found[key] = tuple(totals(pair, *key, rule, prompts, new_tokens) for rule in RULES)
        print(*key, f"{gained(found[key][0][:, [0, 1, 0, 2]].sum(0)):+.1f} %", flush=True)
    cells = [row([parts], domain=d, draft=name, gamma=g) for (d, name, g), parts in found.items()]
    pooled = [
        row([found[domain, name, gamma] for domain in domains], draft=name, gamma=gamma)
        for name, gamma in product(drafts, gammas)
    ]
    return {"cells": cells, "pooled": pooled}


def main():
    torch.set_num_threads(1)
    pair = load_pair(DRAFTS)
    setup = {"temperature": 1.0, "prompt_set": "test", "prompts": PROMPTS, "new_tokens": NEW_TOKENS}
    head = {"claims": ["C3.2"], "environment": environment(pair), "setup": setup}
    write(FOLDER / "block-verification.json", head | measured(pair))


if __name__ == "__main__":
    main()
