"""2:4 @ dense on the device: the first path that serves a product computes it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._epilogue import Epilogue
from .paths import SEMI_STRUCTURED
from .paths._dispatch import works_of
from .paths._product_24 import product_24_of
from .runtime.launch import submit


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
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (sparse @ dense)) * right_alpha)``.

    ``config={"path": name, field: value, ...}`` chooses one of `paths.SEMI_STRUCTURED` and fields
    of its tile; without it the metadata of the operands alone decides.

    Raises
    ------
    paths._fields.ConfigError
        A ``config`` that these operands cannot have.
    """
    product = product_24_of(out, packed, meta, dense, epilogue, operand_dtype, allow_tf32)
    works = works_of(SEMI_STRUCTURED, product, config, "semi_structured_addmm")
    # Packed values or metadata that were not contiguous have been copied.
    submit(*works, whole=product.packed is packed and product.meta is meta)
