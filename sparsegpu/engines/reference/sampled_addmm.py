"""Dense @ dense, computed at the stored blocks only."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype
from ..._epilogue import Epilogue, apply_epilogue
from ...pattern import Pattern


@np.errstate(all="ignore")
def sampled_addmm(
    out_data: np.ndarray,
    pattern: Pattern,
    input_data: np.ndarray | None,
    mat1: np.ndarray,
    mat2: np.ndarray,
    alpha: Any,
    beta: Any,
    *,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``beta * input_data + alpha * (mat1 @ mat2)[stored blocks]``.

    mat1 is (*B, M, K), mat2 (*B, K, N); ``input_data`` is None when beta is 0.
    ``allow_tf32`` and ``config`` have no effect on the host.
    """
    bm, bn = pattern.blocksize
    batch = out_data.shape[:-3]
    indices = np.broadcast_to(pattern._indices, batch + pattern._indices.shape[-1:])
    rows = np.broadcast_to(pattern._rows, indices.shape)
    mat1 = np.broadcast_to(mat1, batch + mat1.shape[-2:])
    mat2 = np.broadcast_to(mat2, batch + mat2.shape[-2:])
    acc = np.zeros(out_data.shape, accumulator_dtype(mat1.dtype))
    if alpha != 0:
        for b in np.ndindex(batch):
            left, right = mat1[b].astype(acc.dtype), mat2[b].astype(acc.dtype)
            for p, (i, j) in enumerate(zip(rows[b].tolist(), indices[b].tolist())):
                acc[b][p] = left[i * bm : (i + 1) * bm] @ right[:, j * bn : (j + 1) * bn]
    apply_epilogue(acc, Epilogue(alpha, beta, input_data), out_data)
