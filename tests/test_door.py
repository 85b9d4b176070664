"""The door for work on the device, its recorders, and what is recorded: without a GPU."""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fake_cuda import Stream, Work, at
from in_threads import run_in_threads
from sparsegpu import engines
from sparsegpu.engines.cuda._arena import Arena
from sparsegpu.engines.cuda.runtime import replay
from sparsegpu.engines.cuda.runtime.capture import GraphLaunch
from sparsegpu.engines.cuda.runtime.launch import (
    Kernel,
    Launch,
    Memset,
    address,
    launch_counts,
    recording,
    submit,
)
from sparsegpu.engines.cuda.runtime.replay import Call
from sparsegpu.engines.cuda.runtime.submission import Submission
from sparsegpu.engines.cuda.runtime.submission import workspace as take

pytestmark = pytest.mark.usefixtures("cuda")


# -- the door ---------------------------------------------------------------------------------


def test_works_go_to_the_current_stream_and_recorders_are_told(cuda):
    told, inner, works = [], [], (Work(), Work())
    with cuda.on(Stream(7)), recording(lambda *submission: told.append(submission)):
        submit(*works, whole=True)
        with recording(lambda *submission: inner.append(submission)):
            submit(works[0], setup=True)
    submit(works[1])
    assert [w.streams for w in works] == [[7, 7], [7, 0]]
    assert told == [(works, True, False), (works[:1], False, True)] and inner == told[1:]


def test_recorders_are_of_a_thread(cuda):
    told, work = [], Work()
    with recording(lambda *submission: told.append(submission)):
        thread = threading.Thread(target=submit, args=(work,))
        thread.start()
        thread.join()
    assert work.streams == [0] and told == []


def test_what_fails_is_not_told(cuda):
    told = []

    def fail(stream):
        raise RuntimeError("this one")

    with (
        recording(lambda *submission: told.append(submission)),
        pytest.raises(RuntimeError, match="this one"),
    ):
        submit(Work(), SimpleNamespace(on=fail, source=""))
    assert told == []


def launch_of(name, *args, grid=(2, 3), shared_memory=0):
    function = SimpleNamespace(ptr=99)
    return Launch(Kernel(name, function), grid, (32,), args, shared_memory)


def test_kernels_are_counted_and_an_empty_grid_is_none(cuda):
    before = launch_counts()
    work, empty = launch_of("counted_here"), launch_of("counted_here", grid=(2, 0))
    with cuda.on(Stream(7)):
        submit(work, Work(), empty, Memset(512, 64))
        submit(work)
    counts = launch_counts()
    assert {k: n - before.get(k, 0) for k, n in counts.items() if n != before.get(k)} == {
        "counted_here": 2
    }
    assert [arguments[:9] for arguments in cuda.launched] == [(99, 2, 3, 1, 32, 1, 1, 0, 7)] * 2
    assert cuda.cleared == [(512, 0, 64, 7)]


def test_shared_memory_is_granted_whether_or_not_a_context_is_current(cuda):
    """To a thread that has called nothing of CUDA's before, for a kernel that others launched."""
    asked, fake = [], sys.modules["cupy.cuda"]

    def grant(function, attribute, nbytes):
        asked.append((function, nbytes))
        if not made_current:
            raise NoContext

    class NoContext(RuntimeError):
        status = 201

    made_current = []
    fake.runtime.setDevice = made_current.append
    fake.driver.CUDADriverError = RuntimeError
    fake.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
    fake.driver.funcSetAttribute = grant
    launch_of("granted", shared_memory=100_000)
    assert asked == [(99, 100_000)] * 2 and made_current == [0]


def test_a_graph_goes_through_the_door(cuda):
    told, graph = [], GraphLaunch(SimpleNamespace(graphExec=77))
    with cuda.on(Stream(7)), recording(lambda *submission: told.append(submission)):
        submit(graph)
    assert cuda.graphs == [(77, 7)] and told == [((graph,), False, False)]
    assert "" not in launch_counts()


def test_an_arena_is_cleared_through_the_door(cuda):
    memory = SimpleNamespace(alloc=lambda nbytes: SimpleNamespace(ptr=4096))
    xp, told = SimpleNamespace(cuda=memory), []  # no array is made
    arena = Arena(xp, (3, np.dtype(np.int32)), (5, np.dtype(np.int32)))
    with cuda.on(Stream(7)), recording(lambda *submission: told.append(submission)):
        submit(arena.cleared(1), setup=True)
    assert cuda.cleared == [(4096 + 16, 0, 4, 7)]
    ((works, whole, setup),) = told
    assert len(works) == 1 and not whole and setup


def test_threads_count_every_launch(cuda):
    work, before = launch_of("counted_by_threads"), launch_counts().get("counted_by_threads", 0)
    run_in_threads(lambda _: [submit(work) for _ in range(500)], 4)
    assert launch_counts()["counted_by_threads"] - before == 2000


def test_arguments_are_packed_once(cuda):
    array, struct = at(0x1234), bytes(range(130))
    launch = launch_of("packed", array, np.int32(-5), struct, address(at(0x5678)))
    submit(launch)
    (*_, parameters, _) = cuda.launched[0]
    places = (ctypes.c_void_p * 4).from_address(parameters)
    assert all(place % 128 == 0 for place in places)
    sizes = (8, 4, 130, 8)
    values = [ctypes.string_at(p, n) for p, n in zip(places, sizes, strict=True)]
    assert values[2] == struct
    numbers = [int.from_bytes(v, "little", signed=True) for v in (values[0], *values[1::2])]
    assert numbers == [0x1234, -5, 0x5678]


def test_there_is_no_other_way_to_enqueue():
    """No file of an engine's but the runtime's gives work to a stream."""
    folder = Path(engines.__file__).parent
    folders = (folder / "cuda", folder / "cuda" / "paths", folder / "cusparselt")
    files = [path for place in folders for path in place.glob("*.py")]
    other_ways = re.compile(
        r"\.on\(|launchKernel|get_current_stream\(\)\.ptr|memsetAsync|memset_async|graph\.launch"
    )
    found = {path.name for path in files if other_ways.search(path.read_text())}
    assert len(files) > 80 and found == set()


# -- what is recorded -------------------------------------------------------------------------


def new_call(owner, dense, *settings, out=None):
    return Call("operation", owner, (dense, None, out), settings, out)


def made(owner, call, results, *works, **statements):
    with Submission(0, owner, call):
        submit(*works, **{"whole": True, **statements})
        call.keep(*results)


@pytest.mark.parametrize("owned", [False, True])
def test_several_results(cuda, owner, owned):
    owner, dense, works = owner if owned else None, at(512), (Work(), Work())
    first = 1 << 40
    made(owner, new_call(owner, dense), (at(first, (2, 3)), at(first + 512)), *works)
    told = []
    with recording(lambda *submission: told.append(submission)):
        results = new_call(owner, dense).replay()
    assert [(r.data.ptr, r.shape) for r in results] == [(first, (2, 3)), (first + 512, (4, 4))]
    assert told == [(works, True, False)] and [w.streams for w in works] == [[0, 0]] * 2
    assert new_call(owner, dense).replay() is None  # these are allocated elsewhere


def test_without_an_operand_every_stream_replays(cuda):
    dense, out, work = at(512), at(1024), Work()
    made(None, new_call(None, dense, out=out), (), work)
    with cuda.on(Stream(9)):
        assert new_call(None, dense, out=out).replay() == [out]
    assert work.streams == [0, 9]


def test_what_differs_is_made_anew(cuda):
    dense, out, work = at(512), at(1024), Work()
    made(None, new_call(None, dense, 2, "relu", out=out), (), work)
    strided, turned, elsewhere = at(512), at(512), at(512)
    strided.strides, turned.strides, elsewhere.data.device_id = (32, 4), (4, 16), 1
    other_dtype = at(512)
    other_dtype.dtype = np.dtype(np.int32)
    others = (at(2048), at(512, (2, 8)), strided, turned, elsewhere, other_dtype)
    assert all(new_call(None, a, 2, "relu", out=out).replay() is None for a in others)
    others = ((2.0, "relu"), (True, "relu"), (np.int32(2), "relu"), (3, "relu"), (2, None), (2,))
    assert all(new_call(None, dense, *settings, out=out).replay() is None for settings in others)
    assert new_call(None, dense, 2, "relu").replay() is None
    assert Call("another", None, (dense, None, out), (2, "relu"), out).replay() is None
    assert new_call(None, dense, 2, "relu", out=out).replay() == [out]


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize(
    "statements, kept", [({}, True), ({"whole": False}, False), ({"setup": True}, False)]
)
def test_engines_say_what_may_be_replayed(cuda, owner, owned, statements, kept):
    owner, dense, out = owner if owned else None, at(512), at(1024)
    made(owner, new_call(owner, dense, out=out), (), Work(), **statements)
    assert (new_call(owner, dense, out=out).replay() == [out]) == kept


def test_set_up_is_no_part_of_a_call(cuda, owner):
    dense, out, setup, works = at(512), at(1024), Work(), (Work(), Work())
    call = new_call(owner, dense, out=out)
    with Submission(0, owner, call):
        submit(setup, setup=True)
        submit(works[0], whole=True)
        submit(works[1], whole=True)
        call.keep()
    assert new_call(owner, dense, out=out).replay() == [out]
    assert [w.streams for w in (setup, *works)] == [[0], [0, 0], [0, 0]]


def test_one_submission_that_is_not_whole_is_enough(cuda, owner):
    dense, out = at(512), at(1024)
    call = new_call(owner, dense, out=out)
    with Submission(0, owner, call):
        submit(Work(), whole=True)
        submit()
        call.keep()
    assert new_call(owner, dense, out=out).replay() is None


def test_what_is_not_the_call_itself_is_not_recorded(cuda, owner):
    """As of a user's finalizer, which runs in the middle of another call."""
    dense, out, others = at(512), at(1024), (Work(), Work(), Work())

    def part():
        with Submission(0):
            submit(others[0], whole=True)

    def another_call():
        made(None, new_call(None, at(2048), out=out), (), others[1])

    def replayed():
        assert new_call(None, at(4096), out=out).replay() is None
        with Submission(0):
            assert new_call(None, at(4096), out=out).replay() == [out]

    made(None, new_call(None, at(4096), out=out), (), others[2])
    for happens in (part, another_call, replayed):
        call = new_call(owner, dense, out=out)
        with Submission(0, owner, call):
            submit(Work(), whole=True)
            happens()
            call.keep()
        assert new_call(owner, dense, out=out).replay() is None
    assert new_call(None, at(2048), out=out).replay() == [out]


def test_memory_that_nobody_keeps_is_in_no_record(cuda):
    dense, out = at(512), at(1024)
    call = new_call(None, dense, out=out)
    with Submission(0, None, call):
        take(100)
        submit(Work(), whole=True)
        call.keep()
    assert new_call(None, dense, out=out).replay() is None


def test_what_is_captured_is_not_recorded(cuda):
    cuda.captured.add(9)
    with cuda.on(Stream(9)):
        made(None, new_call(None, at(2048), out=at(1024)), (), Work())
    assert new_call(None, at(2048), out=at(1024)).replay() is None


@pytest.mark.parametrize("owned", [False, True])
def test_a_graph_gets_what_was_recorded_on_any_stream(cuda, owner, owned):
    """And keeps alive what it reads."""
    owner = owner if owned else None
    dense, out, work = at(512), at(1024), Work()
    made(owner, new_call(owner, dense, out=out), (), work)
    cuda.captured.add(9)
    with cuda.on(Stream(9)):
        assert new_call(owner, dense, out=out).replay() == [out]
        assert new_call(owner, at(2048), out=out).replay() is None
    assert work.streams == [0, 9]
    assert (work,) in cuda.graph._owners.values() and owner in cuda.graph._owners.values()
    assert new_call(owner, dense, out=out).replay() == [out] and work.streams == [0, 9, 0]


def test_a_graph_has_results_and_a_workspace_of_its_own(cuda, owner):
    dense, out, result = at(512), at(1024), at(4096)
    call = new_call(owner, dense, out=out)
    with Submission(0, owner, call):
        take(100)
        submit(Work(), whole=True)
        call.keep()
    made(owner, new_call(owner, dense), (result,), Work())
    cuda.captured.add(9)
    with cuda.on(Stream(9)):
        assert new_call(owner, dense, out=out).replay() is None
        assert new_call(owner, dense).replay() is None


def test_threads_replay_at_once(cuda, owner):
    """The works of a call stay together, in memory that calls share."""
    dense, out, order = at(512), at(1024), []

    def nth(i):
        return SimpleNamespace(on=lambda _: order.append((i, threading.get_ident())), source="")

    works = [nth(i) for i in range(3)]
    call = new_call(owner, dense, out=out)
    with Submission(0, owner, call):
        take(1000)
        submit(*works, whole=True)
        call.keep()
    results = []

    def replay_often(_):
        results.extend(new_call(owner, dense, out=out).replay() for _ in range(200))

    run_in_threads(replay_often, 4)
    assert results == [[out]] * 800 and len(order) == 3 * 801
    calls = [order[i : i + 3] for i in range(0, len(order), 3)]
    assert all([i for i, _ in c] == [0, 1, 2] and len({t for _, t in c}) == 1 for c in calls)


@pytest.mark.parametrize("owned", [False, True])
def test_records_are_bounded(cuda, owner, owned):
    owner, dense = owner if owned else None, at(512)
    for i in range(3 * replay.CAPACITY):
        made(owner, new_call(owner, dense, i, out=at(1024)), (), Work())
        made(owner, new_call(owner, dense), (at(512 * i),), Work())
    (calls,) = [w.calls for w in owner.kept.values()] if owned else replay._without_owner.values()
    assert 0 < len(calls) <= replay.CAPACITY
    assert all(len(known.works) <= replay.CAPACITY for known in calls.values())
