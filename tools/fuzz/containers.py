"""Cases of `bsr_array`: construction, well-formed and malformed."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

import sparsegpu

from .case import Case, Holds, MustRefuse, Same, require
from .draws import CONTAINED, HALVES, Bsr, Draws
from .oracle import array

ARRAY = sparsegpu.bsr_array


def matrix(bsr: Any) -> np.ndarray:
    """Return an operand dense in its own dtype (small integers: nothing is rounded)."""
    require(isinstance(bsr, Bsr), "a bsr_array")
    return bsr.dense().astype(bsr.dtype)


def operand(draws: Draws, dtypes: Any = CONTAINED, *, batched: bool = True, **more: Any) -> Bsr:
    batch = draws.batch() if batched else ()
    return draws.bsr(draws.choice(dtypes), batch=batch, exact=True, **more)


def from_dense(draws: Draws) -> Case:
    dtype, (bm, bk) = draws.choice(CONTAINED), draws.blocksize()
    shape = (draws.count(4) * bm, draws.count(4) * bk)
    dense = draws.values(shape, dtype)
    dense[draws.rng().random(shape) < 0.7] = 0
    batch = draws.choice(((), (2,), (0,), (2, 1)))
    dense = np.broadcast_to(dense, (*batch, *shape)).copy()

    def expected(arg: Any, blocksize: Any, dtype: Any = None) -> Same:
        arg = array(arg)
        require(arg.ndim >= 2, "a dense array")
        bm, bk = (operator.index(n) for n in blocksize)
        require(arg.shape[-2] % bm == 0 == arg.shape[-1] % bk, "blocks that divide")
        require(arg.dtype in CONTAINED or dtype is not None, "a dtype to hold")
        return Same(arg if dtype is None else arg.astype(dtype))

    arguments = {"arg": dense, "blocksize": (bm, bk)}
    return Case("bsr_array(dense)", ARRAY, arguments, expected, documented=ARRAY)


def from_parts(draws: Draws) -> Case:
    """The triple, well-formed; malformed ones are `malformed_parts`."""
    bsr = draws.bsr(draws.choice(CONTAINED), batch=draws.batch())
    parts = {"data": bsr.data, "indices": bsr.indices, "indptr": bsr.indptr, "shape": bsr.shape}

    def call(data: Any, indices: Any, indptr: Any, shape: Any) -> Any:
        return ARRAY((data, indices, indptr), shape=shape)

    def expected(data: Any, indices: Any, indptr: Any, shape: Any) -> Holds:
        # A spoiled part that is taken has to describe a matrix all the same.
        return Holds(lambda got: got.check_format())

    return Case("bsr_array(parts)", call, parts, expected, documented=ARRAY)


def malformed_parts(draws: Draws) -> Case:
    """What describes no matrix is refused, and never reaches a kernel."""
    dtype = draws.choice(CONTAINED)
    bsr = draws.bsr(
        dtype, counts=(draws.integer(1, 5), draws.integer(1, 5)), batch=draws.choice(((), (), (2,)))
    )
    data, indices, indptr, (m, k) = bsr.data, bsr.indices.copy(), bsr.indptr.copy(), bsr.shape
    (bm, bk), nnzb = bsr.blocksize, bsr.indices.shape[-1]
    if draws.chance(30):
        indices, indptr = indices.astype(np.int64), indptr.astype(np.int64)
    kinds = [
        "last",
        "first",
        "rows",
        "length",
        "shape",
        "blocks",
        "floats",
        "negative shape",
        "huge shape",
    ]
    if nnzb:
        kinds += ["negative", "too large", "far", "falling", "few"]
    kind = draws.choice(kinds)
    largest = np.iinfo(indices.dtype).max
    at = (..., draws.integer(0, nnzb - 1)) if nnzb else None
    row = draws.integer(0, indptr.shape[-1] - 2)
    if kind == "last":
        indptr[..., -1] += draws.choice((1, -1 - nnzb, largest // 2))
    elif kind == "first":
        indptr[..., 0] = draws.choice((-1, nnzb + 1, -largest))
    elif kind == "falling":
        indptr[..., row] = indptr[..., row + 1] + draws.choice((1, largest // 2))
    elif kind == "rows":
        indptr = np.concatenate([indptr, indptr[..., -1:]], axis=-1)
    elif kind == "length":
        indices = np.concatenate(
            [indices, indices[..., :1] if nnzb else np.zeros((*bsr.batch, 1), indices.dtype)],
            axis=-1,
        )
    elif kind == "few":
        data = data[..., 1:, :, :]
    elif kind == "negative":
        indices[at] = draws.choice((-1, -largest, -(k // bk)))
    elif kind == "too large":
        indices[at] = k // bk
    elif kind == "far":
        indices[at] = draws.choice((largest, 10**6))
    elif kind == "shape":
        m += draws.choice((1, bm)) if bm > 1 else 1
    elif kind == "blocks":
        data = np.zeros((*data.shape[:-1], draws.choice((0, 257))), data.dtype)
    elif kind == "floats":
        indices = indices.astype(np.float64)
    elif kind == "negative shape":
        m = -m
    else:
        m, k = 2**62 // bm * bm, 2**62 // bk * bk

    def call(data: Any, indices: Any, indptr: Any, shape: Any) -> Any:
        return ARRAY((data, indices, indptr), shape=shape)

    parts = {"data": data, "indices": indices, "indptr": indptr, "shape": (m, k)}
    return Case("bsr_array(malformed)", call, parts, _refuse, documented=ARRAY, refused=kind)


def _refuse(**arguments: Any) -> None:
    raise MustRefuse("a malformed argument")


def from_scipy(draws: Draws) -> Case:
    dtype = draws.choice([d for d in CONTAINED if d not in HALVES])
    bsr = operand(draws, (dtype,), batched=False)
    form = draws.choice(("csr", "bsr", "coo", "csc"))
    size = draws.choice((None, bsr.blocksize, (1, 1)))

    def call(bsr: Any, form: str, size: Any) -> Any:
        with sparsegpu.use_engine("cpu"):  # SciPy's lies on the host
            return ARRAY(bsr.get().to_scipy().asformat(form), blocksize=size)

    def expected(bsr: Any, form: str, size: Any) -> Same:
        return Same(matrix(bsr))

    arguments = {"bsr": bsr, "form": form, "size": size}
    return Case(
        "bsr_array(scipy)", call, arguments, expected, documented=ARRAY, fixed=frozenset(arguments)
    )


CASES = (from_dense, from_parts, malformed_parts, from_scipy)
