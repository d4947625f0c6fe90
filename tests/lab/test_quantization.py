"""The committed measurement of quantization and speculation: planned, consistent with itself, and what chapter 6 says."""

import json
import sys
from pathlib import Path

import pytest

from specgain import gain

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
FOLDER = ROOT / "notebooks" / "measurements" / "cpu-2core"
RESULT, PLAN = (json.loads((FOLDER / f"quantization{x}.json").read_text(encoding="utf-8")) for x in ("", "-plan"))


@pytest.fixture(scope="module")
def tool():
    import measure_quantization

    return measure_quantization


def test_the_measurement_is_the_planned_one(tool):
    assert RESULT["plan"] == PLAN == tool.make_plan()


@pytest.mark.parametrize("part", ["tiny", "smollm2"])
def test_cells_follow_from_the_requests(tool, part):
    stored = RESULT["time"][part]
    assert stored["cells"] == tool.cells_of(PLAN[part], stored["requests"])
    for c in stored["cells"]:
        assert c["product"] == pytest.approx(c["quantized"] * c["speculative"])
        assert c["both_over_product"] == pytest.approx(c["both"] / c["product"])
        for name in tool.STATISTICS:
            low, high = c[f"{name}_interval"]
            assert low <= c[name] <= high


def test_every_greedy_text_is_its_targets_own_or_its_first_difference_is_on_record():
    for part in ("tiny", "smollm2"):
        greedy = [r for r in RESULT["time"][part]["requests"] if PLAN[part]["temperature"][r["domain"]] == 0]
        assert greedy and all(r["plain_text"] for r in greedy if r["target"] == "fp32")
        assert all(r["plain_text"] != ("difference" in r) for r in greedy)


@pytest.mark.claims("C6.1")
def test_the_target_decides_and_exactness_is_a_property_of_kernels():
    equal = {(r["target"], r["draft"]): r for r in RESULT["texts"]["equal"]}
    for target, other in (("fp32", "int8_exact"), ("int8 exact", "fp32")):
        for draft in ("none", "fp32", "int8"):
            row = equal[target, draft]
            assert row[f"equal_to_{target.replace(' ', '_')}"] == row["texts"] > row[f"equal_to_{other}"]
    differ = {r["kernel"]: r["differ"] for r in RESULT["texts"]["smollm2"]}
    assert 0 == differ["int8 exact"] < differ["int8"] < differ["int8 dynamic"]


def test_exact_attention_is_attention_and_the_same_in_every_company():
    import torch

    from specgain.lab.quantize import exact_attention

    make = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, 3, n, 16, generator=make) for n in (5, 40, 40))
    mask = torch.arange(40) <= torch.arange(35, 40)[:, None]
    whole = exact_attention(q, k, v, mask)
    plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert torch.allclose(whole, plain, atol=1e-5)
    for i in range(5):
        alone = exact_attention(q[:, :, i : i + 1], k[:, :, : 36 + i], v[:, :, : 36 + i])
        assert torch.equal(alone, whole[:, :, i : i + 1])


def test_fewer_bits_are_further_away():
    found = RESULT["texts"]["quality"]
    kl = [found[name]["kl"] for name in ("fp32", "int8", "4 bits", "3 bits")]
    assert kl == sorted(kl) and kl[0] == 0 < kl[1]


def test_lengths_of_heads_follow_from_their_requests():
    for c in RESULT["heads"]["cells"]:
        tokens, rounds = (sum(pair[i] for pair in c["by_request"]) for i in (0, 1))
        assert c["committed_length"] == pytest.approx(tokens / rounds)
        assert c["interval"][0] <= c["committed_length"] <= c["interval"][1]


@pytest.mark.claims("C6.1")
def test_small_run_of_the_tool(tool):
    """Two prompts of eight tokens: the four runs, their texts, and the ledger's identity."""
    pairs = {f: tool.load_pair(["strong"], kernel=k, draft_kernel=k) for f, k in tool.KERNEL.items()}
    part = PLAN["tiny"] | {
        "temperature": {"viet": 0.0},
        "prompts": {"calibration": 1, "test": 2},
        "repeats": 1,
        "new_tokens": 8,
    }
    prompts = tool.load_prompts("test")["viet"]
    out = tool.timed(part, {f: p.target for f, p in pairs.items()}, {f: p.drafts["strong"] for f, p in pairs.items()},
                     lambda which, domain, i: prompts[i].tolist())  # fmt: skip
    assert len(out["requests"]) == 3 * 2 * len(part["arms"]) and all(r["plain_text"] for r in out["requests"])
    assert len(out["cells"]) == len(part["arms"]) - 1
    plain, both = ([r for r in out["requests"] if r["set"] == "calibration" and (r["target"], r["draft"], r["gamma"]) == key]
                   for key in (("fp32", "none", 0), ("int8", "fp32", 4)))  # fmt: skip
    rounds, tokens = both[0]["rounds"], both[0]["tokens"]
    expected = gain.speedup(tokens / rounds, plain[0]["time_ms"] / plain[0]["tokens"], both[0]["time_ms"] / rounds)
    assert tool.ledger(plain, both) == pytest.approx(expected)


def test_borrowed_features_are_those_of_the_other_model(tool):
    """With the original as its own source nothing changes; with a coarse target the head reads other numbers."""
    import torch

    original = tool.load(tool.WEIGHTS / "target.safetensors")
    coarse = tool.load(tool.WEIGHTS / "target.safetensors", kernel=tool.rounded(3))
    prompt = tool.load_prompts("test")["viet"][0].tolist()
    seen = {}
    for name, target in (("own", tool.Tapped(coarse)), ("borrowed", tool.Borrowed(coarse, original)),
                         ("original", tool.Tapped(original))):  # fmt: skip
        text = tool.generate(target, [prompt], 8, tool.load_head("eagle", target), 3).outputs[0].tokens
        seen[name] = text, target.features[0, : len(prompt) - 1].clone()
    assert seen["own"][0] == seen["borrowed"][0]  # the verifier is the same
    assert torch.equal(seen["borrowed"][1], seen["original"][1]) and not torch.equal(
        seen["own"][1], seen["original"][1]
    )


def test_parts_of_another_plan_are_not_kept_beside_a_new_one(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "RESULT", tmp_path / "quantization.json")
    tool.keep(PLAN, texts={"equal": []})
    tool.keep(PLAN, heads={"cells": []})
    assert {"texts", "heads"} <= tool.stored(PLAN).keys()
    newer = PLAN | {"weights": "of another pair"}
    assert tool.stored(newer) == {}
    tool.keep(newer, heads={"cells": []})
    assert tool.stored(newer)["plan"] == newer and "texts" not in tool.stored(newer)
