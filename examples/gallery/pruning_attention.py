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
# # Pruning attention: an eighth of its blocks, trained again, reads nearly as well
#
# A small network reads handwritten digits by attention: each of the 64 pixels looks at all others.
# Seven of eight blocks are cut, which costs accuracy, and the network is trained again. What is not
# stored is computed neither forwards nor backwards: `sampled_addmm` has the scores and their
# gradient at the stored blocks, `bsr_softmax_backward` leads through the softmax between them.
#
# 360 images ship with the library. They are halved: each half is read by a network that learned
# from the other one. 180 images are few: a network that learned from more reads better.

# %%
import matplotlib.pyplot as plt
import numpy as np

import sparsegpu as sg
from sparsegpu.cli.demo import load_network

xp = np  # on a GPU: import cupy as xp

digits = load_network()
images = xp.asarray((digits["images"] / 16).astype(np.float32))  # 360 images x 64 pixels
labels = xp.asarray(digits["labels"].astype(int))
WIDTH = 16  # numbers that stand for a pixel

# %% [markdown]
# ## Attention and its gradient at the stored blocks
#
# Forwards: the scores q k' at the stored blocks of the mask, a softmax over what is stored of each
# row, and the product of the probabilities P with v. The mask is one for all images; P is a batch.
#
# Backwards, with d the derivative of the loss by the output: P's is d v', needed at the stored
# blocks only. `bsr_softmax_backward` turns it into that of the scores, and those of q, k and v are
# products with block-sparse matrices and their transposes.


# %%
def attention(q, k, v, mask):
    """Return the output and the probabilities, stored in the blocks of the mask."""
    scores = sg.sampled_addmm(mask, q, k.swapaxes(1, 2), beta=0, alpha=WIDTH**-0.5)
    probability = sg.bsr_softmax(scores)
    return probability @ v, probability


def attention_gradients(d, q, k, v, probability):
    """Return the gradients of q, k and v from that of the output."""
    of_probability = sg.sampled_addmm(probability, d, v.swapaxes(1, 2), beta=0)
    of_scores = sg.bsr_softmax_backward(of_probability, probability) * WIDTH**-0.5
    return of_scores @ k, of_scores.T @ q, probability.T @ d


def whole(blocks):
    """Return a mask of all pixels in the stored blocks of a matrix."""
    return blocks.with_data(xp.ones(blocks.data.shape, bool))


# %% [markdown]
# The rest of the network: a pixel becomes 16 numbers, of its brightness and its place; after the
# attention a layer with a ReLU, the same for all pixels, and one that adds up what they say about
# each digit.


# %%
def parameters(seed):
    """Return random parameters of the network, by name."""
    rng = np.random.default_rng(seed)
    shapes = dict.fromkeys(("query", "key", "value"), (WIDTH, WIDTH))
    shapes |= {"pixel": (1, WIDTH), "place": (64, WIDTH), "hidden": (WIDTH, 8), "digit": (512, 10)}
    scale = {"pixel": 1, "place": 0.5}
    made = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape) * scale.get(name, shape[0] ** -0.5)
        made[name] = xp.asarray(values.astype(np.float32))
    return made


def forward(p, x, mask):
    """Return the scores of the ten digits, and what the gradient needs."""
    pixels = x[:, :, None] * p["pixel"] + p["place"]
    q, k, v = (pixels @ p[name] for name in ("query", "key", "value"))
    seen, probability = attention(q, k, v, mask)
    hidden = xp.maximum(seen @ p["hidden"], 0)
    return hidden.reshape(len(x), -1) @ p["digit"], (pixels, q, k, v, probability, seen, hidden)


def loss_and_gradients(p, x, truth, mask):
    """Return the mean cross-entropy and its gradient for each parameter."""
    scores, (pixels, q, k, v, probability, seen, hidden) = forward(p, x, mask)
    scores = scores - scores.max(axis=1, keepdims=True)
    log = scores - xp.log(xp.exp(scores).sum(axis=1, keepdims=True))
    image = xp.arange(len(truth))
    d = xp.exp(log)
    d[image, truth] -= 1
    d /= len(truth)
    gradients = {"digit": hidden.reshape(len(x), -1).T @ d}
    d = (d @ p["digit"].T).reshape(hidden.shape) * (hidden > 0)
    gradients["hidden"] = xp.einsum("ijk,ijl->kl", seen, d)
    of_qkv = attention_gradients(d @ p["hidden"].T, q, k, v, probability)
    d = 0
    for name, of_product in zip(("query", "key", "value"), of_qkv, strict=True):
        gradients[name] = xp.einsum("ijk,ijl->kl", pixels, of_product)
        d = d + of_product @ p[name].T
    gradients |= {"pixel": xp.einsum("ij,ijl->l", x, d)[None], "place": d.sum(axis=0)}
    return -log[image, truth].mean(), gradients


# %% [markdown]
# ## The gradient is that of the loss
#
# In float64, with the blocks near the diagonal as a mask: all parameters move a little in a random
# direction, and the loss must change by as much as the gradient says. And the library's fused
# attention, which keeps no matrix of probabilities, must have the same gradient.

# %%
near = whole(sg.sliding_window(64, 8, window=8, xp=xp))
p = {name: values.astype(float) for name, values in parameters(1).items()}
few, truth = images[:20].astype(float), labels[:20]
rng = np.random.default_rng(2)
way = {name: xp.asarray(rng.standard_normal(values.shape)) for name, values in p.items()}
ahead, behind = (
    loss_and_gradients({name: p[name] + step * way[name] for name in p}, few, truth, near)[0]
    for step in (1e-6, -1e-6)
)
measured = float(ahead - behind) / 2e-6
gradients = loss_and_gradients(p, few, truth, near)[1]
said = sum(float((gradients[name] * way[name]).sum()) for name in p)
print(f"change of the loss: measured {measured:.8f}, by the gradient {said:.8f}")
assert abs(measured - said) < 1e-6 * abs(said)

q, k, v = forward(p, few, near)[1][1:4]
d = xp.asarray(rng.standard_normal(v.shape))
heads = [a[:, None] for a in (d, q, k, v)]  # one head
out, lse = sg.scaled_dot_product_attention(*heads[1:], near, return_lse=True)
fused = sg.scaled_dot_product_attention_backward(*heads, near, out, lse)
seen, probability = attention(q, k, v, near)
assert np.allclose(*map(sg.testing.to_host, (seen, out[:, 0])), rtol=1e-10, atol=1e-10)
for ours, theirs in zip(attention_gradients(d, q, k, v, probability), fused, strict=False):
    assert np.allclose(*map(sg.testing.to_host, (ours, theirs[:, 0])), rtol=1e-10, atol=1e-10)

# %% [markdown]
# ## An eighth of the blocks, chosen in two ways
#
# The network learns with all 64 blocks of 8 x 8; a row of the image is a block row. Then it keeps
# eight of them. One choice is made by hand: a pixel sees its own row of the image. The other keeps
# the blocks that get most attention, summed over the images: `prune_blocks` finds them.
#
# Each is trained again, from two random starts, and the average is drawn.


# %%
def correct(p, x, truth, mask):
    """Return how many images are read right."""
    return int((forward(p, x, mask)[0].argmax(axis=1) == truth).sum())


def trained(p, x, truth, mask, steps, test):
    """Return the parameters after some steps of Adam, and how many it read right between."""
    first = {name: xp.zeros_like(values) for name, values in p.items()}
    second, right = dict(first), [correct(p, *test, mask)]
    for step in range(1, steps + 1):
        for name, g in loss_and_gradients(p, x, truth, mask)[1].items():
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g * g
            root = xp.sqrt(second[name] / (1 - 0.999**step)) + 1e-8
            p = p | {name: p[name] - 5e-3 / (1 - 0.9**step) * first[name] / root}
        if step % EVERY == 0:
            right.append(correct(p, *test, mask))
    return p, right


EVERY = 4  # steps between two tests
all_blocks = whole(sg.bsr_array(xp.ones((64, 64)), blocksize=(8, 8)))
own_row = whole(sg.bsr_array(xp.asarray(np.kron(np.eye(8), np.ones((8, 8)))), blocksize=(8, 8)))
half = len(images) // 2
halves = [(images[:half], labels[:half]), (images[half:], labels[half:])]
right = {"all blocks": [], "most attention": [], "own row": []}
for seed in range(2):
    for learn, test in (halves, halves[::-1]):
        p, found = trained(parameters(seed), *learn, all_blocks, 36, test)
        right["all blocks"].append(found)
        attended = forward(p, learn[0], all_blocks)[1][4].toarray().sum(axis=0)
        most = whole(sg.prune_blocks(attended, (8, 8), 1 / 8, norm=1))
        for name, mask in (("most attention", most), ("own row", own_row)):
            right[name].append(trained(p, *learn, mask, 36, test)[1])
accuracy = {name: np.mean(found, axis=0) / half for name, found in right.items()}
dense = accuracy.pop("all blocks")
print(f"all blocks: {dense[-1]:.1%}")
for name, curve in accuracy.items():
    print(f"an eighth, {name}: {curve[0]:.1%}, trained again {curve[-1]:.1%}")
    assert curve[-1] > dense[-1] - 0.06

# %% [markdown]
# What the last network looked at, and its two masks.

# %%
figure, panels = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
panels[0].imshow(sg.testing.to_host(attended), cmap="Blues")
panels[0].set(title="attention", xlabel="pixel looked at", ylabel="pixel that looks")
for ax, mask, name in zip(panels[1:], (most, own_row), accuracy, strict=True):
    mask.spy(ax)
    ax.set_title(name)
plt.show()

# %%
figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
steps = EVERY * np.arange(len(dense))
ax.plot(steps, dense, "o-", color="gray", label="all blocks")
for name, curve in accuracy.items():
    ax.plot(steps[-1] + steps, curve, "o-", label=f"an eighth: {name}")
ax.axvline(steps[-1], color="gray", linestyle=":")
ax.annotate(
    "seven of eight blocks are cut", (steps[-1], 0.02), xytext=(6, 0), textcoords="offset points"
)
ax.set(xlabel="steps of training", ylabel="accuracy on the other half", ylim=(0, 1.02))
ax.legend(loc="center right")
plt.show()

# %% [markdown]
# ## Each step is within its bound
#
# In float32, for the last network: the scores, the probabilities' gradient and the softmax's, each
# beside exact arithmetic on the numbers that it was given.

# %%
d, q, k, v = (a.astype(xp.float32) for a in (d, *forward(p, images[:20], own_row)[1][1:4]))
# A row of the image is a block here, so that products of rows are what is stored.
d_rows, q_rows, k_rows, v_rows = (a.reshape(len(a), 8, 8, WIDTH) for a in (d, q, k, v))
scores = sg.sampled_addmm(own_row, q, k.swapaxes(1, 2), beta=0)
sg.testing.assert_within_bound(scores.data, q_rows, k_rows.swapaxes(2, 3))
probability = sg.bsr_softmax(scores)
of_probability = sg.sampled_addmm(probability, d, v.swapaxes(1, 2), beta=0)
sg.testing.assert_within_bound(of_probability.data, d_rows, v_rows.swapaxes(2, 3))
of_scores = sg.bsr_softmax_backward(of_probability, probability).data
exact, bound = sg.testing.softmax_backward_bound(of_probability.data, probability.data)
share = float((abs(sg.testing.to_host(of_scores) - exact) / bound).max())
print(f"softmax's gradient: the largest error is {share:.1%} of what the bound allows")
assert share <= 1
