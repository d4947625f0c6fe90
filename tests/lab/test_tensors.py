"""Our reader of safetensors against the package's own, and against files that are damaged in every place."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from specgain.lab.pair import WEIGHTS
from specgain.lab.tensors import DTYPES, DamagedFile, read_metadata, read_tensors


@pytest.mark.parametrize("path", sorted(WEIGHTS.glob("*.safetensors")), ids=lambda path: path.stem)
def test_the_committed_files_read_as_the_package_reads_them(path):
    tensors, metadata = read_tensors(path)
    expected = load_file(path)
    assert tensors.keys() == expected.keys() and metadata == read_metadata(path)
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "all.safetensors"
    tensors = {name: torch.arange(6).reshape(2, 3).to(dtype) for name, dtype in DTYPES.items()}
    save_file(tensors | {"one": torch.tensor(1.5), "none": torch.zeros(0, 4)}, path, {"note": "ü"})
    return path


def test_every_type_and_shape(file):
    tensors, metadata = read_tensors(file)
    expected = load_file(file)
    assert metadata == {"note": "ü"} and tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        assert tensors[name].dtype == tensor.dtype and tensors[name].shape == tensor.shape
        assert tensors[name].tolist() == tensor.tolist()


def write(path, header, numbers=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers)
    return path


@pytest.mark.parametrize(
    "header, numbers, message",
    [
        (b"\xff\xfe", b"", "no JSON"),
        ([1, 2], b"", "no JSON object"),
        ({"a": {"dtype": "F32", "shape": [1]}}, b"0000", "does not say where a lies"),
        ({"a": 3}, b"0000", "does not say where a lies"),
        ({"a": {"dtype": "F5", "shape": [1], "data_offsets": [0, 4]}}, b"0000", "entry of a is unusable"),
        ({"a": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}, b"0000", "no whole number"),
        ({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"0000", "no whole number"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"0000", "numbers of a do not lie"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"0000", "numbers of a do not lie"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"00000000", "numbers of a do not lie"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"00000", "1 bytes behind the last tensor"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path, header, numbers, message):
    with pytest.raises(DamagedFile, match=message):
        read_tensors(write(tmp_path / "x", header, numbers))


def test_a_file_cut_anywhere_is_refused(file):
    whole = file.read_bytes()
    for size in range(0, len(whole), 7):
        file.write_bytes(whole[:size])
        with pytest.raises(DamagedFile):
            read_tensors(file)


@given(st.data())
def test_changed_bytes_never_give_anything_but_tensors_or_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("t") / "x"
    save_file({"a": torch.ones(2, 3), "b": torch.ones(4, dtype=torch.int32)}, path)
    noisy = np.frombuffer(path.read_bytes(), np.uint8).copy()
    for place in data.draw(st.lists(st.integers(0, len(noisy) - 1), min_size=1, max_size=6)):
        noisy[place] = data.draw(st.integers(0, 255))
    path.write_bytes(noisy.tobytes())
    try:
        tensors, _ = read_tensors(path)
    except DamagedFile:
        return
    assert all(isinstance(t, torch.Tensor) for t in tensors.values())
