"""The kernels of attention and of its gradients."""

from __future__ import annotations

from ._kernel_source import FLOATS, KernelSource, each

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
        + tuple(
            {
                **{"T": t, "OUT": out, "MASK": mask, "INDEX": "s64", "ROWS": 4, "COLUMNS": 4},
                **{"SOFTCAP": softcap, "SLOPES": slopes, "SINKS": sinks},
            }
            for t, out, mask, softcap, slopes, sinks in (
                ("f32", "f32", "b8", 0, 0, 0),
                ("bf16", "f32", "bf16", 1, 1, 1),
                ("f32", "f16", "f32", 1, 0, 1),
                ("f64", "f64", "b8", 0, 1, 0),
            )
        ),
    ),
)

_BACKWARD = "scaled_dot_product_attention_backward"
_TYPES_OF_BACKWARD = (
    {"T": "bf16", "MASK": "b8", "INDEX": "s32", "ROWS": 4},
    {"T": "f16", "MASK": "f16", "INDEX": "s32", "ROWS": 1},
    {"T": "f32", "MASK": "f32", "INDEX": "s64", "ROWS": 4, "SOFTCAP": 1, "SLOPES": 1},
    {"T": "f64", "MASK": "b8", "INDEX": "s32", "ROWS": 2, "SOFTCAP": 1, "SLOPES": 0},
)

ATTENTION_BACKWARD = (
    KernelSource(
        "bsr_attention_backward",
        _BACKWARD,
        FLOATS,
        variants=tuple(
            {**types, "GRADIENT": gradient, "COLUMNS": columns}
            for types in _TYPES_OF_BACKWARD
            for gradient, columns in (("query", 2), ("key", 4), ("value", 4))
        ),
    ),
    KernelSource("bsr_attention_backward_mask", _BACKWARD, FLOATS, variants=_TYPES_OF_BACKWARD),
    KernelSource(
        "bsr_attention_backward_sinks", _BACKWARD, FLOATS, variants=each("T", ("f32", "f64"))
    ),
)
