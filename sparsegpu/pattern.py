"""The immutable block pattern: the positions of the blocks of a block-sparse matrix.

A pattern holds no values, so that many arrays can share one. What an engine derives from it, such
as a schedule, is computed once and kept in the pattern's memo. All index arithmetic here is
written once for NumPy and CuPy and has no loop over blocks.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ._arrays import (
    cast_indices,
    check_may_wait,
    device_of,
    index_dtype,
    namespace,
    read_only,
)
from ._checks import check_blocksize, check_element_count, check_sizes
from ._device import device_context
from ._indices import ascend, check_contents, check_metadata, keys_per_batch
from ._memo import Memo
from ._segments import starts_run


class Pattern(Memo):
    """Block positions of a BSR matrix, or of a batch of them.

    Its properties return views: setting the shape or dtype of a view does not affect the pattern.
    Engines and operations, which only read, use ``_indices``, ``_indptr`` and ``_rows`` directly,
    because making a view takes half a microsecond.

    Parameters
    ----------
    indptr : integer array (*batch, M // bm + 1)
    indices : integer array (*batch, nnzb)
        Block columns. Any order within a row; a repeated column means the sum of its blocks.
    shape : (M, K)
        Shape of one matrix, in elements.
    blocksize : (bm, bk)
    check : bool
        Check the contents (`check`), not only the metadata.
    copy : bool
        False keeps the arrays themselves: the caller promises never to write to them again.

    Attributes
    ----------
    data_shape : tuple
        ``(*batch, nnzb, bm, bk)``: the shape of values over the pattern.

    Raises
    ------
    ValueError, TypeError
        See `check`; an index that the dtype of the indices does not hold, checked or not.
    """

    __slots__ = (
        "__weakref__",
        "_indices",
        "_indptr",
        "batch_shape",
        "blocksize",
        "data_shape",
        "device",
        "kept",
        "nnzb",
        "shape",
    )

    batch_shape: tuple[int, ...]
    blocksize: tuple[int, int]
    data_shape: tuple[int, ...]
    device: int | None  # None on the host
    kept: dict[Hashable, Any]  # by streams, of the CUDA engine
    nnzb: int
    shape: tuple[int, int]

    def __init__(
        self,
        indptr: Any,
        indices: Any,
        shape: tuple[int, int],
        blocksize: tuple[int, int],
        *,
        check: bool = True,
        copy: bool = True,
        function: str = "bsr_array",
    ):
        bm, bk = check_blocksize(function, blocksize)
        m, k = check_sizes(function, "shape", shape, "a pair of integers (M, K)", count=2)
        super().__init__(namespace(indices))
        check_metadata(function, indptr, indices, (m, k), (bm, bk))
        batch, nnzb = tuple(indices.shape[:-1]), int(indices.shape[-1])
        if batch:
            check_element_count(function, "shape", (*batch, m, k))
        fix = partial(object.__setattr__, self)
        fix("shape", (m, k))
        fix("blocksize", (bm, bk))
        fix("batch_shape", batch)
        fix("nnzb", nnzb)
        fix("data_shape", (*batch, nnzb, bm, bk))
        fix("kept", {})
        dtype = index_dtype(max(nnzb, m // bm, k // bk))
        self._indptr = cast_indices(function, "indptr", indptr, dtype, copy)
        self._indices = cast_indices(function, "indices", indices, dtype, copy)
        fix("device", device_of(self._indices))
        if check:  # the copies: the caller's arrays may change meanwhile
            self.check(function)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED:  # __init__ goes past this
            raise AttributeError(f"Pattern: '{name}' cannot be set, a pattern is immutable")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        bm, bk = self.blocksize
        batch = f"batch {self.batch_shape}, " if self.batch_shape else ""
        return f"Pattern({batch}{self.shape}, {bm}x{bk} blocks, nnzb={self.nnzb})"

    def __reduce__(self) -> tuple:
        return _unchecked, (self.indptr, self.indices, self.shape, self.blocksize)

    def __copy__(self) -> Pattern:
        return self

    def __deepcopy__(self, memo: dict) -> Pattern:
        return self

    @property
    def indices(self) -> Any:
        """Block column of every stored block, shape (*batch, nnzb)."""
        return self._indices.view()

    @property
    def indptr(self) -> Any:
        """Where each block row starts in `indices`, shape (*batch, M // bm + 1)."""
        return self._indptr.view()

    @property
    def block_shape(self) -> tuple[int, int]:
        """Number of block rows and block columns of one matrix."""
        return self.shape[0] // self.blocksize[0], self.shape[1] // self.blocksize[1]

    @property
    def batch_size(self) -> int:
        """Number of matrices in the batch (1 without a batch)."""
        return prod(self.batch_shape)

    def check(self, function: str = "check_format") -> None:
        """Check every index; one synchronisation on a device.

        Raises
        ------
        ValueError
            Naming the array, the rule and the offending value.
        """
        with self._on_device():
            check_may_wait(self.xp, f"{function} with a look at the indices")
            check_contents(function, self._indptr, self._indices, self.nnzb, self.block_shape[1])

    def _on_device(self) -> AbstractContextManager:
        """Make the device of the indices the current one."""
        return device_context(self.device)

    # -- properties of the positions --------------------------------------------------------

    @property
    def rows(self) -> Any:
        """Block row of every block, shape (*batch, nnzb)."""
        return self._rows.view()

    @property
    def _rows(self) -> Any:
        return self.memo("rows", self._build_rows)

    def _build_rows(self) -> Any:
        xp, (block_rows, _) = self.xp, self.block_shape
        if self.indices.size == 0:
            return self.indices
        batch = xp.arange(self.batch_size, dtype=np.int64)[:, None]
        ends = self.indptr.reshape(-1, block_rows + 1)[:, 1:].astype(np.int64)
        ends = (ends + batch * self.nnzb).ravel()
        place = xp.arange(self.indices.size, dtype=np.int64)
        row = xp.searchsorted(ends, place, side="right") % block_rows
        return read_only(row.astype(self.indices.dtype).reshape(self.indices.shape))

    def keys(self) -> Any:
        """Linear block position (batch, row, column) of every block, int64, flat."""
        return self._numbered(self._rows, self._indices, self.block_shape)

    def _numbered(self, major: Any, minor: Any, block_shape: tuple[int, int]) -> Any:
        """Number blocks by matrix, major and minor position, in matrices of so many of either."""
        shape, (n, length) = (self.batch_size, self.nnzb), block_shape
        matrix = self.xp.arange(self.batch_size, dtype=np.int64)[:, None]
        line = major.reshape(shape) + matrix * n
        return (line * length + minor.reshape(shape)).ravel()

    def element_positions(self) -> tuple[Any, Any]:
        """Return row and column of all stored elements, int64 (n, bm, 1) and (n, 1, bk).

        Blocks and rows are counted through the matrices of a batch: row ``matrix * M + i``.
        """
        xp, keys, (bm, bk) = self.xp, self.keys()[:, None, None], self.blocksize
        columns = max(self.block_shape[1], 1)
        row = keys // columns * bm + xp.arange(bm, dtype=np.int64)[:, None]
        return row, keys % columns * bk + xp.arange(bk, dtype=np.int64)

    @property
    def has_sorted_indices(self) -> bool:
        """Whether columns ascend within every row (repeated ones allowed)."""
        return self._order_facts[0]

    @property
    def has_canonical_format(self) -> bool:
        """Whether columns ascend strictly: sorted and without duplicates."""
        return self._order_facts[1]

    @property
    def has_repeated_blocks(self) -> bool:
        """Whether a row has a column more than once, wherever in the row."""
        xp = self.xp
        return self.memo("repeated", lambda: bool((xp.diff(xp.sort(self.keys())) == 0).any()))

    @property
    def longest_row(self) -> int:
        """Blocks of the longest block row."""
        if self._indices.size == 0 or self.block_shape[0] == 0:
            return 0
        return self.memo("longest row", lambda: int(self.xp.diff(self._indptr).max()))

    @property
    def _order_facts(self) -> tuple[bool, bool]:
        return self.memo("order", partial(ascend, self._indptr, self._indices))

    # -- derived patterns -------------------------------------------------------------------

    def transposed(self) -> tuple[Pattern, Any]:
        """Return the pattern of the transpose, and where its blocks come from.

        Returns
        -------
        pattern : Pattern
            Sorted; shape and blocksize are swapped.
        order : int64 array (batch * nnzb,)
            Block ``t`` of the transpose (batches flattened) is block ``order[t]`` here.
        """

        def build() -> tuple[Pattern, Any]:
            (m, k), (bm, bk) = self.shape, self.blocksize
            keys = self._numbered(self._indices, self._rows, self.block_shape[::-1])
            return self._in_order(keys, (k, m), (bk, bm))

        return self.memo("transposed", build)

    def sorted(self) -> tuple[Pattern, Any]:
        """Return the pattern with ascending columns, and where its blocks come from."""
        build = partial(self._in_order, shape=self.shape, blocksize=self.blocksize)
        return self.memo("sorted", lambda: build(self.keys()))

    def _in_order(
        self, keys: Any, shape: tuple[int, int], blocksize: tuple[int, int]
    ) -> tuple[Pattern, Any]:
        order = self.xp.argsort(keys, kind="stable")
        pattern = from_sorted_keys(keys[order], self.batch_shape, self.nnzb, shape, blocksize)
        return pattern, order

    def canonical(self, function: str, argument: str) -> tuple[Pattern, Any, Any]:
        """Return the pattern without duplicates, and which blocks add up to each of its blocks.

        Returns
        -------
        pattern : Pattern
        order : int64 array (batch * nnzb,)
        starts : int64 array (batch * pattern.nnzb + 1,)
            Block ``c`` of the result is the sum of blocks ``order[starts[c]:starts[c + 1]]``.

        Raises
        ------
        ValueError
            When the batches keep different numbers of blocks.
        """

        def build() -> tuple[Pattern, Any, Any]:
            xp, keys = self.xp, self.keys()
            order = xp.argsort(keys, kind="stable")
            keys = keys[order]
            first = xp.flatnonzero(starts_run(keys))
            kept = keys[first]
            nnzb = keys_per_batch(
                kept, self.batch_shape, prod(self.block_shape), function, argument
            )
            end = xp.full((1,), keys.size, dtype=np.int64)
            starts = xp.concatenate([first.astype(np.int64), end])
            shape, blocksize = self.shape, self.blocksize
            return from_sorted_keys(kept, self.batch_shape, nnzb, shape, blocksize), order, starts

        return self.memo("canonical", build)

    def broadcast_to(self, batch_shape: tuple[int, ...]) -> Pattern:
        """Return the pattern repeated over a batch."""
        if batch_shape == self.batch_shape:
            return self

        def build() -> Pattern:
            indptr, indices = (
                self.xp.broadcast_to(array, (*batch_shape, array.shape[-1]))
                for array in (self.indptr, self.indices)
            )
            return Pattern(indptr, indices, self.shape, self.blocksize, check=False)

        return self.memo_recent("broadcast", batch_shape, build)

    def stacked(self) -> Pattern:
        """Return the matrices of the batch one below another, as the pattern of one matrix."""

        def build() -> Pattern:
            matrix = self.xp.arange(self.batch_size, dtype=np.int64)[:, None]
            starts = self.indptr.reshape(self.batch_size, self.indptr.shape[-1])[:, :-1]
            starts = starts + matrix * self.nnzb
            end = self.xp.full((1,), self.indices.size, dtype=np.int64)
            indptr = self.xp.concatenate([starts.ravel(), end])
            shape = (self.batch_size * self.shape[0], self.shape[1])
            return _unchecked(indptr, self.indices.reshape(-1), shape, self.blocksize)

        return self.memo("stacked", build) if self.batch_shape else self

    def same_as(self, other: Pattern) -> bool:
        """Whether both describe the same matrix layout; compares indices if it has to.

        What the comparison of two patterns on a device found is kept while both live.
        """
        if self is other:
            return True
        described = (
            self.xp is other.xp
            and self.shape == other.shape
            and self.blocksize == other.blocksize
            and self.batch_shape == other.batch_shape
            and self.nnzb == other.nnzb
        )
        if not described:
            return False
        compare = partial(self._equals, other)
        return compare() if self.xp is np else self.memo_with("equals", other, compare)

    def _equals(self, other: Pattern) -> bool:
        pairs = (
            (self._indptr, other._indptr),
            (self._indices, other._indices),
        )
        return all(bool((mine == others).all()) for mine, others in pairs)

    def to_device(self) -> Pattern:
        """Return a copy of the pattern on the current CUDA device."""
        import cupy

        indptr, indices = cupy.asarray(self._indptr), cupy.asarray(self._indices)
        return _unchecked(indptr, indices, self.shape, self.blocksize)

    def to_library(self, xp: Any) -> Pattern:
        """Return the same pattern in the other array library (copied between host and device)."""
        if xp is self.xp:
            return self
        move = self.xp.asnumpy if xp is np else xp.asarray
        return _unchecked(move(self.indptr), move(self.indices), self.shape, self.blocksize)


_FIXED = frozenset(name for name in Pattern.__slots__ if not name.startswith("_"))

_unchecked = partial(Pattern, check=False, copy=False)


def from_sorted_keys(
    keys: Any,
    batch_shape: tuple[int, ...],
    nnzb: int,
    shape: tuple[int, int],
    blocksize: tuple[int, int],
) -> Pattern:
    """Return the pattern of ascending linear block positions (see `Pattern.keys`)."""
    xp = namespace(keys)
    block_rows, block_cols = shape[0] // blocksize[0], shape[1] // blocksize[1]
    batch_size = prod(batch_shape)
    dtype = index_dtype(max(nnzb, block_rows, block_cols))
    row_start = xp.arange(block_rows + 1, dtype=np.int64) * block_cols
    batch = xp.arange(batch_size, dtype=np.int64)[:, None]
    indptr = xp.searchsorted(keys, (row_start + batch * (block_rows * block_cols)).ravel())
    indptr = indptr.reshape(batch_size, block_rows + 1) - batch * nnzb
    indptr = indptr.astype(dtype).reshape(*batch_shape, block_rows + 1)
    indices = (keys % max(block_cols, 1)).astype(dtype).reshape(*batch_shape, nnzb)
    return _unchecked(indptr, indices, shape, blocksize)
