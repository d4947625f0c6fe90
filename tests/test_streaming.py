"""Streams: the identities of P20 on random rounds, the meanings of TTFT and ITL, and the buffer against a slow copy."""

import numpy as np
import pytest

from specgain.acceptance import Acceptance
from specgain.streaming import (
    Stream,
    delay_trade,
    even_delay,
    gap_variation,
    smooth,
    summary,
    too_long,
    variation,
    zero_share,
)


def rounds(seed, count=400, a=0.8, gamma=4):
    """Return (times of rounds, tokens): gamma-distributed round times that also grow with the tokens."""
    rng = np.random.default_rng(seed)
    tokens = rng.choice(gamma + 1, p=Acceptance.constant(a).pmf(gamma), size=count) + 1
    return rng.gamma(8.0, 0.002, size=count) * (1 + 0.3 * tokens), tokens


def stream_of(gaps, tokens, first=1):
    return Stream.of_rounds(gaps, tokens.tolist(), first)


@pytest.mark.claims("C7.3")
@pytest.mark.parametrize("seed", range(5))
def test_identities_of_the_gaps(seed):
    gaps, tokens = rounds(seed)
    stream, length = stream_of(gaps, tokens), tokens.mean()
    per_token, per_chunk = stream.token_gaps(), stream.chunk_gaps()
    assert per_token.sum() == pytest.approx(per_chunk.sum()) and len(per_token) == tokens.sum()
    assert per_token.mean() == pytest.approx(stream.tpot) == pytest.approx(gaps.mean() / length)
    assert per_chunk.mean() == pytest.approx(stream.tpot * length)
    assert variation(per_token) == pytest.approx(gap_variation(length, variation(gaps)))
    assert summary(per_token).zeros == pytest.approx(zero_share(length))
    assert stream.longest_gap == pytest.approx(gaps.max()) == pytest.approx(summary(per_token).longest)


@pytest.mark.claims("C7.3")
def test_constant_rounds_have_median_zero_and_p95_of_a_whole_round():
    _, tokens = rounds(7, 4000)
    stream = stream_of(np.full(4000, 0.03), tokens)
    found = summary(stream.token_gaps())
    assert 2 < tokens.mean() < 20
    assert found.p50 == 0 and found.p95 == pytest.approx(0.03) and found.variation == pytest.approx(tokens.mean() - 1)


@pytest.mark.claims("C7.3")
def test_meanings_of_ttft_and_itl():
    """The worked example of vLLM's bench documentation: two tokens a chunk, chunks 40 ms apart: ITL 40, TPOT 20 ms."""
    stream = Stream(1.0, 1.5, (2.0, 2.04, 2.08), (1, 2, 2), received=(2.003, 2.05, 2.081))
    assert stream.ttft() == pytest.approx(1.0)
    assert stream.ttft("client") == pytest.approx(1.003)
    assert stream.ttft("scheduled") == pytest.approx(0.5)
    assert stream.itl() == pytest.approx([0.04, 0.04])
    assert stream.itl("client") == pytest.approx([0.047, 0.031])
    assert stream.itl("response") == stream.tpot == pytest.approx(0.02)


def test_a_first_chunk_of_several_tokens_and_a_single_token():
    assert Stream(0, 0, (1.0, 2.0), (3, 1)).token_gaps().tolist() == [0, 0, 1.0]
    one = Stream(0, 0, (1.0,), (1,))
    assert np.isnan(one.tpot) and len(one.token_gaps()) == 0 and one.longest_gap == 0


def slow_buffer(stream, delay, pace):
    shown, arrivals = [], []
    for moment, count in zip(stream.at_client, stream.tokens, strict=True):
        arrivals += [moment - stream.at_client[0]] * count
    for arrival in arrivals:
        shown.append(max(arrival, shown[-1] + pace if shown else delay))
    return shown


@pytest.mark.claims("C7.3")
@pytest.mark.parametrize("seed", range(5))
def test_buffer_against_a_token_by_token_copy(seed):
    stream = stream_of(*rounds(seed, 60))
    for delay in (0.0, 0.01, 0.1):
        for pace in (0.5 * stream.tpot, stream.tpot, 2 * stream.tpot):
            assert smooth(stream, delay, pace) == pytest.approx(slow_buffer(stream, delay, pace))


@pytest.mark.claims("C7.3")
@pytest.mark.parametrize("seed", range(5))
def test_the_even_delay_is_enough_and_less_is_not(seed):
    stream = stream_of(*rounds(seed, 60))
    pace = stream.tpot
    enough = even_delay(stream, pace)
    even = np.diff(smooth(stream, enough, pace))
    assert even.max() == pytest.approx(pace) and variation(even) < 1e-9
    assert np.diff(smooth(stream, 0.9 * enough, pace)).max() > pace * 1.001
    rows = delay_trade(stream, [0.0, enough / 2, enough])
    longest = [row[1] for row in rows]
    assert longest[0] >= longest[1] >= longest[2] and rows[2][2] < rows[0][2]
    assert rows[2][3] == pytest.approx(smooth(stream, enough, pace)[-1] - np.sum(stream.chunk_gaps()))
    slower = delay_trade(stream, [enough], pace=2 * pace)[0]
    assert slower[1] == pytest.approx(2 * pace) and slower[3] > rows[2][3], "a slower display falls behind"


def test_the_threshold_is_set_not_guessed():
    assert too_long([0.1, 0.2, 0.3, 0.4], 0.25) == 0.5


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: Stream(0, 0, (1.0,), ()), "one of each per chunk"),
        (lambda: Stream(0, 0, (2.0, 1.0), (1, 1)), "0 s or more"),
        (lambda: Stream(0, 3.0, (2.0,), (1,)), "they must rise"),
        (lambda: Stream(0, 0, (1.0,), (0,)), "tokens"),
        (lambda: Stream(0, 0, (1.0,), (1,), received=(0.5,)), "0 s or more"),
        (lambda: Stream(0, 0, (1.0,), (1,), received=(1.0, 2.0)), "one each"),
        (lambda: Stream(0, 0, (1.0,), (1,)).ttft("mine"), "'mine' is not known"),
        (lambda: summary([]), "at least one gap"),
        (lambda: summary([0.0, 0.0]), "above 0 s"),
        (lambda: too_long([0.1], 0), "threshold"),
        (lambda: gap_variation(0.5), "committed_length"),
        (lambda: smooth(Stream(0, 0, (1.0,), (1,)), -1, 0.1), "delay"),
    ],
)
def test_bad_input_is_named(wrong, says):
    with pytest.raises(ValueError, match=says):
        wrong()
