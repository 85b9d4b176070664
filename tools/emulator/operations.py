"""Operations through their CUDA hosts, over emulated kernels and NumPy arrays."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

from sparsegpu.engines.cuda import (
    _epilogue_args,
    _spgemm_plan,
    addmm,
    block_masks,
    scatter_indices,
    scatter_mm,
    softmax,
    spgemm,
    union,
)
from sparsegpu.engines.cuda.paths import (
    SCATTER,
    SPGEMM,
    _block_row_product,
    _dense_lines,
    _dispatch,
    _few_columns,
    _matrix_maps,
    _product,
    _scatter,
    _skinny,
    _spgemm,
    _tuned,
    bsr_addmm_f32,
    bsr_addmm_f64,
    bsr_addmm_groups,
    bsr_addmm_simt,
    bsr_addmm_sm80,
    bsr_addmm_vector,
)

from .host import aligned_lines, emulated


def emulated_addmm(directory: Path) -> AbstractContextManager[Counter]:
    """Multiply block-sparse arrays by emulated kernels in the block of this context.

    By those of every architecture, for which products ask by their ``config``.
    """
    modules = (
        *(bsr_addmm_f32, bsr_addmm_f64, bsr_addmm_groups, bsr_addmm_simt, bsr_addmm_sm80),
        *(bsr_addmm_vector, _block_row_product, _dense_lines, _dispatch),
        *(_few_columns, _product, _skinny, _tuned),
    )
    replaced = {
        "aligned_lines": aligned_lines,
        "transpose_pattern": lambda pattern: pattern.transposed(),
    }
    return _emulated(directory, addmm, ("bsr_addmm",), modules, **replaced)


def emulated_union(directory: Path) -> AbstractContextManager[Counter]:
    """Add block-sparse arrays by emulated kernels in the block of this context."""
    return _emulated(directory, union, ("combine", "side_by_side"), (_spgemm_plan,))


def emulated_block_masks(directory: Path) -> AbstractContextManager[Counter]:
    """Make masks by emulated kernels in the block of this context."""
    return _emulated(directory, block_masks, ("interval_mask", "top_k", "listed"))


def emulated_softmax(directory: Path) -> AbstractContextManager[Counter]:
    """Compute softmax and its gradient by emulated kernels in the block of this context."""
    return _emulated(directory, softmax, ("bsr_softmax", "bsr_softmax_backward"))


def emulated_spgemm(directory: Path) -> AbstractContextManager[Counter]:
    """Multiply block-sparse arrays by emulated kernels in the block of this context."""
    modules = *SPGEMM, _dispatch, _spgemm, _tuned, _spgemm_plan
    return _emulated(directory, spgemm, ("plan", "spgemm"), modules)


def emulated_scatter_mm(directory: Path) -> AbstractContextManager[Counter]:
    """Compute `scatter_mm` by emulated kernels in the block of this context."""
    names = "scatter_mm", "bsr_strided_mm", "bsr_strided_mm_compressed", "clear"
    modules = *SCATTER, _dispatch, _matrix_maps, _scatter, _tuned, _epilogue_args
    return _emulated(directory, scatter_mm, names, modules)


def emulated_scatter_indices(directory: Path) -> AbstractContextManager[Counter]:
    """Make the index lists of patterns by emulated kernels in the block of this context."""
    return _emulated(directory, scatter_indices, ("index_lists",))


def _emulated(
    directory: Path,
    engine: ModuleType,
    names: tuple[str, ...],
    modules: tuple[ModuleType, ...] = (),
    **replacements: Any,
) -> AbstractContextManager[Counter]:
    """Run functions of a module of the CUDA engine; `modules` are what else launches for them."""
    stem = engine.__name__.rpartition(".")[2]
    operations = {stem: {name: getattr(engine, name) for name in names}}
    return emulated(directory, (*modules, engine), operations, **replacements)
