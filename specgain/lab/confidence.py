"""A confidence head: from what a draft has just computed, the chance that its guess is accepted if all before it are.

Two small layers over the draft's last output and how peaked its distribution is. `tools/train_confidence.py` trains one
per draft; `ModelDraft(model, stop=rule, confidence=head)` uses it.
"""

from pathlib import Path

import torch
import torch.nn.functional as F

from specgain.lab.model import WeightsError
from specgain.lab.pair import WEIGHTS, sha256
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


def signs(x, logits):
    """Return what a head reads (rows, width + 2): the output at unit scale, the log of the top probability, the lead."""
    top = logits.topk(2, dim=-1).values
    sure = top[:, 0] - logits.logsumexp(dim=-1)
    return torch.cat((F.rms_norm(x, (x.shape[-1],)), sure[:, None], top[:, :1] - top[:, 1:]), dim=1)


def log_odds(weights, seen):
    """Return the log-odds of acceptance (rows, 2): greedy, and sampled at temperature 1."""
    inner = F.silu(F.linear(seen, weights["inner"], weights["inner_bias"]))
    return F.linear(inner, weights["outer"], weights["outer_bias"])


def load_confidence(draft, folder=WEIGHTS, dtype=torch.float32, device="cpu"):
    """Return the `ConfidenceHead` of the committed draft of this name; WeightsError if it belongs to other weights."""
    path = Path(folder) / f"head-confidence-{draft}.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} does not exist; train it with tools/train_confidence.py")
    weights, metadata = read_tensors(path)
    for whose, name in (("target", "target"), ("draft", f"draft-{draft}")):
        if metadata.get(f"{whose}_sha256") != sha256(Path(folder) / f"{name}.safetensors"):
            raise WeightsError(f"{path.name} was trained on another {whose} than the one in {Path(folder).name}")
    return ConfidenceHead({name: w.to(device, dtype) for name, w in weights.items()})
