"""The gallery: each notebook runs on NumPy, draws something and has its one line for a GPU."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import sparsegpu

GALLERY = Path(sparsegpu.__file__).parents[1] / "examples" / "gallery"
NOTEBOOKS = sorted(path.stem for path in GALLERY.glob("*.py"))

#: Runs a notebook, then looks at the figures that it left: an empty one would be of one colour.
RUN = """
import runpy, sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
plt.show = lambda: None
runpy.run_path(sys.argv[1])
figures = [plt.figure(number) for number in plt.get_fignums()]
assert figures, "nothing was drawn"
for figure in figures:
    for ax in figure.axes:
        assert ax.has_data(), f"figure {figure.number} has empty axes"
    figure.canvas.draw()
    image = np.asarray(figure.canvas.buffer_rgba())
    assert len(np.unique(image.reshape(-1, 4), axis=0)) > 8
    figure.savefig(f"{figure.number}.png")
"""


def test_there_are_notebooks_and_only_as_scripts():
    assert {"first_steps", "two_four_bit_by_bit", "attention_masks", "elasticity_solvers"} <= set(
        NOTEBOOKS
    )
    assert not list(GALLERY.rglob("*.ipynb"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells(name):
    lines = (GALLERY / f"{name}.py").read_text(encoding="utf-8").splitlines()
    cells = [i for i, line in enumerate(lines) if line.startswith("# %%")]
    assert {lines[i] for i in cells} == {"# %%", "# %% [markdown]"}
    assert lines[cells[0]] == "# %% [markdown]" and lines[cells[0] + 1].startswith("# # ")
    assert sum(line.startswith("# # ") for line in lines) == 1
    assert [line for line in lines if "on a GPU" in line] == [
        "xp = np  # on a GPU: import cupy as xp"
    ]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_number_is_held_to_the_bound(name):
    text = (GALLERY / f"{name}.py").read_text(encoding="utf-8")
    held = re.search(r"assert_within_bound|assert_attention_close|accuracy_bound", text)
    assert held or name in {"own_kernel", "two_four_bit_by_bit"}  # of integers: equal, to the bit


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, tmp_path):
    pytest.importorskip("matplotlib")
    path = os.pathsep.join(filter(None, [str(GALLERY.parents[1]), os.environ.get("PYTHONPATH")]))
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, str(GALLERY / f"{name}.py")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if ran.stderr.startswith("skipped: "):
        pytest.skip(ran.stderr.strip())
    assert ran.returncode == 0, ran.stderr


@pytest.fixture
def notebooks(monkeypatch):
    for needed in ("jupytext", "nbclient", "sphinx"):
        pytest.importorskip(needed)
    monkeypatch.syspath_prepend(str(GALLERY.parents[1] / "docs" / "_ext"))
    return importlib.import_module("notebooks")


def test_every_page_has_its_place_among_the_cards(notebooks):
    placed = [stem for group in notebooks.GROUPS.values() for stem in group]
    assert sorted(placed) == sorted(NOTEBOOKS)
    page = notebooks.index({stem: f"card of {stem}\n" for stem in placed if stem != "own_kernel"})
    assert all(f"## {heading}\n" in page for heading in notebooks.GROUPS)
    assert [line[8:] for line in page.splitlines() if line.startswith("card of ")] == placed[:-1]
    assert page.split(":hidden:\n\n")[1].splitlines()[:-1] == placed[:-1]


def test_a_gallery_that_takes_too_long_is_refused(notebooks):
    ran = {f"page_{s}": SimpleNamespace(metadata={"seconds": s}) for s in (5.0, 200.0, 90.0, 7.0)}
    ran["left_out"] = None
    notebooks.check_time(479.0, ran)
    with pytest.raises(Exception, match=r"took 481 s, not 480; slowest: page_200.0 200 s, page_90"):
        notebooks.check_time(481.0, ran)
