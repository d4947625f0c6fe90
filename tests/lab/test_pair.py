"""The committed weights: complete, small, exact, and as good as their card says."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from specgain.lab import measure, quick
from specgain.lab.loop import decode
from specgain.lab.pair import DOMAINS, DRAFTS, PROMPT_SETS, WEIGHTS, load_pair, load_prompts, weights_hash
from specgain.lab.prediction import rounds_of
from specgain.lab.sampling import GREEDY
from specgain.lab.tensors import read_metadata

FILES = ["target.safetensors", *(f"draft-{name}.safetensors" for name in DRAFTS)]


@pytest.fixture(scope="module")
def pair():
    return load_pair()


def test_everything_together_stays_below_seventeen_megabytes():
    assert sum(path.stat().st_size for path in WEIGHTS.iterdir()) < 17e6


@pytest.mark.parametrize("name", FILES)
def test_every_weight_file_says_how_it_was_made(name):
    facts = read_metadata(WEIGHTS / name)
    assert {"seed", "steps", "script", "corpora", "holdout", "licence", "torch", "python"} <= facts.keys()
    assert set(json.loads(facts["corpora"])) == set(DOMAINS) == set(json.loads(facts["holdout"]))
    card = (WEIGHTS / "README.md").read_text(encoding="utf-8")
    for loss in json.loads(facts["holdout"]).values():
        assert f"{loss:.2f}" in card
    assert f"| {facts['steps']} |" in card


def test_the_card_is_the_one_that_the_tool_writes(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "tools"))
    import train_pair

    heads = {name: read_metadata(WEIGHTS / f"{'' if name == 'target' else 'draft-'}{name}.safetensors")
             for name in ("target", *DRAFTS)}  # fmt: skip
    facts = {name: {"steps": h["steps"], "holdout": json.loads(h["holdout"])} for name, h in heads.items()}
    assert train_pair.model_card(WEIGHTS, facts, heads["target"]) == (WEIGHTS / "README.md").read_text(encoding="utf-8")


def test_sizes_on_the_card_are_those_of_the_files():
    card = (WEIGHTS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| (\S+\.(?:safetensors|json)) \| ([\d,]+) kB \|", card)
    assert {name for name, _ in rows} == {p.name for p in WEIGHTS.iterdir() if p.suffix != ".md"}
    for name, size in rows:
        assert f"{(WEIGHTS / name).stat().st_size / 1e3:,.0f}" == size


def test_prompt_sets_are_whole_and_disjoint():
    sets = {which: load_prompts(which) for which in PROMPT_SETS}
    for domain in DOMAINS:
        a, b = (sets[which][domain] for which in PROMPT_SETS)
        assert a.shape == b.shape == (128, 64) and a.max() < 2048
        assert not {tuple(row) for row in a} & {tuple(row) for row in b}
    with pytest.raises(ValueError, match="prompt set 'train' unknown; there are calibration and test"):
        load_prompts("train")


def test_the_tokenizer_is_lossless(pair):
    for text in ("def f(x):\n    return x\n", "Lan sống ở Huế, gần sông Hương.\n", '{"a": 1}', "naïve – ☃"):
        assert pair.decode(pair.encode(text)) == text


def test_unknown_drafts_and_foreign_targets_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"drafts = \['best'\] unknown; this pair has weak, middle, strong"):
        load_pair(["best"])
    for path in WEIGHTS.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    data = bytearray((tmp_path / "target.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "target.safetensors").write_bytes(bytes(data))
    with pytest.raises(ValueError, match="draft-[a-z]+.safetensors was distilled from another target"):
        load_pair(folder=tmp_path)
    assert weights_hash(tmp_path) != weights_hash()


@pytest.mark.parametrize("domain", DOMAINS)
def test_speculative_output_equals_plain_output_with_the_real_weights(pair, domain):
    prompt = pair.prompts("test")[domain][0].tolist()
    plain = decode(pair.target, prompt, 64).tokens
    for draft, gamma in (("weak", 2), ("strong", 4), ("strong", 8)):
        speculative = decode(pair.target, prompt, 64, pair.drafts[draft], gamma)
        if speculative.tokens != plain:  # only a tie within rounding may tell them apart
            assert measure.first_difference(pair.target, prompt, plain, speculative.tokens)["logit_gap"] < 1e-4
        text = torch.tensor([plain])
        string = measure.agreement(pair.drafts[draft].model, torch.tensor([prompt]), text, pair.target, GREEDY)[0]
        assert list(zip(speculative.log.drafted, speculative.log.accepted, strict=True)) == rounds_of(string, gamma)


def test_the_target_writes_valid_json_records(pair):
    prompt = torch.tensor([pair.encode('{\n  "type": "user",')])  # no line break: tokens do not end there
    text = pair.decode(prompt[0].tolist() + measure.continuations(pair.target, prompt, 120, GREEDY)[0].tolist())
    record, _ = json.JSONDecoder().raw_decode(text)
    first, last = record["name"].lower().split()
    assert record["type"] == "user" and record["email"] == f"{first}.{last}@example.org"


def test_the_strong_draft_agrees_more_often_than_the_weak_one(pair):
    found = measure.measure_acceptance(pair, 4, new_tokens=48)["domains"]
    for domain in DOMAINS:
        share = {name: np.mean([c == "1" for s in found[domain]["agreement"][name] for c in s]) for name in DRAFTS}
        assert share["strong"] > share["weak"]


def test_a_live_measurement_has_the_keys_of_the_committed_one(pair):
    result = quick.live(seconds=0.5, gammas=(0, 2, 4))
    assert result["origin"] == "live" and len(result["cells"]) == 2 * 2
    for cell in result["cells"]:
        assert cell["measured_speedup"] > 0 and len(cell["residual_interval_percent"]) == 2
    assert result["summary"]["cells"] == 4
    assert json.dumps(result)


@pytest.mark.parametrize(
    ("alone", "together", "fits"), [(0.001, 0.003, (64, 48)), (0.004, 0.01, (48, 30)), (0.02, 0.06, (16, 24))]
)
def test_a_live_measurement_shrinks_on_a_slow_machine(tiny_pair, monkeypatch, alone, together, fits):
    """Seconds of a plain step, alone and of 16 prompts together, give the prompts and tokens that fit in two seconds."""
    clock = iter([0, 1, 0, 8 * alone, 0, 8 * together])
    monkeypatch.setattr(measure, "continuations", lambda *_: None)
    monkeypatch.setattr(quick, "perf_counter", lambda: next(clock))
    assert quick._what_fits(tiny_pair, 2.0, ("json", "viet"), (0, 1, 2, 4, 8)) == fits


def test_kernels_of_target_and_drafts_are_chosen_apart():
    pair = load_pair(["weak", "eagle"], kernel="int8")
    kinds = type(pair.target.head).__name__, type(pair.drafts["weak"].model.head).__name__
    assert kinds[0] == "Int8" and kinds[1] != "Int8" != type(pair.drafts["eagle"].model.head).__name__
    assert type(load_pair(["weak"], draft_kernel="int8").drafts["weak"].model.head).__name__ == "Int8"
    with pytest.raises(ValueError, match=r"draft_kernel = 'int7' unknown.*int8"):
        load_pair(["weak"], draft_kernel="int7")
