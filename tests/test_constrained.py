"""Drafting under a grammar: the text is that of constrained decoding, and cancelled candidates are counted nowhere."""

import random

import pytest

from specgain.serving.constrained import allowed_prefix, constrained_round, constrained_text

LIST = {
    "begin": {"[": "item"},
    "item": {"1": "next", "2": "next", "[": "inner"},
    "inner": {"1": "close", "2": "close"},
    "close": {"]": "next"},
    "next": {",": "item", "]": "end"},
    "end": {},
}
TOKENS = ["[", "]", ",", "1", "2", "so"]


def habits(seed):
    """Return (rank, draft): a target with fixed habits, and a draft that knows them well but not the grammar."""

    def rank(text):
        order = list(TOKENS)
        random.Random(f"{seed}{text[-1:]}{len(text)}").shuffle(order)
        return order

    def draft(text, gamma):
        proposed, state = [], "begin"
        for token in text:
            state = LIST[state][token]
        for _ in range(gamma):
            here = (*text, *proposed)
            moves = LIST.get(state, {})
            best = next((token for token in rank(here) if token in moves), "so")
            lucky = random.Random(f"{seed}{here}").random()
            proposed.append(best if lucky < 0.7 else "so" if lucky < 0.85 else "1")
            state = moves.get(proposed[-1])
        return proposed

    return rank, draft


SEEDS = range(12)


@pytest.mark.claims("C7.4")
@pytest.mark.parametrize("gamma", range(6))
@pytest.mark.parametrize("seed", SEEDS)
def test_the_text_is_that_of_constrained_decoding_without_a_draft(gamma, seed):
    rank, draft = habits(seed)
    text, rounds = constrained_text(LIST, "begin", draft, rank, gamma)
    assert text == constrained_text(LIST, "begin", lambda text, gamma: [], rank, 0)[0]
    assert sum(len(r.committed) for r in rounds) == len(text) == allowed_prefix(LIST, "begin", text)
    for r in rounds[:-1]:
        assert len(r.committed) == r.accepted + 1 and r.drafted + r.cancelled == gamma


@pytest.mark.claims("C7.4")
def test_cancelled_candidates_are_no_drafts():
    rank, target = ["so", "[", "1", "]"], ("[", "[")
    done = constrained_round(LIST, "begin", (), ["[", "so", "1"], lambda text: rank)
    assert (done.drafted, done.cancelled, done.accepted, done.committed, done.state) == (1, 2, 1, target, "inner")
    rounds = sum((constrained_text(LIST, "begin", habits(seed)[1], habits(seed)[0], 4)[1] for seed in SEEDS), [])
    drafted, cancelled = sum(r.drafted for r in rounds), sum(r.cancelled for r in rounds)
    assert drafted + cancelled == 4 * len(rounds) and cancelled > 10 and drafted > 10
    assert 0 < sum(r.accepted for r in rounds) < drafted


@pytest.mark.claims("C7.4")
def test_the_state_goes_back_with_a_rejected_candidate():
    """The draft closes the list, the target goes on: a state kept from the candidate would end the text after "[1,"."""
    done = constrained_round(LIST, "next", ("[", "1"), ["]"], lambda text: [",", "2", "]"])
    assert done.committed == (",",) and done.accepted == 0
    assert done.state == "item" and LIST[done.state]  # and not "end", which has no moves


def test_a_text_that_ends_inside_the_candidates_stops_there():
    grammar = {"a": {"x": "b"}, "b": {"x": "c"}, "c": {}}
    done = constrained_round(grammar, "a", (), ["x", "x"], lambda text: ["x"])
    assert done.committed == ("x", "x") and done.state == "c" and done.accepted == 2


def test_a_target_without_an_allowed_token_is_named():
    with pytest.raises(ValueError, match="lists no token"):
        constrained_text(LIST, "begin", habits(0)[1], lambda text: ["so"], 2)
