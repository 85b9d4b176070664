"""Cases of what makes arrays, and of the questions one may ask."""

from __future__ import annotations

from typing import Any

import numpy as np

import sparsegpu
from sparsegpu.testing import to_host

from . import oracle
from .case import Case, Holds, Same, as_dense, public, require
from .draws import CONTAINED, Draws
from .oracle import array, number

_NOT_BOOL = [d for d in CONTAINED if d.kind != "b"]


def _integer(x: Any) -> int:
    require(isinstance(x, (int, np.integer)) and not isinstance(x, bool), "an integer")
    return int(x)


def _pair(x: Any) -> tuple[int, int]:
    pair = x if isinstance(x, tuple) else (x, x)
    require(len(pair) == 2, "a pair")
    return _integer(pair[0]), _integer(pair[1])


def random_bsr(draws: Draws) -> Case:
    bm, bk = draws.blocksize()
    arguments = {
        "shape": (*draws.batch(), draws.count(5) * bm, draws.count(5) * bk),
        "blocksize": (bm, bk),
        "density": draws.choice((0.5, 0.0, 1.0, 0.1, 1)),
        "dtype": draws.choice(CONTAINED),
        "rng": draws.integer(0, 10),
    }

    def expected(shape: Any, blocksize: Any, density: Any, dtype: Any, rng: Any) -> Holds:
        require(0 <= number(density) <= 1, "a density")
        blocks = shape[-2] // blocksize[0] * (shape[-1] // blocksize[1])
        again = sparsegpu.random_bsr(shape, blocksize, density, dtype=dtype, rng=rng)

        def rule(got: Any) -> None:
            assert (got.shape, got.dtype, got.blocksize) == (
                shape,
                oracle.dtype_named(dtype),
                blocksize,
            )
            assert got.nnzb == round(density * blocks)
            if isinstance(rng, int):
                np.testing.assert_array_equal(as_dense(got), as_dense(again))

        return Holds(rule)

    return public("random_bsr", arguments, expected)


def quantize_int8(draws: Draws) -> Case:
    shape = (*draws.batch(), draws.count(6), draws.count(6))
    dtype = draws.choice((*oracle.FLOATS, np.dtype(np.float64)))
    arguments = {
        "W": draws.values(shape, dtype, exact=True),
        "axis": draws.choice((None, -1, -2, len(shape) - 1)),
    }

    def expected(W: Any, axis: Any = None) -> Holds:
        W = array(W)
        require(W.ndim >= 2 and W.dtype in (*oracle.FLOATS, np.dtype(np.float64)), "floats")
        axis = None if axis is None else _integer(axis)
        require(axis is None or axis in {-1, -2, W.ndim - 1, W.ndim - 2}, "an axis")
        wide = W.astype(np.float64)
        require(bool(np.isfinite(wide).all()), "finite values")
        largest = np.abs(wide).max(axis=axis, initial=0, keepdims=axis is not None)
        require(bool((largest < 1e38).all()), "scales of float32")

        def rule(got: Any) -> None:
            values, scales = map(to_host, got)
            assert (values.dtype, values.shape) == (np.int8, W.shape) and scales.dtype == np.float32
            assert scales.shape == (() if axis is None else np.squeeze(largest, axis).shape)
            wanted = np.where(largest == 0, 1, largest / 127)
            scale = scales if axis is None else np.expand_dims(scales, axis)
            np.testing.assert_allclose(scale, wanted, rtol=1e-6)
            assert (np.abs(values.astype(int)) <= 127).all()
            assert (np.abs(values * wanted - wide) <= 0.5001 * wanted).all()

        return Holds(rule)

    return public("quantize_int8", arguments, expected)


def prune_blocks(draws: Draws) -> Case:
    bm, bk = draws.blocksize()
    shape = (*draws.batch(), draws.count(4) * bm, draws.count(4) * bk)
    arguments = {
        "dense": draws.values(shape, draws.choice(_NOT_BOOL), exact=True),
        "blocksize": (bm, bk),
        "density": draws.choice((0.5, 0.0, 1.0, 0.3)),
        "norm": draws.choice((2, 1, np.inf)),
    }

    def expected(dense: Any, blocksize: Any, density: Any, norm: Any) -> Same:
        dense = array(dense)
        require(
            dense.ndim >= 2 and dense.dtype in _NOT_BOOL and norm in (1, 2, np.inf), "arguments"
        )
        require(0 <= number(density) <= 1, "a density")
        (bm, bk), (m, k) = _pair(blocksize), dense.shape[-2:]
        require(m % bm == 0 == k % bk, "blocks that divide")
        rows, columns = m // bm, k // bk
        wide = np.abs(dense.astype(np.complex128 if dense.dtype.kind == "c" else np.float64))
        blocks = wide.reshape(*dense.shape[:-2], rows, bm, columns, bk).swapaxes(-3, -2)
        blocks = blocks.reshape(*dense.shape[:-2], rows * columns, bm * bk)
        # Of small integers: |x|**2 may be off by a rounding for complex, so whole numbers.
        parts = np.rint(blocks**2) if norm == 2 else blocks
        size = parts.max(axis=-1) if norm == np.inf else parts.sum(axis=-1)
        if dense.dtype.kind == "c" and norm == 1:
            size = np.round(size, 9)
        kept = np.zeros(size.shape, bool)
        best = np.argsort(-size, axis=-1, kind="stable")[..., : round(density * rows * columns)]
        np.put_along_axis(kept, best, True, axis=-1)
        whole = kept.reshape(*dense.shape[:-2], rows, columns).repeat(bm, -2).repeat(bk, -1)
        return Same(np.where(whole, dense, np.zeros((), dense.dtype)))

    return public("prune_blocks", arguments, expected)


def questions(draws: Draws) -> Case:
    """`is_supported` and `use_engine`: an answer for known names, an error for others."""
    if draws.chance(50):

        def entered(name: Any) -> str:
            with sparsegpu.use_engine(name):
                return name

        engines = ("reference", "cpu", "cuda")
        named = lambda name: (require(name in engines, "an engine"), Holds(lambda got: None))[1]  # noqa: E731
        return Case(
            "use_engine",
            entered,
            {"name": draws.choice(engines)},
            named,
            documented=sparsegpu.use_engine,
        )
    arguments = {
        "op": draws.choice(("bsr_addmm", "semi_structured_addmm", "bsr_softmax")),
        "dtype": draws.choice((*CONTAINED, "bfloat16", "float8_e4m3fn")),
        "cc": draws.choice(((9, 0), (8, 0), 90, "80", (12, 0), (7, 5))),
    }

    def expected(op: Any, dtype: Any, cc: Any) -> Holds:
        def rule(got: Any) -> None:
            assert isinstance(got, bool)

        return Holds(rule)

    return public("is_supported", arguments, expected)


CASES = (random_bsr, quantize_int8, prune_blocks, questions)
