"""Operands of small cases: on one array library, from random numbers of each case's own."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg
from sparsegpu.testing import random_blocks, random_values


class Operands:
    """Makes a case's operands, on one array library and from random numbers of its own."""

    def __init__(self, xp: ModuleType, name: str):
        self.xp = xp
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def dense(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return random values."""
        return self.xp.asarray(random_values(self.rng, shape, dtype))

    def sparse(self, shape: tuple[int, int], blocksize: tuple[int, int], dtype: str, **keywords):
        """Return a hard random pattern (unsorted, duplicates, empty rows) as a bsr_array."""
        keywords = {"density": 0.4, "duplicates": True, **keywords}
        arrays = random_blocks(self.rng, shape, blocksize, dtype=dtype, **keywords)
        return sg.bsr_array(tuple(self.xp.asarray(a) for a in arrays), shape=shape)


#: What computes a case's result.
Run = Callable[[], Any]
#: What makes a case's operands.
Prepare = Callable[[Operands], Run]
