"""Blocks moved as they are: of any dtype, as numbers of its size."""

from __future__ import annotations

import numpy as np

from ...pattern import Pattern
from ._jit import frozen, jit
from ._threads import even_spans, for_each, pieces

#: Multiply-adds that take as long as an element that goes elsewhere than its neighbours.
_MOVED = 4


def transpose(out: np.ndarray, blocks: np.ndarray, order: np.ndarray) -> None:
    """Write ``out[t] = blocks[order[t]].T``, as `convert.transpose_blocks` does."""
    target, source = _bits(out), frozen(_bits(blocks).reshape(-1))
    place = frozen(np.arange(out[0].size, dtype=np.uint32).reshape(blocks.shape[1:]).T.ravel())

    def move(span: tuple[int, int]) -> None:
        listed = slice(*span)
        _transpose(target[listed].reshape(-1), source, frozen(order[listed]), place)

    cost = _MOVED * out.size
    for_each(move, even_spans(len(out), pieces(cost)), cost)


def scatter(out: np.ndarray, pattern: Pattern, data: np.ndarray) -> None:
    """Write a dense matrix, or several, of blocks of which none is repeated."""
    batch, (rows, _) = out.shape[:-2], pattern.block_shape
    indptr = np.broadcast_to(pattern._indptr, (*batch, rows + 1))
    indices = np.broadcast_to(pattern._indices, (*batch, pattern.nnzb))
    blocks = np.broadcast_to(_bits(data), (*batch, *data.shape[-3:]))
    target, bm = _bits(out), pattern.blocksize[0]

    def move(place: tuple[tuple[int, ...], tuple[int, int]]) -> None:
        b, (first, last) = place
        ends = frozen(indptr[b][first : last + 1])
        _scatter(target[b][first * bm : last * bm], ends, frozen(indices[b]), frozen(blocks[b]))

    cut = even_spans(rows, pieces(out.size))
    for_each(move, [(b, span) for b in np.ndindex(batch) for span in cut], out.size)


def _bits(array: np.ndarray) -> np.ndarray:
    """Return the elements as unsigned integers; complex128, which is too long, stays itself."""
    return array if array.itemsize > 8 else array.view(f"u{array.itemsize}")


@jit()
def _transpose(out, blocks, order, place):
    # The fewer instructions a block takes, the more of its cache misses overlap: so no loop nest.
    size = np.uintp(len(place))
    for t in range(np.uintp(len(order))):
        p, o = np.uintp(order[t]) * size, t * size
        for i in range(size):
            out[o + i] = blocks[p + np.uintp(place[i])]


@jit()
def _scatter(out, ends, indices, blocks):
    rows, columns = np.uintp(blocks.shape[1]), np.uintp(blocks.shape[2])
    for t in range(np.uintp(len(ends) - 1)):
        first = t * rows
        out[first : first + rows] = 0
        for p in range(np.uintp(ends[t]), np.uintp(ends[t + 1])):
            left = np.uintp(indices[p]) * columns
            for r in range(rows):
                for c in range(columns):
                    out[first + r, left + c] = blocks[p, r, c]
