"""Block rows by likeness: an order of every row, that brings alike ones together."""

import numpy as np
import pytest

from addmm_cases import Operand, small
from covering import covered
from sparsegpu import bsr_matmul, dense_bsr_matmul
from sparsegpu.engines.cuda._row_order import WINDOW, ordered_rows, similar_row_groups
from sparsegpu.engines.cuda._schedule import row_groups
from sparsegpu.engines.cuda.paths import bsr_addmm_sm90
from sparsegpu.pattern import Pattern
from sparsegpu.testing import random_blocks
from tile_cases import tile_of


def pattern_of(engine, mask) -> Pattern:
    indptr = np.concatenate([[0], np.cumsum(mask.sum(axis=1))])
    indices = np.nonzero(mask)[1]
    return Pattern(engine.array(indptr), engine.array(indices), mask.shape, (1, 1))


def shuffled_kinds(rng, kinds: int, each: int, columns: int) -> np.ndarray:
    """Return rows of some kinds, equal within a kind, in random order."""
    return rng.permutation(np.repeat(rng.random((kinds, columns)) < 0.1, each, axis=0))


@pytest.mark.gpu
@covered(columns=[300, 3000], kinds=[WINDOW // 8, 200])
def test_rows_of_a_kind_come_together(cuda_engine, rng, kinds, columns):
    mask = shuffled_kinds(rng, kinds, 8, columns)
    one_window = kinds * 8 <= WINDOW
    with cuda_engine.runs("bsr_row_order", *([] if one_window else ["bsr_row_signature"])):
        ordered = ordered_rows(pattern_of(cuda_engine, mask), 8)
    order = cuda_engine.host(ordered.block_rows)
    assert sorted(order.tolist()) == list(range(len(mask)))
    unions = [rows.reshape(kinds, 8, columns).any(axis=1).sum() for rows in (mask, mask[order])]
    if one_window:
        assert unions[1] * 8 == mask.sum()
    # The edges of windows cut through kinds.
    assert unions[1] < unions[0] / 2


def greedy_order(mask, rows: int) -> list[int]:
    """Return what the rows of one window are put into, one after the other."""
    order: list[int] = []
    waiting = set(range(len(mask)))
    while waiting:
        if len(order) % rows == 0:
            union = np.zeros_like(mask[0])
            score = mask.sum(axis=1)
        else:
            score = 2 * (mask & union).sum(axis=1) - mask.sum(axis=1)
        chosen = max(waiting, key=lambda row: (score[row], -row))
        union = union | mask[chosen]
        waiting.remove(chosen)
        order.append(chosen)
    return order


@pytest.mark.gpu
@pytest.mark.parametrize("columns", [70, 900, 2000, 2944, 7000])
def test_rows_are_chosen_one_by_one(cuda_engine, rng, columns):
    """As a loop chooses them; of more columns than bits, several share one."""
    mask = rng.random((90, columns)) < rng.choice([0, 0.02, 0.2], (90, 1))
    ordered = ordered_rows(pattern_of(cuda_engine, mask), 7)
    bits = np.zeros((90, min(-(-columns // 32) * 32, 2944)), bool)
    np.logical_or.at(bits, (slice(None), np.arange(columns) % 2944), mask)
    order = greedy_order(bits, 7)
    assert cuda_engine.host(ordered.block_rows).tolist() == order + [-1]
    lengths = mask.sum(axis=1)[order]
    assert cuda_engine.host(ordered.indptr).tolist() == [0, *np.cumsum(lengths).tolist()]


@pytest.mark.gpu
@covered(batch=[(), (2, 3)], shape=[(21, 90), (1100, 40)])
def test_groups_name_the_same_blocks(cuda_engine, rng, shape, batch):
    _, indices, indptr = random_blocks(
        rng, shape, (1, 1), density=0.2, batch=batch, duplicates=True, shuffled=True
    )
    pattern = Pattern(*map(cuda_engine.array, (indptr, indices)), shape, (1, 1))
    transposed, order = pattern.transposed()
    for of, blocks_from in ((pattern, None), (transposed, order)):
        made = [similar_row_groups(of, 4, blocks_from), row_groups(of, 4, blocks_from)]
        places = [set(named(cuda_engine, of, groups)) for groups in made]
        assert places[0] == places[1]
        assert len(places[0]) == pattern.indices.size
        assert made[0].groups == made[1].groups


def named(engine, pattern, groups):
    """Yield (matrix, block row, column, block) of everything that the groups walk."""
    starts, counts, columns, blocks = map(
        engine.host, (groups.starts, groups.counts, groups.columns, groups.blocks)
    )
    blocks = blocks.reshape(-1, groups.rows)
    per_matrix = groups.groups // max(pattern.batch_size, 1)
    for g in range(groups.groups):
        matrix, first = g // per_matrix, g % per_matrix * groups.rows
        for e in range(starts[g], starts[g] + counts[g]):
            for r in range(groups.rows):
                if blocks[e, r] >= 0:
                    row = first + r
                    if groups.block_rows is not None:
                        row = int(engine.host(groups.block_rows)[g * groups.rows + r])
                    yield matrix, row, int(columns[e]), int(blocks[e, r])


@pytest.mark.gpu
@covered(blocksize=[(16, 16), (32, 32), (48, 80), (64, 64)], rows=[5, 16, 70])
def test_results_come_out_in_the_callers_order(hopper, rng, blocksize, rows):
    a = Operand(hopper, rng, (blocksize[0] * rows, blocksize[1] * 7), blocksize, "bfloat16")
    x = small(rng, (a.dense.shape[1], 200), "bfloat16")
    y = small(rng, (40, a.dense.shape[0]), "bfloat16")
    config = {"path": "wgmma", "group_similar_rows": 1}
    with hopper.runs("bsr_addmm_sm90"):
        out = bsr_matmul(a.bsr, hopper.array(x), config=config, out_dtype="float32")
    np.testing.assert_array_equal(hopper.host(out), a.dense @ x.astype(a.dense.dtype))
    if blocksize != (48, 80):
        with hopper.runs("bsr_addmm_sm90"):
            out = dense_bsr_matmul(hopper.array(y), a.bsr, config=config, out_dtype="float32")
        np.testing.assert_array_equal(hopper.host(out), y.astype(a.dense.dtype) @ a.dense)


@pytest.mark.gpu
def test_rows_are_grouped_by_likeness_where_little_is_stored(hopper, rng):
    """By default, and with the bits of the rows' own order."""
    a = Operand(hopper, rng, (640, 512), (16, 16), "bfloat16", density=0.1)
    x = hopper.array(small(rng, (512, 1024), "bfloat16"))
    with hopper.runs("bsr_row_order", "bsr_addmm_sm90"):
        out = bsr_matmul(a.bsr, x, out_dtype="float32")
    with hopper.runs("bsr_addmm_sm90"):
        same = bsr_matmul(
            a.bsr, x, config={"path": "wgmma", "group_similar_rows": 0}, out_dtype="float32"
        )
    np.testing.assert_array_equal(hopper.host(out), hopper.host(same))
    np.testing.assert_array_equal(hopper.host(out), a.dense @ hopper.host(x).astype(a.dense.dtype))


@pytest.mark.parametrize(
    ("blocksize", "columns", "density", "similar"),
    [
        ((16, 16), 1024, 0.25, 1),
        ((64, 64), 8192, 0.01, 1),
        ((16, 16), 1024, 0.26, 0),
        ((16, 16), 1023, 0.25, 0),
        ((128, 128), 8192, 0.01, 0),
    ],
)
def test_who_is_grouped_by_similarity(blocksize, columns, density, similar):
    tile = tile_of(bsr_addmm_sm90, "float16", blocksize, columns, density=density)
    assert tile.group_similar_rows == similar


@pytest.mark.gpu
def test_groups_of_one_row_have_no_order(hopper, rng):
    a = Operand(hopper, rng, (256, 384), (128, 128), "bfloat16")
    x = hopper.array(small(rng, (384, 200), "bfloat16"))
    with pytest.raises(
        ValueError, match=r"config\['group_similar_rows'\].*expected one of 0, got 1"
    ):
        bsr_matmul(a.bsr, x, config={"path": "wgmma", "group_similar_rows": 1})
