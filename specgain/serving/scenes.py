"""Small runs that the chapters show and tests lean on."""

from dataclasses import replace

from specgain.acceptance import Acceptance
from specgain.serving.model import Engine, Request, StepCost, poisson
from specgain.serving.simulator import simulate


def faster_rounds_slower_requests(
    cost=None,
    blocks=(182, 97),
    block_size=128,
    rate=1.0,
    requests=250,
    gamma=3,
    a=0.6,
    prompt_tokens=1500,
    output_tokens=500,
    max_num_seqs=16,
    seed=7,
):
    """Return (plain, spec): the `Result`s of the same arrivals without and with a draft that shrinks the cache.

    `blocks` are the cache's blocks without and with the draft: those that a real engine reported for a small model and
    its 26-of-30-layer draft (tests/data/engine); the times are invented.  Both runs have the same cost, arrivals and
    prompts.  Compare `totals.token_time` (T_round/E[L]), `totals.preemptions`, `mean("tpot")`, `mean("latency")`.
    """
    cost = cost or StepCost(base=0.020, per_position=0.00005, draft_base=0.002)
    limits = dict(max_num_seqs=max_num_seqs, block_size=block_size)
    plain = Engine(cost, num_blocks=blocks[0], **limits)
    spec = replace(plain, num_blocks=blocks[1], lookahead=gamma)
    asked = list(poisson(rate, requests, Request(prompt_tokens, output_tokens), seed))
    law = Acceptance.constant(a)
    return simulate(plain, asked), simulate(spec, asked, gamma, law, seed=seed)
