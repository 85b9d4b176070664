"""What is kept of a call, so that one like it is not planned again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from .._ptx.access import Access
from ..engines.cuda.runtime.replay import Call
from .config import Config, Out
from .memory import is_array
from .tensor_map import TensorMap, array_of

#: Plans of a kernel. When there would be more, all are dropped.
CAPACITY = 256

#: Stands for an array: plans keep no memory alive.
_ARRAY = object()
_PLAIN = (int, bool, bytes, type(None))


class Sizes(NamedTuple):
    """What a kernel is launched with besides its arguments; no ``cluster`` where it has its own."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_memory: int
    cluster: tuple[int, ...] | None


class Plan(NamedTuple):
    """What follows from the metadata of arrays and from all other arguments.

    Attributes
    ----------
    bound : dict
        The arguments by name, numbers in the types of the parameters.
    config : Config
        With what heuristics add.
    maps : dict
        Those of them that are tensor maps, of which ``bound`` has the arrays.
    access : Access
    launch : Sizes
    """

    bound: dict[Any, Any]
    maps: dict[Any, TensorMap]
    config: Config
    access: Access
    launch: Sizes


class Plans:
    """The plans of a kernel, by what they depend on; threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Plan] = {}

    def plan(self, key: Hashable, args: tuple, make: Callable[[], Plan]) -> Plan:
        """Return the plan of a call; `key` is None where it is not to be kept."""
        kept = None if key is None else self._kept.get(key)
        if kept is not None:
            given = list(zip(kept.bound.items(), args, strict=True))
            return kept._replace(
                bound={n: array_of(a) if k is _ARRAY else k for (n, k), a in given},
                maps={n: a for (n, _), a in given if isinstance(a, TensorMap)},
            )
        made = make()
        if key is not None:
            if len(self._kept) >= CAPACITY:
                self._kept.clear()
            bound = {n: _ARRAY if is_array(v) else v for n, v in made.bound.items()}
            self._kept[key] = made._replace(bound=bound, maps={})
        return made


def key_of(args: Iterable[Any]) -> tuple[Hashable, ...] | None:
    """Return what a plan depends on; None of arguments that cannot be told from others."""
    key: list[Any] = []
    for value in args:
        kind = type(value)
        if kind is TensorMap:
            key.append(value.fact)
            value = value.array
        if isinstance(value, np.ndarray):
            key += value.dtype, value.shape, value.strides, value.flags.writeable
        elif is_array(value):
            key += value.dtype, value.shape, value.strides, value.data.device_id
        elif kind is Out:
            key += value.like, value.shape, value.dtype, _number(value.fill)
        elif (number := _number(value)) is not _ARRAY:
            key.append(number)
        else:
            return None
        key.append(kind)
    try:
        hash(found := tuple(key))
    except TypeError:  # as the shape of an Out may be a list
        return None
    return found


def repeated(kernel: Any, args: tuple, generation: int) -> Call | None:
    """Return the record of a call on the same memory, None where nothing can be recorded."""
    arrays = tuple(a for a in map(array_of, args) if is_array(a))
    settings = tuple(_setting(value) for value in args)
    if not arrays or isinstance(arrays[0], np.ndarray) or _ARRAY in settings:
        return None
    return Call(kernel, None, arrays, (*settings, *map(type, args), generation))


def _setting(value: Any) -> Any:
    if isinstance(value, TensorMap):
        return value.fact
    return "array" if is_array(value) else _number(value)


def _number(value: Any) -> Any:
    """Return a number that tells -0.0 from 0.0; `_ARRAY` for what is none."""
    kind = type(value)
    if kind is float:
        return value.hex()
    if kind in _PLAIN:
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return _number(value.item())
    return _ARRAY
