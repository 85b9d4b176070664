"""Messages and metadata checks shared by every public function.

Each message names the function and the argument and says what was expected and what was got.
Nothing here touches the contents of an array: a check that runs on every call must not
synchronise with a device.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from numbers import Number
from typing import Any

import numpy as np

_LARGEST = int(np.finfo(np.float64).max)
#: Elements of a matrix, and of a whole batch, are numbered by int64.
_LARGEST_SIZE = 2**63 - 1


#: Characters of what was given that a message shows.
_SHOWN = 200


def _message(function: str, argument: str, expected: str, got: Any) -> str:
    return f"{function}: argument '{argument}': expected {expected}, got {shown(got)}"


def shown(x: Any, write: Callable[[Any], str] = str) -> str:
    """Return what was given as text that a message can hold; ``write`` may be `repr`, too."""
    try:
        text = write(x)
    except ValueError:  # an integer of more digits than Python writes
        text = f"{type(x).__name__} of very many digits"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def kind_of(x: Any) -> str:
    """Return the class of an argument by name, with its module: SciPy has a bsr_array too."""
    kind = type(x)
    if kind.__module__ == "builtins":
        return kind.__name__
    name = f"{kind.__module__}.{kind.__name__}"
    if hasattr(x, "tocoo") and not name.startswith("sparsegpu."):
        name += " (sparsegpu.bsr_array takes it)"
    return name


def bad_value(function: str, argument: str, expected: str, got: Any) -> ValueError:
    """Return the error for a wrong shape or value (the caller raises it)."""
    return ValueError(_message(function, argument, expected, got))


def bad_type(function: str, argument: str, expected: str, got: Any) -> TypeError:
    """Return the error for a wrong kind of thing or dtype (the caller raises it)."""
    return TypeError(_message(function, argument, expected, got))


def not_offered(function: str, what: str, instead: str) -> NotImplementedError:
    """Return the error for something the library does not do, with what it does instead."""
    return NotImplementedError(f"{function}: {shown(what)} is not offered; supported: {instead}")


def check_choice(function: str, argument: str, value: Any, choices: tuple) -> None:
    """Refuse a value outside a closed list."""
    # Of other kinds, arrays among them, a comparison need not be a bool.
    if not (value is None or isinstance(value, (str, Number))) or value not in choices:
        raise bad_value(
            function, argument, f"one of {', '.join(map(repr, choices))}", shown(value, repr)
        )


def check_flags(function: str, **flags: Any) -> None:
    """Refuse what is neither True nor False (NumPy's too): the word "no" would count as True."""
    for argument, value in flags.items():
        if not isinstance(value, (bool, np.bool_)):
            raise bad_type(function, argument, "True or False", shown(value, repr)[:60])


def check_scalar(function: str, argument: str, value: Any, *, complex_allowed: bool) -> Any:
    """Return a number as a Python scalar.

    Device scalars are refused, since reading one would synchronise.
    """
    if type(value) is float or (type(value) is int and -_LARGEST <= value <= _LARGEST):
        return value
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.generic):
        # ml_dtypes scalars (bfloat16) are np.generic too, but their .item() is a float.
        value = value.item()
    if isinstance(value, complex):
        if complex_allowed:
            return value
        raise bad_type(function, argument, "a real number for real operands", value)
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise bad_value(function, argument, "a number that a float holds", "a larger integer")
    if isinstance(value, (int, float)):
        return value
    raise bad_type(function, argument, "a Python or NumPy number", type(value).__name__)


def check_integers(
    function: str, argument: str, values: Any, expected: str, *, count: int | None = None
) -> tuple[int, ...]:
    """Return integers as a tuple of ints; floats (whole ones too) and bools are refused."""
    try:
        if not hasattr(values, "__len__"):
            raise TypeError  # a sparse array can be iterated over, too
        values = tuple(values)
        result = tuple(operator.index(n) for n in values)
    except (TypeError, NotImplementedError):  # the second from iteration over a sparse array
        raise bad_type(function, argument, expected, shown(values, repr)) from None
    if any(isinstance(n, bool) for n in values):
        raise bad_type(function, argument, expected, shown(values, repr))
    if count is not None and len(result) != count:
        raise bad_type(function, argument, expected, shown(values, repr))
    return result


def check_integer(function: str, argument: str, value: Any, expected: str) -> int:
    """Return one integer as an int; floats (whole ones too) and bools are refused."""
    try:
        result = operator.index(value)
    except (TypeError, NotImplementedError):
        raise bad_type(function, argument, expected, shown(value, repr)) from None
    if isinstance(value, (bool, np.bool_)):
        raise bad_type(function, argument, expected, shown(value, repr))
    return result


def check_size(function: str, argument: str, size: Any) -> int:
    """Return one size as an int: not negative, within 63 bits."""
    result = check_integer(function, argument, size, "an integer")
    if not 0 <= result <= _LARGEST_SIZE:
        raise bad_value(function, argument, "an integer, not negative, of 63 bits", result)
    return result


def check_axes(function: str, axes: Any) -> None:
    """Refuse axes of a transpose other than None or the two of a matrix, swapped."""
    if axes is None:
        return
    if not isinstance(axes, (tuple, list)):
        raise bad_type(function, "axes", "None or the pair (1, 0)", kind_of(axes))
    pair = check_integers(function, "axes", axes, "None or the pair (1, 0)")
    if pair not in {(1, 0), (-1, -2)}:
        raise bad_value(function, "axes", "None or (1, 0)", axes)


def check_sizes(
    function: str, argument: str, sizes: Any, expected: str, *, count: int | None = None
) -> tuple[int, ...]:
    """Return the sizes of something as ints, none negative, their product within 63 bits."""
    result = check_integers(function, argument, sizes, expected, count=count)
    if result and min(result) < 0:
        raise bad_value(function, argument, f"{expected}, none negative", result)
    check_element_count(function, argument, result)
    return result


def check_element_count(function: str, argument: str, shape: tuple[int, ...]) -> None:
    """Refuse a shape of which an int64 could not number every element, stored or not."""
    if prod(shape) > _LARGEST_SIZE or max(shape, default=0) > _LARGEST_SIZE:
        raise bad_value(function, argument, "a shape of at most 2**63 - 1 elements", shape)


def check_density(function: str, density: Any) -> float:
    """Return a density as a float in 0..1."""
    density = float(check_scalar(function, "density", density, complex_allowed=False))
    if not 0 <= density <= 1:
        raise bad_value(function, "density", "a number in 0..1", density)
    return density


def check_rng(function: str, rng: Any) -> np.random.Generator:
    """Return a generator as it is, or the one of a seed."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        bad = bad_type if isinstance(error, TypeError) else bad_value
        expected = "a numpy.random.Generator or a seed"
        raise bad(function, "rng", expected, shown(rng, repr)) from None


def check_blocksize(function: str, blocksize: Any, *, largest: int = 256) -> tuple[int, int]:
    """Return ``(bm, bk)`` as ints, each in 1..largest."""
    expected = "a pair of integers (bm, bk)"
    bm, bk = check_integers(function, "blocksize", blocksize, expected, count=2)
    if not (1 <= bm <= largest and 1 <= bk <= largest):
        raise bad_value(function, "blocksize", f"both in 1..{largest}", (bm, bk))
    return bm, bk


def broadcast_shape(
    function: str, argument: str, *shapes: tuple[int, ...], kind: str = "batch shapes"
) -> tuple[int, ...]:
    """Broadcast shapes, of batches or whole; a mismatch names the argument that did not fit."""
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        listed = " and ".join(map(str, shapes))
        raise bad_value(function, argument, f"{kind} that broadcast", listed) from None


def check_broadcasts_to(
    function: str, argument: str, shape: tuple[int, ...], target: tuple[int, ...], hint: str = ""
) -> None:
    """Refuse a shape that does not broadcast to ``target``; ``hint`` says what would help."""
    if shape == target:
        return
    fits = len(shape) <= len(target) and all(
        s in {1, t} for s, t in zip(reversed(shape), reversed(target), strict=False)
    )
    if not fits:
        raise bad_value(function, argument, f"a shape that broadcasts to {target}{hint}", shape)
