"""Every error of everything public names the caller's function and argument, as documented."""

import io
import operator
import re
from functools import partial

import pytest

import sparsegpu as sg
from error_cases import OTHERS, documented, functions, instances, methods, public_function
from error_cases import wrong_values as wrong

pytestmark = [
    # NumPy's own, of numbers that are too large and of comparisons that it gives up.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

#: What has no arguments that can be wrong, or is no function.
NO_CALLS = {"__version__", "kernels", "linalg", "masks", "testing", "load_npz", "use_engine"}
NO_CALLS |= {"load_safetensors"}
NO_CALLS |= {"AttentionGradients"}
#: What arguments are made of has names of its own in messages.
PARTS = {
    "bsr_array": {"data", "indices", "indptr"},
    "BsrSemiStructuredArray": {"packed", "meta", "indices", "indptr"},
    "scatter_mm": {"c_offsets", "pq", "c_indices", "r_offsets", "p_offsets", "q_offsets"},
}
#: What no argument takes. Other values may be right by themselves and not fit the other arguments.
NEVER_RIGHT = {
    "object",
    "bytes",
    "function",
    "dict",
    "set",
    "ragged list",
    "objects",
    "dates",
    "file",
}

ALL = {name: (name, None) for name in functions()}
ALL |= {f"{c}.{name}": (name, c) for c, names in methods().items() for name in names}


def test_all_that_is_public_is_here():
    listed = {name for name in functions() if "." not in name}
    assert listed | NO_CALLS == set(sg.__all__) and not listed & NO_CALLS
    for name, array in instances().items():
        kind = type(array)
        public = {m for m in dir(kind) if not m.startswith("_") and callable(getattr(kind, m))}
        assert public == methods()[name].keys()


@pytest.fixture(scope="module")
def cases():
    """Return functions, and the arguments of calls of them that work, by name."""
    found, arrays, of_arrays, of_functions = {}, instances(), methods(), functions()
    for name, (plain, kind) in ALL.items():
        if kind is None:
            found[name] = public_function(plain), of_functions[name]
        else:
            found[name] = getattr(arrays[kind], plain), of_arrays[kind][plain]
    return found


def faults(name, arguments, argument, kind, error, docs):
    """Return what is wrong with an error; nothing, for a good one."""
    message, plain = str(error), name.rpartition(".")[2]
    if not docs & {base.__name__ for base in type(error).__mro__}:
        yield f"{type(error).__name__} is not documented"
    if not message.startswith(f"{plain}: ") and f".{plain}: " not in message:
        yield "names another function"
    if len(message) > 1000:
        yield "is too long"
    if isinstance(error, NotImplementedError):
        return  # says what is offered
    named, words = re.findall(r"argument '(\w+)", message), re.findall(r"\w+", message)
    parts = PARTS.get(name, set())
    if not named or not set(named) <= {*arguments, "self", *parts}:
        yield "names no argument of the function"
    elif kind in NEVER_RIGHT and argument not in words and not set(named) <= parts:
        yield "names another argument"


@pytest.mark.parametrize("name", [n for n in ALL if not n.endswith(("to_device", "spy"))])
def test_wrong_arguments(name, cases):
    function, arguments = cases[name]
    docs = documented(function)
    if name == "BsrSemiStructuredArray.transpose":
        with pytest.raises(NotImplementedError, match=r"transpose: "):
            function()
        return
    if name in {"save_npz", "save_safetensors"}:
        function = partial(function, io.BytesIO())
    if arguments:
        function(**arguments)
    found = []
    for argument in arguments.keys() - OTHERS:
        for kind, value in wrong().items():
            try:
                function(**(arguments | {argument: value}))
            except Exception as error:
                seen = f"{argument}={kind}: {type(error).__name__}: {error}"
                ours = faults(name, arguments, argument, kind, error, docs)
                found.extend(f"{fault}: {seen}" for fault in ours)
    assert not found, f"{len(found)} of {name}:\n" + "\n".join(line[:300] for line in found[:20])


OPERATORS = {
    "@": "matmul", "+": "add", "-": "sub", "*": "mul", "/": "truediv",
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "&": "and_", "|": "or_",
    "^": "xor",
}  # fmt: skip
#: What Python says of operands that have no such operator, NumPy and SciPy of sparse ones.
OF_OTHERS = (
    r"(bad operand|unsupported operand)|'[<>]=?' not supported between|can only concatenate"
    r"|can't (concat|multiply)|numpy\.\w+: argument '\w+': .* got a \w+$"
    r"|\w+: expected a dense array; A\.todense\(\) makes"
)


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize("name", ["bsr_array", "SemiStructuredArray", "BsrSemiStructuredArray"])
def test_wrong_operands(name, sign):
    operate, array = getattr(operator, OPERATORS[sign]), instances()[name]
    found = []
    for kind, value in wrong().items():
        if kind == "masked":
            continue  # numpy.ma compares by itself
        for operands in ((array, value), (value, array)):
            try:
                operate(*operands)
            except Exception as error:
                message = str(error)
                offered = isinstance(error, NotImplementedError)
                named = offered or re.search(r"argument '(other|self)'", message)
                ours = named and re.match(r"(bsr_array|\w+Array) \S+: ", message)
                if not ours and not re.match(OF_OTHERS, message):
                    found.append(f"{kind}: {type(error).__name__}: {error}")
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
        (ValueError("f: argument 'z': expected y"), "names another argument"),
        (ValueError(f"f: argument 'x': {'!' * 2000}"), "is too long"),
    ):
        assert fault in list(faults("f", {"x": 1, "z": 2}, "x", "object", error, docs))
    good = ValueError("f: argument 'x': expected y, got z")
    assert not list(faults("f", {"x": 1}, "x", "object", good, docs))
