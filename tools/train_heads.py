"""Train the drafting heads on the frozen target: eagle, eagle3, multi, block. Readers never run this; weights are committed.

    python tools/train_pair.py --austen r-cran-janeaustenr_*.deb --work _build/pair corpora
    python tools/train_heads.py --work _build/pair features eagle eagle3 multi block export

Every head reads the target's features f_t (outputs of its layers) and the embedding e_{t+1} of the token that follows,
and predicts with the target's own output head. All learn the target's distribution (KL divergence; `eagle` also its
features, as EAGLE does: Li et al. 2024) on the same batches, whose features are computed once. Steps are counted and
seeded. What the heads compute is in specgain/lab/heads.py.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from train_pair import BATCH, CONFIG, LENGTH, Muon, as_strings, batches, rotary_tables, rotate, schedule

from specgain.lab.heads import BLOCK, LAYERS, TAPS, save_head
from specgain.lab.model import Cache, load
from specgain.lab.pair import WEIGHTS, sha256

SEED = 2027
D = CONFIG["width"]
TARGET = WEIGHTS / "target.safetensors"


def features_folder(work):
    """The folder of the features of this very target; another target's, of an earlier training, have another name."""
    return work / f"features-{sha256(TARGET)[:8]}"


def features(args, tokens):
    """Write the target's features of every training batch, float16, to `features_folder`."""
    target, folder = load(TARGET), features_folder(args.work)
    folder.mkdir(exist_ok=True)
    for step, batch in zip(range(args.steps), batches(tokens, SEED), strict=False):
        path = folder / f"{step:04}.pt"
        if path.exists():
            continue
        taps = dict.fromkeys(TAPS)
        target.hidden(batch, Cache(target, BATCH, LENGTH + 1), taps=taps)
        stack = torch.stack([taps[layer].view(BATCH, LENGTH + 1, D) for layer in TAPS])
        torch.save((batch.to(torch.int16), stack.half()), path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
        if step % 20 == 0:
            print(f"features {step}/{args.steps}", flush=True)


class Batch:
    """Tokens (batch, T + 1), features of the taps (taps, batch, T + 1, width), and what the target makes of them."""

    def __init__(self, tokens, stack, target):
        self.tokens, self.taps = tokens.long(), stack.float()
        self.embedded = unit(F.embedding(self.tokens, target["embed"]))
        self.last = self.taps[-1]

    @classmethod
    def read(cls, path, target):
        """The batch in a file that `features` wrote."""
        return cls(*torch.load(path), target)

    def wanted(self, target, rows):
        """log p of the next token after the positions `rows` (indices into batch · (T + 1))."""
        return F.log_softmax(output(target, self.last.flatten(0, 1)[rows]), dim=-1)


def unit(x):
    """Scale to root mean square 1, so that features and embeddings weigh alike."""
    return F.rms_norm(x, (x.shape[-1],))


def output(target, x):
    """Logits of features by the target's own last norm and head."""
    return F.linear(F.rms_norm(x, (D,), target["final_norm"], CONFIG["norm_eps"]), target["embed"])


def divergence(logits, wanted):
    """Mean KL(p ‖ q) in nats."""
    return F.kl_div(F.log_softmax(logits, dim=-1), wanted, log_target=True, reduction="batchmean")


def some(generator, count, *shape):
    """`count` random flat indices into an array of this shape, whose last column is left out."""
    rows = torch.randint(shape[0], (count,), generator=generator)
    return rows * shape[1] + torch.randint(shape[1] - 1, (count,), generator=generator)


# --- one layer over whole sequences, with keys from several passes --------------------------------------------------


def heads_of(x):
    return x.view(*x.shape[:2], CONFIG["heads"], -1).transpose(1, 2)


def keys_values(w, i, x, cos, sin):
    """Rotated keys and values (batch, heads, T, head width) of the layer's normed input."""
    k, v = F.linear(F.rms_norm(x, (D,), w[f"layers.{i}.norm1"], CONFIG["norm_eps"]), w[f"layers.{i}.qkv"][D:]).chunk(
        2, -1
    )
    return rotate(heads_of(k), cos, sin), heads_of(v)


def layer(w, i, x, keys, values, mask, cos, sin):
    """The layer's output for queries x, attending to the given keys under a mask."""
    q = F.linear(F.rms_norm(x, (D,), w[f"layers.{i}.norm1"], CONFIG["norm_eps"]), w[f"layers.{i}.qkv"][:D])
    mixed = F.scaled_dot_product_attention(rotate(heads_of(q), cos, sin), keys, values, attn_mask=mask)
    x = x + F.linear(mixed.transpose(1, 2).flatten(2), w[f"layers.{i}.out"])
    gate, up = F.linear(
        F.rms_norm(x, (D,), w[f"layers.{i}.norm2"], CONFIG["norm_eps"]), w[f"layers.{i}.gate_up"]
    ).chunk(2, -1)
    return x + F.linear(F.silu(gate) * up, w[f"layers.{i}.down"])


# --- the losses -----------------------------------------------------------------------------------------------------


def eagle_loss(w, batch, target, generator, third=False, unroll=1):
    """Next-token KL of an autoregressive head, summed over `unroll` passes with weights 0.8^pass.

    From the second pass on it reads its own features, as it will when it drafts. Without `third` (EAGLE-3) it reads the
    last layer alone, and a tenth of the smooth L1 distance to the target's next feature is added.
    """
    feature = F.linear(torch.cat(list(unit(batch.taps)), dim=-1), w["fuse"]) if third else batch.last
    n = LENGTH - 1
    cos, sin = rotary_tables(n)
    t = torch.arange(n)
    keys, values, masks, total = [], [], [], 0.0
    for step in range(unroll):
        # entry t holds the feature of token t (own, after the first pass) and the embedding of token t + 1
        x = F.linear(torch.cat((unit(feature[:, :n]), batch.embedded[:, 1 : n + 1]), -1), w["join"])
        k, v = keys_values(w, 0, x, cos, sin)
        keys.append(k)
        values.append(v)
        # pass s sees true entries up to t − s, and of every own pass r exactly the entry t − s + r
        masks = [t[None] <= t[:, None] - step] + [t[None] == t[:, None] - step + r for r in range(1, step + 1)]
        out = layer(w, 0, x, torch.cat(keys, 2), torch.cat(values, 2), torch.cat(masks, 1), cos, sin)
        rows = some(generator, 1024, BATCH, n)
        b, s = rows // n, (rows % n).clamp(min=step)
        total = (
            total + divergence(output(target, out[b, s]), batch.wanted(target, b * (LENGTH + 1) + s + 1)) * 0.8**step
        )
        if not third:
            total = total + 0.1 * F.smooth_l1_loss(unit(out[b, s]), unit(batch.last[b, s + 1]))
        feature = torch.cat((feature[:, :1], out[:, :-1]), dim=1)  # what the head itself says of token t
    return total


def multi_loss(w, batch, target, generator):
    """KL of the BLOCK heads, which all read one feature, summed with weights 0.85^head."""
    x = F.linear(torch.cat((unit(batch.last[:, :-1]), batch.embedded[:, 1:]), -1), w["join"]).flatten(0, 1)
    n, total = LENGTH - BLOCK, 0.0
    for k in range(BLOCK):
        rows = some(generator, 384, BATCH, n)
        b, s = rows // n, rows % n
        h = x[b * LENGTH + s]
        h = h + F.silu(F.linear(h, w["heads"][k * D : (k + 1) * D]))
        total = total + divergence(output(target, h), batch.wanted(target, b * (LENGTH + 1) + s + 1 + k)) * 0.85**k
    return total


def block_loss(w, batch, target, generator, blocks=20):
    """KL of a block of BLOCK tokens that is drafted in one pass, summed over its places with weights 0.85^place.

    It is the mean over `blocks` random anchors, which are the same in every sequence of the batch.
    """
    context = F.linear(torch.cat((unit(batch.last[:, :-1]), batch.embedded[:, 1:]), -1), w["join"])
    anchors = torch.randint(8, LENGTH - BLOCK - 1, (blocks,), generator=generator)  # the last known entry
    places = (anchors[:, None] + 1 + torch.arange(BLOCK)).flatten()
    cos, sin = rotary_tables(LENGTH + BLOCK)
    every = torch.arange(LENGTH)
    sees = every <= anchors.repeat_interleave(BLOCK)[:, None]
    inside = torch.arange(blocks).repeat_interleave(BLOCK)
    mask = torch.cat((sees, inside[:, None] == inside[None]), dim=1)
    # a block begins with what is known at its anchor, and its places differ by a learnt vector
    x = context[:, anchors].repeat_interleave(BLOCK, 1) + w["places"].repeat(blocks, 1)
    for i in range(LAYERS["block"]):
        old = keys_values(w, i, context, cos[:LENGTH], sin[:LENGTH])
        new = keys_values(w, i, x, cos[places], sin[places])
        keys, values = (torch.cat(pair, 2) for pair in zip(old, new, strict=True))
        x = layer(w, i, x, keys, values, mask, cos[places], sin[places])
    rows = (torch.arange(BATCH)[:, None] * (LENGTH + 1) + places).flatten()
    log_q, log_p = F.log_softmax(output(target, x.flatten(0, 1)), -1), batch.wanted(target, rows)
    each = (log_p.exp() * (log_p - log_q)).sum(-1).view(BATCH * blocks, BLOCK)
    return (each * 0.85 ** torch.arange(BLOCK)).mean(0).sum()


# --- training -------------------------------------------------------------------------------------------------------


def initial(kind, target, generator):
    """{name: parameter} of a fresh head; its layers begin as copies of the target's last ones."""

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=generator) * (0.5 / columns) ** 0.5

    weights = {"join": torch.cat((torch.eye(D), torch.eye(D)), dim=1)}
    for i in range(LAYERS[kind]):
        source = CONFIG["layers"] - LAYERS[kind] + i
        for part in ("norm1", "qkv", "out", "norm2", "gate_up", "down"):
            weights[f"layers.{i}.{part}"] = target[f"layers.{source}.{part}"].clone()
    if kind == "eagle3":
        weights["fuse"] = torch.cat((matrix(D, D) * 0.3, matrix(D, D) * 0.3, torch.eye(D)), dim=1)
    if kind == "multi":
        weights["heads"] = matrix(BLOCK * D, D)
    if kind == "block":
        weights["places"] = matrix(BLOCK, D) * 3
    return {name: weight.requires_grad_() for name, weight in weights.items()}


LOSS = {
    "eagle": eagle_loss,
    "eagle3": lambda *a: eagle_loss(*a, third=True, unroll=3),
    "multi": multi_loss,
    "block": block_loss,
}


def train(kind, args, target):
    """Train one head for `args.steps` steps; its weights are kept every 50, and a stopped training starts anew."""
    generator = torch.Generator().manual_seed(SEED)
    w = initial(kind, target, generator)
    matrices = [p for n, p in w.items() if p.ndim == 2 and n != "places"]
    muon = Muon(matrices)
    others = [p for n, p in w.items() if p.ndim == 1 or n == "places"]
    adam = torch.optim.AdamW(others, lr=2e-3, weight_decay=0.0) if others else None
    begin, log, folder = time.perf_counter(), [], features_folder(args.work)
    for step in range(args.steps):
        loss = LOSS[kind](w, Batch.read(folder / f"{step:04}.pt", target), target, generator)
        loss.backward()
        factor = schedule(step, args.steps)
        muon.step(0.01 * factor)
        if adam is not None:
            adam.param_groups[0]["lr"] = 2e-3 * factor
            adam.step()
        for p in w.values():
            p.grad = None
        log.append(loss.item())
        if (step + 1) % 20 == 0:
            print(
                f"{kind} {step + 1}/{args.steps} loss {np.mean(log[-20:]):.3f} {time.perf_counter() - begin:.0f} s",
                flush=True,
            )
        if (step + 1) % 50 == 0 or step + 1 == args.steps:
            torch.save({n: p.detach() for n, p in w.items()}, args.work / f"head-{kind}.weights")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="+", choices=["features", *LOSS, "export"])
    parser.add_argument("--work", type=Path, required=True, help="folder of train_pair.py with tokens.npz")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    target = {n: w.float() for n, w in load_file(TARGET).items()}
    if target["embed"].shape != (CONFIG["vocab"], D):
        parser.error(f"{TARGET.name} has an embedding of {tuple(target['embed'].shape)}; "
                     f"train_pair.py makes {(CONFIG['vocab'], D)}")  # fmt: skip
    if "features" in args.stages:
        features(args, dict(np.load(args.work / "tokens.npz")))
    for kind in LOSS:
        if kind in args.stages:
            train(kind, args, target)
    if "export" in args.stages:
        for kind in LOSS:
            facts = {
                "kind": kind,
                "steps": args.steps,
                "seed": SEED,
                "script": "tools/train_heads.py",
                "licence": "MIT",
            }
            save_head(
                WEIGHTS / f"head-{kind}.safetensors", torch.load(args.work / f"head-{kind}.weights"), as_strings(facts)
            )


if __name__ == "__main__":
    main()
