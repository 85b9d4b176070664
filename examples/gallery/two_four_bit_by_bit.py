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
# # 2:4 bit by bit: from four weights to the word that the tensor core reads
#
# Of each four neighbours in a row two are kept. A 4-bit code says which two, four codes fill a
# 16-bit word, and the words are stored in the order in which the hardware loads them. The weights
# are a layer of a network that was trained to read handwritten digits.

# %%
import matplotlib.pyplot as plt
import numpy as np

import sparsegpu as sg
from sparsegpu.cli.demo import load_network

xp = np  # on a GPU: import cupy as xp

weight = xp.asarray(load_network()["w1"][:128, :128])
pruned = sg.prune_24(weight)
packed, meta = sg.semi_structured_from_dense(pruned)
print(f"{pruned.nbytes} bytes become {packed.nbytes} of values and {meta.nbytes} of metadata")

# %% [markdown]
# ## Four values, two of them kept
#
# The picture of the container shows them; lines divide the groups.

# %%
ax = sg.to_semi_structured(pruned).spy()

# %% [markdown]
# ## The code of a group, the word of four groups
#
# With kept positions i < j the code is `i | j << 2`. Codes fill a word from its low bits up.

# %%
rows = sg.testing.to_host(sg.restore_meta(meta))  # in the order of the matrix
word = int(rows[0, 0]) & 0xFFFF
for group in range(4):
    code = word >> 4 * group & 15
    values = sg.testing.to_host(pruned)[0, 4 * group : 4 * group + 4]
    print(f"{np.round(values.astype(float), 3)!s:32} keeps {code & 3} and {code >> 2}: {code:04b}")
print(f"together, the last group first: {word:016b}")
print(sg.describe_meta(meta, 0, 1))

# %%
codes = (rows[:8, :4, None] >> 4 * np.arange(4) & 15).reshape(8, 16)
figure, ax = plt.subplots(figsize=(8, 4))
ax.imshow(codes, cmap="tab20", vmin=0, vmax=15)
for (row, group), code in np.ndenumerate(codes):
    ax.text(group, row, f"{code:04b}", ha="center", va="center", fontsize=7)
ax.vlines(np.arange(4, 16, 4) - 0.5, -0.5, 7.5, color="black")
ax.set(title="Codes of the first groups; a word between two lines", xlabel="group", ylabel="row")
plt.show()

# %% [markdown]
# ## The order in memory
#
# CUTLASS interleaves rows and pairs of columns. The colour of a word is the row of the matrix that
# it came from.

# %%
offsets = sg.meta_reorder_offsets(*meta.shape, meta.dtype)
came_from = np.empty(meta.size, int)
came_from[offsets] = np.arange(meta.size) // meta.shape[1]
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
left.imshow(np.arange(meta.size).reshape(meta.shape) // meta.shape[1], aspect="auto")
right.imshow(came_from.reshape(meta.shape), aspect="auto")
left.set(title="As in the matrix", xlabel="word", ylabel="row")
right.set(title="As in memory", xlabel="word")
plt.show()

# %% [markdown]
# cuSPARSELt has one buffer for both: the kept values, then the metadata as bits.

# %%
buffer = sg.to_cusparselt_layout(packed, meta, capability=(8, 0))
print(f"{buffer.size} elements: {packed.size} values, {buffer.size - packed.size} of metadata")

# %% [markdown]
# ## There and back, and what is not a code
#
# Nothing is lost. A code that has no meaning is found, and named by row and group.

# %%
restored = sg.semi_structured_to_dense(packed, meta)
assert (restored == pruned).all()
assert (sg.reorder_meta(sg.restore_meta(meta)) == meta).all()
print(f"{int((restored == pruned).sum())} of {pruned.size} elements came back as they were")

spoilt = meta.copy()
spoilt[5, 3] = 0
try:
    sg.check_meta(spoilt)
except ValueError as error:
    print(error)
else:
    raise AssertionError("zeros are no code")

# %% [markdown]
# A product with the packed matrix is within the bound of one with the pruned matrix.

# %%
x = xp.asarray(np.random.default_rng(0).standard_normal((128, 16)).astype(np.float16))
sg.testing.assert_within_bound(sg.to_semi_structured(pruned) @ x, pruned, x)
