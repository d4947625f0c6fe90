"""Replay of captured engine runs: step costs fitted on the plain run, the recorded acceptance of the other one, judged.

A capture is the result of `vllm bench serve --save-detailed`: prompt and output lengths, the time to the first token and
the gaps between chunks of every request.  Chunks are rounds, so their number per request is known exactly.
"""

from dataclasses import dataclass

import numpy as np

from specgain import _checks
from specgain.gain import bootstrap, interval
from specgain.serving.model import Engine, Request, StepCost
from specgain.serving.simulator import simulate


def recorded_rounds(rounds, drafted, accepted):
    """Return the (drafted, accepted) pairs of a request of `rounds` rounds, those without a draft in front.

    An engine records the rounds that carried a draft, in order, but not where between them the others lay.  The number
    of rounds and of tokens does not depend on that, unless the last round was cut; then it had a draft and comes last.
    """
    without = _checks.whole("rounds", rounds) - len(drafted)
    if without < 0 or len(drafted) != len(accepted):
        raise ValueError(
            f"{len(drafted)} drafted and {len(accepted)} accepted counts for {rounds} rounds; give one of each per draft"
        )
    return ((0, 0),) * without + tuple(zip(drafted, accepted, strict=True))


def prefill_steps(capture, clients):
    """Return [(positions, seconds)] of the steps that prefilled, read from the times to the first token.

    With one client each prefill is a step of its own.  With more they come in waves: the engine starts the first request
    alone, and the others, which reached it a moment later, together in the next step beside the first one's round.
    """
    steps = []
    for wave in _waves(capture, clients):
        prompts, ttfts = (np.array([capture[key][i] for i in wave]) for key in ("input_lens", "ttfts"))
        first = int(ttfts.argmin())
        steps.append((int(prompts[first]), float(ttfts[first])))
        if len(wave) > 1:
            steps.append((int(prompts.sum() - prompts[first]) + 1, float(ttfts.max() - ttfts[first])))
    return steps


def _waves(capture, clients):
    count = len(capture["input_lens"])
    return [range(start, min(start + clients, count)) for start in range(0, count, clients)]


def fit_cost(plain, clients):
    """Return the `StepCost` of a captured plain run: base + per_position · positions.

    The line goes through the mean decode step of `clients` positions (the gap in which a wave prefilled left out); its
    slope is that of the prefill steps by least squares, and 0 at least.
    """
    gaps = np.concatenate([np.asarray(row)[clients > 1 :] for row in plain["itls"]])
    t_decode, steps = float(gaps.mean()), prefill_steps(plain, clients)
    wider = np.array([positions - clients for positions, _ in steps], dtype=float)
    slower = np.array([seconds - t_decode for _, seconds in steps])
    slope = max(0.0, float(wider @ slower / (wider @ wider)))
    return StepCost(base=t_decode - slope * clients, per_position=slope)


@dataclass(frozen=True)
class Replay:
    """A capture replayed: the simulated runs and the ratio of mean TPOTs, speculation over plain.

    `ratio` is predicted; `captured_ratio` is the capture's, from `low` to `high` (95 %, bootstrap over requests).
    """

    plain: object
    spec: object
    ratio: float
    captured_ratio: float
    low: float
    high: float

    @property
    def residual(self):
        """Predicted over captured ratio, minus 1."""
        return self.ratio / self.captured_ratio - 1

    @property
    def inside(self):
        """True if the prediction lies in the capture's own interval."""
        return self.low <= self.ratio <= self.high


def replay_captures(plain, spec, rounds, clients):
    """Return the `Replay` of two captures; `rounds` are the recorded rounds of each request of `spec`.

    Only the plain capture gives times.  Of the speculative one the simulator sees prompts, output lengths and what was
    drafted and accepted; its times are what the prediction is judged by.
    """
    engine = Engine(fit_cost(plain, clients), max_num_seqs=clients)
    sides = [
        simulate(engine, map(Request, plain["input_lens"], plain["output_lens"]), clients=clients, keep="steps"),
        simulate(
            engine,
            [Request(p, n, rounds=r) for p, n, r in zip(spec["input_lens"], spec["output_lens"], rounds, strict=True)],
            clients=clients,
            keep="steps",
        ),
    ]
    tpots = [np.array([[tpot, 1.0] for tpot in tpots_of(capture)]) for capture in (spec, plain)]
    resampled = bootstrap(tpots, lambda s, p: (s[:, 0] / s[:, 1]) / (p[:, 0] / p[:, 1]))
    captured = tpots[0][:, 0].mean() / tpots[1][:, 0].mean()
    return Replay(*sides, sides[1].mean("tpot") / sides[0].mean("tpot"), float(captured), *interval(resampled))


def tpots_of(capture):
    """Return the TPOT of every request of a capture: the sum of its gaps over its tokens after the first, in seconds."""
    return [sum(gaps) / (n - 1) for gaps, n in zip(capture["itls"], capture["output_lens"], strict=True)]
