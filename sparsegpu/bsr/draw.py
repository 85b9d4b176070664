"""Displays of sparse arrays: one line, a small picture in a notebook, a plot with matplotlib.

What is stored is drawn in one colour that stands out on light and on dark backgrounds, the more
opaque the more of a cell is stored; the fullest cell is opaque, and no cell that holds anything is
too faint to be seen. What is not stored is transparent.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from .._checks import bad_type
from .._math import ceil_div
from ..ops._common import on_device
from ..pattern import Pattern
from .patterned import Patterned

COLOUR = "#2f7fa5"  # contrast of 4.2 with white and with #111111
FAINTEST = 0.45  # opacity of a cell that holds next to nothing
_CELLS = 48  # most cells along a side of the small picture
_PIXELS = 192  # its longer side
_ELONGATED = 8  # from this ratio of its sides on, a matrix is not drawn to scale
_LONG = 10_000  # from this number on, ticks are labelled 20k, 3M


class Drawings(Patterned):
    """Methods of block-sparse arrays that show where their blocks are."""

    __slots__ = ()

    def _shown(self) -> Any:
        """Return which blocks a picture shows, bool (*batch, nnzb); None for all."""
        return None

    def _repr_html_(self) -> str:
        """Return the line of `repr` over a small picture of the pattern (for notebooks)."""
        from html import escape  # what only pictures need

        line = f"<div><code>{escape(repr(self))}</code>"
        if not self.nnzb:
            return f"{line}</div>"
        shares, each = _cells(self._pattern, self._shown(), _CELLS, _CELLS)
        m, k = self._pattern.shape
        tall, wide = (max(_PIXELS // _ELONGATED, _PIXELS * side // max(m, k)) for side in (m, k))
        said = "" if each == (1, 1) else f"{_cell(each)}, the fullest {shares.max():.2g} stored"
        if self._pattern.batch_shape:
            said = f"the first of {self._pattern.batch_size} matrices; {said}".removesuffix("; ")
        return f"{line}<br>{svg(shares, (tall, wide), 'stored blocks')}{caption(said)}</div>"

    def spy(self, ax: Any = None) -> Any:
        """Plot where the stored blocks are with matplotlib.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure's by default. Its size bounds the number of cells that are drawn.

        Returns
        -------
        matplotlib Axes
            In units of blocks. Where a cell of the picture stands for several blocks, a colour
            bar says which share of them is stored. Narrow Axes among others have no room for it
            and for the names of the axes.

        Raises
        ------
        ValueError
            For a batch.
        TypeError
            An ``ax`` that is no Axes.
        ImportError
            When matplotlib is not installed.

        Examples
        --------
        >>> import numpy as np
        >>> from sparsegpu import bsr_array
        >>> ax = bsr_array(np.eye(6), blocksize=(2, 2)).spy()  # doctest: +SKIP
        >>> ax.figure.savefig("pattern.png")  # doctest: +SKIP
        """
        self._refuse_batch("spy")
        ax = axes("spy", ax)
        (m, k), (bm, bk) = self._pattern.shape, self.blocksize
        rows, columns = self._pattern.block_shape
        to_scale = 0 < m <= _ELONGATED * k and k <= _ELONGATED * m
        small = is_cramped(ax)
        # A cell gets more than a pixel, next to a colour bar, too: those in between would be lost.
        box = ax.get_window_extent()
        tall, wide = box.height, box.width
        if to_scale:
            tall, wide = min(tall, wide * m / k), min(wide, tall * k / m)
        shares, each = _cells(
            self._pattern, self._shown(), *(int(max(8, 0.6 * side)) for side in (tall, wide))
        )
        extent = (-0.5, max(columns, 1) - 0.5, max(rows, 1) - 0.5, -0.5)
        image = shaded(ax, shares, extent=extent, aspect=bm / bk if to_scale else "auto")
        ax.set_xlim(extent[:2])
        ax.set_ylim(extent[2:])
        if each != (1, 1) and self.nnzb and not small:
            fraction = max(0.15, 5 * _em(ax) / box.width)  # for the bar and what is beside it
            left = (0.95 - fraction) * box.width  # for the picture
            shrink = min(1, left * m / k / box.height) if to_scale else 1
            bar = ax.figure.colorbar(image, ax=ax, fraction=fraction, shrink=shrink)
            bar.set_label(f"stored share, {_cell(each)}")
            _wrap(bar.ax.yaxis.label, shrink * box.height)
        title = f"{self.nnzb} blocks of {bm}x{bk}, density {self.density:.3g}"
        annotate(ax, title, ("block column", "block row"), small=small)
        return ax


def _cell(each: tuple[int, int]) -> str:
    return f"a cell is up to {each[0]} x {each[1]} blocks"


def _cells(
    pattern: Pattern, shown: Any, tallest: int, widest: int
) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the stored share of each cell of a picture, and the most blocks along its sides.

    Cells are equally large, up to one block along a side: a small one at the end, which a single
    block fills, would leave the others faint. Of a batch, the first matrix is shown; ``shown`` says
    which blocks count (bool, None: all). Blocks are counted on the pattern's device; only the
    picture is copied to the host.
    """
    rows, columns = (max(side, 1) for side in pattern.block_shape)
    each = ceil_div(rows, tallest), ceil_div(columns, widest)
    tall, wide = ceil_div(rows, each[0]), ceil_div(columns, each[1])
    if not pattern.indices.size:
        return np.zeros((tall, wide)), each
    with on_device(pattern.indices):
        row = pattern.rows.reshape(-1, pattern.nnzb)[0].astype(np.int64) * tall // rows
        column = pattern.indices.reshape(-1, pattern.nnzb)[0].astype(np.int64) * wide // columns
        place = row * wide + column
        if shown is not None:
            place = place[shown.reshape(-1, pattern.nnzb)[0]]
        counts = pattern.xp.bincount(place, minlength=tall * wide)
    counts = counts if isinstance(counts, np.ndarray) else counts.get()
    # Block i is in cell i * cells // blocks: a cell begins at the first i that is so large.
    height, width = (
        np.diff(ceil_div(np.arange(cells + 1) * blocks, cells))
        for blocks, cells in ((rows, tall), (columns, wide))
    )
    return np.minimum(counts.reshape(tall, wide) / np.outer(height, width), 1.0), each


def axes(function: str, ax: Any) -> Any:
    """Return the Axes to draw on: the given ones, or those of a new figure."""
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ModuleNotFoundError as error:
            message = f"{function}: needs matplotlib: pip install matplotlib"
            raise ImportError(message) from error
        return plt.subplots()[1]
    if not hasattr(ax, "imshow"):
        raise bad_type(function, "ax", "a matplotlib Axes or None", type(ax).__name__)
    return ax


def is_cramped(ax: Any) -> bool:
    """Return whether names of the axes, and a colour bar, would cover neighbours or be cut off."""
    place = ax.get_subplotspec()
    alone = place is None or place.get_topmost_subplotspec().get_gridspec().get_geometry() == (1, 1)
    # Between Axes that no layout moves, matplotlib leaves a fifth of their sides.
    least = 10 if alone or ax.figure.get_layout_engine() else 22
    box = ax.get_window_extent()
    return bool(min(box.width, box.height) < least * _em(ax))


def annotate(ax: Any, title: str, names: tuple[str, str], *, small: bool) -> None:
    """Set the title, the names of x and y axis, and ticks at whole numbers.

    Where the caller placed or labelled the ticks, they stay. In ``small`` Axes (`is_cramped`) the
    axes are not named; ticks are few and small, with labels along the axes.
    """
    from matplotlib.ticker import EngFormatter, MaxNLocator, ScalarFormatter

    for axis, end in ((ax.xaxis, ax.get_xlim()[1]), (ax.yaxis, ax.get_ylim()[0])):
        locator = axis.get_major_locator()
        if isinstance(locator, MaxNLocator):
            locator.set_params(integer=True, **({"nbins": 2} if small else {}))
        if end > _LONG and isinstance(axis.get_major_formatter(), ScalarFormatter):
            axis.set_major_formatter(EngFormatter(sep=""))
    if small:
        ax.tick_params(labelsize="x-small", length=2, pad=2)
        ax.tick_params(axis="y", labelrotation=90)
        text = ax.set_title(title, fontsize="x-small", pad=5)
    else:
        ax.set(xlabel=names[0], ylabel=names[1])
        text = ax.set_title(title)
    _wrap(text, ax.get_window_extent().width)


def _em(ax: Any) -> float:
    """Return the size of the Axes' letters in pixels."""
    size: float = ax.xaxis.label.get_fontsize() * ax.figure.dpi / 72
    return size


def _wrap(text: Any, room: float) -> None:
    """Make a text of matplotlib smaller and break it, where it is longer than some pixels."""
    from textwrap import fill

    from matplotlib.font_manager import FontProperties

    small = FontProperties(size="small").get_size_in_points()

    def length() -> float:
        box = text.get_window_extent()
        return float(max(box.width, box.height))

    if length() > room:
        text.set_fontsize(min(text.get_fontsize(), small))
        whole = text.get_text()
        letters = max(1, int(len(whole) * room / length()))
        text.set_text(fill(whole, letters, break_long_words=False))


def shaded(ax: Any, shares: np.ndarray, **keywords: Any) -> Any:
    """Draw cells as an image of the Axes, the fullest opaque, empty ones transparent."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    ends = [to_rgba(COLOUR, FAINTEST), to_rgba(COLOUR, 1)]
    return ax.imshow(
        np.ma.masked_equal(shares, 0),
        cmap=LinearSegmentedColormap.from_list("stored", ends),
        vmin=0,
        vmax=shares.max() or 1,
        interpolation="nearest",
        **keywords,
    )


def svg(
    shares: np.ndarray,
    pixels: tuple[int, int],
    label: str,
    lines: tuple[range, range] = (range(0), range(0)),
) -> str:
    """Return cells as a picture for HTML, shaded as `shaded` does.

    Parameters
    ----------
    shares : array (tall, wide)
    pixels : (height, width)
    label : str
        What it shows, for who cannot see it.
    lines : two ranges
        Rows and columns of cells before which a line is drawn.
    """
    tall, wide = shares.shape
    top, drawn = shares.max() or 1, []
    for y, row in enumerate(shares):
        # Neighbours of about one opacity share a rectangle: a full matrix is no long text.
        steps = np.where(row > 0, np.ceil(20 * (FAINTEST + (1 - FAINTEST) * row / top)), 0)
        x = 0
        for step, run in groupby(steps):
            length = len(list(run))
            if step:
                place = f'x="{x}" y="{y}" width="{length}" height="1"'
                drawn.append(f'<rect {place} fill-opacity="{min(step / 20, 1):.2f}"/>')
            x += length
    ruled = "".join([f"M0 {y}h{wide}" for y in lines[0]] + [f"M{x} 0v{tall}" for x in lines[1]])
    if ruled:
        drawn.append(f'<path d="{ruled}" stroke="#888" stroke-width=".15"/>')
    return (
        f'<svg width="{pixels[1]}" height="{pixels[0]}" viewBox="0 0 {wide} {tall}" '
        f'preserveAspectRatio="none" shape-rendering="crispEdges" role="img" '
        f'aria-label="{label}" style="border:1px solid #888">'
        f'<g fill="{COLOUR}">{"".join(drawn)}</g></svg>'
    )


def caption(text: str) -> str:
    """Return a small line below a picture; nothing for no text."""
    from html import escape

    return f"<br><small>{escape(text)}</small>" if text else ""
