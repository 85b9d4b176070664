"""Operands of classes that neither we nor the array libraries know: their operators get a turn."""

from __future__ import annotations

import operator
import re

import numpy as np
import pytest

import sparsegpu as sg

SIGNS = {
    "@": operator.matmul, "*": operator.mul, "/": operator.truediv, "+": operator.add,
    "-": operator.sub, "**": operator.pow, "&": operator.and_, "|": operator.or_,
    "^": operator.xor, "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
MADE = {
    "bsr_array": lambda: sg.bsr_array(np.eye(4), blocksize=(2, 2)),
    "BsrSemiStructuredArray": lambda: sg.bsr_array(
        np.eye(32, dtype=np.float32), blocksize=(32, 32)
    ).semi_structured(),
    "SemiStructuredArray": lambda: sg.to_semi_structured(np.eye(32, dtype=np.float32)),
    "BlockMask": lambda: sg.causal(8, 4, compact=True),
}
#: Which operators a class has beside comparisons.
OWN = {
    "bsr_array": ("@", "*", "/", "+", "-", "**", "&", "|", "^"),
    "BsrSemiStructuredArray": ("@", "*", "/", "+", "-"),
    "SemiStructuredArray": ("@", "*", "/", "+", "-"),
    "BlockMask": ("&", "|", "^"),
}
EACH = [(name, sign) for name in MADE for sign in (*OWN[name], *COMPARISONS)]


def answer(self, other):
    return "mine", type(other).__name__


#: What a user's class may define: reflected operators, and comparisons.
ANSWERS = {
    f"__{name}__": answer
    for name in (
        "rmatmul", "rmul", "rtruediv", "radd", "rsub", "rpow", "rand", "ror", "rxor",
        "eq", "ne", "lt", "le", "gt", "ge",
    )
}  # fmt: skip


class Plain:
    pass


class Shaped:
    """An object that looks like an array, and converts to none."""

    shape, ndim, dtype = (4, 4), 2, np.dtype(float)


class Converting:
    """An array with something of its own, such as labels."""

    shape, ndim, dtype = (4, 4), 2, np.dtype(float)

    def __array__(self, dtype=None, copy=None):
        return np.eye(4)


@pytest.mark.parametrize("base", [Plain, Shaped])
@pytest.mark.parametrize("name, sign", EACH)
def test_a_class_with_the_reflected_operator_answers(name, sign, base):
    other = type("Mine", (base,), ANSWERS)()
    assert SIGNS[sign](MADE[name](), other) == ("mine", name)


@pytest.mark.parametrize("name, sign", EACH)
def test_one_that_asks_to_be_left_alone_answers(name, sign):
    other = type("Mine", (np.ndarray,), {**ANSWERS, "__array_ufunc__": None})((4, 4))
    assert SIGNS[sign](MADE[name](), other) == ("mine", name)


@pytest.mark.parametrize("sign", ["+", "-", *COMPARISONS])
def test_one_that_converts_answers_as_with_scipy(sign):
    other = type("Mine", (Converting,), ANSWERS)()
    assert SIGNS[sign](MADE["bsr_array"](), other) == ("mine", "bsr_array")


@pytest.mark.parametrize("sign", ["@", "*", "+", "-", *COMPARISONS])
def test_what_pandas_has_is_an_array(sign):
    """A DataFrame takes what it does not know for a list of rows, unless that goes before it."""
    frame = type("Frame", (Converting,), {**ANSWERS, "__pandas_priority__": 4000})()
    a = MADE["bsr_array"]()
    assert a.__pandas_priority__ > frame.__pandas_priority__
    result = SIGNS[sign](a, frame)
    result = getattr(result, "toarray", lambda: result)()
    np.testing.assert_array_equal(result, SIGNS[sign](a.toarray(), np.eye(4)))


@pytest.mark.parametrize("sign", ["@", "*"])
def test_one_that_converts_is_an_array_to_products(sign):
    other = type("Mine", (Converting,), ANSWERS)()
    result = SIGNS[sign](MADE["bsr_array"](), other)
    np.testing.assert_array_equal(np.eye(4), getattr(result, "toarray", lambda: result)())


@pytest.mark.parametrize("name, sign", [(n, s) for n, s in EACH if s not in COMPARISONS])
def test_one_without_it_is_refused_by_name(name, sign):
    """By us, which says more than Python's unsupported operand types."""
    error = NotImplementedError if sign == "/" and name != "bsr_array" else TypeError
    with pytest.raises(error, match="^" + re.escape(f"{name} {sign}") + ": "):
        SIGNS[sign](MADE[name](), Plain())


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
def test_no_order_with_one_without_it(name, sign):
    with pytest.raises(TypeError, match=f"'{sign}' not supported between|^{name} {sign}: "):
        SIGNS[sign](MADE[name](), Plain())
    assert (MADE[name]() == Plain()) is False and (MADE[name]() != Plain()) is True


@pytest.mark.parametrize("sign", ["@", "*", "+", "-", "&", "|", "^"])
def test_from_the_left_it_has_had_its_turn(sign):
    """Our reflected operators say what was wrong, and do not ask its class again."""
    with pytest.raises(TypeError, match="^" + re.escape(f"bsr_array {sign}") + ": argument"):
        SIGNS[sign](type("Mine", (Plain,), ANSWERS)(), MADE["bsr_array"]())


@pytest.mark.parametrize("other", ["a", b"a", {"a": 1}, {1}, None, object()])
def test_what_python_itself_has_is_refused_as_before(other):
    a = MADE["bsr_array"]()
    for sign in ("@", "*", "+", "-", "**"):
        with pytest.raises(TypeError, match=r"^bsr_array [@*+-]"):
            SIGNS[sign](a, other)


def test_ufuncs_are_left_to_a_class_that_has_them():
    def answered(self, ufunc, method, *inputs):
        return ufunc.__name__

    other = type("Mine", (Converting,), {**ANSWERS, "__array_ufunc__": answered})()
    assert np.add(MADE["bsr_array"](), other) == "add"
    np.testing.assert_array_equal(np.matmul(MADE["bsr_array"](), other), np.eye(4))
    with pytest.raises(TypeError, match=r"^numpy\.arctan2: "):
        np.arctan2(MADE["bsr_array"](), other)


def test_numpy_functions_refuse():
    other = type("Mine", (Plain,), ANSWERS)()
    with pytest.raises(TypeError, match=r"^numpy\.add: "):
        np.add(MADE["bsr_array"](), other)
