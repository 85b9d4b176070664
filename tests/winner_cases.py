"""A winner of `tune`, as the tests of what is measured and of what is kept have it."""

from sparsegpu.engines.cuda.winners import Family, Kind, Winner, density_bucket

FAMILY = Family("bsr_addmm", "90", "bfloat16", (32, 32), "rows")
KIND = Kind(FAMILY, (4096, 4096, 4096), density_bucket(0.1))


def winner(kind=KIND, ms=1.0, **fields):
    return Winner(kind, {"path": "wgmma", **fields}, ms, 2.0)
