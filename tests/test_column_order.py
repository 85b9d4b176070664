"""Whether a pattern's columns ascend: by index arithmetic, and by a kernel."""

from __future__ import annotations

import numpy as np

from covering import covered
from sparsegpu.engines import checking_module
from sparsegpu.engines.cuda import _column_order
from sparsegpu.pattern import Pattern
from tools.emulator.host import emulated

#: Blocks of the rows: of no matrix, of none, few and more than a warp has lanes.
LENGTHS = [(), (0, 0), (3,), (0, 4, 0, 0, 1, 2, 0), (2,) * 40, (1, 70, 0)]
CASES = covered(
    order=["sorted", "falls", "falls at once", "repeats", "repeats apart"],
    batch=[(), (1,), (2, 3), (0,)],
    lengths=LENGTHS,
    dtype=[np.int32, np.int64],
)


def drawn(rng, order, batch, lengths, dtype):
    """Return a pattern, of which one row of one matrix is out of order, and what is true of it."""
    rows = [np.sort(rng.permutation(75)[:n]) for n in lengths * int(np.prod(batch, dtype=int))]
    long = [row for row in rows if len(row) > 1]
    if long and order != "sorted":
        row = long[rng.integers(len(long))]
        first, last = (0, -1) if order in {"falls at once", "repeats apart"} else (-2, -1)
        row[last] = row[first]
        if order.startswith("falls"):
            row[first] += 1
    indices = np.concatenate([[], *rows]).reshape(*batch, sum(lengths)).astype(dtype)
    indptr = np.broadcast_to(np.cumsum([0, *lengths], dtype=dtype), (*batch, len(lengths) + 1))
    steps = np.concatenate([[1], *map(np.diff, rows)])
    return indptr.copy(), indices, (bool((steps >= 0).all()), bool((steps > 0).all()))


def pattern_of(indptr, indices):
    pattern = Pattern(indptr, indices, (indptr.shape[-1] - 1, 77), (1, 1))
    pattern._indptr, pattern._indices = indptr, indices  # of 64 bits, which it needs not
    return pattern


@CASES
def test_what_a_pattern_says(engine, rng, order, batch, lengths, dtype):
    indptr, indices, expected = drawn(rng, order, batch, lengths, dtype)
    pattern = pattern_of(engine.array(indptr), engine.array(indices))
    with engine.runs(None):
        assert (pattern.has_sorted_indices, pattern.has_canonical_format) == expected


@CASES
def test_column_order(engine, rng, order, batch, lengths, dtype):
    indptr, indices, expected = drawn(rng, order, batch, lengths, dtype)
    pattern = pattern_of(engine.array(indptr), engine.array(indices))
    for kernel in ("bsr_column_order" if indices.size else None, None):  # asked once
        with engine.runs(kernel):
            assert checking_module(engine.xp, "convert").column_order(pattern) == expected
    assert pattern.has_canonical_format == expected[1]


@CASES
def test_emulated(directory, rng, order, batch, lengths, dtype):
    indptr, indices, expected = drawn(rng, order, batch, lengths, dtype)
    pattern = pattern_of(indptr, indices)
    with emulated(directory, (_column_order,), {}) as launched:
        assert _column_order.column_order(pattern) == expected
    assert launched == ({"bsr_column_order": 1} if indices.size else {})
