"""The measurement code on a random tiny pair: what is counted must be right; no test looks at a time."""

import importlib
import json
from pathlib import Path

import pytest
import torch

from specgain.lab import measure
from specgain.lab.loop import decode, generate
from specgain.lab.pair import DOMAINS
from specgain.lab.prediction import Setting, rounds_of
from specgain.lab.quantize import Int8
from specgain.lab.sampling import GREEDY, Sampling
from specgain.records.roundlog import RoundLog

TOOLS = Path(__file__).parents[2] / "tools"
SHORT = {"gammas": (0, 1, 3), "new_tokens": 16}


def test_the_agreement_strings_foretell_every_round(tiny_pair):
    acceptance = measure.measure_acceptance(tiny_pair, 3, new_tokens=16, prompt_set="test")
    log = measure.measure_run(tiny_pair, 3, **SHORT)
    assert len(log.requests) == 5 * 3 * (1 + 3 * 2)
    assert log.setup["different_output"] == []
    seen = set()
    for request in log.select(gamma=3).requests + log.select(gamma=1).requests:
        string = acceptance["domains"][request.domain]["agreement"][request.arm][request.prompt]
        assert list(zip(request.drafted, request.accepted, strict=True)) == rounds_of(string, request.gamma)
        seen |= set(request.accepted)
    assert seen >= {0, 1, 2, 3}  # the tiny pair is neither always right nor always wrong


def test_batched_greedy_text_equals_the_loop(tiny_pair):
    prompts = torch.from_numpy(tiny_pair.prompts("test")["json"])
    text = measure.continuations(tiny_pair.target, prompts, 16, GREEDY, batch=2)
    assert text.tolist() == [decode(tiny_pair.target, row, 16).tokens for row in prompts.tolist()]


def test_all_arms_run_on_every_prompt_in_rotated_order(tiny_pair):
    log = measure.run_rounds(tiny_pair, "test", 3, domains=["json", "viet"], **SHORT)
    orders = [[(r.arm, r.gamma) for r in log.requests[i : i + 7]] for i in range(0, 42, 7)]
    assert len({tuple(sorted(order)) for order in orders}) == 1
    assert len({order[0] for order in orders}) == 6  # every arm comes first at some time


def test_a_stopped_run_goes_on_where_it_was(tiny_pair, tmp_path):
    path = tmp_path / "run.json"
    first = measure.measure_run(tiny_pair, 1, resume=path, **SHORT)
    again = measure.measure_run(tiny_pair, 2, resume=path, **SHORT)
    assert (
        again.requests[: len(first.requests)] == first.requests == RoundLog.read(path).requests[: len(first.requests)]
    )
    assert len(again.requests) == 2 * len(first.requests) == len({r.id for r in again.requests})


@pytest.mark.parametrize("torn", [0, 40])
def test_a_killed_run_loses_the_job_under_way_and_no_more(tiny_pair, tmp_path, torn):
    path, journal = tmp_path / "run.json", tmp_path / "run.json.journal"

    def kill(done, total, text):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure.measure_run(tiny_pair, 3, repeats=2, domains=["json"], resume=path, progress=kill, **SHORT)
    lines = journal.read_bytes()
    journal.write_bytes(lines[: len(lines) - torn])
    assert not path.exists() and len(lines.splitlines()) == 3
    run = measure.measure_run(tiny_pair, 3, repeats=2, domains=["json"], resume=path, **SHORT)
    kept = [json.loads(line)["requests"] for line in lines.splitlines()][: 2 if torn else 3]
    assert run.to_json()["requests"][: len(sum(kept, []))] == sum(kept, [])
    assert [(r.prompt, r.arm, r.gamma) for r in run.requests] == [
        (r.prompt, r.arm, r.gamma)
        for r in measure.measure_run(tiny_pair, 3, repeats=2, domains=["json"], **SHORT).requests
    ]
    assert RoundLog.read(path).requests == run.requests and not journal.exists()


def test_a_run_of_other_weights_or_settings_is_not_continued(tiny_pair, tmp_path):
    path = tmp_path / "run.json"
    measure.measure_run(tiny_pair, 1, resume=path, **SHORT)
    with pytest.raises(ValueError, match="the log to continue was taken with other settings: new_tokens"):
        measure.measure_run(tiny_pair, 1, resume=path, gammas=(0, 1, 3), new_tokens=8)


def test_progress_is_reported(tiny_pair):
    calls = []
    measure.run_rounds(tiny_pair, "test", 2, domains=["json"], progress=lambda *call: calls.append(call), **SHORT)
    assert calls == [(1, 2, "test json"), (2, 2, "test json")]


def test_no_time_left_still_means_enough_prompts_of_every_domain(tiny_pair, monkeypatch):
    monkeypatch.setattr(measure, "LEAST_PROMPTS", 2)
    log = measure.run_rounds(tiny_pair, "test", 3, seconds=0, **SHORT)
    assert {(r.domain, r.prompt) for r in log.requests} == {(domain, i) for domain in DOMAINS for i in range(2)}


def test_outputs_that_differ_are_reported_with_their_logit_gap(tiny_pair):
    prompt = tiny_pair.prompts("test")["json"][0].tolist()
    plain = decode(tiny_pair.target, prompt, 8).tokens
    wrong = [*plain[:5], (plain[5] + 1) % 256, *plain[6:]]
    found = measure.first_difference(tiny_pair.target, prompt, plain, wrong)
    assert found["position"] == 5 and found["logit_gap"] > 1e-3


def test_the_whole_plan_gives_one_json_record(tiny_pair):
    more = [{"rows": 2, "domains": ["viet"], "gammas": [0, 3]}, {"temperature": 1.0, "context": 20, "repeats": 2}]
    plan = measure.make_plan(tiny_pair, (0, 1, 3), ("json", "prose"), 12, 2, 3, 3, 1, 2, more=more)
    assert [len(part["cells"]) for part in (plan, *plan["more"])] == [12, 3, 12]
    result, logs = measure.round_timing(plan, tiny_pair)
    again = json.loads(json.dumps(result))
    for part, planned in zip((again, *again["more"]), (plan, *plan["more"]), strict=True):
        for cells in (part["cells"], part["cells_before"]):
            assert [{k: c[k] for k in ("domain", "draft", "gamma")} for c in cells] == [
                {k: c[k] for k in ("domain", "draft", "gamma")} for c in planned["cells"]
            ]
        assert [c for c in part["cells"] if {k: c[k] for k in planned["cells"][0]} not in planned["cells"]] == []
        assert part["different_output"] == [] and part["summary"]["cells"] == len(planned["cells"])
    assert (
        again["speculative_requests"] == (2 + 3) * 2 * 6 and again["more"][1]["speculative_requests"] == (2 + 6) * 2 * 6
    )
    assert again["summary"]["cells"] == again["summary_before"]["cells"] == again["summary_tight"]["cells"] == 12
    assert len(again["requests"]["json/strong/3"]["rounds"]) == 3 and len(logs[0].requests) == 3 * 2 * 7
    assert {name: len(times) for name, times in again["t_decode_by_block_ms"].items()} == {"calibration": 2, "test": 2}
    assert torch.get_num_threads() == 1
    judged = [c for part in (again, *again["more"]) for c in part["cells"] if not c["not_judged"]]
    assert again.get("summary_judged", {"cells": 0})["cells"] == len(judged)


def test_calibration_and_test_run_side_by_side(tiny_pair, monkeypatch):
    calls, run_together = [], measure.run_together

    def spy(jobs):
        calls.append([(j.side.log.setup["prompt_set"], j.domain, j.side.setting.rows, j.group, j.repeat) for j in jobs])
        run_together(jobs)

    monkeypatch.setattr(measure, "run_together", spy)
    more = [{"rows": 2, "domains": ["viet"], "cost_prompts": 2, "run_prompts": 2, "repeats": 8}]
    plan = measure.make_plan(tiny_pair, (0, 1), ("json", "func"), 8, 2, 1, 2, 2, 2, more=more)
    measure.round_timing(plan, tiny_pair)
    before = [[("calibration", d, 1, [0], 0)] for d in ("json", "func")] + [[("calibration", "viet", 2, [0, 1], 0)]]
    alone = [[[("calibration", d, 1, [i], 0), ("test", d, 1, [0], i), ("test", d, 1, [1], i)] for d in ("json", "func")]
             for i in (0, 1)]  # fmt: skip
    batched = [
        [("calibration", "viet", 2, [i], 0), *(("test", "viet", 2, [0, 1], 4 * i + j) for j in range(4))] for i in (0, 1)
    ]
    assert calls == [*before, *alone[0], batched[0], *alone[1], batched[1]], calls
    with pytest.raises(ValueError, match="blocks = 3 must be from 1 to the smaller number of prompts, 2"):
        measure.make_plan(tiny_pair, cost_prompts=2, run_prompts=3, blocks=3)
    with pytest.raises(ValueError, match=r"more = \['row'\] unknown; a part can set gammas"):
        measure.make_plan(tiny_pair, more=[{"row": 4}])


def test_a_plan_may_begin_with_a_batch(tiny_pair):
    plan = measure.make_plan(tiny_pair, (0, 1), ("json",), 8, 2, 1, 2, blocks=1, setting=Setting(rows=2))
    result, _ = measure.round_timing(plan, tiny_pair)
    assert result["rows"] == 2 and result["summary"]["cells"] == len(plan["cells"]) and "cost_tight" not in result


def test_a_batch_counts_only_full_passes(tiny_pair):
    setting = Setting(rows=2)
    log = measure.run_rounds(tiny_pair, "test", 2, domains=["json"], setting=setting, **SHORT)
    assert {b for r in log.requests for b in r.batch} == {2} and len(log.requests) == 2 * 7
    alone = measure.run_rounds(tiny_pair, "test", 2, domains=["json"], **SHORT)
    key = {(r.id): (r.drafted, r.accepted) for r in alone.requests}
    assert {r.id: (r.drafted, r.accepted) for r in log.requests} == key


def test_the_chances_of_a_sampled_text_foretell_its_rounds_on_average(tiny_pair):
    """K in the first round of the real sampling loop against the law min(1, q/p) says, over many seeds."""
    setting, prompt = Setting(temperature=1.0), tiny_pair.prompts("test")["json"][:1].repeat(4000, 0)
    context = torch.from_numpy(prompt.astype("int64"))
    text = measure.continuations(tiny_pair.target, context, 4, Sampling(1.0), 3, batch=1000)
    draft, gamma = tiny_pair.drafts["middle"], 3
    chances = measure.agreement(draft.model, context, text, tiny_pair.target, Sampling(1.0), batch=1000)
    expected = sum(a[0] * (1 + a[1] * (1 + a[2])) for a in chances) / len(chances)
    run = generate(tiny_pair.target, prompt.tolist(), 4, draft, gamma, rows=500, sampling=Sampling(1.0), seed=5)
    first = [output.log.accepted[0] for output in run.outputs]
    assert setting.temperature and abs(sum(first) / len(first) - expected) < 0.08


def test_a_plan_is_tied_to_its_weights(tiny_pair, tmp_path):
    plan = measure.make_plan(tiny_pair, (0, 1), ("json",), 12, 1, 1, 1, 1, 1) | {"weights": "other"}
    with pytest.raises(ValueError, match="the plan is for weights other, these are"):
        measure.round_timing(plan, tiny_pair)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan | {"schema": "x"}))
    with pytest.raises(ValueError, match="plan.json has schema 'x'"):
        measure.read_plan(path)
    del plan["cells"], plan["threads"]
    path.write_text(json.dumps(plan))
    with pytest.raises(ValueError, match="plan.json lacks cells, threads"):
        measure.read_plan(path)


def test_the_tight_loop_has_the_same_form_as_the_real_cost(tiny_pair):
    tight = measure.measure_cost_tight(tiny_pair, (0, 1, 3), context=20, calls=3)
    cost, log = measure.measure_cost(tiny_pair, 1, **SHORT)
    assert tight.verify.gammas == cost.verify.gammas == (0, 1, 3)
    assert tight.source == "tight loop" and cost.source == "in the loop"
    assert {r.arm for r in log.requests} == {"plain", "weak", "middle", "strong"}


def test_the_plain_step_is_raced_with_each_kernel(tiny_pair):
    own, *rivals = measure.plain_steps(tiny_pair.target, context=20, calls=3).items()
    assert own[0] == tiny_pair.target.kernel and {"plain", "public"} - {own[0]} <= {name for name, _ in rivals}
    assert all(seconds > 0 for _, seconds in (own, *rivals))
    assert list(measure.plain_steps(tiny_pair.target.with_kernel(Int8), context=20, calls=3)) == ["Int8"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"prompts": 4}, "prompts = 4 must be from 1 to 3, the size of the test set"),
        ({"prompts": 0}, "prompts = 0 must be from 1 to 3"),
        ({"prompts": 1, "domains": ["poems"]}, r"domains = \['poems'\] unknown; choose from json"),
        ({"prompts": 1, "drafts": ["best"]}, r"drafts = \['best'\] unknown; this pair has weak, middle, strong"),
        ({"prompts": 1, "gammas": (-1,)}, "gamma = -1"),
    ],
)
def test_bad_arguments_are_named(tiny_pair, arguments, message):
    with pytest.raises(ValueError, match=message):
        measure.run_rounds(tiny_pair, "test", **arguments)


def test_distinct_ngrams():
    assert measure.distinct_ngrams([1, 2, 3, 4, 5, 6]) == 1
    assert measure.distinct_ngrams([1] * 10) == pytest.approx(1 / 7)


def test_the_environment_names_machine_and_versions(tiny_pair):
    facts = measure.environment(tiny_pair)
    assert facts["torch"] == torch.__version__ and facts["weights"] == tiny_pair.weights_hash
    assert facts["kernel"] == tiny_pair.target.kernel
    assert facts["cores"] >= 1 and facts["device"] and facts["date"].endswith("+00:00")


# --- the committed timing of a draft behind other work -------------------------------------------------------------


def test_a_step_is_timed_behind_each_kind_of_work_and_arrays_behind_waits(tiny_pair, monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    tool = importlib.import_module("measure_draft_after")
    cells = tool.measured(tiny_pair, waits=(0.1, 0.2), calls=2, context=20)
    assert json.dumps(cells, allow_nan=False)
    draft = ["itself", "target", "waiting", "waiting", "reading", "reading"]
    assert [c["behind"] for c in cells if c["step"] == "draft"] == draft
    for size in ("0.5 MB", "4.0 MB"):
        assert [(c["behind"], c["ms"]) for c in cells if c["step"] == size] == [
            ("itself", 0), ("waiting", 0.1), ("waiting", 0.2)
        ]  # fmt: skip
    for c in cells:
        assert 0 < c["quartiles_ms"][0] <= c["median_ms"] <= c["quartiles_ms"][1]


def test_each_timed_step_stands_behind_its_own_work_with_two_steps_before(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    tool, done = importlib.import_module("measure_draft_after"), []
    arms = {"a": lambda: done.append("a"), "b": lambda: done.append("b")}
    found = tool.timed(lambda: done.append("step"), arms, 2)
    assert done == [*("step", "step", "a", "step"), *("step", "step", "b", "step")] * 2
    assert {name: len(seconds) for name, seconds in found.items()} == {"a": 2, "b": 2}
