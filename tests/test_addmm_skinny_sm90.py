"""Few columns on Hopper: how rows are shared out, and every block, layout, batch and epilogue."""

import numpy as np
import pytest
from sparsegpu.engines.cuda.runtime.skinny_sm90_tile import skinny_clusters

import sparsegpu
from addmm_cases import (
    Operand,
    aligned_rows,
    check_batches,
    check_epilogue,
    laid_out,
    small,
)
from sparsegpu import bsr_matmul

SOURCE = "bsr_addmm_skinny_sm90"
PATH = {"path": "skinny_wgmma"}
BLOCKS = [(64, 64), (128, 64), (64, 128), (192, 256)]


@pytest.fixture
def hopper(cuda_engine):
    from sparsegpu.engines.cuda.runtime.launch import runs_here

    if not runs_here(SOURCE):
        pytest.skip("wgmma needs compute capability 9.0")
    return cuda_engine


@pytest.mark.parametrize("row_tiles", [1, 64, 66, 67, 132, 133, 10**6])
@pytest.mark.parametrize("columns", [1, 16, 17, 64, 65, 128])
def test_clusters_fit(row_tiles, columns):
    tile = skinny_clusters(row_tiles, columns, 132)
    assert tile.tile_n <= 128 and tile.stages >= 2
    assert tile.resident >= 1 and tile.resident * (tile.shared_memory + 1024) <= 228 * 1024
    assert tile.cluster == 1 or row_tiles * tile.cluster <= 2 * 132 * tile.together


def rows_of_blocks(hopper, rng, lengths, blocksize, block_columns, dtype="float16"):
    """Return a bsr_array whose rows have so many blocks (repeated ones, too), and it dense."""
    (bm, bk), rows = blocksize, len(lengths)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = rng.integers(0, block_columns, indptr[-1]).astype(np.int32)
    data = small(rng, (indptr[-1], bm, bk), dtype)
    dense = np.zeros((rows, block_columns, bm, bk))
    np.add.at(dense, (np.repeat(np.arange(rows), lengths), indices), data.astype(np.float64))
    shape = (bm * rows, bk * block_columns)
    arrays = tuple(hopper.array(a) for a in (data, indices, indptr))
    return sparsegpu.bsr_array(arrays, shape=shape), dense.transpose(0, 2, 1, 3).reshape(shape)


@pytest.mark.gpu
@pytest.mark.parametrize("cluster, together", [(1, 1), (2, 1), (4, 1), (4, 2), (8, 2), (8, 4)])
@pytest.mark.parametrize("blocksize", BLOCKS)
def test_shares_are_all_steps_once(hopper, rng, cluster, together, blocksize):
    (bm, bk), lengths = blocksize, [3, 0, 40, 1, 2, 0, 7, 7, 12]
    a, _ = rows_of_blocks(hopper, rng, lengths, blocksize, 9)
    with hopper.runs("bsr_cluster_work"):
        shares = row_shares(a.pattern, cluster, together)
    words = hopper.host(shares).reshape(-1, cluster, 32)
    starts, parts = np.cumsum([0, *lengths]), bk // 64
    column_of = hopper.host(a.indices)
    seen = {}
    for of_cluster in words:
        for rank, share in enumerate(of_cluster):
            row_tile, steps, packed, base = share[:4].tolist()
            part, count = packed & 0xFFFF, packed >> 16
            begin = int(share[4:6].view(np.int64)[0])
            if count == 0:
                assert steps == 0
                continue
            assert base + part == rank and base + count <= cluster
            row = row_tile // (bm // 64)
            done = seen.get(row_tile, 0)
            assert begin == starts[row] * parts + done  # in the order of the steps
            seen[row_tile] = done + steps
            here = np.arange(begin, begin + min(steps, 26))
            np.testing.assert_array_equal(
                share[6 : 6 + len(here)], column_of[here // parts] * parts + here % parts
            )
            assert steps in {lengths[row] * parts // count, lengths[row] * parts // count + 1}
    assert seen == {t: lengths[t // (bm // 64)] * parts for t in range(len(lengths) * bm // 64)}


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", BLOCKS)
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("n", [1, 8, 16, 24, 64, 72, 100, 128])
def test_exact_on_small_integers(hopper, rng, blocksize, layout, n):
    shape = (blocksize[0] * 5, blocksize[1] * 7)
    a = Operand(hopper, rng, shape, blocksize, "bfloat16")
    x = small(rng, (shape[1], n), "bfloat16")
    dense = aligned_rows(hopper, x) if layout == "rows" else laid_out(hopper, x, layout)
    with hopper.runs(SOURCE):
        out = bsr_matmul(a.bsr, dense, config=PATH, out_dtype="float32")
    np.testing.assert_array_equal(hopper.host(out), a.dense @ x.astype(a.dense.dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("block_rows", [1, 60, 120, 300])
@pytest.mark.parametrize("n", [16, 128])
def test_rows_of_every_length(hopper, rng, block_rows, n):
    """Rows of no block, of one, of so many that stages are filled again and columns looked up."""
    lengths = rng.integers(0, 5, block_rows)
    lengths[0], lengths[-1] = 150, 37
    if block_rows > 2:
        lengths[1], lengths[2] = 0, 1
    for repeat in (1, 6):
        bsr, dense = rows_of_blocks(hopper, rng, lengths * repeat, (64, 64), 9)
        x = small(rng, (576, n), "float16")
        with hopper.runs(SOURCE):
            first = bsr_matmul(bsr, hopper.array(x), config=PATH, out_dtype="float32")
            second = bsr_matmul(bsr, hopper.array(x), config=PATH, out_dtype="float32")
        np.testing.assert_array_equal(hopper.host(first), dense @ x.astype(np.float64))
        assert (first == second).all()


@pytest.mark.gpu
@pytest.mark.parametrize("cluster, together", [(1, 1), (2, 1), (2, 2), (4, 2), (8, 2), (8, 4)])
@pytest.mark.parametrize("n, tile_n", [(128, 64), (72, 32), (64, 64), (128, 128), (40, 16)])
def test_every_share_of_a_cluster(hopper, rng, cluster, together, n, tile_n):
    bsr, dense = rows_of_blocks(hopper, rng, [9, 0, 30, 1, 2, 5, 3], (128, 64), 6)
    x = small(rng, (384, n), "float16")
    fields = {"cluster": cluster, "together": together, "tile_n": tile_n, "stages": 2}
    with hopper.runs(SOURCE):
        out = bsr_matmul(bsr, hopper.array(x), config={**PATH, **fields}, out_dtype="float32")
    np.testing.assert_array_equal(hopper.host(out), dense @ x.astype(np.float64))


@pytest.mark.gpu
@pytest.mark.parametrize("out_dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
@pytest.mark.parametrize("n", [64, 40])
def test_epilogue_and_outputs(hopper, rng, out_dtype, order, n):
    a = Operand(hopper, rng, (320, 448), (64, 64), "bfloat16", small_integers=False)
    how = {"kernels": [SOURCE], "n": n, "config": PATH}
    check_epilogue(hopper, rng, a.bsr, a.dense, out_dtype, order, **how)


@pytest.mark.gpu
def test_batches(hopper, rng):
    check_batches(hopper, rng, (64, 64), kernels=[SOURCE], n=32, config=PATH)


@pytest.mark.gpu
def test_chosen_by_itself(hopper, rng):
    a = Operand(hopper, rng, (320, 448), (64, 64), "bfloat16")
    x = small(rng, (448, 32), "bfloat16")
    with hopper.runs(SOURCE):
        bsr_matmul(a.bsr, hopper.array(x))


@pytest.mark.gpu
def test_refused_where_it_does_not_serve(hopper, rng):
    a = Operand(hopper, rng, (320, 448), (32, 64), "bfloat16")
    with pytest.raises(ValueError, match=r"config\['path'\].*not for 'skinny_wgmma'"):
        bsr_matmul(a.bsr, hopper.array(small(rng, (448, 64), "bfloat16")), config=PATH)
