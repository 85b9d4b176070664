"""Which kernel serves which operation, dtype and architecture, as data.

The table is asked through `_support`. It drives dispatch, the compile matrix, the test skips and
the table in the README (``python -m benchmarks.readme``). To add a kernel, add its row to
`KERNELS`, in its operation's section.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Every operation has a path on each of these (checked by the compile matrix).
ARCHITECTURES = ("80", "86", "89", "90a", "100", "120")

#: What plain code (no architecture-specific instruction) compiles for.
PORTABLE = ("80", "86", "89", "90", "100", "120")

#: What fp8 tensor-core code compiles for.
FP8 = ("89", "90", "100", "120")

#: The public operations that kernels compute.
OPERATIONS = (
    "bsr_addmm",
    "sampled_addmm",
    "bsr_softmax",
    "scaled_dot_product_attention",
    "scatter_mm",
    "bsr_array",
    "semi_structured_from_dense",
    "semi_structured_to_dense",
    "reorder_meta",
    "prune_24",
    "prune_tile",
    "semi_structured_tile",
    "compressed_swizzled_bitmask",
    "semi_structured_apply",
    "semi_structured_addmm",
    "scaled_mm",
)


@dataclass(frozen=True, slots=True)
class KernelSource:
    """What one ``.cu`` file serves. A file may have several rows (fp8 apart, say).

    Attributes
    ----------
    source : str
        Stem of the file and name of its entry point.
    op : str or tuple of str
        Of `OPERATIONS`; none where a kernel only prepares what others read.
    dtypes : tuple of str
        Operand dtypes, by name.
    archs : tuple of str
        What it compiles for: "90a" is that device only, a plain number every later device too.
    variants : tuple of mappings
        ``-D`` sets that the compile matrix builds: representative ones, not all (it has minutes).
    path : str
        "simt", "mma", "copy" and so on: what a call's configuration chooses between.
    tensor_core : bool
        Tensor-core kernels must not spill registers to local memory.
    """

    source: str
    op: str | tuple[str, ...]
    dtypes: tuple[str, ...]
    archs: tuple[str, ...] = PORTABLE
    variants: tuple[Mapping[str, Any], ...] = ({},)
    path: str = "simt"
    tensor_core: bool = False

    @property
    def ops(self) -> tuple[str, ...]:
        """The operations served."""
        return (self.op,) if isinstance(self.op, str) else self.op


_FLOATS = ("float16", "bfloat16", "float32", "float64")
_CONTAINERS = (*_FLOATS, "int8", "uint8", "int32", "bool", "complex64", "complex128")


def _each(name: str, values: tuple[str, ...], **common: str) -> tuple[Mapping[str, str], ...]:
    """Return one ``-D`` set for each value of ``name``."""
    return tuple({name: value, **common} for value in values)


_ELEMENTS = ("bf16", "f32", "s8", "b8", "c128")
_INDICES = ("s32", "s64")

#: Between dense and blocks, and among blocks.
_CONVERSIONS = (
    KernelSource(
        "bsr_block_mask", "bsr_array", _CONTAINERS, variants=_each("T", _ELEMENTS), path="copy"
    ),
    KernelSource(
        "bsr_gather",
        "bsr_array",
        _CONTAINERS,
        variants=_each("T", _ELEMENTS, INDEX="s32") + _each("T", ("f32",), INDEX="s64"),
        path="copy",
    ),
    KernelSource(
        "bsr_scatter",
        "bsr_array",
        _CONTAINERS,
        variants=_each("T", _ELEMENTS, INDEX="s32", WIDE="1")
        + _each("T", ("bf16", "f32"), INDEX="s64", WIDE="4")
        + _each("T", ("b8",), INDEX="s32", WIDE="16"),
        path="copy",
    ),
    KernelSource(
        "bsr_transpose_blocks",
        "bsr_array",
        _CONTAINERS,
        variants=_each("T", _ELEMENTS, WIDE="0") + _each("T", _ELEMENTS, WIDE="1"),
        path="copy",
    ),
    KernelSource(
        "bsr_sum_blocks", "bsr_array", _CONTAINERS, variants=_each("T", _ELEMENTS), path="copy"
    ),
)

_SOFTMAX = (
    KernelSource(
        "bsr_softmax",
        "bsr_softmax",
        _FLOATS,
        variants=tuple(
            {"T": t, "OUT": t, "TEAM": team, "INDEX": "s32"}
            for t in ("f16", "bf16", "f32", "f64")
            for team in (32, 256)
        )
        + ({"T": "bf16", "OUT": "f32", "TEAM": 32, "INDEX": "s64"},),
    ),
)

_ATTENTION = (
    KernelSource(
        "bsr_attention",
        "scaled_dot_product_attention",
        _FLOATS,
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

#: BSR products, tensor cores first.
_PRODUCT_DTYPES = (*_FLOATS, "int8", "complex64", "complex128")
_TILES = (
    {"TILE_M": 64, "TILE_N": 64, "TILE_K": 16, "LANES": 1},
    {"TILE_M": 4, "TILE_N": 1, "TILE_K": 64, "LANES": 32},
    {"TILE_M": 16, "TILE_N": 16, "TILE_K": 32, "LANES": 4},
)


def _epilogue(t: str, out: str, epilogue: str, act: str = "none") -> dict[str, str]:
    """Return the ``-D`` names of an epilogue that reads all it can (``common/epilogue.cuh``)."""
    sides = {
        "identity": {},
        "scaled": {"INPUT": out, "LEFT": t if t in {"f64", "c128"} else "f32", "RIGHT": t},
        "exact": {"INPUT": "s32"},
    }
    return {"OUT": out, "EPILOGUE": epilogue, "ACT": act, **sides[epilogue]}


def _simt(t: str, out: str, tile: int, index: str = "s32", epilogue: str = "scaled") -> Any:
    return {"T": t, "INDEX": index, **_epilogue(t, out, epilogue), **_TILES[tile]}


def _mma(
    t: str,
    out: str,
    dense: str,
    tile: tuple[int, int],
    warps: tuple[int, int],
    transposed: int = 0,
) -> Any:
    return {
        **{"T": t, "INDEX": "s32", "BK": 48, **_epilogue(t, out, "scaled", "gelu")},
        **{"TILE_M": tile[0], "TILE_N": tile[1], "WARPS_M": warps[0], "WARPS_N": warps[1]},
        **{"STAGES": 3, "DENSE": dense, "TRANSPOSED": transposed},
        "DATA_PIECES": int(dense != "strided"),
    }


def _groups(
    t: str, out: str, block: tuple[int, int], rows: tuple[int, int], k: tuple[int, int], **more: Any
) -> Any:
    return {
        **{"T": t, "INDEX": "s32", **_epilogue(t, out, "scaled", "gelu")},
        **{"BM": block[0], "BK": block[1], "GROUP": rows[0], "SLICE_M": rows[1]},
        **{"STEP_K": k[0], "STEPS": k[1], "STAGES": 4, "DENSE": "rows", "TILE_N": 128},
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
        **_epilogue(t, out, epilogue, act),
    } | more


def _full(t: str, tile: tuple[int, int, int], warps: tuple[int, int], **others: Any) -> Any:
    return {
        **{"T": t, "OUT": t, "INDEX": "s32", "EPILOGUE": "scaled", "ACT": "gelu"},
        **{"TILE_M": tile[0], "TILE_N": tile[1], "TILE_K": tile[2], "STAGES": 2, "TRANSPOSED": 0},
        **{"WARPS_M": warps[0], "WARPS_N": warps[1], "DATA": "pieces", "DENSE": "pieces"},
        **({"THREAD_M": 8} if t == "f32" else {}),
        **others,
    }


def _vector(
    t: str, block: tuple[int, int], n: int, lanes: tuple[int, int, int, int], pieces: int = 0
) -> Any:
    team, rl, cv, nv = lanes
    return {
        **{"T": t, "INDEX": "s32", **_epilogue(t, t, "scaled")},
        **{"BM": block[0], "BK": block[1], "COLUMNS": n, "TEAM": team, "RL": rl, "CV": cv},
        **{"NG": n // nv, "NV": nv, "UNROLL": 2, "X_VECTOR": 1 if cv > 1 else 2 if nv > 1 else 0},
        **{"TOGETHER": 0, "STREAM": int(cv > 1), "AHEAD": 1, "WARPS": 4, "RESIDENT": 4},
        **{"PIECES": pieces, "BATCHED": pieces},
    }


def _fragments(t: str, block: tuple[int, int], n: int, pieces: int = 0) -> Any:
    return {
        **{"T": t, "INDEX": "s32", **_epilogue(t, t, "scaled")},
        **{"BM": block[0], "BK": block[1], "COLUMNS": n, "TERMS": 2, "UNROLL": 5, "WARPS": 4},
        **{
            "X_TOGETHER": int(n == 1),
            "RESIDENT": 5 + (t == "f32") - pieces,
            "PIECES": pieces,
            "BATCHED": pieces,
        },
    }


def _skinny(t: str, dense: str, tile: tuple[int, int]) -> Any:
    return {
        **{"T": t, "INDEX": "s32", "BM": 40, **_epilogue(t, t, "scaled", "gelu")},
        **{"BK": 48, "TILE_M": tile[0], "TILE_N": tile[1], "STAGES": 2, "DENSE": dense},
        **{"WARPS_K": 4, "WARPS_N": tile[1] // 32 or 1, "BATCHED": 1, "COLUMN_TILES": 1},
    }


_PRODUCTS = (
    KernelSource(
        "bsr_addmm_sm90",
        "bsr_addmm",
        ("float16", "bfloat16", "int8"),
        archs=("90a",),
        variants=(
            _wgmma("bf16", "bf16", (16, 16), act="relu"),
            _wgmma("bf16", "bf16", (128, 128), epilogue="identity"),
            _wgmma("f16", "f32", (32, 32), "columns", 1, STORE="any", act="gelu"),
            _wgmma("bf16", "f16", (64, 64), "columns", 1, STORE="columns"),
            _wgmma("f16", "f16", (48, 80), TILE_N=128, STAGES=5, INDEX="s64"),
            _wgmma("bf16", "f32", (256, 64), TILE_N=64, STAGES=6),
            _wgmma("s8", "s32", (64, 64), "columns", epilogue="identity"),
            _wgmma("s8", "s32", (128, 128), "columns", epilogue="exact", act="relu"),
            _wgmma("s8", "s32", (16, 64), "columns", STORE="any", epilogue="exact", INPUT="s32"),
            _wgmma("bf16", "bf16", (64, 64), STORE="skewed", epilogue="identity"),
            _wgmma("s8", "s32", (64, 64), "columns", STORE="skewed", epilogue="exact", act="relu"),
            _wgmma("s8", "s8", (128, 128), "columns", act="gelu"),
            _wgmma("s8", "bf16", (32, 32), "columns", STORE="columns", TILE_N=128, STAGES=6),
        ),
        path="wgmma",
        tensor_core=True,
    ),
    KernelSource(
        "dense_lines",
        "bsr_addmm",
        ("float16", "bfloat16", "int8"),
        variants=_each("FROM", ("along", "any"), T="f16")
        + _each("FROM", ("along", "any"), T="s8")
        + _each("ALIGNED", ("0", "1"), T="bf16", FROM="across")
        + _each("ALIGNED", ("0", "1"), T="s8", FROM="across"),
        path="copy",
    ),
    KernelSource(
        "bsr_addmm_groups",
        "bsr_addmm",
        ("float16", "bfloat16"),
        variants=(
            _groups("bf16", "bf16", (16, 16), (8, 16), (16, 2)),
            _groups("f16", "f32", (64, 64), (2, 64), (32, 1), DENSE="columns"),
            _groups("bf16", "f16", (23, 23), (5, 24), (24, 1), INDEX="s64"),
            _groups("f16", "f16", (6, 6), (16, 8), (8, 4)),
            _groups("bf16", "bf16", (256, 128), (1, 128), (32, 1)),
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
            _mma("bf16", "f32", "columns", (16, 32), (1, 2)),
            _mma("bf16", "bf16", "strided", (64, 128), (2, 2)),
            _mma("s8", "s32", "bytes", (32, 128), (1, 4)),
            _mma("s8", "s8", "columns", (128, 32), (4, 2)),
            _mma("f32", "f32", "rows", (64, 128), (2, 2)),
            _mma("bf16", "bf16", "columns", (128, 128), (4, 2), 1),
            _mma("f16", "f32", "strided", (16, 64), (1, 4), 1),
            _mma("s8", "s32", "columns", (64, 128), (2, 2), 1),
            _mma("f32", "f32", "columns", (128, 128), (4, 2), 1),
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
            _full("f32", (64, 128, 32), (2, 2), BM=128, BK=128, RESIDENT=3),
            _full("f32", (48, 256, 24), (1, 4), BM=48, BK=48, RESIDENT=2, THREAD_M=12),
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
            {"T": t, "BM": 4, "COLUMNS": n, **_epilogue(t, t, "scaled")}
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
_SCHEDULES = (
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
        variants=_each("INDEX", _INDICES, WINDOW="256"),
        path="schedule",
    ),
    KernelSource("bsr_row_gather", (), (), variants=_each("INDEX", _INDICES), path="schedule"),
    KernelSource("bsr_row_signature", (), (), variants=_each("INDEX", _INDICES), path="schedule"),
)

_HALVES = ("float16", "bfloat16")
_FORMAT_24 = (*_HALVES, "float32", "int8", "float8_e4m3fn")


def _mma_sp(t: str, out: str, dense: str, n: int, epilogue: str, act: str) -> Any:
    return {
        **{"T": t, "DENSE": dense, "TILE_M": 128, "TILE_N": n, "STAGES": 3},
        **_epilogue(t, out, epilogue, act),
    }


def _simt_24(t: str, out: str, n: int, epilogue: str, act: str) -> Any:
    return {"T": t, "TILE_N": n, **_epilogue(t, out, epilogue, act)}


#: 2:4: format, pruning and product.
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
        path="copy",
    ),
    KernelSource(
        "semi_structured_expand",
        "semi_structured_to_dense",
        _FORMAT_24,
        variants=tuple({"BYTES": b} for b in (1, 2, 4)),
        path="copy",
    ),
    KernelSource(
        "semi_structured_reorder",
        "reorder_meta",
        ("int16", "int32"),
        variants=tuple({"META_BYTES": b, "RESTORE": r} for b in (2, 4) for r in (0, 1)),
        path="copy",
    ),
    KernelSource(
        "prune_24",
        "prune_24",
        (*_HALVES, "float32", "float64", "int8", "float8_e4m3fn"),
        variants=(
            {"T": "f16", "GROUP": 4},
            {"T": "bf16", "GROUP": 4, "IMPORTANCE": "f32"},
            {"T": "f32", "GROUP": 2},
            {"T": "f64", "GROUP": 4, "IMPORTANCE": "f64"},
            {"T": "s8", "GROUP": 4},
            {"T": "e4m3", "GROUP": 4},
        ),
        path="copy",
    ),
    KernelSource(
        "prune_tile",
        "prune_tile",
        (*_HALVES, "float32", "float64", "int8", "float8_e4m3fn"),
        variants=(
            {"T": "f16", "RULE": "largest_abs_values"},
            {"T": "bf16", "RULE": "given_mask"},
            {"T": "f32", "RULE": "largest_values"},
            {"T": "f64", "RULE": "causal1122"},
            {"T": "s8", "RULE": "largest_abs_values"},
            {"T": "e4m3", "RULE": "largest_values"},
        ),
        path="copy",
    ),
    KernelSource(
        "semi_structured_tile",
        ("semi_structured_tile", "semi_structured_apply"),
        (*_HALVES, "int8", "float8_e4m3fn"),
        variants=(
            {"T": "f16", "RULE": "largest_values"},
            {"T": "bf16", "RULE": "largest_abs_values"},
            {"T": "s8", "RULE": "causal1122"},
            {"T": "e4m3", "RULE": "given_mask"},
        ),
        path="copy",
    ),
    KernelSource(
        "semi_structured_bitmask",
        "compressed_swizzled_bitmask",
        (*_HALVES, "float32", "float64", "int8", "float8_e4m3fn"),
        variants=tuple({"T": t} for t in ("f16", "bf16", "f32", "f64", "s8", "e4m3")),
        path="copy",
    ),
    KernelSource(
        "semi_structured_addmm_sm80",
        "semi_structured_addmm",
        (*_HALVES, "float32"),
        variants=(
            _mma_sp("bf16", "bf16", "rows", 64, "identity", "none"),
            _mma_sp("f16", "f32", "columns", 64, "scaled", "gelu"),
            _mma_sp("f32", "f32", "rows", 64, "scaled", "silu"),
            _mma_sp("f32", "bf16", "strided", 16, "identity", "none"),
        ),
        path="mma_sp",
        tensor_core=True,
    ),
    KernelSource(
        "semi_structured_addmm_sm80",
        ("semi_structured_addmm", "scaled_mm"),
        ("int8",),
        variants=(
            _mma_sp("s8", "s32", "bytes", 64, "exact", "relu"),
            _mma_sp("s8", "s8", "columns", 32, "scaled", "gelu_erf"),
        ),
        path="mma_sp",
        tensor_core=True,
    ),
    KernelSource(
        "semi_structured_addmm_sm80",
        ("semi_structured_addmm", "scaled_mm"),
        ("float8_e4m3fn",),
        archs=FP8,
        variants=tuple(
            {"T": "e4m3", "DENSE": dense, "TILE_M": 64, "TILE_N": n, "STAGES": 3}
            | _epilogue("e4m3", "bf16", "scaled")
            for dense, n in (("columns", 32), ("bytes", 16))
        ),
        path="mma_sp",
        tensor_core=True,
    ),
    KernelSource(
        "semi_structured_addmm_simt",
        "semi_structured_addmm",
        (*_HALVES, "float32"),
        variants=(
            _simt_24("bf16", "bf16", 64, "identity", "none"),
            _simt_24("f16", "f16", 16, "scaled", "silu"),
            _simt_24("f32", "f32", 64, "scaled", "gelu"),
        ),
    ),
    KernelSource(
        "semi_structured_addmm_simt",
        ("semi_structured_addmm", "scaled_mm"),
        ("int8", "float8_e4m3fn"),
        variants=(
            _simt_24("s8", "s32", 64, "exact", "none"),
            _simt_24("e4m3", "bf16", 64, "scaled", "none"),
        ),
    ),
)

# Where several paths serve an operation, the preferred one comes first.
KERNELS: tuple[KernelSource, ...] = (
    *_PRODUCTS,
    *_SCHEDULES,
    *_CONVERSIONS,
    *_SOFTMAX,
    *_ATTENTION,
    *_SEMI_STRUCTURED,
)
