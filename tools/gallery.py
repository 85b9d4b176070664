"""Record what the pages of the gallery print and draw on a GPU: ``python -m tools.gallery``.

Every page runs with its one line for a GPU, in a process of its own: first all at once, so that
the kernels are compiled, then one by one. These outputs are written to
``benchmarks/results/gallery``, a page as soon as it is known, and the site shows them beside
NumPy's for as long as the page is the recorded one (``docs/_ext/recordings.py``).

It needs CuPy and matplotlib, nothing of Jupyter. A page for which a package is missing is named and
left out; what was recorded of it before stays. Exits 1 if a page fails, or if ``--limit`` left one.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .record import RESULTS, ROOT, environment, replaced, stamp, stem_of

PAGES = ROOT / "examples" / "gallery"
FOLDER = RESULTS / "gallery"
ON_NUMPY = "xp = np  # on a GPU: import cupy as xp"
ON_GPU = "import cupy as xp"
_AT_ONCE = 8  # in the first round: as many hold a context on the device, and compile
_COLOURS = 256  # of a picture: a quarter of the bytes


def pages() -> list[str]:
    """Return the names of all pages."""
    return sorted(path.stem for path in PAGES.glob("*.py"))


def code_cells(source: str) -> list[str]:
    """Return the code cells of a page, each behind as many empty lines as precede it there."""
    lines = source.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("# %%")]
    return [
        "\n" * (start + 1) + "\n".join(lines[start + 1 : end])
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
        if lines[start] == "# %%"
    ]


def digest(source: str) -> str:
    """Return what a recording says of the page that it is of."""
    return hashlib.sha256(source.encode()).hexdigest()


def outputs(path: Path, source: str) -> list[dict[str, Any]]:
    """Run a page, and return the text and the pictures (PNG) of each of its code cells."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    pictures: list[bytes] = []

    def show() -> None:
        pictures.extend([_png(plt.figure(number)) for number in plt.get_fignums()])
        plt.close("all")

    plt.show = show
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    for cell in code_cells(source):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(cell, str(path), "exec"), names)
            show()
        cells.append({"text": printed.getvalue(), "pictures": list(pictures)})
        pictures.clear()
    return cells


def _png(figure: Any) -> bytes:
    """Return a figure as the notebooks of the site have it, in few colours."""
    from PIL import Image

    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", bbox_inches="tight")
    picture = Image.open(whole).convert("RGB")
    picture.quantize(_COLOURS, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    return small.getvalue()


def is_of_this_page(recorded: Mapping[str, Any], name: str) -> bool:
    """Return whether what was recorded is of the page as it is now."""
    return recorded["source"] == digest((PAGES / f"{name}.py").read_text(encoding="utf-8"))


def attempt(name: str) -> dict[str, Any]:
    """Run a page on the GPU: its cells and seconds, or why it is "left out" or "failed"."""
    path = PAGES / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as elsewhere, contextlib.chdir(elsewhere):
        try:
            cells = outputs(path, source.replace(ON_NUMPY, ON_GPU))
        except (SystemExit, ImportError) as why:
            return {"left out": str(why).replace("\n", " ")}
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"}
    return {
        "source": digest(source),
        "seconds": round(time.perf_counter() - start, 1),
        "cells": cells,
    }


def rounds(names: Sequence[str], limit: float = math.inf) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run pages twice, the second time one by one, and yield what came of that.

    A page that ends its process is a failure of that page alone. None is begun after the limit, in
    seconds.
    """
    started = time.perf_counter()
    spawn = get_context("spawn")  # a context of the device is of one process: not fork
    with (
        contextlib.suppress(BrokenProcessPool),  # the second round tells by which page
        ProcessPoolExecutor(_AT_ONCE, mp_context=spawn, max_tasks_per_child=1) as pool,
    ):
        wait([pool.submit(attempt, name) for name in names])
    for name in names:
        if time.perf_counter() - started >= limit:
            yield name, {"not begun": "time was up"}
            continue
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            try:
                yield name, pool.submit(attempt, name).result()
            except BrokenProcessPool:
                yield name, {"failed": "its process died"}


def write(found: Mapping[str, Mapping[str, Any]], about: Mapping[str, str], folder: Path) -> Path:
    """Replace the recordings of these pages, drop those of pages that are gone.

    Pictures have their content in their names: those that the file names stay until it is replaced.
    """
    stem = stem_of(about["gpu"])
    path, pictures = folder / f"{stem}.json", folder / stem
    pictures.mkdir(parents=True, exist_ok=True)
    with replaced(path) as recorded:
        for name, result in found.items():
            cells = {}
            for number, cell in enumerate(result["cells"]):
                files = []
                for i, picture in enumerate(cell["pictures"]):
                    content = hashlib.sha256(picture).hexdigest()[:8]
                    files.append(f"{name}-{number}-{i}-{content}.png")
                    temporary = pictures / "picture.tmp"
                    temporary.write_bytes(picture)
                    os.replace(temporary, pictures / files[-1])
                if cell["text"] or files:
                    cells[str(number)] = {"text": cell["text"], "pictures": files}
            recorded[name] = {
                **stamp(about),
                "source": result["source"],
                "seconds": result["seconds"],
                "cells": cells,
            }
        for name in recorded.keys() - set(pages()):
            del recorded[name]
    with replaced(path) as recorded:  # no other run writes pictures meanwhile
        shown = [cell for page in recorded.values() for cell in page["cells"].values()]
        named = {file for cell in shown for file in cell["pictures"]}
        for file in pictures.glob("*.png"):
            if file.name not in named:
                file.unlink()
    return path


def main(arguments: list[str] | None = None) -> int:
    """Run the named pages, or all, say how each ended, and write what they gave."""
    parser = argparse.ArgumentParser(prog="python -m tools.gallery", description=__doc__)
    parser.add_argument("page", nargs="*", help="page of examples/gallery (default: all)")
    parser.add_argument(
        "--limit", type=float, default=math.inf, metavar="S", help="begin no page after S seconds"
    )
    given = parser.parse_args(arguments)
    names = given.page or pages()
    for name in names:
        if name not in pages():
            parser.error(f"expected a page of {', '.join(pages())}, got {name}")
    about, whole = environment(), True
    for name, result in rounds(names, given.limit):
        whole &= not {"failed", "not begun"} & result.keys()
        if "cells" in result:  # each by itself: a run that is cut short keeps what it has
            said = f"{result['seconds']} s, recorded in {write({name: result}, about, FOLDER)}"
        else:
            ((how, why),) = result.items()
            said = f"{how}: {why}"
        print(f"{name}: {said}", flush=True)
    return int(not whole)


if __name__ == "__main__":
    sys.exit(main())
