"""Well-formed arguments, drawn by hypothesis: sizes, dtypes, patterns, values."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from sparsegpu.testing import dense_from_blocks, random_24, random_blocks, random_values

BFLOAT16, FP8 = np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)
HALVES = (np.dtype(np.float16), BFLOAT16)
REALS = (*HALVES, np.dtype(np.float32), np.dtype(np.float64))
OPERANDS = (*REALS, np.dtype(np.int8), np.dtype(np.complex64), np.dtype(np.complex128))
CONTAINED = (*OPERANDS, np.dtype(np.int32), np.dtype(bool))
TWO_OF_FOUR = (*HALVES, np.dtype(np.float32), np.dtype(np.int8))

# On a GPU each block size may be a kernel to compile, in a second: fewer of them there.
_BLOCKSIZES = ((1, 1), (2, 3), (4, 4), (16, 16), (3, 1), (1, 7), (8, 8), (5, 2), (16, 32), (33, 20))
_FEW_BLOCKSIZES = ((1, 1), (2, 3), (4, 4), (16, 16), (32, 64), (33, 20), (64, 64), (128, 128))
_BATCHES = ((), (), (), (), (2,), (2,), (1,), (3, 1), (2, 2), (0,))


@dataclass(frozen=True)
class Bsr:
    """A block-sparse operand on the host."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray
    shape: tuple[int, int]
    #: Whether a bool one is given as a `BlockMask`.
    packed: bool = False

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    @property
    def batch(self) -> tuple[int, ...]:
        return self.indices.shape[:-1]

    @property
    def blocksize(self) -> tuple[int, int]:
        return self.data.shape[-2], self.data.shape[-1]

    def dense(self) -> np.ndarray:
        """Return the matrices in a wide dtype, duplicates summed (bool: or)."""
        total = dense_from_blocks(self.data, self.indices, self.indptr, self.shape)
        return total != 0 if self.dtype.kind == "b" else total

    def stored(self) -> np.ndarray:
        """Return which elements a block is stored for."""
        ones = np.ones(self.data.shape, np.int8)
        return dense_from_blocks(ones, self.indices, self.indptr, self.shape) > 0

    def blocks(self, b: tuple[int, ...]):
        """Yield block row, block column and values of each block of one matrix."""
        for i in range(self.indptr.shape[-1] - 1):
            for p in range(self.indptr[b][i], self.indptr[b][i + 1]):
                yield i, int(self.indices[b][p]), self.data[b][p]


@dataclass(frozen=True)
class TwoOfFour:
    """A 2:4 operand on the host: its dense values, and whether its format needs padding."""

    matrix: np.ndarray

    @property
    def dtype(self) -> np.dtype:
        return self.matrix.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]


@cache
def _integers(low: int, high: int) -> st.SearchStrategy:
    return st.integers(low, high)


class Draws:
    """One case's source of choices; what is simplest comes first, for minimising."""

    def __init__(self, draw: Callable[[st.SearchStrategy], Any], *, on_gpu: bool = False):
        self._draw, self.on_gpu = draw, on_gpu
        self._blocksizes = _FEW_BLOCKSIZES if on_gpu else _BLOCKSIZES

    @property
    def xp(self) -> ModuleType:
        """Return the engine's array library, for what makes arrays of none."""
        return importlib.import_module("cupy") if self.on_gpu else np

    def integer(self, low: int, high: int) -> int:
        return self._draw(_integers(low, high))

    def choice(self, options: Sequence[Any]) -> Any:
        return options[self.integer(0, len(options) - 1)]

    def count(self, most: int) -> int:
        """Return a size; none at all is one of many."""
        return (self.integer(0, most) + 2) % (most + 1)

    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) >= 100 - percent

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.integer(0, 2**31))

    def blocksize(self) -> tuple[int, int]:
        return self.choice(self._blocksizes)

    def batch(self) -> tuple[int, ...]:
        return self.choice(_BATCHES)

    def batches(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return two batch shapes that broadcast."""
        one = self.batch()
        return self.choice([(one, one), (one, ()), ((), one), (one, tuple(1 for _ in one))])

    def columns(self) -> int:
        return self.choice((1, 3, 0, 2, 8, 17, 40))

    def values(
        self, shape: tuple[int, ...], dtype: Any, *, exact: bool = False, finite: bool = False
    ) -> np.ndarray:
        """Return small integers (whose sums are exact), normal ones, or some with NaN and inf."""
        rng, kind = self.rng(), 0 if exact else self.integer(0, 4 if finite else 5)
        array = random_values(rng, shape, dtype, small_integers=kind < 3)
        if kind == 5 and array.dtype.kind in "fV" and array.dtype != FP8:
            for special in (np.nan, np.inf, -np.inf, -0.0):
                array[rng.random(shape) < 0.02] = special
        if kind == 4 and array.ndim:
            axis = self.integer(0, array.ndim - 1)
            if array.shape[axis]:
                array[...] = array.take([0], axis)  # so that it may be given with a stride of zero
        return array

    def bsr(
        self,
        dtype: Any,
        *,
        batch: tuple[int, ...] = (),
        blocksize: tuple[int, int] | None = None,
        counts: tuple[int | None, int | None] = (None, None),
        exact: bool = False,
        canonical: bool = False,
    ) -> Bsr:
        """Return an operand of random pattern; ``counts`` are its block rows and columns."""
        size = self.blocksize() if blocksize is None else blocksize
        most = 3 if size[0] * size[1] > 500 else 6
        rows, columns = (self.count(most) if c is None else c for c in counts)
        duplicates = not canonical and self.chance(25)
        if duplicates and batch:  # merged, the matrices of a batch must keep as many blocks
            duplicates = False
        rng, density = self.rng(), self.choice((0.4, 0.4, 0.1, 0.9, 1.0, 0.0))
        data, indices, indptr = random_blocks(
            rng,
            (rows * size[0], columns * size[1]),
            size,
            density=density,
            batch=batch,
            dtype="bool" if np.dtype(dtype) == bool else "int8",
            duplicates=duplicates,
            shuffled=not canonical and self.chance(50),
        )
        if self.chance(20):
            indices, indptr = indices.astype(np.int64), indptr.astype(np.int64)
        if np.dtype(dtype) != bool:
            data = self.values(data.shape, dtype, exact=exact)
        return Bsr(data, indices, indptr, (rows * size[0], columns * size[1]))

    def two_of_four(self, dtype: np.dtype, *, exact: bool = False) -> TwoOfFour:
        """Return an operand of the format's own sizes, or of others, which are padded."""
        rows, columns = (16, 64) if dtype.itemsize == 1 else (32, 16 if dtype.itemsize == 4 else 32)
        shape = (rows * self.integer(1, 3), columns * self.integer(1, 3))
        if self.chance(20):
            shape = (self.integer(1, 40), self.integer(1, 70))
        integers = exact or dtype in {np.dtype(np.int8), FP8} or self.chance(50)
        matrix = random_24(self.rng(), shape, dtype, small_integers=integers)
        return TwoOfFour(self._whole_groups(matrix))

    def _whole_groups(self, matrix: np.ndarray) -> np.ndarray:
        """Clear the end of a row that is no whole group: padding makes a group of it."""
        group = 2 if matrix.dtype == np.float32 else 4
        matrix[:, matrix.shape[1] // group * group :] = 0
        return matrix
