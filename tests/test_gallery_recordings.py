"""What the gallery gave on a GPU: recorded without Jupyter, shown while the page is that one."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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
    (picture,) = recorded["page"]["cells"]["1"].pop("pictures")
    assert picture.startswith("page-1-0-") and recorded["page"]["cells"] == {"1": {"text": ""}}
    assert recorded["page"]["content"] == content_hashes()
    assert recorded["page"]["environment"] == ABOUT
    files = {file.name: file.read_bytes() for file in (tmp_path / "nvidia-h200").iterdir()}
    assert files == {
        **dict(zip(recorded["other"]["cells"]["0"]["pictures"], (b"x", b"y"), strict=True)),
        picture: b"z",
    }


def test_what_was_recorded_stays_whole_until_it_is_replaced(pages, tmp_path, monkeypatch):
    """A run that is killed in between has not touched the pictures that are named."""
    first = {"source": "a", "seconds": 1.0, "cells": [{"text": "", "pictures": [b"x", b"y"]}]}
    path = gallery.write({"page": first}, ABOUT, tmp_path)
    before = json.loads(path.read_text())

    def killed(about):
        raise KeyboardInterrupt

    monkeypatch.setattr(gallery, "stamp", killed)
    second = first | {"cells": [{"text": "", "pictures": [b"z", b"y"]}]}
    with pytest.raises(KeyboardInterrupt):
        gallery.write({"page": second}, ABOUT, tmp_path)
    assert json.loads(path.read_text()) == before
    named = before["page"]["cells"]["0"]["pictures"]
    assert [(path.with_suffix("") / name).read_bytes() for name in named] == [b"x", b"y"]


def test_runs_on_several_gpus_write_at_once(pages, tmp_path):
    names = [f"page_{i}" for i in range(24)]
    for name in names:
        (pages / f"{name}.py").write_text(PAGE, encoding="utf-8")

    def write(name):
        cells = [{"text": "", "pictures": [name.encode()]}]
        gallery.write({name: {"source": "a", "seconds": 1.0, "cells": cells}}, ABOUT, tmp_path)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, names))
    recorded = json.loads((tmp_path / "nvidia-h200.json").read_text())
    assert sorted(recorded) == sorted(names)
    for name, page in recorded.items():
        (picture,) = page["cells"]["0"]["pictures"]
        assert (tmp_path / "nvidia-h200" / picture).read_bytes() == name.encode()
    assert len(list((tmp_path / "nvidia-h200").iterdir())) == len(names)


#: Runs `tools.gallery` in processes that also read this, with NumPy in place of CuPy.
DRIVER = """\
import sys
from pathlib import Path

from tools import gallery

gallery.PAGES, gallery.FOLDER = Path("pages").resolve(), Path("results").resolve()
gallery.ON_GPU = "xp = np"
gallery.environment = lambda: {"gpu": "A GPU"}
if __name__ == "__main__":
    sys.exit(gallery.main(sys.argv[1:]))
"""


def test_pages_run_in_processes_of_their_own(pages, tmp_path):
    """One that ends its process fails alone; a run that ends early keeps what was recorded."""
    (tmp_path / "driver.py").write_text(DRIVER, encoding="utf-8")
    (pages / "dies.py").write_text("# %%\nimport os\nos.abort()\n", encoding="utf-8")

    def run(*words):
        command = [sys.executable, "driver.py", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    ran = run()
    assert ran.returncode == 1 and "dies: failed: its process died\n" in ran.stdout, ran.stderr
    recorded = json.loads((tmp_path / "results" / "a-gpu.json").read_text(encoding="utf-8"))
    assert recorded["page"]["source"] == gallery.digest(PAGE) and "dies" not in recorded

    ran = run("--limit", "0")
    assert ran.returncode == 1 and "page: not begun: time was up\n" in ran.stdout, ran.stderr
    assert recorded == json.loads((tmp_path / "results" / "a-gpu.json").read_text(encoding="utf-8"))


def test_a_run_keeps_what_it_has(pages, tmp_path, monkeypatch, capsys):
    def rounds(names, limit):
        yield "page", {"source": "a", "seconds": 1.5, "cells": [{"text": "1\n", "pictures": []}]}
        assert sorted(json.loads((tmp_path / "nvidia-h200.json").read_text())) == ["page"]
        yield "other", {"left out": "no such package"}
        if names == ["page"]:
            yield "third", {"failed": "ValueError: wrong"}

    monkeypatch.setattr(gallery, "rounds", rounds)
    monkeypatch.setattr(gallery, "environment", lambda: ABOUT)
    monkeypatch.setattr(gallery, "FOLDER", tmp_path)
    assert gallery.main(["page"]) == 1
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("page: 1.5 s, recorded in ")
    assert others == ["other: left out: no such package", "third: failed: ValueError: wrong"]
    with pytest.raises(SystemExit):
        gallery.main(["none"])


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
    (picture,) = found["nvidia-h200"]["cells"]["2"]["pictures"]
    assert files == {"page-2-0.png": b"on NumPy", f"nvidia-h200-{picture}": b"on the GPU"}
    title, same, time, time_tabs, drawn, drawn_tabs = page.cells
    assert "NVIDIA H200 (" in title.source and "later changes" not in title.source
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
    assert ", before later changes of the library)." in page.cells[0].source


def test_no_recording_of_another_text_of_the_page(recordings, recorded, pages):
    (pages / "page.py").write_text(f"{PAGE}# one more line\n", encoding="utf-8")
    assert recordings.of_page(pages / "page.py", recorded) == {}
    page = notebook(("7 ms\n", None))
    assert recordings.with_tabs(page, "page", {}, recorded) == {}
    assert len(page.cells) == 2 and page.cells[1].outputs[0].text == "7 ms\n"


def test_what_is_committed_is_whole_and_small():
    files = {path for path in gallery.FOLDER.rglob("*") if path.is_file()}
    files -= set(gallery.FOLDER.glob("*.lock"))  # which git ignores
    assert sum(path.stat().st_size for path in files) < 2e6
    named = set()
    for path in gallery.FOLDER.glob("*.json"):
        named.add(path)
        for page in json.loads(path.read_text(encoding="utf-8")).values():
            for cell in page["cells"].values():
                named |= {path.with_suffix("") / picture for picture in cell["pictures"]}
    assert files == named
