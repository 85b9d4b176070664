"""What can be computed where: questions to the table of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ._arrays import check_dtype_name
from ._checks import bad_value, check_choice
from ._kernel_table import KERNELS, OPERATIONS, PORTABLE


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
    found = [
        row.path
        for row in KERNELS
        if op in row.ops and name in row.dtypes and runs_on(row.archs, capability)
    ]
    return tuple(dict.fromkeys(found))


def architectures_of(source: str) -> tuple[str, ...]:
    """Return the architectures that a source compiles for (all portable ones if unknown)."""
    declared = [arch for row in KERNELS if row.source == source for arch in row.archs]
    return tuple(dict.fromkeys(declared)) or PORTABLE


def _capability(cc: Any) -> tuple[int, int]:
    if isinstance(cc, tuple) and len(cc) == 2:
        return int(cc[0]), int(cc[1])
    digits = str(cc).replace(".", "").rstrip("af")
    if isinstance(cc, (int, str)) and digits.isdigit() and len(digits) >= 2:
        return int(digits[:-1]), int(digits[-1])
    raise bad_value("is_supported", "cc", 'a compute capability: (9, 0), 90 or "9.0"', repr(cc))


def _number(arch: str) -> int:
    return int(arch.rstrip("af"))


def runs_on(declared: Iterable[str], cc: tuple[int, int]) -> bool:
    """Return whether code for one of the declared architectures can be had on a device.

    A feature architecture ("90a") is for its own device only; plain code compiles for every
    later device as well.
    """
    device = cc[0] * 10 + cc[1]
    return any(
        _number(arch) <= device if arch.isdigit() else _number(arch) == device for arch in declared
    )


def matching_architecture(
    declared: Iterable[str], cc: tuple[int, int], compilable: Iterable[int]
) -> str | None:
    """Return the architecture to compile for on a device, or None when none of them runs there.

    A feature architecture of the device wins. Plain code is compiled under the device's own
    number if the compiler (which knows ``compilable``) has it, else under the closest lower one
    of the same major version: a cubin runs on later minor versions, not on later major ones.

    Examples
    --------
    >>> matching_architecture(("80", "90a"), (9, 0), (80, 86, 90))
    '90a'
    >>> matching_architecture(("80",), (8, 9), (80, 86, 90))
    '86'
    """
    device = cc[0] * 10 + cc[1]
    usable = [arch for arch in declared if runs_on((arch,), cc)]
    for arch in usable:
        if not arch.isdigit():
            return arch
    if not usable:
        return None
    least = min(map(_number, usable))
    fitting = [n for n in compilable if n // 10 == cc[0] and least <= n <= device]
    return str(max(fitting)) if fitting else None


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
    for row in KERNELS:
        if op in row.ops:
            kept = merged.setdefault((row.path, _capabilities(row.archs)), [])
            kept += [dtype for dtype in row.dtypes if dtype not in kept]
    for (path, capabilities), dtypes in merged.items():
        yield f"`{op}`", path, ", ".join(dtypes), capabilities


def _capabilities(archs: tuple[str, ...]) -> str:
    plain = [_number(arch) for arch in archs if arch.isdigit()]
    shown = [f"{n // 10}.{n % 10}" for n in (_number(a) for a in archs if not a.isdigit())]
    if plain:
        shown.append(f"{min(plain) // 10}.{min(plain) % 10} and later")
    return ", ".join(shown)
