"""Every kernel, at sizes small enough for compute-sanitizer.

Sizes leave partial tiles, where out-of-bounds accesses are likely. In cases called "long" a thread
block has several tiles and steps, so that the barriers between them are needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from operator import add, ne
from typing import Any

import ml_dtypes
import numpy as np

import sparsegpu as sg
from sparsegpu._arrays import accumulator_dtype, dtype_of
from sparsegpu._epilogue import Epilogue, apply_epilogue
from sparsegpu.engines.cuda.runtime.copy_bytes import CopyBytes
from sparsegpu.engines.cuda.runtime.launch import current_stream, submit
from sparsegpu.engines.cusparselt.semi_structured import finish
from sparsegpu.testing import random_values, to_host

from .operands import Prepare
from .small_attention import attention_cases
from .small_products import PRODUCT_DTYPES, product_cases
from .small_solvers import solver_cases


def cases() -> dict[str, Prepare]:
    """Return all cases by name."""
    named: dict[str, Prepare] = {}
    others = (
        _conversions,
        _softmax,
        attention_cases,
        _semi_structured,
        _sparse_blocks,
        _masks,
        _accumulators,
        _copies,
        solver_cases,
    )
    for section in (product_cases, *others):
        for name, prepare in section():
            assert name not in named, name
            named[name] = prepare
    return named


# -- conversions, softmax, attention -------------------------------------------------------------


def _conversions() -> Iterator[tuple[str, Prepare]]:
    kinds = "toarray", "bsr_array", "transpose", "sum_duplicates", "A + B", "A != B"
    for dtype in (*PRODUCT_DTYPES, "bool"):
        for kind in kinds:
            yield f"{kind} {dtype}", partial(_convert, kind, (24, 35), (8, 7), dtype)
    for kind in kinds:
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

    if kind in {"A + B", "A != B"}:
        b = make.sparse(shape, blocksize, dtype, duplicates=False)
        parts, operation = (b.data, b.indices, b.indptr), add if kind == "A + B" else ne
        # Of a new pattern, so that the union is found again.
        return lambda: operation(a, sg.bsr_array(parts, shape=b.shape, check=False)).data

    def summed():
        b = a.copy()
        b.sum_duplicates()
        return b.data

    return summed


def _many_blocks(make):
    wide = make.dense((48, 640), "float32") > 1
    return lambda: sg.bsr_array(wide, blocksize=(8, 2)).data


def _softmax() -> Iterator[tuple[str, Prepare]]:
    forward, backward = sg.bsr_softmax, sg.bsr_softmax_backward
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        yield f"bsr_softmax {dtype}", partial(_softmax_rows, forward, (24, 700), (8, 7), dtype, 0.4)
        for name, call in (("vectors", forward), ("backward", backward)):
            yield (
                f"bsr_softmax {name} {dtype}",
                partial(_softmax_rows, call, (24, 720), (8, 12), dtype, 0.4),
            )
    for name, call in (("", forward), (" backward", backward)):
        yield (
            f"bsr_softmax{name} long",
            partial(_softmax_rows, call, (32, 4096), (8, 8), "float32", 0.9),
        )
        yield (
            f"bsr_softmax{name} longer",
            partial(_softmax_rows, call, (1, 2**17), (1, 256), "float32", 1.0),
        )


def _softmax_rows(call, shape, blocksize, dtype, density, make):
    a = make.sparse(shape, blocksize, dtype, density=density, duplicates=False)
    operands = (a, a) if call is sg.bsr_softmax_backward else (a,)
    return lambda: call(*operands).data


# -- 2:4 -----------------------------------------------------------------------------------------


_PRUNE_TILE = ("largest_abs_values_greedy", "largest_values_greedy", "causal1122")


def _semi_structured() -> Iterator[tuple[str, Prepare]]:
    for dtype in ("float16", "bfloat16", "float32", "int8"):
        kinds = ["from_dense", "to_dense", "restore_meta", "semi_structured", "fused"]
        kinds += ["permute_for_24", "prune_24", *_PRUNE_TILE]
        if dtype != "float32":
            kinds += ["tile", "apply", "apply_dense", "bitmask"]
        for kind in kinds:
            yield f"2:4 {kind} {dtype}", partial(_two_of_four, kind, (64, 128), 37, dtype)
        for kind in ("semi_structured", "fused"):
            yield f"2:4 {kind} long {dtype}", partial(_two_of_four, kind, (256, 640), 88, dtype)
            if dtype != "float32" or kind == "fused":  # IEEE float32 is not for tensor cores
                case = partial(_two_of_four, kind, (256, 640), 88, dtype, config={"path": "mma_sp"})
                yield f"2:4 {kind} mma_sp long {dtype}", case
        linear = partial(_two_of_four, "linear", (256, 640), 88, dtype)
        yield f"2:4 linear long {dtype}", linear
        yield f"2:4 linear wgmma_sp long {dtype}", partial(linear, config={"path": "wgmma_sp"})
        for cluster, n in ((1, 24), (2, 100), (8, 16)) if dtype in {"float16", "int8"} else ():
            skinny = {"path": "wgmma_sp_skinny", "cluster": cluster, "stages": 2}
            case = partial(_two_of_four, "fused", (160, 832), n, dtype, config=skinny)
            yield f"2:4 skinny long {dtype}, clusters of {cluster}", case
    wide = partial(_two_of_four, "fused", (544, 640), 300, "float16")
    yield "2:4 fused long, several tiles", wide
    pairs = {"path": "wgmma_sp", "cluster": 2}
    yield "2:4 fused long, pairs of thread blocks", partial(wide, config=pairs)
    yield "2:4 fused long, rows anywhere", partial(_two_of_four, "fused", (256, 640), 77, "float16")
    strided = partial(_two_of_four, "strided", (256, 640), 88, "float16")
    yield "2:4 strided long", strided
    yield "2:4 strided wgmma_sp long", partial(strided, config={"path": "wgmma_sp"})
    for n in (37, 130):  # on Hopper: for wgmma_sp_skinny, for wgmma_sp
        yield f"2:4 scaled_mm fp8 {n}", partial(_scaled_mm, (64, 128), n)
        yield f"2:4 scaled_mm long fp8 {n}", partial(_scaled_mm, (256, 640), n)


def _two_of_four(kind, shape, n, dtype, make, config=None):
    weight = make.dense(shape, dtype)
    keep = "1:2" if dtype == "float32" else "2:4"
    if kind == "permute_for_24":
        return lambda: sg.permute_for_24(weight, keep=keep, escapes=2)
    if kind == "prune_24":
        return lambda: sg.prune_24(weight, keep=keep)
    if kind in _PRUNE_TILE:
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
    config = _offered(config, make.xp)
    x = make.dense((shape[1], n), dtype)
    if kind == "linear":  # dense by columns
        rows = make.dense((n, shape[1]), dtype)
        return lambda: sg.semi_structured_linear(rows, w, allow_tf32=True, config=config)
    if kind == "semi_structured":
        return lambda: sg.semi_structured_matmul(w, x, config=config)
    if kind == "strided":
        out = make.xp.empty((shape[0], 2 * n), dtype=dtype)[:, ::2]
        return lambda: sg.semi_structured_matmul(w, x, out=out, config=config)
    bias = make.xp.ones((shape[0], 1), dtype=dtype)
    how = {"alpha": 2, "activation": "gelu_erf", "allow_tf32": True, "config": config}
    return lambda: sg.semi_structured_addmm(bias, w, x, **how)


def _offered(config, xp):
    """Return a configuration, or None if this device does not have its path."""
    if config is None or xp is np or not config["path"].startswith("wgmma_sp"):
        return config
    from sparsegpu.engines.cuda.runtime.architectures import HOPPER
    from sparsegpu.engines.cuda.runtime.device import runs_here

    return config if runs_here(HOPPER) else None


def _scaled_mm(shape, n, make):
    fp8 = random_values(make.rng, shape, "float32").astype(ml_dtypes.float8_e4m3fn)
    x8 = random_values(make.rng, (shape[1], n), "float32").astype(ml_dtypes.float8_e4m3fn)
    fp8.reshape(-1, 4)[:, 1::2] = 0
    w8 = sg.to_semi_structured(fp8)
    if make.xp is not np:
        w8, x8 = w8.to_device(), make.xp.asarray(x8.view(np.uint8))
    scale = make.xp.ones(shape[0], dtype="float32")
    return lambda: sg.scaled_mm(w8, x8, scale, 0.5, dense_dtype="float8_e4m3fn")


# -- 2:4 blocks ----------------------------------------------------------------------------------


def _sparse_blocks() -> Iterator[tuple[str, Prepare]]:
    full = {"density": 0.9, "duplicates": False}
    for dtype in ("float16", "bfloat16", "float32", "int8"):
        yield f"2:4 blocks {dtype}", partial(_blocks_24, (96, 256), (32, 64), dtype, 37)
        long = partial(_blocks_24, (256, 1024), (64, 128), dtype, 150, density=0.6)
        yield f"2:4 blocks long {dtype}", long
        if dtype != "float32":
            mma = partial(_blocks_24, (192, 1024), (32, 64), dtype, 150, path="mma_sp")
            yield f"2:4 blocks mma_sp long {dtype}", mma
    simt = partial(_blocks_24, (256, 1024), (64, 128), "float16", 150, path="simt")
    yield "2:4 blocks simt long", simt
    for size in ((64, 64), (128, 128), (192, 64)):
        shape = (size[0] * 3, 1024)
        for n in (144, 150):  # written by the copy engine, and by threads
            for activation in ("gelu", "gelu_erf"):  # short code, and long
                keywords = {"activation": activation, **full}
                fused = partial(_blocks_24, shape, size, "float16", n, **keywords)
                yield f"2:4 blocks long {size} {activation} {n}", fused
    wide = partial(_blocks_24, (256, 1024), (128, 128), "float16", 144, **full)
    yield "2:4 blocks long columns", partial(wide, layout="columns")
    yield "2:4 blocks long strides", partial(wide, layout="strided")
    # Groups in which a row has no block in many consecutive columns, and a long row (split-K).
    lengths_of = {"passing": [0, 16, 16, 0, 9, 16], "parts": [1] * 3 + [40] + [0, 1] * 6}
    for name, lengths in lengths_of.items():
        rows = partial(_uneven_24, lengths, (64, 64), "float16", 150)
        yield f"2:4 blocks long {name}", rows


def _blocks_24(
    shape, size, dtype, n, make, *, activation=None, layout="rows", path=None, **keywords
):
    a = make.sparse(shape, size, dtype, **keywords).semi_structured(prune=True)
    k = shape[1]
    x = make.dense((n, k), dtype).T if layout == "columns" else make.dense((k, n), dtype)
    options = {"activation": activation, "allow_tf32": True, "config": path and {"path": path}}
    if layout == "strided":
        options["out"] = make.xp.empty((shape[0], 2 * n), dtype=dtype)[:, ::2]
    return lambda: sg.bsr_matmul(a, x, **options)


def _uneven_24(lengths, size, dtype, n, make):
    a = make.sparse_rows([lengths], size, dtype).semi_structured(prune=True)
    x = make.dense((a.shape[1], n), dtype)
    return lambda: sg.bsr_matmul(a, x)


# -- the epilogue of cuSPARSELt's accumulators ---------------------------------------------------


def _masks() -> Iterator[tuple[str, Prepare]]:
    yield "interval mask of documents", _documents
    for dtype in ("float16", "bfloat16", "float32", "float64", "int64"):
        yield f"top_k {dtype}", partial(_top_k, (2, 3, 70), 5, dtype)
    yield "top_k long", partial(_top_k, (4, 3000), 700, "float32")
    for dtype in ("int32", "int64"):
        yield f"attention to lists of blocks {dtype}", partial(_attended_lists, dtype)


def _documents(make):
    def run():
        mask = sg.masks.documents([70, 5, 0, 125], (20, 40), causal=True, xp=make.xp)
        parts = mask.indptr, mask.indices, mask.kind, mask.bits
        return make.xp.concatenate([part.ravel().astype("int64") for part in parts])

    return run


def _top_k(shape, count, dtype, make):
    if dtype == "int64":
        scores = make.xp.asarray(make.rng.integers(-9, 9, shape))
    else:
        scores = make.dense(shape, dtype)
    return lambda: sg.masks.top_k(scores, count, 2).indices


def _attended_lists(dtype, make):
    """Lists of a batch in any order: pattern, order of the columns, attention."""
    lists = make.xp.asarray(make.rng.permuted(np.tile(np.arange(5), (2, 3, 1)), axis=-1)[..., :3])
    query, key, value = (make.dense((2, length, 16), "float32") for length in (24, 40, 40))

    def run():
        mask = sg.masks.from_indices(lists.astype(dtype), shape=(24, 40), blocksize=8)
        return sg.scaled_dot_product_attention(query, key, value, mask)

    return run


def _accumulators() -> Iterator[tuple[str, Prepare]]:
    """The epilogue of cuSPARSELt's accumulators; the library itself is not needed."""
    results = ("int8", "int32"), ("int8", "int8"), ("float8_e4m3fn", "bfloat16"), ("float32",) * 2
    for dtype, out_dtype in results:
        for order in ("rows", "columns"):
            name = f"accumulators {dtype} {out_dtype} {order}"
            yield name, partial(_accumulated, (2, 33, 37), dtype, out_dtype, order)
    yield "accumulators long", partial(_accumulated, (3, 130, 88), "int8", "float16", "rows")


def _accumulated(shape, dtype, out_dtype, order, make):
    """Accumulators in padded rows, scales, a bias and an activation."""
    *batch, m, n = shape
    operands = dtype_of(dtype)
    sums_dtype = accumulator_dtype(operands)
    padded = (*batch, m + 3, n + 3) if order == "rows" else (*batch, n + 3, m + 3)
    sums = make.xp.asarray(make.rng.integers(-99, 99, padded).astype(sums_dtype))
    out = make.xp.empty((*batch, m, n) if order == "rows" else (*batch, n, m), dtype_of(out_dtype))
    if order == "columns":
        sums, out = sums.swapaxes(-1, -2), out.swapaxes(-1, -2)
    epilogue = Epilogue(
        beta=2,
        input=make.dense((m, 1), out_dtype),
        left_alpha=make.dense((m,), "float32"),
        right_alpha=make.dense((n,), "float32"),
        activation="gelu",
    )
    sums = sums[..., :m, :n]

    def finished():
        if make.xp is np:
            apply_epilogue(sums, epilogue, out)
        else:
            submit(finish(out, sums, epilogue, operands))
        return out

    return finished


def _copies() -> Iterator[tuple[str, Prepare]]:
    """What the functional form of a wrapped kernel copies."""
    for size in (7, 4096 + 16 + 7):
        yield f"copy of {size} bytes", partial(_copied, size)


def _copied(size, make):
    source = make.xp.asarray(make.rng.integers(0, 256, size, dtype=np.uint8))

    def copied():
        if make.xp is np:
            return source.copy()
        out = make.xp.empty_like(source)
        CopyBytes(size).on(out.data.ptr, source.data.ptr, current_stream())
        return out

    return copied


# -- on a GPU ------------------------------------------------------------------------------------


def wanted_kernels() -> set[str]:
    """Return the kernels that this device can run."""
    from sparsegpu.engines.cuda.runtime.device import runs_here
    from sparsegpu.engines.cuda.support import kernels

    return {row.source for row in kernels() if runs_here(row.archs)}


def digest(result: Any) -> str:
    """Return a hash of a result's bits."""
    return hashlib.sha256(to_host(result).tobytes()).hexdigest()[:16]
