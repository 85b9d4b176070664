"""Block-sparse (BSR) and 2:4 semi-structured linear algebra for NumPy and CuPy.

This module holds names only. A name's module is imported when the name is first
used, so that ``import sparsegpu`` needs no CuPy, no SciPy, no compiler and no GPU.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

_MODULES = {
    # what users hold
    "bsr.array": ["BsrSemiStructuredArray", "bsr_array"],
    "bsr.assemble": ["block_array", "block_diag", "from_blocks", "hstack", "kron", "vstack"],
    "bsr.block_mask": ["BlockMask"],
    "bsr.diagonals": ["diags"],
    "files.npz": ["load_npz", "save_npz"],
    "files.safetensors": ["load_safetensors", "save_safetensors"],
    "bsr.make": ["eye", "identity", "prune_blocks", "random_bsr"],
    "bsr.triangle": ["tril", "triu"],
    "masks": ["banded", "bigbird", "causal", "sliding_window"],
    "semi_structured": ["SemiStructuredArray", "to_semi_structured"],
    # BSR products
    "ops.addmm": ["bsr_addmm", "bsr_linear", "bsr_matmul", "dense_bsr_matmul", "int_bsr_addmm"],
    "ops.attention": ["scaled_dot_product_attention"],
    "ops.attention_backward": ["AttentionGradients", "scaled_dot_product_attention_backward"],
    "ops.sampled_addmm": ["sampled_addmm"],
    "ops.scatter_indices": ["bsr_scatter_mm_indices_data"],
    "ops.scatter_mm": ["bsr_scatter_mm", "scatter_mm"],
    "ops.softmax": ["bsr_softmax", "bsr_softmax_backward"],
    "ops.spgemm": ["bsr_spgemm"],
    # 2:4
    "ops.compress": ["semi_structured_from_dense", "semi_structured_to_dense"],
    "ops.cusparselt_layout": ["from_cusparselt_layout", "to_cusparselt_layout"],
    "ops.meta": [
        "check_meta",
        "describe_meta",
        "meta_reorder_offsets",
        "reorder_meta",
        "restore_meta",
    ],
    "ops.permute": ["permute_for_24"],
    "ops.prune": ["prune_24", "prune_tile"],
    "ops.quantize": ["quantize_int8"],
    "ops.scaled_mm": ["scaled_mm"],
    "ops.semi_structured": [
        "semi_structured_addmm",
        "semi_structured_linear",
        "semi_structured_matmul",
    ],
    "ops.prune_tiles": [
        "compressed_swizzled_bitmask",
        "semi_structured_apply",
        "semi_structured_apply_dense",
        "semi_structured_tile",
    ],
    # who computes, and what can
    "tuning.tune": ["tune"],
    "engines": ["use_engine"],
    "engines.cuda.support": ["is_supported"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}
_SUBMODULES = ("kernels", "linalg", "masks", "testing")

__all__ = [
    "AttentionGradients",
    "BlockMask",
    "BsrSemiStructuredArray",
    "SemiStructuredArray",
    "__version__",
    "banded",
    "bigbird",
    "block_array",
    "block_diag",
    "bsr_addmm",
    "bsr_array",
    "bsr_linear",
    "bsr_matmul",
    "bsr_scatter_mm",
    "bsr_scatter_mm_indices_data",
    "bsr_softmax",
    "bsr_softmax_backward",
    "bsr_spgemm",
    "causal",
    "check_meta",
    "compressed_swizzled_bitmask",
    "dense_bsr_matmul",
    "describe_meta",
    "diags",
    "eye",
    "from_blocks",
    "from_cusparselt_layout",
    "hstack",
    "identity",
    "int_bsr_addmm",
    "is_supported",
    "kernels",
    "kron",
    "linalg",
    "load_npz",
    "load_safetensors",
    "masks",
    "meta_reorder_offsets",
    "permute_for_24",
    "prune_24",
    "prune_blocks",
    "prune_tile",
    "quantize_int8",
    "random_bsr",
    "reorder_meta",
    "restore_meta",
    "sampled_addmm",
    "save_npz",
    "save_safetensors",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_backward",
    "scaled_mm",
    "scatter_mm",
    "semi_structured_addmm",
    "semi_structured_apply",
    "semi_structured_apply_dense",
    "semi_structured_from_dense",
    "semi_structured_linear",
    "semi_structured_matmul",
    "semi_structured_tile",
    "semi_structured_to_dense",
    "sliding_window",
    "testing",
    "to_cusparselt_layout",
    "to_semi_structured",
    "tril",
    "triu",
    "tune",
    "use_engine",
    "vstack",
]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


if TYPE_CHECKING:
    from . import kernels, linalg, masks, testing
    from .bsr.array import BsrSemiStructuredArray, bsr_array
    from .bsr.assemble import block_array, block_diag, from_blocks, hstack, kron, vstack
    from .bsr.block_mask import BlockMask
    from .bsr.diagonals import diags
    from .bsr.make import eye, identity, prune_blocks, random_bsr
    from .bsr.triangle import tril, triu
    from .engines import use_engine
    from .engines.cuda.support import is_supported
    from .files.npz import load_npz, save_npz
    from .files.safetensors import load_safetensors, save_safetensors
    from .masks import banded, bigbird, causal, sliding_window
    from .ops.addmm import bsr_addmm, bsr_linear, bsr_matmul, dense_bsr_matmul, int_bsr_addmm
    from .ops.attention import scaled_dot_product_attention
    from .ops.attention_backward import AttentionGradients, scaled_dot_product_attention_backward
    from .ops.compress import semi_structured_from_dense, semi_structured_to_dense
    from .ops.cusparselt_layout import from_cusparselt_layout, to_cusparselt_layout
    from .ops.meta import (
        check_meta,
        describe_meta,
        meta_reorder_offsets,
        reorder_meta,
        restore_meta,
    )
    from .ops.permute import permute_for_24
    from .ops.prune import prune_24, prune_tile
    from .ops.prune_tiles import (
        compressed_swizzled_bitmask,
        semi_structured_apply,
        semi_structured_apply_dense,
        semi_structured_tile,
    )
    from .ops.quantize import quantize_int8
    from .ops.sampled_addmm import sampled_addmm
    from .ops.scaled_mm import scaled_mm
    from .ops.scatter_indices import bsr_scatter_mm_indices_data
    from .ops.scatter_mm import bsr_scatter_mm, scatter_mm
    from .ops.semi_structured import (
        semi_structured_addmm,
        semi_structured_linear,
        semi_structured_matmul,
    )
    from .ops.softmax import bsr_softmax, bsr_softmax_backward
    from .ops.spgemm import bsr_spgemm
    from .semi_structured import SemiStructuredArray, to_semi_structured
    from .tuning.tune import tune
else:  # hidden: a type checker would take any name for one of the library's

    def __getattr__(name: str) -> Any:
        if name in _MODULE_OF:
            value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
        elif name in _SUBMODULES:
            value = importlib.import_module(f".{name}", __name__)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value
