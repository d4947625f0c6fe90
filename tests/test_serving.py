"""The serving simulator: what it conserves, the cases that have a formula, and what it does with bad input."""

import inspect
import json
import tracemalloc
from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from specgain.acceptance import Acceptance
from specgain.control import ByBatch, Controller, MovingAverage
from specgain.gain import Ledger
from specgain.hardware import H100, LLAMA_31_8B, SMOLLM2_135M
from specgain.memory import GIB, KvCache
from specgain.roofline import Roofline
from specgain.serving import (
    Engine,
    Request,
    Simulation,
    StepCost,
    chrome_trace,
    faster_rounds_slower_requests,
    poisson,
    simulate,
)

COST = StepCost(base=0.010, per_position=2e-5, per_kv_token=1e-7, draft_base=0.001, other=0.0005)
ROOMY = Engine(COST, max_num_seqs=8)
TIGHT = Engine(COST, max_num_seqs=8, max_num_batched_tokens=64, num_blocks=40, block_size=8, lookahead=3)
LAW = Acceptance([0.8, 0.6, 0.7])


def mixed(count=60, rate=12.0, seed=0):
    """Return requests of all kinds: short and long, stopped and capped, with and without a law of their own."""
    rng = np.random.default_rng(seed)

    def one(number):
        own = Acceptance.constant(0.9) if number % 5 == 0 else None
        stop = int(rng.integers(1, 60)) if number % 3 == 0 else None
        return Request(int(rng.integers(1, 150)), int(rng.integers(1, 80)), stop_at=stop, acceptance=own)

    return list(poisson(rate, count, one, seed))


ENGINES = {
    "roomy": ROOMY,
    "tight": TIGHT,
    "asynchronous": replace(TIGHT, asynchronous=True),
    "few": replace(TIGHT, max_num_batched_tokens=9),
}
LENGTHS = {"fixed": 3, "plain": 0, "ranges": [[1, 2, 3], [3, 5, 1], [6, 8, 0]], "learning": MovingAverage(3)}


@pytest.fixture(scope="module", params=[(e, g) for e in ENGINES for g in LENGTHS], ids=lambda p: "-".join(p))
def run(request):
    engine, gamma = request.param
    return simulate(ENGINES[engine], mixed(), LENGTHS[gamma], LAW, seed=4, keep="steps", gamma_max=3)


# ---------------------------------------------------------------------------------------------- conservation laws


@pytest.mark.claims("C7.1")
def test_tokens_are_conserved(run):
    asked, totals = mixed(), run.totals
    assert {r.id: r.tokens for r in run.requests} == {i: request.length for i, request in enumerate(asked)}
    assert totals.accepted + totals.rounds == totals.committed + totals.cut
    assert totals.tokens == sum(r.tokens for r in run.requests)
    for name in ("rounds", "drafted", "accepted", "cut", "prefill_tokens", "preemptions", "recomputed_tokens"):
        assert getattr(totals, name) == sum(getattr(r, name) for r in run.requests)
    # every computed position is a token that stays, one that was rolled back or cut, or one computed anew
    stays = sum(r.prompt_tokens + r.tokens - 1 for r in run.requests)
    rolled_back = totals.drafted - totals.accepted
    assert totals.positions - totals.wasted == stays + rolled_back + totals.cut + totals.recomputed_tokens


@pytest.mark.claims("C7.1")
def test_every_step_keeps_its_books(run):
    engine = run.engine
    for step in run.steps:
        rows = zip(
            step.granted, step.drafted, step.accepted, step.committed, step.rolled_back, step.context, step.blocks,
            step.prefill, strict=True,
        )  # fmt: skip
        assert sum(step.granted) <= step.positions <= engine.max_num_batched_tokens
        assert len(step.ids) == len(set(step.ids)) <= engine.max_num_seqs
        for granted, drafted, accepted, committed, rolled_back, context, blocks, prefill in rows:
            assert accepted + rolled_back == drafted and committed <= accepted + 1
            assert not (prefill and drafted) and (prefill or granted in (0, drafted + 1))
            if granted:
                assert blocks * engine.block_size >= context + granted + engine.lookahead
        if engine.num_blocks is not None:
            assert step.free_blocks >= 0 and (
                engine.asynchronous or step.free_blocks + sum(step.blocks) == engine.num_blocks
            )


@pytest.mark.claims("C7.1")
def test_requests_and_blocks_are_conserved_at_every_moment():
    for name, engine in ENGINES.items():
        asked = mixed()
        simulation = Simulation(engine, asked, 3, LAW, seed=1)
        while simulation.step() is not False:
            totals, state = simulation.result.totals, simulation.state()
            present = totals.arrived - totals.finished
            assert len(simulation.running) + len(simulation.waiting) == present, name
            assert [row["id"] for row in state] == list(simulation.running)
            assert simulation.used_blocks <= (engine.num_blocks or 1 << 60)
            assert all(row["computed"] < row["known"] for row in state)
        assert simulation.result.totals.finished == len(asked) and simulation.used_blocks == 0


@pytest.mark.claims("C7.1")
def test_time_is_conserved_and_littles_law_is_exact(run):
    totals = run.totals
    spent = totals.t_draft + totals.t_verify + totals.t_other - totals.hidden
    assert totals.time == pytest.approx(totals.idle + spent)
    assert sum(step.end - step.start for step in run.steps) == pytest.approx(spent)
    assert all(a.end <= b.start + 1e-12 for a, b in zip(run.steps, run.steps[1:], strict=False))
    latencies = run.column("latency")
    assert totals.area == pytest.approx(latencies.sum())  # the area under "requests in the system"
    in_system, rate = totals.area / totals.time, len(latencies) / totals.time
    assert in_system == pytest.approx(rate * latencies.mean())


@pytest.mark.claims("C7.3")
def test_streams_and_requests_tell_the_same(run):
    for served in run.requests[:20]:
        stream = run.stream(served.id)
        assert sum(stream.tokens) == served.tokens and len(stream.times) == served.rounds + served.prefill_tokens
        assert stream.ttft() == pytest.approx(served.ttft)
        assert stream.longest_gap == pytest.approx(served.longest_gap)
        if served.tokens > 1:
            assert stream.tpot == pytest.approx(served.tpot)


def test_the_same_seed_gives_the_same_run_whatever_is_kept():
    runs = [simulate(TIGHT, mixed(), 3, LAW, seed=2, keep=keep) for keep in ("totals", "requests", "steps", "steps")]
    assert len({repr(run.totals) for run in runs}) == 1
    assert runs[1].requests == runs[2].requests and runs[2].steps == runs[3].steps
    assert simulate(TIGHT, mixed(), 3, LAW, seed=3).totals != runs[0].totals


# ----------------------------------------------------------------------------------------- cases with a formula


@pytest.mark.claims("C7.1")
@pytest.mark.parametrize(("gamma", "a"), [(0, 0.0), (3, 1.0), (2, 0.0)])
def test_a_batch_without_arrivals(gamma, a):
    """Six equal requests at once: one step of prefill, then equal rounds of known length until the end."""
    cost, tokens, each = StepCost(base=0.01, per_position=1e-4, draft_base=0.002), 41, gamma + 1 if a else 1
    run = simulate(Engine(cost), [Request(10, tokens)] * 6, gamma, Acceptance.constant(a))
    rounds = ceil((tokens - 1) / each)
    expected = sum(cost(60, 0, 6, gamma)) + rounds * sum(cost(6 * (gamma + 1), 0, 6, gamma))
    assert run.totals.time == pytest.approx(expected) and run.totals.steps == rounds + 1


@pytest.mark.claims("C7.1", "C2.6")
@pytest.mark.parametrize("batch", [1, 5])
def test_steady_decoding_is_the_ledger(batch):
    """Mean time per token is T_round/E[L] within 1 %, and the ratio to plain decoding is the ledger's S."""
    cost = StepCost(base=0.010, per_position=1e-4, draft_base=0.0015, other=0.001)
    asked = [Request(1, 20_000)] * batch
    runs = {g: simulate(Engine(cost), asked, g, LAW, seed=1).mean("tpot") for g in (0, 3)}
    t_round = cost.round_time(batch)
    ledger = Ledger(LAW, t_round, t_decode=t_round(0))
    assert runs[0] == pytest.approx(t_round(0))
    assert runs[3] == pytest.approx(t_round(3) / LAW.committed_length(3), rel=0.01)
    assert runs[0] / runs[3] == pytest.approx(ledger.speedup(3), rel=0.01)


@pytest.mark.claims("C7.1")
def test_no_candidates_equal_plain_decoding():
    plain = simulate(TIGHT, mixed())
    for gamma in (0, [[1, 8, 0]], [[1, 1, 3], [2, 8, 0]]):
        spec = simulate(TIGHT, mixed(), gamma, LAW, seed=9, gamma_max=0)
        assert spec.requests == plain.requests and spec.totals == plain.totals


@pytest.mark.claims("C5.4")
def test_a_cache_without_end_never_preempts_and_a_large_one_is_like_it():
    endless = simulate(replace(TIGHT, num_blocks=None), mixed(), 3, LAW, seed=1)
    large = simulate(replace(TIGHT, num_blocks=8 * 40), mixed(), 3, LAW, seed=1)
    small = simulate(TIGHT, mixed(), 3, LAW, seed=1)
    assert endless.totals == large.totals and endless.totals.preemptions == 0 < small.totals.preemptions
    assert small.mean("latency") > endless.mean("latency")


def single(count, rate, seed):
    engine = Engine(StepCost(base=0.010, draft_base=0.002), max_num_seqs=1, max_num_batched_tokens=64)
    run = simulate(engine, poisson(rate, count, Request(8, 4), seed), 2, Acceptance.constant(0.5), seed=seed + 1)
    return run.column("arrival"), run.column("scheduled"), run.column("last")


def waits(arrivals, services):
    """Return the waiting times of a single server, first come, first served (Lindley's recursion, solved)."""
    steps = np.concatenate([[0.0], services[:-1] - np.diff(arrivals)]).cumsum()
    return steps - np.minimum.accumulate(steps)


def test_one_slot_is_a_queue_with_one_server():
    """Each wait is Lindley's, exactly; and the waits of such a queue have Pollaczek and Khinchine's mean within 1 %."""
    arrivals, scheduled, last = single(3000, 10.0, seed=3)
    services = last - scheduled
    assert scheduled - arrivals == pytest.approx(waits(arrivals, services), abs=1e-9)
    rng = np.random.default_rng(0)
    drawn, rate = rng.choice(services, 4_000_000), 10.0
    mean = waits(rng.exponential(1 / rate, len(drawn)).cumsum(), drawn).mean()
    assert mean == pytest.approx(pollaczek_khinchine(rate, services), rel=0.01)


def pollaczek_khinchine(rate, services):
    return rate * (services**2).mean() / 2 / (1 - rate * services.mean())


@pytest.mark.slow
def test_pollaczek_khinchine_by_the_simulator_alone():
    runs = [single(40_000, 10.0, seed) for seed in range(6)]
    waited = np.mean([(scheduled - arrivals).mean() for arrivals, scheduled, _ in runs])
    services = np.concatenate([last - scheduled for _, scheduled, last in runs])
    assert waited == pytest.approx(pollaczek_khinchine(10.0, services), rel=0.01)


@pytest.mark.claims("C7.1")
@pytest.mark.parametrize("seed", range(8))
def test_the_same_recorded_rounds_in_a_model_of_processes(seed):
    """Another program for the same system, one SimPy process per request: every moment of every request is the same."""
    serving = pytest.importorskip("benchmarks.serving", reason="needs simpy", exc_type=ImportError)
    rng = np.random.default_rng(seed)
    engine = Engine(
        COST, max_num_seqs=int(rng.integers(1, 20)), max_num_batched_tokens=int(rng.integers(20, 200)),
        num_blocks=int(rng.integers(60, 200)), block_size=int(rng.integers(8, 20)), lookahead=int(rng.integers(0, 6)),
    )  # fmt: skip
    assert serving.agreement(40, engine, seed)["largest_difference_s"] < 1e-9


def test_the_models_agree_where_much_is_preempted():
    serving = pytest.importorskip("benchmarks.serving", reason="needs simpy", exc_type=ImportError)
    assert serving.agreement(120)["preemptions"] > 10


# ------------------------------------------------------------------------------------------------- one mechanism each


@pytest.mark.claims("C7.2")
def test_a_prompt_is_prefilled_in_chunks_behind_the_running_requests():
    engine = Engine(StepCost(base=0.01), max_num_seqs=4, max_num_batched_tokens=32)
    run = simulate(engine, [Request(4, 50), Request(100, 5, arrival=0.05)], 3, LAW, keep="steps")
    chunks = [step.granted[step.ids.index(1)] for step in run.steps if 1 in step.ids and step.prefill[-1]]
    assert chunks == [28, 28, 28, 16] and sum(chunks) == 100
    assert all(step.granted[0] == 4 for step in run.steps if step.ids == (0, 1) and step.prefill[1])
    whole = simulate(
        replace(engine, chunked_prefill=False, max_num_batched_tokens=104), [Request(100, 5)], keep="steps"
    )
    assert whole.steps[0].granted == (100,)


@pytest.mark.claims("C7.2")
def test_asynchronous_scheduling_hides_the_host_and_finds_a_stop_one_step_late():
    cost, asked = StepCost(base=0.010, other=0.004), [Request(5, 40, stop_at=21), Request(5, 40)]
    waits_for_host = simulate(Engine(cost), asked, 1, Acceptance.constant(1.0))
    hides = simulate(Engine(cost, asynchronous=True), asked, 1, Acceptance.constant(1.0))
    assert waits_for_host.totals.time == pytest.approx(0.014 * waits_for_host.totals.steps)
    assert hides.totals.time == pytest.approx(0.010 * hides.totals.steps)
    assert (waits_for_host.totals.wasted, hides.totals.wasted) == (0, 2)  # the two positions of one late round
    assert [r.finish for r in sorted(hides.requests)] == ["stop", "length"]


@pytest.mark.claims("C7.2")
def test_graph_sizes_make_the_cost_a_staircase():
    cost = StepCost(base=0.0, per_position=0.001, sizes=(4, 8))
    assert [cost.padded(n) for n in (1, 4, 5, 8, 9)] == [4, 4, 8, 8, 9]
    times = [simulate(Engine(cost), [Request(4, 9)], g, Acceptance.constant(1.0)).totals.time for g in (0, 1, 3, 7)]
    assert times == pytest.approx([0.004 * 9, 0.004 * 5, 0.004 * 3, 0.004 + 0.008])


@pytest.mark.claims("C7.1")
def test_candidates_are_drafted_one_step_before_they_are_verified():
    """The length is looked up with the batch of the step that drafts, as in the engine; the next step verifies it."""
    ranges = [[1, 2, 3], [3, 8, 1]]
    run = simulate(ROOMY, mixed(20, rate=30.0), ranges, LAW, seed=1, keep="steps")
    for before, step in zip(run.steps, run.steps[1:], strict=False):
        length = ByBatch(ranges).gamma(sum(g > 0 for g in before.granted), None)
        for identifier, prefill, drafted in zip(step.ids, step.prefill, step.drafted, strict=True):
            assert prefill or drafted == length or identifier not in before.ids


class Alternating(Controller):
    """Even requests get one candidate, odd ones what they accepted last time plus one; notes what it is told."""

    def __init__(self):
        self.last, self.seen, self.over = {}, [], []

    def gamma(self, batch_size, request):
        return 1 if request % 2 == 0 else self.last.get(request, 0) + 1

    def observe(self, request, drafted, accepted):
        self.seen.append((drafted, accepted))
        self.last[request] = accepted

    def finish(self, request):
        self.over.append(request)


@pytest.mark.claims("C7.1")
def test_a_controller_decides_per_request_and_hears_of_every_round():
    controller = Alternating()
    run = simulate(ROOMY, mixed(20), controller, LAW, seed=1, keep="steps", gamma_max=3)
    assert len(controller.seen) == run.totals.rounds and sorted(controller.over) == list(range(20))
    assert sum(d for d, _ in controller.seen) == run.totals.drafted
    assert sum(k for _, k in controller.seen) == run.totals.accepted
    assert all(max(step.drafted, default=0) <= 3 for step in run.steps)
    assert any(len(set(step.drafted)) > 1 for step in run.steps)


@pytest.mark.claims("C7.1", "C2.4")
def test_each_request_follows_its_own_law():
    asked = [Request(1, 8000, acceptance=Acceptance.constant(a)) for a in (0.2, 0.9)]
    run = simulate(Engine(COST), asked, 3, seed=1)
    for served, request in zip(sorted(run.requests), asked, strict=True):
        length = (served.tokens - 1) / served.rounds
        assert length == pytest.approx(request.acceptance.committed_length(3), rel=0.02)


@pytest.mark.claims("C7.4")
def test_only_what_precedes_the_end_is_committed():
    """A text that ends inside an accepted prefix: the counters say three, the reader gets two."""
    rounds = ((3, 3), (3, 3), (0, 0))
    for request in (Request(5, 7, rounds=rounds), Request(5, 40, stop_at=7, rounds=rounds)):
        run = simulate(ROOMY, [request], keep="steps")
        served = run.requests[0]
        assert (served.tokens, served.rounds, served.accepted, served.cut) == (7, 2, 6, 2)
        assert run.stream(0).tokens == (1, 4, 2)
        assert served.finish == ("length" if request.stop_at is None else "stop")


@pytest.mark.claims("C5.4")
def test_less_cache_makes_faster_rounds_and_slower_requests():
    plain, spec = faster_rounds_slower_requests()
    assert spec.totals.token_time < plain.totals.token_time and spec.mean("tpot") < plain.mean("tpot")
    assert spec.totals.preemptions > 2 * plain.totals.preemptions
    assert spec.mean("latency") > plain.mean("latency") and spec.totals.throughput < plain.totals.throughput
    enough, same = faster_rounds_slower_requests(blocks=(400, 400), requests=100)
    assert same.mean("latency") < enough.mean("latency")  # with room for both, the draft does help


@pytest.mark.claims("C5.4")
def test_blocks_are_those_of_the_memory_account():
    engine = Engine(COST, block_size=128)
    cache = KvCache.of(GIB, SMOLLM2_135M, format="fp32", block_tokens=128)
    shrunk = KvCache.of(GIB, SMOLLM2_135M, SMOLLM2_135M.cut(26), format="fp32", block_tokens=128)
    assert inspect.signature(faster_rounds_slower_requests).parameters["blocks"].default == (
        cache.blocks,
        shrunk.blocks,
    )
    assert all(engine.blocks(n + 3) == cache.blocks_for(n, lookahead=3) for n in range(1, 600))
    asked = [Request(400, 300)] * 40  # 6 blocks at the end, 4 at admission
    full = Engine(COST, max_num_seqs=40, max_num_batched_tokens=16_000, num_blocks=cache.blocks, block_size=128)
    run = simulate(full, asked, keep="steps")
    assert len(run.steps[0].ids) == min(40, cache.admission(400, 300).arriving) == 40
    assert run.totals.preemptions > 0  # 40 · 6 > 182: "what exceeds `full` may have to be preempted later"
    fitting = simulate(replace(full, max_num_seqs=cache.admission(400, 299).full), asked)
    assert fitting.totals.preemptions == 0


@pytest.mark.claims("C7.1", "C5.1")
def test_a_roofline_is_a_step_cost():
    """Eight requests decode behind about 2,100 tokens on an H100: TPOT is the roofline's round over E[L], within 2 %."""
    roof = Roofline(H100, LLAMA_31_8B, LLAMA_31_8B.cut(1))
    engine = Engine(roof.step, max_num_seqs=8, max_num_batched_tokens=20_000)
    runs = {g: simulate(engine, [Request(2000, 200)] * 8, g, LAW, seed=3) for g in (0, 3)}
    for gamma, run in runs.items():
        expected = roof.round_time(8, 2100)(gamma) / LAW.committed_length(gamma)
        assert run.totals.token_time == pytest.approx(expected, rel=0.02)


def test_a_closed_loop_keeps_its_clients_busy():
    run = simulate(ROOMY, [Request(5, 10)] * 12, clients=3, keep="steps")
    assert all(len(step.ids) == 3 for step in run.steps) and len(run.requests) == 12


def test_a_run_can_be_left_and_taken_up_again():
    simulation = Simulation(TIGHT, mixed(), 3, LAW, seed=1)
    simulation.run(until=1.0)
    assert simulation.result.totals.finished < 60
    assert simulation.run().totals == simulate(TIGHT, mixed(), 3, LAW, seed=1).totals


def test_memory_is_flat_in_the_rounds():
    def peak(count):
        asked = (Request(10, 200) for _ in range(count))
        tracemalloc.start()
        simulate(Engine(COST, max_num_seqs=32), asked, 3, LAW, clients=32, keep="totals")
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(32)  # the first run imports and caches
    assert peak(160) < 1.05 * peak(40)


@pytest.mark.claims("C7.1")
def test_the_trace_opens_in_a_viewer_and_loses_nothing(tmp_path):
    run = simulate(TIGHT, mixed(), 3, LAW, seed=1, keep="steps")
    trace = chrome_trace(run, tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert events == json.loads(json.dumps(trace["traceEvents"]))
    spans = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in spans)
    rounds = [event["args"] for event in spans if event["name"] == "round"]
    assert len(rounds) == run.totals.rounds and sum(r["accepted"] for r in rounds) == run.totals.accepted
    assert sum(event["ph"] == "i" for event in events) == run.totals.preemptions
    for track in {event["tid"] for event in spans} - {0}:
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if e["tid"] == track)
        assert all(a[1] <= b[0] + 1e-3 for a, b in zip(own, own[1:], strict=False))  # µs


# ------------------------------------------------------------------------------------------------------ bad input


def test_a_request_that_can_never_run_is_reported_and_the_others_are_served():
    asked = [Request(10, 10), Request(400, 10), Request(10, 10)]
    run = simulate(TIGHT, asked, 3, LAW)
    assert [r.id for r in run.requests] == [0, 2] and run.totals.refused == 1
    assert run.refused == [(1, "needs 52 blocks at its end, the cache has 40")]
    loop = simulate(TIGHT, [Request(400, 1)] * 5, clients=2)
    assert loop.totals.refused == 5 and loop.totals.time == 0
    undivided = replace(TIGHT, chunked_prefill=False)
    assert "without chunked prefill" in simulate(undivided, [Request(70, 1)]).refused[0][1]


def test_the_largest_request_that_fits_is_served_alone():
    """40 blocks of 8 slots: 313 + 2 − 1 tokens, 3 candidates and 3 slots ahead just fit."""
    fits, exceeds = Request(313, 2), Request(314, 2)
    run = simulate(TIGHT, [fits, fits], 3, Acceptance.constant(0.0))
    assert len(run.requests) == 2 and not run.refused
    assert simulate(TIGHT, [exceeds], 3).refused


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda: list(poisson(-1.0, 3, Request(1, 1))), ValueError, "rate = -1.0"),
        (lambda: list(poisson(float("nan"), 3, Request(1, 1))), ValueError, "rate"),
        (lambda: Request(0, 1), ValueError, "prompt_tokens"),
        (lambda: Request(1, 2.5), TypeError, "output_tokens"),
        (lambda: Request(1, 1, arrival=-1.0), ValueError, "arrival"),
        (lambda: Request(1, 1, acceptance=0.8), TypeError, "Acceptance.constant"),
        (lambda: Request(1, 4, rounds=((2, 3),)), ValueError, "K cannot exceed"),
        (lambda: Request(1, 40, rounds=((3, 1),)), ValueError, "commit 3 tokens"),
        (lambda: StepCost(base=-0.01), ValueError, "base"),
        (lambda: StepCost(base=0.01, sizes=(8, 4)), ValueError, "rising"),
        (lambda: Engine(cost=0.01), TypeError, "StepCost"),
        (lambda: Engine(COST, max_num_seqs=0), ValueError, "max_num_seqs"),
        (lambda: Engine(COST, num_blocks=-3), ValueError, "num_blocks"),
        (lambda: Engine(COST, max_num_seqs=64, max_num_batched_tokens=32), ValueError, "the budget must hold"),
        (lambda: simulate(ROOMY, [Request(1, 1)], gamma=-1), ValueError, "gamma"),
        (lambda: simulate(ROOMY, [Request(1, 1)], gamma=[[2, 8, 3]]), ValueError, "rise from 1"),
        (lambda: simulate(ROOMY, [Request(1, 9)], 4, LAW), ValueError, "beyond the 3 positions"),
        (lambda: simulate(ROOMY, [Request(1, 9)], 4, 0.8), TypeError, "Acceptance.constant"),
        (lambda: simulate(ROOMY, [Request(1, 1)], keep="all"), ValueError, "keep = 'all'"),
        (lambda: simulate(ROOMY, [Request(1, 1)], clients=0), ValueError, "clients"),
        (lambda: simulate(ROOMY, [Request(1, 1, 2.0), Request(1, 1, 1.0)]), ValueError, "sort the requests"),
        (lambda: simulate(Engine(StepCost(0.0)), [Request(1, 1)]), ValueError, "more than 0 s"),
        (lambda: simulate(ROOMY, [Request(1, 1)]).stream(0), ValueError, 'keep="steps"'),
        (lambda: simulate(ROOMY, [Request(1, 1)], keep="totals").mean("ttft"), ValueError, "no finished request"),
        (lambda: simulate(ROOMY, [Request(1, 1)]).totals.committed_length, ValueError, "no request decoded"),
        (lambda: chrome_trace(simulate(ROOMY, [Request(1, 1)])), ValueError, "no steps"),
    ],
)
def test_bad_input_is_named(wrong, error, says):
    with pytest.raises(error, match=says):
        wrong()
