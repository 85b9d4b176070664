"""The headers that a kernel's text includes: what they hold is part of what is compiled."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
_DIRECTORY = re.compile(r"--include-path(?:[= ]|$)|-I[= ]?")
_BEFORE = re.compile(r"(?:--pre-include|-include)(?:[= ]|$)")


def digest(text: str, options: Sequence[str]) -> str:
    """Return a hash of the headers that a text includes, by directories of options or without.

    NVRTC looks in the current directory, too. Headers of headers count, whatever ``#if`` stands
    before them, and of one name in several directories all do. Those that are found in none are the
    compiler's own, or missing. Empty without any.
    """
    directories, first = (list(_named(options, what)) for what in (_DIRECTORY, _BEFORE))
    directories.insert(0, os.curdir)
    found: dict[str, str] = {}
    waiting = [(directories, name) for name in (*first, *_INCLUDE.findall(text))]
    while waiting:
        for path in _paths(*waiting.pop()):
            if path in found:
                continue
            state = os.stat(path)
            found[path], more = _read(path, state.st_mtime_ns, state.st_size)
            nearest = [os.path.dirname(path), *directories]
            waiting += [(nearest, name) for name in more]
    return sha256(repr(sorted(found.items())).encode()).hexdigest() if found else ""


def _named(options: Sequence[str], what: re.Pattern) -> Iterator[str]:
    """Yield what an option names, in the same text or in the next one."""
    for option, following in zip(options, (*options[1:], "")):
        match = what.match(option)
        if match is not None:
            yield option[match.end() :] or following


def _paths(directories: Iterable[str], name: str) -> Iterator[str]:
    for directory in directories:
        path = os.path.normpath(os.path.join(directory, name))
        if os.path.isfile(path):
            yield path


@lru_cache(maxsize=1024)
def _read(path: str, changed: int, size: int) -> tuple[str, tuple[str, ...]]:
    """Return the hash of a file's content, and what it includes; its time and size are a key."""
    with open(path, "rb") as file:
        content = file.read()
    text = content.decode("utf-8", errors="replace")
    return sha256(content).hexdigest(), tuple(_INCLUDE.findall(text))
