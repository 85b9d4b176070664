"""What ``help`` shows of a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _NumPy:
    def __repr__(self) -> str:
        return "numpy"


def numpy_by_default(function: _Function) -> _Function:
    """Let ``help`` say ``xp=numpy``: of a module it would print the path."""
    signature = inspect.signature(function)
    parameters = signature.parameters | {"xp": signature.parameters["xp"].replace(default=_NumPy())}
    shown = signature.replace(parameters=list(parameters.values()))
    function.__signature__ = shown  # type: ignore[attr-defined]
    return function
