"""Ten thousand calls leave nothing behind: neither memory of a device nor objects that keep it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sparsegpu as sg
from replay_cases import CASES, OF_ATTENTION, OF_BLOCKS, block_sparse, canonical, dense

FEW = 200  # after which whatever is kept by kinds of calls is full
#: More operands than calls that are kept.
RING = 100


def held(engine) -> tuple[int, int]:
    """Return how many objects there are, and the bytes of a device that are in use."""
    gc.collect()
    used = 0
    if engine.on_gpu:
        engine.xp.cuda.Device().synchronize()
        used = engine.xp.get_default_memory_pool().used_bytes()
    return len(gc.get_objects()), used


def check_nothing_is_left(engine, call: Callable[[int], Any], share: int = 1) -> None:
    """Call with numbers from 0 on; not even every second call may leave an object."""
    few, count = (FEW, 10_000 // share) if engine.on_gpu else (20, 60)
    with sg.use_engine(engine.name):
        for i in range(few):
            call(i)
        objects, used = held(engine)
        for i in range(few, few + count):
            call(i)
    more, after = held(engine)
    assert more - objects < count // 2
    assert after <= used


@pytest.mark.parametrize("name", OF_BLOCKS + OF_ATTENTION)
def test_the_same_calls(engine, rng, name):
    """Replayed on a GPU, but for those that copy or read something."""
    made = CASES[name](engine.xp, rng)
    calls = {"": made.call, **made.others}
    for call in calls.values():
        check_nothing_is_left(engine, lambda i, call=call: call())
    for call in made.never.values():
        check_nothing_is_left(engine, lambda i, call=call: call(), share=10)


def softmax(xp, rng, others):
    a = canonical(xp, rng)
    return lambda i: sg.bsr_softmax(a.with_data(others(a.data)[i % RING]))


def softmax_backward(xp, rng, others):
    a = canonical(xp, rng)
    return lambda i: sg.bsr_softmax_backward(a.with_data(others(a.data)[i % RING]), a)


def sampled_addmm(xp, rng, others):
    a, x, y = canonical(xp, rng), dense(xp, rng, (64, 48)), dense(xp, rng, (48, 96))
    config = {"path": "mma", "split_k": 2}
    return lambda i: sg.sampled_addmm(a, others(x)[i % RING], y, config=config)


def bsr_scatter_mm(xp, rng, others):
    a, x = canonical(xp, rng), dense(xp, rng, (96, 64))
    return lambda i: sg.bsr_scatter_mm(a, others(x)[i % RING])


def scatter_mm(xp, rng, others):
    a, x = canonical(xp, rng), dense(xp, rng, (96, 64))
    lists = sg.bsr_scatter_mm_indices_data(a, x)
    return lambda i: sg.scatter_mm(a.data, others(x)[i % RING], lists)


def index_lists(xp, rng, others):
    """Of ever other widths."""
    a, x = canonical(xp, rng), dense(xp, rng, (96, RING))
    return lambda i: sg.bsr_scatter_mm_indices_data(a, x[:, : 1 + i % RING])


def spgemm(xp, rng, others):
    a, b = block_sparse(xp, rng), block_sparse(xp, rng, shape=(96, 48))
    return lambda i: sg.bsr_spgemm(a.with_data(others(a.data)[i % RING]), b)


def spgemm_of_other_patterns(xp, rng, others):
    """A plan for each, of which the latest are kept."""
    a = block_sparse(xp, rng)
    right = [block_sparse(xp, rng, shape=(96, 48)) for _ in range(RING)]
    return lambda i: sg.bsr_spgemm(a, right[i % RING])


def attention(xp, rng, others):
    mask = canonical(xp, rng, "float16", (64, 64)).astype("bool")
    q, k, v = (dense(xp, rng, (2, 4, 64, 32)) for _ in range(3))
    return lambda i: sg.scaled_dot_product_attention(others(q)[i % RING], k, v, mask)


def attention_backward(xp, rng, others):
    mask = canonical(xp, rng, "float16", (64, 64)).astype("bool")
    q, k, v, grad = (dense(xp, rng, (2, 4, 64, 32)) for _ in range(4))
    out, lse = sg.scaled_dot_product_attention(q, k, v, mask, return_lse=True)
    back = sg.scaled_dot_product_attention_backward
    return lambda i: back(grad, others(q)[i % RING], k, v, mask, out, lse, mask_gradient=True)


def attention_of_other_lengths(xp, rng, others):
    """A mask for each call, as in decoding: lists of pages, of which ever more count."""
    lists = xp.asarray(np.stack([rng.permutation(12)[:8] for _ in range(4)]))
    counts = [xp.asarray(rng.integers(0, 9, 4)) for _ in range(RING)]
    q, (k, v) = dense(xp, rng, (8, 4, 32)), (dense(xp, rng, (2, 192, 32)) for _ in range(2))

    def call(i):
        how = {"shape": (4, 192), "blocksize": (1, 16), "check": False}
        mask = sg.masks.from_indices(lists, counts[i % RING], **how)
        out, lse = sg.scaled_dot_product_attention(q, k, v, mask, return_lse=True)
        return sg.scaled_dot_product_attention_backward(out, q, k, v, mask, out, lse)

    return call


OTHER_OPERANDS = [softmax, softmax_backward, sampled_addmm, bsr_scatter_mm, scatter_mm, index_lists]
OTHER_OPERANDS += [spgemm, spgemm_of_other_patterns]
OTHER_OPERANDS += [attention, attention_backward, attention_of_other_lengths]


@pytest.mark.parametrize("make", OTHER_OPERANDS, ids=lambda make: make.__name__)
def test_calls_on_other_operands(engine, rng, make):
    """More of them, in memory of their own, than calls are kept."""
    copies: dict[int, list] = {}

    def others(array) -> list:
        if not copies:
            copies[0] = [array.copy() for _ in range(RING)]
        return copies[0]

    plans = make in (index_lists, spgemm_of_other_patterns, attention_of_other_lengths)
    check_nothing_is_left(engine, make(engine.xp, rng, others), share=10 if plans else 1)
