"""The kernel paths of the products and of attention: a module each, named as its source.

A path's module says everything about it, and importing it needs no GPU:

``NAME``
    What ``config={"path": NAME}`` takes.
``SOURCES``
    The stem of its kernel's source in ``cuda_src``; none where a library multiplies.
``DTYPES``, ``ARCHS``
    Operand dtypes by name, and the architectures that the source compiles for.
``TENSOR_CORES``
    Whether the kernel must not spill registers.
``pays(facts)``
    Whether a call without ``config`` takes this path where it serves, by `Product.facts`.
``serves(product)``
    Whether the kernel can read and write these arrays as they lie in memory.
``facts(product)``
    What ``tile`` depends on, as numbers (`_facts.Facts`).
``tile(facts, fields)``
    The tile, from pure Python; None where such products are not for this kernel. Asks ``fields``
    for what a configuration may say, and so tells `tune` what to try.
    Its ``defines`` are the ``-D`` names of the kernel.
``BY_ADDRESS``
    The ``-D`` names that are decided by where the operands lie, and the values that they may have.
    The compile matrix is made from these and from the tiles (`_examples.variants`).
``TOGETHER``
    Of paths whose registers are few: the names of which the compile matrix has every combination.
``examples(dtypes, capability, all)``
    Of attention, sampled and scattered products and BSR @ BSR, whose facts are their own: kinds of
    operations to derive tables and variants from.
``launched(defines)``
    Of some of attention: what becomes of a tile's ``-D`` names with those of ``BY_ADDRESS``.
``fits(defines, shared_memory)``
    Of paths whose tiles depend on a device's shared memory: whether it suffices for one. The
    compile matrix builds a tile for devices that may have it only.
``epilogues(t)``
    Of sampled and scattered products, which have less to add: the epilogues to compile.
``worth_measuring(facts)``
    Of all but 2:4 and the gradients of attention: whether `tune` measures it.
``launches(product, tile)``
    The launches, or None where only looking at the device shows that it does not serve.

A family's tuple (``BSR``, ``ATTENTION``, ...) is the order in which its paths are asked
(`_dispatch.py`). To add a path, write its module and put its stem into ``_STEMS``.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

from ... import engine_part

Family = tuple[ModuleType, ...]

#: The stems of every family's paths, in the order in which they are asked.
_STEMS = {
    # BSR @ dense.
    "BSR": (
        "bsr_addmm_dense",
        "bsr_addmm_vector_mma",
        "bsr_addmm_vector",
        "bsr_addmm_skinny_sm90",
        "bsr_addmm_skinny",
        "bsr_addmm_sm90",
        "bsr_addmm_groups",
        "bsr_addmm_f64",
        "bsr_addmm_sm80",
        "bsr_addmm_f32",
        "bsr_addmm_simt",
    ),
    # 2:4 @ dense.
    "SEMI_STRUCTURED": (
        "semi_structured_addmm_skinny_sm90",
        "semi_structured_addmm_sm90",
        "semi_structured_addmm_sm80",
        "semi_structured_addmm_simt",
    ),
    # BSR of 2:4 blocks @ dense.
    "BSR_SEMI_STRUCTURED": (
        "bsr_semi_structured_addmm_sm90",
        "bsr_semi_structured_addmm_sm80",
        "bsr_semi_structured_addmm_simt",
    ),
    # Attention over a block mask.
    "ATTENTION": (
        "bsr_attention_decode",
        "bsr_attention_sm90",
        "bsr_attention_sm80",
        "bsr_attention_f64",
        "bsr_attention_fma",
        "bsr_attention_simt",
    ),
    # Gradients of attention's query, key and value.
    "ATTENTION_BACKWARD": (
        "bsr_attention_backward_sm90",
        "bsr_attention_backward_sm80",
        "bsr_attention_backward_fma",
        "bsr_attention_backward_simt",
    ),
    # Dense @ dense at the stored blocks.
    "SAMPLED": (
        "bsr_sampled_addmm_sm90",
        "bsr_sampled_addmm_sm80",
        "bsr_sampled_addmm_f64",
        "bsr_sampled_addmm_f32",
        "bsr_sampled_addmm_simt",
    ),
    # BSR @ BSR.
    "SPGEMM": (
        "bsr_spgemm_f64",
        "bsr_spgemm_small",
        "bsr_spgemm_sm80",
        "bsr_spgemm_f64_tiled",
        "bsr_spgemm_f32",
        "bsr_spgemm_simt",
    ),
    # Blocks @ blocks, added where lists say.
    "SCATTER": (
        "scatter_mm_sm90",
        "scatter_mm_sm80",
        "scatter_mm_f64",
        "scatter_mm_f32",
        "scatter_mm_simt",
    ),
}

#: The operations that paths compute, and the names of their families.
FAMILY_OF = {
    "bsr_addmm": "BSR",
    "semi_structured_addmm": "SEMI_STRUCTURED",
    "scaled_mm": "SEMI_STRUCTURED",
    "bsr_semi_structured_addmm": "BSR_SEMI_STRUCTURED",
    "scaled_dot_product_attention": "ATTENTION",
    "scaled_dot_product_attention_backward": "ATTENTION_BACKWARD",
    "sampled_addmm": "SAMPLED",
    "bsr_spgemm": "SPGEMM",
    "scatter_mm": "SCATTER",
}


def family_of(operation: str) -> Family:
    """Return the paths of an operation."""
    return _family(FAMILY_OF[operation])


@cache
def _family(name: str) -> Family:
    """Import a family's paths when it is asked for: a product does without those of attention."""
    return tuple(engine_part("cuda", f"paths.{stem}") for stem in _STEMS[name])


def __getattr__(name: str) -> Any:
    """Return a family by its name."""
    if name not in _STEMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _family(name)
