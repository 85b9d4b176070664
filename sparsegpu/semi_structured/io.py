"""2:4 arrays in ``.npz`` files."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._format_24 import FORMATS
from .._npz import Members, described, write_npz
from .layout import check_parts

FORMAT = "semi_structured"
_DTYPES = {dtype.name: dtype for dtype in FORMATS if dtype != np.uint8}
#: The arrays that the constructor takes, in their order.
PARTS = ("packed", "meta", "packed_t", "meta_t", "bitmask")
_PARTS_OF_ONE = "the parts of a 2:4 matrix"


def write(function: str, file: Any, array: Any, *, compressed: bool) -> None:
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
    write_npz(function, file, fields, compressed=compressed)


def read(members: Members, kind: Any) -> Any:
    """Return the array, of class ``kind``, of a file that `write` wrote."""
    dtype = members.choice("dtype", members.word("dtype"), _DTYPES)
    shape = members.shape("shape", ndim=2)
    members.choice("backend", members.word("backend"), {"native": None})  # it is on the host
    declared = {name: members.declared(name) for name in PARTS if name in members}
    for name, array in declared.items():
        if name.startswith("packed") and array.dtype != f"u{dtype.itemsize}":
            raise members.refusal(f"the bits of {dtype}", described(array), name)
    with members.explained(_PARTS_OF_ONE):
        check_parts(kind.__name__, shape, _parts(declared, dtype))
    parts = _parts({name: members.array(name) for name in declared}, dtype)
    with members.explained(_PARTS_OF_ONE):
        return kind(shape, *parts)


def _parts(arrays: dict[str, Any], dtype: np.dtype) -> list[Any]:
    """Return the arrays as the constructor takes them."""
    for name in ("packed", "packed_t"):
        if name in arrays:
            arrays[name] = arrays[name].view(dtype)
    return [arrays.get(name) for name in PARTS]
