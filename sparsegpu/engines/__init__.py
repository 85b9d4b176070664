"""The engines: each has the same modules and function names, over validated arrays.

==============  ===========  ==========================================================
engine          computes on  what it is
==============  ===========  ==========================================================
``reference``   NumPy        the definition of every operation, to be read beside its formula
``cpu``         NumPy        the same functions at useful speed (numba, SciPy); the default
                             where these are installed, else ``reference``
``cuda``        CuPy         our kernels in ``cuda_src``
==============  ===========  ==========================================================

(`engines.cusparselt` is a declared subset, reached as the 2:4 *backend* of that name.)
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import Any

from .. import _install
from .._checks import bad_type, check_choice
from .._locks import awaited_by_forks

ENGINES = {"reference": "numpy", "cpu": "numpy", "cuda": "cupy"}

#: What the engine ``cpu`` needs: the extra ``cpu``.
_CPU_NEEDS = ("numba", "scipy")

_chosen: ContextVar[str | None] = ContextVar("sparsegpu_engine", default=None)


@contextmanager
def use_engine(name: str) -> Iterator[None]:
    """Compute with the named engine inside the ``with`` block (this thread or task only).

    Parameters
    ----------
    name : {"reference", "cpu", "cuda"}

    Raises
    ------
    ValueError
        For another name.
    ImportError
        For ``cpu`` where numba or SciPy is not installed.
    TypeError
        From the operation inside, when its arrays belong to the other array library.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
    >>> with sparsegpu.use_engine("reference"):
    ...     A @ np.ones(4)
    array([1., 1., 1., 1.])
    """
    check_choice("use_engine", "name", name, tuple(ENGINES))
    if name == "cpu" and _missing():
        raise ImportError(
            f"use_engine: the engine 'cpu' needs {_missing()}; {_install.with_extra('cpu')}"
        )
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


#: Returns the engine that `use_engine` chose here, None where it chose none; every replay asks.
chosen_engine: Callable[[], str | None] = _chosen.get


def engine_module(xp: ModuleType, stem: str, function: str) -> ModuleType:
    """Return the module ``stem`` of the engine that computes on arrays of ``xp``."""
    chosen = computing_engine(xp)
    if ENGINES[chosen] != xp.__name__:
        raise bad_type(
            function, "arrays", f"{ENGINES[chosen]} arrays for the engine '{chosen}'", xp.__name__
        )
    return engine_part(chosen, stem)


def computing_engine(xp: ModuleType) -> str:
    """Return the name of the engine for arrays of ``xp``, the chosen one if there is one."""
    return _chosen.get() or _default(xp)


def host_engine() -> str:
    """Return the name of the engine for NumPy arrays, also where a GPU's was chosen."""
    chosen = _chosen.get()
    return chosen if chosen and ENGINES[chosen] == "numpy" else _default_on_host()


def _default(xp: ModuleType) -> str:
    return _default_on_host() if xp.__name__ == "numpy" else "cuda"


@cache
def _default_on_host() -> str:
    if not _missing():
        return "cpu"
    warnings.warn(
        f"sparsegpu: without {_missing()} NumPy arrays are computed by the engine 'reference', "
        f"which is slow; {_install.with_extra('cpu')}",
        RuntimeWarning,
        stacklevel=2,
    )
    return "reference"


def _missing() -> str:
    """Return what the engine ``cpu`` lacks, as words; empty where it can run."""
    return " and ".join(name for name in _CPU_NEEDS if importlib.util.find_spec(name) is None)


def checking_module(xp: ModuleType, stem: str) -> ModuleType:
    """Return the module ``stem`` of the engine that looks at arrays of ``xp`` without computing.

    Containers are made, and files are read, whatever engine was chosen for operations.
    """
    chosen = _chosen.get()
    fits = chosen is not None and ENGINES[chosen] == xp.__name__
    return engine_part(chosen if fits else _default(xp), stem)


def check_config(operation: str | None, config: Any, function: str) -> None:
    """Refuse a ``config`` that no kernel path of an operation takes, on every engine.

    An operation of None: only the type of ``config`` is checked.

    Raises
    ------
    TypeError
        What is no dict.
    ValueError
        No path or an unknown one, an unknown field, a field that is no integer.
    """
    if config is None:
        return
    if not isinstance(config, dict):
        raise bad_type(function, "config", "a dict or None", config)
    if operation is not None:
        engine_part("cuda", "paths._dispatch").check_config(operation, config, function)


_importing = awaited_by_forks(threading.RLock())


@cache
def engine_part(engine: str, stem: str) -> ModuleType:
    """Return a module of an engine; a fork waits while another thread imports it here.

    Else the module's own lock would be held in the child, for good.
    """
    with _importing:
        return importlib.import_module(f".{engine}.{stem}", __name__)
