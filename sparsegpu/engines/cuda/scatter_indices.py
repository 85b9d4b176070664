"""Index lists of `ops.scatter_mm` for a pattern on the device, by one launch.

The host waits once a pattern, behind the launch, for the numbers that the lengths of the lists
depend on. Only where block rows are so many that they are sorted, it waits for that, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._math import ceil_div
from ...pattern import Pattern
from ._grid import THREADS, grid
from ._host_numbers import HostNumbers
from ._schedule import RANKED
from .runtime.launch import NULL, Launch, kernel, submit
from .runtime.structs import kernel_struct
from .runtime.types import ctype

_INT64 = np.dtype(np.int64)
#: How ``-DFORMAT`` calls the formats.
_FORMS = {
    "scatter_mm": "pairs",
    "bsr_strided_mm": "strided",
    "bsr_strided_mm_compressed": "compressed",
}
#: The lists as the kernel takes them.
_LISTS = ("starts", "r_offsets", "p_offsets", "q_offsets")
#: What is kept with a pattern: how many block rows have blocks, and the last one's number + 1.
_FILLED = "filled rows"


def index_lists(
    pattern: Pattern, indices_format: str, n: int, split_n: int, batch_size: int
) -> tuple[tuple[Any, ...], int]:
    """Return the arrays of a format, and where the block rows that have blocks end.

    The lists are for others of ``n`` columns. What else is seen of the pattern on the way is kept
    with it: whether columns ascend, and the length of the longest row.
    """
    xp, nnzb, form = pattern.xp, pattern.nnzb, _FORMS[indices_format]
    (ms, ks), (block_rows, inner) = pattern.blocksize, pattern.block_shape
    known = pattern.known(_FILLED)
    filled = known[0] if known else min(block_rows, nnzb)  # at most
    tiles, entries = filled * split_n, nnzb * split_n
    starts = block_rows if form == "compressed" else tiles * batch_size
    shapes: dict[str, int | tuple[int, int]] = {"starts": starts + 1}
    if form == "pairs":
        shapes["p_offsets"] = entries * batch_size, 2
    else:
        shapes["r_offsets"] = tiles
        if form == "strided":
            shapes["p_offsets"] = entries
        shapes["q_offsets"] = entries
    if not nnzb:
        return tuple(xp.zeros(shape, _INT64) for shape in shapes.values()), 0
    lists = {name: xp.ndarray(shape, _INT64) for name, shape in shapes.items()}
    rows, longest = None, None
    if block_rows > RANKED:
        rows, longest = _sorted_rows(pattern, form == "compressed")
    facts = None if known else HostNumbers()
    problem = kernel_struct("scatter_indices", "ListProblem")(
        block_rows=block_rows,
        nnzb=nnzb,
        listed=0 if rows is None else rows.size,
        batches=batch_size,
        inner=inner,
        n=n,
        ms=ms,
        ks=ks,
        ns=n // split_n,
        split=split_n,
    )
    launch = Launch(
        kernel("scatter_indices", FORMAT=form, INDEX=ctype(pattern._indices.dtype)),
        grid(ceil_div(max(entries, 32 * block_rows), THREADS)),  # a thread an entry, a warp a row
        (THREADS,),
        (
            *[lists.get(name, NULL) for name in _LISTS],
            NULL if facts is None else facts.pointer,
            NULL if rows is None else rows,
            NULL if longest is None else longest,
            pattern._indptr,
            pattern._indices,
            problem,
        ),
    )
    submit(*([] if facts is None else [facts]), launch, setup=True)
    if facts is not None:
        known = _read(pattern, facts)
        if known[0] < filled:
            tiles = known[0] * split_n
            if form != "compressed":
                lists["starts"] = lists["starts"][: tiles * batch_size + 1]
            if form != "pairs":
                lists["r_offsets"] = lists["r_offsets"][:tiles]
    return tuple(lists.values()), known[1]


def _read(pattern: Pattern, facts: HostNumbers) -> tuple[int, int]:
    """Wait for what the kernel tells of a pattern, keep it, and return what `_FILLED` names."""
    filled, end, longest, falls, repeats = facts.wait()
    pattern.note("order", (not falls, not (falls or repeats)))
    pattern.note("longest row", longest)
    pattern.note(_FILLED, (filled, end))
    return filled, end


def _sorted_rows(pattern: Pattern, most_first: bool) -> tuple[Any, Any]:
    """Return the block rows with blocks, ascending or with most blocks first; kept with it.

    Also the length of the longest, an array of one number.
    """
    xp = pattern.xp

    def build() -> tuple[Any, Any]:
        counts = xp.diff(pattern._indptr)
        rows = xp.flatnonzero(counts).astype(_INT64, copy=False)
        if most_first:  # ~ reverses the order, and unlike - it does so for all integers
            rows = rows[xp.argsort(~counts[rows], kind="stable")]
        return rows, counts.max(keepdims=True)

    return pattern.memo((_FILLED, most_first), build)
