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
# # Vibration modes: what eigsh finds, found by lobpcg and multigrid without a factorisation
#
# The beam of the solvers' page, set free to swing. Its modes solve K x = lambda M x, with the
# stiffness K and the mass M, both of 2 x 2 blocks. SciPy's `eigsh` factors K; `lobpcg` only
# multiplies by it, with a multigrid cycle as a preconditioner.

# %%
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse.linalg

import sparsegpu as sg
from sparsegpu.benchmark.elasticity import cantilever

xp = np  # on a GPU: import cupy as xp

along, across, count = 96, 12, 6  # elements, unit squares, and modes
stiffness, _ = cantilever(along, across)

# %% [markdown]
# ## The mass
#
# Two nodes of an element share mass by how much their shape functions overlap: 4, 2 or 1
# thirty-sixths. It moves in both directions alike, so each block is a multiple of the identity, and
# the matrix of the nodes, times it, is what `kron` makes. Along an edge of two nodes the shares are
# 2 and 1 sixths, and a rectangle's are the products.


# %%
def shared(elements):
    """Return the mass matrix of a line of elements of length 1, by node."""
    mass = np.zeros((elements + 1, elements + 1))
    for i in range(elements):
        mass[i : i + 2, i : i + 2] += np.array([[2, 1], [1, 2]]) / 6
    return mass


line = sg.bsr_array(shared(along)[1:, 1:], blocksize=(1, 1))  # the clamped nodes do not move
upright = sg.bsr_array(shared(across), blocksize=(1, 1))
mass = sg.kron(sg.kron(line, upright), sg.bsr_array(np.eye(2), blocksize=(2, 2)))
K, M = (
    sg.bsr_array(tuple(map(xp.asarray, (a.data, a.indices, a.indptr))), shape=a.shape)
    for a in (stiffness, mass)
)
print(K, M, sep="\n")

# %% [markdown]
# ## The cycle makes the difference
#
# From random vectors; `amg` is told the three motions that the stiffness hardly resists. Eight
# vectors look for six modes: the last ones converge late.

# %%
x, y = np.divmod(np.arange(along * (across + 1)), across + 1)
x = x + 1.0
motions = np.zeros((K.shape[0], 3))
motions[0::2, 0] = motions[1::2, 1] = 1
motions[0::2, 2], motions[1::2, 2] = -y, x
start = xp.asarray(np.random.default_rng(0).standard_normal((K.shape[0], count + 2)))

ways = {
    "block_jacobi": sg.linalg.block_jacobi(K),
    "amg": sg.linalg.amg(K, B=xp.asarray(motions), max_coarse=200),
}
values, vectors, norms = {}, {}, {}
options = {"largest": False, "tol": 1e-9, "maxiter": 20, "retResidualNormsHistory": True}
for name, cycle in ways.items():
    began = time.perf_counter()
    with warnings.catch_warnings():  # without the cycle 20 iterations are not enough
        warnings.simplefilter("ignore", UserWarning)
        values[name], vectors[name], history = sg.linalg.lobpcg(K, start, M, cycle, **options)
    norms[name] = np.stack([sg.testing.to_host(row) for row in history])[:, :count].max(axis=1)
    print(f"{name:12} {len(norms[name]) - 1:2} iterations, {time.perf_counter() - began:.1f} s")

figure, ax = plt.subplots(figsize=(8, 4), layout="constrained")
for name, history in norms.items():
    ax.semilogy(history, label=name)
ax.axhline(options["tol"], color="grey", linestyle="dotted")
ax.set(xlabel="iteration", ylabel="largest residual norm", title=f"lobpcg, {count} lowest modes")
ax.legend()
plt.show()

# %% [markdown]
# ## The same as eigsh, and as the theory of beams
#
# `eigsh` factors K, which is cheap for a slender beam in two dimensions: here it is the faster one.
# A factor grows faster than its matrix, in three dimensions most of all, and the cycle does not.
# For the lowest mode the theory of slender beams (Euler and Bernoulli; plane strain stiffens by
# 1 / (1 - 0.3**2)) says `lambda = 1.8751**4 * E I / (A L**4)`.

# %%
began = time.perf_counter()
host = [matrix.to_scipy().tocsc() for matrix in (stiffness, mass)]
exact, _ = scipy.sparse.linalg.eigsh(host[0], count, host[1], sigma=0)
print(f"eigsh {time.perf_counter() - began:.1f} s")
found = sg.testing.to_host(values["amg"])[:count]
beam = 1.8751**4 * across**3 / 12 / (across * along**4) / (1 - 0.3**2)
print(f"largest relative difference from eigsh {abs(found / exact - 1).max():.1e}")
print(f"lowest eigenvalue {found[0]:.3e}, in the theory of slender beams {beam:.3e}")
assert abs(found / exact - 1).max() < 1e-8
assert abs(found[0] / beam - 1) < 0.05

sg.testing.assert_within_bound(K @ vectors["amg"], K.toarray(), vectors["amg"])

# %% [markdown]
# ## The modes
#
# The beam as each of them bends it, coloured by how far it moves. Four bend it, two stretch it.

# %%
shapes = sg.testing.to_host(vectors["amg"]).T[:count].reshape(count, -1, 2)
options = {"figsize": (10, 3.4), "layout": "constrained", "sharex": True, "sharey": True}
figure, panels = plt.subplots(2, 3, **options)
for ax, shape, value in zip(panels.flat, shapes, found, strict=True):
    moved = np.stack([x, y]) + 20 * shape.T / abs(shape).max()
    ax.scatter(*moved, s=2, c=np.linalg.norm(shape, axis=1))
    ax.axvline(0, color="black", linewidth=2)
    ax.set(title=f"frequency {np.sqrt(value):.2e}", aspect="equal")
plt.show()
