"""The loops of products of small blocks: one column, a few, and short rows of them.

Blocks of a few elements are not packed, as `_kernels.multiply` does it: that takes longer than to
multiply them. Complex numbers stay complex. All loops take the same arguments; target t is row
block t of ``acc``:

acc, acc_ld : flat array, to which is added, and how far apart its rows are
begin, end : integers (targets,), the terms ``begin[t]..end[t]`` of a target
block_of : integers (terms,), the block of a term; empty: term g has block g
source : integers (terms,), a term's rows start at ``dense[source[g] * bk * ld]``
blocks : (n, bm, bk)
transposed : whether to multiply by the transposes of the blocks, which are read as they are
dense, ld : flat array, and how far apart its rows are
width : columns to compute

All indices are unsigned: numba tests every signed one for being negative, which costs more than the
arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ._jit import jit

#: Columns of a block up to which `multiply_vector` beats `multiply_narrow`, and `multiply_few` and
#: `multiply_rows` beat `multiply`, whose columns these are at most (measured). Complex numbers,
#: which `multiply` takes as two real columns each, are worth it in larger blocks and any row.
_VECTOR_DEPTH, _FEW_DEPTH, _FEW_COLUMNS, _ROWS_DEPTH, _ROWS_COLUMNS = 6, 6, 8, 3, 64
#: Bytes of a target from which `multiply`, which packs ``dense`` once for all its rows, wins again.
_TARGET = 1536
#: Columns of larger blocks than `_ROWS_DEPTH` with which `multiply_few` wins, of real numbers: two
#: leave half of its registers unused, and more than four read every block twice.
_FULL_REGISTERS = (3, 4)


def small_loop(
    columns: int, height: int, depth: int, dtype: np.dtype, transposed: bool
) -> Callable | None:
    """Return the loop of this page that is fastest, None if none is.

    ``height`` and ``depth`` are the rows and columns of the blocks, of transposed ones as they are
    multiplied; ``dtype`` is the accumulator's. Transposed blocks are read in place for one column,
    of whatever size they are: copying them takes longer.
    """
    if dtype.kind not in "fc":
        return None
    if columns == 1:
        return multiply_vector if transposed or depth <= _VECTOR_DEPTH else None
    if dtype.kind == "c":
        small = depth <= _FEW_DEPTH
    elif depth <= _ROWS_DEPTH:
        fits = height * columns * dtype.itemsize <= _TARGET
        small = columns <= _FEW_COLUMNS or (columns <= _ROWS_COLUMNS and fits)
    else:
        small = depth <= _FEW_DEPTH and columns in _FULL_REGISTERS
    if not small:
        return None
    return multiply_few if columns <= _FEW_COLUMNS else multiply_rows


@jit(fastmath={"contract"})
def multiply_vector(
    acc, acc_ld, begin, end, block_of, source, blocks, transposed, dense, ld, width
):
    """Multiply by one column, ``dense`` contiguous.

    Up to four rows of a target stay in registers over all its terms. A block's products are summed
    first: the sums of one block do not wait for those of the block before.
    """
    one, two, three, four = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)
    a, zero = blocks.reshape(-1), blocks.dtype.type(0)
    bm, bk = np.uintp(blocks.shape[1]), np.uintp(blocks.shape[2])
    size, down, along, lead = bm * bk, bk, one, np.uintp(acc_ld)
    if transposed:
        bm, bk, down, along = bk, bm, one, bk
    listed = len(block_of) > 0
    for t in range(np.uintp(len(begin))):
        first, last = np.uintp(begin[t]), np.uintp(end[t])
        if size == one:
            s0 = zero
            for g in range(first, last):
                s0 += a[np.uintp(block_of[g]) if listed else g] * dense[np.uintp(source[g])]
            acc[t * lead] += s0
            continue
        r = np.uintp(0)
        while r < bm:
            rows = min(bm - r, four)
            s0 = s1 = s2 = s3 = zero
            for g in range(first, last):
                p = np.uintp(block_of[g]) if listed else g
                x = np.uintp(source[g]) * bk
                i, v = p * size + r * down, dense[x]
                if rows == four:
                    b0, b1 = a[i] * v, a[i + down] * v
                    b2, b3 = a[i + two * down] * v, a[i + three * down] * v
                    for k in range(one, bk):
                        v, j = dense[x + k], i + k * along
                        b0 += a[j] * v
                        b1 += a[j + down] * v
                        b2 += a[j + two * down] * v
                        b3 += a[j + three * down] * v
                    s2 += b2
                    s3 += b3
                elif rows == three:
                    b0, b1, b2 = a[i] * v, a[i + down] * v, a[i + two * down] * v
                    for k in range(one, bk):
                        v, j = dense[x + k], i + k * along
                        b0 += a[j] * v
                        b1 += a[j + down] * v
                        b2 += a[j + two * down] * v
                    s2 += b2
                else:
                    second = (rows - one) * down  # of a single row, itself: s1 is not used then
                    b0, b1 = a[i] * v, a[i + second] * v
                    for k in range(one, bk):
                        v, j = dense[x + k], i + k * along
                        b0 += a[j] * v
                        b1 += a[j + second] * v
                s0 += b0
                s1 += b1
            o = (t * bm + r) * lead
            acc[o] += s0
            if rows > one:
                acc[o + lead] += s1
            if rows > two:
                acc[o + two * lead] += s2
            if rows > three:
                acc[o + three * lead] += s3
            r += rows


@jit(fastmath={"contract"})
def multiply_few(acc, acc_ld, begin, end, block_of, source, blocks, transposed, dense, ld, width):
    """Multiply by a few columns: four elements of a row stay in registers over all terms."""
    one, two, three, four = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)
    a, zero = blocks.reshape(-1), blocks.dtype.type(0)
    bm, bk = np.uintp(blocks.shape[1]), np.uintp(blocks.shape[2])
    size, down, along, lead, step = bm * bk, bk, one, np.uintp(acc_ld), np.uintp(ld)
    if transposed:
        down, along, bm, bk = one, bk, bk, bm
    listed = len(block_of) > 0
    for t in range(np.uintp(len(begin))):
        first, last = np.uintp(begin[t]), np.uintp(end[t])
        for r in range(bm):
            c = np.uintp(0)
            while c < np.uintp(width):
                columns = min(np.uintp(width) - c, four)
                second, third = min(one, columns - one), min(two, columns - one)
                s0 = s1 = s2 = s3 = zero
                for g in range(first, last):
                    p = np.uintp(block_of[g]) if listed else g
                    i, x = p * size + r * down, np.uintp(source[g]) * bk * step + c
                    if columns == four:
                        for k in range(bk):
                            v, j = a[i + k * along], x + k * step
                            s0 += v * dense[j]
                            s1 += v * dense[j + one]
                            s2 += v * dense[j + two]
                            s3 += v * dense[j + three]
                    else:  # what is beyond the last column is a column again, and not used
                        for k in range(bk):
                            v, j = a[i + k * along], x + k * step
                            s0 += v * dense[j]
                            s1 += v * dense[j + second]
                            s2 += v * dense[j + third]
                o = (t * bm + r) * lead + c
                acc[o] += s0
                if columns > one:
                    acc[o + one] += s1
                if columns > two:
                    acc[o + two] += s2
                if columns > three:
                    acc[o + three] += s3
                c += columns


@jit(fastmath={"contract"})
def multiply_rows(acc, acc_ld, begin, end, block_of, source, blocks, transposed, dense, ld, width):
    """Multiply by short rows: each element of a block by one, added to a row of the target."""
    a = blocks.reshape(-1)
    bm, bk = np.uintp(blocks.shape[1]), np.uintp(blocks.shape[2])
    size, down, along = bm * bk, bk, np.uintp(1)
    if transposed:
        bm, bk, down, along = bk, bm, np.uintp(1), bk
    listed = len(block_of) > 0
    for t in range(np.uintp(len(begin))):
        for g in range(np.uintp(begin[t]), np.uintp(end[t])):
            p = np.uintp(block_of[g]) if listed else g
            for r in range(bm):
                o = (t * bm + r) * np.uintp(acc_ld)
                for k in range(bk):
                    v = a[p * size + r * down + k * along]
                    x = (np.uintp(source[g]) * bk + k) * np.uintp(ld)
                    for j in range(np.uintp(width)):
                        acc[o + j] += v * dense[x + j]
