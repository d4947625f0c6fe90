"""Lengths live: fixed and adaptive speculation lengths of one draft in the batched loop, on mixed and uniform loads.

A plan lists the loads and the arms. The time of a step is learnt on calibration prompts. Then, load by load, all arms
decode the same test prompts; their loops take turns, so that a slow moment of the machine hits them alike. Adaptive
arms start cold on every load and learn while they serve.
"""

from dataclasses import asdict, dataclass, replace
from numbers import Integral
from time import perf_counter

import numpy as np
import torch

from specgain import calibration, gain
from specgain.control import Budget, Controller, Fixed, MovingAverage, StepRule, StopRule
from specgain.lab.confidence import load_confidence
from specgain.lab.heads import BLOCK
from specgain.lab.loop import ModelDraft, in_turns
from specgain.lab.measure import chain_or_tree, environment, first_difference, no_garbage_collection, prompt_tokens
from specgain.lab.model import Cache
from specgain.lab.pair import DOMAINS, load_pair
from specgain.lab.recorded import recorded

PLAN, RESULT = "specgain.lengths-plan/1", "specgain.lengths/1"
ADAPTIVE = ("moving average", "step rule", "budget", "stop by probability", "stop by head")
LOADS = {"json and func": ("json", "func"), "json and prose": ("json", "prose"), "json": ("json",), "func": ("func",),
         "viet": ("viet",)}  # fmt: skip


def make_plan(weights, draft="weak", rows=(4, 8), fixed=(0, 1, 2, 3, 4, 6), adaptive=ADAPTIVE, loads=LOADS, requests=32,
              uniform_requests=24, new_tokens=64, cost_rows=4, turn=32, threads=1, stagger=0,
              repeats=1, context=None):  # fmt: skip
    """Return what `lengths` will measure: a JSON-ready dict to commit before the run.

    Every load is run with each number of `rows`, by `requests` counted requests (`uniform_requests` where all are of one
    kind) and one row's worth of others behind them, so that no counted request sees an emptying batch. The cost comes
    from `cost_rows` · rows calibration prompts per arm. A turn is `turn` tokens per row. With `stagger` the prompts lose up
    to so many of their first tokens, each another number: as on a server no two rows are in step, whatever the arm. All is
    decoded `repeats` times, by fresh loops that take turns in another order: the speeds of two loops that do the very same
    differ by up to 2 %. `context` as in `measure.prompt_tokens`.
    """
    cells = [{"rows": r, "load": load, "arm": arm} for r in rows for load in loads
             for arm in (*(f"γ = {g}" for g in fixed), *adaptive)]  # fmt: skip
    return {"schema": PLAN, "weights": weights, "threads": threads, "draft": draft, "rows": list(rows),
            "fixed": list(fixed), "adaptive": list(adaptive), "loads": {load: list(of) for load, of in loads.items()},
            "requests": requests, "uniform_requests": uniform_requests, "new_tokens": new_tokens,
            "cost_rows": cost_rows, "turn": turn, "stagger": stagger, "repeats": repeats, "context": context,
            "cells": cells}  # fmt: skip


# --- the time of a step --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StepCost:
    """Seconds of a step of `rows` requests: `equal[g]` if each has g candidates, 0 being a plain step without a draft.

    With unequal rows it is base + depth · per_pass + positions · per_position, depth being the longest row's candidates.
    The two are measured apart: rows of unequal width are padded for attention, and kernels have steps that a line does
    not. If the draft writes in one pass, `per_pass` is the padding alone. `t_ask` is what asking the draft takes, whatever
    it then writes; `t_choose` what foretelling and choosing the lengths take.
    """

    rows: int
    equal: tuple
    base: float
    per_pass: float
    per_position: float
    t_ask: float = 0.0
    t_choose: float = 0.0

    def step(self, depth, positions):
        """Return the seconds of a step whose longest row has `depth` candidates, and which verifies `positions` positions.

        Of arrays too, if no depth in them is 0.
        """
        if isinstance(depth, Integral) and (depth == 0 or positions == self.rows * (depth + 1)):
            return self.equal[depth]
        unequal = self.base + depth * self.per_pass + positions * self.per_position
        return np.where(positions == self.rows * (depth + 1), np.array(self.equal)[depth], unequal)

    def round(self, gamma, batch_size):
        """Return the seconds of a round of all rows, each with `gamma` candidates."""
        return self.equal[gamma]

    @classmethod
    def fit(cls, rounds, rows):
        """Return the cost of these `loop.Round`s; rounds of fewer requests do not count.

        Equal rows: the mean of each length, on straight lines between those that were tried. Unequal rows: least squares;
        a price below 0 is noise, is set to 0, and the others are fitted anew.
        """
        full = [r for r in rounds if len(r.requests) == rows]
        depth, drafted, time, t_draft = np.array([(max(r.drafted), sum(r.drafted), r.time, r.t_draft) for r in full]).T
        alike = drafted == rows * depth
        tried = np.unique(depth[alike])
        means = [time[alike & (depth == g)].mean() for g in tried]
        equal = np.interp(np.arange(tried[-1] + 1), tried, means)
        # a row alone has one position per pass, which then stand for both, and no other row to differ from
        unequal, positions = (~alike, rows + drafted) if rows > 1 else (depth > 0, 0 * depth)
        prices, (t_ask, *_) = _prices(unequal, depth, positions, time), _prices(depth > 0, depth, drafted, t_draft)
        return cls(rows, tuple(equal.tolist()), *prices, t_ask)


def _prices(which, depth, places, seconds):
    """Return (base, per depth, per place) that explain the seconds of these rounds best, none below 0."""
    seen, seconds = np.stack([np.ones(len(depth)), depth, places], axis=1)[which], seconds[which]
    prices = None
    while prices is None or prices.min() < 0:
        seen = seen if prices is None else seen * (prices >= 0)
        prices = np.linalg.lstsq(seen, seconds, rcond=None)[0].round(15)
    return prices.tolist()


class Varied(Controller):
    """Random lengths that differ inside a step, so that depth and number of positions can be told apart."""

    def __init__(self, longest, seed):
        self.longest, self.rng = longest, np.random.default_rng(seed)

    def gammas(self, batch_size, requests):
        deepest = self.rng.integers(1, self.longest, endpoint=True)
        return self.rng.integers(0, deepest, len(requests), endpoint=True).tolist()


def measure_cost(pair, plan, rows):
    """Return the `StepCost` of `rows` rows, from calibration prompts of all kinds."""
    kinds = sorted({d for of in plan["loads"].values() for d in of})
    prompts = _prompts(pair, "calibration", kinds, plan["cost_rows"] * rows, plan)
    lengths = [*map(Fixed, plan["fixed"]), *(Varied(max(plan["fixed"]), seed) for seed in (1, 2))]
    draft = pair.drafts[plan["draft"]]
    runs = _in_turns(pair, prompts, [(one, draft) for one in lengths], plan, rows)
    cost = StepCost.fit([r for run in runs for r in run.rounds], rows)
    if "budget by head" not in plan["adaptive"]:
        return cost
    _, by_head = make_arms(pair, plan, cost)["budget by head"]
    return replace(cost, t_choose=measure_choice(pair, by_head, rows))


def measure_choice(pair, draft, rows, times=64):
    """Return the median seconds in which a budgeted `draft` foretells and chooses lengths, each time behind a target pass."""
    entries, took = torch.randn(rows, pair.target.config.width, generator=torch.Generator().manual_seed(0)), []
    for _ in range(times):
        pair.target(torch.zeros(rows, 1, dtype=torch.long), Cache(pair.target, rows, 1))
        start = perf_counter()
        draft.share(entries, [BLOCK] * rows, rows, True)
        took.append(perf_counter() - start)
    return float(np.median(took))


# --- the arms ------------------------------------------------------------------------------------------------------


def make_arms(pair, plan, cost):
    """Return {name: (controller, draft)}, all controllers fresh; γ = 0 is plain decoding, without a draft."""
    draft, longest = pair.drafts[plan["draft"]], max(plan["fixed"])
    arms = {f"γ = {g}": (Fixed(g), draft) if g else (0, None) for g in plan["fixed"]}
    for name in plan["adaptive"]:
        if name == "budget by head":
            head = load_confidence(plan["draft"], pair.folder)
            arms[name] = Fixed(longest), draft.budgeted(head, cost.step, cost.t_ask, cost.t_choose)
        elif name.startswith("stop by"):
            chance, head = (
                (float, load_confidence(plan["draft"], pair.folder)) if "head" in name else (calibrated(plan), None)
            )
            rule = StopRule(cost.round, longest, chance)
            arms[name] = rule, ModelDraft(draft.model, stop=rule, confidence=head)
        else:
            make = {"moving average": lambda: MovingAverage(longest), "budget": lambda: Budget(cost.step, longest),
                    "step rule": lambda: StepRule(cost.round, range(longest + 1))}  # fmt: skip
            arms[name] = make[name](), draft
    return arms


def calibrated(plan):
    """Return the map from the draft's probability to a chance of acceptance, from the recorded calibration prompts."""
    prompts = recorded(plan["draft"], DOMAINS, sure=True).values()
    said = [row[0] for one in prompts for row in one.confidences]
    return calibration.isotonic(said, [rank == 0 for one in prompts for rank in one.ranks])


def _prompts(pair, which, domains, count, plan):
    """Return `count` prompts of these kinds of text, in turns; of unequal lengths if the plan says so."""
    most, sets = plan.get("stagger", 0), [prompt_tokens(pair, which, d, plan.get("context")) for d in domains]
    rows = [sets[i % len(sets)][i // len(sets) % len(sets[0])].tolist() for i in range(count)]
    return [row[7 * i % (most + 1) :] for i, row in enumerate(rows)]


def _in_turns(pair, prompts, arms, plan, rows):
    """Return the `Run` of every (controller, draft) on these prompts."""
    loops = [
        chain_or_tree(pair.target, prompts, plan["new_tokens"], draft, lengths, rows=rows) for lengths, draft in arms
    ]
    with no_garbage_collection():
        return in_turns(loops, plan["turn"] * rows)


# --- the run -------------------------------------------------------------------------------------------------------


def lengths(plan, pair=None, progress=None):
    """Return the measurement of a plan, JSON-ready: one cell per (rows, load, arm), the costs, and a summary.

    A cell's `ratio` is its tokens per second over those of the best fixed length of the load, which is known only
    afterwards; `interval` is its 95 % bootstrap interval over repeats and requests, each kind of text apart.
    """
    pair = load_pair([plan["draft"]]) if pair is None else pair
    if plan.get("schema") != PLAN or plan["weights"] != pair.weights_hash:
        raise ValueError(f"the plan is for {plan.get('schema')!r} and weights {plan.get('weights')!r}; make it anew")
    before = torch.get_num_threads()
    torch.set_num_threads(plan["threads"])
    cells, costs, different, done, where = [], [], [], 0, environment(pair)
    try:
        for rows in plan["rows"]:
            _warm_up(pair, plan, rows)
            costs.append(measure_cost(pair, plan, rows))
            for load in plan["loads"]:
                found, others = _measure_load(pair, plan, costs[-1], load)
                cells, different, done = cells + found, different + others, done + 1
                if progress:
                    progress(done, len(plan["rows"]) * len(plan["loads"]), f"{rows} rows, {load}")
    finally:
        torch.set_num_threads(before)
    return {"schema": RESULT, "plan": plan, "environment": where, "cells": cells,
            "cost": [_milliseconds(cost) for cost in costs], "summary": summary(cells),
            "different_output": different}  # fmt: skip


def _warm_up(pair, plan, rows):
    """Run every arm for a moment and a pass of every size, so that none pays for the first call of anything."""
    target = pair.target
    for positions in range(1, min(rows * (max(plan["fixed"]) + 1), target.config.context) + 1):
        target(
            torch.zeros(1, positions, dtype=torch.long), Cache(target, 1, positions)
        )  # products are compiled by size
    prompts = _prompts(pair, "calibration", DOMAINS[:2], 4, plan)
    any_cost = StepCost(4, tuple(1 + 0.1 * g for g in range(max(plan["fixed"]) + 1)), 1.0, 0.1, 0.01)
    for controller, draft in make_arms(pair, plan, any_cost).values():
        in_turns([chain_or_tree(pair.target, prompts, 16, draft, controller)])


def _measure_load(pair, plan, cost, load):
    """Return (cells, greedy outputs that differ from plain decoding) of one load."""
    domains, rows = plan["loads"][load], cost.rows
    requests = plan["requests"] if len(domains) > 1 else plan["uniform_requests"]
    prompts, runs = _prompts(pair, "test", domains, requests + rows, plan), {}
    repeats = plan.get("repeats", 1)
    for repeat in range(repeats):
        arms = make_arms(pair, plan, cost)
        order = np.roll(list(arms), repeat * len(arms) // repeats).tolist()
        for arm, run in zip(order, _in_turns(pair, prompts, [arms[arm] for arm in order], plan, rows), strict=True):
            runs.setdefault(arm, []).append(run)
    plain = [o.tokens for o in runs["γ = 0"][0].outputs]
    different = [{"rows": rows, "load": load, "arm": arm, "request": i}
                 | first_difference(pair.target, prompts[i], plain[i], output.tokens)
                 for arm, own in runs.items() for run in own
                 for i, output in enumerate(run.outputs) if output.tokens != plain[i]]  # fmt: skip
    totals = {arm: np.stack([shares(run, rows, requests) for run in own]) for arm, own in runs.items()}
    head = {"rows": rows, "load": load, "mixed": len(domains) > 1}
    rounds = {arm: _rounds([r for run in own for r in run.rounds], rows) for arm, own in runs.items()}
    return [head | cell | rounds[cell["arm"]] for cell in compare(totals, plan["fixed"], len(domains))], different


def shares(run, rows, requests):
    """Return (requests, 2): tokens and seconds of each counted request in full passes, which their rows share equally."""
    found = np.zeros((requests, 2))
    for one in run.rounds:
        if len(one.requests) == rows:
            for request, tokens in zip(one.requests, one.committed, strict=True):
                if request < requests:
                    found[request] += tokens, one.time / rows
    return found


def compare(totals, fixed, kinds=1):
    """Return a cell per arm of `totals` {arm: (repeats, requests, 2) tokens and seconds}, held against the best fixed length.

    `kinds` kinds of requests take turns; the bootstrap draws from each apart, as their shares belong to the load. The
    best length is chosen on these very requests, which flatters it: the best one of a resample is faster there by
    `selection_percent` on average than the one chosen.
    """
    rate = {arm: float(own[..., 0].sum() / own[..., 1].sum()) for arm, own in totals.items()}
    lengths = [f"γ = {g}" for g in fixed]
    best = max(lengths, key=rate.get)
    others = [_ratios(totals[arm], totals[best], kinds) for arm in lengths]
    selection = 100 * (float(np.max(others, axis=0).mean()) - 1)
    cells = []
    for arm, own in totals.items():
        ratios = _ratios(own, totals[best], kinds)
        cells.append({"arm": arm, "adaptive": not arm.startswith("γ"), "tokens_per_s": rate[arm], "best_fixed": best,
                      "ratio": rate[arm] / rate[best], "interval": gain.interval(ratios),
                      "ratio_by_repeat": (_rates(own) / _rates(totals[best])).tolist(),
                      "regret_percent": 100 * (rate[best] / rate[arm] - 1), "selection_percent": selection})  # fmt: skip
    return cells


def _ratios(own, best, kinds):
    """Return bootstrap values (resamples,) of the rate of `own` over that of `best`, the same resamples for all arms.

    Repeats are drawn first, then requests.
    """
    both, rng, found = np.concatenate([own, best], axis=2), np.random.default_rng(0), []
    for seed, drawn in enumerate(rng.integers(len(both), size=(40, len(both)))):
        summed = both[drawn].sum(axis=0)
        found.append(gain.bootstrap([summed[kind::kinds] for kind in range(kinds)], _ratio, 50, seed))
    return np.concatenate(found)


def _rates(own):
    """Return the tokens per second (repeats,) of each repeat."""
    tokens, seconds = own.sum(axis=1).T
    return tokens / seconds


def _ratio(*sums):
    """Return the ratios (resamples,) of two rates from sums (resamples, 4): tokens and seconds of each."""
    tokens, seconds, others, their_seconds = sum(sums).T
    return tokens / seconds / (others / their_seconds)


def _rounds(rounds, rows):
    """Return what full passes were like: candidates and tokens per request and round, T_round in ms."""
    full = [r for r in rounds if len(r.requests) == rows]
    count = len(full) * rows
    return {"drafted_per_round": sum(sum(r.drafted) for r in full) / count,
            "committed_length": sum(sum(r.committed) for r in full) / count,
            "t_round_ms": 1e3 * sum(r.time for r in full) / len(full)}  # fmt: skip


def summary(cells):
    """Return, per adaptive arm, its ratios on mixed and on uniform loads: least, greatest, and the least lower end."""
    found = {}
    for arm in dict.fromkeys(c["arm"] for c in cells if c["adaptive"]):
        for kind, mixed in (("mixed", True), ("uniform", False)):
            own = [c for c in cells if c["arm"] == arm and c["mixed"] is mixed]
            if own:
                found.setdefault(arm, {})[kind] = {"least": min(c["ratio"] for c in own), "most": max(c["ratio"] for c in own),
                                                   "least_low": min(c["interval"][0] for c in own)}  # fmt: skip
    return found


def _milliseconds(cost):
    """Return a `StepCost` as a JSON-ready dict, times in milliseconds."""
    times = {f"{key}_ms": (1e3 * np.array(value)).tolist() for key, value in asdict(cost).items() if key != "rows"}
    return {"rows": cost.rows} | times
