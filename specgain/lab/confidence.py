"""Confidence heads: the chance that a draft's guess is accepted if all before it are, from what is computed already.

Two small layers. For a model they read its last output and how peaked its distribution is, guess by guess; for a head
that drafts in one pass, the entry from which it will write all of its guesses. `tools/train_confidence.py` trains one
per draft; `ModelDraft(model, stop=rule, confidence=head)` and `OnePass.budgeted` use it.
"""

from pathlib import Path

import torch
import torch.nn.functional as F

from specgain.lab.model import WeightsError
from specgain.lab.pair import DRAFTS, WEIGHTS, sha256
from specgain.lab.tensors import read_tensors


class ConfidenceHead:
    """`head(x, logits, greedy)` returns the chance of acceptance (rows,), under greedy decoding or at temperature 1.

    `x` (rows, width) is the draft model's last output and `logits` (rows, vocab) what it says of the next token. The
    guess itself is not read, so it may be drawn before or after.
    """

    def __init__(self, weights):
        self.weights = weights

    @torch.inference_mode()
    def __call__(self, x, logits, greedy):
        return log_odds(self.weights, signs(x, logits))[:, 0 if greedy else 1].sigmoid()


class SurvivalHead:
    """`head(x, greedy)` returns the survivals (rows, places) of what a one-pass draft will write after its entries `x`.

    `x` (rows, width) holds committed text alone, and no guess is drawn yet: whatever is decided by the survivals looks
    at no guess.
    """

    def __init__(self, weights):
        halves = zip(*(weights[name].chunk(2) for name in ("outer", "outer_bias")), strict=True)
        self.weights = [weights | {"outer": outer, "outer_bias": bias} for outer, bias in halves]

    @torch.inference_mode()
    def __call__(self, x, greedy):
        odds = log_odds(self.weights[0 if greedy else 1], F.rms_norm(x, (x.shape[-1],)))
        return odds.sigmoid().cumprod(dim=1)


def signs(x, logits):
    """Return what a head reads (rows, width + 2): the output at unit scale, the log of the top probability, the lead."""
    top = logits.softmax(dim=-1).topk(2, dim=-1).values.clamp(min=torch.finfo(logits.dtype).tiny).log()
    return torch.cat((F.rms_norm(x, (x.shape[-1],)), top[:, :1], top[:, :1] - top[:, 1:]), dim=1)


def log_odds(weights, seen):
    """Return the log-odds of acceptance (rows, 2 · places), one place for a model: greedy, then at temperature 1.

    Of half of the outer weights it is one of the two.
    """
    inner = F.silu(torch.addmm(weights["inner_bias"], seen, weights["inner"].T))  # sooner than F.linear for a few rows
    return torch.addmm(weights["outer_bias"], inner, weights["outer"].T)


def load_confidence(draft, folder=WEIGHTS, dtype=torch.float32, device="cpu"):
    """Return the `ConfidenceHead` of a committed draft, the `SurvivalHead` of a one-pass head, by its name.

    WeightsError if it belongs to other weights.
    """
    path = Path(folder) / f"head-confidence-{draft}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} does not exist; train it with tools/train_confidence.py")
    weights, metadata = read_tensors(path)
    kind, file = (ConfidenceHead, f"draft-{draft}") if draft in DRAFTS else (SurvivalHead, f"head-{draft}")
    for whose, name in (("target", "target"), ("draft", file)):
        if metadata.get(f"{whose}_sha256") != sha256(Path(folder) / f"{name}.safetensors"):
            raise WeightsError(f"{path.name} was trained on another {whose} than the one in {Path(folder).name}")
    return kind({name: w.to(device, dtype) for name, w in weights.items()})
