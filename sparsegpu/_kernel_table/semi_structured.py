"""2:4 sparse matrices: formats, pruning and products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .source import FP8, HALVES, KernelSource, each, epilogue_of

_FORMAT_24 = (*HALVES, "float32", "int8", "float8_e4m3fn")
_PRUNED = (*HALVES, "float32", "float64", "int8", "float8_e4m3fn")


def _ruled(**rules: str) -> tuple[Mapping[str, str], ...]:
    """Return one ``-D`` set for each type and the rule that it is pruned by."""
    return tuple({"T": t, "RULE": rule} for t, rule in rules.items())


def _mma_sp(
    t: str, out: str, dense: str, n: int, epilogue: str, act: str = "none", *, tile_m: int = 128
) -> Any:
    return {
        **{"T": t, "DENSE": dense, "TILE_M": tile_m, "TILE_N": n, "STAGES": 3},
        **epilogue_of(t, out, epilogue, act),
    }


# One strip is enough for an epilogue without side operands.
_ALONE = {"INPUT": "none", "RIGHT": "none"}


def _wgmma_sp(
    t: str, out: str, dense: str, epilogue: str, act: str = "none", **more: Any
) -> Mapping[str, Any]:
    tile = {"TILE_N": 256, "STAGES": 4, "CLUSTER": 2, "STORE_BUFFERS": 2}
    how = {"T": t, "DENSE": dense, "STORE": "rows"}
    return how | tile | dict(epilogue_of(t, out, epilogue, act)) | more


def _wgmma_blocks(
    t: str, out: str, block: tuple[int, int], dense: str, epilogue: str, act: str = "none", **m: Any
) -> Mapping[str, Any]:
    how = {
        "INDEX": "s32",
        "BM": block[0],
        "BK": block[1],
        "SPLIT_K": 0,
        "RASTER_BAND": 0,
        "SLICES_PER_COPY": 1,
    }
    return {**how, **_wgmma_sp(t, out, dense, epilogue, act), **m}


def _wgmma_sp_skinny(
    t: str, out: str, dense: str, n: int, epilogue: str, act: str = "none", **more: Any
) -> Mapping[str, Any]:
    tile = {"TILE_N": n, "CLUSTER": 2, "STAGES": 4}
    how = {"T": t, "DENSE": dense, "STORE": "rows"}
    return how | tile | dict(epilogue_of(t, out, epilogue, act)) | more


def _simt_24(t: str, out: str, n: int, epilogue: str, act: str = "none", **more: str) -> Any:
    return {"T": t, "TILE_N": n, **epilogue_of(t, out, epilogue, act), **more}


#: 2:4: format, pruning and product.
SEMI_STRUCTURED = (
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
        path="copy",
    ),
    KernelSource(
        "semi_structured_expand",
        "semi_structured_to_dense",
        _FORMAT_24,
        variants=each("BYTES", (1, 2, 4)),
        path="copy",
    ),
    KernelSource(
        "semi_structured_reorder",
        "reorder_meta",
        ("int16", "int32"),
        variants=tuple({"META_BYTES": b, "RESTORE": r} for b in (2, 4) for r in (0, 1)),
        path="copy",
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
        path="copy",
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
        path="copy",
    ),
    KernelSource(
        "semi_structured_tile",
        ("semi_structured_tile", "semi_structured_apply"),
        (*HALVES, "int8", "float8_e4m3fn"),
        variants=_ruled(
            f16="largest_values", bf16="largest_abs_values", s8="causal1122", e4m3="given_mask"
        ),
        path="copy",
    ),
    KernelSource(
        "semi_structured_bitmask",
        "compressed_swizzled_bitmask",
        _PRUNED,
        variants=each("T", ("f16", "bf16", "f32", "f64", "s8", "e4m3")),
        path="copy",
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
        path="copy",
    ),
    KernelSource(
        "semi_structured_addmm_sm80",
        "semi_structured_addmm",
        (*HALVES, "float32"),
        variants=(
            _mma_sp("bf16", "bf16", "rows", 128, "scaled", "gelu"),
            _mma_sp("bf16", "f16", "rows", 64, "identity"),
            _mma_sp("f16", "f32", "columns", 64, "scaled", "gelu"),
            _mma_sp("f32", "f32", "columns", 128, "scaled", "silu"),
            _mma_sp("f32", "bf16", "strided", 16, "identity"),
        ),
        path="mma_sp",
        tensor_core=True,
    ),
    KernelSource(
        "semi_structured_addmm_sm80",
        ("semi_structured_addmm", "scaled_mm"),
        ("int8",),
        variants=(
            _mma_sp("s8", "s32", "columns", 128, "exact", "relu"),
            _mma_sp("s8", "s8", "columns", 64, "scaled", "gelu_erf"),
            _mma_sp("s8", "s32", "strided", 32, "exact"),
        ),
        path="mma_sp",
        tensor_core=True,
    ),
    KernelSource(
        "semi_structured_addmm_sm80",
        ("semi_structured_addmm", "scaled_mm"),
        ("float8_e4m3fn",),
        archs=FP8,
        variants=(
            _mma_sp("e4m3", "bf16", "columns", 32, "scaled", tile_m=64),
            _mma_sp("e4m3", "bf16", "strided", 16, "scaled", tile_m=64),
        ),
        path="mma_sp",
        tensor_core=True,
    ),
    KernelSource(
        "semi_structured_addmm_sm90",
        "semi_structured_addmm",
        (*HALVES, "float32"),
        archs=("90a",),
        variants=(
            _wgmma_sp("bf16", "bf16", "rows", "identity", STAGES=5, STORE_BUFFERS=1),
            _wgmma_sp("f16", "f32", "columns", "scaled", "gelu", STORE="columns"),
            _wgmma_sp(
                "bf16", "bf16", "rows", "scaled", "silu", **_ALONE, STAGES=5, STORE_BUFFERS=1
            ),
            _wgmma_sp("f16", "f16", "rows", "scaled", "silu", TILE_N=128, STAGES=5, CLUSTER=1),
            _wgmma_sp("f32", "f32", "columns", "identity"),
        ),
        path="wgmma_sp",
        tensor_core=True,
    ),
    KernelSource(
        "semi_structured_addmm_sm90",
        ("semi_structured_addmm", "scaled_mm"),
        ("int8", "float8_e4m3fn"),
        archs=("90a",),
        variants=(
            _wgmma_sp("s8", "bf16", "columns", "scaled", STORE="unaligned"),
            _wgmma_sp("s8", "bf16", "columns", "identity", STAGES=5, STORE_BUFFERS=1),
            _wgmma_sp("s8", "s32", "columns", "exact", "relu", TILE_N=128, STAGES=6),
            _wgmma_sp("s8", "s8", "columns", "identity", TILE_N=128, STAGES=6, CLUSTER=1),
            _wgmma_sp("e4m3", "bf16", "columns", "scaled", TILE_N=64, STAGES=8, CLUSTER=1),
        ),
        path="wgmma_sp",
        tensor_core=True,
    ),
    KernelSource(
        "semi_structured_addmm_skinny_sm90",
        "semi_structured_addmm",
        (*HALVES, "float32"),
        archs=("90a",),
        variants=(
            _wgmma_sp_skinny("bf16", "bf16", "rows", 16, "identity"),
            _wgmma_sp_skinny("bf16", "bf16", "rows", 128, "identity"),
            _wgmma_sp_skinny("bf16", "bf16", "columns", 32, "scaled", STORE="columns", CLUSTER=4),
            _wgmma_sp_skinny("f16", "f32", "columns", 64, "scaled", "gelu_erf", CLUSTER=1),
            _wgmma_sp_skinny("f16", "f16", "rows", 128, "scaled", "silu", STORE="columns"),
            _wgmma_sp_skinny("f32", "f32", "columns", 64, "identity", CLUSTER=8),
        ),
        path="wgmma_sp_skinny",
        tensor_core=True,
    ),
    KernelSource(
        "semi_structured_addmm_skinny_sm90",
        ("semi_structured_addmm", "scaled_mm"),
        ("int8", "float8_e4m3fn"),
        archs=("90a",),
        variants=(
            _wgmma_sp_skinny("s8", "bf16", "columns", 16, "scaled", STORE="columns"),
            _wgmma_sp_skinny("s8", "s32", "columns", 128, "exact", "relu"),
            _wgmma_sp_skinny("s8", "s8", "columns", 64, "scaled", "gelu"),
            _wgmma_sp_skinny("e4m3", "bf16", "columns", 32, "scaled", CLUSTER=8),
            _wgmma_sp_skinny("e4m3", "bf16", "columns", 128, "scaled"),
        ),
        path="wgmma_sp_skinny",
        tensor_core=True,
    ),
    KernelSource(
        "semi_structured_addmm_simt",
        "semi_structured_addmm",
        (*HALVES, "float32"),
        variants=(
            _simt_24("bf16", "bf16", 64, "identity"),
            _simt_24("f16", "f16", 16, "scaled", "silu"),
            _simt_24("f32", "f32", 64, "scaled", "gelu"),
        ),
    ),
    KernelSource(
        "semi_structured_addmm_simt",
        ("semi_structured_addmm", "scaled_mm"),
        ("int8", "float8_e4m3fn"),
        variants=(
            _simt_24("s8", "s32", 64, "exact"),
            _simt_24("e4m3", "bf16", 64, "scaled"),
        ),
    ),
    KernelSource(
        "bsr_semi_structured_addmm_sm90",
        "bsr_semi_structured_addmm",
        (*HALVES, "int8", "float32"),
        archs=("90a",),
        variants=(
            _wgmma_blocks("bf16", "bf16", (128, 128), "rows", "identity"),
            _wgmma_blocks("bf16", "bf16", (128, 128), "rows", "identity", SLICES_PER_COPY=2),
            _wgmma_blocks("f16", "f16", (64, 128), "rows", "scaled", "gelu", SLICES_PER_COPY=2),
            _wgmma_blocks("f16", "f32", (64, 64), "columns", "scaled", "gelu", STORE="columns"),
            _wgmma_blocks("bf16", "f16", (64, 128), "rows", "scaled", "silu", STORE="unaligned"),
            _wgmma_blocks("f16", "f16", (192, 64), "rows", "scaled", TILE_N=64, STAGES=8),
            _wgmma_blocks("bf16", "bf16", (64, 64), "rows", "identity", SPLIT_K=1, INDEX="s64"),
            _wgmma_blocks("s8", "s32", (64, 128), "columns", "exact", "relu"),
            _wgmma_blocks(
                "s8", "s8", (128, 256), "columns", "scaled", TILE_N=128, SLICES_PER_COPY=2
            ),
            _wgmma_blocks("f32", "f32", (128, 32), "columns", "identity", SPLIT_K=1),
        ),
        path="wgmma_sp",
        tensor_core=True,
    ),
    KernelSource(
        "bsr_semi_structured_addmm_sm80",
        "bsr_semi_structured_addmm",
        (*HALVES, "int8", "float32"),
        variants=(
            {**_mma_sp("bf16", "bf16", "rows", 64, "identity"), "INDEX": "s32"},
            {**_mma_sp("f16", "f16", "rows", 64, "scaled", "silu", tile_m=32), "INDEX": "s32"},
            {**_mma_sp("f16", "f32", "columns", 64, "scaled", "gelu"), "INDEX": "s64"},
            {**_mma_sp("f32", "f32", "columns", 64, "scaled", tile_m=64), "INDEX": "s32"},
            {**_mma_sp("bf16", "bf16", "rows", 128, "scaled", "gelu"), "INDEX": "s32"},
            {**_mma_sp("s8", "s32", "columns", 128, "exact", "relu", tile_m=32), "INDEX": "s32"},
            {**_mma_sp("s8", "s8", "columns", 64, "scaled", "gelu_erf"), "INDEX": "s32"},
            {**_mma_sp("bf16", "bf16", "strided", 16, "identity"), "INDEX": "s32"},
        ),
        path="mma_sp",
        tensor_core=True,
    ),
    KernelSource(
        "bsr_semi_structured_addmm_simt",
        "bsr_semi_structured_addmm",
        (*HALVES, "int8", "float32"),
        variants=(
            _simt_24("bf16", "bf16", 64, "identity", INDEX="s32"),
            _simt_24("f16", "f16", 16, "scaled", "silu", INDEX="s64"),
            _simt_24("f32", "f32", 64, "scaled", "gelu", INDEX="s32"),
            _simt_24("s8", "s32", 64, "exact", INDEX="s32"),
        ),
    ),
)
