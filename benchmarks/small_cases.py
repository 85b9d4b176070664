"""Every kernel once, at sizes small enough for compute-sanitizer.

Sizes are ragged on purpose (partial tiles are where accesses go astray). Run as a program, it
fails when a kernel of `sparsegpu._kernel_table` that this device can run was not launched: a
sanitizer run that misses a kernel is no evidence.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

import sparsegpu as sg
from sparsegpu.engines.cuda._schedule import row_groups
from sparsegpu.testing import random_blocks, random_values, to_host

_PRODUCT_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "complex64", "complex128")


def section_of(kernel: str) -> str:
    """Return the name of the section whose cases reach a kernel."""
    if kernel.startswith(("semi_structured", "prune")):
        return "semi_structured"
    if kernel in {"bsr_attention", "bsr_softmax"}:
        return kernel.removeprefix("bsr_")
    if kernel.startswith("bsr_schedule"):
        return "schedules"
    return (
        "products" if kernel.endswith(("mm", "_simt", "_sm80", "_f32", "_f64")) else "conversions"
    )


def cases(xp: ModuleType, sections: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """Run every operation (of some sections) on arrays of ``xp``; yield names and results."""
    for section in (products, schedules, conversions, softmax, attention, semi_structured):
        if not sections or section.__name__ in sections:
            yield from section(xp, np.random.default_rng(1))


def block_sparse(xp, rng, shape, blocksize, dtype, **keywords):
    """Return a hard random pattern (unsorted, duplicates, empty rows) as a bsr_array."""
    keywords.setdefault("duplicates", True)
    arrays = random_blocks(rng, shape, blocksize, dtype=dtype, **keywords)
    return sg.bsr_array(tuple(xp.asarray(a) for a in arrays), shape=shape)


def products(xp, rng):
    """BSR products over dtypes and block sizes, plain and with everything fused."""
    for dtype in _PRODUCT_DTYPES:
        for blocksize in ((1, 1), (3, 5), (8, 8), (16, 16), (32, 16), (64, 64)):
            shape = (blocksize[0] * 3, blocksize[1] * 4)
            a = block_sparse(xp, rng, shape, blocksize, dtype, density=0.4)
            for n in (1, 37):
                x = xp.asarray(random_values(rng, (shape[1], n), dtype))
                yield f"bsr_addmm {dtype} {blocksize} {n}", a @ x
            if dtype in {"float16", "float32", "int8"}:
                keywords = {"out_dtype": np.float32} if dtype == "int8" else {}
                bias = xp.ones((shape[0], 1), dtype="float32" if dtype == "int8" else dtype)
                scale = xp.ones(shape[0], dtype="float32")
                fused = sg.bsr_addmm(
                    bias, a, x, beta=2, alpha=3, left_alpha=scale, activation="gelu", **keywords
                )
                yield f"bsr_addmm fused {dtype} {blocksize}", fused
            x = xp.asarray(random_values(rng, (19, shape[0]), dtype))
            yield f"dense_bsr_matmul {dtype} {blocksize}", x @ a
        a = block_sparse(xp, rng, (48, 64), (16, 16), dtype, density=0.4)
        m1 = xp.asarray(random_values(rng, (48, 21), dtype))
        m2 = xp.asarray(random_values(rng, (21, 64), dtype))
        yield f"sampled_addmm {dtype}", sg.sampled_addmm(a, m1, m2).data
        b = block_sparse(xp, rng, (64, 32), (16, 8), dtype, density=0.4)
        yield f"bsr_spgemm {dtype}", (a @ b).data
        dense = xp.asarray(random_values(rng, (64, 40), dtype))
        yield f"bsr_scatter_mm {dtype}", sg.bsr_scatter_mm(a, dense)
        for name in ("scatter_mm", "bsr_strided_mm"):
            plan = sg.bsr_scatter_mm_indices_data(a, dense, name)
            yield f"bsr_scatter_mm {name} {dtype}", sg.bsr_scatter_mm(a, dense, plan)
    a = block_sparse(xp, rng, (64, 64), (16, 16), "float32", density=0.4)
    x = xp.asarray(random_values(rng, (64, 33), "float32"))
    yield "bsr_addmm tf32", sg.bsr_matmul(a, x, allow_tf32=True)


def schedules(xp, rng):
    """Row groups of the products, with and without repeated blocks, one stretch and several."""
    if xp is np:
        return
    for duplicates in (False, True):
        for rows, shape in ((4, (19, 70)), (256, (9, 5000))):
            a = block_sparse(xp, rng, shape, (1, 1), "int8", density=0.2, duplicates=duplicates)
            made = row_groups(a.pattern, rows)
            for group in range(made.groups):  # what lies between two groups was not written
                start, count = int(made.starts[group]), int(made.counts[group])
                name = f"row_groups {shape} {duplicates} {group}"
                yield f"{name} columns", made.columns[start : start + count]
                yield f"{name} blocks", made.blocks[start * rows : (start + count) * rows]
            yield f"row_groups {shape} {duplicates} order", made.order


def conversions(xp, rng):
    """Dense to BSR and back, transposition, sums of duplicates."""
    wide = xp.asarray(random_values(rng, (48, 640), "float32") > 1)
    yield "bsr_array, many blocks a tile", sg.bsr_array(wide, blocksize=(8, 2)).data
    for dtype in (*_PRODUCT_DTYPES, "bool"):
        a = block_sparse(xp, rng, (24, 35), (8, 7), dtype, density=0.4)
        dense = a.toarray()
        yield f"toarray {dtype}", dense
        yield f"bsr_array {dtype}", sg.bsr_array(dense, blocksize=(4, 5)).data
        yield f"transpose {dtype}", a.T.data
        a.sum_duplicates()
        yield f"sum_duplicates {dtype}", a.data


def softmax(xp, rng):
    """Softmax of rows that a warp works on, and of one that takes a thread block."""
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        a = block_sparse(xp, rng, (24, 700), (8, 7), dtype, density=0.4, duplicates=False)
        yield f"bsr_softmax {dtype}", sg.bsr_softmax(a).data
    a = block_sparse(xp, rng, (16, 4096), (8, 8), "float32", density=0.9, duplicates=False)
    yield "bsr_softmax, long rows", sg.bsr_softmax(a).data


def attention(xp, rng):
    """Attention with grouped heads, bool and float masks, causal, dropout."""
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        q = xp.asarray(random_values(rng, (2, 4, 48, 20), dtype))
        k = xp.asarray(random_values(rng, (2, 2, 32, 20), dtype))
        v = xp.asarray(random_values(rng, (2, 2, 32, 24), dtype))
        for kind in ("bool", dtype):
            mask = block_sparse(xp, rng, (48, 32), (16, 8), kind, density=0.6)
            result = sg.scaled_dot_product_attention(
                q, k, v, mask, is_causal=True, dropout_p=0.2, seed=3, return_lse=True
            )
            yield f"attention {dtype} {kind}", result[0]


def semi_structured(xp, rng):
    """2:4 formats, pruning and products."""
    for dtype in ("float16", "bfloat16", "float32", "int8"):
        weight = xp.asarray(random_values(rng, (64, 128), dtype))
        pruned = sg.prune_24(weight, keep="1:2" if dtype == "float32" else "2:4")
        packed, meta = sg.semi_structured_from_dense(pruned)
        yield f"from_dense {dtype}", packed
        yield f"to_dense {dtype}", sg.semi_structured_to_dense(packed, meta)
        yield f"restore_meta {dtype}", sg.reorder_meta(sg.restore_meta(meta))
        w = sg.to_semi_structured(pruned)
        x = xp.asarray(random_values(rng, (128, 37), dtype))
        yield f"semi_structured {dtype}", w @ x
        bias = xp.ones((64, 1), dtype=dtype)
        fused = sg.semi_structured_addmm(bias, w, x, alpha=2, activation="silu", allow_tf32=True)
        yield f"semi_structured fused {dtype}", fused
        for algorithm in ("largest_abs_values_greedy", "largest_values_greedy", "causal1122"):
            yield f"prune_tile {dtype}", sg.prune_tile(weight, algorithm)
        if dtype == "float32":
            continue
        *_, bitmask = tiles = sg.semi_structured_tile(weight)
        yield f"tile {dtype}", tiles[0]
        yield f"apply {dtype}", sg.semi_structured_apply(weight, bitmask)[0]
        kept = sg.semi_structured_apply_dense(weight, bitmask)
        yield f"apply_dense {dtype}", kept
        yield f"bitmask {dtype}", sg.compressed_swizzled_bitmask(kept)
    fp8 = random_values(rng, (64, 128), "float32").astype(ml_dtypes.float8_e4m3fn)
    x8 = random_values(rng, (128, 37), "float32").astype(ml_dtypes.float8_e4m3fn)
    fp8.reshape(-1, 4)[:, 1::2] = 0
    w8 = sg.to_semi_structured(fp8)
    if xp is not np:
        w8, x8 = w8.to_device(), xp.asarray(x8.view(np.uint8))
    scale = xp.ones(64, dtype="float32")
    yield "scaled_mm fp8", sg.scaled_mm(w8, x8, scale, 0.5, dense_dtype="float8_e4m3fn")


def main(sections: Sequence[str]) -> int:
    """Run the cases on the GPU; return 1 when one of their kernels was not reached."""
    import cupy

    from sparsegpu._kernel_table import KERNELS
    from sparsegpu.engines.cuda.runtime.launch import launch_counts

    digest = hashlib.sha256()
    for name, result in cases(cupy, sections):
        digest.update(name.encode() + to_host(result).tobytes())
    reached = launch_counts()
    wanted = {k.source for k in KERNELS if not sections or section_of(k.source) in sections}
    missed = sorted(wanted - set(reached))
    print(f"results {digest.hexdigest()}")
    print(f"{sum(reached.values())} launches of {len(reached)} kernels")
    if missed:
        print(f"not reached: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
