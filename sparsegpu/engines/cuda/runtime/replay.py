"""Replay: a call that repeats an earlier one submits the same work, without planning.

Checks, plans and launches depend on metadata alone: pointers, shapes, strides, dtypes, scalars,
configurations, the device and the stream. A call whose metadata equals that of an earlier one does
the same work on whatever values the memory holds by then. So what a call submits is recorded under
its metadata, and an equal call costs a look-up and the launches.

A call is recorded if two sides declare it complete: the engine functions, that their works are all
that they did (``whole`` of `launch.submit`), and the operation, that it did nothing else on the
device (`Call.keep`). Records of a sparse operand are kept with it, one set for each stream, because
they may use its workspace. Those of other operations are kept by device, and use no memory but
operands and results. A CUDA graph has a workspace and results of its own: a captured call is
replayed where it needs neither, and planned again else.

A call that waits for numbers of its kernel is replayed by one thread at a time. It is planned again
where they say that something is wrong, so that the error is the one that it always was.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from ...._arrays import OPERAND_DTYPES, float8_e4m3fn, is_captured
from ... import chosen_engine
from .. import winners
from . import capture
from .launch import Work, enqueue
from .submission import current
from .workspace import found_on

#: Calls that are kept in one place, and records of a call by the memory of its results. When there
#: would be more, all are dropped.
CAPACITY = 64

_DTYPES = (*OPERAND_DTYPES, float8_e4m3fn, *map(np.dtype, (np.uint8, np.int32, np.int64)))
#: Types of settings that are immutable: numbers (NumPy's too), names, dtypes. A call with others
#: (an array of no dimensions) is not recorded.
_PLAIN = frozenset(
    {type(None), str, type, int, float, complex, bool}
    | {kind for dtype in _DTYPES for kind in (dtype.type, type(dtype))}
)

#: Calls without a sparse operand, by device. Their works suit every stream.
_without_owner: dict[int, dict[Hashable, Recorded]] = {}


class Recorded(NamedTuple):
    """What is kept of a call.

    Attributes
    ----------
    results : tuple of (shape, dtype)
        Of the new arrays that hold the results; empty with ``out``.
    works : dict
        By the pointers of these arrays: the works, whether they use the operand's workspace, and
        what they read besides, to keep it alive.
    """

    results: tuple[tuple[tuple[int, ...], np.dtype], ...]
    works: dict[tuple[int, ...], tuple[tuple[Work, ...], bool, Any]]


class Call:
    """One call of an operation: its key, and the recorder of what it submits.

    On the host, and where the metadata is not the whole story, there is no key: nothing is replayed
    or kept.

    Parameters
    ----------
    operation : str
    owner : object or None
        What keeps the records of a sparse operand, with ``device`` and ``kept``: its pattern, or
        what holds its halves.
    arrays : tuple of arrays or None
        All that is read or written, but for what the owner never changes and for new results.
    settings : tuple
        Whatever else the call depends on. Values that no key can hold switch recording off.
    out : array, optional
        The caller's array for the result, one of ``arrays``.
    waits : bool, optional
        The call waits for numbers that its kernel writes, `_host_numbers.HostNumbers`, the first of
        its works. All are zero in a call that is kept; a replay that finds others is no replay.
    """

    __slots__ = ("_calls", "_cupy", "_key", "_out", "_owner", "_stream", "_waits", "_works")

    def __init__(
        self,
        operation: str,
        owner: Any,
        arrays: tuple,
        settings: tuple = (),
        out: Any = None,
        *,
        waits: bool = False,
    ):
        self._key: Hashable = None
        self._works: tuple[Work, ...] | None = ()  # None: they are not all that there was
        self._out, self._owner, self._waits = out, owner, waits
        cupy: Any = sys.modules.get("cupy")
        self._cupy = cupy
        if cupy is None or (owner is not None and owner.device is None):
            return
        facts: list[Hashable] = []
        kind = cupy.ndarray
        for array in arrays:
            if type(array) is kind:
                # In C order the shape tells the strides, and CuPy's flag costs less to read.
                layout = array._c_contiguous or array.strides
                facts += array.data.ptr, array.shape, layout, array.dtype
            elif array is None:
                facts.append(None)
            else:
                return
        kinds = tuple(map(type, settings))
        if not _PLAIN.issuperset(kinds):
            return
        device = arrays[0].data.device_id if owner is None else owner.device
        if cupy.cuda.runtime.getDevice() != device:
            return
        self._stream = cupy.cuda.get_current_stream()
        if owner is None:
            self._calls = _without_owner.setdefault(device, {})
        # After `tune` the same call may choose another configuration.
        self._key = operation, *facts, *settings, kinds, waits, chosen_engine(), winners.generation

    def __call__(self, works: tuple[Work, ...], whole: bool, setup: bool) -> None:
        """Record a submission of this call, or that something else was submitted meanwhile."""
        if setup:
            return
        submission = current()
        ours = submission is not None and submission.recorder is self
        if self._works is not None:
            self._works = (*self._works, *works) if whole and ours else None

    def replay(self) -> list[Any] | None:
        """Submit what an equal call submitted.

        Returns
        -------
        list of arrays, or None
            ``out``, or new results as they were given to `keep`; None where nothing was recorded.
        """
        if self._key is None:
            return None
        workspace: Any = None
        calls: dict[Hashable, Recorded] = {}
        if self._owner is None:
            calls = self._calls
        else:
            workspace = found_on(self._owner.kept, self._stream)
            if workspace is not None:
                calls = workspace.calls
        known, stream = calls.get(self._key), self._stream.ptr
        if known is None or is_captured(stream):
            return self._replay_captured(stream)
        kinds, records = known
        results = [] if kinds else [self._out]
        pointers: tuple[int, ...] = ()
        ndarray = self._cupy.ndarray  # what `cupy.empty` calls
        for shape, dtype in kinds:  # quicker than a comprehension, which is a call in Python 3.11
            result = ndarray(shape, dtype)
            results.append(result)
            pointers = (*pointers, result.data.ptr)
        found, outer = records.get(pointers), current()
        if found is None:
            return None
        works, exclusive, _ = found
        # Within another call, as in a user's finalizer that runs there, the workspace is that
        # call's, and so would be what is recorded.
        if outer is not None and (exclusive or outer.recorder is not None):
            return None
        if self._waits and records.pop(pointers, None) is not found:
            return None  # another thread waits for these numbers
        if not exclusive:
            enqueue(works, stream, True)
        elif not workspace.enqueue(calls, works, stream):
            return None
        if self._waits:
            numbers: Any = works[0]
            told = numbers.wait()
            records[pointers] = found
            if any(told):
                return None
        return results

    def _replay_captured(self, stream: int) -> list[Any] | None:
        """Do what `replay` does while a CUDA graph is captured: what an equal call did anywhere."""
        outer = current()
        if self._out is None or self._waits or not is_captured(stream):
            return None
        if outer is not None and outer.recorder is not None:
            return None
        owner = self._owner
        places = [self._calls] if owner is None else [w.calls for w in list(owner.kept.values())]
        for known in filter(None, [calls.get(self._key) for calls in places]):
            works, exclusive, reads = known.works.get((), ((), True, None))
            if not exclusive:
                graph = capture.capture_on(stream)
                graph.keep(owner)
                graph.keep(works)
                graph.keep(reads)
                enqueue(works, stream, True)
                return [self._out]
        return None

    def keep(self, *results: Any, reads: Any = None) -> None:
        """Keep what was recorded, as all that the call does on the device.

        Parameters
        ----------
        *results : C-contiguous arrays
            New ones, which hold what the call returns; with ``out`` they do not matter. It may do
            nothing to them that it did not submit.
        reads : object, optional
            What the works read besides ``arrays``, where the owner may not keep it for as long.

        Notes
        -----
        Called within the call's submission: no other call gets the workspace before.
        """
        submission = current()
        if submission is None or not self._works:
            return
        submission.keep(self._works)
        submission.keep(reads)
        if self._key is None or submission.captured:
            return
        exclusive = False
        if self._owner is not None:
            exclusive, workspace = submission.exclusive, submission.kept_on_stream()
            assert workspace is not None  # there is an operand
            calls = workspace.calls
        else:
            calls = self._calls
        if submission.borrows and not exclusive:  # memory that is not the call's afterwards
            return
        new = () if self._out is not None else results
        known = calls.get(self._key)
        if known is None:
            if len(calls) >= CAPACITY:
                calls.clear()
            kinds = tuple((result.shape, result.dtype) for result in new)
            known = calls[self._key] = Recorded(kinds, {})
        elif len(known.works) >= CAPACITY:
            known.works.clear()
        pointers = tuple(result.data.ptr for result in new)
        known.works[pointers] = self._works, exclusive, reads
