"""Small kernels with what they do in NumPy, for the tests of wrapped kernels."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegpu import kernels
from sparsegpu.kernels import build

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


def two(n=5):
    return np.ones(n, np.float32), np.arange(n, dtype=np.float32)
