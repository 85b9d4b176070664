"""What `bsr_array`s share: the pattern always, values where they may; copies and pickles."""

import copy
import pickle
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest

from sparsegpu import bsr_array, testing


def test_pattern_is_shared(engine, rng):
    parts = tuple(
        engine.array(p) for p in testing.random_blocks(rng, (8, 8), (2, 2), dtype="float64")
    )
    with engine.runs(None):
        a = bsr_array(parts, shape=(8, 8))
        same = [bsr_array(a), bsr_array(a, copy=True), bsr_array(a, dtype="float32")]
        same += [a.astype("float16"), a * 2, -a, a.copy(), a.with_data(a.data + 1), a + a, a / 3]
    assert all(b.pattern is a.pattern and a.same_pattern(b) for b in same)
    assert same[0].data is a.data and same[1].data is not a.data


def test_with_data_checks(rng):
    a = bsr_array(np.eye(4), blocksize=(2, 2))
    with pytest.raises(ValueError, match=r"with_data: argument 'data': expected shape \(2, 2, 2\)"):
        a.with_data(np.ones((3, 2, 2)))
    with pytest.raises(TypeError, match=r"with_data: argument 'data': .* got uint8"):
        a.with_data(np.ones((2, 2, 2), np.uint8))
    with pytest.raises(ValueError, match=r"data: argument 'data': expected shape \(2, 2, 2\)"):
        a.data = np.ones((2, 2))
    a.data = np.full((2, 2, 2), 3.0)
    assert a.toarray()[0, 1] == 3


def test_values_may_be_written(engine):
    with engine.runs("bsr_block_mask", "bsr_gather", "bsr_transpose_blocks", "bsr_addmm"):
        a = bsr_array(engine.array(np.eye(4)), blocksize=(2, 2))
        first = a.T
        a.data[...] = 5
        assert engine.host(a @ engine.array(np.ones(4))).tolist() == [10] * 4
        assert a.T.pattern is first.pattern


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_pickle_and_copies(engine, rng, dtype):
    parts = testing.random_blocks(rng, (8, 8), (2, 2), dtype=dtype, density=0.5)
    with engine.runs(None):
        a = bsr_array(tuple(engine.array(p) for p in parts), shape=(8, 8))
    for b in (pickle.loads(pickle.dumps(a)), copy.deepcopy(a), copy.copy(a), a.copy()):
        assert type(b) is bsr_array and b.dtype == a.dtype and b.same_pattern(a)
        np.testing.assert_array_equal(engine.host(b.data), engine.host(a.data))
    assert copy.copy(a).data is a.data and copy.deepcopy(a).data is not a.data
    b, c = pickle.loads(pickle.dumps((a, a.with_data(a.data))))
    assert b.pattern is c.pattern and b.pattern is not a.pattern
    assert copy.copy(a.pattern) is copy.deepcopy(a.pattern) is a.pattern
    assert pickle.loads(pickle.dumps(a.pattern)).same_as(a.pattern)


def test_device(engine):
    a = bsr_array(engine.array(np.eye(4)), blocksize=(2, 2))
    assert (a.device == "cpu") != engine.on_gpu
    assert a.get().device == "cpu" and (a.get() is a) != engine.on_gpu


def test_subclasses_stay_subclasses(engine):
    class mine(bsr_array):
        pass

    with engine.runs("bsr_block_mask", "bsr_gather", "bsr_transpose_blocks"):
        a = mine(engine.array(np.eye(4)), blocksize=(2, 2))
        made = (a.T, a * 2, a + a, a[0:2], a.astype("float32"), abs(a))
    assert all(type(b) is mine for b in made)


@pytest.mark.parametrize("repeated", [False, True])
def test_a_mask_of_whole_blocks_costs_a_byte_a_block(engine, repeated):
    """Also sorted, summed and without its empty blocks; expanded it would be 64 MB."""
    xp, count = engine.xp, 1024
    column = np.arange(count)[::-1] // (2 if repeated else 1)
    held = np.arange(count) % 4 < 2
    shape = (256, 256 * count)

    def mask():
        whole = xp.broadcast_to(engine.array(held)[:, None, None], (count, 256, 256))
        return bsr_array((whole, engine.array(column), engine.array(np.array([0, count]))), shape)

    expected = np.zeros(count, bool)
    np.logical_or.at(expected, column, held)
    for method in ("sort_indices", "sum_duplicates", "eliminate_zeros"):
        a = mask()
        with measured_memory(engine) as peak:
            getattr(a, method)()
        assert a.data.strides[-2:] == (0, 0) and a.data.shape == (a.nnzb, 256, 256), method
        assert peak() < 2**20, method
        found = np.zeros(count, bool)
        np.logical_or.at(found, engine.host(a.indices), engine.host(a.data[:, 0, 0]))
        np.testing.assert_array_equal(found, expected)
        assert method == "eliminate_zeros" or a.has_sorted_indices


@contextmanager
def measured_memory(engine):
    """Give a function that says how much was allocated at most, where the engine allocates."""
    if engine.on_gpu:
        pool = engine.xp.cuda.MemoryPool()
        with engine.xp.cuda.using_allocator(pool.malloc):
            yield pool.total_bytes
        return
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
