"""Replayed operations, but for the products: what each reads, and calls that are others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import sparsegpu as sg
from sparsegpu.testing import random_blocks, random_values

Calls = dict[str, Callable[[], Any]]


@dataclass
class Case:
    """An operation on arrays that stay where they are.

    Attributes
    ----------
    call : callable
        What is to be replayed.
    values : list of arrays
        All that it reads and a test may change.
    others : dict
        Calls that are others to the key: none replays what another one recorded.
    never : dict
        Calls that are never replayed, because something is copied, drawn or read on the host.
    """

    call: Callable[[], Any]
    values: list[Any]
    others: Calls = field(default_factory=dict)
    never: Calls = field(default_factory=dict)


CASES: dict[str, Callable[[Any, Any], Case]] = {}
#: Products at stored blocks, of listed blocks and of two sparse matrices, and the softmax of rows.
OF_BLOCKS = ["softmax", "softmax_backward", "sampled_addmm", "spgemm"]
OF_BLOCKS += ["bsr_scatter_mm", "scatter_mm", "scatter_mm_by_config"]
OF_ATTENTION = ["attention", "attention_backward"]


def case(make):
    CASES[make.__name__] = make
    return make


def block_sparse(cp, rng, dtype="float16", shape=(64, 96), blocksize=(16, 16), **how):
    arrays = random_blocks(rng, shape, blocksize, density=0.5, dtype=dtype, **how)
    return sg.bsr_array(tuple(map(cp.asarray, arrays)), shape=shape)


def canonical(cp, rng, *arguments, **keywords):
    a = block_sparse(cp, rng, *arguments, **keywords)
    a.sum_duplicates()
    return a


def dense(cp, rng, shape, dtype="float16"):
    return cp.asarray(random_values(rng, shape, dtype))


def in_other_order(a):
    """Return the same array with blocks whose columns are contiguous."""
    return a.with_data(a._xp.asfortranarray(a.data))


@case
def softmax(cp, rng):
    a = canonical(cp, rng)
    out, wide = a.copy(), a.astype("float32")
    fortran, repeated = in_other_order(a), block_sparse(cp, rng, duplicates=True)
    return Case(
        lambda: sg.bsr_softmax(a).data,
        [a.data, fortran.data, repeated.data],
        {
            "into out": lambda: sg.bsr_softmax(a, out=out).data,
            "of another dtype": lambda: sg.bsr_softmax(wide).data,
            "of other values": lambda: sg.bsr_softmax(out).data,
        },
        {
            "of blocks that are copied": lambda: sg.bsr_softmax(fortran).data,
            "of repeated blocks": lambda: sg.bsr_softmax(repeated).data,
        },
    )


@case
def softmax_backward(cp, rng):
    y = canonical(cp, rng)
    grad, wide = y.with_data(y.data.copy()), y.astype("float32")
    out = sg.bsr_array((y.data.copy(), y.indices, y.indptr), shape=y.shape)
    fortran, repeated = in_other_order(y), block_sparse(cp, rng, duplicates=True)
    backward = sg.bsr_softmax_backward
    return Case(
        lambda: backward(grad, y).data,
        [grad.data, y.data, fortran.data, repeated.data],
        {
            "into out": lambda: backward(grad, y, out=y.with_data(out.data)).data,
            "of another dtype": lambda: backward(wide, wide).data,
            "of the other operand": lambda: backward(y, grad).data,
        },
        {
            "of blocks that are copied": lambda: backward(y, fortran).data,
            "of repeated blocks": lambda: backward(repeated, repeated).data,
            "of a pattern that is compared": lambda: backward(out, y).data,
        },
    )


@case
def attention(cp, rng):
    mask = canonical(cp, rng, "float16", (64, 64)).astype("bool")
    q, k, v = (dense(cp, rng, (2, 4, 64, 32)) for _ in range(3))
    attend = sg.scaled_dot_product_attention
    added = in_other_order(canonical(cp, rng, "float16", (64, 64)))
    of_heads, out = dense(cp, rng, (4,), "float32"), cp.empty((2, 4, 64, 32), "float32")
    packed = sg.BlockMask.from_bsr(mask)
    single = sg.BlockMask.from_bsr(mask.tobsr(blocksize=(1, 16)))
    unsorted = sg.BlockMask.from_bsr(added.astype("bool"))
    return Case(
        lambda: attend(q, k, v, mask),
        [q, k, v],
        {
            "scale": lambda: attend(q, k, v, mask, scale=0.5),
            "causal": lambda: attend(q, k, v, mask, is_causal=True),
            "with lse": lambda: attend(q, k, v, mask, return_lse=True),
            "seed 1": lambda: attend(q, k, v, mask, dropout_p=0.5, seed=1),
            "seed 2": lambda: attend(q, k, v, mask, dropout_p=0.5, seed=2),
            "everything dropped": lambda: attend(q, k, v, mask, dropout_p=1, seed=1),
            "strides": lambda: attend(q.swapaxes(0, 1)[:2], k[:, :2], v[:, :2], mask),
            "softcap": lambda: attend(q, k, v, mask, softcap=2.0),
            "slopes": lambda: attend(q, k, v, mask, slopes=of_heads),
            "sinks": lambda: attend(q, k, v, mask, sinks=of_heads),
            "into out": lambda: attend(q, k, v, mask, out=out),
            "into out, with lse": lambda: attend(q, k, v, mask, out=out, return_lse=True),
            "bits": lambda: attend(q, k, v, packed),
            "bits, in other order": lambda: attend(q, k, v, unsorted),
            "bits, on tensor cores": lambda: attend(q, k, v, packed, config={"path": "mma"}),
            "few queries": lambda: attend(q, k, v, single, config={"path": "decode"}),
        },
        {
            "a mask that is copied": lambda: attend(q, k, v, added),
        },
    )


@case
def attention_backward(cp, rng):
    mask = canonical(cp, rng, "float16", (64, 64))
    q, k, v, grad, out = (dense(cp, rng, (2, 4, 64, 32)) for _ in range(5))
    lse, of_heads = dense(cp, rng, (2, 4, 64), "float32"), dense(cp, rng, (4,), "float32")
    added, packed = in_other_order(mask), sg.BlockMask.from_bsr(mask.astype("bool"))

    def gradients(*operands, **how):
        found = sg.scaled_dot_product_attention_backward(*operands, out, lse, **how)
        of_mask = None if found.mask is None else found.mask.data
        return (*found[:3], of_mask, found.sinks)

    call = partial(gradients, grad, q, k, v)
    return Case(
        lambda: call(mask),
        [q, k, v, grad, out, lse, mask.data],
        {
            "scale": lambda: call(mask, scale=0.5),
            "with lse": lambda: call(mask, grad_lse=lse),
            "mask": lambda: call(mask, mask_gradient=True),
            "sinks": lambda: call(mask, sinks=of_heads),
            "mask and sinks": lambda: call(mask, sinks=of_heads, mask_gradient=True),
            "seed": lambda: call(mask, dropout_p=0.5, seed=1),
            "softcap": lambda: call(mask, softcap=2.0),
            "bits": lambda: call(packed),
        },
        {"a mask that is copied": lambda: call(added)},
    )


@case
def sampled_addmm(cp, rng):
    a = canonical(cp, rng)
    x, y = dense(cp, rng, (64, 48)), dense(cp, rng, (48, 96))
    both = dense(cp, rng, (3, 64, 48))
    repeated, out = block_sparse(cp, rng, duplicates=True), a.copy()
    sampled = sg.sampled_addmm
    return Case(
        lambda: sampled(a, x, y).data,
        [a.data, x, y, both, repeated.data],
        {
            "alpha": lambda: sampled(a, x, y, alpha=2).data,
            "beta": lambda: sampled(a, x, y, beta=0).data,
            "into out": lambda: sampled(a, x, y, out=out).data,
            "strides": lambda: sampled(a, x[:, ::2], y[::2]).data,
            "a batch": lambda: sampled(a, both, y).data,
            "on tensor cores": lambda: sampled(a, x, y, config={"path": "mma"}).data,
            "in parts": lambda: sampled(a, x, y, config={"path": "mma", "split_k": 2}).data,
        },
        {"repeated blocks": lambda: sampled(repeated, x, y).data},
    )


@case
def bsr_scatter_mm(cp, rng):
    """With the lists of its pattern, which is the call without lists."""
    a, x = canonical(cp, rng, "float32"), dense(cp, rng, (96, 64), "float32")
    lists = sg.bsr_scatter_mm_indices_data(a, x, SPLIT_N=2)
    out, columns = cp.empty((64, 64), "float32"), cp.empty((64, 64), "float32").T
    into = partial(sg.bsr_scatter_mm, a, x)
    return Case(
        lambda: into(lists),
        [a.data, x],
        {
            "into out": lambda: into(lists, out=out),
            "into columns": lambda: into(lists, out=columns),
        },
        {"lists from outside": lambda: into((*lists,))},
    )


@case
def scatter_mm(cp, rng):
    a, x = canonical(cp, rng, "float32"), dense(cp, rng, (96, 64), "float32")
    lists = sg.bsr_scatter_mm_indices_data(a, x, "bsr_strided_mm")
    sums = cp.zeros((64, 64), "float32")

    def added():
        sums.fill(1)
        return sg.scatter_mm(a.data, x, lists, accumulators=sums)

    return Case(
        lambda: sg.scatter_mm(a.data, x, lists),
        [a.data, x],
        {"added": added},
        {"lists from outside": lambda: sg.scatter_mm(a.data, x, (*lists,))},
    )


@case
def scatter_mm_by_config(cp, rng):
    """Another path, another tile, the tile that the lists ask for: other calls."""
    a, x = canonical(cp, rng), dense(cp, rng, (96, 64))
    lists = sg.bsr_scatter_mm_indices_data(a, x, SPLIT_N=1)
    with_tile = sg.bsr_scatter_mm_indices_data(a, x, SPLIT_N=1, TILE_M=16, TILE_N=16)

    def by(**config):
        return lambda: sg.scatter_mm(a.data, x, lists, config=config)

    return Case(
        by(path="mma"),
        [a.data, x],
        {
            "another path": by(path="simt"),
            "another tile": by(path="mma", tile_m=32),
            "the tile of the lists": lambda: sg.scatter_mm(a.data, x, with_tile),
        },
        {"lists from outside": lambda: sg.scatter_mm(a.data, x, (*lists,), config={"path": "mma"})},
    )


@case
def to_dense(cp, rng):
    a = block_sparse(cp, rng, "float32", duplicates=True)
    fortran, strided = in_other_order(a), cp.empty((64, 192), "float32")[:, ::2]
    return Case(
        a.toarray,
        [a.data, fortran.data],
        {
            "by columns": lambda: a.toarray(order="F"),
            "into out": lambda: a.toarray(out=strided),
            "another dtype": canonical(cp, rng, "int8").toarray,
        },
        {"of blocks that are copied": fortran.toarray},
    )


@case
def transpose(cp, rng):
    a = block_sparse(cp, rng, blocksize=(16, 32))
    fortran = in_other_order(a)
    return Case(
        lambda: a.T.data,
        [a.data, fortran.data],
        {"of other values": lambda: a.with_data(2 * a.data).T.data},
        {"of blocks that are copied": lambda: fortran.T.data},
    )


@case
def compress(cp, rng):
    x = dense(cp, rng, (64, 128))
    from_dense = partial(sg.semi_structured_from_dense, strict=False)
    pruned = sg.prune_24(x)
    return Case(
        lambda: from_dense(x),
        [x],
        {
            "part": lambda: from_dense(x[:32]),
            "dtype": lambda: from_dense(x.view("int8")),
            "strict": lambda: sg.semi_structured_from_dense(pruned),
        },
        {"unaligned": lambda: from_dense(x.ravel()[1:4097].reshape(32, 128))},
    )


@case
def expand(cp, rng):
    pruned = sg.prune_24(dense(cp, rng, (64, 128)))
    packed, meta = sg.semi_structured_from_dense(pruned)
    array = sg.to_semi_structured(pruned)
    apart = cp.empty((64, 128), "float16")[:, ::2]
    return Case(
        lambda: sg.semi_structured_to_dense(packed, meta),
        [packed, apart],
        {"todense": array.todense, "meta": lambda: sg.restore_meta(meta),
         "meta back": lambda: sg.reorder_meta(meta)},
        {"strided": lambda: sg.semi_structured_to_dense(apart, meta)},
    )  # fmt: skip


@case
def prune_24(cp, rng):
    x, importance = dense(cp, rng, (64, 128)), dense(cp, rng, (64, 128), "float32")
    stack = dense(cp, rng, (4, 64, 128)).swapaxes(0, 1)
    half = importance.astype("float16")
    return Case(
        lambda: sg.prune_24(x),
        [x, importance, stack, half],
        {
            "pairs": lambda: sg.prune_24(x, keep="1:2"),
            "importance": lambda: sg.prune_24(x, criterion=importance),
            "strides": lambda: sg.prune_24(x.T),
            "dtype": lambda: sg.prune_24(x.view("int8")),
        },
        {
            "copied rows": lambda: sg.prune_24(stack),
            "importance that is cast": lambda: sg.prune_24(x, criterion=half),
        },
    )


@case
def tiles(cp, rng):
    x = dense(cp, rng, (64, 128))
    bits = sg.compressed_swizzled_bitmask(sg.prune_tile(x))
    apart = cp.zeros((8, 16, 16), "uint8")[..., ::2]
    apart[...] = bits
    columns = x.T.copy().T
    apply = partial(sg.semi_structured_apply, strict=False)
    return Case(
        lambda: sg.semi_structured_tile(x),
        [x, columns],
        {
            "causal": lambda: sg.semi_structured_tile(x, "causal1122"),
            "pruned": lambda: sg.prune_tile(x),
            "pruned by value": lambda: sg.prune_tile(x, "largest_values_greedy"),
            "bitmask": lambda: sg.compressed_swizzled_bitmask(x),
            "apply": lambda: apply(x, bits),
            "apply, and look": lambda: sg.semi_structured_apply(x, bits),
            "apply_dense": lambda: sg.semi_structured_apply_dense(x, bits),
            "apply to columns": lambda: apply(columns, bits),
        },
        {
            "a mask that is copied": lambda: apply(x, apart),
            "a mask that is copied, dense": lambda: sg.semi_structured_apply_dense(x, apart),
        },
    )


@case
def spgemm(cp, rng):
    """The first call finds which blocks meet; from the second one on it is replayed."""
    a, b = block_sparse(cp, rng), block_sparse(cp, rng, shape=(96, 48))
    out = sg.bsr_spgemm(a, b)
    wide = sg.bsr_spgemm(a, b, out_dtype="float32")
    fortran, other = in_other_order(a), block_sparse(cp, rng, shape=(96, 48))
    sg.bsr_spgemm(a, other)
    return Case(
        lambda: sg.bsr_spgemm(a, b).data,
        [a.data, b.data, fortran.data, other.data],
        {
            "into out": lambda: sg.bsr_spgemm(a, b, out=out).data,
            "into float32": lambda: sg.bsr_spgemm(a, b, out=wide).data,
            "of another dtype": lambda: sg.bsr_spgemm(a, b, out_dtype="float32").data,
            "of another pattern": lambda: sg.bsr_spgemm(a, other).data,
            "on tensor cores": lambda: sg.bsr_spgemm(a, b, config={"path": "mma"}).data,
            "of other values": lambda: sg.bsr_spgemm(a.with_data(a.data + a.data), b).data,
            "by another path": lambda: sg.bsr_spgemm(a, b, config={"path": "simt"}).data,
        },
        {
            "of blocks that are copied": lambda: sg.bsr_spgemm(fortran, b).data,
        },
    )
