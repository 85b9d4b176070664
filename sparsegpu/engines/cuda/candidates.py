"""Which configurations are worth measuring for a kind of product: pure Python.

A path begins with what the model would choose and goes from there to its neighbours, which differ
in one field. What a field may be, the tile says itself (`fields.Fields`): only what fits in shared
memory and registers and divides evenly. What depends on more than the kind (alignment, strides,
the epilogue), the product refuses when it is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType
from typing import Any

from ..._arrays import dtype_of
from .paths import FAMILY_OF, family_of
from .paths import Family as Paths
from .paths._attention import AttentionFacts
from .paths._facts import Facts
from .paths._fields import ConfigError, Fields
from .paths._sampled import SampledFacts
from .paths._scatter import ScatterFacts
from .paths._spgemm import SpgemmFacts
from .runtime.architectures import capability_of, runs_on, shared_memory_of
from .winners import Config, Kind

_PROCESSORS = 132  # where a tile's height depends on it, the search goes both ways from there


def paths(kind: Kind) -> tuple[str, ...]:
    """Return the paths that may serve a kind, in the order that calls ask them.

    Examples
    --------
    >>> from sparsegpu.engines.cuda.winners import Family
    >>> family = Family("bsr_addmm", "90", "bfloat16", (32, 32), "rows")
    >>> paths(Kind(family, (4096, 4096, 4096), -7))
    ('dense', 'wgmma', 'groups', 'mma')
    >>> paths(Kind(family._replace(dtype="float64", blocksize=(4, 4)), (4096, 4096, 1), -7))
    ('vector', 'simt')
    """
    facts, capability = facts_of(kind), capability_of(kind.family.arch)
    return tuple(
        path.NAME
        for path in _family(kind)
        if runs_on(path.ARCHS, capability) and _may_serve(path, facts)
    )


def _family(kind: Kind) -> Paths:
    """Return the paths of a kind's operation; those of BSR @ dense serve dense @ BSR, too."""
    op = kind.family.op
    return family_of(op if op in FAMILY_OF else "bsr_addmm")


def _may_serve(path: ModuleType, facts: Any) -> bool:
    if facts.dtype.name not in path.DTYPES or not path.worth_measuring(facts):
        return False
    with suppress(ConfigError):  # no tile of this path fits
        return path.tile(facts, Fields()) is not None
    return False


def facts_of(kind: Kind) -> Any:
    """Return what the tiles for a kind are chosen by, of aligned operands on such a device."""
    (bm, bk), (rows, k, n) = kind.family.blocksize, kind.shape
    op, arch, name, _, layout = kind.family
    cc = capability_of(arch)
    device: dict[str, Any] = {"capability": cc, "shared_memory": shared_memory_of(cc)}
    if op == "bsr_spgemm":
        return SpgemmFacts(
            dtype=dtype_of(name),
            out_dtype=dtype_of("int32" if name == "int8" else name),
            blocksize=(bm, bk),
            columns=int(layout),
            **device,
        )
    if op == "scatter_mm":
        return ScatterFacts(form=layout, dtype=dtype_of(name), blocksize=(bm, bk), columns=n)
    dtype, density = dtype_of("float32" if name == "tf32" else name), 2 ** (kind.bucket / 2)
    tf32 = name == "tf32"
    if op == "scaled_dot_product_attention":
        return AttentionFacts.of_layout(layout, dtype, (bm, bk), allow_tf32=tf32, **device)
    if op == "sampled_addmm":
        mat1, mat2 = layout.split()
        return SampledFacts(
            dtype=dtype,
            shape=kind.shape,
            blocksize=(bm, bk),
            row_blocks=density * n / bk,
            mat1=mat1,
            mat2=mat2,
            allow_tf32=tf32,
            multiprocessors=_PROCESSORS,
            **device,
        )
    vector = max(16 // dtype.itemsize, 1)
    return Facts(
        dtype=dtype,
        shape=kind.shape,
        blocksize=(bm, bk),
        density=density,
        layout=layout,
        dense_by_column=layout == "columns",
        transposed=op == "dense_bsr_matmul",
        allow_tf32=tf32,
        multiprocessors=_PROCESSORS,
        **device,
        rows=rows // bm,
        row_blocks=density * k / bk,
        vector_k=vector if layout == "columns" or n == 1 else 1,
        vector_n=vector if layout == "rows" and n > 1 else 1,
    )


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
    >>> from sparsegpu.engines.cuda.winners import Family
    >>> family = Family("bsr_addmm", "90", "bfloat16", (128, 128), "rows")
    >>> kind = Kind(family, (4096, 4096, 4096), -7)
    >>> first = start(kind, "wgmma")
    >>> first
    {'path': 'wgmma', 'tile_n': 256, 'stages': 4, 'group_similar_rows': 0}
    >>> next(neighbours(kind, first))
    {'path': 'wgmma', 'tile_n': 64, 'stages': 4, 'group_similar_rows': 0}
    """
    allowed = _fields(kind, config).allowed
    names = list(allowed)
    for i, name in enumerate(names):
        for value in allowed[name]:
            if value == config[name]:
                continue
            moved = {"path": config["path"], **{n: config[n] for n in names[:i]}, name: value}
            with suppress(ConfigError):  # no value of it fits the fields before
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
    path = next(path for path in _family(kind) if config["path"] == path.NAME)
    path.tile(facts_of(kind), fields)
    fields.finish()
    return fields
