"""What the gallery gave on a GPU: recorded without Jupyter, shown while the page is that one."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

import sparsegpu
from tools import gallery
from tools.record import content_hashes

ROOT = Path(sparsegpu.__file__).parents[1]
PAGES = sorted(gallery.PAGES.glob("*.py"))
ABOUT = {"gpu": "NVIDIA H200", "cupy": "14.2.0"}
PAGE = f"""# %% [markdown]
# # A page: of two cells

# %%
import numpy as np

{gallery.ON_NUMPY}
def line():
    return np.arange(3)

# %%
import inspect
import matplotlib.pyplot as plt
print(inspect.getsource(line))
plt.plot(line())
plt.show()
plt.plot(-line())

# %%
assert line().sum() == 3
"""


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """Return a folder that stands for the gallery, where NumPy stands for CuPy."""
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr(plt, "show", plt.show)  # the recorder replaces it
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "page.py").write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(gallery, "PAGES", folder)
    monkeypatch.setattr(gallery, "ON_GPU", "xp = np; print('on a GPU')")
    return folder


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_cells_are_those_of_the_notebook(path):
    jupytext = pytest.importorskip("jupytext")
    cells = jupytext.read(path).cells
    expected = [cell.source for cell in cells if cell.cell_type == "code"]
    source = path.read_text(encoding="utf-8")
    assert [cell.strip() for cell in gallery.code_cells(source)] == expected
    for cell in gallery.code_cells(source):  # an error and inspect.getsource name lines of the page
        number = next(i for i, line in enumerate(cell.split("\n")) if line)
        assert source.splitlines()[number] == cell.split("\n")[number]


def test_a_page_is_run_cell_by_cell(pages):
    ran = gallery.attempt("page")
    assert ran["source"] == gallery.digest(PAGE)
    first, second, third = ran["cells"]
    assert first == {"text": "on a GPU\n", "pictures": []}
    assert second["text"] == "def line():\n    return np.arange(3)\n\n"
    assert [picture[:4] for picture in second["pictures"]] == [b"\x89PNG"] * 2
    assert third == {"text": "", "pictures": []}


@pytest.mark.parametrize(
    ("line", "ended"),
    [
        ("import no_such_package", {"left out": "No module named 'no_such_package'"}),
        ("raise SystemExit('skipped: pip install it')", {"left out": "skipped: pip install it"}),
        ("assert 1 > 2, 'too large'", {"failed": "AssertionError: too large"}),
    ],
)
def test_a_page_that_cannot_be_recorded_says_why(pages, line, ended):
    (pages / "page.py").write_text(f"{PAGE}\n# %%\n{line}\n", encoding="utf-8")
    assert gallery.attempt("page") == ended


def test_what_is_written_replaces_the_page_alone(pages, tmp_path):
    (pages / "other.py").write_text(PAGE, encoding="utf-8")
    gone = {"source": "", "seconds": 1.0, "cells": [{"text": "", "pictures": [b"gone"]}]}
    first = {"source": "a", "seconds": 1.0, "cells": [{"text": "1\n", "pictures": [b"x", b"y"]}]}
    path = gallery.write({"page": first, "other": first, "gone": gone}, ABOUT, tmp_path)
    assert path.name == "nvidia-h200.json"
    empty = {"text": "", "pictures": []}
    second = first | {"cells": [empty, {"text": "", "pictures": [b"z"]}]}
    gallery.write({"page": second}, ABOUT, tmp_path)
    recorded = json.loads(path.read_text())
    assert sorted(recorded) == ["other", "page"]
    assert recorded["page"]["cells"] == {"1": {"text": "", "pictures": ["page-1-0.png"]}}
    assert recorded["page"]["content"] == content_hashes()
    assert recorded["page"]["environment"] == ABOUT
    files = {file.name: file.read_bytes() for file in (tmp_path / "nvidia-h200").iterdir()}
    assert files == {"other-0-0.png": b"x", "other-0-1.png": b"y", "page-1-0.png": b"z"}


def test_a_run_keeps_what_it_has(pages, tmp_path, monkeypatch, capsys):
    def rounds(names):
        yield "page", {"source": "a", "seconds": 1.5, "cells": [{"text": "1\n", "pictures": []}]}
        assert sorted(json.loads((tmp_path / "nvidia-h200.json").read_text())) == ["page"]
        yield "other", {"left out": "no such package"}
        if names == ["page"]:
            yield "third", {"failed": "ValueError: wrong"}

    monkeypatch.setattr(gallery, "rounds", rounds)
    monkeypatch.setattr(gallery, "environment", lambda: ABOUT)
    monkeypatch.setattr(gallery, "FOLDER", tmp_path)
    monkeypatch.setattr("sys.argv", ["gallery", "page"])
    assert gallery.main() == 1
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("page: 1.5 s, recorded in ")
    assert others == ["other: left out: no such package", "third: failed: ValueError: wrong"]
    monkeypatch.setattr("sys.argv", ["gallery", "none"])
    with pytest.raises(SystemExit):
        gallery.main()


def notebook(*outputs):
    nbformat = pytest.importorskip("nbformat.v4")
    cells = [nbformat.new_markdown_cell("# A page: of cells")]
    for text, picture in outputs:
        shown = [nbformat.new_output("stream", name="stdout", text=text)] if text else []
        if picture:
            data = {"image/png": base64.b64encode(picture).decode()}
            shown.append(nbformat.new_output("display_data", data=data))
        cells.append(nbformat.new_code_cell("...", outputs=shown))
    return nbformat.new_notebook(cells=cells)


@pytest.fixture
def recordings(monkeypatch):
    pytest.importorskip("nbformat")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    return __import__("recordings")


@pytest.fixture
def recorded(pages, tmp_path):
    cells = [("same\n", None), ("0.1 ms\n", None), ("", b"on the GPU")]
    found = {
        "source": gallery.digest(PAGE),
        "seconds": 1.0,
        "cells": [{"text": text, "pictures": [p] if p else []} for text, p in cells],
    }
    gallery.write({"page": found}, ABOUT, tmp_path)
    return tmp_path


def test_tabs_where_a_gpu_gave_something_else(recordings, recorded, pages):
    page = notebook(("same\n", None), ("7 ms\n", None), ("", b"on NumPy"))
    found = recordings.of_page(pages / "page.py", recorded)
    files = recordings.with_tabs(page, "page", found, recorded)
    assert files == {"page-2-0.png": b"on NumPy", "nvidia-h200-page-2-0.png": b"on the GPU"}
    title, same, time, time_tabs, drawn, drawn_tabs = page.cells
    assert "NVIDIA H200" in title.source and "these sources" in title.source
    assert same.outputs[0].text == "same\n"
    assert not time.outputs and not drawn.outputs
    assert time_tabs.source.index("7 ms") < time_tabs.source.index("0.1 ms")
    for file in files:
        assert f"({file})" in drawn_tabs.source


def test_earlier_sources_are_named(recordings, recorded, pages):
    path = recorded / "nvidia-h200.json"
    content = json.loads(path.read_text())
    content["page"]["content"]["cuda_src"] = "another"
    path.write_text(json.dumps(content))
    page = notebook(("7 ms\n", None))
    recordings.with_tabs(page, "page", recordings.of_page(pages / "page.py", recorded), recorded)
    assert "earlier sources" in page.cells[0].source


def test_no_recording_of_another_text_of_the_page(recordings, recorded, pages):
    (pages / "page.py").write_text(f"{PAGE}# one more line\n", encoding="utf-8")
    assert recordings.of_page(pages / "page.py", recorded) == {}
    page = notebook(("7 ms\n", None))
    assert recordings.with_tabs(page, "page", {}, recorded) == {}
    assert len(page.cells) == 2 and page.cells[1].outputs[0].text == "7 ms\n"


def test_what_is_committed_is_whole_and_small():
    files = {path for path in gallery.FOLDER.rglob("*") if path.is_file()}
    assert sum(path.stat().st_size for path in files) < 2e6
    named = set()
    for path in gallery.FOLDER.glob("*.json"):
        named.add(path)
        for page in json.loads(path.read_text(encoding="utf-8")).values():
            for cell in page["cells"].values():
                named |= {path.with_suffix("") / picture for picture in cell["pictures"]}
    assert files == named
