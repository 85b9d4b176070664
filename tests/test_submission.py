"""A call as one unit, and its replay: without a GPU, on streams by hand."""

from __future__ import annotations

import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from fake_cuda import ExternalStream, Stream, Work, at
from sparsegpu.engines.cuda.runtime.launch import submit
from sparsegpu.engines.cuda.runtime.replay import Call
from sparsegpu.engines.cuda.runtime.submission import Submission, current
from sparsegpu.engines.cuda.runtime.submission import workspace as take

pytestmark = pytest.mark.usefixtures("cuda")


def call(owner, dense, out):
    return Call("product", owner, (dense, out), (1, "relu"), out)


def replayed(owner, dense, out):
    """Return the one result of a replay, None where there was none."""
    results = call(owner, dense, out).replay()
    return None if results is None else results[0]


def made(cuda, owner, dense, out, *works, nbytes=1000):
    """Do a first call that works in so much memory, and keep it."""
    this = call(owner, dense, out)
    assert this.replay() is None
    with Submission(0, owner, this) as submission:
        if nbytes:
            take(nbytes)
        submit(*works, whole=True)
        this.keep(out)
        assert submission.exclusive == bool(nbytes)


STREAMS = [Stream(0), Stream(1), Stream(2), Stream(9), ExternalStream(9)]


@pytest.mark.parametrize("stream", STREAMS, ids=["null", "legacy", "thread", "own", "external"])
@pytest.mark.parametrize("nbytes", [0, 1000])
def test_a_call_is_replayed(cuda, owner, stream, nbytes):
    dense, out, works = at(512), at(1024), (Work(), Work())
    with cuda.on(stream):
        made(cuda, owner, dense, out, *works, nbytes=nbytes)
        for _ in range(2):
            assert replayed(owner, dense, out) is out
        assert replayed(owner, at(2048), out) is None
        assert replayed(owner, dense, at(4096)) is None
    assert [w.streams for w in works] == [[stream.ptr] * 3] * 2
    marked = [s for _, s in cuda.recorded]
    assert marked == ([stream.ptr] * 3 if nbytes and stream.ptr > 1 else [])
    with cuda.on(Stream(stream.ptr + 50)):
        assert replayed(owner, dense, out) is None


def test_another_stream_of_the_handle_replays_nothing(cuda, owner):
    dense, out, work = at(512), at(1024), Work()
    first = Stream(9)
    with cuda.on(first):
        made(cuda, owner, dense, out, work)
    with cuda.on(Stream(9)):
        assert replayed(owner, dense, out) is None
    assert work.streams == [9]


def test_a_larger_need_forgets_what_was_kept(cuda, owner):
    dense, out, work = at(512), at(1024), Work()
    made(cuda, owner, dense, out, work)
    made(cuda, owner, at(2048), out, Work(), nbytes=100)  # fits
    assert replayed(owner, dense, out) is out
    made(cuda, owner, at(4096), out, Work(), nbytes=100_000)
    assert replayed(owner, dense, out) is None


def test_a_call_keeps_its_memory_to_itself(cuda, owner):
    """From the first that it takes until it leaves, whatever happens."""
    dense, out, work = at(512), at(1024), Work()
    made(cuda, owner, dense, out, work)
    results, entered = [], threading.Event()

    def replay():
        entered.set()
        results.append(replayed(owner, dense, out))

    with pytest.raises(RuntimeError, match="in the middle"), Submission(0, owner):
        take(100)
        thread = threading.Thread(target=replay)
        thread.start()
        entered.wait(10)
        thread.join(0.05)
        assert thread.is_alive() and work.streams == [0]
        raise RuntimeError("in the middle")
    thread.join(10)
    assert results == [out] and work.streams == [0, 0] and current() is None


def test_in_the_middle_of_a_call_nothing_is_replayed(cuda, owner):
    """A finalizer of a user's that runs there is a call of its own, in other memory."""
    dense, out, work = at(512), at(1024), Work()
    made(cuda, owner, dense, out, work)
    with Submission(0, owner):
        taken = take(1000)
        assert replayed(owner, dense, out) is None
        with Submission(0, owner):
            assert take(1000) is not taken
    (kept,) = owner.kept.values()
    assert kept.nbytes == 2 * 1024


def test_parts_and_calls_within_a_call(cuda, owner):
    other = SimpleNamespace(kept={}, device=0)
    with Submission(0, owner) as whole:
        with Submission(0) as part:
            take(1000)
        assert part.exclusive and whole.exclusive
        with Submission(0, other) as another:
            take(5000)
            assert another.kept_on_stream() is not whole.kept_on_stream()
        with cuda.on(Stream(9)), Submission(0, owner) as elsewhere:
            take(2000)
            assert elsewhere.kept_on_stream() is not whole.kept_on_stream()
    assert [w.nbytes for w in other.kept.values()] == [5120]
    assert sorted(w.nbytes for w in owner.kept.values()) == [1024, 2048]


def test_without_an_operand_it_is_memory_like_any_other(cuda):
    assert take(1000).nbytes == 1000
    with Submission(0) as submission:
        assert take(1000).nbytes == 1000 and not submission.exclusive


def test_what_is_captured_belongs_to_the_graph(cuda, owner):
    dense, out, work = at(512), at(1024), Work()
    stream = Stream(9)
    with cuda.on(stream):
        made(cuda, owner, dense, out, work)
        cuda.captured.add(9)
        this = call(owner, dense, out)
        assert this.replay() is None
        usual = cuda.allocator
        with Submission(0, owner, this) as submission:
            assert submission.captured and cuda.allocator is not usual
            take(1000)
            captured = Work()
            submit(captured, whole=True)
            this.keep(out)
            with Submission(0):
                assert cuda.allocator is not usual
        assert cuda.allocator is usual
        kept = list(cuda.graph._owners.values())
        assert any(k is owner for k in kept) and any(k == (captured,) for k in kept)
        assert cuda.graph.workspace((0, 9)).nbytes == 1024
        cuda.captured.clear()
        assert replayed(owner, dense, out) is out  # as it was kept before
    assert [s for _, s in cuda.recorded] == [9, 9]


def test_new_results_are_told_apart_by_their_memory(cuda, owner):
    dense, work = at(512), Work()
    this = call(owner, dense, None)
    with Submission(0, owner, this):
        submit(work, whole=True)
        this.keep(at(1 << 40))
    result = replayed(owner, dense, None)
    assert result.data.ptr == 1 << 40 and result.dtype == np.float32 and work.streams == [0, 0]
    assert replayed(owner, dense, None) is None  # allocated elsewhere


def test_what_a_call_reads_besides_is_kept_with_it(cuda, owner):
    """A pattern that was broadcast to a batch: the operand keeps only the latest of these."""
    dense, out, work, pattern = at(512), at(1024), Work(), at(2048)
    read = weakref.ref(pattern)
    this = call(owner, dense, out)
    with Submission(0, owner, this):
        submit(work, whole=True)
        this.keep(out, reads=pattern)
    del pattern
    assert replayed(owner, dense, out) is out and read() is not None
    del this
    owner.kept.clear()
    assert read() is None
