"""Calls that were made before: what they launched is launched again, and nothing is checked twice.

Everything that a product's checks and plans depend on is metadata: pointers, shapes, strides,
dtypes, scalars, configurations, the device and the stream. A call on a GPU whose metadata is that
of an earlier one does the same work, on whatever values the memory holds by now. So the engine's
launches are kept with the sparse operand, by streams, under this metadata, and a repeated call
costs a look-up. What a CUDA graph captures is made anew: it works in memory of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from .._arrays import OPERAND_DTYPES, float8_e4m3fn, is_captured
from ..engines import chosen_engine
from ..engines.cuda import winners
from ..engines.cuda.runtime.launch import Work
from ..engines.cuda.runtime.submission import current
from ..engines.cuda.runtime.workspace import StreamWorkspace, found_on
from ._product import Options

#: Calls kept with an operand for a stream, and results of a call; then all are forgotten.
CAPACITY = 64

_DTYPES = (*OPERAND_DTYPES, float8_e4m3fn, np.dtype(np.int32), np.dtype(np.int64))
#: Types of settings that never change: numbers (NumPy's too), names, dtypes. A call with others (an
#: array of no dimensions) is made anew each time.
_PLAIN = frozenset(
    {type(None), str, type, int, float, complex, bool}
    | {kind for dtype in _DTYPES for kind in (dtype.type, type(dtype))}
)


class Kept(NamedTuple):
    """What is kept of a call but for the memory of its result.

    Attributes
    ----------
    shape, dtype
        Of the result as the caller sees it.
    works : dict
        By the pointer of the result what does the call again, and whether it works in memory that
        calls share.
    """

    shape: tuple[int, ...]
    dtype: Any
    works: dict[int, tuple[tuple[Work, ...], bool]]


class Call:
    """One call of a product, looked up by its metadata.

    Parameters
    ----------
    device : int or None
        Of the sparse operand; nothing is kept on the host.
    kept : dict or None
        Where the sparse operand keeps things by streams; None: nowhere.
    operands : tuple
        What the product multiplies, but for what never changes in the operand that keeps the calls.
    input : array or None
    options : Options
    *settings
        What else the product depends on.
    """

    __slots__ = ("_cupy", "_kept", "_key", "_stream")

    def __init__(
        self,
        device: int | None,
        kept: dict[Hashable, StreamWorkspace] | None,
        operands: tuple,
        input: Any,
        options: Options,
        *settings: Any,
    ):
        self._key: Hashable = None
        self._cupy: Any = sys.modules.get("cupy")
        if device is None or kept is None or self._cupy is None:
            return
        if self._cupy.cuda.runtime.getDevice() != device:
            return
        beta, alpha, left, right, activation, out, out_dtype, allow_tf32, config = options
        facts: list[Hashable] = []
        for array in (*operands, input, left, right, out):
            if array is None:
                facts.append(None)
            elif type(array) is self._cupy.ndarray:
                facts += array.data.ptr, array.shape, array.strides, array.dtype
            else:
                return
        how = None if config is None else repr(config)
        settings += (beta, alpha, activation, out_dtype, allow_tf32, how)
        kinds = tuple(map(type, settings))
        if not _PLAIN.issuperset(kinds):
            return
        self._stream = self._cupy.cuda.get_current_stream()
        # After `tune` the same call may choose another configuration.
        self._key = *facts, *settings, kinds, chosen_engine(), winners.generation
        self._kept = kept

    def repeat(self, out: Any) -> Any:
        """Do the call again and return its result, or None where it was not made before."""
        if self._key is None:
            return None
        workspace = found_on(self._kept, self._stream)
        if workspace is None:
            return None
        calls, stream = workspace.calls, self._stream.ptr
        known = calls.get(self._key)
        if known is None or is_captured(stream):
            return None
        result = self._cupy.empty(known.shape, known.dtype) if out is None else out
        found = known.works.get(result.data.ptr)
        if found is None:
            return None
        works, exclusive = found
        if not exclusive:
            for work in works:
                work.on(stream)
            return result
        if current() is not None:  # a finalizer of a user's, in the middle of another call
            return None
        return result if workspace.enqueue(calls, works, stream) else None

    def keep(self, result: Any, works: tuple | None) -> None:
        """Keep what the engine launched for a result, if it says that this is all there was.

        Within the call's submission: what works in shared memory is kept before that is another's.
        """
        submission = current()
        if works is None or submission is None:
            return
        submission.keep(works)
        if self._key is None or submission.captured:
            return
        workspace = submission.kept_on_stream()
        if workspace is None:
            return
        known = workspace.calls.get(self._key)
        if known is None:
            if len(workspace.calls) >= CAPACITY:
                workspace.calls.clear()
            known = workspace.calls[self._key] = Kept(result.shape, result.dtype, {})
        elif len(known.works) >= CAPACITY:
            known.works.clear()
        known.works[result.data.ptr] = works, submission.exclusive
