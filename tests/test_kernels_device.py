"""Wrapped kernels on a GPU: launches, repeated calls, graphs, the search, `checked`."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import PeakMemory
from in_threads import run_in_threads
from kernel_cases import numba_cuda
from sparsegpu import kernels
from sparsegpu.engines.cuda.runtime.launch import recording

pytestmark = pytest.mark.gpu

AXPY = """extern "C" __global__ void axpy(float* y, const float* x, float a, long long n) {
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
       i += (long long)gridDim.x * blockDim.x) y[i] += a * x[i];
}"""
ROWS = """
extern "C" __global__ void row_sums(float* sums, const float* x, int columns, int* calls) {
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    sum += x[(long long)blockIdx.x * columns + i];
  __shared__ float parts[32];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  sum = 0;
  for (int w = 0; w < THREADS / 32; ++w) sum += parts[w];
  sums[blockIdx.x] = sum;
  atomicAdd(calls, 1);
}"""


@pytest.fixture
def cp(cuda_engine):
    return cuda_engine.xp


def add_scaled(y, x, a, n):
    y[:n] += a * x[:n]


def axpy(**changed):
    declared = dict(grid=lambda m: min(-(-m["n"] // 128), 1000), block=128, ref=add_scaled)
    return kernels.wrap(AXPY, "axpy", **(declared | changed))


def test_both_forms(cp):
    y, x = cp.ones(1000, np.float32), cp.arange(1000, dtype=np.float32)
    kernel = axpy()
    assert kernel.access.writes == {"y"} and kernel.access.reads == {"x", "y"}
    new = kernel(y, x, 2.0, 900)
    expected = np.ones(1000, np.float32)
    expected[:900] += 2 * np.arange(900, dtype=np.float32)
    np.testing.assert_array_equal(new.get(), expected)
    assert (y == 1).all()
    for _ in range(3):
        kernel.inplace(y, x, 2.0, 900)
    np.testing.assert_array_equal(y.get()[:900], 1 + 6 * np.arange(900, dtype=np.float32))
    assert (y[900:] == 1).all()
    strided = cp.zeros(64, np.float32)
    kernel.inplace(strided[:32], x, 1.0, 32)
    assert (strided[32:] == 0).all() and (strided[:32] == x[:32]).all()


def test_a_repeated_call_is_one_launch_on_the_current_stream(cp):
    y, x, kernel = cp.zeros(64, np.float32), cp.ones(64, np.float32), axpy()
    kernel.inplace(y, x, 1.0, 64)
    seen = []
    with recording(lambda works, whole, setup: seen.append(works)):
        kernel.inplace(y, x, 1.0, 64)
        kernel.inplace(y, x, 1.0, 64)
        with cp.cuda.Stream(non_blocking=True) as stream:
            cp.cuda.Device().synchronize()
            kernel.inplace(y, x, 1.0, 64)
            stream.synchronize()
    assert [len(works) for works in seen] == [1, 1, 1]
    kernel.inplace(y, x, 1.0, 64)
    assert (y == 5).all()


def test_repeated_calls_on_other_memory(cp):
    kernel, strided = axpy(), cp.zeros(64, np.float32)[::2]
    x = cp.ones(32, np.float32)
    for value in range(5):
        y = cp.full(32, value, np.float32)
        kernel.inplace(y, x, 1.0, 32)
        assert (y == value + 1).all()
        assert (kernel(y, x, 2.0, 32) == value + 3).all() and (y == value + 1).all()
        both = cp.full(32, value + 1, np.float32)
        assert (kernel(both, both, 1.0, 32) == 2 * value + 2).all() and (both == value + 1).all()
        assert kernel(strided, x, 1.0, 0).strides == strided.strides


def test_captured_on_the_second_call(cp):
    y, x, kernel = cp.zeros(64, np.float32), cp.ones(64, np.float32), axpy()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        kernel.inplace(y, x, 1.0, 64)
        stream.begin_capture()
        kernel.inplace(y, x, 1.0, 64)
        graph = stream.end_capture()
        x[:] = 5
        graph.launch(stream)
        graph.launch(stream)
        stream.synchronize()
    assert (y == 11).all()


def test_one_call_reads_what_another_writes(cp):
    kernel, n = axpy(), 1 << 20
    y, x, z = cp.zeros(n, np.float32), cp.ones(n, np.float32), cp.zeros(n, np.float32)
    for _ in range(20):  # on one stream
        kernel.inplace(y, x, 1.0, n)
        kernel.inplace(z, y, 1.0, n)
    assert (z == 210).all()
    first, second = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    y[:], z[:] = 0, 0
    cp.cuda.Device().synchronize()
    for _ in range(20):  # on two, with the order that the caller makes
        with first:
            kernel.inplace(y, x, 1.0, n)
            written = first.record()
        second.wait_event(written)
        with second:
            kernel.inplace(z, y, 1.0, n)
            read = second.record()
        first.wait_event(read)
    second.synchronize()
    assert (z == 210).all()


def test_threads(cp):
    kernel, n, times = axpy(), 4096, 50
    arrays = [(cp.zeros(n, np.float32), cp.full(n, i + 1, np.float32)) for i in range(4)]

    def work(y, x):
        for _ in range(times):
            kernel.inplace(y, x, 1.0, n)

    run_in_threads(lambda i: work(*arrays[i]), len(arrays))
    cp.cuda.Device().synchronize()
    for i, (y, _) in enumerate(arrays):
        assert (y == times * (i + 1)).all()


def row_sums(**changed):
    def ref(sums, x, columns, calls):
        sums[:] = x.reshape(-1, columns).sum(1, dtype=np.float64)
        calls += len(sums)

    configs = [
        kernels.Config({"THREADS": threads}, block=threads) for threads in (32, 64, 256, 1024)
    ]
    declared = dict(grid=lambda m: m["sums"].size, configs=configs, ref=ref)
    return kernels.wrap(ROWS, "row_sums", **(declared | changed))


@pytest.mark.parametrize("ref", [True, False])
def test_tune(cp, monkeypatch, tmp_path, ref):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))
    kernel = row_sums() if ref else row_sums(ref=None)
    x = cp.random.default_rng(0).standard_normal((512, 8192), dtype=np.float32)
    sums, calls = cp.full(512, 7, np.float32), cp.full(1, 3, np.int32)
    best = kernel.tune(sums, x, 8192, calls, progress=False)
    assert (sums == 7).all() and calls.get() == 3
    assert best.defines["THREADS"] > 32  # 32 threads a block leave most of a multiprocessor idle
    assert kernel.config(sums, x, 8192, calls) == best
    kernel.inplace(sums, x, 8192, calls)
    np.testing.assert_allclose(sums.get(), x.get().sum(1, dtype=np.float64), atol=1e-2)
    assert calls.get() == 515
    wrong = kernels.Config({"THREADS": 32}, block=64)  # adds up half of the parts
    others = kernel.with_configs([wrong, *kernel.configs])
    with pytest.warns(UserWarning, match="its result is another"):
        assert others.tune(sums, x, 8192, calls, progress=False) != wrong


def test_tune_leaves_out_what_does_not_fit(cp, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))
    small = kernels.Config({"THREADS": 64}, block=64)
    large = kernels.Config({"THREADS": 64}, block=64, shared_memory=232_448)
    sums, x, calls = cp.zeros(4, np.float32), cp.ones((4, 64), np.float32), cp.zeros(1, np.int32)
    kernel = row_sums(configs=[large, small])
    assert kernel.tune(sums, x, 64, calls) == small  # with 128 bytes of its own, beyond any device
    assert "skipped" in capsys.readouterr().err


def test_checked(cp):
    y, x = cp.zeros(100, np.float32), cp.ones(100, np.float32)
    with kernels.checked(ref=True):
        axpy().inplace(y, x, 1.0, 100)
    assert (y == 1).all()
    with kernels.checked(), pytest.raises(kernels.AccessError, match=r"byte 40[0-3] of .y"):
        axpy().inplace(y, x, 1.0, 101)  # one element too many
    with kernels.checked(ref=True), pytest.raises(kernels.AccessError, match="is not what ref"):
        axpy(ref=lambda y, x, a, n: None).inplace(y, x, 1.0, 100)
    assert (y == 1).all()
    with kernels.checked():
        axpy().inplace(cp.zeros((8, 8), np.float32)[:, ::2][1], x, 1.0, 1)


def add_column(out, x, a):
    out[:] += a * x[:, 1]


def column_of(compiler):
    if compiler == "numba":
        cuda = numba_cuda()
        rawkernel, grid = cuda.jit, cuda.grid
    else:
        from cupyx import jit as cupyx_jit

        rawkernel, grid = cupyx_jit.rawkernel(), cupyx_jit.grid

    @rawkernel  # cupyx warns of decorators of other names
    def column(out, x, a):
        i = grid(1)
        if i < out.shape[0]:
            out[i] += a * x[i, 1]

    return column


@pytest.mark.filterwarnings("ignore:.*experimental:FutureWarning")
@pytest.mark.parametrize("compiler", ["numba", "cupyx"])
def test_functions_of_python(cp, compiler):
    kernel = kernels.wrap(
        (column_of(compiler), "void(float32[:], float32[:, :], float32)"),
        grid=lambda m: -(-m["out"].size // 64), block=64, ref=add_column,
    )  # fmt: skip
    x = cp.arange(300, dtype=np.float32).reshape(3, 100).T[::-1]
    out = cp.ones(200, np.float32)[::2]
    expected = out.get()
    add_column(expected, x.get(), np.float32(2))
    with kernels.checked(ref=True):
        np.testing.assert_array_equal(kernel(out, x, 2.0).get(), expected)
    assert (out == 1).all()
    kernel.inplace(out, x, 2.0)
    kernel.inplace(out, x, 2.0)
    np.testing.assert_array_equal(out.get(), 2 * expected - 1)
    assert (out.base.reshape(-1)[1::2] == 1).all()


@pytest.mark.parametrize("size", [7, 4099, (1 << 20) - 1, (1 << 20) + 3])
@pytest.mark.parametrize("first", [0, 1])
def test_repeated_functional_calls(cp, size, first):
    """Copied by a kernel, and by CUDA where the copy is large or begins within a vector."""
    y, x = (cp.arange(size + first, dtype=np.float32)[first:] % 1000 for _ in range(2))
    y, kernel = cp.concatenate([y[:first], y])[first:], axpy()
    before, expected = y.get(), (y + 2 * x).get()
    for _ in range(6):
        np.testing.assert_array_equal(kernel(y, x, 2.0, size).get(), expected)
    np.testing.assert_array_equal(y.get(), before)


def test_the_functional_form_allocates_what_is_written_and_nothing_else(cp, cuda_engine):
    y, x, kernel = cp.zeros(1 << 18, np.float32), cp.ones(1 << 18, np.float32), axpy()
    for _ in range(4):  # the first is planned, the last are only launched
        with cuda_engine.runs("axpy", peak_bytes=y.nbytes):
            kernel(y, x, 2.0, y.size)
            kernel(y[1:], x, 2.0, y.size - 1)
            with pytest.raises(ValueError, match="partial overlap"):
                kernel(y[1:], y[:-1], 2.0, y.size - 1)
            kernel(y, y, 2.0, y.size)  # one group
    rows = kernels.wrap(
        ROWS, "row_sums", grid=64, configs=[kernels.Config({"THREADS": 64}, block=64)]
    )
    sums, calls, x = cp.zeros(512, np.float32), cp.zeros(512, np.int32), x.reshape(512, 512)
    for _ in range(4):
        with cuda_engine.runs("row_sums", peak_bytes=sums.nbytes + calls.nbytes):
            rows(sums, x, 512, calls)


def test_tune_holds_at_most_twice_what_is_written(cp, monkeypatch, tmp_path):
    monkeypatch.setenv("SPARSEGPU_CACHE_DIR", str(tmp_path))
    y, x = cp.zeros(1 << 18, np.float32), cp.ones(1 << 18, np.float32)
    kernel = axpy(configs=[kernels.Config(block=threads) for threads in (32, 64, 128, 256)])
    with PeakMemory(cp) as memory:
        kernel.tune(y, x, 2.0, y.size, progress=False)
    assert y.nbytes <= memory.peak <= 2 * y.nbytes and not y.any()
