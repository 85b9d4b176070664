"""Pruning a matrix and its transpose, for engines without one kernel that does all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class TwoSided(NamedTuple):
    """An engine's `tile` and `apply`, made of its own steps.

    Attributes
    ----------
    prune_tile, apply_dense, bitmask, compress : callables
        The engine's functions of these names.
    transposed : callable
        Returns the C-contiguous transpose of a matrix.
    """

    prune_tile: Callable
    apply_dense: Callable
    bitmask: Callable
    compress: Callable
    transposed: Callable[[np.ndarray], np.ndarray]

    def tile(
        self,
        packed: np.ndarray,
        meta: np.ndarray,
        packed_t: np.ndarray,
        meta_t: np.ndarray,
        bitmask: np.ndarray,
        dense: np.ndarray,
        algorithm: str,
    ) -> None:
        """Prune by tiles, compress the matrix and its transpose, and keep the bitmask."""
        pruned = np.empty(dense.shape, dtype=dense.dtype)
        self.prune_tile(pruned, dense, algorithm)
        self._compress_both(packed, meta, packed_t, meta_t, pruned)
        self.bitmask(bitmask, pruned)

    def apply(
        self,
        packed: np.ndarray,
        meta: np.ndarray,
        packed_t: np.ndarray,
        meta_t: np.ndarray,
        dense: np.ndarray,
        bitmask: np.ndarray,
        strict: bool,
    ) -> bool:
        """Compress what a bitmask keeps of ``dense``, and the transpose of it.

        Whatever the mask keeps beyond two of four is dropped by compress's rule; with ``strict``,
        return whether nothing was.
        """
        pruned = np.empty(dense.shape, dtype=dense.dtype)
        self.apply_dense(pruned, dense, bitmask)
        return self._compress_both(packed, meta, packed_t, meta_t, pruned, strict)

    def _compress_both(
        self,
        packed: np.ndarray,
        meta: np.ndarray,
        packed_t: np.ndarray,
        meta_t: np.ndarray,
        pruned: np.ndarray,
        strict: bool = False,
    ) -> bool:
        group = self.compress(packed, meta, pruned, strict)
        group_t = self.compress(packed_t, meta_t, self.transposed(pruned), strict)
        return group < 0 and group_t < 0
