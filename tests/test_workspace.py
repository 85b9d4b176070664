"""What operands keep on a GPU: bounded, given back, and never the caller's values."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import sparsegpu as sg
from sparsegpu.engines.cuda.runtime import workspace
from sparsegpu.engines.cuda.runtime.submission import Submission
from sparsegpu.engines.cuda.runtime.submission import workspace as take
from sparsegpu.pattern import Pattern
from test_threads import external
from workspace_cases import CASES

gpu = pytest.mark.gpu
MB = 1 << 20


@pytest.fixture
def cp(cuda_engine):
    return cuda_engine.xp


def used(cp):
    gc.collect()
    cp.cuda.Device().synchronize()
    return cp.get_default_memory_pool().used_bytes()


@pytest.mark.parametrize(
    "nbytes", [1, 511, 512, 513, 12_345, 7 * MB + 1, 100 * MB, 10_000 * MB + 3]
)
def test_sizes_are_shared_and_little_is_lost(nbytes):
    size = workspace.rounded(nbytes)
    assert nbytes <= size <= nbytes + max(512, min(nbytes // 8 + 1, 16 * MB)) and size % 512 == 0
    assert workspace.rounded(size) == size


def test_no_more_than_a_few_sizes():
    assert len({workspace.rounded(n * 1000) for n in range(1, 4000)}) < 150


@gpu
def test_a_stream_has_its_own_and_calls_share_it(cp):
    pattern = Pattern(cp.array([0, 1]), cp.array([0]), (8, 8), (8, 8))

    def places(stream=None):
        with stream or cp.cuda.Stream.null, Submission(0, pattern):
            with Submission(0):  # a part of the call
                first = take(1000)
            return first, take(500)

    first, second = places()
    assert first.nbytes == 1000 and second.nbytes == 500
    assert first.data.ptr != second.data.ptr and first.data.ptr % 256 == 0
    assert [a.data.ptr for a in places()] == [first.data.ptr, second.data.ptr]
    stream = cp.cuda.Stream(non_blocking=True)
    others = {a.data.ptr for a in places(stream)}
    assert not others & {first.data.ptr, second.data.ptr}
    # The same stream as another library's: what lies behind a handle may change unseen.
    wrapped = {a.data.ptr for a in places(external(cp, stream.ptr))}
    assert wrapped.isdisjoint(others)
    assert {a.data.ptr for a in places(external(cp, stream.ptr))} == wrapped
    assert {a.data.ptr for a in places(cp.cuda.Stream.ptds)}.isdisjoint(others)


@gpu
def test_outside_of_a_call_it_is_an_array_like_any_other(cp):
    first, second = take(1000), take(1000)
    assert first.data.ptr != second.data.ptr and first.nbytes == 1000


@gpu
@pytest.mark.parametrize("name", ["full_row", "copied_rows", "two_of_four_copied_rows"])
def test_streams_that_are_gone_give_theirs_back(cuda_engine, cp, rng, name):
    shared = CASES[name](cuda_engine, rng)
    out, x = shared.blank(cp), shared.dense[0]
    shared.call(x, out)
    before = used(cp)
    with cp.cuda.Stream(non_blocking=True) as stream:
        shared.call(x, out)
    stream.synchronize()
    one = used(cp) - before
    assert one > 0
    del stream
    assert used(cp) == before  # at once, for its work was done
    for _ in range(200):
        with cp.cuda.Stream(non_blocking=True):
            shared.call(x, out)
    assert used(cp) - before <= workspace.SPARE + one
    with cp.cuda.Stream(non_blocking=True):
        shared.call(x, out)
    assert used(cp) - before <= one
    assert (out == shared.expected[0]).all()


@gpu
def test_threads_that_are_gone_give_theirs_back(cuda_engine, cp, rng):
    shared = CASES["full_row"](cuda_engine, rng)
    out, x = shared.blank(cp), shared.dense[0]
    shared.call(x, out)
    before = used(cp)

    def work():
        with cp.cuda.Stream.ptds as stream:
            shared.call(x, out)
            stream.synchronize()

    for _ in range(20):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert used(cp) == before


@gpu
def test_external_streams_give_theirs_back_by_age(cuda_engine, cp, rng):
    shared = CASES["full_row"](cuda_engine, rng)
    out, x = shared.blank(cp), shared.dense[0]
    shared.call(x, out)
    before, runtime = used(cp), cp.cuda.runtime
    handles = [runtime.streamCreateWithFlags(runtime.streamNonBlocking) for _ in range(40)]
    kept = []
    for handle in handles:
        with external(cp, handle) as stream:
            for _ in range(2):
                shared.call(x, out)
            stream.synchronize()
        kept.append(used(cp) - before)
    assert max(kept) <= workspace.SPARE + kept[0]
    assert (out == shared.expected[0]).all()
    for handle in handles:
        runtime.streamDestroy(handle)


@gpu
@pytest.mark.parametrize("name", ["full_row", "copied_rows", "long_row_times_vectors"])
def test_many_calls_sizes_and_streams(cuda_engine, cp, rng, name):
    """10,000 calls, 200 values of N, 200 streams."""
    shared = CASES[name](cuda_engine, rng)
    rows = len(shared.expected[0])
    most = 8 if name == "long_row_times_vectors" else 200
    x = cp.asarray(rng.integers(-2, 3, (len(shared.dense[0]), most))).astype(shared.dense[0].dtype)
    out = cp.empty((rows, most), shared.expected[0].dtype)
    widths = [n * most // 200 + 1 for n in range(200)]

    def call(n):
        shared.call(x[:, :n], out[:, :n])

    call(widths[-1])
    before = used(cp)
    gone = []
    for n in widths:
        call(n)
    for i in range(200):
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            for step in range(48):
                call(widths[(i * 7 + step) % 200])
        gone.append(weakref.ref(stream))
        del stream
    assert not any(ref() for ref in gone)  # nothing of ours holds on to them
    left = used(cp) - before
    need = max(w.nbytes for w in shared.operand.pattern.kept.values())
    assert left <= 64 * MB + need


@gpu
def test_a_kept_call_does_not_keep_values(cuda_engine, cp, rng):
    """As in a training loop, which puts other values into a pattern at every step."""
    for make in (m for name, m in CASES.items() if "four" not in name and "cusparse" not in name):
        shared = make(cuda_engine, rng)
        a, x, out = shared.operand, shared.dense[0], shared.blank(cp)
        left = make.__name__ == "transposed_blocks"
        config = {"padded_blocks": {"path": "groups"}, "transposed_blocks": {"path": "groups"}}
        how = {"config": config.get(make.__name__)}
        before = None
        for step in range(20):
            b = a.with_data(a.data.copy())
            if left:
                sg.dense_bsr_matmul(x.T, b, out=out.T, **how)
            else:
                sg.bsr_matmul(b, x, out=out, **how)
            del b
            if step == 3:
                before = used(cp)
        assert used(cp) <= before, make.__name__
        assert (out == shared.expected[0]).all()


@gpu
def test_an_operand_takes_its_workspace_with_it(cuda_engine, cp, rng):
    """At once, without a run of Python's garbage collector."""
    stream = cp.cuda.Stream(non_blocking=True)
    for name in ("full_row", "copied_rows", "two_of_four_copied_rows"):
        shared = CASES[name](cuda_engine, rng)
        with stream:
            for _ in range(2):
                shared.call(shared.dense[0], shared.expected[0])
        gc.collect()
        owner = getattr(shared.operand, "pattern", None) or shared.operand.held(False)[0]
        kept = [weakref.ref(w) for w in owner.kept.values()]
        assert kept
        gc.disable()
        try:
            del shared, owner
            assert not any(ref() for ref in kept)
        finally:
            gc.enable()


@gpu
def test_a_call_that_fails_leaves_its_workspace_free(cuda_engine, cp, rng):
    shared = CASES["copied_rows"](cuda_engine, rng)
    pattern = shared.operand.pattern
    with pytest.raises(RuntimeError, match="in the middle"), Submission(0, pattern):
        take(1000)
        raise RuntimeError("in the middle")
    done = []
    thread = threading.Thread(target=lambda: done.append(shared.call(shared.dense[0], None)))
    thread.start()
    thread.join(timeout=60)
    assert (done[0] == shared.expected[0]).all()


def test_host_patterns_keep_nothing():
    a = sg.bsr_array(np.eye(4), blocksize=(2, 2))
    assert (a @ np.ones(4)).tolist() == [1] * 4 and a.pattern.kept == {}
