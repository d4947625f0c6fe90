"""Chapter 7: its cells are run here, and what its prose says about them is held against what they print."""

import contextlib
import io
import re
from pathlib import Path

import jupytext
import pytest

BOOK = Path(__file__).resolve().parents[2] / "book"


@pytest.fixture(scope="module")
def chapter():
    """Return (names, printed): the chapter's variables after its last cell, and all that its cells printed."""
    names, printed = {"__name__": "chapter"}, io.StringIO()
    with contextlib.chdir(BOOK), contextlib.redirect_stdout(printed):
        for cell in jupytext.read("07-scheduling-streaming.md").cells:
            if cell.cell_type == "code" and "remove-input" not in cell.metadata.get("tags", []):
                exec(compile(cell.source, "<chapter 7>", "exec"), names)
    return names, printed.getvalue()


def floats(pattern, text):
    return [tuple(map(float, found)) for found in re.findall(pattern, text)]


@pytest.mark.claims("C7.3")
def test_the_scene(chapter):
    """ "It falls to less than half", "the pauses became longer by two fifths": TPOT down, P95 up."""
    plain, spec = floats(r"γ = [04]: TPOT ([\d.]+) ms, 95 % of the gaps below ([\d.]+) ms", chapter[1])
    assert spec[0] < plain[0] / 2 and 1.35 < spec[1] / plain[1] < 1.45


@pytest.mark.claims("C7.3")
def test_the_paradox_at_every_length(chapter):
    serve = chapter[0]["serve"]
    seen = {gamma: serve(gamma)[2] for gamma in range(7)}
    for gamma in range(1, 7):
        assert seen[gamma].mean < seen[gamma - 1].mean and seen[gamma].p95 > seen[gamma - 1].p95
    assert seen[1].p50 > 0 == seen[2].p50 == seen[4].p50  # E[L] = 1.8 at γ = 1, above 2 from γ = 2 on
    quoted = [(seen[g].mean, seen[g].p95) for g in (3, 5)]  # quiz 07-paradox
    assert [(round(1e3 * t, 1), round(1e3 * p)) for t, p in quoted] == [(14.6, 42), (13.6, 49)]


@pytest.mark.claims("C7.3")
def test_the_first_token_gets_later_without_a_queue_to_shorten(chapter):
    plain, spec = floats(r"γ = [04]: TTFT (\d+) ms, of it queue (\d+) ms, latency ([\d.]+) s", chapter[1])
    assert spec[0] > plain[0] and spec[2] < plain[2]


@pytest.mark.claims("C7.3")
def test_one_stream_has_three_ttfts_and_three_itls(chapter):
    assert [int(t) for t in re.findall(r"TTFT (?:engine|client|scheduled): (\d+) ms", chapter[1])] == [300, 315, 100]
    assert "ITL engine: [50. 50.] ms" in chapter[1] and "ITL client: [57. 43.] ms" in chapter[1]
    assert "ITL response: 16.7 ms" in chapter[1]


@pytest.mark.claims("C7.3")
def test_the_measured_rounds_show_the_same_scissors(chapter):
    rows = chapter[0]["rows"]
    assert [row[0] for row in rows] == [0, 1, 2, 4, 8]
    assert rows[3][1] < 0.6 * rows[0][1] and rows[3][2] > 1.3 * rows[0][2]


@pytest.mark.claims("C7.3")
def test_a_perfectly_even_stream_costs_one_to_a_few_rounds(chapter):
    trades = chapter[0]["trades"]
    least = {name: 0.034 + 0.003 * int(name[-1]) for name in trades}  # an undisturbed round
    assert max(trades, key=lambda name: trades[name][-1][0]) == "γ = 2" and trades["γ = 2"][0][1] > 1.3 * least["γ = 2"]
    for name, rows in trades.items():
        assert 0.9 < rows[-1][0] / least[name] < 5
        assert rows[1][1] > 0.9 * rows[0][1] and rows[-1][3] == pytest.approx(rows[-1][0])  # later as a whole


@pytest.mark.claims("C7.1")
def test_the_drawn_step_has_three_different_fates(chapter):
    shown, crowd = chapter[0]["shown"], chapter[0]["crowd"]
    assert len(set(shown.accepted[:3])) == 3 and shown.positions == 32 and shown.prefill == (0, 0, 0, 1)
    assert crowd.requests and max(r.preemptions for r in crowd.requests) == crowd.totals.preemptions == 3
    assert next(r.id for r in crowd.requests if r.preemptions) == 3
    total, *parts = map(int, re.search(r"(\d+) = (\d+) \+ (\d+) \+ (\d+) \+ (\d+)", chapter[1]).groups())
    assert total == sum(parts)


@pytest.mark.claims("C7.2")
def test_a_prompt_lengthens_the_steps_of_the_others_and_the_host_can_hide(chapter):
    alone, first, second, rest, *_ = (float(t) for t in re.findall(r"([\d.]+) ms: request 0 gets 5\b", chapter[1]))
    assert first == second > rest > 1.2 * alone and "request 1 gets 507" in chapter[1]
    (t_sync, none), (t_async, some) = floats(
        r"asynchronous (?:True|False): TPOT ([\d.]+) ms, (\d+) positions", chapter[1]
    )
    assert none == 0 < some and t_async < t_sync


@pytest.mark.claims("C7.1")
def test_the_captured_rounds_and_the_verdicts(chapter):
    assert "repeat_c1 rounds: 29 24 38 20" in chapter[1] and "chat_c4 rounds: 47 47 45 46 47 47 45 46" in chapter[1]
    copy, chat = chapter[0]["copy_cell"], chapter[0]["chat_cell"]
    for cell in (copy, chat):
        assert cell.low <= cell.predicted <= cell.high
    assert copy.predicted > 1.4 and chat.predicted < 1 and chat.measured < 1


@pytest.mark.claims("C7.4")
def test_the_end_cuts_and_the_counters_do_not_see_it(chapter):
    assert "ends by length: 8 tokens, 8 candidates accepted, 3 tokens cut" in chapter[1]
    assert "ends by stop: 8 tokens, 8 candidates accepted, 3 tokens cut" in chapter[1]
    rows = floats(r"(\d+) tokens: counted ([\d.]+), delivered ([\d.]+)", chapter[1])
    assert [row[0] for row in rows] == [8, 32, 128, 512]
    delivered = [row[2] for row in rows]
    assert delivered == sorted(delivered) and rows[0][1] > 1.2 * rows[0][2] and rows[3][1] < 1.01 * rows[3][2]
    assert max(row[1] for row in rows) - min(row[1] for row in rows) < 0.05  # "the law did not change"


@pytest.mark.claims("C7.4")
def test_the_grammar_cancels_the_chatty_start(chapter):
    rounds, text = chapter[0]["found_rounds"], chapter[0]["text"]
    assert "".join(text) == "[1,2]" and text == chapter[0]["without"]
    assert (rounds[0].drafted, rounds[0].cancelled) == (0, 4)
    assert any(r.accepted < r.drafted for r in rounds)


@pytest.mark.claims("C7.5")
def test_the_ladder_shows_the_rung_at_fault(chapter):
    """Same tokens on every rung; latency never rises but at the draft's cache, and preemptions say why."""
    rows = [tuple(map(float, row[1:])) for row in chapter[0]["rungs"]]
    assert len(rows) == len(chapter[0]["ladder"]) == 6 and len({row[0] for row in rows}) == 1
    worse = [
        name
        for name, before, now in zip(list(chapter[0]["ladder"])[1:], rows, rows[1:], strict=False)
        if now[2] > before[2]
    ]
    assert worse == ["the draft's cache"]
    assert [row[3] > 0 for row in rows] == [False] * 4 + [True] * 2
