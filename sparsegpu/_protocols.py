"""What NumPy's functions do with sparse arrays, and which operands have operators of their own.

Some functions are answered by methods, all others refuse: NumPy would make an array of objects of
what it does not know, or swallow the error of a conversion (`numpy.array_equal` then says False).
So all its functions and ufuncs come here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from numbers import Number
from typing import Any

import numpy as np

from ._checks import bad_type, bad_value

#: Operators by ufunc: ours on the left, on the right.
_OPERATORS: dict[Any, tuple[str, ...]] = {
    np.add: ("__add__", "__radd__"),
    np.subtract: ("__sub__", "__rsub__"),
    np.multiply: ("__mul__", "__rmul__"),
    np.divide: ("__truediv__", "__rtruediv__"),
    np.matmul: ("__matmul__", "__rmatmul__"),
    np.power: ("__pow__", "__rpow__"),
    np.maximum: ("maximum", "maximum"),
    np.minimum: ("minimum", "minimum"),
    np.equal: ("__eq__", "__eq__"),
    np.not_equal: ("__ne__", "__ne__"),
    np.less: ("__lt__", "__gt__"),
    np.less_equal: ("__le__", "__ge__"),
    np.greater: ("__gt__", "__lt__"),
    np.greater_equal: ("__ge__", "__le__"),
    np.bitwise_and: ("__and__", "__rand__"),
    np.bitwise_or: ("__or__", "__ror__"),
    np.bitwise_xor: ("__xor__", "__rxor__"),
    np.logical_and: ("__and__", "__rand__"),
    np.logical_or: ("__or__", "__ror__"),
    np.logical_xor: ("__xor__", "__rxor__"),
    np.invert: ("__invert__",),
    np.negative: ("__neg__",),
    np.positive: ("__pos__",),
}
_ATTRIBUTES = {
    np.shape: "shape",
    np.ndim: "ndim",
    np.size: "size",
    np.real: "real",
    np.imag: "imag",
}
_METHODS = {
    np.transpose: "transpose",
    np.sum: "sum",
    np.mean: "mean",
    np.max: "max",
    np.amax: "max",
    np.min: "min",
    np.amin: "min",
    np.nanmax: "nanmax",
    np.nanmin: "nanmin",
    np.reshape: "reshape",
    np.diagonal: "diagonal",
    np.copy: "copy",
    np.round: "round",
    np.trace: "trace",
    np.argmax: "argmax",
    np.argmin: "argmin",
    np.nonzero: "nonzero",
    np.count_nonzero: "count_nonzero",
}


class _OfTheClass:
    """``__array_ufunc__`` for NumPy's ufuncs, which ask the class; an array itself says None.

    CuPy's operators and those of masked arrays ask the array: they then call ours at once, and not
    by way of ufuncs.
    """

    def __init__(self, function: Callable):
        self._function = function

    def __get__(self, array: Any, owner: type) -> Callable | None:
        return self._function if array is None else None


#: What NumPy's ``x @= y`` passes to `numpy.matmul`: that nothing is broadcast.
_AXES_IN_PLACE = ([(-1,), (-2, -1), (-1,)], [(-2, -1)] * 3)


class Sparse:
    """Base of the sparse classes: NumPy and CuPy defer to their operators and keep them sparse."""

    __slots__ = ()

    __array_priority__ = 10.1

    #: Larger than those of pandas, whose operators then leave it to ours: else a DataFrame would
    #: take a sparse array for a list of rows, and add its transpose.
    __pandas_priority__ = 5000

    #: Values of this array and another wherever either stores one, and the calling function.
    _beside: Callable[[Any, str], tuple[Any, Any]]

    #: Write the array to a file, compressed or not, for a function of that name.
    _save: Callable[[str, Any, bool], None]

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Refuse: nothing is made dense, or put into an array of objects, unasked."""
        for_scipy = ""
        if hasattr(self, "to_scipy"):
            for_scipy = (
                ", A.to_scipy() what SciPy takes, bsr_array(C, blocksize=A.blocksize) what may "
                "stand on the left of A"
            )
        raise TypeError(
            f"{type(self).__name__}: expected a dense array; A.todense() makes one{for_scipy} "
            "(nothing is made dense unasked)"
        )

    @_OfTheClass
    def __array_ufunc__(
        self: Any, ufunc: Any, method: str, *inputs: Any, out: Any = (), **keywords: Any
    ) -> Any:
        """Do what the operator does, into a dense ``out`` if there is one (``y += A``)."""
        function = f"numpy.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
        names = [f"x{i + 1}" for i in range(ufunc.nin)] if ufunc.nin > 1 else ["x"]
        if ufunc is np.matmul and out and keywords.get("axes") in _AXES_IN_PLACE:  # x @= A
            function, keywords = "x @= A (x = x @ A makes a new array)", {}
        if method == "__call__" and not keywords and not any(isinstance(y, Sparse) for y in out):
            result = _computed(self, ufunc, inputs)
            if result is not NotImplemented:
                dense = out and isinstance(result, Sparse)
                return _written(function, result.toarray() if dense else result, *out)
            if ufunc in _OPERATORS and any(map(_has_ufuncs, inputs)):
                return NotImplemented  # which NumPy asks next
        raise _refusal(function, self, [*zip(names, inputs), *(("out", y) for y in out)])

    def __cupy_override_elementwise_kernel__(
        self, kernel: Any, *args: Any, out: Any = None, **keywords: Any
    ) -> Any:
        """Do for CuPy's ufuncs what `__array_ufunc__` does: its arrays' ``y += A`` calls one."""
        ufunc = getattr(np, kernel.name.removeprefix("cupy_"), None)
        if not isinstance(ufunc, np.ufunc):
            raise _refusal(kernel.name, self, [(str(i + 1), x) for i, x in enumerate(args)])
        inputs, outs = args[: ufunc.nin], args[ufunc.nin :] if out is None else (out,)
        compute: Any = Sparse.__array_ufunc__
        return compute(self, ufunc, "__call__", *inputs, out=outs, **keywords)

    def __array_function__(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        """Answer the functions that are ours, too, and refuse the others."""
        del types
        if func in _ANSWERS:
            return _ANSWERS[func](*args, **kwargs)
        if args and args[0] is self:
            name = _ATTRIBUTES.get(func)
            if name and hasattr(type(self), name) and len(args) == 1 and not kwargs:
                return getattr(self, name)
            name = _METHODS.get(func)
            if name and hasattr(type(self), name):
                return getattr(self, name)(*args[1:], **kwargs)
        module = func.__module__ or "numpy"
        given = [*((str(i + 1), x) for i, x in enumerate(args)), *kwargs.items()]
        raise _refusal(f"{module}.{func.__name__}", self, given)


def _computed(array: Any, ufunc: Any, inputs: tuple) -> Any:
    """Return what the operator gives, NotImplemented where there is none."""
    names = _OPERATORS.get(ufunc)
    if names is None:
        compute = getattr(array, "_elementwise", None) if ufunc.nin == ufunc.nout == 1 else None
        return compute(ufunc) if compute else NotImplemented
    left = isinstance(inputs[0], Sparse)
    array, *others = inputs if left else reversed(inputs)
    compute = getattr(array, names[0] if left else names[-1], None)
    return compute(*map(_number, others)) if compute else NotImplemented


def _has_ufuncs(x: Any) -> bool:
    """Return whether the class of an operand answers NumPy's ufuncs, and is no array library's."""
    kind = type(x)
    if isinstance(x, _OPERANDS) or any(hasattr(kind, mark) for mark in _MARKS):
        return False
    return getattr(kind, "__array_ufunc__", None) is not None


def _number(x: Any) -> Any:
    """Return an array of no dimensions as a scalar: as such NumPy's scalars come here."""
    return x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x


def _written(function: str, result: Any, out: Any = None) -> Any:
    """Return a result, in ``out`` if there is one, by the rules of NumPy's ufuncs."""
    if out is None:
        return result
    if result.shape != out.shape:
        raise bad_value(function, "out", f"shape {result.shape}", out.shape)
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise bad_type(function, "out", f"a dtype that holds {result.dtype}", out.dtype)
    out[...] = result
    return out


def _refusal(function: str, array: Any, given: list[tuple[str, Any]]) -> TypeError:
    """Return the error for a function that takes no sparse array, naming where it was given."""
    place = next((name for name, x in given if _holds(x, array)), given[0][0] if given else "1")
    expected = "dense arrays (A.todense() makes one; what sparse ones have are their methods)"
    return bad_type(function, place, expected, f"a {type(array).__name__}")


def _holds(x: Any, array: Any) -> bool:
    return x is array or (isinstance(x, (list, tuple)) and any(y is array for y in x))


# -- operands of other classes -------------------------------------------------------------------

#: What the operators take themselves, and what marks a class whose arrays they take.
_OPERANDS = (Number, np.generic, np.ndarray, list, tuple, Sparse)
_MARKS = ("__dlpack__", "__cuda_array_interface__", "__pandas_priority__", "tocoo", "pattern")


def leaves(other: Any, reflected: str, arrays: bool = False) -> bool:
    """Return whether an operator returns NotImplemented, which leaves ``other`` to its own class.

    Python then calls the class's reflected operator, so only a class that defines one is left to
    itself, and no class whose objects are arrays or numbers. As in SciPy, what NumPy would convert
    (by ``__array__``) is an array to ``@`` and ``*``, and is left to itself by ``+``, ``-`` and
    comparisons (``arrays``). ``__array_ufunc__ = None`` asks to be left to itself always.
    """
    kind: Any = type(other)
    return _leaves_class(kind, reflected, arrays)


@lru_cache(maxsize=256)
def _leaves_class(kind: type, reflected: str, arrays: bool) -> bool:
    if not any(reflected in base.__dict__ for base in kind.__mro__ if base is not object):
        return False
    if getattr(kind, "__array_ufunc__", False) is None:
        return True
    if kind.__module__ == "builtins" or issubclass(kind, _OPERANDS):
        return False
    if any(hasattr(kind, mark) for mark in _MARKS):
        return False
    return arrays or not hasattr(kind, "__array__")


# -- functions of two arrays --------------------------------------------------------------------


def _beside(function: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Return dense arrays of the values of both, wherever either stores one."""
    return a._beside(b, function) if isinstance(a, Sparse) else b._beside(a, function)[::-1]


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Do `numpy.array_equal`."""
    shapes = [x.shape if hasattr(x, "shape") else np.asarray(x).shape for x in (a1, a2)]
    if tuple(shapes[0]) != tuple(shapes[1]):
        return False
    return bool(np.array_equal(*_beside("numpy.array_equal", a1, a2), equal_nan=equal_nan))


def allclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Do `numpy.allclose`."""
    pair = _beside("numpy.allclose", a, b)
    return bool(np.allclose(*pair, rtol=rtol, atol=atol, equal_nan=equal_nan))


def dot(a: Any, b: Any) -> Any:
    """Do `numpy.dot` of two operands of which one at least is sparse."""
    of_ours = getattr(a, "dot", None) if isinstance(a, Sparse) else None
    return of_ours(b) if of_ours else a @ b


def _is_complex(x: Any) -> bool:
    return x.dtype.kind == "c"


_ANSWERS: dict[Any, Callable] = {
    np.array_equal: array_equal,
    np.allclose: allclose,
    np.dot: dot,
    np.iscomplexobj: _is_complex,
    np.isrealobj: lambda x: not _is_complex(x),
}
