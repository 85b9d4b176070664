"""Attention on the device: the first path that serves it computes it (`paths.ATTENTION`)."""

from __future__ import annotations

from typing import Any

from ..._score import Score
from ...pattern import Pattern
from ._grid import packed_mask, same_place
from .paths import ATTENTION
from .paths._attention import attention_of
from .paths._dispatch import works_of
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
    `paths.ATTENTION` and fields of its tile.

    Raises
    ------
    paths._fields.ConfigError
        A ``config`` that these operands cannot have.
    """
    product = attention_of(out, lse, query, key, value, pattern, mask_data, score, sinks)
    works = works_of(ATTENTION, product, config, "scaled_dot_product_attention")
    whole = packed_mask(mask_data) is not None or same_place(product.masks, mask_data)
    submit(*works, whole=whole)
