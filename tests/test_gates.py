"""The four gates: they pass on evidence, fail on evidence, and otherwise say what is missing."""

import json
from pathlib import Path

import pytest

from specgain.gates import check_thresholds, fault_tree, gates, load
from specgain.records.read import runs
from specgain.records.source import RecordError

ENGINE = Path(__file__).resolve().parent / "data" / "engine"
ALIGNED = {"same_target": True, "same_sampling": True, "same_history": True}


def files(*tags):
    return [
        ENGINE / name
        for tag in tags
        for name in (f"bench/{tag}.json", f"metrics/{tag}.before.txt", f"metrics/{tag}.after.txt")
    ]


def verdicts(report):
    return {gate.name: gate.verdict for gate in report.gates}


WIN = runs(files("plain_repeat_c1", "ngram3_repeat_c1"))
LOSS = runs(files("plain_b_repeat_c1", "draft26k3_repeat_c1"))
LIMITS = {
    "correctness": ALIGNED,
    "quality": {"metric": "exact match", "reference": 0.80, "value": 0.80, "max_drop": 0.01},
    "latency": {
        "load": {"max_concurrency": 1},
        "ttft_ms": {"p99": 4000},
        "tpot_ms": {"mean": 100},
        "itl_ms": {"p99": 500},
    },
    "capacity": {"throughput_ratio_min": 1.0, "kv_cache_tokens_min": 20000, "preemptions_max": 0, "failed_max": 0},
}


def test_all_gates_pass():
    report = gates(WIN, LIMITS)
    assert report.verdict == "pass" and report.failing_term is None
    assert set(verdicts(report).values()) == {"pass"} and not report.to_json()["missing"]
    json.dumps(report.to_json(), allow_nan=False)


@pytest.mark.claims("C8.3", "C8.4")
def test_a_loss_fails_latency_and_capacity_with_80_percent_at_the_first_position():
    report = gates(LOSS, LIMITS)
    assert verdicts(report) == {"correctness": "pass", "quality": "pass", "latency": "fail", "capacity": "fail"}
    assert report.verdict == "fail" and report.failing_term == "latency"
    assert report.tree[0].startswith("a round commits 2.85 tokens and is no faster")
    assert [step.partition(":")[0] for step in report.tree[1:5]] == [
        "draft",
        "verification",
        "sampling",
        "cache upkeep",
    ]
    text = report.to_markdown()
    assert text.startswith("# Speculative decoding: fail") and "To try: a smaller draft" in text
    assert "| gain | **fails** |" in text and "| KV cache tokens | **fails** |" in text


@pytest.mark.claims("C8.3")
@pytest.mark.parametrize(
    ("gate", "change", "verdict"),
    [
        ("correctness", {"same_history": False}, "fail"),
        ("correctness", {"same_history": None}, "insufficient"),
        ("correctness", {"outputs_equal_min": 1.0}, "insufficient"),  # the captures hold no texts
        ("quality", {"value": 0.78}, "fail"),
        ("quality", {"value": None}, "insufficient"),
        ("quality", {"approximate_verification": True}, "insufficient"),
        ("latency", {"tpot_ms": {"mean": 70}}, "fail"),
        ("latency", {"tpot_ms": {"p95": 70}}, "insufficient"),  # not in these records
        ("latency", {"load": {"max_concurrency": 16}}, "insufficient"),
        ("latency", {"load": {}}, "insufficient"),
        ("latency", {"workload": "random"}, "insufficient"),  # random prompts cannot judge n-gram drafts
        ("latency", {"speedup_min": 2.0}, "fail"),
        ("capacity", {"throughput_ratio_min": 1.5}, "fail"),
        ("capacity", {"kv_cache_tokens_min": 30000}, "fail"),
    ],
)
def test_each_gate(gate, change, verdict):
    limits = json.loads(json.dumps(LIMITS))
    limits[gate] |= change
    report = gates(WIN, limits)
    assert verdicts(report)[gate] == verdict
    assert report.verdict == ("fail" if verdict == "fail" else "insufficient")


def test_no_thresholds_no_pass():
    report = gates(WIN, {})
    assert report.verdict == "insufficient" and set(verdicts(report).values()) == {"insufficient"}
    assert "latency: load" in report.to_json()["missing"]


def test_noise_is_no_evidence_of_gain():
    report = gates(runs(files("plain_chat_c4", "ngram3_chat_c4")), {"latency": {"load": {"max_concurrency": 4}}})
    gain = next(check for gate in report.gates for check in gate.checks if check["name"] == "gain")
    assert (gain["value"], gain["ok"]) == ("within-noise", None)


@pytest.mark.claims("C8.4")
def test_good_when_idle_only(tmp_path):
    """Faster alone, slower with four requests at once: the tree says to decide by load."""
    records = []
    for load_, plain_ms, spec_ms in ((1, 10.0, 7.0), (4, 14.0, 16.0)):
        for name, ms in (("plain", plain_ms), ("spec", spec_ms)):
            bench = json.loads((ENGINE / "bench/ngram3_repeat_c1.json").read_text())
            if name == "plain":
                bench = {k: v for k, v in bench.items() if not k.startswith("spec_decode")}
                bench["itls"] = [[ms / 1e3] * (n - 1) for n in bench["output_lens"]]
            else:
                bench["itls"] = [[ms * (n - 1) / len(i) / 1e3] * len(i)
                                 for n, i in zip(bench["output_lens"], bench["itls"], strict=True)]  # fmt: skip
            bench["max_concurrency"] = load_
            path = tmp_path / f"{name}{load_}.json"
            path.write_text(json.dumps(bench))
            records += runs([path])
    report = gates(records, LIMITS | {"latency": {"load": {"max_concurrency": 4}}})
    assert verdicts(report)["latency"] == "fail"
    step = "faster at 1 concurrent request (1.43×) and not at 4 (0.88×)"
    assert report.tree[-1].startswith(step), "and nothing on the target, which was measured"
    report = gates(records, {"latency": {"load": {"max_concurrency": 16}}})
    assert report.tree[-2].startswith(step)
    assert report.tree[-1].startswith("the target load, 16, was not measured on both sides, and 4 stands for it")


def test_thresholds_are_checked(tmp_path):
    for text, message in (
        ('{"speed": {}}', "is no gate"), ('{"latency": {"tpot": 3}}', "latency has tpot"), ("[]", "are no object"),
        ('{"latency": {"load": {}, "load": {}}}', "more than once"), ('{"latency": 3}', "no object"), ("{", "broken JSON"),
        ('{"latency": {"workload": ["random"]}}', "must be a text or a number"),
        ('{"latency": {"load": {"max_concurrency": [4]}}}', "must be a text or a number"),
    ):  # fmt: skip
        path = tmp_path / "t.json"
        path.write_text(text)
        with pytest.raises(RecordError, match=message):
            load(path)
    assert check_thresholds(LIMITS) is LIMITS
    with pytest.raises(RecordError, match="no record with drafts"):
        gates(runs(files("plain_repeat_c1")), LIMITS)


def test_fault_tree_of_a_win_is_empty():
    assert fault_tree(gates(WIN, LIMITS).comparison) == []


@pytest.mark.parametrize(("key", "value"), [("ttft_ms", 4000), ("load", 3), ("load", None), ("itl_ms", [200])])
def test_thresholds_of_the_wrong_kind_are_refused(key, value):
    with pytest.raises(RecordError, match=f"latency.{key} = .* is no object such as"):
        gates(WIN, {"latency": {key: value}})


def test_runs_at_several_loads_and_no_target_are_insufficient():
    report = gates(WIN + runs(files("plain_chat_c4", "ngram3_chat_c4")), {})
    assert report.verdict == "insufficient" and report.comparison is None
