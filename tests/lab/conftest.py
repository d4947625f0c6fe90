"""A random tiny pair in a folder, laid out like the committed one, so that most tests need no real weights."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

from safetensors.torch import save_file  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402

from specgain.lab.model import Config, Model, save  # noqa: E402
from specgain.lab.pair import DOMAINS, PROMPT_SETS, load_pair, sha256  # noqa: E402

VOCAB = 256


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


def random_weights(config, seed, scale=0.3):
    """Return random weights; with this scale greedy text wanders instead of standing still."""
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) * scale for name, shape in config.shapes().items()}


def random_pair(seed, dtype=torch.float64, noise=0.05, vocab=61):
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
    """A folder with target, two drafts, tokenizer and prompts of 12 tokens, three per domain and set."""
    folder = tmp_path_factory.mktemp("weights")
    config = Config(VOCAB, 32, 4, 48, 2, context=64)
    weights = random_weights(config, 7)
    save(folder / "target.safetensors", config, weights, {})
    for name, noise in (("weak", 0.2), ("strong", 0.02)):
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
