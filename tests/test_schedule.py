"""Schedules: the engine's own effective table or refusal for every handed case, and the engine's own type rules."""

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain import schedule
from specgain.records.source import RecordError
from specgain.schedule import KEY, check, config_rows, effective, lookup

DATA = Path(__file__).resolve().parent / "data"
ENGINES = ("vllm==0.32.0", "vllm==0.33.0")
SAMPLES = json.loads((DATA / "vllm/dynamic_schedule_cases.json").read_text())
LOOKUP = json.loads((DATA / "engine/config/schedule_lookup_cases.json").read_text())
CONFIG = [c for c in json.loads((DATA / "engine/config/config_cases.json").read_text()) if "accepted_by_config" in c]
SCHEMA = json.loads((Path(schedule.__file__).parent / "schemas/schedule_check.json").read_text())
TABLE = [[1, 64, 3], [65, 128, 1], [129, 512, 0]]


def codes(found):
    return {w.code for w in found.warnings}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", SAMPLES, ids=lambda c: str(c["schedule"])[:40])
def test_handed_schedules_end_to_end(case, engine):
    found = check(case["schedule"], case["max_num_seqs"], case["num_speculative_tokens"], engine)
    assert found.ok == case["ok"]
    jsonschema.validate(found.to_json(), SCHEMA)
    if case["ok"]:
        assert (found.effective, found.stage) == (case["effective"], "none")
    else:
        assert found.stage == {"type": "config", "schedule": "lookup"}[case["stage"]]
        assert found.errors[0].code == case["error"] and found.effective is None


@pytest.mark.parametrize("engine", ENGINES)
def test_configurations_of_four_methods_are_taken(engine):
    for config in json.loads((DATA / "vllm/speculative_config_examples.json").read_text()):
        assert check(config, max_num_seqs=512, engine=engine).ok, config


MEANING = {  # a phrase of the engine's message → our code
    "non-overlapping": "overlap", "first batch-size range must start at 1": "first_start",
    "must be <= end": "start_gt_end",
    "3-item sequence": "missing", "must not be empty": "empty", "must be a non-empty list": "list_type",
}  # fmt: skip


@pytest.mark.parametrize("case", LOOKUP, ids=lambda c: c["case"])
def test_handed_cases_of_the_lookup_stage(case):
    arguments = case["schedule"], case["max_num_seqs"], case["num_speculative_tokens"]
    if case["accepted"]:
        assert lookup(*arguments) == case["effective"]
    else:
        code = next(code for phrase, code in MEANING.items() if phrase in case["error"])
        with pytest.raises(RecordError, match=f"^{code}:"):
            lookup(*arguments)


@pytest.mark.parametrize("case", CONFIG, ids=lambda c: c["case"])
def test_handed_cases_of_the_config_stage(case):
    # captured on a machine without Triton, where the engine falls back to runner V1
    found = check(
        case["speculative_config"], 32, runner="V1", data_parallel_size=case["extra"].get("data_parallel_size", 1)
    )
    refused_later = case["case"] == "schedule overlap"
    assert (found.stage != "config") == case["accepted_by_config"]
    assert found.ok == (case["accepted_by_config"] and not refused_later)
    if found.ok and (case["resolved"] or {}).get("schedule"):
        k = case["resolved"]["k"]
        assert found.effective == effective(case["resolved"]["schedule"], 32, k)
    if case["case"] == "schedule with data parallel 2":
        assert found.effective == [[1, 32, 3]] and "data-parallel" in codes(found)
    if case["case"] == "schedule empty":
        assert found.effective == [[1, 32, 3]] and codes(found) == {"ignored"}


@pytest.mark.parametrize(
    ("table", "max_num_seqs", "wanted"),
    [
        (TABLE, 1024, [[1, 64, 3], [65, 128, 1], [129, 1024, 0]]),
        ([[1, 16, 3], [32, 128, 2], [256, 512, 0]], 300, [[1, 31, 3], [32, 255, 2], [256, 300, 0]]),
        ([[65, 128, 1], [1, 64, 3]], 256, [[1, 64, 3], [65, 256, 1]]),
    ],
)
def test_effective_tables_of_the_reference(table, max_num_seqs, wanted):
    assert check(table, max_num_seqs, 3).effective == wanted


@pytest.mark.parametrize(
    ("table", "max_num_seqs", "code"),
    [
        ([[1, 16, 3], [32, 64, 1]], 64, "gap"), ([[1, 16, 3]], 64, "tail"), ([[1, 16, 5]], 16, "clamp"),
        ([[1, 16, 3], [17, 512, 1]], 64, "cut"), ([[17, 64, 1], [1, 16, 3]], 64, "unsorted"),
        ([[1, 8, 1], [9, 64, 3]], 64, "rises"), ([], 64, "ignored"), ([[1, 64, 0]], 64, "zero-not-free"),
    ],
)  # fmt: skip
def test_what_the_engine_takes_otherwise_than_written(table, max_num_seqs, code):
    found = check(table, max_num_seqs, 3, method="eagle3")
    assert found.ok and code in codes(found)


def test_a_clean_schedule_has_no_warning():
    assert check([[1, 64, 3], [65, 128, 1]], 128, 3, method="eagle3", runner="V2").warnings == []


def test_a_runner_that_is_none():
    with pytest.raises(RecordError, match="runner = 'v1' is not known; known are V1 and V2"):
        check(TABLE, 512, 3, method="suffix", runner="v1")


def test_methods_and_runners_by_release():
    def result(engine, method, runner=None):
        return check(
            {"method": method, "num_speculative_tokens": 3, "model": "m", KEY: TABLE}, 512, engine=engine, runner=runner
        )

    assert "crash" in codes(result("vllm==0.32.0", "suffix"))
    new = result("vllm==0.33.0", "suffix")
    assert codes(new) >= {"method-drops"} and new.effective == [[1, 512, 3]]
    assert "full-width" in codes(result("vllm==0.32.0", "dflash", "V2"))
    assert "full-width" not in codes(result("vllm==0.33.0", "dflash", "V2"))
    assert "full-width" in codes(result("vllm==0.33.0", "draft_model", "V2"))
    assert "piecewise" in codes(result("vllm==0.32.0", "eagle3", "V1"))
    assert "zero-not-free" not in codes(result("vllm==0.32.0", "ngram"))
    assert result("vllm==0.32.0", "medusa").ok and not result("vllm==0.33.0", "medusa").ok
    assert "crash" not in codes(check({"method": "suffix", "num_speculative_tokens": 3, KEY: [[1, 9, 3]]}, 9))


def test_lora_budget_is_a_refusal():
    found = check(TABLE, 512, 3, lora=True, max_num_batched_tokens=2047)
    assert not found.ok and (found.stage, found.errors[0].code) == ("config", "lora_budget")
    assert check(TABLE, 512, 3, lora=True, max_num_batched_tokens=2048).ok


def test_keys_with_hyphens_and_unknown_keys():
    assert check({"method": "ngram", "num-speculative-tokens": 3, KEY.replace("_", "-"): TABLE}, 512).effective == TABLE
    found = check({"method": "ngram", "num_speculative_tokens": 3, "gamma": 4}, 64)
    assert found.stage == "config" and found.errors[0].code == "unknown_key"
    assert not check({"method": "ngram", "num_speculative_tokens": 3, "xpress_topc": 1}, 64).ok
    assert check({"method": "ngram", "num_speculative_tokens": 3, "xpress_topc": 1}, 64, engine="0.33").ok


def test_unknown_release_is_bad_input():
    with pytest.raises(RecordError, match="known are vllm==0.32.0 and vllm==0.33.0"):
        check(TABLE, 64, 3, engine="vllm==0.31.0")
    with pytest.raises(RecordError, match="max_num_seqs = 0"):
        check(TABLE, 0, 3)


# ----------------------------------------------------------------------------- against the engine's own machinery

ODD = [2.0, 2.9, "3", " 4 ", "5.0", "x", "", "1e3", None, True]
DIGITS = st.from_regex(r" ?[+-]?[0-9.e]{0,4} ?", fullmatch=True)
CELL = st.one_of(st.integers(-3, 40), st.floats(width=32), st.sampled_from(ODD), DIGITS)
OBJECT = st.dictionaries(st.text(max_size=2), CELL, max_size=2)
ROW = st.one_of(st.lists(CELL, max_size=4), st.none(), st.text(max_size=3), OBJECT)
ANY_TABLE = st.one_of(st.lists(ROW, max_size=4), st.none(), st.text(max_size=4), OBJECT, st.integers())


@given(ANY_TABLE)
def test_types_are_judged_as_pydantic_judges_them(table):
    pydantic = pytest.importorskip("pydantic")
    adapter = pydantic.TypeAdapter(list[tuple[int, int, int]])
    rows, errors = config_rows(table)
    try:
        wanted = adapter.validate_python(table)
    except pydantic.ValidationError as error:
        assert rows is None and {e.code for e in errors} == {e["type"] for e in error.errors()}
    else:
        assert not errors and [tuple(row) for row in rows] == wanted


ROWS = st.lists(st.tuples(st.integers(-1, 30), st.integers(-1, 30), st.integers(-1, 5)), min_size=1, max_size=5)


@given(ROWS, st.integers(1, 40), st.integers(1, 4))
def test_the_lookup_agrees_with_a_dense_table(rows, max_num_seqs, gamma):
    """The engine's rule said another way: walk batch sizes one by one and remember the last length seen."""
    try:
        found = lookup(rows, max_num_seqs, gamma)
    except RecordError:
        ordered = sorted(rows)
        bad = any(lo < 1 or hi < 1 or lo > hi or k < 0 for lo, hi, k in rows)
        overlap = any(b[0] <= a[1] for a, b in zip(ordered, ordered[1:], strict=False))
        assert bad or overlap or ordered[0][0] != 1
        return
    dense, now = [], None
    for size in range(1, max_num_seqs + 1):
        now = next((k for lo, hi, k in rows if lo <= size <= hi), now)
        dense.append(min(now, gamma))
    assert [k for lo, hi, k in found for _ in range(lo, hi + 1)] == dense
    assert all(a[2] != b[2] and a[1] + 1 == b[0] for a, b in zip(found, found[1:], strict=False))


ANY = st.recursive(
    st.one_of(CELL, st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=12,
)


@given(ANY)
def test_nothing_crashes_the_check(anything):
    found = check(anything, 64, 3)
    assert found.ok == (found.effective is not None)
    assert found.stage in ("config", "lookup", "none")
