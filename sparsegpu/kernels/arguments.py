"""A kernel's arguments: checked against its parameters, copied where a call must not write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._arrays import is_cupy
from .._checks import bad_type, bad_value, kind_of, shown
from .._overlap import interleaved
from .._ptx.access import POINTER, SCALAR, TENSOR_MAP, UNTYPED, WORD, Formal
from .config import Out
from .declaration import Declared, dtype_of
from .memory import extent, is_array, library, view_in
from .tensor_map import BYTES, TensorMap

#: The range of a number whose sign the PTX does not tell.
_RANGES = {1: (-(2**7), 2**8), 2: (-(2**15), 2**16), 4: (-(2**31), 2**32), 8: (-(2**63), 2**64)}
#: What may be passed for a pointer, and for an array with its shape.
_ARRAYS = ("an array or None", "an array")


class Parameter(NamedTuple):
    """What a call is checked against.

    ``integer`` is None where nothing but the size is known; a number's own kind counts then.
    ``layout``: an array's dimensions, and their order as NumPy's flags have it, where these count.
    """

    name: Any
    kind: str
    size: int
    dtype: np.dtype | None
    integer: bool | None
    layout: tuple[int, str] = (0, "")


def parameter_of(name: Any, formal: Formal, declared: Declared | None) -> Parameter:
    """Return what is known of a parameter from its PTX and its declaration."""
    dtype = dtype_of(declared.type) if declared is not None else None
    integer = None if formal.type == UNTYPED else formal.type[0] != "f"
    return Parameter(name, formal.kind, formal.size, dtype, integer)


def pointer(name: Any, dtype: np.dtype | None = None) -> Parameter:
    """Return what a declaration alone tells of a pointer."""
    return Parameter(name, POINTER, 8, dtype, True)


def bind(
    function: str, names: Sequence[Any], args: tuple, keywords: Mapping[str, Any]
) -> dict[Any, Any]:
    """Return the arguments by name, in the order of the parameters."""
    if len(args) > len(names):
        raise bad_type(function, "args", f"{len(names)} arguments ({_list(names)})", len(args))
    bound = dict(zip(names, args, strict=False))
    for name, value in keywords.items():
        if name not in names:
            raise bad_type(function, name, f"one of the parameters {_list(names)}", name)
        if name in bound:
            raise bad_type(function, name, "one value", "two")
        bound[name] = value
    missing = [name for name in names if name not in bound]
    if missing:
        raise bad_type(function, "args", f"also {_list(missing)}", f"{len(bound)} arguments")
    return {name: bound[name] for name in names}


def _list(names: Sequence[Any]) -> str:
    return ", ".join(map(str, names)) or "none"


def check(function: str, parameter: Parameter, value: Any) -> Any:
    """Return an argument as the kernel takes it, or refuse it."""
    name = str(parameter.name)
    number = isinstance(value, int | np.integer)
    if parameter.integer is None:
        number = isinstance(value, int | float | np.number)
        parameter = parameter._replace(integer=not isinstance(value, float | np.floating))
    if parameter.kind == SCALAR or (parameter.kind == WORD and number):
        return _number(function, name, parameter, value)
    if parameter.kind in {POINTER, WORD}:
        if isinstance(value, Out) or (value is None and not parameter.layout[1]):
            return value
        if not is_array(value):
            raise bad_type(function, name, _ARRAYS[bool(parameter.layout[1])], kind_of(value))
        if parameter.dtype is not None and value.dtype != parameter.dtype:
            expected = f"an array of {parameter.dtype}, as the kernel declares"
            raise bad_type(function, name, expected, value.dtype)
        check_layout(function, name, parameter.layout, value)
        return value
    if isinstance(value, TensorMap):
        if parameter.size != BYTES:
            raise bad_type(function, name, f"a struct of {parameter.size} bytes", "a TensorMap")
        return value
    if parameter.kind == TENSOR_MAP:
        raise bad_type(function, name, "a kernels.TensorMap", kind_of(value))
    data = value.tobytes() if isinstance(value, np.generic | np.ndarray) else value
    if not isinstance(data, bytes):
        raise bad_type(function, name, f"a struct of {parameter.size} bytes", kind_of(value))
    if len(data) != parameter.size:
        raise bad_value(function, name, f"a struct of {parameter.size} bytes", len(data))
    return data


def check_out(function: str, parameter: Parameter, out: Out, bound: Mapping[Any, Any]) -> None:
    """Refuse an `Out` of another element type, or other dimensions, than the kernel declares."""
    like: Any = out if out.like is None else bound.get(out.like)
    if out.like is not None and not is_array(like):
        return  # `allocated` refuses it
    dtype, shape = np.dtype(like.dtype), np.atleast_1d(like.shape)
    if parameter.dtype is not None and dtype != parameter.dtype:
        expected = f"an Out of {parameter.dtype}, as the kernel declares"
        raise bad_type(function, str(parameter.name), expected, dtype)
    dimensions, order = parameter.layout
    if order and len(shape) != dimensions:
        expected = f"an Out of {dimensions} dimensions, as declared"
        raise bad_value(function, str(parameter.name), expected, len(shape))


def check_layout(function: str, name: str, layout: tuple[int, str], array: Any) -> None:
    """Refuse an array of other dimensions, or in another order, than a signature has."""
    dimensions, order = layout
    if order and array.ndim != dimensions:
        raise bad_value(function, name, f"{dimensions} dimensions, as declared", array.ndim)
    if order in {"C", "F"} and not array.flags[f"{order}_CONTIGUOUS"]:
        expected = f"an array in {order} order without gaps, as declared"
        raise bad_value(function, name, expected, f"strides {array.strides}")


def _number(function: str, name: str, parameter: Parameter, value: Any) -> np.generic:
    """Return a number in the type of a parameter."""
    if is_array(value) or not isinstance(value, (int, float, np.generic)):
        raise bad_type(function, name, "a number", kind_of(value))
    dtype = parameter.dtype
    integer = parameter.integer if dtype is None else dtype.kind in "iub"
    if not integer:
        dtype = dtype or np.dtype(f"f{parameter.size}")
        if not isinstance(value, (float, np.floating)) and dtype.kind == "f":
            raise bad_value(function, name, f"a float for {dtype}", shown(value, repr))
        with np.errstate(over="ignore"):
            return dtype.type(value)
    if not isinstance(value, (int, np.integer, np.bool_)):
        raise bad_value(function, name, "an integer", shown(value, repr))
    low, stop = _RANGES[parameter.size]
    if dtype is not None and dtype.kind == "b":
        low, stop = 0, 2
    elif dtype is not None:
        low, stop = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max) + 1
    if not low <= int(value) < stop:
        raise bad_value(function, name, f"an integer in {low}..{stop - 1}", shown(value))
    if dtype is None:
        dtype = np.dtype(f"{'i' if int(value) < 0 else 'u'}{parameter.size}")
    return dtype.type(int(value))


def fact(value: Any, bound: Mapping[Any, Any]) -> Any:
    """Return what winners depend on: a number, or an array's shape and dtype."""
    if isinstance(value, Out) and value.like is not None:
        value = bound.get(value.like)
    if is_array(value):
        return tuple(value.shape), value.dtype.name
    if isinstance(value, Out):
        shape = value.shape if isinstance(value.shape, tuple) else (value.shape,)
        return shape, np.dtype(value.dtype).name
    return value.item() if isinstance(value, np.generic) else value


def check_one_device(function: str, bound: Mapping[Any, Any]) -> bool:
    """Return whether the arrays are CuPy's; refuse a mixture, and two devices."""
    arrays = {name: value for name, value in bound.items() if is_array(value)}
    on_device = {name: is_cupy(value) for name, value in arrays.items()}
    if len(set(on_device.values())) > 1:
        host = next(name for name, device in on_device.items() if not device)
        raise bad_type(function, str(host), "a CuPy array, as the others are", "a NumPy array")
    if not any(on_device.values()):
        return False
    devices = {value.data.device_id for value in arrays.values()}
    if len(devices) > 1:
        raise bad_value(function, "args", "arrays of one device", sorted(devices))
    return True


def share(a: Any, b: Any) -> bool:
    """Return whether two arrays have a byte in common."""
    (a0, a1), (b0, b1) = extent(a), extent(b)
    if a0 >= b1 or b0 >= a1:
        return False
    most: Any = 100_000  # of steps; NumPy's stubs know its two special values only
    try:
        if is_cupy(a):  # whose own comparison lists the places of all elements on the device
            return interleaved(a, b, most)
        return np.shares_memory(a, b, max_work=most)
    except np.exceptions.TooHardError:
        return True


def _same_bytes(a: Any, b: Any) -> bool:
    if extent(a) != extent(b):
        return False
    alike = (a.shape, a.strides, a.itemsize) == (b.shape, b.strides, b.itemsize)
    whole = all(abs(extent(x)[1] - extent(x)[0]) == x.nbytes for x in (a, b))
    return alike or whole


def check_writable(function: str, name: Any, array: Any, in_place: bool) -> None:
    """Refuse an array that is written although its memory does not allow it."""
    repeats = any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))
    if repeats and array.size:  # an empty array's strides mean nothing
        expected = "an array without broadcast dimensions (stride 0): it is written"
        raise bad_value(function, str(name), expected, f"strides {array.strides}")
    if in_place and isinstance(array, np.ndarray) and not array.flags.writeable:
        raise bad_value(function, str(name), "a writeable array: it is written", "a read-only one")


def cloned(function: str, bound: Mapping[Any, Any], written: Sequence[Any]) -> dict[Any, Any]:
    """Return the arguments with copies of those that are written.

    What shares its bytes with a written one shares its copy. Strides are kept.

    Raises
    ------
    ValueError
        For an argument that overlaps a written one in a part.
    """
    result = dict(bound)
    arrays = {n: v for n, v in bound.items() if is_array(v) and v.size}
    done: set[Any] = set()
    for name in written:
        array = arrays.get(name)
        if array is None or name in done:
            continue
        group = [name]
        for other, value in arrays.items():
            if other != name and share(array, value):
                if not _same_bytes(array, value):
                    expected = f"no partial overlap with '{name}', which is written"
                    raise bad_value(function, str(other), expected, "one")
                group.append(other)
        copy = _copy_of_bytes(array)
        for member in group:
            result[member] = _view(copy, arrays[member])
        done.update(group)
    return result


def _copy_of_bytes(array: Any) -> Any:
    """Return new memory as large as an array's, with its elements in their places."""
    low, high = extent(array)
    memory = library(array).empty(high - low, np.uint8)
    _view(memory, array)[...] = array
    return memory


def _view(memory: Any, like: Any) -> Any:
    """Return an array in other memory, whose first byte is that of the group's extent."""
    return view_in(memory, 0, like, extent(like)[0])


def allocated(function: str, name: Any, out: Out, bound: Mapping[Any, Any], read: bool) -> Any:
    """Return the array that an `Out` stands for."""
    if read and out.fill is None:
        raise bad_value(function, str(name), "an Out with fill: the kernel may read it", "none")
    arrays = {n: v for n, v in bound.items() if is_array(v)}
    shape, dtype = out.shape, out.dtype
    if out.like is not None:
        if out.like not in arrays:
            expected = f"Out(like=...) one of the arrays {_list(list(arrays))}"
            raise bad_value(function, str(name), expected, shown(out.like, repr))
        shape, dtype = arrays[out.like].shape, arrays[out.like].dtype
    xp = library(next(iter(arrays.values()), np.empty(0)))
    return xp.empty(shape, dtype) if out.fill is None else xp.full(shape, out.fill, dtype)
