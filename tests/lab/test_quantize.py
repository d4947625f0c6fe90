"""8-bit weights: exact whatever else is in the pass, near the original, and counter-examples that are none of both."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specgain.lab import quantize
from specgain.lab.loop import ModelDraft, decode
from specgain.lab.model import Cache, Config, Model
from specgain.lab.quantize import (
    PRODUCTS,
    QUANTIZED,
    Dynamic,
    Int8,
    WeightOnly,
    divergence,
    exact_product,
    is_exact,
    quantize_rows,
    rounded,
)

CONFIG = Config(61, 64, 4, 128, 2, context=64, kv_heads=2)


def random(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("shape", [(40, 24), (64, 1536), (7, 2100)])
def test_products_of_integers_are_exact(name, shape):
    if not is_exact(name):
        pytest.skip(f"{name} is not exact on this processor, and not used")
    generator = torch.Generator().manual_seed(3)
    weight = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
    for rows in (1, 2, 5, 17):
        x = torch.randint(-127, 128, (rows, shape[1]), generator=generator).float()
        assert torch.equal(PRODUCTS[name](weight)(x).double(), x.double() @ weight.double().T)


def test_some_product_is_exact_and_the_others_are_passed_over(monkeypatch):
    assert exact_product() in PRODUCTS

    class Saturates:
        def __init__(self, weight):
            self.weight = weight.double()

        def __call__(self, x):
            return (x.double() @ self.weight.T).clamp(-(2**15), 2**15 - 1)

    monkeypatch.setattr(quantize, "_chosen", {})
    monkeypatch.setattr(quantize, "PRODUCTS", {"saturates": Saturates, "missing": None, "blocks": PRODUCTS["blocks"]})
    assert exact_product() == "blocks"


def test_rows_are_rounded_by_their_own_scale():
    x = torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [100.0, 1.0, -1.0]])
    integers, scale = quantize_rows(x)
    assert integers[0].tolist() == [64.0, -127.0, 32.0] and integers[1].tolist() == [0.0, 0.0, 0.0]
    assert torch.all((integers * scale - x).abs() <= scale / 2 * (1 + 1e-6))


@given(rows=st.integers(1, 17), seed=st.integers(0, 10**6), loud=st.floats(1e-6, 1e6))
def test_a_row_is_the_same_bits_alone_and_in_any_company(rows, seed, loud):
    kernel = Int8(random(1, 96, 64))
    row, others = random(seed, 1, 64), random(seed + 1, rows, 64) * loud
    place = seed % (rows + 1)
    together = kernel(torch.cat([others[:place], row, others[place:]]))
    assert torch.equal(together[place], kernel(row)[0])


def test_int8_is_near_the_original():
    weight, x = random(1, 96, 256), random(2, 9, 256)
    exact = x @ weight.T
    for kernel in (Int8(weight), WeightOnly(weight)):
        assert (
            kernel(x) - exact
        ).std() < 0.012 * exact.std()  # two roundings of step amax/127, each step/√12, amax about 3 σ
        assert not torch.equal(kernel(x), exact)


def passes(kernel, make_weights):
    """Logits of the first of five tokens after a prompt, in passes whose other tokens differ, and the model."""
    model = Model(CONFIG, make_weights(CONFIG, seed=1), kernel=kernel)
    found = []
    for others in ([1, 2, 3, 4], [9, 8, 7, 6], [60, 60, 60, 60], [11, 30, 50, 12]):
        cache = Cache(model)
        model(torch.tensor([[3, 1, 4, 1, 5, 9]]), cache)
        found.append(model(torch.tensor([[2, *others]]), cache)[0, 0])
    return found, model


def test_the_logits_of_a_token_do_not_depend_on_the_candidates_behind_it(make_weights):
    found, _ = passes(Int8, make_weights)
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_dynamic_quantization_lets_candidates_change_the_logits_before_them(make_weights):
    if not hasattr(torch.ops.quantized, "linear_dynamic") or "none" in torch.backends.quantized.engine:
        pytest.skip("this PyTorch has no dynamic quantization")
    found, _ = passes(Dynamic, make_weights)
    assert any((found[0] - other).abs().max() > 0.01 * found[0].std() for other in found[1:])
    row = random(5, 1, 64)
    kernel = Dynamic(random(1, 96, 64))
    assert not torch.equal(kernel(torch.cat([row, 50 * random(6, 1, 64)]))[0], kernel(row)[0])


@pytest.mark.claims("C6.1")
@pytest.mark.parametrize("quantized", ["draft", "target", "both"])
def test_the_output_is_that_of_the_target_in_use(make_weights, quantized):
    """A quantized draft leaves the original target's text as it is; a quantized target has a text of its own."""
    weights = make_weights(CONFIG, seed=1)
    one = Config(61, 64, 4, 128, 1, context=64, kv_heads=2)
    jitter = make_weights(one, seed=2)
    near = {name: weights[name] + 0.05 * jitter[name] for name in one.shapes()}
    kernels = {part: Int8 if quantized in (part, "both") else "plain" for part in ("draft", "target")}
    original = Model(CONFIG, weights, torch.float64, "plain")
    target = Model(CONFIG, weights, torch.float64, kernels["target"])
    draft = ModelDraft(Model(one, near, torch.float64, kernels["draft"]))
    texts = []
    for prompt in ([1, 2, 3], [40, 50], [7], [60, 1, 60]):
        plain = decode(target, prompt, 40).tokens
        assert decode(target, prompt, 40, draft, 4).tokens == plain
        texts.append(plain == decode(original, prompt, 40).tokens)
    assert all(texts) == (quantized == "draft")


def test_divergence_of_a_model_from_itself_and_from_its_quantized_copy(make_weights):
    weights = make_weights(CONFIG, seed=1)
    model, other = Model(CONFIG, weights), Model(CONFIG, make_weights(CONFIG, seed=2))
    rows = [[1, 2, 3, 4, 5, 6], [7, 8, 9]]
    same = divergence(model, model, rows)
    assert same == {"kl": 0.0, "kl_max": 0.0, "agreement": 1.0, "positions": 9}
    near, far = (divergence(model, m, rows, skip=1) for m in (Model(CONFIG, weights, kernel=Int8), other))
    assert near["positions"] == 7 and 0 < near["kl"] < 0.05 * far["kl"] and near["kl"] <= near["kl_max"]
    with pytest.raises(ValueError, match="no position behind the first 6"):
        divergence(model, other, rows, skip=6)


def test_divergence_by_hand():
    """Two models whose logits are fixed: KL of (1/2, 1/2) from (1/4, 3/4)."""

    class Fixed:
        def __init__(self, *p):
            self.logits, self.device, self.dtype = torch.tensor(p).log(), torch.device("cpu"), torch.float32
            self.config = CONFIG

        def __call__(self, tokens, cache):
            return self.logits.expand(*tokens.shape, -1)

    found = divergence(Fixed(0.5, 0.5), Fixed(0.25, 0.75), [[0, 1]])
    assert found["kl"] == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))


@pytest.mark.parametrize("name", QUANTIZED)
def test_a_model_runs_with_every_kernel(name, make_weights):
    model = Model(CONFIG, make_weights(CONFIG, seed=1), kernel=QUANTIZED[name])
    assert model(torch.tensor([[1, 2, 3]]), Cache(model)).isfinite().all()


def test_rounded_weights_get_nearer_with_every_bit():
    weight, x = random(1, 96, 256), random(2, 9, 256)
    errors = [(rounded(bits)(weight)(x) - x @ weight.T).norm().item() for bits in range(2, 9)]
    assert errors == sorted(errors, reverse=True)
    integers, _ = quantize_rows(weight, 4)
    assert set(integers.unique().tolist()) == set(range(-7, 8))
    for bits in (1, 9, 4.0, True):
        with pytest.raises(ValueError, match="bits"):
            rounded(bits)
