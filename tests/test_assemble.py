"""Arrays put together of others, and of blocks; held against SciPy's functions of these names."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import sparsegpu as sg
from operator_cases import check, make
from sparsegpu._arrays import bfloat16


def scipy_of(*arrays):
    return [a.get().to_scipy() for a in arrays]


def same(engine, ours, theirs, blocksize):
    ours.check_format()
    assert isinstance(ours, sg.bsr_array) and ours.blocksize == blocksize
    check(engine, ours, theirs.toarray())


@pytest.mark.parametrize("duplicates", [False, True])
def test_stacks(engine, rng, duplicates):
    a, _ = make(engine, rng, dtype="float64", duplicates=duplicates)
    b, _ = make(engine, rng, dtype="float32", blocksize=(2, 5), duplicates=duplicates)
    c, _ = make(engine, rng, dtype="float64", shape=(6, 20))
    same(engine, sg.vstack([a, b, c]), sp.vstack(scipy_of(a, b, c)), (3, 4))
    d, _ = make(engine, rng, dtype="int8", shape=(12, 8))
    same(engine, sg.hstack((d, a)), sp.hstack(scipy_of(d, a)), (3, 4))
    same(engine, sg.block_diag([a, c, d]), sp.block_diag(scipy_of(a, c, d)), (3, 4))
    same(engine, sg.vstack([a]), sp.vstack(scipy_of(a)), (3, 4))
    low = sg.hstack([a, a], dtype="float32")
    assert low.dtype == np.float32 and low.nnzb == 2 * a.nnzb


def test_grids(engine, rng):
    a, _ = make(engine, rng, dtype="float64", shape=(12, 12), blocksize=(2, 2), duplicates=True)
    b, _ = make(engine, rng, dtype="float32", shape=(6, 12), blocksize=(2, 4))
    c, _ = make(engine, rng, dtype="int8", shape=(6, 8), blocksize=(3, 4))
    a_, b_, c_ = scipy_of(a, b, c)
    saddle = sg.block_array([[a, b.T], [b, None]])
    same(engine, saddle, sp.block_array([[a_, b_.T], [b_, None]]), (2, 2))
    grid = sg.block_array(((b, None, c), [None, a, None]))
    same(engine, grid, sp.block_array([[b_, None, c_], [None, a_, None]]), (2, 4))
    assert sg.block_array([[a]], dtype="float32").dtype == np.float32


def test_stacks_of_sparse_arrays_of_scipy(rng):
    a = sg.random_bsr((12, 20), (3, 4), 0.5, rng=rng)
    b = sp.random_array((6, 20), density=0.3, rng=rng, format="csr")
    ours = sg.vstack([b, a])
    assert ours.blocksize == (3, 4)
    np.testing.assert_array_equal(ours.toarray(), sp.vstack([b, a.to_scipy()]).toarray())


@pytest.mark.parametrize("fmt", ["dok", "lil"])
def test_formats_without_an_array_of_values(rng, fmt):
    dense = rng.integers(-3, 4, (4, 6)).astype(float)
    a, theirs = sg.bsr_array(dense, blocksize=(2, 3)), getattr(sp, f"{fmt}_array")(dense)
    np.testing.assert_array_equal(sg.vstack([a, theirs]).toarray(), np.vstack([dense, dense]))
    np.testing.assert_array_equal(sg.kron(theirs, a).toarray(), np.kron(dense, dense))
    for dot in (a @ theirs.T, a.dot(theirs.T)):
        np.testing.assert_array_equal(dot.toarray(), dense @ dense.T)


def test_stacks_share_nothing(rng):
    a = sg.random_bsr((4, 4), (2, 2), 1.0, rng=rng)
    before = a.toarray()
    sg.vstack([a]).data[...] = 0
    np.testing.assert_array_equal(a.toarray(), before)


def test_kron(engine, rng):
    a, dense_a = make(engine, rng, shape=(4, 6), blocksize=(2, 3), dtype="float64", duplicates=True)
    b, dense_b = make(engine, rng, shape=(6, 4), blocksize=(3, 2), dtype="float32", duplicates=True)
    expected = sp.kron(sp.csr_array(dense_a), sp.csr_array(dense_b))
    same(engine, sg.kron(a, b), expected, (3, 2))
    same(engine, sg.kron(engine.array(dense_a), b), expected, (3, 2))
    same(engine, sg.kron(a, engine.array(dense_b)), expected, (6, 4))
    if not engine.on_gpu:
        same(engine, sg.kron(sp.csr_array(dense_a), b), expected, (3, 2))
    none = sg.kron(a * 0, b)
    assert none.shape == expected.shape and none.nnzb == 0


@pytest.mark.parametrize("k", [0, 1, -2, 3])
@pytest.mark.parametrize("dtype", ["float64", "int8", "bool"])
def test_eye(engine, k, dtype):
    ours = sg.eye(6, 8, k=k, dtype=dtype, blocksize=(2, 4), xp=engine.xp)
    same(engine, ours, sp.eye_array(6, 8, k=k, dtype=dtype), (2, 4))


def test_identity(engine):
    ours = sg.identity(6, dtype="float32", blocksize=(3, 3), xp=engine.xp)
    same(engine, ours, sp.identity(6, dtype="float32"), (3, 3))
    assert sg.eye(5).dtype == np.float64 and sg.eye(5).blocksize == (1, 1)
    assert sg.identity(0).shape == (0, 0)
    for k in (30, -30):
        np.testing.assert_array_equal(sg.eye(6, 8, k=k).toarray(), np.eye(6, 8, k=k))
    assert sg.eye(4, dtype="bfloat16", blocksize=(2, 2)).dtype == bfloat16


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "bool"])
def test_from_blocks(engine, rng, dtype):
    n = 30
    rows, cols = rng.integers(0, 4, n), rng.integers(0, 5, n)
    blocks = rng.integers(0, 3, (n, 3, 2)).astype(dtype)
    a = sg.from_blocks(*map(engine.array, (rows, cols, blocks)), shape=(12, 10))
    a.check_format()
    expected = np.zeros((12, 10), np.int64)
    for i, j, block in zip(rows, cols, blocks):
        expected[3 * i : 3 * i + 3, 2 * j : 2 * j + 2] += block.astype(np.int64)
    assert a.has_canonical_format and a.blocksize == (3, 2)
    check(engine, a, expected.astype(dtype))


def test_from_blocks_sums_in_accumulator_precision(engine):
    """2048 + 1 + 1 is 2048 in float16 if it is rounded at every sum."""
    blocks = np.array([2048, 1, 1], np.float16).reshape(3, 1, 1)
    index = engine.array(np.zeros(3, np.int32))
    assert engine.host(sg.from_blocks(index, index, engine.array(blocks)).toarray()) == 2050


def test_from_blocks_of_lists():
    a = sg.from_blocks([1, 0], [0, 1], [[[1.0]], [[2.0]]])
    assert a.toarray().tolist() == [[0, 2], [1, 0]]
    assert sg.from_blocks([], [], np.zeros((0, 2, 3)), shape=(4, 6)).nnzb == 0


def test_places_in_another_byte_order():
    places = np.array([1, 0], ">i8")
    a = sg.from_blocks(places, places[::-1], np.ones((2, 1, 1)), shape=(2, 3))
    assert a.toarray().tolist() == [[0, 1, 0], [1, 0, 0]]
    with pytest.raises(ValueError, match=r"^from_blocks: argument 'rows': .* 0\.\.0, got 1$"):
        sg.from_blocks(places, places, np.ones((2, 1, 1)), shape=(1, 2))


def test_assembly_is_that_of_elements(rng):
    """Of triangles with two unknowns a node: the sum of element matrices, as SciPy does it."""
    nodes = rng.integers(0, 6, (10, 3))
    stiffness = rng.integers(-3, 4, (10, 3, 3, 2, 2)).astype(float)
    rows, cols = np.repeat(nodes, 3, axis=1).ravel(), np.tile(nodes, (1, 3)).ravel()
    ours = sg.from_blocks(rows, cols, stiffness.reshape(-1, 2, 2), shape=(12, 12))
    row = (2 * rows[:, None, None] + np.arange(2)[:, None] + np.zeros((2, 2), int)).ravel()
    column = (2 * cols[:, None, None] + np.arange(2) + np.zeros((2, 2), int)).ravel()
    theirs = sp.coo_array((stiffness.ravel(), (row, column)), shape=(12, 12))
    np.testing.assert_array_equal(ours.toarray(), theirs.toarray())


A = sg.bsr_array(np.eye(4), blocksize=(2, 2))
BATCH = sg.bsr_array(np.ones((2, 4, 4)), blocksize=(2, 2))
BLOCKS = np.ones((1, 2, 2))


def test_kron_looks_at_the_elements_of_scipys_arrays():
    stored = sp.csr_array(np.eye(2))
    stored.data, stored.indices = np.append(stored.data, 9), np.append(stored.indices, 0)
    assert sg.kron(stored, np.ones((1, 1))).toarray().tolist() == [[1, 0], [0, 1]]
    repeated = sp.coo_array((np.array([1, 2]), ([0, 0], [1, 1])), shape=(1, 2))  # int64
    assert sg.kron(repeated, np.ones((1, 1))).toarray().tolist() == [[0, 3]]
    beyond = sp.coo_array(np.eye(2))
    beyond.coords[0][0] = 7
    with pytest.raises(ValueError, match=r"^kron: argument 'A': expected rows in 0\.\.1, got 7"):
        sg.kron(beyond, np.ones((2, 2)))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: sg.vstack([A, sg.eye(6, blocksize=(2, 2))]), ValueError,
         r"vstack: argument 'blocks': expected 4 columns .*got 6"),
        (lambda: sg.hstack([A, sg.eye(6, blocksize=(2, 2))]), ValueError,
         r"hstack: argument 'blocks': expected 4 rows .*got 6"),
        (lambda: sg.block_diag([A, sg.eye(3)]), ValueError,
         r"block_diag: argument 'blocks': .*\(2, 2\) divide.*got \(3, 3\)"),
        (lambda: sg.block_array([[A, A], [A]]), ValueError,
         "block_array: argument 'blocks': expected rows of 2 matrices, got 1"),
        (lambda: sg.block_array([[A, None], [A, None]]), ValueError,
         "block_array: argument 'blocks': expected a matrix in every row and in every column"),
        (lambda: sg.block_array([[None]]), ValueError, "block_array: argument 'blocks': expected"),
        (lambda: sg.block_array([A, A]), TypeError, "block_array: .* a list of lists"),
        (lambda: sg.block_array([[A, None], [sg.eye(6, blocksize=(2, 2)), A]]), ValueError,
         r"block_array: argument 'blocks': expected 4 columns like the first, got 6"),
        (lambda: sg.vstack([A, None]), TypeError, "vstack: argument 'blocks': expected a bsr_ar"),
        (lambda: sg.vstack([A, BATCH]), ValueError, "vstack: argument 'blocks': .*one matrix"),
        (lambda: sg.vstack([]), ValueError, "vstack: argument 'blocks': expected at least one"),
        (lambda: sg.vstack([A, np.eye(4)]), TypeError, "vstack: argument 'blocks': expected a bsr"),
        (lambda: sg.vstack([sp.eye_array(4)]), TypeError, "vstack: argument 'blocks': .*at least"),
        (lambda: sg.vstack(A), TypeError, "vstack: argument 'blocks': expected a list"),
        (lambda: sg.vstack([A.astype("float16"), A.astype("bfloat16")]), TypeError,
         "vstack: argument 'blocks': expected a dtype that mixes"),
        (lambda: sg.kron(A, BATCH), ValueError, "kron: argument 'B': expected one matrix"),
        (lambda: sg.kron(BATCH, A), ValueError, "kron: argument 'A': expected one matrix"),
        (lambda: sg.kron(A, np.ones((300, 2))), ValueError, r"kron: argument 'B': .*256.*\(300, 2"),
        (lambda: sg.kron(A, np.ones(3)), ValueError, r"kron: argument 'B': .*two-dim.*\(3,\)"),
        (lambda: sg.kron(A, sp.eye_array(4)), TypeError, "kron: argument 'B': expected a bsr_arr"),
        (lambda: sg.eye(5, blocksize=(2, 2)), ValueError, "eye: argument 'blocksize': .*divides"),
        (lambda: sg.eye(-1), ValueError, "eye: argument 'm'"),
        (lambda: sg.identity(2.5), TypeError, "identity: argument 'n'"),
        (lambda: sg.identity(4, dtype="int64"), TypeError, "identity: argument 'dtype'"),
        (lambda: sg.from_blocks([2], [0], BLOCKS, shape=(4, 4)), ValueError,
         r"from_blocks: argument 'rows': expected block rows in 0\.\.1, got 2"),
        (lambda: sg.from_blocks([0], [-1], BLOCKS), ValueError,
         "from_blocks: argument 'cols': expected block columns .* got -1"),
        (lambda: sg.from_blocks([0, 1], [0, 1], BLOCKS), ValueError,
         r"from_blocks: argument 'rows': expected shape \(1,\)"),
        (lambda: sg.from_blocks([0.5], [0], BLOCKS), TypeError,
         "from_blocks: argument 'rows': expected an integer dtype"),
        (lambda: sg.from_blocks([0], [0], np.ones((2, 2))), ValueError,
         r"from_blocks: argument 'blocks': expected shape \(n, bm, bk\)"),
        (lambda: sg.from_blocks([0], [0], BLOCKS, shape=(3, 4)), ValueError,
         "from_blocks: argument 'shape': expected multiples"),
        (lambda: sg.from_blocks([], [], np.zeros((0, 2, 2))), ValueError,
         "from_blocks: argument 'shape'"),
        (lambda: sg.from_blocks([0], [0], BLOCKS.astype("int64")), TypeError,
         "from_blocks: argument 'blocks': expected one of the dtypes"),
    ],
)  # fmt: skip
def test_bad_arguments(call, error, match):
    with pytest.raises(error, match=f"^{match}"):
        call()


def test_host_and_device_do_not_mix(cuda_engine):
    a = A.to_device()
    for call in (
        lambda: sg.vstack([a, A]),
        lambda: sg.kron(a, A),
        lambda: sg.kron(a, np.eye(2)),
        lambda: sg.from_blocks([0], [0], a.data[:1]),
    ):
        with pytest.raises(TypeError, match="no silent copy across the bus"):
            call()
