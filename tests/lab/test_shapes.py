"""Shape-only pairs: the sizes that they are named after, the same weights every time, and no more memory than there is."""

import pytest
import torch

from specgain.lab import shapes
from specgain.lab.model import Cache, Config

# parameters as published (model cards: 0.49 B, 1.54 B, 7.61 B, 0.6 B, 4.0 B)
PUBLISHED = {"0.5b": 0.494e9, "1.5b": 1.54e9, "7b": 7.61e9, "0.6b": 0.596e9, "4b": 4.02e9}


@pytest.mark.parametrize("size", shapes.SHAPES)
def test_sizes_are_the_published_ones(size):
    assert shapes.parameters(shapes.SHAPES[size]) == pytest.approx(PUBLISHED[size], rel=0.01)


@pytest.fixture
def small(monkeypatch):
    one = Config(61, 32, 4, 48, 1, context=64, kv_heads=2)
    two = Config(61, 48, 4, 96, 2, context=64, tied=False)
    monkeypatch.setattr(shapes, "SHAPES", {"small": one, "large": two})
    return one, two


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_pair_runs_and_is_the_same_every_time(small, dtype):
    target, draft = shapes.shape_pair("small-large", "cpu", dtype)
    assert (draft.config, target.config) == small and target.dtype == dtype
    tokens = torch.tensor([[1, 2, 3]])
    for model in (target, draft):
        assert model(tokens, Cache(model)).isfinite().all()
    again, _ = shapes.shape_pair("small-large", "cpu", dtype)
    other, _ = shapes.shape_pair("small-large", "cpu", dtype, seed=5)
    assert torch.equal(again.embed, target.embed) and not torch.equal(other.embed, target.embed)
    matrix = target.layers[1][1].weight.float()
    assert matrix.std() == pytest.approx(0.02, rel=0.05) and not torch.equal(
        matrix[:48], target.layers[0][1].weight[:48].float()
    )


@pytest.mark.parametrize("name", ["7b", "small-huge", "small-large-small", ""])
def test_unknown_sizes_are_named(small, name):
    with pytest.raises(ValueError, match="write DRAFT-TARGET with two of small, large"):
        shapes.shape_pair(name, "cpu")


def test_a_pair_that_does_not_fit_is_refused_before_anything_is_drawn(monkeypatch):
    monkeypatch.setattr(shapes, "free_bytes", lambda device: 12e9)
    with pytest.raises(
        ValueError, match=r"pair '0.5b-7b' needs 32.4 GB for its weights in torch.float32; cpu has 12.0 GB"
    ):
        shapes.shape_pair("0.5b-7b", "cpu")
    assert shapes.free_bytes(torch.device("cpu")) > 0


@pytest.mark.parametrize("name, index", [("cuda", None), ("cuda:1", 1)])
def test_free_memory_of_a_gpu_is_asked_by_index(monkeypatch, name, index):
    monkeypatch.setattr(torch.cuda, "mem_get_info", {index: (7, 9)}.get)
    assert shapes.free_bytes(torch.device(name)) == 7
