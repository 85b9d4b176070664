"""The inverses of the diagonal blocks, as a preconditioner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import check_may_wait, import_scipy, namespace
from .._checks import bad_type, bad_value
from ..ops._common import check_sparse, on_device
from ..pattern import Pattern
from ._operator import aslinearoperator
from ._system import DTYPES, to_host

_LARGEST = 64


def block_jacobi(A: Any) -> Any:
    """Return the operator that multiplies by the inverses of A's diagonal blocks.

    As ``M`` of a solver it takes out of the iterations what couples the unknowns within a block.

    Parameters
    ----------
    A : bsr_array (n, n)
        Square blocks of up to 64 x 64; float32, float64, complex64 or complex128. Blocks at the
        same place mean their sum, a diagonal block that is not stored is zero.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator or cupyx.scipy.sparse.linalg.LinearOperator
        Its products are those of a block-diagonal `sparsegpu.bsr_array`.

    Raises
    ------
    ValueError
        For a batch, A or blocks that are not square, larger blocks, and for a block that is
        singular to working precision, whatever the units of its rows; the message names the first.
    TypeError
        For what is no `sparsegpu.bsr_array`, and for other dtypes.
    NotImplementedError
        While a CUDA graph is captured: that no block is singular is read on the host.
    ImportError
        For a NumPy array where SciPy is not installed.

    Examples
    --------
    >>> import numpy as np, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 4, 8]), blocksize=(2, 2))
    >>> sparsegpu.linalg.block_jacobi(A) @ np.ones(4)
    array([1.   , 0.5  , 0.25 , 0.125])
    """
    inverse = inverse_diagonal(A, "block_jacobi")
    if namespace(inverse.data) is np:
        import_scipy("block_jacobi")  # whose class the operator is of
    return aslinearoperator(inverse)


def inverse_diagonal(A: Any, function: str, invert: Callable[[Any], Any] | None = None) -> Any:
    """Return the `bsr_array` of the inverses of A's diagonal blocks.

    Singular blocks are refused, unless ``invert`` inverts the blocks (n, b, b) in its own way.
    """
    check_sparse(function, "A", A)
    if A.pattern.batch_shape:
        raise bad_value(function, "A", "one matrix (2-D)", f"a batch {A.pattern.batch_shape}")
    if A.shape[0] != A.shape[1]:
        raise bad_value(function, "A", "a square matrix", f"shape {A.shape}")
    b, bk = A.blocksize
    if b != bk or b > _LARGEST:
        expected = f"square blocks of up to {_LARGEST} x {_LARGEST}"
        raise bad_value(function, "A", expected, f"{b} x {bk}")
    if A.dtype not in DTYPES:
        names = ", ".join(dtype.name for dtype in DTYPES)
        raise bad_type(function, "A", f"dtype {names} (astype)", A.dtype)
    xp, pattern = namespace(A.data), A.pattern
    with on_device(A.data):
        check_may_wait(xp, f"{function}, which looks for singular blocks")
        count = pattern.block_shape[0]
        stored = xp.flatnonzero(pattern._rows == pattern._indices)
        blocks = xp.zeros((count, b, b), A.dtype)
        if pattern.has_repeated_blocks:
            # As real numbers, because CuPy's `add.at` takes no complex ones.
            real = A.data.real.dtype
            data = xp.ascontiguousarray(A.data[stored]).view(real)
            xp.add.at(blocks.view(real), pattern._indices[stored], data)
        else:
            blocks[pattern._indices[stored]] = A.data[stored]
        inverse = _inverse(blocks, function) if invert is None else invert(blocks)
        numbers = xp.arange(count + 1)
        diagonal = Pattern(
            numbers, numbers[:-1], A.shape, A.blocksize, check=False, function=function
        )
        return A._with(diagonal, inverse)


def _inverse(blocks: Any, function: str) -> Any:
    """Return the inverses of blocks (n, b, b); refuse one without, by its number."""
    xp = namespace(blocks)
    if not blocks.size:
        return blocks
    try:
        with np.errstate(all="ignore"):
            inverse = xp.linalg.inv(blocks)
    except np.linalg.LinAlgError:  # which does not say of which block
        with np.errstate(all="ignore"):
            _, logarithms = np.linalg.slogdet(blocks)
        raise _singular(~np.isfinite(logarithms), function) from None
    # The condition number in the 1-norm, of the blocks with rows and columns scaled to a largest
    # number of 1: unknowns of other units are no reason to refuse a block.
    size, of_inverse = (abs(x).astype(np.float64) for x in (blocks, inverse))
    with np.errstate(all="ignore"):  # zeros and what is not finite make NaN, which is not regular
        for axis in (-1, -2):
            largest = size.max(axis=axis, keepdims=True)
            size = size / largest
            of_inverse = of_inverse * largest.swapaxes(-1, -2)
        condition = size.sum(axis=-2).max(axis=-1) * of_inverse.sum(axis=-2).max(axis=-1)
        regular = condition < 1 / np.finfo(blocks.dtype).eps
    if not bool(regular.all()):
        raise _singular(~regular, function)
    return inverse


def _singular(where: Any, function: str) -> ValueError:
    first, *more = to_host(where).nonzero()[0].tolist()
    found = f"block ({first}, {first}) singular"
    if more:
        found += f", and {len(more)} more"
    return bad_value(function, "A", "diagonal blocks that can be inverted", found)
