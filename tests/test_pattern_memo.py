"""What a pattern keeps: everything that is finite in number, the latest few of what is not."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import sparsegpu
from sparsegpu._memo import RECENT
from sparsegpu.ops.scatter_indices import FORMATS
from sparsegpu.pattern import Pattern
from sparsegpu.semi_structured.layout import Halves


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


class Stream:
    def __init__(self, ptr, waits):
        self.ptr, self._waits = ptr, waits

    def synchronize(self):
        self._waits.append(self.ptr)


@pytest.fixture
def on_streams(monkeypatch):
    """Return a pattern of a GPU, and what its CUDA is told and was waiting for."""
    kept = pattern()
    told = SimpleNamespace(waits=[], captured=set(), others=[pattern() for _ in range(3 * RECENT)])
    runtime = SimpleNamespace(
        deviceSynchronize=lambda: told.waits.append("device"),
        streamIsCapturing=lambda stream: stream in told.captured,
    )
    cuda = SimpleNamespace(get_current_stream=lambda: told.current, runtime=runtime)
    kept.xp = SimpleNamespace(cuda=cuda)
    monkeypatch.setitem(sys.modules, "cupy", kept.xp)
    told.stream = lambda ptr: Stream(ptr, told.waits)
    told.current = told.stream(7)
    return kept, told


def test_what_a_graph_captured_is_kept_for_good(on_streams):
    kept, told = on_streams
    captured = kept.memo_recent("thing", 0, Thing)
    told.captured.add(7)
    assert kept.memo_recent("thing", 0, Thing) is captured
    told.captured.clear()
    for n in range(1, 2 * RECENT + 1):
        kept.memo_recent("thing", n, Thing)
    assert kept.memo_recent("thing", 0, Thing) is captured


def keep_for_keys(kept, n, others):
    return kept.memo_recent("thing", n, Thing)


def keep_for_patterns(kept, n, others):
    return kept.memo_with("thing", others[n], Thing)


@pytest.mark.parametrize("keep", [keep_for_keys, keep_for_patterns])
def test_who_may_be_reading_is_waited_for(on_streams, keep):
    """No other stream, and not the device: that would end captures of other threads."""
    kept, told = on_streams
    mine, other = told.current, told.stream(8)
    first = weakref.ref(keep(kept, 0, told.others))
    told.current = other
    assert keep(kept, 0, told.others) is first()
    told.current = mine
    for n in range(1, RECENT):
        keep(kept, n, told.others)
    made = RECENT * [7]  # a new value is complete before others see it
    assert told.waits == made
    keep(kept, RECENT, told.others)
    assert told.waits == [*made, 8, 7] or told.waits == [*made, 7, 8]
    gc.collect()
    assert first() is None
    for n in range(RECENT + 1, 3 * RECENT):
        keep(kept, n, told.others)
    assert told.waits.count(8) == 1 and "device" not in told.waits


@pytest.mark.parametrize("keep", [keep_for_keys, keep_for_patterns])
def test_what_a_stream_reads_that_is_captured_now_stays(on_streams, keep):
    kept, told = on_streams
    mine, other = told.current, told.stream(8)
    first = weakref.ref(keep(kept, 0, told.others))
    told.current = other
    keep(kept, 0, told.others)
    told.current = mine
    told.captured.add(8)
    for n in range(1, 2 * RECENT):
        keep(kept, n, told.others)
    gc.collect()
    assert first() is not None and set(told.waits) == {7}


@pytest.mark.parametrize("handle", [8, 2])
@pytest.mark.parametrize("keep", [keep_for_keys, keep_for_patterns])
def test_the_device_is_waited_for_where_a_stream_is_out_of_sight(on_streams, keep, handle):
    """Destroyed or another library's, or a thread's default stream."""
    kept, told = on_streams
    mine = told.current
    keep(kept, 0, told.others)
    told.current = told.stream(handle)
    keep(kept, 0, told.others)
    told.current = mine
    gc.collect()
    for n in range(1, 2 * RECENT):
        keep(kept, n, told.others)
    assert told.waits.count("device") == 1


def test_finalizers_that_call_crosswise():
    """Each in the middle of making what is kept with one operand asks for another operand's."""
    first, second = pattern(), pattern()
    both, results = threading.Barrier(2, timeout=20), []

    def make(own, other):
        def build():
            both.wait()
            results.append(other.memo("thing", Thing))
            results.append(other.memo_recent("things", 0, Thing))
            results.append(other.memo_with("pairs", own, Thing))
            both.wait()
            return Thing()

        own.memo("made", build)

    threads = [
        threading.Thread(target=make, args=pair, daemon=True)
        for pair in ((first, second), (second, first))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
        assert not thread.is_alive()
    assert len(results) == 6 and all(type(r) is Thing for r in results)
    for kept in (first, second):
        assert kept.memo("thing", Thing) in results and not kept._lock._is_owned()


def test_finalizers_that_ask_crosswise_for_the_other_half_of_24_matrices(rng, monkeypatch):
    dense = sparsegpu.prune_24(rng.standard_normal((2, 32, 64)).astype(np.float16))
    first, second = (sparsegpu.to_semi_structured(d)._halves for d in dense)
    both, real, made = threading.Barrier(2, timeout=20), Halves._build, []

    def build(own, side):
        if threading.current_thread() in threads and len(made) < 2:
            made.append(own)
            both.wait()
            (second if own is first else first).get(side)
            both.wait()
        return real(own, side)

    monkeypatch.setattr(Halves, "_build", build)
    threads = [
        threading.Thread(target=halves.get, args=(1,), daemon=True) for halves in (first, second)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
        assert not thread.is_alive()
    assert len(made) == 2
    for halves in (first, second):
        assert halves.get(1) is halves.get(1) and not halves._lock._is_owned()


def test_who_waits_for_what_is_made_gets_it():
    """A thread that holds nothing waits, so that there is one value.

    Neither thread is pytest's: what other tests stop at any line may leave that one a lock.
    """
    kept, begun, made, got = pattern(), threading.Event(), [], []

    def build():
        begun.set()
        time.sleep(0.05)
        made.append(Thing())
        return made[-1]

    thread = threading.Thread(target=kept.memo, args=("thing", build))
    thread.start()
    assert begun.wait(20)
    other = threading.Thread(target=lambda: got.append(kept.memo("thing", build)))
    other.start()
    for each in (thread, other):
        each.join()
    assert got == made and len(made) == 1


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
