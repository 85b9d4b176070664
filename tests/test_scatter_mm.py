"""`scatter_mm` in its three formats, its index lists, and the BSR product made of them.

Every list and every sum is computed again here by the loops of the contract.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sparsegpu
from sparsegpu.testing import (
    assert_close,
    assert_within_bound,
    dense_from_blocks,
    exact_dtype,
    random_blocks,
    random_values,
    unit_roundoff,
)

FORMATS = ["scatter_mm", "bsr_strided_mm", "bsr_strided_mm_compressed"]
DTYPES = ["float16", "bfloat16", "float32", "float64", "int8", "complex64", "complex128"]


def make(engine, triple, shape):
    data, indices, indptr = (engine.array(x) for x in triple)
    return sparsegpu.bsr_array((data, indices, indptr), shape=shape)


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


def expected_lists(triple, shape, blocksize, other_shape, name, split):
    """The index lists of a pattern by plain loops, from the contract's text."""
    _, indices, indptr = triple
    ms, ks = blocksize
    *batch, k, n = other_shape
    ns = n // split
    filled = [m for m in range(len(indptr) - 1) if indptr[m + 1] > indptr[m]]
    row = {m: range(indptr[m], indptr[m + 1]) for m in filled}
    if name == "scatter_mm":
        c_offsets, pq = [0], []
        for b in range(int(np.prod(batch, dtype=int))):
            for m in filled:
                for s in range(split):
                    pq += [(p, (b * (k // ks) + indices[p]) * split + s) for p in row[m]]
                    c_offsets.append(len(pq))
        return [c_offsets, pq]
    tiles = [(m, s) for m in filled for s in range(split)]
    if name == "bsr_strided_mm":
        c_indices, p_offsets, q_offsets = [0], [], []
        for m, s in tiles:
            p_offsets += list(row[m])
            q_offsets += [indices[p] * ks * n + s * ns for p in row[m]]
            c_indices.append(len(p_offsets))
        return [c_indices, [m * ms * n + s * ns for m, s in tiles], p_offsets, q_offsets]
    q_offsets = [None] * (len(indices) * split)
    for m, s in tiles:
        c0, c1 = indptr[m], indptr[m + 1]
        for i, p in enumerate(row[m]):
            q_offsets[s * c1 + (split - s) * c0 + i] = indices[p] * ks * n + s * ns
    most_first = sorted(tiles, key=lambda tile: -len(row[tile[0]]))
    return [list(indptr), [m * ms * n + s * ns for m, s in most_first], q_offsets]


def check_sums(result, exact, size, terms):
    """Compare with the loop within the contract's bound."""
    real = np.float64 if exact.dtype.kind != "c" else np.complex128
    u = 0 if result.dtype.kind in "iu" else max(unit_roundoff(np.dtype("f4")), 0)
    if exact.dtype in (np.longdouble, np.clongdouble):
        u = unit_roundoff(np.dtype("f8"))
        real = exact.dtype
    u = u * 2 if exact.dtype.kind == "c" else u
    assert_close(result, exact.astype(real), 2 * terms * u * size.astype(np.float64))


# -- index lists --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("split", [1, 2, 3, 12])
@pytest.mark.parametrize("batch", [(), (2,), (2, 1, 3)])
def test_lists(engine, rng, name, split, batch):
    triple = random_blocks(rng, (24, 20), (4, 2), density=0.2)
    bsr = make(engine, triple, (24, 20))
    other = engine.array(np.zeros((*batch, 20, 12), np.float32))
    with engine.runs(None):
        made = sparsegpu.bsr_scatter_mm_indices_data(bsr, other, name, SPLIT_N=split)
    expected = expected_lists(triple, (24, 20), (4, 2), other.shape, name, split)
    assert made[0] == name
    assert len(made) == 1 + len(expected) + (name != "scatter_mm")
    for array, values in zip(made[1:], expected):
        assert engine.host(array).tolist() == np.array(values).tolist()
        assert array.dtype == np.int64
    if name != "scatter_mm":
        assert made[-1]["SPLIT_N"] == split


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("n", [0, 1, 7, 48, 64, 97, 128, 192, 1009, 1024])
def test_default_split_divides(rng, name, n):
    bsr = sparsegpu.bsr_array(np.eye(32, dtype=np.float32), blocksize=(16, 16))
    other = random_values(rng, (32, n), "float32", small_integers=True)
    made = sparsegpu.bsr_scatter_mm_indices_data(bsr, other, name)
    if name == "scatter_mm":
        split = (len(made[1]) - 1) // 2
        if n and n % 16 == 0:
            assert split == n // 16
    else:
        split = made[-1]["SPLIT_N"]
    assert split >= 1
    assert n % split == 0
    assert (sparsegpu.bsr_scatter_mm(bsr, other, made) == other).all()


def test_lists_are_kept_with_the_pattern(engine, rng):
    triple = random_blocks(rng, (16, 16), (4, 4))
    bsr = make(engine, triple, (16, 16))
    other = engine.array(np.zeros((16, 32), np.float32))
    build = sparsegpu.bsr_scatter_mm_indices_data
    made = build(bsr, other)

    def is_kept(again):
        return all(x is y for x, y in zip(again[1:-1], made[1:-1], strict=True))

    assert is_kept(build(bsr.with_data(bsr.data * 2), other))
    assert is_kept(build(bsr, other[:, ::-1], indices_format=FORMATS[2]))
    assert not is_kept(build(bsr, other, SPLIT_N=4))
    assert build(bsr, other, "bsr_strided_mm")[2] is not made[2]
    assert not is_kept(build(bsr, other[:, :16]))
    made[-1]["SPLIT_N"] = 7  # the caller's own
    assert build(bsr, other)[-1]["SPLIT_N"] != 7
    meta = build(bsr, other, GROUP_SIZE=4, TILE_M=16, TILE_N=32, SPLIT_N=2)[-1]
    assert meta == {"GROUP_SIZE": 4, "TILE_M": 16, "TILE_N": 32, "SPLIT_N": 2}


def test_lists_of_a_host_pattern_are_read_only(rng):
    bsr = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
    made = sparsegpu.bsr_scatter_mm_indices_data(bsr, np.ones((4, 4)))
    with pytest.raises(ValueError, match="read-only"):
        made[1][0] = 1


@pytest.mark.parametrize("name", FORMATS)
def test_duplicates_are_summed_first(engine, rng, name):
    triple = random_blocks(rng, (8, 8), (2, 2), density=2, duplicates=True, small_integers=True)
    bsr = make(engine, triple, (8, 8))
    summed = bsr.copy()
    summed.sum_duplicates()
    other = random_values(rng, (8, 6), "float32", small_integers=True)
    with engine.runs("bsr_sum_blocks", "scatter_mm"):
        made = sparsegpu.bsr_scatter_mm_indices_data(bsr, engine.array(other), name)
        result = sparsegpu.bsr_scatter_mm(bsr, engine.array(other), made)
    fresh = sparsegpu.bsr_scatter_mm_indices_data(summed, engine.array(other), name)
    for array, same in zip(made[1:], fresh[1:]):
        assert isinstance(array, dict) or engine.host(array).tolist() == engine.host(same).tolist()
    assert (engine.host(result) == dense_from_blocks(*triple, (8, 8)) @ other).all()


# -- scatter_mm ---------------------------------------------------------------------------------


def random_case(rng, name, dtype, *, small=False, aligned=True):
    """Blocks, others and hand-made lists with empty, repeated and unordered entries."""
    ms, ks, ns, split = 3, 5, 4, 3
    if name == "scatter_mm":
        counts = rng.integers(0, 4, 6)
        c_offsets = np.concatenate([[0], np.cumsum(counts)])
        pq = np.stack([rng.integers(0, 7, c_offsets[-1]), rng.integers(0, 4, c_offsets[-1])], 1)
        lists = (name, c_offsets, pq)
        others = random_values(rng, (4, ks, ns), dtype, small_integers=small)
        shape = (6, ms, ns)
    else:
        n, m, k = split * ns, 4 * ms, 4 * ks
        others = random_values(rng, (2, k, n), dtype, small_integers=small)
        shape = (2, m, n)
        tiles = rng.permutation(4 * split)[:9]
        r_offsets = tiles // split * ms * n + tiles % split * ns
        if not aligned:
            rows, columns = rng.integers(0, m - ms + 1, 9), rng.integers(0, n - ns + 1, 9)
            r_offsets = np.concatenate([rows * n + columns, (rows * n + columns)[::2]])
        if name == "bsr_strided_mm":
            c_indices = np.concatenate([[0], np.cumsum(rng.integers(0, 4, len(r_offsets)))])
            count = c_indices[-1]
            p_offsets = rng.integers(0, 7, count)
        else:
            c_indices = np.array([0, 2, 2, 6, 7])
            count = 7 * split
        rows, columns = rng.integers(0, k - ks + 1, count), rng.integers(0, n - ns + 1, count)
        meta = {"SPLIT_N": split}
        lists = (name, c_indices, r_offsets, rows * n + columns, meta)
        if name == "bsr_strided_mm":
            lists = (name, c_indices, r_offsets, p_offsets, rows * n + columns, meta)
    return random_values(rng, (7, ms, ks), dtype, small_integers=small), others, lists, shape


def on(engine, lists):
    return tuple(engine.array(x) if isinstance(x, np.ndarray) else x for x in lists)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("small", [False, True])
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


@pytest.mark.parametrize("name", FORMATS[1:])
def test_tiles_anywhere_and_repeatedly(engine, rng, name):
    blocks, others, lists, shape = random_case(rng, name, "float32", small=True, aligned=False)
    start = random_values(rng, shape, "float32", small_integers=True)
    with engine.runs("scatter_mm"):
        result = sparsegpu.scatter_mm(
            engine.array(blocks),
            engine.array(others),
            on(engine, lists),
            accumulators=engine.array(start.copy()),
        )
    exact, _ = loop(blocks, others, lists, start)
    assert (engine.host(result) == exact).all()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("operands", "accumulator"),
    [("bfloat16", "float32"), ("float16", "bfloat16"), ("int8", "int32"), ("int8", "float32")],
)
def test_accumulators_of_another_dtype(engine, rng, name, operands, accumulator):
    blocks, others, lists, shape = random_case(rng, name, operands, small=True)
    start = random_values(rng, shape, accumulator, small_integers=True)
    with engine.runs("scatter_mm"):
        result = sparsegpu.scatter_mm(
            engine.array(blocks),
            engine.array(others),
            on(engine, lists),
            accumulators=engine.array(start.copy()),
        )
    exact, _ = loop(blocks, others, lists, start)
    assert (engine.host(result) == exact.astype(start.dtype)).all()


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


@pytest.mark.parametrize("name", [None, *FORMATS])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
def test_product(engine, rng, name, dtype, batch):
    triple = random_blocks(rng, (32, 24), (8, 4), density=0.25, dtype=dtype)
    bsr = make(engine, triple, (32, 24))
    other = random_values(rng, (*batch, 24, 24), dtype)
    given_lists = None
    if name is not None:
        given_lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, engine.array(other), name)
    with engine.runs("scatter_mm"):
        result = sparsegpu.bsr_scatter_mm(bsr, engine.array(other), given_lists)
    dense = dense_from_blocks(*triple, (32, 24))
    assert result.dtype == (np.int32 if dtype == "int8" else other.dtype)
    assert_within_bound(engine.host(result), dense, other)


@pytest.mark.parametrize("name", FORMATS)
def test_out_is_overwritten(engine, rng, name):
    triple = random_blocks(rng, (12, 12), (3, 4), density=0.2, dtype="float16")
    bsr = make(engine, triple, (12, 12))
    other = random_values(rng, (2, 12, 9), "float16")
    lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, engine.array(other), name, SPLIT_N=3)
    out = engine.xp.full((2, 9, 12), np.nan, np.float32).swapaxes(-1, -2)
    with engine.runs("scatter_mm"):
        assert sparsegpu.bsr_scatter_mm(bsr, engine.array(other), lists, out=out) is out
    assert_within_bound(engine.host(out), dense_from_blocks(*triple, (12, 12)), other)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("m", "k", "n", "batch"),
    [(0, 8, 4, ()), (8, 0, 4, ()), (8, 8, 0, ()), (8, 8, 4, (0,)), (0, 0, 0, (2,))],
)
def test_zero_sizes(engine, rng, name, m, k, n, batch):
    bsr = make(engine, random_blocks(rng, (m, k), (2, 4)), (m, k))
    other = engine.array(np.ones((*batch, k, n), np.float32))
    with engine.runs(None):
        lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, other, name)
        result = sparsegpu.bsr_scatter_mm(bsr, other, lists)
    assert result.shape == (*batch, m, n)
    if k == 0:
        assert not engine.host(result).any()


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
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
    bsr = make(engine, triple, shape)
    other = random_values(rng, (shape[1], ns * split), "float32", small_integers=True)
    lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, engine.array(other), name, SPLIT_N=split)
    with engine.runs("scatter_mm" if triple[0].size and other.size else None):
        result = sparsegpu.bsr_scatter_mm(bsr, engine.array(other), lists)
    assert (engine.host(result) == dense_from_blocks(*triple, shape) @ other).all()


def test_a_second_call_can_be_captured(cuda_engine, rng):
    """No synchronisation, no transfer and no allocation: a CUDA graph takes the call."""
    cupy = cuda_engine.xp
    triple = random_blocks(rng, (32, 32), (16, 16), density=0.5, small_integers=True)
    bsr = make(cuda_engine, triple, (32, 32))
    other = random_values(rng, (32, 48), "float32", small_integers=True)
    b, out = cupy.asarray(other), cupy.empty((32, 48), np.float32)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        sparsegpu.bsr_scatter_mm(bsr, b, out=out)
        stream.synchronize()
        stream.begin_capture()
        sparsegpu.bsr_scatter_mm(bsr, b, out=out)
        graph = stream.end_capture()
        out.fill(7)
        graph.launch(stream)
        stream.synchronize()
    assert (out.get() == dense_from_blocks(*triple, (32, 32)) @ other).all()


# -- errors -------------------------------------------------------------------------------------


def replaced(lists, position, value):
    return (*lists[:position], value, *lists[position + 1 :])


@pytest.mark.parametrize("position", [1, 2, 3])
def test_an_index_out_of_range_never_passes(engine, rng, position):
    for name in FORMATS:
        blocks, others, lists, shape = random_case(rng, name, "float32")
        if position >= len(lists) or not isinstance(lists[position], np.ndarray):
            continue
        start = random_values(rng, shape, "float32")
        for value in (-1, 10**6):
            wrong = lists[position].copy()
            wrong.flat[wrong.size // 2] = value
            accumulators = engine.array(start.copy())
            with (
                engine.runs(None),
                pytest.raises(ValueError, match=r"^scatter_mm: argument '\w+.*expected .*got "),
            ):
                sparsegpu.scatter_mm(
                    engine.array(blocks),
                    engine.array(others),
                    on(engine, replaced(lists, position, wrong)),
                    accumulators=accumulators,
                )
            assert (engine.host(accumulators) == start).all()


@pytest.mark.parametrize("edge", ["row", "column"])
def test_a_tile_that_sticks_out(rng, edge):
    blocks, others, lists, _ = random_case(rng, FORMATS[2], "float32")
    wrong = lists[2].copy()
    wrong[0] = 10 * 12 if edge == "row" else 9
    with pytest.raises(ValueError, match=r"'r_offsets': expected offsets .* 3x4 tiles inside"):
        sparsegpu.scatter_mm(blocks, others, replaced(lists, 2, wrong))


class TestErrors:
    @pytest.fixture
    def case(self, rng):
        blocks, others, lists, shape = random_case(rng, FORMATS[2], "float32")
        return dict(blocks=blocks, others=others, indices_data=lists), shape

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            (dict(indices_data=("coo", [0])), ValueError, r"'indices_data\[0\]': .*'scatter_mm'"),
            (dict(indices_data="scatter_mm"), TypeError, "'indices_data': expected a tuple"),
            (dict(indices_data=("scatter_mm", [0])), ValueError, "expected .format, c_offsets, pq"),
            (
                dict(indices_data=("scatter_mm", [0, 1], [[0.0, 1.0]])),
                TypeError,
                "'pq': expected an integer dtype, got float64",
            ),
            (
                dict(indices_data=("scatter_mm", [0, 1], [0, 1])),
                ValueError,
                r"'pq': expected shape \(n, 2\), got \(2,\)",
            ),
            (
                dict(indices_data=("scatter_mm", [], np.zeros((0, 2), int))),
                (TypeError, ValueError),
                "'c_offsets': ",
            ),
            (dict(blocks=np.ones((3, 5), "f4")), ValueError, r"'blocks': expected shape \(P, Ms"),
            (dict(others=np.ones((20, 12), "f2")), TypeError, "'others': expected dtype float32"),
            (dict(others=np.ones(12, "f4")), ValueError, r"'others': expected shape \(\*batch"),
            (dict(accumulators=np.zeros((2, 12, 11), "f4")), ValueError, "'accumulators': expect"),
            (dict(accumulators=np.zeros((12, 12), "f4")), ValueError, "'others': expected a shape"),
            (dict(accumulators=np.zeros((2, 12, 12), "i4")), TypeError, "'accumulators': expected"),
        ],
    )
    def test_argument(self, case, change, error, message):
        arguments = case[0] | change
        accumulators = arguments.pop("accumulators", None)
        with pytest.raises(error, match="^scatter_mm: argument .*" + message.lstrip("^")):
            sparsegpu.scatter_mm(*arguments.values(), accumulators=accumulators)

    @pytest.mark.parametrize("meta", [{}, None, {"SPLIT_N": 5}, {"SPLIT_N": 0}, {"SPLIT_N": 2.0}])
    def test_meta(self, case, meta):
        arguments, _ = case
        lists = (*arguments["indices_data"][:-1], meta)
        with pytest.raises((TypeError, ValueError), match=r"scatter_mm: argument '(meta|SPLIT_N)'"):
            sparsegpu.scatter_mm(arguments["blocks"], arguments["others"], lists)

    def test_accumulators_overlap_others(self, case):
        arguments, _ = case
        others = arguments["others"]
        with pytest.raises(ValueError, match="'accumulators': expected memory apart from 'others'"):
            sparsegpu.scatter_mm(*arguments.values(), accumulators=others[:, :12])

    def test_lists_of_another_array(self):
        bsr = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
        lists = sparsegpu.bsr_scatter_mm_indices_data(bsr, np.ones((4, 6)))
        for other in (np.ones((4, 8)), np.ones((6, 6))):
            with pytest.raises(ValueError, match=r"'others': expected shape \(\*batch, 4, 6\) as"):
                sparsegpu.scatter_mm(bsr.data, other, lists)
        with pytest.raises(ValueError, match=r"'blocks': expected shape \(2, 2, 2\) as"):
            sparsegpu.scatter_mm(bsr.data[:1], np.ones((4, 6)), lists)
        with pytest.raises(ValueError, match=r"'blocks': expected shape \(2, 2, 2\) as"):
            big = sparsegpu.bsr_array(np.ones((4, 4)), blocksize=(2, 2))
            sparsegpu.bsr_scatter_mm(big, np.ones((4, 6)), lists)

    def test_indices_data(self):
        build = sparsegpu.bsr_scatter_mm_indices_data
        bsr = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
        with pytest.raises(ValueError, match="'SPLIT_N': expected a divisor of N = 6, got 4"):
            build(bsr, np.ones((4, 6)), SPLIT_N=4)
        with pytest.raises(ValueError, match="'indices_format': expected one of 'scatter_mm'"):
            build(bsr, np.ones((4, 6)), "csr")
        with pytest.raises(TypeError, match="'SPLIT': expected no such keyword; one of SPLIT_N"):
            build(bsr, np.ones((4, 6)), SPLIT=2)
        with pytest.raises(ValueError, match=r"'other': expected shape \(\*batch, 4, N\)"):
            build(bsr, np.ones((6, 6)))
        batched = sparsegpu.bsr_array(np.stack([np.eye(4)] * 2), blocksize=(2, 2))
        with pytest.raises(ValueError, match=r"'bsr': expected one matrix .*batch \(2,\)"):
            sparsegpu.bsr_scatter_mm(batched, np.ones((4, 6)))

    def test_product_out(self):
        bsr = sparsegpu.bsr_array(np.eye(4), blocksize=(2, 2))
        other = np.ones((4, 6))
        with pytest.raises(ValueError, match=r"'out': expected shape \(4, 6\), got \(4, 5\)"):
            sparsegpu.bsr_scatter_mm(bsr, other, out=np.ones((4, 5)))
        with pytest.raises(ValueError, match="'out': expected memory apart from 'other'"):
            sparsegpu.bsr_scatter_mm(bsr, other, out=other)
        assert (other == 1).all()
