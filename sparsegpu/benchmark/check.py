"""The check of a large product by the accuracy bound.

The whole product would take too long on the host in float64. So the result is divided into stripes
of rows and of columns, and one row and one column are drawn of each: every tile has an element
that is compared. A tile that was not written is found by the NaN that the result was filled with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

import sparsegpu as sg

from ..testing import accuracy_bound, assert_close, to_host

_STRIPES = 128


def stripes(size: int, rng: np.random.Generator, count: int = _STRIPES) -> np.ndarray:
    """Return an index of every stripe; the first and the last index are among them.

    Examples
    --------
    >>> import numpy as np
    >>> stripes(6, np.random.default_rng(0))
    array([0, 1, 2, 3, 4, 5])
    """
    count = min(size, count)
    edges = np.arange(count + 1) * size // count
    picked = rng.integers(edges[:-1], edges[1:])
    picked[0], picked[-1] = 0, size - 1
    return picked


def error_in_bounds(product: Any, seed: int = 0) -> float:
    """Compare a result with the accuracy bound; return its largest error over what is allowed.

    Raises
    ------
    AssertionError
        An element is outside the bound, or was not written.
    """
    rng = np.random.default_rng(seed)
    dense, out = product.dense, product.out
    if dense.ndim == 1:
        dense, out = dense[:, None], out[:, None]
    if out.dtype.kind != "i" and not bool((out == out).all()):
        raise AssertionError("NaN in the result: elements were not written")
    batches = sorted({0, out.shape[0] - 1}) if out.ndim == 3 else [None]
    worst = 0.0
    for batch in batches:
        pick = () if batch is None else (batch,)
        rows = stripes(out.shape[-2], rng, _STRIPES // len(batches))
        columns = stripes(out.shape[-1], rng)
        narrow = product.typed(to_host(dense[pick][:, columns]))
        results = to_host(out[pick][rows][:, columns])
        for part, values, places in _stored(product.left, pick, rows):
            exact, bound = accuracy_bound(
                product.typed(values),
                narrow[places],
                allow_tf32=product.case.tf32,
                **_fused_in(product.keywords, rows[part], columns),
            )
            assert_close(results[part], exact, bound)
            worst = max(worst, fraction_used(results[part], exact, bound))
    return worst


def _stored(left: Any, pick: tuple[int, ...], rows: np.ndarray) -> Iterator[tuple[slice, Any, Any]]:
    """Yield which of some rows have the same columns: their stored values, and these columns."""
    if not isinstance(left, sg.bsr_array):
        yield slice(None), to_host(left[rows]), slice(None)
        return
    bm, bk = left.blocksize
    for n, (block_row, inner) in enumerate(zip(*divmod(rows, bm), strict=True)):
        first, last = (int(i) for i in to_host(left.indptr[pick][block_row : block_row + 2]))
        values = to_host(left.data[pick][first:last, inner]).ravel()
        blocks = to_host(left.indices[pick][first:last]).astype(np.int64)
        yield slice(n, n + 1), values[None], (blocks[:, None] * bk + np.arange(bk)).ravel()


def _fused_in(keywords: dict[str, Any], rows: np.ndarray, columns: np.ndarray) -> dict[str, Any]:
    """Return what is fused into the product, for some rows and columns of the result."""
    if not keywords:
        return {}
    return keywords | {
        "input": to_host(keywords["input"][rows]),
        "left_alpha": to_host(keywords["left_alpha"][rows]),
        "right_alpha": to_host(keywords["right_alpha"][columns]),
    }


def fraction_used(out: np.ndarray, exact: np.ndarray, bound: np.ndarray) -> float:
    """Return the largest error as a fraction of what bound and output rounding allow."""
    if out.dtype.kind == "i":
        return float(np.abs(out - exact).max() > 0)
    finfo = ml_dtypes.finfo(out.dtype)
    allowed = bound + float(finfo.eps) / 2 * (np.abs(exact) + bound) + float(finfo.tiny)
    return float((np.abs(out.astype(exact.dtype) - exact) / allowed).max())
