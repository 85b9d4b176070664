"""Values over the union of two block patterns, which ``bsr_union_rows`` finds row by row.

The union is kept with the two patterns while both live: the same patterns again cost the launch of
``bsr_union_blocks``, and the host waits for nothing.
"""

from __future__ import annotations

from math import gcd
from typing import Any, NamedTuple

import numpy as np

from ..._arrays import index_dtype
from ..._checks import bad_value
from ..._math import ceil_div
from ...pattern import Pattern
from ._grid import THREADS, grid
from ._spgemm_plan import ends_launch
from .runtime.launch import NULL, Launch, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.submission import current
from .runtime.types import ctype

_ROWS_AT_ONCE = 4  # of a thread block, one a warp
_VECTORS = 2048  # that a thread block writes at a time, when a block is smaller
_VECTOR_BYTES = 16
_INT64 = np.dtype(np.int64)


class Union(NamedTuple):
    """The union of two patterns.

    Attributes
    ----------
    pattern : Pattern
        Canonical.
    of_left, of_right : array (batch * nnzb,)
        The number of each block in the left and in the right pattern, counted over the batch; -1
        where it stores none.
    """

    pattern: Pattern
    of_left: Any
    of_right: Any


def combine(
    left: Pattern, a: Any, right: Pattern, b: Any, sign: int, function: str
) -> tuple[Pattern, Any]:
    """Return the union of two canonical patterns of one batch shape, and ``a + sign * b`` over it.

    Blocks of one size and dtype; ``sign`` is 1 or -1.

    Raises
    ------
    ValueError
        Where the matrices of a batch would store different numbers of blocks.
    """
    union = _union(left, right, function)
    operation = "sum" if sign > 0 else "difference"
    data = _blocks(union.pattern, operation, a, union.of_left, b, union.of_right)
    return union.pattern, data


def side_by_side(
    left: Pattern, a: Any, right: Pattern, b: Any, function: str
) -> tuple[Pattern, Any, Any]:
    """Return the union as `combine` does, and over it ``a`` and ``b``, with zeros elsewhere."""
    pattern, of_left, of_right = _union(left, right, function)
    return pattern, _blocks(pattern, "left", a, of_left), _blocks(pattern, "left", b, of_right)


def _blocks(
    pattern: Pattern, operation: str, a: Any, of_a: Any, b: Any = None, of_b: Any = None
) -> Any:
    """Return values over the union, as ``cuda_src/bsr_union_blocks.cu`` says."""
    xp = pattern.xp
    out = xp.empty(pattern.data_shape, a.dtype)
    if not out.size:
        return out
    values = [x if x.flags.c_contiguous else x.copy() for x in (a, b) if x is not None]
    area = pattern.blocksize[0] * pattern.blocksize[1]
    wide = gcd(area, max(_VECTOR_BYTES // a.itemsize, 1))
    if any(x.data.ptr % (wide * a.itemsize) for x in values):
        wide = 1
    count, per_item = of_a.size, max(1, _VECTORS * wide // area)
    items = ceil_div(count, per_item)
    launch = Launch(
        kernel(
            "bsr_union_blocks",
            T=ctype(a.dtype),
            OPERATION=operation,
            NUMBER=ctype(of_a.dtype),
            WIDE=wide,
        ),
        grid(items),
        (THREADS,),
        (
            *(out, values[0], of_a),
            *((NULL, NULL) if of_b is None else (values[1], of_b)),
            *map(np.int64, (count, items)),
            *map(np.int32, (per_item, area // wide)),
        ),
    )
    submit(launch)
    return out


def _union(left: Pattern, right: Pattern, function: str) -> Union:
    kept: Union = left.memo_with("union", right, lambda: _find(left, right, function))
    submission = current()
    if submission is not None:  # a graph reads it for longer than the patterns may keep it
        submission.keep(kept)
    return kept


def _find(left: Pattern, right: Pattern, function: str) -> Union:
    """Find the union; the host waits for the device once, for its size."""
    xp, (block_rows, columns) = left.xp, left.block_shape
    rows, batch = left.batch_size * block_rows, left.batch_shape
    wide = np.promote_types(left._indices.dtype, right._indices.dtype)
    number = index_dtype(max(left._indices.size, right._indices.size))
    arrays = [x.astype(wide, copy=False) for p in (left, right) for x in (p._indptr, p._indices)]

    def rows_launch(fill: int, nnzb: int, out_index: np.dtype, *results: Any) -> Launch:
        source = "bsr_union_rows"
        problem = kernel_struct(source, "UnionRows")(
            rows=rows,
            block_rows=block_rows,
            left_nnzb=left.nnzb,
            right_nnzb=right.nnzb,
            out_nnzb=nnzb,
        )
        names = {"FILL": fill, "INDEX": ctype(wide), "OUT_INDEX": ctype(out_index)}
        return Launch(
            kernel(source, **names, NUMBER=ctype(number)),
            grid(ceil_div(rows, _ROWS_AT_ONCE)),
            (32 * _ROWS_AT_ONCE,),
            (*results, *arrays, problem),
        )

    nnzb = 0
    if rows and (left.nnzb or right.nnzb):
        block_ends, common = (xp.empty(rows, _INT64) for _ in range(2))
        facts = xp.empty(4, _INT64)
        count = rows_launch(0, 0, wide, block_ends, common, *(NULL,) * 5)
        ends = ends_launch(block_ends, common, facts, rows, block_rows)
        submit(count, ends, setup=True)
        nnzb, most, _, _ = facts.tolist()
        if nnzb != most:
            expected = "the same number of stored blocks in every batch"
            raise bad_value(function, "other", expected, f"between {nnzb} and {most}")
    dtype = index_dtype(max(nnzb, block_rows, columns))
    memory = xp.empty if nnzb else xp.zeros  # without blocks nothing is written
    indptr, indices = memory((*batch, block_rows + 1), dtype), xp.empty((*batch, nnzb), dtype)
    of_left, of_right = (xp.empty(indices.size, number) for _ in range(2))
    pattern = Pattern(indptr, indices, left.shape, left.blocksize, check=False, copy=False)
    pattern.note("order", (True, True))
    pattern.follow(left, right)
    if nnzb:
        results = (NULL, NULL, pattern._indices, pattern._indptr, block_ends, of_left, of_right)
        submit(rows_launch(1, nnzb, dtype, *results), setup=True)
    return Union(pattern, of_left, of_right)
