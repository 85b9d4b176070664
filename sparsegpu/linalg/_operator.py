"""Block-sparse arrays as linear operators of SciPy and cupyx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import HALF_DTYPES, device_of, import_scipy, namespace
from .._checks import bad_type, bad_value
from ..ops._blocks_24 import check_sparse_blocks, is_semi_structured, is_sparse_blocks
from ..ops._common import check_sparse, in_dtype, on_device
from ..ops.addmm import bsr_matmul, dense_bsr_matmul
from ..ops.semi_structured import dense_semi_structured_matmul, semi_structured_matmul
from ._product import bound_product

_FLOATS = (*HALF_DTYPES, *map(np.dtype, (np.float32, np.float64, np.complex64, np.complex128)))


def aslinearoperator(A: Any) -> Any:
    """Return a linear operator that multiplies by a `sparsegpu.bsr_array`, or by a 2:4 array.

    It goes into `scipy.sparse.linalg` for NumPy and into `cupyx.scipy.sparse.linalg` for CuPy:
    cg, gmres, lobpcg and the others.

    Products run in A's dtype: vectors of another precision are cast to it. The operator's own
    dtype is A's, float32 for 16-bit floats (whose products come back in float32).

    Parameters
    ----------
    A : bsr_array, SemiStructuredArray or BsrSemiStructuredArray (M, K)

    Returns
    -------
    scipy.sparse.linalg.LinearOperator or cupyx.scipy.sparse.linalg.LinearOperator
        With matvec, rmatvec (the conjugate transpose), matmat and rmatmat; of a
        `sparsegpu.BsrSemiStructuredArray` without the second and the last.

    Raises
    ------
    ValueError
        For a batch.
    TypeError
        For what is no such array, and for dtypes without a float product.
    ImportError
        For a NumPy array where SciPy is not installed.

    Examples
    --------
    >>> import numpy as np, scipy.sparse.linalg, sparsegpu
    >>> A = sparsegpu.bsr_array(np.diag([1.0, 2, 3, 4]), blocksize=(2, 2))
    >>> x, info = scipy.sparse.linalg.cg(sparsegpu.linalg.aslinearoperator(A), np.ones(4))
    >>> np.allclose(x, [1, 1 / 2, 1 / 3, 1 / 4]), info
    (True, 0)
    """
    function = "aslinearoperator"
    multiply, from_the_left = _products(function, A)
    if A.dtype not in _FLOATS:
        raise bad_type(function, "A", "a floating dtype (astype)", A.dtype)
    dtype = np.dtype(np.float32) if A.dtype in HALF_DTYPES else A.dtype

    def of_A(x: Any) -> Any:
        return multiply(A, in_dtype(x, A.dtype), out_dtype=dtype)

    def of_adjoint(x: Any) -> Any:
        # A^H x = conj(x^H A)^T
        row = _conj(in_dtype(x, A.dtype)).T
        return _conj(from_the_left(row, A, out_dtype=dtype)).T

    adjoint = of_adjoint if from_the_left is not None else None
    operator = linear_operator(function, A, of_A, adjoint, dtype)
    if A.dtype == dtype and hasattr(A, "data"):
        operator.bound = lambda r: bound_product(function, A)
    return operator


# What these compute is in a call of its own, so that a graph keeps it; the products are not.


def _conj(x: Any) -> Any:
    if x.dtype.kind != "c":
        return x
    with on_device(x):
        return x.conj()


def _of_complex(of_real: Callable) -> Callable:
    """Return a linear function of real arrays for complex ones, too."""

    def function(x: Any) -> Any:
        if x.dtype.kind != "c":
            return of_real(x)
        real, imag = of_real(x.real), of_real(x.imag)
        with on_device(x):
            return real + 1j * imag

    return function


def _products(function: str, A: Any) -> tuple[Callable, Any]:
    """Return the functions for A @ x and, where there is one, x @ A; refuse what has neither."""
    if is_semi_structured(A):
        return semi_structured_matmul, dense_semi_structured_matmul
    if is_sparse_blocks(A):
        check_sparse_blocks(function, "A", A)
    else:
        check_sparse(function, "A", A)
    if A.pattern.batch_shape:
        raise bad_value(function, "A", "one matrix (2-D)", f"a batch {A.pattern.batch_shape}")
    return bsr_matmul, None if is_sparse_blocks(A) else dense_bsr_matmul


def linear_operator(
    function: str, A: Any, product: Callable, adjoint: Callable | None, dtype: np.dtype
) -> Any:
    """Return a linear operator of the shape of A, on arrays of A's library, (n,) and (n, r).

    Functions of a real A get real arrays only: complex ones are taken apart.

    One of ours may be given an attribute ``bound``, which the solvers look for: a function of r
    that returns ``product(v, out)`` for vectors (n, r) of the operator's dtype. Such a product
    takes no new memory, so that a CUDA graph can hold it. Its ``device`` is the number of its GPU.
    """
    if namespace(_values(A)) is np:
        import_scipy(function)
        from scipy.sparse.linalg import LinearOperator
    else:
        from cupyx.scipy.sparse.linalg import LinearOperator

    if A.dtype.kind != "c":
        product = _of_complex(product)
        adjoint = None if adjoint is None else _of_complex(adjoint)
    operator = LinearOperator(
        A.shape, matvec=product, rmatvec=adjoint, matmat=product, rmatmat=adjoint, dtype=dtype
    )
    operator.device = device_of(_values(A))
    return operator


def _values(A: Any) -> Any:
    """Return an array of A's values, of whichever half of a 2:4 matrix is held."""
    if hasattr(A, "data"):
        return A.data
    return A.packed if A.packed is not None else A.packed_t
