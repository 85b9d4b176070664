"""Arithmetic of `bsr_array`: scalars, other arrays, products.

Operations that are linear in the blocks apply to them as stored and keep the pattern, with what
is cached there. Others (abs, elementwise product) sum duplicate blocks first.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from .._arrays import as_array, bfloat16, common_namespace
from .._checks import bad_type, bad_value, broadcast_shape, kind_of, not_offered
from .._protocols import leaves
from ..engines import computing_engine, engine_module
from ..ops._bsr_product import matmul, short_product
from ..ops._common import check_sparse, is_sparse, on_device
from ..ops.spgemm import spgemm
from .align import (
    aligned,
    as_data,
    check_number,
    common_dtype,
    flat,
    in_blocks,
    is_compiled,
    is_scalar,
    united,
)
from .base import BsrBase
from .elements import is_foreign
from .multiply import divided, multiplied, scaled
from .promote import product_operands


class Operators(BsrBase):
    """Operators of `bsr_array`."""

    __slots__ = ()

    # -- products -----------------------------------------------------------------------------

    def __matmul__(self, other: Any) -> Any:
        if leaves(other, "__rmatmul__"):
            return NotImplemented
        return self._matmul("bsr_array @", other)

    def _matmul(self, function: str, other: Any, from_the_right: bool = False) -> Any:
        array, other = product_operands(function, self, other, from_the_right)
        if type(other) is np.ndarray:
            product = short_product(function, array, other, from_the_right)
            if product is not None:
                return product
        if not is_sparse(other):
            return matmul(function, array, other, from_the_right=from_the_right)
        if isinstance(other, Operators):
            other = _in_meeting_blocks(function, array, other, from_the_right)
        if from_the_right:
            return spgemm(function, ("other", "self"), other, array)
        return spgemm(function, ("self", "other"), array, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._matmul("bsr_array @", other, from_the_right=True)

    def dot(self, other: Any) -> Any:
        """Return ``self @ other``; for a scalar, ``self * other``.

        Raises
        ------
        ValueError
            Shapes that do not fit, as in `bsr_matmul` and `bsr_spgemm`.
        TypeError
            Mixed array libraries; 16-bit floats or int8 beside another dtype, which are not
            promoted; what is no number.
        """
        if is_scalar(other):
            return scaled("dot", self, other, "multiply")
        return self._matmul("dot", other)

    def aslinearoperator(self) -> Any:
        """Return a linear operator of SciPy (host) or cupyx (GPU): see `sparsegpu.linalg`."""
        from ..linalg import aslinearoperator  # the solvers, which not everybody uses

        return aslinearoperator(self)

    def matvec(self, x: Any) -> Any:
        """Return ``self @ x`` for the solvers of SciPy and cupyx, which take ``self`` by it.

        Raises
        ------
        ValueError
            For a batch, and an ``x`` of another shape than (K,) and (K, 1).
        TypeError
            For what is no array of numbers, and dtypes without a float product.
        """
        return self.aslinearoperator().matvec(self._vector("matvec", x, self.shape[-1]))

    def rmatvec(self, x: Any) -> Any:
        """Return the conjugate transpose times ``x``, see `matvec`.

        Raises
        ------
        ValueError, TypeError
            As `matvec`, with (M,) and (M, 1).
        """
        return self.aslinearoperator().rmatvec(self._vector("rmatvec", x, self.shape[-2]))

    def _vector(self, function: str, x: Any, n: int) -> Any:
        x = as_array(x, function, "x")
        common_namespace(function, self=self._data, x=x)
        if x.shape not in {(n,), (n, 1)}:
            raise bad_value(function, "x", f"shape ({n},) or ({n}, 1)", tuple(x.shape))
        if x.dtype.kind not in "biufc" and x.dtype != bfloat16:
            raise bad_type(function, "x", "numbers", x.dtype)
        return x

    # -- scalars ------------------------------------------------------------------------------

    def __mul__(self, other: Any) -> Self:
        if leaves(other, "__rmul__"):
            return NotImplemented
        return multiplied("bsr_array *", self, other)

    def __rmul__(self, other: Any) -> Self:
        if is_foreign(other) and type(other).__name__.endswith("_matrix"):
            expected = "A * other or other @ A (a sparse matrix's * is the matrix product)"
            raise bad_type("bsr_array *", "other", expected, f"a {kind_of(other)} on the left")
        return multiplied("bsr_array *", self, other)

    def __truediv__(self, other: Any) -> Self:
        if leaves(other, "__rtruediv__"):
            return NotImplemented
        return divided("bsr_array /", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        raise not_offered(
            "bsr_array /",
            "dividing by a sparse array (it would divide by every zero that is not stored)",
            "division by a scalar",
        )

    def __neg__(self) -> Self:
        if self.dtype.kind == "b":
            raise bad_type("bsr_array -", "self", "a dtype with a sign", self.dtype)
        check_sparse("bsr_array -", "self", self)
        with on_device(self._data):
            return self._with(self._pattern, -self._data)

    def __pos__(self) -> Self:
        return self.copy()

    def __abs__(self) -> Self:
        summed = self._canonical("abs")
        with on_device(summed._data):
            return self._with(summed._pattern, self._xp.absolute(summed._data))

    # -- sums ---------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if leaves(other, "__radd__", arrays=True):
            return NotImplemented
        return _combine(self, other, "add")

    def __radd__(self, other: Any) -> Any:
        return _combine(self, other, "add")

    def __sub__(self, other: Any) -> Any:
        if leaves(other, "__rsub__", arrays=True):
            return NotImplemented
        return _combine(self, other, "subtract")

    def __rsub__(self, other: Any) -> Any:
        if is_scalar(other):
            return -_combine(self, other, "subtract")
        return _combine(self, other, "subtract", reflected=True)

    # -- elementwise products -----------------------------------------------------------------

    def multiply(self, other: Any) -> Self:
        """Return the elementwise product, a `bsr_array`.

        Duplicate blocks are summed first, unless ``other`` is a scalar.

        Parameters
        ----------
        other : scalar, bsr_array, 2:4 blocks, sparse array of SciPy or cupyx, or dense array
            A sparse one of another pattern leaves the blocks that both store; one of another block
            size, or format, is converted to this one's. One row or one column broadcasts, on
            either side. A dense array broadcasts to this shape.

        Raises
        ------
        ValueError
            Shapes that do not fit; matrices of a batch that have different numbers of blocks in
            common.
        TypeError
            dtypes without a common one that can be held.
        """
        return multiplied("multiply", self, other)

    # For operators of other names, of which bool values make these.

    def _multiplied(self, other: Any, function: str) -> Any:
        return multiplied(function, self, other)

    def _added(self, other: Any, function: str) -> Any:
        return _combine(self, other, "add", function=function)


def _in_meeting_blocks(function: str, array: Any, other: Any, from_the_right: bool) -> Any:
    """Return the other operand of a product in blocks that meet those of ``array``."""
    (bm, bk), (rows, columns) = array.blocksize, other.blocksize
    if from_the_right:
        fits, wanted = other.shape[-1] == array.shape[-2], (rows, bm)
    else:
        fits, wanted = other.shape[-2] == array.shape[-1], (bk, columns)
    # shapes that do not fit are refused by the product
    return other._reblocked(function, "other", wanted) if fits else other


def _combine(
    array: Any, other: Any, name: str, *, reflected: bool = False, function: str = ""
) -> Any:
    """Add or subtract a scalar zero, a dense array or another block-sparse one."""
    function = function or f"bsr_array {'+' if name == 'add' else '-'}"
    check_sparse(function, "self", array)
    if is_scalar(other):
        check_number(function, other)
        if other == 0:
            return array.copy()
        raise not_offered(
            function,
            "a nonzero scalar (it would fill every element that is not stored)",
            "zero, bsr_array, or a dense array (the result is dense)",
        )
    other = in_blocks(function, array, other)
    if not is_sparse(other):
        other = as_array(other, function, "other")
        xp = common_namespace(function, self=array._data, other=other)
        broadcast_shape(function, "other", array.shape, tuple(other.shape), kind="shapes")
        _check_difference(function, name, common_dtype(function, array.dtype, other.dtype))
        with on_device(array._data):
            pair = (array.toarray(), other)
            return getattr(xp, name)(*(pair[::-1] if reflected else pair))
    a, b = aligned(function, array, other)
    if reflected:
        a, b = b, a
    _check_difference(function, name, a.dtype)
    with on_device(a._data):
        operation = getattr(a._xp, name)
        if a._pattern.same_as(b._pattern):
            return array._with(a._pattern, operation(a._data, b._data))
        a, b = a._canonical(function), b._canonical(function, "other")
        if computing_engine(a._xp) == "cuda" or is_compiled(a):
            combine = engine_module(a._xp, "union", function).combine
            sign, operands = 1 if name == "add" else -1, (a._pattern, a._data, b._pattern, b._data)
            return array._with(*combine(*operands, sign, function))
        pattern, blocks, place = united(a, b, function)
        # Positions in a canonical pattern are distinct, so that this adds every block.
        blocks[place] = operation(blocks[place], flat(b))
        return array._with(pattern, as_data(blocks, pattern))


def _check_difference(function: str, name: str, dtype: Any) -> None:
    if name == "subtract" and dtype.kind == "b":
        raise bad_type(function, "other", "numbers (bool has no difference)", dtype)
