"""`scatter_mm` in its three formats, and the BSR product made of them.

Every sum is computed again here by the loops of the contract.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu
import sparsegpu.ops.scatter_mm as scatter_module
from covering import covered
from properties import drawn
from scatter_cases import FORMATS, on, random_case
from sparsegpu.testing import (
    assert_close,
    assert_within_bound,
    dense_from_blocks,
    exact_dtype,
    random_blocks,
    random_values,
    unit_roundoff,
)

DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "complex64", "complex128"]


# -- the formulas as loops ----------------------------------------------------------------------


def loop(blocks, others, indices_data, accumulators):
    """The three formats, line by line; returns the sums and the sums of absolute values."""
    wide = exact_dtype(blocks.dtype)
    total = accumulators.astype(wide)
    size = np.abs(total)
    _, ms, ks = blocks.shape

    def add(place, p, other):
        block, other = blocks[p].astype(wide), other.astype(wide)
        total[place] += block @ other
        size[place] += np.abs(block) @ np.abs(other)

    name, *arrays = indices_data
    if name == "scatter_mm":
        c_offsets, pq = arrays
        for r in range(len(c_offsets) - 1):
            for g in range(c_offsets[r], c_offsets[r + 1]):
                p, q = pq[g]
                add(r, p, others[q])
        return total, size
    n_columns = others.shape[-1]
    split = arrays[-1]["SPLIT_N"]
    ns = n_columns // split
    for b in np.ndindex(accumulators.shape[:-2]):
        matrix = np.broadcast_to(others, accumulators.shape[:-2] + others.shape[-2:])[b]
        if name == "bsr_strided_mm":
            c_indices, r_offsets, p_offsets, q_offsets, _ = arrays
            for i in range(len(r_offsets)):
                r0, r1 = divmod(r_offsets[i], n_columns)
                for g in range(c_indices[i], c_indices[i + 1]):
                    q0, q1 = divmod(q_offsets[g], n_columns)
                    place = (*b, slice(r0, r0 + ms), slice(r1, r1 + ns))
                    add(place, p_offsets[g], matrix[q0 : q0 + ks, q1 : q1 + ns])
        else:
            c_indices, r_offsets, q_offsets, _ = arrays
            for r in r_offsets:
                r0, r1 = divmod(r, n_columns)
                m, n = r0 // ms, r1 // ns
                c0, c1 = c_indices[m], c_indices[m + 1]
                for i, p in enumerate(range(c0, c1)):
                    q0, q1 = divmod(q_offsets[n * c1 + (split - n) * c0 + i], n_columns)
                    place = (*b, slice(r0, r0 + ms), slice(r1, r1 + ns))
                    add(place, p, matrix[q0 : q0 + ks, q1 : q1 + ns])
    return total, size


def check_sums(result, exact, size, terms):
    """Compare with the loop within the contract's bound."""
    real = np.float64 if exact.dtype.kind != "c" else np.complex128
    u = 0 if result.dtype.kind in "iu" else max(unit_roundoff(np.dtype("f4")), 0)
    if exact.dtype in (np.longdouble, np.clongdouble):
        u = unit_roundoff(np.dtype("f8"))
        real = exact.dtype
    u = u * 2 if exact.dtype.kind == "c" else u
    assert_close(result, exact.astype(real), 2 * terms * u * size.astype(np.float64))


# -- scatter_mm ---------------------------------------------------------------------------------


@covered(name=FORMATS, dtype=DTYPES, small=[False, True])
def test_formula(engine, rng, name, dtype, small):
    blocks, others, lists, shape = random_case(rng, name, dtype, small=small)
    start = random_values(rng, shape, dtype, small_integers=small)
    accumulators = engine.array(start.copy())
    with engine.runs("scatter_mm"):
        result = sparsegpu.scatter_mm(
            engine.array(blocks), engine.array(others), on(engine, lists), accumulators=accumulators
        )
    assert result is accumulators
    exact, size = loop(blocks, others, lists, start)
    check_sums(engine.host(result), exact, size, 30)
    if small and dtype != "int8":
        assert (engine.host(result) == exact.astype(start.dtype)).all()


@pytest.mark.parametrize("name", FORMATS)
def test_without_accumulators(engine, rng, name):
    blocks, others, lists, _ = random_case(rng, name, "float32", small=True)
    with engine.runs("scatter_mm"):
        result = sparsegpu.scatter_mm(engine.array(blocks), engine.array(others), on(engine, lists))
    result = engine.host(result)
    assert result.dtype == blocks.dtype
    rows = {
        "scatter_mm": None,
        "bsr_strided_mm": 3 + lists[2].max() // 12,
        "bsr_strided_mm_compressed": 12,
    }[name]
    shape = (6, 3, 4) if rows is None else (2, rows, 12)
    assert result.shape == shape
    exact, _ = loop(blocks, others, lists, np.zeros(shape, np.float32))
    assert (result == exact).all()


def added(engine, blocks, others, lists, start):
    """Return, on the host, what the products added to ``start`` make."""
    operands = engine.array(blocks), engine.array(others), on(engine, lists)
    with engine.runs("scatter_mm"):
        result = sparsegpu.scatter_mm(*operands, accumulators=engine.array(start.copy()))
    return engine.host(result)


@pytest.mark.parametrize("name", FORMATS[1:])
def test_tiles_anywhere_and_repeatedly(engine, rng, name):
    blocks, others, lists, shape = random_case(rng, name, "float32", small=True, aligned=False)
    start = random_values(rng, shape, "float32", small_integers=True)
    result = added(engine, blocks, others, lists, start)
    exact, _ = loop(blocks, others, lists, start)
    assert (result == exact).all()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("operands", "accumulator"),
    [("bfloat16", "float32"), ("float16", "bfloat16"), ("int8", "int32"), ("int8", "float32")],
)
def test_accumulators_of_another_dtype(engine, rng, name, operands, accumulator):
    blocks, others, lists, shape = random_case(rng, name, operands, small=True)
    start = random_values(rng, shape, accumulator, small_integers=True)
    result = added(engine, blocks, others, lists, start)
    exact, _ = loop(blocks, others, lists, start)
    assert (result == exact.astype(start.dtype)).all()


def test_int8_saturates(engine):
    blocks = engine.array(np.full((1, 2, 2), 100, np.int8))
    lists = on(engine, ("scatter_mm", np.array([0, 1]), np.array([[0, 0]])))
    with engine.runs("scatter_mm"):
        result = sparsegpu.scatter_mm(blocks, -blocks, lists)
        top = engine.array(np.full((1, 2, 2), 2**31 - 1, np.int32))
        sparsegpu.scatter_mm(blocks, blocks, lists, accumulators=top)
    assert (engine.host(result) == -128).all()
    assert (engine.host(top) == 2**31 - 1).all()


def test_strided_operands(engine, rng):
    blocks, others, lists, shape = random_case(rng, FORMATS[2], "float32", small=True)
    start = random_values(rng, shape, "float32", small_integers=True)
    exact, _ = loop(blocks, others, lists, start)
    column_major = engine.array(others).swapaxes(-1, -2).copy().swapaxes(-1, -2)
    accumulators = engine.array(start).swapaxes(0, 2).copy().swapaxes(0, 2)
    wide_blocks = engine.xp.zeros((7, 6, 10), np.float32)
    wide_blocks[:, ::2, ::-2] = engine.array(blocks)
    with engine.runs("scatter_mm"):
        sparsegpu.scatter_mm(
            wide_blocks[:, ::2, ::-2], column_major, on(engine, lists), accumulators=accumulators
        )
    assert (engine.host(accumulators) == exact).all()


# -- bsr_scatter_mm -----------------------------------------------------------------------------


@covered(name=[None, *FORMATS], dtype=DTYPES, batch=[(), (3,), (2, 2)], known=[True, False])
def test_product(engine, rng, name, dtype, batch, known):
    """Of lists that know their pattern, and of a caller's own."""
    triple = random_blocks(rng, (32, 24), (8, 4), density=0.25, dtype=dtype)
    bsr = engine.bsr(triple, (32, 24))
    other = random_values(rng, (*batch, 24, 24), dtype)
    given_lists = None
    if name is not None:
        given_lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, engine.array(other), name)
        given_lists = given_lists if known else (*given_lists,)
    with engine.runs("bsr_addmm" if known or name is None else "scatter_mm"):
        result = sparsegpu.bsr_scatter_mm(bsr, engine.array(other), given_lists)
    dense = dense_from_blocks(*triple, (32, 24))
    assert result.dtype == (np.int32 if dtype == "int8" else other.dtype)
    assert_within_bound(engine.host(result), dense, other)


@pytest.mark.parametrize("name", FORMATS)
def test_out_is_overwritten(engine, rng, name):
    triple = random_blocks(rng, (12, 12), (3, 4), density=0.2, dtype="float16")
    bsr = engine.bsr(triple, (12, 12))
    other = random_values(rng, (2, 12, 9), "float16")
    lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, engine.array(other), name, SPLIT_N=3)
    for given_lists, kernel in ((lists, "bsr_addmm"), ((*lists,), "scatter_mm")):
        out = engine.xp.full((2, 9, 12), np.nan, np.float32).swapaxes(-1, -2)
        with engine.runs(kernel):
            assert sparsegpu.bsr_scatter_mm(bsr, engine.array(other), given_lists, out=out) is out
        assert_within_bound(engine.host(out), dense_from_blocks(*triple, (12, 12)), other)


@pytest.mark.parametrize("name", FORMATS)
def test_lists_of_the_pattern_are_not_looked_into(monkeypatch, engine, rng, name):
    """A call with them is a call without: so is its host time. What changed is refused."""
    bsr = engine.bsr(random_blocks(rng, (12, 12), (3, 4), density=0.4, duplicates=False), (12, 12))
    other = engine.array(random_values(rng, (2, 12, 9), "float32"))
    lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, other, name, SPLIT_N=3)
    with sparsegpu.use_engine(engine.name), monkeypatch.context() as patched:
        patched.setattr(scatter_module, "name_arrays", None)
        result = sparsegpu.bsr_scatter_mm(bsr, other, lists)
        assert (result == sparsegpu.bsr_scatter_mm(bsr, other)).all()
    for wrong in (other[..., :8], other[:, :8], other[0, 0]):
        with pytest.raises(ValueError, match=r"^bsr_scatter_mm: argument 'other': expected "):
            sparsegpu.bsr_scatter_mm(bsr, wrong, lists)
    if name != "scatter_mm":
        lists[-1]["TILE_M"] = 3
        with pytest.raises(
            ValueError, match=r"^bsr_scatter_mm: argument 'TILE_M': expected a power"
        ):
            sparsegpu.bsr_scatter_mm(bsr, other, lists)
        lists[-1]["TILE_M"] = 16
        with engine.runs("scatter_mm"):
            assert abs(sparsegpu.bsr_scatter_mm(bsr, other, lists) - result).max() < 1e-4
        del lists[-1]["TILE_M"], lists[-1]["SPLIT_N"]
        with pytest.raises(TypeError, match=r"^bsr_scatter_mm: argument 'meta': expected a dict"):
            sparsegpu.bsr_scatter_mm(bsr, other, lists)


@pytest.mark.parametrize("name", FORMATS)
def test_lists_are_of_their_own_pattern(engine, rng, name):
    """Blocks of another matrix, of as many blocks, stand where the lists say."""
    mine, theirs = (
        engine.bsr(
            (random_values(rng, (2, 2, 2), "float64"), np.array(columns), np.array(rows)), (4, 6)
        )
        for columns, rows in (([0, 2], [0, 1, 2]), ([1, 0], [0, 1, 2]))
    )
    other = random_values(rng, (6, 4), "float64")
    lists = sparsegpu.bsr_scatter_mm_indices_data(theirs, engine.array(other), name)
    result = sparsegpu.bsr_scatter_mm(mine, engine.array(other), lists)
    dense = engine.host(theirs.with_data(mine.data).toarray())
    assert_within_bound(engine.host(result), dense, other)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("m", "k", "n", "batch"),
    [(0, 8, 4, ()), (8, 0, 4, ()), (8, 8, 0, ()), (8, 8, 4, (0,)), (0, 0, 0, (2,))],
)
def test_zero_sizes(engine, rng, name, m, k, n, batch):
    bsr = engine.bsr(random_blocks(rng, (m, k), (2, 4)), (m, k))
    other = engine.array(np.ones((*batch, k, n), np.float32))
    lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, other, name)
    # Where nothing is summed, zeros are written.
    with engine.runs("bsr_addmm" if m * n and not k else None):
        result = sparsegpu.bsr_scatter_mm(bsr, other, lists)
    assert result.shape == (*batch, m, n)
    if k == 0:
        assert not engine.host(result).any()


@drawn(25, derandomize=True)
@given(
    name=st.sampled_from(FORMATS),
    blocks=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    blocksize=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    ns=st.integers(0, 9),
    split=st.integers(1, 5),
    density=st.floats(0, 1),
    seed=st.integers(0, 2**20),
)
def test_any_shape(engine, name, blocks, blocksize, ns, split, density, seed):
    rng = np.random.default_rng(seed)
    shape = (blocks[0] * blocksize[0], blocks[1] * blocksize[1])
    triple = random_blocks(rng, shape, blocksize, density=density, small_integers=True)
    bsr = engine.bsr(triple, shape)
    other = random_values(rng, (shape[1], ns * split), "float32", small_integers=True)
    lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, engine.array(other), name, SPLIT_N=split)
    for given_lists, kernel in ((lists, "bsr_addmm"), ((*lists,), "scatter_mm")):
        whole = triple[0].size and other.size
        with engine.runs(kernel) if whole else sparsegpu.use_engine(engine.name):
            result = sparsegpu.bsr_scatter_mm(bsr, engine.array(other), given_lists)
        assert (engine.host(result) == dense_from_blocks(*triple, shape) @ other).all()


def test_a_second_call_can_be_captured(cuda_engine, rng):
    """No synchronisation, no transfer and no allocation: a CUDA graph takes the call."""
    cupy = cuda_engine.xp
    triple = random_blocks(rng, (32, 32), (16, 16), density=0.5, small_integers=True)
    bsr = cuda_engine.bsr(triple, (32, 32))
    other = random_values(rng, (32, 48), "float32", small_integers=True)
    b, out = cupy.asarray(other), cupy.empty((32, 48), np.float32)
    with cuda_engine.side_stream() as stream:
        graph = cuda_engine.captured(lambda: sparsegpu.bsr_scatter_mm(bsr, b, out=out))
        out.fill(7)
        graph.launch(stream)
    assert (out.get() == dense_from_blocks(*triple, (32, 32)) @ other).all()
