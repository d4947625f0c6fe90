"""A random tiny pair in a folder, laid out like the committed one, so that most tests need no real weights."""

from importlib.util import find_spec

import pytest

VOCAB = 256

if any(find_spec(name) is None for name in ("torch", "tokenizers", "safetensors")):
    collect_ignore = [
        "test_gguf_file.py",
        "test_hub.py",
        "test_quantize.py",
        "test_quality.py",
        "test_shapes.py",
        "test_graphs.py",
        "test_tensors.py",
        "test_model.py",
        "test_loop.py",
        "test_measure.py",
        "test_pair.py",
        "test_cli_measure.py",
        "test_drafts.py",
        "test_sampling.py",
        "test_truncation.py",
        "test_workloads.py",
        "test_quantization.py",
        "test_confidence.py",
        "test_lengths.py",
    ]
else:
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from specgain.lab.model import Config, Model, save
    from specgain.lab.pair import DOMAINS, PROMPT_SETS, load_pair, sha256

    torch.set_num_threads(1)  # many small products: threads that wait for each other only slow the tests down


def pytest_unconfigure(config):
    """End a run without SmolLM2 with a line that counts what was not tested."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = [r for r in reporter.stats.get("skipped", []) if "no SmolLM2" in str(r.longrepr)] if reporter else []
    if skipped:
        reporter.write_line(f"{len(skipped)} tests of SmolLM2 were NOT RUN: to run them: make smollm2")


def random_weights(config, seed, scale=0.3):
    """Return random weights; with this scale greedy text wanders instead of standing still."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) * scale for name, shape in config.shapes().items()}


def random_pair(seed, dtype, noise=0.05, vocab=61):
    """Return (target, draft): two layers, and a noisy copy of the first one, which is right now and then."""
    config = Config(vocab, 32, 4, 48, 2, context=128)
    one = Config(vocab, 32, 4, 48, 1, context=128)
    weights, jitter = random_weights(config, seed), random_weights(one, seed + 1, noise)
    draft = {name: weights[name] + jitter[name] for name in one.shapes()}
    return Model(config, weights, dtype), Model(one, draft, dtype)


@pytest.fixture(scope="session")
def make_pair():
    return random_pair


@pytest.fixture(scope="session")
def make_weights():
    return random_weights


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A folder with target, three drafts, tokenizer and prompts of 12 tokens, three per domain and set."""
    folder = tmp_path_factory.mktemp("weights")
    config = Config(VOCAB, 32, 4, 48, 2, context=64)
    weights = random_weights(config, 7)
    save(folder / "target.safetensors", config, weights, {})
    for name, noise in (("weak", 0.2), ("middle", 0.05), ("strong", 0.02)):
        one = Config(VOCAB, 32, 4, 48, 1, context=64)
        jitter = random_weights(one, 8, noise)
        draft = {n: weights[n] + jitter[n] for n in one.shapes() if n != "embed"}
        link = {"target_sha256": sha256(folder / "target.safetensors")}
        save(folder / f"draft-{name}.safetensors", one, draft, link)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({character: i for i, character in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    generator = torch.Generator().manual_seed(9)
    names = [f"{which}.{domain}" for which in PROMPT_SETS for domain in DOMAINS]
    save_file({n: torch.randint(1, VOCAB, (3, 12), generator=generator) for n in names}, folder / "prompts.safetensors")
    return folder


@pytest.fixture(scope="session")
def tiny_pair(tiny_folder):
    return load_pair(folder=tiny_folder)
