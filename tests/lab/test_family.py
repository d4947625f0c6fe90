"""The family portrait on a random tiny pair: every cell is there, and what it counts is right; no test looks at a time."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from specgain.lab import family
from specgain.lab.drafts import Suffix
from specgain.lab.loop import generate, in_turns
from specgain.lab.measure import prompt_tokens, run_rounds, run_together
from specgain.lab.pair import load_pair
from specgain.lab.prediction import Setting
from specgain.lab.trees import TreeDraft
from specgain.tree import best_tree

PARTS = ((1, 0.0, ("json", "viet"), (1, 3), (1, 3, 2)), (2, 1.0, ("prose",), (2,), (2, 0, 3)))


@pytest.fixture(scope="module")
def portrait(tiny_folder):
    return family.family(("weak", "strong", "lookup", "suffix", "tree"), PARTS, new_tokens=16, folder=tiny_folder)


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
    """Decoding together changes no greedy round; a suffix draft, which would learn from its neighbours, begins cold."""
    monkeypatch.setattr(family, "TOGETHER", 2)
    setting, shape = Setting(1, 0.0, 20), {"drafts": [draft], "domains": ("json",), "new_tokens": 24}
    together = family.untimed_rounds(pair, 3, setting, (gamma,), **shape)
    alone = run_rounds(pair, "calibration", 3, (0, gamma), setting=setting, **shape).select(arm=draft)
    assert list(together) == [("json", draft, gamma)]
    for one, other in zip(together["json", draft, gamma], alone.requests, strict=True):
        assert (one.drafted, one.accepted, one.committed) == (other.drafted, other.accepted, other.committed)
    assert [one.batch[:1] for one in together["json", draft, gamma]][:2] == [[2], [2]]


def test_a_suffix_draft_that_shares_learns_from_its_neighbours(pair):
    """Else the test above would say nothing."""
    texts = prompt_tokens(pair, "calibration", "json", 20)[:1].repeat(3, axis=0).tolist()
    logs = {}
    for shared in (True, False):
        draft = Suffix(pair.target.config.vocab, shared=shared)
        logs[shared] = [output.log for output in generate(pair.target, texts, 24, draft, 3, rows=1).outputs]
    assert logs[False][0].accepted == logs[False][1].accepted == logs[True][0].accepted
    assert logs[True][1].rounds < logs[False][1].rounds


def test_the_judges_begin_where_the_plan_says(pair):
    setting = Setting(1, 0.0, 20)
    shape = {"drafts": ["lookup"], "domains": ("json",), "new_tokens": 24, "gammas": (0, 2)}
    logs = family.both_sides(pair, {"calibration": 1, "test": 2}, setting, first=1, **shape)
    every = run_rounds(pair, "test", 3, setting=setting, **shape)
    found, every = ([r.drafted for r in log.select(arm="lookup").requests] for log in (logs["test"], every))
    assert found == every[1:] != every[:2]


def test_the_plan_judges_prompts_that_there_are_and_that_no_earlier_portrait_used():
    prompts, earlier = load_pair(()).prompts("test"), 32
    assert earlier <= family.FIRST
    for _, _, domains, _, (_, _, judges) in family.PARTS:
        for domain in domains:
            assert len(family.later(prompts[domain], family.FIRST, judges)) == len(prompts[domain])


def test_later_turns_the_prompts_and_refuses_what_is_not_there():
    assert family.later(np.arange(4), 1, 3).tolist() == [1, 2, 3, 0]
    with pytest.raises(ValueError, match="first = 2 must be from 0 to 1, so that 3 of 4"):
        family.later(np.arange(4), 2, 3)


def test_plain_loops_do_not_run_in_one_block():
    """Six sets of plain decoding and three drafts: one after the other unless `scattered`, apart with it."""
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
    run_together(jobs, scattered=True)
    assert [job.runs for job in jobs] == [[(arm, n) for arm in ("plain", "a", "b", "c")] for n in range(6)]
    assert neighbours() < before / 2
