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
# # Moving weights: four file formats, and every bit arrives
#
# A pruned layer of the network for handwritten digits goes through `.npz` (SciPy reads it), Matrix
# Market (everybody reads it), safetensors (where models are kept) and ONNX (how they are deployed),
# and comes back. What is compared are bits, not values that are nearly the same.

# %%
import importlib.util
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.io
import scipy.sparse

import sparsegpu as sg
from sparsegpu.cli.demo import load_network

xp = np  # on a GPU: import cupy as xp

network = load_network()
weight = xp.asarray(network["w1"].astype(np.float32))
images = xp.asarray((network["images"].T / 16).astype(np.float32))
A = sg.prune_blocks(weight, (16, 16), 0.25)  # a quarter of the blocks
W = sg.to_semi_structured(sg.prune_24(weight.astype(xp.float16)))  # two of each four
folder = tempfile.TemporaryDirectory()
files = Path(folder.name)
print(A, W, sep="\n")


# %%
def same_bits(a, b):
    """Return whether two arrays agree in dtype, shape and every bit."""
    a, b = sg.testing.to_host(a), sg.testing.to_host(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def same_blocks(a, b):
    """Return whether two block-sparse arrays store the same blocks at the same places."""
    parts = ("data", "indices", "indptr")
    return all(same_bits(getattr(a, part), getattr(b, part)) for part in parts)


# %% [markdown]
# ## .npz: the layout of SciPy
#
# What `save_npz` writes SciPy loads, and the other way round. (16-bit floats, which SciPy does not
# have in its sparse arrays, are written so that SciPy refuses them by name.) A file is loaded to
# the host; `to_device` brings it to the device.

# %%
sg.save_npz(files / "blocks.npz", A)
assert same_blocks(sg.load_npz(files / "blocks.npz"), A)
by_scipy = scipy.sparse.load_npz(files / "blocks.npz")
assert same_blocks(by_scipy, A)
scipy.sparse.save_npz(files / "of_scipy.npz", by_scipy)
assert same_blocks(sg.load_npz(files / "of_scipy.npz"), A)

W.save_npz(files / "2_of_4.npz")
loaded = sg.SemiStructuredArray.load_npz(files / "2_of_4.npz")
assert same_bits(loaded.packed, W.packed) and same_bits(loaded.meta, W.meta)
print("SciPy read the blocks:", repr(by_scipy))

# %% [markdown]
# ## Matrix Market: text for everyone
#
# The format knows elements, not blocks. Given the block size, the elements are put into blocks
# again; SciPy writes as many digits as the value needs to come back unchanged.

# %%
scipy.io.mmwrite(files / "elements.mtx", A.tocoo() if xp is np else A.tocoo().get())
elements = scipy.io.mmread(files / "elements.mtx", spmatrix=False)
again = sg.bsr_array(elements.astype(np.float32), blocksize=A.blocksize)
assert same_blocks(again, A)
print((files / "elements.mtx").read_text().splitlines()[0])

# %% [markdown]
# ## safetensors: the parts by name
#
# A block-sparse array is three tensors, a 2:4 array two: values and metadata, both in the order in
# which PyTorch's CUTLASS backend keeps them, too.

# %%
if importlib.util.find_spec("safetensors"):
    from safetensors.numpy import load_file, save_file

    fields = {f"blocks.{name}": getattr(A, name) for name in ("data", "indices", "indptr")}
    fields |= {"two_of_four.packed": W.packed, "two_of_four.meta": W.meta}
    tensors = {name: sg.testing.to_host(tensor) for name, tensor in fields.items()}
    save_file(tensors, files / "layer.safetensors", metadata={"shape": "512 512"})
    back = load_file(files / "layer.safetensors")
    parts = tuple(back[f"blocks.{name}"] for name in ("data", "indices", "indptr"))
    assert same_blocks(sg.bsr_array(parts, shape=A.shape), A)
    packed, meta = (back[f"two_of_four.{name}"] for name in ("packed", "meta"))
    sg.check_meta(meta)  # a file of others: codes that the hardware does not know are found
    loaded = sg.SemiStructuredArray(A.shape, packed, meta)
    assert same_bits(loaded.todense(), W.todense())
    print("safetensors:", ", ".join(f"{name} {tensor.dtype}" for name, tensor in back.items()))
else:
    print("safetensors is not installed")

# %% [markdown]
# ## ONNX: the weights of a model
#
# A model has its weights as initializers, by name; from there a layer is pruned. ONNX knows a
# sparse one by its elements, each with its place in the flattened matrix: `tocoo` gives both.

# %%
if importlib.util.find_spec("onnx"):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    coo = A.tocoo() if xp is np else A.tocoo().get()
    places = coo.row.astype(np.int64) * A.shape[1] + coo.col
    order = np.argsort(places)  # as ONNX wants them
    tensors = {"of_blocks": coo.data[order], "places": places[order]}
    of_blocks, places = (numpy_helper.from_array(t, name) for name, t in tensors.items())
    there, result = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [512, None]) for name in "xy"
    )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["dense", "x"], ["y"])], "layer", [there], [result],
        initializer=[numpy_helper.from_array(network["w1"].astype(np.float32), "dense")],
        sparse_initializer=[helper.make_sparse_tensor(of_blocks, places, A.shape)],
    )  # fmt: skip
    onnx.save(helper.make_model(graph), files / "layer.onnx")

    model = onnx.load(files / "layer.onnx")
    onnx.checker.check_model(model)
    dense = xp.asarray(numpy_helper.to_array(model.graph.initializer[0]))
    assert same_blocks(sg.prune_blocks(dense, A.blocksize, 0.25), A)
    sparse = model.graph.sparse_initializer[0]
    values, places = (numpy_helper.to_array(part) for part in (sparse.values, sparse.indices))
    elements = (values, np.divmod(places, sparse.dims[1]))
    assert same_blocks(sg.bsr_array(elements, shape=tuple(sparse.dims), blocksize=A.blocksize), A)
    print("ONNX:", model.graph.initializer[0].name, dense.shape, sparse.values.name, values.shape)
else:
    print("onnx is not installed")

# %% [markdown]
# ## What arrived computes the same
#
# The product of the loaded blocks has the bits of the product before, and is within the bound.

# %%
x = xp.maximum(xp.asarray(network["w0"].astype(np.float32)) @ images, 0)
moved = again if xp is np else again.to_device()
assert same_bits(moved @ x, A @ x)
sg.testing.assert_within_bound(moved @ x, A.toarray(), x)

np.savez_compressed(files / "dense.npz", network["w1"].astype(np.float32))
sizes = {path.name: path.stat().st_size / 1e3 for path in sorted(files.iterdir())}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
moved.spy(left)
bars = right.barh(list(sizes), sizes.values())
right.bar_label(bars, fmt="%.0f", padding=3)
right.set(title="size of the files, kB", xscale="log", xlim=(10, 3000))
plt.show()
folder.cleanup()
