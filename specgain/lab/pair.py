"""The committed tiny pair: one target, drafts of rising quality, a tokenizer and prompts. See weights/README.md."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from safetensors.numpy import load_file
from tokenizers import Tokenizer

from specgain.lab.drafts import NAMES, make_draft
from specgain.lab.loop import ModelDraft
from specgain.lab.model import load, read_metadata

WEIGHTS = Path(__file__).parent / "weights"
DOMAINS = ("json", "func", "viet", "stdlib", "prose")
DRAFTS = ("weak", "middle", "strong")  # one draft after 20, 80 and 500 steps of its training
PROMPT_SETS = ("calibration", "test")  # disjoint, both from text that was never trained on


@dataclass(frozen=True)
class Pair:
    """A target `Model`, its drafts {name: draft}, the tokenizer, and where they came from."""

    target: object
    drafts: dict
    tokenizer: object
    folder: Path
    weights_hash: str

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


def load_pair(drafts=DRAFTS, folder=WEIGHTS):
    """Return the `Pair` in `folder`. `drafts` names some of `DRAFTS`, and others as `make_draft` knows them ("lookup").

    ValueError names an unknown draft or one of another target.
    """
    folder = Path(folder)
    plain = {name.partition(":")[0] for name in NAMES}
    if unknown := sorted(name for name in drafts if name not in DRAFTS and name.partition(":")[0] not in plain):
        raise ValueError(f"drafts = {unknown} unknown; this pair has {', '.join((*DRAFTS, *NAMES))}")
    target, own = load(folder / "target.safetensors"), sha256(folder / "target.safetensors")
    models = {}
    for name in (name for name in drafts if name in DRAFTS):
        path = folder / f"draft-{name}.safetensors"
        models[name] = ModelDraft(load(path, embed=target.embed))
        if read_metadata(path)["target_sha256"] != own:
            raise ValueError(f"{path.name} was distilled from another target than the one in {folder.name}")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    pair = Pair(target, {}, tokenizer, folder, weights_hash(folder))
    for name in drafts:
        pair.drafts[name] = models[name] if name in models else make_draft(name, pair)
    return pair


def load_prompts(which, folder=WEIGHTS):
    """Return {domain: array (prompts, tokens) of token ids} of the prompt set "calibration" or "test"."""
    if which not in PROMPT_SETS:
        raise ValueError(f"prompt set {which!r} unknown; there are {' and '.join(PROMPT_SETS)}")
    tensors = load_file(Path(folder) / "prompts.safetensors")
    return {domain: tensors[f"{which}.{domain}"] for domain in DOMAINS}


def sha256(path):
    """Return the hex digest of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def weights_hash(folder=WEIGHTS):
    """Return one short digest over all weight, tokenizer and prompt files of a folder."""
    files = sorted(p for p in Path(folder).iterdir() if p.suffix in (".safetensors", ".json"))
    return hashlib.sha256("".join(p.name + sha256(p) for p in files).encode()).hexdigest()[:16]
