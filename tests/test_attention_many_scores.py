"""Attention and its gradients where the scores of a head number more than 2**31, by every path.

Few blocks are stored, the last of a head among them, so that a small case says what is right: its
block rows and columns stand far apart here. Indices have 32 bits or 64.
"""

from __future__ import annotations

import numpy as np
import pytest

import sparsegpu as sg
from attention_cases import Case, attention, philox_words
from attention_gradient_cases import GradientCase, backward
from sparsegpu.engines.cuda.paths import ATTENTION, ATTENTION_BACKWARD
from sparsegpu.ops.attention_backward import AttentionGradients
from sparsegpu.testing import assert_attention_close, assert_gradient_close

SIDE = 1 << 16  # queries and keys of a head
HEADS = (8, 2)  # of all heads, Philox's counters need more than 32 bits
#: Dtype and block size by path.
FORWARD = {
    "decode": ("bfloat16", (16, 64)),
    "wgmma": ("bfloat16", (64, 64)),
    "mma": ("float16", (64, 32)),
    "mma_f64": ("float64", (64, 64)),
    "fma": ("float32", (64, 64)),
    "simt": ("float32", (64, 64)),
}
INDICES = ["int32", "int64"]
#: With none, a row of scores begins where Philox's counters come to need more than 32 bits.
MORE_KEYS = [0, 192]
BACKWARD = {name: FORWARD[name] for name in ("wgmma", "mma", "fma", "simt")}


def test_every_path_is_here():
    assert FORWARD.keys() == {path.NAME for path in ATTENTION}
    assert BACKWARD.keys() == {path.NAME for path in ATTENTION_BACKWARD}


def skip_unless_it_runs(engine, path) -> None:
    from sparsegpu.engines.cuda.runtime.device import runs_here

    if engine.on_gpu and not runs_here(path.ARCHS):
        pytest.skip(f"path {path.NAME!r} needs another device")


def path_of(family, name):
    return next(path for path in family if name == path.NAME)


class Apart:
    """A small case whose block rows and columns stand far apart among zeros."""

    def __init__(self, rng, dtype, blocksize, index="int32", more_keys=0):
        self.index = np.dtype(index)
        self.sides = SIDE, SIDE + more_keys
        bm, bk = blocksize
        self.case = GradientCase(
            rng,
            dtype=dtype,
            lengths=(3 * bm, 4 * bk),
            blocksize=blocksize,
            widths=(32, 32),
            heads=HEADS,
            density=1.0,
        )
        rows, columns = (side // b for side, b in zip(self.sides, blocksize, strict=True))
        self.rows = np.array([0, 3 * rows // 4, rows - 1])
        self.columns = np.array([0, columns // 2 + 1, columns - 2, columns - 1])
        self.blocksize = blocksize

    @property
    def queries(self):
        bm = self.blocksize[0]
        return (self.rows[:, None] * bm + np.arange(bm)).ravel()

    @property
    def keys(self):
        bk = self.blocksize[1]
        return (self.columns[:, None] * bk + np.arange(bk)).ravel()

    def mask(self, engine):
        data, indices, indptr = self.case.mask
        stored = np.zeros(SIDE // self.blocksize[0], np.int32)
        stored[self.rows] = np.diff(indptr)
        far = np.r_[0, np.cumsum(stored)].astype(np.int32)
        where = (data, self.columns[indices].astype(np.int32), far)
        mask = sg.bsr_array(tuple(map(engine.array, where)), shape=self.sides)
        if self.index != np.int32:
            mask.sort_indices()  # else a pattern with sorted, 32-bit indices would be read
            pattern = mask.pattern
            pattern._indices = pattern.indices.astype(self.index)
            pattern._indptr = pattern.indptr.astype(self.index)
        return mask

    def placed(self, engine, array, places, side=SIDE):
        """Return rows in their places, zeros between them."""
        far = np.zeros((*array.shape[:-2], side, array.shape[-1]), array.dtype)
        far[..., places, :] = array
        return engine.array(far)

    def operands(self, engine):
        query = self.placed(engine, self.case.query, self.queries)
        key, value = (
            self.placed(engine, array, self.keys, self.sides[1])
            for array in (self.case.key, self.case.value)
        )
        return query, key, value, self.mask(engine)

    def taken(self, engine, array, places, rest):
        """Return the rows in these places, on the host; all others are ``rest``."""
        host = engine.host(array)
        others = np.delete(host, places, axis=1)
        assert (others == rest).all()
        return host[:, places]

    def mask_gradient(self, engine, gradient):
        indices = np.searchsorted(self.columns, engine.host(gradient.indices))
        indptr = engine.host(gradient.indptr)[np.r_[self.rows, -1]]
        parts = (engine.host(gradient.data), indices.astype(np.int32), indptr)
        return sg.bsr_array(parts, shape=self.case.shape)


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("name", FORWARD)
def test_scores(engine, rng, name, index):
    path = path_of(ATTENTION, name)
    skip_unless_it_runs(engine, path)
    made = Apart(rng, *FORWARD[name], index)
    operands = made.operands(engine)
    with engine.runs(path.SOURCES[0]):
        out, lse = attention(*operands, return_lse=True, config={"path": name})
    expected, expected_lse = Case.expected(made.case)
    assert_attention_close(made.taken(engine, out, made.queries, 0), expected)
    assert_attention_close(made.taken(engine, lse, made.queries, -np.inf), expected_lse)


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("name", BACKWARD)
def test_gradients(engine, rng, name, index):
    path = path_of(ATTENTION_BACKWARD, name)
    skip_unless_it_runs(engine, path)
    made = Apart(rng, *BACKWARD[name], index)
    operands = made.operands(engine)
    grad = made.placed(engine, made.case.grad, made.queries)
    with sg.use_engine(engine.name):
        out, lse = attention(*operands, return_lse=True)
    with engine.runs(path.SOURCES[0]):
        found = backward(grad, *operands, out, lse, mask_gradient=True, config={"path": name})
    made.case.compare(
        AttentionGradients(
            made.taken(engine, found.query, made.queries, 0),
            made.taken(engine, found.key, made.keys, 0),
            made.taken(engine, found.value, made.keys, 0),
            made.mask_gradient(engine, found.mask),
            None,
        )
    )


class Dropped(Apart):
    """Queries of zeros: every weight of a query is one over the number of its keys."""

    P, SEED = 0.4, 0xFEDC_BA98_7654_3210

    def __init__(self, rng, dtype, blocksize, more_keys):
        super().__init__(rng, dtype, blocksize, more_keys=more_keys)
        side, keys = self.sides
        row, behind = divmod(2**34, keys)  # where counters come to need more than 32 bits
        assert (behind > 0) == (more_keys > 0), "within the row, or where it begins"
        if behind:
            self.rows[1] = row % side // blocksize[0]
        self.case.query[...] = 0
        allowed, _ = self.case.dense_mask()
        rows = np.arange(HEADS[0])[:, None, None] * side + self.queries[:, None]
        index = (rows * keys + self.keys).astype(np.uint64)
        assert int(index.max()) // 4 >= 2**32
        words = np.stack(philox_words(index // 4, self.SEED))
        word = np.take_along_axis(words, (index % 4).astype(int)[None], axis=0)[0]
        self.weights = allowed / allowed.sum(axis=-1, keepdims=True) * (word / 2**32 >= self.P)
        self.weights /= 1 - self.P
        self.how = {"dropout_p": self.P, "seed": self.SEED}


@pytest.mark.parametrize("more_keys", MORE_KEYS)
@pytest.mark.parametrize("name", FORWARD)
def test_dropout(engine, rng, name, more_keys):
    path = path_of(ATTENTION, name)
    skip_unless_it_runs(engine, path)
    made = Dropped(rng, *FORWARD[name], more_keys)
    operands = made.operands(engine)
    with engine.runs(path.SOURCES[0]):
        out = attention(*operands, **made.how, config={"path": name})
    value = made.case.value.astype(np.float64).repeat(HEADS[0] // HEADS[1], axis=0)
    assert_attention_close(made.taken(engine, out, made.queries, 0), made.weights @ value)


@pytest.mark.parametrize("more_keys", MORE_KEYS)
@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_with_dropout(engine, rng, name, more_keys):
    """Which weights are dropped shows in the gradient of value."""
    path = path_of(ATTENTION_BACKWARD, name)
    skip_unless_it_runs(engine, path)
    made = Dropped(rng, *BACKWARD[name], more_keys)
    operands = made.operands(engine)
    grad = made.placed(engine, made.case.grad, made.queries)
    with sg.use_engine(engine.name):
        out, lse = attention(*operands, return_lse=True, **made.how)
    with engine.runs(path.SOURCES[0]):
        found = backward(grad, *operands, out, lse, **made.how, config={"path": name})
    of_heads, kept = made.case.grad.astype(np.float64), made.weights.swapaxes(-1, -2)
    exact, size = (
        (kept @ a).reshape(HEADS[1], -1, *made.case.value.shape[-2:]).sum(axis=1)
        for a in (of_heads, np.abs(of_heads))
    )
    assert_gradient_close(
        made.taken(engine, found.value, made.keys, 0), exact, size, made.case.value.dtype
    )
