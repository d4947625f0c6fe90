"""Train the confidence heads of the committed drafts on calibration prompts, and judge them on test prompts.

    python tools/train_confidence.py train judge

A few minutes on two cores. `train` writes one head per draft to specgain/lab/weights, for the models and for the
multi-token heads (`--drafts` names some of them), `judge` the record notebooks/measurements/cpu-2core/confidence.json:
what each model and its head said of every guess, and whether it was right. Steps are counted and seeded. What a head
computes is in specgain/lab/confidence.py.
"""

import argparse
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from measure_round_timing import FOLDER, write

from specgain import lab
from specgain.lab.confidence import load_confidence, log_odds, signs
from specgain.lab.heads import BLOCK, save_head
from specgain.lab.measure import continuations, environment
from specgain.lab.model import Cache
from specgain.lab.pair import DRAFTS, WEIGHTS, sha256
from specgain.lab.sampling import GREEDY, Sampling

SEED, STEPS, INNER, NEW_TOKENS = 2028, 1500, 32, 64
JUDGED, PROMPTS = ("weak", "strong"), 32  # drafts and prompts per kind of text in the record
TRAINED = (*DRAFTS, "multi")
HOW = (GREEDY, Sampling(1.0))
REPRODUCE = "python tools/train_confidence.py judge"


@torch.inference_mode()
def along(pair, names, prompts, text, sampling):
    """Return {draft: (what its head reads, chance of acceptance, its own probability)} at each token of `text`.

    The drafts are fed the target's own text: all of their guesses before were accepted. The chance is 0 or 1 under
    greedy decoding; at temperature 1 it is the mass that both distributions share.
    """
    found = {name: [] for name in names}
    for rows, own in zip(prompts.split(64), text.split(64), strict=True):
        fed = torch.cat((rows, own[:, :-1]), dim=1)
        target = None if sampling.greedy else sampling.probs(outputs(pair.target, fed, own)[1])
        for name in names:
            x, logits = outputs(pair.drafts[name].model, fed, own)
            if sampling.greedy:
                chance = (logits.argmax(dim=-1) == own.flatten()).float()
            else:
                chance = torch.minimum(sampling.probs(logits), target).sum(dim=-1)
            found[name].append((signs(x, logits), chance, logits.softmax(dim=-1).amax(dim=-1)))
    return {name: [torch.cat(column) for column in zip(*parts, strict=True)] for name, parts in found.items()}


@torch.inference_mode()
def ahead(head, prompts, text, sampling):
    """Return (what it reads, chances (BLOCK,), weights (BLOCK,)) of the multi-token heads, all along `text`.

    The chances are those of `along`, one per place of the draft. A place weighs as much as it is likely to count: the
    chance that all guesses before it are accepted.
    """
    found, target = [], head.target
    for rows, own in zip(prompts.split(64), text.split(64), strict=True):
        whole, first = torch.cat((rows, own), dim=1), rows.shape[1]
        x, _ = target.hidden(whole, Cache(target, *whole.shape))
        said = target.logits(x).view(*whole.shape, -1)
        slots = torch.arange(first - 2, whole.shape[1] - BLOCK)  # the entry of slot s stands before token s + 2
        row, slot = torch.cartesian_prod(torch.arange(len(whole)), slots).T
        entries = head._entries(SimpleNamespace(tokens=whole), row, slot)
        drafted = head._outputs(entries, row, BLOCK).view(len(row), BLOCK, -1)
        chances = torch.stack([
            torch.minimum(sampling.probs(target.logits(drafted[:, k])), sampling.probs(said[row, slot + 1 + k])).sum(dim=1)
            for k in range(BLOCK)
        ], dim=1)  # fmt: skip
        weights = torch.cat((torch.ones(len(row), 1), chances.cumprod(dim=1)[:, :-1]), dim=1)
        found.append((F.rms_norm(entries, entries.shape[1:]), chances, weights))
    return [torch.cat(column) for column in zip(*found, strict=True)]


def outputs(model, fed, own):
    """Return (last output, logits) of a model where it says the tokens of `own`, row after row."""
    x, _ = model.hidden(fed, Cache(model, *fed.shape))
    x = x.view(*fed.shape, -1)[:, -own.shape[1] :].flatten(0, 1)
    return x, model.logits(x)


def texts(pair, prompt_set, sampling, count=None):
    """Return (prompts, the target's texts) of all kinds together, all prompts or the first `count` of each kind."""
    tokens = pair.prompts(prompt_set)
    prompts = torch.cat([torch.from_numpy(tokens[domain][:count]).long() for domain in lab.DOMAINS])
    return prompts, continuations(pair.target, prompts, NEW_TOKENS, sampling, SEED, batch=64)


def train(name, sets):
    """Return the weights of the draft's head after STEPS steps of Adam on [(what it reads, chances, weights)], one per way."""
    (seen, chances, _), rng = sets[0], torch.Generator().manual_seed(SEED)
    width, places = seen.shape[1], chances.shape[1]
    weights = {"inner": torch.randn(INNER, width, generator=rng) / width**0.5, "inner_bias": torch.zeros(INNER),
               "outer": torch.zeros(2 * places, INNER), "outer_bias": torch.zeros(2 * places)}  # fmt: skip
    parameters = [w.requires_grad_() for w in weights.values()]
    adam = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.05)
    for step in range(STEPS):
        losses = []
        for way, (seen, chances, counts) in enumerate(sets):
            rows = torch.randint(len(seen), (512,), generator=rng)
            odds = log_odds(weights, seen[rows]).unflatten(1, (2, places))[:, way]
            loss = F.binary_cross_entropy_with_logits(odds, chances[rows], counts[rows], reduction="sum")
            losses.append(loss / counts[rows].sum())
        adam.param_groups[0]["lr"] = 3e-3 * (1 - step / STEPS)
        adam.zero_grad()
        sum(losses).backward()
        adam.step()
        if (step + 1) % 300 == 0:
            print(f"{name} {step + 1}/{STEPS}", *(f"{loss.item():.3f}" for loss in losses), flush=True)
    return {key: w.detach() for key, w in weights.items()}


def judge(seen, chance, raw, head=None):
    """Return {hits, raw, head}: a digit, and three digits per mille of draft and head, for each guess along a text."""
    said = {"raw": raw} | ({} if head is None else {"head": log_odds(head.weights, seen)[:, 0].sigmoid()})
    mille = {key: (p * 1000).round().clamp(0, 999).int().tolist() for key, p in said.items()}
    found = {"hits": "".join(str(int(c)) for c in chance.tolist())}
    return found | {key: "".join(f"{p:03d}" for p in values) for key, values in mille.items()}


def record(pair):
    """Return the record of the judged drafts on both prompt sets, JSON-ready; kinds of text in the order of `domains`."""
    known, seen = (
        along(pair, JUDGED, *texts(pair, which, GREEDY, PROMPTS), GREEDY) for which in ("calibration", "test")
    )
    drafts = {
        name: {"calibration": judge(*known[name]), "test": judge(*seen[name], load_confidence(name))} for name in JUDGED
    }
    setup = {"domains": lab.DOMAINS, "prompts": PROMPTS, "new_tokens": NEW_TOKENS}
    return {"schema": "specgain.confidence/1", "claims": ["C3.4"], "reproduce": REPRODUCE,
            "environment": environment(pair), "setup": setup, "drafts": drafts}  # fmt: skip


def lessons(pair, names):
    """Return {draft: [(what its head reads, chances, weights) per way of decoding]} on the calibration prompts."""
    found, models = {name: [] for name in names}, [name for name in names if name in DRAFTS]
    for how in HOW:
        told = texts(pair, "calibration", how)
        for name, (seen, chance, _) in along(pair, models, *told, how).items() if models else ():
            found[name].append((seen, chance[:, None], torch.ones(len(seen), 1)))
        for name in set(names) - set(models):
            found[name].append(ahead(pair.drafts[name], *told, how))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="+", choices=["train", "judge"])
    parser.add_argument("--drafts", nargs="+", choices=TRAINED, default=TRAINED, help="whose heads to train")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pair = lab.load_pair(TRAINED)
    if "train" in arguments.stages:
        for name, sets in lessons(pair, arguments.drafts).items():
            draft = WEIGHTS / f"{'draft' if name in DRAFTS else 'head'}-{name}.safetensors"
            facts = {"kind": "confidence", "steps": str(STEPS), "seed": str(SEED), "licence": "MIT",
                     "script": "tools/train_confidence.py", "draft_sha256": sha256(draft)}  # fmt: skip
            save_head(WEIGHTS / f"head-confidence-{name}.safetensors", train(name, sets), facts)
    if "judge" in arguments.stages:
        write(FOLDER / "confidence.json", record(pair))


if __name__ == "__main__":
    main()
