"""Which kernel serves which operation, dtype and architecture, as data.

One table drives dispatch, the compile matrix, the test skips and the table in the README. To
add a kernel, add its row to `KERNELS`, in its operation's section.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

#: Every operation has a path on each of these (checked by the compile matrix).
ARCHITECTURES = ("80", "86", "89", "90a", "100", "120")

#: What plain code (no architecture-specific instruction) compiles for.
PORTABLE = ("80", "86", "89", "90", "100", "120")


@dataclass(frozen=True, slots=True)
class KernelSource:
    """One ``.cu`` file.

    Attributes
    ----------
    source : str
        Stem of the file and name of its entry point.
    op : str
        The public operation that it serves.
    dtypes : tuple of str
        Operand dtypes, by name.
    archs : tuple of str
        What it compiles for: "90a" is that device only, a plain number also later minor versions.
    variants : tuple of mappings
        ``-D`` sets that the compile matrix builds: representative ones, not all. A key
        ``"archs"`` restricts one variant to some architectures (fp8 before 8.9).
    path : str
        "simt" or "mma" and so on: what `config` chooses between.
    tensor_core : bool
        Tensor-core kernels must not spill to local memory.
    """

    source: str
    op: str
    dtypes: tuple[str, ...]
    archs: tuple[str, ...] = PORTABLE
    variants: tuple[Mapping[str, object], ...] = field(default=({},))
    path: str = "simt"
    tensor_core: bool = False


_HALVES = ("float16", "bfloat16")
_FORMAT_24 = (*_HALVES, "float32", "int8", "float8_e4m3fn")

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
        (*_HALVES, "float32", "float64", "int8"),
        variants=(
            {"T": "f16", "GROUP": 4},
            {"T": "bf16", "GROUP": 4, "IMPORTANCE": "f32"},
            {"T": "f32", "GROUP": 2},
            {"T": "f64", "GROUP": 4, "IMPORTANCE": "f64"},
            {"T": "s8", "GROUP": 4},
        ),
        path="copy",
    ),
    KernelSource(
        "prune_tile",
        "prune_tile",
        (*_HALVES, "float32", "float64", "int8"),
        variants=(
            {"T": "f16", "RULE": "largest_abs_values"},
            {"T": "bf16", "RULE": "given_mask"},
            {"T": "f32", "RULE": "largest_values"},
            {"T": "f64", "RULE": "causal1122"},
            {"T": "s8", "RULE": "largest_abs_values"},
        ),
        path="copy",
    ),
    KernelSource(
        "semi_structured_tile",
        "semi_structured_tile",
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
)

KERNELS: tuple[KernelSource, ...] = (*_SEMI_STRUCTURED,)


def architectures_of(source: str) -> tuple[str, ...]:
    """Return the architectures that a source compiles for (all portable ones if unknown)."""
    for row in KERNELS:
        if row.source == source:
            return row.archs
    return PORTABLE


def _number(arch: str) -> int:
    return int(arch.rstrip("af"))


def matching_architecture(
    declared: Iterable[str], cc: tuple[int, int], compilable: Iterable[int]
) -> str | None:
    """Return the architecture to compile for on a device, or None when none of them runs there.

    A feature architecture ("90a") fits its own device only and wins there. A plain one fits
    every later device: compiled under the device's own number, else under the closest lower
    number of the same major version (cubins run on later minor versions).
    """
    number = cc[0] * 10 + cc[1]
    known = sorted(compilable)
    plain = [a for a in declared if a.isdigit()]
    feature = [a for a in declared if not a.isdigit() and _number(a) == number]
    if feature:
        return feature[0]
    if not any(_number(a) <= number for a in plain):
        return None
    same_major = [n for n in known if n // 10 == cc[0] and n <= number]
    least = min(_number(a) for a in plain)
    fitting = [n for n in same_major if n >= least]
    return str(fitting[-1]) if fitting else None
