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
# # Shortest paths: a sparse kernel of your own becomes an operation
#
# A shortest path is a matrix product with other rules: distances are added where numbers are
# multiplied, and the least is taken where a sum is. sparsegpu has no such product. Twenty lines of
# CUDA have it, and `kernels.wrap` makes an operation of them: it finds out what the kernel reads
# and writes, runs a NumPy twin where there is no GPU, and chooses between configurations.
#
# The map is a hilly square of 64 x 64 places. A step to one of eight neighbours costs more, the
# steeper it is. Squares of 8 x 8 places are the blocks, so that a block row has at most nine.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

import sparsegpu as sg
from sparsegpu import kernels

xp = np  # on a GPU: import cupy as xp

SIDE, TILE = 64, 8  # places along the map, and along a block
i, j = np.mgrid[:SIDE, :SIDE]
height = 30 * np.sin(i / 9) * np.cos(j / 7) + 20 * np.sin((i + 2 * j) / 11)
height[20:24, 4:50] += 90  # a wall with a way around it
# Number the places block by block.
number = (i // TILE * (SIDE // TILE) + j // TILE) * TILE**2 + i % TILE * TILE + j % TILE

edges, costs = [], []
for di, dj in ((0, 1), (1, 0), (1, 1), (1, -1)):
    a = np.s_[: SIDE - di, max(0, -dj) : SIDE - max(0, dj)]
    b = np.s_[di:, max(0, dj) : SIDE + min(0, dj)]
    climb = np.hypot(di, dj) + np.abs(height[a] - height[b])
    cost = np.rint(16 * climb).ravel()  # whole numbers: every order of additions is exact
    pair = np.stack([number[a].ravel(), number[b].ravel()])
    edges += [pair, pair[::-1]]
    costs += [cost, cost]
edges, costs = np.concatenate(edges, axis=1), np.concatenate(costs).astype(np.float32)

# %% [markdown]
# The costs are a block-sparse matrix like any other, but for one thing: where a stored block has no
# edge, the cost is infinite, not zero.

# %%
A = sg.bsr_array((costs, tuple(edges)), shape=(SIDE**2,) * 2, blocksize=(TILE**2,) * 2)
blocks = A.data.copy()
blocks[blocks == 0] = np.inf
A = A.with_data(blocks)
print(A)

# %% [markdown]
# One step takes every place's distance and tries all edges that lead to it. `LANES` threads share
# an element row; how many are best depends on the block size, so there are three configurations.

# %%
SOURCE = r"""
extern "C" __global__ void relax(float* out, const float* costs, const int* indices,
                                 const int* indptr, const float* distance, int rows, int block) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
  if (row >= rows) return;
  float best = distance[row];
  for (int p = indptr[row / block]; p < indptr[row / block + 1]; ++p) {
    const float* line = costs + ((long long)p * block + row % block) * block;
    for (int c = lane; c < block; c += LANES)
      best = fminf(best, line[c] + distance[indices[p] * block + c]);
  }
  for (int d = LANES / 2; d > 0; d /= 2) best = fminf(best, __shfl_xor_sync(~0u, best, d, LANES));
  if (lane == 0) out[row] = best;
}"""


def relaxed(out, costs, indices, indptr, distance, rows, block):
    """Do what the kernel does, with NumPy."""
    reached = (costs + distance.reshape(-1, 1, block)[indices]).min(axis=2)
    out[:] = distance
    np.minimum.at(
        out.reshape(-1, block), np.repeat(np.arange(rows // block), np.diff(indptr)), reached
    )


relax = kernels.wrap(
    SOURCE,
    "relax",
    grid=lambda m: -(-m["rows"] * m["LANES"] // 256),
    configs=[kernels.Config({"LANES": lanes}, block=256) for lanes in (8, 16, 32)],
    ref=relaxed,
    writes=["out"],  # not needed where NVRTC is installed: it is found
    reads=["costs", "indices", "indptr", "distance"],
)

# %% [markdown]
# What it reads and writes is found in the kernel's PTX, without a GPU; `relax.explain()` names the
# lines that decide, too. (Without NVRTC, what is declared counts.)

# %%
print("reads", sorted(relax.access.reads), "and writes", sorted(relax.access.writes))

# %% [markdown]
# From a corner, distances spread until a step changes nothing. On a GPU `relax.tune(...)` measures
# the three configurations first. `with kernels.checked():` holds every launch to what was found,
# here those of the first step.

# %%
operands = [xp.asarray(part) for part in (A.data, A.indices, A.indptr)]
distance = xp.full(SIDE**2, np.inf, np.float32)
distance[number[0, 0]] = 0
steps = 0
with kernels.checked(ref=True):
    relax(kernels.Out(like="distance"), *operands, distance, SIDE**2, TILE**2)
while True:
    new = relax(kernels.Out(like="distance"), *operands, distance, SIDE**2, TILE**2)
    steps += 1
    if bool((new == distance).all()):
        break
    distance = new
print(f"{steps} steps, the far corner is at {float(distance[number[-1, -1]]) / 16:.0f}")

# %% [markdown]
# SciPy's Dijkstra goes another way to the same numbers. All costs are whole, so they are equal.

# %%
graph = coo_array((costs.astype(float), edges), shape=A.shape).tocsr()
exact, before = dijkstra(graph, indices=number[0, 0], return_predecessors=True)
found = sg.testing.to_host(distance)
assert (found == exact).all()

# %%
way, place = [], number[-1, -1]
while place >= 0:
    way.append(place)
    place = before[place]
order = np.argsort(number.ravel())  # from numbers to places
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4), constrained_layout=True)
left.imshow(height, cmap="terrain")
left.set_title("height, and the shortest way")
shown = right.imshow(found[number] / 16, cmap="viridis")
right.set_title("distance from the upper left corner")
fig.colorbar(shown, ax=right)
for ax in (left, right):
    ax.plot(order[way] % SIDE, order[way] // SIDE, color="red", lw=1.5)
    ax.set_xticks([])
    ax.set_yticks([])
