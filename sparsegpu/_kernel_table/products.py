"""BSR products, tensor cores first, and what prepares them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .source import FLOATS, KernelSource, each, epilogue_of

_INDICES = ("s32", "s64")
_PRODUCT_DTYPES = (*FLOATS, "int8", "complex64", "complex128")
_TILES = (
    {"TILE_M": 64, "TILE_N": 64, "TILE_K": 16, "LANES": 1},
    {"TILE_M": 4, "TILE_N": 1, "TILE_K": 64, "LANES": 32},
    {"TILE_M": 16, "TILE_N": 16, "TILE_K": 32, "LANES": 4},
)


def _simt(t: str, out: str, tile: int, index: str = "s32", epilogue: str = "scaled") -> Any:
    return {"T": t, "INDEX": index, **epilogue_of(t, out, epilogue), **_TILES[tile]}


def _mma(
    t: str,
    out: str,
    dense: str,
    tile: tuple[int, int],
    warps: tuple[int, int],
    transposed: int = 0,
    *,
    bk: int = 48,
) -> Any:
    return {
        **{"T": t, "INDEX": "s32", "BK": bk, **epilogue_of(t, out, "scaled", "gelu")},
        **{"TILE_M": tile[0], "TILE_N": tile[1], "WARPS_M": warps[0], "WARPS_N": warps[1]},
        **{"STAGES": 3, "DENSE": dense, "TRANSPOSED": transposed},
        "DATA_VECTORS": int(dense != "strided"),
    }


def _groups(
    t: str, out: str, block: tuple[int, int], rows: tuple[int, int], k: tuple[int, int], **more: Any
) -> Any:
    return {
        **{"T": t, "INDEX": "s32", **epilogue_of(t, out, "scaled", "gelu")},
        **{"BM": block[0], "BK": block[1], "GROUP": rows[0], "SLICE_ROWS": rows[1]},
        **{"STEP_K": k[0], "STEPS": k[1], "STAGES": 2, "DENSE": "rows", "TILE_N": 256},
        **{"WARPS_M": 1, "WARPS_N": 4, "RESIDENT": 2},
        **more,
    }


def _wgmma(
    t: str,
    out: str,
    block: tuple[int, int],
    dense: str = "rows",
    transposed: int = 0,
    epilogue: str = "scaled",
    act: str = "none",
    **more: Any,
) -> Mapping[str, Any]:
    return {
        "T": t,
        "INDEX": "s32",
        "BM": block[0],
        "BK": block[1],
        "TRANSPOSED": transposed,
        "DENSE": dense,
        "STORE": "rows",
        "TILE_N": 256,
        "STAGES": 4,
        "SPLIT_K": 0,
        **epilogue_of(t, out, epilogue, act),
    } | more


def _full(t: str, tile: tuple[int, int, int], warps: tuple[int, int], **others: Any) -> Any:
    return {
        **{"T": t, "OUT": t, "INDEX": "s32", "EPILOGUE": "scaled", "ACT": "gelu"},
        **{"TILE_M": tile[0], "TILE_N": tile[1], "TILE_K": tile[2], "STAGES": 2, "TRANSPOSED": 0},
        **{"WARPS_M": warps[0], "WARPS_N": warps[1], "DATA": "vectors", "DENSE": "vectors"},
        **({"THREAD_M": 8} if t == "f32" else {}),
        **others,
    }


def _vector(
    t: str, block: tuple[int, int], n: int, lanes: tuple[int, int, int, int], pieces: int = 0
) -> Any:
    team, rl, cv, nv = lanes
    return {
        **{"T": t, "INDEX": "s32", **epilogue_of(t, t, "scaled")},
        **{"BM": block[0], "BK": block[1], "COLUMNS": n, "TEAM": team, "RL": rl, "CV": cv},
        **{"NG": n // nv, "NV": nv, "UNROLL": 2, "X_VECTOR": 1 if cv > 1 else 2 if nv > 1 else 0},
        **{"CONTIGUOUS_ROWS": 0, "STREAM": int(cv > 1), "AHEAD": 1, "WARPS": 4, "RESIDENT": 4},
        **{"SPLIT_ROWS": pieces, "BATCHED": pieces},
    }


def _fragments(t: str, block: tuple[int, int], n: int, pieces: int = 0) -> Any:
    return {
        **{"T": t, "INDEX": "s32", **epilogue_of(t, t, "scaled")},
        **{"BM": block[0], "BK": block[1], "COLUMNS": n, "UNROLL": 5, "WARPS": 4},
        **{
            "X_VECTOR": int(n == 1),
            "RESIDENT": 5 + (t == "f32") - pieces,
            "SPLIT_ROWS": pieces,
            "BATCHED": pieces,
        },
    }


def _skinny(t: str, dense: str, tile: tuple[int, int]) -> Any:
    return {
        **{"T": t, "INDEX": "s32", "BM": 40, **epilogue_of(t, t, "scaled", "gelu")},
        **{"BK": 48, "TILE_M": tile[0], "TILE_N": tile[1], "STAGES": 2, "DENSE": dense},
        **{"WARPS_K": 4, "WARPS_N": tile[1] // 32 or 1, "BATCHED": 1, "COLUMN_TILES": 1},
    }


def _skinny_wgmma(t: str, dense: str, tile: tuple[int, int, int], **more: Any) -> Any:
    return {
        **{"T": t, "INDEX": "s32", "BM": 128, "BK": 64, "DENSE": dense, "BATCHED": 1},
        **{"TILE_N": tile[0], "CLUSTER": tile[1], "STAGES": tile[2], "COLUMN_TILES": 0},
        **epilogue_of(t, t, "scaled", "gelu"),
        **more,
    }


PRODUCTS = (
    KernelSource(
        "bsr_addmm_sm90",
        "bsr_addmm",
        ("float16", "bfloat16", "int8", "float32"),
        archs=("90a",),
        variants=(
            _wgmma("bf16", "bf16", (16, 16), act="relu"),
            _wgmma("bf16", "bf16", (128, 128), epilogue="identity"),
            _wgmma("f16", "f32", (32, 32), "columns", 1, STORE="elementwise", act="gelu"),
            _wgmma("bf16", "f16", (64, 64), "columns", 1, STORE="columns"),
            _wgmma("f16", "f16", (48, 80), TILE_N=128, STAGES=5, INDEX="s64"),
            _wgmma("bf16", "f32", (256, 64), TILE_N=64, STAGES=6),
            _wgmma("s8", "s32", (64, 64), "columns", epilogue="identity"),
            _wgmma("s8", "s32", (128, 128), "columns", epilogue="exact", act="relu"),
            _wgmma(
                "s8", "s32", (16, 64), "columns", STORE="elementwise", epilogue="exact", INPUT="s32"
            ),
            _wgmma("bf16", "bf16", (64, 64), STORE="unaligned", epilogue="identity"),
            _wgmma(
                "s8", "s32", (64, 64), "columns", STORE="unaligned", epilogue="exact", act="relu"
            ),
            _wgmma("s8", "s8", (128, 128), "columns", act="gelu"),
            _wgmma("s8", "s32", (64, 64), epilogue="identity"),
            _wgmma("s8", "f32", (192, 64), act="relu"),
            _wgmma("s8", "s32", (128, 128), TILE_N=128, epilogue="exact"),
            _wgmma("s8", "bf16", (32, 32), "columns", STORE="columns", TILE_N=128, STAGES=6),
            _wgmma("bf16", "bf16", (16, 16), epilogue="identity", SPLIT_K=1),
            _wgmma("f16", "f32", (192, 32), "columns", SPLIT_K=1),
            _wgmma("s8", "s32", (64, 64), "columns", epilogue="exact", SPLIT_K=1),
            _wgmma("f32", "f32", (16, 16), "columns", epilogue="identity"),
            _wgmma("f32", "f32", (64, 64), "columns", act="relu"),
            _wgmma("f32", "bf16", (128, 24), "columns", STORE="unaligned", act="gelu"),
        ),
        path="wgmma",
        tensor_core=True,
    ),
    KernelSource(
        "bsr_addmm_sm90_reduce",
        "bsr_addmm",
        ("float16", "bfloat16", "int8", "float32"),
        archs=("90a",),
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
        path="wgmma",
    ),
    KernelSource(
        "dense_lines",
        ("bsr_addmm", "semi_structured_addmm"),
        ("float16", "bfloat16", "int8", "float32"),
        variants=each("FROM", ("along", "any"), T="f16")
        + each("FROM", ("along", "any"), T="s8")
        + each("FROM", ("along", "any"), T="f32")
        + each("ALIGNED", ("0", "1"), T="bf16", FROM="across")
        + each("ALIGNED", ("0", "1"), T="s8", FROM="across")
        + each("ALIGNED", ("0", "1"), T="f32", FROM="across"),
        path="copy",
    ),
    KernelSource(
        "bsr_addmm_groups",
        "bsr_addmm",
        ("float16", "bfloat16"),
        variants=(
            _groups("bf16", "bf16", (16, 16), (4, 16), (16, 4)),
            _groups("f16", "f32", (64, 64), (1, 64), (64, 1), DENSE="columns"),
            _groups("bf16", "f16", (23, 23), (2, 24), (24, 2), INDEX="s64", STAGES=3),
            _groups("f16", "f16", (6, 6), (4, 8), (8, 8), TILE_N=128, RESIDENT=4),
            _groups("bf16", "f32", (32, 64), (1, 32), (32, 1), STAGES=3, WARPS_N=2, RESIDENT=4),
            _groups("bf16", "bf16", (256, 128), (1, 128), (64, 1), STAGES=4, WARPS_M=2, RESIDENT=1),
        ),
        path="groups",
        tensor_core=True,
    ),
    KernelSource(
        "bsr_pad_blocks",
        "bsr_addmm",
        ("float16", "bfloat16"),
        variants=tuple({"T": t, "TRANSPOSED": n} for n, t in enumerate(("f16", "bf16"))),
        path="copy",
    ),
    KernelSource(
        "bsr_addmm_sm80",
        "bsr_addmm",
        ("float16", "bfloat16", "int8", "float32"),
        variants=(
            _mma("f16", "f16", "rows", (128, 128), (4, 2)),
            _mma("f16", "f16", "rows", (128, 128), (4, 2), bk=128),
            _mma("bf16", "f32", "columns", (16, 32), (1, 2)),
            _mma("bf16", "bf16", "strided", (64, 128), (2, 2)),
            _mma("s8", "s32", "bytes", (32, 128), (1, 4)),
            _mma("s8", "s8", "columns", (128, 32), (4, 2)),
            _mma("s8", "s32", "columns", (128, 128), (4, 2), bk=64),
            _mma("f32", "f32", "rows", (64, 128), (2, 2)),
            _mma("bf16", "bf16", "columns", (128, 128), (4, 2), 1),
            _mma("f16", "f32", "strided", (16, 64), (1, 4), 1),
            _mma("s8", "s32", "columns", (64, 128), (2, 2), 1),
            _mma("f32", "f32", "columns", (128, 128), (4, 2), 1),
            _mma("bf16", "f32", "rows", (64, 128), (2, 2), 1, bk=64),
        ),
        path="mma",
        tensor_core=True,
    ),
    KernelSource(
        "bsr_addmm_f64",
        "bsr_addmm",
        ("float64",),
        variants=(
            _full("f64", (64, 128, 16), (1, 4), BM=128, BK=128, RESIDENT=2, STAGES=3),
            _full("f64", (32, 64, 16), (1, 2), BM=32, BK=32, RESIDENT=4, DENSE="columns"),
            _full("f64", (24, 64, 24), (1, 2), BM=23, BK=23, RESIDENT=4, DATA="rows"),
            _full("f64", (32, 128, 16), (1, 2), BM=32, BK=32, RESIDENT=4),
            _full("f64", (16, 64, 8), (1, 2), BM=9, BK=40, RESIDENT=4, DENSE="rows", INDEX="s64"),
            _full("f64", (64, 64, 16), (1, 2), BM=64, BK=64, RESIDENT=4)
            | {"DATA": "columns", "TRANSPOSED": 1},
        ),
        path="mma",
        tensor_core=True,
    ),
    KernelSource(
        "bsr_addmm_f32",
        "bsr_addmm",
        ("float32",),
        variants=(
            _full("f32", (64, 256, 16), (2, 2), BM=128, BK=128, RESIDENT=2, STAGES=3),
            _full("f32", (32, 256, 8), (1, 2), BM=32, BK=32, RESIDENT=4, STAGES=3)
            | {"LEFT": "f32", "RIGHT": "f32", "INPUT": "f32"},
            _full("f32", (5, 128, 16), (1, 1), BM=5, BK=13, RESIDENT=12, DATA="rows", THREAD_M=5),
            _full("f32", (48, 256, 16), (1, 4), BM=48, BK=48, RESIDENT=2, STAGES=3, THREAD_M=12),
            _full("f32", (32, 256, 32), (1, 4), BM=32, BK=32, RESIDENT=2, DENSE="columns"),
            _full("f32", (24, 256, 24), (1, 2), BM=23, BK=23, RESIDENT=2, DATA="rows", THREAD_M=12),
            _full("f32", (16, 64, 8), (1, 1), BM=9, BK=40, RESIDENT=8, DENSE="rows", THREAD_M=4),
            _full("f32", (64, 128, 32), (2, 2), BM=64, BK=64, RESIDENT=2)
            | {"DATA": "columns", "TRANSPOSED": 1},
        ),
        path="fma",
    ),
    KernelSource(
        "bsr_addmm_skinny",
        "bsr_addmm",
        ("float16", "bfloat16"),
        variants=(
            _skinny("f16", "rows", (32, 64)),
            _skinny("bf16", "rows", (32, 128)),
            _skinny("bf16", "columns", (16, 16)),
        ),
        path="skinny",
        tensor_core=True,
    ),
    KernelSource(
        "bsr_addmm_skinny_sm90",
        "bsr_addmm",
        ("float16", "bfloat16"),
        archs=("90a",),
        variants=(
            _skinny_wgmma("bf16", "rows", (16, 4, 4), BATCHED=0),
            _skinny_wgmma("bf16", "rows", (128, 2, 3), OUT="f32", COLUMN_TILES=1),
            _skinny_wgmma("bf16", "rows", (64, 2, 5), BATCHED=0, COLUMN_TILES=1),
            _skinny_wgmma("f16", "columns", (64, 1, 6), INDEX="s64"),
        ),
        path="skinny_wgmma",
        tensor_core=True,
    ),
    KernelSource(
        "bsr_addmm_vector",
        "bsr_addmm",
        _PRODUCT_DTYPES,
        variants=(
            _vector("f32", (3, 3), 1, (8, 1, 1, 1)),
            _vector("f64", (4, 4), 1, (32, 4, 2, 1), pieces=1),
            _vector("f32", (4, 4), 8, (32, 1, 1, 4)),
            _vector("c128", (6, 2), 4, (16, 1, 1, 1), pieces=1),
        ),
        path="vector",
    ),
    KernelSource(
        "bsr_addmm_vector_mma",
        "bsr_addmm",
        ("float32", "float64"),
        variants=(
            _fragments("f64", (4, 4), 8),
            _fragments("f64", (2, 8), 3, pieces=1),
            _fragments("f64", (8, 8), 1),
            _fragments("f32", (8, 8), 8),
        ),
        path="vector",
        tensor_core=True,
    ),
    KernelSource(
        "bsr_addmm_parts",
        "bsr_addmm",
        _PRODUCT_DTYPES,
        variants=tuple(
            {"T": t, "BM": 4, "COLUMNS": n, **epilogue_of(t, t, "scaled")}
            for t, n in (("f32", 1), ("f64", 8), ("c128", 2))
        ),
        path="vector",
    ),
    KernelSource(
        "bsr_addmm_simt",
        "bsr_addmm",
        _PRODUCT_DTYPES,
        variants=(
            {"TRANSPOSED": 0, **_simt("f32", "f32", 0)},
            {"TRANSPOSED": 0, **_simt("bf16", "f32", 1)},
            {"TRANSPOSED": 1, **_simt("f16", "f16", 1)},
            {"TRANSPOSED": 1, **_simt("s8", "s32", 2, epilogue="exact")},
            {"TRANSPOSED": 0, **_simt("f64", "f64", 1, index="s64")},
            {"TRANSPOSED": 0, **_simt("c128", "c128", 0, epilogue="identity")},
        ),
    ),
    KernelSource(
        "sampled_addmm",
        "sampled_addmm",
        _PRODUCT_DTYPES,
        variants=(
            _simt("f32", "f32", 0),
            _simt("f16", "f16", 2),
            _simt("s8", "s32", 2, epilogue="exact"),
            _simt("c128", "c128", 0),
        ),
    ),
    KernelSource(
        "scatter_mm",
        "scatter_mm",
        _PRODUCT_DTYPES,
        variants=(
            {"FORMAT": "pairs", **_simt("f16", "f16", 2, index="s64")},
            {"FORMAT": "strided", **_simt("s8", "s32", 1, epilogue="exact", index="s64")},
            {"FORMAT": "compressed", **_simt("f32", "f32", 0)},
            {"FORMAT": "compressed", **_simt("c128", "c128", 0, index="s64")},
        ),
    ),
)

#: What the products' kernels read of a pattern.
SCHEDULES = (
    KernelSource(
        "bsr_schedule",
        (),
        (),
        variants=tuple({"INDEX": i, "BLOCK": b} for i, b in (("s32", "s32"), ("s64", "s64"))),
        path="schedule",
    ),
    KernelSource("bsr_schedule_order", (), (), path="schedule"),
    KernelSource(
        "bsr_row_order",
        (),
        (),
        variants=each("INDEX", _INDICES, WINDOW="256", WORDS="16")
        + each("WORDS", ("32", "64", "92"), INDEX="s32", WINDOW="256"),
        path="schedule",
    ),
    KernelSource(
        "bsr_cluster_work",
        (),
        (),
        variants=each(
            "INDEX", _INDICES, CLUSTER="4", ROWS_PER_CLUSTER="2", SLICES_M="2", SLICES_K="1"
        ),
        path="schedule",
    ),
    KernelSource(
        "bsr_transpose_pattern", (), (), variants=each("INDEX", _INDICES), path="schedule"
    ),
    KernelSource("bsr_row_signature", (), (), variants=each("INDEX", _INDICES), path="schedule"),
)
