"""BSR @ dense on the device: the first path that serves a product computes it.

A configuration that was measured best for such products goes before the model: the order of the
paths, and what each serves (`paths`).
"""

from __future__ import annotations

from typing import Any

from ..._epilogue import Epilogue
from ...pattern import Pattern
from .paths import BSR
from .paths._dispatch import tuned_works, works_of
from .paths._product import product_of
from .paths._tuned import tuned_config
from .runtime.launch import submit


def bsr_addmm(
    out: Any,
    pattern: Pattern,
    data: Any,
    dense: Any,
    epilogue: Epilogue,
    *,
    transposed: bool = False,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (bsr @ dense)) * right_alpha)``.

    ``transposed``: of the transpose of (pattern, data), whose blocks the kernel reads where they
    lie. ``config={"path": name, field: value, ...}`` chooses one of `paths.BSR` and fields of its
    tile, or the "model". Without it the configuration that was measured best for such operands is
    used if they can have it, else the model's. Metadata alone decide.

    Raises
    ------
    paths._fields.ConfigError
        A ``config`` that these operands cannot have.
    """
    product = product_of(
        out, pattern, data, dense, epilogue, transposed=transposed, allow_tf32=allow_tf32
    )
    works = (
        works_of(BSR, product, config)
        if config
        else tuned_works(BSR, product, tuned_config(product))
    )
    submit(*works, whole=product.data is data)  # or its blocks were copied
