"""The serving simulator beside the same system as plain SimPy processes: same results, and what each costs.

    python -m benchmarks.serving [--rounds 1000000]

Writes benchmarks/results/serving.json. The SimPy model is what one would write first: a process for every request, one
for the engine, objects and lists. Fed with the same recorded rounds the two must agree in every moment of every request;
fed with an acceptance law they agree within noise. Times are CPU seconds of one core.
"""

import argparse
import json
import os
import platform
import random
import time
import tracemalloc
from pathlib import Path
from time import process_time

import numpy as np
import simpy

from specgain.acceptance import Acceptance
from specgain.serving import Engine, Request, StepCost, poisson, simulate

RESULTS = Path(__file__).parent / "results" / "serving.json"


class Server:
    """The engine as a SimPy process over a list of running and a list of waiting requests."""

    def __init__(self, env, engine, gamma, accept):
        self.env, self.engine, self.gamma, self.accept = env, engine, gamma, accept
        self.running, self.waiting, self.free = [], [], engine.num_blocks
        self.arrival, self.preemptions, self.rounds = env.event(), 0, 0
        env.process(self.run())

    def submit(self, job):
        job.done = self.env.event()
        self.waiting.append(job)
        if not self.arrival.triggered:
            self.arrival.succeed()
        return job.done

    def run(self):
        while True:
            if not (self.running or self.waiting):
                self.arrival = self.env.event()
                yield self.arrival
            work = self.schedule()
            positions = sum(granted for _, granted in work)
            context = sum(job.computed for job, _ in work)
            sampling = [job for job, granted in work if granted >= job.known - job.computed]
            length = self.gamma if sampling else 0
            yield self.env.timeout(sum(self.engine.cost(positions, context, len(sampling), length)))
            for job, granted in work:
                self.update(job, granted)

    def schedule(self):
        """Return [(job, positions)]; preempt from the back, admit from the front of the queue."""
        work, budget, place, short = [], self.engine.max_num_batched_tokens, 0, False
        while place < len(self.running) and budget > 0:
            job = self.running[place]
            granted = min(job.known + job.gamma - job.computed, budget)
            while not self.reserve(job, granted):
                short = True
                if self.preempt() is job:
                    break
            else:
                work.append((job, granted))
                budget, place = budget - granted, place + 1
        while self.waiting and not short and len(self.running) < self.engine.max_num_seqs and budget > 0:
            job = self.waiting[0]
            granted = min(job.known, budget)
            if not self.reserve(job, granted):
                break
            self.running.append(self.waiting.pop(0))
            work.append((job, granted))
            budget -= granted
        return work

    def reserve(self, job, granted):
        more = max(0, self.engine.blocks(job.computed + granted + self.engine.lookahead) - job.blocks)
        if more > self.free:
            return False
        self.free, job.blocks = self.free - more, job.blocks + more
        return True

    def preempt(self):
        job = self.running.pop()
        self.free, self.preemptions = self.free + job.blocks, self.preemptions + 1
        job.blocks = job.computed = job.gamma = 0
        job.prefill = True
        self.waiting.insert(0, job)
        return job

    def update(self, job, granted):
        unread = job.known - job.computed
        if granted < unread:
            job.computed += granted
            return
        accepted = min(self.accept(job), granted - unread) if not job.prefill else 0
        self.rounds += not job.prefill
        job.rounds += not job.prefill
        job.computed += unread + accepted
        job.known, job.prefill, job.gamma = min(job.known + accepted + 1, job.end), False, self.gamma
        job.first, job.last = job.first or self.env.now, self.env.now
        if job.known == job.end:
            self.running.remove(job)
            self.free += job.blocks
            job.done.succeed()


class Job:
    """What the engine knows of one request."""

    def __init__(self, request, number):
        self.number, self.known = number, request.prompt_tokens
        self.end, self.record = request.prompt_tokens + request.length, request.rounds
        self.computed = self.blocks = self.gamma = self.rounds = 0
        self.prefill, self.first, self.last = True, 0.0, 0.0


def with_simpy(engine, requests, gamma, acceptance=None, clients=None, seed=0):
    """Return (jobs in order of arrival, server) of the whole run; recorded rounds win over the acceptance law."""
    env, draw = simpy.Environment(), random.Random(seed).random
    survival = acceptance.survival(gamma) if acceptance else ()

    def accept(job):
        if job.record is not None:
            return job.record[job.rounds][1]
        u = draw()
        return sum(s > u for s in survival)

    server, jobs = Server(env, engine, gamma, accept), [Job(r, i) for i, r in enumerate(requests)]

    def open_arrival(job, moment):
        yield env.timeout(moment)
        yield server.submit(job)

    def client(queue):
        for job in queue:
            yield server.submit(job)

    if clients is None:
        for job, request in zip(jobs, requests, strict=True):
            env.process(open_arrival(job, request.arrival))
    else:
        queue = iter(jobs)
        for _ in range(clients):
            env.process(client(queue))
    env.run()
    return jobs, server


ENGINE = Engine(
    StepCost(base=0.010, per_position=1e-5, draft_base=0.0005), max_num_seqs=64, num_blocks=64 * 40, lookahead=3
)
LAW = Acceptance.constant(0.6)


def asked(rounds):
    """Yield requests of 100 prompt and 400 to 520 output tokens that take about that many rounds."""
    for number in range(max(64, round(rounds * LAW.committed_length(3) / 460))):
        yield Request(100, 400 + 20 * (number % 7))


def recorded(count, seed=5):
    """Return requests at random moments with their rounds, drawn beforehand: both models then have no dice of their own."""
    rng = random.Random(seed)

    def one(number):
        tokens, rounds = rng.randint(20, 120), []
        while sum(k + 1 for _, k in rounds) < tokens + 4:  # more than it needs: the last draft is cut or thrown away
            rounds.append((3, sum(0.6 ** (i + 1) > u for u in [rng.random()] for i in range(3))))
        return Request(rng.randint(5, 300), tokens, rounds=tuple(rounds))

    return list(poisson(20.0, count, one, seed))


CROWDED = Engine(ENGINE.cost, max_num_seqs=16, max_num_batched_tokens=128, num_blocks=150, lookahead=3)


def agreement(count=400, engine=CROWDED, seed=5):
    """Return how far first and last tokens lie apart at most on the same recorded rounds, and the preemptions.

    Raises AssertionError if a request, a round or a preemption is in one model and not in the other.
    """
    requests = recorded(count, seed)
    ours = simulate(engine, requests, gamma=3)
    jobs, server = with_simpy(engine, requests, gamma=3)
    worst = max(max(abs(r.first - jobs[r.id].first), abs(r.last - jobs[r.id].last)) for r in ours.requests)
    counts = [(r.id, r.rounds) for r in sorted(ours.requests)] == [(job.number, job.rounds) for job in jobs]
    if not counts or ours.totals.preemptions != server.preemptions or worst > 1e-6:
        raise AssertionError(f"the two models differ: by {worst} s, {ours.totals.preemptions}, {server.preemptions}")
    return {"requests": count, "preemptions": server.preemptions, "largest_difference_s": worst}


def ours(rounds):
    """Return (CPU seconds, request-rounds, seconds of simulated time) of our simulator without a log."""
    began = process_time()
    totals = simulate(ENGINE, asked(rounds), 3, LAW, clients=64, keep="totals").totals
    return process_time() - began, totals.rounds, totals.time


def theirs(rounds):
    """Return the same of the SimPy model."""
    began = process_time()
    jobs, server = with_simpy(ENGINE, list(asked(rounds)), 3, LAW, clients=64)
    return process_time() - began, server.rounds, max(job.last for job in jobs)


def peak(rounds):
    """Return the peak memory of Python's allocations in MB for a run of that many rounds."""
    tracemalloc.start()
    simulate(ENGINE, asked(rounds), 3, LAW, clients=64, keep="totals")
    found = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return round(found, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=1_000_000)
    rounds, sizes = parser.parse_args().rounds, []
    for share in (0.1, 0.3, 1.0):
        seconds, done, _ = min(ours(share * rounds) for _ in range(3))
        sizes.append({"request_rounds": done, "us_per_request_round": round(1e6 * seconds / done, 3)})
    seconds, done, end = min(theirs(0.1 * rounds) for _ in range(3))
    results = {
        "about": __doc__.partition("\n")[0],
        "environment": {
            "date": time.strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "simpy": simpy.__version__,
            "machine": platform.machine(),
            "cores": os.cpu_count(),
        },
        "batch": 64,
        "ours": sizes,
        "simpy": {"request_rounds": done, "us_per_request_round": round(1e6 * seconds / done, 3)},
        "simulated_seconds": {"ours": round(ours(0.1 * rounds)[2], 3), "simpy": round(end, 3)},
        "same_recorded_rounds": agreement(),
        "peak_mb": {str(size): peak(size) for size in (30_000, 120_000)},
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
