"""Structs that kernels take by value: what is read of their declarations."""

from __future__ import annotations

import ctypes

import pytest

from sparsegpu.engines.cuda.runtime.structs import KernelStruct, kernel_struct


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
