"""Dense to blocks and back, and blocks among themselves, in every engine."""

from __future__ import annotations

import importlib
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu
from covering import covered
from properties import drawn
from sparsegpu._arrays import dtype_of
from sparsegpu.pattern import Pattern
from sparsegpu.testing import dense_from_blocks, random_blocks, random_values

DTYPES = [
    "float16", "bfloat16", "float32", "float64", "int8", "int32", "bool", "complex64", "complex128",
]  # fmt: skip
BLOCKSIZES = [(1, 1), (2, 3), (4, 4), (5, 1), (1, 7), (16, 16), (33, 40), (3, 130), (256, 2)]
# Blocks of every kind with elements of four bytes and of one, in pieces of which rows are copied;
# of the other dtypes kernels see their size and their arithmetic, which two blocks show.
CASES = [
    *product(("float32", "int8"), BLOCKSIZES),
    *product([d for d in DTYPES if d not in {"float32", "int8"}], [(2, 3), (16, 16)]),
]


def functions(engine):
    """The engine's own conversions, over validated arrays."""
    return importlib.import_module(f"sparsegpu.engines.{engine.name}.convert")


def laid_out(engine, array: np.ndarray, layout: str):
    """Return the values of ``array`` on the engine's side, in the given memory layout."""
    if layout == "rows":
        return engine.array(np.ascontiguousarray(array))
    if layout == "columns":
        turned = np.ascontiguousarray(array.swapaxes(-1, -2))
        return engine.array(turned).swapaxes(-1, -2)
    *batch, m, k = array.shape
    spread = engine.xp.zeros((*batch, 2 * m + 1, 3 * k), array.dtype)
    view = spread[..., 1::2, ::-3]
    view[...] = engine.array(np.ascontiguousarray(array))
    return view


LAYOUTS = ["rows", "columns", "strided"]


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(np.uint8)


def few_nonzeros(rng, shape, blocksize, dtype) -> np.ndarray:
    """About one nonzero for every two blocks, negative zeros among the rest."""
    count = shape[-2] * shape[-1] / (blocksize[0] * blocksize[1])
    keep = rng.random(shape) < 0.5 * count / (shape[-2] * shape[-1])
    values = random_values(rng, shape, dtype)
    if np.dtype(dtype).kind not in "iub":
        return np.where(keep, values, values.dtype.type(-0.0))
    return np.where(keep, values, np.zeros((), values.dtype))


def mask_by_loop(dense: np.ndarray, blocksize: tuple[int, int]) -> np.ndarray:
    bm, bk = blocksize
    *batch, m, k = dense.shape
    mask = np.zeros((*batch, m // bm, k // bk), bool)
    for *b, r, c in np.argwhere(dense != 0):
        mask[(*b, r // bm, c // bk)] = True
    return mask


@pytest.mark.parametrize(("dtype", "blocksize"), CASES)
def test_block_mask(engine, rng, dtype, blocksize):
    shape = (3 * blocksize[0], 5 * blocksize[1])
    dense = few_nonzeros(rng, shape, blocksize, dtype_of(dtype))
    array = engine.array(dense)
    with engine.runs("bsr_block_mask"):
        mask = functions(engine).block_mask(array, blocksize)
    assert mask.dtype == bool
    assert (engine.host(mask) == mask_by_loop(dense, blocksize)).all()


@covered(layout=LAYOUTS, blocksize=[(1, 1), (2, 3), (20, 4)])
def test_block_mask_of_any_layout(engine, rng, layout, blocksize):
    shape = (2, 3, 2 * blocksize[0], 300 * blocksize[1])
    dense = few_nonzeros(rng, shape, blocksize, np.float32)
    array = laid_out(engine, dense, layout)
    with engine.runs("bsr_block_mask"):
        mask = functions(engine).block_mask(array, blocksize)
    assert (engine.host(mask) == mask_by_loop(dense, blocksize)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_nan_and_subnormals_are_nonzero_and_negative_zero_is_not(engine, dtype):
    dtype = dtype_of(dtype)
    real = np.dtype(np.float32) if dtype.kind == "c" else dtype
    dense = np.full((2, 8), -0.0, dtype)
    dense[0, 2], dense[1, 4], dense[1, 7] = np.nan, ml_dtypes.finfo(real).smallest_subnormal, np.inf
    if dtype.kind == "c":
        dense[0, 7] = 1j
    array = engine.array(dense)
    with engine.runs("bsr_block_mask"):
        mask = functions(engine).block_mask(array, (1, 2))
    expected = [[False, True, False, dtype.kind == "c"], [False, False, True, True]]
    assert engine.host(mask).tolist() == expected


def pattern_of(engine, indices, indptr, shape, blocksize) -> Pattern:
    return Pattern(engine.array(indptr), engine.array(indices), shape, blocksize)


@pytest.mark.parametrize(("dtype", "blocksize"), CASES)
def test_gather(engine, rng, dtype, blocksize):
    bm, bk = blocksize
    shape = (4 * bm, 6 * bk)
    _, indices, indptr = random_blocks(rng, shape, blocksize, duplicates=True, density=0.5)
    dense = random_values(rng, shape, dtype)
    pattern, array = pattern_of(engine, indices, indptr, shape, blocksize), engine.array(dense)
    out = engine.xp.empty((len(indices), bm, bk), dense.dtype)
    with engine.runs("bsr_gather"):
        functions(engine).gather_blocks(out, pattern, array)
    got = engine.host(out)
    for i in range(4):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            block = dense[i * bm : (i + 1) * bm, j * bk : (j + 1) * bk]
            assert (bits(got[p]) == bits(block)).all()


@covered(layout=LAYOUTS, pattern_batch=[(), (2,), (3, 1), (3, 2)])
def test_gather_broadcasts(engine, rng, layout, pattern_batch):
    shape, (bm, bk) = (9, 20), (3, 4)
    _, indices, indptr = random_blocks(rng, shape, (bm, bk), batch=pattern_batch)
    dense = random_values(rng, (3, 2, *shape), "float32")
    pattern = pattern_of(engine, indices, indptr, shape, (bm, bk))
    array = laid_out(engine, dense, layout)
    out = engine.xp.empty((3, 2, indices.shape[-1], 2 * bm, bk), dense.dtype)[..., ::2, :]
    with engine.runs("bsr_gather"):
        functions(engine).gather_blocks(out, pattern, array)
    got = engine.host(out)
    indices = np.broadcast_to(indices, (3, 2, indices.shape[-1]))
    indptr = np.broadcast_to(indptr, (3, 2, indptr.shape[-1]))
    for b in np.ndindex(3, 2):
        for i in range(3):
            for p in range(indptr[b][i], indptr[b][i + 1]):
                j = indices[b][p]
                expected = dense[b][i * bm : (i + 1) * bm, j * bk : (j + 1) * bk]
                assert (got[b][p] == expected).all()


@pytest.mark.parametrize(("dtype", "blocksize"), CASES)
def test_scatter_writes_everything(engine, rng, dtype, blocksize):
    """Unsorted, with repeated blocks and empty rows, into memory full of something else."""
    shape = (4 * blocksize[0], 6 * blocksize[1])
    data, indices, indptr = random_blocks(
        rng, shape, blocksize, dtype=dtype, duplicates=True, density=0.5, small_integers=True
    )
    pattern, blocks = pattern_of(engine, indices, indptr, shape, blocksize), engine.array(data)
    out = engine.xp.empty(shape, data.dtype)
    out[...] = 77
    with engine.runs("bsr_scatter"):
        functions(engine).scatter_blocks(out, pattern, blocks)
    expected = dense_from_blocks(data, indices, indptr, shape).astype(data.dtype)
    assert (engine.host(out) == expected).all()


@covered(
    layout=LAYOUTS,
    pattern_batch=[(), (2,), (3, 1), (3, 2)],
    blocksize=[(3, 4), (1, 1), (40, 2)],
)
def test_scatter_broadcasts(engine, rng, layout, pattern_batch, blocksize):
    shape = (3 * blocksize[0], 5 * blocksize[1])
    data, indices, indptr = random_blocks(
        rng, shape, blocksize, batch=pattern_batch, duplicates=True, small_integers=True
    )
    pattern = pattern_of(engine, indices, indptr, shape, blocksize)
    out = laid_out(engine, np.full((3, 2, *shape), 77, np.float32), layout)
    blocks = engine.xp.zeros((*data.shape[:-1], 2 * data.shape[-1] + 1), data.dtype)[..., 1::2]
    blocks[...] = engine.array(data)
    with engine.runs("bsr_scatter"):
        functions(engine).scatter_blocks(out, pattern, blocks)
    expected = dense_from_blocks(data, indices, indptr, shape)
    assert (engine.host(out) == np.broadcast_to(expected, out.shape)).all()


def test_scatter_of_more_columns_than_a_tile(engine, rng):
    shape = (2, 1000)
    data, indices, indptr = random_blocks(rng, shape, (1, 1), duplicates=True, density=0.7)
    pattern, blocks = pattern_of(engine, indices, indptr, shape, (1, 1)), engine.array(data)
    out = engine.xp.empty(shape, np.float32)
    with engine.runs("bsr_scatter"):
        functions(engine).scatter_blocks(out, pattern, blocks)
    exact = dense_from_blocks(data, indices, indptr, shape)
    size = dense_from_blocks(np.abs(data), indices, indptr, shape)
    assert (np.abs(engine.host(out) - exact) <= 2 * 10 * 2.0**-24 * size).all()


def test_scatter_of_64_bit_indices(engine, rng):
    data, indices, indptr = random_blocks(rng, (6, 8), (2, 2), small_integers=True)
    pattern = pattern_of(engine, indices, indptr, (6, 8), (2, 2))
    pattern._indices, pattern._indptr = (
        a.astype(np.int64) for a in (pattern.indices, pattern.indptr)
    )
    blocks, out = engine.array(data), engine.xp.empty((6, 8), np.float32)
    with engine.runs("bsr_scatter"):
        functions(engine).scatter_blocks(out, pattern, blocks)
    with engine.runs("bsr_gather"):
        back = engine.xp.empty(data.shape, np.float32)
        functions(engine).gather_blocks(back, pattern, out)
    assert (engine.host(out) == dense_from_blocks(data, indices, indptr, (6, 8))).all()
    assert (engine.host(back) == data).all()


def test_special_values_pass_through_scatter(engine):
    values = np.array([[-0.0, np.nan, -np.inf, 1e-45]], np.float32)
    pattern = pattern_of(engine, np.array([1]), np.array([0, 1]), (1, 8), (1, 4))
    blocks, out = engine.array(values[None]), engine.xp.empty((1, 8), np.float32)
    with engine.runs("bsr_scatter"):
        functions(engine).scatter_blocks(out, pattern, blocks)
    got = engine.host(out)
    np.testing.assert_array_equal(got, np.concatenate([np.zeros((1, 4)), values], axis=1))


def repeated(dtype, values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One 1x1 position stored several times."""
    data = np.array(values).astype(dtype_of(dtype)).reshape(-1, 1, 1)
    return data, np.zeros(len(data), np.int32), np.array([0, len(data)], np.int32)


REPEATED = [
    ("float16", [2048, 1, 1], 2050),  # 2048 + 1 alone would round back to 2048
    ("bfloat16", [256, 1, 1], 258),
    ("int8", [100, 100], 127),
    ("int8", [100, 100, -100], 100),
    ("int8", [-100, -100], -128),
    ("bool", [True, True], True),
    ("bool", [False, False], False),
    ("complex64", [1 + 2j, 3 - 5j], 4 - 3j),
    ("float32", [1, np.nan], np.nan),
]


@pytest.mark.parametrize("dtype, values, expected", REPEATED)
def test_repeated_blocks_are_summed_once_rounded(engine, dtype, values, expected):
    data, indices, indptr = repeated(dtype, values)
    pattern, blocks = pattern_of(engine, indices, indptr, (1, 1), (1, 1)), engine.array(data)
    out = engine.xp.empty((1, 1), data.dtype)
    with engine.runs("bsr_scatter"):
        functions(engine).scatter_blocks(out, pattern, blocks)
    summed = engine.xp.empty((1, 1, 1), data.dtype)
    order, starts = engine.array(np.arange(len(data))), engine.array(np.array([0, len(data)]))
    with engine.runs("bsr_sum_blocks"):
        functions(engine).sum_blocks(summed, blocks, order, starts)
    np.testing.assert_array_equal(engine.host(out).ravel(), np.array([expected], data.dtype))
    np.testing.assert_array_equal(engine.host(summed).ravel(), np.array([expected], data.dtype))


@pytest.mark.parametrize(
    ("dtype", "blocksize"),
    [*CASES, *product(("float16", "complex64"), [(64, 100), (2, 2), (48, 16), (16, 144)])],
)
def test_transpose_blocks(engine, rng, dtype, blocksize):
    bm, bk = blocksize
    data = random_values(rng, (7, bm, bk), dtype)
    order = rng.permutation(7)
    out = engine.xp.empty((7, bk, bm), data.dtype)
    blocks, device_order = engine.array(data), engine.array(order)
    with engine.runs("bsr_transpose_blocks"):
        functions(engine).transpose_blocks(out, blocks, device_order)
    got = engine.host(out)
    for t in range(7):
        assert (bits(got[t]) == bits(data[order[t]].T)).all()


@covered(batch=[(), (2, 3), (0,)], shape=[(1, 1), (20, 90), (300, 33), (0, 5), (5, 0), (7, 2000)])
def test_transpose_pattern(engine, rng, shape, batch):
    _, indices, indptr = random_blocks(
        rng, shape, (1, 1), density=0.3, batch=batch, duplicates=True, shuffled=True
    )
    check_transpose_pattern(engine, indptr, indices, shape)


@pytest.mark.parametrize("rows", [3, 5000])
def test_transpose_pattern_of_many_empty_rows_and_columns(engine, rng, rows):
    indptr = np.zeros(rows + 1, np.int32)
    indptr[rows // 2 :] = 700
    indptr[rows // 2] = 650
    indices = rng.choice([3, 40, 44, 100], 700).astype(np.int32)
    check_transpose_pattern(engine, indptr, indices, (rows, 130))


def test_transpose_pattern_in_64_bits(engine, rng):
    """Whatever the indices were given as, they are what the pattern's size asks for."""
    indptr, indices = np.array([0, 2, 3]), np.array([1, 0, 1])
    pattern = Pattern(engine.array(indptr), engine.array(indices), (2, 4), (1, 2))
    pattern._indptr, pattern._indices = map(engine.array, (indptr, indices))
    turned, order = functions(engine).transpose_pattern(pattern)
    assert turned.shape == (4, 2) and turned.blocksize == (2, 1)
    assert engine.host(order).tolist() == [1, 0, 2]
    assert engine.host(turned.indices).tolist() == [0, 0, 1]


def check_transpose_pattern(engine, indptr, indices, shape):
    pattern = Pattern(engine.array(indptr), engine.array(indices), shape, (1, 1))
    with engine.runs("bsr_transpose_pattern" if indices.size and engine.on_gpu else None):
        turned, order = functions(engine).transpose_pattern(pattern)
    expected, expected_order = Pattern(indptr, indices, shape, (1, 1)).transposed()
    assert (turned.shape, turned.blocksize) == (shape[::-1], (1, 1))
    for got, wanted in (
        (turned.indptr, expected.indptr),
        (turned.indices, expected.indices),
        (order, expected_order),
    ):
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        assert (engine.host(got) == wanted).all()
    assert pattern.transposed()[0] is turned


@pytest.mark.gpu
def test_large_patterns_are_transposed_by_sorting(cuda_engine, rng, monkeypatch):
    from sparsegpu.engines.cuda import _transpose

    monkeypatch.setattr(_transpose, "MOST_READS", 100)
    _, indices, indptr = random_blocks(rng, (20, 90), (1, 1), density=0.3)
    pattern = Pattern(cuda_engine.array(indptr), cuda_engine.array(indices), (20, 90), (1, 1))
    with cuda_engine.runs(None):
        turned, _ = _transpose.transpose_pattern(pattern)
    expected, _ = Pattern(indptr, indices, (20, 90), (1, 1)).transposed()
    assert (cuda_engine.host(turned.indices) == expected.indices).all()


def test_transpose_blocks_of_any_strides(engine, rng):
    data = random_values(rng, (5, 6, 8), "float32")
    blocks = engine.array(data)[::-1, ::2, 1::3]
    out = engine.xp.zeros((5, 3, 6), np.float32)[..., ::2]
    order = engine.array(np.array([4, 0, 1, 3, 2]))
    with engine.runs("bsr_transpose_blocks"):
        functions(engine).transpose_blocks(out, blocks, order)
    expected = data[::-1, ::2, 1::3][[4, 0, 1, 3, 2]].swapaxes(-1, -2)
    assert (engine.host(out) == expected).all()


@covered(dtype=DTYPES, blocksize=[(1, 1), (2, 3), (40, 70)])
def test_sum_blocks(engine, rng, dtype, blocksize):
    data = random_values(rng, (12, *blocksize), dtype, small_integers=True)
    order, starts = rng.permutation(12), np.array([0, 1, 4, 5, 12])
    out = engine.xp.empty((4, *blocksize), data.dtype)
    arguments = [engine.array(a) for a in (data, order, starts)]
    with engine.runs("bsr_sum_blocks"):
        functions(engine).sum_blocks(out, *arguments)
    got = engine.host(out)
    for c in range(4):
        group = data[order[starts[c] : starts[c + 1]]]
        expected = group.any(axis=0) if dtype == "bool" else group.sum(axis=0, dtype=data.dtype)
        assert (got[c] == expected).all()


@drawn(25)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(DTYPES),
    blocksize=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    blocks=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    density=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    order=st.sampled_from("CF"),
)
def test_there_and_back(engine, seed, dtype, blocksize, blocks, density, order):
    rng = np.random.default_rng(seed)
    shape = (blocks[0] * blocksize[0], blocks[1] * blocksize[1])
    values = random_values(rng, shape, dtype)
    dense = np.where(rng.random(shape) < density, values, np.zeros((), values.dtype))
    array = engine.array(np.asarray(dense, order=order))
    kept = mask_by_loop(dense, blocksize)
    kernels = ["bsr_block_mask", "bsr_scatter"] if dense.size else [None]
    with engine.runs(*kernels, *(["bsr_gather"] if kept.any() else [])):
        sparse = sparsegpu.bsr_array(array, blocksize=blocksize)
        back = sparse.toarray(order=order)
    assert sparse.nnzb == kept.sum()
    assert (engine.host(back) == dense).all()
