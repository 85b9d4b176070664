"""A product of 2:4 @ dense as its paths see it: operands and the epilogue."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...._arrays import accumulator_dtype
from ...._epilogue import Epilogue
from ...._math import ceil_div
from .._epilogue_args import batched_operands, epilogue_args
from .._grid import grid
from ..runtime.device import device_facts
from ..runtime.launch import Launch, kernel
from ..runtime.structs import kernel_struct
from ..runtime.view import batch_dims, matrix_view, merged_batch
from ._facts import Facts
from ._product import layout_of
from ._tile import Tile
from ._tma import INT32


@dataclass(frozen=True, slots=True)
class Product24:
    """Everything that a path needs to know of a product.

    Attributes
    ----------
    out, packed, meta, dense : array
        As in `semi_structured.semi_structured_addmm`; packed and meta are contiguous.
    batch : tuple of int
        Batch shape of the views.
    dtype : dtype
        That the operands stand for.
    empty : bool
        Nothing is multiplied.
    allow_tf32 : bool
    defines, epilogue : dict, bytes
        What `epilogue_args` returns for the epilogue.
    """

    out: Any
    packed: Any
    meta: Any
    dense: Any
    batch: tuple[int, ...]
    dtype: np.dtype
    empty: bool
    allow_tf32: bool
    defines: dict[str, str]
    epilogue: bytes

    @property
    def packed_columns(self) -> int:
        """Packed values of a row to multiply."""
        return 0 if self.empty else self.packed.shape[1]

    def facts(self) -> Facts:
        """Return what the tile of a product depends on; M is that of one matrix."""
        capability, multiprocessors, shared_memory = device_facts()
        return Facts(
            dtype=self.dtype,
            shape=(self.out.shape[-2], self.dense.shape[-2], self.out.shape[-1]),
            matrices=prod(self.batch),
            layout=layout_of(self.dense),
            allow_tf32=self.allow_tf32,
            capability=capability,
            multiprocessors=multiprocessors,
            shared_memory=shared_memory,
            out_itemsize=self.out.itemsize,
        )


def product_24_of(
    out: Any,
    packed: Any,
    meta: Any,
    dense: Any,
    epilogue: Epilogue,
    dtype: np.dtype,
    allow_tf32: bool,
) -> Product24:
    """Describe the arguments of `semi_structured_addmm`."""
    batch = merged_batch(out.shape[:-2], (out, 2), (dense, 2), *batched_operands(epilogue))
    defines, argument = epilogue_args(epilogue, batch, accumulator_dtype(dtype), out.dtype)
    return Product24(
        out=out,
        packed=contiguous_rows(packed),
        meta=contiguous_rows(meta),
        dense=dense,
        batch=batch,
        dtype=dtype,
        empty=epilogue.alpha == 0,
        allow_tf32=allow_tf32,
        defines=defines,
        epilogue=argument,
    )


def counts_in_32_bits(p: Product24) -> bool:
    """Return whether there is something to compute, and 32 bits count its rows and columns."""
    sizes = (*p.out.shape[-2:], p.dense.shape[-2])
    return min(sizes) > 0 and max(sizes) < INT32


def contiguous_rows(array: Any) -> Any:
    """Return the array itself if it is C-contiguous and aligned to 16 bytes, else a copy."""
    if array.flags.c_contiguous and array.data.ptr % 16 == 0:
        return array
    return array.copy(order="C")


def tile_launch(p: Product24, tile: Tile, source: str, problem: str, **depth: int) -> Launch:
    """Return the launch of a kernel whose thread blocks compute a tile each.

    ``depth`` is the field of the kernel's struct ``problem`` that holds the extent along k.
    """
    (m, n), batches = p.out.shape[-2:], prod(p.batch)
    return Launch(
        kernel(source, **p.defines, **tile.defines),
        grid(batches * ceil_div(m, tile.tile_m) * ceil_div(n, tile.tile_n)),
        (tile.threads,),
        (
            matrix_view(p.out, p.batch),
            p.packed,
            p.meta,
            matrix_view(p.dense, p.batch),
            batch_dims(p.batch),
            kernel_struct(source, problem)(
                m=m, n=n, packed_columns=p.packed.shape[1], batches=batches, **depth
            ),
            p.epilogue,
        ),
        tile.shared_memory,
    )
