"""Dense @ dense at the stored blocks on the device: the first path that serves computes it.

A configuration that was measured best for such products goes before the order of the paths.
"""

from __future__ import annotations

from typing import Any

from ..._epilogue import Epilogue
from ...pattern import Pattern
from .paths import SAMPLED
from .paths._dispatch import tuned_works, works_of
from .paths._sampled import Sampled
from .paths._tuned import tuned_sampled_config
from .runtime.launch import submit

_FUNCTION = "sampled_addmm"


def sampled_addmm(
    out_data: Any,
    pattern: Pattern,
    input_data: Any,
    mat1: Any,
    mat2: Any,
    alpha: Any,
    beta: Any,
    *,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``beta * input_data + alpha * (mat1 @ mat2)[stored blocks]``.

    mat1 is (*B, M, K), mat2 (*B, K, N); ``input_data`` is None when beta is 0.
    ``config={"path": name, field: value, ...}`` chooses one of `paths.SAMPLED` and fields of its
    tile, or the "model".

    Raises
    ------
    paths._fields.ConfigError
        A ``config`` that these operands cannot have.
    """
    epilogue = Epilogue(alpha, beta, input_data)
    product = Sampled(out_data, pattern, mat1, mat2, epilogue, allow_tf32)
    if config:
        works = works_of(SAMPLED, product, config, _FUNCTION)
    else:
        works = tuned_works(SAMPLED, product, tuned_sampled_config(product), _FUNCTION)
    submit(*works, whole=True)
