"""Every lab runs from top to bottom on a CPU, in a copy, so that no committed measurement is overwritten.

A lab that would take long names the value of its settings for this test in the cell's metadata, in nbmake's way:
`"nbmake": {"mock": {"SECONDS": 2}}`. All labs have the same parts, in the same order.
"""

import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbmake.nb_run import NotebookRun

ROOT = Path(__file__).resolve().parents[2]
LABS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS_PER_CELL = 300


@pytest.mark.parametrize("lab", LABS, ids=lambda path: path.stem)
def test_lab_runs_from_top_to_bottom(lab, tmp_path):
    folder = shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    result = NotebookRun(folder / lab.name, SECONDS_PER_CELL).execute()
    assert result.error is None, f"{result.error.summary}\n{result.error.trace}"
    kept = [json.loads(path.read_text(encoding="utf-8")) for path in (folder / "results").glob("*.json")]
    assert len(kept) == 1 and kept[0]["cells"] and all("residual_percent" in cell for cell in kept[0]["cells"])


def parts(path):
    """Return (metadata, the sources of the code cells, the text of the Markdown cells) of a lab."""
    lab = nbformat.read(path, as_version=4)
    text = "\n".join(cell.source for cell in lab.cells if cell.cell_type == "markdown")
    return lab.metadata, [cell.source for cell in lab.cells if cell.cell_type == "code"], text


@pytest.mark.parametrize("lab", LABS, ids=lambda path: path.stem)
def test_lab_is_committed_without_outputs_and_offers_a_gpu_on_colab(lab):
    cells = [cell for cell in nbformat.read(lab, as_version=4).cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    metadata, _, _ = parts(lab)
    assert metadata.accelerator == "GPU" and metadata.colab == {"gpuType": "T4", "provenance": []}


@pytest.mark.parametrize("lab", LABS, ids=lambda path: path.stem)
def test_lab_begins_with_set_up_settings_and_a_look_at_the_machine(lab):
    """Run me first; then seed, versions, and, in a lab with a GPU part, what to click for one (`notebook.start`)."""
    _, code, text = parts(lab)
    assert code[0].startswith("# Set-up, written by tools/sync.py")
    assert re.search(r"^here = notebook\.start\(.+\)", code[1], re.MULTILINE), "the settings end with notebook.start"
    assert ("gpu=True" in code[1]) == any("here.device" in cell for cell in code), "who looks for a GPU also uses it"
    assert re.search(r"^[A-Z]+\b.* = ", code[1], re.MULTILINE), "the settings stand in capitals in the first cell"
    assert "**You need** " in text.split("\n## ")[0] and "minute" in text.split("\n## ")[0]


@pytest.mark.parametrize("lab", LABS, ids=lambda path: path.stem)
def test_lab_shows_progress_and_ends_with_residual_results_and_the_book(lab):
    _, code, text = parts(lab)
    whole = "\n".join(code)
    assert re.search(r"notebook\.(progress|each)\(", whole)
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    wanted = ["Prediction, measurement, residual", "Keep it, and compare with the book's measurement"]
    assert [h for h in headings if h in wanted] == wanted, "in this order, each once"
    last = code[-1].rstrip().split("\n")
    assert "notebook.book(" in code[-1] and last[-1].startswith('notebook.keep("'), "so that Colab downloads it last"
    assert len(re.findall(r"notebook\.keep\(", whole)) == 1
    assert not re.search(r"FileLink|files\.download|json\.dump|perf_counter|manual_seed", whole), "the helpers do that"
