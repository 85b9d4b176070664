# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # Attention masks as pictures: only what is stored is computed
#
# Four patterns in which long texts attend: a window, BigBird's window with global and random
# blocks, everything before, and documents packed one behind the other. Blocks that a mask does not
# store cost neither time nor memory. Queries, keys and values are random: what a mask costs does
# not depend on them.

# %%
import time
import tracemalloc
from functools import partial

import matplotlib.pyplot as plt
import numpy as np

import sparsegpu as sg

xp = np  # on a GPU: import cupy as xp

block, heads, width = 32, 2, 32


def packed_documents(lengths):
    """Return the mask of documents one behind the other: each attends to itself."""
    document = xp.asarray(np.repeat(np.arange(len(lengths)), lengths))
    return sg.bsr_array(document[:, None] == document, blocksize=(block, block))


def masks(length):
    """Return the masks of a length, by name."""
    return {
        "sliding window": sg.sliding_window(length, block, 2 * block, xp=xp),
        "BigBird": sg.bigbird(length, block, random_blocks=2, rng=0, xp=xp),
        "causal": sg.causal(length, block, xp=xp),
        "packed documents": packed_documents([length // 8, length // 2, length // 4, length // 8]),
    }


# %%
figure, panels = plt.subplots(2, 2, figsize=(8, 8), layout="constrained")
for ax, (name, mask) in zip(panels.flat, masks(1024).items(), strict=True):
    mask.spy(ax)
    ax.set_title(f"{name}: {mask.density:.0%} of the blocks")
plt.show()

# %% [markdown]
# ## The same answer as with a dense mask
#
# The promise for float32 is 2e-5, relative and absolute.


# %%
def operands(length):
    """Return query, key and value."""
    shape = (3, heads, length, width)
    return xp.asarray(np.random.default_rng(1).standard_normal(shape).astype(np.float32))


def dense_attention(query, key, value, allowed):
    """Return attention with all scores in memory."""
    scores = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    scores = xp.where(allowed, scores, -xp.inf)
    weights = xp.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights @ value / weights.sum(axis=-1, keepdims=True)


for name, mask in masks(512).items():
    out = sg.scaled_dot_product_attention(*operands(512), mask)
    exact = dense_attention(*operands(512).astype(np.float64), mask.toarray())
    error = float((abs(out - exact) / (1 + abs(exact))).max())
    print(f"{name:16} largest error {error:.1e}")
    sg.testing.assert_attention_close(out, sg.testing.to_host(exact))

# %% [markdown]
# ## Time and memory by length
#
# A dense mask of length L has L * L scores a head. Those of a window grow with L only. The memory
# is the most that is held during a call, beyond the operands: the mask, what is computed on the
# way, and the result.


# %%
def seconds(call):
    """Return the shortest time of three calls, after one that makes what is kept."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        call()
        if xp is not np:
            xp.cuda.get_current_stream().synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def most_bytes(call):
    """Return the most bytes that the arrays made in a call hold together."""
    if xp is np:
        tracemalloc.start()
        call()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most
    pool = xp.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    call()
    xp.cuda.get_current_stream().synchronize()
    return pool.total_bytes() - before  # the pool keeps what was freed meanwhile


def with_blocks(qkv, length):
    """Return attention in a window, whose mask is made anew."""
    mask = sg.sliding_window(length, block, 64, xp=xp)
    return sg.scaled_dot_product_attention(*qkv, mask)


lengths = [256, 512, 1024, 2048] if xp is np else [1024, 2048, 4096, 8192, 16384]
sparse_s, dense_s, sparse_bytes, dense_bytes = [], [], [], []
for length in lengths:
    mask, qkv = sg.sliding_window(length, block, 64, xp=xp), operands(length)
    sparse_bytes.append(most_bytes(lambda qkv=qkv, length=length: with_blocks(qkv, length)))
    dense_bytes.append(most_bytes(lambda qkv=qkv, mask=mask: dense_attention(*qkv, mask.toarray())))
    sparse_s.append(seconds(partial(sg.scaled_dot_product_attention, *qkv, mask)))
    dense_s.append(seconds(partial(dense_attention, *qkv, mask.toarray())))
    print(
        f"length {length:5}, {mask.density:4.0%} of the mask stored: dense "
        f"{dense_bytes[-1] / 1e6:7.1f} MB, blocks {sparse_bytes[-1] / 1e6:5.1f} MB"
    )
assert sparse_bytes[-1] < dense_bytes[-1] / 10

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
left.loglog(lengths, dense_s, "o--", label="dense")
left.loglog(lengths, sparse_s, "o-", label="blocks")
left.set(title="Time, s", xlabel="length")
left.legend()
right.loglog(lengths, np.array(dense_bytes) / 1e6, "o--")
right.loglog(lengths, np.array(sparse_bytes) / 1e6, "o-")
right.set(title="Memory, MB", xlabel="length")
for ax in (left, right):
    ax.set_xticks(lengths, labels=lengths)
    ax.set_xticks([], minor=True)
plt.show()
