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
# # First steps: a matrix of blocks, looked at, multiplied and checked in five lines
#
# A beam of finite elements, clamped on the left and bent by its own weight. Each node moves in two
# directions, so the stiffness matrix comes in 2 x 2 blocks by itself.

# %%
import numpy as np

import sparsegpu as sg
from sparsegpu.benchmark.elasticity import cantilever

xp = np  # on a GPU: import cupy as xp

beam, load = cantilever(48, 12)
parts = [xp.asarray(part) for part in (beam.data, beam.indices, beam.indptr)]
x = xp.asarray(load)

# %% [markdown]
# The five lines. `bsr_array` takes what SciPy's takes, and any SciPy matrix, too; `@` is the
# product; `spy` draws which blocks are stored.

# %%
A = sg.bsr_array(tuple(parts), shape=beam.shape)
print(A)
y = A @ x
ax = A.spy()
sg.testing.assert_within_bound(y, A.toarray(), x)

# %% [markdown]
# The last line compared the product with one in wider arithmetic, element by element: each must be
# as close as the number and the size of the terms in its sum allow. How close it is:

# %%
exact, bound = sg.testing.accuracy_bound(A.toarray(), x)
error = abs(sg.testing.to_host(y) - exact)
share = float((error / np.where(bound > 0, bound, 1)).max())
print(f"the largest error is {share:.1g} of what the bound allows")
assert share <= 1
