"""Every lab runs from top to bottom on a CPU, in a copy, so that no committed measurement is overwritten.

A lab that would take long names the value of its settings for this test in the cell's metadata, in nbmake's way:
`"nbmake": {"mock": {"SECONDS": 2}}`.
"""

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


@pytest.mark.parametrize("lab", LABS, ids=lambda path: path.stem)
def test_lab_is_committed_without_outputs_and_with_a_set_up_cell(lab):
    cells = [cell for cell in nbformat.read(lab, as_version=4).cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    assert cells[0].source.startswith("# Set-up, written by tools/sync.py")
