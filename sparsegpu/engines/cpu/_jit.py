"""How the engine's loops are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np


def jit(**options: Any) -> Callable[[Callable], Callable]:
    """Compile a loop on its first call, without the GIL; keep the result on disk.

    The disk cache is in ``NUMBA_CACHE_DIR``, ``__pycache__`` or the user's cache directory. Where
    none can be written the function is compiled anew in each process.
    """

    def decorate(function: Callable) -> Callable:
        try:
            return numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # "no locator available": nowhere to write
            return numba.njit(nogil=True, **options)(function)

    return decorate


def frozen(array: np.ndarray) -> np.ndarray:
    """Return a read-only view: numba would compile writeable and read-only inputs apart."""
    view = array.view()
    view.flags.writeable = False
    return view
