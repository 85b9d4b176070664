"""What commands take and give: numbers, and files that are tried before a command begins.

Bad input is one line and status 2. A file is written whole or not at all.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from json import dumps
from pathlib import Path
from typing import Any, NoReturn

from .._npz import replacing

INTERRUPTED = 130  # a status, as shells report Ctrl-C
_STDOUT = "-"


class NotWritten(Exception):
    """A result that could not be written; the message names the file."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, with the help of the command that was typed."""

    def error(self, message: str) -> NoReturn:
        """End with status 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is not known here: argparse would leave it to the parser of all commands.

        Only then a command that is missing, which argparse would blame first.
        """
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        if getattr(known, "command", "") is None:
            self.error("the following arguments are required: command")
        return known, unknown

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write a help text like any result: argparse says nothing where the disk is full."""
        if file is None or file is not sys.stdout:
            super()._print_message(message, file)
        else:
            file.write(message)


def add_command(commands: Any, name: str, does: str) -> argparse.ArgumentParser:
    """Add a command; its own help says, too, what it does."""
    return commands.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")


def number(
    kind: type[int] | type[float], expected: str, allowed: Callable[[Any], bool]
) -> Callable[[str], Any]:
    """Return what makes a number of an option's text, and refuses what is not allowed."""

    def parsed(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not allowed(value):
            raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
        return value

    return parsed


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
        raise argparse.ArgumentTypeError("needs a GPU, and matplotlib: pip install matplotlib")
    if not new_file(path).endswith(".png"):
        raise argparse.ArgumentTypeError(f"expected a name that ends in .png, got {path!r}")
    return path


def write_file(path: str, content: bytes) -> None:
    """Replace a file as a whole; a device or a named pipe is written to.

    Raises
    ------
    NotWritten
        Nothing was replaced.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as stream:
                stream.write(content)
        else:
            with replacing(path) as stream:
                stream.write(content)
    except OSError as error:
        raise NotWritten(f"{path}: {error.strerror}") from error


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
    else:
        write_file(path, text.encode())
