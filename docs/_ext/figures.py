"""What the performance page shows: a plot for each question, drawn from ``benchmarks/results``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter
from sphinx.application import Sphinx

from sparsegpu.benchmark.plot import roofline
from tools.readme import all_rows, gpu_of

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
_DENSE = "cuBLAS dense"
_COLOURS = ("#2f7fa5", "#d17a22", "#5d8a3a", "#9a4f96", "#b8443c", "#6b7280")
Rows = list[dict[str, Any]]
#: The attention whose time is drawn by density (benchmark/cases_attention.py).
_OF_TIME = {"dtype": "bfloat16", "block": [128, 128], "shape": [4096, 4096, 128]}


def draw(app: Sphinx) -> None:
    """Draw every plot of every recorded GPU."""
    folder = Path(app.srcdir) / "generated"
    folder.mkdir(exist_ok=True)
    for path in sorted(RESULTS.glob("*.json")):
        race = json.loads(path.read_text(encoding="utf-8"))["race"]
        for name, (section, plot) in PLOTS.items():
            if section not in race:
                continue  # not recorded yet; the page does not ask for it
            target = folder / f"{name}-{path.stem}.svg"
            figure = Figure(figsize=(8.5, 3.6), layout="constrained")
            plot(figure, race[section]["rows"])
            figure.savefig(target, metadata={"Date": None})
        if "main" in race:
            content = {"rows": all_rows(race), "copy GB/s": race["main"]["copy GB/s"]}
            title = f"bfloat16 block-sparse products, {gpu_of(race)}"
            roofline(content, title, folder / f"roofline-{path.stem}.png")


def blocks(figure: Figure, rows: Rows) -> None:
    """Speed-up of block-sparse products over dense and over the best sparse peer, by density."""
    main = [row for row in rows if row["section"] == "main"]
    panels = figure.subplots(1, 2, sharey=True)
    contestants = {"over the dense product": [_DENSE], "over the best block-sparse peer": None}
    for ax, (title, peers) in zip(panels, contestants.items(), strict=True):
        for colour, size in zip(_COLOURS, sorted({row["block"][0] for row in main}), strict=False):
            points = {
                row["density"]: _speed_up(row, peers) for row in main if row["block"][0] == size
            }
            places = sorted(points)
            label = f"{size} x {size}"
            ax.plot(places, [points[d] for d in places], "o-", color=colour, label=label)
        _ratio(ax, title, "density (share of the blocks that is stored)")
        _plain_ticks(ax.xaxis, sorted({round(row["density"], 2) for row in main}))
    panels[0].set_ylabel("times as fast")
    panels[0].legend(title="blocks", frameon=False)


def two_four(figure: Figure, rows: Rows) -> None:
    """Speed-up of large 2:4 products over dense and over cuSPARSELt, by dtype and size."""
    chosen = [
        row
        for row in rows
        if row["section"] == "2:4" and isinstance(row["peers"].get(_DENSE), float)
    ]
    panels = figure.subplots(1, 2)
    contestants = {"over the dense product": [_DENSE], "over the best 2:4 peer": None}
    for ax, (title, peers) in zip(panels, contestants.items(), strict=True):
        for colour, dtype in zip(_COLOURS, sorted({row["dtype"] for row in chosen}), strict=False):
            found = [
                (row["flops"] / 1e9, _speed_up(row, peers))
                for row in chosen
                if row["dtype"] == dtype
            ]
            points = [(x, y) for x, y in found if y is not None]
            if points:
                ax.plot(*zip(*points, strict=True), "o", color=colour, label=dtype)
        _ratio(ax, title, "useful operations, 10^9")
    panels[0].set_ylabel("times as fast")
    _legend(figure, panels[0], "right center")


def vectors(figure: Figure, rows: Rows) -> None:
    """Share of a copy's bandwidth that products with a few vectors reach."""
    chosen = [row for row in rows if row["section"] == "vectors"]
    kinds = sorted({(row["dtype"], row["block"][0]) for row in chosen})
    panels = figure.subplots(1, 2, sharey=True)
    for ax, dtype in zip(panels, sorted({dtype for dtype, _ in kinds}), strict=False):
        for colour, size in zip(_COLOURS, [s for d, s in kinds if d == dtype], strict=False):
            points = sorted(
                (row["shape"][2], row["bytes"] / row["ms"] / 1e9)
                for row in chosen
                if (row["dtype"], row["block"][0]) == (dtype, size)
            )
            label = f"{size} x {size}"
            ax.plot(*zip(*points, strict=True), "o-", color=colour, label=label)
        ax.set_xscale("log")
        _plain_ticks(ax.xaxis, sorted({row["shape"][2] for row in chosen}))
        ax.set(title=dtype, xlabel="vectors")
        ax.grid(alpha=0.3)
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("TB/s that must move")
    panels[0].legend(title="blocks", frameon=False)


def attention(figure: Figure, rows: Rows) -> None:
    """Attention over block masks by the density of the mask: speed-up over peers, rate, time."""
    rows = [row for row in rows if " dropout" not in row["case"]]
    chosen = [
        row
        for row in rows  # those without a bar are other tiles of the same case
        if row["section"] == "attention" and row["measure"] == "device" and row["bars"]
    ]
    panels = figure.subplots(1, 3)
    sizes = sorted({tuple(row["block"]) for row in chosen})
    for colour, size in zip(_COLOURS * len(sizes), sizes, strict=False):
        mine = [row for row in chosen if tuple(row["block"]) == size]
        faster = [(row["density"], _speed_up(row, None)) for row in mine]
        rates = [(row["density"], row["flops"] / row["ms"] / 1e9) for row in mine]
        for ax, points in zip(panels[:2], (faster, rates), strict=True):
            x, y = [d for d, value in points if value], [value for _, value in points if value]
            ax.plot(x, y, "o", color=colour, label=f"{size[0]} x {size[1]}")
    label = "density"
    _ratio(panels[0], "over the best peer", label)
    panels[0].set_ylabel("times as fast")
    panels[1].set(xscale="log", title="useful TFLOP/s", xlabel=label, ylim=(0, None))
    panels[1].grid(alpha=0.3)
    lowest = min(row["density"] for row in chosen)
    for ax in panels[:2]:
        _plain_ticks(ax.xaxis, [d for d in (0.02, 0.1, 0.5) if d >= lowest / 2])
    by_density(panels[2], rows)
    _legend(figure, panels[1], "right center", title="blocks")


def by_density(ax: Any, rows: Rows) -> None:
    """Time of attention of one size by density, and that of dense attention."""
    chosen = sorted(
        (
            row
            for row in rows
            if row["section"] == "attention"
            and all(row[name] == value for name, value in _OF_TIME.items())
            and " path" not in row["case"]
        ),
        key=lambda row: row["density"],
    )
    ax.plot([r["density"] for r in chosen], [r["ms"] for r in chosen], "o-", color=_COLOURS[0])
    dense = [ms for row in chosen if row["density"] == 1 for ms in row["peers"].values()]
    times = [ms for ms in dense if isinstance(ms, float)]
    if times:
        ax.axhline(min(times), color=_COLOURS[1], label="dense")
        ax.legend(frameon=False, loc="lower right")
    ax.set(title="time, 128 x 128 blocks", xlabel="density", ylabel="ms", ylim=(0, None))
    ax.grid(alpha=0.3)


def solvers(figure: Figure, rows: Rows) -> None:
    """Residual norms of conjugate gradients over iterations, and over time."""
    chosen = [
        row
        for row in rows
        if row["section"] == "solvers"
        and row["pattern"] == "elasticity"
        and row["case"].startswith("cg")  # not lobpcg
    ]
    panels = figure.subplots(1, 2, sharey=True)
    curves = [
        (f"{row['case'].partition(' float')[0]}, {name}", norms, ms)
        for row in chosen
        for name, norms in row["histories"].items()
        for ms in [row["peers"].get(name, row["ms"])]
    ]
    for colour, (label, norms, ms) in zip(_COLOURS * len(curves), curves, strict=False):
        share = [i / max(len(norms) - 1, 1) for i in range(len(norms))]
        values = [norm / norms[0] for norm in norms]
        panels[0].plot(range(len(norms)), values, color=colour, label=label)
        panels[1].plot([ms * part for part in share], values, color=colour)
    for ax, label in zip(panels, ("iterations", "ms"), strict=True):
        ax.set(xscale="symlog", yscale="log", xlabel=label)
        ax.set_xlim(left=0)
        ax.grid(alpha=0.3)
    panels[0].set_ylabel("residual norm / the first")
    _legend(figure, panels[0], "lower center", ncols=4)


#: The section that a plot is of, and what draws it.
PLOTS: dict[str, tuple[str, Callable[[Figure, Rows], None]]] = {
    "blocks": ("main", blocks),
    "attention": ("attention", attention),
    "two_four": ("2:4", two_four),
    "vectors": ("vectors", vectors),
    "solvers": ("solvers", solvers),
}


def _speed_up(row: dict[str, Any], peers: list[str] | None) -> float | None:
    """Return the time of the fastest of some peers (None: of the sparse ones) over ours."""
    times = [
        ms
        for name, ms in row["peers"].items()
        if isinstance(ms, float) and (name != _DENSE if peers is None else name in peers)
    ]
    return min(times) / row["ms"] if times else None


def _ratio(ax: Any, title: str, label: str) -> None:
    ax.axhline(1, color="gray", linewidth=1)
    ax.set(xscale="log", yscale="log", title=title, xlabel=label)
    low, high = ax.get_ylim()
    tenths = [i / 10 for i in range(5, 17)]
    marks = (0.5, 0.7, 1, 1.4, 2, 3, 5, 10, 20) if high > 1.6 * low else tenths
    _plain_ticks(ax.yaxis, [mark for mark in marks if low <= mark <= high])
    ax.grid(alpha=0.3)


def _legend(figure: Figure, ax: Any, loc: str, **keywords: Any) -> None:
    """Put the legend of an Axes outside of all, where it covers no point."""
    handles = ax.get_legend_handles_labels()
    figure.legend(*handles, loc=f"outside {loc}", frameon=False, **keywords)


def _plain_ticks(axis: Any, places: Any) -> None:
    axis.set_ticks(list(places))
    axis.set_major_formatter(ScalarFormatter())
    axis.set_minor_formatter(NullFormatter())
    axis.set_ticks([], minor=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("builder-inited", draw)
    return {"parallel_read_safe": True}
