"""The ledger report: the hand-computed values and verdicts of real pairs, and the rules behind verdict and fault."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from specgain.compare import compare, compare_runs
from specgain.records.roundlog import RequestLog, RoundLog
from specgain.records.source import RecordError
from specgain.records.summary import Record, Request

DATA = Path(__file__).resolve().parent / "data"
ENGINE, SCHEMAS = DATA / "engine", Path(__file__).resolve().parent.parent / "specgain" / "schemas"
PAIRS = json.loads((ENGINE / "expected_ledger.json").read_text())


def files(*tags):
    return [
        ENGINE / name
        for tag in tags
        for name in (f"metrics/{tag}.after.txt", f"bench/{tag}.json", f"metrics/{tag}.before.txt")
    ]


def codes(found):
    return {warning.code for warning in found.warnings}


@pytest.mark.parametrize("pair", PAIRS, ids=[pair["spec"] for pair in PAIRS])
def test_ledger_of_a_handed_pair(pair):
    ledger = compare(files(pair["plain"]), files(pair["spec"])).to_json()
    expected = {
        "committed_length": "mean_committed_per_round", "committed_length_drafting_rounds": "counter_acceptance_length",
        "rounds_without_draft": "rounds_without_draft", "tokens_cut": "tokens_cut_at_output_limit",
        "t_decode_ms": "T_plain_ms", "t_round_ms": "T_round_ms", "break_even_ms": "break_even_right_side_ms",
        "speedup_decode": "speedup_from_ledger", "speedup_throughput": "speedup_measured_throughput",
    }  # fmt: skip
    for key, handed in expected.items():
        assert ledger[key] == pytest.approx(pair[handed], rel=1e-9), key
    assert ledger["rounds"] == pair["spec_side"]["request_rounds"]
    assert (ledger["margin_ms"] > 0) == pair["break_even_holds"]
    assert ledger["margin_ms"] == pytest.approx(pair["break_even_right_side_ms"] - pair["T_round_ms"], rel=1e-9)
    assert sum(ledger["ln_split"].values()) == pytest.approx(__import__("math").log(pair["speedup_from_ledger"]))
    jsonschema.validate(ledger, json.loads((SCHEMAS / "compare.json").read_text()))
    json.dumps(ledger, allow_nan=False)


@pytest.mark.parametrize("with_metrics", [True, False])
def test_handed_verdicts(with_metrics):
    def sides(plain, spec):
        keep = (lambda p: True) if with_metrics else (lambda p: p.suffix == ".json")
        return compare([p for p in files(*plain) if keep(p)], [p for p in files(spec) if keep(p)])

    one = sides(["plain_repeat_c1"], "ngram3_repeat_c1")
    assert (one.verdict, one.fault_term) == ("faster", "none") and "plain_repeat" in one.missing
    assert ("speedup-exceeds-length" in codes(one)) == with_metrics  # by the client's clock S stays just below E[L]
    two = sides(["plain_repeat_c1", "plain_b_repeat_c1"], "ngram3_repeat_c1")
    assert two.verdict == "within-noise" and "plain_repeat" not in two.missing
    chat = sides(["plain_chat_c4"], "ngram3_chat_c4")
    assert (chat.verdict, chat.fault_term) == ("within-noise", "acceptance")
    draft = sides(["plain_b_repeat_c1"], "draft26k3_repeat_c1")
    assert (draft.verdict, draft.fault_term) == ("slower", "unknown") and "phase_times" in draft.missing
    assert ("kv-capacity" in codes(draft)) == with_metrics


def test_counters_alone_cannot_settle_it():
    def scrapes(tag):
        return [p for p in files(tag) if p.suffix == ".txt"]

    found = compare(scrapes("plain_repeat_c1"), scrapes("ngram3_repeat_c1"))
    assert found.verdict == "cannot-tell" and found.speedup_decode == pytest.approx(1.6954729)
    assert found.margin_interval is None and "margin_interval_ms" in found.to_json()["missing"]


def test_the_verdict_that_counters_would_flip_is_named():
    found = compare(files("plain_chat_c4"), files("ngram3_chat_c4"))
    text = dict(found.warnings)["counter-length"]
    assert "1.3750" in text and "1.31" in text and found.speedup_decode < 1


def test_report_for_people():
    text = compare(files("plain_b_repeat_c1"), files("draft26k3_repeat_c1")).to_markdown()
    assert text.startswith("**Verdict: slower**") and "| 299.5 ms |" in text and "- `plain_repeat`" in text
    assert "| KV cache | 23,296 tokens | 12,416 tokens |" in text and "| TPOT mean |" in text


def test_latencies_of_repeats_are_pooled_and_tails_are_the_worst():
    found = compare(files("plain_repeat_c1", "plain_b_repeat_c1"), files("ngram3_repeat_c1"))
    one, two = (
        json.loads((ENGINE / f"bench/{tag}.json").read_text()) for tag in ("plain_repeat_c1", "plain_b_repeat_c1")
    )
    plain = found.to_json()["latency_ms"]["plain"]
    assert plain["ttft"]["mean"] == pytest.approx((one["mean_ttft_ms"] + two["mean_ttft_ms"]) / 2)
    assert plain["tpot"]["p99"] == max(one["p99_tpot_ms"], two["p99_tpot_ms"])
    assert "| TPOT p99 of the worst run |" in found.to_markdown()
    assert found.speedups["ratio of mean TPOTs"] == pytest.approx(
        plain["tpot"]["mean"] / found.to_json()["latency_ms"]["spec"]["tpot"]["mean"]
    )


def test_the_plain_side_must_be_plain():
    with pytest.raises(RecordError, match="made drafts, so it cannot be the plain side"):
        compare(files("ngram3_repeat_c1"), files("ngram3_chat_c4"))


def test_another_engine_is_no_baseline(tmp_path):
    plain = tmp_path / "mlx.txt"
    plain.write_text("Prompt: 24 tokens, 180.000 tokens-per-sec\nGeneration: 256 tokens, 31.783 tokens-per-sec\n")
    found = compare([plain], files("draft26k3_repeat_c1"))
    assert found.verdict == "cannot-tell" and "different-engine" in codes(found)
    assert "same_engine_baseline" in found.missing


def test_an_older_engine_core_is_no_baseline_either(tmp_path):
    """The trap of vllm-project/vllm#21278: the speculative run fell back to the old core."""
    lines = {
        "plain": "INFO 07-21 10:00:00 [loggers.py:116] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        "throughput: 26.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0%",
        "spec": "INFO 07-21 10:00:00 [metrics.py:417] Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: "
        "12.0 tokens/s, Running: 1 reqs, Swapped: 0 reqs, Pending: 0 reqs, GPU KV cache usage: 1.0%, CPU KV cache usage: 0.0%.",
    }
    for name, line in lines.items():
        (tmp_path / name).write_text(line + "\n")
    found = compare(
        [tmp_path / "plain", *files("plain_b_repeat_c1")], [tmp_path / "spec", *files("draft26k3_repeat_c1")]
    )
    assert found.verdict == "cannot-tell" and "same_engine_baseline" in found.missing
    assert "plain on vLLM V1, speculative on vLLM V0" in dict(found.warnings)["different-engine"]


def test_two_runs_without_counters_still_tell_the_speedup(tmp_path):
    for name, rate in (("plain", "31.783"), ("spec", "35.648")):
        (tmp_path / name).write_text(f"Generation: 256 tokens, {rate} tokens-per-sec\n")
    found = compare([tmp_path / "plain"], [tmp_path / "spec"])
    assert found.speedup_decode == pytest.approx(1.1216, abs=1e-4)
    assert found.verdict == "cannot-tell" and found.committed_length is None


def test_a_file_given_twice_is_no_repeat():
    found = compare(files("plain_repeat_c1"), files("ngram3_repeat_c1"))
    bench = [ENGINE / "bench/plain_repeat_c1.json"] * 2
    twice = compare(bench, [ENGINE / "bench/ngram3_repeat_c1.json"] * 3)
    assert twice.to_json()["runs"] == {"plain": 1, "spec": 1} and "plain_repeat" in twice.missing
    assert found.verdict == twice.verdict == "faster"


def test_records_that_do_not_count_rounds_stand_aside():
    alone = compare(files("plain_repeat_c1"), files("ngram3_repeat_c1"))
    extra = [ENGINE / "per_request/ngram3.json", ENGINE / "log/ngram3.log"]
    found = compare([*files("plain_repeat_c1"), ENGINE / "log/plain.log"], [*files("ngram3_repeat_c1"), *extra])
    assert found.to_json()["committed_length"] == alone.committed_length and found.verdict == alone.verdict
    assert found.to_json()["runs"]["spec"] == 1


def test_warm_prompts(tmp_path):
    """The same outputs again with longer commits: the drafter remembers (suffix decoding does)."""
    bench = json.loads((ENGINE / "bench/ngram3_repeat_c1.json").read_text()) | {"generated_texts": list("abcd")}
    for name, keep in (("cold", 1.0), ("warm", 0.7)):
        itls = [gaps[: int(keep * len(gaps))] for gaps in bench["itls"]]
        accepted = sum(bench["output_lens"]) - 4 - sum(map(len, itls))
        counters = {"spec_decode_accepted_tokens": accepted, "spec_decode_num_drafts": accepted,
                    "spec_decode_draft_tokens": accepted, "spec_decode_acceptance_rate": 100.0,
                    "spec_decode_per_position_acceptance_rates": None}  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(bench | counters | {"itls": itls}))
    found = compare([ENGINE / "bench/plain_repeat_c1.json"], [tmp_path / "cold.json", tmp_path / "warm.json"])
    assert "warm-prompts" in codes(found)


def test_repeats_of_results_without_detail_are_resampled_as_runs(tmp_path):
    def results(name, tpots):
        for i, tpot in enumerate(tpots):
            bench = {"completed": 64, "total_output_tokens": 6400, "duration": 20.0 + i, "mean_tpot_ms": tpot}
            (tmp_path / f"{name}{i}.json").write_text(json.dumps(bench))
        return sorted(tmp_path.glob(f"{name}*.json"))

    found = compare(results("plain", [10.0, 10.4, 9.9]), results("spec", [6.0, 6.2, 5.9]))
    assert found.verdict == "faster" and found.speedup_decode == pytest.approx(30.3 / 18.1)
    assert found.speedup_interval == pytest.approx((9.9 / 6.2, 10.4 / 5.9), rel=0.05)
    assert {"mean-of-ratios", "few-requests"} <= codes(found) and found.committed_length is None
    noisy = compare(results("plain", [10.0, 6.0, 9.9]), results("spec", [6.0, 9.0, 5.9]))
    assert noisy.verdict == "within-noise"


def test_different_workloads_and_changed_outputs_are_named(tmp_path):
    for name in ("plain_repeat_c1", "ngram3_repeat_c1"):
        bench = json.loads((ENGINE / f"bench/{name}.json").read_text())
        bench["generated_texts"] = ["a", "b", "c", name]
        bench["max_concurrency"] = 1 if name.startswith("plain") else 2
        (tmp_path / name).write_text(json.dumps(bench))
    found = compare([tmp_path / "plain_repeat_c1"], [tmp_path / "ngram3_repeat_c1"])
    warnings = dict(found.warnings)
    assert "1 of 4 outputs differ" in warnings["outputs-differ"]
    assert "max_concurrency 1 against 2" in warnings["different-workload"]


# ------------------------------------------------------------------------------------ rules, on invented round logs


def log(tmp_path, name, *arms):
    """Write a round log; an arm is (arm, gamma, accepted per round, (draft, verify, other) in ms)."""
    requests = []
    for arm, gamma, accepted, times in arms:
        for index in range(12):
            n = len(accepted) + index % 3  # requests differ a little
            taken = [accepted[i % len(accepted)] for i in range(n)]
            columns = {
                f"t_{phase}": [ms / 1e3] * n for phase, ms in zip(("draft", "verify", "other"), times, strict=True)
            }
            requests.append(
                RequestLog(f"{arm}-{index}", arm, gamma, drafted=[gamma] * n, accepted=taken,
                           committed=[k + 1 for k in taken], **columns)
            )  # fmt: skip
    path = tmp_path / name
    RoundLog({"device": "invented"}, {}, requests).write(path)
    return path


PLAIN = ("plain", 0, [0] * 8, (0.0, 10.0, 0.0))


@pytest.mark.parametrize(
    ("accepted", "times", "verdict", "fault"),
    [
        ([3, 3, 2, 3], (3.0, 12.0, 1.0), "faster", "none"),
        ([3, 2, 3, 2], (30.0, 12.0, 1.0), "slower", "draft"),
        ([3, 2, 3, 2], (3.0, 45.0, 1.0), "slower", "verify"),
        ([3, 2, 3, 2], (3.0, 12.0, 40.0), "slower", "other"),
        ([0, 0, 0, 0], (1.0, 11.0, 0.5), "slower", "acceptance"),
    ],
)
def test_the_term_at_fault(tmp_path, accepted, times, verdict, fault):
    path = log(tmp_path, "both.json", PLAIN, ("spec", 3, accepted, times))
    found = compare([path], [path])
    assert (found.verdict, found.fault_term) == (verdict, fault)
    assert found.t_decode == pytest.approx(0.010) and found.t_round == pytest.approx(sum(times) / 1e3)
    if fault != "none":
        assert found.to_json()["advice"]


def test_several_settings_are_not_mixed(tmp_path):
    path = log(tmp_path, "three.json", PLAIN, ("spec", 3, [2, 1], (1, 10, 1)), ("spec", 5, [4, 3], (2, 10, 1)))
    with pytest.raises(RecordError, match="several settings"):
        compare([path], [path])


def test_one_request_gives_no_interval(tmp_path):
    rows = [{"round": i, "num_candidates": 3, "n_matches": 2, "n_new": 3, "verify_ms": 12.0} for i in range(50)]
    (tmp_path / "spec.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = log(tmp_path, "plain.json", PLAIN)
    found = compare([path], [tmp_path / "spec.jsonl"])
    assert found.speedup_decode == pytest.approx(2.5) and found.verdict == "cannot-tell"


def test_many_requests_use_the_normal_limit_of_the_bootstrap():
    from specgain.compare import _resampled

    rng = np.random.default_rng(3)
    rows = np.stack([rng.poisson(100, 2500), rng.poisson(40, 2500), rng.gamma(9.0, 0.1, 2500)], axis=1).astype(float)
    exact = rng.multinomial(2500, np.full(2500, 1 / 2500), size=800) @ rows
    fast = _resampled(np, rng, rows, 4000)
    assert fast.mean(axis=0) == pytest.approx(exact.mean(axis=0), rel=2e-3)
    assert fast.std(axis=0) == pytest.approx(exact.std(axis=0), rel=0.1)


# ------------------------------------------------------------------------------------- verdicts that data do not carry


def invented_run(rng, requests, step, length=None, run_noise=0.0):
    """Return a Record of invented requests; `step` is seconds per round, `length` E[L] (None: plain decoding)."""
    record, scale = Record("vLLM", "invented"), np.exp(rng.normal(-(run_noise**2) / 2, run_noise))
    for _ in range(requests):
        rounds = int(rng.integers(20, 60))
        tokens = rounds + (0 if length is None else int(rng.binomial(3 * rounds, (length - 1) / 3)))
        seconds = rounds * step * scale * np.exp(rng.normal(-0.00125, 0.05))
        record.requests.append(Request(tokens, float(seconds), rounds))
    record.committed, record.rounds_all, record.decode_seconds = (
        sum(getattr(r, key) for r in record.requests) for key in ("tokens", "rounds", "seconds")
    )
    if length is not None:
        record.gamma, record.rounds, record.drafted = 3, record.rounds_all, 3 * record.rounds_all
        record.accepted = record.committed - record.rounds_all
    return record


@pytest.mark.parametrize(("runs_", "noise"), [(2, 0.1), (3, 0.1), (5, 0.1), (3, 0.0)])
def test_intervals_over_few_runs_cover_the_truth(monkeypatch, runs_, noise):
    """The two sides are equally fast; runs differ by `noise`. Percentiles alone would miss that in up to 31 of 100."""
    monkeypatch.setattr("specgain.compare.RESAMPLES", 400)
    rng, wrong, times = np.random.default_rng(7), 0, 200
    for _ in range(times):
        plain = [invented_run(rng, 30, 0.010, None, noise) for _ in range(runs_)]
        spec = [invented_run(rng, 30, 0.022, 2.2, noise) for _ in range(runs_)]
        found = compare_runs(plain, spec)
        low, high = found.speedup_interval
        wrong += not low <= 1 <= high
        assert (low > 1) == (found.verdict == "faster") and (high < 1) == (found.verdict == "slower")
    assert wrong <= 0.09 * times
    assert "few-requests" in codes(found)  # so few runs are named, however many requests they hold


def test_one_run_says_that_its_interval_knows_no_other_run():
    rng = np.random.default_rng(1)
    plain, spec = (
        [invented_run(rng, 30, 0.010) for _ in range(2)],
        [invented_run(rng, 30, 0.022, 2.2) for _ in range(2)],
    )
    assert "how much runs differ is not in it" in compare_runs(plain, spec[:1]).to_markdown()
    assert "how much runs differ is not in it" not in compare_runs(plain, spec).to_markdown()


def test_a_round_cheaper_than_a_plain_step_is_no_gain():
    """No draft is accepted, and yet the round takes half a plain step: the plain side did something else."""
    rng = np.random.default_rng(2)
    found = compare_runs([invented_run(rng, 30, 0.020)], [invented_run(rng, 30, 0.010, 1.02)])
    assert found.speedup_interval[0] > found.committed_length and found.verdict == "cannot-tell"
    assert "speedup-exceeds-length" in codes(found) and "comparable_plain_step" in found.to_json()["how_to_get"]


@pytest.mark.parametrize(("key", "value"), [("model_id", "another"), ("max_concurrency", 8), ("request_rate", 2.0)])
def test_another_model_or_load_is_no_baseline(tmp_path, key, value):
    bench = json.loads((ENGINE / "bench/plain_repeat_c1.json").read_text())
    (tmp_path / "plain.json").write_text(json.dumps(bench | {key: value}))
    spec = ENGINE / "bench/ngram3_repeat_c1.json"
    found = compare([tmp_path / "plain.json"], [spec])
    assert found.verdict == "cannot-tell" and "different-workload" in codes(found)
    assert "same_workload_baseline" in found.to_json()["how_to_get"]
    with pytest.raises(RecordError, match=f"the plain side holds runs of different {key}"):
        compare([tmp_path / "plain.json", ENGINE / "bench/plain_b_repeat_c1.json"], [spec])


def test_two_plain_sides_are_named():
    plain = ENGINE / "bench/plain_repeat_c1.json"
    assert "no-drafts" in codes(compare([plain], [ENGINE / "bench/plain_b_repeat_c1.json"]))
    assert "no-drafts" not in codes(compare([plain], [ENGINE / "bench/ngram3_repeat_c1.json"]))


def test_a_run_that_counted_no_draft_at_all(tmp_path):
    """The counters are there and zero: the n-gram drafter never found a match."""
    bench = json.loads((ENGINE / "bench/plain_b_repeat_c1.json").read_text())
    zero = ("spec_decode_num_drafts", "spec_decode_draft_tokens", "spec_decode_accepted_tokens")
    (tmp_path / "spec.json").write_text(json.dumps(bench | dict.fromkeys(zero, 0)))
    found = compare([ENGINE / "bench/plain_repeat_c1.json"], [tmp_path / "spec.json"])
    assert found.committed_length == 1 and found.to_json()["rounds_without_draft"] == found.spec.rounds_all


def test_times_that_cannot_be(tmp_path):
    bench = json.loads((ENGINE / "bench/plain_repeat_c1.json").read_text())
    spec = ENGINE / "bench/ngram3_repeat_c1.json"
    path = tmp_path / "plain.json"
    for factor, message in (
        (1e3, "itls add up to .* in one request, but the run took"),
        (0.0, "decode times add up to 0"),
    ):
        path.write_text(json.dumps(bench | {"itls": [[g * factor for g in gaps] for gaps in bench["itls"]]}))
        with pytest.raises(RecordError, match=f"{path.name}.*{message}"):
            compare([path], [spec])


def test_sides_in_different_units_are_named(tmp_path):
    rows = [{"request": i % 9, "num_candidates": 0, "n_matches": 0, "n_new": 1, "verify_ms": 10.0} for i in range(9)]
    drafted = [row | {"num_candidates": 3, "verify_ms": 14e3 + row["request"]} for row in rows]  # µs, named ms
    for name, lines in (("plain", rows), ("spec", drafted)):
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
    found = compare([tmp_path / "plain"], [tmp_path / "spec"])
    assert "units" in codes(found)
