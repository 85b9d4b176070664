"""BSR @ dense, block by block."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype
from ..._epilogue import Epilogue, apply_epilogue
from ...pattern import Pattern


@np.errstate(all="ignore")
def bsr_addmm(
    out: np.ndarray,
    pattern: Pattern,
    data: np.ndarray,
    dense: np.ndarray,
    epilogue: Epilogue,
    *,
    transposed: bool = False,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (bsr @ dense)) * right_alpha)``.

    ``transposed``: of the transpose of (pattern, data), which is multiplied where it lies.
    ``allow_tf32`` and ``config`` are for tensor cores and have no effect here.
    """
    del allow_tf32, config
    acc = np.zeros(out.shape, dtype=accumulator_dtype(data.dtype))
    if epilogue.alpha != 0:
        add_product(acc, pattern, data, dense, transposed)
    apply_epilogue(acc, epilogue, out)


def add_product(
    acc: np.ndarray, pattern: Pattern, data: np.ndarray, dense: np.ndarray, transposed: bool
) -> None:
    """Add ``bsr @ dense`` or ``bsr.T @ dense`` to ``acc``; batch shapes broadcast to acc's."""
    bm, bk = pattern.blocksize
    batch = acc.shape[:-2]
    dense = np.broadcast_to(dense, batch + dense.shape[-2:])
    indptr = np.broadcast_to(pattern._indptr, batch + pattern._indptr.shape[-1:])
    indices = np.broadcast_to(pattern._indices, batch + pattern._indices.shape[-1:])
    data = np.broadcast_to(data, batch + data.shape[-3:])
    for b in np.ndindex(batch):
        panel = dense[b].astype(acc.dtype)
        for i in range(pattern.block_shape[0]):
            rows = slice(i * bm, (i + 1) * bm)
            for p in range(indptr[b][i], indptr[b][i + 1]):
                j = indices[b][p]
                columns = slice(j * bk, (j + 1) * bk)
                block = data[b][p].astype(acc.dtype)
                if transposed:
                    acc[b][columns] += block.T @ panel[rows]
                else:
                    acc[b][rows] += block @ panel[columns]
