"""Files of safetensors: read and written by the format's own reader, too; damaged ones refused."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from operator_cases import make
from sparsegpu._arrays import bfloat16, dtype_of, float8_e4m3fn
from sparsegpu.testing import random_24

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "int32", "bool", "complex64"]


def through(arrays, **keywords):
    file = io.BytesIO()
    sg.save_safetensors(file, arrays, **keywords)
    file.seek(0)
    return sg.load_safetensors(file)


def same(engine, got, expected):
    assert type(got) is type(expected) and got.dtype == expected.dtype and got.device == "cpu"
    a, b = got.toarray(), engine.host(expected.toarray())
    np.testing.assert_array_equal(a, b)


@covered(dtype=DTYPES, batch=[(), (3,)], duplicates=[False, True])
def test_blocks(engine, rng, dtype, batch, duplicates):
    a, dense = make(engine, rng, dtype=dtype, batch=batch, duplicates=duplicates)
    back = through({"layer.0.weight": a, "x": engine.array(dense)})
    assert back.keys() == {"layer.0.weight", "x"}
    same(engine, back["layer.0.weight"], a)
    for field in ("data", "indices", "indptr"):  # in stored order, repeated ones too
        one, other = getattr(back["layer.0.weight"], field), getattr(a, field)
        np.testing.assert_array_equal(one, engine.host(other))
    assert back["x"].dtype == dense.dtype
    np.testing.assert_array_equal(back["x"], dense)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_24(engine, rng, dtype):
    dense = random_24(rng, (64, 64), dtype_of(dtype))
    given = engine.array(dense)
    w = sg.to_semi_structured(given)
    arrays = {
        "one": w,
        "other": w.T,
        "blocks": sg.bsr_array(given, blocksize=(32, 64)).semi_structured(),
    }
    if dtype != "float32":
        arrays["both"] = sg.SemiStructuredArray.prune_dense_static_sort(given)
    back = through(arrays)
    for name, array in arrays.items():
        same(engine, back[name], array)
    if dtype != "float32":
        assert back["both"].bitmask is not None and back["both"].packed_t is not None
    padded = sg.to_semi_structured(given[:33, :50].copy(), pad=True)
    assert through({"w": padded})["w"].shape == (33, 50)


def test_float8(engine, rng):
    w = sg.to_semi_structured(engine.array(random_24(rng, (32, 64), float8_e4m3fn)))
    back = through({"w": w})["w"]
    assert back.dtype == float8_e4m3fn
    np.testing.assert_array_equal(back.todense().view("u1"), engine.host(w.todense()).view("u1"))


def test_the_format_s_own_reader_and_writer(rng, tmp_path):
    own = pytest.importorskip("safetensors.numpy")
    open_file = pytest.importorskip("safetensors").safe_open
    a = sg.random_bsr((12, 20), (3, 4), 0.5, dtype="float32", rng=rng)
    w = sg.to_semi_structured(random_24(rng, (32, 32), "float16"))
    path = tmp_path / "a.safetensors"
    extra = np.arange(6, dtype="int8").reshape(2, 3)
    sg.save_safetensors(path, {"a": a, "w": w, "extra": extra}, metadata={"by": "tests"})
    theirs = own.load_file(path)
    assert theirs.keys() == {"a.data", "a.indices", "a.indptr", "w.packed", "w.meta", "extra"}
    np.testing.assert_array_equal(theirs["a.data"], a.data)
    np.testing.assert_array_equal(theirs["w.meta"], w.meta)
    np.testing.assert_array_equal(theirs["extra"], extra)
    with open_file(path, framework="np") as opened:
        assert opened.metadata()["by"] == "tests"
    tensors = {"x": np.ones((2, 3)), "empty": np.zeros((0, 4), "f4"), "scalar": np.array(2.0)}
    own.save_file(tensors, path)
    back = sg.load_safetensors(path)
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(back[name], tensor)


def test_tensors_far_into_a_file(rng):
    """Neither a size nor where it is found makes a tensor too large."""
    one, other = rng.integers(-9, 9, (2, 4_000_000)).astype("int8")
    back = through({"one": one, "other": other})
    np.testing.assert_array_equal(back["one"], one)
    np.testing.assert_array_equal(back["other"], other)


def test_bfloat16_of_torch(rng, tmp_path):
    torch = pytest.importorskip("torch")
    own = pytest.importorskip("safetensors.torch")
    path = tmp_path / "a.safetensors"
    own.save_file({"w": torch.full((2, 3), 1.5, dtype=torch.bfloat16)}, path)
    back = sg.load_safetensors(path)["w"]
    assert back.dtype == bfloat16 and (back.astype("f4") == 1.5).all()
    sg.save_safetensors(path, {"w": sg.random_bsr((4, 4), (2, 2), 1, dtype="bfloat16", rng=rng)})
    assert own.load_file(path)["w.data"].dtype == torch.bfloat16


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return io.BytesIO(len(text).to_bytes(8, "little") + text + data)


def said_of(arrays):
    return {"__metadata__": {"sparsegpu": json.dumps(arrays)}}


X = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("file", "match"),
    [
        (io.BytesIO(b""), "a header of safetensors"),
        (io.BytesIO(b"\x00" * 4), "a header of safetensors"),
        (io.BytesIO(b"\xff" * 64), "a header of safetensors"),
        (file_of(b"{"), "a header in JSON"),
        (file_of(b"[" * 100_000), "a header in JSON"),
        (file_of(b"[]"), "a header that names tensors"),
        (file_of(b'{"x": 1, "x": 2}'), "a name twice"),
        (file_of({"x": X}, b"1234567"), "8 bytes of tensors.*got 7"),
        (file_of({"x": X}, b"123456789"), "8 bytes of tensors.*got 9"),
        (file_of({"x": X | {"dtype": "F1"}}, b"12345678"), "dtype, shape and data_offsets of 'x'"),
        (file_of({"x": X | {"shape": [3]}}, b"12345678"), "as many bytes as 'x'"),
        (file_of({"x": X | {"shape": [-2]}}, b"12345678"), "dtype, shape and data_offsets"),
        (file_of({"x": X | {"shape": [2**62, 2]}}, b"12345678"), "data_offsets|as many"),
        (file_of({"x": X | {"shape": [1] * 64 + [2]}}, b"12345678"), "data_offsets of 'x'"),
        (file_of({"x": X | {"data_offsets": [2**70, 2**70 + 8]}}, b"1" * 8), "data_offsets of"),
        (file_of({"x": X | {"data_offsets": [8, 16]}}, b"1" * 16), "'x' to begin at byte 0"),
        (file_of({"x": X, "y": X}, b"12345678"), "'y' to begin at byte 8"),
        (file_of({"x": X, "__metadata__": {"sparsegpu": "{"}}, b"12345678"), "in JSON"),
        (file_of({"x": X, "__metadata__": {"sparsegpu": "3"}}, b"12345678"), "by name"),
        (
            file_of({"x": X} | said_of({"a": {"format": "csr"}}), b"12345678"),
            "a format of 'a'",
        ),
        (
            file_of(
                {"a.data": X} | said_of({"a": {"format": "bsr", "shape": [4, 4]}}), b"12345678"
            ),
            "the parts of 'a', data, indices, indptr",
        ),
    ],
)  # fmt: skip
def test_damaged_files(file, match):
    file.seek(0)
    with pytest.raises(
        ValueError, match=f"^load_safetensors: argument 'file': expected .*({match})"
    ):
        sg.load_safetensors(file)


def test_indices_of_a_file_are_checked(rng):
    file = io.BytesIO()
    a = sg.bsr_array((np.ones((1, 2, 2)), [9], [0, 1, 1]), shape=(4, 4), check=False)
    sg.save_safetensors(file, {"a": a})
    file.seek(0)
    with pytest.raises(ValueError, match=r"the parts of 'a'.*block columns in 0\.\.1, got 9"):
        sg.load_safetensors(file)


@pytest.mark.parametrize(
    ("arrays", "keywords", "error", "match"),
    [
        ([1], {}, TypeError, "'arrays': expected a dict of arrays by name"),
        ({1: np.ones(2)}, {}, TypeError, "'arrays': expected names that are str, got int"),
        ({"x": np.ones(2, "c16")}, {}, TypeError, "'arrays': .*complex128 of 'x'"),
        ({"m": sg.causal(4, 2, compact=True)}, {}, TypeError, "'arrays': .*BlockMask"),
        ({"x": np.ones(2)}, {"metadata": {"a": 1}}, TypeError, "'metadata': .*a dict of str"),
        ({"x": np.ones(2)}, {"metadata": {"sparsegpu": ""}}, ValueError, "'metadata': .*names"),
        ({"a": sg.eye(2), "a.data": np.ones(2)}, {}, ValueError, "'arrays': .*each name once"),
        ({"__metadata__": np.ones(2)}, {}, ValueError, "'arrays': .*each name once"),
    ],
)  # fmt: skip
def test_what_cannot_be_written(arrays, keywords, error, match):
    with pytest.raises(error, match=f"^save_safetensors: argument {match}"):
        sg.save_safetensors(io.BytesIO(), arrays, **keywords)


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "a.safetensors"
    sg.save_safetensors(path, {"x": np.ones(2)})
    before = path.read_bytes()
    with pytest.raises(TypeError):
        sg.save_safetensors(path, {"x": np.ones(2), "y": np.ones(2, "c16")})
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    with pytest.raises(TypeError, match=r"^load_safetensors: argument 'file'"):
        sg.load_safetensors(3)
    with pytest.raises(FileNotFoundError):
        sg.load_safetensors(tmp_path / "none")
