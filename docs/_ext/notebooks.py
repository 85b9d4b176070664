"""The gallery on the site: its scripts are run as notebooks, and a page of cards leads to them.

What is run are the scripts in ``examples/gallery``, on NumPy. A notebook whose script and library
are unchanged is not run again; one that says ``skipped`` is left out. Beside its outputs are those
that were recorded on a GPU (``recordings.py``).
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import recordings
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "gallery"
#: The pages by what brings people here.
GROUPS = {
    "First products": ("first_steps", "from_other_libraries", "moving_weights", "how_exact"),
    "Meshes, grids and graphs": (
        "elasticity_solvers",
        "vibration_modes",
        "reaction_diffusion",
        "graph_order",
    ),
    "Networks": ("pruning_digits", "sentence_encoder", "pruning_attention", "attention_masks"),
    "Formats, kernels and speed": (
        "two_four_bit_by_bit",
        "fast_kernel",
        "tune_and_roofline",
        "own_kernel",
    ),
}
log = logging.getLogger(__name__)
_SECONDS = 300  # longest for a cell
_AT_ONCE = 2
_LIMIT_S = 480  # for all that are run; on 2 cores they take three minutes
_INDEX = """# Gallery

Each page has one message, a picture, and a number that is held to the accuracy bound. The data are
real, or come from the equations of a real problem, but where time is the message: the matrices of
[the masks](attention_masks.ipynb), [the kernels](fast_kernel.ipynb) and
[the roofline](tune_and_roofline.ipynb) have random values, which change no time.

The pages are scripts in `examples/gallery` (jupytext's percent format) and were run on NumPy for
this site. [Install](../install.md#the-gallery) says how to run or open one. Where a page was
recorded on a GPU, that output is in tabs beside NumPy's.
"""


def build(app: Sphinx) -> None:
    """Run every script of the gallery, and write its notebooks, thumbnails and cards."""
    folder = Path(app.srcdir) / "gallery"
    folder.mkdir(exist_ok=True)
    cache = Path(app.srcdir) / "_build" / "notebooks"  # as they were run
    cache.mkdir(parents=True, exist_ok=True)
    version = hashlib.sha256()
    for path in sorted((ROOT / "sparsegpu").rglob("*.py")):
        version.update(path.read_bytes())
    scripts = [SCRIPTS / f"{stem}.py" for group in GROUPS.values() for stem in group]
    cards: dict[str, str] = {}
    files: recordings.Files = {}
    began = time.monotonic()
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # each notebook is run by a process of its own
        notebooks = list(pool.map(lambda script: _ran(script, cache, version.copy()), scripts))
    check_time(time.monotonic() - began, {s.stem: n for s, n in zip(scripts, notebooks)})
    for script, notebook in zip(scripts, notebooks, strict=True):
        if notebook is None:
            continue
        picture = max(_pictures(notebook), key=len)  # the one with the most to see
        files[f"{script.stem}.png"] = picture
        title, _, message = notebook.cells[0].source.partition("\n")[0][2:].partition(": ")
        cards[script.stem] = (
            f":::{{grid-item-card}} {title}\n:link: {script.stem}\n:link-type: doc\n"
            f":img-top: {script.stem}.png\n:img-alt: a picture of this page\n\n"
            f"{message[:1].upper()}{message[1:]}\n:::\n"
        )
        found = recordings.of_page(script)
        files |= recordings.with_tabs(notebook, script.stem, found)
        files[f"{script.stem}.ipynb"] = nbformat.writes(notebook).encode()
    files["index.md"] = index(cards).encode()
    for path in folder.iterdir():
        if path.is_file() and path.name not in files:
            path.unlink()
    for name, content in files.items():
        _replace(folder / name, content)


def index(cards: dict[str, str]) -> str:
    """Return the page of the cards of the pages that were run, in their groups."""
    parts = [_INDEX]
    for heading, stems in GROUPS.items():
        there = "".join(cards[stem] for stem in stems if stem in cards)
        parts.append(f"\n## {heading}\n\n::::{{grid}} 1 2 4 4\n:gutter: 3\n\n{there}::::\n")
    return "\n".join([*parts, "```{toctree}", ":hidden:", "", *cards, "```", ""])


def check_time(took: float, notebooks: dict[str, Any]) -> None:
    """Refuse a gallery that takes longer than somebody waits for it.

    Raises
    ------
    ExtensionError
        Naming the slowest pages.
    """
    log.info("the gallery: %.0f s", took)
    if took <= _LIMIT_S:
        return
    seconds = {name: n.metadata.get("seconds", 0) for name, n in notebooks.items() if n}
    slowest = sorted(seconds, key=seconds.__getitem__, reverse=True)[:3]
    named = ", ".join(f"{name} {seconds[name]:.0f} s" for name in slowest)
    raise ExtensionError(f"the gallery took {took:.0f} s, not {_LIMIT_S}; slowest: {named}")


def _ran(script: Path, cache: Path, version: Any) -> Any:
    """Return the notebook of a script with its outputs, None if what it needs is not installed."""
    version.update(script.read_bytes())
    target = cache / f"{script.stem}.ipynb"
    if target.exists():
        notebook = nbformat.read(target, as_version=4)
        if notebook.metadata.get("ran") == version.hexdigest():
            return notebook
    log.info("running %s", script.name)
    began = time.monotonic()
    notebook = jupytext.read(script)
    with tempfile.TemporaryDirectory() as elsewhere:
        client = NotebookClient(notebook, timeout=_SECONDS, extra_arguments=["--log-level=40"])
        client.resources["metadata"] = {"path": elsewhere}
        try:
            client.execute()
        except CellExecutionError as error:
            if error.ename != "SystemExit":
                raise
            log.info("%s: %s", script.name, error.evalue)
            return None
    notebook.metadata["ran"] = version.hexdigest()
    notebook.metadata["seconds"] = time.monotonic() - began
    nbformat.write(notebook, target)
    return notebook


def _pictures(notebook: Any) -> list[bytes]:
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    pictures = [out.data["image/png"] for out in outputs if "image/png" in out.get("data", {})]
    return [base64.b64decode(picture) for picture in pictures]


def _replace(path: Path, content: bytes) -> None:
    """Write a file if its content changes: Sphinx reads again what is newer than its cache."""
    if not (path.exists() and path.read_bytes() == content):
        path.write_bytes(content)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("builder-inited", build)
    return {"parallel_read_safe": True}
