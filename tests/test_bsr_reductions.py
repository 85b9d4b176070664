"""Reductions and rows of `bsr_array`, held against dense NumPy."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from covering import covered
from operator_cases import NUMBERS, check, make
from sparsegpu import bsr_array, testing
from sparsegpu.testing import dense_from_blocks, random_blocks

# -- reductions ---------------------------------------------------------------------------------


@covered(dtype=[*NUMBERS, "bool"], batch=[(), (2,)], duplicates=[False, True])
def test_sum_and_mean(engine, rng, dtype, batch, duplicates):
    # Blocks of bool are or-ed first, and a batch keeps one number of them.
    duplicates = duplicates and not (batch and dtype == "bool")
    a, dense = make(engine, rng, dtype=dtype, batch=batch, duplicates=duplicates)
    kept = np.dtype(np.int64) if dense.dtype.kind in "ib" else dense.dtype
    wide = np.int64 if kept.kind == "i" else np.complex128 if kept.kind == "c" else np.float64
    averages = np.dtype(np.float64) if kept.kind == "i" else kept
    exact = dense.astype(wide)
    with engine.runs("bsr_addmm"):
        for axis in (None, -1, -2, (-2, -1), len(batch), len(batch) + 1):
            check(engine, a.sum(axis), exact.sum(axis).astype(kept), kept)
            mean = engine.host(a.mean(axis))
            assert mean.dtype == averages
            # The sum is exact, and divided in accumulator precision.
            expected = np.asarray(exact.mean(axis, dtype=np.result_type(wide, np.longdouble)))
            u = testing.unit_roundoff(
                np.dtype(np.float64 if averages == np.float64 else np.float32)
            )
            testing.assert_close(mean, expected, 2 * u * np.abs(expected))
        widest = np.float64 if wide == np.int64 else wide
        check(engine, a.sum(-1, dtype=widest), exact.sum(-1).astype(widest))


def test_results_that_are_given(engine, rng):
    a, dense = make(engine, rng, dtype="float64")
    with engine.runs("bsr_addmm"):
        for name, axis in (("sum", 0), ("mean", -2), ("max", -1), ("min", None)):
            expected = np.asarray(getattr(dense.astype(np.longdouble), name)(axis))
            out = engine.array(np.full(expected.shape, 7.0))
            assert getattr(a, name)(axis=axis, out=out) is out
            testing.assert_close(engine.host(out), expected, 0)  # small integers: one division
            wrong = engine.array(np.full((5,), 7.0))
            with pytest.raises(ValueError, match=f"{name}: argument 'out': expected shape"):
                getattr(a, name)(axis=axis, out=wrong)
            assert (engine.host(wrong) == 7).all()
    with pytest.raises(TypeError, match="sum: argument 'out': expected dtype float64"):
        a.sum(0, out=engine.array(np.zeros(20, np.float32)))


def test_reductions_of_numpy():
    dense = np.diag([1.0, -2.0, 3.0, 4.0])
    a = bsr_array(dense, blocksize=(2, 2))
    for function in (np.sum, np.mean, np.max, np.min):
        assert function(a) == function(dense)
        np.testing.assert_array_equal(function(a, axis=0), function(dense, axis=0))


@covered(
    dtype=["float16", "bfloat16", "float32", "float64", "int8", "bool"],
    batch=[(), (2,)],
    density=[0.0, 0.2, 0.7, 1.0],
)
def test_extremes(engine, rng, dtype, batch, density):
    a, dense = make(
        engine,
        rng,
        (12, 21),
        (3, 3),
        dtype=dtype,
        batch=batch,
        density=density,
        duplicates=density == 0.7 and not batch,
    )
    exact = dense.astype(float)
    kernels = ("bsr_sum_blocks", "bsr_transpose_blocks") if density else (None,)
    with engine.runs(*kernels):
        for axis in (None, -1, -2, (-1, -2), len(batch)):
            check(engine, a.max(axis), exact.max(axis).astype(dense.dtype))
            check(engine, a.min(axis), exact.min(axis).astype(dense.dtype))
        if dtype == "float32":
            check(engine, (a - abs(a)).max(-1), np.minimum(2 * dense, 0).max(-1))


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "int8"])
def test_extremes_of_one_sign(engine, dtype):
    """A row that stores all its blocks has no zero; one that lacks a block has."""
    dense = -np.arange(1.0, 73).reshape(6, 12)
    full = bsr_array(engine.array(dense.astype(dtype)), blocksize=(2, 3))
    lacking = dense.copy()
    lacking[2:4, 6:9] = 0
    partial = bsr_array(engine.array(lacking.astype(dtype)), blocksize=(2, 3))
    assert full.nnzb == 12 and partial.nnzb == 11
    batch = bsr_array(engine.array(np.stack([dense, dense]).astype(dtype)), blocksize=(2, 3))
    with engine.runs("bsr_transpose_blocks"):
        for array, matrix in ((full, dense), (partial, lacking), (batch, np.stack([dense, dense]))):
            for axis in (None, -1, -2, (-1, -2)):
                check(engine, array.max(axis), matrix.max(axis).astype(dtype))
                check(engine, (-array).min(axis), (-matrix).min(axis).astype(dtype))


@covered(dtype=["float16", "float32", "float64", "int8"], batch=[(), (2,)])
def test_extremes_that_pass_over_nan(engine, rng, dtype, batch):
    triple = random_blocks(
        rng, (12, 20), (3, 5), batch=batch, dtype=dtype, density=0.6, shuffled=False
    )
    dense = dense_from_blocks(*triple, (12, 20))
    if dtype != "int8":
        triple[0][rng.random(triple[0].shape) < 0.5] = np.nan
        triple[0][..., 0, :, :] = np.nan
        dense = dense_from_blocks(*triple, (12, 20))
    a = engine.bsr(triple, (12, 20))
    with engine.runs("bsr_transpose_blocks"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, where all is NaN
        for axis in (None, -1, -2, (-1, -2)):
            check(engine, a.nanmax(axis), np.nanmax(dense, axis).astype(dtype))
            check(engine, a.nanmin(axis), np.nanmin(dense, axis).astype(dtype))
    full = bsr_array(engine.array(np.full((2, 4), np.nan, "float32")), blocksize=(1, 2))
    assert np.isnan(float(full.nanmax())) and np.isnan(engine.host(full.nanmin(0))).all()
    assert a.nanmax(-1, keepdims=True).shape == (*batch, 12, 1)
    if not engine.on_gpu:
        assert np.isscalar(a.nanmax()) and np.isscalar(a.nanmin())  # as of NumPy and SciPy
    with pytest.raises(TypeError, match="nanmin: argument 'self': expected a dtype with an order"):
        a.astype("complex64").nanmin()


@pytest.mark.parametrize("name", ["maximum", "fmin"])
def test_extremes_of_rows_by_doubling(rng, name):
    from sparsegpu.bsr.extremes import extremes_by_doubling

    dense = rng.standard_normal((30, 44)) * (rng.random((30, 44)) < 0.8)
    dense[6:9] = 0  # no block in this row, and from 1 to 11 in others
    dense[:3, 4:] = 0
    a = bsr_array(dense, blocksize=(3, 4))
    operation = getattr(np, name)
    got = extremes_by_doubling(a.pattern, operation.reduce(a.data, axis=-1), operation)
    stored = dense.reshape(10, 3, 11, 4).swapaxes(1, 2)
    kept = stored.any(axis=(2, 3))
    for i in range(10):
        row = stored[i][kept[i]]
        expected = operation.reduce(row, axis=(0, 2)) if len(row) else np.zeros(3)
        np.testing.assert_array_equal(got[i], expected)


def test_extremes_with_nan_and_errors(engine, rng):
    a, dense = make(engine, rng, dtype="float32", density=0.9)
    first = engine.host(a.pattern.rows)[0]
    a.data[0, 1, 2] = np.nan
    with engine.runs("bsr_sum_blocks", "bsr_transpose_blocks"):
        rows = engine.host(a.max(1))
        assert np.isnan(rows[first * 3 + 1]) and np.isnan(rows).sum() == 1
        assert np.isnan(engine.host(a.min(0))).sum() == 1 and np.isnan(float(a.max()))
    del dense
    with pytest.raises(TypeError, match="max: argument 'self': expected a dtype with an order"):
        a.astype("complex64").max()
    with pytest.raises(ValueError, match="min: argument 'axis': expected something to compare"):
        bsr_array((0, 4)).min(axis=0)
    for axis in (2, -3, (0, 0), (0, 1, 0), ()):
        with pytest.raises(ValueError, match="sum: argument 'axis'"):
            a.sum(axis)
    for axis in ([0.5], 0.5, 0.0, True, (0, True)):
        with pytest.raises(TypeError, match="mean: argument 'axis'"):
            a.mean(axis)
    with pytest.raises(TypeError, match="diagonal: argument 'k': expected an integer, got True"):
        a.diagonal(True)
    with pytest.raises(ValueError, match="sum: argument 'axis': expected None, 1, 2, -2 or -1"):
        bsr_array(engine.array(np.ones((2, 4, 4))), blocksize=(2, 2)).sum(0)


def test_sums_use_the_accumulator(engine):
    a = bsr_array(engine.array(np.ones((1, 4096))), blocksize=(1, 64), dtype="float16")
    with engine.runs("bsr_addmm"):
        check(engine, a.sum(), np.float16(4096))
        check(engine, a.sum(1), np.array([4096], np.float16))
        check(engine, (a * 16).sum(1, dtype="float32"), np.array([65536], np.float32))
        check(engine, (a * 16).mean(), np.float16(16))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "int8"])
def test_results_in_dtypes_that_no_array_here_has(rng, dtype):
    dense = rng.integers(-9, 10, (4, 6)).astype(dtype)
    a = bsr_array(dense, blocksize=(2, 3))
    wanted = "clongdouble" if dtype == "complex64" else "longdouble"
    for axis in (None, 0, 1):
        total, mean = a.sum(axis, dtype=wanted), a.mean(axis, dtype=wanted)
        assert total.dtype == mean.dtype == np.dtype(wanted)
        np.testing.assert_array_equal(total, dense.sum(axis, dtype=wanted))


def test_sums_of_integers_leave_int32(engine):
    whole = bsr_array(engine.array(np.full((1, 2048, 8704), 127, np.int8)), blocksize=(256, 256))
    exact = 127 * 2048 * 8704  # beyond 2**31
    assert int(whole.sum()) == int(whole.sum((-2, -1))[0]) == exact
    assert float(whole.mean()) == 127


def test_a_batch_of_no_matrices(engine):
    parts = (np.zeros((0, 2, 1, 1), "f4"), np.zeros((0, 2), "i4"), np.zeros((0, 3), "i4"))
    a = bsr_array(tuple(map(engine.array, parts)), shape=(2, 2))
    check(engine, a.diagonal(), np.zeros((0, 2), "f4"))
    check(engine, a.max(axis=-1), np.zeros((0, 2), "f4"))
    check(engine, a.sum(-1), np.zeros((0, 2), "f4"))


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_diagonal(engine, rng, batch):
    a, dense = make(engine, rng, batch=batch, duplicates=not batch, dtype="float32")
    with engine.runs("bsr_sum_blocks"):
        for k in (0, 1, -1, 5, -7, 19, -11, 20, -12, 100):
            expected = (
                np.diagonal(dense, k, -2, -1) if -12 <= k <= 20 else np.zeros((*batch, 0), "f4")
            )
            check(engine, a.diagonal(k), expected)


def with_different_duplicates(engine, dtype):
    """Return a batch of which only one matrix repeats blocks, and its dense matrices."""
    blocks = np.array([[1, -2, 3], [4, 5, -6]])[..., None, None] * np.array([[1, 2], [0, -3]])
    blocks = blocks.astype(dtype)
    indices, indptr = np.array([[1, 1, 0], [2, 0, 1]]), np.array([[0, 2, 3], [0, 2, 3]])
    a = bsr_array(tuple(map(engine.array, (blocks, indices, indptr))), shape=(4, 6))
    dense = np.zeros((2, 4, 6), dtype)
    for matrix in range(2):
        for place, (row, column) in enumerate(zip((0, 0, 1), indices[matrix])):
            at = dense[matrix, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            at[...] = at | blocks[matrix, place] if dtype == "bool" else at + blocks[matrix, place]
    return a, dense


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_a_batch_with_different_duplicates(engine, dtype):
    a, dense = with_different_duplicates(engine, dtype)
    with engine.runs("bsr_sum_blocks"):
        for axis in (None, -1, -2, (-2, -1)):
            for name in ("max", "min"):
                check(engine, getattr(a, name)(axis), getattr(dense, name)(axis))
            check(engine, a.sum(axis), dense.sum(axis), np.float32 if dtype == "float32" else None)
            mean = np.float32 if dtype == "float32" else np.float64
            check(engine, a.mean(axis), dense.mean(axis, dtype=np.float64).astype(mean))
        for k in (0, 2, -1, 4):
            check(engine, a.diagonal(k), np.diagonal(dense, k, -2, -1))


def test_what_keeps_blocks_refuses_a_batch_with_different_duplicates(engine):
    a, _ = with_different_duplicates(engine, "float32")
    with pytest.raises(ValueError, match="abs: argument 'self': expected the same"):
        abs(a)


# -- rows ---------------------------------------------------------------------------------------


def test_rows(engine, rng):
    a, dense = make(engine, rng, dtype="float32", duplicates=True)
    with engine.runs("bsr_scatter"):
        for i in (0, 5, 11, -1, -12, np.int64(3)):
            check(engine, a[i], dense[i])
            check(engine, a.getrow(i), dense[i])
        check(engine, a[2, 7], dense[2, 7])
        check(engine, a[4, :], dense[4])
        check(engine, a[-1, -1], dense[-1, -1])
        for part in (
            np.s_[3:9],
            np.s_[:6],
            np.s_[6:],
            np.s_[:],
            np.s_[9:3],
            np.s_[-3:],
            np.s_[3:9, :],
        ):
            rows = a[part]
            assert isinstance(rows, bsr_array)
            check(engine, rows, dense[part])
            rows.data[...] = 0  # its own
        check(engine, a, dense)
        assert len(list(a)) == 12
    for name, call in (
        (r"bsr_array\[i\]", lambda: a[12]),
        (r"bsr_array\[i, j\]", lambda: a[12, 0]),
        ("getrow", lambda: a.getrow(12)),
    ):
        match = rf"^{name}: argument 'i': expected a row in -12\.\.11, got 12"
        with pytest.raises(IndexError, match=match):
            call()
    with pytest.raises(ValueError, match=r"'i, j': expected multiples of 3 .*, got \(1, 12\)"):
        a[1:]
    with pytest.raises(ValueError, match="'step': expected 1, got 2"):
        a[::2]
    with pytest.raises(IndexError, match=r"'j': expected a column in -20\.\.19, got 20"):
        a[0, 20]
    for key in (np.s_[:, [0, 1]], np.s_[..., 0]):
        with pytest.raises(
            NotImplementedError, match=r"bsr_array\[...\]: the index .* supported: A"
        ):
            a[key]
    b = bsr_array(engine.array(np.ones((2, 4, 4))), blocksize=(2, 2))
    with pytest.raises(ValueError, match="getrow: argument 'self': expected one matrix"):
        b.getrow(0)
