"""The definition of attention, held against scalar loops written from the contract."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsegpu
from sparsegpu._arrays import dtype_of
from sparsegpu.testing import (
    ATTENTION_TOLERANCE,
    assert_attention_close,
    random_blocks,
    random_values,
)

attention = sparsegpu.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def _reference():
    with sparsegpu.use_engine("reference"):
        yield


def philox_word(index, seed):
    """Word ``index % 4`` of Philox4x32-10 at counter ``index // 4``, in Python integers."""
    counter, key = (
        [index // 4 & 0xFFFFFFFF, index // 4 >> 32, 0, 0],
        [seed & 0xFFFFFFFF, seed >> 32],
    )
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            b >> 32 ^ counter[1] ^ key[0],
            b & 0xFFFFFFFF,
            a >> 32 ^ counter[3] ^ key[1],
            a & 0xFFFFFFFF,
        ]
        key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return counter[index % 4]


def test_philox():
    """Words of the published test vectors' kind, and of indices and seeds past 32 bits."""
    from sparsegpu._philox import dropout_keep, philox4x32

    seeds = (0, 1, 2**32, 0xFEDC_BA98_7654_3210, 2**64 - 1)
    counters = np.array([0, 1, 7, 2**32 - 1, 2**32, 2**40 + 3, 2**62 - 1], np.uint64)
    for seed in seeds:
        words = philox4x32(counters, seed)
        for counter, word in zip(counters.tolist(), words.tolist()):
            assert word == [philox_word(4 * counter + i, seed) for i in range(4)]
            # Kept where the word / 2**32 >= p, and not a hair beyond.
            index = np.uint64(4 * counter) + np.arange(4, dtype=np.uint64)
            for i, w in enumerate(word):
                assert dropout_keep(index, seed, w / 2**32)[i]
                assert not dropout_keep(index, seed, (w + 1) / 2**32)[i]


def stored_elements(mask):
    """``(*batch, L, S)``: whether an element is stored, and its summed value."""
    (length, keys), (bm, bk) = mask.pattern.shape, mask.blocksize
    batch = mask.pattern.batch_shape
    stored = np.zeros((*batch, length, keys), bool)
    value = np.zeros(stored.shape, bool if mask.dtype == bool else np.float64)
    for b in np.ndindex(batch):
        for i in range(length // bm):
            for p in range(mask.indptr[b][i], mask.indptr[b][i + 1]):
                j = mask.indices[b][p]
                place = (*b, slice(i * bm, (i + 1) * bm), slice(j * bk, (j + 1) * bk))
                stored[place] = True
                if mask.dtype == bool:
                    value[place] |= mask.data[b][p]
                else:
                    value[place] += mask.data[b][p].astype(np.float64)
    return stored, value


def loops(query, key, value, mask, scale=None, is_causal=False, dropout_p=0.0, seed=0):
    """Attention one query at a time, in float64."""
    batch = np.broadcast_shapes(*(x.shape[:-3] for x in (query, key, value)))
    heads, length, width = query.shape[-3:]
    keys, group = key.shape[-2], heads // max(key.shape[-3], 1)
    query, key, value = (np.broadcast_to(x, batch + x.shape[-3:]) for x in (query, key, value))
    stored, mask_value = (
        np.broadcast_to(x, (*batch, heads, length, keys)) for x in stored_elements(mask)
    )
    if scale is None:
        scale = 1 / math.sqrt(width)
    out = np.zeros((*batch, heads, length, value.shape[-1]))
    lse = np.full((*batch, heads, length), -np.inf)
    for number, b in enumerate(np.ndindex(batch)):
        for h in range(heads):
            for i in range(length):
                score = {}
                for j in range(keys):
                    if not stored[b][h, i, j] or (is_causal and j > i):
                        continue
                    q, k = query[b][h, i], key[b][h // group, j]
                    s = scale * (q.astype(float) @ k.astype(float))
                    if mask.dtype == bool:
                        if not mask_value[b][h, i, j]:
                            continue
                    elif mask_value[b][h, i, j] == -np.inf:
                        continue
                    else:
                        s += mask_value[b][h, i, j]
                    score[j] = s
                if not score:
                    continue
                top = max(score.values())
                total = sum(math.exp(s - top) for s in score.values())
                lse[b][h, i] = top + math.log(total)
                for j, s in score.items():
                    weight = math.exp(s - top) / total
                    if dropout_p:
                        index = ((number * heads + h) * length + i) * keys + j
                        kept = philox_word(index, seed) / 2**32 >= dropout_p
                        weight = weight / (1 - dropout_p) if kept else 0.0
                    out[b][h, i] += weight * value[b][h // group, j].astype(float)
    return out, lse


def operands(rng, dtype="float64", batch=(2,), heads=(2, 1), lengths=(8, 12), widths=(5, 3)):
    (h, kv), (length, keys), (e, ev) = heads, lengths, widths
    shapes = (*batch, h, length, e), (*batch, kv, keys, e), (*batch, kv, keys, ev)
    return [random_values(rng, s, dtype) for s in shapes]


def make_mask(rng, shape=(8, 12), blocksize=(2, 4), **keywords):
    keywords = {"density": 0.5, "dtype": "float64"} | keywords
    return sparsegpu.bsr_array(random_blocks(rng, shape, blocksize, **keywords), shape=shape)


def check(q, k, v, mask, **keywords):
    out, lse = attention(q, k, v, mask, return_lse=True, **keywords)
    expected, expected_lse = loops(q, k, v, mask, **keywords)
    assert out.dtype == q.dtype
    assert lse.dtype == (np.float64 if q.dtype == np.float64 else np.float32)
    assert_attention_close(out, expected)
    assert_attention_close(lse, expected_lse)
    np.testing.assert_array_equal(attention(q, k, v, mask, **keywords), out)
    return out, lse


@pytest.mark.parametrize("dtype", ATTENTION_TOLERANCE)
@pytest.mark.parametrize("mask_dtype", ["bool", "same", "float32"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_formula(rng, dtype, mask_dtype, is_causal):
    mask = make_mask(rng, dtype=dtype if mask_dtype == "same" else mask_dtype)
    check(*operands(rng, dtype), mask, is_causal=is_causal)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1), (0, 0), (0, 2)])
@pytest.mark.parametrize("batch", [(), (2,), (2, 2)])
def test_grouped_heads(rng, heads, batch):
    check(*operands(rng, batch=batch, heads=heads), make_mask(rng, dtype="bool"))


@pytest.mark.parametrize("mask_batch", [(), (3,), (2, 1), (2, 3), (1, 1)])
def test_masks_broadcast(rng, mask_batch):
    check(*operands(rng, heads=(3, 1)), make_mask(rng, batch=mask_batch))


def test_batches_broadcast(rng):
    q, k, v = operands(rng, batch=(2, 3))
    check(q[:1], k[:, :1], v[1, 2], make_mask(rng))


def test_unsorted_and_duplicate_blocks_are_summed(rng):
    for dtype in ("float64", "bool"):
        mask = make_mask(rng, density=2, duplicates=True, dtype=dtype)
        check(*operands(rng), mask)


@pytest.mark.parametrize("scale", [0, -1.5, np.float32(0.25)])
def test_scale(rng, scale):
    check(*operands(rng), make_mask(rng), scale=scale)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.95])
@pytest.mark.parametrize("seed", [0, 7, 2**63 + 12345, 2**64 - 1])
def test_dropout(rng, p, seed):
    check(*operands(rng, heads=(4, 2)), make_mask(rng, dtype="bool"), dropout_p=p, seed=seed)


def test_dropout_leaves_normaliser_and_lse(rng):
    q, k, v = operands(rng)
    mask = make_mask(rng)
    plain = attention(q, k, v, mask, return_lse=True)
    dropped = attention(q, k, v, mask, return_lse=True, dropout_p=1, seed=3)
    assert not dropped[0].any()
    np.testing.assert_array_equal(dropped[1], plain[1])
    once, again = (attention(q, k, v, mask, dropout_p=0.5) for _ in range(2))
    assert (once != again).any()  # two seeds drawn


def test_infinity_means_not_attended(rng):
    q, k, v = operands(rng)
    mask = make_mask(rng, density=1, shuffled=False)
    mask.data[rng.random(mask.data.shape) < 0.5] = -np.inf
    mask.data[:4, 0] = -np.inf  # nobody to attend to: rows 0 (its blocks have row 0) ...
    mask.data[:3] = -np.inf  # ... and the whole first block row
    out, lse = check(q, k, v, mask)
    assert not out[..., :2, :].any()
    assert (lse[..., :2] == -np.inf).all()
    k[..., :] = np.nan
    v[..., :] = np.nan
    out = attention(q, k, v, mask)
    assert not out[..., :2, :].any()


def test_outside_the_pattern_nothing_is_read(rng):
    q, k, v = operands(rng)
    mask = sparsegpu.bsr_array(
        (np.ones((2, 2, 4), bool), np.array([1, 1]), np.array([0, 1, 1, 2, 2])), shape=(8, 12)
    )
    expected = attention(q, k, v, mask)
    for array in (k, v):
        array[..., :4, :] = np.nan
        array[..., 8:, :] = np.inf
    np.testing.assert_array_equal(attention(q, k, v, mask), expected)
    assert not expected[..., 2:4, :].any()


@pytest.mark.parametrize("how", ["mask", "causal", "dropout"])
def test_what_is_not_attended_does_not_show(rng, how):
    """Inside a stored block too, a NaN that a query does not attend to stays unseen."""
    q, k, v = operands(rng, heads=(2, 2), lengths=(8, 8))
    data = np.ones((4, 2, 8), bool)
    if how == "mask":
        data[..., 5] = False
    mask = sparsegpu.bsr_array((data, np.zeros(4, int), np.arange(5)), shape=(8, 8))
    keywords = {"mask": {}, "causal": {"is_causal": True}, "dropout": {"dropout_p": 0.5}}[how]
    expected = attention(q, k, v, mask, seed=5, **keywords)
    v[..., 5, :] = np.nan
    got = attention(q, k, v, mask, seed=5, **keywords)
    seen = np.zeros((2, 2, 8), bool)
    for b, h, i in np.ndindex(seen.shape):
        dropped = philox_word(((b * 2 + h) * 8 + i) * 8 + 5, 5) / 2**32 < 0.5
        seen[b, h, i] = {"mask": False, "causal": i >= 5, "dropout": not dropped}[how]
    np.testing.assert_array_equal(np.isnan(got).all(axis=-1), seen)
    assert_attention_close(got[~seen], expected[~seen])


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_probabilities_are_rounded_before_they_meet_values(engine, dtype):
    """Of n keys alike each has 1 / n, which is rounded: n of them are not always 1."""
    for n in range(1, 100):
        mask = sparsegpu.bsr_array(np.ones((1, n), bool), blocksize=(1, n))
        q, k, v = (np.ones((1, length, 1), dtype) for length in (1, n, n))
        with sparsegpu.use_engine(engine):
            out = attention(q, k, v, mask)
        exact = n * (np.float32(1) / np.float32(n)).astype(dtype).astype(float)
        assert out.item() == np.float64(exact).astype(dtype).item()


def test_huge_scores(rng):
    q, k, v = operands(rng, "float32")
    check(q * 1e3, k * 1e3, v, make_mask(rng, dtype="bool", density=1))
    check(
        *(x.astype(dtype_of("bfloat16")) for x in (q * 30, k * 30, v)), make_mask(rng, dtype="bool")
    )


def test_strides(rng):
    q, k, v = operands(rng, batch=(2,), heads=(2, 2))
    expected = attention(q, k, v, mask := make_mask(rng))
    q, k, v = (x.swapaxes(1, 2).copy().swapaxes(1, 2) for x in (q, k, v))
    np.testing.assert_array_equal(attention(q, k, v, mask), expected)


@pytest.mark.parametrize(
    ("lengths", "widths"),
    [((0, 12), (5, 3)), ((8, 0), (5, 3)), ((8, 12), (0, 3)), ((8, 12), (5, 0)), ((0, 0), (0, 0))],
)
def test_zero_sizes(rng, lengths, widths):
    q, k, v = operands(rng, lengths=lengths, widths=widths)
    mask = make_mask(rng, lengths, density=1, dtype="bool")
    scale = None if widths[0] else 2.0
    check(q, k, v, mask, scale=scale)
    assert attention(q, k, v, mask).shape == (2, 2, lengths[0], widths[1])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    blocks=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    blocksize=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    heads=st.sampled_from([(1, 1), (4, 2), (3, 1)]),
    density=st.floats(0, 1),
    is_causal=st.booleans(),
    dropout_p=st.sampled_from([0, 0.3]),
    seed=st.integers(0, 2**20),
)
def test_any_shape(blocks, blocksize, heads, density, is_causal, dropout_p, seed):
    rng = np.random.default_rng(seed)
    lengths = blocks[0] * blocksize[0], blocks[1] * blocksize[1]
    q, k, v = operands(rng, batch=(), heads=heads, lengths=lengths)
    mask = make_mask(rng, lengths, blocksize, density=density)
    with sparsegpu.use_engine("reference"):
        check(q, k, v, mask, is_causal=is_causal, dropout_p=dropout_p, seed=seed)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (dict(query=np.ones((8, 5))), ValueError, "'query': expected at least three dimensions"),
        (dict(query=np.ones((2, 3, 8, 5))), ValueError, "'key': .*heads that divides 3, got 2"),
        (dict(query=np.ones((2, 2, 6, 5))), ValueError, r"'mask': expected shape \(6, 12\)"),
        (dict(query=np.ones((2, 2, 8, 4))), ValueError, "'key': expected a last dimension of 4"),
        (dict(key=np.ones((3, 2, 12, 5))), ValueError, "'key': expected batch shapes that broad"),
        (dict(value=np.ones((2, 2, 10, 3))), ValueError, r"'value': expected shape .*2, 12, Ev\)"),
        (dict(key=np.ones((2, 2, 12, 5), "f4")), TypeError, "'key': expected dtype float64"),
        (dict(query=np.ones((2, 2, 8, 5), "i1")), TypeError, "'query': expected one of the dtypes"),
        (dict(mask=np.ones((8, 12))), TypeError, "'mask': expected a bsr_array, got ndarray"),
        (
            dict(dropout_p=1.5),
            ValueError,
            r"'dropout_p': expected a probability in 0\.\.1, got 1.5",
        ),
        (dict(seed=-1), ValueError, r"'seed': expected an integer in 0\.\.2\*\*64 - 1, got -1"),
        (dict(seed=1.0), TypeError, "'seed': expected an integer or None, got float"),
        (dict(scale="1"), TypeError, "'scale': expected a Python or NumPy number"),
    ],
)
def test_errors(rng, change, error, message):
    q, k, v = operands(rng, heads=(2, 2))
    arguments = dict(query=q, key=k, value=v, mask=make_mask(rng)) | change
    with pytest.raises(error, match="^scaled_dot_product_attention: argument " + message):
        attention(**arguments)


def test_mask_errors(rng):
    q, k, v = operands(rng)
    with pytest.raises(TypeError, match="'mask': expected dtype bool or float64 or float32"):
        attention(q, k, v, make_mask(rng, dtype="int8"))
    with pytest.raises(ValueError, match=r"'mask': expected a shape that broadcasts to \(2, 2\)"):
        attention(q, k, v, make_mask(rng, batch=(3,)))
