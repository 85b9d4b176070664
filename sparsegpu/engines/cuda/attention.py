"""Attention on the device: the path measured best, or the first that serves (`paths.ATTENTION`)."""

from __future__ import annotations

from typing import Any

from ..._score import Score
from ...pattern import Pattern
from ._grid import packed_mask, same_place
from .paths import ATTENTION
from .paths._attention import attention_of
from .paths._dispatch import tuned_works, works_of
from .paths._tuned import tuned_attention
from .runtime.launch import submit


def attention(
    out: Any,
    lse: Any,
    query: Any,
    key: Any,
    value: Any,
    pattern: Pattern,
    mask_data: Any,
    score: Score,
    sinks: Any,
    *,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``softmax(scale * query @ key.T + mask) @ value`` over the stored positions.

    Without a score matrix in memory. ``config={"path": name, field: value, ...}`` chooses one of
    `paths.ATTENTION` and fields of its tile, or the "model". Without it the configuration that was
    measured best for such operands is used if they can have it, else the model's.

    Raises
    ------
    paths._fields.ConfigError
        A ``config`` that these operands cannot have.
    """
    product = attention_of(
        out, lse, query, key, value, pattern, mask_data, score, sinks, allow_tf32
    )
    function = "scaled_dot_product_attention"
    if config:
        works = works_of(ATTENTION, product, config, function)
    else:
        works = tuned_works(ATTENTION, product, tuned_attention(product), function)
    whole = packed_mask(mask_data) is not None or same_place(product.masks, mask_data)
    submit(*works, whole=whole)
