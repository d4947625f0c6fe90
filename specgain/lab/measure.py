"""Measure cost and acceptance apart, then a run that neither has seen.

`measure_cost` times every phase inside the real loop, on calibration prompts. `measure_acceptance` times nothing: it
reads the rounds of every γ off one plain decoding. `measure_run` decodes the test prompts end to end. `round_timing`
does all three as a plan file says, and `specgain.lab.prediction` brings them together.
"""

import gc
import json
import os
import platform
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

import specgain
from specgain.lab.loop import decode
from specgain.lab.model import Cache
from specgain.lab.pair import DOMAINS, load_pair
from specgain.lab.prediction import Cost, predict, summary
from specgain.records.roundlog import RoundLog
from specgain.round_time import Table

GAMMAS = (0, 1, 2, 4, 8)
NEW_TOKENS = 96
LEAST_PROMPTS = 3  # per domain; an interval needs some to resample
PLAN, RESULT = "specgain.round-timing-plan/1", "specgain.round-timing/1"


def environment(pair=None):
    """Return where and with what a measurement was taken, as a JSON-ready dict."""
    facts = {
        "device": _device_name(),
        "cores": os.cpu_count(),
        "load_average": _load_average(),
        "torch_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "specgain": specgain.__version__,
        "git_revision": _git_revision(),
        "date": _now(),
    }
    return facts | ({"weights": pair.weights_hash} if pair else {})


def _now():
    return datetime.now(UTC).isoformat(timespec="seconds")


def _load_average():
    return [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None


def _device_name():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _git_revision():
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


# --- the loop over prompts and arms --------------------------------------------------------------------------------


def run_rounds(pair, prompt_set, prompts, gammas=GAMMAS, drafts=None, domains=DOMAINS, new_tokens=NEW_TOKENS,
               repeats=1, seconds=None, log=None, progress=None, after_prompt=None):  # fmt: skip
    """Return a `RoundLog` of decoding `prompts` prompts per domain with every draft and γ, all arms per prompt in turn.

    The order of the arms rotates from prompt to prompt, so that a slow moment of the machine hits all arms alike. Arm
    "plain" is γ = 0; the others are named after their draft. `seconds` ends it early, after a whole prompt of every
    domain, but not before LEAST_PROMPTS. Requests that `log` already holds are kept and not run again. `progress(done, total, text)` reports;
    `after_prompt(log)` may save. `log.setup["different_output"]` lists outputs that differ from plain decoding.
    """
    drafts = list(pair.drafts) if drafts is None else list(drafts)
    arms = [("plain", 0)] + [(draft, gamma) for draft in drafts for gamma in gammas if gamma]
    tokens = pair.prompts(prompt_set)
    _check_prompts(prompt_set, prompts, domains, tokens)
    if unknown := sorted(set(drafts) - set(pair.drafts)):
        raise ValueError(f"drafts = {unknown} unknown; this pair has {', '.join(pair.drafts)}")
    setup = {"prompt_set": prompt_set, "domains": list(domains), "new_tokens": new_tokens, "drafts": drafts}
    setup |= {"gammas": list(gammas), "weights": pair.weights_hash}
    log = RoundLog(environment(pair), setup | {"different_output": []}, []) if log is None else log
    if changed := [name for name in setup if log.setup.get(name) != setup[name]]:
        raise ValueError(f"the log to continue was taken with other settings: {', '.join(changed)}")
    done = {(request.domain, request.prompt, request.repeat) for request in log.requests}
    jobs = [(repeat, i, domain) for repeat in range(repeats) for i in range(prompts) for domain in domains]
    _warm_up(pair, arms, tokens[domains[0]][0].tolist(), new_tokens)
    begin = perf_counter()
    with _no_garbage_collection():
        for count, (repeat, i, domain) in enumerate(jobs):
            late = seconds is not None and perf_counter() - begin > seconds
            if late and domain == domains[0] and count >= LEAST_PROMPTS * len(domains):
                break
            if (domain, i, repeat) not in done:
                order = arms[count % len(arms) :] + arms[: count % len(arms)]
                labels = {"domain": domain, "prompt": i, "repeat": repeat}
                _run_prompt(pair, log, tokens[domain][i].tolist(), order, new_tokens, labels)
            if progress:
                progress(count + 1, len(jobs), f"{prompt_set} {domain}")
            if after_prompt:
                after_prompt(log)
    return log


def _run_prompt(pair, log, prompt, arms, new_tokens, labels):
    """Decode one prompt with every arm; note the outputs that are not the plain one."""
    outputs = {}
    for arm, gamma in arms:
        name = f"{labels['domain']}/{labels['prompt']}/{arm}/{gamma}/{labels['repeat']}"
        decoded = decode(pair.target, prompt, new_tokens, pair.drafts.get(arm), gamma, id=name, arm=arm, **labels)
        log.requests.append(decoded.log)
        outputs[name, gamma] = decoded.tokens
    plain = next(tokens for (_, gamma), tokens in outputs.items() if gamma == 0)
    for (name, _), tokens in outputs.items():
        if tokens != plain:
            log.setup["different_output"].append({"id": name} | first_difference(pair.target, prompt, plain, tokens))


def first_difference(target, prompt, plain, other):
    """Return {position, logit_gap}: where two greedy outputs part, and how far apart the two tokens' logits lie there.

    A gap of the size of rounding (1e-4 or less) says that the two tokens tie; anything above is an error in the loop.
    """
    position = next(i for i, (a, b) in enumerate(zip(plain, other, strict=True)) if a != b)
    context = torch.tensor([prompt + plain[:position]])
    logits = target(context, Cache(target, 1, context.shape[1]))[0, -1]
    return {"position": position, "logit_gap": float((logits[plain[position]] - logits[other[position]]).abs())}


@contextmanager
def _no_garbage_collection():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _check_prompts(prompt_set, prompts, domains, tokens):
    if unknown := sorted(set(domains) - set(DOMAINS)):
        raise ValueError(f"domains = {unknown} unknown; choose from {', '.join(DOMAINS)}")
    available = min(len(tokens[domain]) for domain in domains)
    if not 1 <= prompts <= available:
        raise ValueError(f"prompts = {prompts} must be from 1 to {available}, the size of the {prompt_set} set")


def _warm_up(pair, arms, prompt, new_tokens):
    for arm, gamma in arms:
        decode(pair.target, prompt, min(new_tokens, 32), pair.drafts.get(arm), gamma)


# --- cost ----------------------------------------------------------------------------------------------------------


def measure_cost(pair, prompts=4, gammas=GAMMAS, domains=DOMAINS, new_tokens=NEW_TOKENS, seconds=None, progress=None):
    """Return (`Cost`, `RoundLog`) from the calibration prompts: the mean of each phase, timed inside the loop.

    Drafts of one shape cost the same, so all drafts of the pair are pooled.
    """
    log = run_rounds(pair, "calibration", prompts, sorted({0, *gammas}), domains=domains, new_tokens=new_tokens,
                     seconds=seconds, progress=progress)  # fmt: skip
    return Cost.from_log(log), log


def measure_cost_tight(pair, gammas=GAMMAS, context=112, calls=100):
    """Return the `Cost` of the usual micro-benchmark: each forward pass again and again, alone. It flatters the draft.

    The caches of the processor hold a small draft that nothing evicts; in the loop the target does so every round.
    """
    draft = next(iter(pair.drafts.values())).model
    step, step_two = (_tight(draft, n, context, calls) for n in (1, 2))
    verify = {g: _tight(pair.target, g + 1, context, calls) for g in sorted({0, *gammas})}
    rejected = {g: g * step for g in verify}
    accepted = {g: (step_two + (g - 1) * step) if g else 0.0 for g in verify}
    nothing = dict.fromkeys(verify, 0.0)
    tables = (Table(table) for table in (rejected, accepted, verify, nothing))
    return Cost(verify[0], *tables, source="tight loop")


def _tight(model, n, context, calls):
    """Median seconds of one forward pass over n tokens at this context."""
    cache, tokens, times = Cache(model), torch.ones(1, n, dtype=torch.long), []
    model(torch.ones(1, context, dtype=torch.long), cache)
    for _ in range(calls + 10):
        cache.length = [context]
        begin = perf_counter()
        model(tokens, cache)
        times.append(perf_counter() - begin)
    return float(np.median(times[10:]))


# --- acceptance ----------------------------------------------------------------------------------------------------


def measure_acceptance(pair, prompts=64, domains=DOMAINS, drafts=None, new_tokens=NEW_TOKENS, prompt_set="calibration",
                       progress=None):  # fmt: skip
    """Return how each draft agrees with the target's greedy text: no timing, no speculative run.

    `["domains"][domain]["agreement"][draft]` holds one string of "0" and "1" per prompt (see `rounds_of`), beside a
    sample of the text and `distinct_4grams`, the share of its 4-grams that do not repeat (low: the text loops, which
    flatters acceptance).
    """
    drafts = list(pair.drafts) if drafts is None else list(drafts)
    tokens, entries = pair.prompts(prompt_set), {}
    _check_prompts(prompt_set, prompts, domains, tokens)
    for count, domain in enumerate(domains):
        context = torch.from_numpy(tokens[domain][:prompts].astype(np.int64))
        text = greedy(pair.target, context, new_tokens)
        entries[domain] = {
            "sample": {"prompt": pair.decode(context[0].tolist()), "continuation": pair.decode(text[0].tolist())},
            "distinct_4grams": float(np.mean([distinct_ngrams(row) for row in text.tolist()])),
            "agreement": {name: agreement(pair.drafts[name].model, context, text) for name in drafts},
        }
        if progress:
            progress(count + 1, len(domains), f"acceptance {domain}")
    setup = {"prompt_set": prompt_set, "prompts": prompts, "new_tokens": new_tokens}
    return {"environment": environment(pair), "setup": setup, "domains": entries}


def greedy(model, prompts, new_tokens, batch=16):
    """Return the greedy continuation (prompts, new_tokens) of token ids (prompts, tokens), 16 rows at a time."""
    parts = []
    for rows in prompts.split(batch):
        cache, step, columns = Cache(model, len(rows), rows.shape[1] + new_tokens), rows, []
        for _ in range(new_tokens):
            step = model(step, cache)[:, -1:].argmax(dim=-1)
            columns.append(step)
        parts.append(torch.cat(columns, dim=1))
    return torch.cat(parts)


def agreement(draft, prompts, text, batch=16):
    """Return one string per row: "1" where the draft, fed the target's own text, chooses the target's next token."""
    strings = []
    for rows, own in zip(prompts.split(batch), text.split(batch), strict=True):
        fed = torch.cat((rows, own[:, :-1]), dim=1)
        choices = draft(fed, Cache(draft, len(fed), fed.shape[1]))[:, rows.shape[1] - 1 :].argmax(dim=-1)
        strings += ["".join("01"[hit] for hit in row) for row in (choices == own).tolist()]
    return strings


def distinct_ngrams(tokens, n=4):
    """Return the share of distinct n-grams in a list of tokens: 1 if nothing repeats."""
    grams = list(zip(*(tokens[i:] for i in range(n)), strict=False))
    return len(set(grams)) / len(grams)


# --- the run -------------------------------------------------------------------------------------------------------


def measure_run(pair, prompts=64, gammas=GAMMAS, drafts=None, domains=DOMAINS, new_tokens=NEW_TOKENS, repeats=1,
                seconds=None, resume=None, progress=None):  # fmt: skip
    """Return the `RoundLog` of the test prompts, end to end, plain and all (draft, γ) interleaved.

    With `resume` (a path) the log is saved there every half minute, and a log found there is continued.
    """
    log, save = None, None
    if resume is not None:
        log = RoundLog.read(resume) if Path(resume).exists() else None
        save = _saver(resume)
    log = run_rounds(pair, "test", prompts, gammas, drafts, domains, new_tokens, repeats, seconds, log, progress, save)
    if resume is not None:
        log.write(resume)
    return log


def _saver(path, every=30.0):
    last = [perf_counter()]

    def save(log):
        if perf_counter() - last[0] > every:
            log.write(path)
            last[0] = perf_counter()

    return save


def disturbed(log, tolerance=0.10):
    """Return (requests, total): plain requests whose time per token lies more than `tolerance` above the median."""
    rates = np.array([request.time / request.tokens for request in log.select(arm="plain").requests])
    return int((rates > (1 + tolerance) * np.median(rates)).sum()), len(rates)


# --- the planned experiment ----------------------------------------------------------------------------------------


def make_plan(pair, gammas=GAMMAS, domains=DOMAINS, new_tokens=64, cost_prompts=9, acceptance_prompts=64,
              run_prompts=36, blocks=9, threads=1):  # fmt: skip
    """Return what `round_timing` will measure and which cells it will predict: a dict to commit before the run.

    Numbers of prompts are per domain. Calibration and test alternate in `blocks` blocks, an equal part of each.
    """
    if not 1 <= blocks <= min(cost_prompts, run_prompts):
        raise ValueError(
            f"blocks = {blocks} must be from 1 to the smaller number of prompts, {min(cost_prompts, run_prompts)}"
        )
    drafts = list(pair.drafts)
    cells = [{"domain": d, "draft": name, "gamma": g} for d in domains for name in drafts for g in gammas if g]
    return {
        "schema": PLAN,
        "weights": pair.weights_hash,
        "threads": threads,
        "gammas": list(gammas),
        "drafts": drafts,
        "domains": list(domains),
        "new_tokens": new_tokens,
        "cost_prompts": cost_prompts,
        "acceptance_prompts": acceptance_prompts,
        "run_prompts": run_prompts,
        "blocks": blocks,
        "cells": cells,
    }


def read_plan(path):
    """Return the plan in a JSON file; ValueError names what is missing or of another version."""
    plan = json.loads(Path(path).read_text(encoding="utf-8"))
    if plan.get("schema") != PLAN:
        raise ValueError(f"{Path(path).name} has schema {plan.get('schema')!r}; this version reads {PLAN!r}")
    wanted = {"weights", "threads", "gammas", "drafts", "domains", "new_tokens", "cells"}
    wanted |= {"cost_prompts", "acceptance_prompts", "run_prompts", "blocks"}
    if missing := sorted(wanted - plan.keys()):
        raise ValueError(f"{Path(path).name} lacks {', '.join(missing)}; write it with make_plan")
    return plan


def round_timing(plan, pair=None, progress=None):
    """Return (result, log): cost and acceptance from the calibration prompts held against the run of the test prompts.

    Calibration and test take turns, since the speed of a shared machine drifts by the minute; they share no prompt and
    no time. `result["cells"]` rests on the cost of all calibration blocks, `result["cells_before"]` on the first one
    alone, which ended before the run began. `result` is JSON-ready; `log` is the whole `RoundLog` of the run.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(plan["threads"])
    try:
        pair = load_pair(plan["drafts"]) if pair is None else pair
        if pair.weights_hash != plan["weights"]:
            found = f"these are {pair.weights_hash}; make a new plan"
            raise ValueError(f"the plan is for weights {plan['weights']}, {found}")
        shape = {"domains": plan["domains"], "new_tokens": plan["new_tokens"], "progress": progress}
        acceptance = measure_acceptance(pair, plan["acceptance_prompts"], **shape)
        middle = pair.prompts("calibration")[plan["domains"][0]].shape[1] + plan["new_tokens"] // 2
        tight = measure_cost_tight(pair, plan["gammas"], context=middle)
        first, cost_log, log = _alternate(plan, pair, shape)
    finally:
        torch.set_num_threads(before)
    costs = {"cost": Cost.from_log(cost_log), "cost_before": first, "cost_tight": tight}
    result = {"schema": RESULT, "plan": plan, "environment": log.environment, "load_average_after": _load_average()}
    result |= {name: cost.to_json() for name, cost in costs.items()} | {"acceptance": acceptance}
    return result | _outcome(costs, acceptance, plan, cost_log, log), log


def _alternate(plan, pair, shape):
    """Return (`Cost` of the first block, calibration log, test log) of taking turns in `plan["blocks"]` blocks."""
    logs, first = {"calibration": None, "test": None}, None
    for block in range(1, plan["blocks"] + 1):
        for which, prompts in (("calibration", plan["cost_prompts"]), ("test", plan["run_prompts"])):
            share = prompts * block // plan["blocks"]
            logs[which] = run_rounds(pair, which, share, plan["gammas"], log=logs[which], **shape)
            first = Cost.from_log(logs[which]) if first is None else first
    return first, *logs.values()


def _outcome(costs, acceptance, plan, cost_log, log):
    held = {name: predict(cost, acceptance, plan["gammas"], log) for name, cost in costs.items()}
    return {
        "cells": held["cost"],
        "summary": summary(held["cost"]),
        "cells_before": held["cost_before"],
        "summary_before": summary(held["cost_before"]),
        "summary_tight": summary(held["cost_tight"]),
        "t_decode_by_block_ms": {
            which: _by_block(one, plan["blocks"]) for which, one in (("calibration", cost_log), ("test", log))
        },
        "different_output": cost_log.setup["different_output"] + log.setup["different_output"],
        "speculative_requests": sum(request.gamma > 0 for request in cost_log.requests + log.requests),
        "disturbed_plain_requests": disturbed(log),
        "requests": request_totals(log),
    }


def _by_block(log, blocks):
    """Mean milliseconds per token of plain decoding, block by block: the drift of the machine."""
    plain = log.select(arm="plain").requests
    parts = np.array_split(np.array([request.time / request.tokens * 1e3 for request in plain]), blocks)
    return [round(float(part.mean()), 3) for part in parts]


def request_totals(log):
    """Return {"domain/arm/gamma": {"rounds": [...], "time_ms": [...]}}, one entry per request."""
    totals = {}
    for request in log.requests:
        row = totals.setdefault(f"{request.domain}/{request.arm}/{request.gamma}", {"rounds": [], "time_ms": []})
        row["rounds"].append(request.rounds)
        row["time_ms"].append(round(request.time * 1e3, 3))
    return totals
