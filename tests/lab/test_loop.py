"""The speculative loop against plain greedy decoding: the same tokens, and rounds that can be counted by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specgain.lab.loop import ModelDraft, accepted_prefix, commit, decode
from specgain.lab.model import Cache


class Scripted:
    """A draft that knows the answer and is wrong at chosen places of it."""

    def __init__(self, answer, prompt_tokens, wrong=(), vocab=61):
        self.answer, self.start, self.wrong, self.vocab = answer, prompt_tokens, set(wrong), vocab

    def begin(self, prompt):
        pass

    def propose(self, context, gamma):
        places = range(len(context) - self.start, len(context) - self.start + gamma)
        return [(self.answer[i] + (i in self.wrong)) % self.vocab for i in places]


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
    assert commit([4, 5, 6], None, 10) == ([4, 5, 6], None)
    assert commit([4, 5, 6], None, 3) == ([4, 5, 6], "length")
    assert commit([4, 5, 6], 5, 10) == ([4, 5], "stop")  # inside the accepted prefix: L < K + 1
    assert commit([4, 5, 6], 6, 3) == ([4, 5, 6], "stop")


def test_accepted_prefix_is_contiguous():
    assert accepted_prefix([], [7]) == 0
    assert accepted_prefix([1, 2, 3], [1, 2, 3, 9]) == 3
    assert accepted_prefix([1, 2, 3], [1, 9, 3, 9]) == 1  # a later hit does not count


def test_a_draft_keeps_only_what_the_context_confirms(pairs):
    _, draft = pairs[1, torch.float64]
    one = ModelDraft(draft)
    one.begin([3, 4, 5])
    guesses = one.propose([3, 4, 5], 4)
    full = [3, 4, 5, *guesses, 9]  # all accepted, then the bonus token: the last guess was never fed
    partial = [3, 4, 5, *guesses[:2], 60]
    fresh = ModelDraft(draft)
    fresh.begin(full)
    assert one.propose(full, 3) == fresh.propose(full, 3)
    other, fresh = ModelDraft(draft), ModelDraft(draft)
    other.begin([3, 4, 5])
    other.propose([3, 4, 5], 4)
    fresh.begin(partial)
    assert other.propose(partial, 3) == fresh.propose(partial, 3)
    assert other.cache.length == [len(partial) + 2]


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
        (([1, 2], 4, None, 2), ValueError, "gamma = 2 needs a draft"),
        (([], 4, "draft", 2), ValueError, "prompt must hold one or more token ids from 0 to 60"),
        (([1, 61], 4, "draft", 2), ValueError, "token ids from 0 to 60"),
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
