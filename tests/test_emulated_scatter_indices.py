"""The kernel that makes index lists of `scatter_mm`, emulated on the host (tools/emulator)."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from covering import covered
from scatter_cases import FORMATS
from sparsegpu.engines.cuda import scatter_indices
from sparsegpu.engines.reference.scatter_indices import index_lists
from sparsegpu.pattern import Pattern
from sparsegpu.testing import random_blocks
from test_scatter_indices import expected_lists
from tools.emulator.operations import emulated_scatter_indices

#: Block rows of some lengths: none, one, more than a warp has lanes, equally many.
LENGTHS = [[], [0], [3], [0, 0, 4, 0], [1, 40, 0, 7, 40, 1, 0, 33, 7, 0], [2] * 70, [0] * 300 + [9]]


def pattern_of(rng, lengths, order, dtype=np.int32):
    """Return a pattern of rows of these lengths: its columns sorted or not, or some repeated."""
    columns = max([1, *lengths])
    rows = [rng.permutation(columns)[:length] for length in lengths]
    if order != "shuffled":
        rows = [np.sort(row) for row in rows]
    if order == "repeated":
        rows = [np.sort(np.concatenate([row, row[:1]])) for row in rows]
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.concatenate([[], *rows]).astype(dtype)
    return Pattern(indptr.astype(dtype), indices, (2 * len(rows), 3 * columns), (2, 3))


@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda x: f"{len(x)} rows")
@pytest.mark.parametrize("order", ["sorted", "shuffled", "repeated"])
@pytest.mark.parametrize("ranked", [8192, 2])
@pytest.mark.parametrize("name", FORMATS)
def test_rows(directory, monkeypatch, lengths, order, ranked, name):
    monkeypatch.setattr(scatter_indices, "RANKED", ranked)
    pattern, same = (pattern_of(np.random.default_rng(5), lengths, order) for _ in range(2))
    how = (
        name,
        80,
        40,
        2 if name == "scatter_mm" else 1,
    )  # more tiles of a row than a warp has lanes
    with emulated_scatter_indices(directory) as launched:
        made, end = scatter_indices.index_lists(pattern, *how)
    expected, expected_end = index_lists(same, *how)
    assert end == expected_end
    for array, values in zip(made, expected, strict=True):
        np.testing.assert_array_equal(array, values)
    if sum(lengths):
        assert launched == {"scatter_indices": 1}
        assert pattern.known("order") == same._order_facts
        assert pattern.known("longest row") == same.longest_row
    else:
        assert not launched


@covered(
    name=FORMATS,
    split=[1, 2, 3, 12],
    batch=[(), (2,), (2, 1, 3)],
    index=[np.int32, np.int64],
    ranked=[8192, 2],
)
def test_lists(directory, rng, monkeypatch, name, split, batch, index, ranked):
    monkeypatch.setattr("sparsegpu.pattern.index_dtype", lambda largest: np.dtype(index))
    monkeypatch.setattr(scatter_indices, "RANKED", ranked)
    for shape, density in (((24, 20), 0.3), ((24, 20), 0.0), ((400, 20), 0.1), ((4, 2), 1.0)):
        triple = random_blocks(rng, shape, (4, 2), density=density, shuffled=True)
        other = np.zeros((*batch, shape[1], 12), np.float32)
        bsr = sparsegpu.bsr_array(triple, shape=shape)
        with emulated_scatter_indices(directory) as launched:
            made = sparsegpu.bsr_scatter_mm_indices_data(bsr, other, name, SPLIT_N=split)
        expected = expected_lists(triple, shape, (4, 2), other.shape, name, split)
        assert launched == ({"scatter_indices": 1} if bsr.nnzb else {})
        for array, values in zip(made[1:], expected):
            assert array.dtype == np.int64 and array.tolist() == np.array(values).tolist()


@pytest.mark.parametrize("ranked", [8192, 2])
@pytest.mark.parametrize("name", FORMATS)
def test_the_host_waits_once_a_pattern_and_behind_the_launch(directory, monkeypatch, ranked, name):
    monkeypatch.setattr(scatter_indices, "RANKED", ranked)
    lengths, seen, read = LENGTHS[4], [], scatter_indices._read
    with emulated_scatter_indices(directory) as launched:
        monkeypatch.setattr(
            scatter_indices, "_read", lambda *given: seen.append(dict(launched)) or read(*given)
        )
        for order in ("sorted", "shuffled"):
            pattern, same = (pattern_of(np.random.default_rng(5), lengths, order) for _ in "ab")
            for split in (2, 6):
                made, end = scatter_indices.index_lists(pattern, name, 12, split, 1)
                expected, expected_end = index_lists(same, name, 12, split, 1)
                assert end == expected_end
                for array, values in zip(made, expected, strict=True):
                    np.testing.assert_array_equal(array, values)
    assert seen == [{"scatter_indices": 1}, {"scatter_indices": 3}]


@pytest.mark.parametrize("name", FORMATS)
def test_lists_of_repeated_blocks_are_not_kept(directory, rng, name):
    triple = random_blocks(rng, (24, 20), (4, 2), density=1.5, duplicates=True)
    bsr, other = sparsegpu.bsr_array(triple, shape=(24, 20)), np.zeros((20, 12), np.float32)
    summed = bsr.copy()
    summed.sum_duplicates()
    with emulated_scatter_indices(directory):
        made = sparsegpu.bsr_scatter_mm_indices_data(bsr, other, name, SPLIT_N=2)
        again = sparsegpu.bsr_scatter_mm_indices_data(bsr, other, name, SPLIT_N=2)
    expected = sparsegpu.bsr_scatter_mm_indices_data(summed, other, name, SPLIT_N=2)
    assert made.pattern.nnzb == summed.nnzb < bsr.nnzb
    for array, same, values in zip(made[1:], again[1:], expected[1:], strict=True):
        if not isinstance(array, dict):
            assert array is same and array.tolist() == values.tolist()
