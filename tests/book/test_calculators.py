"""The calculators of the book compute what specgain computes: a grid of inputs through both, and the forms by hand."""

import itertools
import json
import math
from pathlib import Path

import pytest

from specgain import Acceptance, Ledger, RoundTime, acceptance, gain, schedule
from specgain.length import best_gamma
from specgain.records.source import RecordError
from specgain.round_time import Affine, Quadratic, Table

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
CALL = """([name, cases]) => cases.map((given) => {
  const tools = window.specgainCalculators;
  try { return tools[name](...given, tools.data); }
  catch (error) { if (!(error instanceof tools.InputError)) throw error; return {refused: error.message}; }
})"""


@pytest.fixture(scope="module")
def opened(browser, site):
    """The page of the calculators, opened once; its scripts change nothing outside it."""
    page = browser.new_page()
    page.goto(f"{site}/book/calculators.html")
    page.wait_for_function("window.specgainCalculators && window.specgainCalculators.data")
    yield page
    page.close()


def same(found, wanted):
    """Return True if two numbers agree to nine digits, or both are None."""
    if found is None or wanted is None:
        return found is wanted
    return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-12)


# ------------------------------------------------------------------------------------------------------- the ledger

LAWS = ["0", "0.3", "0.8", "0.999999", "1", "0.9, 0.7, 0.8, 0.2, 0.5, 0.6, 0.4, 1"]
COSTS = [
    ("0, 0.7", "10, 0, 0.1", "0"),
    ("0, 5", "10, 0, 0.8", "0"),
    ("0.2, 0.5", "11", "0.3, 0.01"),
    ("0", "0.9", ""),
    ("1: 0.9, 2: 1.6, 4: 2.6, 8: 4", "1: 4, 8: 4.5", "0.05"),
]


def curve(text):
    if ":" in text:
        return Table({int(g): float(ms) for g, ms in (part.split(":") for part in text.split(","))})
    terms = [float(term) for term in text.split(",") if term.strip()] or [0.0]
    return Affine(terms[0], 0.0) if len(terms) == 1 else Affine(*terms) if len(terms) == 2 else Quadratic(*terms)


def library_ledger(law, costs, t_decode):
    values = [float(a) for a in law.split(",")]
    law = Acceptance(values) if len(values) > 1 else Acceptance.constant(values[0])
    return Ledger(law, RoundTime(*map(curve, costs)), t_decode)


def test_the_ledger_over_a_grid(opened):
    gammas = [1, 2, 3, 5, 8]
    grid = list(itertools.product(LAWS, COSTS, (1.5, 10.0)))
    given = [
        [{"a": law, "gammas": "1-3 5, 8", "t_decode": str(t), "draft": c[0], "verify": c[1], "other": c[2]}]
        for law, c, t in grid
    ]
    for (law, costs, t_decode), found in zip(grid, opened.evaluate(CALL, ["ledger", given]), strict=True):
        ledger = library_ledger(law, costs, t_decode)
        where = f"a = {law}, costs {costs}, t_D = {t_decode}"
        assert "refused" not in found, (where, found)
        assert found["best"] == best_gamma(ledger), where
        for row, shown in zip(ledger.rows(gammas), found["rows"], strict=True):
            for name, wanted in {
                "gamma": row.gamma, "committed_length": row.committed_length, "t_round_ms": row.t_round,
                "speedup": row.speedup, "margin_ms": row.margin,
                "t_round_max_ms": gain.break_even_round_time(row.committed_length, t_decode),
                "committed_length_min": gain.break_even_length(t_decode, row.t_round),
                "conditional_min": gain.break_even_acceptance(row.gamma, t_decode, row.t_round),
            }.items():  # fmt: skip
                assert same(shown[name], wanted), (where, row.gamma, name, shown[name], wanted)
        for gamma, speedup in found["curve"]:
            assert same(speedup, ledger.speedup(int(gamma))), where


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"a": "1.2"}, "must lie between 0 and 1"), ({"a": "x"}, "“x” is not a number"), ({"a": ""}, "at least one"),
        ({"t_decode": "0"}, "a time above 0 ms"), ({"gammas": "0"}, "from 1 on"), ({"gammas": "2.5"}, "from 1 on"),
        ({"a": "0.9, 0.8", "gammas": "3"}, "reach from 1 to 2"), ({"verify": "1: 4, 8: 5", "gammas": "9"}, "from 1 to 8"),
        ({"draft": "1, 2, 3, 4"}, "at most three"), ({"draft": "-1"}, "below 0"), ({"draft": "1: 2, 1: 3"}, "stands twice"),
        ({"draft": "0", "verify": "0"}, "must take some time"),
    ],
)  # fmt: skip
def test_the_ledger_names_what_is_wrong(opened, change, said):
    base = {"a": "0.8", "gammas": "1, 2", "t_decode": "10", "draft": "0, 1", "verify": "10", "other": "0"}
    assert said in opened.evaluate(CALL, ["ledger", [[base | change]]])[0]["refused"]


def test_the_form_shows_what_the_library_says(opened):
    box = opened.locator("[data-calculator=ledger]")
    box.get_by_label("Start from").select_option("1")
    box.get_by_label("Lengths γ").fill("1-4, 8")
    opened.wait_for_function("document.querySelectorAll('[data-calculator=ledger] tbody tr').length === 5")
    dear = library_ledger("0.8", COSTS[1], 10.0)
    for row, line in zip(dear.rows([1, 2, 3, 4, 8]), box.locator("tbody tr").all(), strict=True):
        cells = [cell.get_attribute("data-value") for cell in line.locator("th, td").all()]
        assert all(map(same, map(float, cells[:5]), [row.gamma, row.committed_length, row.t_round, row.speedup, row.margin]))
        assert line.locator("td").nth(2).inner_text() == f"{row.speedup:.3f}"
    status = box.locator("[role=status]")
    assert status.inner_text().startswith("γ = 1: 1.800 tokens in 15.80 ms, S = 1.139") and "Best length: γ = 1" in status.inner_text()
    assert box.locator("svg.sg-curve circle").count() == 5 and box.get_by_label("Start from").input_value() == ""
    box.get_by_label("Acceptance").fill("2")
    opened.wait_for_function("document.querySelector('[data-calculator=ledger]').classList.contains('sg-wrong')")
    assert "must lie between 0 and 1" in status.inner_text()


def test_measured_presets_are_the_committed_record(opened):
    presets = opened.evaluate("specgainCalculators.data.presets")
    measured = [preset for preset in presets if preset["name"].startswith("measured")]
    assert len(presets) - len(measured) == 2 and len(measured) == 5
    for preset in measured:
        given = {key: preset[key] for key in ("a", "gammas", "t_decode", "draft", "verify", "other")}
        found = opened.evaluate(CALL, ["ledger", [[given]]])[0]
        assert 0.5 < found["rows"][0]["speedup"] < 3 and found["rows"][0]["committed_length"] > 1


# ---------------------------------------------------------------------------------------------------- the converter


def test_the_converter_over_a_grid(opened):
    laws = [[0.9], [0.5, 0.5], [0.9, 0.2, 0.7, 1.0], [0.0, 0.5], [1.0] * 6]
    for law in laws:
        length, gamma = acceptance.committed_length(law), len(law)
        pooled, fill = acceptance.pooled_acceptance(length, gamma), acceptance.fill_rate(length, gamma)
        ways = {
            "conditional": {"values": ", ".join(map(repr, law))},
            "survival": {"values": " ".join(map(repr, acceptance.survival(law)))},
            "pooled": {"rate": repr(pooled), "gamma": str(gamma)}, "length": {"length": repr(length), "gamma": str(gamma)},
            "prefix": {"prefix": repr(length - 1), "gamma": str(gamma)}, "fill": {"rate": repr(fill), "gamma": str(gamma)},
        }  # fmt: skip
        for kind, given in ways.items():
            found = opened.evaluate(CALL, ["convert", [[kind, given]]])[0]
            for name, wanted in {
                "committed_length": length, "accepted_prefix": length - 1, "pooled_acceptance": pooled, "fill_rate": fill,
                "constant_acceptance": acceptance.constant_acceptance(length, gamma),
                "pooled_error_percent": 100 * (acceptance.committed_length_constant(pooled, gamma) / length - 1),
            }.items():  # fmt: skip
                assert math.isclose(found[name], wanted, rel_tol=1e-7, abs_tol=1e-7), (law, kind, name)
            known = kind in ("conditional", "survival")
            assert (found["conditional"] is not None) == known == (found["survival"] is not None)
            if known:
                assert all(map(same, found["survival"], acceptance.survival(law)))
    one = opened.evaluate(CALL, ["convert", [["constant", {"a": "0.8", "gamma": "4"}]]])[0]
    assert same(one["committed_length"], acceptance.committed_length_constant(0.8, 4)) and one["conditional"] == [0.8] * 4


@pytest.mark.parametrize("name", ["ngram3_repeat_c1", "ngram3_chat_c4", "draft26k3_repeat_c1"])
def test_the_converter_on_captured_counters(opened, name):
    run = next(r for r in json.loads((DATA / "engine" / "expected_ledger.json").read_text()) if r["spec"] == name)
    side = run["spec_side"]
    from specgain.records.read import runs

    record = runs([DATA / "engine" / f"bench/{name}.json", *sorted((DATA / "engine").glob(f"metrics/{name}.*"))])[0]
    given = {
        "drafts": record.rounds, "drafted": record.drafted, "accepted": record.accepted, "requests": len(record.requests),
        "positions": " ".join(map(str, record.accepted_at)), "generated": record.details["generation_tokens"],
        "rounds": side["request_rounds"],
    }  # fmt: skip
    found = opened.evaluate(CALL, ["convert", [["counters", {key: str(value) for key, value in given.items()}]]])[0]
    assert same(found["committed_length"], run["mean_committed_per_round"])
    assert same(found["committed_length_drafting_rounds"], run["counter_acceptance_length"])
    assert found["rounds_without_draft"] == run["rounds_without_draft"]
    assert found["tokens_cut"] == run["tokens_cut_at_output_limit"]
    assert all(map(same, found["survival"], run["survival_per_position"]))
    bare = opened.evaluate(CALL, ["convert", [["counters", {k: str(given[k]) for k in ("drafts", "drafted", "accepted")}]]])[0]
    assert bare["committed_length"] is None and bare["survival"] is None and bare["tokens_cut"] is None


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("survival", {"values": "0.5 0.6"}, "rises"), ("length", {"length": "6", "gamma": "4"}, "from 1 to γ + 1 = 5"),
        ("pooled", {"rate": "80", "gamma": "4"}, "from 0 to 1"), ("fill", {"rate": "0.1", "gamma": "4"}, "from 1/(γ + 1)"),
        ("constant", {"a": "0.5", "gamma": "0"}, "1 or more"), ("counters", {"drafts": "0", "drafted": "1", "accepted": "0"}, "no acceptance"),
        ("counters", {"drafts": "2", "drafted": "6", "accepted": "7"}, "exceeds"),
        ("counters", {"drafts": "2", "drafted": "6", "accepted": "3", "positions": "2 2"}, "add up to 4"),
        ("counters", {"drafts": "4", "drafted": "6", "accepted": "3", "generated": "99", "requests": "1", "rounds": "5"}, "more than R + A"),
    ],
)  # fmt: skip
def test_the_converter_names_what_is_wrong(opened, kind, given, said):
    assert said in opened.evaluate(CALL, ["convert", [[kind, given]]])[0]["refused"]


def test_the_converter_form_follows_its_menu(opened):
    box = opened.locator("[data-calculator=converter]")
    for kind in ("conditional", "constant", "pooled", "length", "prefix", "fill", "counters", "survival"):
        box.get_by_label("What I have").select_option(kind)
        assert "tokens per round" in box.locator("[role=status]").inner_text(), kind
        assert box.locator("tbody tr").count() >= 7, kind
    assert "E[L] = 2.912" in box.locator("[role=status]").inner_text()  # the public log line of chapter 2


# ------------------------------------------------------------------------------------------------------ the schedule

TABLES = [
    [[1, 64, 3], [65, 128, 1], [129, 512, 0]], [[1, 16, 3], [32, 128, 2], [256, 512, 0]], [[65, 128, 1], [1, 64, 3]],
    [[1, 64, 5], [65, 128, 4], [129, 256, 0]], [[2, 16, 3]], [[1, 16, 3], [16, 32, 2]], [[1, 8, -1]], [], [[8, 1, 2]],
    [[0, 4, 2]], [[1, 4]], [[1, 4, 2, 7]], [[1, 4, 2.9]], [["1", 4.0, "3.0"]], [[1, 4, None]], ["x"], {"1-16": 3}, "text",
    None, 7, [[1, 4, 2], [6, 8, 1]], [[1, 4, True]], [[1, 8, 1], [9, 16, 3]], [[1, 4, "x"], [5, 8]], [[1, 32, 0]], [[-3, 2, 1], [9, 3, 1]],
]  # fmt: skip
CONFIGS = [
    {"method": "ngram", "num_speculative_tokens": 3}, {"method": "medusa", "num_speculative_tokens": 3, "gamma": 4},
    {"method": "nobody"}, {"method": "suffix"}, {"method": "eagle3", "num-speculative-tokens": 0}, {"model": "x"},
    {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 4, "prompt_lookup_max": 2},
    {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 0}, {"tensor_parallel_size": 2, "method": "eagle"},
    {"method": "eagle", "num_speculative_tokens": 2, "rejection_sample_method": "fly"},
    {"method": "eagle", "num_speculative_tokens": 2, "rejection_sample_method": "synthetic"},
    {"method": "eagle", "num_speculative_tokens": 2, "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.5, 0.6]},
    {"method": "eagle", "num_speculative_tokens": 3, "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.6, 0.5]},
    {"method": "eagle", "num_speculative_tokens": 2, "synthetic_acceptance_length": 2.0, "draft_sample_method": "other"},
    {"method": "suffix", "enable_adaptive_verification": True}, {"method": "deepseek_mtp", "num_speculative_tokens": "2"},
]  # fmt: skip


def handed():
    """Return the schedules and configurations of the captured case files."""
    files = {
        "vllm/dynamic_schedule_cases.json": "schedule", "engine/config/schedule_lookup_cases.json": "schedule",
        "engine/config/config_cases.json": "speculative_config",
    }  # fmt: skip
    cases = ((json.loads((DATA / name).read_text(encoding="utf-8")), key) for name, key in files.items())
    return [case[key] for found, key in cases for case in found if key in case]


def library_check(given, options):
    """Return (ok, stage, error codes, warning codes, effective) of the library, or "refused"."""
    settings = {key: value for key, value in options.items() if value is not None}
    settings["engine"] = f"vllm=={options['engine']}"
    try:
        found = schedule.check(given, **settings)
    except RecordError:
        return "refused"
    codes = [[entry.code for entry in entries] for entries in (found.errors, found.warnings)]
    return found.ok, found.stage, *codes, found.effective


def test_the_schedule_checker_over_a_grid(opened):
    option_sets = [
        {"engine": engine, "max_num_seqs": seqs, "num_speculative_tokens": gamma, "method": method, "runner": runner,
         "data_parallel_size": parallel}
        for engine, (seqs, gamma), method, (runner, parallel) in itertools.product(
            ("0.32.0", "0.33.0"), ((512, 3), (100, 2), (None, None)), (None, "eagle3", "suffix", "draft_model", "custom_class"),
            ((None, 1), ("V1", 1), ("V2", 1), (None, 2)))
    ]  # fmt: skip
    whole = [config | {schedule.KEY: table} for config in CONFIGS for table in TABLES[:2]]
    cases = [[given, options] for given in TABLES + CONFIGS + whole + handed() for options in option_sets]
    for (given, options), found in zip(cases, opened.evaluate(CALL, ["checkSchedule", cases]), strict=True):
        wanted = library_check(given, options)
        shown = (found["ok"], found["stage"], *([c for c, _ in found[k]] for k in ("errors", "warnings")), found["effective"])
        assert shown == wanted, (given, options)


def test_the_schedule_form_says_what_the_engine_does(opened):
    box = opened.locator("[data-calculator=schedule]")
    box.get_by_label("Schedule, or").fill("[[1, 64, 5], [80, 128, 0]]")
    opened.wait_for_selector("[data-calculator=schedule] li[data-code=clamp]")
    said = [item.get_attribute("data-code") for item in box.locator("li").all()]
    assert said == ["gap", "tail", "clamp", "zero-not-free"]
    assert box.locator("tbody th").all_inner_texts() == ["1–79", "80–512"]
    box.get_by_label("Schedule, or").fill("[[2, 64, 3]]")
    opened.wait_for_selector("[data-calculator=schedule] li[data-code=first_start]")
    assert "refuses it at the stage “lookup”" in box.locator("[role=status]").inner_text()
    assert "sg-wrong" in box.get_attribute("class")
    box.get_by_label("Schedule, or").fill("[[")
    opened.wait_for_function("document.querySelector('[data-calculator=schedule] [role=status]').textContent.includes('no JSON')")
    assert "sg-wrong" in box.get_attribute("class")


# ---------------------------------------------------------------------------------------------------------- access


def test_every_field_has_a_label_and_a_ring_and_can_be_reached_by_keyboard(opened):
    fields = opened.locator(".sg-calculator :is(input, select, textarea)")
    assert fields.count() >= 14
    for field in fields.all():
        assert field.evaluate("f => f.labels.length === 1 && f.labels[0].textContent.trim().length > 0")
        field.focus()
    opened.locator("[data-calculator=ledger] select").focus()
    opened.keyboard.press("Tab")
    focused = opened.evaluate("[document.activeElement.name, getComputedStyle(document.activeElement).outlineStyle]")
    assert focused == ["a", "solid"]
    assert opened.locator(".sg-calculator [role=status][aria-live=polite]").count() == 3
