"""Attention's gradients on tensor cores from 8.0 on (``bsr_attention_backward_sm80.cu``).

A launch for the gradient of query, which walks the pattern, and one for those of key and value,
which walks its transpose. 16-bit floats and TF32; blocks of 8 rows and columns or more; up to 128
columns of query, key and value (64 of TF32, and with dropout and a mask that is added), in rows of
whole vectors of 16 bytes.
"""

from __future__ import annotations

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
    widths_for_mma,
)
from ._facts import HALVES, INDICES, always
from ._fields import Fields

NAME = "mma"
SOURCES = ("bsr_attention_backward_sm80",)
DTYPES, ARCHS = (*HALVES, "float32"), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = {**INDICES, "GRADIENT": ("query", "key")}

facts, examples, pays = AttentionBackward.facts, _attention.examples, always
serves = serves_backward

_MOST_FEATURES = 128
# For want of registers: of TF32, and with dropout and a mask that is added.
_MOST_OF_MANY_REGISTERS = 64
_STAGES = 2
_STATIC = 4096  # shared memory besides the tiles, at most


def tile(f: AttentionFacts, fields: Fields) -> AttentionTile | None:
    """Return the tile, or None for operands that it does not take.

    ``fields`` may say ``tile_own``, rows of a thread block, ``tile_other``, those of a step, and
    ``blocks``, the thread blocks that a multiprocessor is to hold.

    Examples
    --------
    >>> import numpy as np
    >>> f16 = np.dtype("float16")
    >>> f = AttentionFacts(dtype=f16, out_dtype=f16, mask_dtype=np.dtype(bool), blocksize=(64, 64),
    ...                    features=64, value_features=64)
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_q, chosen.threads, chosen.shared_memory, chosen.defines["TILE_OTHER"]
    (64, 128, 49152, 64)
    """
    widths = widths_for_mma(f, _MOST_FEATURES)
    if widths is None:
        return None
    features, value_features = widths
    many_registers = f.dtype.itemsize == 4 or (f.dropout and f.mask_dtype.kind != "b")
    if many_registers and max(widths) > _MOST_OF_MANY_REGISTERS:
        return None
    tile_own = fields.pick("tile_own", 64, (64, 128))

    def shared_memory(tile_other: int) -> int:
        rows = tile_own + _STAGES * tile_other
        return f.dtype.itemsize * rows * (features + value_features)

    fitting = [n for n in (16, 32, 64) if shared_memory(n) + _STATIC <= f.shared_memory]
    if not fitting:
        return None
    # Scores with more to do, and more sums, leave fewer registers for a tile.
    light = f.mask_dtype.kind == "b" and not (f.softcap or f.slopes or f.dropout)
    narrow = max(widths) <= 64
    usual = 64 if light and narrow else 32 if light or narrow else 16
    tile_other = fields.pick("tile_other", usual, fitting)
    blocks = fields.pick("blocks", 1, (1, 2))
    return AttentionTile(
        tile_q=tile_own,
        threads=2 * tile_own,
        shared_memory=shared_memory(tile_other),
        defines={
            **gradient_defines(f),
            "TILE_OWN": tile_own,
            "TILE_OTHER": tile_other,
            "FEATURES": features,
            "VALUE_FEATURES": value_features,
            "BLOCKS": blocks,
        },
    )


def launches(p: AttentionBackward, tile: AttentionTile) -> tuple[Launch, ...] | None:
    """Return the launches, or None where the tiles are too many for a grid."""
    return gradient_launches(p, tile, SOURCES[0])
