"""BSR @ dense of 2:4 blocks: a packed row times the rows of ``dense`` that its codes select."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype
from ..._epilogue import Epilogue, apply_epilogue
from ...pattern import Pattern
from .compress import kept_columns


@np.errstate(all="ignore")
def bsr_semi_structured_addmm(
    out: np.ndarray,
    pattern: Pattern,
    packed: np.ndarray,
    meta: np.ndarray,
    dense: np.ndarray,
    epilogue: Epilogue,
    *,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (bsr @ dense)) * right_alpha)``.

    Only stored values are multiplied, as in hardware: a NaN in a row of ``dense`` that no code
    selects does not propagate. ``allow_tf32`` and ``config`` have no effect.
    """
    del allow_tf32, config
    acc = np.zeros(out.shape, dtype=accumulator_dtype(packed.dtype))
    if epilogue.alpha != 0:
        _add_product(acc, pattern, packed, meta, dense)
    apply_epilogue(acc, epilogue, out)


def _add_product(
    acc: np.ndarray, pattern: Pattern, packed: np.ndarray, meta: np.ndarray, dense: np.ndarray
) -> None:
    bm, bk = pattern.blocksize
    batch = acc.shape[:-2]
    dense, indptr, indices, packed, meta = (
        np.broadcast_to(array, batch + array.shape[array.ndim - own :])
        for array, own in (
            (dense, 2),
            (pattern._indptr, 1),
            (pattern._indices, 1),
            (packed, 3),
            (meta, 3),
        )
    )
    for b in np.ndindex(batch):
        panel = dense[b].astype(acc.dtype)
        for i in range(pattern.block_shape[0]):
            for p in range(indptr[b][i], indptr[b][i + 1]):
                rows_met = panel[indices[b][p] * bk :][:bk]
                columns = kept_columns(meta[b][p], packed.dtype)
                values = packed[b][p].astype(acc.dtype)
                for row in range(bm):
                    acc[b][i * bm + row] += values[row] @ rows_met[columns[row]]
