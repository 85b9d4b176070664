"""BSR @ few columns: how the work is shared out, and rows that many warps share.

`test_addmm.py` holds the products themselves, through whatever path serves them.
"""

import numpy as np
import pytest
from sparsegpu.engines.cuda.runtime.fragment_tile import fragment_tile, takes_fragments
from sparsegpu.engines.cuda.runtime.skinny_tile import skinny_tile
from sparsegpu.engines.cuda.runtime.vector_tile import (
    MOST_COLUMNS,
    FewColumns,
    takes_blocks,
    vector_tile,
)

import sparsegpu
from sparsegpu import bsr_addmm, bsr_matmul
from sparsegpu._arrays import dtype_of
from sparsegpu.engines.cuda.paths._row_split import balanced_pieces
from sparsegpu.pattern import Pattern
from sparsegpu.testing import assert_within_bound, dense_from_blocks, random_values

VECTOR = {"path": "vector"}


def blocks_of(rng, lengths, columns, blocksize, dtype="float32", *, small_integers=True):
    """Return (data, indices, indptr) with rows of the given lengths."""
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = rng.integers(0, columns, int(indptr[-1])).astype(np.int32)
    data = random_values(rng, (indices.size, *blocksize), dtype, small_integers=small_integers)
    return data, indices, indptr


def skewed(rng, rows, longest):
    """Row lengths of every kind: empty, short, one of ``longest``."""
    lengths = rng.integers(0, 6, rows)
    lengths[rng.integers(0, rows, rows // 3)] = 0
    lengths[rows // 2] = longest
    return lengths


# -- the plan -----------------------------------------------------------------------------------


def pattern_of(lengths):
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return Pattern(indptr, np.zeros(indptr[-1], int), (2 * len(lengths), 2), (2, 2))


def test_similar_rows_need_no_pieces(rng):
    assert balanced_pieces(pattern_of(np.full(100, 9))) is None
    assert balanced_pieces(pattern_of(rng.integers(0, 30, 100))) is None
    assert balanced_pieces(pattern_of(np.zeros(10, int))) is None


@pytest.mark.parametrize("longest", [50, 1000, 100_000])
def test_pieces_cover_every_row_and_block_once(rng, longest):
    lengths = skewed(rng, 200, longest)
    lengths[7] = 40
    plan = balanced_pieces(pattern_of(lengths))
    begin, end, row, part = plan.pieces.T
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    order = np.lexsort((begin, row))
    np.testing.assert_array_equal(np.unique(row), np.arange(200))
    for r in range(200):
        mine = order[row[order] == r]
        assert begin[mine[0]] == indptr[r] and end[mine[-1]] == indptr[r + 1]
        np.testing.assert_array_equal(begin[mine[1:]], end[mine[:-1]])
        entry = plan.rows[plan.rows[:, 0] == r]
        if len(mine) == 1:
            assert part[mine[0]] == -1 and not len(entry)
        else:
            assert entry[0, 2] == len(mine)
            np.testing.assert_array_equal(part[mine], entry[0, 1] + np.arange(len(mine)))
    assert len(set(part[part >= 0])) == (part >= 0).sum() == plan.parts - 1
    size = np.floor(np.log2(end - begin + 1))
    assert (np.diff(size) <= 0).all()  # longest first


def test_pieces_of_a_batch():
    """Both matrices of a batch get as many pieces; what is filled up has no blocks."""
    indptr = np.array([[0, 400, 400, 410], [0, 200, 300, 410]])
    pattern = Pattern(indptr, np.zeros((2, 410), int), (3, 2), (1, 2))
    assert balanced_pieces(pattern) is None  # long rows, but not beside the others
    indptr = np.concatenate([indptr, np.full((2, 60), 410)], axis=1)
    pattern = Pattern(indptr, np.zeros((2, 410), int), (63, 2), (1, 2))
    plan = balanced_pieces(pattern)
    assert plan.pieces.shape[0] == 2 and plan.rows.shape[0] == 2
    for pieces in plan.pieces:
        filler = pieces[:, 3] == plan.parts - 1
        assert (pieces[filler, 0] == pieces[filler, 1]).all()
        assert (pieces[:, 1] - pieces[:, 0]).sum() == 410


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "complex128"])
@pytest.mark.parametrize("columns", [1, 2, 3, 5, 8, 11, 16])
@pytest.mark.parametrize("vectors", [(1, 1), (16, 1), (1, 16), (4, 2)])
def test_tile_keeps_what_the_kernel_asserts(dtype, columns, vectors):
    dtype = dtype_of(dtype)
    along_k, along_n = (max(v // dtype.itemsize, 1) for v in vectors)
    for bm, bk in [(1, 1), (2, 2), (3, 3), (4, 4), (6, 6), (8, 8), (5, 13), (16, 16), (2, 48)]:
        if not takes_blocks(dtype, (bm, bk), columns):
            continue
        for row_blocks in (0.5, 7, 1000):
            product = FewColumns(
                (9, 0), dtype, (bm, bk), columns, row_blocks, along_k=along_k, along_n=along_n
            )
            tile = vector_tile(product)
            across = -(-bk // tile.block_columns)
            groups = tile.column_groups
            assert groups * tile.columns >= columns
            lanes = tile.row_lanes * across * groups
            assert lanes <= tile.team <= 32 and tile.team & (tile.team - 1) == 0
            assert groups & (groups - 1) == 0
            assert tile.row_lanes == 1 or across & (across - 1) == 0
            assert tile.x_vector != 1 or bk % tile.block_columns == 0
            assert tile.x_vector != 2 or columns == groups * tile.columns


@pytest.mark.parametrize("blocksize", [(2, 2), (4, 4), (8, 8), (2, 8), (8, 4)])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 7, 8])
def test_fragments_fill_what_they_may(blocksize, columns):
    bm, _ = blocksize
    for row_blocks in (0.5, 7, 20, 1000):
        tile = fragment_tile(
            FewColumns((9, 0), np.dtype("float64"), blocksize, columns, row_blocks)
        )
        assert tile.teams * bm <= 8 and tile.teams * columns <= 8
        assert 3 <= tile.unroll <= 6


def test_fragments_are_for_fast_float64():
    product = FewColumns((9, 0), np.dtype("float64"), (4, 4), 8, 20)
    assert takes_fragments(product) and takes_fragments(product._replace(cc=(8, 0)))
    for changed in (
        {"cc": (8, 6)},
        {"cc": (12, 0)},
        {"blocksize": (3, 4)},
        {"columns": 9},
        {"data_alignment": 8},
    ):
        assert not takes_fragments(product._replace(**changed))


@pytest.mark.parametrize("dense", ["rows", "columns"])
@pytest.mark.parametrize("columns", [1, 16, 17, 64, 65, 128])
def test_skinny_tile_fits_shared_memory(dense, columns):
    for shared_memory in (99 * 1024, 163 * 1024, 227 * 1024):
        for bm in (8, 16, 24, 64, 128, 256):
            for rows in (16, 4096, 10**6):
                tile = skinny_tile((bm, 64), rows, columns, dense, 132, shared_memory)
                assert tile.shared_memory(dense) <= shared_memory
                assert tile.tile_m < 2 * max(bm, 16) and tile.tile_n >= min(columns, 128)


# -- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "blocksize"),
    [("float32", (3, 3)), ("float64", (4, 4)), ("complex64", (1, 1)), ("int8", (5, 13))],
)
@pytest.mark.parametrize("n", [1, 3, 8])
def test_long_and_empty_rows(engine, rng, dtype, blocksize, n):
    """A row much longer than a warp's share is added up from many parts."""
    bm, bk = blocksize
    triple = blocks_of(rng, skewed(rng, 60, 5000), 40, blocksize, dtype)
    shape = (60 * bm, 40 * bk)
    dense = dense_from_blocks(*triple, shape)
    bsr = sparsegpu.bsr_array(tuple(engine.array(a) for a in triple), shape=shape)
    x = random_values(rng, (shape[1], n), dtype, small_integers=True)
    bias = random_values(rng, (shape[0], 1), dtype, small_integers=True)
    expected = dense @ x.astype(dense.dtype)
    for _ in range(2):
        with engine.runs("bsr_addmm_vector"):
            out = bsr_matmul(bsr, engine.array(x), config=VECTOR)
            fused = bsr_addmm(engine.array(bias), bsr, engine.array(x), beta=2, config=VECTOR)
        np.testing.assert_array_equal(engine.host(out), expected.astype(out.dtype))
        np.testing.assert_array_equal(
            engine.host(fused), (expected + 2 * bias.astype(dense.dtype)).astype(out.dtype)
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("blocksize", "n"),
    [((2, 2), 2), ((8, 8), 1), ((2, 8), 3), ((4, 4), 4), ((4, 4), 8), ((8, 4), 7), ((8, 8), 8)],
)
def test_fragments(engine, rng, dtype, blocksize, n):
    """Rows of every length, whole and in pieces, rows and columns of dense contiguous."""
    bm, bk = blocksize
    for lengths in (skewed(rng, 23, 700), rng.integers(0, 9, 23)):
        triple = blocks_of(rng, lengths, 19, blocksize, dtype)
        shape = (23 * bm, 19 * bk)
        dense = dense_from_blocks(*triple, shape)
        bsr = sparsegpu.bsr_array(tuple(engine.array(a) for a in triple), shape=shape)
        x = random_values(rng, (shape[1], n), dtype, small_integers=True)
        bias = random_values(rng, (shape[0], 1), dtype, small_integers=True)
        moved, term = engine.array(x), engine.array(bias)
        turned = engine.xp.ascontiguousarray(moved.T).T
        with engine.runs("bsr_addmm_vector"):
            out = bsr_matmul(bsr, moved, config=VECTOR)
            by_columns = bsr_matmul(bsr, turned, config=VECTOR)
            fused = bsr_addmm(term, bsr, moved, beta=2, config=VECTOR)
        for product in (out, by_columns):
            np.testing.assert_array_equal(engine.host(product), dense @ x)
        np.testing.assert_array_equal(engine.host(fused), dense @ x + 2 * bias)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("blocksize", "n"), [((8, 8), 1), ((2, 2), 2), ((4, 4), 8)])
def test_infinities_stay_in_their_row(engine, rng, dtype, blocksize, n):
    """Rows that meet in a fragment, and blocks beside the last of a row, do not mix."""
    triple = blocks_of(rng, rng.integers(0, 4, 41), 50, blocksize, dtype)
    bm, bk = blocksize
    shape = (41 * bm, 50 * bk)
    data, indices, indptr = triple
    data[indptr[20] : indptr[21]] = np.inf
    x = np.ones((shape[1], n), dtype)
    x[indices[indptr[30] : indptr[31]] * bk] = np.nan
    touched = np.isin(indices, indices[indptr[30] : indptr[31]])
    bsr = sparsegpu.bsr_array(tuple(engine.array(a) for a in triple), shape=shape)
    with engine.runs("bsr_addmm_vector"):
        out = engine.host(bsr_matmul(bsr, engine.array(x), config=VECTOR))
    for r in range(41):
        blocks = slice(indptr[r], indptr[r + 1])
        row = out[r * bm : (r + 1) * bm]
        if touched[blocks].any():
            assert np.isnan(row).all()
        elif r == 20 and indptr[21] > indptr[20]:
            assert np.isinf(row).all()
        else:
            assert np.isfinite(row).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_bits_and_within_the_bound(engine, rng, dtype):
    triple = blocks_of(rng, skewed(rng, 80, 20000), 500, (3, 3), dtype, small_integers=False)
    shape = (240, 1500)
    bsr = sparsegpu.bsr_array(tuple(engine.array(a) for a in triple), shape=shape)
    x = random_values(rng, (1500, 2), dtype)
    outs = []
    for _ in range(3):
        with engine.runs("bsr_addmm_vector"):
            outs.append(engine.host(bsr_matmul(bsr, engine.array(x), config=VECTOR)))
    assert (outs[0] == outs[1]).all() and (outs[0] == outs[2]).all()
    # Duplicates are terms of their own in the bound, so it is computed term by term.
    data, indices, indptr = triple
    row = np.repeat(np.arange(80), np.diff(indptr))
    terms = np.zeros((240, indices.size * 3)) if indices.size * 3 < 1000 else None
    assert terms is None
    middle = row == 40
    wide = data[middle].astype(np.float64).transpose(1, 0, 2).reshape(3, -1)
    met = x.reshape(500, 3, 2)[indices[middle]].reshape(-1, 2)
    assert_within_bound(outs[0][120:123], wide, met, dtype=dtype)


def test_batches_and_broadcast_patterns(engine, rng):
    lengths = np.stack([rng.permutation([0, 300, 1, 2, 7, 0]) for _ in range(2)])
    indptr = np.concatenate([np.zeros((2, 1), int), np.cumsum(lengths, 1)], 1).astype(np.int32)
    indices = rng.integers(0, 20, (2, 310)).astype(np.int32)
    data = random_values(rng, (2, 310, 2, 2), "float32", small_integers=True)
    dense = dense_from_blocks(data, indices, indptr, (12, 40))
    bsr = sparsegpu.bsr_array(
        tuple(engine.array(a) for a in (data, indices, indptr)), shape=(12, 40)
    )
    x = random_values(rng, (3, 1, 40, 5), "float32", small_integers=True)
    with engine.runs("bsr_addmm_vector"):
        out = bsr_matmul(bsr, engine.array(x), config=VECTOR)
    np.testing.assert_array_equal(engine.host(out), dense @ x)


def test_values_at_odd_addresses(engine, rng):
    """No more is taken for granted than that elements are aligned."""
    data, indices, indptr = blocks_of(rng, skewed(rng, 30, 200), 25, (4, 4))
    dense = dense_from_blocks(data, indices, indptr, (120, 100))
    x = random_values(rng, (100, 4), "float32", small_integers=True)
    for shift in (1, 2, 3):
        room = engine.array(np.zeros(data.size + shift, np.float32))
        room[shift:] = engine.array(data).ravel()
        place = engine.array(np.zeros(x.size + shift, np.float32))
        place[shift:] = engine.array(x).ravel()
        bsr = sparsegpu.bsr_array(
            (room[shift:].reshape(data.shape), engine.array(indices), engine.array(indptr)),
            shape=(120, 100),
        )
        with engine.runs("bsr_addmm_vector"):
            out = bsr_matmul(bsr, place[shift:].reshape(100, 4), config=VECTOR)
        np.testing.assert_array_equal(engine.host(out), dense @ x)


def test_indices_of_64_bits(engine, rng, monkeypatch):
    monkeypatch.setattr("sparsegpu.pattern.index_dtype", lambda largest: np.dtype(np.int64))
    triple = blocks_of(rng, skewed(rng, 40, 400), 30, (2, 3), "float64")
    dense = dense_from_blocks(*triple, (80, 90))
    bsr = sparsegpu.bsr_array(tuple(engine.array(a) for a in triple), shape=(80, 90))
    assert bsr.indices.dtype == np.int64
    x = random_values(rng, (90,), "float64", small_integers=True)
    with engine.runs("bsr_addmm_vector"):
        out = bsr_matmul(bsr, engine.array(x), config=VECTOR)
    np.testing.assert_array_equal(engine.host(out), dense @ x)


@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("blocksize", [(16, 16), (24, 8), (64, 64), (40, 128)])
@pytest.mark.parametrize("n", [1, 8, 40, 128])
def test_skinny(engine, rng, blocksize, n, layout):
    bm, bk = blocksize
    lengths = np.array([0, 3, 17, 1])
    triple = blocks_of(rng, lengths, 9, blocksize, "float16")
    shape = (4 * bm, 9 * bk)
    dense = dense_from_blocks(*triple, shape)
    bsr = sparsegpu.bsr_array(tuple(engine.array(a) for a in triple), shape=shape)
    x = random_values(rng, (shape[1], n), "float16", small_integers=True)
    moved = engine.array(x)
    if layout == "columns":
        moved = engine.xp.ascontiguousarray(moved.T).T
    config = {"path": "skinny"} if n % 8 == 0 or layout == "columns" else None
    if n == 1 and layout == "columns":
        config = None
    with engine.runs("bsr_addmm"):
        out = bsr_matmul(bsr, moved, config=config, out_dtype="float32")
    np.testing.assert_array_equal(engine.host(out), dense @ x.astype(dense.dtype))


def test_paths_that_are_not_offered(cuda_engine):
    bsr = sparsegpu.bsr_array(cuda_engine.array(np.eye(8, dtype=np.float32)), blocksize=(2, 2))
    x = cuda_engine.array(np.ones((8, MOST_COLUMNS + 1), np.float32))
    with pytest.raises(ValueError, match=r"config\['path'\]"):
        bsr_matmul(bsr, x, config=VECTOR)
    with pytest.raises(ValueError, match=r"config\['path'\]"):
        bsr_matmul(bsr, x, config={"path": "skinny"})
