"""29 real questions from public threads: every expected number follows from the posted numbers by library calls.

The posted numbers stand here as they were posted; the expected ones in tests/data/questions.json. Each answer must agree
to the last digit printed there.
"""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from specgain.acceptance import (
    Acceptance,
    committed_length,
    committed_length_constant,
    committed_length_from_pooled,
    conditional,
    constant_acceptance,
    fill_rate,
    pooled_acceptance,
)
from specgain.audit import audit
from specgain.compare import compare
from specgain.gain import Ledger, break_even_length, break_even_round_time, log_split, pooled_rate, speedup
from specgain.gates import gates
from specgain.length import best_gamma, step_pays
from specgain.records.read import read_file, runs, summary_of
from specgain.records.sglang import rate_meanings
from specgain.records.text import Printed, rounds_behind
from specgain.round_time import Affine, RoundTime, Table

DATA = Path(__file__).resolve().parent / "data"
QUESTIONS = {q["id"]: q for q in json.loads((DATA / "questions.json").read_text())}
ANSWERS = {}
MS = 1e-3


def question(number):
    return lambda answer: ANSWERS.setdefault(number, answer)


def read_text(tmp_path, text, gamma=None):
    (tmp_path / "record").write_text(text)
    return summary_of([tmp_path / "record"], gamma)


def length_at_rate(rate_a, rate_b):
    """How many times one speed is the other."""
    return rate_a / rate_b


@question("C01")
def eagle_heads(tmp_path):
    tpot = {"E1": [4.37, 4.29, 4.48, 4.71, 4.94, 5.20], "E3": [4.32, 4.09, 4.05, 4.13, 4.20, 4.29]}
    length = {"E1": [2.10, 2.29, 2.39, 2.43, 2.45, 2.47], "E3": [2.36, 2.79, 3.08, 3.32, 3.46, 3.54]}
    gammas, found = range(2, 8), {}
    for head in ("E1", "E3"):
        t_round = [break_even_round_time(e, t) for e, t in zip(length[head], tpot[head], strict=True)]  # T = E[L]·TPOT
        gains = {g: speedup(e, 7.07, t) for g, e, t in zip(gammas, length[head], t_round, strict=True)}
        best = max(gains, key=gains.get)
        slope, base = np.polyfit(list(gammas), t_round, 1)
        assert Affine(base * MS, slope * MS)(4) == pytest.approx(t_round[2] * MS, rel=0.02)
        found |= {f"{head}_T": t_round, f"{head}_best_k": best, f"{head}_best_S": gains[best], f"slope_{head}": slope}
    assert found["E3_best_S"] / found["E1_best_S"] == pytest.approx(1.059, abs=5e-4)
    return found


@question("C02")
def v0_log_lines(tmp_path):
    line = (
        "INFO 11-04 09:12:31 metrics.py:367] Speculative metrics: Draft acceptance rate: {rate}, System efficiency: {eff}, "
        "Number of speculative tokens: {k}, Number of accepted tokens: {a}, Number of draft tokens: {d}, Number of emitted "
        "tokens: {e}.\n"
    )
    posted = [
        {"k": 3, "a": 8547, "d": 13311, "e": 10616, "rate": "0.642", "eff": "0.598"},
        {"k": 4, "a": 32594, "d": 53716, "e": 34244, "rate": "0.607", "eff": "0.510"},
        {"k": 5, "a": 1, "d": 15, "e": 3, "rate": "0.067", "eff": "0.167"},
    ]
    read = [read_text(tmp_path, line.format(**numbers)) for numbers in posted]
    return {
        "E_L": [s["committed_length_drafting_rounds"] for s in read],
        "wrong": [1 + s["reported"]["accepted"] / s["rounds"] for s in read],
        "prefix_rate": [s["pooled_acceptance"] for s in read],
        "const_a": [s["constant_acceptance"] for s in read[:2]],
    }


@question("C04")
def three_draft_sizes_on_another_core(tmp_path):
    speeds = {"4B": {3: 10.5, 5: 8.5, 10: 4.5}, "1.7B": {3: 11.5, 5: 9.5, 10: 7.5}, "0.6B": {3: 12.5, 5: 11.5, 10: 9.5}}
    assert {max(by_k, key=by_k.get) for by_k in speeds.values()} == {3}
    log = "INFO 07-21 10:00:00 [{}] Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: {} tokens/s, Running: 1 reqs, "
    queues = {"new": "Waiting: 0 reqs", "old": "Swapped: 0 reqs, Pending: 0 reqs"}
    for core, queue in queues.items():
        (tmp_path / core).write_text(log.format("loggers.py:116", 12.0) + queue + "\n")
    found = compare([tmp_path / "new"], [tmp_path / "old"])
    names = {"accepted": "acceptance", "same_engine_baseline": "same-engine baseline"}
    missing = set(found.to_json()["missing"]) | {k for k in ("accepted",) if found.spec.accepted is None}
    return {
        "valid_speedup": found.speedup_decode,
        "best_tested_k": 3,
        "missing": [names[key] for key in names if key in missing],
    }


@question("C06")
def which_term(tmp_path):
    total, draft, sampling, verify = 2924.72, 322.8, 524.95, 1939.02
    prompts_and_rest = 8.59 + 13.19 + 4.02
    steps = [1 / 30.72, 2 / 51.22, 3 / 75.92]  # seconds of a pass over 1, 2, 3 positions on the V100
    ledger = Ledger(
        Acceptance.constant(0.8),
        RoundTime(draft=Affine(0.0, 1 / 619.43), verify=Table(dict(enumerate(steps)))),
        steps[0],
    )
    return {
        "shares": {
            "verify": verify / total,
            "draft_sampling": sampling / total,
            "draft": draft / total,
            "unexplained": 1 - (verify + sampling + draft + prompts_and_rest) / total,
        },
        "V100_TV_ratio": [break_even_length(steps[0], step) for step in steps],
        "S_pred_a08": [ledger.speedup(g) for g in (1, 2)],
    }


@question("C07")
def too_long_a_draft(tmp_path):
    text = (
        "decoded  371 tokens in   34.412 seconds, speed:   10.781 t/s\n\nn_draft   = 16\nn_predict = 371\nn_drafted = 912\n"
        "n_accept  = 313\naccept    = 34.320%\n\ndraft:\n\nllama_perf_context_print:        eval time =    8806.60 ms /   "
        "855 runs   (   10.30 ms per token,    97.09 tokens per second)\n\ntarget:\n\n"
    )
    s = read_text(tmp_path, text)
    t, t_round = 1 / 11, s["t_round_ms"] * MS
    a = constant_acceptance(s["committed_length"], 16)
    draft_step = s["details"]["t_draft_ms"] * MS / s["details"]["mean_draft_length"]
    verify_step = (t_round - s["details"]["t_draft_ms"] * MS - t) / s["details"]["mean_draft_length"]
    ledger = Ledger(Acceptance.constant(a), RoundTime.of(Affine(t, draft_step + verify_step)), t)
    best = best_gamma(ledger)
    assert ledger.speedup(16) == pytest.approx(0.97, abs=0.01)
    return {
        "rounds": s["rounds"], "E_L": s["committed_length"], "T_ms": s["t_round_ms"],
        "S": speedup(s["committed_length"], t, t_round), "a_fit": a, "best_k_model": best, "S_best_model": ledger.speedup(best),
    }  # fmt: skip


@question("C10")
def open_ended_story(tmp_path):
    timings = {
        "predicted_n": 200,
        "predicted_ms": 11082.6,
        "predicted_per_second": 18.046,
        "draft_n": 347,
        "draft_n_accepted": 65,
    }
    s = read_text(tmp_path, json.dumps({"timings": timings}))
    return {
        "rounds": s["rounds"], "E_L": s["committed_length"], "rate": s["pooled_acceptance"], "T_ms": s["t_round_ms"],
        "break_even_baseline_tok_s": s["committed_length"] / (s["t_round_ms"] * MS),
    }  # fmt: skip


@question("C12")
def power_cap(tmp_path):
    plain, spec = [1 / 18.05, 1 / 11.65], [1 / 29.66, 1 / 11.34]  # seconds per token at 300 W and 150 W
    gains = [break_even_length(s, p) for p, s in zip(plain, spec, strict=True)]
    return {
        "S": gains, "base_ratio": break_even_length(plain[0], plain[1]), "round_ratio": break_even_length(spec[0], spec[1]),
        "R_growth": gains[0] / gains[1],
    }  # fmt: skip


@question("C14")
def less_on_better_hardware(tmp_path):
    for name, rate in (("plain", 31.783), ("spec", 35.648)):
        (tmp_path / name).write_text(f"Generation: 256 tokens, {rate:.3f} tokens-per-sec\n")
    return {"S": compare([tmp_path / "plain"], [tmp_path / "spec"]).speedup_decode}


@question("C15")
def itl_against_throughput(tmp_path):
    tpot = 1e3 / 292.29
    return {
        "tpot_ms": tpot,
        "E_L": break_even_length(tpot, 8.72),
    }  # one stream: ITL is T_round, and T_round = E[L]·TPOT


@question("C17")
def one_or_eight(tmp_path):
    survival = [0.7568, 0.6011, 0.4976, 0.4113, 0.3538, 0.2980, 0.2608, 0.2229]
    law = Acceptance.from_survival(survival)
    lengths = [law.committed_length(g) for g in range(1, 9)]
    rounds, low, high = rounds_behind(356839, 839040, [Printed(sum(survival), 8 * 0.5e-4)], 8)
    assert low <= rounds <= high and 1 + 356839 / rounds == pytest.approx(lengths[-1], abs=5e-4)
    a = constant_acceptance(4.4023, 8)
    return {
        "T_ms": [break_even_round_time(1.84, 37.18), break_even_round_time(4.40, 27.48)],
        "S_tpot": break_even_length(27.48, 37.18),
        "conditional": conditional(survival), "E_L_trim": lengths,
        "a_fit": a, "const_a_at4": committed_length_constant(a, 4),
    }  # fmt: skip


@question("C19")
def clean_sweep(tmp_path):
    rates, speeds = {2: 0.7935, 3: 0.7185, 4: 0.6349}, {2: 49.4, 3: 52.9, 4: 51.9}
    lengths = {k: committed_length_from_pooled(r, k) for k, r in rates.items()}
    times = {k: lengths[k] / speeds[k] for k in rates}
    gains = {k: speedup(lengths[k], 1 / 31.3, times[k]) for k in rates}
    marginal = [(lengths[k + 1] - lengths[k]) / (times[k + 1] - times[k]) for k in (2, 3)]
    assert marginal[0] > speeds[2] and marginal[1] < speeds[3]  # the step rule: go to 3, stop there
    return {
        "E_L": list(lengths.values()), "T_ms": [t / MS for t in times.values()], "S": list(gains.values()),
        "marginal_tok_s": marginal, "best_k": max(gains, key=gains.get),
    }  # fmt: skip


@question("C21")
def nine_percent_of_fifteen(tmp_path):
    line = (
        "INFO 01-05 10:00:10 [metrics.py:100] SpecDecoding metrics: Mean acceptance length: 2.37, Accepted throughput: 8.90 "
        "tokens/s, Drafted throughput: 97.50 tokens/s, Accepted: 89 tokens, Drafted: 975 tokens, Per-position acceptance "
        "rate: 0.600, 0.385, 0.215, 0.108, 0.062{}, Avg Draft acceptance rate: 9.1%\n"
    )
    s = read_text(tmp_path, line.format(", 0.000" * 10))
    assert "cliff-to-zero" in {w["code"] for w in s["warnings"]}
    window, length = s["windows"][0], s["committed_length_drafting_rounds"]
    return {
        "rounds": s["rounds"], "E_L": length, "rate_k15": s["pooled_acceptance"], "rate_k5": pooled_acceptance(length, 5),
        "tok_s": length * window["rounds_per_s"], "T_ms": window["t_round_ms_if_one_request"],
    }  # fmt: skip


@question("C24")
def length_zero_is_not_off(tmp_path):
    plain, zero = [14.374, 77.164], [15.317, 93.820]
    gains = [speedup(1, p, z) for p, z in zip(plain, zero, strict=True)]
    return {"S_K0": gains, "E_needed": [break_even_length(p, z) for p, z in zip(plain, zero, strict=True)]}


@question("C25")
def quantized_target(tmp_path):
    tpot, itl = [1 - 0.017, 1 - 0.307], 1.505
    length = break_even_length(tpot[0], itl)
    gains = [1 / t for t in tpot]
    return {"S": gains, "E_L": length, "R": [length / s for s in gains]}


@question("C26")
def alone_or_together(tmp_path):
    on, off = [39.0, 25.2, 23.7], [24.3, 26.9, 28.2]
    gains = [length_at_rate(a, b) for a, b in zip(on, off, strict=True)]
    share = Fraction(269 - 252, 390 - 243 + 269 - 252)  # w·39.0 + (1−w)·25.2 = w·24.3 + (1−w)·26.9
    return {"S": gains, "w_break_even": float(share)}


@question("C27")
def mixture_of_experts(tmp_path):
    plain, spec = [218.89, 507.49, 677.14, 1128.3, 1237.84], [185.64, 476.37, 673.14, 927.11, 1307.95]
    lengths = [2.542, 2.556, 2.578, 2.560, 2.553]
    gains = [length_at_rate(s, p) for s, p in zip(spec, plain, strict=True)]
    cost = [math.exp(-log_split(e, 1 / p, e / s)[1]) for e, p, s in zip(lengths, plain, spec, strict=True)]
    return {"S": gains, "R": cost}


@question("C30")
def nothing_accepted(tmp_path):
    t_round = 1.037 / 41.96
    return {"T_ms": t_round / MS, "break_even_baseline": 1 / (t_round / 1.037) / 1.037}


@question("C31")
def sglang_log(tmp_path):
    line = "[2025-10-22 10:27:5{}] Decode batch. #running-req: 1, #token: 9, token usage: 0.00, accept len: {}, accept rate: {}, "
    posted = [("2.17", ".54", "0.4"), ("1.95", ".49", "178.86"), ("1.80", ".45", "165.41"), ("2.05", ".51", "188.68"),
              ("1.80", ".45", "165.59")]  # fmt: skip
    text = "[2025-10-22 10:27:50] Prefill batch. #new-seq: 1\n" + "".join(
        line.format(i, length, f"0{rate}") + f"cuda graph: True, gen throughput (token/s): {speed}, #queue-req: 0, \n"
        for i, (length, rate, speed) in enumerate(posted)
    )
    s = read_text(tmp_path, text)
    assert s["gamma"] == 3 and rate_meanings([(2.17, 0.005, 0.54, 0.005), (1.8, 0.005, 0.45, 0.005)])[0] == [4]
    times = [w["t_round_ms"] for w in s["windows"][1:]]
    speeds = pooled_rate([1] * 4, [t * MS for t in times])
    return {
        "strict_rate": [w["pooled_acceptance"] for w in s["windows"][:4]], "T_ms": times, "tok_s_per_unit_length": speeds,
    }  # fmt: skip


@question("C33")
def longer_context(tmp_path):
    rates, gains = [0.855, 0.53, 0.475], [2.495, 1.44, 1.0]
    lengths = [committed_length_from_pooled(r, 4) for r in rates]
    parts = [log_split(e, 1.0, e / s) for e, s in zip(lengths, gains, strict=True)]
    change = [b - a for a, b in zip(parts[0], parts[2], strict=True)]
    return {
        "E_L": lengths, "R": [e / s for e, s in zip(lengths, gains, strict=True)],
        "share_acceptance": change[0] / sum(change),
    }  # fmt: skip


@question("C35")
def ten_positions(tmp_path):
    survival = [0.74, 0.54, 0.41, 0.30, 0.22, 0.16, 0.12, 0.08, 0.05, 0.02]
    block = (
        "total_num_output_tokens: 16994\nnum_drafts: 4687\nnum_draft_tokens: 46870\nnum_accepted_tokens: 12368\n"
        "mean acceptance length: 3.64\n"
        + "".join(f"acceptance at token {i}: {s:.2f}\n" for i, s in enumerate(survival))
    )
    s = read_text(tmp_path, block)
    delivered = s["details"]["generation_tokens"] - 80
    record = read_file(tmp_path / "record")[0]
    record.committed, record.rounds_all = delivered, record.rounds  # 80 prompts, and every round had a draft
    return {
        "E_L": s["committed_length_drafting_rounds"], "E_L_outputs": delivered / s["rounds"], "tokens_cut": record.tokens_cut,
        "E_L_k5": Acceptance.from_survival(survival).committed_length(5), "a_fit": s["constant_acceptance"],
    }  # fmt: skip


@question("C37")
def four_workloads(tmp_path):
    gains = [length_at_rate(speed, 89.1) for speed in (89.4, 87.9, 876.5)]
    found = audit(tau="2.3", speedup=f"{gains[1]:.4f}", gamma=2)
    assert found.verdict == "consistent" and found.implied["round_cost"].low < 2.331 < found.implied["round_cost"].high
    return {"S": gains, "R_mtp": 2.3 / gains[1], "R_repeat": 36.6 / gains[2]}


@question("C39")
def nothing_at_all(tmp_path):
    line = (
        "INFO 01-05 10:00:10 [metrics.py:100] SpecDecoding metrics: Mean acceptance length: 1.00, Accepted throughput: 0.00 "
        "tokens/s, Drafted throughput: 69.20 tokens/s, Accepted: 0 tokens, Drafted: 692 tokens, Per-position acceptance "
        "rate: 0.000, 0.000, Avg Draft acceptance rate: 0.0%\n"
    )
    s = read_text(tmp_path, line)
    assert {"acceptance-zero", "rounds-inferred"} <= {w["code"] for w in s["warnings"]}
    return {"E_L": s["committed_length_drafting_rounds"], "rounds_per_s": s["windows"][0]["rounds_per_s"]}


@question("C41")
def verification_rule(tmp_path):
    lengths = [committed_length([a]) for a in (0.05, 0.905)]
    return {"E_L": lengths, "ratio": lengths[1] / lengths[0]}


@question("C43")
def wrong_term_blamed(tmp_path):
    tokens, seconds = 2539, 87.5
    length = committed_length(conditional([0.35, 0.15, 0.10, 0.06]))
    t_round = length * seconds / tokens
    return {
        "S": speedup(length, 1 / 122.5, length / 29.0), "E_L": length, "R": break_even_length(1 / 122.5, length / 29.0),
        "T_ms": t_round / MS,
    }  # fmt: skip


@question("C45")
def scratch_blocks(tmp_path):
    blocks, per_request, scratch, running = 873, 45, 9, 8
    before, after = blocks / per_request, (blocks - running * scratch) / (per_request - scratch)
    return {"before": before, "after": after, "gain": after / before - 1}


@question("C47")
def structured_output(tmp_path):
    return {"S": length_at_rate((124.6 + 129.7) / 2, 92)}


@question("C50")
def identical_text(tmp_path):
    return {"p_identical": Acceptance.constant(1 - 1e-3).survival(500)[-1]}  # a chain of 500 agreements


@question("C51")
def random_prompts(tmp_path):
    tags = ("plain_repeat_c1", "ngram3_repeat_c1")
    records = [r for tag in tags for r in runs([DATA / "engine/bench" / f"{tag}.json"])]
    report = gates(records, {"latency": {"workload": "random", "load": {"max_concurrency": 1}}})
    return {"verdict": report.gates[2].verdict}


@question("C54")
def not_reproduced(tmp_path):
    lengths = [committed_length_from_pooled(rate, 7) for rate in (0.35, 0.74)]
    speeds = [29.5, 46.9]
    assert fill_rate(lengths[1], 7) == pytest.approx(6.18 / 8)
    return {"E_L": lengths, "T_ms": [e / v / MS for e, v in zip(lengths, speeds, strict=True)]}


# --------------------------------------------------------------------------------------------------------- checks


def printed_digits(value):
    """Half a unit of the last digit with which a number is printed."""
    return 0.5 * 10.0 ** -len(repr(value).partition(".")[2]) * 1.001


def agree(found, wanted, path):
    if isinstance(wanted, dict):
        assert set(found) == set(wanted), path
        for key in wanted:
            agree(found[key], wanted[key], f"{path}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), path
        for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
            agree(a, b, f"{path}[{i}]")
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=printed_digits(wanted)), f"{path}: {found} is not {wanted}"
    else:
        assert found == wanted, f"{path}: {found} is not {wanted}"


@pytest.mark.parametrize("number", sorted(QUESTIONS))
def test_question(number, tmp_path):
    agree(ANSWERS[number](tmp_path), QUESTIONS[number]["expected"], number)


def test_all_questions_are_answered():
    assert len(QUESTIONS) == 29 and set(ANSWERS) == set(QUESTIONS)


def test_step_rule_of_the_two_heads():
    """C01: one more draft token pays while its tokens per ms exceed those of the round; EAGLE-1 stops at 3."""
    lengths, tpot = [2.10, 2.29, 2.39], [4.37, 4.29, 4.48]
    times = Table({g: e * t * MS for g, e, t in zip((2, 3, 4), lengths, tpot, strict=True)})
    law = Acceptance.from_survival([0.7, 0.4, 0.19, 0.10])  # E[L] = 2.10, 2.29, 2.39 at γ = 2, 3, 4
    ledger = Ledger(law, RoundTime.of(times), 7.07 * MS)
    assert step_pays(ledger, 2) and not step_pays(ledger, 3)
