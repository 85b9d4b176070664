"""Calls in the middle of others on the same thread, as finalizers and signal handlers make them."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from fake_cuda import ExternalStream, Stream, at
from sparsegpu.engines.cuda import winners
from sparsegpu.engines.cuda.runtime import capture
from sparsegpu.engines.cuda.runtime.launch import submit
from sparsegpu.engines.cuda.runtime.replay import Call
from sparsegpu.engines.cuda.runtime.submission import Submission, current
from sparsegpu.engines.cuda.runtime.submission import workspace as take
from sparsegpu.engines.cuda.runtime.workspace import SPARE, StreamWorkspace
from sparsegpu.engines.cusparselt import library
from sparsegpu.kernels import winners as kernel_winners

pytestmark = pytest.mark.usefixtures("cuda")


class Noted:
    """A work that is noted where it is enqueued; something may happen behind it."""

    source = ""

    def __init__(self, log, name):
        self._log, self._name, self.then = log, name, None

    def on(self, stream):
        self._log.append(self._name)
        then, self.then = self.then, None
        if then is not None:
            then()


def call_of(owner, dense, works, borrowed):
    """Replay a call whose works use workspace, or make it; return whether it was replayed.

    Whether the workspace of one that is made is the operand's is appended to ``borrowed``.
    """
    call = Call("operation", owner, (dense, None), (), dense)
    if call.replay() is not None:
        return True
    with Submission(0, owner, call):
        take(1000)
        borrowed.append(current().exclusive)
        submit(*works, whole=True)
        call.keep()
    return False


@pytest.mark.parametrize("known", [False, True])
def test_nothing_comes_between_what_is_replayed(owner, known):
    """What the first work left in the workspace is there for the second."""
    log, borrowed = [], []
    first, second = at(512), at(1024)
    works = [Noted(log, "begin"), Noted(log, "end")]
    others = [Noted(log, "other begin"), Noted(log, "other end")]
    call_of(owner, first, works, borrowed)
    if known:
        call_of(owner, second, others, borrowed)
    (kept,) = owner.kept.values()
    log.clear()
    borrowed.clear()
    replayed = []
    works[0].then = lambda: replayed.append(call_of(owner, second, others, borrowed))
    assert call_of(owner, first, works, borrowed)
    assert log == ["begin", "other begin", "other end", "end"] and replayed == [False]
    assert borrowed == [False]  # memory of its own, of which there is no record
    assert call_of(owner, second, others, borrowed) == known
    assert call_of(owner, second, others, borrowed) and call_of(owner, first, works, borrowed)
    assert not kept.lock._is_owned()


def test_memory_of_a_call_is_not_given_back_in_the_middle_of_it(owner, cuda):
    """Not by another external stream's call, which needs much, either."""
    with cuda.on(ExternalStream(9)), Submission(0, owner) as call:
        take(2 * SPARE)
        with cuda.on(ExternalStream(10)), Submission(0, owner):
            take(2 * SPARE)
        (first, second) = owner.kept.values()
        assert call.kept_on_stream() is first and not first.ended and second.nbytes
    with cuda.on(ExternalStream(10)), Submission(0, owner):
        take(3 * SPARE)
    assert first.ended


def test_what_two_captures_allocate_is_kept_apart(cuda, monkeypatch):
    """By the graph that reads it, though one call is in the middle of the other."""
    graphs = {stream: type(cuda.graph)() for stream in (7, 8)}
    monkeypatch.setattr(capture, "capture_on", graphs.__getitem__)
    cuda.captured |= graphs.keys()
    cuda.allocator = lambda nbytes: nbytes

    def allocate(nbytes):
        return sys.modules["cupy"].cuda.get_allocator()(nbytes)

    with cuda.on(Stream(7)), Submission(0):
        allocate(64)
        with Submission(0):
            allocate(128)
        with cuda.on(Stream(8)), Submission(0):
            allocate(256)
        allocate(512)
    assert graphs[8]._memory == [256]
    assert [n for n in graphs[7]._memory if n != 256] == [64, 128, 512]


def test_a_workspace_whose_order_fails_is_free(owner, cuda):
    """Its event is another library's stream's, which may be in whatever state."""

    def fail(stream):
        raise RuntimeError("this one")

    with cuda.on(ExternalStream(9)):
        with Submission(0, owner):
            take(1000)
        (kept,) = owner.kept.values()
        kept._wait = fail
        with pytest.raises(RuntimeError, match="this one"), Submission(0, owner):
            take(1000)
    assert not kept.lock._is_owned()


def test_locks_let_their_thread_in_again(monkeypatch):
    """A finalizer may run in any allocation: it finds what it needs, or makes it itself."""

    def made(module, name, make):
        """Do ``make`` where what it makes is looked for once more in the middle."""
        real, calls = getattr(module, name), []

        def again(*arguments):
            calls.append(arguments)
            if len(calls) == 1:
                make()
            return real(*arguments)

        monkeypatch.setattr(module, name, again)
        thread = threading.Thread(target=make, daemon=True)
        thread.start()
        thread.join(timeout=20)
        assert not thread.is_alive() and len(calls) == 2, f"{module.__name__} waits for itself"

    monkeypatch.setattr(winners, "_snapshot", None)
    made(winners, "_read", winners.snapshot)
    monkeypatch.setattr(library, "_handles", {})
    monkeypatch.setattr(library, "current_device", lambda: 0)
    monkeypatch.setattr(library, "Handle", lambda lt: SimpleNamespace(lt=lt))
    monkeypatch.setattr(library, "bindings", lambda function: None)
    made(library, "bindings", library.handle)
    for lock in (winners._lock, kernel_winners._lock, library._lock, StreamWorkspace().lock):
        with lock:
            assert lock.acquire(blocking=False)
            lock.release()


@pytest.mark.parametrize("known", [False, True])
def test_calls_that_are_in_the_middle_of_each_other_crosswise(owner, known):
    """Two threads, each with a call of one operand's and in the middle of it of the other's."""
    owners, borrowed, log = (owner, SimpleNamespace(kept={}, device=0)), [], []
    both, replayed = threading.Barrier(2, timeout=20), []
    works = [[Noted(log, f"{n} begin"), Noted(log, f"{n} end")] for n in range(2)]
    places = at(512), at(1024)
    for n in range(2) if known else ():
        call_of(owners[n], places[n], works[n], borrowed)

    def call(n):
        def cross():
            both.wait()
            other = [Noted(log, f"{n} in the middle")]
            replayed.append(call_of(owners[1 - n], places[1 - n], other, borrowed))
            both.wait()

        works[n][0].then = cross
        call_of(owners[n], places[n], works[n], borrowed)

    threads = [threading.Thread(target=call, args=(n,), daemon=True) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive(), "they wait for each other"
    assert replayed == [False, False] and len(log) == (10 if known else 6)
    for kept in (workspace for each in owners for workspace in each.kept.values()):
        assert not kept.lock._is_owned() and kept.lock.acquire(blocking=False)
        kept.lock.release()
