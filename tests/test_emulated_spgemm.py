"""The kernels of sparse times sparse on the host (tools/emulator): see test_emulated.py."""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu
from sparsegpu.engines.cuda import _spgemm_plan
from sparsegpu.testing import assert_within_bound, dense_from_blocks, random_blocks, random_values
from tools.emulator.build import HostKernel
from tools.emulator.operations import emulated_spgemm

NAMES = {"mma": "sm80", "mma_f64": "f64", "mma_f64_tiled": "f64_tiled", "fma": "f32"}
SYMBOLIC = {"bsr_spgemm_rows": 2, "bsr_spgemm_ends": 1, "bsr_spgemm_pairs": 2}

#: Few, as each may take seconds to build: path, fields, dtype, result, blocks (bm, bk, bn).
CASES = [
    ("simt", {}, "float32", None, (3, 5, 20)),
    ("simt", {"tile_m": 16, "tile_n": 16}, "int8", "int8", (20, 9, 17)),
    ("small", {}, "float64", None, (3, 3, 3)),
    ("small", {}, "bfloat16", "float32", (2, 8, 5)),
    ("mma_f64", {}, "float64", None, (3, 3, 3)),
    ("mma_f64", {}, "float64", None, (4, 1, 2)),
    ("mma_f64", {}, "float64", None, (8, 7, 5)),
    ("fma", {}, "float32", None, (16, 16, 16)),
    ("fma", {"stages": 2}, "float32", "float16", (24, 17, 19)),
    ("fma", {}, "float32", None, (80, 36, 40)),
    ("mma_f64_tiled", {}, "float64", None, (16, 9, 16)),
    ("mma_f64_tiled", {"tile_m": 32, "stages": 4}, "float64", None, (40, 16, 72)),
    ("mma", {}, "float16", None, (16, 16, 16)),
    ("mma", {"stages": 2}, "bfloat16", "float32", (24, 40, 72)),
    ("mma", {"tile_m": 32}, "float16", "bfloat16", (80, 16, 32)),
    ("mma", {}, "bfloat16", None, (17, 33, 11)),
    ("mma", {"stages": 2}, "int8", None, (9, 20, 35)),
    ("mma", {}, "int8", "int8", (16, 80, 24)),
    ("mma", {}, "int8", None, (72, 32, 40)),
]


def operands(rng, dtype, blocksize, counts=(6, 7, 5), **how):
    bm, bk, bn = blocksize
    m, k, n = (count * side for count, side in zip(counts, blocksize, strict=True))
    left = random_blocks(rng, (m, k), (bm, bk), dtype=dtype, **how)
    right = random_blocks(rng, (k, n), (bk, bn), dtype=dtype, **how)
    dense = dense_from_blocks(*left, (m, k)), dense_from_blocks(*right, (k, n))
    a = sparsegpu.bsr_array(left, shape=(m, k))
    return a, sparsegpu.bsr_array(right, shape=(k, n)), *dense


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products(directory, rng, case):
    """Unsorted and repeated blocks, some of the left ones NaN where they meet none."""
    path, fields, dtype, out_dtype, blocksize = case
    a, b, x, y = operands(rng, dtype, blocksize, density=0.5, duplicates=True, shuffled=True)
    keywords = {"out_dtype": out_dtype, "config": {"path": path, **fields}}
    with sparsegpu.use_engine("reference"):
        expected = sparsegpu.bsr_spgemm(a, b)
    kernel = NAMES.get(path, path)
    with emulated_spgemm(directory) as launched:
        out = sparsegpu.bsr_spgemm(a, b, **keywords)
        assert launched == {f"bsr_spgemm_{kernel}": 1} | SYMBOLIC
        again = sparsegpu.bsr_spgemm(a, 2 * b, out=out.copy(), config=keywords["config"])
        assert launched == {f"bsr_spgemm_{kernel}": 2} | SYMBOLIC
    assert out.same_pattern(expected)
    tolerance = {"dtype": dtype, "terms": 2 * x.shape[1]}
    if dtype == "int8":  # exact; twice b is none
        limits = (-128, 127) if out_dtype == "int8" else (None, None)
        np.testing.assert_array_equal(out.data, np.clip(expected.data, *limits))
        return
    assert_within_bound(out.toarray(), x, y, **tolerance)
    assert_within_bound(again.toarray(), x, 2 * y, **tolerance)


def test_strided_blocks(directory, rng):
    """A view of blocks whose elements lie apart has no less dimensions than their copy."""
    a, b, x, y = operands(rng, "float64", (2, 3, 2), density=0.6)
    apart = np.moveaxis(np.moveaxis(a.data, 0, -1).copy(), -1, 0)
    with emulated_spgemm(directory):
        for left in (a.with_data(apart), a):
            out = sparsegpu.bsr_spgemm(left, b)
            assert_within_bound(out.toarray(), x, y, dtype="float64", terms=x.shape[1])


def values_of(rng, indices, indptr, shape):
    indices, indptr = (np.asarray(x, np.int32) for x in (indices, indptr))
    data = random_values(rng, (len(indices), 1, 1), "float32", small_integers=True)
    return sparsegpu.bsr_array((data, indices, indptr), shape=shape)


WIDE = 3 * 131072 + 77  # block columns: more than three stretches of bits


@pytest.mark.parametrize("of_row", [40, 700])
def test_columns_far_apart(directory, rng, of_row):
    """Few are hashed, many are found stretch by stretch; beside rows that are neither."""
    columns = np.sort(rng.choice(WIDE, of_row, replace=False))
    columns[[0, -1]] = 0, WIDE - 1
    rows = [columns, rng.permutation(columns), [], [5, 6, 5], [131071, 131072]]
    b = values_of(rng, np.concatenate(rows), np.cumsum([0, *map(len, rows)]), (5, WIDE))
    a = values_of(rng, [0, 1, 3, 4, 2, 0, 3, 4], [0, 2, 4, 5, 8], (4, 5))
    with emulated_spgemm(directory):
        out = a @ b
    with sparsegpu.use_engine("reference"):
        expected = a @ b
    assert out.same_pattern(expected)
    np.testing.assert_array_equal(out.data, expected.data)


@pytest.mark.parametrize("most", [1, 50, 400])
def test_pairs_that_are_listed_for_every_product(directory, rng, monkeypatch, most):
    """As many at a time as there is memory for."""
    a, b, x, y = operands(rng, "float32", (2, 2, 2), (19, 20, 21), small_integers=True)
    monkeypatch.setattr(_spgemm_plan, "MOST_BYTES", 8 * most)
    with emulated_spgemm(directory) as launched:
        for factor in (1, -2):
            np.testing.assert_array_equal((a @ (factor * b)).toarray(), factor * (x @ y))
    assert launched["bsr_spgemm_rows"] == 2 and launched["bsr_spgemm_pairs"] > 3
    assert launched["bsr_spgemm_small"] == launched["bsr_spgemm_pairs"] - 1


@pytest.mark.parametrize("matrices", [1, 3, 2500])
@pytest.mark.parametrize("rows", [1, 4, 4100])
def test_ends_of_rows(directory, rng, matrices, rows):
    """Of fewer and of more rows than are added up at a time."""
    if matrices * rows > 20_000:
        rows = 5
    blocks, pairs = rng.integers(0, 2**33, (2, matrices, rows))
    ends = [x.flatten() for x in (blocks, pairs)]
    facts = np.full(4, -1, np.int64)
    kernel = HostKernel("bsr_spgemm_ends", {}, directory)
    kernel(1, 1024, [*ends, facts, np.int64(matrices * rows), np.int64(rows)])
    of_matrix = blocks.sum(axis=1)
    assert facts.tolist() == [of_matrix.min(), of_matrix.max(), pairs.sum(), 0]
    for got, counts in zip(ends, (blocks, pairs), strict=True):
        np.testing.assert_array_equal(got, np.cumsum(counts))


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_the_longest_sum(directory, rng, dtype):
    """Of int8 operands it is known, as int32 may not hold it; of others a bound."""
    a, b, *_ = operands(rng, dtype, (2, 2, 2), density=0.4, duplicates=True)
    with emulated_spgemm(directory):
        sparsegpu.bsr_spgemm(a, b)
    kind = "spgemm", "cpu", dtype == "int8"
    plan = a.pattern.known_with(kind, b.pattern)
    longest = int(np.diff(plan.parts.starts).max())
    assert plan.longest == longest if dtype == "int8" else plan.longest >= longest


def test_matrices_of_different_numbers_of_blocks(directory):
    left = sparsegpu.bsr_array(np.eye(4)[None].repeat(2, 0), blocksize=(2, 2))
    data = np.zeros((2, 4, 6))
    data[0, :2, :4], data[1, :2, :2], data[1, 2:, 2:4] = 1, 1, 1
    right = sparsegpu.bsr_array(data, blocksize=(2, 2))
    twice = sparsegpu.bsr_array(
        (np.ones((2, 2, 2, 2)), np.array([[0, 0], [0, 1]]), np.array([[0, 1, 2]] * 2)),
        shape=(2, 4, 4),
    )
    with emulated_spgemm(directory):
        assert (left @ right).nnzb == 2
        with pytest.raises(ValueError, match="between 2 and 4"):
            sparsegpu.bsr_spgemm(twice, right)


@pytest.mark.parametrize("batches", [((2, 3), ()), ((), (3,)), ((2, 1), (3,))])
def test_batches(directory, rng, batches):
    triples = [
        random_blocks(rng, shape, size, batch=batch, density=1, small_integers=True)
        for shape, size, batch in zip(((6, 8), (8, 9)), ((2, 4), (4, 3)), batches, strict=True)
    ]
    a, b = (sparsegpu.bsr_array(t, shape=s) for t, s in zip(triples, ((6, 8), (8, 9))))
    with emulated_spgemm(directory):
        out = a @ b
    np.testing.assert_array_equal(out.toarray(), a.toarray() @ b.toarray())


def test_indices_of_64_bits(directory, rng, monkeypatch):
    a, b, x, y = operands(rng, "float32", (2, 3, 2), small_integers=True)
    for pattern in (a.pattern, b.pattern):
        for name in ("_indices", "_indptr"):
            object.__setattr__(pattern, name, getattr(pattern, name).astype(np.int64))
    for module in (_spgemm_plan, sparsegpu.pattern):
        monkeypatch.setattr(module, "index_dtype", lambda largest: np.dtype(np.int64))
    with emulated_spgemm(directory):
        np.testing.assert_array_equal((a @ b).toarray(), x @ y)
