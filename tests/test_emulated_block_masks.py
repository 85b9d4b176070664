"""The kernels that make block masks, emulated on the host (tools/emulator)."""

from __future__ import annotations

import numpy as np
import pytest

from covering import covered
from sparsegpu import masks
from sparsegpu._arrays import dtype_of
from test_masks import best_columns
from tools.emulator.operations import emulated_block_masks


def assert_equal(made, expected):
    """All fields are those of the host's mask, and what is noted of the pattern is true."""
    for name in ("indptr", "indices", "kind", "bits"):
        got, wanted = getattr(made, name), getattr(expected, name)
        assert got.dtype == wanted.dtype, name
        np.testing.assert_array_equal(got, wanted, err_msg=name)
    assert made.pattern.known("order") == expected.pattern._order_facts


def compare(directory, make, kernel):
    with emulated_block_masks(directory) as launched:
        made = make()
    expected = make()
    assert launched == {kernel: 1}
    assert_equal(made, expected)
    return made, expected


BANDS = {
    "causal": lambda *a: masks.causal(*a, compact=True),
    "banded": lambda *a: masks.banded(*a, 3, 40, compact=True),
    "window": lambda *a: masks.sliding_window(*a, 5, compact=True),
    "before": lambda *a: masks.sliding_window(*a, 9, causal=True, compact=True),
    "prefix": lambda *a: masks.prefix(*a, 37),
}


@covered(
    make=[*BANDS],
    shape=[(4, 4), (3, 7), (9, 2), (0, 3), (3, 0)],
    blocks=[(1, 1), (2, 5), (16, 16), (3, 33), (70, 8), (5, 64)],
    index=[np.int32, np.int64],
)
def test_bands(directory, monkeypatch, make, shape, blocks, index):
    for module in ("sparsegpu.engines.cuda.block_masks", "sparsegpu.engines.reference.block_masks"):
        monkeypatch.setattr(f"{module}.index_dtype", lambda largest: np.dtype(index))
    monkeypatch.setattr("sparsegpu.pattern.index_dtype", lambda largest: np.dtype(index))
    length = tuple(n * b for n, b in zip(shape, blocks))
    made, expected = compare(directory, lambda: BANDS[make](length, blocks), "interval_mask")
    assert made.pattern.longest_row == expected.pattern.longest_row


@pytest.mark.parametrize("lengths", [[], [12], [5, 0, 7], [0, 0, 30, 1, 1, 1, 3], [1] * 48, [96]])
@pytest.mark.parametrize("blocks", [1, (2, 3), (12, 4), (6, 6)])
@pytest.mark.parametrize("causal", [True, False])
def test_documents(directory, lengths, blocks, causal):
    lengths = [*lengths, -sum(lengths) % 12]
    compare(directory, lambda: masks.documents(lengths, blocks, causal=causal), "interval_mask")


DTYPES = (
    *("float16", "bfloat16", "float32", "float64"),
    *("bool", "int8", "uint8", "int32", "uint32", "int64", "uint64"),
)


@covered(dtype=DTYPES, columns=[1, 31, 300, 700], kept=[1, 0.1, 0.5, 1.0], of=["any", "few", "one"])
def test_top_k(directory, rng, dtype, columns, kept, of):
    """Of any values, of a few different ones, so that ties are cut, and of the same everywhere."""
    dtype, k = dtype_of(dtype), max(1, int(kept * columns)) if isinstance(kept, float) else 1
    few = {"any": None, "few": 5, "one": 1}[of]
    if dtype.kind in "biu":
        bits = rng.integers(0, 256, (2, 3, columns, dtype.itemsize), np.uint8)
        scores = (bits & 1).view(bool) if dtype.kind == "b" else bits.view(dtype)
        scores = scores[..., 0]
    else:
        scores = rng.standard_normal((2, 3, columns)).astype(dtype)
    if few is not None:
        scores = rng.choice(scores.reshape(-1)[:few], scores.shape)
    if dtype.kind not in "biu" and of == "any":
        special = np.array([np.nan, -np.inf, np.inf, 0.0, -0.0, np.nan], dtype)
        scores[..., ::3] = rng.choice(special, scores[..., ::3].shape)
    with emulated_block_masks(directory) as launched:
        made = masks.top_k(scores, k, (2, 4))
    assert launched == {"top_k": 1, "mask_of_lists": 1}
    assert_equal(made, masks.top_k(scores, k, (2, 4)))
    np.testing.assert_array_equal(made.indices.reshape(2, 3, k), best_columns(scores, k))


def test_scores_in_any_order(directory, rng):
    scores = rng.standard_normal((40, 6, 2)).astype(np.float32).T
    with emulated_block_masks(directory):
        made = masks.top_k(scores, 5, 1)
    np.testing.assert_array_equal(made.indices.reshape(2, 6, 5), best_columns(scores, 5))


@covered(
    dtype=["int16", "int32", "int64", "uint64"],
    batch=[(), (2,), (2, 3), (0,)],
    rows=[0, 1, 4, 300],
    most=[0, 1, 3],
    counted=[False, True],
    index=[np.int32, np.int64],
)
def test_lists(directory, rng, monkeypatch, dtype, batch, rows, most, counted, index):
    monkeypatch.setattr("sparsegpu.masks.blocks.index_dtype", lambda largest: np.dtype(index))
    monkeypatch.setattr("sparsegpu.pattern.index_dtype", lambda largest: np.dtype(index))
    lists = np.argsort(rng.random((*batch, rows, 5)), axis=-1)[..., :most].astype(dtype)
    counts = rng.integers(0, most + 1, (*batch, rows)) if counted else None
    given = {"shape": (2 * rows, 15), "blocksize": (2, 3), "check": False}
    for held in (lists, np.asfortranarray(lists)):
        with emulated_block_masks(directory) as launched:
            made = masks.from_indices(held, counts, **given)
        assert launched == ({"mask_of_lists": 1} if 0 not in batch else {})
        expected = masks.from_indices(lists, counts, **given)
        for name in ("indptr", "indices", "kind", "bits"):
            got, wanted = getattr(made, name), getattr(expected, name)
            assert got.dtype == wanted.dtype and got.shape == wanted.shape, name
            np.testing.assert_array_equal(got, wanted, err_msg=name)
