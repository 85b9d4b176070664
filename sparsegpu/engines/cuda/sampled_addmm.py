"""Dense @ dense at the stored blocks on the device: the first path that serves computes it.

A configuration that was measured best for such products goes before the order of the paths.
"""

from __future__ import annotations

from typing import Any

from ..._epilogue import Epilogue
from ...pattern import Pattern
from .paths import SAMPLED
from .paths._dispatch import works_of
from .paths._fields import ConfigError
from .paths._sampled import Sampled
from .paths._tuned import tuned_sampled_config
from .runtime.launch import Work, submit

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
    works = works_of(SAMPLED, product, config, _FUNCTION) if config else _tuned(product)
    submit(*works, whole=True)


def _tuned(product: Sampled) -> tuple[Work, ...]:
    """Return what a product launches: by the configuration measured best, else the model's."""
    config = tuned_sampled_config(product)
    if config is not None:
        try:
            return works_of(SAMPLED, product, config, _FUNCTION)
        except ConfigError:  # another batch or alignment than what was tuned
            pass
    return works_of(SAMPLED, product, None, _FUNCTION)
