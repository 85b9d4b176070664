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
# # Pruning a trained network: a quarter of its blocks, trained again, reads nearly as well
#
# A network that reads handwritten digits, 64-512-512-10, ships with the library. Its two wide
# layers are pruned to blocks and to 2:4, and the accuracy is drawn over the share of the weights
# that is stored. Then only the stored blocks are trained again: `sampled_addmm` computes their
# gradient and no other.
#
# 360 images come with the weights; the network never saw them. Fine-tuning needs images, too, so
# they are halved: each half is classified by a network that was fine-tuned on the other one.

# %%
import matplotlib.pyplot as plt
import numpy as np

import sparsegpu as sg
from sparsegpu.cli.demo import load_network

xp = np  # on a GPU: import cupy as xp

network = load_network()
weights = [xp.asarray(network[f"w{i}"].astype(np.float32)) for i in range(3)]
biases = [xp.asarray(network[f"b{i}"].astype(np.float32))[:, None] for i in range(3)]
images = xp.asarray((network["images"].T / 16).astype(np.float32))  # 64 pixels x 360 images
labels = xp.asarray(network["labels"].astype(int))

# %% [markdown]
# ## Three ways to store less
#
# 2:4 keeps two of each four neighbours in a row; in a better order of the columns it loses less
# (`permute_for_24`). 2:4 is a format of 16-bit numbers, so these layers are float16.


# %%
def product(layer, order, x, bias):
    """Return relu(W @ x + bias) of a layer in any of the formats, in float32."""
    if isinstance(layer, sg.SemiStructuredArray):
        x = x[order].astype(xp.float16)
        return sg.semi_structured_addmm(bias, layer, x, activation="relu", out_dtype="float32")
    if isinstance(layer, sg.bsr_array):
        return sg.bsr_addmm(bias, layer, x, activation="relu")
    return xp.maximum(layer @ x + bias, 0)


def logits(layers, orders, x):
    """Return the scores of the ten digits."""
    for layer, order, bias in zip(layers, orders, biases[:2], strict=True):
        x = product(layer, order, x, bias)
    return weights[2] @ x + biases[2]


def accuracy(scores, truth):
    """Return the share of the images that are classified right."""
    return float((scores.argmax(axis=0) == truth).mean())


def two_four(weight, order):
    """Return the weight with its columns in an order, pruned to 2:4."""
    return sg.to_semi_structured(sg.prune_24(weight[:, order].astype(xp.float16)))


as_they_are = [xp.arange(w.shape[1]) for w in weights[:2]]
better = [sg.permute_for_24(w) for w in weights[:2]]
shares = [0.1, 0.15, 0.25, 0.5, 0.75]
blocks = {s: [sg.prune_blocks(w, (16, 16), s) for w in weights[:2]] for s in shares}

dense = accuracy(logits(weights[:2], as_they_are, images), labels)
plain = [two_four(w, o) for w, o in zip(weights, as_they_are, strict=False)]
permuted = [two_four(w, o) for w, o in zip(weights, better, strict=False)]
before = [accuracy(logits(blocks[s], as_they_are, images), labels) for s in shares]
two_four_plain = accuracy(logits(plain, as_they_are, images), labels)
two_four_permuted = accuracy(logits(permuted, better, images), labels)
print(f"dense {dense:.1%}, 2:4 {two_four_plain:.1%}, permuted 2:4 {two_four_permuted:.1%}")

# %% [markdown]
# What is left of the second layer, drawn by the containers themselves.

# %%
figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for ax, share in zip(panels, (0.5, 0.25, 0.1), strict=True):
    blocks[share][1].spy(ax)
    ax.set_title(f"{share:.0%} of the blocks")
plt.show()

# %% [markdown]
# ## Fine-tuning: the gradient at the stored blocks only
#
# With y = W x, and d the derivative of the loss by y, the gradient is d x' for W, of which
# `sampled_addmm` computes the stored blocks, and W' d for x: a product with the transpose, which is
# not formed. `with_data` puts new values on the same pattern, so what was planned for it stays.


# %%
def forward_and_gradients(layers, bias, x, truth):
    """Return the gradients of the mean cross-entropy for the blocks and the biases."""
    inputs = [x]
    for layer, b in zip(layers, bias, strict=True):
        inputs.append(sg.bsr_addmm(b, layer, inputs[-1], activation="relu"))
    scores = weights[2] @ inputs[-1] + biases[2]
    delta = xp.exp(scores - scores.max(axis=0))
    delta /= delta.sum(axis=0)
    delta[truth, xp.arange(len(truth))] -= 1
    delta = (weights[2].T @ delta) / len(truth)
    gradients = []
    for layer, below, above in zip(layers[::-1], inputs[-2::-1], inputs[:0:-1], strict=True):
        delta = delta * (above > 0)
        of_blocks = sg.sampled_addmm(layer, delta, below.T, beta=0).data
        gradients.append((of_blocks, delta.sum(axis=1, keepdims=True)))
        delta = layer.T @ delta
    return gradients[::-1]


def fine_tuned(layers, x, truth, steps=60, rate=1e-3):
    """Return layers and biases after some steps of Adam on their stored values."""
    values = [a for layer, b in zip(layers, biases, strict=False) for a in (layer.data, b)]
    first, second = [xp.zeros_like(v) for v in values], [xp.zeros_like(v) for v in values]
    for step in range(1, steps + 1):
        layers = [layer.with_data(v) for layer, v in zip(layers, values[::2], strict=True)]
        gradients = forward_and_gradients(layers, values[1::2], x, truth)
        for i, g in enumerate(g for pair in gradients for g in pair):
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.999 * second[i] + 0.001 * g * g
            root = xp.sqrt(second[i] / (1 - 0.999**step)) + 1e-8
            values[i] = values[i] - rate * first[i] / (1 - 0.9**step) / root
    return [layer.with_data(v) for layer, v in zip(layers, values[::2], strict=True)], values[1::2]


def crosswise(share):
    """Return the accuracy on all images, each half after fine-tuning on the other."""
    right, half = 0, images.shape[1] // 2
    for tune, test in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        layers, bias = fine_tuned(blocks[share], images[:, tune], labels[tune])
        x = images[:, test]
        for layer, b in zip(layers, bias, strict=True):
            x = sg.bsr_addmm(b, layer, x, activation="relu")
        right += int(((weights[2] @ x + biases[2]).argmax(axis=0) == labels[test]).sum())
    return right / images.shape[1]


after = [crosswise(share) for share in shares]
for share, was, now in zip(shares, before, after, strict=True):
    print(f"{share:4.0%} of the blocks: {was:.1%}, fine-tuned {now:.1%}")
assert after[shares.index(0.25)] > dense - 0.04

# %%
figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
ax.axhline(dense, color="gray", linestyle=":", label="dense")
ax.plot(shares, before, "o--", label="16 x 16 blocks")
ax.plot(shares, after, "o-", label="16 x 16 blocks, fine-tuned")
ax.plot(0.5, two_four_plain, "s", markersize=9, label="2:4")
ax.plot(0.5, two_four_permuted, "*", markersize=12, label="2:4, permuted columns")
ax.set(xlabel="stored share of the two wide layers", ylabel="accuracy", ylim=(0, 1.02))
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## The products are within the bound
#
# Pruning changes the network; the products do not add to it. Each is as close to exact arithmetic
# as the accuracy bound demands, and the gradient is, too.

# %%
layer, x = blocks[0.25][0], images
y = product(layer, None, x, biases[0])
options = {"input": biases[0], "beta": 1, "activation": "relu"}
sg.testing.assert_within_bound(y, layer.toarray(), x, **options)

gradient = sg.sampled_addmm(layer, y, x.T, beta=0)
exact, bound = sg.testing.accuracy_bound(y, x.T)
stored = sg.testing.to_host(layer.with_data(xp.ones_like(layer.data)).toarray()) == 1
error = abs(sg.testing.to_host(gradient.toarray()) - exact)[stored]
share = float((error / np.where(bound > 0, bound, 1)[stored]).max())
print(f"gradient: the largest error is {share:.1%} of what the bound allows")
assert share <= 1
