"""Pictures: what is stored must be seen, on a matrix of any size and on light and dark pages."""

from __future__ import annotations

import builtins
import xml.etree.ElementTree
from functools import partial

import numpy as np
import pytest
import scipy.sparse

from sparsegpu import bsr_array, prune_24, random_bsr, to_semi_structured
from sparsegpu.testing import to_host

PAGES = {"default": 1.0, "dark_background": 0.0}  # matplotlib's styles, the luminance behind them
SEEN = 1.25  # contrast ratio (WCAG's) from which on a patch is told from the page
CLEAR = 3.0  # the least that WCAG asks of graphics


def laplacian(engine, n=40):
    """Return a 3-D Laplacian times 3x3 blocks of ones: 64,000 block rows for n = 40."""
    line = scipy.sparse.diags_array(
        [-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n), dtype=float
    )
    one = scipy.sparse.eye_array(n)
    grid = scipy.sparse.kron(scipy.sparse.kron(line, one), one)
    grid += scipy.sparse.kron(scipy.sparse.kron(one, line), one)
    grid += scipy.sparse.kron(scipy.sparse.kron(one, one), line)
    a = bsr_array(scipy.sparse.bsr_array(scipy.sparse.kron(grid, np.ones((3, 3)), format="bsr")))
    return a.to_device() if engine.on_gpu else a


def scattered(engine, blocks):
    """Return a matrix with one 1x1 block in each row and in each column."""
    columns = engine.array(np.random.default_rng(0).permutation(blocks))
    xp = engine.xp
    return bsr_array((xp.ones((blocks, 1, 1)), columns, xp.arange(blocks + 1)), (blocks, blocks))


def contrast(colours, page):
    """Return the contrast ratio of sRGB colours (..., 3) in 0..1 with a page of this luminance."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    both = np.stack([luminance, np.full_like(luminance, page)]) + 0.05
    return both.max(axis=0) / both.min(axis=0)


@pytest.fixture(params=PAGES)
def plt(request):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.style.context(request.param):
        plt.page = PAGES[request.param]
        yield plt
        plt.close("all")


def pixels(ax, x, y):
    """Draw, and return where points of the Axes lie in the image, and the image's contrast."""
    ax.spines[:].set_visible(False)  # a frame is no block
    ax.figure.canvas.draw()
    image = np.asarray(ax.figure.canvas.buffer_rgba())[::-1, :, :3] / 255
    column, row = ax.transData.transform(np.stack([x, y], axis=1)).T
    return row, column, image


def seen(ax, a, page):
    """Return the best contrast within a pixel of each stored block's place."""
    rows, columns = to_host(a.pattern.rows), to_host(a.indices)
    row, column, image = pixels(ax, columns, rows)
    ratio = contrast(image, page)
    near = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    found = [ratio[(row + dy).astype(int), (column + dx).astype(int)] for dy, dx in near]
    return np.max(found, axis=0)


def arrow(engine):
    """Return a full row and a diagonal: cells of it are hundreds of times as full as others."""
    dense = np.eye(1200)
    dense[0] = 1
    return bsr_array(engine.array(dense), blocksize=(1, 1))


MATRICES = {
    "laplacian": laplacian,
    "10": partial(scattered, blocks=10),
    "3000": partial(scattered, blocks=3000),
    "10**6": partial(scattered, blocks=10**6),
    "arrow": arrow,
}


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_every_block_is_seen(engine, plt, matrix):
    a = matrix(engine)
    found = seen(a.spy(), a, plt.page)
    assert found.min() > SEEN and found.max() > CLEAR


@pytest.mark.parametrize("side", [1, 3])
def test_every_block_is_seen_in_small_axes(engine, plt, side):
    a = scattered(engine, 500)
    _, axes = plt.subplots(side, side, squeeze=False)
    assert a.spy(axes[-1, 0]) is axes[-1, 0]
    assert seen(axes[-1, 0], a, plt.page).min() > SEEN


def drawn_by_each(figure):
    """Return the pixels (axes, height, width) that each Axes of a figure draws, with its texts."""
    figure.canvas.draw()
    figure.set_layout_engine("none")  # what is hidden would leave its place to others
    inks = []
    for ax in figure.axes:
        for other in figure.axes:
            other.set_visible(other is ax)
        figure.canvas.draw()
        image = np.asarray(figure.canvas.buffer_rgba())[:, :, :3]
        inks.append((image != image[0, 0]).any(axis=2))
    for ax in figure.axes:
        ax.set_visible(True)
    return np.array(inks)


def texts(ax):
    """Return the boxes of the texts that an Axes shows."""
    found = [ax.title]
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
        found += [axis.label, *(label for place, label in ticks if low <= place <= high)]
    return [text.get_window_extent() for text in found if text.get_text()]


@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize("grid", [(1, 4, 6.4, 4.8), (1, 4, 12, 3), (2, 2, 6.4, 4.8), (1, 3, 10, 4)])
def test_axes_side_by_side_cover_nothing_of_each_other(engine, plt, grid, layout):
    rows, columns, *size = grid
    figure, axes = plt.subplots(rows, columns, figsize=size, layout=layout)
    group = to_semi_structured(
        engine.xp.tile(engine.array(np.array([0, 1, 0, 1])), (64, 32)).astype("f2")
    )
    matrices = [scattered(engine, 10), scattered(engine, 10**6), arrow(engine), group]
    for ax, a in zip(axes.flat, matrices, strict=False):
        a.spy(ax)
    drawn = drawn_by_each(figure)
    assert drawn.any(axis=(1, 2)).all() and drawn.sum(axis=0).max() == 1
    border = np.ones(drawn.shape[1:], bool)
    border[1:-1, 1:-1] = False
    assert not (drawn & border).any()  # nothing is cut off
    for ax in figure.axes:
        boxes = texts(ax)
        assert len(boxes) > 3
        for i, box in enumerate(boxes):
            assert not box.count_overlaps(boxes[i + 1 :])
    for ax, a in zip(axes.flat, matrices[:2], strict=False):
        assert seen(ax, a, plt.page).min() > SEEN


def test_axes_alone_are_named_whatever_their_size(plt):
    for size in ((6.4, 4.8), (3, 3)):
        _, ax = plt.subplots(figsize=size, layout="constrained")
        assert bsr_array(np.eye(40), blocksize=(1, 1)).spy(ax).get_xlabel() == "block column"


@pytest.mark.parametrize("blocks", [9000, 64_000, 10**6])
def test_ticks_of_large_matrices_are_short(engine, plt, blocks):
    ax = scattered(engine, blocks).spy()
    ax.figure.canvas.draw()
    labels = [label.get_text() for label in ax.get_yticklabels()][1:]  # the first is outside
    assert max(map(len, labels)) <= 4
    assert any(label.endswith("k") for label in labels) == (blocks > 9000)


def test_what_is_not_stored_is_not_drawn(engine, plt):
    ax = laplacian(engine).spy()
    # Between the outermost bands, 1600 block rows from the diagonal, and the corners.
    y, x = np.mgrid[2000:62000:3000, 2000:62000:3000].reshape(2, -1)
    away = abs(x - y) > 2500
    row, column, image = pixels(ax, x[away], y[away])
    ratio = contrast(image, plt.page)[row.astype(int), column.astype(int)]
    np.testing.assert_array_less(ratio, 1.02)


def test_axes_are_in_blocks(engine, plt):
    a = bsr_array(engine.array(np.kron(np.eye(3), np.ones((2, 4)))), blocksize=(2, 4))
    ax = a.spy()
    assert ax.get_xlim() == (-0.5, 2.5) and ax.get_ylim() == (2.5, -0.5)
    assert ax.get_xlabel() == "block column" and ax.get_ylabel() == "block row"
    assert len(ax.figure.axes) == 1  # each cell is one block: nothing for a colour bar to say
    assert bsr_array((0, 4)).spy(ax) is ax


def test_ticks_are_whole_and_the_callers_stay(plt):
    a = bsr_array(np.ones((2, 2)), blocksize=(1, 1))
    ticks = a.spy().get_yticks()
    np.testing.assert_array_equal(ticks, np.round(ticks))
    _, ax = plt.subplots(subplot_kw={"xticks": [0], "yticks": []})
    assert [*a.spy(ax).get_xticks()] == [0] and not len(ax.get_yticks())


def test_a_colour_bar_says_what_shades_mean(engine, plt):
    a = laplacian(engine)
    _, bar = a.spy().figure.axes
    side = int(bar.get_ylabel().split()[-2])
    assert bar.get_ylabel() == f"stored share, a cell is up to {side} x {side} blocks"
    rows, columns = to_host(a.pattern.rows), to_host(a.indices)
    fullest = np.bincount(rows[rows // side == columns // side] // side).max() / side**2
    low, high = bar.get_ylim()
    assert low == 0 and 0.9 * fullest < high < 1.1 * fullest


@pytest.mark.parametrize("blocks", [1001, 64001])
def test_the_last_cells_are_as_large_as_others(engine, blocks):
    a = scattered(engine, blocks)
    a = bsr_array((engine.xp.ones((blocks, 1, 1)), engine.xp.arange(blocks), a.indptr), a.shape)
    cells, _ = opacities(a._repr_html_())
    assert np.diag(cells).min() > 0.9


@pytest.mark.parametrize("shape", [(4, 40_000), (40_000, 4)])
def test_long_matrices_fill_their_picture(engine, plt, shape):
    a = random_bsr(shape, (4, 4), 0.01, rng=0, xp=engine.xp)
    ax = a.spy()
    ax.figure.canvas.draw()
    box = ax.get_window_extent()
    assert min(box.width, box.height) > 100


def test_spy_refuses_what_is_no_axes():
    with pytest.raises(TypeError, match="spy: argument 'ax': expected a matplotlib Axes"):
        bsr_array((4, 4)).spy(5)


def test_spy_says_what_it_needs(monkeypatch):
    found = builtins.__import__

    def absent(name, *others):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return found(name, *others)

    monkeypatch.setattr(builtins, "__import__", absent)
    for a, name in ((bsr_array((4, 4)), "spy"), (weight(np.eye(32)), "SemiStructuredArray.spy")):
        with pytest.raises(ImportError, match=rf"^{name}: needs matplotlib: pip install"):
            a.spy()


# -- in notebooks ---------------------------------------------------------------------------------


def opacities(html):
    """Return the opacity of each cell of the picture in a piece of HTML."""
    svg = xml.etree.ElementTree.fromstring(html.replace("<br>", "<br/>")).find(".//svg")
    assert svg.get("preserveAspectRatio") == "none"
    _, _, wide, tall = map(int, svg.get("viewBox").split())
    cells = np.zeros((tall, wide))
    for square in svg.findall(".//rect"):
        x, y, width, height = (int(square.get(n)) for n in ("x", "y", "width", "height"))
        assert not cells[y : y + height, x : x + width].any()
        cells[y : y + height, x : x + width] = float(square.get("fill-opacity"))
    return cells, svg


@pytest.mark.parametrize("blocks", [1, 5, 48, 49, 1000])
def test_html_is_a_small_picture(engine, blocks):
    places = engine.xp.arange(blocks)
    parts = (engine.xp.ones((blocks, 1, 1)), places, engine.xp.arange(blocks + 1))
    html = bsr_array(parts, shape=(blocks, blocks))._repr_html_()
    cells, svg = opacities(html)
    np.testing.assert_array_equal(cells > 0, np.eye(-(-blocks // -(-blocks // 48))))
    assert svg.get("width") == svg.get("height") == "192" and len(html) < 8000
    assert "&lt;sparsegpu.bsr_array" in html


@pytest.mark.parametrize("page", PAGES.values())
def test_html_of_large_matrices_is_seen(engine, page):
    for a in (laplacian(engine), scattered(engine, 10**6)):
        html = a._repr_html_()
        cells, svg = opacities(html)
        colour = svg.find("g").get("fill")
        colour = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        drawn = cells[cells > 0][:, None]
        ratio = contrast(drawn * colour + (1 - drawn) * page, page)
        assert ratio.min() > SEEN and ratio.max() > CLEAR
        total, shown = a.shape[0] // a.blocksize[0], len(cells)
        rows, columns = (to_host(x) * shown // total for x in (a.pattern.rows, a.indices))
        stored = np.zeros_like(cells)
        stored[rows, columns] = 1
        np.testing.assert_array_equal(cells > 0, stored)
        assert 24 < shown <= 48 and f"{-(-total // shown)} x " in html


def test_html_of_a_full_matrix_is_short():
    assert len(bsr_array(np.ones((64, 64)), blocksize=(1, 1))._repr_html_()) < 8000


def test_html_of_nothing_and_of_a_batch():
    assert "svg" not in bsr_array((4, 4))._repr_html_()
    html = bsr_array(np.ones((2, 4, 4)), blocksize=(2, 2))._repr_html_()
    assert "svg" in html and "the first of 2 matrices" in html


def test_the_picture_costs_no_memory_for_what_is_not_stored():
    a = bsr_array((np.ones((2, 1, 1)), [5, 2**40], [0, 2]), shape=(1, 2**41))
    cells, _ = opacities(a._repr_html_())
    np.testing.assert_array_equal(np.flatnonzero(cells.ravel()), [0, cells.size // 2])


def test_html_of_a_long_matrix_is_no_thread(engine):
    wide, tall = np.zeros((1, 500)), np.zeros((500, 1))
    wide[0, 7] = tall[7, 0] = 1
    for dense in (wide, tall):
        cells, svg = opacities(bsr_array(engine.array(dense), blocksize=(1, 1))._repr_html_())
        assert (cells > 0).sum() == 1
        assert min(int(svg.get("width")), int(svg.get("height"))) >= 16


def test_html_of_24_blocks_is_that_of_their_pattern(engine):
    dense = engine.array(np.kron(np.eye(3), np.tile([0, 1, 0, 2], (32, 8))).astype(np.float16))
    a = bsr_array(dense, blocksize=(32, 32))
    cells, _ = opacities(a.semi_structured()._repr_html_())
    np.testing.assert_array_equal(cells, np.eye(3))


# -- 2:4 ------------------------------------------------------------------------------------------


def weight(dense):
    return to_semi_structured(dense.astype(np.float16), pad=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_strip_of_groups(engine, rng, dtype, transposed):
    keep = "1:2" if dtype == "float32" else "2:4"
    # No zeros: then what is kept is what is not zero.
    dense = (rng.integers(1, 9, (96, 128)) * rng.choice([-1, 1], (96, 128))).astype(dtype)
    dense = prune_24(engine.array(dense), keep=keep)
    a = to_semi_structured(dense)
    a, dense = (a.T, dense.T) if transposed else (a, dense)
    cells, svg = opacities(a._repr_html_())
    np.testing.assert_array_equal(cells, to_host(dense)[: len(cells), : cells.shape[1]] != 0)
    assert cells.shape == (8, 64)
    group, along = (2 if dtype == "float32" else 4), 8 if transposed else 64
    assert svg.find(".//path").get("d").count("M") == along // group - 1


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_spy_shows_groups(engine, plt, rng, dtype):
    keep = "1:2" if dtype == "float32" else "2:4"
    dense = rng.integers(1, 9, (32, 64)).astype(dtype)
    dense = prune_24(engine.array(dense), keep=keep)
    ax = to_semi_structured(dense).spy()
    y, x = np.mgrid[:32, :64].reshape(2, -1)
    row, column, image = pixels(ax, x, y)
    ratio = contrast(image, plt.page)[row.astype(int), column.astype(int)].reshape(32, 64)
    np.testing.assert_array_equal(ratio > CLEAR, to_host(dense) != 0)
    np.testing.assert_array_less(ratio[to_host(dense) == 0], 1.02)


def test_pictures_of_small_24_arrays(engine, plt):
    a = to_semi_structured(engine.xp.eye(5, dtype="float16"), pad=True)
    cells, _ = opacities(a._repr_html_())
    assert cells.shape == (5, 5) and cells[np.eye(5) > 0].all()
    assert a.spy().get_xlim() == (-0.5, 4.5)
    empty = to_semi_structured(engine.xp.zeros((0, 64), dtype="float16"))
    assert "svg" not in empty._repr_html_()
    assert empty.spy().get_ylabel() == "row"
