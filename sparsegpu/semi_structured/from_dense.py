"""Dense matrices as 2:4 arrays: what the constructors have in common."""

from __future__ import annotations

from typing import Any

from .._arrays import as_array, common_namespace
from .._checks import bad_type, check_flags
from ..ops._common import on_device
from ..ops.compress import check_matrix, compressed, format_of
from .convert import check_backend
from .layout import padded_to_format


def compressed_matrix(
    function: str, cls: Any, dense: Any, backend: str, pad: bool, strict: bool, dtype: Any
) -> Any:
    """Return a dense 2:4 matrix compressed, as ``cls``; a caller names its function."""
    check_flags(function, pad=pad, strict=strict)
    check_backend(function, backend, dense)
    dense = dense_matrix(function, dense)
    with on_device(dense):
        if pad:
            stored = padded_to_format(dense, both=False)
        else:
            stored = common_namespace(function, dense=dense).ascontiguousarray(dense)
    halves = (*compressed(function, stored, strict), None, None, None)
    return cls._made(function, dense.shape, halves, dtype, backend)


def dense_matrix(function: str, dense: Any) -> Any:
    """Return ``dense`` as an array that has a 2:4 format; a caller names its function."""
    if hasattr(dense, "packed") or hasattr(dense, "pattern"):
        expected = "a dense array (the blocks of a bsr_array: its semi_structured())"
        raise bad_type(function, "dense", expected, type(dense).__name__)
    dense = as_array(dense, function, "dense")
    format_of(function, "dense", dense)
    check_matrix(function, "dense", dense)
    return dense
