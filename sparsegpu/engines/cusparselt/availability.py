"""Whether the vendor's library can be used here, and what to install where it cannot."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import Any

from ... import _install

#: The oldest library whose calls are those made here (0.8.0 added what destroys a selection).
OLDEST = (0, 8, 0)

_INSTALL = (
    f"{_install.with_extra('cusparselt')} (for CUDA 12: [cusparselt12]), or use backend='native'"
)
_MODULE = "nvmath.bindings.cusparseLt"
_loaded: dict[str, Any] = {}


def why_not(function: str) -> ImportError | None:
    """Return the error that says what is missing (caller raises it), None where nothing is."""
    if _loaded:
        return None
    if importlib.util.find_spec("nvmath") is None:
        return ImportError(
            f"{function}: backend 'cusparselt' needs nvmath-python, which is not installed; "
            f"{_INSTALL}"
        )
    try:
        bindings = importlib.import_module(_MODULE)
    except ImportError as error:
        return ImportError(
            f"{function}: this nvmath-python has no usable cuSPARSELt bindings ({error}); "
            f"nvmath-python>=1.0 has: {_INSTALL}"
        )
    try:
        version = library_version(bindings)
    except RuntimeError as error:  # the bindings' own errors: no driver, no library, no function
        return ImportError(f"{function}: cuSPARSELt could not be loaded ({error}); {_INSTALL}")
    if version < OLDEST:
        found, needed = (".".join(map(str, v)) for v in (version, OLDEST))
        return ImportError(
            f"{function}: cuSPARSELt {found} is too old, {needed} or later is needed; {_INSTALL}"
        )
    _loaded.update(bindings=bindings, version=version)
    return None


def bindings(function: str) -> ModuleType:
    """Return ``nvmath.bindings.cusparseLt``.

    Raises
    ------
    ImportError
        Where the bindings or the library are missing or too old, saying what to install.
    """
    error = why_not(function)
    if error is not None:
        raise error
    return _loaded["bindings"]


def version() -> str:
    """Return the version of the library in use: each numbers its algorithms differently."""
    return ".".join(map(str, _loaded["version"]))


def library_version(bindings: ModuleType) -> tuple[int, int, int]:
    """Return major, minor and patch level (``libraryPropertyType`` 0, 1 and 2)."""
    major, minor, patch = (bindings.get_property(part) for part in range(3))
    return major, minor, patch
