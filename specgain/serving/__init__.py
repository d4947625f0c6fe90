"""A server in steps: continuous batching with speculation, KV blocks, preemption, and what each request saw of it.

    Request, poisson            who asks for what, and when
    StepCost, Engine            what a step costs, and the limits of the scheduler
    simulate, Simulation        run it to the end, or step by step
    chrome_trace                the events of a run for a trace viewer

One run in four lines: a draft that doubles the tokens per round, four requests at once.

>>> engine = Engine(StepCost(base=0.010, draft_base=0.001), max_num_seqs=4)
>>> asked = [Request(prompt_tokens=20, output_tokens=100) for _ in range(8)]
>>> plain = simulate(engine, asked)
>>> spec = simulate(engine, asked, gamma=3, acceptance=Acceptance.constant(0.6), seed=1)
>>> round(plain.mean("tpot"), 4), round(spec.mean("tpot"), 4)
(0.01, 0.0059)

Faster rounds, slower requests: the draft's cache leaves 97 of 182 blocks.  The same arrivals, two runs:

>>> plain, spec = faster_rounds_slower_requests()
>>> [round(1e3 * run.totals.token_time, 1) for run in (plain, spec)]  # T_round / E[L] in ms
[22.4, 13.7]
>>> [run.totals.preemptions for run in (plain, spec)]
[93, 208]
>>> [round(run.mean("latency"), 1) for run in (plain, spec)]  # from arrival to the last token, in s
[12.5, 15.6]
"""

from specgain.acceptance import Acceptance  # noqa: F401
from specgain.serving.captures import Replay, fit_cost, recorded_rounds, replay_captures  # noqa: F401
from specgain.serving.model import Engine, Request, StepCost, poisson  # noqa: F401
from specgain.serving.scenes import faster_rounds_slower_requests  # noqa: F401
from specgain.serving.simulator import Result, Served, Simulation, Step, Totals, simulate  # noqa: F401
from specgain.serving.trace import chrome_trace  # noqa: F401
