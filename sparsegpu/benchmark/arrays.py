"""What is done with sparse arrays besides products, compared with SciPy or NumPy on the host.

Many of these calls wait for the device, because the size of the result is known there alone. So
the time of a whole call is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import sparsegpu as sg

from ..testing import to_host
from ..tuning.operands import random_array
from .case import Case
from .peer import NotAvailableError, Prepared
from .workload import Arrays, Workload, make_matrix

#: Blocks of each row of the other operand of a sum.
_OTHERS = 9
#: A value may differ from SciPy's by so many units in the last place of the largest, for each
#: element that it is a sum of: the order of sums is not SciPy's.
_ULPS = 4


class Work(NamedTuple):
    """An operation, ready to be called.

    Attributes
    ----------
    call : callable
    expected : callable
        Returns the result as SciPy or NumPy has it.
    operands : tuple of array
    terms : int
        Elements that each of the result is a sum of; 0: all bits must agree.
    peer : callable, optional
        Does the same with cupyx.
    seen : callable, optional
        Returns what is compared of a result.
    """

    call: Callable[[], Any]
    expected: Callable[[], Any]
    operands: Arrays
    terms: int = 0
    peer: Callable[[], Any] | None = None
    seen: Callable[[Any], Any] = lambda result: result


@dataclass(eq=False)
class ArrayWorkload(Workload):
    """An operation on sparse arrays.

    Attributes
    ----------
    work : Work
    """

    work: Work

    def results(self) -> Arrays:
        return _parts(self.work.seen(self.call()))

    def error(self) -> float:
        """Compare the whole result; return the largest error as a fraction of what is allowed."""
        return self.error_of(self.work.seen(self.call()))

    @cached_property
    def _expected(self) -> Any:
        return self.work.expected()

    def error_of(self, result: Any) -> float:
        """Compare a result, which may be a peer's."""
        found, expected = _on_host(result), self._expected
        if tuple(found.shape) != tuple(expected.shape):
            raise AssertionError(f"the result has shape {found.shape}, not {expected.shape}")
        off = abs(found - expected).max()
        if off == 0:
            return 0.0
        allowed = _ULPS * self.work.terms * np.finfo(found.dtype).eps * abs(expected).max()
        if not off <= allowed:
            raise AssertionError(f"the result is off by {off:.3g}, of {allowed:.3g} allowed")
        return float(off / allowed)


def make_array(case: Case, xp: ModuleType, seed: int = 0) -> ArrayWorkload:
    """Draw the operands of a case in the given array library."""
    matrix = make_matrix(case, xp, seed)
    work = OPERATIONS[case.operation](matrix, case, seed)
    return ArrayWorkload(case, work.call, matrix.data, work.operands, work)


def prepare_array(workload: ArrayWorkload) -> Prepared:
    """Prepare cupyx's operation on the same matrices in CSR, and compare its result."""
    call = workload.work.peer
    if call is None:
        raise NotAvailableError("not offered")
    result = call()
    try:
        workload.error_of(result)
    except AssertionError as error:
        raise NotAvailableError(str(error)) from None
    return Prepared(call, result)


def _parts(result: Any) -> Arrays:
    """Return the arrays that a result consists of."""
    if hasattr(result, "indptr"):
        return result.data, result.indices, result.indptr
    return (result,)


def _on_host(result: Any) -> Any:
    """Return a result as SciPy's CSR array or as NumPy's."""
    if isinstance(result, sg.bsr_array):
        if result.dtype.kind not in "fc":  # bfloat16, which SciPy has not
            return to_host(result.toarray()).astype(np.float32)
        return _scipys(result).tocsr()
    if hasattr(result, "indptr"):
        import scipy.sparse

        parts = tuple(to_host(array) for array in _parts(result))
        return scipy.sparse.csr_array(parts, shape=result.shape)
    found = to_host(result)
    return found if found.dtype.kind in "fc" else found.astype(np.float32)


def _scipys(matrix: sg.bsr_array) -> Any:
    return (matrix if isinstance(matrix.data, np.ndarray) else matrix.get()).to_scipy()


def _csr(matrix: sg.bsr_array) -> Any:
    """Return a matrix as cupyx or SciPy has it, whichever fits its arrays."""
    found = matrix.tocsr()
    found.sort_indices()
    return found


# -- operations ---------------------------------------------------------------------------------


def _transpose(matrix: sg.bsr_array, *_: Any) -> Work:
    theirs = _csr(matrix)
    return Work(
        lambda: matrix.T,
        lambda: _scipys(matrix).T.tocsr(),
        _parts(matrix),
        peer=lambda: theirs.T.tocsr(),
    )


def _tocsr(matrix: sg.bsr_array, *_: Any) -> Work:
    return Work(matrix.tocsr, lambda: _scipys(matrix).tocsr(), _parts(matrix))


def _from_csr(matrix: sg.bsr_array, *_: Any) -> Work:
    theirs = _csr(matrix)
    call = partial(sg.bsr_array, theirs, blocksize=matrix.blocksize)
    return Work(call, lambda: _scipys(matrix).tocsr(), _parts(theirs))


def _sum(matrix: sg.bsr_array, case: Case, seed: int) -> Work:
    """Add a matrix of another pattern."""
    density = min(_OTHERS * case.block[1] / case.shape[1], 1.0)
    drawn = replace(case, pattern="strata", density=density)
    other = make_matrix(drawn, _library(matrix), seed + 1)
    both = _csr(matrix), _csr(other)
    return Work(
        lambda: matrix + other,
        lambda: _scipys(matrix).tocsr() + _scipys(other).tocsr(),
        (*_parts(matrix), *_parts(other)),
        terms=2,
        peer=lambda: both[0] + both[1],
    )


def _rows(matrix: sg.bsr_array, case: Case, _: int) -> Work:
    """Take the half of the block rows that is in the middle."""
    count, height = matrix.pattern.block_shape[0], case.block[0]
    rows = slice(count // 4 * height, (count // 4 + count // 2) * height)
    theirs = _csr(matrix)
    return Work(
        lambda: matrix[rows],
        lambda: _scipys(matrix).tocsr()[rows],
        _parts(matrix),
        peer=lambda: theirs[rows],
    )


def _tril(matrix: sg.bsr_array, *_: Any) -> Work:
    theirs = _csr(matrix)

    def expected() -> Any:
        import scipy.sparse

        return scipy.sparse.tril(_scipys(matrix), format="csr")

    def peer() -> Any:
        from cupyx.scipy.sparse import tril

        return tril(theirs, format="csr")

    return Work(partial(sg.tril, matrix), expected, _parts(matrix), peer=peer)


def _row_sums(matrix: sg.bsr_array, *_: Any) -> Work:
    theirs = _csr(matrix)
    return Work(
        lambda: matrix.sum(axis=1),
        lambda: np.asarray(_scipys(matrix).sum(axis=1)).ravel(),
        _parts(matrix),
        terms=int(np.diff(to_host(theirs.indptr)).max()),
        peer=lambda: theirs.sum(axis=1).ravel(),
    )


def _from_blocks(matrix: sg.bsr_array, _: Case, seed: int) -> Work:
    """Assemble a matrix of two blocks for each place, in an order of no use."""
    xp = _library(matrix)
    rows = np.repeat(np.arange(matrix.pattern.block_shape[0]), np.diff(to_host(matrix.indptr)))
    order = np.random.default_rng(seed).permutation(2 * len(rows))
    rows, columns = (
        xp.asarray(np.tile(places, 2)[order]) for places in (rows, to_host(matrix.indices))
    )
    blocks = random_array(xp, (len(order), *matrix.blocksize), matrix.dtype, seed)
    (bm, bk), shape = matrix.blocksize, matrix.shape
    row = (rows[:, None, None] * bm + xp.arange(bm)[:, None] + xp.zeros(bk, int)).ravel()
    column = (columns[:, None, None] * bk + xp.zeros((bm, 1), int) + xp.arange(bk)).ravel()
    elements = blocks.ravel(), (row, column)

    def expected() -> Any:
        import scipy.sparse

        values, places = elements
        on_host = to_host(values), tuple(map(to_host, places))
        return scipy.sparse.coo_array(on_host, shape=shape).tocsr()

    def peer() -> Any:
        from cupyx.scipy.sparse import coo_matrix

        return coo_matrix(elements, shape=shape).tocsr()

    call = partial(sg.from_blocks, rows, columns, blocks, shape)
    return Work(call, expected, (rows, columns, blocks), terms=2, peer=peer)


def _kron(matrix: sg.bsr_array, _: Case, seed: int) -> Work:
    """Put a multiple of one block at each nonzero of a matrix of numbers."""
    scalars = matrix.data[:, 0, 0], matrix.indices, matrix.indptr
    numbers = sg.bsr_array(
        (scalars[0][:, None, None], *scalars[1:]), shape=matrix.pattern.block_shape
    ).tocsr()
    block = random_array(_library(matrix), matrix.blocksize, matrix.dtype, seed + 1)

    def expected() -> Any:
        import scipy.sparse

        parts = tuple(map(to_host, _parts(numbers)))
        mine = scipy.sparse.csr_array(parts, shape=numbers.shape)
        return scipy.sparse.kron(mine, to_host(block), format="csr")

    def peer() -> Any:
        from cupyx.scipy.sparse import csr_matrix, kron

        return kron(numbers, csr_matrix(block), format="csr")

    return Work(partial(sg.kron, numbers, block), expected, (*_parts(numbers), block), peer=peer)


def _block_jacobi(matrix: sg.bsr_array, _: Case, seed: int) -> Work:
    """Invert the diagonal blocks, none of which is near a singular one; seen by a product."""
    xp, size = _library(matrix), matrix.blocksize[0]
    rows = np.repeat(np.arange(matrix.pattern.block_shape[0]), np.diff(to_host(matrix.indptr)))
    on_diagonal = np.flatnonzero(rows == to_host(matrix.indices))
    matrix.data[xp.asarray(on_diagonal)] += xp.asarray(4 * size * np.eye(size))
    x = random_array(xp, (matrix.shape[0],), matrix.dtype, seed + 1)

    def expected() -> np.ndarray:
        inverses = np.linalg.inv(to_host(matrix.data)[on_diagonal])
        return (inverses @ to_host(x).reshape(-1, size, 1)).ravel()

    call = partial(sg.linalg.block_jacobi, matrix)
    return Work(call, expected, _parts(matrix), terms=4 * size, seen=lambda M: M @ x)


def _dense_of(matrix: sg.bsr_array) -> np.ndarray:
    """Return a matrix as float32 array on the host."""
    (rows, columns), (bm, bk) = matrix.pattern.block_shape, matrix.blocksize
    dense = np.zeros((rows, columns, bm, bk), np.float32)
    row = np.repeat(np.arange(rows), np.diff(to_host(matrix.indptr)))
    dense[row, to_host(matrix.indices)] = to_host(matrix.data)
    return dense.swapaxes(1, 2).reshape(matrix.shape)


def _toarray(matrix: sg.bsr_array, *_: Any) -> Work:
    return Work(matrix.toarray, partial(_dense_of, matrix), _parts(matrix))


def _from_dense(matrix: sg.bsr_array, *_: Any) -> Work:
    dense = matrix.toarray()
    call = partial(sg.bsr_array, dense, blocksize=matrix.blocksize)
    return Work(call, partial(_dense_of, matrix), (dense,))


def _prune_blocks(matrix: sg.bsr_array, case: Case, seed: int) -> Work:
    dense = random_array(_library(matrix), matrix.shape, matrix.dtype, seed + 1)
    (rows, columns), (bm, bk) = matrix.pattern.block_shape, case.block

    def expected() -> np.ndarray:
        blocks = to_host(dense).astype(np.float32).reshape(rows, bm, columns, bk)
        norms = np.square(blocks, dtype=np.float64).sum(axis=(1, 3))
        least = np.sort(norms, axis=None)[-round(case.density * norms.size)]
        return np.where((norms >= least)[:, None, :, None], blocks, 0).reshape(dense.shape)

    return Work(partial(sg.prune_blocks, dense, case.block, case.density), expected, (dense,))


#: Each takes a matrix, its case and a seed.
OPERATIONS: dict[str, Callable[[sg.bsr_array, Case, int], Work]] = {
    "A.T": _transpose,
    "A + B": _sum,
    "A[rows]": _rows,
    "tril": _tril,
    "A.sum(axis=1)": _row_sums,
    "A.tocsr()": _tocsr,
    "from CSR": _from_csr,
    "from_blocks": _from_blocks,
    "kron": _kron,
    "A.toarray()": _toarray,
    "from dense": _from_dense,
    "prune_blocks": _prune_blocks,
    "block_jacobi": _block_jacobi,
}


def _library(matrix: sg.bsr_array) -> ModuleType:
    from .._arrays import namespace

    found: ModuleType = namespace(matrix.data)
    return found
