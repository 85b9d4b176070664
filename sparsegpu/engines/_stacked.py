"""Metadata of 2:4 blocks: of each block by itself, or of all of them stacked as one matrix.

CUTLASS's order (`reference.compress.reorder_offsets`) puts pairs of columns behind each other, of
whole matrices; within a pair it moves elements among 32 rows (32-bit metadata: 16). Blocks whose
rows are multiples of that keep their parts of each pair together, and only these change places.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


def as_blocks(meta: Any, shape: tuple[int, ...], xp: ModuleType) -> Any:
    """Return the metadata of stacked blocks block by block.

    Parameters
    ----------
    meta : array (n * bm, columns)
        Of ``n`` blocks stacked as one matrix.
    shape : (*batch, nnzb, bm, columns)
        Of the result.
    xp : module
    """
    *_, bm, columns = shape
    parts = meta.reshape(columns // 2, -1, 2 * bm) if meta.size else meta
    return xp.ascontiguousarray(parts.swapaxes(0, 1)).reshape(shape)


def as_stack(meta: Any, xp: ModuleType) -> Any:
    """Return the metadata of blocks (*batch, nnzb, bm, columns) as that of one matrix."""
    *_, bm, columns = meta.shape
    parts = meta.reshape(-1, columns // 2, 2 * bm) if meta.size else meta.reshape(0, 0)
    return xp.ascontiguousarray(parts.swapaxes(0, 1)).reshape(-1, columns)
