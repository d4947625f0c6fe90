"""What a device is and what it can do at best: the defaults for a notebook, ceilings measured in seconds, floors of a pass."""

import subprocess
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from specgain.lab.graphs import Clock
from specgain.lab.measure import environment
from specgain.lab.pretrained import place


class NoDevice(RuntimeError):
    """CUDA was asked for and is not there."""


class Defaults(NamedTuple):
    """Where and in what type to compute, and one line to show to the reader."""

    device: str
    dtype: torch.dtype
    message: str


def device_defaults():
    """Return the `Defaults` of this machine: bfloat16 on a GPU of compute capability 8.0 or more, float16 below it."""
    device, dtype = place()
    if device.type != "cuda":
        return Defaults("cpu", dtype, (
            "No GPU here: this runs on the CPU, with the small pair. On Colab choose Runtime, Change runtime type, T4 GPU, "
            "then run the notebook from its first cell."))  # fmt: skip
    major, minor = torch.cuda.get_device_capability(device)
    name = torch.cuda.get_device_name(device)
    return Defaults("cuda", dtype, f"{name}, compute capability {major}.{minor}: {str(dtype).removeprefix('torch.')}")


def need(device):
    """Return torch.device(device); NoDevice if it is CUDA and this machine or this PyTorch has none."""
    device = torch.device(device)
    if device.type == "cuda" and not torch.cuda.is_available():
        why = "this PyTorch is a build without CUDA" if torch.version.cuda is None else "no GPU or no driver was found"
        raise NoDevice(f"CUDA was asked for, and {why} (torch {torch.__version__})")
    return device


def device_environment(device, pair=None):
    """Return `measure.environment` with the GPU as the device, if it is one."""
    facts = environment(pair)
    if device.type != "cuda":
        return facts
    properties = torch.cuda.get_device_properties(device)
    return facts | {
        "device": properties.name,
        "host": facts["device"],
        "driver": _driver(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),  # decides which attention PyTorch prefers on Hopper
        "compute_capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
    }


def _driver():
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


# --- ceilings ------------------------------------------------------------------------------------------------------


def timed(call, device, calls=10, repeats=5, ahead=True):
    """Return the median seconds of `call()`, over `repeats` runs of `calls` calls each, after two to warm up.

    With `ahead` the host queues all calls of a run before the first one begins, so what a launch costs does not count.
    """
    call(), call()
    clock, seconds = Clock(device), []
    for _ in range(repeats):
        clock.marks.clear()
        if ahead:
            clock.head_start()
        clock.mark()
        for _ in range(calls):
            call()
        clock.mark()
        seconds.append(clock.laps()[0] / calls)
    return float(np.median(seconds))


@torch.inference_mode()
def ceilings(device, dtypes, megabytes=2048, width=8192, calls=10):
    """Return what the device reaches: bytes read and copied per second, operations per second by type, costs of a launch.

    `read` is the better of a sum and a matrix-vector product. `rows_ms` {type: {rows: ms}} times a product of few rows
    with a weight of width × width: flat as long as reading the weight decides.
    """
    rates, flops, rows, number = (
        _rates(device, int(megabytes * 1e6 / 4), width, calls),
        {},
        {},
        torch.ones(1, device=device),
    )
    for dtype in dtypes:
        name, weight = str(dtype).removeprefix("torch."), torch.randn(width, width, device=device).to(dtype)
        flops[name] = 2 * width**3 / timed(partial(F.linear, weight, weight), device, calls)
        few = [n for n in (1, 2, 3, 5, 9, 16, 32, 64, 144, 256, 576) if n <= width]
        rows[name] = {n: timed(partial(F.linear, weight[:n], weight), device, calls) * 1e3 for n in few}
    return rates | {
        "matmul_flops": flops,
        "width": width,
        "rows_ms": rows,
        "launch_us": timed(lambda: number.add_(0), device, 200, ahead=False) * 1e6,
        "round_trip_us": timed(lambda: number.add_(0).cpu(), device, 50, ahead=False) * 1e6,
    }


def _rates(device, numbers, width, calls):
    """Bytes per second of a sum, a matrix-vector product and a copy over so many float32 numbers."""
    source, target, vector = (torch.ones(n, device=device) for n in (numbers, numbers, width))
    matrix = source[: numbers // width * width].view(-1, width)
    arms = {
        "sum": (source.sum, 4 * numbers),
        "matrix_vector": (partial(torch.mv, matrix, vector), 4 * matrix.numel()),
        "copy": (partial(target.copy_, source), 8 * numbers),
    }
    rates = {f"{name}_bytes_per_s": size / timed(call, device, calls) for name, (call, size) in arms.items()}
    return rates | {"read_bytes_per_s": max(rates["sum_bytes_per_s"], rates["matrix_vector_bytes_per_s"])}


# --- floors --------------------------------------------------------------------------------------------------------


def weights_read(config):
    """Return how many weights one pass reads: all but the embedding, unless that is the head too."""
    count = sum(int(np.prod(shape)) for shape in config.shapes().values())
    return count if config.tied else count - config.vocab * config.width


def kv_numbers(config):
    """Return how many numbers the cache keeps per token."""
    return 2 * config.layers * config.kv_heads * config.head_width


def pass_floor(config, batch, positions, context, dtype, ceiling, weight_bytes=None):
    """Return the least seconds of a pass: bytes over the read rate or operations over the product rate, the larger one.

    A weight takes `weight_bytes` (default: as `dtype`).
    """
    weights, kv = weights_read(config), kv_numbers(config)
    bytes_read = weights * (weight_bytes or dtype.itemsize) + batch * context * kv * dtype.itemsize
    per_position = 2 * weights + 4 * config.layers * config.heads * config.head_width * context
    operations = batch * positions * per_position
    rate = ceiling["matmul_flops"][str(dtype).removeprefix("torch.")]
    return max(bytes_read / ceiling["read_bytes_per_s"], operations / rate)


def round_floor(target, draft, batch, gamma, context, *how):
    """Return the least seconds of a round: γ passes of the draft, one of the target over γ + 1 positions."""
    steps = gamma * pass_floor(draft, batch, 1, context, *how) if gamma else 0.0
    return steps + pass_floor(target, batch, gamma + 1, context, *how)
