"""Index lists for `scatter_mm`, made by an engine from a pattern.

The three formats list the same products in the same order: output tiles by block row m, then
column split n, and for each tile the blocks of row m. With S = SPLIT_N and a block row that owns
the stored blocks c0..c1, the product of block p with column split n is entry

    S * c0 + n * (c1 - c0) + (p - c0)

of that list, so everything follows from p and n without a loop. Only block rows are sorted.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .._arrays import as_array, common_namespace, device_of, read_only
from .._checks import bad_type, bad_value, check_choice
from .._memo import Memo
from ..engines import engine_module
from ..pattern import Pattern
from ._canonical import distinct_pattern
from ._common import check_sparse, on_device

FORMATS = ("scatter_mm", "bsr_strided_mm", "bsr_strided_mm_compressed")

#: The arrays of each format, after its name and before the meta dictionary.
ARRAYS = {
    "scatter_mm": ("c_offsets", "pq"),
    "bsr_strided_mm": ("c_indices", "r_offsets", "p_offsets", "q_offsets"),
    "bsr_strided_mm_compressed": ("c_indices", "r_offsets", "q_offsets"),
}
META = ("SPLIT_N", "GROUP_SIZE", "TILE_M", "TILE_N")
#: Those that a kernel's tile is made by.
TILE = META[1:]
_TILE = frozenset(TILE)
#: The sides of a thread block's tile: powers of two, up to the largest block.
_TILES, _LARGEST_TILE = ("TILE_M", "TILE_N"), 256
#: More tiles than these share nothing by being next to each other in time.
_LARGEST_GROUP = 64
_NARROWEST_DEFAULT_TILE = 64


class Fit(NamedTuple):
    """Sizes that index lists fit; known for lists made here, so that these are not read."""

    blocks: int  # number of blocks, and their shape
    block_shape: tuple[int, int]
    inner: int  # K of the others, or how many others in the "scatter_mm" format
    columns: int | None  # N; None in the "scatter_mm" format, where any Ns fits
    split_n: int
    rows: int  # where the last tile ends: accumulators have at least so many rows
    longest: int  # no tile is the sum of more block products
    memo: Memo | None = None  # of the pieces of long sums; None: cut in each call

    def __reduce__(self) -> tuple:
        """Leave out the memo, which can be neither copied nor pickled."""
        return Fit, self[:-1]


class IndicesData(tuple):
    """An ``indices_data`` tuple made by `bsr_scatter_mm_indices_data`, in range by construction.

    The arrays are not to be written to. `scatter_mm` checks sizes against `fit` instead of
    reading them, and uses the arrays themselves, `arrays`: the tuple holds views of them, whose
    shape and dtype a caller may set. `meta` are the settings that they were made with. `pattern` is
    whose product they list, with distinct blocks; copies of the tuple do not know it, nor does the
    one that is kept with the pattern. Calls are recorded with the lists: `device` and `kept`, as a
    pattern has them.
    """

    fit: Fit
    arrays: dict[str, Any]
    meta: dict[str, int]
    device: int | None
    kept: dict[Hashable, Any]
    pattern: Pattern | None = None

    @classmethod
    def made(
        cls, fit: Fit, name: str, arrays: tuple[Any, ...], meta: dict[str, int]
    ) -> IndicesData:
        """Return the tuple over arrays that were made for it, read-only on the host."""
        fixed = tuple(map(read_only, arrays))
        in_tuple = () if name == "scatter_mm" else (meta,)
        lists = cls((name, *[array.view() for array in fixed], *in_tuple))
        named = dict(zip(ARRAYS[name], fixed, strict=True))
        lists.__setstate__({"fit": fit, "arrays": named, "meta": meta})
        return lists

    def given_out(self, pattern: Pattern) -> IndicesData:
        """Return the same arrays for a caller, who may change the meta dictionary beside them."""
        meta = [dict(self[-1])] if isinstance(self[-1], dict) else [self[-1]]
        other = IndicesData((*self[:-1], *meta))
        other.__dict__.update(self.__dict__, pattern=pattern)
        return other

    def is_product(self, pattern: Pattern, shape: tuple[int, ...]) -> bool:
        """Return whether they list a pattern's product with an array of a shape, as it was asked.

        That is with the settings that they were made with, and for no tile of a kernel.
        """
        last, meta, fit = self[-1], self.meta, self.fit
        if self.pattern is not pattern or not _TILE.isdisjoint(meta):
            return False
        if isinstance(last, dict) and last != meta:  # the caller changed it
            return False
        if fit.columns is not None:
            return shape[-2:] == (fit.inner, fit.columns)
        tiles = prod(shape[:-2]) * pattern.block_shape[1] * fit.split_n
        return len(shape) > 1 and shape[-1] % fit.split_n == 0 and tiles == fit.inner

    def __getstate__(self) -> dict[str, Any]:
        return {"fit": self.fit, "arrays": self.arrays, "meta": self.meta}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, kept={}, device=device_of(state["arrays"][ARRAYS[self[0]][0]]))


def bsr_scatter_mm_indices_data(
    bsr: Any,
    other: Any,
    indices_format: str = "bsr_strided_mm_compressed",
    *,
    SPLIT_N: int | None = None,
    GROUP_SIZE: int | None = None,
    TILE_M: int | None = None,
    TILE_N: int | None = None,
) -> tuple:
    """Return the index lists with which `scatter_mm` computes ``bsr @ other``.

    Built on the device without a host loop. The latest few are kept with the pattern: a second
    call for the same N, batch shape and meta does no device work.

    Parameters
    ----------
    bsr : bsr_array (M, K)
        Duplicate blocks are summed first: the lists number the blocks of the summed array.
        Without duplicates they number the blocks as stored, sorted or not.
    other : array (*B, K, N)
        Only its shape matters.
    indices_format : {"bsr_strided_mm_compressed", "bsr_strided_mm", "scatter_mm"}
        See `scatter_mm`. In the compressed format ``r_offsets`` holds the tiles with most blocks
        first (stable). Only block rows with blocks appear.
    SPLIT_N : int, optional
        The number of column splits, below 2**31, must divide N; the default does.
    GROUP_SIZE, TILE_M, TILE_N : int, optional
        ``TILE_M`` and ``TILE_N``, powers of two up to 256, are the outputs of a thread block of
        `scatter_mm`'s kernels, ``GROUP_SIZE``, in 1..64, the rows of such parts that go through a
        tile's columns together. A kernel that cannot have such a part refuses the lists. By
        default the kernels choose.

    Returns
    -------
    tuple
        ``(indices_format, ...)``; int64 arrays.

    Raises
    ------
    ValueError
        Another format; N not a multiple of SPLIT_N; a tile or group that cannot be; a batched
        ``bsr``.
    TypeError
        Settings that are no integers; mixed array libraries.

    Notes
    -----
    The formats are those of PyTorch's ``torch.sparse._triton_ops.bsr_scatter_mm_indices_data``.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> name, c, r, q, meta = sparsegpu.bsr_scatter_mm_indices_data(A, np.ones((4, 6)), SPLIT_N=2)
    >>> c.tolist(), r.tolist(), q.tolist()
    ([0, 1, 2], [0, 3, 12, 15], [0, 3, 12, 15])
    """
    function = "bsr_scatter_mm_indices_data"
    check_sparse(function, "bsr", bsr)
    other = as_array(other, function, "other")
    common_namespace(function, bsr=bsr.data, other=other)
    check_choice(function, "indices_format", indices_format, FORMATS)
    check_product(function, bsr.pattern, other)
    asked = zip(META, (SPLIT_N, GROUP_SIZE, TILE_M, TILE_N), strict=True)
    settings: dict[str, int] = {}
    for name, value in asked:
        if value is not None:
            check_setting(function, name, value)
            settings[name] = int(value)
    n = int(other.shape[-1])
    if "SPLIT_N" not in settings:
        settings["SPLIT_N"] = _default_split(indices_format, n, bsr.pattern.blocksize[0])
    elif n % settings["SPLIT_N"]:
        raise bad_value(function, "SPLIT_N", f"a divisor of N = {n}", settings["SPLIT_N"])
    elif settings["SPLIT_N"] >= 2**31:  # of no columns
        raise bad_value(function, "SPLIT_N", "less than 2**31", settings["SPLIT_N"])
    # The strided formats are the same for any batch.
    by_batch = indices_format == "scatter_mm"
    batch_size = int(np.prod(other.shape[:-2], dtype=np.int64)) if by_batch else 1
    with on_device(bsr.data):
        kept = _lists(bsr.pattern, indices_format, n, batch_size, settings, function)
        pattern = distinct_pattern(bsr.pattern, function, "bsr")
    return kept.given_out(pattern)


def check_setting(function: str, name: str, value: Any) -> None:
    """Refuse a value that one of the names in ``meta`` cannot have."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise bad_type(function, name, "an integer", type(value).__name__)
    if value < 1:
        raise bad_value(function, name, "a positive integer", value)
    if name in _TILES and (value > _LARGEST_TILE or value & (value - 1)):
        raise bad_value(function, name, f"a power of two up to {_LARGEST_TILE}", value)
    if name == "GROUP_SIZE" and value > _LARGEST_GROUP:
        raise bad_value(function, name, f"an integer in 1..{_LARGEST_GROUP}", value)


def check_product(function: str, pattern: Pattern, other: Any) -> None:
    """Refuse operands of ``bsr @ other`` that `scatter_mm` does not take."""
    if pattern.batch_shape:
        raise bad_value(function, "bsr", "one matrix (M, K)", f"a batch {pattern.batch_shape}")
    k = pattern.shape[1]
    if other.ndim < 2 or other.shape[-2] != k:
        raise bad_value(function, "other", f"shape (*batch, {k}, N)", tuple(other.shape))


def _default_split(indices_format: str, n: int, ms: int) -> int:
    """Return a number of column splits that divides N."""
    if indices_format == "scatter_mm" and n >= ms and n % (n // ms) == 0:
        return n // ms
    # The narrowest tiles that are wide enough for a thread block.
    most = n // _NARROWEST_DEFAULT_TILE
    for split in range(most, 1, -1):
        if n % split == 0:
            return split
    return 1


def _lists(
    pattern: Pattern,
    indices_format: str,
    n: int,
    batch_size: int,
    settings: dict[str, int],
    function: str,
) -> IndicesData:
    """Return the lists of a pattern's distinct blocks, which are kept with it."""

    def build() -> IndicesData:
        engine = engine_module(pattern.xp, "scatter_indices", function)
        split = settings["SPLIT_N"]
        arrays, end = engine.index_lists(pattern, indices_format, n, split, batch_size)
        # Making them told whether blocks are repeated. Lists of such blocks are of no use.
        distinct = distinct_pattern(pattern, function, "bsr")
        if distinct is not pattern:
            return _lists(distinct, indices_format, n, batch_size, settings, function)
        return _made(pattern, end, indices_format, n, batch_size, settings, arrays)

    key = (indices_format, n, batch_size, tuple(sorted(settings.items())))
    return pattern.memo_recent("scatter_mm", key, build)


def _made(
    pattern: Pattern,
    end: int,
    indices_format: str,
    n: int,
    batch_size: int,
    meta: dict[str, int],
    arrays: tuple[Any, ...],
) -> IndicesData:
    split, sizes = meta["SPLIT_N"], (pattern.nnzb, pattern.blocksize)
    if indices_format == "scatter_mm":
        inner, tiles = batch_size * pattern.block_shape[1] * split, len(arrays[0]) - 1
        fit = Fit(*sizes, inner, None, split, tiles, pattern.longest_row, Memo(pattern.xp))
    else:
        rows = end * pattern.blocksize[0]
        fit = Fit(*sizes, pattern.shape[1], n, split, rows, pattern.longest_row, Memo(pattern.xp))
    return IndicesData.made(fit, indices_format, arrays, meta)
