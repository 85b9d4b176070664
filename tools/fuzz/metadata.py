"""Cases of 2:4 metadata: its check, and one code in words."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from . import formats
from .case import Case, Holds, public, require
from .draws import FP8, TWO_OF_FOUR, Draws
from .oracle import INT8, SINGLE, array

_WORDS = {2: np.uint16, 4: np.uint32}
#: The values that metadata is of where nobody says, by the size of its words.
_DEFAULT = {2: np.dtype(np.float16), 4: INT8}


def _metadata(draws: Draws, fewest: int) -> dict[str, Any]:
    """Draw metadata, most of it legal, and the dtype of its values."""
    dtype = draws.choice((*TWO_OF_FOUR, FP8))
    rows, columns = formats.multiples(dtype)
    shape = rows * draws.integer(fewest, 2), columns * draws.integer(fewest, 2)
    dense = draws.values(shape, dtype, exact=True)
    group = 2 if dtype == SINGLE else 4
    meta = formats.compress(formats.prune_24(dense, group))[1]
    if meta.size and draws.chance(40):
        meta.ravel()[draws.integer(0, meta.size - 1)] = draws.integer(-(2**15), 2**15 - 1)
    if draws.chance(30):
        meta = meta.view(_WORDS[meta.itemsize])
    named = dtype if dtype == SINGLE or draws.chance(50) else None
    return {"meta": meta, "dtype": named}


def _codes(meta: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the code of each group of each row, and which of them have a meaning."""
    meta = array(meta)
    require(meta.ndim >= 2 and meta.dtype.kind in "iu" and meta.itemsize in _WORDS, "metadata")
    try:
        values = _DEFAULT[meta.itemsize] if dtype is None else np.dtype(dtype)
    except TypeError:
        values = np.dtype(object)
    require(values in (*TWO_OF_FOUR, FP8), "a dtype of 2:4 values")
    require((values.itemsize == 1) == (meta.itemsize == 4), "a dtype with such metadata")
    rows, columns = meta.shape[-2:]
    require(rows % (32 if meta.itemsize == 2 else 16) == 0 == columns % 2, "whole tiles")
    signed = np.dtype(f"i{meta.itemsize}")
    matrices = np.ascontiguousarray(meta).reshape(*meta.shape[:-2], rows * columns)
    by_row = np.ascontiguousarray(matrices[..., formats.places(rows, columns, signed)])
    words = by_row.view(_WORDS[meta.itemsize]).astype(np.int64)[..., None]
    codes = words >> 4 * np.arange(2 * meta.itemsize) & 15
    codes = codes.reshape(*meta.shape[:-1], columns * 2 * meta.itemsize)
    first, second = codes & 3, codes >> 2
    pairs = values == SINGLE
    legal = np.isin(codes, (0b0100, 0b1110)) if pairs else first < second
    return codes, legal


def check_meta(draws: Draws) -> Case:
    def expected(meta: Any, dtype: Any = None) -> Holds:
        require(_codes(meta, dtype)[1].all(), "legal codes")
        return Holds(lambda got: np.testing.assert_equal(got, None))

    arguments = _metadata(draws, 0)
    refused = "" if _codes(**arguments)[1].all() else "an illegal code"
    return public("check_meta", arguments, expected, refused=refused)


def describe_meta(draws: Draws) -> Case:
    arguments = _metadata(draws, 1)
    rows, columns = arguments["meta"].shape
    groups = columns * 2 * arguments["meta"].itemsize
    arguments |= {"row": draws.integer(0, rows - 1), "group": draws.integer(0, groups - 1)}

    def expected(meta: Any, row: Any, group: Any, dtype: Any = None) -> Holds:
        codes, legal = _codes(meta, dtype)
        require(codes.ndim == 2, "one matrix")
        try:
            row, group = operator.index(row), operator.index(group)
        except TypeError:
            row = group = -1
        require(0 <= row < codes.shape[0] and 0 <= group < codes.shape[1], "a group of a row")
        code = f"code {codes[row, group]:#06b} "
        said = code + ("keeps" if legal[row, group] else "is illegal")

        def rule(got: Any) -> None:
            assert got.startswith(f"row {row}, group {group}: {said}"), got

        return Holds(rule)

    return public("describe_meta", arguments, expected)


CASES = (check_meta, describe_meta)
