"""Which path a product takes and what it would launch, on NumPy: no kernel runs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sparsegpu._arrays import dtype_of
from sparsegpu._epilogue import Epilogue
from sparsegpu.engines.cuda.paths import (
    BSR,
    BSR_SEMI_STRUCTURED,
    SEMI_STRUCTURED,
    _dispatch,
    _product,
    _product_24,
    _skinny,
    bsr_addmm_sm80,
)
from sparsegpu.engines.cuda.paths import _block_row_product as block_rows
from sparsegpu.engines.cuda.paths import _few_columns as few_columns
from sparsegpu.engines.cuda.paths._fields import ConfigError
from sparsegpu.engines.cuda.paths._product import product_of
from sparsegpu.engines.cuda.paths._product_24 import product_24_of
from sparsegpu.engines.cuda.runtime import view
from sparsegpu.engines.cuda.runtime.architectures import runs_on
from sparsegpu.engines.cuda.runtime.device import DeviceFacts
from sparsegpu.pattern import Pattern

H200 = DeviceFacts((9, 0), 132, 227 * 1024)
A100 = DeviceFacts((8, 0), 108, 163 * 1024)
GEFORCE = DeviceFacts((8, 6), 84, 99 * 1024)


class Array(np.ndarray):
    """An array whose memory is told as CuPy tells it."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data, device_id=0)


def zeros(shape, dtype="float32", order="C"):
    size = int(np.prod(shape)) * dtype_of(dtype).itemsize
    memory = np.zeros(size + 256, np.uint8)
    aligned = memory[-memory.ctypes.data % 256 :][:size].view(dtype_of(dtype))
    return aligned.reshape(shape, order=order).view(Array)


@pytest.fixture
def device(monkeypatch):
    """The launches of a device: source, ``-D`` names and arguments of each."""

    def use(facts):
        for module in (_product, _product_24):
            monkeypatch.setattr(module, "device_facts", lambda: facts)
        monkeypatch.setattr(_dispatch, "runs_here", lambda archs: runs_on(archs, facts.capability))

    shared = block_rows, few_columns, _product_24, _skinny
    for module in (*BSR, *SEMI_STRUCTURED, *BSR_SEMI_STRUCTURED, *shared):
        monkeypatch.setattr(module, "kernel", lambda *a, **d: (a[0], d), raising=False)
        monkeypatch.setattr(
            module, "Launch", lambda kernel, grid, *rest: (*kernel, grid, rest), raising=False
        )
    monkeypatch.setattr(few_columns, "workspace", lambda nbytes: zeros((nbytes,), "uint8"))
    monkeypatch.setattr(view, "_pack", lambda *_: bytes(56))  # of NumPy's arrays, as well
    use(H200)
    return use


def pattern_of(block_rows, block_columns, bm, bk, per_row=3):
    indptr = np.arange(block_rows + 1) * per_row
    indices = np.tile(np.arange(per_row), block_rows)
    return Pattern(indptr, indices, (block_rows * bm, block_columns * bk), (bm, bk))


def bsr(dtype, blocksize, n, *, order="C", alpha=1, allow_tf32=False, lengths=None):
    pattern = pattern_of(8, 16, *blocksize)
    if lengths is not None:
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        indices = np.zeros(indptr[-1], int)
        rows, (bm, bk) = len(lengths), blocksize
        pattern = Pattern(indptr, indices, (rows * bm, 16 * bk), blocksize)
    out_dtype = "int32" if dtype == "int8" else dtype
    return product_of(
        zeros((pattern.shape[0], n), out_dtype),
        pattern,
        zeros((pattern.nnzb, *blocksize), dtype),
        zeros((pattern.shape[1], n), dtype, order),
        Epilogue(alpha=alpha),
        allow_tf32=allow_tf32,
    )


@pytest.mark.parametrize(
    ("dtype", "blocksize", "n", "keywords", "sources"),
    [
        ("float64", (4, 4), 8, {}, ["bsr_addmm_vector_mma"]),
        ("float64", (3, 3), 1, {}, ["bsr_addmm_vector"]),
        ("float32", (4, 4), 4, {}, ["bsr_addmm_vector_mma"]),
        ("float32", (4, 4), 8, {}, ["bsr_addmm_vector"]),
        ("float32", (3, 3), 1, {"lengths": [900, *[1] * 60]}, ["bsr_addmm_vector", "_reduce"]),
        ("float16", (16, 16), 64, {}, ["bsr_addmm_skinny"]),
        # Many rows are left to others, but long ones with few columns.
        ("float16", (16, 16), 16, {"lengths": [4] * 600}, ["bsr_addmm_sm80"]),
        ("float16", (16, 16), 16, {"lengths": [40] * 600}, ["bsr_addmm_skinny"]),
        ("float16", (2, 2), 128, {"lengths": [16] * 60}, ["bsr_addmm_sm80"]),
        ("float64", (32, 32), 64, {}, ["bsr_addmm_f64"]),
        ("float32", (32, 32), 64, {}, ["bsr_addmm_f32"]),
        ("float32", (32, 30), 64, {"allow_tf32": True}, ["bsr_addmm_sm80"]),
        ("complex64", (32, 32), 64, {}, ["bsr_addmm_simt"]),
        ("float16", (16, 16), 64, {"alpha": 0}, ["bsr_addmm_sm80"]),
        ("float16", (2, 2), 64, {"alpha": 0}, ["bsr_addmm_sm80"]),
        # Few columns: where a lane of `vector` has many sums, whatever multiplies is faster ...
        ("float16", (8, 8), 5, {}, ["bsr_addmm_vector"]),
        ("float16", (24, 24), 5, {}, ["bsr_addmm_sm80"]),
        ("float16", (40, 40), 5, {}, ["bsr_addmm_sm80"]),
        ("float16", (40, 40), 2, {}, ["bsr_addmm_vector"]),
        ("float16", (20, 20), 4, {}, ["bsr_addmm_vector"]),
        ("float16", (20, 20), 5, {}, ["bsr_addmm_sm80"]),
        ("int8", (64, 64), 5, {}, ["bsr_addmm_sm80"]),
        ("float32", (18, 18), 4, {}, ["bsr_addmm_vector"]),
        ("float32", (18, 18), 8, {}, ["bsr_addmm_f32"]),
        ("float32", (24, 24), 8, {}, ["bsr_addmm_vector"]),
        ("float32", (64, 64), 3, {}, ["bsr_addmm_f32"]),
        ("float64", (20, 20), 5, {}, ["bsr_addmm_f64"]),
        ("float64", (6, 6), 8, {}, ["bsr_addmm_vector"]),
        ("float64", (6, 6), 12, {}, ["bsr_addmm_f64"]),
        ("float64", (64, 64), 1, {}, ["bsr_addmm_f64"]),
        # ... than SIMT code, but for copies by element to few rows.
        ("float16", (12, 12), 12, {}, ["bsr_addmm_simt"]),
        ("float16", (3, 3), 40, {}, ["bsr_addmm_sm80"]),
        ("float16", (5, 5), 512, {"lengths": [16] * 60}, ["bsr_addmm_sm80"]),
        ("int8", (5, 5), 40, {}, ["bsr_addmm_sm80"]),
        ("float32", (2, 2), 512, {}, ["bsr_addmm_f32"]),
        ("float64", (2, 2), 40, {}, ["bsr_addmm_f64"]),
    ],
)
def test_who_multiplies(device, dtype, blocksize, n, keywords, sources):
    product = bsr(dtype, blocksize, n, **keywords)
    launched = _dispatch.works_of(BSR, product, None)
    assert len(launched) == len(sources)
    for (source, defines, (blocks,), _), expected in zip(launched, sources, strict=True):
        assert source.endswith(expected) and blocks > 0 and defines["OUT"]


def test_other_devices_take_other_paths(device):
    product = bsr("float64", (4, 4), 8)
    for facts, source in ((A100, "bsr_addmm_vector_mma"), (GEFORCE, "bsr_addmm_vector")):
        device(facts)
        assert _dispatch.works_of(BSR, product, None)[0][0] == source


def test_rows_are_cut_for_small_blocks_alone(device, monkeypatch):
    """It waits for the device: a call that another path serves must not."""
    monkeypatch.setattr(few_columns, "balanced_splits", lambda pattern: pytest.fail("was asked"))
    for dtype, n in (("float64", 64), ("float32", 64), ("float16", 64), ("complex64", 64)):
        _dispatch.works_of(BSR, bsr(dtype, (32, 32), n), None)
    _dispatch.works_of(BSR, bsr("float16", (16, 16), 16), None)


def test_a_path_that_is_named(device):
    product = bsr("float16", (16, 16), 64)
    config = {"path": "simt", "tile_n": 16}
    ((source, defines, _, _),) = _dispatch.works_of(BSR, product, config)
    assert source == "bsr_addmm_simt" and defines["TILE_N"] == 16
    for wrong in ("fma", "vector", "mma_f64"):
        with pytest.raises(ConfigError, match=f"device are not for '{wrong}'"):
            _dispatch.works_of(BSR, product, {"path": wrong})
    with pytest.raises(ConfigError, match="one of 16, 32, 64, got 8"):
        _dispatch.works_of(BSR, product, {"path": "skinny", "tile_m": 8})
    with pytest.raises(ConfigError, match="the fields tile_m, tile_n of this path"):
        _dispatch.works_of(BSR, product, {"path": "simt", "stages": 2})
    usual = _dispatch.works_of(BSR, product, None)
    assert _dispatch.works_of(BSR, product, {"path": "model"})[0][:2] == usual[0][:2]


def test_what_was_measured_best(device):
    product = bsr("float16", (16, 16), 64)
    usual = _dispatch.works_of(BSR, product, None)[0][:2]
    for unfit in (None, {"path": "fma"}, {"path": "skinny", "tile_m": 8}):
        assert _dispatch.tuned_works(BSR, product, unfit)[0][:2] == usual
    config = {"path": "simt", "tile_n": 16}
    source, defines, *_ = _dispatch.tuned_works(BSR, product, config)[0]
    assert source == "bsr_addmm_simt" and defines["TILE_N"] == 16


def test_more_tiles_than_a_grid_has_room_for(device, monkeypatch):
    device(A100)
    product = bsr("float32", (16, 16), 64, allow_tf32=True, order="F")
    assert _dispatch.works_of(BSR, product, None)[0][0] == "bsr_addmm_sm80"
    monkeypatch.setattr(bsr_addmm_sm80, "MAX_GRID", 7)  # there are eight
    assert _dispatch.works_of(BSR, product, None)[0][0] == "bsr_addmm_simt"
    with pytest.raises(ConfigError, match="not for 'mma'"):
        _dispatch.works_of(BSR, product, {"path": "mma"})


@pytest.mark.parametrize(
    ("dtype", "facts", "source"),
    [
        ("float16", A100, "semi_structured_addmm_sm80"),
        ("float32", A100, "semi_structured_addmm_simt"),
        ("float8_e4m3fn", A100, "semi_structured_addmm_simt"),
    ],
)
def test_products_of_2_4(device, dtype, facts, source):
    device(facts)
    stored = "uint8" if dtype == "float8_e4m3fn" else dtype
    product = product_24_of(
        zeros((64, 40), "float32"),
        zeros((64, 64), stored),
        zeros((64, 8), "int16"),
        zeros((128, 40), stored, "F"),
        Epilogue(),
        dtype_of(dtype),
        False,
    )
    ((found, defines, _, _),) = _dispatch.works_of(SEMI_STRUCTURED, product, None)
    assert found == source and defines["TILE_N"]
