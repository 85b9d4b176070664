"""What the solvers are given: a linear system and how long to work on it, checked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from .._arrays import as_array, check_may_wait, common_namespace, device_of, is_complex, namespace
from .._checks import bad_type, bad_value, check_flags, check_integer, check_scalar, kind_of
from .._device import device_context
from ..engines import engine_module
from ..ops._common import check_sparse, is_sparse
from ._product import bound_product

DTYPES = tuple(np.dtype(name) for name in ("float32", "float64", "complex64", "complex128"))
_NAMES = ", ".join(dtype.name for dtype in DTYPES)


class System:
    """A linear system: its operands as arrays (n, r) of one dtype, its products, its passes.

    Attributes
    ----------
    xp, device : the array library, and the number of the GPU
    dtype, wide : of vectors; of dot products (float64 or complex128)
    shape : of `b` as it was given, and so of the solution
    b, x : (n, r); of `columns`, if named, there has to be an axis in b as it was given
    engine : the module `vector` of the engine
    prepare : makes a pass over vectors (`engines.reference.vector.prepare`)
    capturable : whether the products are made by our kernels alone, from no new memory
    apply : ``apply(v, out)`` writes the product of A with v (n, r) to out and returns out
    precondition : as `apply`, with M; None without M
    """

    def __init__(
        self,
        function: str,
        A: Any,
        b: Any,
        x0: Any = None,
        M: Any = None,
        *,
        real: bool = False,
        name: str = "b",
        columns: str = "",
    ):
        b = as_array(b, function, name)
        x0 = None if x0 is None else as_array(x0, function, "x0")
        operands = {"A": Operand(function, "A", A)}
        if M is not None:
            operands["M"] = Operand(function, "M", M)
        arrays = {name: b, "x0": x0} | {name: one.array for name, one in operands.items()}
        self.xp = common_namespace(function, **arrays)
        for one in operands.values():
            one.check_beside(function, name, b)
        self.function, self.device = function, device_of(b)
        with self.on_device():
            check_may_wait(self.xp, f"{function}, which looks at residuals,")
        n = operands["A"].check_square(function, "A")
        flat = b.ndim == 1
        if not ((flat and not columns) or b.ndim == 2) or (n is not None and b.shape[0] != n):
            rows = "n" if n is None else n
            vector = "" if columns else f"({rows},) or "
            expected = f"shape {vector}({rows}, {columns or 'r'})"
            raise bad_value(function, name, expected, tuple(b.shape))
        self.shape = tuple(b.shape)
        if M is not None and operands["M"].check_square(function, "M") not in {None, b.shape[0]}:
            expected = f"shape {(b.shape[0],) * 2} like A"
            raise bad_value(function, "M", expected, operands["M"].shape)
        if x0 is not None and x0.shape != b.shape:
            raise bad_value(function, "x0", f"shape {self.shape} like b", tuple(x0.shape))

        self.dtype = _system_dtype(function, operands["A"], b, real, name)
        self.wide = np.result_type(self.dtype, np.float64)
        with self.on_device():
            self.b = self._columns(function, name, b)
            self.x0_is_zero = x0 is None
            if x0 is None:
                self.x = self.xp.zeros_like(self.b)
            else:
                self.x = self._columns(function, "x0", x0).copy()
            self.apply = operands["A"].product(self, flat)
            self.precondition = operands["M"].product(self, flat) if M is not None else None
        self.capturable = all(one.capturable for one in operands.values())
        self.engine = engine_module(self.xp, "vector", function)
        self.prepare = self.engine.prepare

    def _columns(self, function: str, argument: str, array: Any) -> Any:
        """Return a vector or vectors as (n, r) in the dtype of the system."""
        if array.dtype.kind not in "biufc" or array.dtype.itemsize > self.dtype.itemsize * 2:
            raise bad_type(function, argument, f"numbers of dtype {_NAMES}", array.dtype)
        if array.dtype.kind == "c" and not is_complex(self.dtype):
            raise bad_type(function, argument, "real numbers, as A and b are", array.dtype)
        two = array[:, None] if array.ndim == 1 else array
        columns = self.xp.ascontiguousarray(two, dtype=self.dtype)
        # numba would compile passes over vectors that cannot be written to apart.
        return columns if self.xp is not np or columns.flags.writeable else columns.copy()

    def between_looks(self, check_every: int) -> int:
        """Return after how many iterations to look whether more are needed.

        On the host looking costs nothing, and an iteration too many does.
        """
        return check_every if hasattr(self.engine, "repeated") else 1

    def repeated(self, iteration: Callable[[], None]) -> Callable[..., None]:
        """Return ``run(count=1)``: an iteration so many times, as CUDA graphs where it can be."""
        if self.capturable and self.xp is not np:
            return self.engine.repeated(iteration)

        def run(count: int = 1) -> None:
            for _ in range(count):
                iteration()

        return run

    def shift(self, by: float) -> None:
        """Make the system that of ``A - by * I``."""
        if by:
            whole, prepare = self.apply, self.prepare

            numbers = self.scalars(1)
            numbers[0] = -by
            passes: dict = {}  # of an iteration, whose vectors are the same every time

            def shifted(v: Any, out: Any) -> Any:
                whole(v, out)
                if (id(v), id(out)) not in passes:
                    updates = [(out, [(None, out), (0, v)])]
                    passes[id(v), id(out)] = prepare(numbers, updates, [])
                passes[id(v), id(out)]()
                return out

            self.apply = shifted

    def scalars(self, count: int) -> Any:
        """Return ``count`` rows of numbers, one a column, in the dtype of dot products."""
        return self.xp.zeros((count, self.b.shape[1]), self.wide)

    def norms(self, vectors: Any) -> Any:
        """Return the 2-norm of each column, float64."""
        scalars = self.scalars(1)
        self.prepare(scalars, [], [(0, vectors, vectors)])()
        return self.xp.sqrt(scalars[0].real)

    def residual(self) -> Any:
        """Return ``b - A x`` in new memory."""
        r = self.b.copy()
        return r if self.x0_is_zero else r - self.apply(self.x, self.xp.empty_like(r))

    def shaped(self, x: Any) -> Any:
        """Return a solution in the shape of b."""
        return x.reshape(self.shape)

    def on_device(self) -> AbstractContextManager:
        """Make the system's GPU the current one."""
        return device_context(self.device)


class Operand:
    """A or M: a `bsr_array`, a linear operator, a matrix of SciPy, cupyx or NumPy, a callable."""

    def __init__(self, function: str, argument: str, given: Any):
        self.given, self.argument = given, argument
        self.shape: tuple[int, ...] | None = None
        self.dtype: np.dtype | None = None
        self.xp: ModuleType | None = None
        self.capturable = False
        self.device: int | None = None  # of an operator, where it says
        self.array = None  # whose library and device is that of the operand
        if is_sparse(given):
            check_sparse(function, argument, given)
            if given.dtype not in DTYPES:
                raise bad_type(function, argument, f"dtype {_NAMES} (astype)", given.dtype)
            self.array = given.data
        elif hasattr(given, "shape") and hasattr(given, "dtype") and hasattr(given, "__matmul__"):
            self.xp = _library(given)
            self.device = _device(given) if self.xp not in {None, np} else None
            if given.dtype is not None and np.dtype(given.dtype).kind not in "biufc":
                raise bad_type(function, argument, f"dtype {_NAMES}", given.dtype)
        elif not callable(given) or isinstance(given, type):
            expected = "a bsr_array, a LinearOperator or a callable"
            raise bad_type(function, argument, expected, kind_of(given))
        else:
            return
        self.shape = tuple(given.shape)
        self.dtype = None if given.dtype is None else np.dtype(given.dtype)

    def check_beside(self, function: str, name: str, array: Any) -> None:
        """Refuse an operator of another array library or GPU than an array's."""
        xp = namespace(array)
        if self.xp not in {None, xp}:
            expected = f"an operator on {xp.__name__} arrays, like '{name}'"
            raise bad_type(function, self.argument, expected, kind_of(self.given))
        device = device_of(array)
        if self.device not in {None, device}:
            expected = f"an operator on device {device} like '{name}'"
            raise bad_value(function, self.argument, expected, f"device {self.device}")

    def check_square(self, function: str, argument: str) -> int | None:
        """Return the number of rows, None where the operand does not say."""
        if self.shape is None:
            return None
        if len(self.shape) != 2:
            raise bad_value(function, argument, "one matrix (2-D)", f"a batch {self.shape}")
        if self.shape[0] != self.shape[1]:
            raise bad_value(function, argument, "a square matrix", f"shape {self.shape}")
        return self.shape[0]

    def product(self, system: System, flat: bool) -> Callable[[Any, Any], Any]:
        """Return `System.apply` of the operand; ``flat``: a callable takes vectors (n,)."""
        function, xp, dtype, given = system.function, system.xp, system.dtype, self.given
        if self.dtype is not None and is_complex(self.dtype) and not is_complex(dtype):
            raise bad_type(function, self.argument, "a real operator, as A and b are", self.dtype)
        self.capturable = True
        if is_sparse(given):
            return bound_product(function, given.astype(dtype, copy=False))
        bound = getattr(given, "bound", None)
        if bound is not None and self.dtype == dtype and self.xp is xp:
            return bound(system.b.shape[1])
        self.capturable = False
        if self.shape is not None:
            call: Callable = given.__matmul__
        else:
            call = given

        def product(v: Any, out: Any) -> Any:
            one = flat or (self.shape is not None and v.shape[1] == 1)
            result = call(v[:, 0] if one else v)
            if not isinstance(result, xp.ndarray):
                expected = f"products that are {xp.__name__} arrays"
                raise bad_type(function, self.argument, expected, kind_of(result))
            if result.size != v.size:
                expected = f"products of shape {v.shape[:1] if one else v.shape}"
                raise bad_value(function, self.argument, expected, tuple(result.shape))
            if not np.can_cast(result.dtype, dtype, "same_kind"):
                expected = f"products of dtype {dtype}, as A and b are"
                raise bad_type(function, self.argument, expected, result.dtype)
            out[...] = xp.asarray(result).reshape(v.shape)
            return out

        return product


def _library(operator: Any) -> ModuleType | None:
    """Return the array library of an operator that is no array of ours, None if unknown."""
    modules = {kind.__module__.partition(".")[0] for kind in type(operator).__mro__}
    if "cupy" in modules or "cupyx" in modules:
        import cupy

        return cupy
    return np if modules & {"numpy", "scipy"} else None


def _device(operator: Any) -> int | None:
    """Return the GPU of an operator or array of CuPy's or cupyx's, None if it does not say.

    cupyx's operator of a matrix has the matrix as an attribute.
    """
    for holder in (operator, getattr(operator, "A", None)):
        device = getattr(holder, "device", None)
        number = device if isinstance(device, int) else getattr(device, "id", None)
        if isinstance(number, int):
            return number
    return None


def _system_dtype(function: str, A: Operand, b: Any, real: bool, name: str) -> np.dtype:
    """Return the dtype to work in: SciPy's, which takes integers for float64."""
    if b.dtype.kind in "biu":
        of_b = np.dtype(np.float64)
    elif b.dtype in DTYPES:
        of_b = b.dtype
    else:
        raise bad_type(function, name, f"integers, or dtype {_NAMES} (astype)", b.dtype)
    dtype = of_b
    if A.dtype is not None:
        of_a = np.dtype(np.float64) if A.dtype.kind in "biu" else A.dtype
        if of_a not in DTYPES:
            raise bad_type(function, "A", f"dtype {_NAMES} (astype)", of_a)
        dtype = np.result_type(of_a, of_b)
    if real and is_complex(dtype):
        argument = name if is_complex(of_b) else "A"
        raise bad_type(function, argument, "a real dtype: float32 or float64", dtype)
    return dtype


class Limits(NamedTuple):
    """How long a solver works, and what it tells meanwhile."""

    rtol: float
    atol: float
    maxiter: int
    check_every: int
    callback: Callable | None
    verbose: bool
    residuals: list | None


def check_limits(
    function: str,
    rtol: Any,
    atol: Any,
    maxiter: Any,
    check_every: Any,
    callback: Any,
    verbose: Any,
    residuals: Any,
    *,
    default: int,
) -> Limits:
    """Return the keywords that all solvers have, checked; ``default`` is that of maxiter."""
    rtol = check_tolerance(function, "rtol", rtol)
    atol = check_tolerance(function, "atol", atol)
    maxiter = default if maxiter is None else check_count(function, "maxiter", maxiter, 0)
    check_every = check_count(function, "check_every", check_every, 1)
    if callback is not None and not callable(callback):
        raise bad_type(function, "callback", "a callable or None", kind_of(callback))
    if residuals is not None and not isinstance(residuals, list):
        raise bad_type(function, "residuals", "a list to append to, or None", kind_of(residuals))
    check_flags(function, verbose=verbose)
    return Limits(rtol, atol, maxiter, check_every, callback, bool(verbose), residuals)


def check_tolerance(function: str, argument: str, value: Any) -> float:
    """Return a number that is not negative."""
    number = float(check_scalar(function, argument, value, complex_allowed=False))
    if not number >= 0:
        raise bad_value(function, argument, "a number that is not negative", value)
    return number


def check_count(function: str, argument: str, value: Any, least: int) -> int:
    """Return an integer of at least ``least``."""
    count = check_integer(function, argument, value, "an integer")
    if count < least:
        raise bad_value(function, argument, f"an integer of at least {least}", value)
    return count


def to_host(array: Any) -> np.ndarray:
    """Return an array's values on the host."""
    return array if namespace(array) is np else array.get()
