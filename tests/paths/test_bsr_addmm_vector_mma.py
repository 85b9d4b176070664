"""BSR @ few columns of float64 and float32 in small blocks: fragments on tensor cores."""

import numpy as np
import pytest

from covering import covered
from path_contract import BsrPath
from row_cases import rows_of, skewed
from sparsegpu import bsr_addmm, bsr_matmul
from sparsegpu.engines.cuda.paths import bsr_addmm_vector_mma
from sparsegpu.testing import random_values
from tile_cases import tile_of


class TestPath(BsrPath):
    NAME, SOURCE = "vector_mma", "bsr_addmm_vector_mma"
    CASES = [("float64", (2, 2)), ("float64", (8, 4)), ("float32", (4, 8)), ("float32", (8, 8))]
    LAYOUTS, COLUMNS = ["rows", "columns", "strided", "skewed"], [5, 7, 8, 4]
    REFUSED = [
        ("float64", (2, 2), 17, {}),
        ("float32", (2, 2), 4, {}),
        ("float32", (4, 4), 3, {}),
        ("float32", (4, 4), 8, {}),
    ]


CONFIG = {"path": TestPath.NAME}


NARROW = [((2, 2), 2), ((4, 4), 8), ((8, 8), 1), ((2, 8), 3)]  # for float64 alone
WIDE = [((4, 4), 4), ((4, 4), 7), ((8, 4), 7), ((8, 8), 8)]


@pytest.mark.parametrize(
    ("dtype", "blocksize", "n"),
    [*(("float64", *one) for one in NARROW + WIDE), *(("float32", *one) for one in WIDE)],
)
def test_rows_of_every_length(engine, rng, dtype, blocksize, n):
    """Whole and in pieces, rows and columns of dense contiguous."""
    for lengths in (skewed(rng, 23, 700), rng.integers(0, 9, 23)):
        bsr, dense, _ = rows_of(engine, rng, lengths, 19, blocksize, dtype)
        x = random_values(rng, (dense.shape[1], n), dtype, small_integers=True)
        bias = random_values(rng, (len(dense), 1), dtype, small_integers=True)
        moved, term = engine.array(x), engine.array(bias)
        by_column = engine.xp.ascontiguousarray(moved.T).T
        with engine.runs(TestPath.SOURCE):
            outs = [bsr_matmul(bsr, given, config=CONFIG) for given in (moved, by_column)]
            fused = bsr_addmm(term, bsr, moved, beta=2, config=CONFIG)
        for out in outs:
            np.testing.assert_array_equal(engine.host(out), dense @ x)
        np.testing.assert_array_equal(engine.host(fused), dense @ x + 2 * bias)


@pytest.mark.parametrize(
    ("dtype", "blocksize", "n"),
    [
        ("float64", (8, 8), 1),
        ("float64", (2, 2), 2),
        ("float64", (4, 4), 8),
        ("float32", (4, 4), 7),
        ("float32", (8, 8), 5),
    ],
)
def test_infinities_stay_in_their_row(engine, rng, dtype, blocksize, n):
    """Rows that meet in a fragment, and blocks beside the last of a row, do not mix."""
    lengths, (bm, bk) = rng.integers(0, 4, 41), blocksize
    bsr, dense, (_, indices, indptr) = rows_of(engine, rng, lengths, 50, blocksize, dtype)
    bsr.data[indptr[20] : indptr[21]] = np.inf
    x = np.ones((dense.shape[1], n), dtype)
    x[indices[indptr[30] : indptr[31]] * bk] = np.nan
    touched = np.isin(indices, indices[indptr[30] : indptr[31]])
    with engine.runs(TestPath.SOURCE):
        out = engine.host(bsr_matmul(bsr, engine.array(x), config=CONFIG))
    for r in range(41):
        blocks = slice(indptr[r], indptr[r + 1])
        row = out[r * bm : (r + 1) * bm]
        if touched[blocks].any():
            assert np.isnan(row).all()
        elif r == 20 and indptr[21] > indptr[20]:
            assert np.isinf(row).all()
        else:
            assert np.isfinite(row).all()


@covered(blocksize=[(2, 2), (4, 4), (8, 8), (2, 8), (8, 4)], columns=[1, 2, 3, 4, 7, 8])
def test_fragments_fill_what_they_may(blocksize, columns):
    bm, bk = blocksize
    for row_blocks in (0.5, 7, 20, 1000):
        tile = tile_of(bsr_addmm_vector_mma, "float64", blocksize, columns, row_blocks=row_blocks)
        if tile is None:
            assert columns == 1 and not bm == bk != 4
            continue
        assert tile.teams * bm <= 8 and tile.teams * columns <= 8
        assert 3 <= tile.defines["UNROLL"] <= 6


@pytest.mark.parametrize(
    "changed",
    [
        {"capability": (8, 6)},
        {"capability": (12, 0)},
        {"blocksize": (3, 4)},
        {"n": 9},
        {"data_alignment": 8},
    ],
)
def test_fragments_are_for_fast_float64(changed):
    usual = {"blocksize": (4, 4), "n": 8, "row_blocks": 20}
    for capability in ((8, 0), (9, 0)):
        assert tile_of(bsr_addmm_vector_mma, "float64", **usual, capability=capability)
    assert tile_of(bsr_addmm_vector_mma, "float64", **(usual | changed)) is None
