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
# # How a block-sparse kernel gets fast: read less, then multiply in larger pieces
#
# One product, four times: in NumPy, as the multiply-adds of CUDA threads, on tensor cores
# through `mma.sync`, and on Hopper's through `wgmma`. The code of each step is shown from the
# library's own sources; each is measured on the machine at hand, and larger products are shown as
# they were recorded. Values are random: rates depend on the pattern and the size of the blocks.

# %%
import inspect
import json
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import sparsegpu as sg
from sparsegpu.engines.cuda.runtime.source import source_root
from sparsegpu.engines.reference.addmm import add_product

xp = np  # on a GPU: import cupy as xp


def lines_of(source, first, last):
    """Print a part of a CUDA source: from the line that holds `first` to that with `last`."""
    lines = (source_root() / source).read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if first in line)
    end = next(i for i, line in enumerate(lines[start:], start) if line.startswith(last))
    print(f"// {source}, line {start + 1}", *lines[start : end + 1], sep="\n")


# %% [markdown]
# ## 1. The formula, in NumPy
#
# Each stored block meets the rows of the dense operand that its block column names. This is the
# definition that every other engine is compared with.

# %%
print(inspect.getsource(add_product))

# %%
A = sg.random_bsr((1024, 1024), (16, 16), 0.25, dtype="float32", rng=0, xp=xp)
x = xp.asarray(np.random.default_rng(1).standard_normal((1024, 256)).astype(np.float32))


def median_ms(call):
    """Return the median time of five calls, after one that makes what is kept."""
    call()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        if xp is not np:
            xp.cuda.get_current_stream().synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times)[2]


sg.testing.assert_within_bound(A @ x, A.toarray(), x)
print(f"the library's own choice of engine here: {median_ms(lambda: A @ x):.2f} ms")
if xp is np:
    with sg.use_engine("reference"):
        sg.testing.assert_within_bound(A @ x, A.toarray(), x)
        print(f"the formula as it stands in NumPy: {median_ms(lambda: A @ x):.2f} ms")

# %% [markdown]
# ## 2. A thread block computes a tile: `bsr_addmm_simt.cu`
#
# The blocks of a block row, side by side, are one matrix, and so are the rows of the dense operand
# that meet them. A tile of both goes to shared memory, where each value is used many times. Any
# block size, dtype and stride works so; it is the kernel to read first.

# %%
lines_of("bsr_addmm_simt.cu", "for (long long start = 0;", "    }")

# %% [markdown]
# ## 3. Tensor cores: `bsr_addmm_sm80.cu`, which includes `common/warp_mma.cuh`
#
# The same tiles, but a warp multiplies 16 x 16 of them with one instruction, `mma.sync`, from
# registers, while the next slices are on their way (`cp.async`).

# %%
lines_of("common/warp_mma.cuh", "__device__ __forceinline__ void multiply_slice(", "}")

# %% [markdown]
# ## 4. Hopper: `bsr_addmm_sm90.cu`
#
# `wgmma` multiplies 64 rows at once and reads the dense operand from shared memory; the copy
# engine fills that memory. Now reading is what limits, so neighbouring block rows are grouped: a
# tile of the dense operand is loaded once for all rows that have a block in that column.

# %%
lines_of("bsr_addmm_sm90.cu", "template <int Count, typename Meanwhile>", "}")

# %% [markdown]
# ## What a group of rows gains
#
# Operations for each byte that a thread block reads, with 16 x 16 blocks of 16-bit numbers and
# tiles of 256 columns: counted in random patterns, for one row, and for groups of eight. The line
# is the formula of docs/hopper.md.


# %%
def operations_per_byte(pattern, rows_of_group, columns=256, element_bytes=2):
    """Return the operations of all groups over the bytes of their blocks and dense tiles."""
    b = pattern.blocksize[0]
    row, column = (sg.testing.to_host(a) for a in (pattern.rows, pattern.indices))
    entries = len(set(zip((row // rows_of_group).tolist(), column.tolist(), strict=True)))
    moved = element_bytes * (entries * b * columns + pattern.nnzb * b * b)
    return 2 * pattern.nnzb * b * b * columns / moved


densities = [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75]
patterns = [sg.random_bsr((2048, 2048), (16, 16), d, rng=2).pattern for d in densities]
figure, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
for rows, marker in ((1, "s"), (8, "o")):
    counted = [operations_per_byte(pattern, rows) for pattern in patterns]
    d = np.array(densities)
    union = 1 - (1 - d) ** rows
    formula = 2 * rows * d * 16 * 256 / (2 * (union * 256 + rows * d * 16))
    ax.plot(d, formula, color="gray", linewidth=1)
    ax.plot(d, counted, marker, label=f"groups of {rows} rows" if rows > 1 else "single rows")
    assert np.allclose(counted, formula, rtol=0.1)
ax.set(xlabel="density", ylabel="operations a byte", ylim=(0, None))
ax.legend()
plt.show()

# %% [markdown]
# ## Measured here: a point for each step
#
# One product of 16 x 16 blocks, at a density of .25, by each step that this machine has. With a GPU
# it is of bfloat16, and the formula runs on the host. Without one it is of float32, and the
# library's CPU engine takes the place of the kernels. The sloping roof is the bandwidth of a copy,
# the flat one the rate of a dense product.

# %%
n, columns = (1024, 256) if xp is np else (4096, 4096)
host = sg.random_bsr((n, n), (16, 16), 0.25, dtype="float32", rng=3)
host = host if xp is np else host.astype("bfloat16")
right = np.random.default_rng(4).standard_normal((n, columns)).astype(host.dtype)
A, x = (host, right) if xp is np else (host.to_device(), xp.asarray(right))
flops = 2 * host.nnz * columns
moved = host.data.nbytes + 2 * right.nbytes  # each once; what is written is as large as x


def seconds_each(call, calls=20):
    """Return the time of a call: the least of three rows of calls, after one to begin with."""
    call()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        if xp is not np:
            xp.cuda.get_current_stream().synchronize()
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def formula():
    """Return the product by the definition, on the host."""
    with sg.use_engine("reference"):
        return host @ right


def of_path(name):
    """Return the product by a path of the GPU's engine."""
    return sg.bsr_matmul(A, x, config={"path": name})


steps = {"1. NumPy": formula}
if xp is np:
    steps["CPU engine"] = lambda: A @ x
else:
    steps["2. SIMT"] = lambda: of_path("simt")
    steps["3. mma.sync"] = lambda: of_path("mma")
    steps["mma.sync, groups of rows"] = lambda: of_path("groups")
    if xp.cuda.Device().compute_capability == "90":
        steps["4. wgmma, groups of rows"] = lambda: of_path("wgmma")

dense = host.toarray()
rates = {}
for name, step in steps.items():
    sg.testing.assert_within_bound(step()[:, :64], dense, right[:, :64])
    rates[name] = flops / seconds_each(step, 1 if step is formula else 20)
    print(f"{name:26} {rates[name] / 1e9:9.1f} GFLOP/s")

square = xp.asarray(np.random.default_rng(5).standard_normal((n, n)).astype(A.dtype))
long = xp.zeros(1 << 25, np.float32)
target = xp.empty_like(long)
copied = 2 * long.nbytes / seconds_each(lambda: xp.copyto(target, long))
multiplied = 2 * n**3 / seconds_each(lambda: square @ square)
ridge = multiplied / copied
figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
intensity = np.array([min(ridge, flops / moved) / 8, ridge, 4 * max(ridge, flops / moved)])
ax.plot(intensity, np.minimum(intensity * copied, multiplied) / 1e9, color="black", label="roof")
for name, rate in rates.items():
    ax.plot(flops / moved, rate / 1e9, "o")
    place = (flops / moved, rate / 1e9)
    ax.annotate(name, place, xytext=(8, -3), textcoords="offset points")
ax.set(xscale="log", yscale="log", xlabel="useful operations a byte that must move")
ax.set(ylabel="useful GFLOP/s", title=f"{n} x {n} by {columns} columns, {host.dtype}")
ax.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## Recorded: larger products, and larger blocks
#
# From the recorded run on an H200, bfloat16 at 8192 (`benchmarks/results`). The sloping roof is the
# bandwidth of a copy, the flat one the dense product. From `mma.sync` (in groups of rows, too,
# `bsr_addmm_groups.cu`) to `wgmma` every point rises; larger blocks, which need fewer bytes for an
# operation, get nearer to the roof.

# %%
record = Path(sg.__file__).parents[1] / "benchmarks" / "results" / "nvidia-h200.json"
race = json.loads(record.read_text(encoding="utf-8"))["race"]
figure, ax = plt.subplots(figsize=(8, 5), layout="constrained")
spread = {16: 0.86, 32: 0.95, 64: 1.05, 128: 1.16}  # side by side, else they would overlap
rates = {"8.0 path": {}, "main": {}}
for section, found in rates.items():
    for row in race[section]["rows"]:
        found[row["block"][0], row["flops"] / row["bytes"]] = row["flops"] / row["ms"] / 1e9
for (block, intensity), rate in rates["main"].items():
    before, place = rates["8.0 path"][block, intensity], spread[block] * intensity
    ax.plot([place, place], [before, rate], color="lightgray", zorder=0)
    ax.plot(place, before, "C1o")
    ax.plot(place, rate, "C0o")
    ax.annotate(block, (place, rate), xytext=(0, 5), textcoords="offset points", ha="center")
ax.plot([], [], "C1o", label="mma.sync, groups of rows")
ax.plot([], [], "C0o", label="wgmma, groups of rows")
dense = max(
    row["flops"] / row["density"] / row["peers"]["cuBLAS dense"] / 1e9
    for row in race["main"]["rows"]
)
copy = race["main"]["copy GB/s"] / 1e3
ridge = dense / copy
intensity = np.array([50, ridge, 3000])
ax.plot(intensity, np.minimum(intensity * copy, dense), color="black")
ax.annotate(f"copy {copy:.1f} TB/s", (52, 480))
ax.annotate(f"dense product {dense:.0f} TF", (1000, dense * 1.04))
ax.set(xscale="log", yscale="log", ylim=(80, 1200))
ax.set(xlabel="useful operations a byte that must move", ylabel="useful TFLOP/s")
ax.set_title(f"{race['main']['date']}; numbers: size of the blocks")
ax.legend(loc="lower right")
plt.show()
