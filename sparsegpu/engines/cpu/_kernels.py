"""The loops of the products.

One loop nest serves every format: a *target* (a strip of rows of the accumulator) is the sum
of *terms* (a small block times rows of a dense matrix). Its blocks are packed side by side into
one matrix of ``depth`` columns, so that the inner loop is independent of the block size: it takes
four rows of the target, four steps of the depth and runs along the dense matrix's columns. That is
16 multiply-adds for 4 loads and stays in the L1 cache.

Arrays are flat with explicit strides: only then does LLVM see that the four rows of a tile cannot
overlap, and vectorises. ``fastmath={"contract"}`` lets it fuse multiply and add, as BLAS and the
GPU do, and nothing else.
"""

from __future__ import annotations

import numpy as np

from ._jit import jit

#: Columns of a tile and steps of depth worked on at a time: 4 x 512 accumulators stay in L1,
#: 256 x 512 values of the dense operand in L2. int8 values are converted to float32: 256 steps
#: (blocks of complex numbers: 512) sum exactly.
_TILE, _DEPTH = 512, 256


@jit(fastmath={"contract"})
def multiply(
    acc, acc_start, acc_ld, begin, end, block_of, source, step, base, ld, blocks, dense, width
):
    """Add to each target the sum of ``blocks[block_of[g]] @ dense[rows of g]``.

    Parameters
    ----------
    acc : flat array, to which is added
    acc_start : int64 (targets,), where in ``acc`` a target starts; its rows are ``acc_ld`` apart
    begin, end : integers (targets,), the terms ``begin[t]..end[t]`` of a target
    block_of : integers (terms,), the block of a term; empty: term g has block g
    source : integers (terms,), a term's rows start at ``dense[source[g] * step + base]``
    ld : how far apart the rows of ``dense`` are
    blocks : (n, bm, bk)
    dense : flat array
    width : columns to compute
    """
    bm, bk = blocks.shape[1], blocks.shape[2]
    most = max(_DEPTH // bk, 1)  # terms packed at a time
    tile = np.empty(4 * _TILE, blocks.dtype)
    packed = np.empty(bm * most * bk, blocks.dtype)
    row_at = np.empty(most * bk, np.int64)
    for t in range(len(begin)):
        for first in range(begin[t], end[t], most):
            terms = min(most, end[t] - first)
            depth = terms * bk
            for g in range(terms):
                p = first + g if len(block_of) == 0 else block_of[first + g]
                start = np.int64(source[first + g]) * step + base
                for k in range(bk):
                    row_at[g * bk + k] = start + k * ld
                for r in range(bm):
                    for k in range(bk):
                        packed[r * depth + g * bk + k] = blocks[p, r, k]
            for left in range(0, width, _TILE):
                w = min(_TILE, width - left)
                for r in range(0, bm - 3, 4):
                    four_rows(tile, packed[r * depth :], depth, dense, row_at, left, w)
                    for i in range(4):
                        o = acc_start[t] + (r + i) * acc_ld + left
                        for j in range(w):
                            acc[o + j] += tile[i * _TILE + j]
                for r in range(bm // 4 * 4, bm):
                    one_row(tile, packed[r * depth :], depth, dense, row_at, left, w)
                    o = acc_start[t] + r * acc_ld + left
                    for j in range(w):
                        acc[o + j] += tile[j]


@jit(fastmath={"contract"})
def four_rows(c, a, depth, dense, row_at, left, w):
    """``c[i, j] = sum over k of a[i, k] * dense[row_at[k] + left + j]``, i = 0..3."""
    for i in range(4):
        c[i * _TILE : i * _TILE + w] = 0
    k = 0
    while k + 4 <= depth:
        a00, a01, a02, a03 = a[k], a[k + 1], a[k + 2], a[k + 3]
        m = depth + k
        a10, a11, a12, a13 = a[m], a[m + 1], a[m + 2], a[m + 3]
        m += depth
        a20, a21, a22, a23 = a[m], a[m + 1], a[m + 2], a[m + 3]
        m += depth
        a30, a31, a32, a33 = a[m], a[m + 1], a[m + 2], a[m + 3]
        b0 = dense[row_at[k] + left :]
        b1 = dense[row_at[k + 1] + left :]
        b2 = dense[row_at[k + 2] + left :]
        b3 = dense[row_at[k + 3] + left :]
        for j in range(w):
            x0, x1, x2, x3 = b0[j], b1[j], b2[j], b3[j]
            c[j] = c[j] + a00 * x0 + a01 * x1 + a02 * x2 + a03 * x3
            c[_TILE + j] = c[_TILE + j] + a10 * x0 + a11 * x1 + a12 * x2 + a13 * x3
            c[2 * _TILE + j] = c[2 * _TILE + j] + a20 * x0 + a21 * x1 + a22 * x2 + a23 * x3
            c[3 * _TILE + j] = c[3 * _TILE + j] + a30 * x0 + a31 * x1 + a32 * x2 + a33 * x3
        k += 4
    while k < depth:
        a00, a10, a20, a30 = a[k], a[depth + k], a[2 * depth + k], a[3 * depth + k]
        b0 = dense[row_at[k] + left :]
        for j in range(w):
            x0 = b0[j]
            c[j] += a00 * x0
            c[_TILE + j] += a10 * x0
            c[2 * _TILE + j] += a20 * x0
            c[3 * _TILE + j] += a30 * x0
        k += 1


@jit(fastmath={"contract"})
def one_row(c, a, depth, dense, row_at, left, w):
    """``c[j] = sum over k of a[k] * dense[row_at[k] + left + j]``."""
    c[:w] = 0
    k = 0
    while k + 4 <= depth:
        a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
        b0 = dense[row_at[k] + left :]
        b1 = dense[row_at[k + 1] + left :]
        b2 = dense[row_at[k + 2] + left :]
        b3 = dense[row_at[k + 3] + left :]
        for j in range(w):
            c[j] = c[j] + a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j]
        k += 4
    while k < depth:
        a0 = a[k]
        b0 = dense[row_at[k] + left :]
        for j in range(w):
            c[j] += a0 * b0[j]
        k += 1


@jit(fastmath={"contract", "reassoc"})
def multiply_narrow(
    acc, acc_start, acc_ld, begin, end, block_of, source, step, base, ld, blocks, dense, width
):
    """Do what `multiply` does for a few columns, with ``dense`` transposed.

    A term's values for column n start at ``dense[n * ld + source[g] * step + base]`` and stand
    side by side. Each element is a dot product along the block's row; "reassoc" lets it be summed
    in vector lanes.
    """
    bm, bk = blocks.shape[1], blocks.shape[2]
    a, size = blocks.reshape(-1), bm * bk
    for t in range(len(begin)):
        for g in range(begin[t], end[t]):
            p = np.int64(g if len(block_of) == 0 else block_of[g])
            x0 = np.int64(source[g]) * step + base
            for n in range(width):
                x = dense[n * ld + x0 : n * ld + x0 + bk]
                o = acc_start[t] + n
                for r in range(0, bm - 3, 4):
                    a0 = a[p * size + r * bk :]
                    a1 = a[p * size + (r + 1) * bk :]
                    a2 = a[p * size + (r + 2) * bk :]
                    a3 = a[p * size + (r + 3) * bk :]
                    s0 = s1 = s2 = s3 = a.dtype.type(0)
                    for k in range(bk):
                        s0 += a0[k] * x[k]
                        s1 += a1[k] * x[k]
                        s2 += a2[k] * x[k]
                        s3 += a3[k] * x[k]
                    acc[o + r * acc_ld] += s0
                    acc[o + (r + 1) * acc_ld] += s1
                    acc[o + (r + 2) * acc_ld] += s2
                    acc[o + (r + 3) * acc_ld] += s3
                for r in range(bm // 4 * 4, bm):
                    a0 = a[p * size + r * bk :]
                    s0 = a.dtype.type(0)
                    for k in range(bk):
                        s0 += a0[k] * x[k]
                    acc[o + r * acc_ld] += s0


@jit(fastmath={"contract", "reassoc"})
def dot_blocks(acc, rows, columns, bm, bn, a, a_ld, b, b_ld, depth):
    """Add to each block the dot products of ``bm`` rows of ``a`` with ``bn`` rows of ``b``.

    Block p of ``acc`` (flat (n, bm, bn)) meets rows ``rows[p] * bm...`` of ``a`` and
    ``columns[p] * bn...`` of ``b``: ``depth`` values each, ``a_ld`` and ``b_ld`` apart. Four
    rows with two at a time: 8 multiply-adds for 6 loads. At most 1,024 products go into one
    partial sum, which keeps 1,024 int8 products exact in float32.
    """
    zero = a.dtype.type(0)
    for p in range(len(rows)):
        a0 = np.int64(rows[p]) * bm * a_ld
        b0 = np.int64(columns[p]) * bn * b_ld
        for first in range(0, depth, 1024):
            w = min(1024, depth - first)
            for r in range(0, bm - 3, 4):
                i = a0 + r * a_ld + first
                x0 = a[i : i + w]
                x1 = a[i + a_ld : i + a_ld + w]
                x2 = a[i + 2 * a_ld : i + 2 * a_ld + w]
                x3 = a[i + 3 * a_ld : i + 3 * a_ld + w]
                o = (p * bm + r) * bn
                for c in range(0, bn - 1, 2):
                    j = b0 + c * b_ld + first
                    y0, y1 = b[j : j + w], b[j + b_ld : j + b_ld + w]
                    s00 = s10 = s20 = s30 = s01 = s11 = s21 = s31 = zero
                    for k in range(w):
                        s00 += x0[k] * y0[k]
                        s10 += x1[k] * y0[k]
                        s20 += x2[k] * y0[k]
                        s30 += x3[k] * y0[k]
                        s01 += x0[k] * y1[k]
                        s11 += x1[k] * y1[k]
                        s21 += x2[k] * y1[k]
                        s31 += x3[k] * y1[k]
                    acc[o + c] += s00
                    acc[o + c + 1] += s01
                    acc[o + bn + c] += s10
                    acc[o + bn + c + 1] += s11
                    acc[o + 2 * bn + c] += s20
                    acc[o + 2 * bn + c + 1] += s21
                    acc[o + 3 * bn + c] += s30
                    acc[o + 3 * bn + c + 1] += s31
                if bn % 2:
                    j = b0 + (bn - 1) * b_ld + first
                    y0 = b[j : j + w]
                    s00 = s10 = s20 = s30 = zero
                    for k in range(w):
                        s00 += x0[k] * y0[k]
                        s10 += x1[k] * y0[k]
                        s20 += x2[k] * y0[k]
                        s30 += x3[k] * y0[k]
                    acc[o + bn - 1] += s00
                    acc[o + 2 * bn - 1] += s10
                    acc[o + 3 * bn - 1] += s20
                    acc[o + 4 * bn - 1] += s30
            for r in range(bm // 4 * 4, bm):
                i = a0 + r * a_ld + first
                x0 = a[i : i + w]
                for c in range(bn):
                    j = b0 + c * b_ld + first
                    y0 = b[j : j + w]
                    s00 = zero
                    for k in range(w):
                        s00 += x0[k] * y0[k]
                    acc[(p * bm + r) * bn + c] += s00
