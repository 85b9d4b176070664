"""Operators, reductions and rows of `bsr_array`, held against dense NumPy and SciPy."""

from __future__ import annotations

import operator
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegpu
from sparsegpu import bsr_array, testing
from sparsegpu._arrays import bfloat16

FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
NUMBERS = [*FLOATS, "int8", "int32"]


def make(engine, rng, shape=(12, 20), blocksize=(3, 4), *, batch=(), duplicates=False, **keywords):
    """Return a bsr_array of small integers and its dense matrix in the same dtype."""
    keywords.setdefault("density", 0.5)
    parts = testing.random_blocks(
        rng, shape, blocksize, batch=batch, duplicates=duplicates, small_integers=True, **keywords
    )
    a = bsr_array(tuple(engine.array(p) for p in parts), shape=shape)
    return a, testing.dense_from_blocks(*parts, shape).astype(parts[0].dtype)


def check(engine, result, expected, dtype=None):
    """Exact comparison, dtype too."""
    if isinstance(result, bsr_array):
        result.check_format()
        with engine.runs("bsr_scatter" if all(result.shape) else None):
            result = result.toarray()
    result, expected = engine.host(result), np.asarray(expected)
    assert result.dtype == (expected.dtype if dtype is None else dtype)
    np.testing.assert_array_equal(result, expected)


# -- scalars ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_scaling(engine, rng, dtype, batch):
    a, dense = make(engine, rng, dtype=dtype, batch=batch, duplicates=True)
    kept = dense.dtype
    with engine.runs(None):
        check(engine, a * 2, dense * 2, kept)
        check(engine, 2 * a, dense * 2, kept)
        check(engine, a.multiply(2), dense * 2, kept)
        check(engine, a * np.int64(2), dense * 2, kept)
        check(engine, -a, -dense, kept)
        check(engine, +a, dense, kept)
        halves = np.float64 if kept.kind == "i" else kept
        check(engine, a / 2, (dense / 2).astype(halves))
        check(engine, a.dot(2), dense * 2, kept)
    assert (a * 2).pattern is a.pattern


def test_scaling_changes_the_dtype_as_in_numpy(engine, rng):
    a, dense = make(engine, rng, dtype="int8")
    with engine.runs(None):
        check(engine, a * 0.5, dense * 0.5)
        check(engine, a.astype("float32") * 1j, dense.astype("float32") * 1j)
        check(engine, a.astype("float32") * np.float64(0.5), dense * 0.5)
        factor = engine.array(np.array(2.0, np.float32))
        check(engine, a.astype("float32") * factor, dense.astype("float32") * 2)
        b = a.astype("bfloat16")
        check(engine, b * 0.5, (dense * 0.5).astype(bfloat16))
    with pytest.raises(TypeError, match=r"bsr_array \*: argument 'other': .* got int16"):
        a * engine.array(np.array(3, np.uint8))


def test_scalars_that_fill(engine, rng):
    a, dense = make(engine, rng, dtype="float32")
    with engine.runs(None):
        check(engine, a + 0, dense)
        check(engine, 0 + a, dense)
        check(engine, a - 0.0, dense)
        check(engine, 0 - a, -dense)
        check(engine, sum([a, a]), dense * 2)
    for bad in (lambda: a + 1, lambda: 1 - a, lambda: a - np.float32(2), lambda: a + np.nan):
        with pytest.raises(
            NotImplementedError, match=r"bsr_array [+-]: a nonzero scalar \(it would"
        ):
            bad()
    with pytest.raises(NotImplementedError, match="bsr_array /: dividing by a sparse array"):
        1 / a
    with pytest.raises(NotImplementedError, match="bsr_array /: division by an array"):
        a / a
    with pytest.raises(
        TypeError, match="bsr_array -: argument 'self': expected a dtype with a sign"
    ):
        -a.astype(bool)


# -- sums and elementwise products --------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("duplicates", [False, True])
def test_two_patterns(engine, rng, dtype, duplicates):
    a, dense_a = make(engine, rng, dtype=dtype, duplicates=duplicates)
    b, dense_b = make(engine, rng, dtype=dtype, duplicates=duplicates, density=0.3)
    with engine.runs("bsr_sum_blocks"):
        check(engine, a + b, dense_a + dense_b)
        check(engine, a - b, dense_a - dense_b)
        check(engine, a.multiply(b), dense_a * dense_b)
        check(engine, a * b, dense_a * dense_b)
        together = a + b
    assert together.has_canonical_format
    assert together.nnzb == len(
        np.union1d(engine.host(a.pattern.keys()), engine.host(b.pattern.keys()))
    )


@pytest.mark.parametrize("duplicates", [False, True])
def test_one_pattern(engine, rng, duplicates):
    a, dense = make(engine, rng, dtype="float32", duplicates=duplicates)
    b = a.with_data(a.data * 3)
    with engine.runs("bsr_sum_blocks"):
        assert (a + b).pattern is a.pattern and (a - b).pattern is a.pattern
        check(engine, a + b, dense * 4)
        check(engine, a - b, dense * -2)
        check(engine, a.multiply(b), dense * dense * 3)
        check(engine, abs(a), abs(dense))


def test_bool_sums_are_or(engine, rng):
    a, dense_a = make(engine, rng, dtype="bool", duplicates=True)
    b, dense_b = make(engine, rng, dtype="bool", density=0.3)
    with engine.runs("bsr_sum_blocks"):
        check(engine, a + b, dense_a | dense_b)
        check(engine, a + a, dense_a)
        check(engine, a.multiply(b), dense_a & dense_b)
    with pytest.raises(TypeError, match="bsr_array -: argument 'other': expected numbers"):
        a - b


def test_batches_of_two_patterns(engine, rng):
    a, dense_a = make(engine, rng, dtype="float32", batch=(3,))
    one, dense_one = make(engine, rng, dtype="float32")
    with engine.runs("bsr_scatter"):
        same = a.with_data(a.data + 1)
        check(engine, a + same, dense_a + engine.host(same.toarray()))
        check(engine, a - a.with_data(a.data), dense_a * 0)
    full = bsr_array(engine.array(np.ones((12, 20), np.float32)), blocksize=(3, 4))
    with engine.runs("bsr_sum_blocks"):
        check(engine, a + full, dense_a + 1)  # the batch of one pattern is repeated
        check(engine, full - a, 1 - dense_a)
        check(engine, a.multiply(full), dense_a)
    with pytest.raises(
        ValueError, match=r"\+: argument 'batch': expected the same number of stored"
    ):
        a + one
    del dense_one


def test_mixed_dtypes_and_blocksizes(engine, rng):
    a, dense_a = make(engine, rng, dtype="float32")
    b, dense_b = make(engine, rng, dtype="int8", blocksize=(2, 2))
    with engine.runs("bsr_sum_blocks"):
        both = a + b
        check(engine, both, dense_a + dense_b)
        check(engine, b * a, dense_a * dense_b)
    assert both.blocksize == (3, 4)
    with pytest.raises(TypeError, match=r"\+: argument 'other': expected a dtype that mixes"):
        a.astype("bfloat16") + a.astype("float16")
    with pytest.raises(ValueError, match=r"\+: argument 'other': expected shape \(12, 20\)"):
        a + a.T


def test_with_dense(engine, rng):
    a, dense_a = make(engine, rng, dtype="float32", duplicates=True)
    x = testing.random_values(rng, (12, 20), "float32", small_integers=True)
    other = engine.array(x)
    with engine.runs("bsr_gather", "bsr_scatter", "bsr_sum_blocks"):
        check(engine, a + other, dense_a + x)
        check(engine, other + a, dense_a + x)
        check(engine, a - other, dense_a - x)
        check(engine, other - a, x - dense_a)
        check(engine, a + other[0], dense_a + x[0])
        for part in (np.s_[:], np.s_[0], np.s_[:, :1], np.s_[:1]):
            product = a.multiply(other[part])
            assert isinstance(product, bsr_array)
            check(engine, product, dense_a * x[part])
        check(engine, other * a, dense_a * x)
        check(engine, a * other.astype("float64"), dense_a * x.astype("float64"))
        stack = engine.array(np.stack([x, x + 1]))
        check(engine, a.multiply(stack), dense_a * engine.host(stack))
    for bad in (lambda: a + other[:, :3], lambda: a.multiply(other[:5])):
        with pytest.raises(ValueError, match="argument 'other': expected batch shapes that broadc"):
            bad()
    small = bsr_array(engine.array(np.ones((1, 4))), blocksize=(1, 4))
    with pytest.raises(ValueError, match="multiply: argument 'other': expected a shape that broad"):
        small.multiply(engine.array(np.ones((3, 4))))
    with pytest.raises(TypeError, match="argument 'other': expected a NumPy or CuPy array"):
        a + sp.eye_array(12, 20)


def test_what_is_not_linear_sums_duplicates_first(engine):
    parts = (np.array([[[1.0]], [[-3.0]]]), np.zeros(2, np.int32), np.array([0, 2]))
    a = bsr_array(tuple(engine.array(p) for p in parts), shape=(1, 1))
    with engine.runs("bsr_gather", "bsr_sum_blocks"):
        check(engine, abs(a), [[2.0]])
        check(engine, a * a, [[4.0]])
        check(engine, a.multiply(engine.array(np.array([[5.0]]))), [[-10.0]])
        assert float(a.max()) == -2 and float(a.min()) == -2
    assert a.nnzb == 2


# -- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int8", "complex64"]
)
def test_matmul_both_sides(engine, rng, dtype):
    a, dense = make(engine, rng, dtype=dtype, duplicates=True)
    wide = np.int64 if dtype == "int8" else np.complex128 if dtype == "complex64" else np.float64
    kept = np.int32 if dtype == "int8" else dense.dtype

    def value(*shape):
        return testing.random_values(rng, shape, dtype, small_integers=True)

    with engine.runs("bsr_addmm"):
        for x in (value(20), value(20, 5), value(2, 20, 5)):
            check(engine, a @ engine.array(x), (dense.astype(wide) @ x.astype(wide)).astype(kept))
        for x in (value(12), value(5, 12), value(2, 5, 12)):
            check(engine, engine.array(x) @ a, (x.astype(wide) @ dense.astype(wide)).astype(kept))
        check(engine, a.dot(engine.array(value(20)) * 0), np.zeros(12, kept))


def test_matmul_of_two_sparse(engine, rng):
    a, dense_a = make(engine, rng, dtype="float32")
    b, dense_b = make(engine, rng, shape=(20, 15), blocksize=(4, 5), dtype="float32")
    with engine.runs("scatter_mm"):
        product = a @ b
        assert isinstance(product, bsr_array) and product.blocksize == (3, 5)
        check(engine, product, dense_a @ dense_b)


def test_matmul_errors(engine, rng):
    a, _ = make(engine, rng, dtype="float32")
    with pytest.raises(TypeError, match="bsr_matmul: argument 'dense': expected dtype float32"):
        a @ engine.array(np.ones(20))
    with pytest.raises(ValueError, match=r"bsr_matmul: argument 'dense': .* got \(19,\)"):
        a @ engine.array(np.ones(19, np.float32))
    with pytest.raises(ValueError, match=r"bsr_matmul: argument 'dense': .* a scalar"):
        a @ engine.array(np.array(3, np.float32))
    with pytest.raises(TypeError, match="dense_bsr_matmul: argument 'dense'"):
        sp.eye_array(12) @ a


# -- reductions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("duplicates", [False, True])
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
            np.testing.assert_allclose(
                mean.astype(wide if wide != np.int64 else float),
                exact.mean(axis),
                rtol=testing.unit_roundoff(averages) * 4,
            )
        widest = np.float64 if wide == np.int64 else wide
        check(engine, a.sum(-1, dtype=widest), exact.sum(-1).astype(widest))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "bool"])
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("density", [0.0, 0.2, 0.7, 1.0])
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
    for axis in (2, -3, (0, 0), ()):
        with pytest.raises(ValueError, match="sum: argument 'axis'"):
            a.sum(axis)
    with pytest.raises(TypeError, match="mean: argument 'axis'"):
        a.mean([0.5])
    with pytest.raises(ValueError, match="sum: argument 'axis': expected None, 1, 2, -2 or -1"):
        bsr_array(engine.array(np.ones((2, 4, 4))), blocksize=(2, 2)).sum(0)


def test_sums_use_the_accumulator(engine):
    a = bsr_array(engine.array(np.ones((1, 4096))), blocksize=(1, 64), dtype="float16")
    with engine.runs("bsr_addmm"):
        check(engine, a.sum(), np.float16(4096))
        check(engine, a.sum(1), np.array([4096], np.float16))
        check(engine, (a * 16).sum(1, dtype="float32"), np.array([65536], np.float32))
        check(engine, (a * 16).mean(), np.float16(16))


@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_diagonal(engine, rng, batch):
    a, dense = make(engine, rng, batch=batch, duplicates=not batch, dtype="float32")
    with engine.runs("bsr_sum_blocks"):
        for k in (0, 1, -1, 5, -7, 19, -11, 20, -12, 100):
            expected = (
                np.diagonal(dense, k, -2, -1) if -12 <= k <= 20 else np.zeros((*batch, 0), "f4")
            )
            check(engine, a.diagonal(k), expected)


@pytest.mark.parametrize("name", ["max", "min", "diagonal", "__abs__"])
def test_a_batch_with_different_duplicates_is_refused(engine, name):
    parts = (np.ones((2, 2, 1, 1)), np.array([[0, 0], [0, 1]]), np.array([[0, 2], [0, 2]]))
    a = bsr_array(tuple(engine.array(p) for p in parts), shape=(1, 2))
    with pytest.raises(
        ValueError, match=rf"{name.strip('_')}: argument 'batch': expected the same"
    ):
        getattr(a, name)()


# -- rows ---------------------------------------------------------------------------------------


def test_rows(engine, rng):
    a, dense = make(engine, rng, dtype="float32", duplicates=True)
    with engine.runs("bsr_scatter"):
        for i in (0, 5, 11, -1, -12, np.int64(3)):
            check(engine, a[i], dense[i])
            check(engine, a.getrow(i), dense[i])
        check(engine, a[2, 7], dense[2, 7])
        check(engine, a[4, :], dense[4])
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
            assert not rows.data.size or rows.data is not a.data
        assert len(list(a)) == 12
    with pytest.raises(
        IndexError, match=r"getrow: argument 'i': expected a row in -12\.\.11, got 12"
    ):
        a[12]
    with pytest.raises(ValueError, match=r"'i, j': expected multiples of 3, got \(1, 12\)"):
        a[1:]
    with pytest.raises(ValueError, match="'step': expected 1, got 2"):
        a[::2]
    for key in (np.s_[:, 0], [0, 1], np.s_[..., 0], None):
        with pytest.raises(
            NotImplementedError, match=r"bsr_array\[...\]: the index .* supported: A"
        ):
            a[key]
    b = bsr_array(engine.array(np.ones((2, 4, 4))), blocksize=(2, 2))
    for key in (0, np.s_[0:2]):
        with pytest.raises(ValueError, match="expected one matrix"):
            b[key]


# -- one body on SciPy and here -----------------------------------------------------------------

SAME = {
    "neg": lambda a, x: -a,
    "abs": lambda a, x: abs(a),
    "scale": lambda a, x: 3 * a * 2,
    "divide": lambda a, x: a / 4,
    "add": lambda a, x: a + a,
    "subtract": lambda a, x: a - 2 * a,
    "add dense": lambda a, x: a + x,
    "multiply": lambda a, x: a.multiply(a),
    "multiply dense": lambda a, x: a.multiply(x),
    "T": lambda a, x: a.T,
    "matmul": lambda a, x: a @ x.T,
    "rmatmul": lambda a, x: x.T @ a,
    "spgemm": lambda a, x: a @ a.T,
    "sum": lambda a, x: a.sum(),
    "sum 0": lambda a, x: a.sum(axis=0),
    "sum 1": lambda a, x: a.sum(axis=1),
    "mean": lambda a, x: a.mean(),
    "mean 0": lambda a, x: a.mean(axis=0),
    "max": lambda a, x: a.max(),
    "min": lambda a, x: a.min(),
    "max 1": lambda a, x: a.max(axis=1),
    "diagonal": lambda a, x: a.diagonal(),
    "diagonal 2": lambda a, x: a.diagonal(k=2),
    "astype": lambda a, x: a.astype(np.complex128),
    "conj": lambda a, x: a.astype(np.complex64).conj(),
    "real": lambda a, x: a.astype(np.complex64).real,
    "csr": lambda a, x: a.tocsr(),
    "coo": lambda a, x: a.tocoo(),
    "array": lambda a, x: a.toarray(),
}


@pytest.mark.parametrize("name", SAME)
@settings(max_examples=5, deadline=None)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.sampled_from(["float32", "float64"]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_like_scipy(name, blocks, blocksize, dtype, duplicates, seed):
    rng = np.random.default_rng(seed)
    shape = blocks[0] * blocksize[0], blocks[1] * blocksize[1]
    parts = testing.random_blocks(
        rng, shape, blocksize, dtype=dtype, duplicates=duplicates, small_integers=True
    )
    x = testing.random_values(rng, shape, dtype, small_integers=True)
    ours = SAME[name](bsr_array(parts, shape=shape), x)
    theirs = SAME[name](sp.bsr_array(parts, shape=shape), x)
    # SciPy's max along an axis is sparse.
    ours, theirs = (r.toarray() if hasattr(r, "toarray") else np.asarray(r) for r in (ours, theirs))
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype or name == "divide"  # SciPy's becomes float64
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


# -- linear operators ---------------------------------------------------------------------------


def solvers(engine):
    if engine.on_gpu:
        import cupyx.scipy.sparse.linalg

        return cupyx.scipy.sparse.linalg
    return scipy.sparse.linalg


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "bfloat16"])
def test_linear_operator(engine, rng, dtype):
    a, dense = make(engine, rng, dtype=dtype)
    op = a.aslinearoperator()
    assert isinstance(op, solvers(engine).LinearOperator)
    assert op.shape == (12, 20) and op.dtype == ("float32" if dtype == "bfloat16" else dtype)
    exact = dense.astype(complex)

    def value(*shape):
        return testing.random_values(rng, shape, "complex64", small_integers=True)

    with engine.runs("bsr_addmm"):
        for x in (value(20), value(20).real):
            np.testing.assert_array_equal(engine.host(op.matvec(engine.array(x))), exact @ x)
        for y in (value(12), value(12).real):
            np.testing.assert_array_equal(
                engine.host(op.rmatvec(engine.array(y))), exact.conj().T @ y
            )
        x = value(20, 3)
        np.testing.assert_array_equal(engine.host(op.matmat(engine.array(x))), exact @ x)


def test_solvers_take_the_array_itself(engine):
    second_difference = 2 * np.eye(24) - np.eye(24, k=1) - np.eye(24, k=-1)
    a = bsr_array(engine.array(second_difference), blocksize=(4, 4))
    b = np.arange(1.0, 25)
    assert (engine.host(a.rmatvec(engine.array(b))) == second_difference.T @ b).all()
    with sparsegpu.use_engine(engine.name):
        x, info = solvers(engine).cg(a, engine.array(b), maxiter=200)
    assert info == 0
    np.testing.assert_allclose(engine.host(x), np.linalg.solve(second_difference, b), rtol=1e-3)


@pytest.mark.parametrize("solver", ["cg", "gmres", "lobpcg"])
def test_solvers(engine, rng, solver):
    n = 48
    dense = (
        np.diag(np.linspace(1, 4, n))
        + np.diag(np.full(n - 1, 0.3), 1)
        + np.diag(np.full(n - 1, 0.3), -1)
    )
    a = bsr_array(engine.array(dense), blocksize=(4, 4))
    b = rng.standard_normal(n)
    with sparsegpu.use_engine(engine.name), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the solvers' own
        if solver == "lobpcg":
            start = engine.array(rng.standard_normal((n, 2)))
            values, _ = solvers(engine).lobpcg(
                a.aslinearoperator(), start, largest=True, maxiter=200, tol=1e-6
            )
            expected = np.linalg.eigvalsh(dense)[[-1, -2]]
            np.testing.assert_allclose(np.sort(engine.host(values)), np.sort(expected), rtol=1e-6)
            return
        x, info = getattr(solvers(engine), solver)(
            a.aslinearoperator(), engine.array(b), maxiter=400
        )
    assert info == 0
    np.testing.assert_allclose(dense @ engine.host(x), b, atol=1e-4)


def test_linear_operator_errors():
    with pytest.raises(TypeError, match="aslinearoperator: argument 'A': expected a bsr_array"):
        sparsegpu.linalg.aslinearoperator(np.eye(3))
    a = bsr_array(np.eye(4, dtype=np.int8), blocksize=(2, 2))
    with pytest.raises(
        TypeError, match="aslinearoperator: argument 'A': expected a floating dtype"
    ):
        a.aslinearoperator()


def test_host_and_device_do_not_mix(cuda_engine):
    a = bsr_array(cuda_engine.array(np.eye(4)), blocksize=(2, 2))
    host = a.get()
    for bad in (
        lambda: a + host,
        lambda: a.multiply(np.eye(4)),
        lambda: a @ np.ones(4),
        lambda: host + a.data[0],
        lambda: operator.matmul(np.ones(4), a),
    ):
        with pytest.raises(TypeError, match="no silent copy across the bus"):
            bad()
