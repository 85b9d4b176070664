"""The kernels of softmax and its gradient on the host (tools/emulator)."""

from __future__ import annotations

import numpy as np
import pytest

import test_softmax as forward
import test_softmax_backward as backward
from conftest import Engine
from sparsegpu.engines.cuda.softmax import Teams, teams
from tools.emulator.operations import emulated_softmax

#: Few, as each may take seconds to build: dtype, block, blocks, density, batch.
CASES = [
    ("bfloat16", (16, 16), (2, 30), 0.5, ()),  # several warps, vectors of 16 bytes
    ("float16", (5, 12), (4, 30), 0.7, (2,)),  # of 8 bytes; lanes past the last row
    ("float32", (2, 128), (1, 700), 1.0, ()),  # longer than a thread block keeps
    ("float64", (3, 5), (4, 9), 0.4, ()),  # elements
    ("float32", (1, 4), (70, 3), 0.5, (3,)),  # teams go on to rows of other matrices
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows(directory, rng, case):
    dtype, blocksize, blocks, density, batch = case
    shape = tuple(n * b for n, b in zip(blocks, blocksize, strict=True))
    how = {"dtype": dtype, "density": density, "batch": batch}
    with emulated_softmax(directory) as launched:
        for rows in (forward.TestRows, backward.TestRows):
            rows.check(Engine("cpu"), *rows.draw(rng, shape, blocksize, **how), shape=shape)
    assert launched == {"bsr_softmax": 1, "bsr_softmax_backward": 1}


def test_special_values(directory):
    with emulated_softmax(directory):
        special = forward.test_special_values_stay_in_their_row
        special(Engine("cpu"), "float32", (4, 2))
        backward.test_what_is_not_finite_stays_in_its_row(Engine("cpu"), "float32", (4, 2))
        forward.test_large_values_do_not_overflow(Engine("cpu"), "float32")


def test_a_long_row_in_place_among_short_ones(directory, rng):
    """Its team is one of short rows: what it does not keep is read again before it is written."""
    indptr = np.array([0, 600, 601, 601, 602], np.int32)
    indices = np.concatenate([np.arange(600), [3], [5]]).astype(np.int32)
    parts = rng.standard_normal((602, 2, 2), np.float32), indices, indptr
    engine = Engine("cpu")
    with emulated_softmax(directory):
        a = engine.bsr((parts[0].copy(), *parts[1:]), (8, 1200))
        forward.sparsegpu.bsr_softmax(a, out=a)
        forward.TestRows.compare(engine, a, parts, shape=(8, 1200))
        g = a.with_data(parts[0].copy())
        forward.sparsegpu.bsr_softmax_backward(g, a, out=g)
        backward.TestRows.compare(engine, g, parts, (a.data, *parts[1:]), shape=(8, 1200))


def test_a_long_row_whose_end_is_far_above_its_start(directory):
    """What is streamed begins with -inf, and has the row's maximum."""
    x = np.zeros((600, 2, 2), np.float32)
    x[100:400], x[-1, 0, 1], x[-2, 1, 0] = -np.inf, 500, -np.inf
    indices, indptr = np.arange(600, dtype=np.int32), np.array([0, 600, 600, 600, 600], np.int32)
    with emulated_softmax(directory):
        forward.TestRows.check(Engine("cpu"), (x, indices, indptr), shape=(8, 1200))


def test_teams_have_room_for_their_rows():
    """Vectors of 16 bytes of bfloat16: whole lines of memory, and no more warps than needed."""
    shared = {
        block: teams(mean, 2 * mean, (block, block), 8, 2, 8)
        for block, mean in ((16, 103), (32, 52), (64, 26), (128, 13))
    }
    assert {b: (t.warps, t.rows) for b, t in shared.items()} == {
        16: (4, 4),
        32: (2, 2),
        64: (1, 1),
        128: (1, 1),
    }
    assert teams(2**20 // 64, 2**20 // 64, (64, 64), 8, 2, 8) == Teams(16, 1, 2, 8)
    short = teams(3, 3, (16, 16), 8, 2, 8)
    assert (short.warps, short.rows) == (1, 16)
