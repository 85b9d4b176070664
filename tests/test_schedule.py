"""Row groups of a pattern, against the same written down in loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import covered
from properties import drawn
from sparsegpu.engines.cuda import _schedule
from sparsegpu.engines.cuda._schedule import MOST_ROWS, rank_descending, row_groups, stretches
from sparsegpu.pattern import Pattern
from sparsegpu.testing import random_blocks
from tools.emulator.host import emulated


def make_pattern(engine, indptr, indices, block_columns: int) -> Pattern:
    shape = (indptr.shape[-1] - 1, block_columns)
    return Pattern(engine.array(indptr), engine.array(indices), shape, (1, 1))


def random_pattern(engine, rng, shape, **keywords) -> Pattern:
    _, indices, indptr = random_blocks(rng, shape, (1, 1), **keywords)
    return make_pattern(engine, indptr, indices, shape[1])


def groups_by_hand(indptr, indices, rows: int, blocks_from) -> list[tuple[int, list, list]]:
    """Return start, columns and blocks of every group, its rows read one after the other."""
    indptr = indptr.reshape(-1, indptr.shape[-1])
    indices = indices.reshape(len(indptr), indices.shape[-1])
    groups = []
    for b, (row_starts, columns) in enumerate(zip(indptr, indices, strict=True)):
        for i in range(0, len(row_starts) - 1, rows):
            found: dict[tuple[int, int], list[int]] = {}  # (column, which of it) -> blocks
            for r, row in enumerate(range(i, min(i + rows, len(row_starts) - 1))):
                seen: dict[int, int] = {}
                for p in range(row_starts[row], row_starts[row + 1]):
                    column = int(columns[p])
                    layer = seen[column] = seen.get(column, -1) + 1
                    place = b * len(columns) + p
                    block = place if blocks_from is None else int(blocks_from[place])
                    found.setdefault((column, layer), [-1] * rows)[r] = block
            entries = sorted(found)
            start = b * len(columns) + int(row_starts[i])
            groups.append((start, [c for c, _ in entries], [found[e] for e in entries]))
    return groups


def check(engine, pattern: Pattern, rows: int, blocks_from=None) -> None:
    with engine.runs("bsr_schedule" if pattern.shape[0] and pattern.batch_size else None):
        made = row_groups(pattern, rows, blocks_from)
    origin = None if blocks_from is None else engine.host(blocks_from)
    wanted = groups_by_hand(engine.host(pattern.indptr), engine.host(pattern.indices), rows, origin)
    starts, counts, columns, blocks, order = (
        engine.host(array)
        for array in (made.starts, made.counts, made.columns, made.blocks, made.order)
    )
    assert (made.rows, made.groups) == (rows, len(wanted))
    assert starts.dtype == np.int64 and starts.tolist() == [start for start, _, _ in wanted]
    assert counts.dtype == np.int32 and counts.tolist() == [len(c) for _, c, _ in wanted]
    assert columns.dtype == np.int32 and columns.size == pattern.indices.size
    assert blocks.size == columns.size * rows
    blocks = blocks.reshape(-1, rows)
    for start, expected_columns, expected_blocks in wanted:
        entries = slice(start, start + len(expected_columns))
        assert columns[entries].tolist() == expected_columns
        assert blocks[entries].tolist() == expected_blocks
    assert order.dtype == np.int32
    per_matrix = max(-(-pattern.block_shape[0] // rows), 1)
    matrices = counts.reshape(-1, per_matrix)
    within = np.argsort(-matrices, axis=-1, kind="stable")
    first = np.arange(0, counts.size, per_matrix)[:, None]
    assert order.tolist() == (first + within).ravel().tolist()


@pytest.mark.gpu
@given(data=st.data())
@drawn(60)
def test_row_groups(cuda_engine, data):
    draw = data.draw
    shape = draw(st.tuples(st.integers(0, 20), st.integers(0, 90)))
    pattern = random_pattern(
        cuda_engine,
        np.random.default_rng(draw(st.integers(0, 2**32))),
        shape,
        density=draw(st.sampled_from([0, 0.05, 0.3, 1])),
        batch=draw(st.sampled_from([(), (2,), (0,), (2, 1, 2)])),
        duplicates=draw(st.booleans()),
        shuffled=draw(st.booleans()),
    )
    rows = draw(st.sampled_from([1, 2, 3, 4, 8, 128]))
    if draw(st.booleans()):
        check(cuda_engine, *(lambda p, order: (p, rows, order))(*pattern.transposed()))
    else:
        check(cuda_engine, pattern, rows)


@pytest.mark.gpu
@pytest.mark.parametrize("columns", range(80, 97, 4))
def test_shared_memory_beside_what_the_kernel_has(cuda_engine, rng, columns):
    """Up to 48 KB with what is static; each of these asks for more than the one before."""
    check(cuda_engine, random_pattern(cuda_engine, rng, (1, columns), density=0.3), 128)


@pytest.mark.gpu
@pytest.mark.parametrize("duplicates", [False, True])
def test_several_stretches_of_columns(cuda_engine, rng, duplicates):
    columns = 5000
    assert stretches(columns, MOST_ROWS)[0] < columns / 2
    pattern = random_pattern(
        cuda_engine, rng, (7, columns), density=0.1, duplicates=duplicates, batch=(2,)
    )
    check(cuda_engine, pattern, MOST_ROWS)


@pytest.mark.gpu
def test_one_repeated_block_among_many(cuda_engine, rng):
    """Only the stretch that holds it is counted; the entries behind it move by one."""
    columns = np.stack([rng.permutation(5000)[:300] for _ in range(3)])
    for row, place in ((0, 17), (1, 180)):
        columns[row, place] = columns[row, 250]
    indptr = np.arange(4) * 300
    check(cuda_engine, make_pattern(cuda_engine, indptr, columns.ravel(), 5000), MOST_ROWS)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 3])
def test_blocks_of_one_position_keep_their_order(cuda_engine, rows):
    indices = np.array([5] * 100 + [5, 2, 5, 2] + [1], np.int32)
    pattern = make_pattern(cuda_engine, np.array([0, 100, 100, 104, 105]), indices, 40)
    check(cuda_engine, pattern, rows)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(8, 1300), (1, 9000)])
def test_full_rows(cuda_engine, rng, shape):
    """More blocks than a thread block has in flight."""
    check(cuda_engine, random_pattern(cuda_engine, rng, shape, density=1), shape[0])


@pytest.mark.gpu
def test_64_bit_indices_and_block_numbers(cuda_engine, rng, monkeypatch):
    pattern = random_pattern(cuda_engine, rng, (9, 70), density=0.3, duplicates=True)
    pattern._indptr, pattern._indices = (
        array.astype(np.int64) for array in (pattern.indptr, pattern.indices)
    )
    monkeypatch.setattr(_schedule, "index_dtype", lambda largest: np.dtype(np.int64))
    assert row_groups(pattern, 4).blocks.dtype == np.int64
    pattern = Pattern(pattern.indptr, pattern.indices, pattern.shape, (1, 1))
    check(cuda_engine, pattern, 4)


@pytest.mark.gpu
@pytest.mark.parametrize(("at_once", "ranked"), [(256, 8192), (19, 8192), (19, 16)])
def test_order_of_many_groups(cuda_engine, rng, monkeypatch, at_once, ranked):
    """By the launch that makes them, by a launch of its own, by sorting."""
    monkeypatch.setattr(_schedule, "RANKED_AT_ONCE", at_once)
    monkeypatch.setattr(_schedule, "RANKED", ranked)
    check(cuda_engine, random_pattern(cuda_engine, rng, (40, 30), density=0.2), 2)


@pytest.mark.gpu
@pytest.mark.parametrize("groups", [256, 257])
def test_order_of_groups_of_little_memory(cuda_engine, rng, groups):
    """Their lengths need more shared memory than a group does."""
    check(cuda_engine, random_pattern(cuda_engine, rng, (groups, 4), density=0.5), 1)


@pytest.mark.gpu
@pytest.mark.parametrize("most", [8192, 16])
def test_rank_descending(cuda_engine, rng, monkeypatch, most):
    monkeypatch.setattr(_schedule, "RANKED", most)
    values = rng.integers(-3, 3, (5, 40)).astype(np.int32)
    values[:, ::7] = np.iinfo(np.int32).min
    order = cuda_engine.xp.empty(values.size, np.int32)
    rank_descending(order, cuda_engine.array(values.ravel()), 40)
    expected = np.argsort(-values.astype(np.int64), axis=-1, kind="stable")
    expected += 40 * np.arange(5)[:, None]
    assert cuda_engine.host(order).tolist() == expected.ravel().tolist()


@pytest.mark.gpu
def test_groups_are_kept_with_the_pattern(cuda_engine, rng):
    pattern = random_pattern(cuda_engine, rng, (20, 30))
    with cuda_engine.runs("bsr_schedule"):
        made = row_groups(pattern, 4)
    with cuda_engine.runs(None):
        assert row_groups(pattern, 4) is made
    assert row_groups(pattern, 2).rows == 2
    turned, order = pattern.transposed()
    by_origin = row_groups(turned, 4, order)
    assert by_origin is not row_groups(turned, 4)
    assert row_groups(turned, 4, order) is by_origin


@covered(rows=[1, 2, 8, 128, MOST_ROWS], block_columns=[0, 1, 500, 1024, 10_000, 10**6, 2**31 - 1])
def test_a_stretch_fits_shared_memory(rows, block_columns):
    width, narrow_width, shared_memory = stretches(block_columns, rows)
    words = width // 32
    assert width % 1024 == 0 and width > 0 and narrow_width > 0
    assert (rows + 2) * words * 4 <= shared_memory <= 96 * 1024
    assert (rows + 1) * narrow_width * 4 <= shared_memory


@pytest.mark.parametrize("most", [39, 90])
def test_rank_descending_counts_the_comparisons(directory, rng, monkeypatch, most):
    """Of many numbers, too, each is compared with those of its matrix alone."""
    monkeypatch.setattr(_schedule, "RANKED", most)
    values = rng.integers(-3, 3, (5, 40)).astype(np.int32)
    order = np.empty(values.size, np.int32)
    with emulated(directory, (_schedule,), {}) as launched:
        rank_descending(order, values.ravel(), 40)
    assert launched == ({"bsr_schedule_order": 1} if most == 90 else {})
    expected = np.argsort(-values, axis=-1, kind="stable") + 40 * np.arange(5)[:, None]
    assert order.tolist() == expected.ravel().tolist()
