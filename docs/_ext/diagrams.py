"""Diagrams of formats, drawn from what the library's own functions return."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from sphinx.application import Sphinx

import sparsegpu as sg

_COLOURS = ("#bcd9e6", "#f1d3b3", "#cfe0bf", "#dfc6dd")  # of the four groups, or rows
_ARROW = {"arrowstyle": "->", "color": "#5b6670"}


def metadata(figure: Figure) -> None:
    """Draw sixteen values of a row, what is stored of them, and the metadata word."""
    values = np.random.default_rng(3).integers(-9, 10, (32, 64)).astype(np.float16)
    row = sg.prune_24(values)
    packed, meta = sg.semi_structured_from_dense(row)
    word = int(sg.restore_meta(meta)[0, 0]) & 0xFFFF
    ax = figure.add_subplot()
    ax.set(xlim=(-3.2, 16.2), ylim=(-0.3, 5.3), aspect="equal")
    ax.axis("off")
    kept = 0
    for column in range(16):
        colour, stored = _COLOURS[column // 4], row[0, column] != 0
        _cell(ax, column, 4, f"{row[0, column]:g}", colour if stored else "white")
        if stored:
            _cell(ax, 4 + kept, 2.2, f"{packed[0, kept]:g}", colour)
            start, end = (column + 0.5, 4), (4.5 + kept, 3.2)
            ax.annotate("", end, start, arrowprops=_ARROW)
            kept += 1
        # The first group has the lowest bits, so it is on the right.
        _cell(ax, column, 0.2, str(word >> (15 - column) & 1), _COLOURS[3 - column // 4])
        ax.text(column + 0.5, 5.1, str(column % 4), ha="center", fontsize=7, color="#5b6670")
    for y, name in ((4.5, "a row, 2:4"), (2.7, "packed"), (0.7, "metadata, 16 bits")):
        ax.text(-0.3, y, name, ha="right", va="center", fontsize=9)


def row_group(figure: Figure) -> None:
    """Draw four block rows that share what they read, and the stages that it passes through."""
    columns, stages = 12, 4
    pattern = sg.random_bsr((4, columns), (1, 1), 0.25, rng=4).toarray() != 0
    union = np.flatnonzero(pattern.any(axis=0))
    ax = figure.add_subplot()
    ax.set(xlim=(-3.4, 21.5), ylim=(-4.7, 4.2), aspect="equal")
    ax.axis("off")
    for row, column in np.ndindex(pattern.shape):
        colour = _COLOURS[row] if pattern[row, column] else "white"
        _cell(ax, column, 3 - row, "", colour)
    for entry, column in enumerate(union):
        _cell(ax, column, -1.6, str(entry), "#e8e8e8")
    ax.text(-0.3, 2, "four block rows,\na group", ha="right", va="center", fontsize=9)
    ax.text(-0.3, -1.1, "entries: columns\nof the union", ha="right", va="center", fontsize=9)
    for stage in range(stages):
        entry = stages + stage if stages + stage < len(union) else stage  # the ring's second turn
        _cell(ax, 1 + 2.4 * stage, -4.2, f"{entry}", "#f1d3b3", width=2.2)
    ax.text(-0.3, -3.7, "stages of\nshared memory", ha="right", va="center", fontsize=9)
    ax.text(1, -2.95, "TMA: a tile of dense and the blocks that exist", fontsize=8)
    _arrow(ax, (union[0], -1.1), (0.4, -1.1), (0.4, -3.7), (1, -3.7))
    for number, y in enumerate((-0.6, -4.4)):
        _cell(ax, 14.5, y, f"consumer warpgroup {number}\nwgmma, 64 rows", "#cfe0bf", 6.8, 2.4)
        ax.annotate("", (14.5, y + 1.2), (10.7, -3.7), arrowprops=_ARROW)


def _arrow(ax: Axes, *places: tuple[float, float]) -> None:
    ax.plot(*zip(*places, strict=True), color="#5b6670", linewidth=1)
    ax.annotate("", places[-1], places[-2], arrowprops=_ARROW)


def _cell(
    ax: Axes, x: float, y: float, text: str, colour: str, width: float = 1, height: float = 1
) -> None:
    style = {"facecolor": colour, "edgecolor": "#5b6670", "linewidth": 0.8}
    ax.add_patch(Rectangle((x, y), width, height, **style))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9)


def draw(app: Sphinx) -> None:
    """Draw every diagram."""
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    for name, diagram, height in (("metadata", metadata, 2.6), ("row_group", row_group, 3.3)):
        figure = Figure(figsize=(8.5, height), layout="constrained")
        diagram(figure)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("builder-inited", draw)
    return {"parallel_read_safe": True}
