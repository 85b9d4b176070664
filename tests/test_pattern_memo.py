"""What a pattern keeps: everything that is finite in number, the latest few of what is not."""

from __future__ import annotations

import gc
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import sparsegpu
from sparsegpu._memo import RECENT
from sparsegpu.ops.scatter_indices import FORMATS
from sparsegpu.pattern import Pattern


class Thing:
    """Something that can be watched disappear."""


def pattern():
    return sparsegpu.bsr_array(np.eye(8), blocksize=(2, 2)).pattern


def test_the_latest_few_are_kept():
    kept = pattern()
    first = kept.memo_recent("thing", 0, Thing)
    for n in range(1, RECENT):
        kept.memo_recent("thing", n, Thing)
        kept.memo_recent("other", n, Thing)  # another kind takes no room
        assert kept.memo_recent("thing", 0, Thing) is first
    second = kept.memo_recent("thing", 1, Thing)
    kept.memo_recent("thing", RECENT, Thing)  # number 2 was not asked for the longest
    assert kept.memo_recent("thing", 0, Thing) is first
    assert kept.memo_recent("thing", 1, Thing) is second
    watched = [weakref.ref(kept.memo_recent("thing", -n, Thing)) for n in range(1, 3 * RECENT)]
    gc.collect()
    assert [w() is not None for w in watched] == [False] * (2 * RECENT - 1) + [True] * RECENT


def test_what_a_graph_captured_is_kept_for_good(monkeypatch):
    kept, capturing, waits = pattern(), [False], []
    stream = SimpleNamespace(ptr=7, synchronize=lambda: None)
    runtime = SimpleNamespace(
        deviceSynchronize=lambda: waits.append(True),
        streamIsCapturing=lambda stream: capturing[0],
    )
    kept.xp = SimpleNamespace(
        cuda=SimpleNamespace(get_current_stream=lambda: stream, runtime=runtime)
    )
    monkeypatch.setitem(sys.modules, "cupy", kept.xp)
    captured = kept.memo_recent("thing", 0, Thing)
    capturing[0] = True
    assert kept.memo_recent("thing", 0, Thing) is captured
    capturing[0] = False
    for n in range(1, 2 * RECENT + 1):
        kept.memo_recent("thing", n, Thing)
    assert kept.memo_recent("thing", 0, Thing) is captured
    assert len(waits) == RECENT + 1  # before anything is let go that a stream may be reading


def test_index_lists_do_not_pile_up(engine):
    bsr = sparsegpu.bsr_array(engine.array(np.eye(4, dtype=np.float32)), blocksize=(2, 2))
    with engine.runs("bsr_addmm"):
        before = len(bsr.pattern._memo)
        for n in range(1, 3 * RECENT):
            for indices_format in FORMATS:
                other = engine.xp.ones((4, n), np.float32)
                lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, other, indices_format, SPLIT_N=n)
                result = sparsegpu.bsr_scatter_mm(bsr, other, lists)
        assert (engine.host(result[:, :1]) == 1).all()
        assert len(bsr.pattern._memo["scatter_mm"]) == RECENT
        assert len(bsr.pattern._memo) <= before + 8


def test_batches_of_many_sizes_do_not_pile_up():
    one = pattern()
    watched = [weakref.ref(one.broadcast_to((n,))) for n in range(1, 3 * RECENT)]
    assert sum(w() is not None for w in watched) == RECENT
    assert one.broadcast_to((2,)) is one.broadcast_to((2,))


@pytest.mark.parametrize(
    ("indices", "repeated"), [([2, 0, 1, 1], False), ([2, 0, 1, 0], False), ([1, 2, 1, 0], True)]
)
def test_repeated_blocks_are_found_in_any_order(indices, repeated):
    indptr = np.array([0, 3, 4], np.int32)
    pattern = Pattern(indptr, np.array(indices, np.int32), (4, 6), (2, 2))
    assert pattern.has_repeated_blocks is repeated
