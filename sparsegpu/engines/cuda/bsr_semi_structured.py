"""BSR @ dense of 2:4 blocks on the device: the first path that serves a product computes it."""

from __future__ import annotations

from typing import Any

from ..._epilogue import Epilogue
from ...pattern import Pattern
from .paths import BSR_SEMI_STRUCTURED
from .paths._dispatch import works_of
from .paths._product import product_of
from .runtime.launch import submit


def bsr_semi_structured_addmm(
    out: Any,
    pattern: Pattern,
    packed: Any,
    meta: Any,
    dense: Any,
    epilogue: Epilogue,
    *,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (bsr @ dense)) * right_alpha)``.

    ``config={"path": name, field: value, ...}`` chooses one of `paths.BSR_SEMI_STRUCTURED` and
    fields of its tile; without it the metadata of the operands decides.

    Raises
    ------
    paths._fields.ConfigError
        A ``config`` that these operands cannot have.
    """
    product = product_of(out, pattern, packed, dense, epilogue, allow_tf32=allow_tf32, meta=meta)
    submit(*works_of(BSR_SEMI_STRUCTURED, product, config), whole=True)
