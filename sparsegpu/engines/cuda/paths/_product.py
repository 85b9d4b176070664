"""A product of BSR @ dense as its paths see it: operands, their layouts, the epilogue."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...._arrays import accumulator_dtype
from ...._epilogue import Epilogue
from ....pattern import Pattern
from .._epilogue_args import batched_operands, epilogue_args
from .._grid import aligned
from .._transpose import transpose_pattern
from ..runtime.device import device_facts
from ..runtime.view import merged_batch
from ._facts import Facts


@dataclass(frozen=True, slots=True)
class Product:
    """Everything that a path needs to know of a product.

    Attributes
    ----------
    out, dense : array (*B, M, N), (*B, K, N)
    pattern : Pattern
        Of the operand as it is multiplied.
    order : int64 array like the indices of ``pattern``, or None
        Where the blocks of a transposed operand lie in ``data``.
    data : array (*B, nnzb, bm, bk), or (*B, nnzb, bk, bm) where ``order`` is given
        Blocks are C-contiguous. Of 2:4 blocks: the packed values.
    meta : array or None
        The metadata of 2:4 blocks.
    layout : str
        Of ``dense``: see `layout_of`.
    batch : tuple of int
        Batch shape of the views.
    empty : bool
        Nothing is multiplied: ``data`` and ``dense`` must not be read.
    allow_tf32 : bool
    defines, epilogue : dict, bytes
        What `epilogue_args` returns for the epilogue.
    """

    out: Any
    pattern: Pattern
    order: Any
    data: Any
    meta: Any
    dense: Any
    layout: str
    batch: tuple[int, ...]
    empty: bool
    allow_tf32: bool
    defines: dict[str, str]
    epilogue: bytes

    @property
    def dtype(self) -> np.dtype:
        """Of the operands."""
        return self.data.dtype

    @property
    def transposed(self) -> bool:
        """Whether the blocks are stored transposed."""
        return self.order is not None

    def facts(self) -> Facts:
        """Return what the tile of a product depends on."""
        block_rows, block_columns = self.pattern.block_shape
        m, n = self.out.shape[-2:]
        matrices, (capability, multiprocessors, shared_memory) = prod(self.batch), device_facts()
        return Facts(
            dtype=self.data.dtype,
            shape=(matrices * m, self.dense.shape[-2], n),
            blocksize=self.pattern.blocksize,
            matrices=matrices,
            density=self.pattern.nnzb / max(block_rows * block_columns, 1),
            column_blocks=self.pattern.nnzb / max(block_columns, 1),
            layout=self.layout,
            dense_by_column=abs(self.dense.strides[-2]) < abs(self.dense.strides[-1]),
            transposed=self.transposed,
            allow_tf32=self.allow_tf32,
            capability=capability,
            multiprocessors=multiprocessors,
            shared_memory=shared_memory,
            data_alignment=1 if self.empty else _alignment_of(self.data),
            rows=block_rows,
            row_blocks=self.pattern.nnzb / max(block_rows, 1),
            out_itemsize=self.out.itemsize,
        )


def product_of(
    out: Any,
    pattern: Pattern,
    data: Any,
    dense: Any,
    epilogue: Epilogue,
    *,
    transposed: bool = False,
    allow_tf32: bool = False,
    meta: Any = None,
) -> Product:
    """Describe the arguments of `bsr_addmm`; with ``meta`` those of a product of 2:4 blocks."""
    order = None
    if transposed:
        pattern, flat_order = transpose_pattern(pattern)
        order = flat_order.reshape(pattern._indices.shape)
    batch = merged_batch(
        out.shape[:-2],
        (out, 2),
        (pattern._indptr, 1),
        (pattern._indices, 1),
        (order, 1),
        (data, 3),
        (dense, 2),
        *batched_operands(epilogue),
    )
    defines, argument = epilogue_args(epilogue, batch, accumulator_dtype(data.dtype), out.dtype)
    return Product(
        out=out,
        pattern=pattern,
        order=order,
        data=contiguous_blocks(data),
        meta=meta,
        dense=dense,
        layout=layout_of(dense),
        batch=batch,
        empty=epilogue.alpha == 0 or pattern.nnzb == 0,
        allow_tf32=allow_tf32,
        defines=defines,
        epilogue=argument,
    )


def _alignment_of(data: Any) -> int:
    return alignment(data.data.ptr, *data.strides[:-3])


def alignment(*addresses: int) -> int:
    """Return how many bytes, up to 16, divide all of some addresses."""
    return min(min(address & -address, 16) or 16 for address in addresses)


def contiguous_blocks(data: Any) -> Any:
    """Return ``data`` with C-contiguous (nnzb, bm, bk), copied on the device if it must be."""
    _, bm, bk = data.shape[-3:]
    item = data.itemsize
    if data.size == 0 or all(
        n == 1 or s == wanted
        for n, s, wanted in zip(
            data.shape[-3:], data.strides[-3:], (bm * bk * item, bk * item, item), strict=True
        )
    ):
        return data
    return data.copy(order="C")


def layout_of(dense: Any) -> str:
    """Return how a (*B, K, N) operand lies in memory.

    Returns
    -------
    "rows" or "columns" when 16-byte vectors along a row or a column can be copied; "bytes" for
    int8 rows of which 4-byte words can be copied; "strided" otherwise.
    """
    by_column = dense.swapaxes(-1, -2)
    if _unit(dense, -1) and aligned(dense, 16):
        return "rows"
    if _unit(dense, -2) and aligned(by_column, 16):
        return "columns"
    if dense.itemsize == 1 and _unit(dense, -1) and aligned(dense, 4):
        return "bytes"
    return "strided"


def _unit(array: Any, axis: int) -> bool:
    return array.shape[axis] == 1 or array.strides[axis] == array.itemsize
