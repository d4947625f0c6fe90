"""What the lab notebooks share: progress, kept results, the book's measurement, a published pair in the graph loop."""

import json
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from specgain.lab import notebook  # noqa: E402
from specgain.records.measured import problems  # noqa: E402


def test_a_kept_result_can_be_committed_as_it_is(tmp_path):
    notebook.keep("trial", [{"speedup": 1.5}], ["C2.6"], folder=tmp_path)
    data = json.loads((tmp_path / "trial.json").read_text(encoding="utf-8"))
    assert problems(data) == [] and data["cells"] == [{"speedup": 1.5}] and data["claims"] == ["C2.6"]


def test_on_colab_a_kept_result_is_downloaded(tmp_path, monkeypatch):
    colab = ModuleType("google.colab")
    colab.files = SimpleNamespace(download=lambda path: got.append(path))
    got = []
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    monkeypatch.setitem(sys.modules, "google", SimpleNamespace(colab=colab))
    path = notebook.keep("trial", [], folder=tmp_path)
    assert got == [str(path)] and path.is_file()


def test_the_start_prints_device_versions_and_seed(capsys):
    here = notebook.start(7)
    printed = capsys.readouterr().out
    assert here.message in printed and "seed 7" in printed and "GPU" not in printed
    assert all(f"{name} {module.__version__}" in printed for name, module in (("torch", torch), ("numpy", np)))


@pytest.mark.parametrize(("capability", "type"), [((7, 5), "float16"), ((8, 0), "bfloat16")])
def test_a_gpu_is_named_with_its_type_and_its_absence_with_what_to_click(monkeypatch, capsys, capability, type):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "Runtime, Change runtime type, T4 GPU" in notebook.start(gpu=True).message
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Some GPU")
    assert notebook.start()[:2] == ("cpu", torch.float32), "a lab without a GPU part stays on the CPU and names no GPU"
    here = notebook.start(gpu=True)
    assert here.device == "cuda" and str(here.dtype) == f"torch.{type}"
    assert capsys.readouterr().out.count(f"Some GPU, compute capability {capability[0]}.{capability[1]}: {type}") == 1


def test_a_bar_with_a_time_limit_follows_the_clock(capsys, monkeypatch):
    now = iter([0.0, 5.0, 30.0])
    monkeypatch.setattr(notebook, "perf_counter", lambda: next(now))
    show = notebook.progress(seconds=10)
    show(1, 128, "half")
    show(2, 128, "late")
    half, late = capsys.readouterr().out.split("\r")[1:]
    assert half.count("█") == 10 and "1 done, half" in half and "0.1 min left" in half
    assert late.count("█") == 20 and "0.0 min left" in late


def test_each_yields_all_items_and_shows_how_many_are_done(capsys):
    assert list(notebook.each("abc", "letters")) == ["a", "b", "c"]
    assert "3/3 letters" in capsys.readouterr().out


def test_cells_are_compared_with_those_of_the_book_that_are_the_same(capsys):
    here = [{"domain": "json", "draft": "weak", "gamma": g, "measured_speedup": 1.25} for g in (2, 3)]
    notebook.compare(here, [here[0] | {"measured_speedup": 1.5}])
    lines = capsys.readouterr().out.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split() == ["json", "weak", "2", "1.25", "1.50"]
    assert lines[2].split() == ["json", "weak", "3", "1.25", "not", "measured"]


def test_residuals_are_printed_and_noted(capsys):
    cells = [{"arm": "both", "told": 1.1, "seen": 1.0}]
    notebook.residuals(cells, "S", "told", "seen", ("arm",))
    assert cells[0]["residual_percent"] == pytest.approx(10)
    assert "+10.0 %" in capsys.readouterr().out


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
