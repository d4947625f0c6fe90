"""Token and block verification by exact enumeration: the output law, the number of tokens, and what a choice may see."""

from fractions import Fraction as F
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain import acceptance
from specgain.verification import accepted_pmf, committed_length, output_law, round_law, strings

RULES = ("token", "block")


def coin(prefix):
    return F(1, 3), F(2, 3)


def biased(prefix):
    return F(2, 3), F(1, 3)


@st.composite
def models(draw, size=None, sharp=False):
    """A random model over prefixes of at most 4 tokens: whole-number weights, some of them 0; `sharp` is T = 0."""
    size = size or draw(st.integers(2, 3))
    seed = draw(st.randoms(use_true_random=False))
    table = {}
    for prefix in (p for n in range(5) for p in product(range(size), repeat=n)):
        weights = [seed.choice((0, 0, 1, 1, 2, 3, 7)) for _ in range(size)]
        if sharp or not any(weights):
            weights = [0] * size
            weights[seed.randrange(size)] = 1
        table[prefix] = tuple(F(w, sum(weights)) for w in weights)
    return table.__getitem__


PAIRS = st.integers(2, 3).flatmap(lambda size: st.tuples(models(size), models(size)))
SHARP = st.integers(2, 3).flatmap(lambda size: st.tuples(models(size, sharp=True), models(size)))


@pytest.mark.parametrize(
    ("gamma", "token", "block"),
    [(1, F(2, 3), F(2, 3)), (2, F(10, 9), F(11, 9)), (3, F(38, 27), F(5, 3)), (4, F(130, 81), F(166, 81))],
)
def test_two_coins(gamma, token, block):
    """Accepted candidates of p = (1/3, 2/3) and q = (2/3, 1/3), known from another computation."""
    for rule, known in zip(RULES, (token, block), strict=True):
        law = round_law(coin, biased, gamma, rule)
        assert committed_length(law) - 1 == known
        assert sum(k * p for k, p in enumerate(accepted_pmf(law, gamma))) == known
        assert output_law(law, coin, gamma + 1) == strings(coin, gamma + 1)


@given(PAIRS, st.integers(0, 3), st.sampled_from(RULES))
def test_the_output_has_the_targets_law(pair, gamma, rule):
    law = round_law(*pair, gamma, rule)
    assert sum(law.values()) == 1
    assert output_law(law, pair[0], gamma + 1) == strings(pair[0], gamma + 1)


@given(PAIRS, st.integers(1, 3))
def test_block_verification_never_commits_fewer_tokens(pair, gamma):
    token, block = (round_law(*pair, gamma, rule) for rule in RULES)
    assert committed_length(block) >= committed_length(token)
    if gamma == 1:
        assert token == block


@given(PAIRS, st.integers(1, 3))
def test_block_verification_survives_at_least_as_long_at_every_position(pair, gamma):
    tails = []
    for rule in RULES:
        pmf = accepted_pmf(round_law(*pair, gamma, rule), gamma)
        tails.append([sum(pmf[i:]) for i in range(gamma + 1)])
    assert all(block >= token for token, block in zip(*tails, strict=True))


@given(SHARP, st.integers(0, 3))
def test_at_temperature_zero_both_rules_are_the_same(pair, gamma):
    assert round_law(*pair, gamma, "token") == round_law(*pair, gamma, "block")


@given(SHARP, st.integers(0, 3))
def test_with_candidates_that_are_not_drawn_both_rules_are_the_same(pair, gamma):
    draft, target = pair
    assert round_law(target, draft, gamma, "token") == round_law(target, draft, gamma, "block")


@given(PAIRS, st.integers(1, 3))
def test_token_verification_accepts_the_overlap(pair, gamma):
    """E[L] by enumeration is 1 + the sum of the s_i; with one prefix law the a_i are Σ min(p, q)."""
    law = round_law(*pair, gamma)
    pmf = accepted_pmf(law, gamma)
    assert committed_length(law) == 1 + sum(sum(pmf[i:]) for i in range(1, gamma + 1))
    p, q = (model(()) for model in pair)
    overlap = sum(map(min, p, q))
    steady = round_law(lambda _: p, lambda _: q, gamma)
    assert committed_length(steady) == acceptance.committed_length([overlap] * gamma)


@given(PAIRS, st.integers(1, 3), st.randoms(use_true_random=False), st.sampled_from(RULES))
def test_a_length_chosen_from_earlier_candidates_keeps_the_law(pair, gamma, seed, rule):
    """Keep candidate i or not by a coin that is fixed for each prefix before it: whatever the rule, nothing changes."""
    coins = {}
    keep = lambda prefix: coins.setdefault(prefix, seed.random() < 0.6)  # noqa: E731
    stop = lambda path: next((i for i in range(len(path)) if not keep(path[:i])), len(path))  # noqa: E731
    law = round_law(*pair, gamma, rule, verified=stop)
    assert output_law(law, pair[0], gamma + 1) == strings(pair[0], gamma + 1)


@pytest.mark.claims("C3.4")
def test_a_length_that_looks_at_the_token_it_decides_about_changes_the_output():
    """Dropping the candidate 1 whenever it comes up makes token 1 too rare: 5/9 instead of 2/3."""
    law = round_law(coin, biased, 1, verified=lambda path: 0 if path == (1,) else 1)
    first = output_law(law, coin, 1)
    assert first == {(0,): F(4, 9), (1,): F(5, 9)} != strings(coin, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: round_law(coin, biased, 1, "other"), "rule = 'other'"),
        (lambda: round_law(coin, lambda prefix: (F(1, 2), F(1, 3)), 1), r"after \(\) must be 0 or more"),
        (lambda: strings(lambda prefix: (F(3, 2), F(-1, 2)), 1), "must be 0 or more"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
