"""Kernel sources: finds ``cuda_src`` and expands our includes into one text.

So a cache key made of this text covers every byte that can change a kernel.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
_ONCE = re.compile(r"^\s*#\s*pragma\s+once\b")


@lru_cache(maxsize=1)
def source_root() -> Path:
    """Return the directory of the kernel sources.

    ``SPARSEGPU_CUDA_SRC`` names it, to try a changed kernel; otherwise it is the installed
    package's ``_cuda_src``, else ``cuda_src`` beside the package (a checkout or an editable
    install).

    Raises
    ------
    FileNotFoundError
        When neither exists: the installation is incomplete.
    """
    package = Path(__file__).resolve().parents[3]
    override = os.environ.get("SPARSEGPU_CUDA_SRC")
    candidates = (
        (Path(override),) if override else (package / "_cuda_src", package.parent / "cuda_src")
    )
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    looked = " or ".join(map(str, candidates))
    named = " (SPARSEGPU_CUDA_SRC)" if override else ""
    raise FileNotFoundError(f"kernel sources not found: expected {looked}{named}")


def source_names() -> list[str]:
    """Return the stem of every kernel source, sorted."""
    return sorted(path.stem for path in source_root().rglob("*.cu"))


def expand(name: str, root: Path | None = None) -> str:
    """Return the text of ``<name>.cu`` with every ``#include "..."`` put in its place, once.

    Names are looked up from the root, then beside the including file, then in ``cuda_src``.
    ``#line`` directives keep compiler messages pointing at the real file and line.

    Raises
    ------
    FileNotFoundError
        Naming the missing file, and the file and line that include it.
    """
    root = root or source_root()
    path = root / f"{name}.cu"
    if not path.is_file():
        raise FileNotFoundError(f"kernel source '{name}' not found: expected {path}")
    lines: list[str] = []
    _expand(path.resolve(), root.resolve(), set(), lines)
    return "\n".join(lines) + "\n"


def _expand(path: Path, root: Path, seen: set[Path], lines: list[str]) -> None:
    seen.add(path)
    shown = Path("cuda_src", os.path.relpath(path, root)).as_posix()
    lines.append(f'#line 1 "{shown}"')
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = _INCLUDE.match(line)
        if match is None:
            lines.append("" if _ONCE.match(line) else line)
            continue
        included = _find(match[1], path, root, f"{shown}:{number}")
        if included in seen:
            lines.append("")
            continue
        _expand(included, root, seen, lines)
        lines.append(f'#line {number + 1} "{shown}"')


def _find(name: str, includer: Path, root: Path, where: str) -> Path:
    for directory in (root, includer.parent, source_root()):
        candidate = directory / name
        if candidate.is_file():
            return candidate.resolve()
    raise FileNotFoundError(f'{where}: #include "{name}" not found under {root}')
