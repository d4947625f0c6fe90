"""The record of what drafts propose: the same as a fresh one, and what the loop itself would accept."""

import pytest

pytest.importorskip("torch")

from specgain.lab import drafted, rounds_of
from specgain.lab.loop import decode
from specgain.lab.pair import load_pair
from specgain.lab.recorded import recorded

AGAIN = "record it again: python -m specgain.lab.drafted notebooks/measurements/cpu-2core/drafted.json"


def test_the_committed_record_is_of_the_committed_pair():
    pair = load_pair(("weak",))
    fresh = drafted.record_drafts(pair, prompts=1, sure=0, domains=("viet",))["domains"]["viet"]["weak"][0]
    committed = recorded("weak", ("viet",))["viet", 0]
    assert [int(rank) for rank in fresh["ranks"]] == list(committed.ranks), AGAIN
    prompt = pair.prompts("calibration")["viet"][0].tolist()
    log = decode(pair.target, prompt, len(committed.ranks), draft=pair.drafts["weak"], gamma=3).log
    assert list(zip(log.drafted, log.accepted, strict=True)) == rounds_of(committed.agreement, 3), AGAIN


def test_a_record_knows_what_it_holds():
    prompts = recorded("strong", ("json", "prose"), half=1, sure=True)
    assert {number % 2 for _, number in prompts} == {1} and {domain for domain, _ in prompts} == {"json", "prose"}
    one = prompts["json", 1]
    assert len(one.ranks) == len(one.agreement) == len(one.confidences)
    assert all(len(row) == 8 and 0 <= min(row) <= max(row) < 1 for row in one.confidences)
    assert max(number for _, number in recorded("strong", ("json",))) > max(number for _, number in prompts)
    with pytest.raises(ValueError, match="not in this record"):
        recorded("other", ("json",))
    with pytest.raises(ValueError, match="not in this record"):
        recorded("weak", ("poem",))
