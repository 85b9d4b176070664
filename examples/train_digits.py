"""Train the small network whose weights `python -m sparsegpu demo` prunes.

A perceptron 64-512-512-10 with ReLU on the handwritten digits of the UCI repository (E. Alpaydin
and C. Kaynak, "Optical Recognition of Handwritten Digits", CC BY 4.0), as scikit-learn ships them.
Plain NumPy, Adam, dropout; about a minute on two cores. Run it to make the data file again:

    pip install scikit-learn && python examples/train_digits.py sparsegpu/cli/data/digits.npz
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

WIDTHS = (64, 512, 512, 10)


def forward(weights, biases, x, masks):
    """Return the inputs of every layer and the logits; ``masks`` are dropout masks or None."""
    layers = [x]
    for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
        x = x @ w.T + b
        if i < len(weights) - 1:
            x = np.maximum(x, 0)
            if masks is not None:
                x = x * masks[i]
            layers.append(x)
    return layers, x


def gradients(weights, biases, x, labels, masks):
    """Return the gradient of the mean cross-entropy with respect to weights and biases."""
    layers, logits = forward(weights, biases, x, masks)
    logits = logits - logits.max(axis=1, keepdims=True)
    delta = np.exp(logits)
    delta /= delta.sum(axis=1, keepdims=True)
    delta[np.arange(len(labels)), labels] -= 1
    delta /= len(labels)
    dw, db = [], []
    for i in reversed(range(len(weights))):
        dw.insert(0, delta.T @ layers[i])
        db.insert(0, delta.sum(axis=0))
        if i:
            delta = (delta @ weights[i]) * (layers[i] > 0)
            if masks is not None:
                delta = delta * masks[i - 1]
    return dw + db


def train(x, labels, rng, *, epochs=60, batch=64, rate=1e-3, keep=0.7, decay=1e-4):
    """Return trained ``(weights, biases)`` in float32."""
    weights = [
        (rng.standard_normal((m, k)) * np.sqrt(2 / k)).astype(np.float32)
        for k, m in itertools.pairwise(WIDTHS)
    ]
    biases = [np.zeros(m, np.float32) for m in WIDTHS[1:]]
    parameters = weights + biases
    first = [np.zeros_like(p) for p in parameters]
    second = [np.zeros_like(p) for p in parameters]
    step = 0
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for start in range(0, len(x), batch):
            rows = order[start : start + batch]
            masks = [
                ((rng.random((len(rows), m)) < keep) / keep).astype(np.float32)
                for m in WIDTHS[1:-1]
            ]
            step += 1
            for p, m, v, g in zip(
                parameters,
                first,
                second,
                gradients(weights, biases, x[rows], labels[rows], masks),
                strict=True,
            ):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                scale = rate * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
                p -= scale * m / (np.sqrt(v) + 1e-8) + rate * decay * p
    return weights, biases


def main(path: str) -> None:
    """Train, report the accuracy on images that were held out, and write the file."""
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(7)
    images, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32), labels[order]
    held_out = 360
    weights, biases = train(images[held_out:], labels[held_out:], rng)
    test, truth = images[:held_out], labels[:held_out]
    correct = (forward(weights, biases, test, None)[1].argmax(axis=1) == truth).mean()
    print(f"held-out accuracy {correct:.4f} on {held_out} images")
    arrays = {f"w{i}": w.astype(np.float16) for i, w in enumerate(weights)}
    arrays |= {f"b{i}": b for i, b in enumerate(biases)}
    np.savez_compressed(
        path, images=(test * 16).astype(np.uint8), labels=truth.astype(np.uint8), **arrays
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", metavar="FILE.npz", help="the file to write")
    main(parser.parse_args().path)
