"""What the lab notebooks share: progress, kept results, the book's measurement, a published pair in the graph loop."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from specgain.lab import notebook  # noqa: E402
from specgain.records.measured import problems  # noqa: E402


def test_a_kept_result_can_be_committed_as_it_is(tmp_path):
    notebook.keep("trial", [{"speedup": 1.5}], ["C2.6"], folder=tmp_path)
    data = json.loads((tmp_path / "trial.json").read_text(encoding="utf-8"))
    assert problems(data) == [] and data["cells"] == [{"speedup": 1.5}] and data["claims"] == ["C2.6"]


def test_progress_ends_its_line_once(capsys):
    show = notebook.progress()
    show(1, 2, "half")
    show(2, 2, "all")
    assert capsys.readouterr().out.count("\n") == 1


def test_a_measurement_that_is_not_here_is_named(capsys):
    assert notebook.book("no-such-lab") is None
    assert "no-such-lab.json" in capsys.readouterr().out
    assert notebook.book("rounds")["schema"].startswith("specgain.roundlog/")


def test_a_published_pair_is_predicted_on_one_half_and_judged_on_the_other(tiny_pair, capsys):
    def model(own):
        return SimpleNamespace(model=own, eos=None, chat=lambda text: [3 + ord(c) % 200 for c in text])

    pair = model(tiny_pair.target), model(tiny_pair.drafts["strong"].model)
    cells = notebook.published(pair, (1, 2), ("abcd", "efgh", "ijkl", "mnop"), new_tokens=12)
    assert [cell["gamma"] for cell in cells] == [1, 2]
    assert all(cell["requests"] == 2 and cell["measured_speedup"] > 0 for cell in cells)
    assert all(1 <= cell["measured_committed_length"] <= cell["gamma"] + 1 for cell in cells)
    notebook.verdict(cells)
    assert "residual: median" in capsys.readouterr().out
