"""The library's layers: imports point downwards, and heavy packages stay where they belong."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "specgain"
HEAVY = ("numpy", "scipy", "sympy", "torch", "matplotlib")
# the only places that may import a package at all, even inside a function
HOME = {"torch": "lab/", "tokenizers": "lab/", "safetensors": "lab/", "sympy": "proofs/", "matplotlib": "figures/"}
CORE = ("acceptance", "round_time", "gain", "length", "hardware", "memory", "roofline")


def run(code, *arguments):
    """Run Python code in a fresh process; return its output, and fail with its error text."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def blocking(*packages):
    """Return code that makes the import of these packages fail, as if they were not installed."""
    return f"import sys\nsys.modules.update(dict.fromkeys({packages!r}))\n"


def imports(path):
    """Return (package, stands at the top of the module) of every import in a module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], node.col_offset == 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0], node.col_offset == 0


def test_imports_point_downwards():
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    linter = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL)
    assert linter.returncode == 0, linter.stdout + linter.stderr


def test_heavy_packages_are_imported_only_at_home():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        for name, at_top in imports(path):
            if name in HOME and not place.startswith(HOME[name]):
                wrong.append(f"{place} imports {name}, which belongs in {HOME[name]}")
            if name == "scipy" and at_top:
                wrong.append(f"{place} imports scipy for everyone; import it inside the function that needs it")
    assert not wrong


def test_the_package_and_its_formulas_need_no_other_package():
    code = blocking(*HEAVY) + """
from fractions import Fraction
from specgain import Acceptance, Ledger, RoundTime
from specgain.acceptance import committed_length, committed_length_constant, pmf, survival, variance
from specgain.gain import break_even_acceptance, margin, speedup
from specgain.length import best_gamma
from specgain.round_time import Quadratic

half = Fraction(1, 2)
assert list(survival([half, half])) == [half, Fraction(1, 4)] and sum(pmf([half, half])) == 1
assert committed_length([half, half]) == committed_length_constant(half, 2) == Fraction(7, 4)
assert variance([half]) == Fraction(1, 4)
ledger = Ledger(Acceptance.constant(0.8), RoundTime.of(Quadratic(0.010, 0.0007, 0.0001)), 0.010)
assert best_gamma(ledger) == 4 and ledger.speedup(4) > 2.33 and ledger.margin(4) > 0
assert speedup(2, 0.010, 0.010) == 2 and margin(1, 0.010, 0.010) == 0
assert 0 < break_even_acceptance(4, 0.010, 0.0144) < 1
"""
    run(code)


@pytest.mark.parametrize("module", CORE)
def test_layers_0_to_2_run_with_numpy_alone(module):
    """Arrays and intervals work while every heavy package but NumPy is missing."""
    code = blocking(*HEAVY[1:]) + f"""
import importlib, numpy
importlib.import_module("specgain.{module}")
from specgain.acceptance import committed_length_constant, estimate
grid = committed_length_constant(numpy.linspace(0, 1, 50)[:, None], numpy.arange(9)[None, :])
assert grid.shape == (50, 9)
found = estimate([2, 0, 3, 1], [3, 3, 3, 3])
assert found.conditional[0].low <= found.conditional[0].value <= found.conditional[0].high
"""
    run(code)


@pytest.mark.parametrize("command", ["--help", "gain --help"])
def test_help_is_quick_because_nothing_heavy_is_imported(command):
    code = """
import sys
from specgain.cli import main
try:
    main(sys.argv[1].split())
except SystemExit as end:
    assert not end.code, end.code
heavy = sorted({name.split(".")[0] for name in sys.modules} & set(sys.argv[2].split()))
assert not heavy, heavy
"""
    assert "Usage" in run(code, command, " ".join(HEAVY))


def test_importing_the_package_imports_nothing_heavy():
    print_heavy = f"import sys, specgain; print(sorted({{n.split('.')[0] for n in sys.modules}} & set({HEAVY!r})))"
    assert run(print_heavy).strip() == "[]"
