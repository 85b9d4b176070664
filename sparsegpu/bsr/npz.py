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

import zipfile
from typing import Any

import numpy as np

from .._arrays import HALF_DTYPES, bfloat16, dtype_of
from .._checks import bad_type, bad_value
from .._npz import read_npz, write_npz
from ..ops._common import check_sparse, is_sparse

_OURS = b"sparsegpu.bsr"
_KEYS = ("data", "indices", "indptr", "shape")
_FORMAT_24 = "bsr_semi_structured"
#: The arrays that the constructor of `BsrSemiStructuredArray` takes, in their order.
PARTS_24 = ("packed", "meta", "indices", "indptr")


def write(file: Any, array: Any, *, compressed: bool) -> None:
    """Do `save_npz`."""
    if not (is_sparse(array) and hasattr(array, "get")):
        expected = "a bsr_array (others have a method save_npz)"
        raise bad_type("save_npz", "array", expected, type(array).__name__)
    check_sparse("save_npz", "array", array)
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
        parts |= {"format": _OURS, "dtype": array.dtype.name}
    if array.dtype == bfloat16:
        parts["data"] = np.ascontiguousarray(array.data).view(np.uint16)
    write_npz(file, parts, compressed=compressed)


def read(file: Any) -> tuple[tuple[Any, Any, Any], tuple[int, ...]]:
    """Return the constructor's arguments, ``(data, indices, indptr)`` and the shape."""
    try:
        loaded = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise bad_value("load_npz", "file", "an .npz file", error) from error
    if not isinstance(loaded, np.lib.npyio.NpzFile):
        raise bad_value("load_npz", "file", "an .npz file", "a single array")
    with loaded:
        kind = loaded["format"].item() if "format" in loaded else "none"
        kind = kind.encode() if isinstance(kind, str) else kind
        if kind not in {b"bsr", _OURS}:
            raise bad_value(
                "load_npz",
                "file",
                "a block-sparse array (format 'bsr'; for SciPy's others: "
                "bsr_array(scipy.sparse.load_npz(file), blocksize=...); for 2:4: load_npz of "
                "SemiStructuredArray and BsrSemiStructuredArray)",
                f"format {kind!r}",
            )
        missing = [key for key in _KEYS if key not in loaded]
        if missing:
            raise bad_value("load_npz", "file", f"the keys {', '.join(_KEYS)}", f"no {missing}")
        data, shape = loaded["data"], loaded["shape"].tolist()
        if kind == _OURS:
            dtype = dtype_of(str(loaded["dtype"]))
            data = data.view(bfloat16) if dtype == bfloat16 else data
        return (data, loaded["indices"], loaded["indptr"]), shape


def write_24(file: Any, array: Any, *, compressed: bool) -> None:
    """Write a host array of 2:4 blocks, its values as their bits."""
    fields = {name: getattr(array, name) for name in PARTS_24}
    fields |= {
        "format": np.array(_FORMAT_24),
        "shape": np.array(array.shape[-2:], dtype=np.int64),
        "dtype": np.array(array.dtype.name),
        "packed": array.packed.view(f"u{array.packed.itemsize}"),
    }
    write_npz(file, fields, compressed=compressed)


def read_24(file: Any) -> tuple[tuple, tuple[int, int]]:
    """Return the constructor's arguments from a file that `write_24` wrote."""
    stored = read_npz(file, _FORMAT_24, "BsrSemiStructuredArray.load_npz")
    stored["packed"] = stored["packed"].view(dtype_of(str(stored["dtype"])))
    return tuple(stored[name] for name in PARTS_24), stored["shape"].tolist()
