"""BSR @ few columns: how the work is shared out, and rows that many warps share."""

import numpy as np
import pytest

from covering import covered
from path_contract import BsrPath, UnalignedBlocks, assert_exact, wide
from row_cases import rows_of, skewed
from sparsegpu import bsr_addmm, bsr_matmul
from sparsegpu._arrays import dtype_of
from sparsegpu.engines.cuda.paths import bsr_addmm_vector
from sparsegpu.engines.cuda.paths._row_split import balanced_splits
from sparsegpu.pattern import Pattern
from sparsegpu.testing import assert_within_bound, random_values
from tile_cases import tile_of


class TestPath(BsrPath, UnalignedBlocks):
    NAME, SOURCE = "vector", "bsr_addmm_vector"
    CASES = [
        ("float32", (3, 3)),
        ("float32", (8, 8)),
        ("float64", (5, 13)),
        ("float64", (4, 4)),
        ("complex64", (1, 1)),
        ("complex128", (2, 3)),
        ("int8", (5, 13)),
        ("float16", (4, 4)),
        ("bfloat16", (2, 8)),
    ]
    LAYOUTS, COLUMNS = ["rows", "columns", "strided", "skewed"], [1, 3, 8, 16, 5]
    REFUSED = [("float32", (2, 2), 17, {}), ("float32", (64, 64), 1, {})]


CONFIG = {"path": TestPath.NAME}


# -- rows of every length, on every engine --------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "blocksize", "n"),
    [
        ("float32", (3, 3), 1),
        ("float32", (3, 3), 8),
        ("float64", (4, 4), 3),
        ("complex64", (1, 1), 1),
        ("complex64", (1, 1), 3),
        ("int8", (5, 13), 1),
        ("int8", (5, 13), 8),
    ],
)
def test_long_and_empty_rows(engine, rng, dtype, blocksize, n):
    """A row much longer than a warp's share is added up from many parts; twice."""
    bsr, dense, _ = rows_of(engine, rng, skewed(rng, 60, 5000), 40, blocksize, dtype)
    x = random_values(rng, (dense.shape[1], n), dtype, small_integers=True)
    bias = random_values(rng, (len(dense), 1), dtype, small_integers=True)
    for _ in range(2):
        with engine.runs("bsr_addmm_vector"):
            out = bsr_matmul(bsr, engine.array(x), config=CONFIG)
            fused = bsr_addmm(engine.array(bias), bsr, engine.array(x), beta=2, config=CONFIG)
        assert_exact(engine, out, wide(dense) @ wide(x))
        assert_exact(engine, fused, wide(dense) @ wide(x) + 2 * wide(bias))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_bits_and_within_the_bound(engine, rng, dtype):
    how = {"small_integers": False}
    bsr, _, triple = rows_of(engine, rng, skewed(rng, 80, 20000), 500, (3, 3), dtype, **how)
    x = random_values(rng, (1500, 2), dtype)
    with engine.runs("bsr_addmm_vector"):
        outs = [engine.host(bsr_matmul(bsr, engine.array(x), config=CONFIG)) for _ in range(3)]
    assert (outs[0] == outs[1]).all() and (outs[0] == outs[2]).all()
    # Duplicates are terms of their own in the bound, so it is computed term by term.
    data, indices, indptr = triple
    middle = slice(indptr[40], indptr[41])
    terms = data[middle].astype(np.float64).transpose(1, 0, 2).reshape(3, -1)
    met = x.reshape(500, 3, 2)[indices[middle]].reshape(-1, 2)
    assert_within_bound(outs[0][120:123], terms, met, dtype=dtype)


def test_batches_with_patterns_of_their_own(engine, rng):
    lengths = np.stack([rng.permutation([0, 300, 1, 2, 7, 0]) for _ in range(2)])
    bsr, dense, _ = rows_of(engine, rng, lengths, 20, (2, 2))
    x = random_values(rng, (3, 1, 40, 5), "float32", small_integers=True)
    with engine.runs("bsr_addmm_vector"):
        out = bsr_matmul(bsr, engine.array(x), config=CONFIG)
    np.testing.assert_array_equal(engine.host(out), dense @ x)


# -- how the work is shared out --------------------------------------------------------------------


def pattern_of(lengths):
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return Pattern(indptr, np.zeros(indptr[-1], int), (2 * len(lengths), 2), (2, 2))


def test_similar_rows_need_no_splits(rng):
    assert balanced_splits(pattern_of(np.full(100, 9))) is None
    assert balanced_splits(pattern_of(rng.integers(0, 30, 100))) is None
    assert balanced_splits(pattern_of(np.zeros(10, int))) is None


@pytest.mark.parametrize("longest", [50, 1000, 100_000])
def test_splits_cover_every_row_and_block_once(rng, longest):
    lengths = skewed(rng, 200, longest)
    lengths[7] = 40
    plan = balanced_splits(pattern_of(lengths))
    begin, end, row, part = plan.splits.T
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


def test_splits_of_a_batch():
    """Both matrices of a batch get as many splits; what is filled up has no blocks."""
    indptr = np.array([[0, 400, 400, 410], [0, 200, 300, 410]])
    pattern = Pattern(indptr, np.zeros((2, 410), int), (3, 2), (1, 2))
    assert balanced_splits(pattern) is None  # long rows, but not beside the others
    indptr = np.concatenate([indptr, np.full((2, 60), 410)], axis=1)
    pattern = Pattern(indptr, np.zeros((2, 410), int), (63, 2), (1, 2))
    plan = balanced_splits(pattern)
    assert plan.splits.shape[0] == 2 and plan.rows.shape[0] == 2
    for splits in plan.splits:
        filler = splits[:, 3] == plan.parts - 1
        assert (splits[filler, 0] == splits[filler, 1]).all()
        assert (splits[:, 1] - splits[:, 0]).sum() == 410


@covered(
    dtype=["float16", "float32", "float64", "int8", "complex128"],
    columns=[1, 2, 3, 5, 8, 11, 16],
    vectors=[(1, 1), (16, 1), (1, 16), (4, 2)],
)
def test_tile_keeps_what_the_kernel_asserts(dtype, columns, vectors):
    size = dtype_of(dtype).itemsize
    vector_k, vector_n = (max(v // size, 1) for v in vectors)
    for bm, bk in [(1, 1), (2, 2), (3, 3), (4, 4), (6, 6), (8, 8), (5, 13), (16, 16), (2, 48)]:
        for row_blocks in (0.5, 7, 1000):
            how = {"row_blocks": row_blocks, "vector_k": vector_k, "vector_n": vector_n}
            tile = tile_of(bsr_addmm_vector, dtype, (bm, bk), columns, **how)
            if tile is None:
                continue
            d = tile.defines
            across, groups = -(-bk // d["CV"]), d["NG"]
            assert groups * d["NV"] >= columns
            lanes = d["RL"] * across * groups
            assert lanes <= d["TEAM"] <= 32 and d["TEAM"] & (d["TEAM"] - 1) == 0
            assert groups & (groups - 1) == 0 and tile.teams * d["TEAM"] == 32
            assert d["RL"] == 1 or across & (across - 1) == 0
            assert d["X_VECTOR"] != 1 or bk % d["CV"] == 0
            assert d["X_VECTOR"] != 2 or columns == groups * d["NV"]


def test_elements_one_by_one():
    """Few blocks at once; those whose rows are a sector are streamed where rows are long."""

    def chosen(dtype, blocksize, row_blocks, columns=1):
        how = {"row_blocks": row_blocks, "vector_n": columns & -columns}
        d = tile_of(bsr_addmm_vector, dtype, blocksize, columns, **how).defines
        assert d["CV"] == d["RL"] == 1
        return d["UNROLL"], d["RESIDENT"], d["STREAM"]

    assert chosen("float64", (3, 3), 26.2) == (3, 5, 0)
    assert chosen("float64", (3, 3), 6.9) == (2, 6, 0)
    assert chosen("float64", (5, 5), 26.2) == (3, 4, 1)
    assert chosen("float64", (1, 1), 26.2) == (2, 8, 0)
    assert chosen("complex128", (3, 3), 6.9) == (2, 5, 0)
    assert chosen("float64", (3, 3), 26.2, columns=4) == (4, 4, 0)
    assert chosen("float64", (5, 5), 26.2, columns=4) == (4, 3, 1)


def test_small_blocks_alone():
    assert tile_of(bsr_addmm_vector, "float64", (8, 8), 4)
    assert tile_of(bsr_addmm_vector, "float64", (64, 64), 1) is None
    assert tile_of(bsr_addmm_vector, "float64", (8, 8), 17) is None
