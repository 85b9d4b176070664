"""The tile that a kernel path chooses for a product of some sizes."""

from __future__ import annotations

from sparsegpu._arrays import dtype_of
from sparsegpu.engines.cuda.paths._facts import Facts
from sparsegpu.engines.cuda.paths._fields import Fields


def facts_of(dtype, blocksize, n, *, m=4096, k=4096, **more):
    rows = more.pop("rows", m // blocksize[0])
    return Facts(dtype=dtype_of(dtype), shape=(m, k, n), blocksize=blocksize, rows=rows, **more)


def tile_of(path, dtype, blocksize, n, *, config=None, **more):
    """Return what `path.tile` says of aligned operands on an H200, but for ``more``."""
    fields = Fields(config)
    tile = path.tile(facts_of(dtype, blocksize, n, **more), fields)
    fields.finish()
    return tile
