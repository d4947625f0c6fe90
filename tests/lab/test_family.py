"""The family portrait on a random tiny pair: every cell is there, and what it counts is right; no test looks at a time."""

import json

import pytest

from specgain.lab import family
from specgain.lab.prediction import rounds_of

PARTS = ((1, 0.0, ("json", "viet"), (1, 3), 2), (2, 1.0, ("prose",), (2,), 3))


@pytest.fixture(scope="module")
def portrait(tiny_folder):
    return family.family(("weak", "strong", "lookup", "suffix", "tree"), PARTS, new_tokens=16, blocks=2, folder=tiny_folder)


def test_every_method_has_its_cells(portrait):
    assert json.dumps(portrait, allow_nan=False)
    cells = {(c["rows"], c["domain"], c["draft"], c["gamma"]) for c in portrait["cells"]}
    assert len(cells) == len(portrait["cells"]) == 4 * (2 * 2 + 1) + 3 == portrait["summary"]["cells"]
    assert portrait["different_output"] == []
    for cell in portrait["cells"]:
        assert len(cell["conditional"]) <= cell["gamma"] and all(a is None or 0 <= a <= 1 for a in cell["conditional"])
        assert 0 <= cell["drafted_per_round"] <= cell["gamma"] and cell["t_verify_ms"] > 0


def test_memory_counts_what_is_not_shared(portrait):
    strong, lookup = portrait["memory"]["strong"], portrait["memory"]["lookup"]
    assert strong == {"weights_bytes": 4 * (4 * 32 * 32 + 3 * 48 * 32), "kv_bytes_per_token": 2 * 32 * 4}
    assert lookup == {"weights_bytes": 0, "kv_bytes_per_token": 0}


@pytest.mark.parametrize("text, gamma", [("1101110011101", 3), ("0000", 2), ("111111111", 4), ("10", 1)])
def test_a_string_of_rounds_has_these_rounds_again(text, gamma):
    class Request:
        committed = [k + 1 for _, k in rounds_of(text, gamma)]

    assert rounds_of(family._string(Request), gamma) == rounds_of(text, gamma)
