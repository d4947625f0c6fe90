"""Llama and Qwen3 from folders that transformers wrote: the same logits; and every way in which a folder can be wrong."""

import json
from pathlib import Path

import pytest
import torch

from specgain.lab import hub
from specgain.lab.model import Cache, WeightsError
from specgain.lab.pretrained import chat_text, place

transformers = pytest.importorskip("transformers", reason="needs the extra peers")
VOCAB = 260
LLAMA = transformers.LlamaConfig(
    vocab_size=VOCAB, hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=6,
    num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=True,
    rope_parameters={"rope_type": "default", "rope_theta": 500000.0}, bos_token_id=256, eos_token_id=257,
)  # fmt: skip
QWEN3 = transformers.Qwen3Config(
    vocab_size=VOCAB, hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, head_dim=16,
    num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-6, tie_word_embeddings=False,
    rope_parameters={"rope_type": "default", "rope_theta": 1e6}, bos_token_id=256, eos_token_id=257,
)  # fmt: skip
KINDS = {"llama": (transformers.LlamaForCausalLM, LLAMA), "qwen3": (transformers.Qwen3ForCausalLM, QWEN3)}
TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<s>{% endif %}"
)


def write(folder, kind, seed=0, shards="1GB", **changes):
    """Save a random model of transformers with a byte tokenizer into `folder`; return the model."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    make, config = KINDS[kind]
    torch.manual_seed(seed)
    model = make(type(config).from_dict(config.to_dict() | changes)).eval()
    for name, weight in model.named_parameters():  # gains of 1 would hide a norm that is left out or swapped
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
        else:
            torch.nn.init.normal_(weight, 0, 0.2)
    model.save_pretrained(folder, max_shard_size=shards)
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """{kind: (folder, the model of transformers)}."""
    made = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    return {kind: (folder, write(folder, kind)) for kind, folder in made.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-4), (torch.float64, 1e-5)])
def test_logits_equal_those_of_transformers(folders, kind, dtype, bound):
    folder, theirs = folders[kind]
    ours = hub.load_hub(folder, dtype=dtype, device="cpu").model
    tokens = torch.randint(VOCAB, (2, 40), generator=torch.Generator().manual_seed(1))
    cache = Cache(ours, 2)
    parts = torch.cat([ours(part, cache) for part in tokens.split([25, 1, 5, 9], dim=1)], dim=1)
    with torch.inference_mode():
        expected = theirs.to(dtype)(tokens).logits  # its norms stay in float32
    theirs.to(torch.float32)
    assert expected.std() > 0.1  # so that the bound says something
    assert (parts - expected).abs().max() < bound


def test_weights_in_several_files_are_the_same_model(folders, tmp_path):
    write(tmp_path, "qwen3", shards="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    tokens = torch.arange(20)[None]
    one, many = (hub.load_hub(folder, device="cpu").model for folder in (folders["qwen3"][0], tmp_path))
    assert torch.equal(one(tokens, Cache(one)), many(tokens, Cache(many)))


def test_text_template_and_ends(folders):
    found = hub.load_hub(folders["llama"][0], device="cpu", kernel="plain")
    assert found.model.kernel == "plain"
    assert found.decode(found.encode("Số 12!")) == "Số 12!"
    assert found.decode(found.chat("hi")) == "<s>user: hi\n<s>"
    assert found.chat([{"role": "user", "content": "hi"}], add_generation_prompt=False)[-1] == found.encode("\n")[0]
    assert found.eos == 257 and found.facts["revision"] is None and found.facts["vocab_cut"] == 0
    with pytest.raises(ValueError, match="no chat template"):
        chat_text(None, "hi")
    with pytest.raises(ValueError, match="refuses these messages: two users"):
        chat_text("{{ raise_exception('two users') }}", "hi")


def test_a_pair_shares_its_vocabulary_and_a_longer_padding_is_cut(folders, tmp_path):
    padded = write(tmp_path, "llama", seed=3, vocab_size=VOCAB + 12)
    target, draft = hub.load_hub_pair((tmp_path, folders["llama"][0]), device="cpu")
    assert target.model.config.vocab == draft.model.config.vocab == VOCAB
    assert (target.facts["vocab_cut"], draft.facts["vocab_cut"]) == (12, 0)
    tokens = torch.arange(9)[None]
    with torch.inference_mode():
        expected = padded(tokens).logits[..., :VOCAB]
    assert (target.model(tokens, Cache(target.model)) - expected).abs().max() < 1e-4


def test_unequal_vocabularies_are_refused_before_weights_are_read(folders, tmp_path):
    write(tmp_path, "llama")
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text("utf-8").replace("</s>", "<end>"), "utf-8")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="do not share a vocabulary: 2 entries differ, such as"):
        hub.load_hub_pair((folders["llama"][0], tmp_path))
    with pytest.raises(ValueError, match="pair 'gpt' unknown; there are smollm2, qwen3"):
        hub.load_hub_pair("gpt")


def change(name, **values):
    """Return a function that changes keys of a JSON file in a folder (None: leave out)."""

    def do(folder):
        found = json.loads((folder / name).read_text("utf-8")) | values
        (folder / name).write_text(json.dumps({key: value for key, value in found.items() if value is not None}))

    return do


def cut(name, part):
    """Return a function that keeps only a part of a file."""

    def do(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * part)])

    return do


@pytest.mark.parametrize(
    "damage, message",
    [
        (change("config.json", model_type="gpt2"), "architecture 'gpt2'; known are llama, qwen3"),
        (change("config.json", attention_bias=True), "attention_bias = True changes the forward pass"),
        (change("config.json", rope_parameters={"rope_type": "yarn"}), r"scales its rotary positions \(yarn\)"),
        (change("config.json", hidden_size=None), "config.json is unusable .*hidden_size"),
        (change("config.json", num_attention_heads=5), "config.json is unusable .*heads = 5"),
        (
            change("config.json", num_hidden_layers=2),
            "holds model.layers.2.input_layernorm.weight, .* and 6 more, which",
        ),
        (change("config.json", num_hidden_layers=4), "lacks model.layers.3.input_layernorm.weight, .* and 6 more"),
        (change("config.json", intermediate_size=95), r"gate_proj.weight \+ .* has shape \(192, 48\); .* \(190, 48\)"),
        (change("config.json", vocab_size=200), "258 tokens, but only 200 rows of embedding"),
        (change("generation_config.json", eos_token_id=["</s>"]), "does not say which token ends an answer"),
        (cut("config.json", 0.5), "config.json of .* is missing or no JSON"),
        (cut("tokenizer.json", 0.5), "tokenizer.json of .* is missing or damaged"),
        (cut("model.safetensors", 0.5), "model.safetensors of .* is missing, damaged"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors of .* is missing"),
    ],
)
def test_a_wrong_folder_is_named(tmp_path, damage, message):
    write(tmp_path, "llama")
    damage(tmp_path)
    with pytest.raises(WeightsError, match=message):
        hub.load_hub(tmp_path, device="cpu")


def test_a_repository_is_fetched_and_its_version_recorded(folders, monkeypatch, tmp_path):
    import huggingface_hub

    snapshot = tmp_path / "snapshots" / "0123abc"
    snapshot.parent.mkdir()
    snapshot.symlink_to(folders["llama"][0])
    asked = []

    def download(repo_id, revision, allow_patterns):
        asked.append((repo_id, revision))
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    found = hub.load_hub("owner/model", "main", device="cpu")
    assert asked == [("owner/model", "main")]
    assert (found.facts["source"], found.facts["revision"]) == ("owner/model", "0123abc")

    def offline(*arguments, **options):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ConnectionError, match="owner/model .revision newest. is no folder here and .* no network"):
        hub.load_hub("owner/model")


def test_type_and_device_fit_the_gpu(monkeypatch):
    assert not torch.cuda.is_available() or place()[0].type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert place() == (torch.device("cpu"), torch.float32)
    with pytest.raises(ValueError, match="device = 'cuda': this PyTorch sees 0 CUDA devices"):
        place("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    for capability, dtype in (((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, capability=capability: capability)
        assert place() == (torch.device("cuda"), dtype)
    assert place("cuda:0", torch.float64) == (torch.device("cuda:0"), torch.float64)
    assert place("cpu") == (torch.device("cpu"), torch.float32)
    with pytest.raises(ValueError, match="device = 'cuda:3'"):
        place("cuda:3")


def test_pairs_are_named_by_owner():
    assert all(len(pair) == 2 and all(Path(name).parent.name for name in pair) for pair in hub.PAIRS.values())
