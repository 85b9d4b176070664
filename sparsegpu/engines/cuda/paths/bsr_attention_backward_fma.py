"""Attention's gradients in full precision by register tiles (``bsr_attention_backward_fma.cu``).

The launches are those of ``bsr_attention_backward_sm80``. float32; blocks of 8 rows and columns or
more; up to 128 columns of query, key and value, in rows of whole vectors of 16 bytes. Other
operands go to the plain kernel.
"""

from __future__ import annotations

from ...._math import round_up
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _attention
from ._attention import AttentionFacts
from ._attention_backward import AttentionBackward
from ._attention_tiles import (
    AttentionTile,
    gradient_defines,
    gradient_launches,
    serves_backward,
)
from ._facts import INDICES, always
from ._fields import Fields

NAME = "fma"
SOURCES = ("bsr_attention_backward_fma",)
DTYPES, ARCHS = ("float32",), PORTABLE
TENSOR_CORES = False
BY_ADDRESS = {**INDICES, "GRADIENT": ("query", "key")}

facts, examples, pays = AttentionBackward.facts, _attention.examples, always
serves = serves_backward

_TILE_OWN, _THREADS = 64, 128
_MOST_FEATURES = 128
_VECTOR, _PANEL = 4, 64  # elements: of 16 bytes, and of the threads that share a row
_STATIC = 4096  # shared memory besides the tiles, at most


def tile(f: AttentionFacts, fields: Fields) -> AttentionTile | None:
    """Return the tile, or None for operands that it does not take.

    ``fields`` may say ``tile_other``, rows of a step, and ``blocks``, the thread blocks that a
    multiprocessor is to hold.

    Examples
    --------
    >>> import numpy as np
    >>> f32 = np.dtype("float32")
    >>> f = AttentionFacts(dtype=f32, out_dtype=f32, mask_dtype=np.dtype(bool), blocksize=(64, 64),
    ...                    features=64, value_features=64)
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_q, chosen.threads, chosen.shared_memory, chosen.defines["TILE_OTHER"]
    (64, 128, 87040, 64)
    """
    widths = f.features, f.value_features
    if min(f.blocksize) < 8 or max(widths) > _MOST_FEATURES or any(n % _VECTOR for n in widths):
        return None
    features, value_features = (round_up(n, _PANEL) for n in widths)

    def shared_memory(tile_other: int) -> int:
        rows = (_TILE_OWN + tile_other) * (features + value_features + 2 * _VECTOR)
        return f.dtype.itemsize * (rows + _TILE_OWN * (tile_other + _VECTOR))

    fitting = [n for n in (16, 32, 64) if shared_memory(n) + _STATIC <= f.shared_memory]
    if not fitting:
        return None
    tile_other = fields.pick("tile_other", 64 if max(widths) <= 64 else 32, fitting)
    blocks = fields.pick("blocks", 1, (1, 2, 3))
    return AttentionTile(
        tile_q=_TILE_OWN,
        threads=_THREADS,
        shared_memory=shared_memory(tile_other),
        defines={
            **gradient_defines(f),
            "TILE_OTHER": tile_other,
            "FEATURES": features,
            "VALUE_FEATURES": value_features,
            "BLOCKS": blocks,
        },
    )


def launches(p: AttentionBackward, tile: AttentionTile) -> tuple[Launch, ...] | None:
    """Return the launches, or None where the tiles are too many for a grid."""
    return gradient_launches(p, tile, SOURCES[0])
