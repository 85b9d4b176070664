"""Operands of the small cases."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg
from sparsegpu.testing import random_blocks, random_values


class Operands:
    """Makes the operands of a case in an array library, from random numbers seeded by its name."""

    def __init__(self, xp: ModuleType, name: str):
        self.xp = xp
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def dense(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return random values."""
        return self.xp.asarray(random_values(self.rng, shape, dtype))

    def sparse(self, shape: tuple[int, int], blocksize: tuple[int, int], dtype: str, **keywords):
        """Return a bsr_array of random pattern: unsorted, with duplicates and empty rows."""
        keywords = {"density": 0.4, "duplicates": True, **keywords}
        arrays = random_blocks(self.rng, shape, blocksize, dtype=dtype, **keywords)
        return sg.bsr_array(tuple(map(self.xp.asarray, arrays)), shape=shape)

    def sparse_rows(self, lengths: list[list[int]], blocksize: tuple[int, int], dtype: str):
        """Return a bsr_array of rows with given numbers of blocks, for each matrix of a batch."""
        (bm, bk), widest = blocksize, max(map(max, lengths))
        indptr = np.array([[0, *np.cumsum(of_matrix)] for of_matrix in lengths])
        indices = np.array(
            [np.concatenate([self.rng.permutation(widest)[:k] for k in m]) for m in lengths]
        )
        data = random_values(self.rng, (*indices.shape, bm, bk), dtype)
        parts = (data, indices, indptr) if len(lengths) > 1 else (data[0], indices[0], indptr[0])
        shape = (len(lengths[0]) * bm, widest * bk)
        return sg.bsr_array(tuple(map(self.xp.asarray, parts)), shape=shape)


#: Computes a case's result.
Run = Callable[[], Any]
#: Makes a case's operands and returns what computes its result.
Prepare = Callable[[Operands], Run]
