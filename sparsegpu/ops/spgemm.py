"""Sparse times sparse: a plan says which blocks meet, the engine multiplies them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import common_namespace
from .._checks import bad_value, broadcast_shape, check_element_count
from ..engines import check_config, computing_engine, engine_module
from ..engines._pairs import block_pairs
from ..engines.cuda.runtime.replay import Call
from ..pattern import Pattern
from ._canonical import check_out_pattern
from ._common import check_operand_dtypes, check_sparse, on_device, prepare_out, resolve_out_dtype
from ._long_scatter import add_pairs, cut_pairs
from ._long_sums import may_be_long

_INT8 = np.dtype(np.int8)


def bsr_spgemm(
    a: Any,
    b: Any,
    *,
    out_dtype: Any = None,
    out: Any = None,
    config: dict[str, Any] | None = None,
) -> Any:
    """Return the product of two block-sparse matrices, block-sparse (``a @ b``).

    Parameters
    ----------
    a : bsr_array (*B, M, K), blocks (bm, bk)
    b : bsr_array (*B, K, N), blocks (bk, bn)
        Same dtype; batch shapes broadcast. Unsorted and duplicate blocks are taken as they are.
    out_dtype : dtype, optional
        As in `bsr_addmm`.
    out : bsr_array, optional
        With the pattern of the result: that of an earlier result of the same patterns is it, any
        other is compared, which waits for the device. Its dtype is the output dtype.
    config : dict, optional
        Which kernel computes it on a GPU, as in `bsr_addmm`.

    Returns
    -------
    bsr_array (*B, M, N), blocks (bm, bn)
        Canonical. A block is stored wherever two blocks are multiplied, even if products cancel.
        Each is summed in accumulator precision and rounded once; int8 operands give int32.
        ``out`` when given.

    Raises
    ------
    ValueError
        Shapes or block sizes that do not fit (`bsr_array.tobsr` changes the latter); batches whose
        results store different numbers of blocks; ``out`` with another pattern, or with memory of
        an operand; a ``config`` that these operands cannot have.
    TypeError
        Mixed dtypes or array libraries; ``out`` of another dtype than ``out_dtype`` says.

    Notes
    -----
    The first product of two patterns finds the pattern of the result and which blocks meet. This
    is kept with the pair of patterns as long as both live, so that their next product only
    multiplies, without waiting for the device. A left pattern keeps this for the latest sixteen
    right ones.

    Finding them goes row by row, as in Gustavson, "Two fast algorithms for sparse matrices:
    multiplication and permuted transposition", ACM TOMS 4 (1978), on block positions.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> C = sparsegpu.bsr_spgemm(A, A)
    >>> C.toarray().diagonal()
    array([ 1.,  4.,  9., 16.])
    >>> sparsegpu.bsr_spgemm(A, 2 * A, out=C) is C
    True
    >>> C.toarray().diagonal()
    array([ 2.,  8., 18., 32.])
    """
    return spgemm("bsr_spgemm", ("a", "b"), a, b, out_dtype, out, config)


def spgemm(
    function: str,
    names: tuple[str, str],
    a: Any,
    b: Any,
    out_dtype: Any = None,
    out: Any = None,
    config: dict[str, Any] | None = None,
) -> Any:
    """Do `bsr_spgemm` for a caller of another name, with names of its own for the operands."""
    check_sparse(function, names[0], a)
    check_sparse(function, names[1], b)
    if out is not None:
        check_sparse(function, "out", out)
    out_data = None if out is None else out.data
    left, right = a.pattern, b.pattern
    kind = "spgemm", computing_engine(left.xp), a.data.dtype == _INT8
    plan = left.known_with(kind, right)
    call = None
    if plan is not None:
        own_pattern = out is None or out.pattern is plan.pattern  # else its indices are compared
        settings = own_pattern, out_dtype, None if config is None else repr(config)
        call = Call(function, plan, (a.data, b.data, out_data), settings, out_data)
        replayed = call.replay()
        if replayed is not None:
            return out if out is not None else a._with(plan.pattern, *replayed)
    xp = common_namespace(function, **dict(zip(names, (a.data, b.data))), out=out_data)
    check_operand_dtypes(function, names, a.data.dtype, b.data.dtype)
    check_config("bsr_spgemm", config, function)
    dtype = resolve_out_dtype(function, a.data.dtype, out_data, out_dtype)
    batch = _check_sizes(function, names, left, right)
    with on_device(a.data, plan, call):
        engine = engine_module(xp, "spgemm", function)
        if plan is None:

            def make() -> Any:
                made = engine.plan(left, right, batch, kind[2], function, names[1])
                made.pattern.follow(left, right)
                return made

            plan = left.memo_with(kind, right, make)
        if out is not None:
            check_out_pattern(function, out, plan.pattern)
        result = prepare_out(
            function,
            out_data,
            plan.pattern.data_shape,
            dtype,
            xp,
            operands=dict(zip(names, (a.data, b.data))),
        )
        if result.size and may_be_long(a.data.dtype, plan.longest, left.blocksize[1]):
            _add_long(result, a, b, function, names[1])
        elif result.size:
            dense = result.flags.c_contiguous
            written = result if dense else xp.empty(result.shape, dtype)
            engine.spgemm(written, plan, left, a.data, right, b.data, config=config)
            if not dense:
                result[...] = written
            elif call is not None and own_pattern:
                call.keep(result)
    return out if out is not None else a._with(plan.pattern, result)


def _check_sizes(
    function: str, names: tuple[str, str], left: Pattern, right: Pattern
) -> tuple[int, ...]:
    """Refuse patterns that do not fit; return the batch shape of the result."""
    if left.shape[1] != right.shape[0]:
        raise bad_value(function, names[1], f"shape ({left.shape[1]}, N)", right.shape)
    inner = left.blocksize[1]
    if inner != right.blocksize[0]:
        expected = (
            f"a block size of ({inner}, bn) like the columns of '{names[0]}' "
            f"(tobsr(blocksize=...) changes that of either)"
        )
        raise bad_value(function, names[1], expected, right.blocksize)
    batch = broadcast_shape(function, names[1], left.batch_shape, right.batch_shape)
    check_element_count(function, names[1], (*batch, left.shape[0], right.shape[1]))
    return batch


def _add_long(result: Any, a: Any, b: Any, function: str, argument: str) -> None:
    """Write a product of int8 with sums that int32 does not hold, from a list of its pairs."""
    xp, pattern, right = a.pattern.xp, a.pattern, b.pattern
    batch = result.shape[:-3]
    _, c_offsets, pq = block_pairs(pattern, right, batch, function, argument)
    engine = engine_module(xp, "scatter_mm", function)
    sums = xp.zeros((len(c_offsets) - 1, *result.shape[-2:]), result.dtype)
    blocks, others = (x.data.reshape(-1, *x.pattern.blocksize) for x in (a, b))
    add_pairs(engine, sums, blocks, others, cut_pairs(c_offsets, pattern.blocksize[1]), pq)
    result[...] = sums.reshape(result.shape)
