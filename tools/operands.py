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
        return sg.bsr_array(tuple(self.xp.asarray(a) for a in arrays), shape=shape)


#: Computes a case's result.
Run = Callable[[], Any]
#: Makes a case's operands and returns what computes its result.
Prepare = Callable[[Operands], Run]
