"""The committed tiny pair: one target, drafts of rising quality, a tokenizer and prompts. See weights/README.md."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from specgain.lab.drafts import NAMES, make_draft
from specgain.lab.linear import KERNELS
from specgain.lab.loop import ModelDraft
from specgain.lab.model import load
from specgain.lab.quantize import QUANTIZED
from specgain.lab.tensors import read_metadata, read_tensors

WEIGHTS = Path(__file__).parent / "weights"
DOMAINS = ("json", "func", "viet", "stdlib", "prose")
DRAFTS = ("weak", "middle", "strong")  # one draft after 20, 80 and 500 steps of its training
PROMPT_SETS = ("calibration", "test")  # disjoint, both from text that was never trained on


@dataclass(frozen=True)
class Pair:
    """A target `Model`, its drafts {name: draft}, and where they came from; text needs the package tokenizers."""

    target: object
    drafts: dict
    folder: Path
    weights_hash: str

    @cached_property
    def tokenizer(self):
        """The tokenizer of the pair, read on first use."""
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    def prompts(self, which):
        """Return {domain: array (prompts, tokens)} of the set "calibration" or "test"."""
        return load_prompts(which, self.folder)

    def encode(self, text):
        """Return the token ids of `text`."""
        return self.tokenizer.encode(text).ids

    def decode(self, tokens):
        """Return the text of token ids; an end of document shows as a blank line."""
        parts = [[]]
        for token in tokens:
            parts.append([]) if token == self.eos else parts[-1].append(token)
        return "\n".join(self.tokenizer.decode(part) for part in parts)

    @property
    def eos(self):
        """The token id that ends a document."""
        return 0


def load_pair(drafts=DRAFTS, folder=WEIGHTS, dtype=torch.float32, device="cpu", kernel=None, draft_kernel=None):
    """Return the `Pair` in `folder`. `drafts` names some of `DRAFTS`, and others as `make_draft` knows them ("lookup").

    `kernel` is the matrix product of the target, `draft_kernel` that of drafts with weights: a name of `KERNELS` or
    `QUANTIZED` ("int8"), or a class; None takes the fastest. ValueError names an unknown draft or kernel, or a draft of
    another target.
    """
    folder = Path(folder)
    from specgain.lab.heads import KINDS, Tapped, load_head  # which builds on this module

    known = {name.partition(":")[0] for name in (*DRAFTS, *NAMES, *KINDS)}
    if unknown := sorted(name for name in drafts if name.partition(":")[0] not in known):
        raise ValueError(f"drafts = {unknown} unknown; this pair has {', '.join((*DRAFTS, *NAMES, *KINDS))}")
    kernel, draft_kernel = _kernel("kernel", kernel), _kernel("draft_kernel", draft_kernel)
    where = {"dtype": dtype, "device": device}
    target, own = load(folder / "target.safetensors", kernel=kernel, **where), sha256(folder / "target.safetensors")
    models = {}
    for name in (name for name in drafts if name in DRAFTS):
        path = folder / f"draft-{name}.safetensors"
        models[name] = ModelDraft(load(path, embed=target.embed, kernel=draft_kernel, **where))
        if read_metadata(path)["target_sha256"] != own:
            raise ValueError(f"{path.name} was distilled from another target than the one in {folder.name}")
    tapped = Tapped(target)
    models |= {name: load_head(name, tapped, folder, kernel=draft_kernel) for name in drafts if name in KINDS}
    pair = Pair(target, {}, folder, weights_hash(folder))
    for name in drafts:
        pair.drafts[name] = models[name] if name in models else make_draft(name, pair)
    return pair


def _kernel(argument, kernel):
    """What `Model` takes for this kernel; ValueError for an unknown name."""
    if isinstance(kernel, str) and kernel not in (known := KERNELS | QUANTIZED):
        raise ValueError(f"{argument} = {kernel!r} unknown; choose from {', '.join(known)}")
    return QUANTIZED.get(kernel, kernel)


def load_prompts(which, folder=WEIGHTS):
    """Return {domain: array (prompts, tokens) of token ids} of the prompt set "calibration" or "test"."""
    if which not in PROMPT_SETS:
        raise ValueError(f"prompt set {which!r} unknown; there are {' and '.join(PROMPT_SETS)}")
    tensors, _ = read_tensors(Path(folder) / "prompts.safetensors")
    return {domain: tensors[f"{which}.{domain}"].numpy() for domain in DOMAINS}


def sha256(path):
    """Return the hex digest of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def weights_hash(folder=WEIGHTS):
    """Return one short digest over the pair's weight, tokenizer and prompt files; heads name their target themselves."""
    kept = (p for p in Path(folder).iterdir() if p.suffix in (".safetensors", ".json"))
    files = sorted(p for p in kept if not p.name.startswith("head-"))
    return hashlib.sha256("".join(p.name + sha256(p) for p in files).encode()).hexdigest()[:16]
