"""Confidence heads: they belong to their draft and target, leave the text exact, and the record says what they say."""

import shutil

import numpy as np
import pytest
import torch

from specgain.calibration import brier_score, calibration_error, isotonic
from specgain.control import StopRule
from specgain.lab.confidence import ConfidenceHead, load_confidence, log_odds, signs
from specgain.lab.heads import BLOCK
from specgain.lab.loop import ModelDraft, generate
from specgain.lab.measure import continuations
from specgain.lab.model import Cache, WeightsError
from specgain.lab.pair import DOMAINS, DRAFTS, WEIGHTS, load_pair
from specgain.lab.recorded import guesses
from specgain.lab.sampling import GREEDY, Sampling

SHAPES = {"inner": (32, 34), "inner_bias": (32,), "outer": (2, 32), "outer_bias": (2,)}  # for a width of 32


@pytest.fixture(scope="module")
def random_head():
    rng = torch.Generator().manual_seed(4)
    return ConfidenceHead({name: torch.randn(shape, generator=rng) * 0.5 for name, shape in SHAPES.items()})


@pytest.mark.claims("C3.4")
@pytest.mark.parametrize("rows", [1, 3])
def test_a_draft_that_stops_by_its_head_leaves_the_text_as_it_is(tiny_pair, random_head, rows):
    prompts = [row.tolist() for domain in DOMAINS[:3] for row in tiny_pair.prompts("test")[domain][:2]]
    plain = generate(tiny_pair.target, prompts, 20).outputs
    rule = StopRule(lambda g, b: 1 + 0.05 * g, 5)
    draft = ModelDraft(tiny_pair.drafts["strong"].model, stop=rule, confidence=random_head)
    run = generate(tiny_pair.target, prompts, 20, draft, rule, rows=rows)
    assert [o.tokens for o in run.outputs] == [o.tokens for o in plain]
    assert len({d for r in run.rounds for d in r.drafted}) > 2  # it did stop here and there
    sampled = generate(tiny_pair.target, prompts, 20, draft, rule, rows=rows, sampling=Sampling(1.0))
    assert all(len(o.tokens) == 20 for o in sampled.outputs)


def test_a_head_knows_two_ways_of_decoding_and_reads_no_guess(random_head):
    x, logits = torch.randn(6, 32), torch.randn(6, 50)
    greedy, hot = random_head(x, logits, True), random_head(x, logits, False)
    assert torch.equal(torch.stack((greedy, hot), 1), log_odds(random_head.weights, signs(x, logits)).sigmoid())
    assert signs(x, logits).shape == (6, 34)
    shifted = signs(3 * x, logits + 5)  # scale of x and level of the logits say nothing
    assert shifted == pytest.approx(signs(x, logits), abs=1e-5)


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_committed_heads_are_small_and_sane(draft):
    assert (WEIGHTS / f"head-confidence-{draft}.safetensors").stat().st_size < 300_000
    head = load_confidence(draft)
    x, flat, peaked = torch.randn(4, 192), torch.zeros(4, 2048), torch.zeros(4, 2048)
    peaked[:, 7] = 30.0
    for greedy in (True, False):
        assert (head(x, peaked, greedy) > head(x, flat, greedy)).all()
        assert ((head(x, peaked, greedy) >= 0) & (head(x, peaked, greedy) <= 1)).all()


def test_a_head_of_other_weights_is_refused(tmp_path):
    for name in ("target", "draft-weak", "draft-strong", "head-confidence-weak"):
        shutil.copy(WEIGHTS / f"{name}.safetensors", tmp_path)
    assert load_confidence("weak", tmp_path).weights
    shutil.copy(tmp_path / "draft-strong.safetensors", tmp_path / "draft-weak.safetensors")
    with pytest.raises(WeightsError, match="another draft"):
        load_confidence("weak", tmp_path)
    shutil.copy(tmp_path / "draft-strong.safetensors", tmp_path / "target.safetensors")
    with pytest.raises(WeightsError, match="another target"):
        load_confidence("weak", tmp_path)
    with pytest.raises(FileNotFoundError, match="train_confidence"):
        load_confidence("strong", tmp_path)


@pytest.mark.claims("C3.4")
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(1.0)])
def test_what_the_survival_head_foretells_comes_true_on_prompts_that_it_has_not_seen(sampling):
    """Over the rounds of some test prompts: as many tokens as it said, and far more behind its high survivals."""
    assert (WEIGHTS / "head-confidence-multi.safetensors").stat().st_size < 16_000
    pair, told, rounds = load_pair(["multi"]), [], []
    head, judge = pair.drafts["multi"], load_confidence("multi")

    def listen(x, greedy):
        told.append(judge(x, greedy))
        return torch.ones_like(told[-1])

    prompts = [row.tolist() for domain in DOMAINS for row in pair.prompts("test")[domain][:12]]
    all_of_them = head.budgeted(listen, lambda depth, positions: 1.0)
    run = generate(all_of_them.target, prompts, 48, all_of_them, BLOCK, sampling=sampling)
    for foretold, r in zip(told, run.rounds, strict=False):
        drafting = [i for i, d in enumerate(r.drafted) if d]
        rounds += [(s[:d].sum().item(), k) for s, d, k in zip(
            foretold, (r.drafted[i] for i in drafting), (r.accepted[i] for i in drafting), strict=True)]  # fmt: skip
    said, came = np.array(rounds).T
    assert came.mean() == pytest.approx(said.mean(), rel=0.08) and len(rounds) > 1000
    assert np.corrcoef(said, came)[0, 1] > 0.5
    assert (told[0][:, 1:] <= told[0][:, :-1]).all() and told[0].shape == (len(prompts), BLOCK)


# --- the record ----------------------------------------------------------------------------------------------------


@pytest.mark.claims("C3.4")
def test_the_record_is_what_draft_and_head_say():
    """The first three texts once more, from the committed weights."""
    pair, new, which = load_pair(["weak"]), 64, "test"
    prompts = torch.from_numpy(pair.prompts(which)[DOMAINS[0]][:3]).long()
    text = continuations(pair.target, prompts, new, GREEDY)
    fed, found = torch.cat((prompts, text[:, :-1]), dim=1), guesses("weak", which)
    model, head = pair.drafts["weak"].model, load_confidence("weak")
    x, _ = model.hidden(fed, Cache(model, *fed.shape))
    x = x.view(*fed.shape, -1)[:, -new:].flatten(0, 1)
    logits = model.logits(x)
    assert found["hits"][: 3 * new] == (logits.argmax(-1) == text.flatten()).tolist()
    assert found["raw"][: 3 * new] == pytest.approx(logits.softmax(-1).amax(-1).tolist(), abs=0.0011)
    assert found["head"][: 3 * new] == pytest.approx(head(x, logits, True).tolist(), abs=0.0011)


@pytest.mark.claims("C3.4")
@pytest.mark.parametrize("draft", ["weak", "strong"])
def test_map_and_head_are_calibrated_on_prompts_that_they_have_not_seen(draft):
    known, seen = guesses(draft, "calibration"), guesses(draft, "test")
    chance = isotonic(known["raw"], known["hits"])
    mapped, hits = [chance(p) for p in seen["raw"]], seen["hits"]
    assert calibration_error(mapped, hits) < 0.03 and calibration_error(seen["head"], hits) < 0.03
    base = sum(hits) / len(hits)
    for told in (mapped, seen["head"]):
        assert brier_score(told, hits) < 0.8 * base * (1 - base)  # it tells easy places from hard ones


def test_what_the_record_lacks_is_named():
    with pytest.raises(ValueError, match="'middle'"):
        guesses("middle", "test")
