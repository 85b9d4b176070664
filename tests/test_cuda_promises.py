"""What only the cuda engine promises: streams, graphs, threads, other libraries' arrays."""

import threading

import numpy as np
import pytest

import sparsegpu as sg
from sparsegpu.ops.semi_structured import dense_semi_structured_matmul
from sparsegpu.testing import assert_within_bound, random_blocks, random_values

pytestmark = pytest.mark.gpu


@pytest.fixture
def cp(cuda_engine):
    return cuda_engine.xp


def block_sparse(cp, rng, shape, blocksize, dtype, **keywords):
    arrays = random_blocks(rng, shape, blocksize, dtype=dtype, **keywords)
    return sg.bsr_array(tuple(cp.asarray(a) for a in arrays), shape=shape)


def values(cp, rng, shape, dtype):
    return cp.asarray(random_values(rng, shape, dtype))


def operations(cp, rng):
    """Calls into a given ``out``, with what they read."""
    a = block_sparse(cp, rng, (96, 128), (16, 32), "float16")
    x = values(cp, rng, (128, 40), "float16")
    yield "bsr_addmm", lambda out: sg.bsr_matmul(a, x, out=out), (96, 40), a.data
    dense = {"path": "dense"}
    yield "bsr_scatter", lambda out: sg.bsr_matmul(a, x, out=out, config=dense), (96, 40), a.data
    s = block_sparse(cp, rng, (96, 130), (3, 13), "float32")
    y = values(cp, rng, (130, 7), "float32")
    yield "bsr_addmm", lambda out: sg.bsr_matmul(s, y, out=out), (96, 7), s.data
    u, v = values(cp, rng, (40, 96), "float16"), values(cp, rng, (7, 96), "float32")
    yield "bsr_addmm", lambda out: sg.dense_bsr_matmul(u, a, out=out), (40, 128), a.data
    yield "bsr_addmm", lambda out: sg.dense_bsr_matmul(v, s, out=out), (7, 130), s.data
    w = sg.to_semi_structured(sg.prune_24(values(cp, rng, (64, 128), "float16")))
    yield (
        "semi_structured",
        lambda out: sg.semi_structured_matmul(w, x, out=out),
        (64, 40),
        w.packed,
    )
    # A side that is not 2:4 itself, and padding in both directions: copies are made.
    z = values(cp, rng, (40, 64), "float16")
    right = dense_semi_structured_matmul
    yield "semi_structured", lambda out: right(z, w, out=out), (40, 128), z
    p = sg.to_semi_structured(sg.prune_24(values(cp, rng, (50, 100), "float16")), pad=True)
    q, scales = values(cp, rng, (100, 40), "float16"), values(cp, rng, (50,), "float32")
    bias = values(cp, rng, (50, 1), "float16")
    yield (
        "semi_structured",
        lambda out: sg.semi_structured_addmm(bias, p, q, left_alpha=scales, out=out),
        (50, 40),
        q,
    )


def test_second_call_is_captured_and_replayed_on_new_values(cp, rng):
    for name, call, shape, data in operations(cp, rng):
        out = cp.empty(shape, data.dtype)
        call(out)  # builds the plan
        cp.cuda.Device().synchronize()
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            call(out)  # the plan for this stream
            stream.begin_capture()
            call(out)
            graph = stream.end_capture()
        data[...] = data * 2
        out.fill(np.nan)
        expected = call(cp.empty(shape, data.dtype))
        cp.cuda.Device().synchronize()  # the graph's stream waits for no other
        with stream:
            graph.launch(stream)
        stream.synchronize()
        assert (out == expected).all(), name


def test_side_streams(cp, rng):
    for name, call, shape, data in operations(cp, rng):
        expected = call(cp.empty(shape, data.dtype))
        cp.cuda.Device().synchronize()
        with cp.cuda.Stream(non_blocking=True) as stream:
            out = call(cp.empty(shape, data.dtype))
        stream.synchronize()
        assert (out == expected).all(), name


def test_same_bits_run_after_run(cp, rng):
    for name, call, shape, data in operations(cp, rng):
        first = call(cp.empty(shape, data.dtype))
        for _ in range(20):
            assert (call(cp.empty(shape, data.dtype)) == first).all(), name


def test_nothing_but_the_result_is_allocated(cuda_engine, cp, rng):
    for name, call, shape, data in operations(cp, rng):
        out = cp.empty(shape, data.dtype)
        call(out)
        with cuda_engine.runs(name, peak_bytes=0):
            call(out)


def test_threads_share_a_pattern(cp, rng):
    arrays = random_blocks(rng, (256, 256), (8, 8), dtype="float32")
    a = sg.bsr_array(tuple(cp.asarray(v) for v in arrays), shape=(256, 256))
    x = values(cp, rng, (256, 16), "float32")
    results, errors = [None] * 8, []

    def work(i):
        try:
            with cp.cuda.Stream(non_blocking=True) as stream:
                results[i] = (a @ x, a.T @ x)
            stream.synchronize()
        except Exception as error:  # a thread's error must reach the test
            errors.append(error)

    cp.cuda.Device().synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    for forward, backward in results:
        assert (forward == results[0][0]).all() and (backward == results[0][1]).all()


def test_torch_arrays_come_in_without_a_copy(cp, rng):
    torch = pytest.importorskip("torch")
    a = block_sparse(cp, rng, (96, 128), (16, 32), "bfloat16")
    x = torch.randn(128, 24, device="cuda", dtype=torch.bfloat16)
    out = a @ x
    assert isinstance(out, cp.ndarray)
    assert_within_bound(out, a.toarray(), cp.from_dlpack(x))
    dense = torch.randn(64, 64, device="cuda", dtype=torch.bfloat16)
    b = sg.bsr_array(dense, blocksize=(16, 16))
    assert (b.toarray() == cp.from_dlpack(dense)).all()


def test_more_than_two_to_the_31_elements(cp):
    """Row and column offsets past 32 bits, in the operand and in the result."""
    m, n = 48, 48 * 2**20
    data = cp.ones((3, 16, 16), dtype="int8")
    pattern = (data, cp.asarray([0, 0, 1]), cp.asarray([0, 1, 1, 3]))
    a = sg.bsr_array(pattern, shape=(m, 32))
    x = cp.zeros((32, n), dtype="int8")
    x[:, -1] = 1
    x[16:, 0] = 2
    out = sg.bsr_matmul(a, x, out_dtype="int8")
    assert out.size > 2**31
    assert out[:, -1].get().tolist() == [16] * 16 + [0] * 16 + [32] * 16
    assert out[:, 0].get().tolist() == [0] * 32 + [32] * 16
    assert not bool(out[:, 1:-1].any())


def test_long_rows_of_blocks(cp):
    """Row lengths above 2**17, where launch limits of others end."""
    k = 2**18
    indices = cp.arange(k)
    a = sg.bsr_array((cp.ones((k, 4, 1), "float32"), indices, cp.asarray([0, k])), shape=(4, k))
    assert (a @ cp.ones(k, "float32")).get().tolist() == [k] * 4
    soft = sg.bsr_softmax(a)
    # exp(0) summed in float32: exact up to 2**24 terms; then one division.
    assert float(cp.abs(soft.data * k - 1).max()) <= 4 * 2.0**-24
