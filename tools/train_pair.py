"""Train the tiny pair: tokenizer, target, distilled drafts, prompts. Readers never run this; the weights are committed.

    apt-get download r-cran-janeaustenr
    python tools/train_pair.py --austen r-cran-janeaustenr_*.deb --work _build/pair target draft export

Stages: `target` (1300 steps, 20 minutes on two free cores), `draft` (500 steps, 6 minutes), `export` (writes
specgain/lab/weights/); `corpora` only makes the texts, the tokenizer and the tokens, which the others make too if they
are missing. Every stage counts steps, not seconds, and is seeded. A stage that was stopped goes on from its last
checkpoint. The corpora are described in corpora.py.
"""

import argparse
import hashlib
import json
import platform
import shutil
import time
from dataclasses import replace
from pathlib import Path

import corpora
import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from specgain.lab.drafts import bigram
from specgain.lab.model import Cache, Config, load, save
from specgain.lab.pair import DRAFTS, sha256
from specgain.lab.tensors import read_metadata

CONFIG = {"vocab": 2048, "width": 192, "heads": 6, "hidden": 512, "layers": 8, "rope_base": 10000.0, "norm_eps": 1e-5}
CHARACTERS = {"json": 1_500_000, "func": 1_200_000, "viet": 1_200_000, "stdlib": 6_000_000, "prose": 5_000_000}
MIXTURE = {"json": 0.12, "func": 0.10, "viet": 0.12, "stdlib": 0.33, "prose": 0.33}
HOLDOUT = 20_000  # last tokens of every domain, never trained on
BATCH, LENGTH = 12, 256
PROMPTS, PROMPT_TOKENS = 128, 64  # in each of the two prompt sets, and in each prompt
SEED = 2026
END = "<|end|>"  # token 0, between documents


# --- data ----------------------------------------------------------------------------------------------------------


def prepare(work, austen):
    """{domain: token array}; builds corpora and tokenizer once and keeps them in `work`."""
    if not (work / "tokens.npz").exists():
        texts = {d: corpora.documents(d, n, austen) for d, n in CHARACTERS.items()}
        tokenizer = train_tokenizer(text for documents in texts.values() for text in documents)
        tokenizer.save(str(work / "tokenizer.json"), pretty=False)
        np.savez(work / "tokens.npz", **{d: encode(tokenizer, documents) for d, documents in texts.items()})
        facts = {d: corpus_facts(documents) for d, documents in texts.items()}
        (work / "corpora.json").write_text(json.dumps(facts, indent=1))
    return dict(np.load(work / "tokens.npz"))


def train_tokenizer(texts):
    """A byte-level BPE tokenizer with CONFIG["vocab"] entries."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=CONFIG["vocab"],
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer, documents):
    """One uint16 array: every document followed by the END token."""
    encodings = tokenizer.encode_batch(documents)
    return np.concatenate([np.array([*e.ids, 0], np.uint16) for e in encodings])


def corpus_facts(documents):
    """{documents, characters, sha256} of a corpus."""
    joined = "\0".join(documents).encode()
    return {
        "documents": len(documents),
        "characters": sum(map(len, documents)),
        "sha256": hashlib.sha256(joined).hexdigest(),
    }


def batches(tokens, seed):
    """Endless (BATCH, LENGTH + 1) token batches, domains mixed as in MIXTURE, hold-out excluded."""
    rng = np.random.default_rng(seed)
    names, weights = list(MIXTURE), np.array(list(MIXTURE.values()))
    while True:
        rows = []
        for domain in rng.choice(names, BATCH, p=weights / weights.sum()):
            start = rng.integers(len(tokens[domain]) - HOLDOUT - LENGTH - 1)
            rows.append(tokens[domain][start : start + LENGTH + 1].astype(np.int64))
        yield torch.from_numpy(np.stack(rows))


# --- the model as it is trained (whole sequences, no cache); specgain.lab.model runs the same weights --------------


def initial_weights(layers, generator):
    """{name: parameter} of a fresh model; the matrices that write to the residual stream start at zero."""
    d, h = CONFIG["width"], CONFIG["hidden"]

    def uniform(rows, columns):
        return (torch.rand(rows, columns, generator=generator) * 2 - 1) * (3 / columns) ** 0.5 * 0.6

    weights = {"embed": torch.randn(CONFIG["vocab"], d, generator=generator) * 0.05, "final_norm": torch.ones(d)}
    for i in range(layers):
        weights |= {
            f"layers.{i}.norm1": torch.ones(d),
            f"layers.{i}.qkv": uniform(3 * d, d),
            f"layers.{i}.out": torch.zeros(d, d),
            f"layers.{i}.norm2": torch.ones(d),
            f"layers.{i}.gate_up": uniform(2 * h, d),
            f"layers.{i}.down": torch.zeros(d, h),
        }
    return weights


def rotary_tables(length):
    """cos and sin, each (length, head width / 2)."""
    half = CONFIG["width"] // CONFIG["heads"] // 2
    angles = torch.arange(length)[:, None] * CONFIG["rope_base"] ** (-torch.arange(half) / half)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """x (..., length, head width) with its two halves rotated by position."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)


def forward(weights, tokens, layers):
    """Logits (batch, length, vocab) of token ids (batch, length)."""
    batch, length = tokens.shape
    d, heads, eps = CONFIG["width"], CONFIG["heads"], CONFIG["norm_eps"]
    cos, sin = rotary_tables(length)
    x = F.embedding(tokens, weights["embed"])
    for i in range(layers):
        w = {name: weights[f"layers.{i}.{name}"] for name in ("norm1", "qkv", "out", "norm2", "gate_up", "down")}
        qkv = F.linear(F.rms_norm(x, (d,), w["norm1"], eps), w["qkv"]).view(batch, length, 3, heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + F.linear(mixed.transpose(1, 2).reshape(batch, length, d), w["out"])
        gate, up = F.linear(F.rms_norm(x, (d,), w["norm2"], eps), w["gate_up"]).chunk(2, dim=-1)
        x = x + F.linear(F.silu(gate) * up, w["down"])
    return F.linear(F.rms_norm(x, (d,), weights["final_norm"], eps), weights["embed"])


# --- optimizer: Muon for matrices, AdamW for the rest --------------------------------------------------------------


def orthogonalize(stack):
    """Nearest semi-orthogonal matrices, roughly, of a stack (n, rows, columns) by five Newton-Schulz steps."""
    x = stack / (stack.norm(dim=(1, 2), keepdim=True) + 1e-7)
    transposed = x.shape[1] > x.shape[2]
    x = x.mT if transposed else x
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if transposed else x


class Muon:
    """Momentum, then an orthogonal step. The fused qkv and gate/up matrices are stepped as three and two blocks."""

    def __init__(self, parameters, momentum=0.95):
        self.parameters, self.momentum = parameters, momentum
        self.velocity = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self, rate):
        groups = {}
        for p, v in zip(self.parameters, self.velocity, strict=True):
            v.mul_(self.momentum).add_(p.grad)
            update = p.grad + self.momentum * v
            parts = {3 * CONFIG["width"]: 3, 2 * CONFIG["hidden"]: 2}.get(p.shape[0], 1)
            groups.setdefault((p.shape[0] // parts, p.shape[1]), []).append((p, update.chunk(parts)))
        for (rows, columns), members in groups.items():
            steps = orthogonalize(torch.stack([u for _, updates in members for u in updates]))
            steps = iter(steps * max(1, rows / columns) ** 0.5)
            for p, updates in members:
                p.add_(torch.cat([next(steps) for _ in updates]), alpha=-rate)


def schedule(step, steps):
    """Learning-rate factor: 20 warm-up steps, flat to half, then linear to 0."""
    return min((step + 1) / 20, 1.0, 2 * (1 - step / steps))


def train(name, weights, loss_of, data, steps, rates, work, keep=()):
    """Train `weights` in place for `steps` steps with checkpoints in work/name.pt; return the losses in nats, by step.

    `rates` are the greatest learning rates of Muon and AdamW; after each step in `keep` the weights are kept as well.
    """
    matrices = [p for n, p in weights.items() if p.requires_grad and p.ndim == 2 and n != "embed"]
    others = [p for n, p in weights.items() if p.requires_grad and (p.ndim == 1 or n == "embed")]
    muon, adam = Muon(matrices), torch.optim.AdamW(others, lr=rates[1], betas=(0.9, 0.95), weight_decay=0.0)
    path, log, start = work / f"{name}.pt", [], 0
    if path.exists():
        state = torch.load(path)
        start, log = state["step"], state["log"]
        for n, p in weights.items():
            p.data.copy_(state["weights"][n])
        muon.velocity = state["muon"]
        adam.load_state_dict(state["adam"])
    begin = time.perf_counter()
    for step, batch in zip(range(steps), data, strict=False):
        if step < start:
            continue
        loss = loss_of(batch)
        loss.backward()
        factor = schedule(step, steps)
        muon.step(rates[0] * factor)
        adam.param_groups[0]["lr"] = rates[1] * factor
        adam.step()
        for p in weights.values():
            p.grad = None
        log.append(loss.item())
        if (step + 1) % 20 == 0:
            recent = sum(log[-20:]) / 20
            print(f"{name} {step + 1}/{steps} loss {recent:.3f} {time.perf_counter() - begin:.0f} s", flush=True)
        if (step + 1) % 60 == 0 or step + 1 == steps:
            state = {"step": step + 1, "log": log, "weights": weights, "muon": muon.velocity, "adam": adam.state_dict()}
            torch.save(state, path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)
        if step + 1 in keep:
            torch.save({n: p.detach().clone() for n, p in weights.items()}, work / f"{name}-{step + 1}.weights")
    return log


# --- stages --------------------------------------------------------------------------------------------------------


def train_target(args, tokens):
    """The target, trained on the next token of the mixed corpora."""
    weights = initial_weights(CONFIG["layers"], torch.Generator().manual_seed(SEED))
    weights = {name: weight.requires_grad_() for name, weight in weights.items()}

    def loss_of(batch):
        logits = forward(weights, batch[:, :-1], CONFIG["layers"])
        return F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    steps = args.target_steps
    train("target", weights, loss_of, batches(tokens, SEED), steps, (0.02, 3e-3), args.work, keep=[steps])


def train_draft(args, tokens):
    """One layer on the target's frozen embedding, from its first layer and last gain; KL to its distribution."""
    target = torch.load(args.work / f"target-{args.target_steps}.weights")
    names = [n for n in target if n.startswith("layers.0.")] + ["final_norm"]
    draft = {n: target[n].clone().requires_grad_() for n in names} | {"embed": target["embed"]}

    def loss_of(batch):
        with torch.no_grad():
            wanted = F.log_softmax(forward(target, batch[:, :-1], CONFIG["layers"]), dim=-1)
        own = F.log_softmax(forward(draft, batch[:, :-1], 1), dim=-1)
        return F.kl_div(own.flatten(0, 1), wanted.flatten(0, 1), log_target=True, reduction="batchmean")

    train("draft", draft, loss_of, batches(tokens, SEED + 1), args.draft_steps, (0.02, 2e-3), args.work, keep=args.keep)


@torch.no_grad()
def holdout_loss(weights, layers, tokens, windows=40):
    """Mean nats per token on the hold-out of one domain."""
    rows = torch.from_numpy(tokens[-HOLDOUT:].astype(np.int64))[: windows * (LENGTH + 1)].view(windows, LENGTH + 1)
    return F.cross_entropy(forward(weights, rows[:, :-1], layers).flatten(0, 1), rows[:, 1:].flatten()).item()


# --- export: float16 files, prompts and the model card -------------------------------------------------------------


def export(args, tokens):
    """Write everything under specgain/lab/weights/."""
    folder, common = args.out, provenance(args)
    folder.mkdir(parents=True, exist_ok=True)
    config = Config(**CONFIG, context=512)
    target = torch.load(args.work / f"target-{args.target_steps}.weights")
    facts = {"target": {"steps": args.target_steps, "holdout": losses(target, CONFIG["layers"], tokens)}}
    save(folder / "target.safetensors", config, target, common | as_strings(facts["target"]))
    common_draft = common | {"target_sha256": sha256(folder / "target.safetensors")}
    for name, step in zip(DRAFTS, args.drafts, strict=True):
        draft = torch.load(args.work / f"draft-{step}.weights")
        facts[name] = {"steps": step, "of_steps": args.draft_steps, "holdout": losses(draft, 1, tokens)}
        del draft["embed"]
        save(
            folder / f"draft-{name}.safetensors",
            replace(config, layers=1),
            draft,
            common_draft | as_strings(facts[name]),
        )
    shutil.copyfile(args.work / "tokenizer.json", folder / "tokenizer.json")
    save_file(prompts(tokens), folder / "prompts.safetensors")
    save_file({"next": bigrams(tokens)}, folder / bigram.FILE, common)
    (folder / "README.md").write_text(model_card(folder, facts, common), encoding="utf-8")
    check_inference(folder, tokens)


def bigrams(tokens):
    """The commonest successor of every token (vocab,) in the training text, domains mixed as in training."""
    parts = {domain: tokens[domain][:-HOLDOUT] for domain in MIXTURE}
    return bigram.count([(MIXTURE[d] / len(part), part) for d, part in parts.items()], CONFIG["vocab"])


def prompts(tokens):
    """{"calibration.json": (PROMPTS, PROMPT_TOKENS) token ids, …}: windows over the hold-out, for the sets in turn."""
    sets = {}
    for domain in corpora.DOMAINS:
        held = tokens[domain][-HOLDOUT:]
        stride = (HOLDOUT - PROMPT_TOKENS) // (2 * PROMPTS - 1)
        windows = np.stack([held[i * stride : i * stride + PROMPT_TOKENS] for i in range(2 * PROMPTS)])
        sets[f"calibration.{domain}"], sets[f"test.{domain}"] = windows[0::2].copy(), windows[1::2].copy()
    return sets


def losses(weights, layers, tokens):
    """{domain: nats per token on the hold-out}."""
    return {d: round(holdout_loss(weights, layers, tokens[d]), 3) for d in corpora.DOMAINS}


def provenance(args):
    """What every weight file says about its making."""
    facts = {
        "seed": SEED, "script": "tools/train_pair.py", "batch": [BATCH, LENGTH], "mixture": MIXTURE,
        "corpora": json.loads((args.work / "corpora.json").read_text()), "python": platform.python_version(),
        "torch": torch.__version__, "numpy": np.__version__, "threads": args.threads,
        "licence": "MIT; trained on generated text, Python's standard library (PSF licence), Jane Austen (public domain)",  # noqa: E501
    }  # fmt: skip
    return as_strings(facts)


def as_strings(facts):
    """A dict of strings, as safetensors wants its metadata."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()}


def check_inference(folder, tokens):
    """Stop if specgain.lab.model computes other logits from the files than the training code does."""
    target = load(folder / "target.safetensors")
    rows = torch.from_numpy(np.stack([t[-200:] for t in tokens.values()]).astype(np.int64))
    weights = {name: w.float() for name, w in load_file(folder / "target.safetensors").items()}
    with torch.no_grad():
        gap = target(rows, Cache(target, len(rows), 200)) - forward(weights, rows, CONFIG["layers"])
    gap = gap.abs().max().item()
    print(f"inference against training code: greatest logit difference {gap:.1e}")
    if gap > 1e-3:
        raise SystemExit("the two forward passes disagree")


def model_card(folder, facts, common):
    """The text of weights/README.md; its numbers are taken from the files and from what is set above."""
    corpus = json.loads(common["corpora"])
    losses = [[name, f["steps"], *(f"{f['holdout'][d]:.2f}" for d in corpora.DOMAINS)] for name, f in facts.items()]
    texts = [[d, f"{c['characters']:,}", SOURCES[d], f"`{c['sha256'][:16]}…`"] for d, c in corpus.items()]
    paths = sorted(p for p in folder.iterdir() if p.suffix in (".safetensors", ".json"))
    return CARD.format(
        losses=table(["model", "steps", *corpora.DOMAINS], losses),
        corpora=table(["domain", "characters", "source", "SHA-256"], texts),
        files=table(["file", "size"], [[path.name, f"{path.stat().st_size / 1e3:,.0f} kB"] for path in paths]),
        mixture=", ".join(f"{domain} {share:.2f}" for domain, share in MIXTURE.items()),
        versions=f"Python {common['python']}, torch {common['torch']}",
        **{name: facts[name]["steps"] for name in DRAFTS},
        **{name: f"{CONFIG[name]:,}" for name in ("layers", "width", "heads", "hidden", "vocab")},
        trained_heads=heads_of(folder),
        prompts=PROMPTS,
        prompt_tokens=PROMPT_TOKENS,
        seed=SEED,
        batch=BATCH,
        length=LENGTH,
        holdout=f"{HOLDOUT:,}",
    )


def heads_of(folder):
    """The card's entry about heads, with the steps that their headers name; empty if none has been trained yet."""
    if not (folder / "head-eagle.safetensors").exists():
        return ""
    steps = [
        int(read_metadata(folder / f"head-{name}.safetensors")["steps"]) for name in ("eagle", "confidence-strong")
    ]
    return HEADS.format(*steps)


def table(head, rows):
    """A Markdown table."""
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in [head, ["---"] * len(head), *rows])


OWN = "written by `tools/corpora.py`"
AUSTEN = "six novels by Jane Austen (public domain), from the Debian package r-cran-janeaustenr (MIT)"
SOURCES = {"json": OWN, "func": OWN, "viet": OWN, "stdlib": "Python standard library (PSF licence)", "prose": AUSTEN}

HEADS = """- **Heads**: `head-*.safetensors` read the target's features (`specgain/lab/heads.py`). They were trained on this very
  target by `tools/train_heads.py`, {} steps each, and bear its hash. `head-confidence-*` are tiny and read a draft
  instead, for `multi` the entry that it drafts from (`specgain/lab/confidence.py`, `tools/train_confidence.py`, {:,}
  steps on the calibration prompts); they bear the hash of that draft as well.
"""
CARD = """# The tiny pair

One target and three drafts that share its vocabulary and its embedding. They exist to measure speculative decoding on
any CPU in seconds. They are no language models to use: the text is clean in the three generated domains and only looks
like code or English in the two natural ones.

- **Target**: {layers} layers, width {width}, {heads} heads, SwiGLU {hidden}, RMSNorm, rotary positions, tied head, no biases.
- **Drafts**: the same with 1 layer, on the target's own embedding. They start from the target's first layer and learn
  its distribution (KL divergence). `weak` is the draft after {weak} steps, `middle` after {middle}, `strong` after
  {strong} steps of the same run. One shape, so one cost per step: only their acceptance differs.
- **Bigram table**: the commonest successor of every token, counted over the training text in the same mixture.
{trained_heads}- **Tokenizer**: byte-level BPE, {vocab} tokens; token 0 ends a document.
- **Prompts**: per domain two disjoint sets of {prompts} prompts with {prompt_tokens} tokens, `calibration` and `test`, from the hold-out.

Loss on the hold-out, in nats per token (the last {holdout} tokens of each domain, never trained on; the generated
domains draw on short lists, so their hold-out is new combinations of known parts):

{losses}

Training: `tools/train_pair.py` counts steps and is seeded ({seed}). A step takes {batch} sequences of {length} tokens,
mixed as {mixture}; Muon for matrices, AdamW for the rest. {versions}. Another version of Python has another standard
library, and so gives another corpus.

{corpora}

Each weight file carries these facts in its header. Weights are stored as float16 and computed in float32.

{files}

The weights are under the MIT licence like the code.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="+", choices=["corpora", "target", "draft", "export"])
    parser.add_argument("--work", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--austen", type=Path, help="the .deb file of r-cran-janeaustenr")
    parser.add_argument("--target-steps", type=int, default=1300)
    parser.add_argument("--draft-steps", type=int, default=500)
    parser.add_argument("--keep", type=int, nargs="+", default=[20, 80, 500], help="draft steps to keep")
    parser.add_argument(
        "--drafts", type=int, nargs=3, default=[20, 80, 500], help="draft steps to export as weak, middle and strong"
    )
    parser.add_argument("--out", type=Path, default=Path("specgain/lab/weights"))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    tokens = prepare(args.work, args.austen)
    print({d: len(t) for d, t in tokens.items()}, flush=True)
    if "target" in args.stages:
        train_target(args, tokens)
    if "draft" in args.stages:
        train_draft(args, tokens)
    if "export" in args.stages:
        export(args, tokens)


if __name__ == "__main__":
    main()
