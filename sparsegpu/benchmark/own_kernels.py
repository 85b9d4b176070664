"""Wrapped kernels (`sparsegpu.kernels.wrap`): the host time of a call, and the search of `tune`.

The host times stand beside those of the same kernel as a ``cupy.RawKernel``, and of an allocation
and a copy by CuPy, which the functional form cannot do without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import cycle, product
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from .. import kernels
from .._arrays import dtype_of
from .._math import ceil_div
from ..testing import to_host
from ..tuning.operands import random_array
from .case import Case
from .peer import COPY, RAW, NotAvailableError, Prepared
from .workload import Arrays, Workload

IN_PLACE, REPEATED = "wrapped kernel in place", "wrapped kernel in place, same memory"
FUNCTIONAL, TUNE = "wrapped kernel, functional", "tune of 12 configurations"
OPERATIONS = (IN_PLACE, REPEATED, FUNCTIONAL, TUNE)

AXPY = r"""
extern "C" __global__ void axpy(float* y, const float* x, float a, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""
_THREADS = 128
_FACTOR = 0.5
#: Arrays that calls take turns with, where they are not to be on the same memory.
_RING = 8

#: The kernel that is tuned has a line for each of its taps.
_TAPS = [(row, column) for row in range(-4, 5) for column in range(-5, 5)]
_STENCIL_HEAD = r"""
__device__ float tap(const float* x, long long row, long long column, long long rows,
                     long long columns) {
  bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
  return inside ? x[row * columns + column] : 0.0f;
}
extern "C" __global__ void __launch_bounds__(THREADS) stencil(float* y, const float* x,
                                                              long long rows, long long columns) {
  long long first = (blockIdx.x * (long long)THREADS + threadIdx.x) * EACH;
  for (long long i = first; i < first + EACH && i < rows * columns; ++i) {
    long long row = i / columns, column = i % columns;
    float sum = 0.0f;
"""
_STENCIL_TAIL = """    y[i] = sum;
  }
}
"""


@dataclass(eq=False)
class KernelWorkload(Workload):
    """Calls of a wrapped kernel.

    Attributes
    ----------
    made : callable
        Puts everything at its start, does the work and returns what was made.
    expected : callable
        Returns what each of that must be, and by how much it may differ.
    peers : mapping
        By the name of a peer, a call of the same arrays.
    """

    made: Callable[[], Arrays]
    expected: Callable[[], tuple[np.ndarray, np.ndarray]]
    peers: dict[str, Callable[[], Any]]

    def results(self) -> Arrays:
        return self.made()

    def error(self) -> float:
        exact, allowed = self.expected()
        worst = 0.0
        for result in self.results():
            share = float((abs(to_host(result).astype(np.float64) - exact) / allowed).max())
            if not share <= 1:
                raise AssertionError(f"a result is off by {share:.3g} times what is allowed")
            worst = max(worst, share)
        return worst


def make_kernel(case: Case, xp: ModuleType, seed: int = 0) -> KernelWorkload:
    """Draw the arrays of a case in the given array library."""
    return (_tuned if case.operation == TUNE else _axpy)(case, xp, seed)


def prepare_kernel(peer: str, workload: KernelWorkload) -> Prepared:
    """Return a peer of a wrapped kernel's call."""
    if peer not in workload.peers:
        raise NotAvailableError("not offered")
    return Prepared(workload.peers[peer], None)


def _axpy(case: Case, xp: ModuleType, seed: int) -> KernelWorkload:
    n = case.shape[1]
    x, start = (random_array(xp, (n,), dtype_of(case.dtype), seed + i) for i in range(2))
    kernel = kernels.wrap(
        AXPY, "axpy", grid=lambda m: ceil_div(m["n"], _THREADS), block=_THREADS, ref=_add_scaled
    )
    ring = [start.copy() for _ in range(1 if case.operation == REPEATED else _RING)]
    turn, theirs = cycle(ring), cycle(ring)
    work = kernel if case.operation == FUNCTIONAL else kernel.inplace

    def call() -> Any:
        return work(next(turn), x, _FACTOR, n)

    def made() -> Arrays:
        for y in ring:
            y[...] = start
        results = [call() for _ in ring]
        return tuple(results if case.operation == FUNCTIONAL else ring)

    def expected() -> tuple[np.ndarray, np.ndarray]:
        y, added = (to_host(a).astype(np.float64) for a in (start, _FACTOR * x))
        return y + added, np.finfo(np.float32).eps * (abs(y) + abs(added))

    peers: dict[str, Callable[[], Any]] = {}
    if xp is not np:
        raw, grid = xp.RawKernel(AXPY, "axpy"), (ceil_div(n, _THREADS),)
        rest = x, np.float32(_FACTOR), np.int64(n)
        peers[COPY] = lambda: next(theirs).copy()
        peers[RAW] = lambda: raw(grid, (_THREADS,), (next(theirs), *rest))
    return KernelWorkload(case, call, x, (x, start), made, expected, peers)


def _add_scaled(y: np.ndarray, x: np.ndarray, a: np.float32, n: np.int64) -> None:
    y[:n] += a * x[:n]


def _tuned(case: Case, xp: ModuleType, seed: int) -> KernelWorkload:
    """Return a search whose text nobody has seen, in a cache of its own: all of it is compiled."""
    rows, columns = case.shape[:2]
    x, y = random_array(xp, (rows, columns), dtype_of(case.dtype), seed), xp.zeros((rows, columns))
    y = y.astype(x.dtype)
    configs = [
        kernels.Config({"THREADS": threads, "EACH": each}, block=(threads,))
        for threads, each in product((64, 128, 256, 512), (1, 2, 4))
    ]
    searches = iter(range(1 << 30))

    def search() -> tuple[kernels.Kernel, kernels.Config]:
        kernel = kernels.wrap(
            stencil_text(next(searches)),
            "stencil",
            grid=lambda m: ceil_div(m["rows"] * m["columns"], m["THREADS"] * m["EACH"]),
            configs=configs,
        )
        with _own_cache():
            return kernel, kernel.tune(y, x, rows, columns, progress=False)

    @cache
    def found() -> tuple[kernels.Kernel, kernels.Config]:
        return search()

    def made() -> Arrays:
        """Return what the first search's winner makes: all configurations make the same."""
        kernel, winner = found()
        y[...] = 0
        kernel.inplace(y, x, rows, columns, config=winner)
        return (y,)

    def expected() -> tuple[np.ndarray, np.ndarray]:
        wide, size = np.pad(to_host(x).astype(np.float64), 5), len(_TAPS)
        parts = [
            k / size * wide[5 + dy : 5 + dy + rows, 5 + dx : 5 + dx + columns]
            for k, (dy, dx) in enumerate(_TAPS, 1)
        ]
        exact, sizes = np.sum(parts, axis=0), np.sum(np.abs(parts), axis=0)
        return exact, 2 * size * np.finfo(np.float32).eps * sizes

    return KernelWorkload(case, search, x, (x,), made, expected, {})


def stencil_text(number: int) -> str:
    """Return the kernel that is tuned, of a hundred lines; the number makes it another one."""
    taps = "".join(
        f"    sum += {k}.0f / {len(_TAPS)}.0f * tap(x, row + {y}, column + {x}, rows, columns);\n"
        for k, (y, x) in enumerate(_TAPS, 1)
    )
    return f"// {number}{_STENCIL_HEAD}{taps}{_STENCIL_TAIL}"


@contextmanager
def _own_cache() -> Iterator[None]:
    """Keep what is made inside out of the user's cache."""
    with TemporaryDirectory() as path, patch.dict(os.environ, {"SPARSEGPU_CACHE_DIR": path}):
        yield
