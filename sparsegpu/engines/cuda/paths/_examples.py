"""Representative products: what a path serves, which fields it has, what it compiles.

All of this is derived from the tiles that the paths choose for these products.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from types import ModuleType
from typing import Any

from ...._arrays import dtype_of
from ..runtime.architectures import LEAST_SHARED_MEMORY
from ._facts import Facts
from ._fields import Fields

Capability = tuple[int, int]

_BLOCKS = ((64, 64), (16, 16), (4, 4), (128, 128), (32, 32), (8, 8), (2, 2), (23, 23), (48, 80))
_MORE_BLOCKS = ((256, 64), (6, 2), (3, 3), (9, 40), (5, 13), (64, 32), (32, 64), (16, 64))
_COLUMNS = (4096, 64, 1, 8, 128, 24, 4, 16, 512)
_LAYOUTS = ("rows", "columns", "strided", "bytes")
_K = 8192


def examples(
    path: ModuleType, dtypes: Sequence[str], capability: Capability = (9, 0), *, all: bool = False
) -> Iterator[Any]:
    """Yield products of some dtypes on a device, first those that most paths serve.

    Without ``all`` these are fewer: enough for every path to serve one of each of its dtypes.
    """
    if hasattr(path, "examples"):
        yield from path.examples(dtypes, capability, all=all)
        return
    blocksizes: Sequence[tuple[int, int]] = (*_BLOCKS, *_MORE_BLOCKS) if all else _BLOCKS[:4]
    if not any(name.startswith("bsr") for name in path.SOURCES or ("bsr",)):
        blocksizes = ((1, 1),)
    layouts = _LAYOUTS if all else _LAYOUTS[:2]
    few = (True, False) if all else (True,)
    for transposed, density, layout, blocksize, n, name in product(
        (False, True), (0.1, 0.5), layouts, blocksizes, _COLUMNS if all else _COLUMNS[:4], dtypes
    ):
        for aligned in few:
            dtype = dtype_of(name)
            vector, rows = max(16 // dtype.itemsize, 1), _K // blocksize[0]
            yield Facts(
                dtype=dtype,
                shape=(rows * blocksize[0], _K, n),
                blocksize=blocksize,
                density=density,
                column_blocks=density * rows,
                layout=layout,
                dense_by_column=layout == "columns",
                transposed=transposed,
                allow_tf32=path.NAME != "fma",
                capability=capability,
                data_alignment=16 if aligned else dtype.itemsize,
                rows=rows,
                row_blocks=density * _K / blocksize[1],
                vector_k=vector if layout == "columns" or n == 1 else 1,
                vector_n=vector if layout == "rows" and n > 1 else 1,
                out_itemsize=dtype.itemsize,
                one_buffer=aligned,
                matrices=1 if aligned else 2,
                split_rows=not aligned and transposed,
            )


def serves(path: ModuleType, dtype: str, capability: Capability) -> bool:
    """Return whether a path has a tile for some product of a dtype on a device."""
    return dtype in path.DTYPES and _serves(path, dtype, capability)


@cache
def _serves(path: ModuleType, dtype: str, capability: Capability) -> bool:
    return any(path.tile(f, Fields()) is not None for f in examples(path, (dtype,), capability))


@cache
def field_names(path: ModuleType) -> tuple[str, ...]:
    """Return the fields that a configuration of a path may have."""
    names: dict[str, None] = {}
    for f in examples(path, path.DTYPES):
        fields = Fields()
        path.tile(f, fields)
        names |= dict.fromkeys(fields.chosen)
    return tuple(names)


# -- what the compile matrix builds ---------------------------------------------------------

#: Types of a result, by the operands'.
OUTPUTS = {
    "f16": ("f16", "f32", "bf16"),
    "bf16": ("bf16", "f32", "f16"),
    "f32": ("f32", "bf16", "f16"),
    "s8": ("s32", "s8", "f32", "bf16"),
    "e4m3": ("bf16", "f32", "f16"),
}
_ACTIVATIONS = ("none", "relu", "gelu", "gelu_erf", "silu")
_ALONE = {"INPUT": "none", "LEFT": "none", "RIGHT": "none"}
#: Names whose every value is built with every dtype of a tensor-core kernel.
_WITH_EVERY_DTYPE = {
    *("OUT", "EPILOGUE", "TILE_M", "TILE_N", "DENSE", "TRANSPOSED", "CLUSTER", "FORMAT")
}


def variants(path: ModuleType, dtypes: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """Return ``-D`` sets that cover every value that the tiles of a path emit.

    For the names `_WITH_EVERY_DTYPE` they cover every pair of a dtype and a value, of the names
    that a path has ``TOGETHER`` every combination of values, and where tiles depend on a device's
    shared memory, every value that a device with little of it may have.
    """
    tiles = {}
    for f in _with_less_memory(path, examples(path, dtypes, all=True)):
        tile = path.tile(f, Fields())
        if tile is not None:
            tiles[tuple(tile.defines.items())] = tile.defines
    offered = [v for i, defines in enumerate(tiles.values()) for v in _completed(path, defines, i)]
    paired = _WITH_EVERY_DTYPE if path.TENSOR_CORES else set()
    pairs = [
        {(name, v, variant["T"] if name in paired else None) for name, v in variant.items()}
        | {("together", tuple(map(variant.get, getattr(path, "TOGETHER", ()))), None)}
        | {("everywhere", item, None) for item in _on_every_device(path, variant)}
        for variant in offered
    ]
    chosen, wanted = [], set().union(*pairs)
    while wanted:
        best = max(range(len(offered)), key=lambda i: len(pairs[i] & wanted))
        chosen.append(offered[best])
        wanted -= pairs[best]
    return tuple(chosen)


def _with_less_memory(path: ModuleType, facts: Iterator[Any]) -> Iterator[Any]:
    """Yield products, and again on devices of little shared memory if that changes a tile."""
    for f in facts:
        yield f
        if hasattr(path, "fits"):
            yield replace(f, shared_memory=LEAST_SHARED_MEMORY)


def _on_every_device(path: ModuleType, variant: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and values of a variant that devices of little shared memory have, too."""
    if hasattr(path, "fits") and path.fits(variant, LEAST_SHARED_MEMORY):
        yield from variant.items()


def _completed(
    path: ModuleType, defines: Mapping[str, Any], offset: int
) -> Iterator[Mapping[str, Any]]:
    """Yield a tile's names with those of addresses and epilogues, until all of these occurred."""
    launched = getattr(path, "launched", dict)
    # What has examples of its own is no product with an epilogue, unless it says so.
    of_type = getattr(path, "epilogues", None if hasattr(path, "examples") else _epilogues)
    epilogues: list[Mapping[str, Any]] = [{}]
    if "OUT" not in defines and of_type is not None:
        epilogues = list(of_type(defines["T"]))
    addresses = list(product(*path.BY_ADDRESS.values()))
    for i in range(max(len(epilogues), len(addresses))):
        i += offset
        address = dict(zip(path.BY_ADDRESS, addresses[i % len(addresses)], strict=True))
        variant = launched({**defines, **address, **epilogues[i % len(epilogues)]})
        if _possible(path, variant):
            yield variant


def _epilogues(t: str) -> Iterator[dict[str, str]]:
    """Yield epilogues of operands of a type, one for each output and activation."""
    outputs, real = OUTPUTS.get(t, (t,)), t[0] != "c"
    yield {"OUT": outputs[0], "EPILOGUE": "identity", "ACT": "none", **_ALONE}
    if t == "s8":
        yield {"OUT": "s32", "EPILOGUE": "exact", "ACT": "relu", **_ALONE, "INPUT": "s32"}
    scale = t if t in {"f64", "c64", "c128"} else "f32"
    for i, act in enumerate(_ACTIVATIONS if real else ("none",)):
        out = outputs[i % len(outputs)]
        sides = {"INPUT": out, "LEFT": scale, "RIGHT": t if real and t != "e4m3" else scale}
        yield {"OUT": out, "EPILOGUE": "scaled", "ACT": act, **(sides if i % 3 else _ALONE)}


def _possible(path: ModuleType, variant: Mapping[str, Any]) -> bool:
    """Return whether operands can have these layouts."""
    one_buffer = variant.get("STORE_BUFFERS") == 1
    if one_buffer and (
        variant["ACT"] == "gelu_erf" or variant["STORE"] in {"unaligned", "elementwise"}
    ):
        return False
    if one_buffer and not variant["INPUT"] == variant["RIGHT"] == "none":
        return False
    if variant.get("STORE") == "unaligned" and variant["OUT"] == "s8":
        return False
    return not (
        variant.get("DENSE") == "rows"
        and "DENSE" in path.BY_ADDRESS
        and variant["T"] not in {"f16", "bf16"}
    )
