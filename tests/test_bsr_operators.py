"""Operators of `bsr_array`, held against dense NumPy and SciPy."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from covering import covered
from operator_cases import NUMBERS, check, make
from sparsegpu import bsr_array, bsr_spgemm, testing
from sparsegpu._arrays import bfloat16

# -- scalars ------------------------------------------------------------------------------------


@covered(dtype=NUMBERS, batch=[(), (2,)])
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
    with pytest.raises(TypeError, match=r"bsr_array \*: argument 'other': .* makes it int16"):
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
    with pytest.raises(TypeError, match=r"^bsr_array \+: argument 'other': expected a number"):
        a + np.timedelta64(0, "s")
    with pytest.raises(NotImplementedError, match="bsr_array /: dividing by a sparse array"):
        1 / a
    with pytest.raises(NotImplementedError, match="bsr_array /: division by a sparse array"):
        a / a
    with pytest.raises(
        TypeError, match="bsr_array -: argument 'self': expected a dtype with a sign"
    ):
        -a.astype(bool)


# -- sums and elementwise products --------------------------------------------------------------


@covered(dtype=NUMBERS, duplicates=[False, True])
def test_two_patterns(engine, rng, dtype, duplicates):
    a, dense_a = make(engine, rng, dtype=dtype, duplicates=duplicates)
    b, dense_b = make(engine, rng, dtype=dtype, duplicates=duplicates, density=0.3)
    with engine.runs("bsr_sum_blocks", "bsr_union_blocks"):
        check(engine, a + b, dense_a + dense_b)
        check(engine, a - b, dense_a - dense_b)
        check(engine, b - a, dense_b - dense_a)
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


def test_two_patterns_again(engine, rng):
    """The union is found once for two patterns, and equal patterns are compared once."""
    a, dense_a = make(engine, rng, dtype="float32")
    b, dense_b = make(engine, rng, dtype="float32", density=0.3)
    equal = bsr_array((a.data * 2, a.indices.copy(), a.indptr.copy()), shape=a.shape)
    for scale in (1, 2):
        with engine.runs("bsr_union_blocks"):
            first, second = (scale * a + b for _ in range(2))
            assert first.pattern is second.pattern or not engine.on_gpu
            check(engine, first, scale * dense_a + dense_b)
            check(engine, a + equal, 3 * dense_a)
    assert (a + equal).pattern is a.pattern


def test_bool_has_no_difference(engine, rng):
    a, dense = make(engine, rng, dtype="bool")
    dense, match = engine.array(dense), r"^bsr_array -: argument 'other': expected numbers \(bool"
    for difference in (lambda: a - a, lambda: a - dense, lambda: dense - a):
        with pytest.raises(TypeError, match=match):
            difference()


def test_bool_sums_are_or(engine, rng):
    a, dense_a = make(engine, rng, dtype="bool", duplicates=True)
    b, dense_b = make(engine, rng, dtype="bool", density=0.3)
    with engine.runs("bsr_sum_blocks", "bsr_union_blocks"):
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
    with engine.runs("bsr_sum_blocks", "bsr_union_blocks"):
        check(engine, a + full, dense_a + 1)  # the batch of one pattern is repeated
        check(engine, full - a, 1 - dense_a)
        check(engine, a.multiply(full), dense_a)
    with pytest.raises(
        ValueError, match=r"\+: argument 'other': expected the same number of stored"
    ):
        a + one
    del dense_one


def test_mixed_dtypes_and_blocksizes(engine, rng):
    a, dense_a = make(engine, rng, dtype="float32")
    b, dense_b = make(engine, rng, dtype="int8", blocksize=(2, 2))
    with engine.runs("bsr_sum_blocks", "bsr_union_blocks"):
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
        with pytest.raises(ValueError, match="argument 'other': expected shapes that broadc"):
            bad()
    small = bsr_array(engine.array(np.ones((1, 4))), blocksize=(1, 4))
    with pytest.raises(ValueError, match="multiply: argument 'other': expected a shape that broad"):
        small.multiply(engine.array(np.ones((3, 4))))
    with pytest.raises(TypeError, match="argument 'other': expected a NumPy or CuPy array"):
        a + object()


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
        check(engine, a.dot(engine.array(np.zeros(20, dense.dtype))), np.zeros(12, kept))


def test_matmul_of_two_sparse(engine, rng):
    a, dense_a = make(engine, rng, dtype="float32")
    b, dense_b = make(engine, rng, shape=(20, 15), blocksize=(4, 5), dtype="float32")
    with engine.runs("bsr_spgemm"):
        product = a @ b
        assert isinstance(product, bsr_array) and product.blocksize == (3, 5)
        check(engine, product, dense_a @ dense_b)


def test_matmul_errors(engine, rng):
    a, _ = make(engine, rng, dtype="float32")
    with pytest.raises(TypeError, match="bsr_array @: argument 'other': expected dtype float32"):
        a @ engine.array(np.ones(20, np.float16))
    with pytest.raises(ValueError, match=r"bsr_array @: argument 'other': .* got \(19,\)"):
        a @ engine.array(np.ones(19, np.float32))
    with pytest.raises(ValueError, match=r"bsr_array @: argument 'other': .* a scalar"):
        a @ engine.array(np.array(3, np.float32))
    with pytest.raises(TypeError, match=r"bsr_array: .* A\.to_scipy\(\) what SciPy takes"):
        sp.eye_array(12) @ a


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
    # Of small integers nothing is rounded but quotients, of which SciPy's mean is a sum.
    u = testing.unit_roundoff(ours.dtype) if name.startswith("mean") else 0
    sizes = SAME[name](sp.bsr_array((abs(parts[0]), *parts[1:]), shape=shape), abs(x)) if u else 0
    sizes = sizes.toarray() if hasattr(sizes, "toarray") else sizes
    testing.assert_close(ours, theirs, 2 * (parts[0].size + 2) * u * sizes)


# -- errors -------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("batch", [(), (2,)])
def test_products_of_other_block_sizes(engine, rng, batch):
    a, dense_a = make(engine, rng, shape=(12, 24), blocksize=(3, 4), dtype="float32", batch=batch)
    for blocksize in ((6, 2), (8, 3), (1, 1), (4, 6)):
        b = engine.array(rng.integers(1, 4, (24, 6)).astype("float32"))  # every block is kept
        right = bsr_array(b, blocksize=blocksize)
        with engine.runs("bsr_spgemm"):
            product = a @ right
        assert product.blocksize == (3, blocksize[1])
        check(engine, product.toarray(), dense_a @ engine.host(b))
    with pytest.raises(
        ValueError, match=r"bsr_array @: argument 'other': expected shape \(24, N\)"
    ):
        a @ bsr_array(engine.array(np.ones((12, 6), "float32")), blocksize=(2, 2))
    with pytest.raises(ValueError, match=r"bsr_spgemm: argument 'b': expected a block size"):
        bsr_spgemm(a, bsr_array(b, blocksize=(6, 2)))
