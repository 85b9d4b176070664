"""Block-sparse arrays as linear operators of SciPy and cupyx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import HALF_DTYPES, import_scipy, namespace
from .._checks import bad_type, bad_value
from ..ops._common import check_operand_dtype, check_sparse
from ..ops.addmm import bsr_matmul, dense_bsr_matmul
from ._product import bound_product


def aslinearoperator(A: Any) -> Any:
    """Return a linear operator that multiplies by a `bsr_array`.

    It goes into `scipy.sparse.linalg` for NumPy and into `cupyx.scipy.sparse.linalg` for CuPy:
    cg, gmres, lobpcg and the others.

    Products run in A's dtype: vectors of another precision are cast to it. The operator's own
    dtype is A's, float32 for 16-bit floats (whose products come back in float32).

    Parameters
    ----------
    A : bsr_array (M, K)

    Returns
    -------
    scipy.sparse.linalg.LinearOperator or cupyx.scipy.sparse.linalg.LinearOperator
        With matvec, rmatvec (the conjugate transpose), matmat and rmatmat.

    Raises
    ------
    ValueError
        For a batch.
    TypeError
        For what is no `bsr_array`, and for dtypes without a float product.
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
    check_sparse(function, "A", A)
    if A.pattern.batch_shape:
        raise bad_value(function, "A", "one matrix (2-D)", f"a batch {A.pattern.batch_shape}")
    check_operand_dtype(function, "A", A.dtype)
    if A.dtype.kind == "i":
        raise bad_type(function, "A", "a floating dtype (astype)", A.dtype)
    dtype = np.dtype(np.float32) if A.dtype in HALF_DTYPES else A.dtype

    def product(x: Any) -> Any:
        if x.dtype.kind == "c" and A.dtype.kind != "c":
            return product(x.real) + 1j * product(x.imag)
        return bsr_matmul(A, x.astype(A.dtype, copy=False), out_dtype=dtype)

    def adjoint(x: Any) -> Any:
        if x.dtype.kind == "c" and A.dtype.kind != "c":
            return adjoint(x.real) + 1j * adjoint(x.imag)
        # A^H x = conj(x^H A)^T
        row = x.astype(A.dtype, copy=False).conj().T
        return dense_bsr_matmul(row, A, out_dtype=dtype).conj().T

    operator = linear_operator(function, A, product, adjoint, dtype)
    if A.dtype == dtype:
        operator.bound = lambda r: bound_product(function, A)
    return operator


def linear_operator(
    function: str, A: Any, product: Callable, adjoint: Callable, dtype: np.dtype
) -> Any:
    """Return a linear operator of the shape of A, on arrays of A's library, (n,) and (n, r).

    One of ours may be given an attribute ``bound``, which the solvers look for: a function of r
    that returns ``product(v, out)`` for vectors (n, r) of the operator's dtype. Such a product
    takes no new memory, so that a CUDA graph can hold it.
    """
    if namespace(A.data) is np:
        import_scipy(function)
        from scipy.sparse.linalg import LinearOperator
    else:
        from cupyx.scipy.sparse.linalg import LinearOperator

    return LinearOperator(
        A.shape, matvec=product, rmatvec=adjoint, matmat=product, rmatmat=adjoint, dtype=dtype
    )
