"""Long int8 sums of `scatter_mm` and of sparse times sparse. See `test_long_sums.py`."""

import copy
import pickle

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from long_sums_cases import LARGEST, MOST, assert_equal, bsr, product, random_int8
from scatter_cases import FORMATS, on
from sparsegpu.testing import to_host

DTYPES = ["int32", "int8", "float32", "float16", "bfloat16"]
KS = 64


def exact_tiles(blocks, others, name, arrays, shape):
    """Return the exact sums of the lists' tiles, by the loops of the contract, in int64."""
    total = np.zeros(shape, np.int64)
    if name == "scatter_mm":
        c_offsets, pq = arrays
        for r in range(len(c_offsets) - 1):
            for p, q in pq[c_offsets[r] : c_offsets[r + 1]]:
                total[r] += product(blocks[p], others[q])
        return total
    c_indices, r_offsets, *p_offsets, q_offsets, meta = arrays
    n, split = others.shape[-1], meta["SPLIT_N"]
    (_, ms, ks), ns = blocks.shape, n // split
    for i, r in enumerate(r_offsets):
        r0, r1 = divmod(r, n)
        if p_offsets:
            g = range(c_indices[i], c_indices[i + 1])
            terms = [(p_offsets[0][j], q_offsets[j]) for j in g]
        else:
            c0, c1 = c_indices[r0 // ms], c_indices[r0 // ms + 1]
            first = r1 // ns * c1 + (split - r1 // ns) * c0
            terms = [(p, q_offsets[first + j]) for j, p in enumerate(range(c0, c1))]
        for p, q in terms:
            q0, q1 = divmod(q, n)
            other = others[..., q0 : q0 + ks, q1 : q1 + ns]
            total[..., r0 : r0 + ms, r1 : r1 + ns] += product(blocks[p], other)
    return total


def hand_made(rng, name, ks=KS, longest=2600, repeated=False):
    """Return blocks, others, lists and a shape: long, short and empty tiles."""
    ms, ns, split = 2, 3, 2
    blocks = random_int8(rng, (40, ms, ks))
    counts = np.array([longest, 3, 0, longest - 7, 1])
    if name == "scatter_mm":
        pq = rng.integers(0, 40, (counts.sum() + 5, 2))  # some are in no group
        c_offsets = 5 + np.concatenate([[0], np.cumsum(counts)])
        return blocks, random_int8(rng, (40, ks, ns)), (name, c_offsets, pq), (5, ms, ns)
    n, m, k, meta = split * ns, 5 * ms, 20 + ks, {"SPLIT_N": split}
    others = random_int8(rng, (2, k, n))
    if name == "bsr_strided_mm":
        tiles = rng.permutation(5 * split)[:5]
        r_offsets = tiles // split * ms * n + tiles % split * ns
        if repeated:
            r_offsets = np.array([0, 2, 0, 2, 5]) * n + np.array([0, 1, 0, 1, 3])
        count = counts.sum()
        arrays = [np.concatenate([[0], np.cumsum(counts)]), r_offsets, rng.integers(0, 40, count)]
    else:
        blocks = random_int8(rng, (counts.sum(), ms, ks))
        r_offsets = rng.permutation(5 * split)[:8]
        r_offsets = r_offsets // split * ms * n + r_offsets % split * ns
        count = split * counts.sum()
        arrays = [np.concatenate([[0], np.cumsum(counts)]), r_offsets]
    q_offsets = rng.integers(0, k - ks + 1, count) * n + rng.integers(0, n - ns + 1, count)
    return blocks, others, (name, *arrays, q_offsets, meta), (2, m, n)


def check(engine, rng, blocks, others, lists, shape, dtype):
    """Hold what is added to random accumulators against the loops."""
    dtype = sg._arrays.dtype_of(dtype)
    start = rng.integers(-100, 100, shape).astype(dtype)
    with engine.runs("scatter_mm"):
        out = engine.array(start.copy())
        operands = engine.array(blocks), engine.array(others), on(engine, lists)
        assert sg.scatter_mm(*operands, accumulators=out) is out
    exact = exact_tiles(
        blocks, others, lists[0], [to_host(a) for a in lists[1:-1]] + [lists[-1]], shape
    )
    return out, start.astype(np.int64) + exact


@covered(name=FORMATS, dtype=DTYPES)
def test_hand_made_lists(engine, rng, name, dtype):
    out, exact = check(engine, rng, *hand_made(rng, name), dtype)
    assert exact.max() > LARGEST
    assert_equal(engine, out, exact)


def test_accumulators_of_blocks_dtype(engine, rng):
    blocks, others, lists, shape = hand_made(rng, "scatter_mm")
    with engine.runs("scatter_mm"):
        out = sg.scatter_mm(engine.array(blocks), engine.array(others), on(engine, lists))
    assert_equal(engine, out, exact_tiles(blocks, others, lists[0], lists[1:], shape), "int8")


def test_tiles_that_repeat(engine, rng):
    blocks, others, lists, shape = hand_made(rng, "bsr_strided_mm", repeated=True)
    with engine.runs("scatter_mm"):
        out = engine.xp.zeros(shape, np.float32)
        sg.scatter_mm(*map(engine.array, (blocks, others)), on(engine, lists), accumulators=out)
    exact = exact_tiles(blocks, others, lists[0], lists[1:], shape)
    assert exact.max() > LARGEST
    # Tiles of another place in the list are added one after the other, each rounded once.
    np.testing.assert_allclose(engine.host(out).astype(np.float64), exact, rtol=5 * 2.0**-24)


@pytest.mark.parametrize("name", ["scatter_mm", "bsr_strided_mm"])
def test_blocks_that_are_long_themselves(engine, rng, name):
    out, exact = check(engine, rng, *hand_made(rng, name, MOST + 40_000, longest=8), "int32")
    assert exact.max() > LARGEST
    assert_equal(engine, out, exact)


@covered(name=FORMATS, split=[1, 2])
def test_lists_of_a_pattern(engine, rng, cuts, name, split):
    counts = np.array([0, 2600, 3, 2600])
    indices = np.concatenate([rng.permutation(2600)[:count] for count in counts])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    a = bsr(engine, random_int8(rng, (len(indices), 2, KS)), indices, indptr, 2600 * KS)
    x = random_int8(rng, (2, 2600 * KS, 4))
    exact = product(engine.host(a.toarray()), x)
    assert exact.max() > LARGEST
    lists = sg.bsr_scatter_mm_indices_data(a, engine.array(x), name, SPLIT_N=split)
    for _again in range(2):
        with engine.runs("bsr_addmm"):
            out = sg.bsr_scatter_mm(a, engine.array(x), lists)
        assert_equal(engine, out, exact, "int32")
        assert len(cuts) == 1  # by the first call, and kept with the lists
    with engine.runs("bsr_addmm"):
        out = engine.xp.zeros(exact.shape, np.float32)
        sg.bsr_scatter_mm(a, engine.array(x), lists, out=out)
    assert_equal(engine, out, exact)


def test_lists_are_copied_without_what_is_kept():
    a, x = sg.bsr_array(np.ones((4, 4), np.int8), blocksize=(2, 2)), np.ones((4, 2), np.int8)
    lists = sg.bsr_scatter_mm_indices_data(a, x)
    for other in (copy.deepcopy(lists), pickle.loads(pickle.dumps(lists))):
        assert (other.fit.memo, other.fit.rows) == (None, lists.fit.rows)
        np.testing.assert_array_equal(sg.bsr_scatter_mm(a, x, other), np.full((4, 2), 4))


def test_short_groups_are_not_cut(engine, rng, cuts):
    for name in FORMATS:  # more pairs than a group could have
        case = hand_made(rng, name, longest=MOST // KS)
        assert_equal(engine, *check(engine, rng, *case, "int32"))
    assert not cuts


@pytest.mark.parametrize("dtype", [None, "int8", "float32", "bfloat16"])
def test_sparse_times_sparse(engine, rng, dtype):
    # Block (0, 0) is the sum of 600 products, block (1, 0) of two.
    left, right = random_int8(rng, (602, 2, 256)), random_int8(rng, (600, 256, 3))
    a = bsr(engine, left, [*rng.permutation(600), 3, 4], [0, 600, 602], 600 * 256)
    b = bsr(engine, right, np.zeros(600), np.arange(601), 3)
    exact = product(engine.host(a.toarray()), engine.host(b.toarray()))
    assert abs(exact).max() > 2**31
    with engine.runs("scatter_mm"):
        out = a @ b if dtype is None else sg.bsr_spgemm(a, b, out_dtype=dtype)
    assert_equal(engine, out.toarray(), exact)
