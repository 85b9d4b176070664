"""`BlockMask`: a bool mask over a block pattern, with bits only for partial blocks."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Self

import numpy as np

from .._arrays import (
    as_array,
    check_range,
    common_namespace,
    device_name,
    namespace,
    read_only,
)
from .._checks import bad_type, bad_value, check_flags
from .._device import Portable
from .._math import ceil_div
from .._memo import Memo
from .._npz import reading
from ..ops._canonical import distinct_blocks, distinct_values, spread
from ..ops._common import check_sparse, is_block_mask, on_device
from ..pattern import Pattern
from . import npz
from .array import bsr_array
from .compare import Compared
from .draw import Drawings
from .logic import Logical, combined_masks, inverted_mask

#: What an element of `BlockMask.kind` says of its block.
NONE, FULL, PARTIAL = 0, 1, 2

_WORD = 32
_PIECE = 1 << 22  # elements that are packed or unpacked at a time, a byte each


def words(columns: int) -> int:
    """Return how many words hold a row of so many bits."""
    return ceil_div(columns, _WORD)


class BlockMask(Drawings, Compared, Logical, Portable):
    """Bool mask over a block pattern: a byte per block, and a bit per element of partial blocks.

    A bool `bsr_array` needs a byte per element. `scaled_dot_product_attention` takes either. The
    functions of `sparsegpu.masks` make masks; `from_bsr` converts one. ``A & B``, ``A | B`` and
    ``A ^ B`` of two are masks, too; ``~A`` is what the stored blocks leave out.

    Parameters
    ----------
    pattern : Pattern
        Which blocks are stored, ``A.pattern`` of a `bsr_array`. Repeated blocks mean their or.
    kind : integer array (*batch, nnzb)
        Of each block: 0, no element is True; 1, all are; 2, its bits say which. Blocks of kind 0
        let the matrices of a batch hold different numbers of blocks.
    bits : uint32 array (partial, bm, ceil(bk / 32))
        Of each block of kind 2, in stored order, one matrix of a batch after the other. Column j
        is bit ``j % 32`` of word ``j // 32``; bits beyond the columns are 0.
    check : bool
        Look at the contents (synchronises on a GPU). False trusts the caller.

    Attributes
    ----------
    pattern, kind, bits
        As given, kind as uint8. They are copied in and not to be written to.
    shape, ndim, blocksize, nnzb, density, indices, indptr, device
        As of `bsr_array`, blocks of kind 0 included.

    Raises
    ------
    ValueError
        Shapes that do not fit the pattern; another kind; more or fewer partial blocks than
        ``bits`` has; a bit beyond the columns; arrays on two devices.
    TypeError
        Another dtype, or a ``pattern`` that is none; host and device arrays together.

    See Also
    --------
    sparsegpu.masks : functions that make masks.

    Examples
    --------
    >>> import sparsegpu
    >>> mask = sparsegpu.causal(65536, 128, compact=True)
    >>> mask
    <sparsegpu.BlockMask, shape (65536, 65536), 131328 blocks of 128x128 stored (density 0.501),
    512 partial, on cpu>
    >>> mask.nbytes < 2e6, sparsegpu.BlockMask.from_bsr(sparsegpu.causal(8, 4)).kind
    (True, array([2, 1, 2], dtype=uint8))
    """

    __slots__ = ("__weakref__", "_bits", "_kind", "_memo", "_pattern")

    _instead_of_bool = "(A != B).sum() == 0 says whether two are equal"

    def __init__(self, pattern: Pattern, kind: Any, bits: Any, *, check: bool = True):
        function = "BlockMask"
        check_flags(function, check=check)
        if not isinstance(pattern, Pattern):
            expected = "a Pattern, such as A.pattern of a bsr_array"
            raise bad_type(function, "pattern", expected, type(pattern).__name__)
        kind, bits = as_array(kind, function, "kind"), as_array(bits, function, "bits")
        common_namespace(function, pattern=pattern._indices, kind=kind, bits=bits)
        if kind.dtype.kind not in "iu":
            raise bad_type(function, "kind", "an integer dtype", kind.dtype)
        if bits.dtype != np.uint32:
            raise bad_type(function, "bits", "dtype uint32", bits.dtype)
        if kind.shape != pattern.data_shape[:-2]:
            expected = f"shape {pattern.data_shape[:-2]}, a kind for each block"
            raise bad_value(function, "kind", expected, tuple(kind.shape))
        bm, bk = pattern.blocksize
        if bits.ndim != 3 or bits.shape[1:] != (bm, words(bk)):
            expected = f"shape (partial, {bm}, {words(bk)}) for blocks of {bm}x{bk}"
            raise bad_value(function, "bits", expected, tuple(bits.shape))
        with on_device(kind):
            if check:
                _check_contents(function, pattern, kind, bits)
            self._pattern = pattern
            self._kind = read_only(pattern.xp.array(kind, dtype=np.uint8, order="C"))
            self._bits = read_only(pattern.xp.array(bits, order="C"))
            self._memo = Memo(pattern.xp)

    @classmethod
    def _of(cls, pattern: Pattern, kind: Any, bits: Any) -> Self:
        """Return a mask over contiguous arrays of its own that are known to fit."""
        mask = object.__new__(cls)
        mask._pattern, mask._kind, mask._bits = pattern, read_only(kind), read_only(bits)
        mask._memo = Memo(pattern.xp)
        return mask

    @classmethod
    def from_bsr(cls, mask: bsr_array) -> Self:
        """Return a bool `bsr_array` as a mask over the same pattern.

        Parameters
        ----------
        mask : bsr_array
            Bool. Repeated blocks are or-ed first.

        Raises
        ------
        TypeError
            Another kind of thing, or another dtype.
        ValueError
            Repeated blocks, without which the matrices of a batch would hold different numbers.

        Examples
        --------
        >>> import numpy as np, sparsegpu
        >>> mask = sparsegpu.bsr_array(np.tri(4, dtype=bool), blocksize=(2, 2))
        >>> sparsegpu.BlockMask.from_bsr(mask).bits.tolist()
        [[[1], [3]], [[1], [3]]]
        """
        function = "BlockMask.from_bsr"
        check_sparse(function, "mask", mask)
        if mask.data.dtype != bool:
            raise bad_type(function, "mask", "dtype bool", mask.data.dtype)
        with on_device(mask.data):
            pattern, data = distinct_blocks(mask, function, "mask")
            xp, values = pattern.xp, distinct_values(data)
            some, every = (reduce(axis=(-2, -1)) for reduce in (values.any, values.all))
            kind = (some.view(np.uint8) << 1) - every.view(np.uint8)
            place = xp.flatnonzero(kind == PARTIAL)
            return cls._of(pattern, kind, _packed(data, place))

    # -- metadata ---------------------------------------------------------------------------

    @property
    def kind(self) -> Any:
        """0, 1 or 2 of every block: nothing, everything or what `bits` say, (*batch, nnzb)."""
        return self._kind.view()

    @property
    def bits(self) -> Any:
        """Bits of the blocks of kind 2, uint32 (partial, bm, ceil(bk / 32))."""
        return self._bits.view()

    @property
    def dtype(self) -> np.dtype:
        """bool."""
        return np.dtype(bool)

    @property
    def nbytes(self) -> int:
        """Bytes of kinds, bits and pattern."""
        return sum(part.nbytes for part in (self._kind, self._bits, self.indices, self.indptr))

    @property
    def device(self) -> Any:
        """``"cpu"``, or the `cupy.cuda.Device`."""
        return self._kind.device

    def __repr__(self) -> str:
        return (
            f"<sparsegpu.BlockMask, shape {self.shape}, {self._stored()}, "
            f"{self._bits.shape[0]} partial, on {device_name(self._kind)}>"
        )

    def _shown(self) -> Any:
        with on_device(self._kind):
            return self._kind != NONE

    # -- conversions ------------------------------------------------------------------------

    def tobsr(self, copy: bool = False) -> bsr_array:
        """Return the bool `bsr_array` over the same pattern.

        Parameters
        ----------
        copy : bool
            Give every element memory of its own. False: where no block is partial, the blocks
            have strides of 0 inside and cost a byte each; they are not to be written to.

        Raises
        ------
        TypeError
            When ``copy`` is neither True nor False.

        Examples
        --------
        >>> import sparsegpu
        >>> sparsegpu.causal(8, 4, compact=True).tobsr().data[0].astype(int)
        array([[1, 0, 0, 0],
               [1, 1, 0, 0],
               [1, 1, 1, 0],
               [1, 1, 1, 1]])
        """
        check_flags("BlockMask.tobsr", copy=copy)
        xp, pattern = self._xp, self._pattern
        with on_device(self._kind):
            full = (self._kind == FULL)[..., None, None]
            if not (copy or self._bits.shape[0]):
                return bsr_array._of(pattern, spread(full, pattern.blocksize))
            data = xp.empty(pattern.data_shape, dtype=bool)
            data[...] = full
            self._write_partial(data)
        return bsr_array._of(pattern, data)

    def _write_partial(self, data: Any) -> None:
        """Write the partial blocks, without waiting for a device."""
        xp, (bm, bk), count = self._xp, self.blocksize, self._bits.shape[0]
        blocks = data.reshape(-1, bm, bk)
        before = xp.cumsum(self._kind.ravel() == PARTIAL, dtype=np.int64)
        place = xp.searchsorted(before, xp.arange(1, count + 1))  # of the n-th partial block
        for part in _pieces(count, bm * words(bk) * _WORD):
            octets = self._bits[part].view(np.uint8)
            elements = xp.unpackbits(octets.ravel(), bitorder="little").view(bool)
            blocks[place[part]] = elements.reshape(-1, bm, words(bk) * _WORD)[..., :bk]

    def toarray(self) -> Any:
        """Return the dense bool array (*batch, L, S)."""
        return self.tobsr().toarray()

    todense = toarray

    def _compared(self, other: Any, sign: str, operation: Callable) -> Any:
        return self.tobsr()._compared(other, sign, operation)

    def _beside(self, other: Any, function: str) -> tuple[Any, Any]:
        return self.tobsr()._beside(other, function)

    def _combined(self, other: Any, function: str, sign: str) -> Any:
        if not is_block_mask(other):
            return self.tobsr()._combined(other, function, sign)
        if other.blocksize != self.blocksize:
            return self.from_bsr(self.tobsr()._combined(other, function, sign))
        return self._of(*combined_masks(function, sign, self, other))

    def __invert__(self) -> Self:
        if self._pattern.has_repeated_blocks:
            return ~self.from_bsr(self.tobsr())
        return self._of(self._pattern, *inverted_mask(self))

    def _with(self, pattern: Pattern, data: Any) -> bsr_array:
        """Return values over the mask's pattern, or its canonical one: gradients."""
        return bsr_array._of(pattern, data)

    # -- copies and files -------------------------------------------------------------------

    def copy(self) -> Self:
        """Return a mask with its own kinds and bits over the same (immutable) pattern."""
        with on_device(self._kind):
            return self._of(self._pattern, self._kind.copy(), self._bits.copy())

    def __reduce__(self) -> tuple:
        return type(self)._of, (self._pattern, self._kind, self._bits)

    def get(self) -> Self:
        """Return the mask on the host (itself, if it is there already)."""
        if self._xp is np:
            return self
        return self._of(self._pattern.to_library(np), self._kind.get(), self._bits.get())

    def _moved(self, cupy: ModuleType) -> Self:
        moved = self._pattern.to_device()
        return self._of(moved, cupy.asarray(self._kind), cupy.asarray(self._bits))

    def _save(self, function: str, file: Any, compressed: bool) -> None:
        npz.write_mask(function, file, self.get(), compressed=compressed)

    @classmethod
    def load_npz(cls, file: Any) -> Self:
        """Return the mask of a file that `save_npz` wrote, on the host.

        Raises
        ------
        ValueError
            A file that holds no such mask, or is damaged: file and member.
        OSError
            A file that cannot be opened or read.
        TypeError
            No file.
        """
        with reading(f"{cls.__name__}.load_npz", file) as members:
            members.check_format(npz.FORMAT_MASK)
            return npz.read_mask(members, cls)


def _check_contents(function: str, pattern: Pattern, kind: Any, bits: Any) -> None:
    check_range(function, "kind", kind, PARTIAL + 1, "0, 1 or 2 (none, full, partial)")
    partial = int((kind == PARTIAL).sum())
    if partial != bits.shape[0]:
        expected = f"{partial} blocks, as many as 'kind' has of kind 2"
        raise bad_value(function, "bits", expected, bits.shape[0])
    beyond = pattern.blocksize[1] % _WORD
    if beyond and bool((bits[..., -1] >> np.uint32(beyond)).any()):
        expected = f"zeros beyond the {pattern.blocksize[1]} columns of a block"
        raise bad_value(function, "bits", expected, "a bit that is set")


def _packed(data: Any, place: Any) -> Any:
    """Return the bits of the blocks at ``place`` (batches flattened)."""
    xp, (bm, bk) = namespace(data), data.shape[-2:]
    blocks, count = data.reshape(-1, bm, bk), int(place.size)
    bits = xp.empty((count, bm, words(bk)), dtype=np.uint32)
    for part in _pieces(count, bm * words(bk) * _WORD):
        chosen = blocks[place[part]]
        padded = xp.zeros((*chosen.shape[:2], words(bk) * _WORD), dtype=bool)
        padded[..., :bk] = chosen
        octets = xp.packbits(padded.ravel(), bitorder="little")
        bits[part] = octets.view(np.uint32).reshape(padded.shape[:2] + (words(bk),))
    return bits


def _pieces(count: int, size: int) -> list[slice]:
    """Return slices of ``count`` blocks of so many elements: `_PIECE` elements at a time."""
    step = max(1, _PIECE // size)
    return [slice(first, first + step) for first in range(0, count, step)]
