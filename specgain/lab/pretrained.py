"""What published models have in common, whatever file they come in: weights read when asked for, text, device, type."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from specgain.lab.model import WeightsError


@dataclass(frozen=True)
class Pretrained:
    """A published `Model` with its tokenizer, chat template, the ids that end a text, and `facts`: where it came from."""

    model: object
    tokenizer: object
    template: str | None  # Jinja
    ends: tuple
    facts: dict

    @property
    def eos(self):
        """The token id that ends an answer."""
        return self.ends[0]

    def encode(self, text):
        """Return the token ids of `text`, without a token of its own at the start."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens):
        """Return the text of token ids, special tokens included."""
        return self.tokenizer.decode([int(token) for token in tokens], skip_special_tokens=False)

    def chat(self, messages, **options):
        """Return the token ids of a conversation that waits for the model's answer.

        `messages` is one str, what the user says, or a list of {"role", "content"}; `options` go to the template.
        """
        return self.encode(chat_text(self.template, messages, **options))


def chat_text(template, messages, **options):
    """Return a conversation as text in the model's own format. ValueError without a template, or if it refuses."""
    from jinja2 import TemplateError  # every PyTorch brings jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(reason):
        raise TemplateError(reason)

    if not template:
        raise ValueError("this model has no chat template; give it plain text through encode()")
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    settings = {"trim_blocks": True, "lstrip_blocks": True, "extensions": ["jinja2.ext.loopcontrols"]}
    environment = ImmutableSandboxedEnvironment(**settings)
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(template).render(messages=messages, **{"add_generation_prompt": True} | options)
    except TemplateError as error:
        raise ValueError(f"the model's chat template refuses these messages: {error}") from error


class Weights(Mapping):
    """{tensor name: tensor}, each joined from the file's tensors, and checked, only when it is asked for.

    `parts` {our name: the file's names} and `read` (a function from the file's name to a tensor) say how.
    """

    def __init__(self, name, config, parts, read):
        self.name, self.parts, self.read, self.shapes = name, parts, read, config.shapes()

    def __iter__(self):
        return iter(self.shapes)

    def __len__(self):
        return len(self.shapes)

    def __getitem__(self, name):
        parts = [self.read(part) for part in self.parts[name]]
        tensor, shape = torch.cat(parts) if len(parts) > 1 else parts[0], self.shapes[name]
        where = f"{self.name}: {' + '.join(self.parts[name])}"
        if tuple(tensor.shape) != shape:
            raise WeightsError(f"{where} has shape {tuple(tensor.shape)}; the model's settings ask for {shape}")
        if (
            not tensor.is_floating_point() or not tensor.sum(dtype=torch.float32).isfinite()
        ):  # a NaN or ∞ stays in the sum
            raise WeightsError(f"{where} holds something else than finite numbers; the file is damaged")
        return tensor


def parts(config, outer, prefix, inner):
    """Return {our tensor name: the file's names}: `outer` as it is, `inner` behind `prefix` with the layer's number."""
    layers = range(config.layers)
    return outer | {
        f"layers.{i}.{ours}": [f"{prefix.format(i)}{name}.weight" for name in names]
        for i in layers
        for ours, names in inner.items()
        if config.qk_norm or ours not in ("q_norm", "k_norm")
    }


def check_names(name, wanted, found, ignored=()):
    """WeightsError if tensors are missing, or if there are some that the forward pass would leave out."""
    wanted, found = {part for names in wanted.values() for part in names}, set(found) - set(ignored)
    if missing := sorted(wanted - found):
        raise WeightsError(f"{name} lacks {_some(missing)}")
    if unknown := sorted(found - wanted):
        raise WeightsError(f"{name} holds {_some(unknown)}, which this kind of model does not have")


def _some(names):
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def place(device=None, dtype=None):
    """Return (device, dtype). Default: a CUDA GPU if there is one; float32 on CPU, else bfloat16, or float16 on old GPUs.

    Below compute capability 8.0 a GPU has no bfloat16 arithmetic of its own, whatever `is_bf16_supported` says.
    ValueError if CUDA is asked for and absent.
    """
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = torch.device(device or ("cuda" if there else "cpu"))
    if device.type == "cuda" and (device.index or 0) >= there:
        raise ValueError(f"device = '{device}': this PyTorch sees {there} CUDA devices; use device='cpu'")
    if dtype is None and device.type == "cuda":
        dtype = torch.float16 if torch.cuda.get_device_capability(device) < (8, 0) else torch.bfloat16
    return device, dtype or torch.float32
