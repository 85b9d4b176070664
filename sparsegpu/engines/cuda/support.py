"""Which kernels compute what on which device, as paths and `kernels` declare it.

Importing this, and asking, needs neither CuPy nor a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from inspect import cleandoc
from numbers import Integral
from types import ModuleType
from typing import Any

from ..._arrays import check_dtype_name
from ..._checks import bad_value, check_choice
from ._kernel_source import KernelSource
from .kernels import OPERATIONS, OTHERS
from .paths import FAMILY_OF, family_of
from .paths._examples import field_names, serves, variants
from .runtime.architectures import PORTABLE, capability_of, number, runs_on

#: Operand dtypes of operations that take fewer than their family's paths.
_ONLY = {"scaled_mm": ("int8", "float8_e4m3fn")}


def is_supported(op: str, dtype: Any, cc: tuple[int, int] | int | str) -> bool:
    """Return whether a kernel computes an operation on a GPU (no GPU is needed to ask).

    Parameters
    ----------
    op : str
        A public operation, for example ``"bsr_addmm"``.
    dtype : dtype or str
        Of the operands; ``"bfloat16"`` and ``"float8_e4m3fn"`` by name.
    cc : (major, minor), int or str
        Compute capability: ``(9, 0)``, ``90`` and ``"9.0"`` are the same.

    Returns
    -------
    bool

    Raises
    ------
    ValueError
        For an unknown operation or compute capability.
    TypeError
        For what names no dtype.

    Examples
    --------
    >>> import sparsegpu
    >>> sparsegpu.is_supported("bsr_addmm", "float64", (7, 5))
    False
    """
    return bool(paths(op, dtype, cc))


def paths(op: str, dtype: Any, cc: tuple[int, int] | int | str) -> tuple[str, ...]:
    """Return the kernel paths that serve an operation, the preferred one first."""
    check_choice("is_supported", "op", op, OPERATIONS)
    capability, name = _capability(cc), check_dtype_name("is_supported", "dtype", dtype).name
    if op in FAMILY_OF:
        if name not in _ONLY.get(op, (name,)):
            return ()
        return tuple(path.NAME for path in family_of(op) if _runs(path, name, capability))
    found = [
        row.path
        for row in OTHERS
        if op in row.ops and name in row.dtypes and runs_on(row.archs, capability)
    ]
    return tuple(dict.fromkeys(found))


def _runs(path: ModuleType, dtype: str, capability: tuple[int, int]) -> bool:
    return runs_on(path.ARCHS, capability) and serves(path, dtype, capability)


def _capability(cc: Any) -> tuple[int, int]:
    if isinstance(cc, tuple) and len(cc) == 2 and all(isinstance(n, Integral) for n in cc):
        return int(cc[0]), int(cc[1])
    digits = str(cc).replace(".", "").rstrip("af")
    if isinstance(cc, (int, str)) and digits.isdigit() and len(digits) >= 2:
        return int(digits[:-1]), int(digits[-1])
    raise bad_value("is_supported", "cc", 'a compute capability: (9, 0), 90 or "9.0"', repr(cc))


@cache
def kernels() -> tuple[KernelSource, ...]:
    """Return every kernel, those of the products first, as its path declares it."""
    ops: dict[ModuleType, list[str]] = {}
    for op in FAMILY_OF:
        for path in family_of(op):
            ops.setdefault(path, []).append(op)
    rows = (row for path, its_ops in ops.items() for row in _rows(path, tuple(its_ops)))
    return (*rows, *OTHERS)


def _rows(path: ModuleType, ops: tuple[str, ...]) -> Iterator[KernelSource]:
    """Yield the main source of a path, apart for dtypes that fewer architectures multiply."""
    by_archs: dict[tuple[str, ...], list[str]] = {}
    for dtype in path.DTYPES:
        archs = tuple(a for a in path.ARCHS if serves(path, dtype, capability_of(a)))
        by_archs.setdefault(archs, []).append(dtype)
    for source in path.SOURCES[:1]:
        for archs, dtypes in by_archs.items():
            yield KernelSource(
                source,
                ops,
                tuple(dtypes),
                archs,
                partial(variants, path, tuple(dtypes)),
                path.NAME,
                path.TENSOR_CORES,
                **({"fits": path.fits} if hasattr(path, "fits") else {}),
            )


# -- the table in the README ----------------------------------------------------------------


def support_table() -> str:
    """Return the table in Markdown: which dtypes of an operation run on which path and GPU."""
    lines = [
        "| operation | path | dtypes | compute capability |",
        "|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(cells)} |" for op in OPERATIONS for cells in _table_rows(op)]
    return "\n".join(lines)


def _table_rows(op: str) -> Iterator[tuple[str, str, str, str]]:
    merged: dict[tuple[str, str], list[str]] = {}
    for row in kernels():
        if op in row.ops:
            kept = merged.setdefault((row.path, _capabilities(row.archs)), [])
            offered = [dtype for dtype in row.dtypes if dtype in _ONLY.get(op, (dtype,))]
            kept += [dtype for dtype in offered if dtype not in kept]
    for (path, capabilities), dtypes in merged.items():
        if dtypes:
            yield f"`{op}`", path, ", ".join(dtypes), capabilities


def _capabilities(archs: tuple[str, ...]) -> str:
    plain = tuple(arch for arch in archs if arch.isdigit())
    shown = ["{}.{}".format(*capability_of(arch)) for arch in archs]
    if plain and plain == tuple(arch for arch in PORTABLE if number(arch) >= number(plain[0])):
        return f"{shown[0]} and later"
    return ", ".join(shown)


# -- the documentation of the paths -----------------------------------------------------------

_TITLES = {
    "bsr_addmm": "Block-sparse products",
    "semi_structured_addmm": "2:4 products",
    "bsr_semi_structured_addmm": "Products of 2:4 blocks",
    "scaled_dot_product_attention": "Attention",
    "scaled_dot_product_attention_backward": "Gradients of attention",
    "sampled_addmm": "Sampled products",
    "bsr_spgemm": "Sparse times sparse",
    "scatter_mm": "Scattered products",
}


def paths_page() -> str:
    """Return docs/paths.md in Markdown, but for its head: a heading for each path, in order."""
    parts = []
    for op, title in _TITLES.items():
        parts.append(f"## {title}")
        parts += [_path_section(path, op) for path in family_of(op)]
    return "\n\n".join(parts)


def _path_section(path: ModuleType, op: str) -> str:
    stem = path.__name__.rpartition(".")[2]
    archs = tuple(
        a for a in path.ARCHS if any(serves(path, d, capability_of(a)) for d in path.DTYPES)
    )
    fields = ", ".join(f"`{name}`" for name in field_names(path)) or "none"
    return "\n".join(
        (
            f"### {stem}",
            "",
            cleandoc(path.__doc__ or "").replace("``", "`"),
            "",
            f'- `config={{"path": "{path.NAME}"}}`; fields: {fields}',
            f"- operands: {', '.join(path.DTYPES)}; compute capability {_capabilities(archs)}",
        )
    )
