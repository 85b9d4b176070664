"""What a row of the table says, and what rows of several operations share."""

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
    "permute_for_24",
    "prune_24",
    "prune_tile",
    "semi_structured_tile",
    "compressed_swizzled_bitmask",
    "semi_structured_apply",
    "semi_structured_addmm",
    "scaled_mm",
    "bsr_semi_structured_addmm",
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


FLOATS = ("float16", "bfloat16", "float32", "float64")
HALVES = ("float16", "bfloat16")


def each(name: str, values: tuple[Any, ...], **common: str) -> tuple[Mapping[str, Any], ...]:
    """Return one ``-D`` set for each value of ``name``."""
    return tuple({name: value, **common} for value in values)


def epilogue_of(t: str, out: str, epilogue: str, act: str = "none") -> dict[str, str]:
    """Return the ``-D`` names of an epilogue that reads all it can (``common/epilogue.cuh``)."""
    sides = {
        "identity": {},
        "scaled": {"INPUT": out, "LEFT": t if t in {"f64", "c128"} else "f32", "RIGHT": t},
        "exact": {"INPUT": "s32"},
    }
    return {"OUT": out, "EPILOGUE": epilogue, "ACT": act, **sides[epilogue]}
