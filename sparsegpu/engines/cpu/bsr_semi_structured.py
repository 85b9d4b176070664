"""BSR @ dense of 2:4 blocks: expanding them is faster than skipping zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._epilogue import Epilogue
from ..._format_24 import as_stack
from ...pattern import Pattern
from ..reference import bsr_semi_structured as reference
from .addmm import bsr_addmm
from .compress import expand


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

    Only stored values count, as in hardware: where ``dense`` is not finite, the reference computes
    without the zeros between them. ``allow_tf32`` and ``config`` have no effect.
    """
    del allow_tf32, config
    if epilogue.alpha != 0 and not np.isfinite(dense).all():
        reference.bsr_semi_structured_addmm(out, pattern, packed, meta, dense, epilogue)
        return
    bm, bk = pattern.blocksize
    data = np.empty((*packed.shape[:-2], bm, bk), packed.dtype)
    if data.size:
        expand(data.reshape(-1, bk), packed.reshape(-1, bk // 2), as_stack(meta, np))
    bsr_addmm(out, pattern, data, dense, epilogue)
