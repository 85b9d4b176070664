"""Cases of what puts matrices together and takes them apart."""

from __future__ import annotations

from functools import partial
from math import lcm
from typing import Any

import numpy as np
import scipy.linalg

import sparsegpu

from .case import Case, Same, public, require
from .draws import CONTAINED, Bsr, Draws
from .makers import _integer, _pair
from .operators import matrix
from .oracle import array

_STACKED = {
    "hstack": lambda a, b: np.concatenate([a, b], axis=1),
    "vstack": lambda a, b: np.concatenate([a, b], axis=0),
    "block_diag": lambda a, b: scipy.linalg.block_diag(a, b).astype(a.dtype),
}
_OFFSETS = (0, 1, -1, 5, -40, 1000)
_MOST_OF_IDENTITY = 1024  # rows of the least that two block sizes divide


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
    """`eye`, and `identity`, which takes neither columns nor a diagonal."""
    name = draws.choice(("eye", "identity"))
    bm, bk = draws.blocksize()
    m, n, dtype = draws.count(5) * bm, draws.count(5) * bk, draws.choice(CONTAINED)

    def expected(blocksize: Any, n: Any, m: Any = 0, k: Any = 0) -> Same:
        first = n if name == "identity" else m
        rows, columns = _integer(first), _integer(first if n is None else n)
        require(0 <= rows <= 10**4 and 0 <= columns <= 10**4, "sizes")
        size = _pair(blocksize)
        require(min(size) >= 1 and rows % size[0] == 0 == columns % size[1], "a block size")
        return Same(np.eye(rows, columns, _offset(k)).astype(dtype))

    arguments = {"m": m, "n": n, "k": draws.choice(_OFFSETS), "blocksize": (bm, bk)}
    if name == "identity":
        bk = bk if lcm(bm, bk) <= _MOST_OF_IDENTITY else bm
        arguments = {"n": draws.count(3) * lcm(bm, bk), "blocksize": (bm, bk)}
    function = getattr(sparsegpu, name)
    call = partial(function, dtype=dtype, xp=draws.xp)
    return Case(name, call, arguments, expected, documented=function)


def _sizes(shape: Any) -> tuple[int, int]:
    """Return a shape in elements; none is None to the caller."""
    require(isinstance(shape, (tuple, list)) and len(shape) == 2, "(M, K)")
    rows, columns = map(_integer, shape)
    require(0 <= rows <= 10**4 and 0 <= columns <= 10**4, "sizes")
    return rows, columns


def from_blocks(draws: Draws) -> Case:
    """Blocks at random places, some at the same; some places are outside."""
    dtype, (bm, bk) = draws.choice(CONTAINED), draws.blocksize()
    rows, columns, n = draws.count(4), draws.count(4), draws.count(9)
    n = n if rows and columns else 0
    rng, of_places = draws.rng(), draws.choice((np.int32, np.int64, np.uint8))
    row, column = (rng.integers(max(most, 1), size=n) for most in (rows, columns))
    arguments = {
        "rows": row.astype(of_places),
        "cols": column.astype(of_places),
        "blocks": draws.values((n, bm, bk), dtype, exact=True),
        "shape": (rows * bm, columns * bk),
        "pad": draws.chance(20),
    }
    if arguments["pad"]:  # what is lacking to whole blocks is added
        arguments["shape"] = (max(0, rows * bm - bm // 2), max(0, columns * bk - bk // 2))
    elif n and draws.chance(20):
        arguments["shape"] = None
    refused = ""
    if n and of_places != np.uint8 and draws.chance(10):
        outside = draws.choice((-1, 10**6, int(np.iinfo(of_places).min)))
        which = draws.choice(("rows", "cols"))
        if outside < 0 or arguments["shape"] is not None:
            arguments[which][draws.integer(0, n - 1)] = outside
            refused = f"{which} at {outside}"
    return public("from_blocks", arguments, _from_blocks, refused=refused)


def _from_blocks(rows: Any, cols: Any, blocks: Any, shape: Any, pad: Any) -> Same:
    i, j, values = array(rows), array(cols), array(blocks)
    require(values.ndim == 3 and values.dtype in CONTAINED, "blocks")
    (n, bm, bk), (i, j) = values.shape, (x if x.size else x.astype(int) for x in (i, j))
    require(i.shape == j.shape == (n,), "a place for each block")
    require(i.dtype.kind in "iu" and j.dtype.kind in "iu", "places that are integers")
    require(isinstance(pad, bool), "a flag")
    if shape is None:
        require(n, "a shape where there are no blocks")
        counts = int(i.max()) + 1, int(j.max()) + 1
    else:
        shape = _sizes(shape)
        require(pad or (shape[0] % bm == 0 == shape[1] % bk), "blocks that divide")
        counts = -(-shape[0] // bm), -(-shape[1] // bk)
    for places, count in zip((i, j), counts):
        require(all(0 <= x < count for x in places.tolist()), "places outside")
    wide = np.complex128 if values.dtype.kind == "c" else np.float64
    total = np.zeros((*counts, bm, bk), wide)
    np.add.at(total, (i.astype(int), j.astype(int)), values.astype(wide))
    dense = total.swapaxes(1, 2).reshape(counts[0] * bm, counts[1] * bk)
    return Same(dense.astype(values.dtype))


def diags(draws: Draws) -> Case:
    """One or two diagonals, of elements or of blocks; one element or block may stand for all."""
    dtype, of_blocks = draws.choice(CONTAINED), draws.chance(50)
    bm, bk = draws.blocksize()
    rows, columns = draws.integer(1, 5), draws.integer(1, 5)
    counts = (rows, columns) if of_blocks else (rows * bm, columns * bk)
    every = range(1 - counts[0], counts[1])
    offsets = [draws.choice(every)]
    if len(every) > 1 and draws.chance(60):
        offsets.append(draws.choice([k for k in every if k != offsets[0]]))
    diagonals = {}
    for name, k in zip("ab", offsets):
        n = 1 if draws.chance(25) else _diagonal_length(k, counts)
        shape = (n, bm, bk) if of_blocks else (n,)
        diagonals[name] = draws.values(shape, dtype, exact=True)
    refused = ""
    if draws.chance(10):
        refused = "an offset outside"
        offsets[-1] = draws.choice((counts[1], -counts[0], 10**6, 2**62, -(2**63)))
    arguments = {"offsets": tuple(offsets), "shape": (rows * bm, columns * bk)}
    if not of_blocks:
        arguments["blocksize"] = (bm, bk)

    def call(offsets: Any, a: Any, b: Any = None, **keywords: Any) -> Any:
        return sparsegpu.diags([a] if "b" not in diagonals else [a, b], offsets, **keywords)

    def expected(offsets: Any, shape: Any, a: Any, b: Any = None, blocksize: Any = None) -> Same:
        arrays = [array(x) for x in ((a,) if "b" not in diagonals else (a, b))]
        arrays = [x.reshape(1) if not x.ndim else x for x in arrays]
        offsets = offsets if isinstance(offsets, (tuple, list)) else (offsets,)
        return _diags(arrays, [_integer(k) for k in offsets], shape, blocksize)

    arguments = {**diagonals, **arguments}
    return Case("diags", call, arguments, expected, documented=sparsegpu.diags, refused=refused)


def _diagonal_length(k: int, counts: tuple[int, int]) -> int:
    return max(0, min(counts[0] + min(k, 0), counts[1] - max(k, 0)))


def _diags(arrays: list[np.ndarray], offsets: list[int], shape: Any, blocksize: Any) -> Same:
    require(len(arrays) == len(offsets) == len(set(offsets)), "a diagonal for each offset")
    dtype = np.result_type(*(x.dtype for x in arrays))
    require(dtype in CONTAINED, "a dtype that is held")
    require({x.shape[1:] for x in arrays} == {arrays[0].shape[1:]}, "diagonals of one kind")
    require(arrays[0].ndim in {1, 3}, "elements or blocks")
    bm, bk = block = arrays[0].shape[1:] or (1, 1)
    size = block if blocksize is None else _pair(blocksize)
    require(arrays[0].ndim == 1 or size == block, "the block size of blocks")
    if shape is None:
        n = len(arrays[0]) + abs(offsets[0])
        shape = (n * bm, n * bk)
    m, k = _sizes(shape)
    require(min(size) >= 1 and m % size[0] == 0 == k % size[1], "blocks that divide")
    counts = (m // bm, k // bk)
    dense = np.zeros((*counts, bm, bk), dtype)
    for x, offset in zip(arrays, offsets):
        n = _diagonal_length(offset, counts)
        require(-counts[0] < offset < counts[1] or not len(x), "an offset inside")
        require(len(x) in {1, n}, "the length of a diagonal")
        place = np.arange(n)
        dense[place + max(-offset, 0), place + max(offset, 0)] = x.reshape(-1, bm, bk)
    return Same(dense.swapaxes(1, 2).reshape(m, k))


CASES = (stacked, kron, triangle, unit, from_blocks, diags)
