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
# # How exact is a product: its error over its bound, for every dtype
#
# There is no tolerance that fits all products. So each element of a result has a bound of its own,
# from the number and the size of the terms in its sum. A product that is outside it is wrong,
# however small the difference looks.
#
# The matrix is a mass matrix of finite elements: linear ones on a grid of 24 x 24 nodes, times the
# 4 x 4 mass matrix of a cubic beam element, so that each node has four unknowns.

# %%
import matplotlib.pyplot as plt
import ml_dtypes
import numpy as np
from scipy import sparse

import sparsegpu as sg

xp = np  # on a GPU: import cupy as xp

side = 24
line = sparse.diags_array([1 / 6, 2 / 3, 1 / 6], offsets=[-1, 0, 1], shape=(side, side))
hermite = np.array([[156, 22, 54, -13], [22, 4, 13, -3], [54, 13, 156, -22], [-13, -3, -22, 4]])
mass = sg.kron(sparse.kron(line, line, format="csr"), hermite / 420)
columns = np.random.default_rng(0).standard_normal((mass.shape[1], 64))
print(mass)

# %% [markdown]
# ## The bound
#
# A sum of n products may be off by `2 n u S`, where S is the same sum of absolute values and u half
# the spacing of the numbers in which it is summed: 2**-24 for float16, bfloat16 and float32, 2**-53
# for float64. The result is then rounded once to its own dtype. Nothing else is allowed.

# %%
dtypes = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}


def shares(matrix, vectors, out_dtype=None):
    """Return the error of each element as a share of what is allowed, rounding included."""
    A = sg.bsr_array(matrix.astype(vectors.dtype))
    A = A if xp is np else A.to_device()
    out = sg.testing.to_host(sg.bsr_matmul(A, xp.asarray(vectors), out_dtype=out_dtype))
    dense = sg.testing.to_host(A.toarray())
    sg.testing.assert_within_bound(out, dense, vectors, terms=most)
    exact, bound = sg.testing.accuracy_bound(dense, vectors, terms=most)
    half_spacing = float(ml_dtypes.finfo(out.dtype).eps) / 2
    return abs(out - exact) / (bound + half_spacing * (abs(exact) + bound))


# A row's sum has as many terms as the row stores.
most = int(np.diff(mass.indptr).max()) * mass.blocksize[1]
figure, panels = plt.subplots(2, 2, figsize=(9, 6), layout="constrained", sharex=True)
bins = np.linspace(0, 1, 51)
for ax, (name, dtype) in zip(panels.flat, dtypes.items(), strict=True):
    own = shares(mass, columns.astype(dtype)).ravel()
    ax.hist(own, bins=bins, label=f"to {name}")
    if np.dtype(dtype).itemsize == 2:
        wide = shares(mass, columns.astype(dtype), "float32").ravel()
        ax.hist(wide, bins=bins, alpha=0.7, label="to float32")
    ax.axvline(1, color="black")
    ax.set(title=f"{name}: largest {own.max():.2f}", yscale="log")
    ax.legend()
    print(f"{name:8} of what is allowed: at most {own.max():.3f}, half below {np.median(own):.4f}")
for ax in panels[1]:
    ax.set_xlabel("error / bound")
for ax in panels[:, 0]:
    ax.set_ylabel("elements")
plt.show()

# %% [markdown]
# A 16-bit result comes near 1, and has to: half the spacing of its numbers is lost in the one
# rounding at the end. The same sums in float32 show that nothing was lost before it.
#
# ## Integers are exact, to the bit
#
# For long sums the bound is wide. So there is a second rule: where all sums are small integers,
# which every dtype holds, no bit may be wrong. int8 is summed in int32 and does not wrap.

# %%
rng = np.random.default_rng(1)
small = sg.random_bsr((512, 4096), (16, 16), 0.5, rng=2, dtype="float32")
small = small.with_data(rng.integers(-3, 4, small.data.shape).astype(np.float32))
vectors = rng.integers(-3, 4, (4096, 8)).astype(np.float32)
exact = small.toarray().astype(int) @ vectors.astype(int)
for name in (*dtypes, "int8"):
    dtype = dtypes.get(name, np.int8)
    A = small.astype(dtype)
    A = A if xp is np else A.to_device()
    wide = {"float64": "float64", "int8": "int32"}.get(name, "float32")
    out = sg.bsr_matmul(A, xp.asarray(vectors.astype(dtype)), out_dtype=wide)
    wrong = int((sg.testing.to_host(out) != exact).sum())
    print(f"{name:8} {wrong} of {exact.size} elements differ")
    assert wrong == 0

# %% [markdown]
# ## A wrong result is found
#
# One value of one block is changed by a part in a thousand. That is less than float16 resolves, and
# a usual tolerance (`rtol=1e-2`) lets it pass. The bound does not.

# %%
A = mass.astype(np.float32)
spoilt = A.with_data(A.data.copy())
row = int(A.indptr[100])
spoilt.data[row, 0, 0] *= 1.001
x = columns.astype(np.float32)
wrong = spoilt @ x
assert np.allclose(wrong, A @ x, rtol=1e-2, atol=1e-2)
try:
    sg.testing.assert_within_bound(wrong, A.toarray(), x, terms=most)
except AssertionError as error:
    print(error)
else:
    raise RuntimeError("it went unnoticed")
