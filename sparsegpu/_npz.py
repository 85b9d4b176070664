"""``.npz`` files: written whole or not at all, read without pickled objects."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

from ._checks import bad_value


def write_npz(file: Any, parts: dict[str, Any], *, compressed: bool) -> None:
    """Write arrays to a file object, or to a path: by renaming a temporary file beside it.

    ``.npz`` is appended to a path without it, as NumPy does.
    """
    write = np.savez_compressed if compressed else np.savez
    if hasattr(file, "write"):
        write(file, **parts)
        return
    path = os.fspath(file)
    path = path if path.endswith(".npz") else f"{path}.npz"
    with tempfile.NamedTemporaryFile(
        dir=os.path.dirname(path) or ".", prefix=".sparsegpu-", suffix=".npz", delete=False
    ) as whole:
        try:
            write(whole, **parts)
            whole.close()
            os.chmod(whole.name, 0o666 & ~_umask())
            os.replace(whole.name, path)
        except BaseException:
            os.unlink(whole.name)
            raise


def _umask() -> int:
    """Return the process's mask of file permissions (it can only be read by setting it)."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def read_npz(file: Any, format: str, reader: str) -> dict[str, Any]:
    """Return the arrays of a file whose key ``format`` says ``format``.

    Raises
    ------
    ValueError
        When the file holds something else; the message names the method ``reader``.
    """
    with np.load(file, allow_pickle=False) as stored:
        if "format" not in stored or str(stored["format"][()]) != format:
            raise bad_value(reader, "file", f"a saved {reader.partition('.')[0]}", str(file))
        return dict(stored)
