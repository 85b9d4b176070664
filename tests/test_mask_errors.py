"""Masks of `sparsegpu.masks`: what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from sparsegpu import masks

LISTS = np.array([[0, 1], [1, 2]])
FROM_INDICES = {"indices": LISTS, "counts": None, "shape": (4, 9), "blocksize": (2, 3)}


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"indices": LISTS + 1}, ValueError, r"'indices': expected block columns in 0\.\.2, got 3"),
        ({"indices": LISTS - 1}, ValueError, "'indices': .*got -1"),
        ({"indices": LISTS + 2**32}, ValueError, "'indices': .*got 4294967298"),
        ({"indices": LISTS * 0 + 1}, ValueError, "'indices': .* twice in a row, got 1"),
        ({"indices": LISTS * 1.0}, TypeError, "'indices': expected an integer dtype, got float64"),
        ({"indices": LISTS[:1]}, ValueError, r"'indices': expected shape \(\*B, 2, most\)"),
        ({"indices": LISTS[0]}, ValueError, "'indices': expected shape"),
        ({"indices": np.tile(LISTS, 2)}, ValueError, "'indices': .*at most 3 block columns"),
        ({"shape": (3, 4, 9)}, ValueError, r"'indices': expected shape \(3, 2, 'most'\)"),
        ({"counts": np.array([1, 3])}, ValueError, r"'counts': expected counts in 0\.\.2.*got 3"),
        ({"counts": np.array([1, -1])}, ValueError, "'counts': .*got -1"),
        ({"counts": np.array([1])}, ValueError, r"'counts': expected shape \(2,\), got \(1,\)"),
        ({"counts": np.array([1.0, 2])}, TypeError, "'counts': expected an integer dtype"),
        ({"shape": (4, 10)}, ValueError, "'shape': expected multiples of the blocksize"),
        ({"shape": (4,)}, ValueError, "'shape'"),
        ({"blocksize": 0}, ValueError, "'blocksize': expected both in"),
    ],
)
def test_lists_that_are_no_mask(engine, change, error, match):
    given = {
        name: engine.array(value) if isinstance(value, np.ndarray) else value
        for name, value in (FROM_INDICES | change).items()
    }
    with engine.runs(None), pytest.raises(error, match=f"^from_indices: argument {match}"):
        masks.from_indices(**given)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: masks.documents([3, -1], 2),
            ValueError,
            "documents: argument 'lengths'.*got -1",
        ),
        (lambda: masks.documents([3, 2], 2), ValueError, "documents: argument 'lengths': .*got 5"),
        (
            lambda: masks.documents([[2]], 2),
            ValueError,
            "documents: argument 'lengths'.*one",
        ),
        (lambda: masks.documents([2.0], 2), TypeError, "documents: argument 'lengths': .*float64"),
        (lambda: masks.documents([True], 1), TypeError, "documents: argument 'lengths': .*bool"),
        (lambda: masks.documents("two", 2), TypeError, "documents: argument 'lengths'"),
        (lambda: masks.documents([2**62, 2**62], 2), ValueError, "documents: argument 'lengths'"),
        (lambda: masks.documents([2], 2, xp="numpy"), TypeError, "documents: argument 'xp'"),
        (lambda: masks.prefix(5, 2, 1), ValueError, "prefix: argument 'length': expected mult"),
        (lambda: masks.prefix(4, 2, -1), ValueError, "prefix: argument 'prefix': .*got -1"),
        (lambda: masks.prefix(4, 2, 1.5), TypeError, "prefix: argument 'prefix': expected an int"),
        (lambda: masks.causal(4, 2, xp=None), TypeError, "causal: argument 'xp': expected the mod"),
        (lambda: masks.top_k(np.ones((2, 3)), 0, 2), ValueError, r"top_k: argument 'k': .*1\.\.3"),
        (lambda: masks.top_k(np.ones((2, 3)), 4, 2), ValueError, "top_k: argument 'k': .*got 4"),
        (lambda: masks.top_k(np.ones((2, 3)), 1.5, 2), TypeError, "top_k: argument 'k'"),
        (
            lambda: masks.top_k(np.ones(3), 1, 2),
            ValueError,
            "top_k: argument 'scores'.*shape",
        ),
        (lambda: masks.top_k(np.ones((2, 3)) * 1j, 1, 2), TypeError, "top_k: argument 'scores'"),
        (lambda: masks.top_k(np.ones((2, 3)), 1, 257), ValueError, "top_k: argument 'blocksize'"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=f"^{match}"):
        call()


def test_lists_on_two_sides_of_the_bus(cuda_engine):
    counts = cuda_engine.array(np.array([1, 1]))
    with pytest.raises(TypeError, match="from_indices: argument 'counts': expected a numpy array"):
        masks.from_indices(LISTS, counts, shape=(4, 9), blocksize=(2, 3))
    with pytest.raises(TypeError, match=r"documents: argument 'lengths': .*on the host"):
        masks.documents(counts, 2)
