"""2:4 @ dense on the device: the first path that serves a product computes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._epilogue import Epilogue
from .paths import SEMI_STRUCTURED
from .paths._dispatch import works_of
from .paths._product_24 import product_24_of
from .runtime.launch import Work


def semi_structured_addmm(
    out: Any,
    packed: Any,
    meta: Any,
    dense: Any,
    epilogue: Epilogue,
    *,
    operand_dtype: np.dtype,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> tuple[Work, ...] | None:
    """Write ``act(beta * input + left_alpha * (alpha * (sparse @ dense)) * right_alpha)``.

    ``config={"path": name, field: value, ...}`` chooses one of `paths.SEMI_STRUCTURED` and fields
    of its tile; without it the metadata of the operands alone decides.

    Returns
    -------
    tuple of Work, or None
        What does it again, on whatever values the same memory holds then; None where a copy of
        the operand had to be made, which is gone by then.

    Raises
    ------
    paths._fields.ConfigError
        A ``config`` that these operands cannot have.
    """
    product = product_24_of(out, packed, meta, dense, epilogue, operand_dtype, allow_tf32)
    works = works_of(SEMI_STRUCTURED, product, config, "semi_structured_addmm")
    for work in works:
        work()
    return works if product.packed is packed and product.meta is meta else None
