"""The family portrait on a random tiny pair: every cell is there, and what it counts is right; no test looks at a time."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from specgain.lab import family
from specgain.lab.drafts import Suffix
from specgain.lab.loop import generate, in_turns
from specgain.lab.measure import _Job, prompt_tokens, run_rounds, run_together
from specgain.lab.pair import load_pair
from specgain.lab.prediction import Setting
from specgain.lab.trees import TreeDraft
from specgain.tree import best_tree

PARTS = ((1, 0.0, ("json", "viet"), (1, 3), (1, 2, 2)), (2, 1.0, ("prose",), (2,), (2, 0, 3)))


@pytest.fixture(scope="module")
def portrait(tiny_folder):
    return family.family(("weak", "strong", "lookup", "suffix", "tree"), PARTS, 16, tiny_folder, judges=range(3))


def test_every_method_has_its_cells(portrait):
    assert json.dumps(portrait, allow_nan=False)
    cells = {(c["rows"], c["domain"], c["draft"], c["gamma"]) for c in portrait["cells"]}
    assert len(cells) == len(portrait["cells"]) == 4 * (2 * 2 + 1) + 3 == portrait["summary"]["cells"]
    assert portrait["different_output"] == [] and portrait["seconds"] > 0
    assert {m: one["cells"] for m, one in portrait["by_method"].items()} == {
        "weak": 5, "strong": 5, "lookup": 5, "suffix": 5, "tree": 3}  # fmt: skip
    for cell in portrait["cells"]:
        assert len(cell["conditional"]) <= cell["gamma"] and all(a is None or 0 <= a <= 1 for a in cell["conditional"])
        assert 0 <= cell["drafted_per_round"] <= cell["gamma"] and cell["t_verify_ms"] > 0


def test_without_errors_all_arms_take_the_prompts_of_the_plan(tiny_folder):
    found = family.family(("weak", "suffix"), PARTS, 16, tiny_folder, judges=range(3), errors=None, context=10)
    assert found["context"] == 10 and {cell["context"] for cell in found["cells"]} == {10}
    assert [cell["requests"] for cell in found["cells"]] == 8 * [2] + 2 * [3]
    assert [cell["calibration_requests"] for cell in found["cells"]] == 8 * [1] + 2 * [2]


def test_three_times_the_prompts_shrink_the_standard_errors_by_their_root():
    plan = family.longer(3, PARTS, (0.03, 0.06))
    assert [counts for *_, counts in plan["parts"]] == [(3, 6, 6), (6, 0, 9)] and plan["parts"][0][:4] == PARTS[0][:4]
    assert [error**2 * 3 for error in plan["errors"]] == pytest.approx([0.03**2, 0.06**2])


def test_memory_counts_what_is_not_shared(portrait):
    strong, lookup = portrait["memory"]["strong"], portrait["memory"]["lookup"]
    assert strong == {"weights_bytes": 4 * (4 * 32 * 32 + 3 * 48 * 32), "kv_bytes_per_token": 2 * 32 * 4}
    assert lookup == {"weights_bytes": 0, "kv_bytes_per_token": 0}


@pytest.fixture(scope="module")
def pair(tiny_folder):
    pair = load_pair(("weak", "lookup", "suffix"), tiny_folder)
    pair.drafts["tree"] = TreeDraft(pair.drafts["weak"].model, best_tree([0.5, 0.2, 0.1], 3, 2))
    return pair


@pytest.mark.parametrize("draft, gamma", [("weak", 3), ("lookup", 3), ("suffix", 3), ("tree", 3)])
def test_untimed_rounds_are_those_of_one_request_at_a_time(pair, draft, gamma, monkeypatch):
    """Neither company nor replay changes a greedy round; a suffix draft, which would learn from others, begins cold."""
    monkeypatch.setattr(family, "TOGETHER", 2)
    monkeypatch.setattr(family, "enough", lambda *_: 3)
    setting, shape = Setting(1, 0.0, 20), {"drafts": [draft], "domains": ("json",), "new_tokens": 24}
    together = family.untimed_rounds(pair, 0.01, setting, (gamma,), **shape)
    alone = run_rounds(pair, "calibration", 3, (0, gamma), setting=setting, **shape).select(arm=draft)
    assert list(together) == [("json", draft, gamma)]
    for one, other in zip(together["json", draft, gamma], alone.requests, strict=True):
        assert (one.drafted, one.accepted, one.committed) == (other.drafted, other.accepted, other.committed)
    if draft not in family.TABLES:
        assert [one.batch[:1] for one in together["json", draft, gamma]][:2] == [[2], [2]]


def test_untimed_rounds_stop_when_there_are_enough(pair, monkeypatch):
    monkeypatch.setattr(family, "TOGETHER", 2)
    shape = {"drafts": ["weak", "lookup"], "domains": ("json",), "new_tokens": 24}
    for wanted, count in ((1, 2), (2, 2), (3, 3), (9, 3)):
        monkeypatch.setattr(family, "enough", lambda *_, wanted=wanted: wanted)
        found = family.untimed_rounds(pair, 0.01, Setting(1, 1.0, 20), (3,), **shape)
        assert {len(requests) for requests in found.values()} == {count}


def test_enough_gives_the_standard_error():
    requests = [SimpleNamespace(rounds=n) for n in (8, 10, 12)]  # relative standard deviation 0.2
    assert family.enough(requests, 0.05) == 16 and family.enough(requests, 0.0499) == 17
    assert family.enough(requests[:1] * 5, 0.05) == 0
    assert family.enough(requests[:1], 0.05) == 2  # one alone says nothing about how they vary


def test_a_suffix_draft_that_shares_learns_from_its_neighbours(pair):
    """Else the test above would say nothing."""
    texts = prompt_tokens(pair, "calibration", "json", 20)[:1].repeat(3, axis=0).tolist()
    logs = {}
    for shared in (True, False):
        draft = Suffix(pair.target.config.vocab, shared=shared)
        logs[shared] = [output.log for output in generate(pair.target, texts, 24, draft, 3, rows=1).outputs]
    assert logs[False][0].accepted == logs[False][1].accepted == logs[True][0].accepted
    assert logs[True][1].rounds < logs[False][1].rounds


def test_each_arm_is_judged_by_as_many_prompts_as_it_takes(pair):
    setting, takes = Setting(1, 0.0, 20), {("json", "weak", 2): 3, ("json", "lookup", 2): 1}
    shape = {"drafts": ["weak", "lookup"], "domains": ("json",), "new_tokens": 24, "gammas": (0, 2)}
    log = family.both_sides(pair, 1, 2, takes, [2, 0, 1], setting, **shape)["test"]
    assert [r.prompt for r in log.select(arm="weak").requests] == [r.prompt for r in log.select(arm="plain").requests]
    assert [r.prompt for r in log.select(arm="lookup").requests] == [0]
    every = run_rounds(pair, "test", 3, setting=setting, **shape).select(arm="weak").requests
    assert [r.drafted for r in log.select(arm="weak").requests] == [every[i].drafted for i in (2, 0, 1)]


def test_the_prompts_of_an_arm_are_spread_and_hold_those_of_an_arm_that_takes_fewer():
    arms = [("a", 4), ("plain", 0), ("b", 4), ("c", 4)]
    takes = {("json", arm, 4): n for arm, n in (("a", 64), ("b", 16), ("c", 0))}
    jobs = [_Job(SimpleNamespace(prompts=64), "json", 0, [i], arms) for i in range(64)]
    found = [family._taken(job, takes) for job in jobs]
    assert all(job.arms[:2] == arms[:2] and job.group == [i] for i, job in enumerate(found))
    few = [job.group[0] for job in found if ("b", 4) in job.arms]
    assert len(few) == 16 and max(np.diff([-1, *few, 64])) <= 8
    assert family._taken(jobs[few[0] + 1], takes | {("json", "a", 4): 0}).group == []


def test_the_plan_judges_prompts_that_there_are_and_that_no_earlier_portrait_used():
    prompts, earlier = load_pair(()).prompts("test"), {*range(32), *range(64, 96)}
    assert len(set(family.JUDGES)) == len(family.JUDGES) and not earlier & set(family.JUDGES)
    for rows, _, domains, _, (_, _, least) in family.PARTS:
        assert least + (rows if rows > 1 else 0) <= len(family.JUDGES)
        assert all(max(family.JUDGES) < len(prompts[domain]) for domain in domains)


def test_plain_loops_do_not_run_in_one_block():
    """Six sets of plain decoding and three drafts: one after the other in plain turns, apart when run together."""
    turns = []

    def loop(name, step):
        for _ in range(0, 64, step):
            turns.append(name)
            yield step
        return name

    class Job:
        side, runs = SimpleNamespace(setting=Setting()), None

        def __init__(self, number):
            self.number = number

        def loops(self):
            return [loop((arm, self.number), step) for arm, step in (("plain", 1), ("a", 3), ("b", 5), ("c", 7))]

        def note(self, runs):
            self.runs = runs

    def neighbours():
        """How often a turn of plain decoding follows that of another one."""
        pairs = [(a, b) for a, b in zip(turns, turns[1:], strict=False) if a != b]
        turns.clear()
        return sum(a[0] == b[0] == "plain" for a, b in pairs)

    jobs = [Job(number) for number in range(6)]
    in_turns([one for job in jobs for one in job.loops()])
    before = neighbours()
    run_together(jobs)
    assert [job.runs for job in jobs] == [[(arm, n) for arm in ("plain", "a", "b", "c")] for n in range(6)]
    assert neighbours() < before / 2
