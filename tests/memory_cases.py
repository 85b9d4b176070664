"""What operations may take of a device's memory: their results, and the workspace stated here.

Each case names the kernels that must run, and as a formula what is held beside the result while
it is made. Where nothing is stated there is nothing: operands are never copied or expanded. What
an operation keeps with the pattern is made by the first call, and the second is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import sparsegpu as sg
from sparsegpu.testing import random_blocks, random_values

SHAPE, BLOCKSIZE = (512, 1024), (16, 16)
BLOCK_ROWS = SHAPE[0] // BLOCKSIZE[0]


class Case(NamedTuple):
    """A call that returns the arrays it made, and what it may take beside them."""

    kernels: tuple[str, ...]
    call: Callable[[], Any]
    workspace: int = 0


CASES: dict[str, Callable[..., Case]] = {}


def case(make: Callable[..., Case]) -> Callable[..., Case]:
    CASES[make.__name__] = make
    return make


def sparse(cp, rng, dtype="float16", shape=SHAPE, **keywords):
    """Half of the blocks, in order and without duplicates unless asked for."""
    keywords = {"density": 0.5, "shuffled": False, **keywords}
    arrays = random_blocks(rng, shape, BLOCKSIZE, dtype=dtype, **keywords)
    return sg.bsr_array(tuple(cp.asarray(a) for a in arrays), shape=shape)


def values(cp, rng, shape, dtype="float16"):
    return cp.asarray(random_values(rng, shape, dtype))


def index_work(*, int64=(), int32=(), boolean=()):
    """Return the bytes of index arrays of so many elements, in CuPy's steps of 512."""
    sizes = [8 * n for n in int64] + [4 * n for n in int32] + list(boolean)
    return sum(-(-size // 512) * 512 for size in sizes)


def parts(a):
    """Return what a block-sparse result is made of, when its pattern is its own."""
    return a.data, a.indices, a.indptr


# -- products with dense --------------------------------------------------------------------------


@case
def bsr_times_dense(cp, rng):
    a, x = sparse(cp, rng), values(cp, rng, (SHAPE[1], 64))
    return Case(("bsr_addmm",), lambda: sg.bsr_matmul(a, x))


@case
def bsr_times_dense_with_an_epilogue(cp, rng):
    a, x = sparse(cp, rng), values(cp, rng, (SHAPE[1], 64))
    bias, left = values(cp, rng, (SHAPE[0], 1)), values(cp, rng, SHAPE[:1], "float32")
    return Case(("bsr_addmm",), lambda: sg.bsr_addmm(bias, a, x, left_alpha=left, beta=2))


@case
def bsr_times_vector(cp, rng):
    a, x = sparse(cp, rng, "float32"), values(cp, rng, SHAPE[1:], "float32")
    return Case(("bsr_addmm",), lambda: a @ x)


@case
def uneven_rows_times_vector(cp, rng):
    """The first call cuts the long row into pieces, and keeps them and their sums."""
    lengths = np.append(5000, np.ones(99, int))
    indptr = cp.asarray(np.append(0, np.cumsum(lengths)))
    indices = cp.zeros(int(lengths.sum()), int)
    data = values(cp, rng, (indices.size, 4, 4), "float32")
    a = sg.bsr_array((data, indices, indptr), shape=(400, 40))
    x = values(cp, rng, (40,), "float32")
    return Case(("bsr_addmm_vector", "bsr_addmm_vector_reduce"), lambda: a @ x)


@case
def broadcast_dense(cp, rng):
    a = sparse(cp, rng, "float32")
    x = cp.broadcast_to(values(cp, rng, (SHAPE[1], 1), "float32"), (3, SHAPE[1], 64))
    return Case(("bsr_addmm",), lambda: sg.bsr_matmul(a, x))


@case
def dense_times_bsr(cp, rng):
    a, x = sparse(cp, rng), values(cp, rng, (64, SHAPE[0]))
    return Case(("bsr_addmm",), lambda: sg.dense_bsr_matmul(x, a))


@case
def vector_times_bsr(cp, rng):
    a, x = sparse(cp, rng, "float32"), values(cp, rng, SHAPE[:1], "float32")
    return Case(("bsr_addmm",), lambda: x @ a)


@case
def scatter_mm(cp, rng):
    a, x = sparse(cp, rng), values(cp, rng, (SHAPE[1], 64))
    lists = sg.bsr_scatter_mm_indices_data(a, x)
    return Case(("scatter_mm",), lambda: sg.scatter_mm(a.data, x, lists))


@case
def scatter_mm_with_lists_of_the_pattern(cp, rng):
    a, x = sparse(cp, rng), values(cp, rng, (SHAPE[1], 64))
    lists = sg.bsr_scatter_mm_indices_data(a, x)
    return Case(("bsr_addmm",), lambda: sg.bsr_scatter_mm(a, x, lists))


@case
def scatter_mm_on_tensor_cores(cp, rng):
    a, x = sparse(cp, rng), values(cp, rng, (SHAPE[1], 64))
    lists, config = sg.bsr_scatter_mm_indices_data(a, x), {"path": "mma"}
    return Case(("scatter_mm_sm80",), lambda: sg.scatter_mm(a.data, x, lists, config=config))


@case
def scatter_mm_through_wgmma(cp, rng):
    a = cp.ones((6, 64, 64), cp.float16)
    starts, pairs = cp.asarray([0, 2, 5]), cp.asarray([[0, 1], [2, 3], [4, 0], [5, 1], [1, 2]])
    lists, config = ("scatter_mm", starts, pairs), {"path": "wgmma"}
    return Case(("scatter_mm_sm90",), lambda: sg.scatter_mm(a, a, lists, config=config))


# -- at the stored blocks -------------------------------------------------------------------------


@case
def sampled_addmm(cp, rng):
    a, x, y = sparse(cp, rng), values(cp, rng, (SHAPE[0], 64)), values(cp, rng, (64, SHAPE[1]))
    return Case(("bsr_sampled_addmm",), lambda: sg.sampled_addmm(a, x, y).data)


def sampled_by(cp, rng, **config):
    a, x, y = sparse(cp, rng), values(cp, rng, (SHAPE[0], 64)), values(cp, rng, (64, SHAPE[1]))
    return lambda: sg.sampled_addmm(a, x, y, config=config).data


@case
def sampled_addmm_on_tensor_cores(cp, rng):
    return Case(("bsr_sampled_addmm_sm80",), sampled_by(cp, rng, path="mma"))


@case
def sampled_addmm_in_parts(cp, rng):
    """The sums of the parts are workspace of the pattern, from the first call on."""
    kernels = "bsr_sampled_addmm_sm80", "bsr_sampled_addmm_reduce"
    return Case(kernels, sampled_by(cp, rng, path="mma", split_k=2))


@case
def softmax(cp, rng):
    a = sparse(cp, rng)
    return Case(("bsr_softmax",), lambda: sg.bsr_softmax(a).data)


@case
def softmax_backward(cp, rng):
    y = sparse(cp, rng)
    grad = y.with_data(values(cp, rng, y.data.shape))
    return Case(("bsr_softmax_backward",), lambda: sg.bsr_softmax_backward(grad, y).data)


@case
def softmax_of_duplicates(cp, rng):
    """The sums are as large as the result."""
    a = sparse(cp, rng, duplicates=True, shuffled=True)
    size = sg.bsr_softmax(a).data.nbytes
    return Case(("bsr_sum_blocks", "bsr_softmax"), lambda: sg.bsr_softmax(a).data, size)


@case
def attention(cp, rng):
    q, k = values(cp, rng, (2, 3, SHAPE[0], 32)), values(cp, rng, (2, 3, SHAPE[1], 32))
    mask = sparse(cp, rng, "bool")
    return Case(
        ("bsr_attention_simt",),
        lambda: sg.scaled_dot_product_attention(
            q, k, k, mask, return_lse=True, config={"path": "simt"}
        ),
    )


@case
def attention_of_few_queries(cp, rng):
    """What pieces of rows add up to; and the schedule, made at the first call."""
    q, k = values(cp, rng, (4, 6, 32)), values(cp, rng, (2, 4096, 32))
    mask = sg.BlockMask.from_bsr(sg.bsr_array(cp.ones((6, 4096), bool), blocksize=(1, 64)))
    how = {"path": "decode", "piece_keys": 512}
    pieces, of_row = 6 * 64 // 8 + 6, 2 * (32 + 2)  # of a key head, and floats of its heads
    return Case(
        ("bsr_attention_decode", "bsr_attention_decode_reduce"),
        lambda: sg.scaled_dot_product_attention(q, k, k, mask, config=how),
        2 * pieces * of_row * 4,
    )


@case
def attention_of_long_rows(cp, rng):
    """What the splits of a long row add up to; and the schedule, made at the first call."""
    q, k = values(cp, rng, (2, 640, 64)), values(cp, rng, (2, 2048, 64))
    seen = np.eye(10, 32, dtype=bool)
    seen[3] = True
    full = cp.asarray(seen.repeat(64, 0).repeat(64, 1))
    mask = sg.BlockMask.from_bsr(sg.bsr_array(full, blocksize=(64, 64)))
    how = {"path": "mma", "split_kv": 1}
    splits, of_row = 2, 2 * (64 + 2)  # of the row, and floats of both heads
    return Case(
        ("bsr_attention_sm80", "bsr_attention_reduce"),
        lambda: sg.scaled_dot_product_attention(q, k, k, mask, config=how),
        splits * 64 * of_row * 4,
    )


@case
def attention_backward(cp, rng):
    """Beside the gradients one float a query."""
    q, k = values(cp, rng, (2, 3, SHAPE[0], 32)), values(cp, rng, (2, 3, SHAPE[1], 32))
    mask, sinks = sparse(cp, rng, "bool"), values(cp, rng, (3,), "float32")
    out, lse = sg.scaled_dot_product_attention(q, k, k, mask, sinks=sinks, return_lse=True)

    def call():
        found = sg.scaled_dot_product_attention_backward(
            q, q, k, k, mask, out, lse, sinks=sinks, mask_gradient=True, config={"path": "simt"}
        )
        return (*found[:3], found.mask.data, found.sinks)

    return Case(("bsr_attention_backward_simt",), call, lse.nbytes)


# -- conversions ----------------------------------------------------------------------------------


@case
def from_dense(cp, rng):
    """The blocks' positions, and what finds the rows of them."""
    a = sparse(cp, rng)
    dense, nnzb = a.toarray(), a.nnzb
    return Case(
        ("bsr_block_mask", "bsr_gather"),
        lambda: parts(sg.bsr_array(dense, blocksize=BLOCKSIZE)),
        index_work(int64=[nnzb] * 4 + [BLOCK_ROWS] * 2),
    )


@case
def to_dense(cp, rng):
    return Case(("bsr_scatter",), sparse(cp, rng).toarray)


@case
def to_dense_column_major(cp, rng):
    a = sparse(cp, rng)
    return Case(("bsr_scatter",), lambda: a.toarray(order="F"))


@case
def transpose(cp, rng):
    a = sparse(cp, rng)
    return Case(("bsr_transpose_blocks",), lambda: a.T.data)


@case
def transpose_first(cp, rng):
    """Beside the result: the first pattern, and what it keeps (the blocks' order)."""
    arrays = parts(sparse(cp, rng))
    nnzb = len(arrays[1])
    return Case(
        ("bsr_transpose_pattern", "bsr_transpose_blocks"),
        lambda: parts(sg.bsr_array(arrays, shape=SHAPE, check=False).T),
        index_work(int32=[nnzb, BLOCK_ROWS + 1], int64=[nnzb]),
    )


@case
def sum_duplicates(cp, rng):
    """Beside the result: the first pattern, and what it keeps (rows, order, starts)."""
    arrays = parts(sparse(cp, rng, duplicates=True, shuffled=True))

    def call():
        a = sg.bsr_array(arrays, shape=SHAPE, check=False)
        a.sum_duplicates()
        return parts(a)

    before, after = len(arrays[1]), len(call()[1])
    kept = index_work(int32=[before, BLOCK_ROWS + 1, before], int64=[before, after + 1])
    return Case(("bsr_sum_blocks",), call, kept)


@case
def sum_over_two_patterns(cp, rng):
    """The union is kept with the two patterns."""
    a, b = sparse(cp, rng), sparse(cp, rng)
    return Case(("bsr_union_blocks",), lambda: (a + b).data)


@case
def spgemm(cp, rng):
    """Which blocks meet is kept with the two patterns."""
    a, b = sparse(cp, rng), sparse(cp, rng, shape=(SHAPE[1], SHAPE[0]))
    return Case(("bsr_spgemm",), lambda: sg.bsr_spgemm(a, b).data)


@case
def spgemm_on_tensor_cores(cp, rng):
    a, b = sparse(cp, rng), sparse(cp, rng, shape=(SHAPE[1], SHAPE[0]))
    return Case(("bsr_spgemm_sm80",), lambda: sg.bsr_spgemm(a, b, config={"path": "mma"}).data)


@case
def first_spgemm(cp, rng):
    """The blocks that meet are listed, but not sorted, with no list beside the one that is kept.

    Eight bytes a pair are kept, and eight a block to say where its pairs start; sums and counts by
    rows and blocks are let go.
    """
    a, b = sparse(cp, rng), sparse(cp, rng, shape=(SHAPE[1], SHAPE[0]))
    pairs = int(cp.diff(b.indptr)[a.indices].sum())
    blocks = len(sg.bsr_spgemm(a, b).data)
    work = index_work(
        int64=[pairs, blocks + 1, blocks, *[BLOCK_ROWS] * 8, *[1] * 8],
        int32=[blocks, blocks, *[1] * 8],
    )

    def call():
        return parts(sg.bsr_spgemm(a, sg.bsr_array(parts(b), shape=b.shape, check=False)))

    return Case(("bsr_spgemm",), call, work + index_work(int32=[b.nnzb, len(b.indptr)]))
