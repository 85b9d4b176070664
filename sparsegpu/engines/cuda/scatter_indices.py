"""Index lists of `ops.scatter_mm` for a pattern on the device: a launch for its rows, one for them.

The host waits once, behind both, for the numbers that the lengths of the lists depend on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._math import ceil_div
from ...pattern import Pattern
from ._grid import THREADS, grid
from ._schedule import RANKED
from .runtime.launch import NULL, Launch, Memset, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.types import ctype

_INT64 = np.dtype(np.int64)
#: How ``-DFORMAT`` calls the formats.
_FORMS = {
    "scatter_mm": "pairs",
    "bsr_strided_mm": "strided",
    "bsr_strided_mm_compressed": "compressed",
}


def filled_rows(pattern: Pattern) -> tuple[Any, Any, int]:
    """Return the block rows that have blocks: ascending, with most blocks first, and their end.

    What else is seen of the pattern on the way is kept with it: whether columns ascend, and the
    length of the longest row.
    """
    if not pattern.nnzb:
        nothing = pattern.xp.empty(0, _INT64)
        return nothing, nothing, 0
    return _read(pattern, *_find_rows(pattern))


def _find_rows(pattern: Pattern) -> tuple[Any, Any, Any]:
    """Return the rows in arrays that may be too long, and what one reading of the pattern tells."""
    xp, block_rows = pattern.xp, pattern.block_shape[0]
    ranked = block_rows <= RANKED
    ascending, most_first = (xp.empty(block_rows if ranked else 0, _INT64) for _ in range(2))
    facts = xp.empty(5, _INT64)
    launch = Launch(
        kernel("bsr_filled_rows", INDEX=ctype(pattern._indices.dtype), RANKED=int(ranked)),
        grid(ceil_div(block_rows, THREADS // 32)),
        (THREADS,),
        (ascending, most_first, facts, pattern._indptr, pattern._indices, np.int64(block_rows)),
    )
    submit(Memset(facts), launch, setup=True)
    return ascending, most_first, facts


def _read(pattern: Pattern, ascending: Any, most_first: Any, facts: Any) -> tuple[Any, Any, int]:
    """Wait for what `_find_rows` finds and return what `filled_rows` does."""
    xp, block_rows = pattern.xp, pattern.block_shape[0]
    filled, end, longest, falls, repeats = facts.tolist()
    pattern.note("order", (not falls, not (falls or repeats)))
    pattern.note("longest row", longest)
    if block_rows > RANKED:
        counts = xp.diff(pattern._indptr)
        ascending = xp.flatnonzero(counts).astype(_INT64, copy=False)
        # ~ reverses the order, and unlike - it does so for all integers.
        most_first = ascending[xp.argsort(~counts[ascending], kind="stable")]
    if filled < block_rows:
        ascending, most_first = ascending[:filled], most_first[:filled]
    return ascending, most_first, end


def index_lists(
    pattern: Pattern,
    rows: tuple[Any, Any, int] | None,
    indices_format: str,
    n: int,
    split_n: int,
    batch_size: int,
) -> tuple[tuple[Any, Any, int], tuple[Any, ...]]:
    """Return `filled_rows`, those given or else found now, and the arrays of a format.

    The lists are for others of ``n`` columns.
    """
    xp, nnzb, form = pattern.xp, pattern.nnzb, _FORMS[indices_format]
    (ms, ks), (block_rows, inner) = pattern.blocksize, pattern.block_shape
    if rows is None and (not nnzb or block_rows > RANKED):
        rows = filled_rows(pattern)
    facts = None
    if rows is None:
        ascending, most_first, facts = _find_rows(pattern)
        filled = min(block_rows, nnzb)  # at most
    else:
        ascending, most_first, _ = rows
        filled = ascending.size
    tiles, entries = filled * split_n, nnzb * split_n
    starts = block_rows if form == "compressed" else tiles * batch_size
    shapes: dict[str, tuple[int, ...]] = {"starts": (starts + 1,)}
    if form == "pairs":
        shapes["p_offsets"] = entries * batch_size, 2
    else:
        shapes["r_offsets"] = (tiles,)
        if form == "strided":
            shapes["p_offsets"] = (entries,)
        shapes["q_offsets"] = (entries,)
    if not nnzb:
        assert rows is not None  # found above
        return rows, tuple(xp.zeros(shape, _INT64) for shape in shapes.values())
    lists = {name: xp.empty(shape, _INT64) for name, shape in shapes.items()}
    problem = kernel_struct("scatter_indices", "ListProblem")(
        block_rows=block_rows,
        nnzb=nnzb,
        filled=filled,
        batches=batch_size,
        inner=inner,
        n=n,
        ms=ms,
        ks=ks,
        ns=n // split_n,
        split=split_n,
    )
    written = (lists.get(x, NULL) for x in ("starts", "r_offsets", "p_offsets", "q_offsets"))
    read = (most_first if form == "compressed" else ascending, NULL if facts is None else facts)
    launch = Launch(
        kernel("scatter_indices", FORMAT=form, INDEX=ctype(pattern._indices.dtype)),
        grid(ceil_div(max(entries, block_rows + 1), THREADS)),
        (THREADS,),
        (*written, *read, pattern._indptr, pattern._indices, problem),
    )
    submit(launch, setup=True)
    if rows is None:
        rows = _read(pattern, ascending, most_first, facts)
        tiles = rows[0].size * split_n
        if "r_offsets" in lists:
            lists["r_offsets"] = lists["r_offsets"][:tiles]
        if form != "compressed":
            lists["starts"] = lists["starts"][: tiles * batch_size + 1]
    return rows, tuple(lists.values())
