"""Small kernels with what they do in NumPy, for the tests of wrapped kernels."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import fake_cuda
from sparsegpu import kernels
from sparsegpu.kernels import build


def numba_cuda():
    """Return numba.cuda, or skip the test."""
    pytest.importorskip("numba", reason="numba is not installed")
    pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import numba.cuda.np.arrayobj  # noqa: F401 (what compiling imports first)
            from numba import cuda
        except AttributeError as error:
            pytest.skip(f"numba-cuda is too old for this NumPy: {error}")
    return cuda


AXPY = """
// extern "C" __global__ void axpy(int wrong) {}
extern "C" __global__ void axpy(float* y, const float* __restrict__ x, float a, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}"""
SPLIT = """extern "C" __global__ void split(const int* x, int* low, int* high, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { low[i] = x[i] & 15; high[i] = x[i] >> 4; }
}"""
TABLE = 'extern "C" __global__ void table(float** t, float* x) { t[0][0] = 1; }'
needs_nvrtc = pytest.mark.skipif(
    not build.can_compile(), reason="cuda-bindings (NVRTC) is not installed"
)


def add_scaled(y, x, a, n):
    y[:n] += a * x[:n]


def split_up(x, low, high, n):
    low[:n], high[:n] = x[:n] & 15, x[:n] >> 4


def blocks(meta):
    return -(-meta["n"] // 128)


def first_only(configs, args):
    return configs[:1]


def axpy(**changed):
    chosen = dict(
        grid=blocks, block=128, writes=["y"], reads=["x", "y"], ref=add_scaled,
        options=["-arch=sm_80"],
    )  # fmt: skip
    return kernels.wrap(AXPY, "axpy", **(chosen | changed))


def split(**changed):
    declared = dict(writes=["low", "high"], reads=["x"], ref=split_up)
    return kernels.wrap(SPLIT, "split", grid=blocks, block=128, **(declared | changed))


class DeviceArray(fake_cuda.Array):
    """A CuPy array of floats in C order, in memory that is never touched.

    Of a pointer, or as CuPy's constructor makes one, of a shape and a dtype.
    """

    _new = iter(range(1 << 50, 1 << 51, 4096))

    def __init__(self, ptr, shape=(8,), strides=None, device=0):
        if isinstance(ptr, tuple):
            ptr, shape = next(self._new), ptr
        super().__init__(shape, ptr=ptr)
        self.data.device_id = device
        self.itemsize, self.ndim = 4, len(shape)
        self.size = int(np.prod(shape))
        compact = tuple(4 * int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
        self.strides = strides or compact
        self.flags = SimpleNamespace(c_contiguous=self._c_contiguous)
        self.nbytes = 4 * self.size


def two(n=5):
    return np.ones(n, np.float32), np.arange(n, dtype=np.float32)
