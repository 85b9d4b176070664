"""2:4 @ dense on the device: chooses the kernel and describes the operands to it."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np

from ..._arrays import HALF_DTYPES, accumulator_dtype, float8_e4m3fn
from ..._checks import bad_value, check_choice
from ..._epilogue import Epilogue
from ._blocks import ceil_div, grid
from ._dense_lines import tensor_core_lines
from ._epilogue_args import batched_operands, epilogue_args
from ._semi_structured_skinny_sm90 import skinny_sm90_launches
from ._semi_structured_sm90 import sm90_launches
from ._sparse_product import SparseProduct
from .runtime.config import ProductConfig
from .runtime.launch import Launch, compute_capability, kernel, multiprocessors, submit
from .runtime.skinny_sparse_tile import FEW_COLUMNS
from .runtime.types import ctype
from .runtime.view import batch_dims, matrix_view, merged_batch

_SIZES = struct.Struct("<5q")

PATHS = ("mma_sp", "simt", "wgmma_sp", "wgmma_sp_skinny")

#: Columns of which a tile of wgmma would waste most.
_FEW = 32

#: Packed bytes of one step of k, and steps of a slice (semi_structured_addmm_sm80.cu).
_STEP_BYTES, _STEPS = 32, 2
_STAGES = 3
_SIMT_ROWS, _SIMT_THREADS = 64, 256
_MMA_ROWS, _MMA_THREADS = 128, 128


def semi_structured_addmm(
    out: Any,
    packed: Any,
    meta: Any,
    dense: Any,
    epilogue: Epilogue,
    *,
    operand_dtype: np.dtype,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> None:
    """Write ``act(beta * input + left_alpha * (alpha * (sparse @ dense)) * right_alpha)``.

    ``config={"path": name}`` chooses one of "wgmma_sp", "wgmma_sp_skinny", "mma_sp" and "simt",
    ``"tile_m"``, ``"tile_n"`` ... fields of its tile; without it the metadata of the operands alone
    decides.
    """
    m, n = out.shape[-2:]
    batch = merged_batch(out.shape[:-2], (out, 2), (dense, 2), *batched_operands(epilogue))
    given, packed, meta = (packed, meta), rows_in_order(packed), rows_in_order(meta)
    defines, epilogue_argument = epilogue_args(
        epilogue, batch, accumulator_dtype(operand_dtype), out.dtype
    )
    path = (config or {}).get("path")
    launches: tuple[Launch, ...] | None = None
    cores = tensor_cores_multiply(operand_dtype, compute_capability(), allow_tf32)
    if cores:
        terms = 0 if epilogue.alpha == 0 else packed.shape[1]
        product = SparseProduct(
            out, packed, meta, dense, batch, operand_dtype, terms, defines, epilogue_argument
        )
        if path == "wgmma_sp_skinny" or (path is None and n <= FEW_COLUMNS):
            launches = skinny_sm90_launches(product, config)
        if path == "wgmma_sp" or (path is None and launches is None and n > _FEW):
            launches = sm90_launches(product, config)
    if launches is None:
        layout = "columns"
        copies: tuple[Launch, ...] = ()
        if cores and path != "simt" and product.terms:
            dense, layout, copies = tensor_core_lines(dense, packed.itemsize != 2)
        chosen = product_config(
            operand_dtype,
            prod(batch) * ceil_div(m, _MMA_ROWS),
            n,
            layout,
            capability=compute_capability(),
            processors=multiprocessors(),
            allow_tf32=allow_tf32,
            config=config,
        )
        if epilogue.alpha == 0:
            terms = 0
        elif chosen.source.endswith("simt"):
            terms = packed.shape[1]
        else:
            terms = packed.shape[1] * packed.itemsize // _STEP_BYTES
        batches = prod(batch)
        launch = Launch(
            kernel(chosen.source, T=ctype(operand_dtype), **defines, **chosen.defines),
            grid(batches * ceil_div(m, chosen.tile_m) * ceil_div(n, chosen.tile_n)),
            (chosen.threads,),
            (
                matrix_view(out, batch),
                packed,
                meta,
                matrix_view(dense, batch),
                batch_dims(batch),
                np.void(_SIZES.pack(m, n, packed.shape[1], terms, batches)),
                epilogue_argument,
            ),
            chosen.shared_memory,
        )
        launches = (*copies, launch)
    submit(*launches, whole=packed is given[0] and meta is given[1])  # or they were copied


def product_config(
    dtype: np.dtype,
    tiles: int,
    n: int,
    layout: str,
    *,
    capability: tuple[int, int],
    processors: int,
    allow_tf32: bool = False,
    config: dict[str, Any] | None = None,
) -> ProductConfig:
    """Return the kernel for operands of ``dtype`` and ``n`` columns that lie in ``layout``.

    ``tiles`` of 128 rows of the output lie below each other, those of all matrices.

    Raises
    ------
    ValueError
        A ``config`` that these operands cannot have.

    Examples
    --------
    >>> device = {"capability": (9, 0), "processors": 132}
    >>> choice = product_config(np.dtype(np.float16), 64, 1000, "rows", **device)
    >>> choice.source, choice.tile_m, choice.tile_n
    ('semi_structured_addmm_sm80', 128, 128)
    >>> product_config(np.dtype(np.float32), 1, 1, "columns", **device).source
    'semi_structured_addmm_simt'
    """
    config = config or {}
    possible = tensor_cores_multiply(dtype, capability, allow_tf32)
    path = config.get("path", "mma_sp" if possible else "simt")
    check_choice("semi_structured_addmm", "config['path']", path, PATHS)
    if path.startswith("wgmma_sp"):
        expected = f"another path: these operands or this device are not for '{path}'"
        raise bad_value("semi_structured_addmm", "config['path']", expected, repr(path))
    if path == "simt":
        tile_n = 64 if n > 16 else 16
        return ProductConfig(
            "semi_structured_addmm_simt", _SIMT_ROWS, tile_n, _SIMT_THREADS, {"TILE_N": tile_n}
        )
    if not possible:
        raise bad_value(
            "semi_structured_addmm",
            "config['path']",
            f"'simt' for {dtype} on compute capability {'.'.join(map(str, capability))}"
            f"{'' if allow_tf32 else ' without allow_tf32'}",
            "'mma_sp'",
        )
    # e4m3 sums twice (see the kernel), which costs registers.
    tile_m, widest = (64, 32) if dtype == float8_e4m3fn else (_MMA_ROWS, 128)
    tile_m = _tile("tile_m", config.get("tile_m", tile_m), (64, 128), tile_m)
    width = min(mma_columns(n, tiles, processors), widest)
    tile_n = _tile("tile_n", config.get("tile_n", width), (16, 32, 64, 128), widest)
    return ProductConfig(
        "semi_structured_addmm_sm80",
        tile_m,
        tile_n,
        _MMA_THREADS,
        {"DENSE": layout, "TILE_M": tile_m, "TILE_N": tile_n, "STAGES": _STAGES},
        _STAGES * stage_bytes(tile_m, tile_n),
    )


def mma_columns(n: int, tiles: int, processors: int) -> int:
    """Return how wide a tile of mma.sp is: 128 columns where two such keep a multiprocessor busy.

    Examples
    --------
    >>> mma_columns(20, 64, 132), mma_columns(128, 64, 132), mma_columns(4096, 64, 132)
    (32, 64, 128)
    """
    wide = tiles * ceil_div(n, 128) >= 2 * processors
    return next((t for t in (16, 32, 64) if t >= n), 128 if wide else 64)


def tensor_cores_multiply(
    dtype: np.dtype, capability: tuple[int, int], allow_tf32: bool = False
) -> bool:
    """Return whether mma.sp takes operands of ``dtype`` there (float32: only as TF32)."""
    if dtype == np.float32:
        return allow_tf32
    if dtype == float8_e4m3fn:
        return capability >= (8, 9)
    return dtype in HALF_DTYPES or dtype == np.int8


def _tile(name: str, value: Any, choices: tuple[int, ...], largest: int) -> int:
    choices = tuple(c for c in choices if c <= largest)
    check_choice("semi_structured_addmm", f"config['{name}']", value, choices)
    return value


def stage_bytes(tile_m: int, tile_n: int) -> int:
    """Return STAGE_BYTES of semi_structured_addmm_sm80.cu: one slice of both operands."""
    return _STEPS * _STEP_BYTES * (tile_m + 2 * tile_n)


def rows_in_order(array: Any) -> Any:
    """Return the array itself if its rows follow each other at a 16-byte address, else a copy."""
    if array.flags.c_contiguous and array.data.ptr % 16 == 0:
        return array
    return array.copy(order="C")
