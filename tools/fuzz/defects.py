"""What is put in the place of a well-formed argument."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .case import Case
from .draws import Bsr, Draws, TwoOfFour
from .machine import Machine

_DTYPES = (
    "float16",
    "float32",
    "float64",
    "int8",
    "int64",
    "uint16",
    "bool",
    "complex64",
    "U3",
    "M8[s]",
    "V5",
)
_NUMBERS = (
    None,
    "1",
    np.nan,
    10**400,
    1j,
    np.float32(2),
    True,
    [1],
    np.array(2.0),
    np.array([2.0]),
    -1,
    2**70,
    -(2**63),
    0.5,
    b"1",
)
_THINGS = (
    None,
    0,
    -1,
    "nonsense",
    [],
    {},
    (),
    1.5,
    object(),
    np.nan,
    2**70,
    [[1, 2], [3]],
    np.zeros(3),
    slice(None),
)


def spoil(case: Case, draws: Draws) -> str | bool:
    """Replace one argument of a case; return what was done, or False where there is none."""
    names = [name for name in case.arguments if name not in case.fixed]
    if not names:
        return False
    name = draws.choice(names)
    value = case.arguments[name]
    what, case.arguments[name] = _spoiled(value, draws)
    return f"{name} {what}"


def _spoiled(value: Any, draws: Draws) -> tuple[str, Any]:
    if draws.chance(20):
        thing = draws.choice(_THINGS)
        return f"replaced by {thing!r:.60}", thing
    if isinstance(value, np.ndarray):
        return _array(value, draws)
    if isinstance(value, Bsr):
        return _bsr(value, draws)
    if isinstance(value, TwoOfFour):
        return "given dense", value.matrix
    if isinstance(value, (int, float, complex, np.generic)) and not isinstance(value, bool):
        number = draws.choice(_NUMBERS)
        return f"replaced by {number!r:.60}", number
    thing = draws.choice(_THINGS)
    return f"replaced by {thing!r:.60}", thing


def _array(array: np.ndarray, draws: Draws) -> tuple[str, Any]:
    kind = draws.integer(0, 8)
    if kind == 0:
        return "as objects", array.astype(object)
    if kind == 1:
        return "as a list", array.tolist()
    if kind == 2:
        return "with one more axis", array[None]
    if kind == 3 and array.ndim and len(array):
        return "without its first axis", array[0]
    if kind == 4 and array.ndim and array.shape[-1]:
        return "shorter", array[..., :-1]
    if kind == 5:
        return "as a masked array", np.ma.masked_array(array, mask=False)
    if kind == 6 and array.ndim:
        return "longer", np.concatenate([array, array], axis=-1)
    if kind == 7 and array.ndim <= 2:
        return "as a matrix", array.view(np.matrix)
    dtype = draws.choice(_DTYPES)
    return f"as {dtype}", _converted(array, dtype)


def _converted(array: np.ndarray, dtype: str) -> np.ndarray:
    """Return an array of another dtype; of those without such a conversion, zeros."""
    with np.errstate(all="ignore"):
        if array.dtype.kind in "biuf" and dtype[0] not in "UMV":
            return array.astype(dtype)
    return np.zeros(array.shape, dtype)


def _bsr(value: Bsr, draws: Draws) -> tuple[str, Any]:
    kind = draws.integer(0, 3)
    if kind == 0:
        return "given dense", value.dense()
    if kind == 1 and value.dtype.kind in "biuf":
        dtype = draws.choice(("float32", "float64", "int8", "bool", "int32", "complex64"))
        return f"as {dtype}", replace(value, data=_converted(value.data, dtype))
    if kind == 2:
        (m, k), (_, bk) = value.shape, value.blocksize
        return "wider", replace(value, shape=(m, k + bk))
    return "given by its parts", (value.data, value.indices, value.indptr)


def spoil_out(case: Case, given: dict[str, Any], draws: Draws, machine: Machine) -> str | bool:
    """Replace the array to write to by one that must be refused; False where there is none."""
    out = given.get(case.writes) if case.writes else None
    if not hasattr(out, "strides") or out.size < 2:
        return False
    kind = draws.integer(0, 2)
    if kind == 0:
        wide = machine.xp.zeros((1,) * out.ndim, out.dtype)
        given[case.writes] = machine.xp.broadcast_to(wide, out.shape)
        return f"'{case.writes}' with strides of zero"
    if kind == 1 and not machine.on_gpu:
        out.flags.writeable = False
        return f"a read-only '{case.writes}'"
    for name, other in given.items():
        same = type(other) is type(out) and name != case.writes and other.dtype == out.dtype
        if (
            same
            and other.size
            and name in {"dense", "mat1", "mat2", "other", "others", "blocks", "x"}
        ):
            memory = machine.xp.zeros(out.size + other.size - 1, out.dtype)
            memory[: other.size] = other.ravel()
            given[name] = memory[: other.size].reshape(other.shape)
            given[case.writes] = memory[other.size - 1 :].reshape(out.shape)
            return f"'{case.writes}' that overlaps '{name}'"
    return False


def share_input(case: Case, given: dict[str, Any]) -> None:
    """Give the array that is written to as ``input`` too, where both are alike: it is allowed."""
    out, term = given.get(case.writes or ""), case.arguments.get("input")
    of_case = case.arguments.get(case.writes or "")
    alike = isinstance(term, np.ndarray) and isinstance(of_case, np.ndarray)
    if alike and (term.shape, term.dtype) == (of_case.shape, of_case.dtype):
        out[...] = given["input"]
        given["input"] = out
