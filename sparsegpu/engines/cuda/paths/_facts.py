"""What the choice of a path and of its tile depends on, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..runtime.architectures import SHARED_MEMORY

HALVES = ("float16", "bfloat16")
FLOATS = (*HALVES, "float32", "float64")
#: The types that indices may have, as ``BY_ADDRESS`` of a path.
INDICES = {"INDEX": ("s32", "s64")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Numbers that describe a product and the device: a tile is chosen from these alone.

    Those of a real product come from its arrays (`_product.Product.facts`), those of a kind of
    products from `tune` and the compile matrix. The defaults are those of aligned operands on an
    H200.

    Attributes
    ----------
    dtype : dtype
        Of the operands.
    shape : (M, K, N)
        As they are multiplied; M counts the rows of all matrices of the result.
    blocksize : (bm, bk)
    matrices : int
        Of the result's batch.
    density : float
        Share of the block positions that are stored, repeated blocks counted again.
    column_blocks : float
        Stored blocks of a block column on average, in one matrix.
    layout : {"rows", "columns", "bytes", "strided"}
        Of the dense operand (`_product.layout_of`).
    dense_by_column : bool
        The dense operand's stride along a column is smaller than that along a row.
    transposed : bool
        The blocks are stored transposed: their columns are contiguous.
    allow_tf32 : bool
    capability : (int, int)
        Compute capability.
    multiprocessors, shared_memory : int
        Of the device; bytes that a thread block may have.
    data_alignment : int
        Bytes, up to 16, that divide the address of every matrix's first block.
    rows : int
        Block rows of a matrix, or row splits where long rows are split.
    row_blocks : float
        Blocks of one of these, on average.
    split_rows : bool
        Long rows are split (`_row_split.py`).
    vector_k, vector_n : int
        Elements that one vectorised load of up to 16 bytes reads along a column, and along a row,
        of the dense operand.
    out_itemsize : int
        Bytes of an element of the result.
    one_buffer : bool
        One store buffer a warp is enough for the epilogue (2:4 on Hopper).
    """

    dtype: np.dtype
    shape: tuple[int, int, int]
    blocksize: tuple[int, int] = (1, 1)
    matrices: int = 1
    density: float = 1.0
    column_blocks: float = 0.0
    layout: str = "rows"
    dense_by_column: bool = False
    transposed: bool = False
    allow_tf32: bool = False
    capability: tuple[int, int] = (9, 0)
    multiprocessors: int = 132
    shared_memory: int = SHARED_MEMORY[9, 0]
    data_alignment: int = 16
    rows: int = 1
    row_blocks: float = 1.0
    split_rows: bool = False
    vector_k: int = 1
    vector_n: int = 1
    out_itemsize: int = 4
    one_buffer: bool = False

    @property
    def columns(self) -> int:
        """N."""
        return self.shape[2]

    @property
    def itemsize(self) -> int:
        """Bytes of an operand's element."""
        return self.dtype.itemsize

    @property
    def block_rows(self) -> int:
        """Block rows of all matrices."""
        return self.shape[0] // self.blocksize[0]

    def rows_aligned(self, nbytes: int) -> bool:
        """Return whether every stored row of a block begins at a multiple of so many bytes."""
        row = self.blocksize[0 if self.transposed else 1] * self.itemsize
        return self.data_alignment % nbytes == row % nbytes == 0

    @property
    def tensor_cores(self) -> bool:
        """Whether tensor cores may multiply the dtype in its own precision, float32 as TF32."""
        name = self.dtype.name
        if name == "float8_e4m3fn":
            return self.capability >= (8, 9)
        return name in (*HALVES, "int8") or (name == "float32" and self.allow_tf32)


def always(_: Any) -> bool:
    """Return True: for a path that serves wherever it has a tile, or pays wherever it serves."""
    return True
