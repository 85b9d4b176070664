"""A kernel compiled for one architecture with one set of flags, and what is found in it."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .._cache import read_entry, write_entry
from .._checks import bad_value
from .._ptx import stored
from .._ptx.access import SCALAR, STRUCT, UNTYPED, WORD, Formal, Report, opaque, report
from .declaration import Declared, dtype_of, parameters_of
from .foreign import Signature

#: Without a device and without an option.
DEFAULT_ARCHITECTURE = "80"
_ARCHITECTURE = re.compile(r"(?:-arch|--gpu-architecture)[= ](?:sm|compute)_(\w+)")
_FLAGS = ("--std=c++17", "-lineinfo", "-Xptxas=-v")
_LAYOUT = "3"


class Bounds(NamedTuple):
    """What a kernel was compiled for: the most threads of a block, and clusters.

    ``cluster`` are the dimensions that it says itself, or none, and ``most_blocks`` its bound.
    """

    threads: int
    cluster: tuple[int, ...]
    most_blocks: int | None


@dataclass(frozen=True, slots=True)
class Build:
    """A cubin, its PTX, and the report of it."""

    code: bytes
    ptx: str
    resources: Any
    report: Report
    declared: list[Declared] | None
    bounds: Bounds


def can_compile() -> bool:
    """Return whether NVRTC's bindings are installed."""
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:
        return False


def architecture_of(options: tuple[str, ...]) -> str | None:
    """Return the architecture that options choose, or else the device's (``"90a"``), or None."""
    chosen = [match[1] for option in options if (match := _ARCHITECTURE.fullmatch(option))]
    return chosen[-1] if chosen else _device_architecture()


def flags_of(options: tuple[str, ...], signature: Signature | None = None) -> tuple[str, ...]:
    """Return the compiler's flags for a kernel's and a configuration's options."""
    arch = architecture_of(options) or DEFAULT_ARCHITECTURE
    rest = [option for option in options if not _ARCHITECTURE.fullmatch(option)]
    if signature is not None and signature.is_ptx:
        return (f"-arch=sm_{arch}", "-Xptxas=-v", *rest)
    standard = [flag for flag in _FLAGS if not any(o.startswith(flag[:5]) for o in rest)]
    headers = () if signature is None else signature.include_flags()
    return (f"--gpu-architecture=sm_{arch}", *standard, *rest, *headers)


def _device_architecture() -> str | None:
    import sys

    cupy = sys.modules.get("cupy")
    if cupy is None or not cupy.cuda.is_available():
        return None
    return cupy.cuda.Device().compute_capability


@lru_cache(maxsize=256)
def build(
    name: str,
    text: str,
    flags: tuple[str, ...],
    signature: Signature | None = None,
    headers: str = "",
) -> Build:
    """Compile a kernel, or take it from the cache; its PTX is analysed.

    ``headers`` tells states of what the text includes apart (`headers.digest`).

    Raises
    ------
    CompileError
        With the compiler's log.
    """
    from ..engines.cuda.runtime import compile as compiler

    make: Callable[..., compiler.Program]
    if signature is not None and signature.is_ptx:
        compiled_by, make = compiler.linker_version(), compiler.link_ptx
    else:
        compiled_by, make = compiler.nvrtc_version(), compiler.compile_text
        paths = compiler.include_paths()
        flags = (*flags, *(f"--include-path={path}" for path in paths))
        headers += compiler.header_sizes(paths)
    parts = [_LAYOUT, stored.version(), name, text, *flags, repr(signature), repr(compiled_by)]
    parts.append(headers)
    key = sha256("\0".join(parts).encode()).hexdigest()
    kept = read_entry("kernel", key, _unpacked)
    if kept is None:
        program = make(name, text, flags)
        kept = program.cubin.code, program.ptx, *_found(program.ptx, name, text, flags, signature)
        write_entry("kernel", key, _packed(*kept))
    code, ptx, found, declared = kept
    resources = compiler.read_resources(code, name)
    return Build(code, ptx, resources, found, declared, _bounds(ptx, name))


@lru_cache(maxsize=256)
def of_cubin(name: str, code: bytes) -> Build:
    """Return a cubin's kernel, of which nothing is known but the sizes of its parameters.

    Raises
    ------
    ValueError
        No cubin, or none of this kernel.
    """
    from ..engines.cuda.runtime.cubin import parameter_sizes, read_resources

    resources = read_resources(code, name)
    if resources is None:
        raise bad_value("wrap", "name", "a kernel of the cubin", name)
    kinds = {1: SCALAR, 2: SCALAR, 4: SCALAR, 8: WORD}
    formals = [Formal(kinds.get(s, STRUCT), s, UNTYPED) for s in parameter_sizes(code, name)]
    found = opaque(tuple(formals), "a cubin has no PTX")
    return Build(code, "", resources, found, None, Bounds(1024, (), None))


def _found(
    ptx: str, name: str, text: str, flags: tuple[str, ...], signature: Signature | None
) -> tuple[Report, list[Declared] | None]:
    """Return what is found in the PTX, and the declaration where the text tells it."""
    defined = [flag[2:].partition("=")[0] for flag in flags if flag.startswith("-D")]
    declared = parameters_of(text, name, defined) if signature is None else signature.declared()
    found = report(ptx, name, *told(declared))
    if declared is not None and not _fit(declared, found.formals):
        return report(ptx, name), None
    return found, declared


def _fit(declared: list[Declared], formals: tuple[Formal, ...]) -> bool:
    """Return whether a declaration is of these parameters: a header's macros may say otherwise."""
    if len(declared) != len(formals):
        return False
    sizes = [8 if d.pointer else dtype_of(d.type) for d in declared]
    known = [s.itemsize if isinstance(s, np.dtype) else s for s in sizes]
    return all(s in {None, formal.size} for s, formal in zip(known, formals, strict=True))


def told(declared: list[Declared] | None) -> tuple[frozenset[int], frozenset[int]]:
    """Return the parameters that a declaration tells to be numbers, and to be pointers."""
    told = list(enumerate(declared or ()))
    scalars = frozenset(i for i, d in told if not d.pointer and dtype_of(d.type) is not None)
    return scalars, frozenset(i for i, d in told if d.pointer)


def _bounds(ptx: str, name: str) -> Bounds:
    """Read the directives of a kernel's entry."""
    entry = re.search(rf"\.entry\s+{re.escape(name)}\b[^{{]*", ptx)

    def sizes(directive: str) -> tuple[int, ...]:
        found = re.search(rf"\.{directive}\s+([\d, ]+)", entry[0] if entry else "")
        return tuple(map(int, found[1].split(","))) if found else ()

    threads = sizes("(?:max|req)ntid") or (1024,)
    return Bounds(
        prod(threads), sizes("reqnctapercluster"), next(iter(sizes("maxclusterrank")), None)
    )


def _packed(code: bytes, ptx: str, found: Report, declared: list[Declared] | None) -> bytes:
    texts = ptx, stored.to_text(found), json.dumps(declared)
    contents = code, *(text.encode() for text in texts)
    return b"".join((json.dumps([len(c) for c in contents]).encode(), b"\n", *contents))


def _unpacked(entry: bytes) -> tuple[bytes, str, Report, list[Declared] | None]:
    head, _, rest = entry.partition(b"\n")
    contents = []
    for size in json.loads(head):
        contents.append(rest[:size])
        rest = rest[size:]
    code, ptx, found, declared = contents
    told = json.loads(declared)
    return (
        code,
        ptx.decode(),
        stored.from_text(found.decode()),
        None if told is None else [Declared(*each) for each in told],
    )
