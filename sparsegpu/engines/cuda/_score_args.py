"""The score as a kernel argument: what ``common/score.cuh`` unpacks."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..._block_bits import BlockBits
from ..._score import Score
from .runtime.types import ctype
from .runtime.view import matrix_view, vector_view

_PLACES = struct.Struct("<2q2Q2id")
_SINGLE, _DOUBLE = struct.Struct("<3fi"), struct.Struct("<3di4x")


def score_args(
    score: Score,
    batch_shape: tuple[int, ...],
    masks: Any,
    slopes: Any,
    dtype: np.dtype,
    packed: BlockBits | None,
) -> tuple[dict[str, Any], bytes]:
    """Return the ``-D`` names that choose the score's code, and its by-value argument.

    Parameters
    ----------
    score : Score
    batch_shape : tuple of int
        Of the heads, as in `view.matrix_view`.
    masks : array (*batch, nnzb, bm * bk), or (*batch, nnzb, 1)
        The mask's blocks or their codes (`_grid.mask_blocks`), as the kernel's batch has them.
    slopes : array (*batch, 1) or None
        The score's, as the kernel's batch has them.
    dtype : dtype
        Of the operands.
    packed : BlockBits or None
        The mask, where ``masks`` are codes.

    Returns
    -------
    defines : dict
        ``MASK``, ``SOFTCAP`` and ``SLOPES``.
    argument : bytes
        ``ScoreArgs<Acc<T>::type>``.
    """
    defines = {
        "MASK": mask_type(packed is not None, masks.dtype),
        "SOFTCAP": int(score.softcap is not None),
        "SLOPES": int(slopes is not None),
    }
    length, keys = score.shape
    p = score.dropout_p
    bits = (0, 0, 0)
    if packed is not None:
        bits = packed.bits.data.ptr, packed.bits.shape[1], packed.columns
    numbers = _DOUBLE if dtype == np.float64 else _SINGLE
    argument = b"".join(
        (
            matrix_view(masks, batch_shape),
            vector_view(slopes, batch_shape),
            _PLACES.pack(length, keys, score.seed, *bits, p),
            numbers.pack(
                *_held(numbers, score.scale, score.softcap or 0, kept_scale(score)),
                score.is_causal,
            ),
        )
    )
    return defines, argument


def kept_scale(score: Score) -> float:
    """Return what the weights that dropout keeps are multiplied by."""
    return 0 if score.dropout_p >= 1 else 1 / (1 - score.dropout_p)


def mask_type(packed: bool, dtype: np.dtype) -> str:
    """Return the type of a mask's elements in a kernel."""
    return "BlockCode<INDEX>" if packed else ctype(dtype)


def _held(numbers: struct.Struct, *values: float) -> tuple[Any, ...]:
    """Return numbers rounded to what is packed; too large a float32 is infinite."""
    if numbers is _DOUBLE:
        return values
    with np.errstate(over="ignore"):
        return tuple(map(np.float32, values))
