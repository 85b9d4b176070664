"""The tables of all commands: drawn by rich on a terminal where it is installed, else plain."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Literal

_STYLES = {"ok": "green", "FAIL": "bold red"}  # cells that judge


def print_table(rows: Sequence[dict[str, str]], title: str = "") -> None:
    """Print rows of cells under their keys; nothing for no rows.

    What is piped is plain text without colours. Columns of numbers are right-aligned.
    """
    if not rows:
        return
    if sys.stdout.isatty() and importlib.util.find_spec("rich"):
        _print_rich(rows, title)
    else:
        print("\n".join(([title] if title else []) + aligned(rows)))
    print(flush=True)


def aligned(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return the lines of a table as aligned text.

    Examples
    --------
    >>> aligned([{"product": "ours", "ms": "1.5"}, {"product": "SciPy", "ms": "12"}])
    ['product   ms', 'ours     1.5', 'SciPy     12']
    """
    keys = list(rows[0])
    cells = [keys, *([row[key] for key in keys] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(keys))]
    right = [_is_of_numbers(rows, key) for key in keys]
    return [
        "  ".join(
            cell.rjust(width) if of_numbers else cell.ljust(width)
            for cell, width, of_numbers in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in cells
    ]


def _print_rich(rows: Sequence[dict[str, str]], title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout)
    frame = 3 * len(rows[0]) + 1  # a space at each edge, two and a line between columns
    widths = _widths(rows, console.width - frame)
    console.width = max(console.width, sum(widths) + frame)  # the terminal breaks longer lines
    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD)
    for key, width in zip(rows[0], widths, strict=True):
        side: Literal["left", "right"] = "right" if _is_of_numbers(rows, key) else "left"
        table.add_column(Text(key), justify=side, width=width)
    for row in rows:
        table.add_row(*(Text(row[key], style=_STYLES.get(row[key], "")) for key in rows[0]))
    console.print(table)


def _widths(rows: Sequence[dict[str, str]], room: int) -> list[int]:
    """Return how wide columns are: where room lacks, as little as their words and numbers take.

    Headings of numbers are broken first, then what has words. Left to itself, rich cuts numbers,
    and leaves columns out.
    """
    widths, least = [], []
    for key in rows[0]:
        cells = [row[key] for row in rows]
        widths.append(max(map(len, [key, *cells])))
        whole = cells if _is_of_numbers(rows, key) else " ".join(cells).split()
        least.append(max(map(len, [*key.split(), *whole])))
    keys = list(rows[0])
    for i in sorted(range(len(keys)), key=lambda i: not _is_of_numbers(rows, keys[i])):
        widths[i] -= max(0, min(sum(widths) - room, widths[i] - least[i]))
    return widths


def _is_of_numbers(rows: Sequence[dict[str, str]], key: str) -> bool:
    cells = [row[key].rstrip("%") for row in rows if row[key]]
    return bool(cells) and all(_is_number(cell) for cell in cells)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
