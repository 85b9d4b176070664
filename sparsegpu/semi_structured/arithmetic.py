"""Arithmetic of a `SemiStructuredArray` on the halves that it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._arrays import common_namespace
from .._checks import bad_value
from ..bsr.arithmetic_24 import Arithmetic24, same_elements
from ..ops._common import on_device
from ..ops.prune_tiles import compressed_swizzled_bitmask
from .layout import padded_to_format


class Arithmetic(Arithmetic24):
    """Operators of `SemiStructuredArray`; the halves that are held now are computed."""

    __slots__ = ()

    def _mapped(self: Any, function: str, operation: Callable, linear: bool) -> Any:
        del function, linear
        with on_device(self._halves.any().packed):
            halves = [self._halves.stored(side) for side in (0, 1)]
            parts = [(None, None) if h is None else (operation(h.packed), h.meta) for h in halves]
            return self._with_halves(parts)

    def _paired(self: Any, function: str, other: Any, operation: Callable, linear: bool) -> Any:
        del linear
        mine, theirs = self._halves, other._halves
        common_namespace(function, self=mine.any().packed, other=theirs.any().packed)
        if self.shape != other.shape:
            raise bad_value(function, "other", f"shape {self.shape}", other.shape)
        transposed = self._transposed ^ other._transposed
        sides = [s for s in (0, 1) if mine.stored(s) and theirs.stored(s ^ transposed)]
        parts: list[tuple] = [(None, None), (None, None)]
        with on_device(mine.any().packed):
            for side in sides:
                one, two = mine.stored(side), theirs.stored(side ^ transposed)
                if not same_elements(one.meta, two.meta):
                    sides = []
                    break
                parts[side] = operation(one.packed, two.packed), one.meta
            if not sides:
                expected = "the same elements kept (A.todense() has all)"
                raise bad_value(function, "other", expected, "others")
            return self._with_halves(parts)

    def _with_halves(self: Any, parts: list[tuple]) -> Any:
        """Return an array of sides 0 and 1, with a bitmask if this one has it."""
        ordered = parts[::-1] if self._transposed else parts
        array = self._of_parts([*ordered[0], *ordered[1], None])
        if self._bitmask is None:
            return array
        bits = compressed_swizzled_bitmask(padded_to_format(array.todense(), both=True))
        return self._of_parts([*ordered[0], *ordered[1], bits])
