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
# # A bent beam: from element blocks to the solution, plain and preconditioned
#
# A beam of finite elements is clamped on the left and bends under its own weight. Its elements are
# summed into a block matrix, conjugate gradients solve for the displacements, and two
# preconditioners, the inverse diagonal blocks and a multigrid cycle, are compared with none.

# %%
import matplotlib.pyplot as plt
import numpy as np

import sparsegpu as sg
from sparsegpu.benchmark.elasticity import element_stiffness

xp = np  # on a GPU: import cupy as xp

along, across = 96, 12  # elements, unit squares

# %% [markdown]
# ## Blocks as triplets
#
# A node moves in two directions, so the coupling of two nodes is a 2 x 2 block. An element couples
# its four corners: 16 blocks, each with its block row and column. Neighbours give blocks at the
# same place, and `from_blocks` sums them. The left edge does not move: its nodes have no unknowns.

# %%
i, j = np.meshgrid(np.arange(along), np.arange(across), indexing="ij")
corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
column = i.reshape(-1, 1) + corners[:, 0]  # (elements, 4)
node = (column - 1) * (across + 1) + j.reshape(-1, 1) + corners[:, 1]
free = column > 0

element = element_stiffness(1, 1, young=1.0, poisson=0.3)
element = element.reshape(4, 2, 4, 2).swapaxes(1, 2)  # (4, 4) blocks of 2 x 2
both = free[:, :, None] & free[:, None, :]
rows = np.broadcast_to(node[:, :, None], both.shape)[both]
columns = np.broadcast_to(node[:, None, :], both.shape)[both]
blocks = np.broadcast_to(element, (*both.shape, 2, 2))[both]

nodes = along * (across + 1)
A = sg.from_blocks(
    xp.asarray(rows), xp.asarray(columns), xp.asarray(blocks), shape=(2 * nodes, 2 * nodes)
)
load = np.zeros((nodes, 2))
np.subtract.at(load[:, 1], node[free], 0.25)  # a quarter of an element's weight on each corner
b = xp.asarray(load.ravel() * 1e-6)
print(f"{len(blocks)} blocks came in, {A.nnzb} are stored")
print(A)

# %%
ax = A.spy()

# %% [markdown]
# ## Three ways to the same displacements
#
# `amg` has to know which motions the stiffness hardly resists: two translations and a rotation. The
# norms of the residuals are kept in a list.

# %%
x, y = np.divmod(np.arange(nodes), across + 1)
x = x + 1
motions = np.zeros((2 * nodes, 3))
motions[0::2, 0] = motions[1::2, 1] = 1
motions[0::2, 2], motions[1::2, 2] = -y, x

ways = {
    "plain": None,
    "block_jacobi": sg.linalg.block_jacobi(A),
    "amg": sg.linalg.amg(A, B=xp.asarray(motions), max_coarse=200, verbose=True),
}
answers, residuals = {}, {}
for name, M in ways.items():
    residuals[name] = []
    answers[name], info = sg.linalg.cg(
        A, b, M=M, rtol=1e-8, verbose=True, residuals=residuals[name]
    )
    assert info == 0

# %%
figure, ax = plt.subplots(figsize=(8, 4))
for name, norms in residuals.items():
    ax.semilogy(np.array(norms) / norms[0], label=f"{name}: {len(norms) - 1} iterations")
ax.axhline(1e-8, color="grey", linestyle="dotted")
ax.set(title="Residuals of conjugate gradients", xlabel="iteration", ylabel="relative to the load")
ax.legend()
plt.show()

# %% [markdown]
# On a uniform mesh all diagonal blocks are equal, except at the edges, so their inverses change
# little here. They pay where the stiffness varies. The cycle needs the same few iterations on any
# mesh.

# %%
plain, cycled = len(residuals["plain"]) - 1, len(residuals["amg"]) - 1
print(f"the multigrid cycle saves {1 - cycled / plain:.0%} of the iterations")
assert cycled * 10 <= plain

# %% [markdown]
# ## The beam
#
# Nodes where they end up, coloured by how far they moved.

# %%
u = sg.testing.to_host(answers["amg"]).reshape(-1, 2)
scale = across / abs(u).max()
figure, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
ax.scatter(x, y, s=1, color="lightgrey", label="at rest")
moved = ax.scatter(*(np.stack([x, y]) + scale * u.T), s=3, c=np.linalg.norm(u, axis=1))
ax.axvline(0, color="black", linewidth=3)
ax.set(title=f"Displacements times {scale:.2g}", aspect="equal", xlabel="x", ylabel="y")
figure.colorbar(moved, label="displacement", shrink=0.8)
plt.show()

# %% [markdown]
# ## Is it right?
#
# Each element of a product is within its error bound, as the first 64 rows show. The three answers
# agree as far as the tolerance and the condition of the matrix allow. The deflection of the tip is
# that of a slender beam, `q L**4 / (8 E I)` (Euler and Bernoulli; plane strain stiffens by
# 1 / (1 - 0.3**2)), up to the few per cent that shear adds.

# %%
rows, answer = A[:64], answers["amg"]
sg.testing.assert_within_bound(rows @ answer, rows.toarray(), answer)
for name, answer in answers.items():
    difference = float(xp.linalg.norm(answer - answers["amg"]) / xp.linalg.norm(answers["amg"]))
    print(f"{name:13} differs from the answer with amg by {difference:.1e}")
    assert difference < 1e-5
tip = -u[x == along, 1].mean()
beam = 1e-6 * across * along**4 / (8 * across**3 / 12) * (1 - 0.3**2)
print(f"the tip moves by {tip:.4f}, in the theory of slender beams {beam:.4f}")
assert abs(tip / beam - 1) < 0.05
