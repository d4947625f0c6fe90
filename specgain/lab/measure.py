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
import zlib
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch

import specgain
from specgain.lab.linear import KERNELS, can_pack
from specgain.lab.loop import TURN, in_turns, private, stepwise
from specgain.lab.model import Cache
from specgain.lab.pair import DOMAINS, load_pair
from specgain.lab.prediction import BASE, Cost, Setting, predict, predict_own, summary
from specgain.lab.sampling import Sampling, uniform
from specgain.lab.trees import TreeDraft, stepwise_tree
from specgain.records.roundlog import RoundLog
from specgain.round_time import Table

GAMMAS = (0, 1, 2, 4, 8)
NEW_TOKENS = 96
LOOPS = 0.75  # a greedy text with a smaller share of distinct 4-grams repeats itself, and flatters every draft
DRIFT_PERCENT = 3.0
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
    return facts | ({"weights": pair.weights_hash, "kernel": pair.target.kernel} if pair else {})


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
               repeats=1, seconds=None, log=None, progress=None, after_prompt=None, setting=BASE):  # fmt: skip
    """Return a `RoundLog` of decoding `prompts` prompts per domain with every draft and γ, all arms in turn.

    Arm "plain" is γ = 0; the others are named after their draft. A job is one prompt, or with `setting.rows` > 1 all
    prompts of a domain, a few more behind them so that no counted request sees an emptying batch. The arms of a job
    take turns of a few rounds, in an order that rotates from job to job, so that a slow moment of the machine hits all
    arms alike. `seconds` ends it early, after a whole job of every domain, but not before LEAST_PROMPTS. Requests that
    `log` already holds are kept and not run again. `progress(done, total, text)` reports; `after_prompt(log)` may save.
    `log.setup["different_output"]` lists greedy outputs that differ from plain decoding.
    """
    side = Side(pair, prompt_set, prompts, gammas, drafts, domains, new_tokens, log, setting)
    side.warm_up()
    jobs, begin = side.jobs(prompts * repeats), perf_counter()
    for count, job in enumerate(jobs):
        late = seconds is not None and perf_counter() - begin > seconds
        if late and job.domain == domains[0] and count >= LEAST_PROMPTS * len(domains):
            break
        run_together([job])
        if progress:
            progress(count + 1, len(jobs), f"{prompt_set} {job.domain}")
        if after_prompt:
            after_prompt(side.log)
    return side.log


GOLDEN = (5**0.5 - 1) / 2


def run_together(jobs):
    """Run these jobs of `Side.jobs`, all arms of all of them in turns, so that they meet the same moments of the machine.

    Turns go to the shortest text, and plain decoding ends every turn at the same length: the plain loops of many jobs would
    run in one block, in few moments of the machine and, but for the first, with caches that no draft has touched. So each
    loop is counted as longer by a part of a turn of its own (multiples of the golden ratio spread evenly).
    """
    loops = [job.loops() for job in jobs]
    turn = max([TURN, *(4 * job.side.setting.rows for job in jobs)])
    every = [loop for own in loops for loop in own]
    every = [_ahead(loop, turn * (1 + i * GOLDEN % 1)) for i, loop in enumerate(every)]
    with no_garbage_collection():
        runs = iter(in_turns(every, turn))
    for job, own in zip(jobs, loops, strict=True):
        job.note([next(runs) for _ in own])


def _ahead(loop, tokens):
    """The loop, which first counts so many tokens that it has not committed."""
    yield tokens
    return (yield from loop)


class Side:
    """One set of prompts on its way through every arm: what is done is in `log`, what is not in `jobs`."""

    def __init__(self, pair, prompt_set, prompts, gammas, drafts, domains, new_tokens, log, setting):
        drafts = list(pair.drafts) if drafts is None else list(drafts)
        self.pair, self.setting = pair, setting
        self.prompts, self.domains, self.new_tokens = prompts, domains, new_tokens
        self.arms = [("plain", 0), *speculative_arms(pair, drafts, gammas)]
        _check_prompts(prompt_set, prompts, domains, pair.prompts(prompt_set))
        self.tokens = {domain: prompt_tokens(pair, prompt_set, domain, setting.context) for domain in domains}
        if unknown := sorted(set(drafts) - set(pair.drafts)):
            raise ValueError(f"drafts = {unknown} unknown; this pair has {', '.join(pair.drafts)}")
        setup = {"prompt_set": prompt_set, "domains": list(domains), "new_tokens": new_tokens, "drafts": drafts}
        setup |= {"gammas": list(gammas), "weights": pair.weights_hash} | setting.to_json()
        self.log = RoundLog(environment(pair), setup | {"different_output": []}, []) if log is None else log
        if changed := [name for name in setup if self.log.setup.get(name) != setup[name]]:
            raise ValueError(f"the log to continue was taken with other settings: {', '.join(changed)}")

    def warm_up(self):
        """Run every arm for a moment, so that none pays for the first call of anything."""
        prompt = self.tokens[self.domains[0]][0].tolist()
        for arm, gamma in self.arms:
            in_turns(
                [chain_or_tree(self.pair.target, [prompt], min(self.new_tokens, 16), self.pair.drafts.get(arm), gamma)]
            )

    def jobs(self, runs):
        """Return the jobs among the first `runs` runs of a prompt per domain, repeat after repeat; done ones are empty."""
        done = {(request.domain, request.prompt, request.repeat) for request in self.log.requests}
        jobs = []
        for repeat, first in enumerate(range(0, runs, self.prompts)):
            every = range(min(self.prompts, runs - first))
            for group in [every] if self.setting.rows > 1 else [[i] for i in every]:
                for domain in self.domains:
                    turn = len(jobs) % len(self.arms)
                    left = [i for i in group if (domain, i, repeat) not in done]
                    jobs.append(_Job(self, domain, repeat, left, self.arms[turn:] + self.arms[:turn]))
        return jobs


class _Job(NamedTuple):
    """Some prompts of a domain that share their passes, to be decoded with every arm."""

    side: Side
    domain: str
    repeat: int
    group: list
    arms: list

    @property
    def texts(self):
        """The prompts, and as many more behind them as a batch has rows."""
        tokens, rows = self.side.tokens[self.domain], self.side.setting.rows
        behind = [(self.group[-1] + 1 + i) % len(tokens) for i in range(rows if rows > 1 else 0)]
        return [tokens[i].tolist() for i in [*self.group, *behind]]

    def loops(self):
        """Return the `stepwise` loop of every arm; none if the group is empty."""
        side, loops, texts = self.side, [], self.texts if self.group else []
        for arm, gamma in self.arms if self.group else ():
            name = f"{side.log.setup['prompt_set']}/{self.domain}/{self.group[0]}/{arm}/{gamma}/{self.repeat}"
            shape = {"rows": side.setting.rows, "sampling": Sampling(side.setting.temperature)}
            loops.append(chain_or_tree(side.pair.target, texts, side.new_tokens, side.pair.drafts.get(arm), gamma,
                               seed=zlib.crc32(name.encode()), **shape))  # fmt: skip
        return loops

    def note(self, runs):
        """Add the requests of these `Run`s, one per arm, to the log, and the greedy outputs that are not the plain ones."""
        outputs = {}
        for (arm, gamma), run in zip(self.arms, runs, strict=bool(self.group)):
            for i, output in zip(self.group, run.outputs, strict=False):
                labels = {"id": f"{self.domain}/{i}/{arm}/{gamma}/{self.repeat}", "arm": arm, "domain": self.domain}
                for name, value in (labels | {"prompt": i, "repeat": self.repeat}).items():
                    setattr(output.log, name, value)
                self.side.log.requests.append(output.log)
                outputs[i, arm, gamma] = output
        for (i, _, _), output in outputs.items() if self.side.setting.temperature == 0 else ():
            if output.tokens != (plain := outputs[i, "plain", 0].tokens):
                prompt = self.side.tokens[self.domain][i].tolist()
                found = first_difference(self.side.pair.target, prompt, plain, output.tokens)
                self.side.log.setup["different_output"].append({"id": output.log.id} | found)


def speculative_arms(pair, drafts, gammas):
    """Return the arms (draft, γ) of these drafts at every γ above 0; a tree has one size, its number of nodes."""
    return [(name, g) for name in drafts for g in gammas if g and g == getattr(pair.drafts.get(name), "nodes", g)]


def chain_or_tree(target, prompts, new_tokens, draft, gamma, **shape):
    """The stepwise loop of a chain of γ candidates, or of the draft's own tree, whose number of nodes stands in for γ.

    The draft is a private one: it begins cold, since the other arms have seen the same text.
    """
    draft = private(draft)
    target = getattr(draft, "target", target)  # a head brings the target that keeps its features
    if isinstance(draft, TreeDraft):
        return stepwise_tree(target, prompts, new_tokens, draft, **shape)
    return stepwise(target, prompts, new_tokens, draft, gamma, **shape)


def prompt_tokens(pair, prompt_set, domain, context=BASE.context):
    """Return the prompts (prompts, context) of a domain; one longer than the committed ones is several in a row."""
    tokens = pair.prompts(prompt_set)[domain]
    context = context or tokens.shape[1]
    parts = -(-context // tokens.shape[1])
    rows = (np.arange(len(tokens))[:, None] + np.arange(parts)) % len(tokens)
    return tokens[rows].reshape(len(tokens), -1)[:, :context]


def first_difference(target, prompt, plain, other):
    """Return {position, logit_gap}: where two greedy outputs part, and how far apart the two tokens' logits lie there.

    A gap of the size of rounding (1e-4 or less) says that the two tokens tie; anything above is an error in the loop.
    """
    position = next(i for i, (a, b) in enumerate(zip(plain, other, strict=True)) if a != b)
    context = torch.tensor([prompt + plain[:position]])
    logits = target(context, Cache(target, 1, context.shape[1]))[0, -1]
    return {"position": position, "logit_gap": float((logits[plain[position]] - logits[other[position]]).abs())}


@contextmanager
def no_garbage_collection():
    """Hold the garbage collector back, so that no round pays for it."""
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


# --- cost ----------------------------------------------------------------------------------------------------------


def measure_cost(pair, prompts=4, gammas=GAMMAS, domains=DOMAINS, new_tokens=NEW_TOKENS, seconds=None, progress=None,
                 setting=BASE):  # fmt: skip
    """Return (`Cost`, `RoundLog`) from the calibration prompts: the mean of each phase, timed inside the loop.

    Drafts of one shape cost the same, so all drafts of the pair are pooled.
    """
    log = run_rounds(pair, "calibration", prompts, sorted({0, *gammas}), domains=domains, new_tokens=new_tokens,
                     seconds=seconds, progress=progress, setting=setting)  # fmt: skip
    return Cost.from_log(log), log


def measure_cost_tight(pair, gammas=GAMMAS, context=112, calls=100):
    """Return the `Cost` of the usual micro-benchmark: each forward pass again and again, alone. It flatters the draft.

    The caches of the processor hold a small draft that runs again and again; between its turns in the loop they lose it
    (tools/measure_draft_after.py).
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
    forward, times = one_pass(model, n, context), []
    for _ in range(calls + 10):
        begin = perf_counter()
        forward()
        times.append(perf_counter() - begin)
    return float(np.median(times[10:]))


def plain_steps(model, context=112, calls=60):
    """Return {kernel: median seconds of a plain step of `model` with it}, its own kernel first.

    The kernels take turns, each timed step right behind an untimed one of its own, as in a loop of plain steps. A speedup
    is a ratio to the fastest of them. Only a model in float32 on a CPU has rivals of its own kernel.
    """
    models, rivals = [model], ["plain", "public", *(["packed"] if can_pack() else [])]
    if model.device.type == "cpu" and model.dtype == torch.float32 and model.kernel in KERNELS:
        models += [model.with_kernel(name) for name in rivals if name != model.kernel]
    steps = {other.kernel: one_pass(other, 1, context) for other in models}
    times = {name: [] for name in steps}
    for _ in range(calls + 10):
        for name, step in steps.items():
            step()
            begin = perf_counter()
            step()
            times[name].append(perf_counter() - begin)
    return {name: float(np.median(seconds[10:])) for name, seconds in times.items()}


def one_pass(model, n, context):
    """Return a function that makes the same forward pass over n tokens at this context each time it is called."""
    cache, tokens = Cache(model), torch.ones(1, n, dtype=torch.long)
    model(torch.ones(1, context, dtype=torch.long), cache)

    def forward():
        cache.length = [context]
        model(tokens, cache)

    return forward


# --- acceptance ----------------------------------------------------------------------------------------------------


def measure_acceptance(pair, prompts=64, domains=DOMAINS, drafts=None, new_tokens=NEW_TOKENS, prompt_set="calibration",
                       progress=None, setting=BASE):  # fmt: skip
    """Return how each draft agrees with the target's own text: no timing, no speculative run.

    `["domains"][domain]["agreement"][draft]` holds one entry per prompt: for greedy a string of "0" and "1" (see
    `rounds_of`), else the list of probabilities min(1, q/p) that the draft's guess at each token of the text was
    accepted. Beside it stand a sample of the text and `distinct_4grams`, the share of its 4-grams that do not repeat
    (low: the text loops, which flatters acceptance).
    """
    drafts = list(pair.drafts) if drafts is None else list(drafts)
    _check_prompts(prompt_set, prompts, domains, pair.prompts(prompt_set))
    sampling, entries = Sampling(setting.temperature), {}
    for count, domain in enumerate(domains):
        tokens = prompt_tokens(pair, prompt_set, domain, setting.context)[:prompts]
        context = torch.from_numpy(tokens.astype(np.int64))
        text = continuations(pair.target, context, new_tokens, sampling, zlib.crc32(f"{prompt_set}/{domain}".encode()))
        entries[domain] = {
            "sample": {"prompt": pair.decode(context[0].tolist()), "continuation": pair.decode(text[0].tolist())},
            "distinct_4grams": float(np.mean([distinct_ngrams(row) for row in text.tolist()])),
            "agreement": {n: agreement(pair.drafts[n].model, context, text, pair.target, sampling) for n in drafts},
        }
        if progress:
            progress(count + 1, len(domains), f"acceptance {domain}")
    setup = {"prompt_set": prompt_set, "prompts": prompts, "new_tokens": new_tokens} | setting.to_json()
    return {"environment": environment(pair), "setup": setup, "domains": entries}


@torch.inference_mode()
def continuations(model, prompts, new_tokens, sampling, seed=0, batch=16):
    """Return the continuation (prompts, new_tokens) of token ids (prompts, tokens), `batch` rows at a time."""
    parts, rng = [], uniform(seed)
    for rows in prompts.split(batch):
        cache, step, columns = Cache(model, len(rows), rows.shape[1] + new_tokens), rows, []
        for _ in range(new_tokens):
            step = torch.tensor(sampling.choose(model(step, cache)[:, -1], rng)[0])[:, None]
            columns.append(step)
        parts.append(torch.cat(columns, dim=1))
    return torch.cat(parts)


@torch.inference_mode()
def agreement(draft, prompts, text, target, sampling, batch=16):
    """Return how the draft, fed the target's own text, agrees with each of its tokens; see `measure_acceptance`."""
    found = []
    for rows, own in zip(prompts.split(batch), text.split(batch), strict=True):
        fed = torch.cat((rows, own[:, :-1]), dim=1)
        q, p = (
            sampling.probs(model(fed, Cache(model, len(fed), fed.shape[1]))[:, rows.shape[1] - 1 :])
            for model in ((draft, draft) if sampling.greedy else (draft, target))
        )
        q, p = (x.gather(2, own[:, :, None])[:, :, 0] for x in (q, p))
        if sampling.greedy:
            found += ["".join("01"[hit > 0] for hit in row) for row in q.tolist()]
        else:
            found += [[round(a, 4) for a in row] for row in (q / p).clamp(max=1).tolist()]
    return found


def distinct_ngrams(tokens, n=4):
    """Return the share of distinct n-grams in a list of tokens: 1 if nothing repeats."""
    grams = list(zip(*(tokens[i:] for i in range(n)), strict=False))
    return len(set(grams)) / len(grams)


# --- the run -------------------------------------------------------------------------------------------------------


def measure_run(pair, prompts=64, gammas=GAMMAS, drafts=None, domains=DOMAINS, new_tokens=NEW_TOKENS, repeats=1,
                seconds=None, resume=None, progress=None, setting=BASE):  # fmt: skip
    """Return the `RoundLog` of the test prompts, end to end, plain and all (draft, γ) interleaved.

    With `resume` (a path) every job is saved as soon as it is done, and a log found there is continued: a killed run
    loses the job under way, no more. (Writing inside a job would cost time where time is measured.)
    """
    journal = None if resume is None else _Journal(resume)
    log = journal and journal.read()
    log = run_rounds(pair, "test", prompts, gammas, drafts, domains, new_tokens, repeats, seconds, log, progress,
                     journal and journal.append, setting)  # fmt: skip
    if journal:
        journal.close(log)
    return log


class _Journal:
    """A log on its way: the file at `path` as far as an earlier run came, and what is new line by line beside it."""

    def __init__(self, path):
        self.path, self.lines, self.saved = Path(path), Path(f"{path}.journal"), 0

    def read(self):
        """Return the `RoundLog` so far, None at a first start; a last line that was cut off is left out."""
        parts = [RoundLog.read(self.path)] if self.path.exists() else []
        if self.lines.exists():
            whole, _, _ = self.lines.read_text(encoding="utf-8").rpartition("\n")
            self.lines.write_text(whole + "\n" * bool(whole), encoding="utf-8")
            parts += [RoundLog.from_json(json.loads(line)) for line in whole.splitlines()]
        if not parts:
            return None
        requests = {request.id: request for part in parts for request in part.requests}
        self.saved = len(requests)
        return RoundLog(parts[-1].environment, parts[-1].setup, list(requests.values()))

    def append(self, log):
        """Save the requests that came since the last time, as one line that is a log of its own."""
        new = RoundLog(log.environment, log.setup, log.requests[self.saved :])
        if not new.requests:
            return
        self.lines.parent.mkdir(parents=True, exist_ok=True)
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(new.to_json(), allow_nan=False) + "\n")
        self.saved = len(log.requests)

    def close(self, log):
        """Write the whole log; the lines are not needed any more."""
        log.write(self.path)
        self.lines.unlink(missing_ok=True)


def disturbed(log, tolerance=0.10):
    """Return (requests, total): plain requests whose time per token lies more than `tolerance` above the median."""
    rates = np.array([request.time / request.tokens for request in log.select(arm="plain").requests])
    return int((rates > (1 + tolerance) * np.median(rates)).sum()), len(rates)


# --- the planned experiment ----------------------------------------------------------------------------------------


def make_plan(pair, gammas=GAMMAS, domains=DOMAINS, new_tokens=64, cost_prompts=9, acceptance_prompts=64,
              run_prompts=36, repeats=1, blocks=9, threads=1, more=(), setting=BASE):  # fmt: skip
    """Return what `round_timing` will measure and which cells it will predict: a dict to commit before the run.

    Numbers of prompts are per domain. Calibration and test run together in `blocks` blocks, an equal part of each; every
    test prompt comes up in `repeats` of them. The first part is measured in `setting`; each dict of `more` is one more
    part, with what differs from the first: rows, temperature, context, domains, drafts, gammas, cost_prompts, run_prompts,
    repeats.
    """
    if not 1 <= blocks <= min(cost_prompts, run_prompts * repeats):
        raise ValueError(
            f"blocks = {blocks} must be from 1 to the smaller number of prompts, {min(cost_prompts, run_prompts * repeats)}"
        )
    first = (
        {
            "gammas": list(gammas),
            "drafts": list(pair.drafts),
            "domains": list(domains),
            "cost_prompts": cost_prompts,
            "run_prompts": run_prompts,
            "repeats": repeats,
        }
        | setting.to_json()
        | {"context": setting.context or pair.prompts("test")[domains[0]].shape[1]}
    )
    if unknown := sorted({key for part in more for key in part} - first.keys()):
        raise ValueError(f"more = {unknown} unknown; a part can set {', '.join(first)}")
    common = {
        "schema": PLAN,
        "weights": pair.weights_hash,
        "threads": threads,
        "new_tokens": new_tokens,
        "acceptance_prompts": acceptance_prompts,
        "blocks": blocks,
    }
    return common | _with_cells(first) | {"more": [_with_cells(first | part) for part in more]}


def _with_cells(part):
    names = ("rows", "temperature", "context")
    cells = [
        {"domain": d, "draft": name, "gamma": g} | {n: part[n] for n in names}
        for d in part["domains"]
        for name in part["drafts"]
        for g in part["gammas"]
        if g
    ]
    return part | {"cells": cells}


def read_plan(path):
    """Return the plan in a JSON file; ValueError names what is missing or of another version."""
    plan = json.loads(Path(path).read_text(encoding="utf-8"))
    if plan.get("schema") != PLAN:
        raise ValueError(f"{Path(path).name} has schema {plan.get('schema')!r}; this version reads {PLAN!r}")
    wanted = {"weights", "threads", "gammas", "drafts", "domains", "new_tokens", "cells", "more"}
    wanted |= {"cost_prompts", "acceptance_prompts", "run_prompts", "blocks"}
    if missing := sorted(wanted - plan.keys()):
        raise ValueError(f"{Path(path).name} lacks {', '.join(missing)}; write it with make_plan")
    return plan


def round_timing(plan, pair=None, progress=None):
    """Return (result, logs): cost and acceptance from the calibration prompts held against the run of the test prompts.

    Calibration and test run side by side, all arms of both in turns of a few rounds, since the speed of a shared machine
    drifts by the second; they share no prompt. `result["cells"]` rests on that cost, `result["cells_before"]` on the
    cost of an eighth of the calibration prompts, taken before all. `result["more"]` holds the same for every further
    part of the plan, `result["summary_judged"]` all judged cells together. `result` is JSON-ready; `logs` are the
    `RoundLog`s of the runs.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(plan["threads"])
    try:
        pair = load_pair(plan["drafts"]) if pair is None else pair
        if pair.weights_hash != plan["weights"]:
            found = f"these are {pair.weights_hash}; make a new plan"
            raise ValueError(f"the plan is for weights {plan['weights']}, {found}")
        parts = [_Part(plan, part, pair, progress) for part in (plan, *plan["more"])]
        tight = _tight_cost(plan, pair) if plan["rows"] == 1 else None
        for block in range(1, plan["blocks"] + 1):
            for part in parts:
                part.turn(block)
    finally:
        torch.set_num_threads(before)
    result, *more = [part.outcome() for part in parts]
    judged = [cell for part in (result, *more) for cell in part["cells"] if not cell["not_judged"]]
    extra = {"load_average_after": _load_average()}
    if tight is not None:
        held = predict(tight, parts[0].acceptance, plan["gammas"], parts[0].test.log)
        extra |= {"cost_tight": tight.to_json(), "summary_tight": summary(held)}
    head = {"schema": RESULT, "plan": plan, "environment": parts[0].test.log.environment}
    summaries = {"summary_judged": summary(judged)} if judged else {}
    return head | result | extra | summaries | {"more": more}, [part.test.log for part in parts]


def _tight_cost(plan, pair):
    middle = pair.prompts("calibration")[plan["domains"][0]].shape[1] + plan["new_tokens"] // 2
    return measure_cost_tight(pair, plan["gammas"], context=middle)


class _Part:
    """One part of a plan on its way: its acceptance, the cost that was measured before all, and its two sides."""

    def __init__(self, plan, part, pair, progress):
        self.plan, self.part, self.progress = plan, part, progress
        self.setting = Setting(part["rows"], part["temperature"], part["context"])
        shape = {"domains": part["domains"], "drafts": part["drafts"], "new_tokens": plan["new_tokens"]}
        shape |= {"setting": self.setting}
        self.acceptance = measure_acceptance(pair, plan["acceptance_prompts"], progress=progress, **shape)
        few = min(part["cost_prompts"], max(part["rows"], part["cost_prompts"] // 8))
        self.first = Cost.from_log(run_rounds(pair, "calibration", few, part["gammas"], progress=progress, **shape))
        self.calibration = Side(pair, "calibration", part["cost_prompts"], part["gammas"], log=None, **shape)
        self.test = Side(pair, "test", part["run_prompts"], part["gammas"], log=None, **shape)

    def turn(self, block):
        """Run what this block adds, text by text, all arms of both sides in turns.

        In a batch four generations of test prompts come together at least: few passes are wasted on others, and the rows
        have fallen out of step for most of the time.
        """
        part, blocks, rows = self.part, self.plan["blocks"], self.part["rows"]
        runs = {self.calibration: part["cost_prompts"], self.test: part["run_prompts"] * part["repeats"]}
        steps = min(blocks, max(1, runs[self.test] // (4 * rows))) if rows > 1 else blocks
        done = block * steps // blocks
        jobs = [job for side, every in runs.items() for job in side.jobs(every * done // steps) if job.group]
        for domain in dict.fromkeys(job.domain for job in jobs):
            run_together([job for job in jobs if job.domain == domain])
        if self.progress:
            self.progress(block, blocks, f"{rows} in a pass, T = {part['temperature']:g}, block")

    def outcome(self):
        """Return the JSON-ready result of this part."""
        calibration, log, gammas = self.calibration.log, self.test.log, self.part["gammas"]
        cost = Cost.from_log(calibration)
        if self.part["rows"] > 1:
            found = predict_own(calibration, self.acceptance, gammas, log)
        else:
            found = predict(cost, self.acceptance, gammas, log, Cost.resampled(calibration))
        cells = [cell | self.setting.to_json() | {"not_judged": self._why_not(cell)} for cell in found]
        before = predict(self.first, self.acceptance, gammas, log)
        logs, parts = {"calibration": calibration, "test": log}, min(8, self.plan["blocks"])
        return self.setting.to_json() | {
            "cost": cost.to_json(),
            "cost_before": self.first.to_json(),
            "acceptance": self.acceptance,
            "cells": cells,
            "summary": summary(cells),
            "cells_before": before,
            "summary_before": summary(before),
            "t_decode_by_block_ms": {which: _by_block(one, parts) for which, one in logs.items()},
            "different_output": calibration.setup["different_output"] + log.setup["different_output"],
            "speculative_requests": sum(request.gamma > 0 for request in calibration.requests + log.requests),
            "disturbed_plain_requests": disturbed(log),
            "requests": request_totals(log),
        }

    def _why_not(self, cell):
        """Why a cell is not judged, "" if it is: its text loops, or its plain arm did not agree with itself."""
        if self.acceptance["domains"][cell["domain"]]["distinct_4grams"] < LOOPS:
            return "the text loops"
        return "the plain step drifted" if abs(cell["plain_halves_percent"]) > DRIFT_PERCENT else ""


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
