"""Ours beside the peers, in one run: ``python -m benchmarks.race``.

Every row is checked against float64 first (the accuracy bound of `sparsegpu.testing`), then timed
with CUDA events on random data: the median of 20 calls after warm-up. Peers are dense cuBLAS
through CuPy and, where torch is installed, its block-sparse product; a missing peer is reported
as missing. The table is recorded in ``benchmarks/results``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import sparsegpu as sg
from sparsegpu.testing import assert_within_bound

from .record import record

Row = dict[str, Any]


def time_ms(call: Callable[[], Any], repeats: int = 20) -> float:
    """Return the median time of a call in milliseconds, by events on the current stream."""
    import cupy

    for _ in range(3):
        call()
    spans = []
    for _ in range(repeats):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        spans.append(cupy.cuda.get_elapsed_time(start, stop))
    return float(np.median(spans))


def check_rows(out: Any, a: Any, dense: Any, dtype: Any, rows: int = 64) -> None:
    """Hold a few rows of a large product to the bound, in float64 on the host."""
    import cupy

    pick = cupy.linspace(0, a.shape[0] - 1, rows).astype(int)
    assert_within_bound(out[pick], a[pick].get(), dense.get(), dtype=dtype)


def bsr_rows(size: int = 4096) -> list[Row]:
    """BSR @ dense, square, by block size, density and dtype."""
    import cupy as cp

    rng = cp.random.default_rng(0)
    rows = []
    for dtype in ("bfloat16", "float32"):
        for block in (16, 32, 64, 128):
            for density in (0.1, 0.5):
                a = sg.random_bsr((size, size), (block, block), density, dtype=dtype, rng=0, xp=cp)
                x = rng.standard_normal((size, size), dtype=cp.float32).astype(a.dtype)
                wide = a.toarray()
                out = a @ x
                check_rows(out, wide, x, a.dtype)
                flops = 2 * a.nnz * size
                ours = time_ms(lambda a=a, x=x, out=out: sg.bsr_matmul(a, x, out=out))
                dense = time_ms(lambda wide=wide, x=x, out=out: cp.matmul(wide, x, out=out))
                rows.append(
                    {
                        "case": f"bsr {size} {dtype} {block}x{block} density {density}",
                        "ours, ms": ours,
                        "ours, TFLOP/s": flops / ours / 1e9,
                        "cuBLAS dense, ms": dense,
                        "torch bsr, ms": torch_bsr(a, x, out),
                    }
                )
    return rows


def torch_bsr(a: Any, x: Any, ours: Any) -> float | str:
    """Time torch's block-sparse product of the same matrix."""
    if importlib.util.find_spec("torch") is None:
        return "missing"
    import torch

    if a.dtype.name != "bfloat16":
        return "no kernel"
    crow, col, values = (torch.from_dlpack(v) for v in (a.indptr, a.indices, a.data))
    matrix = torch.sparse_bsr_tensor(crow, col, values, size=a.shape)
    other = torch.from_dlpack(x)
    result = matrix @ other
    error = (result.float() - torch.from_dlpack(ours).float()).abs().max().item()
    if error > 0.05 * result.float().abs().max().item():
        return f"differs by {error:.3g}"
    return time_ms(lambda: matrix @ other)


def semi_structured_rows(size: int = 4096) -> list[Row]:
    """2:4 @ dense, square."""
    import cupy as cp

    rng = cp.random.default_rng(0)
    rows = []
    for dtype in ("bfloat16", "float16"):
        dense = rng.standard_normal((size, size), dtype=cp.float32)
        pruned = sg.prune_24(dense).astype("float16" if dtype == "float16" else _bfloat16())
        w = sg.to_semi_structured(pruned)
        x = rng.standard_normal((size, size), dtype=cp.float32).astype(pruned.dtype)
        out = w @ x
        check_rows(out, pruned, x, pruned.dtype)
        ours = time_ms(lambda w=w, x=x, out=out: sg.semi_structured_matmul(w, x, out=out))
        cublas = time_ms(lambda p=pruned, x=x, out=out: cp.matmul(p, x, out=out))
        rows.append(
            {
                "case": f"2:4 {size} {dtype}",
                "ours, ms": ours,
                "ours, TFLOP/s": 2 * size**3 / ours / 1e9,
                "cuBLAS dense, ms": cublas,
            }
        )
        compress = time_ms(lambda p=pruned: sg.semi_structured_from_dense(p, strict=False))
        rows.append(
            {
                "case": f"2:4 compress {size} {dtype}",
                "ours, ms": compress,
                "ours, GB/s": pruned.nbytes * 1.5625 / compress / 1e6,
            }
        )
    return rows


def scientific_rows(size: int = 1 << 19) -> list[Row]:
    """BSR @ vector with the small blocks of scientific codes, beside cuSPARSE's CSR."""
    import cupy as cp
    import cupyx.scipy.sparse

    rows = []
    for block in (2, 3, 6):
        n = size // block * block
        a = sg.random_bsr((n, n), (block, block), 20 / (n // block), dtype="float64", rng=0, xp=cp)
        x = cp.random.default_rng(0).standard_normal(n)
        csr = cupyx.scipy.sparse.csr_matrix(a.tocsr())
        out = a @ x
        # Two float64 sums in different orders: twice the bound of one.
        bound = 4 * 40 * block * 2.0**-53 * (abs(csr) @ cp.abs(x))
        if not bool((cp.abs(out - csr @ x) <= bound).all()):
            raise AssertionError(f"BSR @ vector, {block}x{block}: outside the bound")
        ours = time_ms(lambda a=a, x=x, out=out: sg.bsr_matmul(a, x, out=out))
        rows.append(
            {
                "case": f"bsr @ vector float64 {block}x{block}, {n} rows",
                "ours, ms": ours,
                "ours, GB/s": (a.data.nbytes + a.indices.nbytes + 2 * x.nbytes) / ours / 1e6,
                "cuSPARSE csr, ms": time_ms(lambda csr=csr, x=x: csr @ x),
            }
        )
    return rows


def _bfloat16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16


def main() -> int:
    """Run all rows, print the table and record it."""
    rows = bsr_rows() + semi_structured_rows() + scientific_rows()
    for row in rows:
        rest = "  ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in row.items()
            if key != "case"
        )
        print(f"{row['case']:44s} {rest}", flush=True)
    record("race", {"rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
