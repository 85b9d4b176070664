"""Displays of block-sparse arrays: one line, a small picture in a notebook, a plot."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from .._arrays import device_name
from .._math import ceil_div
from ..ops._common import on_device
from .patterned import Patterned

_CELLS = 48  # most cells along the longer side of the picture
_PIXELS = 192


class Drawings(Patterned):
    """Methods of block-sparse arrays that show their pattern."""

    __slots__ = ()

    dtype: Any

    def __repr__(self) -> str:
        return (
            f"<sparsegpu.{type(self).__name__}, shape {self.shape}, {self.dtype}, "
            f"{self._stored()}, on {device_name(self._pattern._indices)}>"
        )

    def _shown(self) -> Any:
        """Return which blocks a picture shows, bool (*batch, nnzb); None for all."""
        return None

    def _repr_html_(self) -> str:
        """Return the line of `repr` over a small picture of the pattern (for notebooks)."""
        picture = _svg(self) if self.nnzb else ""
        return f"<div><code>{escape(repr(self))}</code><br>{picture}</div>"

    def spy(self, ax: Any = None) -> Any:
        """Plot the positions of the blocks with matplotlib.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure's by default.

        Returns
        -------
        matplotlib Axes

        Raises
        ------
        ValueError
            For a batch.
        ImportError
            When matplotlib is not installed.
        """
        self._refuse_batch("spy")
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots()
        (m, k), (bm, bk) = self._pattern.shape, self.blocksize
        filled, each = _cells(self, largest=1024)
        tall, wide = filled.shape
        right, bottom = wide * each * bk, tall * each * bm
        ax.imshow(
            filled,
            cmap="Greys",
            vmin=0,
            vmax=1,
            interpolation="nearest",
            extent=(-0.5, right - 0.5, bottom - 0.5, -0.5),
            aspect="equal" if m and k else "auto",
        )
        ax.set_xlim(-0.5, max(k, 1) - 0.5)
        ax.set_ylim(max(m, 1) - 0.5, -0.5)
        ax.set_title(f"{self.nnzb} blocks of {bm}x{bk}, density {self.density:.3g}")
        return ax


def _cells(array: Any, largest: int) -> tuple[np.ndarray, int]:
    """Return the density of each cell of a picture, and the side of a cell in blocks.

    Of a batch, the first matrix is shown. Blocks are counted on the pattern's device;
    only the picture is copied to the host.
    """
    pattern = array._pattern
    rows, columns = pattern.block_shape
    each = ceil_div(max(rows, columns, 1), largest)
    tall, wide = max(ceil_div(rows, each), 1), max(ceil_div(columns, each), 1)
    if not pattern.indices.size:
        return np.zeros((tall, wide)), each
    with on_device(pattern._indices):
        row = pattern.rows.reshape(-1, pattern.nnzb)[0].astype(np.int64) // each
        column = pattern.indices.reshape(-1, pattern.nnzb)[0].astype(np.int64) // each
        place, shown = row * wide + column, array._shown()
        if shown is not None:
            place = place[shown.reshape(-1, pattern.nnzb)[0]]
        counts = array._xp.bincount(place, minlength=tall * wide)
    counts = counts if isinstance(counts, np.ndarray) else counts.get()
    return np.minimum(counts.reshape(tall, wide) / each**2, 1.0), each


def _svg(array: Any) -> str:
    filled, _ = _cells(array, _CELLS)
    tall, wide = filled.shape
    unit = max(1, _PIXELS // max(tall, wide))
    squares = "".join(
        f'<rect x="{c * unit}" y="{r * unit}" width="{unit}" height="{unit}" '
        f'fill-opacity="{0.25 + 0.75 * filled[r, c]:.2f}"/>'
        for r, c in np.argwhere(filled)
    )
    return (
        f'<svg width="{wide * unit}" height="{tall * unit}" role="img" '
        f'aria-label="pattern of stored blocks" style="border:1px solid #888">'
        f'<g fill="#1f6f8b">{squares}</g></svg>'
    )
