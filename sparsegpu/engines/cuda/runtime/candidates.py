"""Which configurations are worth measuring for a kind of product: pure Python.

A path begins with what the model would choose and goes from there to its neighbours, which differ
in one field. What a field may be, the tile says itself (`fields.Fields`): only what fits in shared
memory and registers and divides evenly. What depends on more than the kind (alignment, strides,
the epilogue), the product refuses when it is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from ...._arrays import dtype_of
from .config import FULL_PRECISION, MMA_DTYPES, bsr_addmm_config
from .fields import ConfigError, Fields
from .fragment_tile import chosen_tile
from .group_tile import FEWEST_COLUMNS, PIECE, group_tile
from .hopper_tile import hopper_tile
from .skinny_sm90_tile import GOOD_COLUMNS, SIDE, chosen_skinny_clusters, skinny_clusters
from .skinny_tile import MOST_COLUMNS, chosen_skinny_tile, skinny_tile
from .vector_tile import MOST_ROUNDS, FewColumns, takes_blocks
from .winners import Config, Kind

_PROCESSORS = 132  # where a tile's height depends on it, the search goes both ways from there
_SHARED_MEMORY = {"80": 163, "87": 163, "90": 227, "100": 227, "103": 227, "110": 227}  # KiB
_SHARED_MEMORY_OTHERS = 99
_HALVES = ("bfloat16", "float16")
_LEAST_DENSE = -8  # bucket: cuBLAS multiplies sixteen zeros for a value, and keeps them all


def paths(kind: Kind) -> tuple[str, ...]:
    """Return the paths that may serve a kind, those that are expected to be fast first.

    Examples
    --------
    >>> from sparsegpu.engines.cuda.runtime.winners import Family
    >>> family = Family("bsr_addmm", "90", "bfloat16", (32, 32), "rows")
    >>> paths(Kind(family, (4096, 4096, 4096), -7))
    ('wgmma', 'groups', 'dense', 'mma')
    >>> paths(Kind(family._replace(dtype="float64", blocksize=(4, 4)), (4096, 4096, 1), -7))
    ('vector', 'simt')
    """
    return tuple(_paths(kind))


def _paths(kind: Kind) -> Iterator[str]:
    (bm, bk), columns = kind.family.blocksize, kind.shape[-1]
    _, arch, name, _, layout = kind.family
    dtype, transposed = _dtype(kind), _transposed(kind)
    halves = name in _HALVES
    if takes_blocks(dtype, (bm, bk), columns):
        yield "vector"
    if halves and columns <= MOST_COLUMNS and layout in {"rows", "columns"}:
        clusters = arch == "90" and not transposed and bm % SIDE == bk % SIDE == 0
        if not clusters or columns not in GOOD_COLUMNS:
            yield "skinny"
        if clusters:
            yield "skinny_wgmma"
    wgmma = arch == "90" and name != "float32"
    if wgmma and hopper_tile(dtype, (bm, bk), columns, transposed) is not None:
        yield "wgmma"
    if halves and columns >= FEWEST_COLUMNS and columns % PIECE == 0:
        yield "groups"
    if halves and not transposed and kind.bucket >= _LEAST_DENSE:
        yield "dense"
    fast = _fast(name)
    if fast != "simt" and bm >= 4 and columns >= 4:
        yield fast
    if fast == "simt" or bm < 16 or columns < 16:
        yield "simt"


def start(kind: Kind, path: str, **given: int) -> Config:
    """Return the configuration that the search of a path begins with: the model's but ``given``."""
    return {"path": path, **_fields(kind, {"path": path, **given}).chosen}


def starts(kind: Kind) -> Iterator[Config]:
    """Yield where the search of each path begins."""
    for path in paths(kind):
        with suppress(ConfigError):  # no tile of this path fits
            yield start(kind, path)


def neighbours(kind: Kind, config: Config) -> Iterator[Config]:
    """Yield the configurations that differ from ``config`` in one field.

    Fields that depend on it follow, where their value is ruled out by the new one.

    Examples
    --------
    >>> from sparsegpu.engines.cuda.runtime.winners import Family
    >>> family = Family("bsr_addmm", "90", "bfloat16", (128, 128), "rows")
    >>> kind = Kind(family, (4096, 4096, 4096), -7)
    >>> first = start(kind, "wgmma")
    >>> first
    {'path': 'wgmma', 'tile_n': 256, 'stages': 4, 'reorder': 0}
    >>> next(neighbours(kind, first))
    {'path': 'wgmma', 'tile_n': 64, 'stages': 4, 'reorder': 0}
    """
    allowed = _fields(kind, config).allowed
    names = list(allowed)
    for i, name in enumerate(names):
        for value in allowed[name]:
            if value == config[name]:
                continue
            moved = {"path": config["path"], **{n: config[n] for n in names[:i]}, name: value}
            with suppress(ConfigError):  # together with the fields before, nothing fits
                for later in names[i + 1 :]:
                    moved = _with(kind, moved, later, config[later])
                yield start(kind, **moved)


def _with(kind: Kind, config: Config, name: str, value: int) -> Config:
    fields = _fields(kind, config)
    fits = value in fields.allowed[name]
    return {**config, name: value if fits else fields.chosen[name]}


def _fields(kind: Kind, config: Config) -> Fields:
    """Return the fields of a configuration's path, asked for as a call would."""
    fields = Fields(config)
    path, (bm, bk) = config["path"], kind.family.blocksize
    rows, _, columns = kind.shape
    dtype, layout = _dtype(kind), kind.family.layout
    room = 1024 * _SHARED_MEMORY.get(kind.family.arch, _SHARED_MEMORY_OTHERS)
    if path == "wgmma":
        density = 2 ** (kind.bucket / 2)
        hopper_tile(dtype, (bm, bk), columns, _transposed(kind), fields, density)
    elif path == "groups":
        by_row = layout != "columns" or bk % PIECE != 0  # else it is copied to rows
        group_tile((bm, bk), columns, by_row, room, fields)
    elif path == "skinny":
        tile = skinny_tile((bm, bk), rows, columns, layout, _PROCESSORS, room)
        chosen_skinny_tile(tile, layout, room, fields)
    elif path == "skinny_wgmma":
        chosen_skinny_clusters(skinny_clusters(rows // SIDE, columns, _PROCESSORS), fields)
    elif path == "vector":
        _vector_fields(kind, fields)
    elif path == "dense":
        fields.finish()
    else:
        bsr_addmm_config(
            dtype,
            (bm, bk),
            columns,
            dense=layout,
            data_aligned=bk * dtype.itemsize % 16 == 0,
            by_column=layout == "columns",
            transposed=_transposed(kind),
            allow_tf32=kind.family.dtype == "tf32",
            config=config,
            fields=fields,
        )
    return fields


def _vector_fields(kind: Kind, fields: Fields) -> None:
    (bm, bk), (_, k, columns) = kind.family.blocksize, kind.shape
    piece = max(16 // _dtype(kind).itemsize, 1)
    arch, layout = kind.family.arch, kind.family.layout
    product = FewColumns(
        (int(arch[:-1]), int(arch[-1])),
        _dtype(kind),
        (bm, bk),
        columns,
        2 ** (kind.bucket / 2) * k / bk,
        along_k=piece if layout == "columns" or columns == 1 else 1,
        along_n=piece if layout == "rows" and columns > 1 else 1,
    )
    chosen_tile(product, fields)
    fields.pick("rounds", 1, range(1, MOST_ROUNDS + 1))
    fields.finish()


def _fast(name: str) -> str:
    if name == "tf32":
        return "mma"
    full = FULL_PRECISION.get(name)
    return full.path if full else "mma" if name in MMA_DTYPES else "simt"


def _dtype(kind: Kind) -> np.dtype:
    return dtype_of("float32" if kind.family.dtype == "tf32" else kind.family.dtype)


def _transposed(kind: Kind) -> bool:
    return kind.family.op == "dense_bsr_matmul"
