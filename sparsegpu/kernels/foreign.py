"""Kernels that are written in Python: what numba.cuda and cupyx.jit make of them.

numba gives PTX, in which an array is several parameters; cupyx.jit gives CUDA C++, in which it is
one struct. Source: numba-cuda, "Array argument" of its kernel dispatcher; CuPy, ``carray.cuh``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from .._checks import bad_type, bad_value, not_offered
from .._ptx.access import POINTER, SCALAR
from . import arguments
from .declaration import Declared
from .memory import address, is_array

#: Element types by their names in signatures, and what C calls them.
_TYPES = {
    "boolean": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short",
    "uint16": "unsigned short", "int32": "int", "uint32": "unsigned int", "int64": "long long",
    "uint64": "unsigned long long", "float32": "float", "float64": "double",
    "float16": "", "complex64": "", "complex128": "",
}  # fmt: skip
_PARAMETER = re.compile(r"(?P<type>\w+)\s*(?:\[(?P<dimensions>[:\s,1]*)\])?")
_EXPECTED = (
    "a pair (function, 'void(float32[:], float32[:, ::1], int64)'), a type for each of its "
    "parameters"
)


class Typed(NamedTuple):
    """A parameter of a signature; ``layout`` is ``"C"``, ``"F"``, ``"A"`` (any), "" of a number."""

    name: str
    type: str
    dimensions: int = 0
    layout: str = ""

    @property
    def dtype(self) -> np.dtype:
        """Of the number, or of the array's elements."""
        return np.dtype("bool" if self.type == "boolean" else self.type)

    def __str__(self) -> str:
        if not self.layout:
            return self.type
        axes = [":"] * self.dimensions
        if self.layout != "A":
            axes[-1 if self.layout == "C" else 0] = "::1"
        return f"{self.type}[{', '.join(axes)}]"


class Signature(NamedTuple):
    """A kernel's parameters as its function has them, and how they are passed.

    ``compiler`` is ``"numba"`` or ``"cupyx"``.
    """

    compiler: str
    parameters: tuple[Typed, ...]

    @property
    def is_ptx(self) -> bool:
        """Whether the kernel's text is PTX."""
        return self.compiler == "numba"

    def declared(self) -> list[Declared]:
        """Return the parameters of the PTX, each under the name of the function's parameter."""
        found = []
        for typed in self.parameters:
            number = Declared(typed.name, _TYPES[typed.type], False, False)
            size = Declared(typed.name, "long long", False, False)
            if not typed.layout:
                found.append(number)
            elif self.is_ptx:  # its owner, its parent, size, itemsize, address, shape and strides
                data = Declared(typed.name, _TYPES[typed.type], True, False)
                found += [*[size] * 4, data, *[size] * (2 * typed.dimensions)]
            else:
                found.append(Declared(typed.name, "CArray", False, False))
        return found

    def arguments(self) -> list[arguments.Parameter]:
        """Return what calls are checked against."""
        return [
            arguments.Parameter(
                typed.name, POINTER if typed.layout else SCALAR, typed.dtype.itemsize,
                typed.dtype, typed.dtype.kind in "iub", (typed.dimensions, typed.layout),
            )
            for typed in self.parameters
        ]  # fmt: skip

    def packed(self, ready: Mapping[Any, Any]) -> Iterator[Any]:
        """Yield a launch's arguments: arrays as the kernel takes them, all others as they are."""
        for value in ready.values():
            if not is_array(value):
                yield value
                continue
            where, sizes = address(value).to_bytes(8, "little"), (*value.shape, *value.strides)
            if self.is_ptx:
                words = np.array([0, 0, value.size, value.itemsize, 0, *sizes], np.int64)
                yield from (where if i == 4 else word.tobytes() for i, word in enumerate(words))
            else:
                yield where + np.array([value.size, *sizes], np.int64).tobytes()

    def places(self) -> list[int]:
        """Return where each parameter, or the address of its array, is among the launch's."""
        found, at = [], 0
        for typed in self.parameters:
            exploded = bool(typed.layout) and self.is_ptx
            found.append(at + 4 * exploded)
            at += 5 + 2 * typed.dimensions if exploded else 1
        return found

    def include_flags(self) -> tuple[str, ...]:
        """Return where the compiler finds the headers that the text includes."""
        if self.is_ptx:
            return ()
        from cupy._core import core

        return f"-I{core._get_header_dir_path()}", *core._get_cccl_include_options()


def signature_of(text: Any, names: list[str]) -> tuple[Typed, ...]:
    """Return a signature's parameters.

    Raises
    ------
    TypeError
        No str.
    ValueError
        Another number of types than of names, or no types that are known.
    """
    if not isinstance(text, str):
        raise bad_type("wrap", "kernel", _EXPECTED, repr(text))
    inside = re.fullmatch(r"\s*(?:void|none)?\s*\((.*)\)\s*", text, re.DOTALL)
    types = re.split(r",(?![^\[]*\])", inside[1]) if inside and inside[1].strip() else []
    if inside is None or len(types) != len(names):
        raise bad_value("wrap", "kernel", f"{_EXPECTED} ({', '.join(names)})", repr(text))
    return tuple(_typed(name, kind.strip()) for name, kind in zip(names, types, strict=True))


def _typed(name: str, text: str) -> Typed:
    match = _PARAMETER.fullmatch(text)
    if match is None or match["type"] not in _TYPES:
        known = f"types of {', '.join(_TYPES)} and arrays of them"
        raise bad_value("wrap", "kernel", known, repr(text))
    if match["dimensions"] is None:
        if not _TYPES[match["type"]]:
            raise not_offered("wrap", f"a number of type {text}", "arrays of it")
        return Typed(name, match["type"])
    axes = [axis.strip() for axis in match["dimensions"].split(",")]
    rest, layout = axes, "A"
    if axes[-1] == "::1":
        rest, layout = axes[:-1], "C"
    elif axes[0] == "::1":
        rest, layout = axes[1:], "F"
    if set(rest) - {":"}:
        raise bad_value("wrap", "kernel", "axes as in float32[:, ::1]", repr(text))
    return Typed(name, match["type"], len(axes), layout)


class Compiled(NamedTuple):
    """What a compiler makes of a function: a kernel's text, its name, options for the text."""

    text: str
    name: str
    options: tuple[str, ...]
    signature: Signature


def is_foreign(kernel: Any) -> bool:
    """Return whether something is a function of numba.cuda or of cupyx.jit."""
    return type(kernel).__module__.partition(".")[0] in {"numba", "numba_cuda", "cupyx"}


def compiled(kernel: Any, signature: Any, architecture: str) -> Compiled:
    """Return what a compiler makes of a function with a signature.

    Raises
    ------
    TypeError, ValueError
        No signature, or none of this function.
    NotImplementedError
        A function that needs more than NVRTC: cooperative groups, CUB.
    """
    function = getattr(kernel, "py_func", None) or getattr(kernel, "_func", None)
    options = getattr(kernel, "targetoptions", {})
    if function is None or getattr(kernel, "_device", False) or options.get("device"):
        raise bad_type("wrap", "kernel", "a kernel, not a device function", repr(kernel))
    parameters = signature_of(signature, list(inspect.signature(function).parameters))
    make = _by_numba if hasattr(kernel, "py_func") else _by_cupyx
    return make(kernel, function.__name__, parameters, architecture)


def _by_numba(kernel: Any, name: str, parameters: tuple[Typed, ...], architecture: str) -> Compiled:
    from numba import cuda

    signature = f"void({', '.join(map(str, parameters))})"
    capability = re.sub(r"\D", "", architecture)
    given = ("debug", "opt", "fastmath", "launch_bounds")
    chosen = {o: kernel.targetoptions[o] for o in given if kernel.targetoptions.get(o) is not None}
    ptx, _ = cuda.compile(
        kernel.py_func, signature, device=False, abi="numba", lineinfo=not chosen.get("debug"),
        cc=(int(capability[:-1]), int(capability[-1])), **chosen,
    )  # fmt: skip
    # Its name holds the types, and how often numba has compiled: text of equal content is equal.
    mangled = re.search(r"\.entry\s+([\w$]+)", ptx)[1]  # type: ignore[index]
    ptx = re.sub(rf"\b_ZN08NumbaEnv{re.escape(mangled[3:])}\b", f"{name}_environment", ptx)
    ptx = re.sub(rf"\b{re.escape(mangled)}(?=\b|_param_)", name, ptx)
    return Compiled(ptx, name, (), Signature("numba", parameters))


def _by_cupyx(kernel: Any, name: str, parameters: tuple[Typed, ...], architecture: str) -> Compiled:
    from cupy import __version__
    from cupy._core import core
    from cupyx.jit import _compile
    from cupyx.jit import _cuda_types as types

    made = _compile.transpile(
        kernel._func,
        ['extern "C"', "__global__"],
        kernel._mode,
        tuple(
            types.CArray(p.dtype, p.dimensions, p.layout == "C", False)
            if p.layout
            else types.Scalar(p.dtype)
            for p in parameters
        ),
        types.void,
    )
    if made.backend != "nvrtc" or made.jitify or made.enable_cooperative_groups:
        raise not_offered("wrap", f"{name}, with cooperative groups or CUB", "what NVRTC compiles")
    headers = "".join(f"#include <{header}>\n" for header in core._cupy_header_list)
    text = f"// by CuPy {__version__}\n{headers}{made.code}"  # another CuPy has other headers
    return Compiled(text, made.func_name, tuple(made.options), Signature("cupyx", parameters))
