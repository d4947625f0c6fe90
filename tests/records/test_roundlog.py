"""The round log: lossless, and every contradiction named."""

import json

import pytest

from specgain.records.roundlog import RequestLog, RoundLog, RoundLogError


def request(**changes):
    fields = dict(
        id="json-0", arm="spec", gamma=4, domain="json", prompt_tokens=64, output_tokens=8, finish="length",
        drafted=[4, 1], accepted=[4, 1], committed=[5, 2],
        t_draft=[0.0012, 0.0003], t_verify=[0.0041, 0.0039], t_other=[0.0001, 0.00005000049],
    )  # fmt: skip
    return RequestLog(**(fields | changes))


LOG = RoundLog({"device": "test", "date": "2026-11-29"}, {"target": "tiny"}, [request(), request(id="json-1")])


def test_written_and_read_without_loss(tmp_path):
    LOG.write(tmp_path / "a.json")
    again = RoundLog.read(tmp_path / "a.json")
    assert again == LOG
    again.write(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert not list(tmp_path.glob("*.partial"))
    first = json.loads((tmp_path / "a.json").read_text())["requests"][0]
    assert first["t_verify_ms"] == [4.1, 3.9] and "t_verify" not in first


def test_totals():
    assert LOG.committed_length == 14 / 4
    assert LOG.requests[0].time == pytest.approx(0.00965) and LOG.requests[0].tokens == 7
    assert LOG.requests[0].cut == [False, False]
    assert request(committed=[5, 1], output_tokens=7, finish="stop").cut == [False, True]
    assert len(LOG.select(domain="json", id="json-1").requests) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accepted": [5, 1], "committed": [6, 2]}, "round 0: accepted 5 of 4"),
        ({"committed": [3, 2]}, "round 0: committed 3 tokens with K = 4"),
        ({"committed": [6, 2]}, "round 0: committed 6"),
        ({"t_draft": [0.1]}, "columns differ in length"),
        ({"t_other": [0.1, float("nan")]}, "t_other must hold finite times"),
        ({"drafted": [4.0, 1]}, "drafted must hold whole numbers"),
        ({"drafted": None}, "drafted must be a list"),
        ({"gamma": -1}, "gamma = -1 must be a whole number"),
        ({"gamma": "4"}, "gamma = '4'"),
        ({"gamma": True}, "gamma = True"),
        ({"output_tokens": 9}, "do not add up to output_tokens = 9"),
        ({"gamma": 3}, "round 0: 4 drafted tokens with gamma = 3; gamma is the longest length asked for"),
        ({"finish": "tired"}, "finish = 'tired'"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(changes, message):
    with pytest.raises(RoundLogError, match=message):
        request(**changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": "specgain.round', "not a complete JSON file"),
        ('{"schema": "specgain.roundlog/1", "schema": "specgain.roundlog/1"}', "occurs more than once"),
        ("[]", "schema is 'list'"),
        ("[" * 99999, "not a complete JSON file"),
        ('{"schema": "specgain.roundlog/1", "environment": {}, "setup": {}, "requests": {}}', "it must be a list"),
        ('{"schema": "specgain.roundlog/1", "environment": 3, "setup": {}, "requests": []}', "environment is int"),
        ('{"schema": "other"}', "schema is 'other'"),
        ('{"schema": "specgain.roundlog/1", "setup": {}}', "lacks environment, requests"),
        ('{"schema": "specgain.roundlog/1", "environment": {}, "setup": {}, "requests": [3]}', r"requests\[0\] is int"),
        ('{"schema": "specgain.roundlog/1", "environment": {}, "setup": {}, "requests": [{}]}', "needs t_draft_ms"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(RoundLogError, match=message):
        RoundLog.read(path)


def test_selection_and_empty_logs():
    with pytest.raises(RoundLogError, match="names no field"):
        LOG.select(colour="red")
    with pytest.raises(RoundLogError, match="at least one"):
        _ = LOG.select(arm="plain").committed_length
