"""The CPU engine beside SciPy, operation by operation, for ``python -m benchmarks.cpu``.

Two matrices: 3x3 blocks of float64, n = 98,304, the neighbours of a grid of 32**3 points (up to 27
blocks a row) as a finite-element matrix has them; and 16x16 blocks of float32, n = 8,192, 5 %
stored. Compilation (numba's, on the first call of a kind) is not in the times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

import sparsegpu
from sparsegpu.testing import random_blocks

#: How many times SciPy's time an operation may take.
BAR = 1.1


class Operands(NamedTuple):
    """What an operation is applied to, of either library."""

    make: Callable[..., Any]
    A: Any
    other: Any
    B: Any
    csr: Any
    coo: Any
    x: np.ndarray
    X: np.ndarray


#: Operations that both libraries write in the same way. ``other`` is A in other values, ``B`` in
#: other places, some of which A has, too.
OPERATIONS: dict[str, Callable[[Operands], Any]] = {
    "A @ x": lambda o: o.A @ o.x,
    "x @ A": lambda o: o.x @ o.A,
    "A.T @ x": lambda o: o.A.T @ o.x,
    "A @ X": lambda o: o.A @ o.X,
    "A @ A": lambda o: o.A @ o.A,
    "A + other": lambda o: o.A + o.other,
    "A + B": lambda o: o.A + o.B,
    "A.multiply(B)": lambda o: o.A.multiply(o.B),
    "A.maximum(B)": lambda o: o.A.maximum(o.B),
    "A > B": lambda o: o.A > o.B,
    "A * 2": lambda o: o.A * 2.0,
    "transpose": lambda o: o.A.T.copy() if o.make is scipy.sparse.bsr_array else o.A.T,
    "diagonal": lambda o: o.A.diagonal(),
    "sum": lambda o: o.A.sum(),
    "sum(axis=0)": lambda o: o.A.sum(axis=0),
    "sum(axis=1)": lambda o: o.A.sum(axis=1),
    "count_nonzero": lambda o: o.A.count_nonzero(),
    "max(axis=1)": lambda o: _dense(o.A.max(axis=1)),
    "power": lambda o: o.A.power(2),
    "tocsr": lambda o: o.A.tocsr(),
    "tocoo": lambda o: o.A.tocoo(),
    "from csr": lambda o: o.make(o.csr, blocksize=o.A.blocksize),
    "from coo": lambda o: o.make(o.coo, blocksize=o.A.blocksize),
}


def elasticity(across: int = 32, block: int = 3, dtype: str = "float64") -> Any:
    """Return SciPy's array of a grid of ``across**3`` points, each coupled to its neighbours."""
    line = scipy.sparse.diags_array([1.0, 1, 1], offsets=[-1, 0, 1], shape=(across, across))
    grid = scipy.sparse.kron(scipy.sparse.kron(line, line), line, format="csr")
    values = np.random.default_rng(0).standard_normal((grid.nnz, block, block)).astype(dtype)
    n = across**3 * block
    return scipy.sparse.bsr_array((values, grid.indices, grid.indptr), shape=(n, n))


def square_blocks(size: int = 8192, block: int = 16, dtype: str = "float32") -> Any:
    """Return SciPy's array of random blocks, 5 % of them stored."""
    shape, rng = (size, size), np.random.default_rng(0)
    triple = random_blocks(rng, shape, (block, block), density=0.05, dtype=dtype, shuffled=False)
    return scipy.sparse.bsr_array(triple, shape=shape)


MATRICES = {"3 x 3": elasticity, "16 x 16": square_blocks}


def implementations(theirs: Any) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    """Yield each operation by name, bound to both libraries, after a check of the results."""
    rng = np.random.default_rng(1)
    x, X = (rng.standard_normal((theirs.shape[1], *n)).astype(theirs.dtype) for n in ((), (8,)))
    rest = theirs.tocsr(), theirs.tocoo(), x, X
    three = theirs, theirs * 3, _moved(theirs)
    both = {
        "cpu": Operands(sparsegpu.bsr_array, *map(sparsegpu.bsr_array, three), *rest),
        "scipy": Operands(scipy.sparse.bsr_array, *three, *rest),
    }
    for name, operation in OPERATIONS.items():
        bound = {library: partial(operation, operands) for library, operands in both.items()}
        ours, expected = (_seen(bound[library](), X) for library in ("cpu", "scipy"))
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            ours, expected, atol=1000 * np.finfo(theirs.dtype).eps * scale, err_msg=name
        )
        yield name, bound


def _moved(theirs: Any) -> Any:
    """Return a matrix whose blocks lie a column of blocks to the right, those of the last first."""
    indices = (theirs.indices + 1) % (theirs.shape[1] // theirs.blocksize[1])
    moved = scipy.sparse.bsr_array((theirs.data, indices, theirs.indptr), shape=theirs.shape)
    moved.sort_indices()
    return moved


def _dense(result: Any) -> np.ndarray:
    return result.toarray() if scipy.sparse.issparse(result) else result


def _seen(result: Any, X: np.ndarray) -> np.ndarray:
    """Return a result dense, a sparse one as its product with a few columns."""
    if result.dtype.kind == "b":
        result = result.astype(X.dtype)
    return np.asarray(result @ X if hasattr(result, "indptr") or hasattr(result, "row") else result)
