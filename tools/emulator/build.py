"""Builds a kernel for the host, and launches it."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from sparsegpu.engines.cuda.runtime.source import expand

from ..record import ROOT

_INCLUDE = Path(__file__).parent / "include"
_SOURCES = ROOT / "cuda_src"
_DYNAMIC = re.compile(r"extern __shared__ (?:__align__\((\d+)\) )?unsigned char (\w+)\[\];")
_ALIGNMENT = 128  # of an argument; a tensor map's

# Hidden: the linker would else give builds that differ in their names the shared variables of one.
_FLAGS = (
    *("-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fPIC", "-shared"),
    "-fvisibility=hidden",
)


@cache
def compiler() -> str | None:
    """Return a C++ compiler that has float16, None where there is none."""
    for name in filter(None, map(shutil.which, ("g++", "clang++"))):
        check = [name, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"]
        program = "#include <ucontext.h>\n_Float16 x;"
        if not subprocess.run(check, input=program, text=True, capture_output=True).returncode:
            return name
    return None


class HostKernel:
    """A kernel that was built for the host.

    Parameters
    ----------
    source : str
        Stem of a file and name of its entry point.
    defines : mapping
        Its ``-D`` names.
    directory : path
        Where builds are kept.
    root : path, optional
        Where the source is, if not in ``cuda_src``.
    """

    def __init__(
        self,
        source: str,
        defines: Mapping[str, Any],
        directory: Path,
        *,
        root: Path = _SOURCES,
    ):
        text = _DYNAMIC.sub(
            lambda found: (
                f"unsigned char* const {found[2]} = emulator::dynamic_shared({found[1] or 16});"
            ),
            (root / f"{source}.cu").read_text(encoding="utf-8"),
        )
        names = [f"-D{name}={value}" for name, value in sorted(defines.items())]
        twins = "".join(p.read_text() for p in sorted(_INCLUDE.rglob("*.*")) if p.is_file())
        digest = sha256("\0".join((expand(source, root), twins, *names)).encode()).hexdigest()[:20]
        library = directory / f"{source}-{digest}.so"
        if not library.exists():
            program = library.with_suffix(".cpp")
            program.write_text(
                f'#include "emulator.h"\n{text}\nextern "C" '
                f'__attribute__((visibility("default"))) void launch(unsigned grid, unsigned '
                f"block, void** arguments) {{\n  emulator::run(grid, block, arguments, "
                f"[] {{ emulator::call({source}); }});\n}}\n"
            )
            made = subprocess.run(
                [str(compiler()), *_FLAGS, *names, f"-I{_INCLUDE}", f"-I{_SOURCES}", str(program)]
                + ["-o", str(library)],
                capture_output=True,
                text=True,
            )
            if made.returncode:
                raise RuntimeError(f"{source} {' '.join(names)}\n{made.stderr}")
        self._launch = ctypes.CDLL(str(library)).launch

    def __call__(self, grid: int, block: int, arguments: Sequence[Any]) -> None:
        """Run it; arguments are arrays (their addresses), bytes or NumPy scalars."""
        kept, pointers = [], (ctypes.c_void_p * len(arguments))()
        for i, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                argument = np.uint64(argument.ctypes.data)
            value = argument if isinstance(argument, bytes) else argument.tobytes()
            memory = np.zeros(len(value) + _ALIGNMENT, np.uint8)
            first = -memory.ctypes.data % _ALIGNMENT
            memory[first : first + len(value)] = np.frombuffer(value, np.uint8)
            kept.append(memory)
            pointers[i] = memory.ctypes.data + first
        self._launch(grid, block, pointers)
