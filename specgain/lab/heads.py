"""Drafting heads that read the frozen target's features: EAGLE-style, multi-token, and a parallel block."""

from pathlib import Path

import torch

from specgain.lab.pair import WEIGHTS, sha256

TAPS = (1, 4, 7)  # the layers whose outputs a head may read; the last one is the target's own last layer
LAYERS = {"eagle": 1, "eagle3": 1, "multi": 0, "block": 2}  # transformer layers of each kind of head
BLOCK = 8  # tokens that the multi-token heads and the block draft at most


def save_head(path, weights, metadata):
    """Write a head as float16 safetensors, with the hash of the target that it was trained on."""
    from safetensors.torch import save_file

    metadata = metadata | {"target_sha256": sha256(Path(WEIGHTS) / "target.safetensors")}
    save_file({name: w.detach().to(torch.float16).contiguous() for name, w in weights.items()}, path, metadata)
