"""What softmax and its gradient promise alike: functions of rows over a pattern."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu
from far_values import along, full, of_rows, some_rows
from properties import drawn
from sparsegpu._arrays import dtype_of
from sparsegpu.testing import assert_close, random_values

DTYPES = ["float16", "bfloat16", "float32", "float64"]
SHAPE, BLOCKS = (12, 20), (3, 4)


def stored_elements(indices, indptr, blocksize, shape) -> np.ndarray:
    """Return where one matrix stores elements."""
    bm, bk = blocksize
    stored = np.zeros((shape[0] // bm, shape[1] // bk), bool)
    for i in range(len(stored)):
        stored[i, indices[indptr[i] : indptr[i + 1]]] = True
    return stored.repeat(bm, 0).repeat(bk, 1)


class RowContract:
    """Operands are triples (data, indices, indptr); ``out`` may be the first of them."""

    @staticmethod
    def function(*arrays, **keywords):
        """The function."""
        raise NotImplementedError

    @staticmethod
    def draw(rng, shape, blocksize, dtype="float32", **how) -> tuple:
        """Return random operands."""
        raise NotImplementedError

    @staticmethod
    def expected(*operands) -> tuple[np.ndarray, np.ndarray]:
        """Return the dense result of one matrix in float64, and its bound."""
        raise NotImplementedError

    @classmethod
    def call(cls, engine, arrays, **keywords):
        kernel = cls.function.__name__ if arrays[0].data.size else None
        with engine.runs(kernel):
            return cls.function(*arrays, **keywords)

    @classmethod
    def compare(cls, engine, result, *operands, shape) -> None:
        batch = operands[0][0].shape[:-3]
        exact, bound = np.zeros((*batch, *shape)), np.zeros((*batch, *shape))
        for b in np.ndindex(batch):
            of_matrix = ([part[b] for part in parts] for parts in operands)
            exact[b], bound[b] = cls.expected(*of_matrix, shape)
        assert_close(engine.host(result.toarray()), exact, bound)

    @classmethod
    def check(cls, engine, *operands, shape) -> None:
        """Compare the function's result with the formula."""
        result = cls.call(engine, [engine.bsr(parts, shape) for parts in operands])
        assert result.dtype == operands[0][0].dtype and result.has_canonical_format
        cls.compare(engine, result, *operands, shape=shape)

    def on_one_pattern(self, engine, operands, shape) -> list:
        """Return the operands as arrays of their own values that share a pattern."""
        first, *others = (engine.bsr((parts[0].copy(), *parts[1:]), shape) for parts in operands)
        return [first, *(first.with_data(other.data) for other in others)]

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(
        "blocksize", [(1, 1), (1, 5), (3, 1), (2, 2), (4, 4), (8, 24), (16, 16), (33, 40), (2, 130)]
    )
    def test_formula(self, engine, rng, dtype, blocksize):
        """Unsorted blocks, empty rows."""
        shape = (5 * blocksize[0], 7 * blocksize[1])
        self.check(engine, *self.draw(rng, shape, blocksize, dtype, density=0.4), shape=shape)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(
        "shape, blocksize", [((4, 3000), (2, 50)), ((2, 1500), (1, 1)), ((9, 1200), (3, 2))]
    )
    def test_long_rows(self, engine, rng, dtype, shape, blocksize):
        """Longer than the registers of a warp or of a thread block hold."""
        self.check(engine, *self.draw(rng, shape, blocksize, dtype, density=0.9), shape=shape)

    def test_rows_longer_than_2_to_the_17(self, engine, rng):
        shape = (2, 2**17 + 256)
        self.check(engine, *self.draw(rng, shape, (1, 256), density=1.0), shape=shape)

    def test_one_long_row_among_short_ones(self, engine, rng):
        indices = np.concatenate([np.arange(600), [3], [5]]).astype(np.int32)
        indptr = np.array([0, 600, 601, 601, 602], np.int32)
        operands = self.draw(rng, (2, 2), (2, 2))
        values = [random_values(rng, (602, 2, 2), "float32") for _ in operands]
        self.check(engine, *((data, indices, indptr) for data in values), shape=(8, 1200))

    @pytest.mark.parametrize("batch", [(2,), (2, 3)])
    def test_batches(self, engine, rng, batch):
        operands = self.draw(rng, SHAPE, BLOCKS, density=0.5, batch=batch, shuffled=False)
        self.check(engine, *operands, shape=SHAPE)

    @pytest.mark.parametrize("out_dtype", ["float16", "bfloat16", "float32"])
    def test_out(self, engine, rng, out_dtype):
        """``out`` of another dtype and with holes in memory."""
        operands = self.draw(rng, SHAPE, BLOCKS, density=0.5, shuffled=False)
        arrays = [engine.bsr(parts, SHAPE) for parts in operands]
        spread = engine.xp.zeros((arrays[0].nnzb, 6, 8), dtype_of(out_dtype))
        out = arrays[-1].with_data(spread[:, ::2, ::2])
        assert self.call(engine, arrays, out=out) is out
        self.compare(engine, out, *operands, shape=SHAPE)
        assert (engine.host(spread)[:, 1::2] == 0).all()
        assert (engine.host(spread)[:, :, 1::2] == 0).all()

    @pytest.mark.parametrize("blocksize", [(3, 4), (1, 256), (16, 16)])
    def test_out_may_be_the_first_operand(self, engine, rng, blocksize):
        shape = (2 * blocksize[0], 5 * blocksize[1])
        operands = self.draw(rng, shape, blocksize, density=0.8, shuffled=False)
        arrays = self.on_one_pattern(engine, operands, shape)
        assert self.call(engine, arrays, out=arrays[0]) is arrays[0]
        self.compare(engine, arrays[0], *operands, shape=shape)

    def test_values_of_any_strides(self, engine, rng):
        operands = self.draw(rng, SHAPE, BLOCKS, density=0.5, shuffled=False)
        for i, parts in enumerate(operands):
            arrays = [engine.bsr(p, SHAPE) for p in operands]
            values = np.ascontiguousarray(parts[0].transpose(2, 1, 0))
            arrays[i] = arrays[i].with_data(engine.array(values).transpose(2, 1, 0))
            self.compare(engine, self.call(engine, arrays), *operands, shape=SHAPE)

    def test_the_same_bits_again(self, engine, rng):
        shape = (32, 64 * 40)
        operands = self.draw(rng, shape, (16, 40), density=0.7)
        arrays = [engine.bsr(parts, shape) for parts in operands]
        first, second = (engine.host(self.call(engine, arrays).data) for _ in range(2))
        assert (first == second).all()

    def test_indices_of_64_bits(self, engine, rng, monkeypatch):
        monkeypatch.setattr("sparsegpu.pattern.index_dtype", lambda largest: np.dtype(np.int64))
        for blocksize in (BLOCKS, (2, 130)):
            shape = (4 * blocksize[0], 30 * blocksize[1])
            operands = self.draw(rng, shape, blocksize, density=0.5)
            assert engine.bsr(operands[0], shape).indices.dtype == np.int64
            self.check(engine, *operands, shape=shape)

    def test_more_than_two_to_the_31_values(self, engine, rng, room):
        """Of the operands and of the result; some block rows are compared, others hold zeros."""
        counts, blocksize, dtype = (along(engine, 64),) * 2, (64, 64), "bfloat16"
        others = len(self.draw(rng, (2, 2), (2, 2))) - 1
        room(engine, 2 * (others + 2) * (64 * counts[0]) ** 2 + 2**31)
        first = full(engine, counts, blocksize, dtype)
        arrays = [first, *(first.with_data(first.data.copy()) for _ in range(others))]
        shape, drawn_rows = (64, 64 * counts[1]), {}
        for i in some_rows(first):
            how = {"density": 1.0, "shuffled": False}
            drawn_rows[i] = self.draw(rng, shape, blocksize, dtype, **how)
            for array, parts in zip(arrays, drawn_rows[i]):
                of_rows(array)[i] = engine.array(parts[0])
        result = self.call(engine, arrays)
        for i, operands in drawn_rows.items():
            got = engine.host(of_rows(result)[i]).swapaxes(0, 1).reshape(shape)
            assert_close(got, *self.expected(*operands, shape))

    @pytest.mark.gpu
    def test_in_a_graph_on_a_side_stream(self, cuda_engine, rng):
        """Captured on the second call, and replayed with other values in the same memory."""
        engine = cuda_engine
        for blocksize, dtype in (((16, 16), "float16"), ((3, 5), "float32"), ((2, 130), "float64")):
            shape = (5 * blocksize[0], 40 * blocksize[1])
            operands = self.draw(rng, shape, blocksize, dtype, density=0.5, shuffled=False)
            arrays = self.on_one_pattern(engine, operands, shape)
            out = arrays[0].copy()
            with engine.side_stream() as stream:
                graph = engine.captured(partial(self.call, engine, arrays, out=out))
                for _ in range(3):
                    values = [rng.permutation(data.ravel()) for data, *_ in operands]
                    operands = [
                        (new.reshape(parts[0].shape), *parts[1:])
                        for new, parts in zip(values, operands)
                    ]
                    for array, parts in zip(arrays, operands):
                        array.data[...] = engine.array(parts[0])
                    out.data.fill(0)
                    graph.launch(stream)
                    self.compare(engine, out, *operands, shape=shape)

    @pytest.mark.parametrize(
        "shape, blocksize", [((0, 4), (2, 2)), ((4, 0), (2, 2)), ((4, 4), (2, 2))]
    )
    def test_nothing_stored(self, engine, rng, shape, blocksize):
        a = sparsegpu.bsr_array(engine.xp.zeros(shape, np.float32), blocksize=blocksize)
        result = self.call(engine, [a] * len(self.draw(rng, (2, 2), (2, 2))))
        assert result.nnzb == 0 and result.shape == shape

    @drawn(25)
    @given(
        seed=st.integers(0, 2**32 - 1),
        dtype=st.sampled_from(DTYPES),
        blocksize=st.tuples(st.integers(1, 40), st.integers(1, 70)),
        blocks=st.tuples(st.integers(1, 4), st.integers(1, 9)),
        density=st.sampled_from([0.1, 0.5, 1.0]),
    )
    def test_any_shape(self, engine, seed, dtype, blocksize, blocks, density):
        rng = np.random.default_rng(seed)
        shape = (blocks[0] * blocksize[0], blocks[1] * blocksize[1])
        self.check(engine, *self.draw(rng, shape, blocksize, dtype, density=density), shape=shape)
