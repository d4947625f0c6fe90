"""Captured runs of vLLM 0.32.0 replayed: counts exactly, the ratio of TPOTs within the capture's own interval."""

import json
from pathlib import Path

import numpy as np
import pytest

from specgain.serving import Engine, Request, StepCost, simulate
from specgain.serving.captures import fit_cost, prefill_steps, recorded_rounds, replay_captures

DATA = Path(__file__).resolve().parent / "data" / "engine"


def capture(tag):
    return json.loads((DATA / "bench" / f"{tag}.json").read_text(encoding="utf-8"))


def drafts():
    """Return {prompt: (drafted, accepted)} of the n-gram runs, per round that carried a draft.

    The per-request record holds the copy prompts 0, 1, 2 and, as its last entry, the chat prompt 0.  Copy prompt 3
    stands in the log: the window of 13:56:40 holds ten drafts, 27 accepted, nine of them at every position.
    """
    entries = json.loads((DATA / "per_request" / "ngram3.json").read_text(encoding="utf-8"))
    found = [entry["metrics"]["speculative_decoding"] for entry in entries]
    copy = {i: (entry["per_step_drafted"], entry["per_step_accepted"]) for i, entry in enumerate(found)}
    line = next(x for x in (DATA / "log" / "ngram3.log").read_text().splitlines() if "13:56:40 [metrics" in x)
    assert "Accepted: 27 tokens, Drafted: 30 tokens, Per-position acceptance rate: 0.900, 0.900, 0.900" in line
    return copy | {3: ([3] * 10, [3] * 9 + [0]), "chat": copy[3]}


def copy_rounds():
    spec = capture("ngram3_repeat_c1")
    return [recorded_rounds(len(gaps), *drafts()[i]) for i, gaps in enumerate(spec["itls"])]


def chat_rounds():
    """Two drafts per request: the record has them for the first prompt, the counters (4, 2, 0 by position) for all."""
    accepted = [0, 0], [0, 0], [0, 2], [0, 1]
    spec = capture("ngram3_chat_c4")
    return [recorded_rounds(len(gaps), [3, 3], accepted[i % 4]) for i, gaps in enumerate(spec["itls"])]


@pytest.mark.claims("C7.1", "C1.1")
def test_copy_run_has_the_engines_rounds_and_counters():
    spec = capture("ngram3_repeat_c1")
    asked = [Request(p, 48, rounds=r) for p, r in zip(spec["input_lens"], copy_rounds(), strict=True)]
    run = simulate(Engine(StepCost(0.1)), asked, clients=1)
    assert [r.rounds for r in run.requests] == [29, 24, 38, 20] == [len(gaps) for gaps in spec["itls"]]
    known = json.loads((DATA / "expected_ledger.json").read_text())[0]
    side = known["spec_side"]
    assert run.totals.rounds == side["request_rounds"] and run.totals.accepted == side["accepted_tokens"]
    assert run.totals.drafted == side["draft_tokens"] and run.totals.tokens == side["generated_tokens"]
    assert run.totals.steps == side["engine_steps"]  # one step of prefill per request
    assert run.totals.cut == known["tokens_cut_at_output_limit"] == 1
    assert run.totals.committed_length == pytest.approx(known["mean_committed_per_round"])


@pytest.mark.claims("C7.1")
def test_the_chat_prompt_of_the_record_takes_47_rounds():
    """Nothing was accepted, so the number of rounds follows from the record alone."""
    drafted, accepted = drafts()["chat"]
    request = Request(21, 48, rounds=recorded_rounds(60, drafted, accepted))
    assert simulate(Engine(StepCost(0.1)), [request]).requests[0].rounds == 47


@pytest.mark.claims("C7.1")
def test_chat_run_has_the_engines_rounds_and_counters():
    found = replay_captures(capture("plain_chat_c4"), capture("ngram3_chat_c4"), chat_rounds(), clients=4)
    rounds = {r.id: r.rounds for r in found.spec.requests}
    assert [rounds[i] for i in range(8)] == [47, 47, 45, 46, 47, 47, 45, 46]
    known = json.loads((DATA / "expected_ledger.json").read_text())[1]
    totals = found.spec.totals
    assert (totals.rounds, totals.drafted, totals.accepted, totals.cut) == (370, 48, 6, 0)
    assert totals.committed_length == pytest.approx(known["mean_committed_per_round"])


@pytest.mark.claims("C7.3", "C2.6")
@pytest.mark.parametrize(
    ("pair", "rounds", "clients"),
    [(("plain_repeat_c1", "ngram3_repeat_c1"), copy_rounds, 1), (("plain_chat_c4", "ngram3_chat_c4"), chat_rounds, 4)],
)
def test_the_ratio_of_tpots_lies_in_the_captures_own_interval(pair, rounds, clients):
    """Times come from the plain run only.  The residuals are about +4 % and −2 %; the intervals are wider."""
    found = replay_captures(*map(capture, pair), rounds(), clients)
    assert found.inside and abs(found.residual) < 0.06
    ledger = next(x for x in json.loads((DATA / "expected_ledger.json").read_text()) if x["spec"] == pair[1])
    assert found.captured_ratio == pytest.approx(1 / ledger["speedup_measured_tpot"], rel=0.01)


def test_where_the_real_engine_differs():
    """The first request of a real wave starts alone: its own TTFT is short and its first gap is the others' prefill."""
    plain = capture("plain_chat_c4")
    found = replay_captures(plain, capture("ngram3_chat_c4"), chat_rounds(), clients=4)
    for wave in (range(4), range(4, 8)):
        ttfts = [plain["ttfts"][i] for i in wave]
        assert min(ttfts) < 0.6 * max(ttfts)
        first = ttfts.index(min(ttfts)) + wave[0]
        assert plain["itls"][first][0] > 2 * np.mean(plain["itls"][first][1:])
    simulated = {r.id: r.ttft for r in found.plain.requests}
    assert len({round(simulated[i], 9) for i in range(4)}) == 1  # a simulated wave starts as one
    alone, together = prefill_steps(plain, 4)[:2]
    cost = fit_cost(plain, 4)
    one_step = sum(cost(sum(plain["input_lens"][:4]), 0, 4, 0))
    assert simulated[0] == pytest.approx(one_step) and one_step < alone[1] + together[1]


@pytest.mark.claims("C7.3")
def test_a_client_sees_gaps_that_no_engine_makes():
    """Plain decoding, one client: some chunks come within microseconds of the one before, merged on the way."""
    plain = capture("plain_repeat_c1")
    gaps = np.concatenate([np.array(row) for row in plain["itls"]])
    assert 0 < (gaps < 1e-4).mean() < 0.2 and np.median(gaps) > 0.05


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="one of each per draft"):
        recorded_rounds(2, [3, 3, 3], [1, 1, 1])
