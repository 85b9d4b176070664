"""The roofline: rate over arithmetic intensity, ours and the best peer's, and the roofs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from .peer import DENSE
from .report import best_peer

_OURS, _PEER = "#0b62a4", "#b0531f"
#: Colours of text, of secondary text and of the grid.
_INK, _MUTED, _GRID = "#1a1a19", "#6b6a65", "#e4e3dd"


def roofline_points(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return operations per byte and TF of the bfloat16 rows: ours, the best sparse peer's, bar."""
    points = []
    for row in rows:
        if row["section"] not in {"main", "skinny"}:
            continue
        sparse = {k: v for k, v in row["peers"].items() if k != DENSE}
        peer = best_peer({"peers": sparse})
        limits = [bar["limit ms"] for bar in row["bars"]]
        skinny = row["section"] == "skinny"
        point = {
            "intensity": row["flops"] / row["bytes"],
            "ours": row["flops"] / row["ms"] / 1e9,
            "peer": row["flops"] / sparse[peer] / 1e9 if peer else None,
            "block": row["block"][0],
            "bar": row["flops"] / limits[0] / 1e9 if limits else None,
            "label": f"N = {row['shape'][2]}" if skinny else f"density {row['density']:.3g}",
        }
        points.append(point)
    return points


def dense_roof(rows: list[dict[str, Any]]) -> float | None:
    """Return the fastest dense bfloat16 product of the run, in TF."""
    rates = [
        row["flops"] / row["density"] / row["peers"][DENSE] / 1e9
        for row in rows
        if row["dtype"] == "bfloat16" and isinstance(row["peers"].get(DENSE), float)
    ]
    return max(rates, default=None)


def roofline(content: dict[str, Any], title: str, file: str | Path | BinaryIO) -> None:
    """Draw the roofline of a race (what `race.race` returns, or its JSON) into a file, as PNG.

    Raises
    ------
    ModuleNotFoundError
        matplotlib is not installed (``pip install matplotlib``).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = content["rows"]
    points = roofline_points(rows)
    figure = Figure(figsize=(8, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.yaxis.set_major_formatter("{x:.0f}")
    _roofs(axes, points, content["copy GB/s"] / 1e3, dense_roof(rows))
    markers = {16: "v", 32: "s", 64: "D", 128: "o"}
    for point in points:
        x, marker = point["intensity"], markers.get(point["block"], "o")
        if point["peer"] is not None:
            axes.plot([x, x], [point["peer"], point["ours"]], lw=1, c=_GRID, zorder=1)
            axes.plot(x, point["peer"], marker, mfc="none", c=_PEER, ms=6)
        if point["bar"] is not None:
            axes.plot(x, point["bar"], "_", c=_INK, ms=14)
        axes.plot(x, point["ours"], marker, c=_OURS, ms=6)
    axes.set_ylim(0.4 * axes.get_ylim()[0], 2 * axes.get_ylim()[1])  # room for what is written
    for label, x in {point["label"]: point["intensity"] for point in points}.items():
        style: dict[str, Any] = {
            "ha": "center",
            "va": "bottom",
            "rotation": 90,
            "fontsize": 8,
            "color": _MUTED,
        }
        style |= {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate(label, (x, 0), (0, 4), **style)
    for block, marker in markers.items():
        axes.plot([], [], marker, c=_INK, mfc="none", label=f"{block} x {block} blocks", ls="none")
    axes.plot([], [], "o", c=_OURS, label="sparsegpu", ls="none")
    axes.plot([], [], "o", mfc="none", c=_PEER, label="best block-sparse peer", ls="none")
    axes.plot([], [], "_", c=_INK, ms=14, label="bar", ls="none")
    axes.legend(frameon=False, loc="upper left", fontsize=8, labelcolor=_INK)
    axes.set_title(title, loc="left", color=_INK, fontsize=11)
    axes.set_xlabel("useful operations per byte that must move", color=_MUTED)
    axes.set_ylabel("useful TFLOP/s", color=_MUTED)
    axes.grid(color=_GRID, lw=0.6)
    axes.tick_params(colors=_MUTED)
    for side in axes.spines.values():
        side.set_color(_GRID)
    figure.savefig(file, format="png", dpi=144)


def _roofs(axes: Any, points: list[dict[str, Any]], copy_tbs: float, dense: float | None) -> None:
    """Draw the roofs: the copy bandwidth, and the rate of the dense product."""
    intensities = [p["intensity"] for p in points] or [1.0, 1000.0]
    low, high = min(intensities) / 1.5, max(intensities) * 1.5
    ridge = high if dense is None else min(max(dense / copy_tbs, low), high)
    axes.plot([low, ridge], [low * copy_tbs, ridge * copy_tbs], c=_INK, lw=1.2)
    text = f"copy {copy_tbs:.2f} TB/s"
    axes.text(low * 1.1, low * copy_tbs, text, color=_MUTED, fontsize=8, va="top")
    if dense is not None and ridge < high:
        axes.plot([ridge, high], [dense, dense], c=_INK, lw=1.2)
        text = f"dense bfloat16 (cuBLAS) {dense:.0f} TFLOP/s"
        axes.text(ridge, dense * 1.15, text, color=_MUTED, fontsize=8)
