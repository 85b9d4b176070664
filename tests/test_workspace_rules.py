"""Who owns workspace, and when it is given back: the rules, without a GPU, over streams by hand."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace

import pytest

from fake_cuda import Event, ExternalStream, Stream, put_in_place
from sparsegpu.engines.cuda.runtime import workspace
from sparsegpu.engines.cuda.runtime.workspace import SPARE, StreamWorkspace, workspace_on

MB = 1 << 20


@pytest.fixture(autouse=True)
def cuda(monkeypatch):
    """Have events that come when a test says so."""
    yield put_in_place(monkeypatch)
    workspace._waiting.clear()


def used(kept, stream, nbytes) -> StreamWorkspace:
    """Do what a call does on a stream."""
    found = workspace_on(kept, stream)
    with found.lock:
        found.begin(stream.ptr)
        found.chunk(0, nbytes)
        if found.external:
            workspace.reclaim_external(kept, found, stream.ptr)
        found.used(stream.ptr)
    return found


def held(kept):
    return sum(w.nbytes for w in kept.values())


def waiting():
    return sum(chunk.nbytes for _, chunks in workspace._waiting for chunk in chunks)


def test_a_recorded_call_is_not_replayed_on_a_chunk_that_was_replaced():
    """Its addresses are another's by then: it waited for the lock while the chunk was."""
    found, ran = StreamWorkspace(), []
    work = SimpleNamespace(on=ran.append, source="")
    found.chunk(0, 1000)
    calls = found.calls
    assert found.enqueue(calls, (work,), 0) and ran == [0]
    assert found.chunk(0, 900).nbytes == 900 and found.calls is calls
    answers = []
    with found.lock:
        thread = threading.Thread(
            target=lambda: answers.append(found.enqueue(calls, (work, work), 0))
        )
        thread.start()
        found.chunk(0, 10_000)
    thread.join()
    assert answers == [False] and ran == [0]


def test_a_recorded_call_is_not_replayed_on_what_was_given_back():
    found = StreamWorkspace(Stream(9))
    calls = found.calls
    found.end()
    assert not found.enqueue(calls, (), 9)


def test_the_end_is_marked_where_a_launch_fails(cuda):
    stream = Stream(9)
    found = StreamWorkspace(stream)

    def fail(stream):
        raise RuntimeError("this one")

    with pytest.raises(RuntimeError, match="this one"):
        found.enqueue(found.calls, (SimpleNamespace(on=fail, source=""),), 9)
    assert [stream for _, stream in cuda.recorded] == [9]


def test_another_stream_of_the_same_handle_has_its_own():
    """The driver gives handles again before we hear that the first stream is gone."""
    kept, first = {}, Stream(9)
    old = used(kept, first, 1000)
    assert workspace_on(kept, first) is old
    second = Stream(9)
    new = workspace_on(kept, second)
    assert new is not old and old.ended and not new.ended
    assert not old.serves(second) and new.serves(second)
    del first
    gc.collect()
    assert workspace_on(kept, second) is new


def test_a_handle_of_ours_and_of_another_library_are_apart(cuda):
    kept, own, theirs = {}, Stream(9), ExternalStream(9)
    a, b = used(kept, own, 1000), used(kept, theirs, 1000)
    assert a is not b and not a.external and b.external
    standing_for = Stream(9)
    standing_for._foreign_stream_ref = object()
    assert workspace_on(kept, standing_for) is b
    assert workspace_on(kept, ExternalStream(9)) is b  # wrapped anew at every use
    assert cuda.waited == []
    used(kept, theirs, 1000)
    assert cuda.waited == [9]  # it may be another stream of that handle


def test_threads_have_their_own_on_the_per_thread_stream():
    kept, found, per_thread = {}, [], Stream(2)
    mine = used(kept, per_thread, 1000)
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(used(kept, per_thread, 1000)))
        thread.start()
        thread.join()
    assert mine not in found and all(w.ended and not w.nbytes for w in found)
    assert workspace_on(kept, per_thread) is mine
    assert workspace_on(kept, Stream(0)) is workspace_on(kept, Stream(1))  # two names of one


def test_what_is_pending_waits_and_is_given_back_by_the_next_call(cuda):
    kept, default = {}, Stream(0)
    found = used(kept, default, 1000)
    cuda.pending = True
    streams = [Stream(9 + i) for i in range(16)]
    for stream in streams:
        used(kept, stream, 10 * MB)
    del stream
    streams.clear()
    assert waiting() == 160 * MB
    found.enqueue(found.calls, (), 0)
    assert waiting() == 160 * MB  # a replay waits for nothing
    for event, _ in workspace._waiting:
        event.done = True
    found.enqueue(found.calls, (), 0)
    assert waiting() == 0


def test_a_new_stream_waits_for_the_oldest(cuda):
    kept, finished = {}, []
    cuda.pending = True
    for i in range(20):
        stream = Stream(9 + i)
        used(kept, stream, 10 * MB)
        del stream
        assert waiting() <= SPARE + 10 * MB
        finished.append(sum(event.done for event in Event.made))
    assert waiting() + held(kept) <= SPARE + 10 * MB


def test_external_streams_that_are_not_seen_again(cuda):
    kept = {}
    cuda.pending = True
    for i in range(200):
        used(kept, ExternalStream(9 + i), 10 * MB)
        assert held(kept) <= SPARE + 10 * MB
    assert waiting() == 0  # the host waits for none of them
    assert len(kept) <= 100


@pytest.mark.parametrize("pending", [False, True])
def test_memory_of_external_streams_is_freed_behind_their_work(cuda, pending):
    """CuPy's ``malloc_async`` frees on the current stream where that of the memory is gone."""
    kept = {}
    cuda.pending = pending
    first = used(kept, ExternalStream(9), 40 * MB)
    used(kept, ExternalStream(10), 40 * MB)
    assert first.ended and cuda.waited == [10] * pending


@pytest.mark.parametrize("count", [2, 3, 5])
def test_external_streams_that_come_back_stay(count):
    """Each once given back too soon, then never again, however much it is."""
    kept = {}
    rounds = [[used(kept, ExternalStream(9 + i), 100 * MB) for i in range(count)] for _ in range(8)]
    assert rounds[-1] == rounds[-2] == rounds[-3]
    assert all(not w.ended for w in rounds[-1])
    for i in range(100):  # and go, when they do not come any more
        used(kept, ExternalStream(50 + i), 10 * MB)
    assert held(kept) <= SPARE + 10 * MB


def test_one_in_use_is_not_given_back():
    kept = {}
    first = used(kept, ExternalStream(9), 40 * MB)
    holds, leave = threading.Event(), threading.Event()

    def hold():
        with first.lock:
            holds.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait(10)
    used(kept, ExternalStream(10), 40 * MB)
    assert not first.ended
    leave.set()
    thread.join()
    used(kept, ExternalStream(11), 40 * MB)
    assert first.ended
