"""``& | ^ ~`` of bool masks, by element or, for `BlockMask`, by kinds and bits of blocks."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Self

import numpy as np

from .._arrays import common_namespace, namespace
from .._block_bits import EVERYTHING, NOTHING
from .._checks import bad_type, bad_value, kind_of
from .._indices import keys_per_batch
from .._math import ceil_div
from .._protocols import leaves
from .._segments import distinct
from ..ops._canonical import canonical_bits, distinct_blocks, distinct_values, spread
from ..ops._common import check_sparse, is_block_mask, on_device
from ..pattern import from_sorted_keys
from .align import in_blocks
from .base import BsrBase

_OPERATIONS: dict[str, Callable] = {"&": operator.and_, "|": operator.or_, "^": operator.xor}
_NONE, _FULL, _PARTIAL = 0, 1, 2  # kinds of the blocks of a `BlockMask`


class Logical:
    """Three operators over one method; all of them commute."""

    __slots__ = ()

    _combined: Callable[[Any, str, str], Any]

    def __and__(self, other: Any) -> Any:
        left = leaves(other, "__rand__")
        return NotImplemented if left else _combination(self, other, "&")

    def __or__(self, other: Any) -> Any:
        left = leaves(other, "__ror__")
        return NotImplemented if left else _combination(self, other, "|")

    def __xor__(self, other: Any) -> Any:
        left = leaves(other, "__rxor__")
        return NotImplemented if left else _combination(self, other, "^")

    def __rand__(self, other: Any) -> Any:
        return _combination(self, other, "&")

    def __ror__(self, other: Any) -> Any:
        return _combination(self, other, "|")

    def __rxor__(self, other: Any) -> Any:
        return _combination(self, other, "^")


def _combination(mask: Any, other: Any, sign: str) -> Any:
    function = f"{type(mask).__name__} {sign}"
    dtype = getattr(other, "dtype", None)
    if not hasattr(other, "shape") or dtype is None:
        expected = "a bool bsr_array, BlockMask, sparse or dense array"
        raise bad_type(function, "other", expected, kind_of(other))
    for name, kind in (("self", mask.dtype), ("other", dtype)):
        if np.dtype(kind) != np.bool_:
            raise bad_type(function, name, "dtype bool (A != 0 is of it)", kind)
    return mask._combined(other, function, sign)


class Logic(Logical, BsrBase):
    """``& | ^ ~`` of a bool `bsr_array`.

    Of two sparse ones the result is sparse: ``A & B`` stores the blocks that both store, ``A | B``
    and ``A ^ B`` those of either. ``~A`` negates within the stored blocks: what is not stored stays
    False. With a dense array ``&`` is sparse, the others are dense.
    """

    __slots__ = ()

    _multiplied: Callable[[Any, str], Any]
    _added: Callable[[Any, str], Any]
    _compared: Callable[[Any, str, Callable], Any]

    def _combined(self, other: Any, function: str, sign: str) -> Any:
        if is_block_mask(other):
            other = other.tobsr()
        other = in_blocks(function, self, other)
        if sign == "&":
            return self._multiplied(other, function)
        if sign == "|":
            return self._added(other, function)
        return self._compared(other, function, operator.ne)

    def __invert__(self) -> Self:
        function = "bsr_array ~"
        check_sparse(function, "self", self)
        if self.dtype != bool:
            raise bad_type(function, "self", "dtype bool (A != 0 is of it)", self.dtype)
        with on_device(self._data):
            pattern, data = distinct_blocks(self, function, "self")
            return self._with(pattern, spread(~distinct_values(data), pattern.blocksize))


def combined_masks(function: str, sign: str, mask: Any, other: Any) -> tuple[Any, Any, Any]:
    """Combine two `BlockMask` of one block size: return pattern, kinds and bits.

    Only blocks of which one operand is partial are looked at by their bits.
    """
    common_namespace(function, self=mask._kind, other=other._kind)
    if mask.shape != other.shape:
        raise bad_value(function, "other", f"shape {mask.shape}", other.shape)
    combine = _OPERATIONS[sign]
    with on_device(mask._kind):
        (like, a), (another, b) = (
            canonical_bits(x, function, name) for x, name in ((mask, "self"), (other, "other"))
        )
        xp, keys = like.xp, like.keys()
        if not like.same_as(another):
            keys = distinct(xp.concatenate([keys, another.keys()]))
        codes = []
        for pattern, blocks in ((like, a), (another, b)):
            code = xp.full(keys.shape, NOTHING, np.int64)
            code[xp.searchsorted(keys, pattern.keys())] = blocks.codes.ravel()
            codes.append(code)
        full = combine(codes[0] == EVERYTHING, codes[1] == EVERYTHING)
        kind = full.astype(np.uint8)
        place = xp.flatnonzero((codes[0] >= 0) | (codes[1] >= 0))
        every = _every_bit(xp, like.blocksize[1])
        words = combine(*(_words(x.bits, code[place], every) for x, code in zip((a, b), codes)))
        some, all_set = (words != 0).any(axis=(1, 2)), (words == every).all(axis=(1, 2))
        kind[place] = xp.where(all_set, _FULL, xp.where(some, _PARTIAL, _NONE)).astype(np.uint8)
        words = words[some & ~all_set]
        if not like.batch_shape:  # the matrices of a batch store equally many blocks
            kept = xp.flatnonzero(kind)
            keys, kind = keys[kept], kind[kept]
        (rows, columns), batch = like.block_shape, like.batch_shape
        nnzb = keys_per_batch(keys, batch, rows * columns, function, "other")
        pattern = from_sorted_keys(keys, batch, nnzb, like.shape, like.blocksize)
        return pattern, kind.reshape(pattern.data_shape[:-2]), words


def inverted_mask(mask: Any) -> tuple[Any, Any]:
    """Return kinds and bits of what a `BlockMask` without repeated blocks leaves out of them."""
    xp = mask.pattern.xp
    with on_device(mask._kind):
        kind = xp.where(mask._kind == _PARTIAL, _PARTIAL, _FULL - mask._kind).astype(np.uint8)
        return kind, mask._bits ^ _every_bit(xp, mask.blocksize[1])


def _every_bit(xp: Any, columns: int) -> Any:
    """Return the words of a row of a full block."""
    words = np.full(ceil_div(columns, 32), 0xFFFFFFFF, np.uint32)
    words[-1] >>= np.uint32(-columns % 32)
    return xp.asarray(words)


def _words(bits: Any, code: Any, every: Any) -> Any:
    """Return the words of blocks by their codes, those of full and empty ones too."""
    xp = namespace(bits)
    whole = xp.where((code == EVERYTHING)[:, None, None], every, np.uint32(0))
    if not bits.shape[0]:  # of shape (n, 1, words), which broadcasts
        return whole
    partial = bits[xp.maximum(code, 0)]
    return xp.where((code >= 0)[:, None, None], partial, whole)
