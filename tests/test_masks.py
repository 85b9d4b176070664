"""Masks of `sparsegpu.masks` in both forms, against dense bool masks."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu
from attention_cases import attention
from covering import covered
from properties import drawn
from sparsegpu import BlockMask, bsr_array, masks
from sparsegpu.testing import assert_attention_close

SIDE = st.integers(0, 6)
BLOCK = st.one_of(st.integers(1, 5), st.sampled_from([31, 32, 33, 64, 70]))


def assert_mask(engine, mask, expected):
    """The mask is this one, stores what holds something, and knows what is full."""
    assert type(mask) is BlockMask and isinstance(mask.kind, engine.xp.ndarray)
    assert mask.shape == expected.shape
    BlockMask(mask.pattern, mask.kind, mask.bits)  # checks the fields
    mask.pattern.check()
    np.testing.assert_array_equal(engine.host(mask.toarray()), expected)
    (bm, bk), (*batch, m, k) = mask.blocksize, expected.shape
    blocks = expected.reshape(*batch, m // bm, bm, k // bk, bk).swapaxes(-3, -2)
    some, every = blocks.any((-2, -1)), blocks.all((-2, -1))
    found = np.zeros(some.shape, np.uint8)
    size = int(np.prod(batch, dtype=int))
    rows, indices, kind = (
        engine.host(a).reshape(size, mask.nnzb)
        for a in (mask.pattern.rows, mask.indices, mask.kind)
    )
    by_matrix = found.reshape(size, *some.shape[-2:])
    for b in range(size):
        by_matrix[b, rows[b], indices[b]] = kind[b]
    np.testing.assert_array_equal(found, np.where(every, 1, np.where(some, 2, 0)))
    return mask


def assert_both(engine, make, expected):
    """Both forms of a mask, from what takes ``compact``."""
    mask = assert_mask(engine, make(compact=True), expected)
    assert bool((mask.kind != 0).all()) and mask.pattern.has_canonical_format
    bsr = make(compact=False)
    assert type(bsr) is bsr_array and bsr.same_pattern(mask)
    np.testing.assert_array_equal(engine.host(bsr.toarray()), expected)
    if bsr.nnzb:
        bsr.data[0] = False  # values of its own
        assert not engine.host(bsr.data)[0].any()


def offsets(length):
    return np.arange(length[1]) - np.arange(length[0])[:, None]


@drawn(60)
@given(SIDE, SIDE, BLOCK, BLOCK, st.integers(0, 200), st.integers(0, 200), st.integers(0, 300))
def test_intervals_of_any_shape(engine, rows, columns, bm, bk, lower, upper, first):
    length, blocks, xp = (rows * bm, columns * bk), (bm, bk), engine.xp
    offset, key = offsets(length), np.arange(columns * bk)

    def both(make, *arguments, expected, **keywords):
        def made(compact):
            return make(length, blocks, *arguments, compact=compact, xp=xp, **keywords)

        assert_both(engine, made, expected)

    both(masks.banded, lower, upper, expected=(offset >= -lower) & (offset <= upper))
    both(masks.sliding_window, lower, expected=abs(offset) <= lower)
    both(masks.sliding_window, lower, causal=True, expected=(offset <= 0) & (offset >= -lower))
    both(masks.causal, expected=offset <= 0)
    both(masks.prefix, first, expected=(offset <= 0) | (key < first))


@drawn(60)
@given(
    st.lists(st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 90)), max_size=8),
    BLOCK,
    BLOCK,
    st.booleans(),
)
def test_documents(engine, lengths, bm, bk, causal):
    """The union of squares along the diagonal; no length needs to be a multiple."""
    side = np.lcm(bm, bk)
    lengths = [*lengths, -sum(lengths) % side]
    expected, first = np.zeros((sum(lengths),) * 2, bool), 0
    for length in lengths:
        expected[first : first + length, first : first + length] = True
        first += length
    if causal:
        expected = np.tril(expected)

    def made(compact):
        return masks.documents(lengths, (bm, bk), causal=causal, compact=compact, xp=engine.xp)

    assert_both(engine, made, expected)


@pytest.mark.parametrize("lengths", [[], [0, 0], np.array([3, 5], np.uint8), (8,)])
def test_lengths_of_any_kind(lengths):
    mask = masks.documents(lengths, 2)
    assert type(mask) is BlockMask and mask.shape == (sum(lengths),) * 2
    assert int(mask.toarray().sum()) == sum(int(n) ** 2 for n in lengths)


def test_bigbird(engine):
    keywords = {"window": 1, "global_blocks": 1, "random_blocks": 2, "rng": 3, "xp": engine.xp}
    expected = engine.host(masks.bigbird(64, (4, 8), **keywords).toarray())

    def made(compact):
        return masks.bigbird(64, (4, 8), compact=compact, **keywords)

    assert_both(engine, made, expected)
    assert masks.bigbird(64, (4, 8), compact=True, **keywords).bits.shape == (0, 4, 1)


# -- by scores ----------------------------------------------------------------------------------


def best_columns(scores, k):
    """Return the columns of largest score, ties to the lower, NaN last: row by row."""

    def key(column):
        score = row[column]
        return (score != score, 0 if score != score else -score, column)

    chosen = np.empty((*scores.shape[:-1], k), int)
    for where in np.ndindex(chosen.shape[:-1]):
        row = scores[where].astype(object)
        chosen[where] = sorted(sorted(range(len(row)), key=key)[:k])
    return chosen


def expand(blocks, blocksize):
    return blocks.repeat(blocksize[0], axis=-2).repeat(blocksize[1], axis=-1)


@covered(
    dtype=["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int64", "bool"],
    batch=[(), (2,), (2, 3)],
    k=[1, 3, 7],
)
def test_top_k(engine, rng, dtype, batch, k):
    dtype = sparsegpu._arrays.dtype_of(dtype)
    scores = rng.integers(-3, 4, (*batch, 5, 7)).astype(dtype)
    if dtype.kind == "i":
        scores[..., 0, :3] = np.iinfo(dtype).min
        scores[..., 0, 4] = np.iinfo(dtype).max
    if dtype.name.startswith(("float", "bfloat")):
        scores[..., 0, :3], scores[..., 1, 2], scores[..., 2, 4] = np.nan, np.inf, -np.inf
        scores[..., 3, :4] = [0.0, -0.0, 0.0, -0.0]
    chosen = best_columns(scores, k)
    with engine.runs("top_k"):
        mask = masks.top_k(engine.array(scores), k, (2, 3))
    np.testing.assert_array_equal(engine.host(mask.indices), chosen.reshape(*batch, 5 * k))
    blocks = np.zeros(scores.shape, bool)
    np.put_along_axis(blocks, chosen, True, axis=-1)
    assert_mask(engine, mask, expand(blocks, (2, 3)))


def test_top_k_of_a_list_and_of_no_rows(engine):
    mask = masks.top_k([[1.0, 3.0, 2.0]], 2, 4, xp=engine.xp)
    assert isinstance(mask.kind, engine.xp.ndarray)
    assert engine.host(mask.indices).tolist() == [1, 2]
    mask = masks.top_k(engine.xp.zeros((2, 0, 3)), 1, 4)
    assert mask.shape == (2, 0, 12) and mask.nnzb == 0


# -- by lists -----------------------------------------------------------------------------------


def lists(rng, batch, rows, columns, most):
    """Draw lists in any order, how much of them counts, and what blocks that makes."""
    counts = rng.integers(0, min(most, columns) + 1, (*batch, rows))
    indices = rng.integers(-(2**40), 2**40, (*batch, rows, most))
    blocks = np.zeros((*batch, rows, columns), bool)
    for where in np.ndindex(counts.shape):
        chosen = rng.permutation(columns)[: counts[where]]
        indices[where][: len(chosen)] = chosen
        blocks[where][chosen] = True
    return indices, counts, blocks


@drawn(60)
@given(
    st.sampled_from([(), (1,), (3,), (2, 2), (0,)]),
    st.integers(0, 5),
    st.integers(0, 6),
    st.integers(0, 8),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_from_indices(engine, batch, rows, columns, most, check, seed):
    """Batches of different counts, empty rows, and garbage beyond the counts."""
    rng = np.random.default_rng(seed)
    indices, counts, blocks = lists(rng, batch, rows, columns, most)
    shape, blocksize = (rows * 2, columns * 3), (2, 3)
    given = {"shape": shape, "blocksize": blocksize, "check": check}
    totals = counts.sum(-1)
    equal = check and totals.size and totals.min() == totals.max()
    with engine.runs("mask_of_lists" if totals.size and not equal else None):
        mask = masks.from_indices(engine.array(indices), engine.array(counts), **given)
    assert mask.bits.shape == (0, 2, 1)
    assert_mask(engine, mask, expand(blocks, blocksize))
    assert not mask.pattern.has_repeated_blocks
    if equal:
        assert mask.nnzb == totals.min() and bool((mask.kind == 1).all())


@covered(dtype=["int32", "int64", "uint64", "int16"], batch=[(), (2,)], check=[True, False])
def test_from_indices_without_counts(engine, rng, dtype, batch, check):
    indices = np.argsort(rng.random((*batch, 4, 6)), axis=-1)[..., :3].astype(dtype)
    blocks = np.zeros((*batch, 4, 6), bool)
    np.put_along_axis(blocks, indices.astype(int), True, axis=-1)
    given = {"shape": (*batch, 8, 18), "blocksize": (2, 3), "check": check}
    held = engine.array(indices.copy())
    with engine.runs("mask_of_lists"):
        mask = masks.from_indices(held, **given)
    held[...] = 0  # indices are copied
    assert mask.indices.dtype == np.int32
    np.testing.assert_array_equal(
        engine.host(mask.indices), indices.reshape(*batch, 12)
    )  # in the order of the lists
    assert_mask(engine, mask, expand(blocks, (2, 3)))


def test_from_indices_of_lists(engine):
    mask = masks.from_indices([[1, 0], [0, 9]], [2, 0], shape=(8, 8), blocksize=4, xp=engine.xp)
    assert isinstance(mask.kind, engine.xp.ndarray) and mask.nnzb == 2
    assert engine.host(mask.toarray()).any(1).tolist() == [True] * 4 + [False] * 4


@pytest.mark.parametrize("counted", [True, False])
def test_unchecked_lists_wait_for_nothing(cuda_engine, rng, counted):
    """A CUDA graph can capture it, so nothing synchronises."""
    indices, counts, blocks = lists(rng, (3,), 4, 6, 5)
    if not counted:
        indices = np.argsort(rng.random((3, 4, 6)), axis=-1)[..., :5]
        np.put_along_axis(blocks := np.zeros((3, 4, 6), bool), indices, True, axis=-1)
    held = cuda_engine.array(indices), cuda_engine.array(counts) if counted else None
    made = []

    def call():
        made.append(masks.from_indices(*held, shape=(8, 18), blocksize=(2, 3), check=False))

    with cuda_engine.side_stream() as stream:
        graph = cuda_engine.captured(call)
        graph.launch(stream)
    assert_mask(cuda_engine, made[-1], expand(blocks, (2, 3)))


@pytest.mark.parametrize("check", [True, False])
def test_attention_over_lists_of_different_lengths(engine, rng, check):
    """Heads hold different numbers of blocks, and some queries none."""
    q, k, v = (rng.standard_normal((3, 16, 8)) for _ in range(3))
    indices, counts, blocks = lists(rng, (3,), 4, 4, 4)
    counts[0, 0], blocks[0, 0] = 0, False
    assert len(set(counts.sum(-1).tolist())) > 1
    given = {"shape": (16, 16), "blocksize": 4, "check": check}
    mask = masks.from_indices(engine.array(indices), engine.array(counts), **given)
    with engine.runs("bsr_attention_simt"):
        out = attention(*(engine.array(x) for x in (q, k, v)), mask)
    allowed = expand(blocks, (4, 4))
    e = np.where(allowed, np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(8)), 0)
    total = e.sum(-1, keepdims=True)
    assert_attention_close(out, e / np.where(total == 0, 1, total) @ v)


def test_attention_over_documents(engine, rng):
    """Each document by itself, with lengths that change from call to call."""
    for lengths in ([16], [5, 11], [0, 1, 14, 1]):
        q, k, v = (rng.standard_normal((2, 16, 8)) for _ in range(3))
        mask = masks.documents(lengths, 4, causal=True, xp=engine.xp)
        with engine.runs("bsr_attention_simt"):
            out = attention(*(engine.array(x) for x in (q, k, v)), mask)
        expected = np.zeros_like(v)
        for end, length in zip(np.cumsum(lengths), lengths):
            own = slice(end - length, end)
            score = q[:, own] @ k[:, own].swapaxes(-1, -2) / np.sqrt(8)
            e = np.exp(score) * np.tri(length)
            expected[:, own] = e / e.sum(-1, keepdims=True) @ v[:, own]
        assert_attention_close(out, expected)


# -- memory -------------------------------------------------------------------------------------


def peak_of(make):
    make()
    tracemalloc.start()
    try:
        mask = make()
        return mask, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_compact_masks():
    mask, peak = peak_of(lambda: masks.causal(65536, 128, compact=True))
    assert mask.nbytes <= 4e6 and peak <= 64e6
    assert mask.nnzb == 512 * 513 // 2 and mask.bits.shape == (512, 128, 4)
    mask, peak = peak_of(lambda: masks.causal(131072, 128, compact=True))
    assert mask.nbytes <= 8e6 and peak <= 64e6
    mask, peak = peak_of(lambda: masks.documents([3000] * 20 + [5536], 128, causal=True))
    assert mask.nbytes <= 4e6 and peak <= 64e6
    mask, peak = peak_of(lambda: masks.sliding_window(1 << 18, 128, 512, compact=True))
    assert mask.nbytes >= 8e6 and peak <= 3 * mask.nbytes
    mask, peak = peak_of(lambda: masks.bigbird(65536, 32, rng=0, compact=True))
    assert mask.nnzb <= 15000 and peak <= 32e6  # a byte a block, stored or not, is 4e6
    scores = np.random.default_rng(0).random((1024, 1024), np.float32)
    mask, peak = peak_of(lambda: masks.top_k(scores, 16, 64))
    assert peak <= 12e6


@pytest.mark.parametrize(
    "make",
    [
        lambda: masks.causal(4096, 128),
        lambda: masks.sliding_window(8192, 128, 60),
        lambda: masks.bigbird(4096, 64, random_blocks=9, rng=0),
        lambda: masks.causal(2048, 4),
    ],
)
def test_memory_of_other_masks(make):
    """At most three times what is made (an int64 an element would be ten)."""
    mask, peak = peak_of(make)
    assert peak <= 3 * (mask.data.nbytes + mask.indices.nbytes + mask.indptr.nbytes)
