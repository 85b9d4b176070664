"""Small cases of the BSR products and of their schedules; see `tools.small_cases`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

import sparsegpu as sg
from sparsegpu.engines.cuda import _schedule
from sparsegpu.engines.cuda._row_order import ordered_rows
from sparsegpu.engines.cuda._transpose import transpose_pattern
from sparsegpu.engines.cuda.support import paths

from .operands import Prepare

PRODUCT_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "complex64", "complex128")


def product_cases() -> Iterator[tuple[str, Prepare]]:
    """Yield the cases of all products and of the schedules that their kernels read."""
    for section in (_products, _long_products, _long_wgmma, _few_columns, _schedules):
        yield from section()


# -- BSR products --------------------------------------------------------------------------------


def _products() -> Iterator[tuple[str, Prepare]]:
    for dtype in PRODUCT_DTYPES:
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
            yield f"scatter_mm {name} {dtype}", partial(_scatter_mm, name, dtype, "simt")
            if dtype in {"float16", "bfloat16", "int8"}:
                yield f"scatter_mm_sm80 {name} {dtype}", partial(_scatter_mm, name, dtype, "mma")
        yield f"bsr_scatter_mm {dtype}", partial(_bsr_scatter_mm, dtype)
    for name in ("bsr_strided_mm_compressed", "scatter_mm", "bsr_strided_mm"):
        yield f"scatter_indices {name}", partial(_index_lists, name)
        for path in ("simt", "mma"):
            how = {"path": path, "group_size": 2}
            long = partial(_parts_of_tiles, name, 20, (144, 32), "float16", how)
            yield f"scatter_mm {path} {name} long", long
        for path, dtype in (("fma", "float32"), ("mma_f64", "float64")):
            yield f"scatter_mm {path} {name}", partial(_scatter_mm, name, dtype, path)
            how = {"path": path, "group_size": 2}
            long = partial(_parts_of_tiles, name, 20, (144, 36), dtype, how)
            yield f"scatter_mm {path} {name} long", long
        how = {"path": "wgmma", "tile_n": 64}  # panels that are part empty
        wide = partial(_parts_of_tiles, name, 4, (128, 64), "bfloat16", how)
        yield f"scatter_mm wgmma {name}", wide
        if name != "scatter_mm":  # parts that begin between 16-byte places: no boxes of the maps
            apart = partial(_parts_of_tiles, name, 4, (64, 64), "float16", {"path": "wgmma"}, ns=84)
            yield f"scatter_mm wgmma {name} long, unaligned", apart
    yield from _sparse_products()
    yield from _sampled_on_paths()
    yield "bsr_addmm tf32", partial(_matmul, (64, 64), (16, 16), "float32", 33, allow_tf32=True)


def _sparse_products() -> Iterator[tuple[str, Prepare]]:
    """Every path of sparse times sparse, and rows whose columns are far apart."""
    for path, dtype, size in (
        ("simt", "float32", (20, 12)),
        ("small", "complex64", (3, 3)),
        ("mma_f64", "float64", (3, 3)),
        ("mma_f64_tiled", "float64", (24, 9)),
        ("fma", "float32", (16, 20)),
        ("mma", "bfloat16", (24, 24)),
        ("mma", "int8", (24, 32)),
    ):
        yield f"bsr_spgemm {path} {dtype}", partial(_spgemm_on_path, path, dtype, size)
    for of_row in (40, 700):
        yield f"bsr_spgemm long, {of_row} columns far apart", partial(_wide_spgemm, of_row)


def _sampled_on_paths() -> Iterator[tuple[str, Prepare]]:
    """Gathered blocks, blocks larger than a tile, parts of K; on a GPU that has the path."""
    kinds = ("float16", (16, 16)), ("int8", (32, 16)), ("float32", (8, 24))
    for path, of_kinds, large_of in (
        *(("mma", kinds, "bfloat16"), ("wgmma", kinds, "bfloat16")),
        *(("fma", kinds[2:], "float32"), ("mma_f64", (("float64", (8, 24)),), "float64")),
    ):
        for dtype, size in of_kinds:
            of_path = partial(_sampled_on_path, path, dtype, size)
            yield f"sampled_addmm {path} {dtype}", partial(of_path, 72)
            yield f"sampled_addmm {path} {dtype} in parts", partial(of_path, 200, split_k=2)
        large = partial(_sampled_on_path, path, large_of, (160, 200))
        yield f"sampled_addmm {path} long", partial(large, 700)
        yield f"sampled_addmm {path} long, by columns", partial(large, 700, by_columns=True)


def _long_products() -> Iterator[tuple[str, Prepare]]:
    shape, size = (128, 512), (64, 64)
    full = {"density": 0.9, "duplicates": False}
    for dtype in ("float16", "bfloat16", "int8", "float32", "float64"):
        yield f"bsr_addmm long {dtype}", partial(_matmul, shape, size, dtype, 144, **full)
        yield f"dense_bsr_matmul long {dtype}", partial(_rmatmul, shape, size, dtype, n=144, **full)
    paths = ("mma", "float16"), ("mma", "int8"), ("mma", "float32"), ("simt", "float32")
    for path, dtype in paths:
        of_path = partial(_matmul, shape, size, dtype, 144, config={"path": path}, **full)
        yield f"bsr_addmm {path} long {dtype}", partial(of_path, allow_tf32=path == "mma")
    by_columns = partial(_by_columns, shape, size, "float16", 144, **full)
    yield "bsr_addmm mma long columns", partial(by_columns, config={"path": "mma"})
    for n in (144, 150):  # rows of 16-byte pieces, and others
        small = partial(_matmul, (128, 512), (16, 32), "float16", n, density=0.4)
        yield f"bsr_addmm long, small blocks, {n}", small
    yield "bsr_addmm long columns", by_columns
    grouped = {"density": 0.4, "config": {"path": "groups"}}
    for size in ((6, 6), (16, 16), (64, 64)):  # padded to pieces, sharing tiles, tiles of their own
        shape = (size[0] * 12, size[1] * 20)
        rows = partial(_matmul, shape, size, "float16", 144, **grouped)
        yield f"bsr_addmm groups long {size}", rows
        columns = partial(_by_columns, shape, size, "bfloat16", 144, **grouped)
        yield f"bsr_addmm groups long columns {size}", columns
    yield "sampled_addmm long", partial(_sampled, (96, 128), 200, "float32")


def _long_wgmma() -> Iterator[tuple[str, Prepare]]:
    """The parts of bsr_addmm_sm90.cu that need other sizes, layouts and epilogues."""
    full = {"density": 0.9, "duplicates": False}
    for n in (144, 150):  # written by the copy engine, and by threads
        for activation in ("gelu", "gelu_erf"):  # short code, and long
            fused = partial(_fused, (128, 512), (32, 32), "float16", n=n, **full)
            yield f"bsr_addmm fused long, {activation}, {n}", partial(fused, activation=activation)
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
    # Row-major int8, which the kernel transposes itself: few blocks, more steps than stages.
    for b in (64, 128):
        transposed = partial(_matmul, (128, 128 * b), (b, b), "int8", 144, density=0.06)
        yield f"bsr_addmm long turned {b}", transposed
    # A long row (split-K), finished by each way of writing a tile.
    row = [[1] * 3 + [40] + [0, 1] * 6]
    erf, strides = {"activation": "gelu_erf"}, {"strided": True}
    for n, keywords in (144, {}), (150, {}), (144, erf), (144, strides):
        parts = partial(_uneven, row, (64, 64), "float16", n, **keywords)
        yield f"bsr_addmm long parts {n} {' '.join(keywords)}".rstrip(), parts
    truncated = partial(_matmul, (128, 512), (16, 16), "float32", 150, allow_tf32=True, **full)
    yield "bsr_addmm long tf32", truncated


def _few_columns() -> Iterator[tuple[str, Prepare]]:
    """Few columns: rows of very different lengths, a row's terms distributed over warps."""
    for dtype in ("float16", "float32", "float64", "int8"):
        for n in (1, 3):
            pieces = partial(_uneven, [[5] * 4 + [120] + [0, 3] * 4], (2, 4), dtype, n)
            yield f"bsr_addmm pieces {dtype} {n}", pieces
    lengths = [[120] + [2] * 11, [60, 60, 4] + [2] * 9]  # as many blocks, other rows to cut
    yield "bsr_addmm pieces of batches", partial(_uneven, lengths, (2, 4), "float32", 2)
    for n in (1, 2):  # some ninety pieces of one row
        many = partial(_uneven, [[1] * 399 + [3200]], (2, 4), "float32", n)
        yield f"bsr_addmm pieces long {n}", many
    # Rows of 2,000 terms and more: every warp uses each pipeline stage several times.
    for size, n in (((16, 16), 16), ((8, 8), 64), ((32, 64), 128)):
        keywords = {"density": 0.5, "duplicates": False}
        rows = partial(_matmul, (64, 4096), size, "float16", n, **keywords)
        yield f"bsr_addmm few long {size} {n}", rows
        columns = partial(_by_columns, (64, 4096), size, "bfloat16", n, **keywords)
        yield f"bsr_addmm few long columns {size} {n}", columns
    # Blocks of 64 rows and more: clusters of several thread blocks, and of one.
    for n, lengths in ((16, [30, 0, 1, 9, 4]), (128, [30, 0, 1, 9, 4]), (40, [14] + [1] * 269)):
        clusters = partial(_uneven, [lengths], (64, 64), "bfloat16", n)
        yield f"bsr_addmm few long, {len(lengths)} rows of 64, {n}", clusters
    keywords = {"density": 0.5, "duplicates": False}
    columns = partial(_by_columns, (256, 2048), (128, 64), "float16", 64, **keywords)
    yield "bsr_addmm few long columns of 64", columns


def _uneven(lengths, blocksize, dtype, n, make, *, strided=False, activation=None):
    a = make.sparse_rows(lengths, blocksize, dtype)
    x = make.dense((a.shape[-1], n), dtype)
    out = make.dense((2 * n, 2 * a.shape[-2]), dtype).T[::2, ::2] if strided else None
    return lambda: sg.bsr_matmul(a, x, out=out, activation=activation)


def _matmul(shape, blocksize, dtype, n, make, *, allow_tf32=False, config=None, **keywords):
    a = make.sparse(shape, blocksize, dtype, **keywords)
    x = make.dense((shape[1], n), dtype)
    return lambda: sg.bsr_matmul(a, x, allow_tf32=allow_tf32, config=config)


def _by_columns(shape, blocksize, dtype, n, make, *, config=None, **keywords):
    a = make.sparse(shape, blocksize, dtype, **keywords)
    x = make.dense((n, shape[1]), dtype).T
    return lambda: sg.bsr_matmul(a, x, config=config)


def _by_strides(shape, blocksize, dtype, n, make, **keywords):
    """A dense operand and a result without unit strides, the smaller stride along columns."""
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


def _sampled_on_path(path, dtype, size, inner, make, *, by_columns=False, **fields):
    a = make.sparse((4 * size[0], 7 * size[1]), size, dtype)
    shapes = (a.shape[0], inner), (inner, a.shape[1])
    if by_columns:
        mat1, mat2 = (make.dense(shape[::-1], dtype).T for shape in shapes)
    else:
        mat1, mat2 = (make.dense(shape, dtype) for shape in shapes)
    config = {"path": path, **fields} if _has_path("sampled_addmm", path, dtype, make) else None
    return lambda: sg.sampled_addmm(a, mat1, mat2, config=config, allow_tf32=True).data


def _has_path(op, path, dtype, make):
    """Return whether this GPU has a path; the host takes every name."""
    if make.xp is np:
        return True
    return path in paths(op, dtype, make.xp.cuda.Device().compute_capability)


def _spgemm(dtype, make):
    a = make.sparse((48, 64), (16, 16), dtype)
    b = make.sparse((64, 32), (16, 8), dtype)
    return lambda: (_fresh(a) @ b).data


def _fresh(a):
    """Return the same array over a pattern of which nothing is kept yet."""
    return sg.bsr_array((a.data, a.indices, a.indptr), shape=a.shape, check=False)


def _spgemm_on_path(path, dtype, size, make):
    shape = tuple(5 * n for n in size)
    a, b = make.sparse(shape, size, dtype), make.sparse(shape[::-1], size[::-1], dtype)
    config = {"path": path} if make.xp is not np else None
    return lambda: sg.bsr_spgemm(_fresh(a), b, config=config).data


def _wide_spgemm(of_row, make):
    columns = 3 * 131072
    indices = np.linspace(0, columns - 1, of_row).astype(np.int32)
    data = make.dense((of_row, 1, 1), "float32")
    arrays = data, make.xp.asarray(indices), make.xp.asarray(np.int32([0, of_row]))
    b = sg.bsr_array(arrays, shape=(1, columns))
    a = sg.bsr_array(make.xp.ones((3, 1), "float32"), blocksize=(1, 1))
    return lambda: (_fresh(a) @ b).data


def _scatter_mm(name, dtype, path, make):
    a = make.sparse((48, 128), (16, 16), dtype, duplicates=False)
    dense = make.dense((128, 40), dtype)
    plan = sg.bsr_scatter_mm_indices_data(a, dense, name, SPLIT_N=1)
    others = dense.reshape(8, 16, 40) if name == "scatter_mm" else dense
    return lambda: sg.scatter_mm(a.data, others, plan, config={"path": path})


def _parts_of_tiles(name, blocks, size, dtype, config, make, ns=88):
    """Several parts a tile, 3 x ``blocks`` blocks of which most are stored."""
    ms, ks = size
    a = make.sparse((3 * ms, blocks * ks), size, dtype, density=0.8, duplicates=False)
    others = make.dense((blocks * ks, 2 * ns), dtype)
    plan = sg.bsr_scatter_mm_indices_data(a, others, name, SPLIT_N=2)
    if name == "scatter_mm":
        stacked = others.reshape(blocks, ks, 2, ns).swapaxes(1, 2)
        others = make.xp.ascontiguousarray(stacked).reshape(2 * blocks, ks, ns)
    return lambda: sg.scatter_mm(a.data, others, plan, config=config)


def _index_lists(name, make):
    a = make.sparse((300, 120), (3, 2), "float32", density=0.1, duplicates=False)
    dense = make.xp.zeros((2, 120, 12), "float32")

    def run():
        lists = sg.bsr_scatter_mm_indices_data(_fresh(a), dense, name, SPLIT_N=3)
        return make.xp.concatenate([x.ravel() for x in lists[1:] if hasattr(x, "ravel")])

    return run


def _bsr_scatter_mm(dtype, make):
    a = make.sparse((48, 64), (16, 16), dtype)
    dense = make.dense((64, 40), dtype)
    plan = sg.bsr_scatter_mm_indices_data(a, dense)
    return lambda: sg.bsr_scatter_mm(a, dense, plan)


# -- schedules of the products (CuPy only) -------------------------------------------------------


def _schedules() -> Iterator[tuple[str, Prepare]]:
    for blocks in ("different", "repeated"):
        yield f"row_groups {blocks} blocks", partial(_row_groups, (19, 70), 4, blocks)
        yield f"row_groups long, {blocks} blocks", partial(_row_groups, (10, 2500), 4, blocks)
    yield "transpose_pattern", partial(_transpose_pattern, (300, 90))
    yield "row_order", partial(_row_order, (70, 90))
    yield "row_order long", partial(_row_order, (300, 200))  # two windows


def _row_groups(shape, rows, blocks, make):
    a = make.sparse(shape, (1, 1), "int8", density=0.05, duplicates=blocks == "repeated")
    arrays = a.data, a.indices, a.indptr

    def run():
        pattern = sg.bsr_array(arrays, shape=shape, check=False).pattern  # without a schedule
        # so little shared memory that a group needs several ranges of columns
        with mock.patch.object(_schedule, "_SHARED", 2048):
            made = _schedule.row_groups(pattern, rows)
        parts = [made.order]
        for start, count in zip(made.starts.tolist(), made.counts.tolist()):
            # the gaps between groups are not written
            parts.append(made.columns[start : start + count])
            parts.append(made.blocks[start * rows : (start + count) * rows])
        return make.xp.concatenate(parts)

    return run


def _transpose_pattern(shape, make):
    a = make.sparse(shape, (1, 1), "int8", density=0.02, duplicates=True)
    arrays = a.data, a.indices, a.indptr

    def run():
        pattern = sg.bsr_array(arrays, shape=shape, check=False).pattern  # without a schedule
        transposed, order = transpose_pattern(pattern)
        parts = transposed.indptr, transposed.indices, order
        return make.xp.concatenate([part.astype(np.int64) for part in parts])

    return run


def _row_order(shape, make):
    a = make.sparse(shape, (1, 1), "int8", density=0.02)

    def run():
        ordered = ordered_rows(a.pattern, 8)
        return make.xp.concatenate([part.ravel().astype(np.int64) for part in ordered])

    return run
