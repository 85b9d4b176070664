"""Sampled products' kernels on the host (tools/emulator)."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import laid_out
from host_engine import Host
from sampled_path import stored
from sparsegpu.testing import random_blocks, random_values
from tools.emulator.sampled import emulated_sampled_addmm

SOURCES = {
    "simt": "bsr_sampled_addmm_simt",
    "fma": "bsr_sampled_addmm_f32",
    "mma_f64": "bsr_sampled_addmm_f64",
    "mma": "bsr_sampled_addmm_sm80",
    "wgmma": "bsr_sampled_addmm_sm90",
}
#: Few, as each may take seconds to build: path, fields, dtype, block, blocks, K, layouts, more.
CASES = [
    ("mma", {}, "float16", (16, 16), (40, 12), 72, ("rows", "columns"), {"beta": 2}),
    (
        "mma",
        {"tile_m": 64, "tile_n": 64},
        "bfloat16",
        (160, 200),
        (2, 3),
        40,
        ("columns", "rows"),
        {"alpha": -3},
    ),
    ("mma", {"stages": 2}, "float16", (20, 12), (5, 30), 33, ("backwards", "skewed"), {}),
    ("mma", {}, "int8", (16, 32), (5, 20), 80, ("rows", "rows"), {"beta": 1}),
    ("mma", {}, "float32", (32, 16), (5, 20), 40, ("columns", "columns"), {}),
    ("wgmma", {}, "float16", (16, 16), (5, 40), 200, ("columns", "rows"), {"beta": 2}),
    ("wgmma", {"stages": 2}, "bfloat16", (160, 192), (3, 5), 330, ("rows", "rows"), {"alpha": -3}),
    ("wgmma", {}, "int8", (32, 16), (5, 20), 200, ("rows", "columns"), {"beta": 1}),
    ("wgmma", {}, "float32", (32, 16), (5, 20), 0, ("rows", "columns"), {"beta": 2}),
    # wide tiles, whole panels and parts of them, parts of a block as units, chunks of full tiles
    ("wgmma", {"even": 1}, "bfloat16", (128, 128), (3, 7), 200, ("rows", "rows"), {"beta": 2}),
    ("wgmma", {"tile_n": 512}, "float16", (64, 64), (4, 30), 330, ("rows", "rows"), {}),
    ("wgmma", {"tile_n": 384}, "float16", (24, 40), (300, 3), 72, ("columns", "skewed"), {}),
    ("wgmma", {"even": 0}, "bfloat16", (160, 192), (3, 5), 72, ("rows", "rows"), {"beta": 2}),
    ("wgmma", {"even": 0, "tile_n": 128}, "float16", (16, 16), (9, 30), 1, ("rows", "columns"), {}),
    ("wgmma", {"tile_n": 128}, "float16", (16, 136), (3, 4), 72, ("rows", "columns"), {}),
    ("wgmma", {}, "bfloat16", (40, 32), (3, 12), 200, ("rows", "rows"), {"alpha": -1}),
    ("wgmma", {"tile_n": 128}, "float16", (16, 48), (3, 6), 72, ("rows", "rows"), {}),
    # rows that no tensor map describes
    ("wgmma", {}, "float16", (16, 16), (5, 40), 40, ("upside down", "upside down"), {}),
    ("wgmma", {}, "bfloat16", (64, 64), (2, 3), 1, ("columns", "upside down"), {"beta": 2}),
    # K is split: parts of one slice or more, the last one shorter, tiles without a last part
    ("mma", {"split_k": 4}, "float16", (16, 16), (3, 12), 172, ("rows", "columns"), {"beta": 2}),
    ("mma", {"split_k": 2}, "int8", (16, 32), (2, 9), 80, ("skewed", "rows"), {"alpha": -1}),
    ("mma", {"split_k": 8}, "float16", (160, 200), (2, 3), 257, ("columns", "rows"), {"beta": 1}),
    ("wgmma", {"split_k": 4}, "bfloat16", (16, 64), (3, 7), 330, ("rows", "rows"), {"beta": -1}),
    ("wgmma", {"split_k": 2}, "float32", (32, 16), (3, 9), 70, ("rows", "columns"), {}),
    (
        *("wgmma", {"split_k": 2}, "float16", (16, 16), (3, 9), 200, ("rows", "columns")),
        {"alpha": 0, "beta": 2},
    ),
    ("simt", {}, "float16", (3, 8), (5, 7), 21, ("rows", "rows"), {"beta": 2}),
    # every order of copies, tiles of every number of rows, parts of blocks, of tiles and of slices
    ("fma", {}, "float32", (16, 16), (40, 12), 72, ("rows", "rows"), {"beta": 2}),
    ("fma", {"stages": 2}, "float32", (32, 16), (5, 20), 33, ("columns", "columns"), {}),
    ("fma", {}, "float32", (20, 12), (5, 30), 72, ("rows", "columns"), {"alpha": -3}),
    ("fma", {}, "float32", (5, 7), (9, 40), 40, ("backwards", "skewed"), {"beta": 1}),
    ("fma", {"tile_n": 128}, "float32", (160, 200), (2, 3), 40, ("columns", "rows"), {"beta": 2}),
    ("fma", {"tile_m": 128}, "float32", (128, 64), (2, 5), 40, ("columns", "rows"), {}),
    (
        "fma",
        {"tile_m": 24, "tile_n": 256},
        "float32",
        (23, 1),
        (3, 300),
        9,
        ("strided", "rows"),
        {},
    ),
    ("fma", {"split_k": 4}, "float32", (48, 24), (3, 7), 330, ("rows", "skewed"), {"beta": -1}),
    (
        *("fma", {"split_k": 2}, "float32", (16, 16), (3, 9), 200, ("rows", "columns")),
        {"alpha": 0, "beta": 2},
    ),
    ("mma_f64", {}, "float64", (16, 16), (40, 12), 72, ("rows", "rows"), {"beta": 2}),
    ("mma_f64", {"stages": 2}, "float64", (32, 15), (5, 20), 33, ("columns", "columns"), {}),
    ("mma_f64", {}, "float64", (4, 7), (9, 40), 40, ("backwards", "skewed"), {"alpha": -3}),
    (
        "mma_f64",
        {"tile_n": 64},
        "float64",
        (160, 200),
        (2, 3),
        33,
        ("aligned", "rows"),
        {"beta": 1},
    ),
    ("mma_f64", {"split_k": 4}, "float64", (48, 24), (3, 7), 330, ("rows", "rows"), {"beta": -1}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sampled_addmm(directory, rng, case):
    path, fields, dtype, (bm, bn), (rows, columns), k, layouts, scalars = case
    shape = (rows * bm, columns * bn)
    scalars = {"alpha": 1, "beta": 0, **scalars}
    triple = random_blocks(
        rng, shape, (bm, bn), dtype=dtype, density=0.4, batch=(2,), small_integers=True
    )
    sparse = sg.bsr_array(triple, shape=shape)
    mat1, mat2 = (
        random_values(rng, s, dtype, small_integers=True) for s in ((shape[0], k), (k, shape[1]))
    )
    a, b = (laid_out(Host, x, by) for x, by in zip((mat1, mat2), layouts, strict=True))
    with emulated_sampled_addmm(directory) as launched:
        out = sg.sampled_addmm(
            sparse, a, b, allow_tf32=True, config={"path": path, **fields}, **scalars
        )
    exact = scalars["alpha"] * stored(
        mat1.astype(np.float64) @ mat2.astype(np.float64), out.pattern, Host
    )
    exact += scalars["beta"] * triple[0].astype(np.float64)
    if dtype == "int8":
        exact = np.clip(exact, -128, 127)
    np.testing.assert_array_equal(out.data, exact.astype(out.dtype))
    parts = {"bsr_sampled_addmm_reduce": 1} if "split_k" in fields and scalars["alpha"] else {}
    assert launched == {SOURCES[path]: 1, **parts}


@pytest.mark.parametrize(
    ("path", "dtype", "k"),
    [("mma", "float16", 200), ("wgmma", "float16", 200), ("fma", "float32", 56)]
    + [("mma_f64", "float64", 56)],
)
def test_warps_ahead_of_others(tmp_path, rng, monkeypatch, path, dtype, k):
    """In any order of the threads, as far as barriers leave one."""
    monkeypatch.setenv("EMULATOR_ORDER", "1")  # a kernel reads it when it is loaded
    case = path, {}, dtype, (64, 64), (3, 5), k, ("rows", "rows"), {"beta": 2}
    test_sampled_addmm(tmp_path, rng, case)


@pytest.mark.parametrize("even", [0, 1])
def test_block_rows_far_apart(directory, rng, even):
    """Between two with blocks lie more empty ones than a warp has lanes."""
    counts = np.zeros(200, np.int64)
    counts[[1, 60, 61, 130, 199]] = 4, 3, 0, 5, 4
    indices = np.concatenate([rng.permutation(6)[:n] for n in counts]).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    mat1, mat2 = (
        random_values(rng, s, "float16", small_integers=True) for s in ((1600, 40), (40, 96))
    )
    blocks = np.zeros((16, 8, 16), np.float16), indices, indptr
    sparse = sg.bsr_array(blocks, shape=(1600, 96))
    with emulated_sampled_addmm(directory):
        out = sg.sampled_addmm(sparse, mat1, mat2, beta=0, config={"path": "wgmma", "even": even})
    exact = stored(mat1.astype(np.float64) @ mat2.astype(np.float64), out.pattern, Host)
    np.testing.assert_array_equal(out.data, exact.astype(out.dtype))
