"""The drafting heads: exact output, guesses equal to a plain recomputation over whole sequences, foreign targets refused."""

import pytest
import torch
import torch.nn.functional as F

from specgain.lab import heads
from specgain.lab.heads import BLOCK, KINDS, LAYERS, LONGEST_REST, REST, Head, Tapped, load_head
from specgain.lab.loop import generate, private
from specgain.lab.model import Cache, Config, Model, WeightsError
from specgain.lab.sampling import Sampling

CONFIG = Config(61, 32, 4, 48, 8, context=96)
D = CONFIG.width


def head_weights(kind, seed, target):
    """Random weights that make a head agree with the target now and then: its layers are the target's last ones."""
    generator = torch.Generator().manual_seed(seed)
    weights = {"join": torch.cat((torch.eye(D), torch.randn(D, D, generator=generator) * 0.05), 1)}
    for i in range(LAYERS[kind]):
        for part in ("norm1", "qkv", "out", "norm2", "gate_up", "down"):
            weights[f"layers.{i}.{part}"] = target[f"layers.{8 - LAYERS[kind] + i}.{part}"]
    if kind == "eagle3":
        weights["fuse"] = torch.cat((torch.zeros(D, 2 * D), torch.eye(D)), 1)
    if kind == "multi":
        weights["heads"] = torch.randn(BLOCK * D, D, generator=generator) * 0.1
    if kind == "block":
        weights["places"] = torch.randn(BLOCK, D, generator=generator)
    return weights


@pytest.fixture(scope="module")
def target_weights(make_weights):
    return make_weights(CONFIG, seed=3)


@pytest.fixture(params=KINDS)
def pair(request, target_weights):
    target = Tapped(Model(CONFIG, target_weights, torch.float64))
    return target, KINDS[request.param](request.param, head_weights(request.param, 5, target_weights), target)


PROMPTS = [[5, 7, 11, 2], [1, 2], [9, 8, 7, 6, 5, 4, 3], [33, 60, 2]]


def test_greedy_output_is_that_of_plain_decoding(pair):
    target, head = pair
    plain = [o.tokens for o in generate(target, PROMPTS, 24).outputs]
    accepted = 0
    for gamma in (1, 3, BLOCK):
        for rows in (1, 2, 4):
            run = generate(target, PROMPTS, 24, head, gamma, rows=rows)
            assert [o.tokens for o in run.outputs] == plain
            accepted += sum(sum(o.log.accepted) for o in run.outputs)
    assert accepted > 0


def test_a_batch_drafts_what_each_request_alone_would(pair):
    target, head = pair
    alone = [generate(target, [p], 20, head, 4).outputs[0].log.accepted for p in PROMPTS]
    together = [o.log.accepted for o in generate(target, PROMPTS, 20, head, 4, rows=3).outputs]
    assert alone == together


def test_sampling_runs_and_repeats(pair):
    target, head = pair
    runs = [generate(target, PROMPTS, 12, head, 3, sampling=Sampling(1.0), seed=s) for s in (1, 1)]
    assert [o.tokens for o in runs[0].outputs] == [o.tokens for o in runs[1].outputs]


@pytest.mark.claims("C3.4")
@pytest.mark.parametrize("kind", ["multi", "block"])
def test_rows_share_a_budget_and_the_text_stays_as_it_is(target_weights, kind):
    """The best survivals of all rows get the positions; a row that gets none still commits its token."""
    target = Tapped(Model(CONFIG, target_weights, torch.float64))
    head, asked = KINDS[kind](kind, head_weights(kind, 5, target_weights), target), []

    def confidence(x, greedy):
        asked.append((len(x), greedy))
        return x[:, :BLOCK].abs().clamp(max=1).cumprod(dim=1)

    shared = head.budgeted(confidence, lambda depth, positions: 12 + positions)
    assert head.confidence is None and shared.target is not target  # the head itself keeps to the loop's lengths
    plain = [o.tokens for o in generate(target, PROMPTS, 24).outputs]
    run = generate(shared.target, PROMPTS, 24, shared, 6, rows=3)
    assert [o.tokens for o in run.outputs] == plain
    assert len({d for r in run.rounds for d in r.drafted}) > 3 and any(len(set(r.drafted)) > 1 for r in run.rounds)
    assert all(greedy and rows <= 3 for rows, greedy in asked)
    never = head.budgeted(confidence, lambda depth, positions: positions**9)  # no candidate is worth that
    run = generate(never.target, PROMPTS, 24, never, 6)
    assert [o.tokens for o in run.outputs] == plain and not any(any(r.drafted) for r in run.rounds)


def askings(rounds):
    """Return how often a draft asks that never finds it worth it: 8 times, then after rests of 8, 16, 32, 64, 64, … steps."""
    at, wait, count = REST - 1, REST, REST - 1
    while at < rounds:
        at, wait, count = at + 1 + wait, min(2 * wait, LONGEST_REST), count + 1
    return count


@pytest.mark.claims("C3.4")
@pytest.mark.parametrize("alike", [True, False])
def test_rows_alike_get_one_length_without_a_choice(target_weights, alike):
    """What is foretold is the same for all rows, or high for one and low for the others; only then a choice pays."""
    target, asked = Tapped(Model(CONFIG, target_weights, torch.float64)), []
    head = KINDS["multi"]("multi", head_weights("multi", 5, target_weights), target)

    def confidence(x, greedy):
        asked.append(len(x))
        one = torch.tensor([0.9] + [0.1] * (BLOCK - 1)).expand(len(x), -1)
        return (one if alike else torch.where(torch.arange(len(x)) == 0, 0.99, 0.1)[:, None].expand(-1, BLOCK)).cumprod(
            1
        )

    shared = head.budgeted(confidence, lambda depth, positions: 9 + positions, t_choose=0.5)
    run = generate(shared.target, PROMPTS, 40, shared, 4)
    assert [o.tokens for o in run.outputs] == [o.tokens for o in generate(target, PROMPTS, 40).outputs]
    full = [r for r in run.rounds if len(r.requests) == len(PROMPTS)][:-4]  # behind them the text ends
    assert len(full) > 20
    assert all((set(r.drafted) == {1}) == alike for r in full)
    assert len(asked) == askings(len(run.rounds) - 1) if alike else len(asked) == len(run.rounds) - 1


def test_another_load_ends_the_rest_at_once(target_weights):
    """Rows alike get one length, long or 0, and rest long; when they differ, the very next asking sees it."""
    target = Tapped(Model(CONFIG, target_weights, torch.float64))
    head = KINDS["multi"]("multi", head_weights("multi", 5, target_weights), target)
    hard, easy = (torch.tensor([[a**k for k in range(1, 5)]] * 4) for a in (0.2, 0.9))
    mixed = torch.cat((hard[:2], easy[:2]))
    for before, length in ((hard, 0), (easy, 4)):
        shared = head.budgeted(lambda x, greedy: x, lambda depth, positions: 10 + positions, t_choose=0.4)
        for _ in range(REST + 3):
            assert set(shared.share(before, [4] * 4, 4, True)) == {length}
        assert shared.margin < 0 and (shared.equal, shared.rest) == (length, LONGEST_REST)
        assert len(set(shared.share(mixed, [4] * 4, 4, True))) == 2 and shared.rest == 0
        again = private(shared)
        assert again.margin is None and (again.rest, again.mean) == (0, [])


def test_a_draft_rests_where_asking_costs_more_than_it_gains(target_weights):
    target, asked = Tapped(Model(CONFIG, target_weights, torch.float64)), []
    head = KINDS["multi"]("multi", head_weights("multi", 5, target_weights), target)
    plain = [o.tokens for o in generate(target, PROMPTS, 40).outputs]

    def confidence(x, greedy):
        asked.append(len(x))
        return torch.full((len(x), BLOCK), 0.1)

    for t_ask, often in ((0.0, False), (1.0, True)):  # nothing is worth its place; asking is free, or is not
        asked.clear()
        shared = head.budgeted(confidence, lambda depth, positions: 10 + 5 * (positions - 3) + 9 * depth, t_ask)
        run = generate(shared.target, PROMPTS, 40, shared, 6)
        assert [o.tokens for o in run.outputs] == plain and not any(any(r.drafted) for r in run.rounds)
        rounds = len(run.rounds) - 1  # the last one has no room for a candidate
        assert len(asked) == (askings(rounds) if often else rounds)

    asked.clear()
    shared = head.budgeted(
        lambda x, greedy: asked.append(0) or torch.full((len(x), BLOCK), 0.9),
        lambda depth, positions: 10 + 0.1 * positions,
        1.0,
    )
    run = generate(shared.target, PROMPTS, 40, shared, 6)
    assert [o.tokens for o in run.outputs] == plain and all(any(r.drafted) for r in run.rounds[:-1])


def test_a_longer_draft_than_the_block_is_cut_to_it(target_weights):
    target = Tapped(Model(CONFIG, target_weights, torch.float64))
    head = KINDS["multi"]("multi", head_weights("multi", 5, target_weights), target)
    assert max(generate(target, PROMPTS[:1], 30, head, BLOCK + 5).outputs[0].log.drafted) == BLOCK


def test_eagle_equals_its_definition(target_weights):
    """The first guesses of a round, recomputed over the whole sequence without any cache."""
    target = Tapped(Model(CONFIG, target_weights, torch.float64))
    weights = head_weights("eagle", 5, target_weights)
    head = KINDS["eagle"]("eagle", weights, target)
    text = [5, 7, 11, 2, 40, 41, 3]
    taps = {7: None}
    target.hidden(torch.tensor([text]), Cache(target), taps=taps)
    features = list(taps[7][:-1])  # the last token has not passed the target
    guesses, known = [], list(text)
    for _ in range(4):
        entries = torch.stack([
            F.linear(torch.cat((F.rms_norm(f, (D,)), F.rms_norm(target.embed[t], (D,)))), weights["join"].double())
            for f, t in zip(features, known[1:], strict=True)
        ])  # fmt: skip
        shape = torch.zeros(1, len(entries), dtype=torch.long)
        x, _ = head.model.hidden(shape, Cache(head.model), inputs=lambda place, entries=entries: entries)
        guesses.append(int(head.model.logits(x[-1:]).argmax()))
        features.append(x[-1])
        known.append(guesses[-1])
    run = generate(target, [text], 6, Recording(head), 4)
    assert run.outputs[0].log.drafted[0] == 4 and head.first == guesses


class Recording:
    """A head that notes its first proposal."""

    def __init__(self, head):
        self.head, self.vocab = head, head.vocab

    def begin(self, batch, rows):
        self.head.begin(batch, rows)

    def propose(self, *arguments):
        proposal = self.head.propose(*arguments)
        if not hasattr(self.head, "first"):
            self.head.first = proposal.tokens[0]
        return proposal


def test_a_prompt_of_one_token_is_refused(pair):
    target, head = pair
    with pytest.raises(ValueError, match="a head needs prompts of two or more tokens"):
        generate(target, [[3]], 5, head, 2)


def test_foreign_targets_and_unknown_heads_are_refused(pair, tmp_path, monkeypatch):
    target, _ = pair
    (tmp_path / "target.safetensors").write_bytes(b"one target")
    monkeypatch.setattr(heads, "WEIGHTS", tmp_path)
    heads.save_head(tmp_path / "head-eagle.safetensors", {"join": torch.zeros(2, 4)}, {})
    (tmp_path / "target.safetensors").write_bytes(b"another")
    with pytest.raises(WeightsError, match="head-eagle.safetensors was trained on another target"):
        load_head("eagle", target, tmp_path)
    with pytest.raises(ValueError, match="head 'best' unknown; there are eagle"):
        load_head("best", target, tmp_path)
    assert issubclass(KINDS["block"], Head)
