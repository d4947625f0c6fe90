"""The speculative loop against plain greedy decoding: the same tokens, and rounds that can be counted by hand."""

from collections import deque

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specgain.control import Controller, StopRule
from specgain.lab.drafts import Suffix
from specgain.lab.loop import Batch, ModelDraft, Proposal, Stop, decode, generate, in_turns, private, stepwise
from specgain.lab.model import Cache
from specgain.lab.sampling import GREEDY, Sampling, verify_greedy


class Scripted:
    """A draft for one request that knows the answer and is wrong at chosen places of it."""

    def __init__(self, answer, prompt_tokens, wrong=(), vocab=61):
        self.answer, self.start, self.wrong, self.vocab = answer, prompt_tokens, set(wrong), vocab

    def begin(self, batch, rows):
        pass

    def propose(self, batch, wanted, sampling, rng):
        places = range(batch.length[0] - self.start, batch.length[0] - self.start + wanted[0])
        tokens = [(self.answer[i] + (i in self.wrong)) % self.vocab for i in places]
        return Proposal([tokens], wanted)


@pytest.fixture(scope="module")
def pairs(make_pair):
    return {(seed, dtype): make_pair(seed, dtype) for seed in range(4) for dtype in (torch.float64, torch.float32)}


@given(
    seed=st.integers(0, 3),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    prompt=st.lists(st.integers(0, 60), min_size=1, max_size=12),
    gamma=st.integers(1, 9),
    max_tokens=st.integers(1, 30),
    stop_at=st.integers(0, 40),
)
@pytest.mark.claims("C1.1", "C1.2")
def test_speculative_output_equals_plain_greedy(pairs, seed, dtype, prompt, gamma, max_tokens, stop_at):
    target, draft = pairs[seed, dtype]
    free = decode(target, prompt, max_tokens)
    eos = free.tokens[stop_at] if stop_at < len(free.tokens) else None  # an end token that really comes up, or none
    plain = decode(target, prompt, max_tokens, eos=eos)
    speculative = decode(target, prompt, max_tokens, ModelDraft(draft), gamma, eos)
    assert speculative.tokens == plain.tokens
    assert speculative.log.finish == plain.log.finish == ("stop" if eos in plain.tokens else "length")
    assert len(plain.tokens) == (plain.tokens.index(eos) + 1 if eos in plain.tokens else max_tokens)
    log = speculative.log  # the record checks L = K + 1 in all but the last round by itself
    assert sum(log.committed) == len(plain.tokens) and min(log.committed) >= 1
    assert not any(log.cut) or (log.finish == "stop" and log.cut.index(True) == log.rounds - 1)


def test_plain_decoding_equals_a_whole_sequence_pass(pairs):
    target, _ = pairs[0, torch.float64]
    prompt = [5, 7, 11]
    tokens = decode(target, prompt, 20).tokens
    logits = target(torch.tensor([prompt + tokens]), Cache(target))[0]
    assert logits[len(prompt) - 1 : -1].argmax(dim=-1).tolist() == tokens


def test_a_perfect_draft_commits_gamma_plus_one_per_round(pairs):
    target, _ = pairs[0, torch.float64]
    log = decode(target, [5, 7, 11], 23, ModelDraft(target), gamma=4).log
    assert log.committed == [5, 5, 5, 5, 3] and log.drafted == [4, 4, 4, 4, 2] and log.accepted == log.drafted


def test_a_hopeless_draft_still_advances_one_token_per_round(pairs):
    target, _ = pairs[0, torch.float64]
    plain = decode(target, [5, 7, 11], 12).tokens
    log = decode(target, [5, 7, 11], 12, Scripted(plain, 3, wrong=range(12)), gamma=4).log
    assert log.committed == [1] * 12 and sum(log.accepted) == 0
    assert log.drafted == [4] * 8 + [3, 2, 1, 0]  # the last rounds ask only for what can still be used


def test_rounds_follow_the_script(pairs):
    target, _ = pairs[0, torch.float64]
    plain = decode(target, [5, 7, 11], 12).tokens
    log = decode(target, [5, 7, 11], 12, Scripted(plain, 3, wrong=[2, 7]), gamma=4).log
    assert log.accepted == [2, 4, 3] and log.committed == [3, 5, 4]


@pytest.mark.parametrize("stop_at", range(9))
def test_eos_cuts_exactly_behind_itself(pairs, stop_at):
    target, draft = pairs[2, torch.float64]
    plain = decode(target, [1, 2], 9).tokens
    eos = plain[stop_at]
    for gamma in (1, 3, 8):
        for candidate in (ModelDraft(draft), ModelDraft(target)):
            assert decode(target, [1, 2], 9, candidate, gamma, eos).tokens == plain[: plain.index(eos) + 1]


def test_commit_counts_the_end():
    for eos, room, expected in (
        (None, 10, (3, None)),
        (None, 3, (3, "length")),
        (5, 10, (2, "stop")),
        (6, 3, (3, "stop")),
    ):
        batch = Batch(1, 20, room)
        batch.admit(deque([(0, [1, 2])]))
        count, finish = expected
        assert batch.commit(0, [4, 5, 6], Stop(eos)) == count  # 5: inside the accepted prefix, L < K + 1
        assert batch.text[0, 2 : batch.length[0]].tolist() == [4, 5, 6][:count]
        assert batch.ends == ({} if finish is None else {0: ([1, 2, 4, 5, 6][: 2 + count], finish)})
        assert batch.active == ([0] if finish is None else [])


def test_guesses_are_offered_behind_the_text_and_do_not_count_yet():
    batch = Batch(3, 20, 8)
    batch.admit(deque([(0, [1, 2]), (1, [3])]))  # the third row stays empty
    assert batch.offer([[5, 6], [7, 0], [0, 0]], [2, 1, -1]).tolist() == [[2, 5, 6], [3, 7, 0], [0, 0, 0]]
    assert batch.length == [2, 1, 1] and batch.tail([2, 1, 0]).tolist() == [[1, 2], [3, 0], [0, 0]]
    alone = Batch(1, 20, 8)
    alone.admit(deque([(0, [1, 2])]))
    assert alone.offer([[5, 6, 9]], [2]).tolist() == [[2, 5, 6]] and alone.tail([1]).tolist() == [[2]]


def test_the_accepted_prefix_is_contiguous():
    logits = torch.nn.functional.one_hot(torch.tensor([7, 1, 2, 3, 9, 1, 9, 3, 9]), 12).float()
    guesses = [[0, 0, 0], [1, 2, 3], [0, 0, 0], [1, 2, 3]]  # the third row takes no part
    accepted, table = verify_greedy(logits, guesses, [0, 3, -1, 3])
    assert accepted == [0, 3, 0, 1]  # a later hit does not count
    assert [row[: k + 1] for row, k in zip(table, accepted, strict=True)][:2] == [[7], [1, 2, 3, 9]]


def test_a_draft_keeps_only_what_was_committed(pairs):
    _, model = pairs[1, torch.float64]
    for kept in (4, 2, 0):
        batch, draft = Batch(1, 40, 20), ModelDraft(model)
        batch.admit(deque([(0, [3, 4, 5])]))
        draft.begin(batch, [0])
        guesses = draft.propose(batch, [4], GREEDY, None).tokens[0]
        batch.commit(0, [*guesses[:kept], 60], Stop())
        again, fresh = Batch(1, 40, 20), ModelDraft(model)
        again.admit(deque([(0, [3, 4, 5, *guesses[:kept], 60])]))
        fresh.begin(again, [0])
        assert draft.propose(batch, [3], GREEDY, None).tokens == fresh.propose(again, [3], GREEDY, None).tokens
        assert draft.cache.length == fresh.cache.length


@given(
    seed=st.integers(0, 3),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    rows=st.integers(1, 3),
    cost=st.floats(0.01, 0.4),
    longest=st.integers(1, 6),
)
@pytest.mark.claims("C3.4")
def test_a_draft_that_stops_by_itself_leaves_the_text_as_it_is(pairs, seed, dtype, rows, cost, longest):
    target, model = pairs[seed, dtype]
    prompts = [[5, 7, 11], [1, 2], [9, 8, 7, 6, 5], [33]]
    rule = StopRule(lambda g, b: 1 + cost * g, longest)
    run = generate(target, prompts, 20, ModelDraft(model, stop=rule), rule, rows=rows)
    assert [o.tokens for o in run.outputs] == [o.tokens for o in generate(target, prompts, 20).outputs]
    assert max(d for r in run.rounds for d in r.drafted) <= longest


def test_a_draft_stops_where_the_rule_says_and_row_by_row(pairs):
    """The rule hears of every candidate drafted so far, and the candidates are those of a draft that does not stop."""
    target, model = pairs[0, torch.float64]
    asked = []

    class Ends:
        def goes_on(self, batch_size, request, confidences):
            asked.append((batch_size, request, [round(c, 6) for c in confidences]))
            return len(confidences) < request + 1

    batch, prompts = Batch(3, 40, 20), [[3, 4, 5], [7, 1], [9, 9, 2, 8]]
    batch.admit(deque(enumerate(prompts)))
    free, stopping = ModelDraft(model), ModelDraft(model, stop=Ends())
    for draft in (free, stopping):
        draft.begin(batch, [0, 1, 2])
    whole = free.propose(batch, [5, 5, 2], GREEDY, None)
    short = stopping.propose(batch, [5, 5, 2], GREEDY, None)
    assert short.widths == [1, 2, 2] and whole.widths == [5, 5, 2]
    assert [row[:w] for row, w in zip(whole.tokens, short.widths, strict=True)] == short.tokens
    assert [(size, request, len(c)) for size, request, c in asked] == [(3, 0, 1), (3, 1, 1), (3, 2, 1), (3, 1, 2)]
    text = torch.tensor([prompts[1] + whole.tokens[1][:1]])
    expected = model(text, Cache(model))[0].softmax(dim=-1).amax(dim=-1)[-2:]
    assert asked[3][2] == pytest.approx(expected.tolist(), abs=1e-6)


def test_times_and_labels_are_recorded(pairs):
    target, draft = pairs[0, torch.float64]
    log = decode(target, [1, 2, 3], 10, ModelDraft(draft), 2, id="a", arm="own", domain="json", prompt=4, repeat=1).log
    assert (log.id, log.arm, log.domain, log.prompt, log.repeat, log.gamma) == ("a", "own", "json", 4, 1, 2)
    assert (log.prompt_tokens, log.output_tokens, log.prefill_tokens) == (3, 10, 0)
    assert all(t > 0 for t in log.t_verify) and all(t > 0 for t in log.t_other)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (([1, 2], 4, "draft", -1), ValueError, "gamma = -1 .* 0 or more"),
        (([1, 2], 4, "draft", 1.5), TypeError, "gamma = 1.5 is not a whole number"),
        (([1, 2], 0, "draft", 1), ValueError, "max_tokens = 0 .* 1 or more"),
        (([1, 2], 4, None, 2), ValueError, "needs a draft"),
        (([], 4, "draft", 2), ValueError, "a prompt must hold one or more token ids, whole numbers from 0 to 60"),
        (([1, 61], 4, "draft", 2), ValueError, "whole numbers from 0 to 60"),
        (([1, True], 4, "draft", 2), ValueError, "whole numbers from 0 to 60"),
        (([1.0, 2], 4, "draft", 2), ValueError, "whole numbers from 0 to 60"),
        (([1] * 120, 9, "draft", 2), ValueError, "120 prompt tokens and max_tokens = 9 need 129 positions"),
        (([1, 2], 4, Scripted([], 0, vocab=50), 2), ValueError, "the draft has 50 tokens, the target 61"),
    ],
)
def test_bad_requests_are_named(pairs, arguments, error, message):
    target, model = pairs[0, torch.float64]
    prompt, max_tokens, draft, gamma = arguments
    with pytest.raises(error, match=message):
        decode(target, prompt, max_tokens, ModelDraft(model) if draft == "draft" else draft, gamma)


def test_gamma_far_beyond_the_output_is_cut_to_it(pairs):
    target, draft = pairs[0, torch.float64]
    log = decode(target, [1, 2, 3], 10, ModelDraft(draft), gamma=500).log
    assert log.drafted[0] == 9 and sum(log.committed) == 10


@given(data=st.data())
def test_any_batch_of_requests_equals_each_alone(pairs, data):
    """The bar of the lab: no token differs, whatever shares the pass, comes in later, ends early or drafts less."""
    target, draft = pairs[data.draw(st.integers(0, 3)), torch.float64]
    prompts = data.draw(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=9), min_size=1, max_size=5))
    max_tokens, rows = data.draw(st.integers(1, 14)), data.draw(st.integers(1, 5))
    lengths = Lengths(data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=7)))
    eos = data.draw(st.sampled_from([None, *range(0, 61, 5)]))
    stop = Stop(eos, tuple(data.draw(st.lists(st.text("abc", min_size=1, max_size=3), max_size=2))), letters)
    plain = [generate(target, [p], max_tokens, stop=stop).outputs[0] for p in prompts]
    run = generate(target, prompts, max_tokens, ModelDraft(draft), lengths, rows=rows, stop=stop)
    assert [o.tokens for o in run.outputs] == [o.tokens for o in plain]
    assert [o.log.finish for o in run.outputs] == [o.log.finish for o in plain]
    assert run.tokens == sum(len(o.tokens) for o in plain)
    assert max(len(r.requests) for r in run.rounds) <= rows


class Lengths(Controller):
    """A controller that goes through a list of lengths, request by request as they come."""

    def __init__(self, lengths):
        self.lengths, self.asked, self.seen = lengths, 0, []

    def gamma(self, batch_size, request):
        self.asked += 1
        return self.lengths[self.asked % len(self.lengths)]

    def observe(self, request, drafted, accepted):
        assert 0 <= accepted <= drafted
        self.seen.append(request)


def letters(tokens):
    """Token ids as text: one letter each, so that a stop string of three letters spans three tokens."""
    return "".join(chr(97 + token % 7) for token in tokens)


def test_a_stop_string_spans_tokens_and_cuts_the_accepted_prefix(pairs):
    target, _ = pairs[0, torch.float64]
    plain = decode(target, [5, 7, 11], 23).tokens
    string = letters(plain)[6:9]
    end = letters(plain).index(string) + 3
    run = generate(target, [[5, 7, 11]], 23, ModelDraft(target), 5, stop=Stop(strings=(string,), text=letters))
    assert run.outputs[0].tokens == plain[:end] and run.outputs[0].log.finish == "stop"


def test_the_batch_of_every_round_is_recorded(pairs):
    target, draft = pairs[0, torch.float64]
    run = generate(target, [[1], [2], [3]], 6, ModelDraft(draft), 2, rows=2)
    assert all(o.log.batch and set(o.log.batch) <= {1, 2} for o in run.outputs)
    assert sum(len(r.requests) for r in run.rounds) == sum(o.log.rounds for o in run.outputs)


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.7, top_k=5), Sampling(1.3, top_p=0.8)])
def test_sampling_is_repeatable_by_seed_and_stays_inside_its_nucleus(pairs, sampling):
    target, draft = pairs[0, torch.float64]
    runs = [generate(target, [[1, 2], [3]], 12, ModelDraft(draft), 3, sampling=sampling, seed=s) for s in (1, 1, 2)]
    texts = [[o.tokens for o in run.outputs] for run in runs]
    assert texts[0] == texts[1] != texts[2]
    for prompt, tokens in zip(([1, 2], [3]), texts[0], strict=True):
        logits = target(torch.tensor([prompt + tokens]), Cache(target))[0][len(prompt) - 1 : -1]
        assert (sampling.probs(logits)[range(len(tokens)), tokens] > 0).all()


def test_loops_take_turns_and_the_shortest_text_goes_on_first():
    order = []

    def loop(name, rounds):
        for tokens in rounds:
            order.append(name)
            yield tokens
        return name

    assert in_turns([loop("plain", [1] * 6), loop("draft", [3, 3])], turn=2) == ["plain", "draft"]
    assert "".join(name[0] for name in order) == "ppdppdpp"


def test_loops_in_turns_write_what_each_writes_alone(tiny_pair):
    prompts = tiny_pair.prompts("test")["json"].tolist()
    draft = next(iter(tiny_pair.drafts.values()))
    arms = [(None, 0), (draft, 1), (draft, 3), (Suffix(draft.vocab), 3)]
    for sampling in (GREEDY, Sampling(1.0)):
        loops = [stepwise(tiny_pair.target, prompts, 12, private(d), g, rows=2, sampling=sampling) for d, g in arms]
        for (d, g), run in zip(arms, in_turns(loops, turn=3), strict=True):
            alone = generate(tiny_pair.target, prompts, 12, private(d), g, rows=2, sampling=sampling)
            assert [o.tokens for o in run.outputs] == [o.tokens for o in alone.outputs]
            assert [o.log.accepted for o in run.outputs] == [o.log.accepted for o in alone.outputs]


def test_a_private_draft_shares_weights_and_remembers_nothing(tiny_pair):
    draft = next(iter(tiny_pair.drafts.values()))
    generate(tiny_pair.target, [[1, 2, 3]], 8, own := private(draft), 2)
    assert own.model is draft.model and own.batch is not draft.batch and private(None) is None
    suffix = Suffix(draft.vocab)
    generate(tiny_pair.target, [[1, 2, 3] * 4], 8, suffix, 2)
    before = suffix.fill
    generate(tiny_pair.target, [[1, 2, 3] * 4], 8, own := private(suffix), 2)
    assert suffix.fill == before > 1 and own.memory is not suffix.memory
