"""The progress of a search: a bar where rich is installed, lines elsewhere."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Takes a configuration, its time in ms, and why it was skipped ("" where it was measured).
Report = Callable[[dict[str, Any], float, str], Any]


@contextmanager
def reporting(progress: bool) -> Iterator[Report]:
    """Yield the function that is to be called for each configuration; it prints to stderr."""
    if not progress:
        yield lambda config, ms, why: None
    elif sys.stderr.isatty() and importlib.util.find_spec("rich"):
        yield from _rich()
    else:
        yield lambda *measured: print(line(*measured), file=sys.stderr, flush=True)


def line(config: dict[str, Any], ms: float, why: str = "") -> str:
    """Return a configuration and its time as text, or why it was skipped.

    Examples
    --------
    >>> line({"path": "wgmma", "tile_n": 128}, 0.25)
    '    0.25 ms  wgmma tile_n=128'
    >>> line({"path": "mma"}, float("inf"), "LaunchError: too much shared memory")
    '    skipped  mma (LaunchError: too much shared memory)'
    """
    named = fields(config)
    return f"    skipped  {named} ({why})" if why else f"{ms:8.4g} ms  {named}"


def fields(config: dict[str, Any]) -> str:
    """Return a configuration as text: the path's name, then what is chosen of it.

    Examples
    --------
    >>> fields({"path": "wgmma", "tile_n": 128})
    'wgmma tile_n=128'
    """
    path, *others = config.items()
    return " ".join([path[1], *(f"{name}={value}" for name, value in others)])


def _rich() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    last = TextColumn("{task.description}", markup=False)
    columns = TextColumn("{task.completed} measured"), BarColumn(), last
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)

        def report(config: dict[str, Any], ms: float, why: str) -> None:
            if why:
                bar.console.print(line(config, ms, why), markup=False)
            else:
                bar.update(task, advance=1, description=line(config, ms))

        yield report
