"""The per-user cache: small immutable files, safe under concurrent processes.

An entry is written to a temporary file and renamed, so that a reader sees all of it or nothing.
Its first bytes are a digest of the rest: a damaged entry counts as absent. A cache that cannot
be written is no error: code is compiled again.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

_warned = False


def cache_directory() -> Path:
    """Return where the cache lives (which need not exist yet).

    ``SPARSEGPU_CACHE_DIR`` if set, else ``sparsegpu`` under ``XDG_CACHE_HOME`` or the platform's
    own cache directory.
    """
    chosen = os.environ.get("SPARSEGPU_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
        return Path(base) / "sparsegpu" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "sparsegpu"
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification tells us to ignore relative paths.
    base_dir = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base_dir / "sparsegpu"


def _path(directory: Path | None, kind: str, key: str) -> Path:
    return (directory or cache_directory()) / kind / key[:2] / key


def read_entry(kind: str, key: str, directory: Path | None = None) -> bytes | None:
    """Return a kept entry; None when it is absent, unreadable or damaged.

    ``directory`` replaces `cache_directory`.
    """
    try:
        content = _path(directory, kind, key).read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: this user has no home directory
        return None
    digest, payload = content[:32], content[32:]
    return payload if sha256(payload).digest() == digest else None


def read_entries(kind: str) -> Iterator[bytes]:
    """Yield all kept entries of a kind, in the order of their keys."""
    try:
        keys = sorted(p.name for p in (cache_directory() / kind).glob("*/*") if p.suffix != ".tmp")
    except (OSError, RuntimeError):
        return
    for key in keys:
        entry = read_entry(kind, key)
        if entry is not None:
            yield entry


def remove_entries(kind: str) -> int:
    """Remove all kept entries of a kind and return how many there were."""
    removed = 0
    try:
        for path in (cache_directory() / kind).glob("*/*"):
            path.unlink(missing_ok=True)
            removed += path.suffix != ".tmp"
    except (OSError, RuntimeError) as error:
        raise OSError(f"sparsegpu: cannot remove from the cache: {error}") from error
    return removed


def write_entry(kind: str, key: str, payload: bytes, directory: Path | None = None) -> bool:
    """Keep an entry; return whether it could be kept (the first failure warns)."""
    global _warned
    temporary = None
    try:
        path = _path(directory, kind, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(sha256(payload).digest())
            file.write(payload)
        os.replace(temporary, path)
        return True
    except (OSError, RuntimeError) as error:
        if temporary is not None:
            _remove(temporary)
        if not _warned:
            _warned = True
            warnings.warn(
                f"sparsegpu: cannot write the cache ({error}); code is compiled anew in every "
                "process; set SPARSEGPU_CACHE_DIR to a writable directory",
                RuntimeWarning,
                stacklevel=2,
            )
        return False


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
