"""Sparse times sparse: the sum over the pairs of blocks that meet."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...pattern import Pattern
from .._pairs import Plan, plan_of_pairs
from .scatter_mm import clear, scatter_mm


def plan(
    left: Pattern,
    right: Pattern,
    batch: tuple[int, ...],
    exact: bool,
    function: str,
    argument: str,
) -> Plan:
    """Return which blocks meet, and where."""
    return plan_of_pairs(left, right, batch, function, argument)


def spgemm(
    out: np.ndarray,
    plan: Plan,
    left: Pattern,
    a: np.ndarray,
    right: Pattern,
    b: np.ndarray,
    *,
    config: dict[str, Any] | None = None,
) -> None:
    """Write the blocks of ``a @ b``."""
    blocks = (x.reshape(-1, *x.shape[-2:]) for x in (out, a, b))
    clear(out)
    scatter_mm(*blocks, *plan.parts)
