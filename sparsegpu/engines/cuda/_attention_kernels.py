"""The kernels of attention's gradients, and of what its paths share."""

from __future__ import annotations

from ._kernel_source import FLOATS, HALVES, KernelSource, each

#: Finds what the tensor-core paths read of a bool mask, and merges the parts of long rows.
ATTENTION_SHARED = (
    KernelSource(
        "bsr_attention_mask",
        (),
        (),
        variants=tuple(
            {"INDEX": index, "BM": bm, "BK": bk}
            for index, bm, bk in (("s32", 64, 64), ("s64", 8, 80), ("s32", 256, 16))
        )
        + tuple(
            {"INDEX": index, "BM": 64, "BK": 64, "CODES": codes}
            for index, codes in (("s32", "s32"), ("s64", "s64"), ("s32", "s64"))
        ),
    ),
    KernelSource(
        "bsr_attention_decode_reduce",
        (),
        HALVES,
        variants=tuple(
            {"OUT": out, "INDEX": index, "BM": bm, "HEADS": heads, "VALUE_FEATURES": features}
            for out, index, bm, heads, features in (
                ("bf16", "s32", 1, 4, 128),
                ("f16", "s64", 16, 1, 64),
                ("f32", "s32", 3, 5, 256),
            )
        ),
    ),
    KernelSource(
        "bsr_attention_reduce",
        (),
        (*HALVES, "float32"),
        variants=tuple(
            {"OUT": out, "BM": bm, "TILE_Q": tile_q, "VALUE_FEATURES": features}
            for out, bm, tile_q, features in (
                ("bf16", 128, 128, 64),
                ("f16", 48, 64, 96),
                ("f32", 256, 64, 256),
            )
        ),
    ),
)

_BACKWARD = "scaled_dot_product_attention_backward"
_TYPES_OF_BACKWARD = (
    {"T": "bf16", "MASK": "b8", "INDEX": "s32", "ROWS": 4},
    {"T": "f16", "MASK": "f16", "INDEX": "s32", "ROWS": 1},
    {"T": "bf16", "MASK": "BlockCode<INDEX>", "INDEX": "s32", "ROWS": 4},
    {"T": "f64", "MASK": "BlockCode<INDEX>", "INDEX": "s64", "ROWS": 2},
    {"T": "f32", "MASK": "f32", "INDEX": "s64", "ROWS": 4, "SOFTCAP": 1, "SLOPES": 1},
    {"T": "f64", "MASK": "b8", "INDEX": "s32", "ROWS": 2, "SOFTCAP": 1, "SLOPES": 0},
)

ATTENTION_BACKWARD = (
    KernelSource("bsr_attention_backward_mask", _BACKWARD, FLOATS, variants=_TYPES_OF_BACKWARD),
    KernelSource(
        "bsr_attention_backward_sinks", _BACKWARD, FLOATS, variants=each("T", ("f32", "f64"))
    ),
)
