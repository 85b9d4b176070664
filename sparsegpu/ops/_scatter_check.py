"""Checks of ``indices_data``: no engine sees an index that is out of range.

Lists made by `bsr_scatter_mm_indices_data` are in range by construction; only their sizes are
compared. A caller's own lists are read in every call, which may synchronise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays import as_array, check_range, namespace
from .._checks import bad_type, bad_value, check_choice
from .._segments import distinct, expand_counts
from ._long_sums import may_be_long
from .scatter_indices import ARRAYS, FORMATS, META, TILE, Fit, IndicesData, check_setting

_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Lists:
    """Index lists by name, as contiguous int64 arrays, and the sizes that they fit."""

    indices_format: str
    arrays: dict[str, Any]
    fit: Fit
    meta: Mapping[str, int]
    trusted: bool

    @property
    def tile(self) -> dict[str, int]:
        """What the lists ask of a kernel's tile."""
        return {name: self.meta[name] for name in TILE if name in self.meta}


def name_arrays(function: str, indices_data: Any) -> tuple[str, dict[str, Any], Mapping[str, int]]:
    """Return the format of an ``indices_data``, its arrays by name and its meta, without reading.

    Of the meta what has a name of ours. The "scatter_mm" format has one if it was made here.
    """
    if not isinstance(indices_data, (tuple, list)) or len(indices_data) == 0:
        raise bad_type(
            function, "indices_data", "a tuple (format, ...)", type(indices_data).__name__
        )
    indices_format = indices_data[0]
    check_choice(function, "indices_data[0]", indices_format, FORMATS)
    names = ARRAYS[indices_format]
    has_meta = indices_format != "scatter_mm"
    if len(indices_data) != 1 + len(names) + has_meta:
        expected = f"({', '.join(('format', *names, *(['meta'] if has_meta else [])))})"
        raise bad_value(function, "indices_data", expected, f"{len(indices_data)} elements")
    arrays = {}
    made = indices_data if isinstance(indices_data, IndicesData) else None
    fixed = made.arrays.values() if made is not None else None
    for name, given in zip(names, fixed or indices_data[1:]):
        array = as_array(given, function, name)
        if array.dtype.kind not in "iu":
            raise bad_type(function, name, "an integer dtype", array.dtype)
        if array.ndim != (2 if name == "pq" else 1) or (name == "pq" and array.shape[1] != 2):
            expected = "shape (n, 2)" if name == "pq" else "one dimension"
            raise bad_value(function, name, expected, tuple(array.shape))
        arrays[name] = array
    if arrays[names[0]].size == 0:
        raise bad_value(function, names[0], "at least one element", "none")
    if has_meta:
        return indices_format, arrays, _checked(function, indices_data[-1])
    return indices_format, arrays, made.meta if made is not None else {}


def _checked(function: str, meta: Any) -> dict[str, int]:
    """Return the settings, and refuse those that cannot be; names that are not ours are ignored."""
    if not isinstance(meta, dict) or "SPLIT_N" not in meta:
        raise bad_type(function, "meta", "a dict with 'SPLIT_N'", meta)
    known = {name: meta[name] for name in META if name in meta}
    for name, value in known.items():
        check_setting(function, name, value)
    return {name: int(value) for name, value in known.items()}


def read_lists(
    function: str,
    indices_format: str,
    given: dict[str, Any],
    meta: Mapping[str, int],
    blocks: Any,
    others: Any,
) -> Lists:
    """Read every index, and return the lists as an engine takes them."""
    split = meta.get("SPLIT_N", 1)
    arrays = {name: _contiguous(function, name, array) for name, array in given.items()}
    count, ms, ks = blocks.shape
    reader = _read_blockwise if indices_format == "scatter_mm" else _read_strided
    inner, columns, rows = reader(function, arrays, split, blocks, others)
    starts, *_, terms = (arrays[name] for name in ARRAYS[indices_format])
    longest = len(terms)
    if may_be_long(blocks.dtype, longest, ks):
        longest = int(namespace(starts).diff(starts).max()) if len(starts) > 1 else 0
    fit = Fit(count, (ms, ks), inner, columns, split, rows, longest)
    return Lists(indices_format, arrays, fit, meta, trusted=False)


def _contiguous(function: str, name: str, array: Any) -> Any:
    if array.dtype == np.uint64 and array.size and int(array.max()) > _LARGEST:
        raise bad_value(function, name, f"indices up to {_LARGEST}", int(array.max()))
    return array.astype(np.int64, order="C", copy=False)


def _read_blockwise(
    function: str, arrays: dict[str, Any], split: int, blocks: Any, others: Any
) -> tuple[int, None, int]:
    del split
    pq = arrays["pq"]
    _check_offsets(function, "c_offsets", arrays["c_offsets"], len(pq), "rows of pq")
    _check_indices(function, "pq[:, 0]", pq[:, 0], len(blocks), "blocks")
    _check_indices(function, "pq[:, 1]", pq[:, 1], len(others), "others")
    return len(others), None, len(arrays["c_offsets"]) - 1


def _read_strided(
    function: str, arrays: dict[str, Any], split: int, blocks: Any, others: Any
) -> tuple[int, int, int]:
    count, ms, ks = blocks.shape
    k, n = others.shape[-2:]
    if n % split:
        raise bad_value(function, "SPLIT_N", f"a divisor of N = {n}", split)
    c_indices, q_offsets = arrays["c_indices"], arrays["q_offsets"]
    if "p_offsets" in arrays:
        tiles = len(arrays["r_offsets"])
        if len(c_indices) != tiles + 1:
            raise bad_value(
                function, "c_indices", f"len(r_offsets) + 1 = {tiles + 1} elements", len(c_indices)
            )
        listed = len(arrays["p_offsets"])
        if len(q_offsets) != listed:
            expected = f"len(p_offsets) = {listed} elements"
            raise bad_value(function, "q_offsets", expected, len(q_offsets))
        _check_offsets(function, "c_indices", c_indices, listed, "p_offsets and q_offsets")
        _check_indices(function, "p_offsets", arrays["p_offsets"], count, "blocks")
        limit = None
    else:
        _check_offsets(function, "c_indices", c_indices, count, "blocks")
        listed = split * int(c_indices[-1])
        if len(q_offsets) < listed:
            raise bad_value(
                function,
                "q_offsets",
                f"SPLIT_N * c_indices[-1] = {listed} elements",
                len(q_offsets),
            )
        limit = (len(c_indices) - 1) * ms
    if n == 0:
        return k, n, limit or 0
    ns = n // split
    _check_tiles(function, "q_offsets", q_offsets, (ks, ns), (k, n))
    rows = _check_tiles(function, "r_offsets", arrays["r_offsets"], (ms, ns), (limit, n))
    _check_disjoint(function, "r_offsets", arrays["r_offsets"], (ms, ns), n)
    return k, n, rows


def _check_offsets(function: str, name: str, offsets: Any, length: int, of: str) -> None:
    if bool((offsets[1:] < offsets[:-1]).any()):
        raise bad_value(function, name, "non-decreasing values", "a decrease")
    first, last = int(offsets[0]), int(offsets[-1])
    if first < 0 or last > length:
        raise bad_value(
            function, name, f"offsets in 0..{length} ({of})", first if first < 0 else last
        )


def _check_indices(function: str, name: str, values: Any, length: int, of: str) -> None:
    check_range(function, name, values, length, f"indices in 0..{length - 1} ({of})")


def _check_tiles(
    function: str,
    name: str,
    offsets: Any,
    tile: tuple[int, int],
    matrix: tuple[int | None, int],
) -> int:
    """Refuse tiles that are not inside the matrix; return the row where the last one ends."""
    if not offsets.size:
        return 0
    (height, width), (rows, n) = tile, matrix
    low, last_row, last_column = (
        int(offsets.min()),
        int(offsets.max()) // n,
        int((offsets % n).max()),
    )
    end = last_row + height
    if low < 0 or (rows is not None and end > rows) or last_column + width > n:
        inside = f"{n} columns" if rows is None else f"{(rows, n)}"
        expected = f"offsets (row * {n} + column) of {height}x{width} tiles inside {inside}"
        got = low if low < 0 else f"a tile at row {last_row} or column {last_column}"
        raise bad_value(function, name, expected, got)
    return end


def _check_disjoint(function: str, name: str, offsets: Any, tile: tuple[int, int], n: int) -> None:
    """Refuse tiles that overlap without being the same tile.

    Tiles whose corners lie in the same cell of a grid of tiles overlap; others only if their
    cells are neighbours. So each tile is compared with the next one in its cell, and, once no two
    share a cell, with the tile of each neighbouring cell that comes later.
    """
    if offsets.size < 2:
        return
    xp, (height, width) = namespace(offsets), tile
    tiles = distinct(offsets)
    row, column = tiles // n, tiles % n
    across = n // width + 2  # a border column, so that neighbours of different rows differ
    cells = row // height * across + column // width
    order = xp.argsort(cells)
    cells, tiles, row, column = (x[order] for x in (cells, tiles, row, column))
    for step in (0, 1, across - 1, across, across + 1):
        at = xp.searchsorted(cells, cells + step, side="right") - 1
        near = (cells[at] == cells + step) & (tiles[at] != tiles)
        near &= (abs(row[at] - row) < height) & (abs(column[at] - column) < width)
        if bool(near.any()):
            i = int(xp.argmax(near))
            first, second = sorted((int(tiles[i]), int(tiles[at[i]])))
            expected = f"{height}x{width} tiles that are the same or do not overlap"
            raise bad_value(function, name, expected, f"offsets {first} and {second}")


def disjoint_rounds(lists: Lists) -> list[dict[str, Any]]:
    """Split strided lists into rounds that hold each tile once, in a fixed order.

    Lists made here are one round. A caller's tiles may repeat.
    """
    arrays, fit = lists.arrays, lists.fit
    if lists.trusted or lists.indices_format == "scatter_mm" or not fit.columns:
        return [arrays]
    r = arrays["r_offsets"]
    if not r.size:
        return [arrays]
    xp = namespace(r)
    order = xp.argsort(r, kind="stable")
    ascending = r[order]
    round_of = xp.empty_like(r)
    round_of[order] = xp.arange(r.size, dtype=np.int64) - xp.searchsorted(ascending, ascending)
    rounds = int(round_of.max()) + 1
    if rounds == 1:
        return [arrays]
    return [_only(arrays, xp.flatnonzero(round_of == i), xp) for i in range(rounds)]


def _only(arrays: dict[str, Any], tiles: Any, xp: Any) -> dict[str, Any]:
    """Return strided lists of some tiles only."""
    chosen = {**arrays, "r_offsets": arrays["r_offsets"][tiles]}
    if "p_offsets" not in arrays:
        return chosen
    first, count = arrays["c_indices"][:-1][tiles], xp.diff(arrays["c_indices"])[tiles]
    tile, number = expand_counts(count)
    g = first[tile] + number
    return {
        "c_indices": xp.concatenate([xp.zeros((1,), dtype=np.int64), xp.cumsum(count)]),
        "r_offsets": chosen["r_offsets"],
        "p_offsets": arrays["p_offsets"][g],
        "q_offsets": arrays["q_offsets"][g],
    }
