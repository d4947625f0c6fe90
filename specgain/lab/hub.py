"""Published pairs from the Hugging Face hub, or from a folder of the same files: Llama and Qwen3 architectures.

A model is what its config.json says; weights are read from safetensors one tensor at a time. A pair must share its
vocabulary: the same text for the same id. Some models pad the embedding with rows that no text uses; a longer padding
is cut off, and the facts say so.
"""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from specgain.lab.model import Config, Model, WeightsError, check_config
from specgain.lab.pretrained import Pretrained, Weights, check_names, parts, place

PAIRS = {  # name: (target, draft); free to download, without an account
    "smollm2": ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    "qwen3": ("Qwen/Qwen3-4B", "Qwen/Qwen3-0.6B"),
}
FILES = ["*.json", "*.safetensors", "*.jinja"]
OUTER = {"embed": ["model.embed_tokens.weight"], "final_norm": ["model.norm.weight"]}
INNER = {
    "norm1": ["input_layernorm"], "qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "out": ["self_attn.o_proj"], "norm2": ["post_attention_layernorm"], "gate_up": ["mlp.gate_proj", "mlp.up_proj"],
    "down": ["mlp.down_proj"], "q_norm": ["self_attn.q_norm"], "k_norm": ["self_attn.k_norm"],
}  # fmt: skip
ARCHITECTURES = ("llama", "qwen3")
MUST_BE = {  # settings that would change the forward pass, and the values with which they do not
    "attention_bias": (None, False), "mlp_bias": (None, False), "use_sliding_window": (None, False),
    "hidden_act": (None, "silu"), "pretraining_tp": (None, 1), "quantization_config": (None,),
}  # fmt: skip


def load_hub(repo_id, revision=None, dtype=None, device=None, kernel=None, vocab=None):
    """Return the `Pretrained` of a repository on the hub, or of a local folder; `facts["revision"]` says which version.

    `vocab` keeps only that many rows of the embedding. WeightsError for an architecture or setting that the forward pass
    does not have, or for damaged files; ConnectionError if the hub cannot be reached.
    """
    device, dtype = place(device, dtype)
    folder, found = fetch(repo_id, revision)
    settings = _json(folder, "config.json")
    config = read_config(repo_id, settings, vocab)
    wanted = parts(config, OUTER | ({} if config.tied else {"head": ["lm_head.weight"]}), "model.layers.{}.", INNER)
    where = _index(folder)
    check_names(repo_id, wanted, where, ["lm_head.weight"] if config.tied else [])
    tokenizer = _tokenizer(folder)
    if len(tokenizer.get_vocab()) > config.vocab:
        raise WeightsError(f"{repo_id}: {len(tokenizer.get_vocab())} tokens, but only {config.vocab} rows of embedding")
    weights = Weights(repo_id, config, wanted, lambda name: _read(folder, where[name], name, config.vocab))
    facts = {
        "source": str(repo_id), "revision": found, "dtype": str(dtype).removeprefix("torch."),
        "vocab": config.vocab, "vocab_cut": settings["vocab_size"] - config.vocab, "tokens": len(tokenizer.get_vocab()),
    }  # fmt: skip
    model = Model(config, weights, dtype, kernel, device)
    return Pretrained(model, tokenizer, _template(folder), _ends(folder, settings), facts)


def load_hub_pair(name, dtype=None, device=None, revisions=(None, None)):
    """Return (target, draft), two `Pretrained` models with one vocabulary, of a pair in `PAIRS` or of two repositories or folders.

    ValueError if some token means another text in the other model.
    """
    if isinstance(name, str) and name not in PAIRS:
        raise ValueError(f"pair {name!r} unknown; there are {', '.join(PAIRS)}, or give two repositories or folders")
    names = PAIRS[name] if isinstance(name, str) else tuple(name)
    folders = [fetch(*both)[0] for both in zip(names, revisions, strict=True)]
    sizes = [_json(folder, "config.json").get("vocab_size", 0) for folder in folders]
    check_vocabularies(names, *[_tokenizer(folder).get_vocab() for folder in folders])
    both = zip(names, revisions, strict=True)
    return tuple(load_hub(one, revision, dtype, device, vocab=min(sizes)) for one, revision in both)


def check_vocabularies(names, one, two):
    """ValueError unless {text: id} of both tokenizers are the same."""
    if one != two:
        text = min(one.items() ^ two.items(), key=lambda item: item[1])[0]
        raise ValueError(
            f"{names[0]} and {names[1]} do not share a vocabulary: {len(one.items() ^ two.items())} entries differ, "
            f"such as {text!r} with id {one.get(text)} and {two.get(text)}; a draft needs its target's tokens"
        )


def fetch(repo_id, revision=None):
    """Return (folder, revision): the files of a repository, downloaded if need be, and the full hash of the version.

    A local folder is returned as it is, with revision None.
    """
    if Path(repo_id).is_dir():
        return Path(repo_id), None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(str(repo_id), revision=revision, allow_patterns=FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ConnectionError(
            f"{repo_id} (revision {revision or 'newest'}) is no folder here and could not be downloaded: {error}"
        ) from error
    return folder, folder.name  # the hub's cache names a snapshot after its commit


def read_config(name, settings, vocab=None):
    """Return the `Config` of a config.json; WeightsError for what the forward pass does not have."""
    if (kind := settings.get("model_type")) not in ARCHITECTURES:
        raise WeightsError(f"{name} is of architecture {kind!r}; known are {', '.join(ARCHITECTURES)}")
    for key, values in MUST_BE.items():
        if settings.get(key) not in values:
            raise WeightsError(
                f"{name}: {key} = {settings[key]!r} changes the forward pass; only {values[-1]!r} is known"
            )
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    if (scaling := rope.get("rope_type", rope.get("type", "default"))) != "default":
        raise WeightsError(f"{name} scales its rotary positions ({scaling}), which this forward pass does not")
    try:
        heads, size = settings["num_attention_heads"], settings["vocab_size"]
        config = Config(
            vocab=size if vocab is None else vocab,
            width=settings["hidden_size"],
            heads=heads,
            hidden=settings["intermediate_size"],
            layers=settings["num_hidden_layers"],
            context=settings["max_position_embeddings"],
            rope_base=rope.get("rope_theta", settings.get("rope_theta", 10000.0)),
            norm_eps=settings["rms_norm_eps"],
            kv_heads=settings.get("num_key_value_heads") or heads,
            head_width=settings.get("head_dim") or (128 if kind == "qwen3" else settings["hidden_size"] // heads),
            qk_norm=kind == "qwen3",
            tied=settings.get("tie_word_embeddings", False),
        )
        check_config(config)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise WeightsError(f"{name}: config.json is unusable ({error!r})") from error
    if config.vocab > size:
        raise ValueError(f"vocab = {vocab} is more than the {size} rows of {name}")
    return config


def _json(folder, name, needed=True):
    path = folder / name
    if not path.is_file() and not needed:
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WeightsError(f"{name} of {folder.name} is missing or no JSON: {error}") from error
    if not isinstance(found, dict):
        raise WeightsError(f"{name} of {folder.name} is no JSON object")
    return found


def _index(folder):
    """{the file's tensor name: file} over all parts of the weights."""
    index = _json(folder, "model.safetensors.index.json", needed=False)
    if index:
        names = set(index.get("weight_map", {}).values())
    else:
        names = {"model.safetensors"}
    found = {}
    for name in sorted(names):
        try:
            with safe_open(folder / name, framework="pt") as file:
                found |= dict.fromkeys(file.keys(), name)
        except (SafetensorError, OSError) as error:
            raise WeightsError(
                f"{name} of {folder.name} is missing, damaged or no safetensors file ({error})"
            ) from error
    return found


def _read(folder, file, name, vocab):
    """One tensor; of the embedding and the head the first `vocab` rows."""
    with safe_open(folder / file, framework="pt") as opened:
        tensor = opened.get_tensor(name)
    return tensor[:vocab] if name in ("model.embed_tokens.weight", "lm_head.weight") else tensor


def _tokenizer(folder):
    try:
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:  # what the package raises has no class of its own
        raise WeightsError(f"tokenizer.json of {folder.name} is missing or damaged: {error}") from error


def _template(folder):
    """The chat template, from its own file or the tokenizer's settings; None if there is none."""
    if (path := folder / "chat_template.jinja").is_file():
        return path.read_text(encoding="utf-8")
    return _json(folder, "tokenizer_config.json", needed=False).get("chat_template")


def _ends(folder, settings):
    """The ids that end an answer."""
    ends = _json(folder, "generation_config.json", needed=False).get("eos_token_id", settings.get("eos_token_id"))
    ends = ends if isinstance(ends, list) else [ends]
    if not ends or not all(type(end) is int for end in ends):
        raise WeightsError(f"{folder.name} does not say which token ends an answer: eos_token_id = {ends}")
    return tuple(ends)
