"""Read safetensors files with nothing but torch, so that a machine that only runs the models needs no more.

The format is a length of 8 bytes, a JSON header {name: {dtype, shape, data_offsets}}, then the numbers. Each tensor must
end where the next one begins, and the last one at the end of the file, or the file is refused.
"""

import json
import math
from pathlib import Path

import torch

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "U16": torch.uint16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


class DamagedFile(ValueError):
    """A file that is not whole, or not in this format."""


def read_tensors(path):
    """Return ({name: tensor}, metadata: a dict of strings). DamagedFile says what is wrong with the file."""
    data = bytearray(Path(path).read_bytes())
    header, start = _header(data)
    metadata, tensors, end = header.pop("__metadata__", None) or {}, {}, start
    for name, entry in sorted(header.items(), key=_begin):
        dtype, shape, begin, stop = _entry(name, entry)
        count = math.prod(shape)
        if start + begin != end or stop - begin != count * dtype.itemsize or start + stop > len(data):
            raise DamagedFile(f"the numbers of {name} do not lie where its shape and the file's size allow")
        tensors[name] = torch.frombuffer(data, dtype=dtype, count=count, offset=end).clone().view(shape) if count else (
            torch.empty(shape, dtype=dtype))  # fmt: skip
        end = start + stop
    if end != len(data):
        raise DamagedFile(f"{len(data) - end} bytes behind the last tensor belong to none")
    return tensors, metadata


def read_metadata(path):
    """Return the dict of strings in the header of a file."""
    with open(path, "rb") as file:
        size = file.read(8)
        return _header(size + file.read(int.from_bytes(size, "little")))[0].get("__metadata__") or {}


def _header(data):
    """The header of a file's bytes and the place where it ends."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or 8 + size > len(data):
        raise DamagedFile("the header is cut off")
    try:
        header = json.loads(bytes(data[8 : 8 + size]))
    except ValueError as error:
        raise DamagedFile(f"the header is no JSON: {error}") from error
    if not isinstance(header, dict):
        raise DamagedFile("the header is no JSON object")
    return header, 8 + size


def _begin(item):
    try:
        return int(item[1]["data_offsets"][0])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DamagedFile(f"the header does not say where {item[0]} lies") from error


def _entry(name, entry):
    """(dtype, shape, begin, end) of one tensor, checked."""
    try:
        dtype, shape, (begin, end) = DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFile(f"the header's entry of {name} is unusable: {error!r}") from error
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise DamagedFile(f"the header's entry of {name} holds something that is no whole number")
    return dtype, shape, begin, end
