"""The kernels of scatter_mm, emulated on the host (tools/emulator)."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from scatter_path import hand_made
from sparsegpu.testing import random_values
from test_scatter_mm import loop
from tools.emulator.operations import emulated_scatter_mm

SOURCES = {
    "simt": "scatter_mm_simt",
    "mma": "scatter_mm_sm80",
    "wgmma": "scatter_mm_sm90",
    "fma": "scatter_mm_f32",
    "mma_f64": "scatter_mm_f64",
}
#: Few, as each may take seconds to build: path, format, dtype, accumulators, block (Ms, Ks), Ns,
#: splits, fields.
CASES = [
    ("mma", "scatter_mm", "bfloat16", "bfloat16", (64, 64), 64, 1, {}),
    # tiles of more than rows and columns
    ("mma", "scatter_mm", "float16", "float32", (20, 24), 40, 1, {}),
    # several parts a tile, in groups of rows that do not divide them
    ("mma", "bsr_strided_mm", "bfloat16", "float32", (80, 16), 72, 2, {}),
    (
        *("mma", "bsr_strided_mm", "bfloat16", "float32", (80, 16), 72, 2),
        {"tile_m": 16, "tile_n": 32, "stages": 2, "group_size": 2},
    ),
    ("mma", "bsr_strided_mm", "float16", "float16", (16, 16), 12, 3, {}),  # off the vectors
    ("mma", "bsr_strided_mm_compressed", "bfloat16", "bfloat16", (16, 16), 16, 3, {}),
    ("mma", "scatter_mm", "int8", "int32", (20, 48), 40, 1, {}),
    ("mma", "bsr_strided_mm", "int8", "int32", (80, 16), 36, 2, {}),
    ("mma", "bsr_strided_mm_compressed", "int8", "float32", (16, 128), 24, 3, {"stages": 2}),
    ("wgmma", "scatter_mm", "bfloat16", "bfloat16", (64, 64), 64, 1, {}),
    # several parts a tile, and panels that are part empty
    ("wgmma", "bsr_strided_mm", "float16", "float32", (128, 64), 200, 2, {"tile_n": 128}),
    ("wgmma", "bsr_strided_mm_compressed", "bfloat16", "float32", (64, 128), 72, 3, {"stages": 2}),
    ("simt", "bsr_strided_mm_compressed", "float32", "float32", (75, 3), 40, 2, {"tile_m": 16}),
    (
        *("simt", "scatter_mm", "float64", "float64", (9, 7), 20, 1),
        {"tile_m": 4, "tile_n": 16, "group_size": 2},
    ),
    ("simt", "bsr_strided_mm", "int8", "int32", (3, 5), 4, 3, {}),
    # several parts a tile, slices that end with a block, others off the vectors
    ("fma", "bsr_strided_mm", "float32", "float32", (72, 22), 24, 2, {"tile_n": 16, "stages": 2}),
    ("fma", "scatter_mm", "float32", "float16", (64, 32), 128, 1, {}),
    ("fma", "bsr_strided_mm_compressed", "float32", "float32", (16, 16), 16, 3, {}),
    ("fma", "bsr_strided_mm", "float32", "bfloat16", (9, 3), 13, 2, {}),  # by element
    (
        *("mma_f64", "bsr_strided_mm", "float64", "float64", (72, 20), 24, 2),
        {"tile_m": 16, "tile_n": 16, "group_size": 2, "stages": 3},
    ),
    ("mma_f64", "scatter_mm", "float64", "float64", (32, 16), 64, 1, {}),
    ("mma_f64", "bsr_strided_mm_compressed", "float64", "float64", (17, 9), 31, 2, {}),
]


def operands_of(rng, case):
    """Return the operands of a case, what is added to, and the exact result."""
    _, name, dtype, accumulator, block, ns, split, _ = case
    blocks, others, lists, shape = hand_made(rng, name, dtype, block, ns, split)
    start = random_values(rng, shape, accumulator, small_integers=True)
    exact, _ = loop(blocks, others, lists, start)
    return blocks, others, lists, start, exact.astype(start.dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_scatter_mm(directory, rng, case):
    blocks, others, lists, start, exact = operands_of(rng, case)
    config = {"path": case[0], **case[-1]}
    with emulated_scatter_mm(directory) as launched:
        result = sparsegpu.scatter_mm(
            blocks, others, lists, accumulators=start.copy(), config=config
        )
    assert launched == {SOURCES[case[0]]: 1}
    assert (result == exact).all()


@pytest.mark.parametrize("case", [CASES[1], CASES[7], CASES[9], CASES[15], CASES[19]], ids=str)
def test_accumulators_of_any_strides(directory, rng, case):
    """With holes, where nothing is written, and the last matrix first."""
    blocks, others, lists, start, exact = operands_of(rng, case)
    count, m, n = start.shape
    memory = np.full((count, 2 * m, 3 * n + 1), 7, start.dtype)
    sums = memory[::-1, ::2, 1::3]
    sums[...] = start
    config = {"path": case[0], **case[-1]}
    with emulated_scatter_mm(directory) as launched:
        sparsegpu.scatter_mm(blocks, others, lists, accumulators=sums, config=config)
    assert launched == {SOURCES[case[0]]: 1}
    assert (sums == exact).all()
    sums[...] = 7
    assert (memory == 7).all()


@pytest.mark.parametrize("case", [CASES[15], CASES[19]], ids=str)
def test_operands_of_any_strides(directory, rng, case):
    """At full precision: by columns, and elements apart."""
    blocks, others, lists, start, exact = operands_of(rng, case)

    def by_column(x):
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)

    def apart(x):
        memory = np.full((*x.shape[:-1], 2 * x.shape[-1] + 1), 7, x.dtype)
        memory[..., 1::2] = x
        return memory[..., 1::2]

    config = {"path": case[0], **case[-1]}
    for lay in (by_column, apart):
        with emulated_scatter_mm(directory) as launched:
            result = sparsegpu.scatter_mm(
                lay(blocks), lay(others), lists, accumulators=start.copy(), config=config
            )
        assert launched == {SOURCES[case[0]]: 1}
        assert (result == exact).all()


def test_what_does_not_lie_in_vectors_is_not_for_tensor_cores(directory, rng):
    blocks, others, lists, start, exact = operands_of(rng, CASES[4])
    shifted = np.zeros((*others.shape[:-1], others.shape[-1] + 1), others.dtype)[..., 1:]
    shifted[...] = others
    with emulated_scatter_mm(directory) as launched:
        with pytest.raises(ValueError, match="these operands or this device are not for 'mma'"):
            sparsegpu.scatter_mm(blocks, shifted, lists, config={"path": "mma"})
        result = sparsegpu.scatter_mm(blocks, shifted, lists, accumulators=start.copy())
    assert launched == {"scatter_mm_simt": 1}
    assert (result == exact).all()


@pytest.mark.parametrize(
    ("tile", "source"),
    [
        ({"TILE_M": 64, "TILE_N": 64, "GROUP_SIZE": 2}, "scatter_mm_sm80"),
        ({"TILE_M": 32}, "scatter_mm_sm80"),
        ({"TILE_M": 128}, None),
        ({"TILE_N": 2}, None),
    ],
)
def test_tiles_that_lists_ask_for(directory, rng, tile, source):
    """They reach the kernel, or the call is refused before anything is written."""
    a = sparsegpu.random_bsr((256, 192), (64, 64), 0.5, dtype="bfloat16", rng=rng)
    a.data[...] = random_values(rng, a.data.shape, "bfloat16", small_integers=True)
    x = random_values(rng, (192, 64), "bfloat16", small_integers=True)
    exact = a.toarray().astype("float64") @ x.astype("float64")
    for name in ("bsr_strided_mm_compressed", "bsr_strided_mm", "scatter_mm"):
        lists = sparsegpu.bsr_scatter_mm_indices_data(a, x, name, SPLIT_N=1, **tile)
        out = np.full((256, 64), 7, np.float32)
        with emulated_scatter_mm(directory) as launched:
            if source is None:
                with pytest.raises(ValueError, match="'indices_data': expected TILE_M and TILE_N"):
                    sparsegpu.bsr_scatter_mm(a, x, lists, out)
                assert (out == 7).all() and not launched
                continue
            sparsegpu.bsr_scatter_mm(a, x, lists, out)
        assert launched == {source: 1}
        assert (out == exact).all()
        with emulated_scatter_mm(directory) as launched:  # a configuration goes before them
            sparsegpu.bsr_scatter_mm(a, x, lists, out, config={"path": "mma", "tile_m": 16})
        assert launched == {"scatter_mm_sm80": 1}
        assert (out == exact).all()
