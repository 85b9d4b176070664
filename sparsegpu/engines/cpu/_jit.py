"""How the engine's loops are compiled, and kept on disk."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.ma  # asked for in the first call, which a fork may interrupt
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps

from ..._cache import cache_directory, read_entry, write_entry
from ..._locks import awaited_by_forks


def jit(**options: Any) -> Callable[[Callable], Callable]:
    """Compile a loop on its first call, without the GIL; keep the result in the per-user cache.

    numba's own ``cache=True`` is not used. It writes beside the sources, files that pip does not
    remove, and what is left of the package then shadows the next editable install. It replaces
    index and data files one by one, so that two processes that compile a loop for two signatures
    can store the code of one under the name of the other. And it misses changes of functions in
    other files that a loop calls. (Our key is a digest of all files of the folder, and only these.)
    """

    def decorate(function: Callable) -> Callable:
        compiled = numba.njit(nogil=True, **options)(function)
        file = Path(function.__code__.co_filename)
        if file.is_file():  # in an archive new code could not be told from old
            compiled._cache = _KeptCode(function, _digest_of_sources(file.parent))
        return compiled

    return decorate


class _KeptCode(NullCache):
    """A loop's cache as numba calls it: an entry a signature, keyed by all that it depends on."""

    def __init__(self, function: Callable, sources: str):
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._sources = sources

    @property
    def cache_path(self) -> str:
        return str((_numbas_directory() or cache_directory()) / _KIND)

    def load_overload(self, sig, target_context):
        target_context.refresh()  # or functions that the code calls may be missing
        key = self._key(sig, target_context.codegen())

        def rebuilt(kept: bytes) -> Any:
            return CompileResult._rebuild(target_context, *pickle.loads(kept))

        return read_entry(_KIND, key, rebuilt, _numbas_directory())

    def save_overload(self, sig, cres):
        if not cres.library.has_dynamic_globals:  # addresses of this process
            key = self._key(sig, cres.codegen)
            write_entry(_KIND, key, dumps(cres._reduce()), _numbas_directory())

    def _key(self, sig, codegen) -> str:
        machine = codegen.magic_tuple()
        parts = self._name, self._sources, sig, machine, sys.version, numba.__version__
        return sha256(repr(parts).encode()).hexdigest()


#: Entries of this kind are compiled loops.
_KIND = "numba"


def _numbas_directory() -> Path | None:
    """Return ``NUMBA_CACHE_DIR``, if it is set and ``SPARSEGPU_CACHE_DIR`` is not."""
    chosen = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    if not chosen or os.environ.get("SPARSEGPU_CACHE_DIR"):
        return None
    return Path(chosen, "sparsegpu")


@lru_cache
def _digest_of_sources(directory: Path) -> str:
    """Return a digest of all sources of a directory: loops call functions of other files."""
    digests = [sha256(path.read_bytes()).digest() for path in sorted(directory.glob("*.py"))]
    return sha256(b"".join(digests)).hexdigest()


def frozen(array: np.ndarray) -> np.ndarray:
    """Return a read-only view: numba would compile writeable and read-only inputs apart."""
    view = array.view()
    view.flags.writeable = False
    return view


# A fork while another thread compiles would leave numba's lock held in the child, and its compiler
# in the middle of something: it waits until that is done.
awaited_by_forks(global_compiler_lock)
