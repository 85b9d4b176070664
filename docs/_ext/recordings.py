"""What the gallery gave on a GPU (``tools/gallery.py``), in tabs beside what it gives on NumPy."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import nbformat

from tools.gallery import FOLDER, digest
from tools.record import is_of_these_sources

#: Files beside a page, by name.
Files = dict[str, bytes]


def of_page(script: Path, folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Return what was recorded of a script as it is now, by the stem of the GPU's file."""
    source = digest(script.read_text(encoding="utf-8"))
    found = {}
    for path in sorted(folder.glob("*.json")):
        page = json.loads(path.read_text(encoding="utf-8")).get(script.stem)
        if page and page["source"] == source:  # else its outputs are of other lines
            found[path.stem] = page
    return found


def with_tabs(
    notebook: Any, name: str, recorded: dict[str, dict[str, Any]], folder: Path = FOLDER
) -> Files:
    """Put the outputs of cells that gave others on a GPU into tabs; return what these show.

    A cell that printed the same and drew nothing keeps its output as it is.
    """
    files: Files = {}
    cells: list[Any] = []
    shown: set[str] = set()
    number = -1
    for cell in notebook.cells:
        cells.append(cell)
        if cell.cell_type != "code":
            continue
        number += 1
        text, pictures = _outputs(cell)
        gpus = [gpu for gpu, page in recorded.items() if _differs(page, number, text)]
        if not gpus:
            continue
        names = [f"{name}-{number}-{i}.png" for i in range(len(pictures))]
        files |= zip(names, pictures, strict=True)
        items = [_tab("NumPy", "numpy", text, names)]
        for gpu in gpus:
            there = recorded[gpu]["cells"][str(number)]
            names = [f"{gpu}-{file}" for file in there["pictures"]]
            pictures = [(folder / gpu / file).read_bytes() for file in there["pictures"]]
            files |= zip(names, pictures, strict=True)
            items.append(_tab(_name(recorded[gpu]), gpu, there["text"], names))
        cell.outputs = []
        source = "\n".join(["`````{tab-set}", ":sync-group: device", "", *items, "`````"])
        cells.append(nbformat.v4.new_markdown_cell(source, id=f"tabs-{number}"))
        shown.update(gpus)
    notebook.cells = cells
    if shown:
        said = [_said(page) for gpu, page in recorded.items() if gpu in shown]
        notebook.cells[0].source += (
            "\n\nTabs beside NumPy's output show what the same cells gave on a GPU, with the "
            f"marked line changed: {' and '.join(said)}."
        )
    return files


def _outputs(cell: Any) -> tuple[str, list[bytes]]:
    """Return what a cell of a notebook printed, and its pictures."""
    text = "".join(out.text for out in cell.outputs if out.get("name") == "stdout")
    data = [out.data for out in cell.outputs if "data" in out]
    return text, [base64.b64decode(shown["image/png"]) for shown in data if "image/png" in shown]


def _differs(page: dict[str, Any], number: int, text: str) -> bool:
    there = page["cells"].get(str(number))
    return there is not None and bool(there["pictures"] or there["text"] != text)


def _tab(title: str, sync: str, text: str, pictures: list[str]) -> str:
    lines = [f"````{{tab-item}} {title}", f":sync: {sync}", ""]
    if text:
        lines += ["~~~text", text.rstrip("\n"), "~~~", ""]
    lines += [f"![what the cell draws, {title}]({file})\n" for file in pictures]
    return "\n".join([*lines, "````"])


def _name(page: dict[str, Any]) -> str:
    name: str = page["environment"]["gpu"]
    return name


def _said(page: dict[str, Any]) -> str:
    """Return on which GPU a page was recorded, and when."""
    sources = "" if is_of_these_sources(page) else ", before later changes of the library"
    return f"{_name(page)} ({page['date']}{sources})"
