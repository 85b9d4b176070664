"""Files of block-sparse arrays: SciPy's ``.npz`` layout wherever SciPy can hold the array.

=============  =====================================================================
key            value
=============  =====================================================================
``format``     ``b"bsr"``; ``b"sparsegpu.bsr"`` where SciPy has no such array (a batch,
               float16, bfloat16), so that SciPy refuses the file by its format
``shape``      (*batch, M, K)
``data``       the blocks; bfloat16 as uint16 with the same bits
``indices``, ``indptr``  as the fields
``_is_array``  True, SciPy's mark of a sparse array
``dtype``      name of the dtype, beside ``sparsegpu.bsr``
=============  =====================================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import CONTAINER_DTYPES, HALF_DTYPES, bfloat16
from .._checks import check_blocksize
from .._math import ceil_div
from .._npz import Members, described, write_npz
from ..ops._blocks_24 import DTYPES, check_parts
from ..ops._common import check_sparse
from ..pattern import Pattern

_OURS = "sparsegpu.bsr"
#: What files of `bsr_array` are called: SciPy's, and those that it refuses.
FORMATS = ("bsr", _OURS)
FORMAT_24 = "bsr_semi_structured"
FORMAT_MASK = "block_mask"
_DTYPES = {dtype.name: dtype for dtype in CONTAINER_DTYPES}
_DTYPES_24 = {dtype.name: dtype for dtype in DTYPES}
#: The arrays that the constructor of `BsrSemiStructuredArray` takes, in their order.
PARTS_24 = ("packed", "meta", "indices", "indptr")


def write(function: str, file: Any, array: Any, *, compressed: bool) -> None:
    """Write a `bsr_array`, for a function of that name."""
    check_sparse(function, "array", array)
    array = array.get()
    parts: dict[str, Any] = {
        "format": b"bsr",
        "shape": np.array(array.shape, dtype=np.int64),
        "data": array.data,
        "indices": array.indices,
        "indptr": array.indptr,
        "_is_array": True,
    }
    if array.ndim > 2 or array.dtype in HALF_DTYPES:
        parts |= {"format": _OURS.encode(), "dtype": array.dtype.name}
    if array.dtype == bfloat16:
        parts["data"] = np.ascontiguousarray(array.data).view(np.uint16)
    write_npz(function, file, parts, compressed=compressed)


def read(members: Members) -> tuple[Pattern, Any]:
    """Return the pattern and the blocks of a file of one of `FORMATS`."""
    shape, declared = members.shape("shape"), members.declared("data")
    named = members.word("format") == _OURS
    name = members.word("dtype") if named else declared.dtype.name
    dtype = members.choice("dtype", name, _DTYPES)
    if declared.ndim < 3 or declared.shape[:-3] != shape[:-2]:
        expected = f"blocks (*batch, nnzb, bm, bk) of an array of shape {shape}"
        raise members.refusal(expected, f"shape {declared.shape}", "data")
    *blocks, bm, bk = declared.shape
    pattern = _read_pattern(members, tuple(blocks), shape, (bm, bk), "bsr_array")
    # The bits of bfloat16: NumPy has no such dtype of its own.
    stored = np.uint16 if dtype == bfloat16 else dtype
    return pattern, members.array("data", dtype=stored).view(dtype)


def _read_pattern(
    members: Members,
    blocks: tuple[int, ...],
    shape: tuple[int, ...],
    blocksize: tuple[int, int],
    kind: str,
) -> Pattern:
    """Return the pattern of ``(*batch, nnzb)`` blocks of an array of ``shape``, checked."""
    m, k = shape[-2:]
    with members.explained(f"the parts of a {kind}"):
        bm, _ = check_blocksize(kind, blocksize)
    indptr = members.array("indptr", (*blocks[:-1], m // bm + 1))
    indices = members.array("indices", blocks)
    with members.explained(f"the parts of a {kind}"):
        return Pattern(indptr, indices, (m, k), blocksize, function=kind)


def write_24(function: str, file: Any, array: Any, *, compressed: bool) -> None:
    """Write a host array of 2:4 blocks, its values as their bits."""
    fields = {name: getattr(array, name) for name in PARTS_24}
    fields |= {
        "format": np.array(FORMAT_24),
        "shape": np.array(array.shape[-2:], dtype=np.int64),
        "dtype": np.array(array.dtype.name),
        "packed": array.packed.view(f"u{array.packed.itemsize}"),
    }
    write_npz(function, file, fields, compressed=compressed)


def write_mask(function: str, file: Any, mask: Any, *, compressed: bool) -> None:
    """Write a `BlockMask` of the host."""
    fields = {name: getattr(mask, name) for name in ("indptr", "indices", "kind", "bits")}
    fields |= {
        "format": np.array(FORMAT_MASK),
        "shape": np.array(mask.shape[-2:], dtype=np.int64),
        "blocksize": np.array(mask.blocksize, dtype=np.int64),
    }
    write_npz(function, file, fields, compressed=compressed)


def read_mask(members: Members, make: Any) -> Any:
    """Return the mask, of class ``make``, of a file that `write_mask` wrote."""
    kind = make.__name__
    shape, (bm, bk) = members.shape("shape", ndim=2), members.shape("blocksize", ndim=2)
    kinds, bits = members.declared("kind"), members.declared("bits")
    if not kinds.ndim or kinds.dtype != np.uint8:
        raise members.refusal("a byte for each block", described(kinds), "kind")
    pattern = _read_pattern(members, kinds.shape, shape, (bm, bk), kind)
    if bits.shape[1:] != (bm, ceil_div(bk, 32)) or len(bits) > kinds.size:
        expected = f"the bits of at most {kinds.size} blocks of {bm}x{bk}"
        raise members.refusal(expected, described(bits), "bits")
    parts = members.array("kind"), members.array("bits", dtype=np.uint32)
    with members.explained(f"the parts of a {kind}"):
        return make(pattern, *parts)


def read_24(members: Members, make: Any) -> Any:
    """Return the array, of class ``make``, of a file that `write_24` wrote."""
    kind = make.__name__
    dtype = members.choice("dtype", members.word("dtype"), _DTYPES_24)
    declared = members.declared("packed"), members.declared("meta")
    if declared[0].dtype != f"u{dtype.itemsize}" or declared[0].ndim < 3:
        expected = f"the bits of {dtype} (*batch, nnzb, bm, bk / 2)"
        raise members.refusal(expected, described(declared[0]), "packed")
    *blocks, bm, half = declared[0].shape
    shape = members.shape("shape", ndim=2)
    pattern = _read_pattern(members, tuple(blocks), shape, (bm, 2 * half), kind)
    with members.explained(f"the parts of a {kind}"):
        check_parts(kind, pattern, declared[0].view(dtype), declared[1])
    packed, meta = members.array("packed").view(dtype), members.array("meta")
    with members.explained(f"the parts of a {kind}"):
        return make((packed, meta, pattern.indices, pattern.indptr), shape)
