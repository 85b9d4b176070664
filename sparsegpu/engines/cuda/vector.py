"""Linear combinations of vectors and dot products, by CuPy's own array operations.

Nothing here waits for the device. A sum has the same order in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy


def prepare(
    scalars: Any,
    updates: Sequence[tuple[Any, Sequence[tuple[int | None, Any]]]],
    dots: Sequence[tuple[int, Any, Any]],
) -> Callable[[Any], None]:
    """Return a pass over vectors: linear combinations, then dot products of what they became.

    As `engines.reference.vector.prepare` says.
    """

    def run(active: Any) -> None:
        for target, terms in updates:
            value = None
            for row, vector in terms:
                term = vector if row is None else scalars[row].astype(target.dtype) * vector
                value = term if value is None else value + term
            target[...] = value if active is None else cupy.where(active, value, target)
        for row, u, v in dots:
            scalars[row] = (u.conj() * v).sum(axis=0, dtype=scalars.dtype)

    return run
