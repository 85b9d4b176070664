"""`bsr_spgemm`, the product behind ``A @ B`` of two block-sparse matrices."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu
from covering import covered
from properties import drawn
from sparsegpu._memo import RECENT
from sparsegpu.testing import (
    assert_within_bound,
    dense_from_blocks,
    random_blocks,
    random_values,
)

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "complex64", "complex128"]


def expected_positions(left, right):
    """Block positions (row, column) where two stored blocks meet, by plain loops."""
    (_, li, lp), (_, ri, rp) = left, right
    meet = set()
    for i in range(len(lp) - 1):
        for p in range(lp[i], lp[i + 1]):
            k = li[p]
            meet |= {(i, int(j)) for j in ri[rp[k] : rp[k + 1]]}
    return sorted(meet)


def positions(engine, result):
    indices, indptr = engine.host(result.indices), engine.host(result.indptr)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return list(zip(rows.tolist(), indices.tolist()))


@covered(
    dtype=DTYPES,
    sizes=[(16, 16, 16), (1, 1, 1), (3, 3, 3), (3, 5, 2), (16, 32, 8)],
    duplicates=[False, True],
)
def test_product(engine, rng, dtype, sizes, duplicates):
    bm, bk, bn = sizes
    m, k, n = 4 * bm, 6 * bk, 5 * bn
    left = random_blocks(rng, (m, k), (bm, bk), dtype=dtype, duplicates=duplicates)
    right = random_blocks(rng, (k, n), (bk, bn), dtype=dtype, duplicates=duplicates)
    a, b = engine.bsr(left, (m, k)), engine.bsr(right, (k, n))
    with engine.runs("bsr_spgemm"):
        out = sparsegpu.bsr_spgemm(a, b)
    assert type(out) is type(a)
    assert out.shape == (m, n)
    assert out.blocksize == (bm, bn)
    assert out.has_canonical_format
    assert out.dtype == (np.int32 if dtype == "int8" else left[0].dtype)
    assert positions(engine, out) == expected_positions(left, right)
    dense = [dense_from_blocks(*t, s) for t, s in ((left, (m, k)), (right, (k, n)))]
    assert_within_bound(engine.host(out.toarray()), *dense, dtype=dtype, terms=2 * k)


def test_small_integers_are_exact_and_as_scipy(engine, rng):
    left = random_blocks(rng, (24, 30), (4, 5), small_integers=True)
    right = random_blocks(rng, (30, 18), (5, 3), small_integers=True)
    a, b = engine.bsr(left, (24, 30)), engine.bsr(right, (30, 18))
    with engine.runs("bsr_spgemm"):
        out = a @ b
    theirs = scipy.sparse.bsr_array(left, shape=(24, 30)) @ scipy.sparse.bsr_array(
        right, shape=(30, 18)
    )
    assert (engine.host(out.toarray()) == theirs.toarray()).all()


@pytest.mark.parametrize(
    ("left_batch", "right_batch"), [((2, 3), ()), ((), (3,)), ((2, 1), (3,)), ((0,), ())]
)
def test_batches(engine, rng, left_batch, right_batch):
    # A full right side keeps the counts of all batches equal whatever the left one stores.
    left = random_blocks(rng, (6, 8), (2, 4), batch=left_batch, density=1, small_integers=True)
    right = random_blocks(rng, (8, 9), (4, 3), batch=right_batch, density=1, small_integers=True)
    a, b = (engine.bsr(t, s) for t, s in ((left, (6, 8)), (right, (8, 9))))
    with engine.runs(None if 0 in left_batch else "bsr_spgemm"):
        out = sparsegpu.bsr_spgemm(a, b)
    batch = np.broadcast_shapes(left_batch, right_batch)
    assert out.shape == (*batch, 6, 9)
    expected = dense_from_blocks(*left, (6, 8)) @ dense_from_blocks(*right, (8, 9))
    assert (engine.host(out.toarray()) == expected).all()


def test_batches_of_different_patterns(engine, rng):
    """Equal counts, different places: every batch has its own positions."""
    eye = np.arange(4, dtype=np.int32)
    indices = np.stack([eye, eye[::-1], np.roll(eye, 1)])
    indptr = np.broadcast_to(np.arange(5, dtype=np.int32), (3, 5)).copy()
    data = random_values(rng, (3, 4, 2, 2), "float64", small_integers=True)
    a = engine.bsr((data, indices, indptr), (8, 8))
    b = engine.bsr((data[1], indices[1], indptr[1]), (8, 8))
    with engine.runs("bsr_spgemm"):
        out, other = sparsegpu.bsr_spgemm(a, b), sparsegpu.bsr_spgemm(b, a)
    x = dense_from_blocks(data, indices, indptr, (8, 8)).astype(np.float64)
    assert (engine.host(out.toarray()) == x @ x[1]).all()
    assert (engine.host(other.toarray()) == x[1] @ x).all()


def test_cancellation_keeps_the_block(engine):
    a = sparsegpu.bsr_array(engine.array(np.array([[1.0, 1.0]])), blocksize=(1, 1))
    b = sparsegpu.bsr_array(engine.array(np.array([[1.0], [-1.0]])), blocksize=(1, 1))
    with engine.runs("bsr_spgemm"):
        out = sparsegpu.bsr_spgemm(a, b)
    assert out.nnzb == 1
    assert engine.host(out.data).ravel().tolist() == [0.0]


@pytest.mark.parametrize("out_dtype", ["int8", "float32", "float16"])
def test_out_dtype(engine, rng, out_dtype):
    left = random_blocks(rng, (8, 8), (4, 4), dtype="int8", density=0.6)
    a = engine.bsr(left, (8, 8))
    with engine.runs("bsr_spgemm"):
        out = sparsegpu.bsr_spgemm(a, a, out_dtype=out_dtype)
    exact = dense_from_blocks(*left, (8, 8))
    exact = exact @ exact
    if out_dtype == "int8":
        exact = np.clip(exact, -128, 127)
    with np.errstate(over="ignore"):
        expected = exact.astype(np.float32).astype(out_dtype)
    assert (engine.host(out.toarray()) == expected).all()


@pytest.mark.parametrize(("m", "k", "n"), [(0, 4, 4), (4, 0, 4), (4, 4, 0), (0, 0, 0)])
def test_zero_sizes(engine, rng, m, k, n):
    a = engine.bsr(random_blocks(rng, (m, k), (2, 2)), (m, k))
    b = engine.bsr(random_blocks(rng, (k, n), (2, 2)), (k, n))
    with engine.runs(None):
        out = sparsegpu.bsr_spgemm(a, b)
    assert out.shape == (m, n)
    assert out.nnzb == 0


@drawn(25, derandomize=True)
@given(
    blocks=st.tuples(*[st.integers(0, 6)] * 3),
    blocksize=st.tuples(*[st.integers(1, 9)] * 3),
    density=st.floats(0, 1),
    seed=st.integers(0, 2**20),
)
def test_any_shape(engine, blocks, blocksize, density, seed):
    rng = np.random.default_rng(seed)
    m, k, n = (x * y for x, y in zip(blocks, blocksize))
    left = random_blocks(rng, (m, k), blocksize[:2], density=density, small_integers=True)
    right = random_blocks(rng, (k, n), blocksize[1:], density=density, small_integers=True)
    meet = expected_positions(left, right)
    with engine.runs("bsr_spgemm" if len(left[1]) and len(right[1]) else None):
        out = sparsegpu.bsr_spgemm(engine.bsr(left, (m, k)), engine.bsr(right, (k, n)))
    assert positions(engine, out) == meet
    expected = dense_from_blocks(*left, (m, k)) @ dense_from_blocks(*right, (k, n))
    assert (engine.host(out.toarray()) == expected).all()


@pytest.mark.parametrize(
    ("b", "error", "message"),
    [
        (sparsegpu.bsr_array(np.eye(6), blocksize=(2, 2)), ValueError, r"'b': .*shape \(8, N\)"),
        (sparsegpu.bsr_array(np.eye(8), blocksize=(4, 2)), ValueError, r"'b': .*\(2, bn\).*tobsr"),
        (sparsegpu.bsr_array(np.eye(8, dtype="f4"), blocksize=(2, 2)), TypeError, "'b': .*float64"),
        (np.eye(8), TypeError, "'b': expected a bsr_array, got numpy.ndarray"),
    ],
)
def test_errors(b, error, message):
    """Unequal block sizes are named, with the way to equal ones."""
    a = sparsegpu.bsr_array(np.eye(8), blocksize=(2, 2))
    with pytest.raises(error, match="^bsr_spgemm: argument " + message):
        sparsegpu.bsr_spgemm(a, b)


def test_bool_is_no_operand():
    a = sparsegpu.bsr_array(np.eye(8, dtype=bool), blocksize=(2, 2))
    with pytest.raises(TypeError, match="bsr_spgemm: argument 'a': expected one of the dtypes"):
        sparsegpu.bsr_spgemm(a, a)


def test_batches_that_keep_different_counts():
    left = np.stack([np.eye(4), np.ones((4, 4)) * [1, 1, 0, 0]])
    right = np.ones((4, 4)) * [[1], [1], [0], [0]]
    a, b = (sparsegpu.bsr_array(x, blocksize=(2, 2)) for x in (left, right))
    assert a.nnzb == 2
    with pytest.raises(ValueError, match="stored blocks in every batch of the result, got"):
        sparsegpu.bsr_spgemm(a, b)


def operands(engine, rng, dtype="float64", blocksize=(4, 4, 4)):
    (bm, bk, bn), how = blocksize, {"dtype": dtype, "small_integers": True, "density": 0.5}
    left = random_blocks(rng, (5 * bm, 6 * bk), (bm, bk), **how)
    right = random_blocks(rng, (6 * bk, 4 * bn), (bk, bn), **how)
    return engine.bsr(left, (5 * bm, 6 * bk)), engine.bsr(right, (6 * bk, 4 * bn))


def dense_product(engine, a, b):
    """As complex numbers of float64, where sums of small integers are exact."""
    x, y = (engine.host(m.toarray()) for m in (a, b))
    return x.astype(complex) @ y.astype(complex)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "complex64"])
def test_into_out(engine, rng, dtype):
    a, b = operands(engine, rng, dtype)
    with engine.runs("bsr_spgemm"):
        first = sparsegpu.bsr_spgemm(a, b)
    before = engine.host(first.data).copy()
    foreign = engine.bsr(
        (engine.host(first.data) * 0 + 9, *map(engine.host, (first.indices, first.indptr))),
        first.shape,
    )
    twice, expected = a.with_data(a.data + a.data), 2 * dense_product(engine, a, b)
    for out in (first.copy(), foreign, first.with_data(engine.xp.asfortranarray(first.data))):
        data = out.data
        with engine.runs("bsr_spgemm"):
            assert sparsegpu.bsr_spgemm(twice, b, out=out) is out
        assert out.data is data
        assert (engine.host(out.toarray()) == expected).all()
    with engine.runs("bsr_spgemm"):
        later = sparsegpu.bsr_spgemm(twice, b)
    assert (engine.host(later.toarray()) == expected).all()
    assert (engine.host(first.data) == before).all()  # earlier results keep their values


def test_out_says_the_dtype(engine, rng):
    a, b = operands(engine, rng, "float16")
    with engine.runs("bsr_spgemm"):
        out = sparsegpu.bsr_spgemm(a, b, out_dtype="float32")
        assert sparsegpu.bsr_spgemm(a, b, out=out, out_dtype="float32") is out
        assert sparsegpu.bsr_spgemm(a, b, out=out).dtype == "float32"
    with engine.runs(None):
        with pytest.raises(TypeError, match=r"^bsr_spgemm: argument 'out': expected dtype float16"):
            sparsegpu.bsr_spgemm(a, b, out=out, out_dtype="float16")
        with pytest.raises(TypeError, match=r"^bsr_spgemm: argument 'out': expected one of"):
            sparsegpu.bsr_spgemm(a, b, out=out.astype("float64"))


@pytest.mark.parametrize("known", [False, True])
def test_refused_outs(engine, known):
    """Of another pattern, or an operand; before and after the product's plan is known."""
    full, eye = np.ones((8, 8)), np.eye(8)
    a, b = (sparsegpu.bsr_array(engine.array(x), blocksize=(2, 2)) for x in (full, eye))
    if known:
        with engine.runs("bsr_spgemm"):
            a @ b
    other = sparsegpu.bsr_array(engine.array(eye), blocksize=(2, 2))
    for out, message in (
        (other, "'out': expected the pattern of the result"),
        (a, "'out': expected memory apart from 'a'"),
        (a.with_data(a.data[::-1]), "'out': expected memory apart from 'a'"),
    ):
        before = engine.host(out.data).copy()
        with pytest.raises(ValueError, match="^bsr_spgemm: argument " + message):
            sparsegpu.bsr_spgemm(a, b, out=out)
        assert (engine.host(out.data) == before).all()
    with pytest.raises(ValueError, match="'out': expected memory apart from 'b'"):
        sparsegpu.bsr_spgemm(b, a, out=a)
    with pytest.raises(TypeError, match="'out': expected a bsr_array"):
        sparsegpu.bsr_spgemm(a, b, out=a.toarray())


def test_what_two_patterns_make_is_kept_while_both_live(engine, rng):
    a, b = operands(engine, rng)
    with engine.runs("bsr_spgemm"):
        pattern = sparsegpu.bsr_spgemm(a, b).pattern
        for left, right in ((a, b), (a.with_data(-a.data), 2 * b)):
            assert (left @ right).pattern is pattern
        assert sparsegpu.bsr_spgemm(a, b.copy()).pattern is pattern
    watched = weakref.ref(pattern)
    del pattern, right
    gc.collect()
    assert watched() is not None
    with engine.runs("bsr_spgemm"):
        assert (a @ b).pattern is watched()
    del b
    gc.collect()
    assert watched() is None  # a alone keeps nothing of it


def test_no_cycle_keeps_a_pattern(engine, rng):
    """Not even that of a product with itself."""
    a = engine.bsr(random_blocks(rng, (12, 12), (2, 2), density=0.5), (12, 12))
    with engine.runs("bsr_spgemm"):
        watched = [weakref.ref(x.pattern) for x in (a, a @ a, a @ (a @ a))]
    gc.collect()
    gc.disable()
    try:
        del a
        assert [w() for w in watched] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("side", ["left", "right", "both"])
def test_powers_do_not_pile_up(engine, rng, side):
    """Every power's pattern is new, and is kept with that of the one before."""
    a = engine.bsr(random_blocks(rng, (12, 12), (2, 2), density=0.5), (12, 12))
    steps = {"left": lambda p: a @ p, "right": lambda p: p @ a, "both": lambda p: a.T @ p @ a}
    power, watched = a, []
    with engine.runs("bsr_spgemm"):
        for _ in range(3 * RECENT):
            power = steps[side](power)
            watched.append(weakref.ref(power.pattern))
    gc.collect()
    assert sum(w() is not None for w in watched) <= RECENT + 1


def test_threads_multiply_both_ways_round(engine, rng):
    """Each builds what is kept with the pattern that the other one reads."""
    for _ in range(20):
        a = engine.bsr(random_blocks(rng, (12, 12), (2, 2), small_integers=True), (12, 12))
        b = engine.bsr(random_blocks(rng, (12, 12), (2, 2), small_integers=True), (12, 12))
        start = threading.Barrier(4)

        def multiply(left, right, start=start):
            start.wait()
            with sparsegpu.use_engine(engine.name):
                return left @ right

        with ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(multiply, *pair) for pair in [(a, b), (b, a)] * 2]
            results = [future.result(timeout=60) for future in futures]
        for out, (left, right) in zip(results, [(a, b), (b, a)] * 2):
            assert (engine.host(out.toarray()) == dense_product(engine, left, right)).all()
        assert results[0].pattern is results[2].pattern
