"""Operands whose values do not fit 32 bits on a GPU; elsewhere they are of a few blocks."""

from __future__ import annotations

import getpass
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import sparsegpu as sg
from sparsegpu._arrays import dtype_of

#: Elements of a row and of a column: together more than 2**31.
FAR = 46_400
_PATIENCE = 100  # seconds


def take_room(engine, nbytes: int, taken: ExitStack) -> None:
    """Wait until so much memory of an engine's GPU is free; skip the test where it never is.

    The processes of a parallel run take turns: it is this one's until ``taken`` is closed.
    """
    if not engine.on_gpu:
        return
    import fcntl

    pool, end = engine.xp.get_default_memory_pool(), time.monotonic() + _PATIENCE
    path = Path(tempfile.gettempdir(), f"sparsegpu-tests-{getpass.getuser()}.lock")
    lock, mine, free = taken.enter_context(path.open("w")), False, 0
    taken.callback(pool.free_all_blocks)  # before others have their turn
    while not mine or free < nbytes:
        if time.monotonic() > end:
            why = f"{free / 2**30:.0f} are free" if mine else "other tests have them"
            pytest.skip(f"{nbytes / 2**30:.0f} GiB of a GPU's memory are needed, {why}")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = True
        except BlockingIOError:
            time.sleep(0.1)
            continue
        pool.free_all_blocks()
        free, _ = engine.xp.cuda.runtime.memGetInfo()
        if free < nbytes:
            time.sleep(0.5)


def along(engine, side: int) -> int:
    """Return how many blocks of a side a row or a column has."""
    return -(-FAR // side) if engine.on_gpu else 3


def smallest(cases: list) -> Any:
    """Return the case whose values take the least memory; of several, that of largest blocks."""
    return min(cases, key=lambda case: (dtype_of(case[0]).itemsize, [-side for side in case[1]]))


def full(engine, counts: tuple[int, int], blocksize: tuple[int, int], dtype):
    """Return a matrix of zeros that stores all of so many rows and columns of blocks."""
    (rows, columns), (bm, bk), xp = counts, blocksize, engine.xp
    parts = (
        xp.zeros((rows * columns, bm, bk), dtype_of(dtype)),
        xp.tile(xp.arange(columns, dtype="int32"), rows),
        xp.arange(0, rows * columns + 1, columns, dtype="int32"),
    )
    made = sg.bsr_array(parts, shape=(rows * bm, columns * bk))
    assert not engine.on_gpu or made.size > 2**31
    return made


def of_rows(a) -> Any:
    """Return a view of the blocks of such a matrix, (rows, columns, bm, bk)."""
    return a.data.reshape(-1, a.pattern.block_shape[1], *a.blocksize)


def some_rows(a) -> set[int]:
    """Return block rows to look at; the last one ends where 32 bits do not reach."""
    last = a.pattern.block_shape[0] - 1
    return {0, last // 2, last}
