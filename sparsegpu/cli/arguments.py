"""What commands take and give: files that they write in the end are tried before they begin."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from json import dumps
from pathlib import Path
from typing import Any

from .._npz import replacing

_STDOUT = "-"


def new_file(path: str) -> str:
    """Return the path of a file that can be written, refuse any other."""
    file = Path(path).absolute()
    # A file is replaced as a whole, which its directory must allow; a device is written to.
    needed = [file] * file.exists() + [file.parent] * (file.is_file() or not file.exists())
    if file.is_dir() or not all(os.access(place, os.W_OK) for place in needed):
        raise argparse.ArgumentTypeError(f"{path} cannot be written")
    return path


def new_picture(path: str) -> str:
    """Do what `new_file` does where pictures can be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("needs matplotlib: pip install 'sparsegpu[gallery]'")
    return new_file(path)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` to a command, whose result goes through `report`."""
    parser.add_argument(
        "--json",
        metavar="FILE",
        type=lambda path: path if path == _STDOUT else new_file(path),
        help="write the result as JSON too; - is standard output, all else is on standard error",
    )


@contextmanager
def report(path: str | None) -> Iterator[dict[str, Any]]:
    """Take what a command finds, and write it as JSON in the end, or nothing on an error.

    Parameters
    ----------
    path : str or None
        ``"-"``: standard output; what is printed meanwhile goes to standard error.
    """
    content: dict[str, Any] = {}
    with redirect_stdout(sys.stderr) if path == _STDOUT else nullcontext():
        yield content
    if path is None:
        return
    text = f"{dumps(content, indent=1)}\n"
    if path == _STDOUT:
        print(text, end="")
    elif os.path.exists(path) and not os.path.isfile(path):  # a device or a named pipe
        Path(path).write_text(text, encoding="utf-8")
    else:
        with replacing(path) as stream:
            stream.write(text.encode())
