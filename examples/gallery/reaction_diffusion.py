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
# # Reaction and diffusion of three species: new values each step, one pattern for all
#
# Rock, paper, scissors: of three strains of bacteria each kills the next one, and all of them grow
# into free room and wander (T. Reichenbach, M. Mobilia and E. Frey, Nature 448, 2007). In space
# they chase each other in spiral waves. With three unknowns a cell, the system of each implicit
# step has 3 x 3 blocks; its values change with the densities, its pattern never does.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse

import sparsegpu as sg
from sparsegpu.cli.demo import scipy_linalg

xp = np  # on a GPU: import cupy as xp

linalg = scipy_linalg(xp)  # SciPy's solvers, or CuPy's
grid = (32, 32, 8)
cells = int(np.prod(grid))
mobility = np.diag([0.2, 0.2, 0.2])  # cells squared a unit of time
kill, step = 1.0, 0.6


# %% [markdown]
# ## Diffusion is a Kronecker product
#
# `kron(L, D)` puts a scaled copy of D at each entry of the grid's Laplacian L. Reaction adds a
# 3 x 3 block to each cell's own: `kron(I, R)`, were R the same everywhere. It is not, so the
# diagonal blocks are found once, and each step adds its own to them.


# %%
def second_difference(n):
    """Return the one-dimensional Laplacian; nothing flows through the ends."""
    line = sparse.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(n, n)).tolil()
    line[0, 0] = line[-1, -1] = -1
    return line.tocsr()


laplacian = sparse.csr_array((cells, cells))
for axis, n in enumerate(grid):
    before, after = (np.prod(part, dtype=int) for part in (grid[:axis], grid[axis + 1 :]))
    inner = sparse.kron(second_difference(n), sparse.eye_array(after))
    laplacian += sparse.kron(sparse.eye_array(before), inner, format="csr")
diffusion = sg.kron(laplacian, mobility)
diffusion = diffusion if xp is np else diffusion.to_device()
diagonal = xp.flatnonzero(diffusion.pattern.rows == diffusion.indices)
print(diffusion)


# %%
def reaction(u):
    """Return the rates of change, (cells, 3), and their derivatives, (cells, 3, 3)."""
    free = 1 - u.sum(axis=1, keepdims=True)
    killer = xp.roll(u, 1, axis=1)
    rates = u * (free - kill * killer)
    slope = -u[:, :, None] * (1 + kill * xp.roll(xp.eye(3), 1, axis=0))
    return rates, slope + xp.eye(3) * (free - kill * killer)[:, :, None]


# %% [markdown]
# ## A step: one linear system
#
# `(I - step * J) change = step * rates` with J the derivative of the rates. `with_data` gives the
# pattern new values; what was planned for its products is kept.


# %%
def system(u):
    """Return the matrix and the right-hand side of a step."""
    rates, slope = reaction(u)
    data = -step * diffusion.data
    data[diagonal] += xp.eye(3) - step * slope
    rates = rates.ravel() + diffusion @ u.ravel()
    return diffusion.with_data(data), step * rates


# Three sectors, one of each species, meet in a line through the box, which is slanted.
x, y, z = np.indices(grid)
angle = np.arctan2(y - grid[1] / 2 - z, x - grid[0] / 2 + z) % (2 * np.pi)
u = xp.asarray(0.5 * np.eye(3)[(angle * 1.5 / np.pi).astype(int).ravel()])

frames, totals = {}, []
start = time.perf_counter()
for number in range(101):
    if number % 20 == 0:
        frames[number * step] = sg.testing.to_host(u).reshape(*grid, 3)
    totals.append(sg.testing.to_host(u.mean(axis=0)))
    A, b = system(u)
    change, failed = linalg.cgs(A.aslinearoperator(), b, rtol=1e-5)
    assert not failed
    u = u + change.reshape(cells, 3)
print(f"101 steps, {time.perf_counter() - start:.1f} s")

# %% [markdown]
# ## Frames
#
# The densities are the shares of red, green and blue, in the middle layer of the box.

# %%
figure, panels = plt.subplots(2, 3, figsize=(9, 6.4), layout="constrained")
for ax, (moment, frame) in zip(panels.flat, frames.items(), strict=True):
    ax.imshow(frame[:, :, grid[2] // 2].clip(0, 1) / frame.max(), interpolation="bicubic")
    ax.set_title(f"time {moment:.0f}")
    ax.set_axis_off()
plt.show()

# %%
figure, ax = plt.subplots(figsize=(8, 3), layout="constrained")
for species, colour in zip(np.transpose(totals), ("tab:red", "tab:green", "tab:blue"), strict=True):
    ax.plot(step * np.arange(len(totals)), species, color=colour)
ax.set(title="Share of the room that each species has", xlabel="time")
plt.show()

# %% [markdown]
# ## The last product is within the bound, the last system solved
#
# A row stores at most seven blocks of three, so 21 products are summed.

# %%
corner = 210  # of the first rows: all as a dense matrix would be large
A, b = system(u)
y = A @ u.ravel()
sg.testing.assert_within_bound(y[:corner, None], A[:corner].toarray(), u.reshape(-1, 1), terms=21)
densities = sg.testing.to_host(u)
assert densities.min() > -0.01 and densities.sum(axis=1).max() < 1.01
print(f"densities from {densities.min():.3f} to {densities.max():.3f}")
