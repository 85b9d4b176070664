"""What else prepares 2:4 operands: layouts, bitmasks, quantisation, an order of the columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import sparsegpu as sg

from .._arrays import dtype_of
from ..testing import to_host
from ..tuning.operands import random_array
from .case import Case
from .formats import compressed
from .workload import Arrays, Workload, bits_of

_HOPPER = (9, 0)


class Preparation(NamedTuple):
    """A function of arrays.

    Attributes
    ----------
    operands : callable
        Makes its operands from a random matrix.
    function : callable
    """

    operands: Callable[[Any], tuple]
    function: Callable[..., Any]


def _buffer(dense: Any) -> tuple:
    return sg.to_cusparselt_layout(*compressed(dense), capability=_HOPPER), dense.shape


PREPARATIONS = {
    "to_cusparselt_layout": Preparation(
        compressed, partial(sg.to_cusparselt_layout, capability=_HOPPER)
    ),
    "from_cusparselt_layout": Preparation(
        _buffer, partial(sg.from_cusparselt_layout, capability=_HOPPER)
    ),
    "reorder_meta": Preparation(
        lambda dense: (sg.restore_meta(compressed(dense)[1]),), sg.reorder_meta
    ),
    "restore_meta": Preparation(lambda dense: (compressed(dense)[1],), sg.restore_meta),
    "compressed_swizzled_bitmask": Preparation(
        lambda dense: (sg.prune_tile(dense),), sg.compressed_swizzled_bitmask
    ),
    "quantize_int8": Preparation(lambda dense: (dense,), partial(sg.quantize_int8, axis=-1)),
    "permute_for_24": Preparation(
        lambda dense: (dense,), partial(sg.permute_for_24, progress=False)
    ),
}


@dataclass(eq=False)
class PreparationWorkload(Workload):
    """A function of 2:4 on its operands."""

    def error(self) -> float:
        """Compare with the reference engine's result; 0, as all bits must agree.

        An order of columns is held to what it is for, as the search takes too long on the host.
        """
        given = (*self.operands, *self._rest())
        if self.case.operation == "permute_for_24":
            _check_order(given[0], self.call())
            return 0.0
        host = [x if isinstance(x, tuple) else to_host(x) for x in given]
        with sg.use_engine("reference"):
            wanted = PREPARATIONS[self.case.operation].function(*host)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for number, (got, expected) in enumerate(zip(self.results(), wanted, strict=True)):
            if not np.array_equal(bits_of(to_host(got)), bits_of(expected)):
                raise AssertionError(f"result {number} differs from the reference engine's")
        return 0.0

    def _rest(self) -> tuple:
        """Return the operands that are no arrays."""
        return (self.case.shape[:2],) if self.case.operation == "from_cusparselt_layout" else ()


def make_preparation(case: Case, xp: ModuleType, seed: int = 0) -> PreparationWorkload:
    """Draw the operands of a case in the given array library."""
    dense = random_array(xp, case.shape[:2], dtype_of(case.dtype), seed)
    operands, function = PREPARATIONS[case.operation]
    given = operands(dense)
    arrays: Arrays = tuple(x for x in given if not isinstance(x, tuple))
    return PreparationWorkload(case, partial(function, *given), arrays[0], arrays)


def _check_order(dense: Any, order: Any) -> None:
    """Refuse what is no permutation, or one with which pruning keeps less than without."""
    wide = to_host(dense).astype(np.float32)
    places = to_host(order)
    if not np.array_equal(np.sort(places), np.arange(wide.shape[1])):
        raise AssertionError("the result is no permutation")
    with sg.use_engine("reference"):
        pruned = [sg.prune_24(values) for values in (wide, wide[:, places])]
    before, after = (np.abs(values).sum(dtype=np.float64) for values in pruned)
    if not after > before:
        raise AssertionError(f"pruning keeps {after:.6g} of the magnitudes, {before:.6g} before")
