"""The forward pass and its cache against whole-sequence passes; weight files that are damaged in every way."""

import json
from dataclasses import asdict
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from specgain.lab import linear as lab_linear
from specgain.lab.linear import KERNELS, can_pack
from specgain.lab.model import Cache, Config, Model, WeightsError, load, save

CONFIG = Config(61, 32, 4, 48, 2, context=64)


def reference(weights, config, tokens):
    """Logits (n, vocab) of one sequence, written out plainly: loops over layers, heads and positions."""
    x = weights["embed"][tokens].double()
    w = {name: weight.double() for name, weight in weights.items()}
    half = config.head_width // 2
    for i in range(config.layers):
        h = _rms(x, config) * w[f"layers.{i}.norm1"]
        q, k, v = (h @ w[f"layers.{i}.qkv"].T).chunk(3, dim=1)
        mixed = torch.zeros_like(x)
        for head in range(config.heads):
            part = slice(head * config.head_width, (head + 1) * config.head_width)
            keys = torch.stack([_turn(k[p, part], p, half, config) for p in range(len(x))])
            for p in range(len(x)):
                scores = keys[: p + 1] @ _turn(q[p, part], p, half, config) / config.head_width**0.5
                mixed[p, part] = scores.softmax(0) @ v[: p + 1, part]
        x = x + mixed @ w[f"layers.{i}.out"].T
        gate, up = ((_rms(x, config) * w[f"layers.{i}.norm2"]) @ w[f"layers.{i}.gate_up"].T).chunk(2, dim=1)
        x = x + (gate * torch.sigmoid(gate) * up) @ w[f"layers.{i}.down"].T
    return (_rms(x, config) * w["final_norm"]) @ w["embed"].T


def _rms(x, config):
    return x / (x.pow(2).mean(dim=1, keepdim=True) + config.norm_eps).sqrt()


def _turn(x, position, half, config):
    """Rotate the pairs (x_j, x_{j+half}) as complex numbers."""
    angles = position * config.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag))


@pytest.mark.parametrize("dtype, bound", [(torch.float64, 1e-6), (torch.float32, 1e-3)])
def test_forward_equals_a_plain_reference(make_weights, dtype, bound):
    weights = make_weights(CONFIG, seed=1)
    tokens = torch.randint(61, (17,), generator=torch.Generator().manual_seed(2))
    model = Model(CONFIG, weights, dtype)
    logits = model(tokens[None], Cache(model))[0]
    assert (logits - reference(weights, CONFIG, tokens)).abs().max() < bound * logits.abs().max()


def test_any_split_into_calls_gives_the_same_logits(make_weights):
    model = Model(CONFIG, make_weights(CONFIG, seed=1), torch.float64)
    tokens = torch.randint(61, (1, 20), generator=torch.Generator().manual_seed(3))
    whole = model(tokens, Cache(model))
    for sizes in ([1] * 20, [5, 1, 9, 5], [19, 1]):
        cache = Cache(model)
        parts = torch.cat([model(part, cache) for part in tokens.split(sizes, dim=1)], dim=1)
        assert torch.allclose(parts, whole, atol=1e-9)
        assert cache.length == [20]


def test_rows_of_different_length_do_not_disturb_each_other(make_weights):
    model = Model(CONFIG, make_weights(CONFIG, seed=1), torch.float64)
    rows = [torch.randint(61, (n,), generator=torch.Generator().manual_seed(n)) for n in (3, 9, 6)]
    new = torch.randint(61, (3, 4), generator=torch.Generator().manual_seed(5))
    together = Cache(model, 3)
    model(torch.stack([F.pad(row, (0, 9 - len(row))) for row in rows]), together)
    together.length = [len(row) for row in rows]  # what was fed as padding is rolled back
    logits = model(new, together)
    for i, row in enumerate(rows):
        alone = Cache(model)
        model(row[None], alone)
        assert torch.allclose(model(new[i : i + 1], alone)[0], logits[i], atol=1e-9)
    assert together.length == [7, 13, 10]


def test_roll_back_forgets_completely(make_weights):
    model = Model(CONFIG, make_weights(CONFIG, seed=1), torch.float64)
    cache, fresh = Cache(model), Cache(model)
    prompt, wrong, right = torch.tensor([[1, 2, 3]]), torch.tensor([[9, 9, 9, 9]]), torch.tensor([[4, 5]])
    model(prompt, cache)
    model(wrong, cache)
    cache.length = [3]
    model(prompt, fresh)
    assert torch.equal(model(right, cache), model(right, fresh))


def test_packed_product_equals_the_public_one():
    if not can_pack():
        pytest.skip("this PyTorch has no packed oneDNN linear; the public fallback is used")
    generator = torch.Generator().manual_seed(0)
    large = lab_linear.LARGE_FOR_MKL // 40 + 1
    for rows, outputs in product((1, 2, 3, 4, 5, 9, 64), (96, large)):
        weight, x = torch.randn(outputs, 40, generator=generator), torch.randn(rows, 40, generator=generator)
        for linear in (kernel(weight) for kernel in KERNELS.values()):
            assert torch.allclose(linear(x), F.linear(x, weight), atol=1e-5)


def test_without_the_private_operators_the_model_falls_back(make_weights, monkeypatch):
    def missing(weight):
        raise AttributeError("no such operator")

    monkeypatch.setattr(lab_linear, "_pack", missing)
    assert not can_pack()
    for mkl_is_fast, kernel in ((True, "plain"), (False, "public")):
        monkeypatch.setattr(lab_linear, "mkl_is_fast", lambda fast=mkl_is_fast: fast)
        model = Model(CONFIG, make_weights(CONFIG, seed=1))
        assert model.kernel == kernel
        assert model(torch.tensor([[1, 2, 3]]), Cache(model)).isfinite().all()


@pytest.mark.parametrize(("text", "mkl", "fast"), [
    ("vendor_id\t: GenuineIntel\n", True, True),
    ("vendor_id\t: GenuineIntel\n", False, False),
    ("vendor_id\t: AuthenticAMD\n", True, False),
    (None, True, True),  # no /proc: Windows names the maker elsewhere
])  # fmt: skip
def test_the_kernel_depends_on_the_maker_of_the_processor(monkeypatch, text, mkl, fast):
    def read(path, encoding):
        if text is None:
            raise FileNotFoundError(path)
        return text

    monkeypatch.setattr(lab_linear.Path, "read_text", read)
    monkeypatch.setattr(lab_linear.platform, "processor", lambda: "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    assert lab_linear.mkl_is_fast.__wrapped__() == fast
    monkeypatch.setattr(lab_linear, "mkl_is_fast", lambda: fast)
    monkeypatch.setattr(lab_linear, "can_pack", lambda: True)
    assert lab_linear.best_kernel(torch.float32) == ("mixed" if fast else "packed")
    assert lab_linear.best_kernel(torch.float64) == "public" and lab_linear.best_kernel(torch.float32, "cuda") == "plain"


def test_a_model_with_another_kernel_shares_its_weights(make_weights):
    model = Model(CONFIG, make_weights(CONFIG, seed=1), kernel="plain")
    other, tokens = model.with_kernel("public"), torch.tensor([[1, 2, 3]])
    assert (other.kernel, model.kernel) == ("public", "plain") and other.head.weight is model.head.weight
    assert torch.allclose(other(tokens, Cache(other)), model(tokens, Cache(model)), atol=1e-5)


def test_a_full_cache_says_so(make_weights):
    model = Model(CONFIG, make_weights(CONFIG, seed=1))
    cache = Cache(model, capacity=8)
    model(torch.ones(1, 6, dtype=torch.long), cache)
    with pytest.raises(ValueError, match=r"3 more positions do not fit: the cache holds 8 and a row has 6"):
        model(torch.ones(1, 3, dtype=torch.long), cache)
    assert cache.length == [6]
    with pytest.raises(ValueError, match="capacity = 65 must be from 1 to the model's context of 64"):
        Cache(model, capacity=65)


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path, make_weights):
    path = tmp_path / "target.safetensors"
    save(path, CONFIG, make_weights(CONFIG, seed=1), {"seed": "1"})
    return path


def rewrite(path, metadata=None, **tensors):
    """Change tensors (None: leave out) or metadata of a weight file."""
    with safe_open(path, framework="pt") as old:
        header = old.metadata() | (metadata or {})
    weights = {name: t for name, t in (load_file(path) | tensors).items() if t is not None}
    save_file(weights, path, header)


def test_saved_weights_come_back_as_half_precision(file, make_weights):
    model = load(file)
    assert model.config == CONFIG and model.embed.dtype == torch.float32
    assert torch.equal(model.embed, make_weights(CONFIG, seed=1)["embed"].half().float())


def test_a_file_cut_anywhere_is_refused(file):
    whole = file.read_bytes()
    for size in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(WeightsError, match="target.safetensors is damaged or not a safetensors file"):
            load(file)


def test_noise_in_the_header_is_refused(file):
    data = bytearray(file.read_bytes())
    data[8:40] = b"\xff" * 32
    file.write_bytes(bytes(data))
    with pytest.raises(WeightsError, match="damaged"):
        load(file)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"metadata": {"format": "specgain.weights/9"}}, "has format 'specgain.weights/9'; this version reads"),
        ({"metadata": {"config": "{"}}, "config is unusable"),
        ({"metadata": {"config": json.dumps({"vocab": 61})}}, "it must hold vocab, width, heads"),
        ({"metadata": {"config": json.dumps(asdict(CONFIG) | {"heads": 5})}}, "heads = 5 with kv_heads = 4"),
        ({"metadata": {"config": json.dumps(asdict(CONFIG) | {"heads": 0})}}, "heads = 0 must be"),
        ({"metadata": {"config": json.dumps(asdict(CONFIG) | {"layers": "2"})}}, "layers = '2' must be a whole number"),
        ({"metadata": {"config": json.dumps(asdict(CONFIG) | {"norm_eps": float("nan")})}}, "norm_eps = nan"),
        ({"final_norm": torch.ones(32, dtype=torch.int8)}, "final_norm holds torch.int8"),
        ({"layers.1.out": None}, "lacks layers.1.out"),
        ({"embed": None}, "pass embed=target.embed"),
        ({"layers.2.out": torch.zeros(32, 32)}, "holds layers.2.out, which a model of 2 layers does not have"),
        ({"layers.0.qkv": torch.zeros(32, 96)}, r"layers.0.qkv has shape \(32, 96\); the config asks for \(96, 32\)"),
        ({"final_norm": torch.full((32,), float("nan"))}, "final_norm holds numbers that are not finite"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(file, change, message):
    rewrite(file, **change)
    with pytest.raises(WeightsError, match=message):
        load(file)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.safetensors does not exist"):
        load(tmp_path / "nowhere.safetensors")


WIDE = Config(61, 32, 4, 48, 2, context=64, kv_heads=2, head_width=12, qk_norm=True, tied=False)


@pytest.mark.parametrize("config", [CONFIG, WIDE])
def test_a_ragged_pass_equals_each_row_alone(make_weights, config):
    model = Model(config, make_weights(config, seed=1), torch.float64)
    generator, widths = torch.Generator().manual_seed(4), ([7, 3, 1], [2, 5, 0], [1, 1, 4])
    together, alone = Cache(model, 3), [Cache(model) for _ in range(3)]
    for wide in widths:
        tokens = torch.randint(61, (3, max(wide)), generator=generator)
        parts = model(tokens, together, wide).split(wide)
        for row, (n, part) in enumerate(zip(wide, parts, strict=True)):
            if n:
                assert torch.allclose(model(tokens[row : row + 1, :n], alone[row])[0], part, atol=1e-9)
    assert together.length == [sum(column) for column in zip(*widths, strict=True)]


@pytest.mark.parametrize("config", [CONFIG, WIDE])
def test_the_nodes_of_a_tree_see_only_what_leads_to_them(make_weights, config):
    model = Model(config, make_weights(config, seed=1), torch.float64)
    prompt, nodes = torch.tensor([[1, 2, 3]]), torch.tensor([[9, 10, 11, 12, 13]])
    parents, depth = [None, 0, 0, 1, 2], torch.tensor([0, 1, 1, 2, 2])
    paths = [[0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]]
    assert [path[-2] if len(path) > 1 else None for path in paths] == parents
    sees = torch.zeros(5, 5, dtype=torch.bool)
    for node, path in enumerate(paths):
        sees[node, path] = True
    cache = Cache(model, 2)
    model(prompt.repeat(2, 1)[:, :3], cache, [3, 1])
    x, place = model.hidden(nodes.repeat(2, 1), cache, tree=(depth, sees))
    logits = place.pad(model.logits(x))
    for row, context in ((0, [1, 2, 3]), (1, [1])):
        for node, path in enumerate(paths):
            alone = model(torch.tensor([context + nodes[0, path].tolist()]), Cache(model))[0, -1]
            assert torch.allclose(alone, logits[row, node], atol=1e-9)


def test_taps_hold_the_outputs_of_the_layers(make_weights):
    model = Model(CONFIG, make_weights(CONFIG, seed=1), torch.float64)
    taps = {-1: None, 1: None}
    x, _ = model.hidden(torch.tensor([[1, 2, 3]]), Cache(model), taps=taps)
    assert torch.equal(taps[-1], model.embed[[1, 2, 3]]) and torch.equal(taps[1], x)
