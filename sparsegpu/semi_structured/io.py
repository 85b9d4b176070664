"""2:4 arrays in ``.npz`` files."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import dtype_of
from .._checks import bad_value
from ..bsr.io import write_npz

FORMAT = "semi_structured"
BLOCKS_FORMAT = "bsr_semi_structured"
#: The arrays that the constructors take, in their order.
PARTS = ("packed", "meta", "packed_t", "meta_t", "bitmask")
BLOCKS_PARTS = ("packed", "meta", "indices", "indptr")


def save_npz(file: Any, array: Any, *, compressed: bool = True) -> None:
    """Write a host array: values as their bits, since NumPy has no bfloat16 or fp8 of its own."""
    fields: dict[str, Any] = {
        "format": np.array(FORMAT),
        "shape": np.array(array.shape, dtype=np.int64),
        "dtype": np.array(array.dtype.name),
        "backend": np.array(array.backend),
    }
    for name, part in zip(PARTS, array._parts(), strict=True):
        if part is not None:
            fields[name] = part.view(f"u{part.itemsize}") if name.startswith("packed") else part
    write_npz(file, fields, compressed=compressed)


def load_npz(file: Any) -> dict[str, Any]:
    """Return the constructor's arguments from a file that `save_npz` wrote."""
    with np.load(file, allow_pickle=False) as stored:
        if "format" not in stored or str(stored["format"][()]) != FORMAT:
            raise bad_value(
                "SemiStructuredArray.load_npz", "file", "a saved SemiStructuredArray", str(file)
            )
        dtype = dtype_of(str(stored["dtype"]))
        fields: dict[str, Any] = {
            "shape": stored["shape"].tolist(),
            "backend": str(stored["backend"]),
        }
        for name in PARTS:
            part = stored.get(name)
            if part is not None and name.startswith("packed"):
                part = part.view(dtype)
            fields[name] = part
    return fields


def save_blocks_npz(file: Any, array: Any, *, compressed: bool = True) -> None:
    """Write a host array of 2:4 blocks, its values as their bits."""
    fields = {name: getattr(array, name) for name in BLOCKS_PARTS}
    fields |= {
        "format": np.array(BLOCKS_FORMAT),
        "shape": np.array(array.shape[-2:], dtype=np.int64),
        "dtype": np.array(array.dtype.name),
        "packed": array.packed.view(f"u{array.packed.itemsize}"),
    }
    write_npz(file, fields, compressed=compressed)


def load_blocks_npz(file: Any) -> tuple[tuple, tuple[int, int]]:
    """Return the constructor's arguments from a file that `save_blocks_npz` wrote."""
    with np.load(file, allow_pickle=False) as stored:
        if "format" not in stored or str(stored["format"][()]) != BLOCKS_FORMAT:
            raise bad_value(
                "BsrSemiStructuredArray.load_npz",
                "file",
                "a saved BsrSemiStructuredArray",
                str(file),
            )
        parts = {name: stored[name] for name in BLOCKS_PARTS}
        parts["packed"] = parts["packed"].view(dtype_of(str(stored["dtype"])))
        shape = stored["shape"].tolist()
    return tuple(parts.values()), shape
