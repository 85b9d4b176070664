"""Block-sparse attention in every engine, against the dense formula in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu
from attention_cases import Case, attention, philox_words, survivors
from covering import covered
from properties import drawn
from sparsegpu._arrays import dtype_of
from sparsegpu.testing import assert_attention_close

DTYPES = ["float16", "bfloat16", "float32", "float64"]


@covered(dtype=DTYPES, mask_dtype=["bool", "same", "float32"], is_causal=[False, True])
def test_formula(engine, rng, dtype, mask_dtype, is_causal):
    """Unsorted blocks, empty rows, more keys than a tile."""
    mask_dtype = dtype if mask_dtype == "same" else mask_dtype
    case = Case(rng, dtype=dtype, mask_dtype=mask_dtype, lengths=(48, 80), blocksize=(8, 16))
    case.check(engine, is_causal=is_causal)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    "blocksize", [(1, 1), (1, 7), (5, 1), (3, 33), (16, 16), (24, 8), (33, 40), (2, 100)]
)
def test_any_block(engine, rng, dtype, blocksize):
    lengths = (3 * blocksize[0], 5 * blocksize[1])
    case = Case(rng, dtype=dtype, lengths=lengths, blocksize=blocksize, density=0.6)
    case.check(engine, is_causal=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    "widths", [(1, 1), (33, 64), (64, 65), (65, 128), (130, 129), (16, 256), (8, 300)]
)
def test_any_width(engine, rng, dtype, widths):
    Case(rng, dtype=dtype, widths=widths, lengths=(16, 24), blocksize=(8, 8)).check(engine)


@covered(heads=[(2, 2), (6, 2), (4, 1)], batch=[(), (2,), (2, 3)])
def test_grouped_heads(engine, rng, heads, batch):
    Case(rng, heads=heads, batch=batch).check(engine)


@covered(mask_batch=[(), (4,), (1,), (2, 4), (2, 1)], kv_heads=[1, 2, 4])
def test_masks_broadcast_over_batch_and_heads(engine, rng, mask_batch, kv_heads):
    Case(rng, heads=(4, kv_heads), batch=(2,), mask_batch=mask_batch, mask_dtype="float32").check(
        engine
    )


@pytest.mark.parametrize("kv_batch", [(), (1, 3), (3,)])
def test_batches_broadcast(engine, rng, kv_batch):
    Case(rng, heads=(4, 2), batch=(2, 3), kv_batch=kv_batch).check(engine)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_any_strides(engine, rng, dtype):
    case = Case(rng, dtype=dtype, heads=(4, 2), batch=(2,), lengths=(16, 24), blocksize=(8, 8))
    case.check(engine, strides=True)


@pytest.mark.parametrize("mask_dtype", ["bool", "float32"])
def test_duplicate_blocks(engine, rng, mask_dtype):
    """They are summed (bool: or) before anything else."""
    Case(rng, mask_dtype=mask_dtype, density=0.9, duplicates=True).check(engine)


@pytest.mark.parametrize("scale", [0.0, -1.5, 3, np.float32(0.25)])
def test_scale(engine, rng, scale):
    Case(rng).check(engine, scale=scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("p", "seed"), [(0.1, 0), (0.5, 2**64 - 1), (0.9, 0xFEDC_BA98_7654_3210)])
def test_dropout(engine, rng, dtype, p, seed):
    """The weights that the contract's counter names, whatever the engine."""
    case = Case(rng, dtype=dtype, heads=(4, 2), batch=(2,), lengths=(8, 40), blocksize=(4, 8))
    case.check(engine, dropout_p=p, seed=seed, is_causal=True)


def test_dropout_of_everything(engine, rng):
    case = Case(rng)
    operands = case.on(engine)
    with engine.runs("bsr_attention_simt"):
        out, lse = attention(*operands, dropout_p=1.0, seed=3, return_lse=True)
        once, again = (attention(*operands, dropout_p=0.5) for _ in range(2))
    assert (engine.host(out) == 0).all()
    assert_attention_close(lse, case.expected()[1])
    assert (engine.host(once) != engine.host(again)).any()  # two seeds drawn


def test_philox():
    """Words of the published test vectors' kind, and of indices and seeds past 32 bits."""
    from sparsegpu._philox import dropout_keep, philox4x32

    seeds = (0, 1, 2**32, 0xFEDC_BA98_7654_3210, 2**64 - 1)
    counters = np.array([0, 1, 7, 2**32 - 1, 2**32, 2**40 + 3, 2**62 - 1], np.uint64)
    for seed in seeds:
        words = philox4x32(counters, seed)
        for counter, word in zip(counters.tolist(), words.tolist()):
            assert word == philox_words(counter, seed)
            # Kept where the word / 2**32 >= p, and not a hair beyond.
            index = np.uint64(4 * counter) + np.arange(4, dtype=np.uint64)
            for i, w in enumerate(word):
                assert dropout_keep(index, seed, w / 2**32)[i]
                assert not dropout_keep(index, seed, (w + 1) / 2**32)[i]


@covered(engine=["reference", "cpu"], dtype=["float16", "bfloat16"])
def test_probabilities_are_rounded_before_they_meet_values(engine, dtype):
    """Of n keys alike each has 1 / n, which is rounded: n of them are not always 1."""
    for n in range(1, 100):
        mask = sparsegpu.bsr_array(np.ones((1, n), bool), blocksize=(1, n))
        q, k, v = (np.ones((1, length, 1), dtype) for length in (1, n, n))
        with sparsegpu.use_engine(engine):
            out = attention(q, k, v, mask)
        exact = n * (np.float32(1) / np.float32(n)).astype(dtype).astype(float)
        assert out.item() == np.float64(exact).astype(dtype).item()


@covered(mask_dtype=["bool", "float32"], dtype=["bfloat16", "float32"])
def test_a_query_that_may_attend_to_nothing(engine, rng, dtype, mask_dtype):
    case = Case(rng, dtype=dtype, mask_dtype=mask_dtype, density=1.0)
    data, _, indptr = case.mask
    nothing = False if mask_dtype == "bool" else -np.inf
    data[indptr[1] : indptr[2], 1] = nothing  # row 4
    data[indptr[3] : indptr[4]] = nothing  # rows 9, 10, 11
    operands = case.on(engine)
    with engine.runs("bsr_attention_simt"):
        out, lse = attention(*operands, return_lse=True)
    rows = [4, 9, 10, 11]
    assert (engine.host(out)[0, rows] == 0).all()
    assert (engine.host(lse)[0, rows] == -np.inf).all()
    case.check(engine)


def test_nothing_outside_the_pattern_is_read(engine, rng):
    """Block column 2 is not stored, key 5 is stored and not attended: NaN in neither shows."""
    case = Case(rng, density=1.0)
    data, indices, indptr = case.mask
    keep = indices != 2
    counts = [keep[a:b].sum() for a, b in pairwise(indptr)]
    case.mask = [data[keep], indices[keep], np.r_[0, np.cumsum(counts)].astype(np.int32)]
    case.mask[0][case.mask[1] == 1, :, 1] = False
    for array in (case.key, case.value):
        array[:, 8:12] = np.nan
        array[:, 5] = np.inf
    case.check(engine)
    case.key[:, 8:12], case.key[:, 5] = 0, 0
    case.check(engine, dropout_p=0.3, seed=1)


def test_a_nan_shows_where_it_is_attended(engine, rng):
    case = Case(rng, density=1.0)
    case.mask[0][...] = True
    case.mask[0][case.mask[1] == 0, 0] = False  # queries 0, 3, 6, 9 do not see keys 0 to 3
    case.value[0, 2, 1] = np.nan
    operands = case.on(engine)
    with engine.runs("bsr_attention_simt"):
        out = attention(*operands)
    blind = np.arange(12) % 3 == 0
    shows = np.isnan(engine.host(out))[0]
    assert shows[~blind, 1].all()
    assert not shows[blind].any()
    assert not shows[:, [0, 2, 3, 4]].any()


@pytest.mark.parametrize("how", [{"is_causal": True}, {"dropout_p": 0.5, "seed": 5}], ids=str)
def test_a_nan_that_is_left_out_inside_a_block_does_not_show(engine, rng, how):
    case = Case(rng, lengths=(8, 8), blocksize=(2, 8), heads=(2, 2), density=1.0)
    case.mask[0][...] = True
    case.value[..., 5, :] = np.nan
    operands = case.on(engine)
    with engine.runs("bsr_attention_simt"):
        out = engine.host(attention(*operands, **how))
    causal = np.broadcast_to(np.arange(8) >= 5, (2, 8))
    seen = causal if "is_causal" in how else survivors((2, 8, 8), 0.5, 5)[..., 5]
    np.testing.assert_array_equal(np.isnan(out).all(axis=-1), seen)
    case.value[..., 5, :] = 0
    assert_attention_close(out[~seen], case.expected(**how)[0][~seen])


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_huge_scores_do_not_overflow(engine, rng, dtype):
    case = Case(rng, dtype=dtype, lengths=(8, 64), blocksize=(4, 8), density=0.8)
    case.query *= case.query.dtype.type(200)
    case.check(engine)


def test_mask_of_large_values(engine, rng):
    """A row whose maximum comes last, tiles after the ones that it makes vanish."""
    case = Case(rng, mask_dtype="float32", lengths=(4, 128), blocksize=(4, 8), density=1.0)
    case.mask[0] += case.mask[1][:, None, None].astype(np.float32) * 20
    case.check(engine)


def test_64_bit_indices(engine, rng):
    case = Case(rng, lengths=(16, 24), blocksize=(8, 8))
    q, k, v, mask = case.on(engine)
    mask.sort_indices()
    pattern = mask.pattern
    pattern._indices = pattern.indices.astype(np.int64)
    pattern._indptr = pattern.indptr.astype(np.int64)
    with engine.runs("bsr_attention_simt"):
        out = attention(q, k, v, mask)
    assert_attention_close(out, case.expected()[0])


def test_the_same_bits_again(engine, rng):
    operands = Case(rng, dtype="float16", lengths=(64, 96), blocksize=(16, 16)).on(engine)
    with engine.runs("bsr_attention_simt"):
        first = attention(*operands, dropout_p=0.2, seed=5)
        second = attention(*operands, dropout_p=0.2, seed=5)
    assert (engine.host(first) == engine.host(second)).all()


@covered(lengths=[(0, 8), (8, 0), (0, 0)], widths=[(4, 4), (0, 4), (4, 0)])
def test_zero_sizes(engine, rng, lengths, widths):
    case = Case(rng, lengths=lengths, blocksize=(4, 4), widths=widths)
    operands = case.on(engine)
    with engine.runs(None):
        out, lse = attention(*operands, return_lse=True)
    assert out.shape == (1, lengths[0], widths[1])
    assert (engine.host(out) == 0).all()
    assert (engine.host(lse) == -np.inf).all()


@pytest.mark.parametrize("heads", [(0, 0), (0, 2)])
def test_no_heads(engine, rng, heads):
    operands = Case(rng, heads=heads, batch=(2,)).on(engine)
    assert attention(*operands).shape == (2, 0, 12, 5)


@pytest.mark.parametrize("widths", [(0, 4), (4, 0)])
def test_zero_widths(engine, rng, widths):
    case = Case(rng, widths=widths, density=1.0)
    case.check(engine, scale=1.0)


@drawn(20)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(DTYPES),
    mask_dtype=st.sampled_from(["bool", "float32"]),
    blocks=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    blocksize=st.tuples(st.integers(1, 20), st.integers(1, 40)),
    widths=st.tuples(st.integers(1, 80), st.integers(1, 140)),
    heads=st.sampled_from([(1, 1), (2, 1), (4, 2)]),
    density=st.sampled_from([0.2, 0.6, 1.0]),
    is_causal=st.booleans(),
)
def test_any_shape(
    engine, seed, dtype, mask_dtype, blocks, blocksize, widths, heads, density, is_causal
):
    case = Case(
        np.random.default_rng(seed),
        dtype=dtype,
        mask_dtype=mask_dtype,
        lengths=(blocks[0] * blocksize[0], blocks[1] * blocksize[1]),
        blocksize=blocksize,
        widths=widths,
        heads=heads,
        density=max(density, 1 / (blocks[0] * blocks[1])),
        duplicates=True,
    )
    case.check(engine, is_causal=is_causal)


TWO_HEADS = {"key": (2, 20, 7), "value": (2, 20, 5)}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"key": (1, 20, 6)}, ValueError, "'key': expected a last dimension of 7"),
        ({"value": (1, 19, 5)}, ValueError, "'value': expected shape .*1, 20, Ev"),
        ({"query": (12, 7)}, ValueError, "'query': expected at least three dimensions"),
        ({"query": (1, 11, 7)}, ValueError, r"'mask': expected shape \(11, 20\)"),
        ({"query": (3, 12, 7), **TWO_HEADS}, ValueError, "'key': .*heads that divides 3, got 2"),
        ({"query": (2, 1, 12, 7), "key": (3, 1, 20, 7)}, ValueError, "'key': .*shapes that broad"),
        ({"key": "float64"}, TypeError, "'key': expected dtype float32"),
        ({"query": "int8"}, TypeError, "'query': expected one of the dtypes"),
        ({"mask": np.ones((12, 20))}, TypeError, "'mask': expected a bsr_array, got .*ndarray"),
        ({"mask": "int8"}, TypeError, "'mask': expected dtype bool or float32"),
        ({"dropout_p": 1.5}, ValueError, r"'dropout_p': expected a probability in 0\.\.1, got 1.5"),
        ({"seed": -1}, ValueError, r"'seed': expected an integer in 0\.\.2\*\*64 - 1, got -1"),
        ({"seed": 1.0}, TypeError, "'seed': expected an integer or None, got float"),
        ({"scale": "1"}, TypeError, "'scale': expected a Python or NumPy number"),
    ],
)
def test_errors(engine, rng, change, error, message):
    """Operands of other shapes or dtypes, and arguments that cannot be."""
    given = dict(zip(("query", "key", "value", "mask"), Case(rng).on(engine)))
    for name, value in change.items():
        if name in given and isinstance(value, str):
            value = given[name].astype(value)
        elif isinstance(value, tuple):
            value = engine.xp.ones(value, np.float32)
        elif isinstance(value, np.ndarray):
            value = engine.array(value)
        given[name] = value
    expected = f"^scaled_dot_product_attention: argument {message}"
    with engine.runs(None), pytest.raises(error, match=expected):
        attention(**given)


def test_mask_of_another_batch(engine, rng):
    operands = Case(rng, batch=(2,), mask_batch=(3,)).on(engine)
    with engine.runs(None), pytest.raises(ValueError, match="'mask': expected a shape that broad"):
        attention(*operands)


def test_dtype_of_result_is_that_of_the_operands(engine, rng):
    case = Case(rng, dtype="bfloat16", mask_dtype="float32")
    operands = case.on(engine)
    with engine.runs("bsr_attention_simt"):
        assert attention(*operands).dtype == dtype_of("bfloat16")
