"""The benchmarks against peers compare like with like; no test looks at a time."""

import json

import pytest
import torch

from benchmarks import overhead, peers
from specgain.lab.loop import generate
from specgain.lab.model import Cache, Config, Model


@pytest.fixture
def transformers():
    return pytest.importorskip("transformers", reason="needs the extra specgain[peers]")


@pytest.mark.parametrize("kv_heads, tied", [(4, True), (2, False)])
def test_the_peer_runs_the_same_weights(transformers, make_weights, kv_heads, tied):
    config = Config(61, 32, 4, 48, 2, context=64, kv_heads=kv_heads, tied=tied, rope_base=5000.0, norm_eps=1e-4)
    model = Model(config, make_weights(config, 5, 0.1))
    tokens = torch.randint(61, (2, 20), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        logits = peers.as_llama(model, 64)(tokens).logits
    assert torch.allclose(logits, model(tokens, Cache(model, 2)), atol=1e-4)


def test_every_arm_writes_the_same_text_and_has_its_row(transformers, tiny_pair, capsys):
    found = peers.compare(1, 12, (2,), domains=["json", "prose"], pair=tiny_pair, progress=lambda text: None)
    assert [(row["kind"], row["gamma"], row["bar"]) for row in found["rows"]] == [
        ("plain", 0, 1.0), ("draft model", 2, 2.0), ("prompt lookup", 2, 2.0),
    ]  # fmt: skip
    assert found["different_texts"] == [] and len(found["samples_ms_per_token"]) == 6
    assert found["environment"]["transformers"] == transformers.__version__
    json.dumps(found, allow_nan=False)


def test_ratios_are_totals_over_totals():
    seconds = {("ours", "plain", 0): [1.0, 3.0], ("transformers", "plain", 0): [2.0, 10.0]}
    (row,) = peers.rows(seconds)
    assert row["ratio"] == 3.0 and (row["ours_ms"], row["transformers_ms"]) == (2000.0, 6000.0)


def test_without_the_peer_the_benchmark_says_so(monkeypatch, capsys):
    monkeypatch.setattr(peers, "find_spec", lambda name: None if name == "transformers" else object())
    assert peers.main([]) is None
    assert capsys.readouterr().out == "skipped: transformers missing; `pip install specgain[lab,peers]` brings both\n"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_forwards_are_timed_inside_their_rounds(tiny_pair, temperature):
    before = Model.__call__, Model.last
    (plain, spec) = overhead.tiny_cells(1, 8, (0, 2), (temperature,), domains=["json"], pair=tiny_pair)
    assert (Model.__call__, Model.last) == before and plain["rounds"] == 8 > spec["rounds"]
    for row in (plain, spec):
        assert 0 < row["forwards_ms"] < row["round_ms"] and 0 < row["overhead_percent"] < 100
        assert row["overhead_ms"] == pytest.approx(row["round_ms"] - row["forwards_ms"])


def test_the_forwards_of_a_prefill_are_no_part_of_a_round(tiny_pair, monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr(overhead, "perf_counter", lambda: next(ticks))  # every forward lasts one tick
    with overhead.forwards_timed() as total:
        generate(tiny_pair.target, [[1, 2, 3]], 1)
    assert total[0] == 1 and next(ticks) == 2  # one pass of the target, and no tick for the prefill
