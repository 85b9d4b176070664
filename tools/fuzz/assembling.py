"""Cases of what puts matrices together and takes them apart."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.linalg

import sparsegpu

from .case import Case, Same, public, require
from .draws import CONTAINED, Bsr, Draws
from .makers import _integer, _pair
from .operators import matrix

_STACKED = {
    "hstack": lambda a, b: np.concatenate([a, b], axis=1),
    "vstack": lambda a, b: np.concatenate([a, b], axis=0),
    "block_diag": lambda a, b: scipy.linalg.block_diag(a, b).astype(a.dtype),
}
_OFFSETS = (0, 1, -1, 5, -40, 1000)


def _offset(k: Any) -> int:
    """Return a diagonal's number, beyond all that there are one that NumPy takes."""
    return max(-(10**5), min(_integer(k), 10**5))


def stacked(draws: Draws) -> Case:
    """Two matrices of one dtype; where they must have equal sides, some do not."""
    name = draws.choice((*_STACKED, "block_array"))
    dtype = draws.choice(CONTAINED)
    a = draws.bsr(dtype, exact=True)
    (m, k), (bm, bk) = a.shape, a.blocksize
    counts = {"hstack": (m // bm, None), "vstack": (None, k // bk)}.get(name, (None, None))
    b = draws.bsr(dtype, blocksize=a.blocksize, counts=counts, exact=True)
    axis = {"hstack": 0, "vstack": 1}.get(name)
    other = axis is not None and draws.chance(20)
    if other:
        shape = (b.shape[0] + bm, b.shape[1]) if axis == 0 else (b.shape[0], b.shape[1] + bk)
        ends = np.append(b.indptr, b.indptr[-1:]) if axis == 0 else b.indptr
        b = Bsr(b.data, b.indices, ends.astype(b.indptr.dtype), shape)

    def call(A: Any, B: Any) -> Any:
        if name == "block_array":
            return sparsegpu.block_array([[A, None], [None, B]])
        return getattr(sparsegpu, name)([A, B])

    def expected(A: Bsr, B: Bsr) -> Same:
        require(axis is None or A.shape[axis] == B.shape[axis], "matrices of one length")
        return Same(_STACKED.get(name, _STACKED["block_diag"])(matrix(A), matrix(B)))

    return Case(
        name,
        call,
        {"A": a, "B": b},
        expected,
        documented=getattr(sparsegpu, name),
        fixed=frozenset({"A", "B"}),
        refused="different lengths" if other else "",
    )


def kron(draws: Draws) -> Case:
    dtype = draws.choice(CONTAINED)
    a = draws.bsr(dtype, blocksize=(2, 3), counts=(draws.count(2), draws.count(2)), exact=True)
    b = draws.bsr(dtype, counts=(draws.count(2), draws.count(2)), exact=True)

    def expected(A: Bsr, B: Bsr) -> Same:
        one, two = matrix(A), matrix(B)
        if dtype == np.int8:  # products saturate
            product = np.kron(one.astype(np.int64), two.astype(np.int64))
            return Same(np.clip(product, -128, 127).astype(np.int8))
        shape = tuple(m * n for m, n in zip(one.shape, two.shape))
        blocks = one[:, None, :, None] * two[None, :, None, :]
        return Same(blocks.reshape(shape).astype(dtype))

    return public("kron", {"A": a, "B": b}, expected, fixed=frozenset({"A", "B"}))


def triangle(draws: Draws) -> Case:
    name = draws.choice(("tril", "triu"))

    def expected(A: Bsr, k: Any) -> Same:
        return Same(getattr(np, name)(matrix(A), _offset(k)))

    bsr = draws.bsr(draws.choice(CONTAINED), exact=True)
    arguments = {"A": bsr, "k": draws.choice(_OFFSETS)}
    return public(name, arguments, expected, fixed=frozenset({"A"}))


def unit(draws: Draws) -> Case:
    bm, bk = draws.blocksize()
    m, n, dtype = draws.count(5) * bm, draws.count(5) * bk, draws.choice(CONTAINED)

    def expected(m: Any, n: Any, k: Any, blocksize: Any) -> Same:
        rows, columns = _integer(m), _integer(m if n is None else n)
        require(0 <= rows <= 10**4 and 0 <= columns <= 10**4, "sizes")
        size = _pair(blocksize)
        require(min(size) >= 1 and rows % size[0] == 0 == columns % size[1], "a block size")
        return Same(np.eye(rows, columns, _offset(k)).astype(dtype))

    arguments = {"m": m, "n": n, "k": draws.choice(_OFFSETS), "blocksize": (bm, bk)}
    function = partial(sparsegpu.eye, dtype=dtype)
    return Case("eye", function, arguments, expected, documented=sparsegpu.eye)


CASES = (stacked, kron, triangle, unit)
