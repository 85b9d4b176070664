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
    """Return a hash of the headers that a text includes from the directories of options.

    Headers of headers count, too, whatever ``#if`` stands before them. Those that are found in no
    directory are the compiler's own, or missing. Empty without any.
    """
    directories, first = (list(_named(options, what)) for what in (_DIRECTORY, _BEFORE))
    if not directories:
        return ""
    found: dict[str, str] = {}
    waiting = [(directories, name) for name in (*first, *_INCLUDE.findall(text))]
    while waiting:
        path = _path(*waiting.pop())
        if path is None or path in found:
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


def _path(directories: Iterable[str], name: str) -> str | None:
    for directory in directories:
        path = os.path.normpath(os.path.join(directory, name))
        if os.path.isfile(path):
            return path
    return None


@lru_cache(maxsize=1024)
def _read(path: str, changed: int, size: int) -> tuple[str, tuple[str, ...]]:
    """Return the hash of a file's content, and what it includes; its time and size are a key."""
    with open(path, "rb") as file:
        content = file.read()
    text = content.decode("utf-8", errors="replace")
    return sha256(content).hexdigest(), tuple(_INCLUDE.findall(text))
