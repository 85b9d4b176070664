"""Products that work in memory which calls share: all paths that need any, with exact results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import sparsegpu as sg
from addmm_cases import laid_out, small
from sparsegpu.engines.cusparselt import availability
from sparsegpu.testing import dense_from_blocks, random_blocks


@dataclass
class Shared:
    """A sparse operand and its product with several dense ones.

    Attributes
    ----------
    call : callable
        ``call(dense, out)`` into an array, or with None as ``out`` into a new one.
    dense, expected : lists of arrays
        The right results, exactly; all differ.
    operand : bsr_array or SemiStructuredArray
    """

    call: Callable[[Any, Any], Any]
    dense: list[Any]
    expected: list[Any]
    operand: Any

    def blank(self, cp):
        out = cp.empty_like(self.expected[0])
        out.view(np.uint8).fill(0x5A)
        return out


CASES: dict[str, Callable[..., Shared]] = {}


def case(make):
    CASES[make.__name__] = make
    return make


def _with_full_row(rng, shape, blocksize, dtype, density=0.2):
    """Blocks of small integers; all of the first row's are stored."""
    (m, k), (bm, bk) = shape, blocksize
    stored = rng.random((m // bm, k // bk)) < density
    stored[0] = True
    rows, columns = np.nonzero(stored)
    indptr = np.searchsorted(rows, np.arange(m // bm + 1))
    return small(rng, (len(rows), bm, bk), dtype), columns, indptr


def _bsr(engine, rng, triple, shape, n, *, layout="rows", config=None, count=8, left=False):
    data = triple[0]
    whole = dense_from_blocks(*triple, shape).astype(np.float64)
    whole = whole.T if left else whole
    a = sg.bsr_array(tuple(engine.array(v) for v in triple), shape=shape)
    out_dtype = {"int8": "int32", "float16": "float16"}.get(data.dtype.name, data.dtype.name)
    dense = [small(rng, (whole.shape[1], n), data.dtype) for _ in range(count)]
    expected = [engine.array((whole @ x).astype(out_dtype)) for x in dense]
    operands = [laid_out(engine, x, layout) for x in dense]

    def call(x, out):
        if left:
            transposed = None if out is None else out.T
            return sg.dense_bsr_matmul(x.T, a, out=transposed, config=config).T
        return sg.bsr_matmul(a, x, out=out, config=config)

    return Shared(call, operands, expected, a)


def _random(engine, rng, shape, blocksize, dtype, n, *, density=0.3, **how):
    triple = random_blocks(rng, shape, blocksize, density=density, dtype=dtype, small_integers=True)
    return _bsr(engine, rng, triple, shape, n, **how)


@case
def copied_rows(engine, rng):
    """An N whose rows the copy engine cannot read."""
    return _random(engine, rng, (512, 512), (64, 64), "float16", 101)


@case
def full_row(engine, rng):
    """A row that is cut, and its float32 parts."""
    triple = _with_full_row(rng, (640, 16384), (64, 64), "float16", 0.01)
    return _bsr(engine, rng, triple, (640, 16384), 136, count=4)


@case
def dense_by_cublas(engine, rng):
    how = {"config": {"path": "dense"}}
    triple = random_blocks(
        rng, (512, 256), (32, 32), dtype="float16", small_integers=True, duplicates=False
    )
    return _bsr(engine, rng, triple, (512, 256), 128, **how)


@case
def padded_blocks(engine, rng):
    """Blocks of an odd size, and a ``dense`` in other lines."""
    config = {"path": "groups"}
    shape = (23 * 16, 23 * 12)
    return _random(engine, rng, shape, (23, 23), "float16", 104, layout="strided", config=config)


@case
def long_row_times_vectors(engine, rng):
    triple = _with_full_row(rng, (1024, 8192), (4, 4), "float32", 0.004)
    return _bsr(engine, rng, triple, (1024, 8192), 4)


@case
def columns_by_mma(engine, rng):
    """int8 rows, copied to columns for mma.sync."""
    return _random(
        engine, rng, (256, 512), (32, 32), "int8", 100, density=0.5, config={"path": "mma"}
    )


@case
def transposed_blocks(engine, rng):
    config = {"path": "groups"}
    return _random(
        engine, rng, (256, 384), (24, 16)[::-1], "float16", 104, config=config, left=True
    )


def _two_of_four(
    engine, rng, shape, n, dtype="float16", *, layout="rows", left=False, pad=False,
    backend="native", **how,
):  # fmt: skip
    pruned = np.asarray(sg.prune_24(small(rng, shape, dtype)))
    operand = sg.to_semi_structured(engine.array(pruned), pad=pad)
    if backend != "native":
        operand = operand.to_backend(backend)
    whole = pruned.astype(np.float64).T if left else pruned.astype(np.float64)
    dense = [small(rng, (whole.shape[1], n), dtype) for _ in range(8)]
    out_dtype = "int32" if dtype == "int8" else dtype
    expected = [engine.array((whole @ x).astype(out_dtype)) for x in dense]

    def call(x, out):
        side = operand.T if left else operand
        return sg.semi_structured_matmul(side, x, out=out, **how)

    return Shared(call, [laid_out(engine, x, layout) for x in dense], expected, operand)


@case
def two_of_four_copied_rows(engine, rng):
    return _two_of_four(engine, rng, (256, 256), 201)


@case
def two_of_four_few_columns(engine, rng):
    return _two_of_four(engine, rng, (256, 512), 24, layout="strided")


@case
def two_of_four_by_mma(engine, rng):
    config = {"path": "mma_sp"}
    return _two_of_four(engine, rng, (256, 256), 96, layout="backwards", config=config)


@case
def two_of_four_int8_rows(engine, rng):
    return _two_of_four(engine, rng, (256, 256), 192, "int8")


@case
def two_of_four_padded(engine, rng):
    return _two_of_four(engine, rng, (250, 100), 40, pad=True)


@case
def two_of_four_split(engine, rng):
    """The transpose is not 2:4, so it is kept as a sum of two that are."""
    return _two_of_four(engine, rng, (128, 256), 48, left=True)


@case
def two_of_four_blocks(engine, rng):
    triple = random_blocks(rng, (256, 512), (64, 64), dtype="float16", small_integers=True)
    data = np.asarray(sg.prune_24(triple[0].reshape(-1, 64))).reshape(triple[0].shape)
    shared = _bsr(engine, rng, (data, *triple[1:]), (256, 512), 104, layout="strided")
    blocks = shared.operand.semi_structured()
    shared.call = lambda x, out: sg.bsr_matmul(blocks, x, out=out)
    shared.operand = blocks
    return shared


def _vendor(make):
    def made(engine, rng):
        error = availability.why_not("tests")
        if error is not None:
            pytest.skip(str(error))
        return make(engine, rng)

    made.__name__ = make.__name__
    return case(made)


@_vendor
def cusparselt_into_rows(engine, rng):
    return _two_of_four(engine, rng, (256, 256), 64, backend="cusparselt")


@_vendor
def cusparselt_padded(engine, rng):
    return _two_of_four(engine, rng, (256, 256), 61, backend="cusparselt")


@_vendor
def cusparselt_int8_finished_by_us(engine, rng):
    """int32 sums in workspace, and our kernel behind them."""
    return _two_of_four(engine, rng, (256, 256), 64, "int8", backend="cusparselt", alpha=1.0)
