"""What commands take: files that they write in the end are tried before anything is measured."""

from __future__ import annotations

import argparse
import importlib.util
import os
from pathlib import Path


def new_file(path: str) -> str:
    """Return the path of a file that can be written, refuse any other."""
    file = Path(path).absolute()
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{path} cannot be written")
    return path


def new_picture(path: str) -> str:
    """Do what `new_file` does where pictures can be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError("needs matplotlib: pip install 'sparsegpu[gallery]'")
    return new_file(path)
