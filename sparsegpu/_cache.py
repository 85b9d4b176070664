"""The per-user cache: small immutable files, safe under concurrent processes.

An entry is written to a temporary file and renamed, so that a reader sees all of it or nothing.
Its first bytes are a digest of the rest: a damaged entry counts as absent, and so does, with a
warning, one that its reader cannot make sense of. A cache that cannot be written is no error: code
is compiled again.

The content of the cache is run: kernels, loops, pickles. So a directory that users other than its
owner and root can write to is neither read nor written; code is compiled again then, too.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from stat import S_ISDIR
from typing import TypeVar

_Entry = TypeVar("_Entry")
#: What was warned of in this process: of each kind of trouble once.
_warned: set[str] = set()
_ANEW = "code is compiled anew in every process"


def cache_directory() -> Path:
    """Return where the cache lives (which need not exist yet).

    ``SPARSEGPU_CACHE_DIR`` if set, else ``sparsegpu`` under ``XDG_CACHE_HOME`` or the platform's
    own cache directory.

    Raises
    ------
    OSError
        A user without a home directory.
    """
    chosen = os.environ.get("SPARSEGPU_CACHE_DIR")
    try:
        return Path(chosen).expanduser() if chosen else _platforms_own()
    except RuntimeError as error:
        where = f"SPARSEGPU_CACHE_DIR={chosen}" if chosen else "SPARSEGPU_CACHE_DIR is not set"
        raise OSError(f"{where}: {error}") from error


def _platforms_own() -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
        return Path(base) / "sparsegpu" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "sparsegpu"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification tells us to ignore relative paths.
    base_dir = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base_dir / "sparsegpu"


def why_not_used(directory: Path, *inside: Path) -> str | None:
    """Say why a cache directory is not to be trusted, and what to do; None where it is.

    One that does not exist is: it will be made, for this user alone. ``inside`` are folders in it,
    from the outermost on, to be trusted, too.
    """
    if not hasattr(os, "geteuid"):  # no POSIX permissions
        return None
    for folder in (directory, *inside):
        try:
            found = folder.stat()
        except OSError:
            return None
        if not S_ISDIR(found.st_mode):
            return None  # reading and writing will fail
        if found.st_uid not in {os.geteuid(), 0}:
            return f"{folder} belongs to another user (number {found.st_uid}); own it"
        if found.st_mode & 0o022:
            mode = f"mode {found.st_mode & 0o777:o}"
            return f"other users can write to {folder} ({mode}); chmod go-w it"
        if not found.st_mode & 0o011:
            return None  # nobody else gets further
    return None


def _is_used(directory: Path, *inside: Path) -> bool:
    why = why_not_used(directory, *inside)
    if why is not None:
        _warn_once(
            "directory",
            f"the cache is not used: {why}, or set SPARSEGPU_CACHE_DIR to another; {_ANEW}",
        )
    return why is None


def _warn_once(what: str, message: str) -> None:
    if what not in _warned:
        _warned.add(what)
        warnings.warn(f"sparsegpu: {message}", RuntimeWarning, stacklevel=4)


def _path(directory: Path, kind: str, key: str) -> Path:
    return directory / kind / key[:2] / key


def _folders(path: Path) -> tuple[Path, Path, Path]:
    """Return the folders of an entry, from the cache's directory on."""
    return path.parents[2], path.parents[1], path.parents[0]


def read_entry(
    kind: str, key: str, decode: Callable[[bytes], _Entry], directory: Path | None = None
) -> _Entry | None:
    """Return a kept entry; None when it is absent, unreadable, damaged or something else.

    Parameters
    ----------
    kind, key : str
    decode : callable
        Makes of the bytes what is returned. An exception means that they are something else: the
        entry counts as absent, and the first one of a process warns.
    directory : Path, optional
        Replaces `cache_directory`.
    """
    try:
        path = _path(directory or cache_directory(), kind, key)
        if not _is_used(*_folders(path)):
            return None
        content = path.read_bytes()
    except OSError:
        return None
    digest, payload = content[:32], content[32:]
    if sha256(payload).digest() != digest:
        return None
    try:
        return decode(payload)
    except Exception as error:  # what a parser raises at what it was not made for
        _warn_once("entry", f"ignored the cache entry {path} ({error!r}); remove it")
        return None


def read_entries(kind: str, decode: Callable[[bytes], _Entry]) -> Iterator[_Entry]:
    """Yield all kept entries of a kind, in the order of their keys, as `read_entry` gives them."""
    try:
        directory = cache_directory()
        keys = sorted(p.name for p in (directory / kind).glob("*/*") if p.suffix != ".tmp")
    except OSError:
        return
    for key in keys:
        entry = read_entry(kind, key, decode, directory)
        if entry is not None:
            yield entry


def remove_entries(kind: str) -> int:
    """Remove all kept entries of a kind and return how many there were.

    Raises
    ------
    OSError
        A cache that cannot be written, or that is not used because others can write to it.
    """
    removed = 0
    try:
        directory = cache_directory()
        kinds = directory / kind
        why = next(filter(None, (why_not_used(directory, kinds, d) for d in kinds.glob("*"))), None)
        if why is not None:  # what is called an entry may be a link to anything
            raise OSError(why)
        for path in (directory / kind).glob("*/*"):
            path.unlink(missing_ok=True)
            removed += path.suffix != ".tmp"
    except OSError as error:
        raise OSError(f"sparsegpu: cannot remove from the cache: {error}") from error
    return removed


def write_entry(kind: str, key: str, payload: bytes, directory: Path | None = None) -> bool:
    """Keep an entry; return whether it could be kept (the first failure warns)."""
    temporary = None
    try:
        path = _path(directory or cache_directory(), kind, key)
        if not _is_used(*_folders(path)):  # nothing is made in such a place
            return False
        for folder in _folders(path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_used(*_folders(path)):  # others may have been faster
            return False
        temporary = path.parent / f".{os.urandom(8).hex()}.tmp"
        with open(temporary, "xb", opener=_private) as file:
            file.write(sha256(payload).digest())
            file.write(payload)
        os.replace(temporary, path)
        temporary = None
        return True
    except OSError as error:
        _warn_once(
            "writing",
            f"cannot write the cache ({error}); {_ANEW}; "
            "set SPARSEGPU_CACHE_DIR to a writable directory",
        )
        return False
    finally:  # of an interrupt, too
        if temporary is not None:
            _remove(temporary)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _remove(path: Path) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
