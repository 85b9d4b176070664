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
# # A graph in a better order: the same product from a sixth of the blocks
#
# The graph is a mesh around a wing, the profile NACA 2412: points are neighbours where a triangle
# joins them. Its points come in no order, as meshes often do, and so nearly every neighbour lies in
# a block of its own. Numbering the points anew changes no result, only the number of blocks.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse
from matplotlib.path import Path
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.spatial import Delaunay

import sparsegpu as sg

xp = np  # on a GPU: import cupy as xp

blocksize = (8, 8)


def wing_mesh(around=120, rings=40):
    """Return points and triangles between the profile NACA 2412 and a circle around it."""
    x = (1 - np.cos(np.linspace(0, np.pi, around // 2 + 1))) / 2
    powers = np.stack([np.sqrt(x), x, x**2, x**3, x**4])
    half = 0.6 * np.array([0.2969, -0.126, -0.3516, 0.2843, -0.1036]) @ powers
    camber = np.where(x < 0.4, 0.125 * (0.8 * x - x**2), (0.2 + 0.8 * x - x**2) / 18)
    wing = np.concatenate([np.c_[x, camber + half], np.c_[x, camber - half][-2:0:-1]])
    angle = np.pi - 2 * np.pi * np.arange(around) / around
    circle = np.c_[0.5 + 2 * np.cos(angle), 2 * np.sin(angle)]
    outwards = np.linspace(0, 1, rings)[:, None, None] ** 2
    points = (wing * (1 - outwards) + circle * outwards).reshape(-1, 2)
    points = np.random.default_rng(0).permutation(points)
    triangles = Delaunay(points).simplices
    inside = Path(wing).contains_points(points[triangles].mean(axis=1))
    return points, triangles[~inside]


def neighbours_mean(triangles, n):
    """Return the matrix that replaces each value by the mean of its neighbours' and its own."""
    pairs = np.concatenate([triangles[:, [i, j]] for i in range(3) for j in range(3)])
    ones = np.ones(len(pairs), np.float32)
    graph = scipy.sparse.csr_array((ones, (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    graph.data[:] = 1
    return scipy.sparse.diags_array(1 / graph.sum(axis=1), dtype=np.float32) @ graph


points, triangles = wing_mesh()
n = len(points)
mean = neighbours_mean(triangles, n).tocsr()
print(f"{n} points, {len(triangles)} triangles, {mean.nnz} entries")

# %% [markdown]
# ## Two steps: neighbours near each other, then rows that are alike together
#
# SciPy's reverse Cuthill-McKee order walks through the graph, so that neighbours get near numbers.
# A block row, though, stores a block wherever *one* of its eight rows needs it. So in a second step
# rows are collected that need the same blocks: to each first row, the seven that add the fewest.
# Only the rows move here; the columns keep the order of the first step.


# %%
def alike(matrix, height, width):
    """Return an order of the rows in which each few share their block columns."""
    shape = (n, -(-n // width))
    row = np.repeat(np.arange(n), np.diff(matrix.indptr))
    ones = np.ones(matrix.nnz, int)
    needs = scipy.sparse.csr_array((ones, (row, matrix.indices // width)), shape=shape)
    needed_by = needs.T.tocsr()
    columns = [set(needs.indices[a:b]) for a, b in zip(needs.indptr, needs.indptr[1:])]
    rows = [needed_by.indices[a:b] for a, b in zip(needed_by.indptr, needed_by.indptr[1:])]
    free, order = dict.fromkeys(range(n)), []
    while free:
        first = next(iter(free))
        del free[first]
        group, held = [first], set(columns[first])
        while len(group) < height:
            near = {i for c in sorted(held) for i in rows[c] if i in free}
            if not near:
                break
            best = min(near, key=lambda i: (len(columns[i] - held), -len(columns[i]), i))
            del free[best]
            group.append(best)
            held |= columns[best]
        order += group
    return np.array(order)


walk = reverse_cuthill_mckee(mean, symmetric_mode=True)
rows = walk[alike(mean[walk][:, walk], *blocksize)]
orders = {
    "as it comes": (np.arange(n), np.arange(n)),
    "reverse Cuthill-McKee": (walk, walk),
    "and like rows together": (rows, walk),
}
arrays = {
    name: sg.bsr_array(mean[rows][:, columns], blocksize=blocksize)
    for name, (rows, columns) in orders.items()
}

figure, panels = plt.subplots(2, 3, figsize=(11, 6), layout="constrained", height_ratios=(2, 3))
for (upper, lower), (name, (rows, _)) in zip(panels.T, orders.items(), strict=True):
    number = np.empty(n)
    number[rows] = np.arange(n)
    upper.tripcolor(*points.T, triangles, number, cmap="viridis")
    upper.set(title=name, xlim=(-0.5, 1.5), ylim=(-0.6, 0.6), aspect="equal")
    upper.set_axis_off()
    arrays[name].spy(lower)
    lower.set_title(f"{arrays[name].nnzb} blocks")
figure.suptitle("Above: each point in the colour of its row's number. Below: the stored blocks.")
plt.show()

# %% [markdown]
# ## The same result, sooner
#
# Thirty-two fields on the mesh are smoothed. Columns and rows are put into the order before, and
# the rows of the result back after; in an iteration that is done once for all steps.

# %%
fields = np.random.default_rng(1).standard_normal((n, 32)).astype(np.float32)
times, fewest = {}, None
for name, (rows, columns) in orders.items():
    A, x = arrays[name], xp.asarray(fields[columns])
    A = A if xp is np else A.to_device()
    y = A @ x
    sg.testing.assert_within_bound(y, mean[rows][:, columns].toarray(), x)
    back = np.empty_like(fields)
    back[rows] = sg.testing.to_host(y)
    exact, bound = sg.testing.accuracy_bound(mean.toarray(), fields)
    assert (abs(back - exact) <= bound + 2.0**-24 * abs(exact)).all()
    taken = []
    for _ in range(9):
        start = time.perf_counter()
        y = A @ x
        if xp is not np:
            xp.cuda.get_current_stream().synchronize()
        taken.append(time.perf_counter() - start)
    times[name] = 1e3 * sorted(taken)[4]
    filled = mean.nnz / A.nnz
    print(f"{name:23} {A.nnzb:6} blocks, {filled:4.0%} of each filled, {times[name]:.2f} ms")
blocks = [array.nnzb for array in arrays.values()]
assert 6 * blocks[2] < blocks[0] and blocks[2] < 0.9 * blocks[1]

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.6), layout="constrained", sharey=True)
left.barh(list(orders), blocks)
left.set(title="stored blocks")
right.barh(list(orders), times.values(), color="C1")
right.set(title="time of a product, ms")
left.invert_yaxis()
plt.show()
