"""What attention and its gradients check of their arguments."""

from __future__ import annotations

from math import isfinite, sqrt
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .._arrays import HALF_DTYPES, check_dtype_among
from .._block_bits import BlockBits
from .._checks import (
    bad_type,
    bad_value,
    broadcast_shape,
    check_broadcasts_to,
    check_scalar,
)
from .._score import Score
from ..pattern import Pattern
from ._canonical import canonical_bits, canonical_blocks
from ._common import check_same_dtype, check_values, is_block_mask, not_sparse

_DTYPES = (*HALF_DTYPES, np.dtype(np.float32), np.dtype(np.float64))


class MaskOperand(NamedTuple):
    """A mask as an engine takes it.

    Attributes
    ----------
    pattern : Pattern
        Canonical, if ``data`` are bits.
    data : array (*batch, nnzb, bm, bk) or BlockBits
    array : array
        Of ``data``, for checks of library, device and overlap.
    serial : int or None
        Tells `BlockBits`, whose arrays never change, apart.
    """

    pattern: Pattern
    data: Any
    array: Any
    serial: int | None = None

    @property
    def changing(self) -> Any:
        """The array that another call with this pattern and ``serial`` may have another of."""
        return self.array if self.serial is None else None

    def check(self, function: str) -> None:
        """Refuse values that do not fit the pattern; those of a call that is replayed do."""
        if not isinstance(self.data, BlockBits):
            check_values(function, "mask", self.pattern, self.data)

    def canonical(self, function: str) -> tuple[Pattern, Any]:
        """Return pattern and data with ascending columns and without duplicates."""
        if isinstance(self.data, BlockBits):
            return self.pattern, self.data
        return canonical_blocks(self, function, "mask")


def mask_operand(function: str, mask: Any) -> MaskOperand:
    """Return what an engine takes of a mask, whose values are not checked yet."""
    if is_block_mask(mask):
        operand = mask._memo.known("operand")
        if operand is not None:
            return operand
        if reads_bits(mask.pattern.xp):  # in the first call
            pattern, packed = canonical_bits(mask, function, "mask")
            operand = MaskOperand(pattern, packed, packed.codes, packed.serial)
            mask._memo.note("operand", operand)
            return operand
        mask = mask.tobsr()
    try:
        pattern, data = mask.pattern, mask.data
    except AttributeError:
        raise not_sparse(function, "mask", mask) from None
    return MaskOperand(pattern, data, data)


def reads_bits(xp: ModuleType) -> bool:
    """Return whether the engine for an array library takes `BlockBits`."""
    return xp is not np


def lse_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of lse, slopes and sinks for operands of ``dtype``."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def check_operands(
    function: str, query: Any, key: Any, value: Any, mask: Any, slopes: Any, sinks: Any
) -> tuple[int, ...]:
    """Refuse operands whose dtypes or shapes do not fit; return (*B, H)."""
    for name, array in (("query", query), ("key", key), ("value", value)):
        check_dtype_among(function, name, array.dtype, _DTYPES)
        check_same_dtype(function, name, array.dtype, query.dtype)
    allowed = (np.dtype(bool), query.dtype, np.dtype(np.float32))
    if mask.data.dtype not in allowed:
        names = " or ".join(dict.fromkeys(d.name for d in allowed))
        raise bad_type(function, "mask", f"dtype {names}", mask.data.dtype)
    heads = _check_shapes(function, query, key, value, mask.pattern)
    for name, array in (("slopes", slopes), ("sinks", sinks)):
        if array is not None:
            _check_of_heads(function, name, array, query.dtype, heads)
    return heads


def _check_shapes(function: str, query: Any, key: Any, value: Any, pattern: Any) -> tuple[int, ...]:
    """Refuse shapes that do not fit; return (*B, H)."""
    for name, array in (("query", query), ("key", key), ("value", value)):
        if array.ndim < 3:
            expected = "at least three dimensions (*batch, heads, length, width), or all two"
            raise bad_value(function, name, expected, tuple(array.shape))
    h, length, width = query.shape[-3:]
    kv_heads, keys = key.shape[-3:-1]
    if key.shape[-1] != width:
        raise bad_value(function, "key", f"a last dimension of {width}", tuple(key.shape))
    if tuple(value.shape[-3:-1]) != (kv_heads, keys):
        expected = f"shape (*batch, {kv_heads}, {keys}, Ev) like 'key'"
        raise bad_value(function, "value", expected, tuple(value.shape))
    if h != kv_heads and (kv_heads == 0 or h % kv_heads):
        raise bad_value(function, "key", f"a number of heads that divides {h}", kv_heads)
    if pattern.shape != (length, keys):
        raise bad_value(function, "mask", f"shape {(length, keys)}", pattern.shape)
    batch = broadcast_shape(function, "key", *(tuple(a.shape[:-3]) for a in (query, key, value)))
    check_broadcasts_to(function, "mask", pattern.batch_shape, (*batch, h))
    return (*batch, h)


def _check_of_heads(
    function: str, name: str, array: Any, dtype: np.dtype, heads: tuple[int, ...]
) -> None:
    """Refuse what does not hold a number for each head."""
    expected = lse_dtype(dtype)
    if array.dtype != expected:
        raise bad_type(function, name, f"dtype {expected} for {dtype} operands", array.dtype)
    shapes = dict.fromkeys(((heads[-1],), heads))
    if tuple(array.shape) not in shapes:
        listed = " or ".join(map(str, shapes))
        raise bad_value(function, name, f"shape {listed}", tuple(array.shape))


def checked_score(
    function: str,
    query: Any,
    heads: tuple[int, ...],
    keys: int,
    *,
    scale: Any,
    softcap: Any,
    slopes: Any,
    is_causal: Any,
    dropout_p: Any,
    seed: Any,
) -> Score:
    """Return what is done to a score, once the numbers that say so are known to be right.

    A seed is drawn where there is dropout and none is given.
    """
    (length, width), real = query.shape[-2:], lse_dtype(query.dtype).type
    if scale is None:
        scale = 1 / sqrt(width) if width else 1.0
    scale = float(check_scalar(function, "scale", scale, complex_allowed=False))
    if softcap is not None:
        softcap = float(check_scalar(function, "softcap", softcap, complex_allowed=False))
        with np.errstate(over="ignore"):
            held = float(real(softcap))  # infinite or 0 where the arithmetic could not divide by it
        if not (isfinite(held) and held > 0):
            expected = f"a number above 0 within {real.__name__}, or None"
            raise bad_value(function, "softcap", expected, softcap)
    dropout_p = float(check_scalar(function, "dropout_p", dropout_p, complex_allowed=False))
    if not 0 <= dropout_p <= 1:
        raise bad_value(function, "dropout_p", "a probability in 0..1", dropout_p)
    seed = _checked_seed(function, dropout_p, seed)
    shape = (length, keys)
    return Score(heads, shape, scale, softcap, slopes, bool(is_causal), dropout_p, seed)


def _checked_seed(function: str, dropout_p: float, seed: Any) -> int:
    if seed is None:
        draw = np.random.default_rng().integers(2**64, dtype=np.uint64) if dropout_p else 0
        return int(draw)
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise bad_type(function, "seed", "an integer or None", type(seed).__name__)
    if not 0 <= seed < 2**64:
        raise bad_value(function, "seed", "an integer in 0..2**64 - 1", seed)
    return int(seed)
