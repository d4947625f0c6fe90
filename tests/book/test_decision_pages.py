"""The gates' chapter, the capstone and the pages around them: their numbers, and that the records say what they say."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from specgain import gain, quiz
from specgain.compare import compare_runs
from specgain.gates import gates, too_dear
from specgain.records import instrumented
from specgain.records.read import runs
from specgain.records.roundlog import RoundLog

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / "tests" / "data" / "engine"


def sibling(name):
    """Return a neighbouring test module, for the reader of prose that lives there."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reader = sibling("test_chapter_numbers")
run = reader.run


def captured(*names):
    """Return the records of captured engine runs, as the chapter reads them."""
    return runs([p for n in names for p in (ENGINE / f"bench/{n}.json", *sorted(ENGINE.glob(f"metrics/{n}.*")))])


def kv_tokens(name):
    return captured(name)[0].details["kv_cache_tokens"]


DRAFT, COPY, CHAT = "draft26k3_repeat_c1", "ngram3_repeat_c1", "ngram3_chat_c4"
NAMES = quiz.library_names() | {"run": run, "pooled": reader.pooled, "kv_tokens": kv_tokens, "DRAFT": DRAFT, "COPY": COPY, "CHAT": CHAT}

GIVEN = {
    "08-gates": "8 26 30 66 188 370 376 500 1.2 1.43 0.88 1.04",
    "corrections": "26 30 0.8 16",
    "capstone": "3 4 5 6 7 26 30 48 135",
}
COMPUTED = {
    "08-gates": {
        "80": "100 * run(DRAFT)['survival_per_position'][0]",
        "2.89": "run(DRAFT)['counter_acceptance_length']",
        "1.70": "run(COPY)['speedup_from_ledger']",
        "1.6955": "run(COPY)['speedup_from_ledger']",
        "23,296": "kv_tokens('plain_b_repeat_c1')",
        "12,416": "kv_tokens(DRAFT)",
        "84.14": "run(DRAFT)['T_plain_ms']",
        "299.5": "run(DRAFT)['T_round_ms']",
        "93.85": "run(CHAT)['T_plain_ms']",
        "98.15": "run(CHAT)['T_round_ms']",
    },
    "capstone": {},
    "corrections": {
        "2.86": "run(COPY)['counter_acceptance_length']",
        "80": "100 * 0.8",
        "60": "-100 * (committed_length_constant(pooled(8), 8) / committed_length_constant(0.8, 8) - 1)",
    },
}


def page(name):
    return (ROOT / "book" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", GIVEN)
def test_every_number_is_declared_or_computed(name):
    text = re.sub(r"20\d\d-\d\d-\d\d", "", page(name))  # dates
    assert reader.numbers(reader.prose(text)) == {*GIVEN[name].split(), *COMPUTED[name]}


@pytest.mark.parametrize(("name", "printed"), [(c, n) for c, listed in COMPUTED.items() for n in listed])
def test_computed_numbers_are_right(name, printed):
    value = float(eval(COMPUTED[name][printed], dict(NAMES)))
    assert round(value, len(printed.partition(".")[2])) == float(printed.replace("−", "-").replace(",", ""))


# ------------------------------------------------------------------------------------------ what the chapter says

LIMITS = {
    "correctness": {"same_target": True, "same_sampling": True, "same_history": True},
    "quality": {"reference": 0.812, "value": 0.809, "max_drop": 0.01},
    "latency": {"load": {"max_concurrency": 1}, "ttft_ms": {"p99": 4000}, "tpot_ms": {"mean": 100}},
    "capacity": {"throughput_ratio_min": 1.0, "kv_cache_tokens_min": 20000, "preemptions_max": 0},
}


@pytest.mark.claims("C8.3")
def test_the_verdicts_of_the_chapter():
    draft_model = gates(captured("plain_b_repeat_c1", DRAFT), LIMITS)
    assert {gate.name: gate.verdict for gate in draft_model.gates} == {
        "correctness": "pass", "quality": "pass", "latency": "fail", "capacity": "fail",
    }  # fmt: skip
    assert draft_model.comparison.margin_interval[1] < 0  # "slower is no accident of this run"
    ngram = gates(captured("plain_repeat_c1", COPY), LIMITS)
    assert ngram.verdict == "pass" and ngram.comparison.committed_length < draft_model.comparison.committed_length
    repeated = gates(captured("plain_repeat_c1", "plain_b_repeat_c1", COPY), LIMITS)
    assert repeated.verdict == "insufficient" and repeated.comparison.margin_interval[0] < 0
    refused = gates(captured("plain_repeat_c1", "plain_b_repeat_c1", DRAFT), LIMITS)  # the capstone's proposal B
    assert refused.verdict == "fail" and refused.comparison.verdict == "within-noise"
    chat = gates(captured("plain_chat_c4", CHAT), LIMITS | {"latency": {"load": {"max_concurrency": 4}}})
    assert [gate.verdict for gate in chat.gates] == ["pass", "pass", "insufficient", "fail"]


def test_one_request_of_four_waited_for_more_than_three_seconds():
    plain, ngram = captured("plain_repeat_c1", COPY)
    ttfts = json.loads((ENGINE / f"bench/{COPY}.json").read_text())["ttfts"]
    assert sum(seconds > 3 for seconds in ttfts) == 1 and len(ttfts) == 4
    medians = [r.details["latency_ms"]["ttft"]["median"] for r in (plain, ngram)]
    assert medians[1] == pytest.approx(medians[0], rel=0.1)


@pytest.mark.claims("C8.4")
def test_the_recorded_loop_leads_down_the_fault_tree():
    log = RoundLog.read(ROOT / "notebooks/measurements/cpu-2core/rounds.json").select(domain="stdlib")
    arms = instrumented.roundlog(log.to_json(), "stdlib")
    sides = {r.gamma or 0: r for r in arms if r.workload["arm"] in ("plain", "strong")}
    eight = compare_runs([sides[0]], [sides[8]])
    assert too_dear(eight) and eight.committed_length > 2
    times = eight.spec_runs[0].details
    assert times["t_draft_ms"] > times["t_verify_ms"] - 1e3 * eight.t_decode  # the draft costs most beyond a plain step
    assert compare_runs([sides[0]], [sides[2]]).speedup_decode > eight.speedup_decode  # "ask for fewer tokens"


def test_the_rubric_adds_up_and_the_tools_of_the_capstone_give_its_verdicts():
    points = [int(n) for n in re.findall(r"^\| (\d) \| ", page("capstone"), re.MULTILINE)]
    assert sum(points) == 20 and "Twenty points" in page("capstone")
    answer = [gain.margin(run(n)["mean_committed_per_round"], run(n)["T_plain_ms"], run(n)["T_round_ms"]) for n in (COPY, DRAFT, CHAT)]
    assert quiz.check("08-gate-capstone", answer)
    assert [m > 0 for m in answer] == [True, False, False]


def test_the_alarm_of_the_capstone_can_ring():
    """No round delivers less than one token, so an alarm at or below one would never ring; break-even lies above."""
    found = compare_runs(captured("plain_repeat_c1", "plain_b_repeat_c1"), captured(COPY))
    assert 1 < found.t_round / found.t_decode < found.committed_length
    assert "again['A'].comparison.t_round / again['A'].comparison.t_decode" in page("capstone")


# ------------------------------------------------------------------------------------------ the corrections, with data

NOTED = json.loads((ROOT / "book" / "evidence" / "corrections.json").read_text(encoding="utf-8"))


def test_what_the_page_says_about_the_engine_runs():
    printed = {name: run(name)["wrong_speedup_with_counter_length"] for name in (COPY, CHAT)}
    assert printed[CHAT] > 1 > run(CHAT)["speedup_from_ledger"]  # the verdict turns on open chat
    assert printed[COPY] > 1.5 * run(COPY)["speedup_from_ledger"]
    found = compare_runs(captured("plain_b_repeat_c1"), captured(DRAFT))
    assert found.spec.rounds == found.spec.rounds_all and found.spec.tokens_cut == 3  # drafts in every round


def test_length_zero_costs_one_pass_of_the_draft():
    zero = NOTED["zero_length"]
    counted = 1 + zero["draft_layers"] / zero["target_layers"]
    assert zero["draft_model_round_over_step"] == pytest.approx(counted, rel=0.02)
    assert 1 / zero["draft_model_round_over_step"] == pytest.approx(0.53, abs=0.005) and zero["ngram_speedup"] == pytest.approx(1, abs=0.02)


def test_the_same_acceptance_has_two_verdicts_under_two_kernels():
    rows = NOTED["kernels"]["rows"]
    assert sum((row["linear"] > 1) != (row["packed"] > 1) for row in rows) == 4 and len(rows) == 8
    for row in rows:  # a round is never cheaper than what the tokens of it allow
        assert row["committed_length"] / row["packed"] > 0.9 and 1 <= row["committed_length"] <= row["gamma"] + 1
    assert "verdict turns on the kernel alone" in page("corrections")  # how often is computed there, for any times


def test_the_kernels_of_our_benchmark_stand_beside_the_earlier_run():
    bench = json.loads((ROOT / "benchmarks" / "results" / "kernels.json").read_text(encoding="utf-8"))
    rows, passes = bench["batches"]["1"]["rows"], NOTED["kernels"]["verification"]
    for name in ("F.linear", "W @ x.T", "packed"):
        assert sorted(map(int, rows[name])) == passes["positions"] and rows[name]["1"]["own_ratio"]["median"] == 1
    for k, n in enumerate(passes["positions"]):  # two loops, two days: the order of the kernels is the same from two on
        if n > 1:
            assert (rows["F.linear"][str(n)]["ms"]["median"] > rows["packed"][str(n)]["ms"]["median"]) == (
                passes["linear"][k] > passes["packed"][k]
            )


def test_the_fastest_kernel_of_a_step_depends_on_the_processor():
    rows = {}
    for name in ("kernels", "kernels-intel"):
        bench = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
        rows[bench["environment"]["device"].split()[0]] = bench["batches"]["1"]["rows"]
    step = {
        maker: {name: row[name]["1"]["ms"]["median"] for name in ("F.linear", "W @ x.T", "packed")}
        for maker, row in rows.items()
    }
    assert min(step["AMD"], key=step["AMD"].get) == "packed" and max(step["Intel(R)"], key=step["Intel(R)"].get) == "packed"
    five = {maker: min(cell["5"]["ratio"]["median"] for name, cell in row.items() if "int8" not in name) for maker, row in rows.items()}
    assert five["AMD"] < 1.1 < 1.25 < five["Intel(R)"]


def test_tokens_and_speed_rank_in_opposite_order():
    rows = [r for r in reader.table("specbench_leaderboard.csv") if r["target"] == "Vicuna-7B-v1.3"]
    found = {(r["gpu"], r["method"]): (float(r["mean_tokens_per_step"]), float(r["sp_overall"])) for r in rows}
    for gpu, winner, loser in (("A100", "Recycling", "EAGLE"), ("3090", "EAGLE", "Recycling")):
        assert found[gpu, winner][1] > found[gpu, loser][1]
    for method in ("EAGLE", "Recycling"):
        assert found["A100", method][0] == pytest.approx(found["3090", method][0], rel=0.01)
    assert found["A100", "Recycling"][0] < found["A100", "EAGLE"][0]  # fewer tokens and faster


def test_throughput_moves_less_than_the_time_per_token():
    for name in (COPY, DRAFT):
        row = run(name)
        assert row["speedup_measured_throughput"] < row["speedup_from_ledger"]


def test_the_checklist_holds_every_gate_and_objective():
    text = page("checklist")
    assert [f"(O{n})" in text for n in range(1, 11)] == [True] * 10
    assert all(f"**{word}" in text for word in ("Correctness", "Quality", "Latency", "Capacity"))
