"""`make gpu-check` on the CPU, in seconds: every part writes what it promises, and a part that fails is named."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from specgain.lab import device as lab_device
from specgain.lab import gpu_results
from specgain.lab.device import NoDevice, ceilings, device_defaults, kv_numbers, need, pass_floor, weights_read
from specgain.lab.model import Config, random_weights
from specgain.lab.pair import DOMAINS
from specgain.lab.shapes import SHAPES
from specgain.records.measured import problems

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def gpu_check():
    spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "tools" / "gpu_check.py")
    module = sys.modules["gpu_check"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gpu_check"]


@pytest.fixture(scope="module")
def result(gpu_check, tmp_path_factory):
    out = tmp_path_factory.mktemp("gpu") / "new"
    budget = gpu_check.Budget(600, quiet=True)
    summary = gpu_check.run(gpu_check.mini_plan(small=True), torch.device("cpu"), torch.float32, out, budget)
    return summary, {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in out.iterdir()}


def test_every_part_is_written_whole(result):
    summary, files = result
    assert set(files) == {"summary", "ceilings", "correctness", "prediction", "cells", "int8"}
    assert {row["status"] for row in summary["parts"].values()} == {"done"}, summary
    for name, data in files.items():
        assert data["schema"] == gpu_results.SCHEMA and data["part"] == name
        assert {"device", "date", "torch", "git_revision"} <= data["environment"].keys()


def test_float32_on_a_cpu_has_no_difference_at_all(result):
    checks = result[1]["correctness"]["checks"]
    assert len(checks) == 5 and all(c["different"] == 0 and c["passed"] and c["tokens"] == 40 for c in checks)
    sampling = result[1]["correctness"]["sampling"]
    assert len(sampling) == 3 and all(c["passed"] and c["degrees"] > 10 for c in sampling)
    assert result[1]["correctness"]["passed"] is True


def test_cells_hold_a_ledger_that_adds_up(result):
    data = result[1]["cells"]
    assert [(c["pair"], c["batch"], c["context"], c["gamma"]) for c in data["cells"]] == [
        ("tiny", 1, 64, 0), ("tiny", 1, 64, 2), ("mini", 2, 64, 0), ("mini", 2, 64, 4), ("mini", 4, 100, 0), ("mini", 4, 100, 1),
    ]  # fmt: skip
    assert data["skipped"] == [{"pair": "mini", "batch": 1, "context": 10**9, "gammas": [1], "reason": "context"}]
    for cell in data["cells"]:
        parts = cell["t_draft_ms"] + cell["t_verify_ms"] + cell["t_other_ms"]
        assert parts == pytest.approx(cell["t_round_ms"]) and cell["floor_ms"] > 0
        assert cell["speedup"] == pytest.approx(cell["committed_length"] * cell["t_decode_ms"] / cell["t_round_ms"])
        assert cell["break_even_length"] == pytest.approx(cell["t_round_ms"] / cell["t_decode_ms"])
        assert 1 <= cell["committed_length"] <= cell["gamma"] + 1
    assert [c["speedup"] for c in data["cells"] if c["gamma"] == 0] == [pytest.approx(1.0)] * 3


def test_int8_is_exact_and_held_against_the_usual_type(result):
    data = result[1]["int8"]
    assert len(data["checks"]) == 3 and all(c["different"] == 0 for c in data["checks"])
    assert [(c["weights"], c["gamma"], "times_faster" in c) for c in data["cells"]] == [
        ("float32", 0, False), ("float32", 2, False), ("int8", 0, True), ("int8", 2, True),
    ]  # fmt: skip
    assert data["cells"][2]["floor_ms"] <= data["cells"][0]["floor_ms"]
    assert set(data["rows_ms"]) == {"float32", "int8"}


def test_a_prediction_holds_its_three_errors(result):
    cells = result[1]["prediction"]["cells"]
    assert [(c["domain"], c["gamma"], c["batch"], c["groups"]) for c in cells] == [
        ("json", 4, 1, 2),
        ("prose", 4, 2, 1),
    ]
    for c in cells:
        assert c["residual_percent"] == pytest.approx(100 * (c["speedup"] / c["measured_speedup"] - 1))
        assert 2 <= c["predicted_rounds"] <= 8 and 2 <= c["measured_rounds"] <= 8


def test_committed_results_are_read_back_without_torch(result, tmp_path):
    for name, data in result[1].items():
        if name == "int8":
            continue
        (tmp_path / "card").mkdir(exist_ok=True)
        (tmp_path / "card" / f"gpu-{name}.json").write_text(json.dumps(data), encoding="utf-8")
    assert gpu_results.devices(tmp_path) == {"card": ["ceilings", "cells", "correctness", "prediction", "summary"]}
    cells = gpu_results.read("cells", "card", tmp_path)
    assert gpu_results.caption(cells).endswith(cells["environment"]["date"][:10])
    t_decode, times = gpu_results.cost(cells, "mini", 2, 64)
    plain, spec = (c for c in cells["cells"] if (c["pair"], c["context"]) == ("mini", 64))
    assert t_decode * 1e3 == pytest.approx(plain["t_round_ms"]) and times(4) * 1e3 == pytest.approx(spec["t_round_ms"])
    with pytest.raises(ValueError, match="no cell of pair = 'mini', batch = 3, context = 64; there are"):
        gpu_results.cost(cells, "mini", 3, 64)
    with pytest.raises(ValueError, match="part = 'speed' unknown; a GPU check has summary, ceilings"):
        gpu_results.read("speed", "card", tmp_path)
    with pytest.raises(FileNotFoundError, match="gpu-int8.json of card is not committed"):
        gpu_results.read("int8", "card", tmp_path)
    (tmp_path / "card" / "gpu-int8.json").write_text(json.dumps(cells), encoding="utf-8")
    with pytest.raises(ValueError, match="part 'cells'; this reads 'specgain.gpu-check/1', 'int8'"):
        gpu_results.read("int8", "card", tmp_path)


def test_every_committed_gpu_check_can_be_read():
    for device, parts in gpu_results.devices().items():
        assert all(gpu_results.read(part, device)["environment"]["date"] for part in parts)


def test_the_files_are_measurements_that_can_be_committed(result):
    assert all(problems(data, name) == [] and data["reproduce"] for name, data in result[1].items())


def test_a_pair_that_is_too_large_is_left_out(gpu_check, tmp_path, monkeypatch):
    def too_large(*arguments):
        raise ValueError("needs 16 GB")

    monkeypatch.setattr(gpu_check, "make_models", too_large)
    device, saved = torch.device("cpu"), []
    plan, budget = gpu_check.mini_plan(small=True), gpu_check.Budget(600, quiet=True)
    found = gpu_check.time_cells(plan, device, torch.float32, {}, budget, saved.append)
    assert (
        found["skipped"] == [{"pair": name, "reason": "needs 16 GB"} for name in ("tiny", "mini")] and found["passed"]
    )


def test_the_whole_map_fits_the_models(gpu_check):
    """Every visit of the full plan lies inside both models' contexts, and covers γ, batch and context as asked."""
    plan, seen = gpu_check.full_plan(torch.bfloat16), set()
    for name, visits in plan.visits.items():
        configs = [SHAPES[size] for size in name.split("-")] if name != "tiny" else [Config(8, 8, 2, 8, 1, 512)]
        for batch, context, gammas in visits:
            assert all(gpu_check.capacity_of(context, plan) <= config.context for config in configs)
            assert 3 * (max(gammas) + 1) < plan.room
            seen |= {(name, batch, context, gamma) for gamma in (0, *gammas)}
    assert {key[1:] for key in seen if key[0] == "0.5b-7b"} == {
        (b, c, g) for b in (1, 4, 16, 64) for c in (256, 1920, 8064, 32640) for g in (0, 1, 2, 4, 8)
    }
    assert plan.visits["0.5b-7b"][0] == (1, 1920, (4,))
    assert {d for d, _, _ in plan.predict} <= set(DOMAINS) and plan.predict_prompts <= 128


def test_a_part_that_fails_leaves_the_others(gpu_check, tmp_path, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("the card fell out")

    for name in ("check_correctness", "check_prediction"):
        monkeypatch.setattr(gpu_check, name, broken)
    monkeypatch.setattr(gpu_check.traceback, "print_exc", lambda: None)
    budget = gpu_check.Budget(0, quiet=True)
    summary = gpu_check.run(gpu_check.mini_plan(small=True), torch.device("cpu"), torch.float32, tmp_path, budget)
    assert summary["parts"]["correctness"] == {"status": "failed", "error": "RuntimeError: the card fell out"}
    assert summary["parts"]["cells"]["status"] == "done" and not (tmp_path / "correctness.json").exists()
    cells = json.loads((tmp_path / "cells.json").read_text(encoding="utf-8"))
    assert cells["cells"] == [] and {row["reason"] for row in cells["skipped"]} == {"time"}
    assert not list(tmp_path.glob("*.part"))


def test_a_wrong_output_is_found(gpu_check):
    from specgain.lab.pair import load_pair

    pair = load_pair(["strong"])
    prompts = gpu_check.tokens_of(pair, "test", "json", 1)
    good = gpu_check.generate(pair.target, prompts, 6).outputs[0].tokens
    for wrong, passed in ((good, True), ([*good[:3], (good[3] + 1) % 2048, *good[4:]], False)):
        row = gpu_check.compare(pair, prompts, [wrong], "strong", 2, 1, 6)
        assert row["passed"] is passed and row["different"] == int(not passed)


def test_sampling_of_a_wrong_distribution_is_found(gpu_check, monkeypatch):
    from specgain.lab.sampling import Sampling

    device = torch.device("cpu")
    assert gpu_check.check_sampling(Sampling(1.0), device, 2048)["passed"]
    monkeypatch.setattr(
        gpu_check.GraphLoop, "_keep", lambda self, guesses, q, p: torch.ones_like(guesses, dtype=torch.bool)
    )
    assert not gpu_check.check_sampling(Sampling(1.0), device, 2048)["passed"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_cuda_asked_for_and_absent(gpu_check, tmp_path, capsys):
    assert gpu_check.main(["--out", str(tmp_path / "x")]) == 2
    assert "CUDA was asked for" in capsys.readouterr().err and not (tmp_path / "x").exists()
    with pytest.raises(NoDevice, match="CUDA was asked for, and"):
        need("cuda")
    assert device_defaults().device == "cpu" and "Change runtime type" in device_defaults().message


@pytest.mark.parametrize(
    "capability, dtype", [((7, 5), torch.float16), ((8, 0), torch.bfloat16), ((9, 0), torch.bfloat16)]
)
def test_the_type_follows_the_compute_capability(monkeypatch, capability, dtype):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    assert lab_device.device_defaults() == ("cuda", dtype, f"a card, compute capability {capability[0]}.{capability[1]}: "
                                            f"{str(dtype).removeprefix('torch.')}")  # fmt: skip


def test_the_script_needs_torch_and_numpy_only():
    """In a process where safetensors and tokenizers cannot be imported; the weights are the committed ones."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('safetensors', 'tokenizers', 'sympy', 'scipy', 'matplotlib')));"
        "sys.path.insert(0, 'tools'); import gpu_check; pair = gpu_check.load_pair(['weak']);"
        "print(gpu_check.tokens_of(pair, 'test', 'json', 1)[0][:2], type(pair.target).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and done.stdout.strip().endswith("Model"), done.stderr


# --- ceilings and floors -------------------------------------------------------------------------------------------


def test_ceilings_are_positive_and_complete():
    found = ceilings(torch.device("cpu"), (torch.float32,), 1, 32, 1)
    assert found["read_bytes_per_s"] == max(found["sum_bytes_per_s"], found["matrix_vector_bytes_per_s"]) > 0
    assert found["matmul_flops"]["float32"] > 0 and list(found["rows_ms"]["float32"]) == [1, 2, 3, 5, 9, 16, 32]


def test_the_floor_of_a_pass_by_hand():
    config = Config(10, 4, 2, 6, 3, context=64, tied=False)
    weights = sum(w.numel() for w in random_weights(config).values())
    assert weights_read(config) == weights - 40 and kv_numbers(config) == 2 * 3 * 4
    ceiling = {"read_bytes_per_s": 100.0, "matmul_flops": {"float32": 1e12}}
    read = 4 * (weights_read(config) + 2 * 5 * 24) / 100
    assert pass_floor(config, 2, 3, 5, torch.float32, ceiling) == pytest.approx(read)  # bytes decide
    ceiling = {"read_bytes_per_s": 1e12, "matmul_flops": {"float32": 10.0}}
    operations = 2 * 3 * (2 * weights_read(config) + 4 * 3 * 4 * 5)
    assert pass_floor(config, 2, 3, 5, torch.float32, ceiling) == pytest.approx(operations / 10)  # arithmetic decides
