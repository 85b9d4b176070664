"""Pictures of a `SemiStructuredArray`: which elements the groups of its upper left corner keep."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import namespace
from .._format_24 import FORMATS, Format, reorder_offset
from .._math import ceil_div
from ..bsr.draw import annotate, axes, caption, is_cramped, shaded, svg
from ..ops._common import on_device
from ..ops._product_24 import Half

_SQUARE = 8  # pixels of an element in the small picture


class Drawings:
    """Methods of `SemiStructuredArray` that show its groups.

    All groups keep equally many elements, so that a picture of the whole matrix would be one gray.
    """

    __slots__ = ()

    def _repr_html_(self: Any) -> str:
        """Return the line of `repr` over a strip of groups (for notebooks)."""
        from html import escape  # what only pictures need

        line = f"<div><code>{escape(repr(self))}</code>"
        kept, group, by_rows = self._corner(8, 64)
        if not kept.size:
            return f"{line}</div>"
        pixels = kept.shape[0] * _SQUARE, kept.shape[1] * _SQUARE
        starts = (range(0), range(group, kept.shape[1], group))
        if not by_rows:
            starts = (range(group, kept.shape[0], group), range(0))
        picture = svg(kept, pixels, "kept elements", starts)
        return f"{line}<br>{picture}{caption(self._shown(kept))}</div>"

    def spy(self: Any, ax: Any = None) -> Any:
        """Plot which elements the first groups of the first rows keep, with matplotlib.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure's by default.

        Returns
        -------
        matplotlib Axes
            In units of elements; lines divide the groups.

        Raises
        ------
        TypeError
            An ``ax`` that is no Axes.
        ImportError
            When matplotlib is not installed.

        Examples
        --------
        >>> import numpy as np
        >>> from sparsegpu import prune_24, to_semi_structured
        >>> A = to_semi_structured(prune_24(np.ones((32, 64), np.float16)))
        >>> ax = A.spy()  # doctest: +SKIP
        """
        ax = axes("SemiStructuredArray.spy", ax)
        kept, group, by_rows = self._corner(32, 64)
        tall, wide = kept.shape
        right, bottom = max(wide, 1) - 0.5, max(tall, 1) - 0.5
        if kept.size:
            shaded(ax, kept, aspect="equal", extent=(-0.5, right, bottom, -0.5))
        style = {"color": "#888", "linewidth": 0.8}
        if by_rows:
            ax.vlines(np.arange(group, wide, group) - 0.5, -0.5, bottom, **style)
        else:
            ax.hlines(np.arange(group, tall, group) - 0.5, -0.5, right, **style)
        ax.set_xlim(-0.5, right)
        ax.set_ylim(bottom, -0.5)
        annotate(ax, self._shown(kept), ("column", "row"), small=is_cramped(ax))
        return ax

    def _shown(self: Any, kept: np.ndarray) -> str:
        """Say which part of the matrix a picture shows."""
        (m, k), (tall, wide) = self.shape, kept.shape
        return f"kept in rows 0..{tall - 1} of {m}, columns 0..{wide - 1} of {k}"

    def _corner(self: Any, rows: int, columns: int) -> tuple[np.ndarray, int, bool]:
        """Return what is kept of the first rows, elements in a group, and whether those are rows'.

        Nothing is built for it: where only the half of the transpose is held, groups run down.
        """
        side = int(self._transposed)
        half, by_rows = self._halves.stored(side), True
        if half is None:
            half, by_rows, rows, columns = self._halves.any(), False, columns, rows
        form = FORMATS[half.packed.dtype]
        kept = _kept(half, form, rows, columns)
        kept = (kept if by_rows else kept.T)[: self.shape[0], : self.shape[1]]
        return kept, form.group, by_rows


def _kept(half: Half, form: Format, rows: int, columns: int) -> np.ndarray:
    """Return 1.0 where the first groups of the first rows keep an element; only they are read."""
    stored, width = half.meta.shape
    rows, words = min(rows, stored), min(ceil_div(columns, form.group * form.codes), width)
    xp = namespace(half.meta)
    with on_device(half.meta):
        place = xp.arange(rows)[:, None], xp.arange(words)[None, :]
        meta = half.meta.reshape(-1)[reorder_offset(*place, stored, form.meta_dtype)]
    meta = meta if xp is np else meta.get()
    codes = meta[..., None].astype(np.int64) >> 4 * np.arange(form.codes) & 15
    codes = codes.reshape(rows, words * form.codes, 1)
    # The code of a pair speaks of four 16-bit halves.
    halves = 4 // form.group
    element = np.arange(form.group)
    kept = ((codes & 3) // halves == element) | ((codes >> 2) // halves == element)
    return kept.reshape(rows, words * form.codes * form.group)[:, :columns].astype(np.float64)
