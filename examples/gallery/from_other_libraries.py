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
# # Coming from SciPy, CuPy or PyTorch: the same lines side by side
#
# One task in four libraries: put a matrix into blocks, multiply, add a bias and a ReLU, scale the
# matrix, multiply by its transpose, sum its rows, take a block, and save. SciPy's lines and ours
# run here and are compared; CuPy's run with a GPU, PyTorch's where it is installed.
#
# The matrix is a layer of the network for handwritten digits that ships with the library, half of
# its blocks pruned, and the vectors are images.

# %%
import importlib.util
import inspect
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import sparsegpu as sg
from sparsegpu.cli.demo import load_network

xp = np  # on a GPU: import cupy as xp

network = load_network()
W = sg.prune_blocks(network["w0"].astype(np.float32), (16, 16), 0.5).toarray()
x = (network["images"].T / 16).astype(np.float32)
bias = network["b0"].astype(np.float32)[:, None]

# %% [markdown]
# ## SciPy, and the same lines with sparsegpu
#
# The names are SciPy's. What differs: bias and ReLU are fused with the product, and given CuPy
# arrays the lines run on the GPU.


# %%
def scipy(W, x, bias, file):
    from scipy import sparse

    A = sparse.bsr_array(W, blocksize=(16, 16))
    y = np.maximum(A @ x + bias, 0)
    half = A * 0.5
    z = half.T @ y
    sums = A.sum(axis=1)
    block = A.data[A.indptr[1]]
    sparse.save_npz(file, A)
    return y, z, sums, block


def sparsegpu(W, x, bias, file):
    import sparsegpu as sg

    A = sg.bsr_array(W, blocksize=(16, 16))
    y = sg.bsr_addmm(bias, A, x, activation="relu")
    half = A * 0.5
    z = half.T @ y
    sums = A.sum(axis=1)
    block = A.data[int(A.indptr[1])]
    sg.save_npz(file, A)
    return y, z, sums, block


# %% [markdown]
# ## CuPy and PyTorch
#
# `cupyx.scipy.sparse` has no BSR: each element is stored with an index of its own, and a block has
# to be cut out. PyTorch has the product, but for blocks neither the product with a transpose nor
# the sum of rows, so the matrix is made dense on the way.


# %%
def cupy(W, x, bias, file):
    from cupyx.scipy import sparse

    A = sparse.csr_matrix(W)
    y = xp.maximum(A @ x + bias, 0)
    half = A * 0.5
    z = half.T @ y
    sums = A.sum(axis=1).ravel()
    block = A[16:32, first : first + 16].toarray()
    xp.savez(file, data=A.data, indices=A.indices, indptr=A.indptr)
    return y, z, sums, block


def pytorch(W, x, bias, file):
    import torch

    A = torch.asarray(W).to_sparse_bsr((16, 16))
    y = torch.relu(A @ torch.asarray(x) + torch.asarray(bias))
    half = A * 0.5
    z = half.to_dense().T @ y
    sums = A.to_dense().sum(dim=1)
    block = A.values()[A.crow_indices()[1]]
    torch.save(A, file)
    return y, z, sums, block


# %% [markdown]
# ## The same answers
#
# Each library's product is held to the accuracy bound of this one, and the others of its answers to
# SciPy's.

# %%
libraries = [sparsegpu, scipy]
if xp is not np:
    libraries.append(cupy)
if importlib.util.find_spec("torch"):
    libraries.append(pytorch)
first = int(np.flatnonzero(W[16:32].any(axis=0))[0])  # the first column of the second block row
warnings.filterwarnings("ignore", "Sparse BSR tensor support is in beta")  # PyTorch
with tempfile.TemporaryDirectory() as folder:
    file = str(Path(folder) / "A.npz")
    expected = scipy(W, x, bias, file)
    for library in libraries:
        on_gpu = library in (sparsegpu, cupy)
        given = [xp.asarray(a) if on_gpu else a for a in (W, x, bias)]
        y, *others = (sg.testing.to_host(a) for a in library(*given, file))
        sg.testing.assert_within_bound(y, W, x, input=bias, beta=1, activation="relu")
        for other, wanted in zip(others, expected[1:], strict=True):
            np.testing.assert_allclose(other, wanted, rtol=1e-5, atol=1e-4)
        print(f"{library.__name__:9} gives the same, within the bound")
    scipy(W, x, bias, file)
    assert (sg.load_npz(file).toarray() == W).all()
    print("what SciPy saved was loaded by sparsegpu")

# %% [markdown]
# ## Side by side
#
# A line on a coloured ground differs from SciPy's.

# %%
lines = {
    library.__name__: [line.strip() for line in inspect.getsource(library).splitlines()[1:] if line]
    for library in (scipy, sparsegpu, cupy, pytorch)
}
figure, panels = plt.subplots(2, 2, figsize=(11, 5.2), layout="constrained")
for ax, (name, written) in zip(panels.flat, lines.items(), strict=True):
    for place, line in enumerate(written):
        if line not in lines["scipy"]:
            ax.axhspan(place - 0.5, place + 0.5, color="C1", alpha=0.25, linewidth=0)
        ax.text(0.01, place, line, family="monospace", fontsize=8.5, va="center")
    ax.axvline(0, color="gray")
    ax.set(title=name, xlim=(0, 1), ylim=(len(written) - 0.5, -0.5))
    ax.set_axis_off()
plt.show()
