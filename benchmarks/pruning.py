"""What 2:4 pruning keeps, with and without `permute_for_24`: the tables of docs/pruning.md.

``python -m benchmarks.pruning`` prints them; ``python -m tools.readme`` writes them into the page.
They take about twenty seconds on the CPU engine and are the same on every machine.
"""

from __future__ import annotations

import argparse

import numpy as np

import sparsegpu as sg
from sparsegpu.cli.demo import load_network


def random_matrices(rows: int = 1024, columns: int = 512, factors: int = 32) -> dict:
    """Return normal values: independent, with common factors, with columns of different scale."""
    rng = np.random.default_rng(24)
    noise = rng.standard_normal((rows, columns))
    common = rng.standard_normal((rows, factors)) @ rng.standard_normal((factors, columns))
    sizes = np.exp(rng.standard_normal(columns))
    return {
        "random, independent": noise,
        "random, correlated (32 factors and noise)": common + 2 * noise,
        "random, columns of unlike sizes": sizes * noise,
        "random, both": sizes * (common + 2 * noise),
    }


def kept_table() -> str:
    """Return the fraction of the sum of magnitudes that is kept, as Markdown."""
    network = load_network()
    matrices = {
        "digits, layer 1": network["w0"],
        "digits, layer 2": network["w1"],
        **random_matrices(),
    }
    lines = [
        "| matrix | shape | 2:4 | 2:4, permuted | half of all, anywhere | of the gap closed |",
        "|---|---|---|---|---|---|",
    ]
    for name, weight in matrices.items():
        exact = weight.astype(np.float64)
        total, order = np.abs(exact).sum(), sg.permute_for_24(weight)
        plain, permuted = (np.abs(sg.prune_24(w)).sum() / total for w in (exact, exact[:, order]))
        most = np.sort(np.abs(exact), axis=None)[exact.size // 2 :].sum() / total
        closed = (permuted - plain) / (most - plain)
        shape = " x ".join(map(str, weight.shape))
        lines.append(
            f"| {name} | {shape} | {plain:.2%} | {permuted:.2%} | {most:.2%} | {closed:.0%} |"
        )
    return "\n".join(lines)


def accuracy_table() -> str:
    """Return the accuracy of the digits network with its two wide layers pruned, as Markdown."""
    network = load_network()
    weights = [network[f"w{i}"].astype(np.float64) for i in range(3)]
    wide = weights[:2]
    unchanged = [np.arange(w.shape[1]) for w in wide]
    orders = [sg.permute_for_24(w) for w in wide]
    variants = {
        "dense": (wide, unchanged),
        "2:4": ([sg.prune_24(w) for w in wide], unchanged),
        "2:4, permuted": (
            [sg.prune_24(w[:, p]) for w, p in zip(wide, orders, strict=True)],
            orders,
        ),
        "half of all, anywhere": ([_largest_half(w) for w in wide], unchanged),
    }
    lines = ["| layers 1 and 2 | accuracy | error of the logits |", "|---|---|---|"]
    reference = None
    for name, (layers, places) in variants.items():
        x = network["images"].T / 16
        for i, (w, p) in enumerate(zip(layers, places, strict=True)):
            x = np.maximum(w @ x[p] + network[f"b{i}"][:, None], 0)
        logits = weights[2] @ x + network["b2"][:, None]
        reference = logits if reference is None else reference
        error = np.linalg.norm(logits - reference) / np.linalg.norm(reference)
        accuracy = (logits.argmax(axis=0) == network["labels"]).mean()
        lines.append(f"| {name} | {accuracy:.4f} | {error:.3f} |")
    return "\n".join(lines)


def _largest_half(weight: np.ndarray) -> np.ndarray:
    threshold = np.median(np.abs(weight))
    return np.where(np.abs(weight) >= threshold, weight, 0.0)


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m benchmarks.pruning", description=__doc__).parse_args()
    print(kept_table(), accuracy_table(), sep="\n\n")
