"""What a reader of the stream sees: gaps between chunks and tokens, TTFT, TPOT, ITL, the longest pause, and a buffer.

A round commits its tokens together, so they arrive as one chunk after a gap of T_round.  A mean over tokens hides the
gap, and a mean over chunks hides the tokens.  Both views are here, with the identities that tie them together (P20).
All times are seconds.
"""

from dataclasses import dataclass

import numpy as np

from specgain import _checks


def gap_variation(committed_length, round_variation=0.0):
    """Return CV² = E[L]·(1 + CV_T²) − 1 of the gaps per token; `round_variation` is CV_T², that of the round times.

    A chunk of L tokens is one gap of T and L − 1 gaps of zero.  Holds however L and T depend on each other.
    Source: P20.

    >>> gap_variation(3.0)
    2.0
    """
    _checks.length("committed_length", committed_length)
    return committed_length * (1 + _checks.time("round_variation", round_variation)) - 1


def zero_share(committed_length):
    """Return 1 − 1/E[L], the share of tokens that arrive together with the token before them, in [0, 1).

    >>> zero_share(4.0)
    0.75
    """
    return 1 - 1 / _checks.length("committed_length", committed_length)


def variation(gaps):
    """Return CV² of the gaps, variance over squared mean: 0 for an even stream.  Needs a mean above 0."""
    gaps = _gaps(gaps)
    if not gaps.mean() > 0:
        raise ValueError("all gaps are zero; CV² needs a mean gap above 0 s")
    return float(gaps.var() / gaps.mean() ** 2)


@dataclass(frozen=True)
class Summary:
    """A list of gaps in a few numbers, in seconds; `zeros` is the share of gaps of exactly 0."""

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    longest: float
    zeros: float
    variation: float


def summary(gaps):
    """Return the `Summary` of gaps: mean, percentiles (linear between order statistics), longest, CV²."""
    gaps = _gaps(gaps)
    p50, p95, p99 = (float(p) for p in np.percentile(gaps, [50, 95, 99]))
    return Summary(
        len(gaps), float(gaps.mean()), p50, p95, p99, float(gaps.max()), float((gaps == 0).mean()), variation(gaps)
    )


def too_long(gaps, threshold):
    """Return the share of gaps above `threshold` seconds, the longest pause that the use accepts; in [0, 1].

    The threshold is set by whoever waits.  No percentile of the measurement can stand in for it.
    """
    return float((_gaps(gaps) > _checks.positive_time("threshold", threshold)).mean())


def _gaps(gaps):
    gaps = np.asarray(gaps, dtype=float)
    if gaps.ndim != 1 or len(gaps) == 0:
        raise ValueError(f"gaps has shape {gaps.shape}; give a list of at least one gap in seconds")
    if not (np.isfinite(gaps).all() and (gaps >= 0).all()):
        raise ValueError("gaps must be finite times of 0 s or more; a negative gap is a clock that went back")
    return gaps


@dataclass(frozen=True)
class Stream:
    """One request as its reader sees it: when it was sent and scheduled, when each chunk came, and how long it was.

    `times` holds the moments at which the engine put out a chunk, `tokens` the tokens in each.  `received` are the
    moments at the client, if somebody noted them; without it the network takes no time.

    >>> s = Stream(sent=0.0, scheduled=0.2, times=(0.5, 0.6, 0.7), tokens=(1, 3, 2))
    >>> s.token_gaps().round(3).tolist(), round(s.tpot, 3)
    ([0.1, 0.0, 0.0, 0.1, 0.0], 0.04)
    """

    sent: float
    scheduled: float
    times: tuple
    tokens: tuple
    received: tuple | None = None

    def __post_init__(self):
        if len(self.times) != len(self.tokens) or len(self.times) == 0:
            raise ValueError(
                f"times has {len(self.times)} chunks and tokens {len(self.tokens)}; give one of each per chunk, at least one"
            )
        for count in self.tokens:
            _checks.whole("tokens", count, least=1)
        if not self.sent <= self.scheduled <= self.times[0]:
            raise ValueError(
                f"sent = {self.sent}, scheduled = {self.scheduled}, first chunk {self.times[0]}: they must rise"
            )
        if self.received is not None and len(self.received) != len(self.times):
            raise ValueError(f"received has {len(self.received)} moments for {len(self.times)} chunks; give one each")
        _gaps([0.0, *np.diff(self.times)])
        _gaps([0.0, *np.diff(self.at_client), *(np.array(self.at_client) - np.array(self.times))])

    @classmethod
    def of_rounds(cls, t_rounds, committed, prefill_tokens=1):
        """Return the stream of consecutive rounds with these times and tokens, the clock starting at the first token."""
        times = np.concatenate([[0.0], np.cumsum(t_rounds)])
        return cls(0.0, 0.0, tuple(times.tolist()), (prefill_tokens, *committed))

    @property
    def at_client(self):
        """The moments at which the client got the chunks."""
        return self.times if self.received is None else self.received

    def chunk_gaps(self):
        """Return the pauses between consecutive chunks at the engine: an array of chunks − 1 seconds, each a T_round."""
        return np.diff(np.asarray(self.times, dtype=float))

    def token_gaps(self):
        """Return one gap per token after the first: the first of a chunk waits,
        the others wait 0 s.  Sums to the same as the gaps between chunks.
        """
        gaps = np.zeros(sum(self.tokens))
        gaps[np.cumsum(self.tokens)[:-1]] = self.chunk_gaps()
        return gaps[1:]

    def ttft(self, meaning="engine"):
        """Return the time to the first token, in seconds, in one of the three meanings in use.

        "engine": from sending to the first output, queue and prefill in (vLLM's Prometheus metric).  "client": the
        same up to its arrival, network in (`vllm bench serve`).  "scheduled": from being scheduled, queue left out
        (vLLM's response field `time_to_first_token_ms`).
        """
        ends = {
            "engine": (self.sent, self.times[0]),
            "client": (self.sent, self.at_client[0]),
            "scheduled": (self.scheduled, self.times[0]),
        }
        begin, end = ends[_meaning(meaning, ends)]
        return end - begin

    @property
    def tpot(self):
        """Mean time per token after the first, in seconds: (last chunk − first) / (tokens − 1); NaN for one token."""
        after = sum(self.tokens) - 1
        return (self.times[-1] - self.times[0]) / after if after else float("nan")

    def itl(self, meaning="engine"):
        """Return the inter-token latency, in seconds, in one of the three meanings in use.

        "engine": the gaps between the engine's outputs, one per round (vLLM's Prometheus metric).  "client": the gaps
        between chunks as they arrive (`vllm bench serve`).  "response": one number, the decode time over tokens − 1,
        which is TPOT (vLLM's response field `mean_itl_ms`).
        """
        ways = {
            "engine": self.chunk_gaps,
            "client": lambda: np.diff(np.asarray(self.at_client, dtype=float)),
            "response": lambda: self.tpot,
        }
        return ways[_meaning(meaning, ways)]()

    @property
    def longest_gap(self):
        """The longest pause between two chunks, in seconds; 0 for a single chunk."""
        return float(self.chunk_gaps().max(initial=0.0))


def _meaning(meaning, known):
    if meaning not in known:
        raise ValueError(f"meaning = {meaning!r} is not known; give one of {', '.join(map(repr, known))}")
    return meaning


# A buffer in the client holds tokens back and shows them at an even pace.


def _arrivals(stream):
    """Return when each token arrives at the client, first token at 0: shape (tokens,)."""
    return np.repeat(np.asarray(stream.at_client, dtype=float) - stream.at_client[0], stream.tokens)


def smooth(stream, delay, pace):
    """Return when each token is shown, the first arrival being 0: shape (tokens,), seconds.

    The buffer holds the first token back for `delay` seconds and then shows at most one token per `pace` seconds.
    A token that comes too late is shown when it comes, and the pace goes on from there.
    """
    order = np.arange(sum(stream.tokens)) * _checks.time("pace", pace)
    late = np.maximum.accumulate(_arrivals(stream) - order)
    return order + np.maximum(late, _checks.time("delay", delay))


def even_delay(stream, pace):
    """Return the least delay, in seconds, with which the text is shown at `pace`
    seconds a token without a stall.

    Token j has to be there at delay + j·pace, so the delay is the most that any
    token lags behind the pace.

    >>> stream = Stream(0.0, 0.0, times=(0.0, 0.3, 0.6), tokens=(1, 3, 3))
    >>> even_delay(stream, pace=0.1)
    0.2
    """
    order = np.arange(sum(stream.tokens)) * _checks.time("pace", pace)
    return round(float((_arrivals(stream) - order).max()), 12)


def delay_trade(stream, delays, pace=None):
    """Return [(delay, longest gap, CV², end)] of the smoothed stream for each delay, in seconds.

    `pace` is the stream's own TPOT if it is not given.  `end` is how much later the last token is shown than it
    came: at the pace of TPOT the delay, which is never won back.
    """
    pace = stream.tpot if pace is None else pace
    rows = []
    for delay in delays:
        shown = smooth(stream, delay, pace)
        gaps = np.diff(shown)
        rows.append((delay, float(gaps.max()), variation(gaps), float(shown[-1] - _arrivals(stream)[-1])))
    return rows
