"""Canonical form of block-sparse arguments: repeated blocks are summed.

A repeated block means the sum of its blocks. Operations that are not linear in the blocks sum
them first; what that needs to know of the pattern is kept with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import common_namespace, namespace
from .._block_bits import EVERYTHING, NOTHING, BlockBits
from .._checks import bad_value
from .._memo import Memo
from ..engines import checking_module, engine_module
from ..pattern import Pattern
from ._common import check_sparse, on_device


def _is_canonical(pattern: Pattern) -> bool:
    """Return `Pattern.has_canonical_format`; the first look, by the engine, takes one launch."""
    order = pattern.known("order")
    return (order or checking_module(pattern.xp, "convert").column_order(pattern))[1]


def canonical_pattern(bsr: Any, function: str, argument: str) -> Pattern:
    """Return the pattern with ascending columns and without duplicates."""
    pattern = bsr.pattern
    return pattern if _is_canonical(pattern) else pattern.canonical(function, argument)[0]


def canonical_blocks(bsr: Any, function: str, argument: str) -> tuple[Pattern, Any]:
    """Return pattern and blocks with ascending columns and without duplicates."""
    pattern = canonical_pattern(bsr, function, argument)
    return pattern, bsr.data if pattern is bsr.pattern else _summed(bsr, function, argument)


def distinct_pattern(pattern: Pattern, function: str, argument: str) -> Pattern:
    """Return ``pattern`` itself when it has no duplicates, else the canonical one."""
    if _is_canonical(pattern):
        return pattern
    canonical = pattern.canonical(function, argument)[0]
    return pattern if canonical.nnzb == pattern.nnzb else canonical


def distinct_blocks(bsr: Any, function: str, argument: str) -> tuple[Pattern, Any]:
    """Return pattern and blocks without duplicates, in stored order when there are none."""
    pattern = distinct_pattern(bsr.pattern, function, argument)
    return pattern, bsr.data if pattern is bsr.pattern else _summed(bsr, function, argument)


def canonical_bits(mask: Any, function: str, argument: str) -> tuple[Pattern, BlockBits]:
    """Return a `BlockMask`'s canonical pattern and its blocks' codes and bits, kept with it."""
    kept = mask._memo.known("bits")
    if kept is not None:
        return kept

    def build() -> tuple[Pattern, BlockBits]:
        pattern, order = mask.pattern, None
        if not _is_canonical(pattern):
            canonical, order, _ = pattern.canonical(function, argument)
            if canonical.nnzb != pattern.nnzb:  # repeated blocks, which are or-ed
                merged = type(mask).from_bsr(mask.tobsr())
                return canonical_bits(merged, function, argument)
            pattern = canonical
        xp, indices, kind = pattern.xp, pattern._indices, mask.kind.ravel()
        if len(mask.bits):
            partial = kind == 2
            codes = xp.where(kind == 1, EVERYTHING, NOTHING)
            codes = xp.where(partial, xp.cumsum(partial, dtype=np.int64) - 1, codes)
        else:  # kinds of whole blocks are 0 and 1
            codes = xp.subtract(NOTHING, kind, dtype=indices.dtype)
        codes = codes if order is None else codes[order]
        codes = codes.astype(indices.dtype, copy=False).reshape(indices.shape)
        return pattern, BlockBits(codes, mask.bits, pattern.blocksize[1], Memo(xp))

    with on_device(mask.kind):
        return mask._memo.memo("bits", build)


def _summed(bsr: Any, function: str, argument: str) -> Any:
    xp = common_namespace(function, **{argument: bsr.data})
    pattern, order, starts = bsr.pattern.canonical(function, argument)
    with on_device(bsr.data):
        blocks = distinct_values(bsr.data)
        size = blocks.shape[-2:]
        out = xp.empty((*pattern.batch_shape, pattern.nnzb, *size), bsr.data.dtype)
        if out.size:
            engine_module(xp, "convert", function).sum_blocks(
                out.reshape(-1, *size), blocks.reshape(-1, *size), order, starts
            )
    return spread(out, pattern.blocksize)


def distinct_values(data: Any) -> Any:
    """Return bool blocks with strides of 0 inside as blocks of 1x1, all others as they are.

    Such a mask of whole blocks costs a byte a block. What moves its blocks uses this and `spread`,
    so that it stays so.
    """
    whole = data.dtype == bool and data.strides[-2:] == (0, 0)
    return data[..., :1, :1] if whole else data


def spread(blocks: Any, blocksize: tuple[int, int]) -> Any:
    """Return the blocks that `distinct_values` shrank in their size, with strides of 0 inside."""
    if blocks.shape[-2:] == blocksize:
        return blocks
    return namespace(blocks).broadcast_to(blocks, (*blocks.shape[:-2], *blocksize))


def check_out_pattern(function: str, out: Any, pattern: Pattern) -> None:
    """Refuse a block-sparse ``out`` of another pattern (the same object needs no comparison)."""
    check_sparse(function, "out", out)
    check_same_pattern(function, "out", "the result", out.pattern, pattern)


def check_same_pattern(
    function: str, argument: str, owner: str, found: Pattern, pattern: Pattern
) -> None:
    """Refuse another pattern than the ``owner``'s, and say in what it is another."""
    if found.same_as(pattern):
        return
    got = str(found)
    if got == str(pattern):
        got += " of other blocks"
    if pattern.has_canonical_format and not found.has_canonical_format:
        got += ", not sorted or with repeated blocks (sum_duplicates() mends both)"
    raise bad_value(function, argument, f"the pattern of {owner}, {pattern}", got)
