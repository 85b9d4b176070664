"""Every kernel, at sizes small enough for compute-sanitizer.

Sizes are ragged on purpose (partial tiles are where accesses go astray); cases called "long" give
thread blocks several tiles and steps, so that the barriers between them matter. Run as a program,
it fails when a kernel of `sparsegpu._kernel_table` that this device can run was not launched: a
sanitizer run that misses a kernel is no evidence.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np

import sparsegpu as sg
from sparsegpu.engines.cuda import _schedule
from sparsegpu.engines.cuda._row_order import ordered_rows
from sparsegpu.testing import random_blocks, random_values, to_host

Run = Callable[[], Any]
_PRODUCT_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "complex64", "complex128")


class Operands:
    """Makes a case's operands, on one array library and from random numbers of its own."""

    def __init__(self, xp: ModuleType, name: str):
        self.xp = xp
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))

    def dense(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return random values."""
        return self.xp.asarray(random_values(self.rng, shape, dtype))

    def sparse(self, shape: tuple[int, int], blocksize: tuple[int, int], dtype: str, **keywords):
        """Return a hard random pattern (unsorted, duplicates, empty rows) as a bsr_array."""
        keywords = {"density": 0.4, "duplicates": True, **keywords}
        arrays = random_blocks(self.rng, shape, blocksize, dtype=dtype, **keywords)
        return sg.bsr_array(tuple(self.xp.asarray(a) for a in arrays), shape=shape)


Prepare = Callable[[Operands], Run]


def cases() -> dict[str, Prepare]:
    """Return all cases: what makes the operands of one, and returns what computes on them."""
    named: dict[str, Prepare] = {}
    for section in (
        _products,
        _long_products,
        _long_wgmma,
        _few_columns,
        _schedules,
        _conversions,
        _softmax,
        _attention,
        _semi_structured,
    ):
        for name, prepare in section():
            assert name not in named, name
            named[name] = prepare
    return named


# -- BSR products --------------------------------------------------------------------------------


def _products() -> Iterator[tuple[str, Prepare]]:
    for dtype in _PRODUCT_DTYPES:
        for size in ((1, 1), (3, 5), (8, 8), (16, 16), (32, 16), (64, 64)):
            shape = (size[0] * 3, size[1] * 4)
            for n in (1, 37):
                yield f"bsr_addmm {dtype} {size} {n}", partial(_matmul, shape, size, dtype, n)
            if dtype in {"float16", "float32", "int8"}:
                yield f"bsr_addmm fused {dtype} {size}", partial(_fused, shape, size, dtype)
            yield f"dense_bsr_matmul {dtype} {size}", partial(_rmatmul, shape, size, dtype)
        yield f"sampled_addmm {dtype}", partial(_sampled, (48, 64), 21, dtype)
        yield f"bsr_spgemm {dtype}", partial(_spgemm, dtype)
        for name in ("bsr_strided_mm_compressed", "scatter_mm", "bsr_strided_mm"):
            yield f"bsr_scatter_mm {name} {dtype}", partial(_scatter_mm, name, dtype)
    yield "bsr_addmm tf32", partial(_matmul, (64, 64), (16, 16), "float32", 33, allow_tf32=True)


def _long_products() -> Iterator[tuple[str, Prepare]]:
    shape, size = (128, 512), (64, 64)
    full = {"density": 0.9, "duplicates": False}
    for dtype in ("float16", "bfloat16", "int8", "float32", "float64"):
        yield f"bsr_addmm long {dtype}", partial(_matmul, shape, size, dtype, 144, **full)
        yield f"dense_bsr_matmul long {dtype}", partial(_rmatmul, shape, size, dtype, n=144, **full)
    for path, dtype in (
        ("mma", "float16"),
        ("mma", "int8"),
        ("mma", "float32"),
        ("simt", "float32"),
    ):
        keywords = {**full, "allow_tf32": path == "mma", "config": {"path": path}}
        yield (
            f"bsr_addmm {path} long {dtype}",
            partial(_matmul, shape, size, dtype, 144, **keywords),
        )
    keywords = {**full, "config": {"path": "mma"}}
    yield (
        "bsr_addmm mma long columns",
        partial(_by_columns, shape, size, "float16", 144, **keywords),
    )
    for n in (144, 150):  # rows of 16-byte pieces, and others
        small = partial(_matmul, (128, 512), (16, 32), "float16", n, density=0.4)
        yield f"bsr_addmm long, small blocks, {n}", small
    yield "bsr_addmm long columns", partial(_by_columns, shape, size, "float16", 144, **full)
    grouped = {"density": 0.4, "config": {"path": "groups"}}
    for size in (
        (6, 6),
        (16, 16),
        (64, 64),
    ):  # blocks padded to pieces, sharing tiles, of their own
        shape = (size[0] * 12, size[1] * 20)
        rows = partial(_matmul, shape, size, "float16", 144, **grouped)
        yield f"bsr_addmm groups long {size}", rows
        columns = partial(_by_columns, shape, size, "bfloat16", 144, **grouped)
        yield f"bsr_addmm groups long columns {size}", columns
    yield "sampled_addmm long", partial(_sampled, (96, 128), 200, "float32")


def _long_wgmma() -> Iterator[tuple[str, Prepare]]:
    """What of bsr_addmm_sm90.cu other sizes, layouts and epilogues reach."""
    full = {"density": 0.9, "duplicates": False}
    for n in (144, 150):  # written by the copy engine, and by threads
        for activation in ("gelu", "silu"):  # short code, and long
            keywords = {"activation": activation, **full}
            fused = partial(_fused, (128, 512), (32, 32), "float16", n=n, **keywords)
            yield f"bsr_addmm fused long, {activation}, {n}", fused
    for size in ((16, 16), (32, 64), (128, 128)):
        shape = (256, 512) if size[0] == 128 else (128, 512)
        if size[0] != 32:
            yield f"bsr_addmm long {size}", partial(_matmul, shape, size, "float16", 144, **full)
        transposed = partial(_rmatmul, shape[::-1], size[::-1], "float16", n=150, **full)
        yield f"dense_bsr_matmul long {size[::-1]}", transposed
    # Dense columns of such narrow boxes are copied to rows first, by dense_lines.cu.
    narrow = partial(_by_columns, (64, 1024), (16, 16), "float16", 144, **full)
    yield "bsr_addmm long columns, small blocks", narrow
    strided = partial(_by_strides, (64, 1024), (64, 64), "float16", 144, **full)
    yield "bsr_addmm long strides", strided


def _few_columns() -> Iterator[tuple[str, Prepare]]:
    """A few vectors, rows of very different lengths; terms dealt out to warps."""
    for dtype in ("float16", "float32", "float64", "int8"):
        for n in (1, 3):
            pieces = partial(_uneven, [[5] * 4 + [120] + [0, 3] * 4], (2, 4), dtype, n)
            yield f"bsr_addmm pieces {dtype} {n}", pieces
    lengths = [[120] + [2] * 11, [60, 60, 4] + [2] * 9]  # as many blocks, other rows to cut
    yield "bsr_addmm pieces of batches", partial(_uneven, lengths, (2, 4), "float32", 2)
    for n in (1, 2):  # some ninety pieces of one row
        many = partial(_uneven, [[1] * 399 + [3200]], (2, 4), "float32", n)
        yield f"bsr_addmm pieces long {n}", many
    # Rows of 2,000 terms and more: every warp goes round its ring of stages.
    for size, n in (((16, 16), 16), ((8, 8), 64), ((32, 64), 128)):
        keywords = {"density": 0.5, "duplicates": False}
        rows = partial(_matmul, (64, 4096), size, "float16", n, **keywords)
        yield f"bsr_addmm few long {size} {n}", rows
        columns = partial(_by_columns, (64, 4096), size, "bfloat16", n, **keywords)
        yield f"bsr_addmm few long columns {size} {n}", columns


def _uneven(lengths, blocksize, dtype, n, make):
    """Rows of so many blocks each, for each matrix of a batch."""
    (bm, bk), rows, widest = blocksize, len(lengths[0]), max(map(max, lengths))
    indptr = np.array([[0, *np.cumsum(of_matrix)] for of_matrix in lengths])
    indices = np.array(
        [np.concatenate([make.rng.permutation(widest)[:k] for k in m]) for m in lengths]
    )
    data = random_values(make.rng, (*indices.shape, bm, bk), dtype)
    parts = (data, indices, indptr) if len(lengths) > 1 else (data[0], indices[0], indptr[0])
    a = sg.bsr_array(tuple(map(make.xp.asarray, parts)), shape=(rows * bm, widest * bk))
    x = make.dense((widest * bk, n), dtype)
    return lambda: sg.bsr_matmul(a, x)


def _matmul(shape, blocksize, dtype, n, make, *, allow_tf32=False, config=None, **keywords):
    a = make.sparse(shape, blocksize, dtype, **keywords)
    x = make.dense((shape[1], n), dtype)
    return lambda: sg.bsr_matmul(a, x, allow_tf32=allow_tf32, config=config)


def _by_columns(shape, blocksize, dtype, n, make, *, config=None, **keywords):
    a = make.sparse(shape, blocksize, dtype, **keywords)
    x = make.dense((n, shape[1]), dtype).T
    return lambda: sg.bsr_matmul(a, x, config=config)


def _by_strides(shape, blocksize, dtype, n, make, **keywords):
    """Neighbours nowhere, in the dense operand and in the result; columns closer than rows."""
    a = make.sparse(shape, blocksize, dtype, **keywords)
    x = make.dense((2 * n, 2 * shape[1]), dtype).T[::2, ::2]
    out = make.dense((2 * n, 2 * shape[0]), dtype).T[::2, ::2]
    return lambda: sg.bsr_matmul(a, x, out=out)


def _rmatmul(shape, blocksize, dtype, make, n=19, **keywords):
    a = make.sparse(shape, blocksize, dtype, **keywords)
    x = make.dense((n, shape[0]), dtype)
    return lambda: x @ a


def _fused(shape, blocksize, dtype, make, n=37, activation="gelu", **keywords):
    a = make.sparse(shape, blocksize, dtype, **keywords)
    x = make.dense((shape[1], n), dtype)
    integers = dtype == "int8"
    bias = make.xp.ones((shape[0], 1), dtype="float32" if integers else dtype)
    fused: dict[str, Any] = {"out_dtype": np.float32} if integers else {}
    fused |= {"left_alpha": make.xp.ones(shape[0], dtype="float32"), "activation": activation}
    return lambda: sg.bsr_addmm(bias, a, x, beta=2, alpha=3, **fused)


def _sampled(shape, inner, dtype, make):
    a = make.sparse(shape, (16, 16), dtype)
    mat1, mat2 = make.dense((shape[0], inner), dtype), make.dense((inner, shape[1]), dtype)
    return lambda: sg.sampled_addmm(a, mat1, mat2).data


def _spgemm(dtype, make):
    a = make.sparse((48, 64), (16, 16), dtype)
    b = make.sparse((64, 32), (16, 8), dtype)
    return lambda: (a @ b).data


def _scatter_mm(name, dtype, make):
    a = make.sparse((48, 64), (16, 16), dtype)
    dense = make.dense((64, 40), dtype)
    plan = sg.bsr_scatter_mm_indices_data(a, dense, name)
    return lambda: sg.bsr_scatter_mm(a, dense, plan)


# -- schedules of the products (CuPy only) -------------------------------------------------------


def _schedules() -> Iterator[tuple[str, Prepare]]:
    for blocks in ("different", "repeated"):
        yield f"row_groups {blocks} blocks", partial(_row_groups, (19, 70), 4, blocks)
        yield f"row_groups long, {blocks} blocks", partial(_row_groups, (10, 2500), 4, blocks)
    yield "row_order", partial(_row_order, (70, 90))
    yield "row_order long", partial(_row_order, (300, 200))  # two windows


def _row_groups(shape, rows, blocks, make):
    a = make.sparse(shape, (1, 1), "int8", density=0.05, duplicates=blocks == "repeated")
    arrays = a.data, a.indices, a.indptr

    def run():
        pattern = sg.bsr_array(arrays, shape=shape, check=False).pattern  # which has none yet
        # so little shared memory that a group takes several stretches of columns
        with mock.patch.object(_schedule, "_SHARED", 2048):
            made = _schedule.row_groups(pattern, rows)
        parts = [made.order]
        for start, count in zip(made.starts.tolist(), made.counts.tolist()):
            # what lies between two groups was not written
            parts.append(made.columns[start : start + count])
            parts.append(made.blocks[start * rows : (start + count) * rows])
        return make.xp.concatenate(parts)

    return run


def _row_order(shape, make):
    a = make.sparse(shape, (1, 1), "int8", density=0.02)

    def run():
        ordered = ordered_rows(a.pattern, 8)
        pattern = ordered.pattern
        parts = ordered.block_rows, pattern.indptr, pattern.indices, ordered.blocks_from
        return make.xp.concatenate([part.ravel().astype(np.int64) for part in parts])

    return run


# -- conversions, softmax, attention -------------------------------------------------------------


def _conversions() -> Iterator[tuple[str, Prepare]]:
    for dtype in (*_PRODUCT_DTYPES, "bool"):
        for kind in ("toarray", "bsr_array", "transpose", "sum_duplicates"):
            yield f"{kind} {dtype}", partial(_convert, kind, (24, 35), (8, 7), dtype)
    for kind in ("toarray", "bsr_array", "transpose", "sum_duplicates"):
        yield f"{kind} long", partial(_convert, kind, (192, 640), (32, 16), "float32")
    yield "bsr_array long, many blocks a tile", _many_blocks


def _convert(kind, shape, blocksize, dtype, make):
    a = make.sparse(shape, blocksize, dtype)
    if kind == "toarray":
        return a.toarray
    if kind == "transpose":
        return lambda: a.T.data
    if kind == "bsr_array":
        dense = a.toarray()
        smaller = (blocksize[0] // 2, 5)
        return lambda: sg.bsr_array(dense, blocksize=smaller).data

    def summed():
        b = a.copy()
        b.sum_duplicates()
        return b.data

    return summed


def _many_blocks(make):
    wide = make.dense((48, 640), "float32") > 1
    return lambda: sg.bsr_array(wide, blocksize=(8, 2)).data


def _softmax() -> Iterator[tuple[str, Prepare]]:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        yield f"bsr_softmax {dtype}", partial(_softmax_rows, (24, 700), (8, 7), dtype, 0.4)
    yield "bsr_softmax long", partial(_softmax_rows, (32, 4096), (8, 8), "float32", 0.9)


def _softmax_rows(shape, blocksize, dtype, density, make):
    a = make.sparse(shape, blocksize, dtype, density=density, duplicates=False)
    return lambda: sg.bsr_softmax(a).data


def _attention() -> Iterator[tuple[str, Prepare]]:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        for kind in ("bool", dtype):
            yield f"attention {dtype} {kind}", partial(_attend, (48, 32, 20, 24), dtype, kind)
    yield "attention long", partial(_attend, (96, 96, 150, 72), "float32", "bool")


def _attend(sizes, dtype, kind, make):
    """Grouped heads, causal, dropout."""
    queries, keys, features, value_features = sizes
    q = make.dense((2, 4, queries, features), dtype)
    k = make.dense((2, 2, keys, features), dtype)
    v = make.dense((2, 2, keys, value_features), dtype)
    mask = make.sparse((queries, keys), (16, 8), kind, density=0.6)
    return lambda: sg.scaled_dot_product_attention(
        q, k, v, mask, is_causal=True, dropout_p=0.2, seed=3
    )


# -- 2:4 -----------------------------------------------------------------------------------------


def _semi_structured() -> Iterator[tuple[str, Prepare]]:
    for dtype in ("float16", "bfloat16", "float32", "int8"):
        kinds = ["from_dense", "to_dense", "restore_meta", "semi_structured", "fused"]
        kinds += ["prune_24", "largest_abs_values_greedy", "largest_values_greedy", "causal1122"]
        if dtype != "float32":
            kinds += ["tile", "apply", "apply_dense", "bitmask"]
        for kind in kinds:
            yield f"2:4 {kind} {dtype}", partial(_two_of_four, kind, (64, 128), 37, dtype)
        for kind in ("semi_structured", "fused"):
            yield f"2:4 {kind} long {dtype}", partial(_two_of_four, kind, (256, 640), 88, dtype)
    yield "2:4 scaled_mm fp8", partial(_scaled_mm, (64, 128), 37)
    yield "2:4 scaled_mm long fp8", partial(_scaled_mm, (256, 640), 88)


def _two_of_four(kind, shape, n, dtype, make):
    weight = make.dense(shape, dtype)
    keep = "1:2" if dtype == "float32" else "2:4"
    if kind == "prune_24":
        return lambda: sg.prune_24(weight, keep=keep)
    if kind in {"largest_abs_values_greedy", "largest_values_greedy", "causal1122"}:
        return lambda: sg.prune_tile(weight, kind)
    if kind == "tile":
        return lambda: sg.semi_structured_tile(weight)[0]
    if kind in {"apply", "apply_dense", "bitmask"}:
        *_, bitmask = sg.semi_structured_tile(weight)
        if kind == "apply":
            return lambda: sg.semi_structured_apply(weight, bitmask)[0]
        if kind == "apply_dense":
            return lambda: sg.semi_structured_apply_dense(weight, bitmask)
        kept = sg.semi_structured_apply_dense(weight, bitmask)
        return lambda: sg.compressed_swizzled_bitmask(kept)
    pruned = sg.prune_24(weight, keep=keep)
    packed, meta = sg.semi_structured_from_dense(pruned)
    if kind == "from_dense":
        # both results, as one array of bytes
        parts = partial(sg.semi_structured_from_dense, pruned)
        xp = make.xp
        return lambda: xp.concatenate([part.ravel().view(xp.uint8) for part in parts()])
    if kind == "to_dense":
        return lambda: sg.semi_structured_to_dense(packed, meta)
    if kind == "restore_meta":
        return lambda: sg.reorder_meta(sg.restore_meta(meta))
    w = sg.to_semi_structured(pruned)
    x = make.dense((shape[1], n), dtype)
    if kind == "semi_structured":
        return lambda: w @ x
    bias = make.xp.ones((shape[0], 1), dtype=dtype)
    return lambda: sg.semi_structured_addmm(bias, w, x, alpha=2, activation="silu", allow_tf32=True)


def _scaled_mm(shape, n, make):
    fp8 = random_values(make.rng, shape, "float32").astype(ml_dtypes.float8_e4m3fn)
    x8 = random_values(make.rng, (shape[1], n), "float32").astype(ml_dtypes.float8_e4m3fn)
    fp8.reshape(-1, 4)[:, 1::2] = 0
    w8 = sg.to_semi_structured(fp8)
    if make.xp is not np:
        w8, x8 = w8.to_device(), make.xp.asarray(x8.view(np.uint8))
    scale = make.xp.ones(shape[0], dtype="float32")
    return lambda: sg.scaled_mm(w8, x8, scale, 0.5, dense_dtype="float8_e4m3fn")


# -- on a GPU ------------------------------------------------------------------------------------


def wanted_kernels() -> set[str]:
    """Return the kernels that this device can run."""
    import cupy

    from sparsegpu._kernel_table import KERNELS
    from sparsegpu._support import matching_architecture
    from sparsegpu.engines.cuda.runtime.compile import supported_architectures

    cc = cupy.cuda.Device().compute_capability
    capability, compilers = (int(cc[:-1]), int(cc[-1])), supported_architectures()
    return {k.source for k in KERNELS if matching_architecture(k.archs, capability, compilers)}


def digest(result: Any) -> str:
    """Return what stands for a result's bits."""
    return hashlib.sha256(to_host(result).tobytes()).hexdigest()[:16]


def main() -> int:
    """Run the cases on the GPU; return 1 when one of its kernels was not reached."""
    import cupy

    from sparsegpu.engines.cuda.runtime.launch import launch_counts

    for name, prepare in cases().items():
        print(digest(prepare(Operands(cupy, name))()), name)
    reached = launch_counts()
    print(f"{sum(reached.values())} launches of {len(reached)} kernels")
    missed = sorted(wanted_kernels() - set(reached))
    if missed:
        print(f"not reached: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
