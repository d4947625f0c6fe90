"""Damage to records: what may come out of a damaged record is an error, or numbers that a record can hold."""

import json
import random
from pathlib import Path

import jsonschema

from specgain.records.read import put_together, read_source
from specgain.records.source import RecordError, Source
from specgain.records.summary import pool, summary

DATA = Path(__file__).resolve().parent.parent / "data"
SCHEMA = json.loads((DATA.parent.parent / "specgain/schemas/read.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
SEEDS = {
    path.name: path.read_bytes()
    for folder, ending in (("formats", ".txt"), ("vllm", ".prom"), ("vllm", ".json"), ("vllm", ".txt"), ("layouts", ""), ("engine/metrics", "c4.after.txt"),
                           ("engine/bench", "ngram3_repeat_c1.json"), ("engine/per_request", ".json"), ("engine/log", ".log"))
    for path in sorted((DATA / folder).iterdir())
    if path.name.endswith(ending) and "schedule" not in path.name and "config" not in path.name
}  # fmt: skip
NASTY = [b"NaN", b"nan", b"-1", b"1e400", b"Infinity", b"9" * 400, b"0", b"-0.0", b"null", b"true", b'"3"', b"1e-400",
         b"2.5", b"9007199254740993", b"[]", b"{}", b"0x10", b"1_000", b"\xd9\xa3", b"00", b"+5"]  # fmt: skip


def read_bytes(data, name="fuzzed"):
    """Return the summary of a file with this content; raises RecordError."""
    return summary(pool(put_together(read_source(Source(name, data)))))


def check_sane(found):
    """Assert what every summary must hold, whatever it was made from."""
    json.dumps(found, allow_nan=False)
    VALIDATOR.validate(found)
    d, a, r, gamma = found["drafted"], found["accepted"], found["rounds"], found["gamma"]
    assert None in (d, a) or a <= d
    assert None in (r, a, gamma) or a <= r * gamma
    for key in ("committed_length", "committed_length_drafting_rounds"):
        assert found[key] is None or found[key] >= 0, key  # a lone last round may be cut to nothing
    if None not in (found["committed_length_drafting_rounds"], gamma):
        assert 1 <= found["committed_length_drafting_rounds"] <= gamma + 1.02
    survival = found["survival"] or []
    assert all(later <= earlier + 0.0011 for earlier, later in zip(survival, survival[1:], strict=False))
    for key in {"rounds", "drafted", "accepted", "committed_length", "survival", "conditional"}:
        assert found[key] is not None or key in found["missing"], key


def outcome(data):
    """Return the summary or None (refused with a reason); any other exception is a fault of the reader."""
    try:
        found = read_bytes(data)
    except RecordError as error:
        assert len(str(error)) > 10
        return None
    check_sane(found)
    return found


def damage(rng, seeds=SEEDS):
    """Return a damaged copy of one of the seeds, by one to three kinds of damage."""
    data = rng.choice(list(seeds.values()))
    if len(data) > 6000 and rng.random() < 0.8:
        start = rng.randrange(len(data) - 3000)
        data = data[start : start + 3000]
    for _ in range(rng.randint(1, 3)):
        data = rng.choice(DAMAGES)(rng, data, seeds)
    return data


def cut(rng, data, seeds):
    return data[: rng.randrange(len(data) + 1)]


def behead(rng, data, seeds):
    return data[rng.randrange(len(data) + 1) :]


def flip(rng, data, seeds):
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def digits(rng, data, seeds):
    """Replace a number by another one, often a nasty one."""
    places = [i for i, byte in enumerate(data) if 48 <= byte < 58 and (i == 0 or not 48 <= data[i - 1] < 58)]
    if not places:
        return data
    start = rng.choice(places)
    end = start
    while end < len(data) and data[end : end + 1] in b"0123456789." and data[end : end + 1]:
        end += 1
    new = rng.choice(NASTY) if rng.random() < 0.6 else str(rng.choice([0, 1, 7, 100, 10**6, 10**15])).encode()
    return data[:start] + new + data[end:]


def lines(rng, data, seeds):
    """Drop, double, swap or join lines."""
    rows = data.split(b"\n")
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    kind = rng.randrange(4)
    if kind == 0:
        del rows[i]
    elif kind == 1:
        rows.insert(j, rows[i])
    elif kind == 2:
        rows[i], rows[j] = rows[j], rows[i]
    else:
        rows[i : i + 2] = [b"".join(rows[i : i + 2])]
    return b"\n".join(rows)


def join(rng, data, seeds):
    return data + rng.choice(list(seeds.values()))[: rng.randrange(1, 4000)]


def stuff(rng, data, seeds):
    at = rng.randrange(len(data) + 1)
    return (
        data[:at]
        + rng.choice(
            [b"\x00", b"\xff\xfe", b"\r", b"\x1b[31m", b" " * 50, b"{", b"]", b'"', b",", b"\n\n", b"\xe2\x80"]
        )
        + data[at:]
    )


DAMAGES = [cut, behead, flip, digits, digits, lines, join, stuff]


def run(seed, count):
    """Fuzz `count` inputs; return {"read": …, "refused": …}. The first failure names its seed and input."""
    counts = {"read": 0, "refused": 0}
    for number in range(count):
        rng = random.Random(f"{seed}-{number}")
        data = damage(rng)
        try:
            found = outcome(data)
        except BaseException as error:
            raise AssertionError(f"fuzz input {seed}-{number} ({data[:200]!r}…): {error!r}") from error
        counts["read" if found else "refused"] += 1
    return counts
