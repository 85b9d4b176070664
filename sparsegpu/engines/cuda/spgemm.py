"""Sparse times sparse on the device: the first path that serves it computes it (`paths.SPGEMM`)."""

from __future__ import annotations

from typing import Any

from ...pattern import Pattern
from .._pairs import Plan
from ._grid import same_place
from ._spgemm_plan import list_works, make_plan
from .paths import SPGEMM
from .paths._dispatch import tuned_works, works_of
from .paths._spgemm import Spgemm
from .paths._tuned import tuned_spgemm_config
from .runtime.launch import Work, submit
from .runtime.submission import workspace
from .winners import Config

#: Which blocks meet, and where.
plan = make_plan


def spgemm(
    out: Any,
    plan: Plan,
    left: Pattern,
    a: Any,
    right: Pattern,
    b: Any,
    *,
    config: dict[str, Any] | None = None,
) -> None:
    """Write the blocks of ``a @ b``; ``out`` is C-contiguous.

    ``config={"path": name, field: value, ...}`` chooses one of `paths.SPGEMM` and fields of its
    tile. Without it the configuration that was measured best for such operands is used if they can
    have it, else the order of the paths.

    Raises
    ------
    paths._fields.ConfigError
        A ``config`` that these operands cannot have.
    """
    lists, pattern = plan.parts, plan.pattern
    # Strided blocks are copied; the copies have to outlive the launch.
    blocks, left_blocks, right_blocks = (
        (x if x.flags.c_contiguous else x.copy()).reshape(-1, *x.shape[-2:]) for x in (out, a, b)
    )
    tuned = None if config else tuned_spgemm_config(left, right, pattern, a.dtype)
    pairs, written = lists.pairs, None
    if pairs is None:
        most = max(stretch.pairs for stretch in lists.stretches)
        pairs = workspace(2 * most * lists.dtype.itemsize).view(lists.dtype).reshape(-1, 2)
        written = workspace(4 * pattern._indices.size)
    works: tuple[Work, ...] = ()
    for stretch in lists.stretches:
        if written is not None:
            works += list_works(lists, stretch, pattern, left, right, pairs, written)
        product = Spgemm(
            out=blocks,
            a=left_blocks,
            b=right_blocks,
            starts=lists.starts,
            pairs=pairs,
            first=stretch.block,
            blocks=stretch.blocks,
            base=stretch.base,
        )
        works += _works(product, config, tuned)
    submit(*works, whole=same_place(left_blocks, a) and same_place(right_blocks, b))


def _works(product: Spgemm, config: Config | None, tuned: Config | None) -> tuple[Work, ...]:
    if config:
        return works_of(SPGEMM, product, config, "bsr_spgemm")
    return tuned_works(SPGEMM, product, tuned, "bsr_spgemm")
