"""The vendor's single 2:4 buffer: packed values with the metadata behind them.

NVIDIA does not document this layout and may change it; these are the two that PyTorch and xFormers
(compute capability 8.x) and torchao (9.0) write for cuSPARSELt to read, for 16-bit values. Each is
a permutation of CUTLASS's metadata, stated here as a transposition of axes, so that the same
lines run on NumPy and on CuPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import (
    HALF_DTYPES,
    as_array,
    check_may_wait,
    common_namespace,
    device_of,
    namespace,
)
from .._checks import bad_type, bad_value, check_choice, check_sizes, not_offered
from .._format_24 import FORMATS
from ._common import on_device
from .compress import as_meta, check_codes, check_matrix, check_multiples, check_packed

_GENERATIONS = (8, 9)
_MULTIPLES = {8: (128, 64), 9: (64, 64)}


def _generation(function: str, capability: Any, array: Any) -> int:
    """Return 8 or 9: as asked, else the array's device, else 8."""
    if capability is None:
        if device_of(array) is None:
            return 8
        major = int(array.device.compute_capability) // 10
        if major not in _GENERATIONS:
            raise not_offered(
                function,
                f"cuSPARSELt's layout for compute capability {major}.x",
                "capability=(8, 0) and capability=(9, 0)",
            )
        return major
    try:
        major = int(capability[0])
    except (TypeError, ValueError, LookupError):
        raise bad_type(
            function, "capability", "a pair such as (9, 0), or None", repr(capability)
        ) from None
    check_choice(function, "capability[0]", major, _GENERATIONS)
    return major


def check_layout(
    function: str, argument: str, array: Any, shapes: tuple[tuple[int, int], ...], capability: Any
) -> int:
    """Return the generation, 8 or 9; refuse a dtype or shapes that its layout does not hold."""
    if array.dtype not in HALF_DTYPES:
        raise not_offered(
            function,
            f"cuSPARSELt's layout of {array.dtype} (argument '{argument}')",
            "float16 and bfloat16, or the native backend for every 2:4 dtype",
        )
    generation = _generation(function, capability, array)
    rows, columns = _MULTIPLES[generation]
    why = f" for cuSPARSELt's layout on compute capability {generation}.x"
    for shape in shapes:
        check_multiples(function, argument, shape, rows, columns, why)
    return generation


def _cutlass_axes(meta: Any, m: int, k: int) -> Any:
    """Name the axes: k/32, m/32, row % 8, row // 16, half of 32 columns, row // 8 % 2."""
    return meta.reshape(k // 32, m // 32, 8, 2, 2, 2)


def _to_ampere(meta: Any, m: int, k: int) -> Any:
    """Order the 32 x 32 tiles by 128 x 64 super-tiles; inside a tile nothing changes."""
    tiles = meta.reshape(k // 64, 2, m // 128, 4, 64)
    return tiles.transpose(0, 2, 1, 3, 4).reshape(-1)


def _from_ampere(flat: Any, m: int, k: int) -> Any:
    return flat.reshape(k // 64, m // 128, 2, 4, 64).transpose(0, 2, 1, 3, 4).reshape(m, k // 16)


def _to_hopper(meta: Any, m: int, k: int) -> Any:
    """Order codes as ``wgmma.sp`` reads them: a byte is one group of rows r and r + 8."""
    xp = namespace(meta)
    # restored axes: stripe of 64 rows, 32-row half, 16-row piece, 8-row nibble, row, column tile,
    # half of 32 columns (ghi); a 16-bit element is four codes (glo)
    axes = _cutlass_axes(meta.view(np.uint16), m, k).reshape(k // 32, m // 64, 2, 8, 2, 2, 2)
    rows = axes.transpose(1, 0, 2, 4, 3, 5, 6)  # stripe, tile, half, piece, row, ghi, nibble
    codes = xp.stack([rows >> (4 * glo) & 15 for glo in range(4)], axis=5)
    # stripe, tile, half, piece, row, glo, ghi, nibble
    low_high = (codes[..., 0] | codes[..., 1] << 4).astype(np.uint8)
    return xp.ascontiguousarray(low_high).reshape(-1).view(np.int16)


def _from_hopper(flat: Any, m: int, k: int) -> Any:
    xp = namespace(flat)
    bytes_ = flat.view(np.uint8).reshape(m // 64, k // 32, 2, 2, 8, 4, 2).astype(np.uint16)
    codes = xp.stack([bytes_ & 15, bytes_ >> 4], axis=-1)
    rows = codes[..., 0, :, :] | codes[..., 1, :, :] << 4
    rows = rows | codes[..., 2, :, :] << 8 | codes[..., 3, :, :] << 12
    axes = rows.transpose(1, 0, 2, 4, 3, 5, 6)  # tile, stripe, half, row, piece, ghi, nibble
    return xp.ascontiguousarray(axes).reshape(m, k // 16).view(np.int16)


def to_buffer(packed: Any, meta: Any, generation: int) -> Any:
    """Return the vendor's buffer of checked ``packed`` and ``meta``."""
    m, k = packed.shape[0], 2 * packed.shape[1]
    xp = namespace(packed)
    meta = xp.ascontiguousarray(meta)
    with on_device(packed):
        buffer = xp.empty(9 * m * k // 16, dtype=packed.dtype)
        buffer[: m * k // 2] = packed.reshape(-1)
        ordered = (_to_ampere if generation == 8 else _to_hopper)(meta, m, k)
        buffer[m * k // 2 :].view(np.int16)[...] = ordered
    return buffer


def to_cusparselt_layout(
    packed: Any, meta: Any, *, capability: tuple[int, int] | None = None
) -> Any:
    """Return the single buffer that cuSPARSELt reads, from packed values and CUTLASS's metadata.

    Parameters
    ----------
    packed : float16 or bfloat16 array (m, k / 2)
    meta : int16 array (m, k / 16)
        In CUTLASS's order, as `semi_structured_from_dense` gives it; uint16 stands for the same
        bits.
    capability : (int, int), optional
        Compute capability whose layout is wanted: (8, x) or (9, 0). None: that of the arrays'
        device, (8, 0) for NumPy arrays.

    Returns
    -------
    array (9 * m * k / 16,)
        Of packed's dtype: the kept values, then the metadata as bits.

    Raises
    ------
    ValueError
        ``m`` no multiple of 128 ((9, 0): 64) or ``k`` none of 64; another capability.
    TypeError
        Parts whose dtypes do not match; a ``capability`` that is no pair of integers.
    NotImplementedError
        8-bit values and float32, whose vendor layout no public source states.

    Notes
    -----
    The layout is undocumented by NVIDIA: PyTorch's ``MetadataCuSparseLt`` (8.x), torchao's
    ``sparse24_sm90_sparsify`` with ``metadata_fmt="cusparselt"`` (9.0).

    Examples
    --------
    >>> import numpy as np
    >>> import sparsegpu
    >>> dense = np.tile(np.array([0, 5, 0, 7], np.float16), (128, 16))
    >>> packed, meta = sparsegpu.semi_structured_from_dense(dense)
    >>> buffer = sparsegpu.to_cusparselt_layout(packed, meta)
    >>> buffer.shape
    (4608,)
    >>> again = sparsegpu.from_cusparselt_layout(buffer, (128, 64))
    >>> bool((again[0] == packed).all() and (again[1] == meta).all())
    True
    """
    function = "to_cusparselt_layout"
    packed = as_array(packed, function, "packed")
    meta = as_meta(meta, function, "meta")
    common_namespace(function, packed=packed, meta=meta)
    check_packed(function, packed, meta, ("packed", "meta"))
    shape = (packed.shape[0], 2 * packed.shape[1])
    return to_buffer(packed, meta, check_layout(function, "packed", packed, (shape,), capability))


def from_cusparselt_layout(
    buffer: Any, shape: tuple[int, int], *, capability: tuple[int, int] | None = None
) -> tuple[Any, Any]:
    """Return packed values and CUTLASS's metadata from the vendor's buffer.

    Parameters
    ----------
    buffer : float16 or bfloat16 array of 9 * m * k / 16 elements
    shape : (m, k)
        Of the dense matrix.
    capability : (int, int), optional
        As in `to_cusparselt_layout`.

    Returns
    -------
    packed : array (m, k / 2)
    meta : int16 array (m, k / 16)

    Raises
    ------
    ValueError
        As `to_cusparselt_layout`; a buffer of another size; an illegal code, naming row and group
        as `check_meta` does.
    TypeError
        As `to_cusparselt_layout`; a shape that is no pair of integers.
    NotImplementedError
        As `to_cusparselt_layout`; while a CUDA graph is captured, for the check waits for the
        device.

    Examples
    --------
    See `to_cusparselt_layout`.
    """
    function = "from_cusparselt_layout"
    buffer = as_array(buffer, function, "buffer")
    m, k = check_sizes(function, "shape", shape, "a pair of integers (m, k)", count=2)
    generation = check_layout(function, "buffer", buffer, ((m, k),), capability)
    if buffer.ndim > 2:
        check_matrix(function, "buffer", buffer)
    if buffer.size != 9 * m * k // 16:
        raise bad_value(function, "buffer", f"{9 * m * k // 16} elements", buffer.size)
    xp = namespace(buffer)
    check_may_wait(xp, function)
    with on_device(buffer):
        flat = xp.ascontiguousarray(buffer).reshape(-1)
        packed = flat[: m * k // 2].reshape(m, k // 2).copy()
        ordered = flat[m * k // 2 :].view(np.int16)
        meta = (_from_ampere if generation == 8 else _from_hopper)(ordered, m, k)
        meta = xp.ascontiguousarray(meta)
        check_codes(function, "buffer", meta, FORMATS[packed.dtype])
        return packed, meta
