"""2:4 @ dense: a row of packed values times the rows of ``dense`` that its codes select."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype
from ..._epilogue import Epilogue, apply_epilogue
from .compress import kept_columns


@np.errstate(all="ignore")
def semi_structured_addmm(
    out: np.ndarray,
    packed: np.ndarray,
    meta: np.ndarray,
    dense: np.ndarray,
    epilogue: Epilogue,
    *,
    operand_dtype: np.dtype,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (sparse @ dense)) * right_alpha)``.

    Only stored values are multiplied, as in hardware: a NaN in a row of ``dense`` that no code
    selects does not propagate. ``allow_tf32`` and ``config`` have no effect.
    """
    del allow_tf32, config
    acc = np.zeros(out.shape, dtype=accumulator_dtype(operand_dtype))
    if epilogue.alpha != 0:
        columns = kept_columns(meta, packed.dtype)
        # uint8 holds float8 bits
        values = packed.view(operand_dtype).astype(acc.dtype)
        batch = out.shape[:-2]
        dense = np.broadcast_to(dense, batch + dense.shape[-2:])
        for b in np.ndindex(batch):
            panel = dense[b]
            if panel.dtype != operand_dtype:
                panel = panel.view(operand_dtype)
            panel = panel.astype(acc.dtype)
            for row in range(len(values)):
                acc[b][row] = values[row] @ panel[columns[row]]
    apply_epilogue(acc, epilogue, out)
