"""Every launch of a wrapped kernel held to what was found of it: `checked`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from .._checks import check_flags
from .memory import address, bytes_at, extent, is_array, library, view_in
from .tuning import are_near, on_host

#: Bytes before and behind what is copied; a copy lies as its original does, by this many bytes.
_GUARD, _ALIGNMENT = 4096, 256

#: None outside of `checked`, inside of it whether ``ref`` is compared, too.
_checking: ContextVar[bool | None] = ContextVar("sparsegpu_checked_kernels", default=None)


class AccessError(RuntimeError):
    """A kernel wrote what it was not found to write, or gave another result than its ``ref``."""


@contextmanager
def checked(*, ref: bool = False) -> Iterator[None]:
    """Run every launch of wrapped kernels in this block on guarded copies first.

    What changes there must be elements of an argument that the kernel was found to write. Of this
    thread or task only.

    Parameters
    ----------
    ref : bool
        Compare what is written with what the kernel's ``ref`` writes, where it has one.

    Raises
    ------
    AccessError
        From the call inside: the parameter, the first byte and the launch.
    NotImplementedError
        From a call that passes addresses in memory or in a struct: copies have others.

    Notes
    -----
    A launch takes several times as long, and the memory of its arguments once more. Reads are not
    seen. An error means that the analysis is wrong, or that the kernel writes out of bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from sparsegpu import kernels
    >>> source = 'extern "C" __global__ void one(float* out, const float* x) { *out = *x; }'
    >>> def wrong(out, x):
    ...     x[0] = out[0]
    >>> one = kernels.wrap(source, "one", grid=1, block=1, writes=["out"], reads=["x"], ref=wrong)
    >>> with kernels.checked():
    ...     one(np.zeros(1, np.float32), np.ones(1, np.float32))
    Traceback (most recent call last):
        ...
    sparsegpu.kernels.guard.AccessError: one, grid (1,), block (1,): byte 2 of 'x' changes, but \
only out is found to be written
    """
    check_flags("checked", ref=ref)
    token = _checking.set(ref)
    try:
        yield
    finally:
        _checking.reset(token)


#: Returns None outside of `checked`, inside of it whether ``ref`` is compared, too.
checking: Callable[[], bool | None] = _checking.get


def compares_with_ref() -> bool:
    """Return whether results are to be compared with ``ref``'s."""
    return bool(_checking.get())


class _Group(NamedTuple):
    """Arrays that share memory, their bytes before, and a guarded copy of these."""

    low: int
    arrays: dict[Any, Any]
    before: np.ndarray
    memory: Any
    start: int  # of the copy's first byte in ``memory``


def check(
    launch: str,
    arguments: Mapping[Any, Any],
    written: Collection[Any],
    run: Callable[[Mapping[Any, Any]], Any],
    expected: Sequence[np.ndarray] | None,
) -> None:
    """Run a launch on copies and look at every byte of them.

    Parameters
    ----------
    launch : str
        How an error names it.
    arguments : mapping
        Of the launch, by name.
    written : collection of names
        What may change.
    run : callable
        Launches the kernel with other arguments.
    expected : sequence of numpy.ndarray, optional
        What the written ones hold afterwards.
    """
    groups = list(_groups({n: a for n, a in arguments.items() if is_array(a) and a.size}))
    copies = {n: view_in(g.memory, g.start, a, g.low) for g in groups for n, a in g.arrays.items()}
    run({**arguments, **copies})
    for group in groups:
        _compare(launch, group, written)
    for name, want in zip([n for n in arguments if n in written], expected or ()):
        if name in copies and not are_near(on_host(copies[name]), want):
            raise AccessError(f"{launch}: '{name}' is not what ref writes")


def _groups(arrays: Mapping[Any, Any]) -> Iterator[_Group]:
    together: dict[Any, Any] = {}
    low = high = 0
    for name, array in sorted(arrays.items(), key=lambda item: extent(item[1])):
        first, end = extent(array)
        if together and first >= high:
            yield _group(low, high, together)
            together = {}
        low, high = (min(low, first), max(high, end)) if together else (first, end)
        together[name] = array
    if together:
        yield _group(low, high, together)


def _group(low: int, high: int, arrays: dict[Any, Any]) -> _Group:
    like = next(iter(arrays.values()))
    before = bytes_at(low, high, like)
    memory = library(like).asarray(_pattern(_GUARD + _ALIGNMENT + high - low + _GUARD))
    start = _GUARD + (low - extent(memory)[0] - _GUARD) % _ALIGNMENT
    memory[start : start + high - low] = before
    return _Group(low, arrays, on_host(before), memory, start)


def _pattern(size: int) -> np.ndarray:
    return (np.arange(size) * 37 % 251 + 1).astype(np.uint8)  # never 0, which kernels often write


def _compare(launch: str, group: _Group, written: Collection[Any]) -> None:
    """Raise AccessError where a byte has changed that must not."""
    expected = _pattern(group.memory.size)
    size, names = group.before.size, sorted(map(str, written))
    inside = slice(group.start, group.start + size)
    expected[inside] = group.before
    owners = {name: _elements(group, array) for name, array in group.arrays.items()}
    changed = on_host(group.memory) != expected
    for name in owners.keys() & set(written):
        changed[inside][owners[name]] = False
    if not changed.any():
        return
    byte = int(np.argmax(changed)) - group.start
    if 0 <= byte < size:
        for name, elements in owners.items():
            if elements[byte]:
                at = byte - (extent(group.arrays[name])[0] - group.low)
                found = ", ".join(names) or "nothing"
                raise AccessError(
                    f"{launch}: byte {at} of '{name}' changes, but only {found} is found to be "
                    "written"
                )
    ends = {name: extent(array) for name, array in group.arrays.items()}
    name = min(ends, key=lambda n: ends[n][0]) if byte < 0 else max(ends, key=lambda n: ends[n][1])
    at = byte - (ends[name][0] - group.low)
    raise AccessError(f"{launch}: byte {at} of '{name}' changes, which is none of its elements")


def _elements(group: _Group, array: Any) -> np.ndarray:
    """Return which of a group's bytes are elements of an array."""
    mask = np.zeros(group.before.size, np.uint8)
    itemsize = array.dtype.itemsize
    place = address(array) - group.low
    view = np.ndarray(array.shape, f"V{itemsize}", mask, place, array.strides)
    view[...] = np.void(b"\xff" * itemsize)
    return mask != 0
