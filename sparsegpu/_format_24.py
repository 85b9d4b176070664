"""The 2:4 format: which dtypes, how many values a group keeps, and the layout of the metadata.

Packed values keep half of every row. Each group of elements has a 4-bit code that says which it
keeps (PTX ISA, section "Sparse matrix storage", for ``mma.sp``); codes are packed into integers,
low bits first, and these metadata elements are reordered as by CUTLASS's `reorder_meta`
(``cutlass/util/host_reorder.h``), for operand E of its sparse GEMMs.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from ._arrays import HALF_DTYPES, float8_e4m3fn

#: float32 is described as two 16-bit halves: the codes that keep the first, the second of a pair.
FIRST_OF_PAIR, SECOND_OF_PAIR = 0b0100, 0b1110


class Format(NamedTuple):
    """How the values of one dtype are grouped, and how their metadata is packed.

    Attributes
    ----------
    group : elements that share one code (two of four are kept; float32: one of two)
    codes : codes in a metadata element
    meta_dtype : dtype of the metadata
    rows, columns : the shape of a dense matrix is a multiple of them
    """

    group: int
    codes: int
    meta_dtype: np.dtype
    rows: int
    columns: int

    @property
    def kept(self) -> int:
        """Elements that a group keeps."""
        return self.group // 2

    @property
    def legal(self) -> tuple[int, ...]:
        """The codes with a meaning: two positions of four in rising order, or one of a pair."""
        if self.group == 2:
            return FIRST_OF_PAIR, SECOND_OF_PAIR
        return tuple(code for code in range(16) if code & 3 < code >> 2)

    @property
    def rule(self) -> str:
        """The sparsity by name, "2:4" or "1:2"."""
        return f"{self.kept}:{self.group}"

    def meta_columns(self, k: int) -> int:
        """Metadata elements in a row of ``k`` dense elements."""
        return k // (self.group * self.codes)


_HALF = Format(4, 4, np.dtype(np.int16), 32, 32)
_BYTE = Format(4, 8, np.dtype(np.int32), 16, 64)
_SINGLE = Format(2, 4, np.dtype(np.int16), 32, 16)

#: By dtype. CuPy has no float8_e4m3fn: uint8 holds its bits.
FORMATS: dict[np.dtype, Format] = {
    **dict.fromkeys(HALF_DTYPES, _HALF),
    np.dtype(np.float32): _SINGLE,
    np.dtype(np.int8): _BYTE,
    float8_e4m3fn: _BYTE,
    np.dtype(np.uint8): _BYTE,
}
#: The dtypes by name, for messages.
DTYPE_NAMES = ", ".join(dtype.name for dtype in FORMATS if dtype != np.uint8)


def reorder_offsets(m: int, columns: int, meta_dtype: np.dtype, xp: ModuleType = np) -> Any:
    """Return the flat offset of each metadata element after reordering, int64 (m * columns,).

    ``m`` is a multiple of 32 (32-bit metadata: 16) and ``columns`` is even.
    """
    r = xp.arange(m, dtype=np.int64)[:, None]
    c = xp.arange(columns, dtype=np.int64)[None, :]
    return reorder_offset(r, c, m, meta_dtype).ravel()


def reorder_offset(r: Any, c: Any, m: int, meta_dtype: np.dtype) -> Any:
    """Return the flat offset of metadata element (r, c) of m rows; integers or arrays of them."""
    group, width = (32, 4) if meta_dtype.itemsize == 2 else (16, 2)
    row = r // group * group + (r % 8) * width + (r % group) // 8
    # The off-diagonal elements of each 2 x 2 cell are swapped: row and column are of unlike parity.
    step = c % 2 - row % 2
    row, column = row + step, c - step
    return column // 2 * (m * 2) + row * 2 + column % 2


def as_blocks(meta: Any, shape: tuple[int, ...], xp: ModuleType) -> Any:
    """Return the metadata of blocks, each reordered by itself, from that of all as one matrix.

    The reordering interleaves pairs of columns over all rows of a matrix, and within a pair moves
    elements among 32 rows (32-bit metadata: 16). A block's height is a multiple of that, so that
    the elements of a block and a pair stay contiguous, and only these pieces are transposed.

    Parameters
    ----------
    meta : array (n * bm, columns)
        Of ``n`` blocks stacked into one matrix.
    shape : (*batch, nnzb, bm, columns)
        Of the result.
    xp : module
    """
    *_, bm, columns = shape
    pieces = meta.reshape(columns // 2, -1, 2 * bm) if meta.size else meta
    return xp.ascontiguousarray(pieces.swapaxes(0, 1)).reshape(shape)


def as_stack(meta: Any, xp: ModuleType) -> Any:
    """Return the metadata of blocks stacked into one matrix: the inverse of `as_blocks`."""
    *_, bm, columns = meta.shape
    pieces = meta.reshape(-1, columns // 2, 2 * bm) if meta.size else meta.reshape(0, 0)
    return xp.ascontiguousarray(pieces.swapaxes(0, 1)).reshape(-1, columns)
