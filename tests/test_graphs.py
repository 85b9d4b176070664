"""CUDA graphs: what a capture works in is its own, for as long as the graph."""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import Operand, small
from sparsegpu._memo import RECENT
from sparsegpu.engines.cuda.runtime import capture
from sparsegpu.engines.cusparselt import availability
from sparsegpu.testing import random_values
from test_threads import external
from workspace_cases import CASES

pytestmark = pytest.mark.gpu

GUARD = 0xA5


@pytest.fixture
def cp(cuda_engine):
    return cuda_engine.xp


def captured(cp, call, stream):
    """Return the graph of a call, which was made before on another stream."""
    with stream:
        stream.begin_capture()
        try:
            result = call()
        finally:
            graph = stream.end_capture()
    return graph, result


def guards(cp, stream):
    """Take and mark the memory that CuPy's pool has free for a stream, piece by piece."""
    pieces, pool = [], cp.get_default_memory_pool()
    with stream:
        for n in (512 << i for i in range(15)):
            for _ in range(64):
                total = pool.total_bytes()
                pieces.append(cp.full(n, GUARD, np.uint8))
                if pool.total_bytes() > total:  # nothing was free
                    break
    cp.cuda.Device().synchronize()
    return pieces


def assert_untouched(pieces, name=""):
    touched = [piece.nbytes for piece in pieces if bool((piece != GUARD).any())]
    assert not touched, name


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_graphs_of_one_stream_run_side_by_side(cuda_engine, cp, rng, make):
    shared = make(cuda_engine, rng)
    outs = [shared.blank(cp) for _ in range(2)]
    shared.call(shared.dense[0], outs[0])  # builds the plan
    cp.cuda.Device().synchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    graphs = [
        captured(cp, lambda i=i: shared.call(shared.dense[i], outs[i]), stream)[0] for i in (0, 1)
    ]
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    wrong = [cp.zeros((), np.int64) for _ in range(2)]
    cp.cuda.Device().synchronize()
    for _ in range(40):
        for i, own in enumerate(streams):
            graphs[i].launch(own)
            with own:
                wrong[i] += (outs[i] != shared.expected[i]).sum()
                outs[i].fill(0)
        # And calls as they are, on the stream of the captures.
        with stream:
            shared.call(shared.dense[2], None)
    cp.cuda.Device().synchronize()
    assert [int(w) for w in wrong] == [0, 0]


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_a_graph_outlives_what_the_call_gave_back(cuda_engine, cp, rng, make):
    """New operands, values changed in place, and other calls of the operand between."""
    shared = make(cuda_engine, rng)
    out = shared.blank(cp)
    shared.call(shared.dense[0], out)
    stream = cp.cuda.Stream(non_blocking=True)
    graph, _ = captured(cp, lambda: shared.call(shared.dense[0], out), stream)
    shared.call(shared.dense[1], None)
    gc.collect()
    pieces = guards(cp, stream)
    shared.dense[0][...] = shared.dense[1]
    out.fill(0)
    cp.cuda.Device().synchronize()
    for _ in range(3):
        graph.launch(stream)
    stream.synchronize()
    assert (out == shared.expected[1]).all()
    assert_untouched(pieces)


def temporaries(cp, engine, rng):
    """Calls whose operands are copied, by name, with what they read and the kernel's result."""
    a = Operand(engine, rng, (96, 128), (16, 16), "float16", duplicates=False)
    x = cp.asarray(small(rng, (128, 40), "float16"))
    skewed = a.bsr.with_data(cp.asfortranarray(a.bsr.data))
    yield "blocks by columns", lambda: sg.bsr_matmul(skewed, x)

    values = cp.asarray(rng.integers(-3, 4, (64, 128)).astype(np.int8))
    w = sg.to_semi_structured(sg.prune_24(values))
    y = cp.asarray(rng.integers(-3, 4, (128, 64)).astype(np.int8))
    rows, columns = cp.ones(64, np.float64), cp.ones((1, 64), np.float16)
    yield "scales", lambda: sg.scaled_mm(w, y, rows, columns)

    q, k = (cp.asarray(random_values(rng, (1, 2, n, 32), "float16")) for n in (96, 128))
    mask = a.bsr.with_data(cp.asfortranarray(a.bsr.data != 0))
    yield "a mask by columns", lambda: sg.scaled_dot_product_attention(q, k, k, mask)

    twice = Operand(engine, rng, (96, 128), (16, 16), "float32", duplicates=True).bsr
    yield "repeated blocks", lambda: sg.bsr_softmax(twice).data
    columns_first = a.bsr.with_data(cp.asfortranarray(a.bsr.data))
    yield "softmax by columns", lambda: sg.bsr_softmax(columns_first).data

    lists = sg.bsr_scatter_mm_indices_data(a.bsr, x, "scatter_mm", SPLIT_N=1)
    tiles = x.reshape(8, 16, 40)
    yield "the scatter_mm format", lambda: sg.scatter_mm(a.bsr.data, tiles, lists)
    yield "bsr_scatter_mm", lambda: sg.bsr_scatter_mm(a.bsr, x, lists)

    dense = cp.asfortranarray(w.todense())
    packed, meta = sg.semi_structured_from_dense(cp.ascontiguousarray(dense))
    apart = cp.zeros((2 * len(packed), packed.shape[1]), np.int8)[::2]
    apart[...] = packed
    yield "packed values apart", lambda: sg.semi_structured_to_dense(apart, meta)
    yield "prune_24", lambda: sg.prune_24(dense)
    bits = sg.compressed_swizzled_bitmask(dense)
    some = cp.zeros((*bits.shape[:2], 16), np.uint8)[..., ::2]
    some[...] = bits
    yield "a mask apart", lambda: sg.semi_structured_apply_dense(dense, some)

    if availability.why_not("tests") is None:
        vendor, odd = w.to_backend("cusparselt"), y[:, :61]
        yield "the vendor's operands", lambda: sg.semi_structured_matmul(vendor, odd)
        half = sg.to_semi_structured(sg.prune_24(x[:, :32].T), backend="cusparselt")
        bias = cp.ones((33, 1), np.float16)[1:]  # not where the library reads
        yield "the vendor's bias", lambda: sg.semi_structured_addmm(bias, half, x)


def test_temporaries_are_the_graphs_own(cuda_engine, cp, rng):
    for name, call in temporaries(cp, cuda_engine, rng):
        call()
        expected = call().copy()
        cp.cuda.Device().synchronize()
        stream = cp.cuda.Stream(non_blocking=True)
        graph, result = captured(cp, call, stream)
        gc.collect()
        pieces = guards(cp, stream)
        result.view(np.uint8).fill(0)
        cp.cuda.Device().synchronize()
        for _ in range(2):
            graph.launch(stream)
        stream.synchronize()
        assert (result == expected).all(), name
        assert_untouched(pieces, name)


def test_a_result_that_nobody_holds_stays_the_graphs(cuda_engine, cp, rng):
    shared = CASES["copied_rows"](cuda_engine, rng)
    shared.call(shared.dense[0], None)
    stream = cp.cuda.Stream(non_blocking=True)
    graph, result = captured(cp, lambda: shared.call(shared.dense[0], None), stream)
    place = result.data.ptr
    del result
    pieces = guards(cp, stream)
    assert all(not p.data.ptr <= place < p.data.ptr + p.nbytes for p in pieces)
    graph.launch()
    cp.cuda.Device().synchronize()
    assert_untouched(pieces)


def test_streams_of_one_capture_do_not_meet(cuda_engine, cp, rng):
    """Two branches of a graph, which run at the same time."""
    shared = CASES["full_row"](cuda_engine, rng)
    outs = [shared.blank(cp) for _ in range(2)]
    shared.call(shared.dense[0], None)
    cp.cuda.Device().synchronize()
    main, side = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    with main:
        main.begin_capture()
        side.wait_event(main.record(cp.cuda.Event(disable_timing=True)))
        for _ in range(4):
            shared.call(shared.dense[0], outs[0])
            with side:
                shared.call(shared.dense[1], outs[1])
        main.wait_event(side.record(cp.cuda.Event(disable_timing=True)))
        graph = main.end_capture()
    for _ in range(10):
        for out in outs:
            out.fill(0)
        cp.cuda.Device().synchronize()
        graph.launch(main)
        main.synchronize()
        for out, expected in zip(outs, shared.expected, strict=False):
            assert (out == expected).all()


def test_a_graph_outlives_what_two_patterns_keep(cuda_engine, cp, rng):
    """The union of a sum, and the plan of a product, make room for those of later operands."""
    shape, block = (96, 96), (16, 16)
    a, *others = (
        sg.random_bsr(shape, block, 0.4, dtype="float32", rng=rng, xp=cp) for _ in range(20)
    )
    stream = cp.cuda.Stream(non_blocking=True)
    for call in (lambda b: (a + b).data, lambda b: (a @ b).data):
        expected = call(others[0]).copy()
        cp.cuda.Device().synchronize()
        graph, result = captured(cp, lambda call=call: call(others[0]), stream)
        for other in others[1:]:
            call(other)
        gc.collect()
        pieces = guards(cp, cp.cuda.get_current_stream())
        result.fill(0)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert (result == expected).all()
        assert_untouched(pieces)


def used(cp):
    gc.collect()
    cp.cuda.Device().synchronize()
    return cp.get_default_memory_pool().used_bytes()


@pytest.mark.parametrize("again", [False, True])
def test_memory_goes_with_the_graph(cuda_engine, cp, rng, again):
    """It is given back when the graph, and what else was made of it, is gone."""
    shared = CASES["full_row"](cuda_engine, rng)
    out = shared.blank(cp)
    shared.call(shared.dense[0], out)
    capture.reclaim()
    before, stream = used(cp), cp.cuda.Stream(non_blocking=True)
    for _ in range(5):
        graph, _ = captured(cp, lambda: shared.call(shared.dense[0], out), stream)
        held = used(cp) - before
        assert held > 0
        if again:
            graph.launch()
        del graph
    end = time.monotonic() + 10  # a thread of the driver's does it, some time later
    while used(cp) > before and time.monotonic() < end:
        capture.reclaim()
    assert used(cp) <= before


def test_a_first_call_refuses_to_be_captured(cuda_engine, cp, rng):
    """Nothing is enqueued, and the capture goes on."""
    shared = CASES["full_row"](cuda_engine, rng)
    out, other = shared.blank(cp), cp.zeros(4)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(NotImplementedError, match="once before the capture"):
            shared.call(shared.dense[0], out)
        other += 1
        graph = stream.end_capture()
        graph.launch(stream)
        shared.call(shared.dense[0], out)
    stream.synchronize()
    assert other.get().tolist() == [1] * 4 and (out == shared.expected[0]).all()


def test_what_waits_refuses_to_be_captured(cuda_engine, cp, rng):
    a = Operand(cuda_engine, rng, (64, 64), (16, 16), "float16", duplicates=True)
    triple = [cuda_engine.array(v) for v in (a.data, a.indices, a.indptr)]
    dense = sg.prune_tile(cp.asarray(small(rng, (64, 64), "float16")))
    bits = sg.compressed_swizzled_bitmask(dense)
    halves = sg.semi_structured_from_dense(dense)
    vendor = sg.to_cusparselt_layout(*halves, capability=(9, 0))
    calls = {
        "raw arrays": lambda: sg.bsr_array(tuple(triple), shape=(64, 64)),
        "a dense array": lambda: sg.bsr_array(dense, blocksize=(16, 16)),
        "sum_duplicates": lambda: a.bsr.copy().sum_duplicates(),
        "A @ A": lambda: a.bsr @ a.bsr,
        "strict": lambda: sg.semi_structured_from_dense(dense),
        "apply": lambda: sg.semi_structured_apply(dense, bits),
        "the other half": lambda: dense @ sg.SemiStructuredArray((64, 64), *halves, check=False),
        "codes of a matrix": lambda: sg.SemiStructuredArray((64, 64), *halves),
        "codes, then a matrix": lambda: sg.semi_structured_to_dense(*halves, check=True),
        "codes of the vendor": lambda: sg.from_cusparselt_layout(
            vendor, (64, 64), capability=(9, 0)
        ),
    }
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    for name, call in calls.items():
        other = cp.zeros(4)
        cp.cuda.Device().synchronize()
        with stream:
            stream.begin_capture()
            with pytest.raises(NotImplementedError, match="waits for the device"):
                call()
                pytest.fail(name)
            other += 1
            stream.end_capture().launch(stream)
        stream.synchronize()
        assert other.get().tolist() == [1] * 4, name


def test_a_capture_goes_on_while_what_was_kept_goes(cuda_engine, cp, rng):
    """What was kept with an operand, and read on two other streams, is let go meanwhile."""
    shared = CASES["full_row"](cuda_engine, rng)
    pattern = sg.bsr_array(cp.eye(4), blocksize=(2, 2)).pattern
    out = shared.blank(cp)
    shared.call(shared.dense[0], out)
    main, *others = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
    out.fill(0)
    cp.cuda.Device().synchronize()
    with main:
        main.begin_capture()
        shared.call(shared.dense[0], out)
        for n in range(1, 3 * RECENT):
            for stream in others:
                with stream:
                    assert int(pattern.broadcast_to((n,)).indices.sum()) == n
        graph = main.end_capture()
    graph.launch(main)
    main.synchronize()
    assert (out == shared.expected[0]).all()


def test_an_external_stream_is_captured(cuda_engine, cp, rng):
    shared = CASES["copied_rows"](cuda_engine, rng)
    out = shared.blank(cp)
    shared.call(shared.dense[0], out)
    stream = cp.cuda.Stream(non_blocking=True)
    out.fill(0)
    cp.cuda.Device().synchronize()
    stream.begin_capture()
    with external(cp, stream.ptr):
        shared.call(shared.dense[0], out)
    graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert (out == shared.expected[0]).all()
