"""``demo``: the main job on real input, on the GPU if there is one and on NumPy otherwise.

Two parts: a finite-element stiffness matrix solved by conjugate gradients through our product, and
a trained network whose layers are pruned to 2:4 and to blocks. Every line says where its data
comes from and holds a measured error beside its time.
"""

from __future__ import annotations

import importlib.resources
import importlib.util
import operator
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

import sparsegpu as sg

from .._arrays import cupy_installed
from .._progress import Progress
from ..benchmark.elasticity import cantilever
from ..testing import to_host
from ..tuning.timing import settle
from .arguments import report
from .table import print_table

#: (elements across the beam, copies of the test images)
SIZES = {"small": (24, 1), "full": (160, 16)}


def run(*, size: str = "full", device: str = "auto", json_path: str | None = None) -> int:
    """Run both parts, print their tables and return the exit status."""
    xp, where = choose_library(device)
    with report(json_path) as content:
        content |= {"device": where, **_both(xp, where, *SIZES[size])}
    return 0


def _both(xp: ModuleType, where: str, across: int, copies: int) -> dict[str, Any]:
    print(f"sparsegpu {sg.__version__} on {where}\n")
    with Progress("Elasticity") as said:
        solved = elasticity(xp, across, said)
    print_table(_cells(solved), "Elasticity: A x = f by conjugate gradients, float64")
    with Progress("Digits") as said:
        pruned = digits(xp, copies, said)
    print_table(_cells(pruned), "Digits: a trained network 64-512-512-10, two layers pruned")
    if xp is np:
        print("2:4 is not faster on a CPU: only GPUs have sparse tensor cores, which skip zeros.")
        print("Blocks are, where few are stored: python -m sparsegpu bench shows a tenth.\n")
    print("What next:")
    print("  python -m sparsegpu doctor                 what can run here, and how to fix the rest")
    print("  A = sparsegpu.bsr_array(dense, blocksize=(32, 32));  A @ x")
    print("  W = sparsegpu.to_semi_structured(sparsegpu.prune_24(weight));  W @ x")
    return {"elasticity": solved, "digits": pruned}


def choose_library(device: str) -> tuple[ModuleType, str]:
    """Return the array library to compute with, and what to call it."""
    if device != "cpu" and cupy_installed():
        import cupy

        try:
            properties = cupy.cuda.runtime.getDeviceProperties(0)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if device == "gpu":
                raise SystemExit(f"no GPU: {error}; run: python -m sparsegpu doctor") from error
        else:
            return cupy, properties["name"].decode()
    elif device == "gpu":
        from .doctor import why_no_gpu

        raise SystemExit(f"no GPU: {why_no_gpu()}")
    return np, "the CPU (NumPy arrays)"


def seconds(xp: ModuleType, call: Callable[[], Any]) -> float:
    """Return the median time of a call, of fifteen, or as many as a second holds."""
    settle(call)  # which also makes what is kept for the next calls
    times: list[float] = []
    while len(times) < 15 and sum(times) < 1:
        synchronize(xp)
        start = time.perf_counter()
        call()
        synchronize(xp)
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def synchronize(xp: ModuleType) -> None:
    """Wait for the GPU; nothing to wait for on the host."""
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()


# -- elasticity -----------------------------------------------------------------------------


def elasticity(xp: ModuleType, across: int, said: Progress) -> list[dict[str, Any]]:
    """Solve a plane-elasticity problem through our product, and through SciPy's or cuSPARSE's."""
    matrix, load, source = elasticity_problem(across)
    print(f"Elasticity data: {source}")
    print(
        f"  {matrix.shape[0]} unknowns, {matrix.nnzb} blocks of "
        f"{matrix.blocksize[0]} x {matrix.blocksize[1]}\n"
    )
    if xp is not np:
        matrix, load = matrix.to_device(), xp.asarray(load)
    contestants: list[tuple[str, Any, Callable]]
    contestants = [("sparsegpu BSR, its cg", matrix, sg.linalg.cg)]
    if xp is not np:
        contestants.append(("cuSPARSE CSR, cupyx's cg", matrix.tocsr(), scipy_linalg(xp).cg))
    elif importlib.util.find_spec("scipy") is not None:
        contestants.append(("SciPy BSR, its cg", matrix.to_scipy(), scipy_linalg(xp).cg))
    else:
        print("  SciPy is not installed: there is nothing to compare with\n")
    peer = contestants[-1][1]
    rows = []
    for name, a, method in contestants:
        said.where = f"{name}, "
        product = seconds(xp, partial(operator.matmul, a, load))
        # A warm-up, too: kernels are compiled, once a machine.
        count = _iterations(method, a, load, said)
        synchronize(xp)
        start = time.perf_counter()
        x, failed = method(a, load, rtol=1e-8, maxiter=20000)
        synchronize(xp)
        spent = time.perf_counter() - start
        residual = float(xp.linalg.norm(load - peer @ x) / xp.linalg.norm(load))
        if failed:
            raise RuntimeError(f"conjugate gradients of {name} did not converge: {failed}")
        rows.append(
            {
                "product and solver": name,
                "one product, us": round(product * 1e6, 1),
                "iterations": count,
                "residual": residual,
                "CG, s": round(spent, 3),
            }
        )
    return _compared(rows, "CG, s", rows[1]) if len(rows) > 1 else rows


def _iterations(method: Callable, a: Any, load: Any, said: Progress) -> int:
    """Return how many iterations a solver makes."""
    made = 0

    def count(_x: Any) -> None:
        nonlocal made
        made += 1
        said(f"iteration {made}")

    method(a, load, rtol=1e-8, maxiter=20000, callback=count)
    return made


def elasticity_problem(across: int) -> tuple[Any, np.ndarray, str]:
    """Return PyAMG's elasticity gallery problem, or our own cantilever where PyAMG is absent."""
    if importlib.util.find_spec("pyamg") is not None:
        from pyamg.gallery import linear_elasticity

        grid = (across, across)
        stiffness, _ = linear_elasticity(grid, format="bsr")
        load = np.tile([0.0, -1.0], stiffness.shape[0] // 2)
        source = f"PyAMG gallery, linear_elasticity(grid={grid}), bilinear elements, clamped edge"
        return sg.bsr_array(stiffness), load, source
    matrix, load = cantilever(across * 2, across // 2)
    source = (
        f"assembled here: cantilever of {across * 2} x {across // 2} bilinear plane-strain "
        "elements under its weight (install pyamg for its gallery problem)"
    )
    return matrix, load, source


def scipy_linalg(xp: ModuleType) -> ModuleType:
    """Return the ``sparse.linalg`` that goes with the array library."""
    name = "scipy.sparse.linalg" if xp is np else "cupyx.scipy.sparse.linalg"
    return importlib.import_module(name)


# -- digits ---------------------------------------------------------------------------------


def digits(xp: ModuleType, copies: int, said: Progress) -> list[dict[str, Any]]:
    """Prune the trained network's two wide layers in several ways; measure what it costs."""
    network = load_network()
    dtype = np.float32 if xp is np else np.float16
    weights = [xp.asarray(network[f"w{i}"].astype(dtype)) for i in range(3)]
    biases = [xp.asarray(network[f"b{i}"].astype(dtype))[:, None] for i in range(3)]
    images = np.tile(network["images"].T / 16, (1, copies)).astype(dtype)
    labels = np.tile(network["labels"], copies)
    images = xp.asarray(images)
    print("Digits data: UCI handwritten digits (Alpaydin and Kaynak, CC BY 4.0), 360 held-out")
    print(
        f"  images{'' if copies == 1 else f', each {copies} times'}; weights trained by "
        f"examples/train_digits.py; {np.dtype(dtype).name}\n"
    )

    def pruned_24(w):
        # float16 on the CPU too: for float32 the format keeps one of two.
        return sg.to_semi_structured(sg.prune_24(w.astype(np.float16)))

    def blocks(density):
        return lambda w: sg.prune_blocks(w, (16, 16), density)

    variants: list[tuple[str, Callable]] = [
        ("dense", lambda w: w),
        ("2:4 by magnitude, float16", pruned_24),
        ("16 x 16 blocks, 75%", blocks(0.75)),
        ("16 x 16 blocks, 50%", blocks(0.5)),
    ]
    rows: list[dict[str, Any]] = []
    reference = None
    for name, prune in variants:
        said(name)
        layers = [prune(w) for w in weights[:2]] + [weights[2]]
        logits = network_forward(xp, layers, biases, images)
        guess = to_host(logits).argmax(axis=0)
        accuracy = float((guess == labels).mean())
        wide = logits.astype(np.float64)
        if reference is None:
            reference = wide
        error = float(xp.linalg.norm(wide - reference) / xp.linalg.norm(reference))
        spent = seconds(xp, partial(network_forward, xp, layers, biases, images))
        rows.append(
            {
                "layers": name,
                "stored": stored(layers[1]) / weights[1].size,
                "logit error": error,
                "accuracy": accuracy,
                "forward, us": round(spent * 1e6),
            }
        )
    return _compared(rows, "forward, us", rows[0])


def _compared(rows: list[dict[str, Any]], time: str, peer: dict[str, Any]) -> list[dict[str, Any]]:
    """Add how many times as fast as the peer each row is."""
    return [row | {"speed-up": peer[time] / row[time] if row[time] else None} for row in rows]


def load_network() -> dict[str, np.ndarray]:
    """Return the trained weights and the held-out images that ship with the package."""
    file = importlib.resources.files(__package__).joinpath("data/digits.npz")
    with importlib.resources.as_file(file) as path, np.load(path) as arrays:
        return dict(arrays)


def network_forward(xp: ModuleType, layers: list, biases: list, x: Any) -> Any:
    """Return the logits; bias and ReLU are fused where the layer is sparse."""
    for i, (w, b) in enumerate(zip(layers, biases, strict=True)):
        activation = "relu" if i < len(layers) - 1 else None
        x = x.astype(w.dtype, copy=False)
        if isinstance(w, sg.bsr_array):
            x = sg.bsr_addmm(b, w, x, activation=activation, out_dtype=b.dtype)
        elif isinstance(w, sg.SemiStructuredArray):
            x = sg.semi_structured_addmm(b, w, x, activation=activation, out_dtype=b.dtype)
        else:
            x = w @ x + b
            x = xp.maximum(x, 0) if activation else x
    return x


def stored(layer: Any) -> int:
    """Return how many values a layer keeps."""
    if isinstance(layer, sg.SemiStructuredArray):
        return int(layer.values().size)
    return int(layer.data.size) if isinstance(layer, sg.bsr_array) else int(layer.size)


_SHOWN = {
    **{"residual": ".1e", "stored": ".0%", "logit error": ".3f", "accuracy": ".4f"},
    "speed-up": ".2f",
}


def _cells(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [
        {
            name: "" if value is None else format(value, _SHOWN.get(name, ""))
            for name, value in row.items()
        }
        for row in rows
    ]
