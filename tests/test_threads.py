"""Host threads on one operand: any stream, first and repeated calls, without a wrong element."""

from __future__ import annotations

import threading
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

import sparsegpu as sg
from in_threads import run_in_threads
from workspace_cases import CASES

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("short_switch_interval")]

THREADS, ROUNDS = 8, 12


@pytest.fixture
def cp(cuda_engine):
    return cuda_engine.xp


def external(cp, ptr):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return cp.cuda.ExternalStream(ptr)


@contextmanager
def streams(cp, kind):
    """Give a stream for each thread; ``shared``: one that CuPy made, for all of them."""
    runtime = cp.cuda.runtime
    if kind == "null":
        yield [cp.cuda.Stream.null] * THREADS
    elif kind == "per thread":
        yield [cp.cuda.Stream.ptds] * THREADS
    elif kind == "own":
        yield [cp.cuda.Stream(non_blocking=True) for _ in range(THREADS)]
    elif kind == "shared":
        yield [cp.cuda.Stream(non_blocking=True)] * THREADS
    else:
        handles = [runtime.streamCreateWithFlags(runtime.streamNonBlocking) for _ in range(4)]
        yield [external(cp, handles[i % 4]) for i in range(THREADS)]
        runtime.deviceSynchronize()
        for handle in handles:
            runtime.streamDestroy(handle)


@pytest.mark.parametrize("kind", ["null", "per thread", "own", "shared", "external"])
@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_every_thread_gets_its_own_result(cuda_engine, cp, rng, make, kind):
    """First calls, and calls that were made before, into given results and new ones."""
    shared = make(cuda_engine, rng)
    count = len(shared.dense)
    outs = [[shared.blank(cp) for _ in range(2)] for _ in range(THREADS)]
    wrong = [cp.zeros((), np.int64) for _ in range(THREADS)]
    cp.cuda.Device().synchronize()
    with streams(cp, kind) as of_threads:

        def work(i):
            x, expected = shared.dense[i % count], shared.expected[i % count]
            with of_threads[i] as stream:
                for step in range(ROUNDS):
                    out = None if step % 3 == 2 else outs[i][step % 3]
                    result = shared.call(x, out)
                    wrong[i] += (result != expected).sum()
                    result = None
                    if out is not None:
                        out.fill(0)
                stream.synchronize()

        run_in_threads(work, THREADS)
    assert [int(w) for w in wrong] == [0] * THREADS


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_no_context_is_current(cuda_engine, cp, rng, make):
    """In a thread that has not called CUDA before, and in one that put its context away."""
    shared = make(cuda_engine, rng)
    x, expected = shared.dense[0], shared.expected[0]
    outs = [shared.blank(cp) for _ in range(4)]
    cp.cuda.Device().synchronize()

    def work(i):
        if i % 2:
            cp.cuda.runtime.getDevice()
            cp.cuda.driver.ctxSetCurrent(0)
        shared.call(x, outs[i])
        cp.cuda.driver.ctxSetCurrent(0)
        shared.call(x, outs[i])

    for i in (0, 1):  # first calls, then repeated ones
        for first in (0, 2):
            thread = threading.Thread(target=work, args=(first + i,))
            thread.start()
            thread.join()
    run_in_threads(lambda i: work(i % 4), 1)
    cp.cuda.Device().synchronize()
    for out in outs:
        assert (out == expected).all()


def test_first_calls_build_one_plan(cuda_engine, cp, rng):
    """Schedules, transposed patterns, kernels: made by one thread while the others wait."""
    for _ in range(4):
        shared = CASES["copied_rows"](cuda_engine, rng)
        a, y = shared.operand, shared.dense[0]
        expected = cp.asnumpy(shared.expected[0]).astype(np.float64)
        sides = [None] * THREADS

        def work(i, a=a, y=y, sides=sides):
            with cp.cuda.Stream(non_blocking=True) as stream:
                sides[i] = a @ y, y.T @ a.T, sg.bsr_softmax(a).data.sum(dtype="float64")
            stream.synchronize()

        cp.cuda.Device().synchronize()
        run_in_threads(work, THREADS)
        for forward, backward, total in sides:
            assert (forward.get() == expected).all() and (backward.get() == expected.T).all()
            assert float(total) == float(sides[0][2])


def test_other_operations_in_threads(cuda_engine, cp, rng):
    """What has no shared workspace stays right, too, on one stream."""
    shared = CASES["two_of_four_few_columns"](cuda_engine, rng)
    dense = shared.operand.todense()
    packed, meta = sg.semi_structured_from_dense(dense)
    failed = []

    def work(i):
        scaled = dense * (i + 1)
        for _ in range(ROUNDS):
            found = sg.semi_structured_from_dense(scaled)
            back = sg.semi_structured_to_dense(*found)
            wrong = (found[0] != packed * (i + 1)).any() | (found[1] != meta).any()
            failed.append(wrong | (back != scaled).any())

    run_in_threads(work, THREADS)
    assert not any(bool(f) for f in failed)


def growing(cp, shared):
    """Return what multiplies ever more columns, in lines to be copied, and counts what is wrong."""
    wide = [
        [cp.concatenate([a] * (2 + i), axis=1)[:, 1:] for a in pair]
        for i, pair in enumerate(zip(shared.dense[:6], shared.expected[:6], strict=True))
    ]

    def call(x):
        if hasattr(shared.operand, "pattern"):
            return sg.bsr_matmul(shared.operand, x)  # by its usual path
        return shared.call(x, None)

    return lambda: sum((call(x) != expected).sum() for x, expected in wide)


@pytest.mark.parametrize(
    "name", ["dense_by_cublas", "copied_rows", "cusparselt_int8_finished_by_us"]
)
def test_workspace_that_grows_meanwhile(cuda_engine, cp, rng, name):
    """Repeated calls wait while another thread's first one replaces the memory under them."""
    for _ in range(4):
        shared = CASES[name](cuda_engine, rng)
        outs = [shared.blank(cp) for _ in range(THREADS)]
        wrong = [cp.zeros((), np.int64) for _ in range(THREADS)]
        grow = growing(cp, shared)
        shared.call(shared.dense[0], outs[0])
        cp.cuda.Device().synchronize()

        def work(i, shared=shared, outs=outs, wrong=wrong, grow=grow):
            if i == 0:
                wrong[i] += grow()
            elif i < 3:  # takes memory that is given back
                for _ in range(10 * ROUNDS):
                    wrong[i] += (cp.full(1 << 20, i, np.uint8) != i).sum()
            else:
                for _ in range(ROUNDS):
                    shared.call(shared.dense[0], outs[i])
                    wrong[i] += (outs[i] != shared.expected[0]).sum()

        run_in_threads(work, THREADS)
        assert [int(w) for w in wrong] == [0] * THREADS


@pytest.mark.parametrize("name", ["full_row", "copied_rows", "two_of_four_copied_rows"])
def test_streams_that_come_and_go(cuda_engine, cp, rng, name):
    """The driver gives a handle again while the work of the stream that had it goes on.

    Results are given, and compared on streams that stay: CuPy's pool tells streams by handles.
    """
    shared = CASES[name](cuda_engine, rng)
    count = len(shared.dense)
    shared.call(shared.dense[0], None)
    outs = [shared.blank(cp) for _ in range(THREADS)]
    wrong = [cp.zeros((), np.int64) for _ in range(THREADS)]
    staying = [cp.cuda.Stream(non_blocking=True) for _ in range(THREADS)]
    cp.cuda.Device().synchronize()

    def work(i):
        x, expected = shared.dense[i % count], shared.expected[i % count]
        done = cp.cuda.Event(disable_timing=True)
        for _ in range(5 * ROUNDS):
            stream = cp.cuda.Stream(non_blocking=True)
            with stream:
                shared.call(x, outs[i])
                stream.record(done)
            del stream
            with staying[i] as stays:
                stays.wait_event(done)
                wrong[i] += (outs[i] != expected).sum()
                outs[i].fill(0)
                stays.synchronize()

    run_in_threads(work, THREADS)
    assert [int(w) for w in wrong] == [0] * THREADS


def test_external_streams_in_turn(cuda_engine, cp, rng):
    """Two of another library's on an operand with much workspace: nothing is planned anew."""
    shared = CASES["dense_by_cublas"](cuda_engine, rng)
    runtime = cp.cuda.runtime
    handles = [runtime.streamCreateWithFlags(runtime.streamNonBlocking) for _ in range(3)]
    outs = [shared.blank(cp) for _ in handles]
    rounds = []
    for _ in range(6):
        for i, handle in enumerate(handles):
            with external(cp, handle) as stream:
                shared.call(shared.dense[i], outs[i])
                stream.synchronize()
        kept = shared.operand.pattern.kept
        rounds.append({place: w for place, w in kept.items() if w.external})
    assert rounds[-1] == rounds[-2] and all(not w.ended for w in rounds[-1].values())
    for out, expected in zip(outs, shared.expected, strict=False):
        assert (out == expected).all()
    for handle in handles:
        runtime.streamDestroy(handle)
