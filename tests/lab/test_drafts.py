"""Drafts without a model: what they guess, that K follows the dial, and that no output changes."""

from collections import deque

import numpy as np
import pytest
import torch

from specgain.acceptance import Acceptance
from specgain.control import Controller
from specgain.lab import measure
from specgain.lab.drafts import NAMES, Bigram, Lookup, Scripted, Suffix, make_draft
from specgain.lab.drafts.bigram import count
from specgain.lab.loop import Batch, ModelDraft, Stop, generate
from specgain.lab.model import WeightsError
from specgain.lab.pair import DOMAINS, DRAFTS, load_pair
from specgain.lab.replay import replay
from specgain.lab.sampling import GREEDY, Sampling

VOCAB = 61


@pytest.fixture(scope="module")
def pair():
    return load_pair([*DRAFTS, "lookup", "suffix", "bigram", "scripted:0.8"])


@pytest.fixture(scope="module")
def target(make_pair):
    return make_pair(0, torch.float64)[0]


def batch_of(*texts, room=50):
    """A batch with one row per text."""
    batch = Batch(len(texts), max(map(len, texts)) + room, room)
    batch.admit(deque(enumerate(texts)))
    return batch


def guesses(draft, *texts, wanted=4):
    """What a fresh batch of these texts is offered, one list per row."""
    batch = batch_of(*texts)
    draft.begin(batch, list(range(len(texts))))
    proposal = draft.propose(batch, [wanted] * len(texts), GREEDY, None)
    return [row[:w] for row, w in zip(proposal.tokens, proposal.widths, strict=True)]


# --- prompt lookup -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, options, expected",
    [
        ([1, 2, 3, 9, 8, 7, 6, 5, 1, 2, 3], {}, [9, 8, 7, 6]),
        ([1, 2, 3, 9, 2, 3, 8, 4, 1, 2, 3], {}, [9, 2, 3, 8]),  # three tokens beat the later two
        ([2, 3, 9, 0, 2, 3, 8, 4, 0, 1, 2, 3], {}, [8, 4, 0, 1]),  # among equals the latest
        ([5, 1, 7, 5], {}, [1, 7, 5, 1]),  # goes on in the guess itself
        ([4, 4], {}, [4, 4, 4, 4]),
        ([1, 2, 3], {}, []),
        ([7], {}, []),
        ([9, 3, 5, 0, 3], {"shortest": 2}, []),
        ([9, 3, 5, 9, 3], {"shortest": 2, "longest": 2}, [5, 9, 3, 5]),
        ([1, 2, 3, 4, 0, 9, 2, 3, 4, 5, 1, 2, 3, 4], {"longest": 3}, [5, 1, 2, 3]),
        ([1, 2, 3, 4, 0, 9, 2, 3, 4, 5, 1, 2, 3, 4], {"longest": 4}, [0, 9, 2, 3]),
    ],
)
def test_lookup_by_hand(text, options, expected):
    assert guesses(Lookup(VOCAB, **options), text) == [expected]


def naive_lookup(text, n, longest, shortest):
    """The same search, place by place."""
    for size in range(min(longest, len(text) - 1), shortest - 1, -1):
        for end in range(len(text) - 2, size - 2, -1):
            if text[end - size + 1 : end + 1] == text[-size:]:
                tail = text[end + 1 :]
                return [tail[i % len(tail)] for i in range(n)]
    return []


def test_lookup_equals_a_search_place_by_place():
    rng = np.random.default_rng(1)
    for _ in range(400):
        text = rng.integers(0, rng.integers(2, 7), rng.integers(1, 40)).tolist()
        longest = int(rng.integers(1, 6))
        shortest, n = int(rng.integers(1, longest + 1)), int(rng.integers(1, 9))
        expected = naive_lookup(text, n, longest, shortest)
        assert Lookup(VOCAB, longest, shortest).guess(np.array(text), n).tolist() == expected


def test_rows_are_looked_up_apart_and_widths_are_their_own():
    assert guesses(Lookup(VOCAB), [1, 2, 1], [1, 2, 3], [5, 5]) == [[2, 1, 2, 1], [], [5, 5, 5, 5]]


# --- suffix --------------------------------------------------------------------------------------------------------


def naive_suffix(texts, own, n, longest, least):
    """The same search over lists: places of the longest match, then the most frequent way on, the latest among equals."""
    places = [(text, end) for text in [*texts, own] for end in range(len(text) - 1)]

    def matched(text, end):
        back = zip(text[end::-1], own[::-1], strict=False)
        size = next((i for i, (a, b) in enumerate(back) if a != b), min(end + 1, len(own)))
        return min(size, longest)

    best = max((matched(*place) for place in places), default=0)
    places = [place for place in places if best and matched(*place) == best]
    total, guess = len(places), []
    while places and len(guess) < n:
        places = [(text, end + 1) for text, end in places]
        following = [text[end] if end < len(text) else None for text, end in places]
        known = [token for token in following if token is not None]
        if not known:
            break
        most = max(known.count(token) for token in known)
        token = next(token for token in reversed(known) if known.count(token) == most)
        places = [place for place, t in zip(places, following, strict=True) if t == token]
        if len(places) < least * total:
            break
        guess.append(token)
    return guess


def test_suffix_equals_a_search_place_by_place():
    rng = np.random.default_rng(2)
    for _ in range(200):
        symbols, longest, least = rng.integers(2, 6), int(rng.integers(1, 7)), float(rng.choice([0, 0.1, 0.4, 1]))
        texts = [rng.integers(0, symbols, rng.integers(1, 25)).tolist() for _ in range(rng.integers(1, 5))]
        draft = Suffix(VOCAB, longest, least)
        for i, text in enumerate(texts):
            assert guesses(draft, text, wanted=5) == [naive_suffix(texts[:i], text, 5, longest, least)]


def test_a_warm_suffix_draft_knows_what_an_earlier_request_said():
    draft, story = Suffix(VOCAB), [1, 2, 3, 4, 5, 6, 7]
    assert guesses(draft, [9, 1, 2]) == [[]]
    guesses(draft, story)
    assert guesses(draft, [9, 1, 2]) == [[3, 4, 5, 6]]
    draft.reset()
    assert guesses(draft, [9, 1, 2]) == [[]]


def test_the_more_frequent_continuation_wins_and_unsure_ones_are_short():
    draft = Suffix(VOCAB, least=0)
    for text in ([1, 2, 5], [1, 2, 6], [1, 2, 5], [1, 2, 7, 7]):
        guesses(draft, text)
    assert guesses(draft, [0, 2], wanted=2) == [[5]]  # nothing follows 5
    draft.least = 0.6
    assert guesses(draft, [3, 2], wanted=2) == [[]]  # two of four is not enough


def test_what_a_request_commits_is_remembered_to_its_last_token(target):
    draft = Suffix(VOCAB)
    prompt = [5, 7, 11]
    tokens = generate(target, [prompt], 20, draft, 4).outputs[0].tokens
    again = generate(target, [prompt], 20, draft, 4)
    assert again.outputs[0].tokens == tokens
    assert again.rounds[0].accepted == [4] and len(again.rounds) < 8
    memory = draft.memory[: draft.fill].tolist()
    whole = prompt + tokens
    assert any(memory[i : i + len(whole)] == whole for i in range(len(memory)))


def test_rows_of_a_batch_learn_from_each_other():
    assert guesses(Suffix(VOCAB), [1, 2, 3, 4, 5], [9, 2, 3], wanted=2) == [[], [4, 5]]


# --- bigram --------------------------------------------------------------------------------------------------------


def test_bigram_counts_and_chains():
    parts = [(1.0, np.array([0, 1, 2, 1, 2, 0], np.uint16)), (3.0, np.array([1, 3, 1], np.uint16))]
    table = count(parts, 4)
    assert table.tolist() == [1, 3, 0, 1] and table.dtype == np.uint16  # 1→2 twice at weight 1, 1→3 once at weight 3
    assert guesses(Bigram(table), [0], [2], wanted=3) == [[1, 3, 1], [0, 1, 3]]
    assert guesses(Bigram(table), [0], wanted=1) == [[1]]


def test_a_pair_without_a_table_or_with_a_wrong_one_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="bigram.safetensors does not exist"):
        Bigram.load(tmp_path)
    from safetensors.numpy import save_file

    save_file({"next": np.array([0, 9], np.uint16)}, tmp_path / "bigram.safetensors")
    with pytest.raises(WeightsError, match="token id below 2"):
        Bigram.load(tmp_path)


# --- scripted ------------------------------------------------------------------------------------------------------


class Dice:
    """A random generator that hands out one number after the other of a grid, the middles of n equal cells."""

    def __init__(self, cells, columns):
        grid = (np.arange(cells) + 0.5) / cells
        self.rows = np.stack(np.meshgrid(*[grid] * columns, indexing="ij"), axis=-1).reshape(-1, columns)

    def random(self, shape):
        assert shape == self.rows.shape
        return self.rows


@pytest.mark.claims("C2.2")
def test_k_follows_the_dialled_law_exactly(target):
    """Every cell of the unit cube once, one per row: the share of each K is its probability, with no sampling error."""
    conditional, gamma, cells = [0.75, 0.5, 0.25], 3, 4
    rows = cells**gamma
    prompts = [[5, 7, 11]] * rows
    plain = generate(target, prompts[:1], 4).outputs[0].tokens
    draft = Scripted(target, conditional, dict.fromkeys(range(rows), plain))
    draft.rng = Dice(cells, gamma)
    first = generate(target, prompts, gamma + 1, draft, Once(gamma)).rounds[0]
    shares = np.bincount(first.accepted, minlength=gamma + 1) / rows
    assert shares.tolist() == list(Acceptance(conditional).pmf(gamma))


class Once(Controller):
    """A controller that speculates in the first round of each request only."""

    def __init__(self, length):
        self.length, self.done = length, set()

    def gamma(self, batch_size, request):
        return 0 if request in self.done else self.length

    def observe(self, request, drafted, accepted):
        self.done.add(request)


@pytest.mark.parametrize("dial", [0.8, [0.9, 0.6, 0.8, 0.3]])
def test_measured_acceptance_is_the_dialled_one(target, dial):
    draft = Scripted(target, dial, seed=3)
    run = generate(target, [[i, 7] for i in range(60)], 100, draft, 4)
    k = np.concatenate([r.accepted for r in run.rounds if min(r.drafted) == 4])
    law = Acceptance(dial) if isinstance(dial, list) else Acceptance.constant(dial)
    expected = np.array([float(p) for p in law.pmf(4)]) * len(k)
    chi2 = ((np.bincount(k, minlength=5) - expected) ** 2 / expected).sum()
    assert len(k) > 1000 and chi2 < 18.5  # 4 degrees of freedom: exceeded once in a thousand seeds
    assert draft.strayed == 0
    plain = generate(target, [[i, 7] for i in range(60)], 100)
    assert [o.tokens for o in run.outputs] == [o.tokens for o in plain.outputs]


def test_a_scripted_draft_can_pay_for_another_one_and_strays_are_counted(make_pair, target):
    _, model = make_pair(0, torch.float64)
    draft = Scripted(target, 1.0, paying=ModelDraft(model))
    run = generate(target, [[5, 7, 11]], 23, draft, 4)
    assert run.rounds[0].accepted == [4] and draft.paying.cache.length[0] > 3
    batch = batch_of([1, 2, 3])
    draft.begin(batch, [0])
    batch.commit(0, [(draft.texts[0][3] + 1) % VOCAB], Stop())
    right = generate(target, [batch.text[0, :4].tolist()], 2).outputs[0].tokens
    assert draft.propose(batch, [2], GREEDY, None).tokens == [right] and draft.strayed == 1


def test_what_a_scripted_draft_cannot_do_is_named(target):
    with pytest.raises(ValueError, match="temperature 0"):
        generate(target, [[1]], 5, Scripted(target, 0.5), 2, sampling=Sampling(1.0))
    with pytest.raises(ValueError, match="answers lacks request 1"):
        generate(target, [[1], [2]], 5, Scripted(target, 0.5, {0: [1] * 5}), 2)
    with pytest.raises(ValueError, match="gamma = 3 is beyond the 2 positions"):
        generate(target, [[1]], 5, Scripted(target, [0.5, 0.5]), 3)


# --- names ---------------------------------------------------------------------------------------------------------


def test_drafts_have_names(pair):
    assert list(pair.drafts) == [*DRAFTS, "lookup", "suffix", "bigram", "scripted:0.8"]
    assert make_draft("scripted:0.9,0.7", pair).acceptance == Acceptance([0.9, 0.7])
    for name in ("best", "scripted", "lookup:2"):
        with pytest.raises(ValueError, match="unknown; choose from " + ", ".join(NAMES)):
            make_draft(name, pair)
    with pytest.raises(ValueError, match="scripted:x must name probabilities"):
        make_draft("scripted:x", pair)
    with pytest.raises(ValueError, match="longest = 1 .* 2 or more"):
        Lookup(VOCAB, longest=1, shortest=2)
    with pytest.raises(ValueError, match="least = 2 must be a share"):
        Suffix(VOCAB, least=2)


# --- the committed pair --------------------------------------------------------------------------------------------

EVERY = [*DRAFTS, "lookup", "suffix", "bigram", "scripted:0.8"]


@pytest.fixture(scope="module")
def requests(pair):
    """Five prompts of different length, one per domain, and their plain greedy output."""
    prompts = [pair.prompts("test")[d][i, : 64 - 9 * i].tolist() for i, d in enumerate(DOMAINS)]
    return prompts, [generate(pair.target, [p], 28).outputs[0].tokens for p in prompts]


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.claims("C1.1")
def test_greedy_output_is_that_of_plain_decoding_with_the_real_weights(pair, requests, name, rows):
    """Token for token in float32; a difference must be a tie within rounding, and there are none on the machines seen."""
    prompts, plain = requests
    run = generate(pair.target, prompts, 28, pair.drafts[name], 5, rows=rows)
    ties = [
        measure.first_difference(pair.target, prompt, expected, output.tokens)
        for prompt, expected, output in zip(prompts, plain, run.outputs, strict=True)
        if output.tokens != expected
    ]
    assert all(tie["logit_gap"] < 1e-4 for tie in ties), ties
    assert len(ties) <= 1, ties


def test_replayed_rounds_are_those_of_the_loop(pair, requests):
    prompts, plain = requests
    for name, gamma in (("lookup", 4), ("suffix", 3), ("bigram", 5)):
        cold = {"lookup": Lookup, "suffix": Suffix}.get(name)
        draft = cold(2048) if cold else pair.drafts[name]
        again = cold(2048) if cold else pair.drafts[name]
        for prompt, tokens in zip(prompts, plain, strict=True):
            log = generate(pair.target, [prompt], 28, draft, gamma).outputs[0].log
            assert replay(again, prompt, tokens, gamma) == list(zip(log.drafted, log.accepted, strict=True))


def test_replay_is_exact_for_a_sampled_text_and_an_early_end(pair):
    prompt, draft = pair.prompts("test")["json"][3].tolist(), pair.drafts["bigram"]
    for stop in (Stop(), Stop(strings=("}",), text=pair.decode)):
        sampled = {"sampling": Sampling(0.8), "seed": 5, "stop": stop}
        output = generate(pair.target, [prompt], 40, draft, 4, **sampled).outputs[0]
        rounds = replay(draft, prompt, output.tokens, 4, max_tokens=40)
        assert [k + 1 for _, k in rounds[:-1]] == output.log.committed[:-1]
        assert [d for d, _ in rounds] == output.log.drafted


@pytest.mark.claims("C4.1")
def test_first_position_acceptance_spans_the_axis(pair):
    """One target, five domains, six drafts: a_1 from below 0.3 to above 0.97, free drafts among the good and the bad."""
    table = first_position_acceptance(pair)
    values = np.array([list(row.values()) for row in table.values()])
    assert values.min() < 0.3 and values.max() > 0.97
    for low, high in ((0.3, 0.5), (0.5, 0.7), (0.7, 0.9)):
        assert ((values >= low) & (values < high)).any(), (low, high)


def first_position_acceptance(pair, prompts=3, new_tokens=40):
    """{draft: {domain: a_1}}: accepted first guesses over rounds that offered one, at γ = 1, a draft cold per request."""
    table = {}
    for domain in DOMAINS:
        tokens = pair.prompts("calibration")[domain][:prompts].tolist()
        texts = [output.tokens for output in generate(pair.target, tokens, new_tokens).outputs]
        for name in (*DRAFTS, "bigram", "lookup", "suffix"):
            draft, rounds = pair.drafts[name], []
            for prompt, text in zip(tokens, texts, strict=True):
                if name == "suffix":
                    draft.reset()
                rounds += [k for d, k in replay(draft, prompt, text, 1) if d]
            table.setdefault(name, {})[domain] = float(np.mean(rounds))
    return table
