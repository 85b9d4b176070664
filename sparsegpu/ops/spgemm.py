"""Sparse times sparse: index arithmetic pairs the blocks, `scatter_mm` multiplies the pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import check_may_wait, common_namespace
from .._checks import bad_value, broadcast_shape, check_element_count
from .._segments import expand_counts, starts_run
from ..engines import computing_engine, engine_module
from ..pattern import Pattern, from_sorted_keys, keys_per_batch
from ._common import check_operand_dtypes, check_sparse, on_device, resolve_out_dtype
from ._long_scatter import add_pairs, cut_pairs
from ._long_sums import may_be_long


def bsr_spgemm(a: Any, b: Any, *, out_dtype: Any = None) -> Any:
    """Return the product of two block-sparse matrices, block-sparse (``a @ b``).

    Parameters
    ----------
    a : bsr_array (*B, M, K), blocks (bm, bk)
    b : bsr_array (*B, K, N), blocks (bk, bn)
        Same dtype; batch shapes broadcast. Unsorted and duplicate blocks are taken as they are.
    out_dtype : dtype, optional
        As in `bsr_addmm`.

    Returns
    -------
    bsr_array (*B, M, N), blocks (bm, bn)
        Canonical. A block is stored wherever two blocks are multiplied, even if products cancel.
        Each is summed in accumulator precision and rounded once; int8 operands give int32.

    Raises
    ------
    ValueError
        Shapes or block sizes that do not fit; batches whose results store different numbers of
        blocks.
    TypeError
        Mixed dtypes or array libraries.

    Notes
    -----
    Expansion, sorting and compression, as in Bell, Dalton and Olson, "Exposing fine-grained
    parallelism in algebraic multigrid methods", SIAM J. Sci. Comput. 34 (2012), section 4.2, on
    block positions. The number of blocks is read by the host, so this synchronises.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> sparsegpu.bsr_spgemm(A, A).toarray().diagonal()
    array([ 1.,  4.,  9., 16.])
    """
    return spgemm("bsr_spgemm", ("a", "b"), a, b, out_dtype)


def spgemm(function: str, names: tuple[str, str], a: Any, b: Any, out_dtype: Any = None) -> Any:
    """Do `bsr_spgemm` for a caller of another name, with names of its own for the operands."""
    check_sparse(function, names[0], a)
    check_sparse(function, names[1], b)
    xp = common_namespace(function, **dict(zip(names, (a.data, b.data))))
    check_operand_dtypes(function, names, a.data.dtype, b.data.dtype)
    dtype = resolve_out_dtype(function, a.data.dtype, None, out_dtype)
    left, right = a.pattern, b.pattern
    if left.shape[1] != right.shape[0]:
        raise bad_value(function, names[1], f"shape ({left.shape[1]}, N)", right.shape)
    if left.blocksize[1] != right.blocksize[0]:
        expected = f"a block size of ({left.blocksize[1]}, bn) like the columns of '{names[0]}'"
        raise bad_value(function, names[1], expected, right.blocksize)
    batch = broadcast_shape(function, names[1], left.batch_shape, right.batch_shape)
    check_element_count(function, names[1], (*batch, left.shape[0], right.shape[1]))
    with on_device(a.data):
        check_may_wait(xp, function)
        if computing_engine(xp) == "cpu" and not batch and a.data.dtype != np.int8:
            engine = engine_module(xp, "spgemm", function)
            return a._with(*engine.spgemm(left, a.data, right, b.data, dtype))
        pattern, c_offsets, pq = block_pairs(left, right, batch, function, names[1])
        data = xp.zeros((*batch, pattern.nnzb, *pattern.blocksize), dtype)
        if data.size and pq.size:
            engine = engine_module(xp, "scatter_mm", function)
            result = data.reshape(-1, *pattern.blocksize)
            blocks = a.data.reshape(-1, *left.blocksize)
            others = b.data.reshape(-1, *right.blocksize)
            ks = left.blocksize[1]
            long = may_be_long(blocks.dtype, len(pq), ks) and may_be_long(
                blocks.dtype, int(xp.diff(c_offsets).max()), ks
            )
            if long:
                add_pairs(engine, result, blocks, others, cut_pairs(c_offsets, ks), pq)
            else:
                engine.scatter_mm(result, blocks, others, c_offsets, pq)
    return a._with(pattern, data)


def block_pairs(
    left: Pattern, right: Pattern, batch: tuple[int, ...], function: str, argument: str
) -> tuple[Pattern, Any, Any]:
    """Return the product's pattern and, for each of its blocks, the pairs of blocks to multiply.

    Returns
    -------
    pattern : Pattern
        Canonical, with batch shape ``batch``.
    c_offsets : int64 array (batch * nnzb + 1,)
    pq : int64 array (pairs, 2)
        Result block r is the sum over ``pq[c_offsets[r]:c_offsets[r + 1]]`` of left block p times
        right block q, both numbered through their own flattened batches.
    """
    xp = left.xp
    (m, _), (_, n) = left.shape, right.shape
    blocksize = left.blocksize[0], right.blocksize[1]
    block_rows, block_cols = left.block_shape[0], right.block_shape[1]
    size = int(np.prod(batch, dtype=np.int64))
    of_left, of_right = (_batch_numbers(p, batch) for p in (left, right))

    # Every left block, matrix by matrix: its number p, its row, and its column, a right row.
    matrix = xp.arange(size * left.nnzb, dtype=np.int64) // max(left.nnzb, 1)
    p = of_left[matrix] * left.nnzb + xp.arange(matrix.size, dtype=np.int64) % max(left.nnzb, 1)
    row = left.rows.ravel()[p].astype(np.int64)
    met = left.indices.ravel()[p].astype(np.int64)

    # Expand: left block p is multiplied by the right blocks first..first + count of that row.
    indptr = right.indptr.reshape(-1).astype(np.int64)
    place = of_right[matrix] * (right.block_shape[0] + 1) + met
    first, count = indptr[place], indptr[place + 1] - indptr[place]
    meets, number = expand_counts(count)
    q = of_right[matrix[meets]] * right.nnzb + first[meets] + number
    column = right.indices.ravel()[q].astype(np.int64)
    key = (matrix[meets] * block_rows + row[meets]) * block_cols + column

    # Sort and compress: pairs with equal keys add to one block of the result.
    order = xp.argsort(key, kind="stable")
    key = key[order]
    starts = xp.flatnonzero(starts_run(key))
    kept = key[starts]
    blocks = block_rows * block_cols
    nnzb = keys_per_batch(kept, batch, blocks, function, argument) if size else 0
    pattern = from_sorted_keys(kept, batch, nnzb, (m, n), blocksize)
    end = xp.full((1,), key.size, dtype=np.int64)
    pq = xp.stack([p[meets][order], q[order]], axis=1)
    return pattern, xp.concatenate([starts.astype(np.int64), end]), pq


def _batch_numbers(pattern: Pattern, batch: tuple[int, ...]) -> Any:
    """Return, for every matrix of the result, the number of the matrix it comes from."""
    xp = pattern.xp
    own = xp.arange(pattern.batch_size, dtype=np.int64).reshape(pattern.batch_shape)
    return xp.broadcast_to(own, batch).ravel()
