"""2:4 @ dense: strips of rows are expanded for BLAS, twice as fast as skipping zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._arrays import accumulator_dtype
from ..._epilogue import Epilogue, apply_epilogue
from ..._format_24 import FORMATS
from ..reference.compress import kept_columns
from ._jit import frozen
from ._kernels import multiply
from ._operands import NO_TERMS, widen
from ._threads import for_each, pieces, spans
from .addmm import EpilogueParts
from .compress import bits, expand_rows

#: Bytes of either operand that are expanded or widened at a time.
_WIDENED = 1 << 26
#: Products of int8 whose sum float32 holds exactly.
_EXACT = 1024


@np.errstate(all="ignore")
def semi_structured_addmm(
    out: np.ndarray,
    packed: np.ndarray,
    meta: np.ndarray,
    dense: np.ndarray,
    epilogue: Epilogue,
    *,
    operand_dtype: np.dtype,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (sparse @ dense)) * right_alpha)``.

    Only stored values count, as in hardware: where ``dense`` is not finite the zeros between them
    are not multiplied. ``allow_tf32`` and ``config`` have no effect.
    """
    del allow_tf32, config
    m, (k, n) = len(packed), dense.shape[-2:]
    batch = out.shape[:-2]
    part = EpilogueParts(epilogue, out.shape)
    acc_dtype = accumulator_dtype(operand_dtype)
    if packed.dtype != operand_dtype:  # uint8 holds float8 bits
        packed = packed.view(operand_dtype)
    if dense.dtype != operand_dtype:
        dense = dense.view(operand_dtype)
    dense = np.broadcast_to(dense, (*batch, k, n))
    height = max(_WIDENED // (8 * max(k, 1)), 1)
    width = max(_WIDENED // (8 * max(k, 1)), 64)
    for first in range(0, m, height):
        rows = slice(first, min(first + height, m))
        strip = None
        for b in np.ndindex(batch):
            for left in range(0, n, width):
                columns = slice(left, min(left + width, n))
                acc = np.zeros((rows.stop - first, columns.stop - left), acc_dtype)
                if epilogue.alpha != 0:
                    panel = widen(dense[b][:, columns])
                    if np.isfinite(panel).all():
                        strip = expanded(packed, meta, rows) if strip is None else strip
                        add_product(acc, strip, panel)
                    else:
                        add_kept(acc, packed, meta, rows, panel)
                apply_epilogue(acc, part.at(b, rows, columns), out[b][rows, columns])


def expanded(packed: np.ndarray, meta: np.ndarray, rows: slice) -> np.ndarray:
    """Return some rows of the dense matrix, widened."""
    strip = np.empty((rows.stop - rows.start, 2 * packed.shape[1]), packed.dtype)
    values = frozen(np.ascontiguousarray(bits(packed[rows])))
    words = frozen(np.ascontiguousarray(meta).view(f"u{meta.itemsize}").reshape(-1))
    group = FORMATS[packed.dtype].group
    expand_rows(bits(strip), values, words, group, rows.start, len(packed))
    return widen(strip)


def add_product(acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Add ``a @ b``; integers in parts that float32 sums exactly."""
    if acc.dtype != np.int32:
        acc += a @ b
        return
    for k in range(0, a.shape[1], _EXACT):
        acc += (a[:, k : k + _EXACT] @ b[k : k + _EXACT]).astype(np.int32)


def add_kept(
    acc: np.ndarray, packed: np.ndarray, meta: np.ndarray, rows: slice, dense: np.ndarray
) -> None:
    """Add the product of the stored values alone, as a matrix of 1 x 1 blocks."""
    source = frozen(kept_columns(meta, packed.dtype)[rows].reshape(-1))
    blocks = frozen(widen(packed[rows]).reshape(-1, 1, 1))
    (count, width), kept = acc.shape, packed.shape[1]
    ends = np.arange(count + 1) * kept

    def strip(span: tuple[int, int]) -> None:
        first, last = span
        begin, end = frozen(ends[first:last]), frozen(ends[first + 1 : last + 1])
        starts = frozen(np.arange(first, last) * width)
        flat = frozen(dense.reshape(-1))
        multiply(
            acc.reshape(-1), starts, width, begin, end, NO_TERMS, source, width, 0, width,
            blocks, flat, width,
        )  # fmt: skip

    cost = acc.size * kept
    for_each(strip, spans(ends[1:], count, pieces(cost)), cost)
