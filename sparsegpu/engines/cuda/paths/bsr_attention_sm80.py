"""Attention on tensor cores from 8.0 on (``bsr_attention_sm80.cu``): 16-bit floats and TF32.

Blocks of 8 rows and columns or more; up to 256 columns of query, key and value (TF32: 128 of query
and key), in rows of whole vectors of 16 bytes. Other operands go to other paths.
"""

from __future__ import annotations

from .._kernel_source import Defines
from ..runtime.architectures import PORTABLE
from ..runtime.launch import Launch
from . import _attention, _attention_tiles
from ._attention import Attention, AttentionFacts
from ._attention_tiles import AttentionTile, score_defines, widths_for_mma
from ._facts import HALVES, INDICES, always
from ._fields import Fields
from ._split_kv import tile_launches

NAME = "mma"
SOURCES = ("bsr_attention_sm80",)
DTYPES, ARCHS = (*HALVES, "float32"), PORTABLE
TENSOR_CORES = True
BY_ADDRESS = {**INDICES, "SPLIT_KV": (0, 1)}
TOGETHER = ("FEATURES", "VALUE_FEATURES", "SPLIT_KV")

facts, examples, serves = Attention.facts, _attention.examples, _attention_tiles.serves
pays = worth_measuring = always

_MOST_FEATURES = 256
_MOST_FEATURES_TF32 = 128  # of query and key: copies of more would spill registers
_MANY_SUMS = 192  # columns of value: with more, few registers are left for anything else
_STAGES = 2
_STATIC = 4096  # shared memory besides the tiles, at most


def tile(f: AttentionFacts, fields: Fields) -> AttentionTile | None:
    """Return the tile, or None for operands that it does not take.

    ``fields`` may say ``tile_q``, ``tile_k`` (see `launched`), ``blocks``, the thread blocks that a
    multiprocessor is to hold, and ``split_kv``: split the keys of rows that have many more than
    others.

    Examples
    --------
    >>> import numpy as np
    >>> f16 = np.dtype("float16")
    >>> f = AttentionFacts(dtype=f16, out_dtype=f16, mask_dtype=np.dtype(bool), blocksize=(64, 64),
    ...                    features=64, value_features=64)
    >>> chosen = tile(f, Fields())
    >>> chosen.tile_q, chosen.threads, chosen.shared_memory, chosen.defines["TILE_K"]
    (64, 128, 24576, 32)
    """
    widths = widths_for_mma(f, _MOST_FEATURES)
    if widths is None:
        return None
    features, value_features = widths
    if f.dtype.itemsize == 4 and features > _MOST_FEATURES_TF32:
        return None

    def shared_memory(tile_q: int, tile_k: int) -> int:
        rows = tile_q * features + _STAGES * tile_k * (features + value_features)
        return f.dtype.itemsize * rows

    def fits(*tile: int) -> bool:
        return shared_memory(*tile) + _STATIC <= f.shared_memory

    usual = _usual_tf32 if f.dtype.itemsize == 4 else _usual
    usual_q, usual_k, usual_blocks = usual(f, features, value_features)
    if not fits(usual_q, usual_k):
        usual_q = 64
    tile_q = fields.pick("tile_q", usual_q, (64, 128))
    fitting = [k for k in (16, 32, 64) if fits(tile_q, k)]
    if not fitting:
        return None
    tile_k = fields.pick("tile_k", usual_k, fitting)
    blocks = fields.pick("blocks", usual_blocks, (1, 2, 3))
    split_kv = fields.pick("split_kv", 1, (1, 0))
    return AttentionTile(
        tile_q=tile_q,
        threads=2 * tile_q,
        shared_memory=shared_memory(tile_q, tile_k),
        defines={
            **score_defines(f),
            "TILE_Q": tile_q,
            "TILE_K": tile_k,
            "FEATURES": features,
            "VALUE_FEATURES": value_features,
            "BLOCKS": blocks,
        },
        split_kv=bool(split_kv),
    )


def _usual(f: AttentionFacts, features: int, value_features: int) -> tuple[int, int, int]:
    """Return ``tile_q``, ``tile_k`` and ``blocks`` of 16-bit operands."""
    # Scores with more to do, and more sums, leave fewer registers for a tile of scores; narrow
    # operands leave room for another thread block instead.
    light = f.folded and not f.dropout and 64 < max(features, value_features) <= 128
    if value_features > _MANY_SUMS and f.dropout and f.mask_dtype.kind != "b":
        return 64, 16, 1
    return 64, 64 if light else 32, 1


def _usual_tf32(f: AttentionFacts, features: int, value_features: int) -> tuple[int, int, int]:
    """Return the same of TF32, as measured: a third thread block is worth 10% to 20%."""
    if max(features, value_features) > 64:
        # Queries do not stay in registers: eight warps share what they read of keys and values.
        whole = f.blocksize[0] >= 128 and value_features <= 128
        return (128, 64, 1) if whole else (64, 32, 1)
    # Of small blocks a longer tile has more strips that only other rows of the group look at.
    return 64, 32 if f.blocksize[0] > 16 else 16, 3 if f.folded and not f.dropout else 1


def launched(defines: Defines) -> Defines:
    """Return the ``-D`` names of a launch: with few keys a tile where sums leave splits no more.

    Only the schedule says whether a call has splits.
    """
    many = defines["SPLIT_KV"] and defines["VALUE_FEATURES"] > _MANY_SUMS
    return {**defines, "TILE_K": 16} if many else defines


def launches(p: Attention, tile: AttentionTile) -> tuple[Launch, ...] | None:
    """Return the launches, or None where the tiles are too many for a grid."""
    return tile_launches(p, tile, SOURCES[0], launched)
