"""What the hosts of the block kernels share: grids, and stored blocks as matrix operands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..._arrays import namespace
from ..._block_bits import BlockBits
from .runtime.launch import MAX_GRID

#: Threads of a block in every kernel whose host is here.
THREADS = 256


def grid(items: int) -> tuple[int]:
    """Return the grid for so many items; a kernel loops where there are more than blocks."""
    return (min(items, MAX_GRID),)


def aligned(array: Any, size: int) -> bool:
    """Whether the array, every row of its matrices and every batch start at multiples of ``size``.

    The stride of the last dimension, along which a row is read, does not count.
    """
    return array.data.ptr % size == 0 and all(
        n == 1 or s % size == 0 for n, s in zip(array.shape[:-1], array.strides[:-1], strict=True)
    )


def same_place(array: Any, given: Any) -> bool:
    """Whether an array is the given one or a view from its first element on, and no copy.

    A copy has memory of its own, while the given array is alive.
    """
    return array.data.ptr == given.data.ptr


def flat_blocks(data: Any) -> Any:
    """Return blocks (*batch, n, bm, bk) as a matrix operand (*batch, n, bm * bk).

    A view wherever one stride leads from each element of a block to the next; else a copy.
    """
    return data.reshape(*data.shape[:-2], data.shape[-2] * data.shape[-1])


def mask_blocks(mask_data: Any) -> Any:
    """Return a mask's blocks (*batch, nnzb, bm * bk), or the codes of its blocks (*batch, nnzb, 1).

    May be a copy of blocks, which has to outlive the launch.
    """
    return mask_data.codes[..., None] if packed_mask(mask_data) else flat_blocks(mask_data)


def packed_mask(mask_data: Any) -> BlockBits | None:
    """Return a mask that has bits of partial blocks only; None for others."""
    return mask_data if isinstance(mask_data, BlockBits) else None


@contextmanager
def flat_output(out_data: Any) -> Iterator[Any]:
    """Give a `flat_blocks` view of ``out_data`` to write to.

    Where its strides allow no such view, a scratch array is written and copied at the end.
    """
    flat = flat_blocks(out_data)
    if same_place(flat, out_data):
        yield flat
        return
    scratch = namespace(out_data).empty(out_data.shape, out_data.dtype)
    yield flat_blocks(scratch)
    out_data[...] = scratch


@contextmanager
def contiguous_output(out: Any) -> Iterator[Any]:
    """Give a C-contiguous array to write to: ``out`` itself, or scratch copied at the end."""
    if out.flags.c_contiguous:
        yield out
        return
    scratch = namespace(out).empty(out.shape, out.dtype)
    yield scratch
    out[...] = scratch
