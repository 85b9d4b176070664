"""Finds the barriers in the source of a kernel, removes one, puts delays around them.

A barrier is a call of CUDA's own (``__syncthreads``, ``__syncwarp``) or of one of our wrappers in
``cuda_src/ptx`` whose instruction makes threads wait for other threads (``bar.sync``,
``mbarrier.try_wait`` ...). The wrappers are found by their instructions, so that a new one need
not be listed here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_FUNCTION = re.compile(r"(\w+)\s+(\w+)\s*\([^(){};]*\)\s*(?:const\s*)?\{")
_STRUCT = re.compile(r"\b(?:struct|class)\s+(\w+)[^;(){}]*\{")
_WAITS = re.compile(
    r"\bbar(?:rier)?\.(?:\w+\.)?(?:sync|red|wait)\b|\bmbarrier\.(?:try|test)_wait\b"
)
_BUILT_IN = {
    "__syncthreads": "void",
    "__syncwarp": "void",
    "__syncthreads_or": "argument",
    "__syncthreads_and": "argument",
    "__syncthreads_count": "argument",
}
_DELAYS = Path(__file__).with_name("random_delay.cuh")


@dataclass(frozen=True, slots=True)
class Barrier:
    """A call that makes threads wait for each other.

    Attributes
    ----------
    file : str
        Below ``cuda_src``.
    start, end : int
        Of the call in the file's text.
    line, nth : int
        The line, and which of its barriers, from 1.
    returns : str
        The call's value: "void", "argument" (the call's own) or another type.
    used : bool
        Whether the kernel calls the function that it stands in; headers have some for others.
    """

    file: str
    start: int
    end: int
    line: int
    nth: int
    returns: str
    used: bool = True

    @property
    def label(self) -> str:
        """The name in the record: the line, and the file if it is a header."""
        file = "" if self.file.endswith(".cu") else f"{self.file} "
        return f"{file}line {self.line}" + (f" ({self.nth})" if self.nth > 1 else "")


def find_barriers(kernel: str, root: Path) -> list[Barrier]:
    """Return the barriers of ``<kernel>.cu`` and of the headers that it includes."""
    calls = {**_BUILT_IN, **_waiting_wrappers(root)}
    names = "|".join(sorted(calls))
    call = re.compile(rf"(?:\w+(?:\[[^\]]*\])?(?:\.|->))*\b({names})\b\s*(?:<[^;()]*>\s*)?\(")
    found: list[Barrier] = []
    texts = {f: _without_comments((root / f).read_text()) for f in _files_of(kernel, root)}
    for file, text in texts.items():
        spans = [] if file.endswith(".cu") else _uncalled(text, texts.values())
        for match in call.finditer(text):
            at, end = match.start(), _closing(text, match.end() - 1)
            line = text.count("\n", 0, at) + 1
            nth = 1 + sum(b.file == file and b.line == line for b in found)
            used = not any(at in span for span in spans)
            found.append(Barrier(file, at, end, line, nth, calls[match[1]], used))
    return found


def write_build(
    kernel: str, root: Path, folder: Path, *, removed: Barrier | None, delays: bool
) -> None:
    """Write a changed copy of a kernel's source and of the headers with barriers.

    Parameters
    ----------
    kernel : str
        Stem of the source.
    root : Path
        The sources as they are.
    folder : Path
        For the changed files; it is searched before ``root``.
    removed : Barrier, optional
    delays : bool
        Let every warp sleep at random before and after each barrier.
    """
    texts = {f"{kernel}.cu": (root / f"{kernel}.cu").read_text()}
    numbered = list(enumerate(find_barriers(kernel, root)))
    for place, barrier in sorted(numbered, key=lambda item: item[1].start, reverse=True):
        text = texts.get(barrier.file) or (root / barrier.file).read_text()
        call = text[barrier.start : barrier.end]
        new = _replaced(call, barrier.returns, barrier == removed, place if delays else None)
        texts[barrier.file] = text[: barrier.start] + new + text[barrier.end :]
    if delays:
        name = f"{kernel}.cu"
        texts[name] = f'#include "{_DELAYS.name}"\n#line 1 "cuda_src/{name}"\n{texts[name]}'
        shutil.copy(_DELAYS, folder)
    for file, text in texts.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def takes_several_tiles(kernel: str, root: Path) -> bool:
    """Return whether a kernel's thread blocks loop over tiles, so that a smaller grid is enough.

    They do if its source asks for the grid's size, or names a function or struct of a header that
    does.
    """
    source, *headers = (_without_comments((root / f).read_text()) for f in _files_of(kernel, root))
    named = [pair for text in headers for pair in (*_functions(text), *_structs(text))]
    asking = [name for name, *_, body in named if "gridDim.x" in body]
    return re.search(rf"\b(?:{'|'.join(['gridDim', *asking])})\b", source) is not None


def _replaced(call: str, returns: str, removed: bool, place: int | None) -> str:
    """Return the replacement of a barrier's call: nothing or itself, with delays or without."""
    if removed:
        value = {"void": "void(0)", "argument": call[call.index("(") :]}
        call = value.get(returns, "true")
    if place is None:
        return call
    delay = f"random_delay({place})"
    return f"({delay}, {call}, {delay})" if returns == "void" else f"({delay}, {call})"


@lru_cache(maxsize=8)
def _waiting_wrappers(root: Path) -> dict[str, str]:
    """Return the functions of ``ptx/`` that wait for other threads, and their return types."""
    functions: list[tuple[str, str, str]] = []
    for path in sorted((root / "ptx").glob("*.cuh")):
        functions += _functions(_without_comments(path.read_text()))
    waiting: dict[str, str] = {}
    while True:  # until no more are found: a wrapper of a waiting wrapper waits, too
        inner = re.compile(rf"\b(?:{'|'.join(waiting) or '(?!)'})\b\s*(?:<[^;()]*>\s*)?\(")
        more = {
            name: returns
            for name, returns, body in functions
            if name not in waiting and (_WAITS.search(body) or inner.search(body))
        }
        if not more:
            return waiting
        waiting.update(more)


def _functions(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the functions of a text without comments: names, return types and bodies."""
    for match in _FUNCTION.finditer(text):
        if match[1] not in {"else", "return"} and match[2] not in {"if", "for", "while"}:
            yield match[2], match[1], text[match.end() : _closing(text, match.end() - 1)]


def _structs(text: str) -> Iterator[tuple[str, str]]:
    """Yield the structs and classes of a text without comments: names and bodies."""
    for match in _STRUCT.finditer(text):
        yield match[1], text[match.end() : _closing(text, match.end() - 1)]


def _uncalled(text: str, texts: Iterable[str]) -> list[range]:
    """Return where in a text the functions stand that none of some texts calls."""
    definitions = [name for other in texts for name, _, _ in _functions(other)]
    spans = []
    for name, _, body in _functions(text):
        named = re.compile(rf"\b{name}\b\s*(?:<[^;(){{}}]*>\s*)?\(")
        if sum(len(named.findall(other)) for other in texts) <= definitions.count(name):
            start = text.index(body)
            spans.append(range(start, start + len(body)))
    return spans


def _files_of(kernel: str, root: Path) -> list[str]:
    """Return a kernel's source and all headers it includes, without those in ``ptx/``."""
    files: list[str] = []
    left = [f"{kernel}.cu"]
    while left:
        file = left.pop(0)
        if file in files or file.startswith("ptx/"):
            continue
        files.append(file)
        for name in _INCLUDE.findall((root / file).read_text()):
            beside = (Path(file).parent / name).as_posix()
            left.append(name if (root / name).is_file() else beside)
    return files


def _without_comments(text: str) -> str:
    """Return a source with its comments replaced by blanks, so that positions do not change."""
    return _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def _closing(text: str, start: int) -> int:
    """Return the position after the bracket that closes the one at ``start``."""
    opening = text[start]
    closing = {"(": ")", "{": "}"}[opening]
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == opening) - (text[at] == closing)
        if depth == 0:
            return at + 1
    raise ValueError(f"'{opening}' at {start} is never closed")
