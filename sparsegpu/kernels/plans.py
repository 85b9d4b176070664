"""What is kept of a call, so that one like it is not planned again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from .._ptx.access import Access
from .config import Config, Out
from .memory import address, array_type, is_array
from .prepared import Prepared
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
    repeats : bool
        Whether it is of an earlier call.
    """

    bound: dict[Any, Any]
    maps: dict[Any, TensorMap]
    config: Config
    access: Access
    launch: Sizes
    repeats: bool = False


class Latest:
    """What launched the two latest calls, so that one like them needs no key.

    Attributes
    ----------
    prepared : Prepared or None
        None where these calls differ: to ask in vain would cost calls that take turns.
    """

    __slots__ = ("_before", "prepared")

    def __init__(self) -> None:
        self.prepared: Prepared | None = None
        self._before: Prepared | None = None

    def came(self, prepared: Prepared) -> None:
        """Note what a call was launched by that was found by its key."""
        self.prepared = prepared if prepared is self._before else None
        self._before = prepared


class Plans:
    """The plans of a kernel, by what they depend on; threads may share it."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Plan] = {}
        #: What launches a call like an earlier one, by the same keys.
        self.prepared: dict[Hashable, Prepared] = {}
        #: Of the two forms, for calls without grid, block and configuration.
        self.latest_inplace = Latest()
        self.latest_functional = Latest()

    def plan(self, key: Hashable, args: tuple, make: Callable[[], Plan]) -> Plan:
        """Return the plan of a call; `key` is None where it is not to be kept."""
        kept = None if key is None else self._kept.get(key)
        if kept is not None:
            given = list(zip(kept.bound.items(), args, strict=True))
            return kept._replace(
                bound={n: array_of(a) if k is _ARRAY else k for (n, k), a in given},
                maps={n: a for (n, _), a in given if isinstance(a, TensorMap)},
                repeats=True,
            )
        made = make()
        if key is not None:
            if len(self._kept) >= CAPACITY:
                self._kept.clear()
                self.prepared.clear()
            bound = {n: _ARRAY if is_array(v) else v for n, v in made.bound.items()}
            self._kept[key] = made._replace(bound=bound, maps={})
        return made


def key_of(args: Iterable[Any]) -> tuple[Hashable, ...] | None:
    """Return what a plan depends on; None of arguments that cannot be told from others."""
    key: list[Any] = []
    device_array = array_type()
    for value in args:
        kind = type(value)
        key.append(kind)
        if kind is device_array:
            key += value.dtype, value.shape, value.strides, value.data.device_id
        elif kind is float:
            key.append(value or value.hex())  # which tells -0.0 from 0.0
        elif kind in _PLAIN:
            key.append(value)
        elif kind is TensorMap:
            array = value.array
            key += value.fact, address(array), array.dtype, array.shape, array.strides
        elif isinstance(value, np.ndarray):
            key += value.dtype, value.shape, value.strides, value.flags.writeable
        elif is_array(value):
            key += value.dtype, value.shape, value.strides, value.data.device_id
        elif kind is Out:
            try:
                key.append(hash(value))
            except TypeError:  # its shape may be a list
                return None
            key += value.like, value.shape, value.dtype, _number(value.fill)
        elif (number := _number(value)) is not _ARRAY:
            key.append(number)
        else:
            return None
    return tuple(key)


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
