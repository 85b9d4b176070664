"""Every error of everything public names the caller's function and argument, as documented."""

import importlib
import io
import re

import pytest

import sparsegpu as sg
from error_cases import OTHERS, documented, functions, instances, methods, public_function
from error_cases import wrong_values as wrong

#: What has no arguments that can be wrong, or is no function.
NO_CALLS = {"__version__", "linalg", "masks", "testing", "load_npz", "use_engine"}
#: What these are made of has names of its own in messages.
PARTS = {
    "bsr_array": {"data", "indices", "indptr"},
    "BsrSemiStructuredArray": {"packed", "meta", "indices", "indptr"},
    "scatter_mm": {"c_offsets", "pq", "c_indices", "r_offsets", "p_offsets", "q_offsets"},
}
#: Sizes and values that are right by themselves, and do not fit the other arguments.
FITS_BY_ITSELF = ("array", "dimension", "another", "batch", "blocks", "empty", "int64", "uint8")
FITS_BY_ITSELF += ("half", "double", "transposed", "read-only", "fp8", "None", "zeros", "tuple")
FITS_BY_ITSELF += ("pair", "text", "masked", "class", "float", "list", "no dim", "bool", "zero")

ALL = {name: (name, None) for name in functions()}
ALL |= {f"{c}.{name}": (name, c) for c, names in methods().items() for name in names}


def test_all_that_is_public_is_here():
    listed = {name for name in functions() if "." not in name}
    assert listed | NO_CALLS == set(sg.__all__) and not listed & NO_CALLS
    for name, array in instances().items():
        kind = type(array)
        public = {m for m in dir(kind) if not m.startswith("_") and callable(getattr(kind, m))}
        assert public == methods()[name].keys()


def call_of(name):
    """Return a function, and the arguments of a call of it that works."""
    plain, kind = ALL[name]
    if kind is not None:
        return getattr(instances()[kind], plain), methods()[kind][plain]
    function = public_function(plain)
    if name == "save_npz":
        return (lambda array: sg.save_npz(io.BytesIO(), array)), functions()[name]
    return function, functions()[name]


def faults(name, function, arguments, argument, kind, error, docs):
    """Return what is wrong with an error; nothing, for a good one."""
    message, plain = str(error), name.rpartition(".")[2]
    if not docs & {base.__name__ for base in type(error).__mro__}:
        yield f"{type(error).__name__} is not documented"
    if not message.startswith((f"{plain}: ", f"{name}: ")) and f".{plain}: " not in message:
        yield "names another function"
    if len(message) > 600:
        yield "is too long"
    if isinstance(error, NotImplementedError):
        return  # says what is offered
    named = re.findall(r"argument '(\w+)", message)
    known = {*arguments, "self", *PARTS.get(name, ())}
    if not named or not set(named) <= known:
        yield "names no argument of the function"
    elif argument not in re.findall(r"\w+", message) and not (
        set(named) <= PARTS.get(name, set()) or kind.startswith(FITS_BY_ITSELF)
        or kind.endswith(FITS_BY_ITSELF)
    ):  # fmt: skip
        yield "names another argument"


@pytest.mark.parametrize("name", [n for n in ALL if not n.endswith(("to_device", "spy"))])
def test_wrong_arguments(name):
    function, arguments = call_of(name)
    if name == "BsrSemiStructuredArray.transpose":
        with pytest.raises(NotImplementedError, match="transpose: "):
            function()
        return
    if not name.endswith("npz"):
        function(**arguments)
    docs = documented(public_function(name) if ALL[name][1] is None else function)
    found, tried = [], [a for a in arguments if a not in OTHERS]
    for argument in tried:
        for kind in wrong():
            _, others = call_of(name)  # none that an earlier call wrote to
            value = wrong()[kind]
            try:
                call_of(name)[0](**(others | {argument: value}))
            except Exception as error:
                for fault in faults(name, function, arguments, argument, kind, error, docs):
                    found.append(f"{argument}={kind}: {fault}: {type(error).__name__}: {error}")
    assert not found, f"{len(found)} of {name}:\n" + "\n".join(line[:300] for line in found[:20])


OPERATORS = {
    "@": "matmul", "+": "add", "-": "sub", "*": "mul", "/": "truediv",
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}  # fmt: skip


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize("name", ["bsr_array", "SemiStructuredArray", "BsrSemiStructuredArray"])
def test_wrong_operands(name, sign):
    operate, array = (
        getattr(importlib.import_module("operator"), OPERATORS[sign]),
        instances()[name],
    )
    found = []
    for kind, value in wrong().items():
        for left in (True, False):
            try:
                operate(array, value) if left else operate(value, array)
            except (TypeError, ValueError, NotImplementedError) as error:
                message = str(error)
                ours = re.match(r"(\w+) (\S+): ", message)
                good = "argument 'other'" in message or isinstance(error, NotImplementedError)
                if ours and ours[1].endswith("rray") and good:
                    continue  # of this operator, or of its reflection
                by_python = "unsupported operand" in message or "not supported between" in message
                by_numpy = re.match(r"numpy\.\w+: argument '\w+': .* got a \w+rray$", message)
                if not (by_python or by_numpy or "argument 'self'" in message):
                    found.append(f"{kind} {'right' if left else 'left'}: {error}")
    assert not found, "\n".join(line[:300] for line in found)


def test_a_wrong_error_is_found():
    """The checks of this file, on errors that are not good enough."""

    def function(x):
        """Do nothing.

        Raises
        ------
        ValueError
            Never.
        """

    docs = documented(function)
    assert docs == {"ValueError"}
    for error, fault in (
        (TypeError("f: argument 'x': expected"), "TypeError is not documented"),
        (ValueError("g: argument 'x': expected"), "names another function"),
        (ValueError("f: argument 'y': expected"), "names no argument of the function"),
        (ValueError("f: expected x"), "names no argument of the function"),
        (ValueError(f"f: argument 'x': {'!' * 1000}"), "is too long"),
    ):
        assert fault in list(faults("f", function, {"x": 1}, "x", "object", error, docs))
    good = ValueError("f: argument 'x': expected y, got z")
    assert not list(faults("f", function, {"x": 1}, "x", "object", good, docs))
    two = {"x": 1, "z": 2}
    other = ValueError("f: argument 'z': expected y")
    assert list(faults("f", function, two, "x", "object", other, docs)) == [
        "names another argument"
    ]
