"""Models of a published size with random weights: for timing alone. What they say is noise, so acceptance is dialled.

The time of a pass depends on shapes and not on what the numbers are. Weights are drawn on the device itself, one
tensor at a time, so a 7B model needs no more than its own memory.
"""

from collections.abc import Mapping

import torch

from specgain.lab.model import Config, Model
from specgain.lab.pretrained import place

VOCAB = 151936  # one for all, so that any two make a pair
SHAPES = {
    "0.5b": Config(VOCAB, 896, 14, 4864, 24, 32768, 1e6, 1e-6, kv_heads=2),
    "1.5b": Config(VOCAB, 1536, 12, 8960, 28, 32768, 1e6, 1e-6, kv_heads=2),
    "7b": Config(VOCAB, 3584, 28, 18944, 28, 32768, 1e6, 1e-6, kv_heads=4, tied=False),
    "0.6b": Config(VOCAB, 1024, 16, 3072, 28, 40960, 1e6, 1e-6, kv_heads=8, head_width=128, qk_norm=True),
    "4b": Config(VOCAB, 2560, 32, 9728, 36, 40960, 1e6, 1e-6, kv_heads=8, head_width=128, qk_norm=True),
}
"""Published sizes: Qwen2.5 0.5B, 1.5B and 7B without the biases of queries, keys and values; Qwen3 0.6B and 4B."""


class RandomWeights(Mapping):
    """{tensor name: random tensor}, drawn when asked for; matrices normal with deviation 0.02, norms 1."""

    def __init__(self, config, dtype, device, seed=0):
        self.shapes, self.options = config.shapes(), {"dtype": dtype, "device": device}
        self.seeds = {name: seed * len(self.shapes) + i for i, name in enumerate(self.shapes)}

    def __iter__(self):
        return iter(self.shapes)

    def __len__(self):
        return len(self.shapes)

    def __getitem__(self, name):
        shape = self.shapes[name]
        if len(shape) == 1:
            return torch.ones(shape, **self.options)
        generator = torch.Generator(self.options["device"]).manual_seed(self.seeds[name])
        return torch.empty(shape, **self.options).normal_(0, 0.02, generator=generator)


def parameters(config):
    """Return the number of weights of a `Config`."""
    return sum(torch.Size(shape).numel() for shape in config.shapes().values())


def shape_pair(name, device=None, dtype=None, kernel=None, seed=0):
    """Return (target, draft), two `Model`s with random weights, of a name such as "0.5b-7b": the draft's size first.

    ValueError for an unknown size, or where there is less free memory than the weights take.
    """
    device, dtype = place(device, dtype)
    sizes = name.split("-")
    if len(sizes) != 2 or not set(sizes) <= set(SHAPES):
        raise ValueError(f"pair {name!r} unknown; write DRAFT-TARGET with two of {', '.join(SHAPES)}, such as 0.5b-7b")
    configs = [SHAPES[size] for size in reversed(sizes)]
    needed = sum(parameters(config) for config in configs) * dtype.itemsize
    if (free := free_bytes(device)) < needed:
        raise ValueError(
            f"pair {name!r} needs {needed / 1e9:.1f} GB for its weights in {dtype}; {device} has {free / 1e9:.1f} GB free"
        )
    make = [Model(c, RandomWeights(c, dtype, device, seed + i), dtype, kernel, device) for i, c in enumerate(configs)]
    return tuple(make)


def free_bytes(device):
    """Return the free memory of a device in bytes; infinity where nothing tells."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device.index)[0]  # PyTorch 2.4 refuses a device without an index here
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":") for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return float("inf")
