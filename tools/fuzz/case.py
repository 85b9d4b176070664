"""One call: what it is given, what it must answer, and how answers are compared."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np

import sparsegpu
from sparsegpu.testing import assert_close, dense_from_blocks, exact_dtype, to_host

#: What operators raise by the contract; a method or function says itself what it raises.
OPERATOR_ERRORS = frozenset({"ValueError", "TypeError", "NotImplementedError"})


@dataclass(frozen=True)
class Close:
    """An exact result and the error bound of its sums; ``dtype`` is that of the rounded result."""

    exact: np.ndarray
    bound: Any
    dtype: np.dtype

    def check(self, got: Any) -> None:
        got = as_dense(got)
        assert got.dtype == self.dtype, f"dtype {got.dtype}, expected {self.dtype}"
        assert_close(got, self.exact, self.bound)


@dataclass(frozen=True)
class Same:
    """A result to the last bit, but for the sign of zeros."""

    expected: Any

    def check(self, got: Any) -> None:
        got, expected = as_dense(got), np.asarray(self.expected)
        if expected.dtype.name.startswith("float8") and got.dtype == np.uint8:
            got = got.view(expected.dtype)  # CuPy has no fp8 dtype
        assert got.dtype == expected.dtype, f"dtype {got.dtype}, expected {expected.dtype}"
        if expected.dtype.kind == "V":  # of ml_dtypes, of which NumPy does not see NaN
            got, expected = got.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_array_equal(got, expected, strict=True)


@dataclass(frozen=True)
class Holds:
    """A result of which something is to be said: ``rule`` raises AssertionError where it fails."""

    rule: Callable[[Any], None]

    def check(self, got: Any) -> None:
        self.rule(got)


def as_dense(got: Any) -> np.ndarray:
    """Return a result on the host, a block-sparse one densified by a plain loop."""
    if isinstance(got, sparsegpu.bsr_array):
        got.check_format()
        dense = dense_from_blocks(got.data, got.indices, got.indptr, got.shape[-2:])
        if got.dtype.kind == "b":
            return dense != 0
        narrow = dense.astype(got.dtype)
        # Duplicates may add up to what the dtype does not hold exactly: then as wide as they are.
        exact = exact_dtype(got.dtype)
        same = np.array_equal(narrow.astype(exact), dense, equal_nan=got.dtype.kind != "i")
        assert same, "duplicates in a result do not add up exactly"
        return narrow
    if isinstance(got, sparsegpu.BlockMask):
        return _unpacked(got)
    return to_host(got)


def _unpacked(mask: sparsegpu.BlockMask) -> np.ndarray:
    """Return a mask dense, of its kinds and bits as the contract has them."""
    kind, bits, (bm, bk) = to_host(mask.kind), to_host(mask.bits), mask.blocksize
    assert kind.dtype == np.uint8 and bits.dtype == np.uint32 and kind.max(initial=0) <= 2
    blocks = np.broadcast_to((kind == 1)[..., None, None], (*kind.shape, bm, bk)).copy()
    column = np.arange(bk)
    blocks[kind == 2] = bits[..., column // 32] >> (column % 32).astype(np.uint32) & 1
    return dense_from_blocks(blocks, mask.indices, mask.indptr, mask.shape[-2:]) != 0


class MustRefuse(Exception):
    """What the oracle raises for arguments that the contract has no answer to."""


def require(condition: Any, why: str) -> None:
    if not condition:
        raise MustRefuse(why)


@dataclass
class Case:
    """A call.

    Attributes
    ----------
    name : str
        What is counted: the public name.
    call : callable
        Takes ``arguments``, as the engine holds them, by keyword.
    arguments : dict
        Host values: arrays, `draws.Bsr`, `draws.TwoOfFour`, numbers, names.
    oracle : callable
        Takes ``arguments`` as they are and returns what the result must be: an object with
        ``check``, or a tuple of them. Raises where the contract has no answer.
    writes : str or None
        The argument that is written to and returned.
    documented : object, or set of names
        Whose docstring names the errors; by default the contract's rule for operators.
    fixed : frozenset of str
        Arguments that no defect is made in: of the harness, not of the call.
    refused : str
        What is malformed from the start, so that the call must be refused.
    """

    name: str
    call: Callable[..., Any]
    arguments: dict[str, Any]
    oracle: Callable[..., Any]
    writes: str | None = None
    documented: Any = OPERATOR_ERRORS
    fixed: frozenset[str] = field(default_factory=frozenset)
    refused: str = ""


def positional(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a builtin as a call by keyword, in the order of the arguments."""
    return lambda **arguments: function(*arguments.values())


def public(
    name: str,
    arguments: dict[str, Any],
    oracle: Callable[..., Any],
    *,
    path: str | None = None,
    **more: Any,
) -> Case:
    """Return the case of a function of ``sparsegpu``, on a kernel path (see `by_path`)."""
    function = attrgetter(name)(sparsegpu)
    return Case(name, by_path(function, path), arguments, oracle, documented=function, **more)


def by_path(function: Callable[..., Any], path: str | None) -> Callable[..., Any]:
    """Return the function on a kernel path wherever that serves, else on any.

    None: on any. The host has no paths; only their names are checked there.
    """
    if path is None:
        return function

    def call(**arguments: Any) -> Any:
        try:
            return function(**arguments, config={"path": path})
        except ValueError as error:
            if "'config[" not in str(error):
                raise
        return function(**arguments)

    return call


@cache
def documented_errors(documented: Any) -> frozenset[str]:
    """Return the classes that a docstring's Raises section names."""
    if isinstance(documented, frozenset):
        return documented
    section = re.search(
        r"^Raises\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", inspect.getdoc(documented) or "", re.M | re.S
    )
    if section is None:
        return frozenset()
    return frozenset(re.findall(r"\b\w+Error\b", " ".join(re.findall(r"^\S.*", section[1], re.M))))
