"""2:4 arrays in ``.npz`` files."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import dtype_of
from .._npz import read_npz, write_npz

_FORMAT = "semi_structured"
#: The arrays that the constructor takes, in their order.
PARTS = ("packed", "meta", "packed_t", "meta_t", "bitmask")


def save_npz(file: Any, array: Any, *, compressed: bool = True) -> None:
    """Write a host array: values as their bits, since NumPy has no bfloat16 or fp8 of its own."""
    fields: dict[str, Any] = {
        "format": np.array(_FORMAT),
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
    stored = read_npz(file, _FORMAT, "SemiStructuredArray.load_npz")
    fields: dict[str, Any] = {name: stored.get(name) for name in PARTS}
    dtype = dtype_of(str(stored["dtype"]))
    for name in ("packed", "packed_t"):
        if fields[name] is not None:
            fields[name] = fields[name].view(dtype)
    return fields | {"shape": stored["shape"].tolist(), "backend": str(stored["backend"])}
