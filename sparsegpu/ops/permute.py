"""An order of a matrix's columns in which 2:4 pruning keeps more."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

from .._arrays import common_namespace, float8_e4m3fn
from .._checks import bad_value, check_flags, check_integer
from .._progress import Progress
from ..engines import engine_module
from ..engines._permutation_search import LARGEST_KEY
from ._common import on_device
from .prune import KEEP, rows_and_importance


def permute_for_24(
    dense: Any,
    *,
    criterion: Any = "magnitude",
    keep: str = "2:4",
    window: int = 1024,
    escapes: int = 16,
    seed: int = 0,
    progress: bool = True,
) -> Any:
    """Find an order of the columns in which `prune_24` keeps more.

    2:4 pruning keeps two of each four neighbours, whether the four are all large or all small.
    With another order of the columns, and so other neighbours, it loses less. Products stay the
    same: with ``p`` the result, ``W[:, p] @ x[p] == W @ x``.

    Parameters
    ----------
    dense : array (*, k)
        As of `prune_24`. All rows get the same order. An incomplete last group (k not a
        multiple of the group) is not permuted, since `prune_24` keeps all of it.
    criterion : "magnitude" or floating array of dense's shape
        As of `prune_24`: what is kept is the sum of the absolute values, or of the importances.
        NaN and minus infinity count as the least value or zero, infinity as the largest.
    keep : {"2:4", "1:2"}
        The rule of the pruning that follows.
    window : int
        Columns are permuted within windows of so many columns, a multiple of the group. Time
        grows with ``dense.size * window``.
    escapes : int
        How often, in each window, three groups are shuffled at random when no two groups can be
        improved any more. Each costs a few percent of the search; 0 means never.
    seed : int
        For these shuffles. The same arguments give the same order, on every engine.
    progress : bool
        Say on stderr how far the search is, once it has taken two seconds.

    Returns
    -------
    int64 array (k,)
        A permutation ``p``, in the array library of ``dense``.

    Raises
    ------
    ValueError
        Another criterion or ``keep``; importances of another shape; a window that is no multiple
        of the group; negative ``escapes`` or ``seed``.
    TypeError
        Another dtype; arrays of two libraries; something else than integers, or than True or False.

    See Also
    --------
    prune_24

    Notes
    -----
    J. Pool and C. Yu, "Channel Permutations for N:M Sparsity", NeurIPS 2021: of each two groups all
    35 splits of their eight columns are tried (of groups of two: all 3), the pairs that gain most
    are split so, and so on until none gains. So no order found keeps less than the order given,
    to the resolution of the search: 2**-22 of the window's largest value, for each element.

    Use it as ``pruned = prune_24(W[:, p])``, and then ``pruned @ x[p]``. With
    ``inverse = np.argsort(p)``, ``pruned[:, inverse]`` (no longer 2:4) has the original order.
    Between two layers ``x[p]`` costs nothing: with ``x = f(V @ y + b)`` and an elementwise ``f``,
    it is ``f(V[p] @ y + b[p])``.

    CuPy arrays are searched on the GPU; the host reads a few numbers a round, and waits for them.
    Some 24 bytes are held for each element of a window.

    Examples
    --------
    Three large columns are in one group, which keeps two of them; in two groups all are kept.

    >>> import numpy as np
    >>> from sparsegpu import permute_for_24, prune_24
    >>> W = np.array([[9.0, 8, 7, 1, 1, 0, 0, 0], [9, 7, 8, 1, 0, 1, 0, 0]])
    >>> p = permute_for_24(W)
    >>> float(prune_24(W).sum()), float(prune_24(W[:, p]).sum())
    (36.0, 50.0)
    >>> x = np.arange(8.0)
    >>> bool((W[:, p] @ x[p] == W @ x).all())
    True
    >>> inverse = np.argsort(p)
    >>> bool((W[:, p][:, inverse] == W).all())
    True
    """
    function = "permute_for_24"
    dense, importance = rows_and_importance(function, dense, criterion, keep)
    check_flags(function, progress=progress)
    group = KEEP[keep]
    window, escapes, seed = (
        check_integer(function, name, value, "an integer")
        for name, value in (("window", window), ("escapes", escapes), ("seed", seed))
    )
    if window <= 0 or window % group:
        raise bad_value(function, "window", f"a positive multiple of {group}", window)
    for name, value in (("escapes", escapes), ("seed", seed)):
        if value < 0:
            raise bad_value(function, name, "a number that is not negative", value)
    xp = common_namespace(function, dense=dense, criterion=importance)
    columns = dense.shape[-1]
    with on_device(dense), Progress(function, bool(progress)) as said:
        order = xp.arange(columns, dtype=np.int64)
        whole = columns // group * group
        for start in range(0, whole if dense.size else 0, window):
            place = slice(start, min(start + window, whole))
            if importance is None:
                values = _magnitudes(dense[..., place], xp)
            else:
                values = importance[..., place].astype(np.float64)
            keys = _whole_numbers(values.reshape(-1, place.stop - start).T, xp)
            engine = engine_module(xp, "permute", function)
            said.where = f"columns {start} to {place.stop - 1} of {columns}, "
            engine.permute(order[place], keys, group, escapes, seed, said)
            order[place] += start
    return order


def _magnitudes(dense: Any, xp: ModuleType) -> Any:
    if dense.dtype == np.uint8:  # the bits of fp8 where the library has no such dtype
        every = np.arange(256, dtype=np.uint8).view(float8_e4m3fn)
        return xp.asarray(np.abs(every.astype(np.float64)))[dense]
    values = dense.astype(np.float64)
    return xp.abs(values, out=values)


def _whole_numbers(values: Any, xp: ModuleType) -> Any:
    """Return (columns, rows) as C-contiguous int32 in the same order, scaled by a power of two.

    ``values`` is written over.
    """
    finite = xp.where(xp.isfinite(values), values, 0.0)
    least, most = finite.min(), finite.max()
    del finite
    values = xp.where(xp.isnan(values), least, values)
    xp.clip(values, least, most, out=values)  # the infinities
    _, exponent = math.frexp(max(-float(least), float(most)))
    shift = LARGEST_KEY.bit_length() - exponent
    # In two steps, since 2**shift is beyond float64 where the largest is a subnormal.
    values *= math.ldexp(1.0, shift // 2)
    values *= math.ldexp(1.0, shift - shift // 2)
    xp.rint(values, out=values)
    xp.clip(values, -LARGEST_KEY, LARGEST_KEY, out=values)
    return xp.ascontiguousarray(values.astype(np.int32))
