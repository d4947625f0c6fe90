"""Prediction on records with known times: it must be exact there, and err by the known amount when the cost is wrong."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specgain.lab.prediction import Cost, predict, predict_own, rounds_of, summary
from specgain.records.roundlog import RequestLog, RoundLog
from specgain.round_time import Table

GAMMAS = (0, 1, 2, 4)
STRINGS = ["111111111111", "000000000000", "110111101101", "101010101010", "111101111011"]


def phase_times(drafted, full):
    """The invented machine: seconds of draft, verify and other in a round."""
    return 0.001 * drafted + 0.0004 * (full and drafted > 0), 0.004 + 0.0002 * drafted, 0.0001


def request(string, prompt, arm, gamma):
    columns, full = {name: [] for name in ("drafted", "accepted", "committed", "t_draft", "t_verify", "t_other")}, False
    for drafted, accepted in rounds_of(string, gamma):
        row = (drafted, accepted, accepted + 1, *phase_times(drafted, full))
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
        full = drafted == accepted > 0
    return RequestLog(
        f"{prompt}/{arm}/{gamma}", arm, gamma, "json", prompt, prefill_tokens=0, finish="length", **columns
    )


def run(strings=STRINGS, gammas=GAMMAS):
    requests = [request(s, i, "own" if g else "plain", g) for i, s in enumerate(strings) for g in gammas]
    return RoundLog({"date": "2026-11-29"}, {}, requests)


ACCEPTANCE = {"domains": {"json": {"agreement": {"own": STRINGS}}}}


@pytest.mark.parametrize(
    "string, gamma, rounds",
    [
        ("1111", 0, [(0, 0)] * 4),
        ("11111", 4, [(4, 4)]),
        ("111111", 4, [(4, 4), (0, 0)]),
        ("110111", 4, [(4, 2), (2, 2)]),
        ("0000", 2, [(2, 0), (2, 0), (1, 0), (0, 0)]),
        ("10101", 1, [(1, 1), (1, 1), (0, 0)]),
    ],
)
def test_rounds_of_small_strings(string, gamma, rounds):
    assert rounds_of(string, gamma) == rounds


@given(st.text("01", min_size=1, max_size=60), st.integers(0, 12))
@pytest.mark.claims("C1.1", "C1.2")
def test_rounds_cover_the_text_exactly(string, gamma):
    rounds = rounds_of(string, gamma)
    assert sum(accepted + 1 for _, accepted in rounds) == len(string)
    position = 0
    for drafted, accepted in rounds:
        assert drafted == min(gamma, len(string) - position - 1)
        assert set(string[position : position + accepted]) <= {"1"}
        assert accepted == drafted or string[position + accepted] == "0"
        position += accepted + 1


def test_cost_is_the_mean_of_each_phase():
    cost = Cost.from_log(run())
    assert cost.t_decode == pytest.approx(0.0041)
    for gamma in (1, 2, 4):
        assert cost.draft_after_rejection(gamma) == pytest.approx(0.001 * gamma)
        assert cost.draft_after_acceptance(gamma) == pytest.approx(0.001 * gamma + 0.0004)
        assert cost.verify(gamma) == pytest.approx(0.004 + 0.0002 * gamma)
    assert cost.round_time(full=0.5)(4) == pytest.approx(0.004 + 0.0002 + 0.0048 + 0.0001)


def test_a_case_that_never_came_up_costs_what_the_other_one_costs():
    cost = Cost.from_log(run(["000000"]))
    assert cost.draft_after_acceptance(2) == cost.draft_after_rejection(2) == pytest.approx(0.002)


def test_a_shorter_row_narrows_only_its_share_of_a_batch():
    """All wait for the longest draft, and three of the four rows of the pass are as wide as before."""
    alone = Cost.from_log(run())
    batch = replace(alone, rows=4)
    rounds = [(4, 1), (4, 0), (2, 2)]  # a row that asks for less in its last round
    saved = alone.draft_after_rejection(4) - alone.draft_after_rejection(2)
    saved += 0.75 * sum(part(4) - part(2) for part in (alone.verify, alone.other))
    assert batch.request(rounds) - alone.request(rounds) == pytest.approx(saved)
    assert batch.request([(4, 1), (4, 0)]) == pytest.approx(alone.request([(4, 1), (4, 0)]))
    assert Cost.from_json(batch.to_json()).rows == 4


def search(prompt, widths, batch=1):
    """A request whose draft offers `widths`, one after the other, of which half is accepted; a search costs 0.3 ms."""
    rounds = [(w, w // 2) for w in widths]
    times = [phase_times(w, False) for w in widths]
    return RequestLog(
        f"{prompt}/search/4", "search", 4, "json", prompt, prefill_tokens=0, finish="length",
        drafted=[w for w, _ in rounds], accepted=[k for _, k in rounds], committed=[k + 1 for _, k in rounds],
        t_draft=[0.0003] * len(times), t_verify=[t for _, t, _ in times], t_other=[t for _, _, t in times],
        batch=[batch] * len(times) if batch > 1 else [],
    )  # fmt: skip


WIDTHS = [0, 0, 4, 2, 0, 3, 0, 2]


def searched(batch=1):
    """Three requests that search, with plain decoding of texts as long."""
    requests = [search(i, WIDTHS, batch) for i in range(3)]
    plain = [request("0" * requests[0].tokens, i, "plain", 0) for i in range(3)]
    for one in plain if batch > 1 else ():
        one.batch = [batch] * one.rounds
    return RoundLog({"date": "2026-11-29"}, {}, plain + requests)


def test_cost_by_width_knows_rounds_without_a_candidate():
    cost = Cost.by_width(searched())
    assert cost.t_decode == pytest.approx(0.0041)  # plain decoding searches nothing
    assert cost.round_time()(0) == pytest.approx(0.0044) and cost.round_time()(3) == pytest.approx(0.0050)
    wide = replace(searched(), requests=searched().select(arm="plain").requests + [search(0, [0, 1, 2])])
    assert Cost.by_width(wide).verify(4) == pytest.approx(0.0044)  # as the widest that came up


def test_in_a_batch_a_round_costs_the_mean_of_all_whatever_it_offers():
    cost = Cost.by_width(searched(batch=2))
    mean = sum(search(0, WIDTHS).t_round) / len(WIDTHS)
    assert [cost.request([(width, 0)]) for width in range(5)] == pytest.approx([mean] * 5)
    assert cost.t_decode == pytest.approx(0.0041)


@pytest.mark.parametrize("batch", [1, 2])
def test_rounds_that_offer_less_are_predicted_as_they_are(batch):
    """Every round charged as a full one, the request would seem slower than it is."""
    log = searched(batch)
    record = {"domains": {"json": {"agreement": {"search": log.select(arm="search").requests}}}}
    (cell,) = predict(Cost.by_width(log), record, (4,), log, cost_of=Cost.by_width)
    assert abs(cell["residual_percent"]) < 1e-6 and abs(cell["acceptance_error_percent"]) < 1e-6
    rounds = search(0, WIDTHS)
    assert cell["speedup"] == pytest.approx(0.0041 * rounds.tokens / rounds.time)
    full = predict(Cost.from_log(log), {"domains": {"json": {"agreement": {"search": ["1100" * 4]}}}}, (4,), log)
    assert abs(full[0]["residual_percent"]) > 5


def test_cost_needs_plain_decoding():
    with pytest.raises(ValueError, match="no plain decoding; add an arm with gamma = 0"):
        Cost.from_log(run(gammas=(2, 4)))


def test_cost_survives_json():
    cost = Cost.from_log(run())
    again = Cost.from_json(json.loads(json.dumps(cost.to_json())))
    assert again.t_decode == pytest.approx(cost.t_decode) and again.request([(4, 4), (2, 0)]) == pytest.approx(
        cost.request([(4, 4), (2, 0)])
    )
    data = cost.to_json()
    del data["t_decode_ms"]
    with pytest.raises(ValueError, match="lacks 't_decode_ms'"):
        Cost.from_json(data)


def test_the_prediction_is_exact_where_cost_and_acceptance_are():
    log = run()
    cells = predict(Cost.from_log(log), ACCEPTANCE, GAMMAS, log)
    assert [(cell["draft"], cell["gamma"]) for cell in cells] == [("own", g) for g in GAMMAS if g]
    for cell in cells:
        own = log.select(arm="own", gamma=cell["gamma"]).requests
        expected = sum(r.time for r in log.select(arm="plain").requests) / sum(r.time for r in own)
        assert cell["measured_speedup"] == pytest.approx(expected)
        assert cell["speedup"] == pytest.approx(expected)
        for error in ("residual_percent", "cost_error_percent", "acceptance_error_percent"):
            assert abs(cell[error]) < 1e-3
        low, high = cell["measured_interval"]
        assert low < cell["measured_speedup"] < high
        assert cell["margin_ms"] == pytest.approx(cell["break_even_ms"] - cell["t_round_ms"])
    found = summary(cells)
    assert found["cells"] == found["covered"] == 3 and found["residual_worst_percent"] < 1e-3


def test_a_wrong_draft_time_shows_as_a_cost_error_only():
    log = run()
    cost = Cost.from_log(log)
    halves = [Table({g: seconds / 2 for g, seconds in table.seconds.items()}) for table in (
        cost.draft_after_rejection, cost.draft_after_acceptance)]  # fmt: skip
    cheap = replace(cost, draft_after_rejection=halves[0], draft_after_acceptance=halves[1])
    for cell in predict(cheap, ACCEPTANCE, GAMMAS, log):
        assert cell["cost_error_percent"] > 5 and cell["residual_percent"] == pytest.approx(cell["cost_error_percent"])
        assert abs(cell["acceptance_error_percent"]) < 1e-3


def test_another_text_shows_as_an_acceptance_error_only():
    log = run()
    easier = {"domains": {"json": {"agreement": {"own": ["111111111111"] * 5}}}}
    for cell in predict(Cost.from_log(log), easier, GAMMAS, log):
        assert cell["acceptance_error_percent"] > 5
        assert abs(cell["cost_error_percent"]) < 1e-3


def test_without_a_run_there_is_a_prediction_but_no_summary():
    cells = predict(Cost.from_log(run()), ACCEPTANCE, GAMMAS)
    assert "measured_speedup" not in cells[0] and cells[-1]["speedup"] > 0
    with pytest.raises(ValueError, match="no measured cell"):
        summary(cells)


def test_an_interval_draws_prompts_that_shared_their_passes_together():
    """In every pass one slow and one fast prompt: groups are alike, prompts are not, so nothing is left in doubt."""
    log = run(strings=["110111101101"] * 4)
    for one in log.requests:
        one.batch, one.t_verify = [2] * one.rounds, [t * (1 + one.prompt % 2) for t in one.t_verify]
    costs = Cost.resampled(log, count=50)
    assert [cost.t_decode for cost in costs] == pytest.approx([Cost.from_log(log).t_decode] * 50)
    acceptance = {"domains": {"json": {"agreement": {"own": ["110111101101"] * 4}}}}
    for cell in predict(Cost.from_log(log), acceptance, GAMMAS, log):
        assert cell["measured_interval"] == pytest.approx([cell["measured_speedup"]] * 2)
    for one in log.requests:
        one.batch = []
    assert len({round(cost.t_decode, 9) for cost in Cost.resampled(log, count=50)}) > 1


def test_in_its_own_load_a_draft_that_costs_more_is_predicted_exactly():
    """Two drafts of one shape whose rounds cost different times: pooled costs err for both, each one's own for neither."""
    log, dear = run(), []
    for r in log.requests:
        if r.gamma:
            dear.append(replace(r, arm="dear", t_draft=[2 * seconds for seconds in r.t_draft]))
    log.requests += dear
    acceptance = {"domains": {"json": {"agreement": {"own": STRINGS, "dear": STRINGS}}}}
    own = predict_own(log, acceptance, GAMMAS, log)
    assert [(c["draft"], c["gamma"]) for c in own] == [(d, g) for d in ("own", "dear") for g in GAMMAS[1:]]
    assert max(abs(c["residual_percent"]) for c in own) < 1e-9
    assert max(abs(c["residual_percent"]) for c in predict(Cost.from_log(log), acceptance, GAMMAS, log)) > 5
    with pytest.raises(ValueError, match="lacks the arm 'other'"):
        predict_own(log, {"domains": {"json": {"agreement": {"other": STRINGS}}}}, GAMMAS, log)
