"""Compiles every kernel with ``cuda.bindings.nvrtc`` to a cubin for one architecture.

Neither a GPU nor a driver is needed. Why not ``cupy.RawModule``: it forces -ftz, appends an -arch
of its own, and its cache key leaves out the included headers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from .... import _install
from ...._cache import read_entry, write_entry
from .cubin import Resources, read_resources
from .source import expand


class CompileError(RuntimeError):
    """A kernel that does not compile; the message holds source, flags and the compiler's log."""


@dataclass(frozen=True, slots=True)
class Cubin:
    """A compiled kernel."""

    code: bytes
    resources: Resources


def compile_kernel(
    name: str, arch: str, defines: dict[str, Any] | None = None, *, root: Path | None = None
) -> Cubin:
    """Compile ``cuda_src/<name>.cu`` for ``sm_<arch>``, or take it from the cache.

    Parameters
    ----------
    name : str
        Stem of the source and name of its ``extern "C"`` entry point.
    arch : str
        For example ``"80"`` or ``"90a"``.
    defines : dict
        ``{"T": "bf16"}`` becomes ``-DT=bf16``.
    root : Path, optional
        Directory of the sources (`source.source_root`).

    Raises
    ------
    CompileError
        With the place in the source, the log and the flags; also for a missing entry point.
    """
    text = expand(name, root)
    flags = [f"--gpu-architecture=sm_{arch}", *_FLAGS]
    flags += [f"-D{key}={as_text(value)}" for key, value in sorted((defines or {}).items())]
    flags += [f"--include-path={path}" for path in include_paths()]
    _dump(name, arch, text, flags)
    key = _key(text, flags, name)
    kept = read_entry("cubin", key, partial(_unpack, name))
    if kept is not None:
        return kept
    cubin = _compile(name, text, flags)
    write_entry("cubin", key, _pack(cubin))
    return cubin


_FLAGS = ("--std=c++17", "--device-as-default-execution-space", "-lineinfo", "-Xptxas=-v")


def as_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _key(text: str, flags: list[str], name: str) -> str:
    parts = [_LAYOUT, name, text, *flags, "nvrtc", *map(str, nvrtc_version())]
    parts.append(header_sizes(include_paths()))
    return sha256("\0".join(parts).encode()).hexdigest()


#: Of a cache entry; changes whenever `_pack` does.
_LAYOUT = "3"


def _pack(cubin: Cubin) -> bytes:
    return json.dumps(asdict(cubin.resources)).encode() + b"\n" + cubin.code


def _unpack(name: str, entry: bytes) -> Cubin:
    """Return what `_pack` was given; anything else is an exception."""
    head, _, code = entry.partition(b"\n")
    kept, found = Resources(**json.loads(head)), read_resources(code, name)
    if found is None or (kept.registers, kept.stack, kept.shared) != (
        found.registers,
        found.stack,
        found.shared,
    ):
        raise ValueError(f"no cubin of {name}")
    return Cubin(code, kept)


# -- the compiler ---------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ImportError(
            f"compiling kernels needs cuda-bindings: {_install.for_cuda()}"
        ) from error
    return nvrtc


@lru_cache(maxsize=1)
def nvrtc_version() -> tuple[int, int]:
    """Return the version of NVRTC, for example ``(13, 0)``."""
    _, major, minor = _checked(_nvrtc().nvrtcVersion())
    return major, minor


@lru_cache(maxsize=1)
def supported_architectures() -> tuple[int, ...]:
    """Return the architectures this NVRTC compiles for, for example ``(75, 80, ...)``."""
    return tuple(_checked(_nvrtc().nvrtcGetSupportedArchs())[1])


def _checked(result: tuple) -> tuple:
    if int(result[0]) != 0:
        message = _nvrtc().nvrtcGetErrorString(result[0])[1]
        raise RuntimeError(f"NVRTC: {message.decode() if message else result[0]}")
    return result


@lru_cache(maxsize=1)
def include_paths() -> tuple[str, ...]:
    """Return the directory that holds ``cuda_fp16.h`` and its companions.

    The headers that came with the NVRTC in use are preferred, then pip's, then a toolkit's.

    Raises
    ------
    FileNotFoundError
        Saying what to install.
    """
    for directory in _header_candidates():
        if directory and os.path.isfile(os.path.join(directory, "cuda_fp16.h")):
            return (str(directory),)
    raise FileNotFoundError(
        "cuda_fp16.h not found beside NVRTC, in pip's nvidia packages, CUDA_PATH or "
        f"/usr/local/cuda; {_install.for_cuda()}"
    )


@lru_cache(maxsize=1)
def header_sizes(paths: tuple[str, ...]) -> str:
    """Return names and sizes of the headers in directories, which tell releases of CUDA apart.

    An upgrade puts others into the same directory. Reading them all would take longer than a cached
    kernel does.
    """
    found = [(e.name, e.stat().st_size) for p in paths for e in os.scandir(p) if e.is_file()]
    return repr(sorted(found))


def _header_candidates() -> Any:
    _checked(_nvrtc().nvrtcVersion())  # loads the library
    try:
        from cuda import pathfinder
    except ImportError:  # not in cuda-bindings before 12.9.1
        pathfinder = None
    if pathfinder is not None:
        library = Path(pathfinder.load_nvidia_dynamic_lib("nvrtc").abs_path or "").resolve()
        for parent in library.parents[1:3]:  # <prefix>/lib or <prefix>/lib64
            yield parent / "include"
            yield parent / "cuda_runtime" / "include"  # pip, CUDA 12: one folder a component
            yield parent / "targets" / "x86_64-linux" / "include"
        find = getattr(pathfinder, "find_nvidia_header_directory", None)
        if find is not None:
            yield find("cudart")
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "include"
    yield "/usr/local/cuda/include"


def _compile(name: str, text: str, flags: list[str]) -> Cubin:
    return compile_text(name, text, tuple(flags), where=f"cuda_src/{name}.cu").cubin


@dataclass(frozen=True, slots=True)
class Program:
    """What one compilation gives: a cubin, and the PTX that it is made of."""

    cubin: Cubin
    ptx: str


def compile_text(
    name: str, text: str, flags: tuple[str, ...], *, where: str | None = None
) -> Program:
    """Compile a text with NVRTC.

    Parameters
    ----------
    name : str
        Of its ``extern "C"`` entry point.
    text : str
    flags : tuple of str
        ``--gpu-architecture`` among them.
    where : str, optional
        The file that messages name, ``<name>.cu`` by default.

    Raises
    ------
    CompileError
        With the place in the source, the log and the flags; also for a missing entry point.
    """
    nvrtc, where = _nvrtc(), where or f"{name}.cu"
    program = _checked(nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], []))[1]
    try:
        status = nvrtc.nvrtcCompileProgram(program, len(flags), [f.encode() for f in flags])[0]
        size = _checked(nvrtc.nvrtcGetProgramLogSize(program))[1]
        buffer = bytearray(size)
        _checked(nvrtc.nvrtcGetProgramLog(program, buffer))
        log = buffer.rstrip(b"\0").decode(errors="replace")
        if int(status) != 0:
            raise _error(name, log, flags, where)
        code = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program))[1])
        _checked(nvrtc.nvrtcGetCUBIN(program, code))
        ptx = bytearray(_checked(nvrtc.nvrtcGetPTXSize(program))[1])
        _checked(nvrtc.nvrtcGetPTX(program, ptx))
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    resources = read_resources(bytes(code), name, log)
    if resources is None:
        entries = ", ".join(re.findall(r"\.entry (\w+)", ptx.decode())) or "none"
        missing = f'{where}:1: no extern "C" entry point {name}, got {entries}'
        raise _error(name, f"{missing}\n{log}", flags, where)
    return Program(Cubin(bytes(code), resources), ptx.rstrip(b"\0").decode())


@lru_cache(maxsize=1)
def linker_version() -> tuple[int, int]:
    """Return the version of nvJitLink, for example ``(13, 0)``."""
    return _linker().version()


def _linker() -> Any:
    try:
        from cuda.bindings import nvjitlink
    except ImportError as error:
        raise ImportError(f"compiling PTX needs cuda-bindings: {_install.for_cuda()}") from error
    return nvjitlink


def link_ptx(name: str, ptx: str, flags: tuple[str, ...]) -> Program:
    """Compile PTX with nvJitLink.

    Parameters
    ----------
    name : str
        Of its entry point.
    ptx : str
    flags : tuple of str
        ``-arch`` among them.

    Raises
    ------
    CompileError
        With the log and the flags; also for a missing entry point.
    """
    linker, text = _linker(), ptx.encode()
    try:
        handle = linker.create(len(flags), list(flags))
    except linker.nvJitLinkError as error:  # an option
        raise _link_error(name, flags, str(error)) from error
    try:
        linker.add_data(handle, linker.InputType.PTX, text, len(text), f"{name}.ptx")
        linker.complete(handle)
        code = bytearray(linker.get_linked_cubin_size(handle))
        linker.get_linked_cubin(handle, code)
        log = _text(handle, linker.get_info_log_size, linker.get_info_log)
    except linker.nvJitLinkError as error:
        log = _text(handle, linker.get_error_log_size, linker.get_error_log)
        raise _link_error(name, flags, log or str(error)) from error
    finally:
        linker.destroy(handle)
    resources = read_resources(bytes(code), name, log)
    if resources is None:
        raise _link_error(name, flags, f"no entry point {name}\n{log}")
    return Program(Cubin(bytes(code), resources), ptx)


def _link_error(name: str, flags: Sequence[str], log: str) -> CompileError:
    version = ".".join(map(str, linker_version()))
    return CompileError(
        f"{name}.ptx: kernel '{name}' does not compile (nvJitLink {version})\n"
        f"flags: {' '.join(flags)}\n{log}"
    )


def _text(handle: int, size: Any, read: Any) -> str:
    """Return one of nvJitLink's logs."""
    buffer = bytearray(size(handle))
    read(handle, buffer)
    return buffer.rstrip(b"\0").decode(errors="replace").strip()


_PLACE = re.compile(r"^(\S+)\((\d+)\): (?:catastrophic )?error", re.MULTILINE)


def _error(name: str, log: str, flags: Sequence[str], where: str) -> CompileError:
    place = _PLACE.search(log)
    where = f"{place[1]}:{place[2]}" if place else where
    major, minor = nvrtc_version()
    return CompileError(
        f"{where}: kernel '{name}' does not compile (NVRTC {major}.{minor})\n"
        f"flags: {' '.join(flags)}\n{log.strip()}"
    )


def _dump(name: str, arch: str, text: str, flags: list[str]) -> None:
    """Write the expanded source where ``SPARSEGPU_DUMP_SOURCE`` says."""
    directory = os.environ.get("SPARSEGPU_DUMP_SOURCE")
    if directory:
        digest = sha256("\0".join(flags).encode()).hexdigest()[:8]
        os.makedirs(directory, exist_ok=True)
        path = Path(directory, f"{name}.sm_{arch}.{digest}.cu")
        path.write_text(f"// {' '.join(flags)}\n{text}", encoding="utf-8")
