"""The kernels that belong to no path: which operations, dtypes and architectures they serve.

The kernels of products are declared by their paths (`paths`). All are asked through `support`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._attention_kernels import ATTENTION_BACKWARD, ATTENTION_SHARED
from ._kernel_source import FLOATS, HALVES, KernelSource, each
from ._solver_kernels import SOLVERS
from .runtime.architectures import HOPPER

#: The public operations that kernels compute.
OPERATIONS = (
    "bsr_addmm",
    "sampled_addmm",
    "bsr_softmax",
    "bsr_softmax_backward",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_backward",
    "scatter_mm",
    "bsr_array",
    "semi_structured_from_dense",
    "semi_structured_to_dense",
    "reorder_meta",
    "permute_for_24",
    "prune_24",
    "prune_tile",
    "semi_structured_tile",
    "compressed_swizzled_bitmask",
    "semi_structured_apply",
    "semi_structured_addmm",
    "scaled_mm",
    "bsr_semi_structured_addmm",
    "bsr_spgemm",
)

_PRODUCT_DTYPES = (*FLOATS, "int8", "complex64", "complex128")
_INDICES = ("s32", "s64")


def epilogue_of(t: str, out: str, epilogue: str, act: str = "none") -> dict[str, str]:
    """Return the ``-D`` names of an epilogue that reads all it can (``common/epilogue.cuh``)."""
    sides = {
        "identity": {},
        "scaled": {"INPUT": out, "LEFT": t if t in {"f64", "c128"} else "f32", "RIGHT": t},
        "exact": {"INPUT": "s32"},
    }
    return {"OUT": out, "EPILOGUE": epilogue, "ACT": act, **sides[epilogue]}


_FORMAT_24 = (*HALVES, "float32", "int8", "float8_e4m3fn")
_PRUNED = (*HALVES, "float32", "float64", "int8", "float8_e4m3fn")


def _ruled(**rules: str) -> tuple[Mapping[str, str], ...]:
    """Return one ``-D`` set for each type and the rule that it is pruned by."""
    return tuple({"T": t, "RULE": rule} for t, rule in rules.items())


#: Kernels that paths, or wrapped kernels (`sparsegpu.kernels`), launch besides their own.
_SHARED = (
    KernelSource("copy_bytes", (), ()),
    KernelSource(
        "bsr_pad_blocks",
        (),
        HALVES,
        variants=tuple({"T": t, "TRANSPOSED": n} for n, t in enumerate(("f16", "bf16"))),
    ),
    KernelSource(
        "bsr_addmm_sm90_reduce",
        (),
        ("float16", "bfloat16", "int8", "float32"),
        archs=HOPPER,
        variants=tuple(
            {"T": t, "INDEX": "s32", "BM": m, "STORE": store, "TILE_N": n, **epilogue}
            for t, m, store, n, epilogue in (
                ("bf16", 16, "rows", 256, epilogue_of("bf16", "bf16", "identity")),
                ("f16", 192, "columns", 64, epilogue_of("f16", "f32", "scaled", "gelu")),
                ("bf16", 48, "unaligned", 128, epilogue_of("bf16", "f16", "scaled", "silu")),
                ("s8", 64, "elementwise", 128, epilogue_of("s8", "s8", "scaled")),
                ("s8", 32, "rows", 256, epilogue_of("s8", "s32", "exact")),
                ("f32", 16, "rows", 256, epilogue_of("f32", "f32", "scaled")),
            )
        ),
    ),
    KernelSource(
        "bsr_sampled_addmm_reduce",
        (),
        ("float16", "bfloat16", "int8", "float32", "float64"),
        variants=(
            {"T": "bf16", **epilogue_of("bf16", "bf16", "scaled")},
            {"T": "f16", "OUT": "f32", "EPILOGUE": "identity"},
            {"T": "f32", **epilogue_of("f32", "f32", "scaled")},
            {"T": "f64", **epilogue_of("f64", "f64", "scaled")},
            {"T": "s8", **epilogue_of("s8", "s32", "exact")},
            {"T": "s8", **epilogue_of("s8", "s8", "scaled")},
        ),
    ),
    KernelSource(
        "dense_lines",
        (),
        ("float16", "bfloat16", "int8", "float32"),
        variants=each("FROM", ("along", "any"), T="f16")
        + each("FROM", ("along", "any"), T="s8")
        + each("FROM", ("along", "any"), T="f32")
        + each("ALIGNED", ("0", "1"), T="bf16", FROM="across")
        + each("ALIGNED", ("0", "1"), T="s8", FROM="across")
        + each("ALIGNED", ("0", "1"), T="f32", FROM="across"),
    ),
    KernelSource(
        "bsr_addmm_vector_reduce",
        (),
        _PRODUCT_DTYPES,
        variants=tuple(
            {"T": t, "BM": 4, "COLUMNS": n, **epilogue_of(t, t, "scaled")}
            for t, n in (("f32", 1), ("f64", 8), ("c128", 2))
        ),
    ),
)

#: Kernels that prepare what products read of a pattern.
_SCHEDULES = (
    KernelSource(
        "bsr_schedule",
        (),
        (),
        variants=tuple({"INDEX": i, "BLOCK": b} for i, b in (("s32", "s32"), ("s64", "s64"))),
    ),
    KernelSource(
        "bsr_spgemm_rows",
        (),
        (),
        variants=tuple(
            {"FILL": fill, "INDEX": i, "OUT_INDEX": o}
            for fill, i, o in ((0, "s32", "s32"), (1, "s32", "s64"), (1, "s64", "s64"))
        ),
    ),
    KernelSource("bsr_spgemm_ends", (), ()),
    KernelSource(
        "bsr_spgemm_pairs",
        (),
        (),
        variants=tuple(
            {"FILL": fill, "INDEX": i, "OUT_INDEX": i, "PAIR": p}
            for fill, i, p in ((0, "s32", "s32"), (1, "s32", "s32"), (1, "s64", "s64"))
        ),
    ),
    KernelSource(
        "bsr_union_rows",
        (),
        (),
        variants=tuple(
            {"FILL": fill, "INDEX": i, "OUT_INDEX": o, "NUMBER": n}
            for fill, i, o, n in (
                (0, "s32", "s32", "s32"),
                (1, "s32", "s32", "s64"),
                (1, "s64", "s64", "s64"),
            )
        ),
    ),
    KernelSource("interval_mask", (), (), variants=each("INDEX", _INDICES)),
    KernelSource(
        "mask_of_lists",
        (),
        (),
        variants=each("T", _INDICES, INDEX="s32") + each("T", ("s64",), INDEX="s64"),
    ),
    KernelSource(
        "top_k",
        (),
        (),
        variants=each("T", ("f16", "bf16", "f32", "f64", "s64"), INDEX="s32")
        + each("INDEX", ("s64",), T="f32"),
    ),
    KernelSource(
        "scatter_indices",
        (),
        (),
        variants=each("FORMAT", ("pairs", "strided", "compressed"), INDEX="s32")
        + each("FORMAT", ("compressed",), INDEX="s64"),
    ),
    KernelSource(
        "bsr_schedule_order",
        (),
        (),
    ),
    KernelSource(
        "bsr_row_order",
        (),
        (),
        variants=each("INDEX", _INDICES, WINDOW="256", WORDS="16")
        + each("WORDS", ("32", "64", "92"), INDEX="s32", WINDOW="256"),
    ),
    KernelSource(
        "bsr_cluster_work",
        (),
        (),
        variants=each(
            "INDEX", _INDICES, CLUSTER="4", ROWS_PER_CLUSTER="2", SLICES_M="2", SLICES_K="1"
        ),
    ),
    KernelSource("bsr_column_order", (), (), variants=each("INDEX", _INDICES)),
    KernelSource("bsr_transpose_pattern", (), (), variants=each("INDEX", _INDICES)),
    KernelSource("bsr_row_signature", (), (), variants=each("INDEX", _INDICES)),
)

_CONTAINERS = (*FLOATS, "int8", "uint8", "int32", "bool", "complex64", "complex128")
_ELEMENTS = ("bf16", "f32", "s8", "b8", "c128")

_CONVERSIONS = (
    KernelSource(
        "bsr_block_mask",
        "bsr_array",
        _CONTAINERS,
        variants=each("T", _ELEMENTS),
    ),
    KernelSource(
        "bsr_gather",
        "bsr_array",
        _CONTAINERS,
        variants=each("T", _ELEMENTS, INDEX="s32") + each("T", ("f32",), INDEX="s64"),
    ),
    KernelSource(
        "bsr_scatter",
        "bsr_array",
        _CONTAINERS,
        variants=each("T", _ELEMENTS, INDEX="s32", WIDE="1")
        + each("T", ("bf16", "f32"), INDEX="s64", WIDE="4")
        + each("T", ("b8",), INDEX="s32", WIDE="16"),
    ),
    KernelSource(
        "bsr_transpose_blocks",
        "bsr_array",
        _CONTAINERS,
        variants=each("T", _ELEMENTS, WIDE="0") + each("T", _ELEMENTS, WIDE="1"),
    ),
    KernelSource(
        "bsr_sum_blocks",
        "bsr_array",
        _CONTAINERS,
        variants=each("T", _ELEMENTS),
    ),
    KernelSource(
        "bsr_union_blocks",
        "bsr_array",
        _CONTAINERS,
        variants=each("T", _ELEMENTS, OPERATION="sum", NUMBER="s32", WIDE="1")
        + each("T", ("f16", "s32", "c64"), OPERATION="difference", NUMBER="s32", WIDE="2")
        + each("T", ("s8", "b8"), OPERATION="left", NUMBER="s64", WIDE="16"),
    ),
)


def _rows(
    t: str, out: str, wide: int, team: int, kept: int, streamed: int, **names: Any
) -> dict[str, Any]:
    return {
        **{"T": t, "OUT": out, "WIDE": wide, "TEAM": team, "THREADS": max(team, 128)},
        **{"RESIDENT": 512, "KEPT": kept, "STREAMED": streamed, "WHOLE": 1, "INDEX": "s32"},
        **names,
    }


_SOFTMAX = (
    KernelSource(
        "bsr_softmax",
        "bsr_softmax",
        FLOATS,
        variants=(
            _rows("bf16", "bf16", 8, 32, 8, 2),
            _rows("bf16", "bf16", 8, 32, 5, 2, WHOLE=0, INDEX="s64"),
            _rows("bf16", "bf16", 8, 128, 8, 2),
            _rows("f16", "f32", 8, 512, 2, 8),
            _rows("f32", "f32", 4, 256, 12, 2),
            _rows("f32", "f32", 4, 512, 2, 12),
            _rows("f64", "f64", 2, 512, 4, 2),
            _rows("f64", "f64", 1, 32, 5, 2, WHOLE=0),
            _rows("f32", "bf16", 1, 32, 8, 2, WHOLE=0),
        ),
    ),
    KernelSource(
        "bsr_softmax_backward",
        "bsr_softmax_backward",
        FLOATS,
        variants=(
            _rows("bf16", "bf16", 8, 32, 8, 2),
            _rows("bf16", "bf16", 8, 32, 5, 2, WHOLE=0, INDEX="s64"),
            _rows("bf16", "bf16", 8, 128, 8, 2),
            _rows("f16", "f32", 8, 512, 2, 8),
            _rows("f32", "f32", 4, 512, 8, 2),
            _rows("f64", "f64", 2, 512, 2, 7),
            _rows("f32", "bf16", 1, 32, 8, 2, WHOLE=0),
        ),
    ),
)

_SEMI_STRUCTURED = (
    KernelSource(
        "semi_structured_compress",
        "semi_structured_from_dense",
        _FORMAT_24,
        variants=(
            {"BYTES": 2, "SIGNED_ZERO": 1},
            {"BYTES": 4, "SIGNED_ZERO": 1},
            {"BYTES": 1, "SIGNED_ZERO": 0},
            {"BYTES": 1, "SIGNED_ZERO": 1},
        ),
    ),
    KernelSource(
        "semi_structured_expand",
        "semi_structured_to_dense",
        _FORMAT_24,
        variants=each("BYTES", (1, 2, 4)),
    ),
    KernelSource(
        "semi_structured_reorder",
        "reorder_meta",
        ("int16", "int32"),
        variants=tuple({"META_BYTES": b, "RESTORE": r} for b in (2, 4) for r in (0, 1)),
    ),
    KernelSource("permute_24", "permute_for_24", _PRUNED, variants=each("GROUP", (4, 2))),
    KernelSource(
        "prune_24",
        "prune_24",
        _PRUNED,
        variants=(
            {"T": "f16", "GROUP": 4, "FLAT": 1},
            {"T": "bf16", "GROUP": 4, "FLAT": 0, "IMPORTANCE": "f32"},
            {"T": "f32", "GROUP": 2, "FLAT": 1},
            {"T": "f64", "GROUP": 4, "FLAT": 1, "IMPORTANCE": "f64"},
            {"T": "s8", "GROUP": 4, "FLAT": 1},
            {"T": "e4m3", "GROUP": 4, "FLAT": 0},
        ),
    ),
    KernelSource(
        "prune_tile",
        "prune_tile",
        _PRUNED,
        variants=_ruled(
            f16="largest_abs_values",
            bf16="given_mask",
            f32="largest_values",
            f64="causal1122",
            s8="largest_abs_values",
            e4m3="largest_values",
        ),
    ),
    KernelSource(
        "semi_structured_tile",
        ("semi_structured_tile", "semi_structured_apply"),
        (*HALVES, "int8", "float8_e4m3fn"),
        variants=_ruled(
            f16="largest_values", bf16="largest_abs_values", s8="causal1122", e4m3="given_mask"
        ),
    ),
    KernelSource(
        "semi_structured_bitmask",
        "compressed_swizzled_bitmask",
        _PRUNED,
        variants=each("T", ("f16", "bf16", "f32", "f64", "s8", "e4m3")),
    ),
    KernelSource(
        "accumulator_epilogue",
        (),
        (),
        variants=tuple(
            {"T": t, **epilogue_of(t, out, epilogue, act)}
            for t, out, epilogue, act in (
                ("bf16", "bf16", "scaled", "none"),
                ("f16", "f32", "scaled", "relu"),
                ("f32", "f16", "scaled", "gelu"),
                ("s8", "s8", "scaled", "gelu_erf"),
                ("s8", "s32", "exact", "relu"),
                ("s8", "f32", "identity", "none"),
                ("e4m3", "bf16", "scaled", "silu"),
            )
        ),
    ),
)

OTHERS: tuple[KernelSource, ...] = (
    *_SHARED,
    *_SCHEDULES,
    *_CONVERSIONS,
    *_SOFTMAX,
    *ATTENTION_SHARED,
    *ATTENTION_BACKWARD,
    *_SEMI_STRUCTURED,
    *SOLVERS,
)
