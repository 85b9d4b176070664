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
# # Tune, and read the roofline: is it slow, or is it as fast as memory?
#
# A product cannot take less time than its bytes need to move, nor less than its operations need.
# That is the roofline; a point far below it is worth tuning. Drawn for this machine, and for the
# recorded run on an H200 (`benchmarks/results`).

# %%
import json
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import sparsegpu as sg

xp = np  # on a GPU: import cupy as xp


calls = 1 if xp is np else 20  # so many in a row keep a GPU busy while the host enqueues them


def seconds(call):
    """Return the time of a call, the shortest of seven, after one that makes what is kept."""
    times = []
    for _ in range(8):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        if xp is not np:
            xp.cuda.get_current_stream().synchronize()
        times.append((time.perf_counter() - start) / calls)
    return min(times[1:])


# %% [markdown]
# ## The two roofs of this machine
#
# A copy says how fast bytes move, a dense product how fast numbers are multiplied.

# %%
n = 2048 if xp is np else 8192  # smaller ones end before a GPU is fully at work
generator = np.random.default_rng(0)
square = xp.asarray(generator.standard_normal((n, n)).astype(np.float32))
long = xp.zeros(1 << 24, np.float32)
target = xp.empty_like(long)


def copy():
    """Copy an array that no cache holds."""
    target[...] = long


bandwidth = 2 * long.nbytes / seconds(copy)  # bytes a second, read and written
peak = 2 * n**3 / seconds(lambda: square @ square)  # operations a second
print(f"copy {bandwidth / 1e9:.0f} GB/s, dense product {peak / 1e9:.0f} GFLOP/s")
print(f"they meet at {peak / bandwidth:.0f} operations a byte")

# %% [markdown]
# ## One matrix, more and more columns
#
# The blocks are read once, however many columns they multiply: more columns, more operations a
# byte. With few columns a product is good when it moves bytes as fast as the copy, whatever its
# GFLOP/s are.

# %%
A = sg.random_bsr((n, n), (32, 32), 0.2, dtype="float32", rng=1, xp=xp)
points = []
for columns in (1, 4, 16, 64, 256):
    x = xp.asarray(generator.standard_normal((n, columns)).astype(np.float32))
    y = A @ x
    sg.testing.assert_within_bound(y, A.toarray(), x)
    operations = 2 * A.nnz * columns
    moved = A.data.nbytes + x.nbytes + y.nbytes  # once each; the indices are small
    took = seconds(lambda x=x: A @ x)
    points.append((columns, operations / moved, operations / took))
    share = operations / took / min(peak, bandwidth * operations / moved)
    print(f"{columns:4} columns: {operations / took / 1e9:5.1f} GFLOP/s, {share:.0%} of the roof")


def draw_roof(ax, copied, dense, low, high):
    """Draw the bandwidth of a copy up to the rate of the dense product."""
    intensity = np.array([low, min(max(dense / copied, low), high), high])
    ax.plot(intensity, np.minimum(copied * intensity, dense), color="black", zorder=0)
    ax.set(xscale="log", yscale="log", xlabel="useful operations a byte that must move")
    ax.grid(alpha=0.3)


figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
draw_roof(ax, bandwidth / 1e9, peak / 1e9, 0.25, 500)
for columns, intensity, rate in points:
    ax.plot(intensity, rate / 1e9, "C0o")
    ax.annotate(columns, (intensity, rate / 1e9), xytext=(6, -10), textcoords="offset points")
ax.set(ylabel="useful GFLOP/s", title="This machine, float32; numbers: columns")
plt.show()

# %% [markdown]
# A point above the sloping roof is no mistake: a matrix that stays in the caches from call to call
# does not come from memory. On a GPU `sparsegpu bench` empties the L2 before each call.
#
# ## The same, recorded on an H200
#
# A few sections of the record: vectors lie on the slope, wide products under the
# flat roof. Between the two, small blocks are far below: they read the dense operand again and
# again from L2, which this roof knows nothing of.

# %%
results = Path(sg.__file__).parents[1] / "benchmarks" / "results" / "nvidia-h200.json"
race = json.loads(results.read_text(encoding="utf-8"))["race"]
figure, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
for section in ("vectors", "skinny", "odd blocks", "main"):
    rows = race[section]["rows"]
    places = [row["flops"] / row["bytes"] for row in rows]
    dtypes = " and ".join(sorted({row["dtype"] for row in rows}))
    columns = [row["shape"][2] for row in rows]
    label = f"{section}: {dtypes}, {min(columns)} to {max(columns)} columns"
    ax.plot(places, [row["flops"] / row["ms"] / 1e9 for row in rows], "o", label=label)
dense = max(
    row["flops"] / row["density"] / row["peers"]["cuBLAS dense"] / 1e9
    for row in race["main"]["rows"]
)
draw_roof(ax, race["main"]["copy GB/s"] / 1e3, dense, 0.2, 3000)
title = f"{race['main']['environment']['gpu']}, {race['main']['date']}"
ax.set(ylabel="useful TFLOP/s", title=title)
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## Tuning
#
# Which kernel path and which tile a product takes is chosen by a model. `tune` measures the others
# on your GPU and keeps what was faster; later calls use it, and none tunes itself. NumPy has
# nothing to tune, and the answer is an empty configuration.

# %%
config = sg.tune(A, x)
print(config)
fast = sg.bsr_matmul(A, x, config=config or None)
sg.testing.assert_within_bound(fast, A.toarray(), x)

# %% [markdown]
# What tuning gained on the H200: the winners that come with the library, and the time of the
# model's choice over theirs.

# %%
shipped = Path(sg.__file__).parent / "engines" / "cuda" / "tuned" / "90.json"
winners = json.loads(shipped.read_text(encoding="utf-8"))["winners"]
winners = [winner for winner in winners if winner["dtype"] == "bfloat16"]
winners.sort(key=lambda winner: winner["model_ms"] / winner["ms"])
names = [
    f"{'x'.join(map(str, w['shape']))}, {w['blocksize'][0]}x{w['blocksize'][1]}, "
    f"density {2 ** (w['bucket'] / 2):.2g}"
    for w in winners
]
figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
ax.barh(names, [winner["model_ms"] / winner["ms"] for winner in winners])
ax.axvline(1, color="black", linewidth=1)
ax.set(xlabel="times as fast as the model's choice", title="bfloat16, tuned on an H200")
ax.tick_params(axis="y", labelsize=8)
plt.show()
assert all(winner["model_ms"] > winner["ms"] for winner in winners)
