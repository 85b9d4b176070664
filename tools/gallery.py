"""Record what the pages of the gallery print and draw on a GPU: ``python -m tools.gallery``.

Every page runs with its one line for a GPU, in a process of its own: first all at once, so that
the kernels are compiled, then one by one. These outputs are written to
``benchmarks/results/gallery``, and the site shows them beside NumPy's for as long as the page is
the recorded one (``docs/_ext/recordings.py``).

It needs CuPy and matplotlib, nothing of Jupyter. A page for which a package is missing is named and
left out; what was recorded of it before stays. Exits 1 if a page fails.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .record import RESULTS, ROOT, content_hashes, environment

PAGES = ROOT / "examples" / "gallery"
FOLDER = RESULTS / "gallery"
ON_NUMPY = "xp = np  # on a GPU: import cupy as xp"
ON_GPU = "import cupy as xp"
_AT_ONCE = 8  # in the first round: as many hold a context on the device, and compile
_COLOURS = 256  # of a picture: a quarter of the bytes


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


def rounds(names: Sequence[str]) -> Iterable[tuple[str, dict[str, Any]]]:
    """Run pages twice, the second time one by one, and return what came of that."""
    for at_once in (_AT_ONCE, 1):  # a context of the device is of one process: spawn, not fork
        with ProcessPoolExecutor(
            at_once, mp_context=get_context("spawn"), max_tasks_per_child=1
        ) as pool:
            results = pool.map(attempt, names)
            if at_once == 1:
                yield from zip(names, results, strict=True)
            else:
                list(results)


def write(found: Mapping[str, Mapping[str, Any]], about: Mapping[str, str], folder: Path) -> Path:
    """Replace the recordings of these pages, drop those of pages that are gone."""
    stem = about["gpu"].lower().replace(" ", "-")
    path, pictures = folder / f"{stem}.json", folder / stem
    pictures.mkdir(parents=True, exist_ok=True)
    recorded = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name, result in found.items():
        cells = {}
        for number, cell in enumerate(result["cells"]):
            files = [f"{name}-{number}-{i}.png" for i in range(len(cell["pictures"]))]
            for file, picture in zip(files, cell["pictures"], strict=True):
                (pictures / file).write_bytes(picture)
            if cell["text"] or files:
                cells[str(number)] = {"text": cell["text"], "pictures": files}
        recorded[name] = {
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "content": dict(content_hashes()),
            "environment": dict(about),
            "source": result["source"],
            "seconds": result["seconds"],
            "cells": cells,
        }
    there = {page.stem for page in PAGES.glob("*.py")}
    recorded = {name: page for name, page in recorded.items() if name in there}
    kept = {
        file
        for page in recorded.values()
        for cell in page["cells"].values()
        for file in cell["pictures"]
    }
    for file in pictures.glob("*.png"):
        if file.name not in kept:
            file.unlink()
    temporary = path.with_suffix(".tmp")
    temporary.write_text(
        json.dumps(recorded, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    os.replace(temporary, path)
    return path


def main() -> int:
    """Run the named pages, or all, say how each ended, and write what they gave."""
    pages = sorted(path.stem for path in PAGES.glob("*.py"))
    parser = argparse.ArgumentParser(prog="python -m tools.gallery", description=__doc__)
    parser.add_argument("page", nargs="*", help="page of examples/gallery (default: all)")
    names = parser.parse_args().page or pages
    for name in names:
        if name not in pages:
            parser.error(f"expected a page of {', '.join(pages)}, got {name}")
    about, failed = environment(), False
    for name, result in rounds(names):
        failed |= "failed" in result
        if "cells" in result:  # each by itself: a run that is cut short keeps what it has
            said = f"{result['seconds']} s, recorded in {write({name: result}, about, FOLDER)}"
        else:
            ((how, why),) = result.items()
            said = f"{how}: {why}"
        print(f"{name}: {said}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
