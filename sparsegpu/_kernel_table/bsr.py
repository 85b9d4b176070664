"""Conversions, softmax and attention of block-sparse matrices."""

from __future__ import annotations

from .source import FLOATS, KernelSource, each

_CONTAINERS = (*FLOATS, "int8", "uint8", "int32", "bool", "complex64", "complex128")
_ELEMENTS = ("bf16", "f32", "s8", "b8", "c128")

CONVERSIONS = (
    KernelSource(
        "bsr_block_mask", "bsr_array", _CONTAINERS, variants=each("T", _ELEMENTS), path="copy"
    ),
    KernelSource(
        "bsr_gather",
        "bsr_array",
        _CONTAINERS,
        variants=each("T", _ELEMENTS, INDEX="s32") + each("T", ("f32",), INDEX="s64"),
        path="copy",
    ),
    KernelSource(
        "bsr_scatter",
        "bsr_array",
        _CONTAINERS,
        variants=each("T", _ELEMENTS, INDEX="s32", WIDE="1")
        + each("T", ("bf16", "f32"), INDEX="s64", WIDE="4")
        + each("T", ("b8",), INDEX="s32", WIDE="16"),
        path="copy",
    ),
    KernelSource(
        "bsr_transpose_blocks",
        "bsr_array",
        _CONTAINERS,
        variants=each("T", _ELEMENTS, WIDE="0") + each("T", _ELEMENTS, WIDE="1"),
        path="copy",
    ),
    KernelSource(
        "bsr_sum_blocks", "bsr_array", _CONTAINERS, variants=each("T", _ELEMENTS), path="copy"
    ),
)

SOFTMAX = (
    KernelSource(
        "bsr_softmax",
        "bsr_softmax",
        FLOATS,
        variants=tuple(
            {"T": t, "OUT": t, "TEAM": team, "INDEX": "s32"}
            for t in ("f16", "bf16", "f32", "f64")
            for team in (32, 256)
        )
        + ({"T": "bf16", "OUT": "f32", "TEAM": 32, "INDEX": "s64"},),
    ),
)

ATTENTION = (
    KernelSource(
        "bsr_attention",
        "scaled_dot_product_attention",
        FLOATS,
        variants=tuple(
            {"T": t, "MASK": mask, "INDEX": "s32", "ROWS": rows, "COLUMNS": columns}
            for t, mask, rows, columns in (
                ("f16", "b8", 4, 2),
                ("f16", "f16", 1, 8),
                ("bf16", "b8", 4, 4),
                ("bf16", "bf16", 4, 8),
                ("bf16", "f32", 1, 2),
                ("f32", "b8", 4, 8),
                ("f32", "f32", 1, 4),
                ("f64", "b8", 2, 4),
                ("f64", "f64", 1, 4),
                ("f64", "f32", 2, 2),
            )
        )
        + ({"T": "f32", "MASK": "b8", "INDEX": "s64", "ROWS": 4, "COLUMNS": 4},),
    ),
)
