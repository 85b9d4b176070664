"""What a kernel is launched with: configurations, and outputs to be allocated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite, isnan, prod
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from .._checks import bad_type, bad_value, check_integer, check_integers, check_sizes, shown

Value = int | float | bool | str

#: Thread blocks of a cluster, on every device that has them.
_LARGEST_CLUSTER = 8


@dataclass(frozen=True, slots=True)
class Config:
    """One way to compile and launch a kernel.

    Parameters
    ----------
    defines : mapping of str to int, float, bool or str
        ``{"TILE": 32}`` becomes ``-DTILE=32``, True and False 1 and 0. Infinity and NaN become
        calls of ``__longlong_as_double``, which are no constant expressions.
    block : int or tuple of up to three ints, optional
        Threads of a block; replaces the kernel's.
    shared_memory : int
        Dynamic shared memory in bytes.
    options : tuple of str
        Of NVRTC, besides the kernel's.
    cluster : int or tuple of up to three ints, optional
        Thread blocks of a cluster, at most 8, from compute capability 9.0 on. They divide the
        grid's; a kernel's own ``__cluster_dims__`` need none here.

    Raises
    ------
    TypeError
        Defines of other types.
    ValueError
        Negative shared memory, clusters of none or of more than 8.

    Examples
    --------
    >>> Config({"TILE": 32}, block=128) == Config({"TILE": 32}, block=(128,))
    True
    """

    defines: Mapping[str, Value] = field(default_factory=dict)
    block: tuple[int, ...] | None = None
    shared_memory: int = 0
    options: tuple[str, ...] = ()
    cluster: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        checked = check_defines("Config", "defines", self.defines)
        object.__setattr__(self, "defines", MappingProxyType(checked))
        if self.block is not None:
            object.__setattr__(self, "block", dimensions("Config", "block", self.block))
        check_bytes("Config", self.shared_memory)
        object.__setattr__(self, "options", check_options("Config", self.options))
        if self.cluster is not None:
            sizes = dimensions("Config", "cluster", self.cluster)
            if not 1 <= prod(sizes) <= _LARGEST_CLUSTER:
                expected = f"1 to {_LARGEST_CLUSTER} thread blocks"
                raise bad_value("Config", "cluster", expected, sizes)
            object.__setattr__(self, "cluster", sizes)

    def _content(self) -> tuple:
        defines = tuple((k, type(v).__name__, v) for k, v in sorted(self.defines.items()))
        return defines, self.block, self.shared_memory, self.options, self.cluster

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def __reduce__(self) -> tuple:
        rest = self.block, self.shared_memory, self.options, self.cluster
        return Config, (dict(self.defines), *rest)

    def flags(self) -> tuple[str, ...]:
        """Return what the compiler is given."""
        return (*(f"-D{k}={_text(v)}" for k, v in sorted(self.defines.items())), *self.options)


def _text(value: Value) -> str:
    if isinstance(value, float) and not isfinite(value):
        made = f"__longlong_as_double(0x7ff{8 * isnan(value):x}000000000000)"
        return f"(-{made})" if value < 0 else made
    return str(int(value)) if isinstance(value, bool) else str(value)


def check_defines(function: str, argument: str, defines: Any) -> dict[str, Value]:
    """Return defines as a dict with Python's types."""
    if not isinstance(defines, Mapping):
        raise bad_type(function, argument, "a mapping of names to values", type(defines).__name__)
    checked: dict[str, Value] = {}
    for name, value in defines.items():
        if isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, (int, float, str)):
            expected = f"ints, floats, bools and strings, for {name!r} too"
            raise bad_type(function, argument, expected, type(value).__name__)
        if not isinstance(name, str) or not name.isidentifier():
            raise bad_value(function, argument, "names that C takes", shown(name, repr))
        checked[name] = value
    return checked


def check_options(function: str, options: Any) -> tuple[str, ...]:
    """Return options as a tuple of str."""
    given = sequence(function, "options", options, "a tuple of str")
    if not all(isinstance(option, str) for option in given):
        raise bad_type(function, "options", "a tuple of str", shown(options, repr))
    return given


def check_bytes(function: str, shared_memory: Any) -> int:
    """Return a number of bytes of shared memory."""
    expected = "a number of bytes, not negative"
    if isinstance(shared_memory, (tuple, list)):
        raise bad_type(function, "shared_memory", expected, shown(shared_memory, repr))
    found = check_integer(function, "shared_memory", shared_memory, expected)
    if found < 0:
        raise bad_value(function, "shared_memory", expected, found)
    return found


def sequence(function: str, argument: str, given: Any, expected: str) -> tuple:
    """Return a list or a tuple as a tuple."""
    if not isinstance(given, (tuple, list)):
        raise bad_type(function, argument, expected, shown(given, repr))
    return tuple(given)


def dimensions(function: str, argument: str, given: Any) -> tuple[int, ...]:
    """Return a grid or a block as one to three ints."""
    expected = "an integer or a tuple of one to three"
    sizes = given if isinstance(given, (tuple, list)) else (given,)
    sizes = check_integers(function, argument, sizes, expected)
    if not 1 <= len(sizes) <= 3 or min(sizes) < 0:
        raise bad_value(function, argument, f"{expected}, none negative", sizes)
    return sizes


@dataclass(frozen=True, slots=True)
class Out:
    """Stands for a written argument that the functional form is to allocate.

    Parameters
    ----------
    shape : int or tuple of int, optional
    dtype : dtype, optional
    fill : number, optional
        What it is filled with first. Without, the kernel must not read it.
    like : str, optional
        The argument whose shape and dtype are taken, instead.

    Raises
    ------
    TypeError
        Neither ``like`` nor shape and dtype, or both; a shape of no integers; no dtype.
    ValueError
        A negative size.

    Examples
    --------
    >>> Out((2, 3), "float32", fill=0).shape
    (2, 3)
    """

    shape: Any = None
    dtype: Any = None
    fill: Any = None
    like: str | None = None

    def __post_init__(self) -> None:
        given = self.shape is not None and self.dtype is not None
        if given == (self.like is not None) or (not given and self.shape is not None):
            raise bad_type(
                "Out", "like", "either 'like' or 'shape' and 'dtype'", shown(self.like, repr)
            )
        if given:
            sizes = self.shape if isinstance(self.shape, (tuple, list)) else (self.shape,)
            check_sizes("Out", "shape", sizes, "an integer or a tuple of them")
            try:
                np.dtype(self.dtype)
            except TypeError as error:
                raise bad_type("Out", "dtype", "a dtype", shown(self.dtype, repr)) from error


class Spec(NamedTuple):
    """An array without its memory."""

    shape: tuple[int, ...]
    dtype: np.dtype
    strides: tuple[int, ...]


class Meta(Mapping):
    """Arguments by name, then the defines of a configuration; what grids are computed from."""

    def __init__(self, function: str, values: Mapping[Any, Any]):
        self._function, self._values = function, values

    def __getitem__(self, name: Any) -> Any:
        if name not in self._values:
            known = ", ".join(map(str, self._values))
            raise bad_value(self._function, "meta", f"one of {known}", shown(name, repr))
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
