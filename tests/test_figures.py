"""The plots of the performance page, from a record with invented times."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from race_rows import judged, row
from sparsegpu.benchmark import cases
from sparsegpu.benchmark.case import Case
from sparsegpu.benchmark.peer import CUDNN, FLASH
from tools import readme
from tools.record import ROOT, content_hashes

SECTIONS = ("main", "attention", "2:4", "vectors", "solvers")


@pytest.fixture
def figures(monkeypatch):
    pytest.importorskip("sphinx.application")
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    return importlib.import_module("figures")


def measured(chosen: Iterable[Case]) -> list[dict]:
    """Return rows as JSON has them: a ms at density 1, and n + 2 times ours for the n-th peer."""
    peers: dict[str, dict[str, float]] = {}
    rows = []
    for case in chosen:
        ms = max(case.density, 1e-6)
        times = {peer: ms * (i + 2) for i, peer in enumerate(case.peers)}
        peers[case.name] = peers.get(case.peers_of, times)
        found = {
            "at_rate_of": {bar.of: 1.0 for bar in case.bars},
            "histories": {"ours": [1.0, 0.1]},
        }
        rows.append(row(case, ms, peers=peers[case.name], **found))
    as_read: list[dict] = json.loads(json.dumps(judged(chosen, rows)))
    return as_read


def record(*sections: str) -> dict:
    """Return the race of some sections as a record has it."""
    about = {"gpu": "NVIDIA X", "driver": "13000", "cuda_runtime": "13000", "cupy": "14.2.0"}
    common = {"date": "2026-01-01", "content": content_hashes(), "environment": about}
    return {
        section: {"rows": measured(list(cases.cases([section]))), "copy GB/s": 4e3} | common
        for section in sections
    }


def test_every_section_has_its_plot_as_soon_as_it_is_recorded(figures, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    assert {section for section, _ in figures.PLOTS.values()} == set(SECTIONS)
    race = record(*SECTIONS)
    (tmp_path / "nvidia-x.json").write_text(json.dumps({"race": race}))
    figures.draw(SimpleNamespace(srcdir=tmp_path))
    drawn = {path.name for path in (tmp_path / "generated").iterdir()}
    plots = {f"{name}-nvidia-x.svg" for name in figures.PLOTS}
    assert drawn == {*plots, "roofline-nvidia-x.png"}
    page = "\n".join(readme.race_figures({"race": race}, "nvidia-x.json"))
    assert all(f"(generated/{name})" in page for name in drawn)
    del race["attention"]
    page = "\n".join(readme.race_figures({"race": race}, "nvidia-x.json"))
    assert "attention" not in page and "(generated/blocks-nvidia-x.svg)" in page


def test_attention_by_density(figures):
    from matplotlib.figure import Figure

    figure = Figure()
    rows = record("attention")["attention"]["rows"]
    figures.attention(figure, rows)
    faster, rates, time = figure.axes
    # A point a mask: other tiles of its case and host times are left out.
    masks = [
        case
        for case in cases.cases(["attention"])
        if case.bars and not case.path and not case.dropout and case.measure == "device"
    ]
    assert sum(len(line.get_xdata()) for line in rates.lines) == len(masks)
    beside = [line for line in faster.lines if line.get_marker() == "o"]
    assert sum(len(line.get_xdata()) for line in beside) == sum(bool(c.peers) for c in masks)
    assert {y for line in beside for y in line.get_ydata()} == {2.0}
    blocks = [text.get_text() for text in figure.legends[0].get_texts()]
    assert blocks == ["1 x 64", "16 x 16", "32 x 32", "64 x 64", "128 x 128"]
    assert len({line.get_color() for line in rates.lines}) == len(blocks)
    ours, dense = time.lines
    assert list(ours.get_xdata()) == list(ours.get_ydata()) == [0.02, 0.05, 0.1, 0.2, 0.5, 1]
    full = next(r for r in rows if r["density"] == 1)
    assert set(dense.get_ydata()) == {min(full["peers"][name] for name in (CUDNN, FLASH))}


def test_blocks_by_density(figures):
    from matplotlib.figure import Figure

    figure = Figure()
    figures.blocks(figure, record("main")["main"]["rows"])
    for ax, times in zip(figure.axes, (2, 3), strict=True):  # dense is the first peer
        lines = [line for line in ax.lines if line.get_marker() == "o"]
        assert [line.get_label() for line in lines] == [
            f"{size} x {size}" for size in (16, 32, 64, 128)
        ]
        for line in lines:
            assert list(line.get_xdata()) == [0.05, 0.1, 0.5]
            assert list(line.get_ydata()) == pytest.approx([times] * 3)
