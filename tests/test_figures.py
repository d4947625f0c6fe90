"""The figures: what they draw is what the ledger says, predictions look like predictions, pages can show them."""

import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import pytest

from specgain import Acceptance, Ledger, RoundTime, figures, gain, serving
from specgain.calibration import reliability
from specgain.compare import compare, compare_runs
from specgain.figures.style import SMALL, WIDTH
from specgain.gates import gates
from specgain.hardware import H100, LLAMA_31_8B
from specgain.memory import split
from specgain.records import instrumented
from specgain.records.roundlog import RequestLog, RoundLog
from specgain.roofline import Roofline
from specgain.round_time import Affine, Quadratic
from specgain.schedule_derive import Point, points
from specgain.streaming import delay_trade
from specgain.tree import Tree

LAW = Acceptance.constant(0.8)
CHEAP = Ledger(LAW, RoundTime.of(Quadratic(0.010, 0.0007, 0.0001)), 0.010)
DEAR = Ledger(LAW, RoundTime.of(Quadratic(0.010, 0.005, 0.0008)), 0.010)
SPLIT = Ledger(LAW, RoundTime(draft=Affine(0, 0.001), verify=Affine(0.0105, 0.0002), other=0.0005), 0.010)
COMMITTED, TIMES = [1, 5, 2, 3, 1, 4], [0.009, 0.012, 0.010, 0.009, 0.010, 0.014]
SAMPLES = {k: [0.0090 + 0.0001 * k, 0.0092 + 0.0001 * k] for k in range(1, 6)}
COMPARED = {
    "json": [figures.Prediction("γ = 4", 2.0, 2.5, low=2.4, high=2.6), figures.Prediction("γ = 8", 3.3, 3.0)],
    "prose": [figures.Prediction("γ = 4", 1.1, 1.0, least=1.0, most=1.2)],
}
CELLS = [
    {"domain": domain, "draft": "strong", "gamma": gamma, "speedup": 1 + 0.1 * gamma, "measured_speedup": 1.5,
     "measured_interval": [1.4, 1.6], "speedup_interval": [1.0, 2.0]}
    for domain in ("json", "prose", "viet") for gamma in (1, 2, 4)
]  # fmt: skip
ENGINE = Path(__file__).resolve().parent / "data" / "engine"


def captured(plain, spec):
    """Return the Comparison of two captured runs."""
    return compare(*([ENGINE / f"bench/{t}.json", *ENGINE.glob(f"metrics/{t}.*")] for t in (plain, spec)))


COPY, DRAFT = ("plain_repeat_c1", "ngram3_repeat_c1"), ("plain_b_repeat_c1", "draft26k3_repeat_c1")
LOADS = [
    Point(batch, gamma, ms / 1e3, repeats=(0.9 * ms / 1e3, 1.1 * ms / 1e3))
    for batch, *times in ((1, 10.0, 7.0, 5.0), (16, 14.0, 13.0, 15.0), (64, 30.0, 33.0, 60.0))
    for gamma, ms in zip((None, 1, 3), times, strict=True)
]
ROOF = Roofline(H100, LLAMA_31_8B, LLAMA_31_8B.cut(1))
SPLIT_MEMORY = split(80e9, LLAMA_31_8B, LLAMA_31_8B.cut(1))


def at_load(batch, context=64):
    return Ledger(LAW, ROOF.round_time(batch, context), ROOF.t_decode(batch, context))


FAMILY = [
    {"draft": name, "measured_speedup": value, "measured_interval": [value - 0.1, value + 0.1], "speedup": value + 0.05}
    for name, value in (("eagle", 1.6), ("block", 0.9))
]
DRAWN = {
    "speedup_curves": lambda: figures.speedup_curves({"cheap": CHEAP, "dear": DEAR}, range(1, 10)),
    "break_even_map": lambda: figures.break_even_map(CHEAP.round_time, 0.010, range(1, 9), point=(4, 0.8)),
    "ledger_bars": lambda: figures.ledger_bars({"cheap": (CHEAP, 4), "dear": (DEAR, 4), "split": (SPLIT, 4)}),
    "log_split_bars": lambda: figures.log_split_bars({"cheap": (CHEAP, 4), "dear": (DEAR, 4)}),
    "marginal_against_average": lambda: figures.marginal_against_average({"c": CHEAP, "d": DEAR}, range(1, 9)),
    "staircase": lambda: figures.staircase([3, 0, 1, 4, 4], 4),
    "averaging": lambda: figures.averaging(COMMITTED, TIMES),
    "round_times": lambda: figures.round_times(SAMPLES, 0.0091, note="Measured somewhere"),
    "verify_cost": lambda: figures.verify_cost(SAMPLES),
    "predicted_against_measured": lambda: figures.predicted_against_measured(COMPARED, note="a & b"),
    "tokens_over_time": lambda: figures.tokens_over_time(CHEAP, range(1, 9)),
    "trees": lambda: figures.trees({"chain": {(0,): 0.6, (0, 0): 0.36}, "wide": {(0,): 0.6, (1,): 0.2, (1, 0): 0.12}}),
    "verified_positions": lambda: figures.verified_positions([[1, 64, 3], [65, 128, 1], [129, 512, 0]]),
    "length_by_text": lambda: figures.length_by_text(CELLS, "strong"),
    "round_account": lambda: figures.round_account({"n-gram": captured(*COPY), "draft model": captured(*DRAFT)}),
    "speedups_claimed": lambda: figures.speedups_claimed(captured(*COPY)),
    "gain_against_load": lambda: figures.gain_against_load(LOADS),
}
REPORT = gates(
    captured(*COPY).plain_runs + captured(*COPY).spec_runs,
    {"latency": {"load": {"max_concurrency": 1}, "ttft_ms": {"p99": 1000}}},
)
DRAWN |= {
    "gates_table": lambda: figures.gates_table(REPORT),
    "fault_tree": lambda: figures.fault_tree(captured(*DRAFT), {1: 1.2, 16: 0.8}, 16),
}
DRAWN |= {
    "gain_over_load": lambda: figures.gain_over_load(at_load, range(1, 400), (1, 3), [[1, 64, 3], [65, 128, 1], [129, 399, 0]]),
    "break_even_contour": lambda: figures.break_even_contour(
        at_load, 3, (1, 8, 64, 256, 512), (64, 256, 1024, 8192), capacity_tokens=300_000),
    "memory_bars": lambda: figures.memory_bars({"a": SPLIT_MEMORY, "b": SPLIT_MEMORY}, {"a": 91_000, "b": 47_000}),
    "latency_over_rate": lambda: figures.latency_over_rate({"plain": [(0.5, 12.0), (1, 30.0)], "draft": [(1, 40.0)]}),
    "pass_times": lambda: figures.pass_times({"B = 1": [(1, 0.05, 0.049), (5, 0.054, 0.056)], "B = 4": [(1, 0.056, 0.05)]}),
}  # fmt: skip
CROWDED = serving.Engine(
    serving.StepCost(base=0.010, per_position=1e-4, draft_base=0.001), max_num_seqs=4, max_num_batched_tokens=32,
    num_blocks=14, lookahead=3,
)  # fmt: skip
RUN = serving.simulate(
    CROWDED, [serving.Request(12 + 6 * i, 60, arrival=0.05 * i) for i in range(6)], 3, LAW, seed=3, keep="steps"
)
BUSY = next(step for step in RUN.steps if sum(step.drafted) > 6 and any(step.prefill))
DRAWN |= {
    "scheduler_round": lambda: figures.scheduler_round(BUSY, CROWDED),
    "chunk_timeline": lambda: figures.chunk_timeline({"first": RUN.stream(0), "second": RUN.stream(1)}, until=0.3),
    "burst_paradox": lambda: figures.burst_paradox([(0, 0.03, 0.03, 0.04), (3, 0.015, 0.04, 0.06)]),
    "smoothing": lambda: figures.smoothing({"γ = 3": delay_trade(RUN.stream(0), [0.0, 0.1])}),
    "request_timeline": lambda: figures.request_timeline(RUN),
}
ROWS = [Tree.chain([0.6] * n).row(0.01, lambda d: 0.001 * d, lambda n: 0.01 + 0.0001 * n) for n in range(1, 5)]
DRAWN |= {
    "tree_speeds": lambda: figures.tree_speeds({"chain": ROWS, "wide": ROWS[1:]}, 0.01),
    "family_portrait": lambda: figures.family_portrait({"json, γ = 4": FAMILY, "prose": FAMILY[:1]}, note="a CPU"),
    "draft_times": lambda: figures.draft_times({"eagle": {2: 0.6, 4: 1.1}, "block": {2: 0.7, 4: 0.75}}),
    "controllers": lambda: figures.controllers({"mixed": {"step rule": (1.1, 1.05, 1.15), "foresight": (1.4, None, None)}}),
    "reliability": lambda: figures.reliability({"raw": reliability([0.2, 0.3, 0.8, 0.9], [0, 1, 1, 1])}),
}  # fmt: skip
WORK = json.loads((ENGINE.parents[2] / "notebooks/measurements/cpu-2core/workloads.json").read_text(encoding="utf-8"))
WORK["sampling"] = {"first_acceptance": {d: {"lookup": {"T = 0": 0.8, "T = 1": 0.5, "T = 1, top-p 0.9": 0.6}} for d in "ab"}}
DRAWN |= {
    "work_lengths": lambda: figures.work_lengths(WORK),
    "repetition": lambda: figures.repetition(WORK),
    "told_and_counted": lambda: figures.told_and_counted({"a": 1.5}, {"a": 2.0}, {"a": (1.5, 2.5)}),
    "acceptance_over_temperature": lambda: figures.acceptance_over_temperature(
        WORK["sampling"]["first_acceptance"], ("a", "b"), ("lookup",)),
    "timed_work": lambda: figures.timed_work([{"kind": "copy", "draft": "lookup", "gamma": 8, "predicted_speedup": 1.5,
                                               "measured_speedup": 1.4, "measured_interval": [1.3, 1.6]}]),
}  # fmt: skip
GAINS = {"quantized": 1.4, "speculative": 1.6, "product": 2.24, "both": 1.9}
GAINS |= {f"{name}_interval": [0.9 * value, 1.1 * value] for name, value in GAINS.items()}
LENGTHS = [
    {"target": t, "draft": d, "features": f, "domain": "a", "committed_length": 3.0, "interval": [2.8, 3.3]} | more
    for t, d, f, more in (("fp32", "strong", "none", {}), ("fp32", "eagle", "own", {}), ("4 bits", "eagle", "own", {}),
                          ("4 bits", "eagle", "original", {}), ("4 bits", "eagle", "own", {"trained_on": "4 bits"}))
]  # fmt: skip
DRAWN |= {
    "four_runs": lambda: figures.four_runs({"a, γ = 4": GAINS}),
    "passes_by_format": lambda: figures.passes_by_format({"a": {"fp32": {"1": 5.0, "5": 6.0}, "int8": {"1": 3.0, "5": 4.0}}}),
    "feature_shift": lambda: figures.feature_shift(LENGTHS, "a"),
}
UNITS = re.compile(r"\(.+\)|^tokens( added| per ms)?$")


@pytest.fixture(params=DRAWN)
def drawing(request):
    return DRAWN[request.param]()


def test_every_drawing_function_is_tried_here():
    public = {
        n
        for n, f in vars(figures).items()
        if getattr(f, "__module__", "").startswith(figures.__name__) and n[0].islower()
    }
    assert public - {"token_rounds", "predictions"} == set(DRAWN)


def test_every_axis_has_a_unit(drawing):
    shared = {
        ax for ax in drawing.axes if ax.get_shared_x_axes().get_siblings(ax)[0] is not ax or len(drawing.axes) > 1
    }
    for ax in filter(lambda ax: ax.axison, drawing.axes):  # a diagram has no axis
        assert ax.get_ylabel() == "" or UNITS.search(ax.get_ylabel()), ax.get_ylabel()
        assert UNITS.search(ax.get_xlabel()) or (ax in shared and ax is not drawing.axes[-1]), ax.get_xlabel()


def test_alt_text_says_something_with_numbers(drawing):
    assert len(drawing.alt) > 60 and re.search(r"\d", drawing.alt)


def test_svg_is_fit_for_a_page(drawing):
    svg = drawing.svg()
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg") and root.get("role") == "img" and root.get("aria-label") == drawing.alt
    assert "<style" not in svg and "<metadata" not in svg and "currentColor" in svg
    assert not re.findall(
        r"(?:stroke|fill): #(?!a84b00|1b5e9b|5b6673|00705a|b3311d)[0-9a-f]+", svg
    )  # else dark on dark
    ids = re.findall(r' id="([^"]+)"', svg)
    assert len(ids) == len(set(ids)) and set(re.findall(r'(?:url\(|href=")#([^")]+)', svg)) == set(ids)
    assert "<text" in svg  # text stays text: it can be read aloud, searched and translated


def test_every_text_can_be_read_on_a_phone(drawing):
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: [^;\"]*?([\d.]+)px", drawing.svg())]
    assert not sizes or min(sizes) >= SMALL
    assert SMALL * (390 - 2 * 16) / (72 * WIDTH) >= 9  # px of the screen, in the column of a phone


def test_svg_is_the_same_every_time_and_ids_differ_between_figures():
    first, again = DRAWN["speedup_curves"]().svg(), DRAWN["speedup_curves"]().svg()
    assert first == again
    other = DRAWN["verify_cost"]().svg()
    assert not set(re.findall(r' id="([^"]+)"', first)) & set(re.findall(r' id="([^"]+)"', other))


def test_no_state_is_left_behind():
    before = dict(matplotlib.rcParams)
    page = DRAWN["predicted_against_measured"]()._repr_html_()
    assert dict(matplotlib.rcParams) == before and "<p>A &amp; b</p>" in page
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def series(ax, dashed):
    """Return the lines with markers: predictions (open, dashed) or measurements (filled, solid)."""
    lines = [line for line in ax.get_lines() if line.get_marker() == "o" and len(line.get_xdata()) > 1]
    return [line for line in lines if (line.get_markerfacecolor() == figures.style.PAPER) == dashed]


def test_speedup_curves_draw_the_ledger():
    ax = DRAWN["speedup_curves"]().axes[0]
    cheap, dear = series(ax, dashed=True)
    assert list(cheap.get_ydata()) == [CHEAP.speedup(g) for g in range(1, 10)]
    assert list(dear.get_ydata()) == [DEAR.speedup(g) for g in range(1, 10)]
    assert all(line.is_dashed() for line in (cheap, dear)) and not series(ax, dashed=False)


def test_measurements_are_filled_and_solid():
    lines = series(DRAWN["verify_cost"]().axes[0], dashed=False)
    assert lines and not lines[0].is_dashed()
    means = {n: sum(times) / 2 for n, times in SAMPLES.items()}
    assert list(lines[0].get_ydata()) == pytest.approx([means[n] / means[1] for n in sorted(means)])


def test_whiskers_are_95_percent_intervals():
    means, halves = figures.ledger._means([[1.0, 3.0], [5.0]])
    assert means == [2.0, 5.0] and halves == pytest.approx([1.96 * 2**0.5 / 2**0.5, 0.0])


def test_map_lines_are_break_even_acceptances():
    ax = DRAWN["break_even_map"]().axes[0]
    lowest = series(ax, dashed=True)[0]
    expected = [gain.break_even_acceptance(g, 0.010, CHEAP.round_time(g)) for g in range(1, 9)]
    assert list(lowest.get_ydata()) == expected
    twice = series(ax, dashed=True)[2]  # S = 2
    for gamma, a in zip(twice.get_xdata(), twice.get_ydata(), strict=True):
        assert Ledger(Acceptance.constant(float(a)), CHEAP.round_time, 0.010).speedup(int(gamma)) == pytest.approx(2)


def test_map_of_a_cost_that_never_breaks_even_says_so():
    never = RoundTime.of(Affine(1.0, 1.0))
    assert "No length shown breaks even" in figures.break_even_map(never, 0.010, [1, 2]).alt


def test_ledger_bars_state_margin_and_parts():
    alt = DRAWN["ledger_bars"]().alt
    assert "cheap, γ = 4: worth 33.6 ms, cost 14.4 ms, M = +19.2 ms: faster" in alt and "M = −9.2 ms: slower" in alt
    widths = [bar.get_width() for bar in DRAWN["ledger_bars"]().axes[0].patches]
    assert widths[-3:] == pytest.approx([4.0, 11.3, 0.5])  # draft, verify, other in ms at γ = 4


def test_marginal_bars_stop_where_the_step_rule_stops():
    alt = DRAWN["marginal_against_average"]().alt
    assert "c: the first candidate that does not pay is number 5" in alt  # best γ = 4
    assert "d: the first candidate that does not pay is number 2" in alt  # best γ = 1


def test_staircase_counts_rows_and_columns_alike():
    assert "By columns: 12 tokens" in DRAWN["staircase"]().alt and "4, 3, 3, 2; together 12" in DRAWN["staircase"]().alt


def test_averaging_shows_both_averages():
    alt = DRAWN["averaging"]().alt
    assert f"total over total {sum(COMMITTED) / sum(TIMES) / 1e3:.3f}" in alt
    assert f"mean of the rounds' rates {gain.mean_of_rates(COMMITTED, TIMES) / 1e3:.3f}" in alt


def test_residuals_are_predicted_over_measured_minus_one():
    assert [round(c.residual, 3) for c in COMPARED["json"]] == [-0.2, 0.1]
    bars = DRAWN["predicted_against_measured"]().axes[1].patches
    assert [bar.get_width() for bar in bars] == pytest.approx([-20, 10, 10])
    assert "10.0% in the median, 20.0% at most" in DRAWN["predicted_against_measured"]().alt


def test_predictions_take_one_draft_and_leave_out_the_control():
    cell = {"domain": "json", "draft": "strong", "gamma": 4, "speedup": 2.0, "speedup_interval": [1.9, 2.1]}
    cell |= {"measured_speedup": 2.1, "measured_interval": [2.0, 2.2]}
    cells = [cell, cell | {"gamma": 0}, cell | {"draft": "weak"}]
    assert figures.predictions(cells, "strong") == {"json": [figures.Prediction("γ = 4", 2.0, 2.1, 2.0, 2.2, 1.9, 2.1)]}
    with pytest.raises(ValueError, match="'other' is empty"):
        figures.predictions(cells, "other")


def test_token_rounds_show_prefix_correction_and_bonus():
    rounds = [(["a", " b", "c\n"], ["a", "x", "y", "z"]), (["a"], ["a", "<b>"])]
    text = repr(figures.token_rounds(rounds))
    assert text.splitlines() == [
        "Round 1: K = 1 accepted, L = 2 committed",
        "  ✓a ✗␣b ·c⏎ +x",
        "Round 2: K = 1 accepted, L = 2 committed",
        "  ✓a +<b>",
    ]
    page = figures.token_rounds(rounds)._repr_html_()
    assert '<li class="rejected">✗ ␣b</li>' in page and "&lt;b&gt;" in page


def test_round_account_draws_the_margin_and_its_interval_from_the_end_of_the_round():
    drawing, found = DRAWN["round_account"](), captured(*DRAFT)
    assert "draft model: may cost 239.7 ms, costs 299.5 ms, M = −59.8 ms" in drawing.alt and "slower" in drawing.alt
    assert [bar.get_width() for bar in drawing.axes[0].patches[-2:]] == pytest.approx([239.67, 299.51], abs=0.01)
    whisker = drawing.axes[0].containers[-1].lines[2][0].get_segments()[0][:, 0]
    assert list(whisker) == pytest.approx([(found.t_round + edge) * 1e3 for edge in found.margin_interval])


@pytest.mark.parametrize("timed", [("draft", "verify", "other"), ()])
def test_round_account_shows_the_parts_that_were_timed(tmp_path, timed):
    times = (
        {"draft": 0.003, "verify": 0.012, "other": 0.001} if timed else {"draft": 0.0, "verify": 0.016, "other": 0.0}
    )
    rows = [
        RequestLog(f"{arm}{i}", arm, gamma, drafted=[gamma] * n, accepted=[k] * n, committed=[k + 1] * n,
                   **{f"t_{part}": [t if gamma else 0.01 * (part == "verify")] * n for part, t in times.items()})
        for arm, gamma, k in (("plain", 0, 0), ("spec", 3, 2)) for i, n in enumerate((4, 5, 6))
    ]  # fmt: skip
    path = tmp_path / "log.json"
    RoundLog({"device": "invented"}, {}, rows).write(path)
    found = compare([path], [path])
    widths = [bar.get_width() for bar in figures.round_account({"": found}).axes[0].patches]
    assert sum(widths[1:]) == pytest.approx(16.0) and widths[0] == pytest.approx(30.0)
    assert widths[1:] == pytest.approx([seconds * 1e3 for seconds in found.parts.values()])


def test_speedups_claimed_keeps_the_counters_apart():
    drawing, found = DRAWN["speedups_claimed"](), captured(*COPY)
    assert "1 + accepted/drafts as E[L] 2.86, E[L] over all rounds 1.70" in drawing.alt
    assert "ratio of throughputs 1.36" in drawing.alt and "1.31 to 2.37" in drawing.alt
    markers = [line for line in drawing.axes[0].get_lines() if line.get_marker() == "o"]
    assert [line.get_markerfacecolor() == figures.style.PAPER for line in markers] == [True, False, False, False]
    assert [line.get_xdata()[0] for line in markers] == list(found.speedups.values())


def test_gain_against_load_reads_a_sweep_summary(tmp_path):
    gamma = "speculative_config.num_speculative_tokens"
    lines = [
        f"run_number,duration,completed,total_output_tokens,max_concurrency,mean_tpot_ms,{gamma},spec_decode_num_drafts,spec_decode_draft_tokens,spec_decode_accepted_tokens"
    ]
    for batch, plain, spec in ((1, 10.0, 5.0), (32, 20.0, 25.0)):
        for run, noise in enumerate((0.9, 1.0, 1.1)):
            lines.append(f"{run},20,64,6400,{batch},{plain * noise},,,,")
            lines.append(f"{run},20,64,6400,{batch},{spec * noise},3,100,300,150")
    (tmp_path / "summary.csv").write_text("\n".join(lines) + "\n")
    drawing = figures.gain_against_load(points([tmp_path / "summary.csv"]))
    line = drawing.axes[0].containers[0]
    assert (
        list(line.lines[0].get_ydata()) == pytest.approx([2.0, 0.8]) and "γ = 3: 2.00 at 1, 0.80 at 32" in drawing.alt
    )
    assert line.lines[2][0].get_segments()[0][:, 1] == pytest.approx([2 * 0.9 / 1.1, 2 * 1.1 / 0.9])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: figures.round_account({}), "comparisons is empty"),
        (
            lambda: figures.round_account({"logs": compare([ENGINE / "log/plain.log"], [ENGINE / "log/ngram3.log"])}),
            "logs: the margin is not known; missing: .*t_round_ms",
        ),
        (lambda: figures.gain_against_load([Point(1, 3, 0.01)]), "no plain run at batch size 1"),
        (lambda: figures.gain_against_load([Point(1, None, 0.01)]), "points with a draft length is empty"),
        (lambda: figures.speedup_curves({}, [1, 2]), "ledgers is empty"),
        (lambda: figures.speedup_curves({"x": CHEAP}, [2, 1]), "rising whole numbers"),
        (lambda: figures.speedup_curves({"x": CHEAP}, [1.5]), "rising whole numbers"),
        (lambda: figures.break_even_map(CHEAP.round_time, 0.01, [0, 1]), "1 or more"),
        (lambda: figures.marginal_against_average({"x": CHEAP}, [1, 3]), "consecutive"),
        (lambda: figures.verify_cost({2: [1.0, 1.0]}), "n = 1"),
        (lambda: figures.token_rounds([(["a", "b"], ["a"])]), r"γ \+ 1 = 3"),
        (lambda: figures.staircase([], 4), "accepted is empty"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------------------------------ gates and fault tree


def test_gates_table_shows_every_check_with_its_sign_and_limit():
    drawing = figures.gates_table(REPORT)
    texts = [text.get_text() for text in drawing.axes[0].texts]
    assert "3,566 ms (want ≤ 1,000)" in texts and "TTFT p99" in texts and "✗" in texts
    assert [texts[texts.index(name) + 1] for name in ("Correctness", "Quality", "Latency", "Capacity")] == [
        gate.verdict for gate in REPORT.gates
    ]
    assert len([text for text in texts if text in "✓✗?"]) == sum(len(gate.checks) for gate in REPORT.gates)
    assert "not known" in texts  # no quality number was given


def strong_boxes(drawing):
    """Return the texts of the boxes on the path taken, from the top."""
    drawn = [text.get_text().replace("\n", " ") for text in drawing.axes[0].texts if text.get_weight() == "bold"]
    return [text.split("?")[0].split(":")[0] for text in drawn]


def test_fault_tree_of_a_loss_goes_down_the_four_places():
    steps = ["Faster at the target load", "More than 1.1 tokens a round", "Faster at a smaller load"]
    off = strong_boxes(figures.fault_tree(captured(*DRAFT)))
    assert off[:2] == steps[:2] and {"draft", "verification", "sampling", "cache upkeep"} < set(off)
    assert "Fix it first, or leave it off." in off
    by_load = strong_boxes(figures.fault_tree(captured(*DRAFT), {1: 1.2, 16: 0.8}, 16))
    assert figures.fault_tree(captured(*DRAFT), {1: 1.2, 16: 0.8}, 16).note == ""
    assert "and 16 stands for it" in figures.fault_tree(captured(*DRAFT), {1: 1.2, 16: 0.8}, 32).note
    assert "Speculate by load, or step down." in by_load and "Fix it first, or leave it off." not in by_load


def test_fault_tree_of_a_gain_and_of_a_draft_that_seldom_hits():
    assert strong_boxes(figures.fault_tree(captured(*COPY)))[1:] == ["Keep it. Judge again with each release."]
    seldom = strong_boxes(figures.fault_tree(captured("plain_chat_c4", "ngram3_chat_c4")))
    assert "Acceptance" in seldom and "draft" not in seldom and "Not sure" in seldom


def test_fault_tree_names_the_phase_that_costs_most():
    def side(arm, gamma, draft, verify):
        rounds = {"drafted": [gamma] * 4, "accepted": [gamma // 2] * 4, "committed": [gamma // 2 + 1] * 4}
        times = {"t_draft": [draft] * 4, "t_verify": [verify] * 4, "t_other": [0.0001] * 4}
        return [RequestLog(id=f"{arm}{i}", arm=arm, gamma=gamma, **rounds, **times) for i in range(9)]

    def dearest(draft, verify):
        log = RoundLog({}, {}, side("plain", 0, 0.0, 0.010) + side("spec", 2, draft, verify))
        plain, spec = instrumented.roundlog(log.to_json(), "made")
        tree = figures.fault_tree(compare_runs([plain], [spec]))
        assert any(text.get_text().startswith("◀ costs most") for text in tree.axes[0].texts)
        red = [p for p in tree.axes[0].patches if p.get_edgecolor()[0] > 0.6 and p.get_linewidth() == 2]
        return round(red[0].get_y())

    assert dearest(0.030, 0.012) < dearest(0.002, 0.060)  # draft stands above verification


def test_gain_over_load_draws_the_ledger_and_the_schedule():
    ax = DRAWN["gain_over_load"]().axes[0]
    one, three = series(ax, dashed=True)
    assert list(three.get_ydata()) == [at_load(b).speedup(3) for b in range(1, 400)] and one.is_dashed()
    broad = [line for line in ax.get_lines() if line.get_linewidth() == 7]
    assert [len(line.get_xdata()) for line in broad] == [64, 64, 271]
    assert broad[0].get_ydata()[0] == at_load(1).speedup(3) and set(broad[2].get_ydata()) == {1.0}


def test_the_contour_says_what_fits_and_shades_both_verdicts():
    drawing = DRAWN["break_even_contour"]()
    assert "300000 tokens of cache fit" in drawing.alt
    corner = at_load(512, 64).speedup(3)
    assert corner < 1 and f"S = {at_load(1, 64).speedup(3):.2f} at 1 requests and 64 tokens" in drawing.alt
    assert any("does not fit" in text.get_text() for text in drawing.axes[0].texts)


def test_memory_bars_add_up_to_the_memory():
    ax = DRAWN["memory_bars"]().axes[0]
    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(2 * 80)


def test_pass_times_hold_prediction_against_measurement():
    drawing = DRAWN["pass_times"]()
    assert "worst residual 3.7%" in drawing.alt and len(series(drawing.axes[0], dashed=False)) == 1


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (lambda: figures.gain_over_load(at_load, [], (1,)), "batches"),
        (lambda: figures.gain_over_load(at_load, [4, 2], (1,)), "batches"),
        (lambda: figures.gain_over_load(at_load, [1, 2], (0,)), "gammas"),
        (lambda: figures.break_even_contour(at_load, 0, [1, 2], [64, 128]), "gammas"),
        (lambda: figures.break_even_contour(at_load, 3, [1, 2], [0, 128]), "contexts"),
        (lambda: figures.memory_bars({}), "splits"),
        (lambda: figures.pass_times({}), "groups"),
        (lambda: figures.latency_over_rate({"plain": []}), "plain"),
    ],
)
def test_a_server_s_figures_name_bad_input(wrong, names):
    with pytest.raises(ValueError, match=names):
        wrong()


# ------------------------------------------------------------------------------------------ steps and streams


@pytest.mark.claims("C7.1")
def test_a_drawn_step_is_the_simulated_one():
    drawing = figures.scheduler_round(BUSY, CROWDED)
    top, bottom = drawing.axes
    bars = [patch for patch in top.patches if patch.get_facecolor()[3] > 0]
    assert [patch.get_width() for patch in bars] == list(BUSY.granted)
    texts = [text.get_text() for text in bottom.texts]
    decoding = [row for row, prefill in enumerate(BUSY.prefill) if not prefill]
    assert texts.count("✓") == sum(BUSY.accepted) and texts.count("✗") == sum(BUSY.rolled_back)
    assert [t for t in texts if t.startswith("commits")] == [f"commits {BUSY.committed[row]}" for row in decoding]


@pytest.mark.claims("C7.1", "C5.4")
def test_a_drawn_timeline_holds_every_second_of_every_request():
    spans, struck = figures.streaming._spans(RUN, list(range(6)))
    assert len(struck) == RUN.totals.preemptions > 0
    for place in range(6):
        drawn = sum(duration for kind in (True, False) for _, duration in spans[place, kind])
        scheduled = [s.end - s.start for s in RUN.steps if place in s.ids and s.granted[s.ids.index(place)]]
        assert drawn == pytest.approx(sum(scheduled))


def test_four_runs_promise_in_open_circles_and_measure_in_filled_ones():
    ax = DRAWN["four_runs"]().axes[0]
    dots = {line.get_xdata()[0]: line for line in ax.get_lines() if line.get_marker() == "o"}
    assert dots[2.24].get_markerfacecolor() == figures.style.PAPER != dots[1.9].get_markerfacecolor()


def test_no_line_is_left_out_for_want_of_a_colour():
    four = {name: {"1": 5.0, "5": 6.0 + place} for place, name in enumerate(("fp32", "int8", "4 bits", "3 bits"))}
    lines = figures.passes_by_format({"a": four}).axes[0].get_lines()
    assert len({line.get_color() for line in lines}) == len(lines) == 4
    with pytest.raises(ValueError, match="6 formats of 'a' are too many"):
        figures.passes_by_format({"a": dict.fromkeys("abcdef", {"1": 5.0})})
    with pytest.raises(ValueError, match="6 drafts are too many"):
        figures.acceptance_over_temperature({"json": dict.fromkeys("abcdef", {"T = 1": 0.5})}, ["json"], "abcdef")


def test_told_and_counted_refuses_kinds_that_do_not_match():
    with pytest.raises(ValueError, match="same kinds: a"):
        figures.told_and_counted({"a": 1.5, "b": 2.0}, {"a": 2.0}, {"a": (1.5, 2.5)})


def test_feature_shift_has_a_panel_per_draft_and_refuses_an_unknown_text():
    assert [ax.get_title(loc="left") for ax in DRAWN["feature_shift"]().axes] == ["strong", "eagle"]
    with pytest.raises(ValueError, match="cells of 'b'"):
        figures.feature_shift(LENGTHS, "b")
