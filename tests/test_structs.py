"""Structs that kernels take by value: what is read of their declarations, and what is packed."""

from __future__ import annotations

import ctypes
import re
from types import SimpleNamespace

import numpy as np
import pytest

from kernel_cases import DeviceArray
from sparsegpu._epilogue import Epilogue
from sparsegpu._score import Score
from sparsegpu.engines.cuda._epilogue_args import epilogue_args
from sparsegpu.engines.cuda._score_args import score_args
from sparsegpu.engines.cuda.runtime.source import source_root
from sparsegpu.engines.cuda.runtime.structs import KernelStruct, kernel_struct
from sparsegpu.engines.cuda.runtime.view import batch_dims, matrix_view, vector_view

SCALARS = {
    "int": ctypes.c_int,
    "long long": ctypes.c_longlong,
    "unsigned long long": ctypes.c_ulonglong,
    "double": ctypes.c_double,
}
#: A declaration of a header's: type, whether they are pointers, names, and how many of each.
DECLARATION = re.compile(r"(?:const )?([\w ]+?)(\*?) (\w+(?:, \w+)*)(?:\[(\d+)\])?")


def declared(header, name, **types):
    """Return a struct of ``cuda_src/common`` as C lays it out; ``types`` are those it lacks."""
    text = re.sub(r"//[^\n]*", "", (source_root() / "common" / f"{header}.cuh").read_text())
    body = re.search(rf"struct {name} \{{\n(.*?)(?:\n\n|\n\}})", text, re.DOTALL)[1]
    fields = []
    for line in filter(None, map(str.strip, body.split(";"))):
        kind, pointer, names, count = DECLARATION.fullmatch(line).groups()
        of = ctypes.c_ulonglong if pointer else (SCALARS | types)[kind]
        fields += [(field, of * int(count) if count else of) for field in names.split(", ")]
    return type(name, (ctypes.Structure,), {"_fields_": fields})


def read(kind, packed):
    """Return the fields of a struct from bytes that are as many as it has."""
    assert len(packed) == ctypes.sizeof(kind)
    held = kind.from_buffer_copy(packed)
    return {name: getattr(held, name) for name, _ in kind._fields_}


def strides(view):
    """Return what is read of a View: address, strides of rows and columns, and of the batch."""
    return view.ptr, view.row, view.col, list(view.batch)


VIEW, BATCH = declared("view", "View"), declared("view", "Batch")
#: Two dimensions of a batch, a matrix: strides of 40, 20, 5 and 1 elements.
MATRICES = DeviceArray(4096, (2, 2, 4, 5))
VECTORS = DeviceArray(8192, (2, 2, 3))


def test_views_are_packed_as_declared():
    assert strides(VIEW.from_buffer_copy(matrix_view(MATRICES, (2, 2)))) == (
        *(4096, 5, 1),
        [0, 0, 40, 20],
    )
    assert strides(VIEW.from_buffer_copy(vector_view(VECTORS, (2, 2)))) == (
        *(8192, 1, 0),
        [0, 0, 6, 3],
    )
    assert len(matrix_view(None, ())) == ctypes.sizeof(VIEW)
    (sizes,) = read(BATCH, batch_dims((7, 5))).values()
    assert list(sizes) == [1, 1, 7, 5]


@pytest.mark.parametrize(("dtype", "out", "beta"), [
    ("float32", "float32", 3), ("float64", "float64", 3), ("int32", "int32", 3),
    ("int32", "float32", 0.5), ("complex64", "complex64", 3 - 1j),
    ("complex128", "complex128", 3 - 1j),
])  # fmt: skip
def test_epilogues_are_packed_as_declared(dtype, out, beta):
    computed = np.dtype(dtype)
    if computed.kind == "i":
        computed = np.dtype("int64" if out == "int32" else "float32")
    part = {"f4": ctypes.c_float, "f8": ctypes.c_double, "i8": ctypes.c_longlong}
    number = {**part, "c8": ctypes.c_float * 2, "c16": ctypes.c_double * 2}[computed.str[1:]]
    kind = declared("epilogue", "EpilogueArgs", View=VIEW, C=number)
    added = DeviceArray(4096, (2, 2, 4, 5))
    added.dtype = np.dtype(dtype)
    alphas = {} if out == "int32" else {"left_alpha": VECTORS, "right_alpha": DeviceArray(64, (5,))}
    chosen = Epilogue(alpha=2, beta=beta, input=added, **alphas)
    _, packed = epilogue_args(chosen, (2, 2), np.dtype(dtype), np.dtype(out))
    found = read(kind, packed)
    assert strides(found["input"]) == (4096, 5, 1, [0, 0, 40, 20])
    if alphas:
        assert strides(found["left_alpha"]) == (8192, 1, 0, [0, 0, 6, 3])
        assert strides(found["right_alpha"]) == (64, 1, 0, [0, 0, 0, 0])
    assert found["alpha_is_one"] == 0
    for name, expected in {"alpha": 2, "beta": beta}.items():
        value = complex(*found[name]) if computed.kind == "c" else found[name]
        assert value == expected
    one = Epilogue(beta=beta, input=added)
    _, packed = epilogue_args(one, (2, 2), np.dtype(dtype), np.dtype(out))
    assert read(kind, packed)["alpha_is_one"] == 1


@pytest.mark.parametrize(("dtype", "number"), [
    ("float16", ctypes.c_float), ("float64", ctypes.c_double),
])  # fmt: skip
def test_scores_are_packed_as_declared(dtype, number):
    kind = declared("score", "ScoreArgs", View=VIEW, A=number)
    score = Score((2, 2), (11, 13), 0.25, 8.0, VECTORS, True, 0.5, 2**63 + 1)
    bits = SimpleNamespace(bits=DeviceArray(1 << 40, (3, 16, 1)), columns=24)
    _, packed = score_args(score, (2, 2), MATRICES, VECTORS, np.dtype(dtype), bits)
    found = read(kind, packed)
    assert strides(found.pop("mask")) == (4096, 5, 1, [0, 0, 40, 20])
    assert strides(found.pop("slopes")) == (8192, 1, 0, [0, 0, 6, 3])
    assert found == {
        **{"queries": 11, "keys": 13, "seed": 2**63 + 1, "bits": 1 << 40},
        **{"block_rows": 16, "block_columns": 24, "dropout": 0.5},
        **{"scale": 0.25, "softcap": 8, "kept_scale": 2, "causal": 1},
    }


def test_fields_lie_as_c_lays_them():
    body = "unsigned a;\n long long b, c;\n const int* d; int e;"
    ours = KernelStruct("S", body)

    class Theirs(ctypes.Structure):
        _fields_ = [
            ("a", ctypes.c_uint),
            ("b", ctypes.c_longlong),
            ("c", ctypes.c_longlong),
            ("d", ctypes.c_void_p),
            ("e", ctypes.c_int),
        ]

    assert ours.fields == ("a", "b", "c", "d", "e") and ours.size == ctypes.sizeof(Theirs)
    values = {"a": 1, "b": -2, "c": 3, "d": 4, "e": -5}
    assert ours(e=-5, d=4, c=3, b=-2, a=1) == bytes(Theirs(**values))


def test_fields_must_be_named():
    two = KernelStruct("Two", "int a; int b;")
    with pytest.raises(TypeError, match="struct Two: fields that lack or are unknown: b, c"):
        two(a=1, c=2)


def test_only_plain_fields():
    with pytest.raises(TypeError, match="struct S: no plain field: 'float x'"):
        KernelStruct("S", "int a; float x;")


def test_declarations_are_found_in_sources(tmp_path, monkeypatch):
    (tmp_path / "kernel.cu").write_text(
        "// struct Other { not this; };\nstruct Problem {\n"
        "  long long m, n;  // rows; columns\n  int k;\n};\n"
    )
    monkeypatch.setenv("SPARSEGPU_CUDA_SRC", str(tmp_path))
    from sparsegpu.engines.cuda.runtime import source

    source.source_root.cache_clear()
    kernel_struct.cache_clear()
    try:
        assert kernel_struct("kernel", "Problem").fields == ("m", "n", "k")
        with pytest.raises(LookupError, match=r"cuda_src/kernel.cu declares no plain struct Other"):
            kernel_struct("kernel", "Other")
    finally:
        source.source_root.cache_clear()
        kernel_struct.cache_clear()
