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
# store cost neither time nor memory.

# %%
import time
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
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
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
# A dense mask of length L has L * L scores a head. Those of a window grow with L only.


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


lengths = [256, 512, 1024, 2048] if xp is np else [1024, 2048, 4096, 8192, 16384]
sparse_s, dense_s, stored = [], [], []
for length in lengths:
    mask, (query, key, value) = sg.sliding_window(length, block, 64, xp=xp), operands(length)
    blocks = partial(sg.scaled_dot_product_attention, query, key, value, mask)
    sparse_s.append(seconds(blocks))
    dense_s.append(seconds(partial(dense_attention, query, key, value, mask.toarray())))
    stored.append(mask.density)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
left.loglog(lengths, dense_s, "o--", label="dense")
left.loglog(lengths, sparse_s, "o-", label="blocks")
left.set(title="Time, s", xlabel="length")
left.legend()
right.semilogx(lengths, stored, "o-")
right.set(title="Stored share of the mask", xlabel="length", ylim=(0, 1))
for ax in (left, right):
    ax.set_xticks(lengths, labels=lengths)
    ax.set_xticks([], minor=True)
plt.show()
