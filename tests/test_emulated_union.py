"""The kernels of sums over two patterns on the host (tools/emulator)."""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import sparsegpu
from sparsegpu._arrays import dtype_of
from sparsegpu._memo import RECENT
from sparsegpu.engines import engine_module
from sparsegpu.testing import random_blocks, random_values
from tools.emulator.operations import emulated_union

KERNELS = {"bsr_union_rows": 2, "bsr_spgemm_ends": 1, "bsr_union_blocks": 1}

#: Few, as each takes seconds to build: dtype, block.
CASES = [
    ("float64", (3, 3)),
    ("float32", (3, 4)),
    ("complex64", (1, 2)),
    ("bfloat16", (2, 8)),
    ("int8", (3, 4)),
    ("bool", (3, 3)),
]


def two(rng, dtype, blocksize=(3, 4), counts=(7, 40), density=0.5, **how):
    """Return two matrices whose rows have blocks in common, blocks of their own, and none."""
    shape = counts[0] * blocksize[0], counts[1] * blocksize[1]
    return [
        sparsegpu.bsr_array(
            random_blocks(rng, shape, blocksize, dtype=dtype, density=part, **how), shape=shape
        )
        for part in (density, density / 3)
    ]


def combined(a, b, name):
    """Call the engine's function as the operators do, which ask it of some dtypes alone."""
    union = engine_module(np, "union", "bsr_array +")
    operands = a.pattern, a.data, b.pattern, b.data
    if name == "side by side":
        return union.side_by_side(*operands, "bsr_array +")
    return union.combine(*operands, 1 if name == "add" else -1, "bsr_array +")


@pytest.mark.parametrize(("dtype", "blocksize"), CASES, ids=str)
def test_every_dtype(directory, rng, dtype, blocksize):
    """Also where integers wrap and where a difference is the negative of a block."""
    a, b = two(rng, dtype, blocksize, shuffled=False)
    if dtype == "int8":
        for x in (a, b):
            x.data[...] = rng.integers(-128, 128, x.data.shape)
    names = ["add", "side by side"] + (["subtract"] if dtype != "bool" else [])
    for name in names:
        with emulated_union(directory) as launched:
            found = combined(a, b, name)
        assert launched == KERNELS | {"bsr_union_blocks": 2 if name == "side by side" else 1}
        of_a, of_b = (x.toarray() for x in (a, b))
        expected = (of_a, of_b) if name == "side by side" else (getattr(np, name)(of_a, of_b),)
        union = np.union1d(a.pattern.keys(), b.pattern.keys())
        np.testing.assert_array_equal(found[0].keys(), union)
        for data, dense in zip(found[1:], expected, strict=True):
            assert data.dtype == dtype_of(dtype)
            made = sparsegpu.bsr_array((data, found[0].indices, found[0].indptr), shape=a.shape)
            np.testing.assert_array_equal(made.toarray(), dense)


def test_operators_on_rows_of_all_kinds(directory, rng):
    """Long rows beside empty ones, unsorted and repeated blocks, mixed dtypes; nothing stored."""
    a, b = two(rng, "float32", (1, 2), (5, 400), duplicates=True)
    dense = a.toarray(), b.toarray()
    empty = sparsegpu.bsr_array(a.shape, blocksize=(1, 2), dtype="float32")
    wide = b.astype("float64")
    with emulated_union(directory) as launched:
        np.testing.assert_allclose((a + b).toarray(), dense[0] + dense[1], rtol=1e-6)
        np.testing.assert_allclose((a - wide).toarray(), dense[0] - dense[1], rtol=1e-6)
        assert (a + wide).dtype == np.float64
        np.testing.assert_array_equal((empty - b).toarray(), -dense[1])
        np.testing.assert_array_equal((a + empty).toarray(), dense[0])
        nothing = combined(empty, empty, "add")[0]
    assert launched["bsr_union_blocks"] == 5
    assert nothing.nnzb == 0 and not nothing.indptr.any()


def test_batches(directory, rng):
    """Every matrix has a union of its own, of as many blocks as the others."""
    data = random_values(rng, (2, 3, 2, 2), "float32")
    indptr = np.array([[0, 2, 3], [0, 0, 3]])
    indices = np.array([[1, 4, 0], [0, 2, 3]])
    others = np.array([[1, 2, 0], [1, 2, 3]]), np.array([[0, 2, 3], [0, 1, 3]])
    a = sparsegpu.bsr_array((data, indices, indptr), shape=(4, 10))
    b = sparsegpu.bsr_array((2 * data, *others), shape=(4, 10))
    with emulated_union(directory):
        pattern, blocks = combined(a, b, "add")
        made = sparsegpu.bsr_array((blocks, pattern.indices, pattern.indptr), shape=(4, 10))
        np.testing.assert_array_equal(made.toarray(), a.toarray() + b.toarray())
        uneven = sparsegpu.bsr_array((2 * data, indices, others[1]), shape=(4, 10))
        with pytest.raises(ValueError, match=r"\+: argument 'other': expected the same number of"):
            combined(a, uneven, "add")


def test_the_union_is_kept_with_the_patterns(directory, rng):
    from sparsegpu.engines.cuda import union

    a, b = two(rng, "float64", (2, 2), (5, 6), shuffled=False)
    asked = []
    with emulated_union(directory), pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            union, "_find", lambda *how, find=union._find: asked.append(1) or find(*how)
        )
        for _ in range(3):
            union._union(a.pattern, b.pattern, "bsr_array +")
    assert asked == [1]


@pytest.mark.parametrize("side", ["left", "right"])
def test_unions_in_a_loop_do_not_pile_up(directory, rng, side):
    from sparsegpu.engines.cuda import union

    a, b = two(rng, "float64", (2, 2), (5, 6), shuffled=False)
    total, watched = a.pattern, []
    with emulated_union(directory):
        for _ in range(2 * RECENT):
            pair = (b.pattern, total) if side == "left" else (total, b.pattern)
            total = union._union(*pair, "bsr_array +").pattern
            watched.append(weakref.ref(total))
    del total, pair
    assert sum(w() is not None for w in watched) <= RECENT + 1


def test_a_capture_keeps_the_union(directory, rng, monkeypatch):
    """Its graph reads the union after the patterns have dropped it."""
    from sparsegpu.engines.cuda import union

    a, b = two(rng, "float64", (2, 2), (5, 6), shuffled=False)
    kept = []
    monkeypatch.setattr(union, "current", lambda: SimpleNamespace(keep=kept.append))
    with emulated_union(directory):
        found = union._union(a.pattern, b.pattern, "bsr_array +")
        again = union._union(a.pattern, b.pattern, "bsr_array +")
    assert len(kept) == 2 and all(known is found is again for known in kept)
