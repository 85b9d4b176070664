"""`BlockMask`: what its fields mean, conversions, files, errors, and attention over it."""

from __future__ import annotations

import copy
import io
import pickle
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu
from attention_cases import Case, attention
from covering import covered
from properties import drawn
from sparsegpu import BlockMask, bsr_array
from sparsegpu.pattern import Pattern
from sparsegpu.testing import assert_attention_close

BLOCKSIZES = [(1, 1), (2, 3), (4, 32), (3, 33), (1, 64), (5, 70)]


def parts(rng, blocksize, batch=(), *, blocks=(3, 4), stored=7):
    """Draw bool blocks of all three kinds, in any order: data, indices and indptr."""
    (bm, bk), (rows, columns) = blocksize, blocks
    data = rng.random((*batch, stored, bm, bk)) < 0.5
    data[..., ::3, :, :] = True
    data[..., 1::3, :, :] = False
    indices, indptr = np.zeros((*batch, stored), int), np.zeros((*batch, rows + 1), int)
    for b in np.ndindex(batch):
        chosen = np.sort(rng.choice(rows * columns, stored, replace=False)) // columns
        indptr[b] = np.searchsorted(chosen, np.arange(rows + 1))
        for i in range(rows):
            row = slice(indptr[b][i], indptr[b][i + 1])
            indices[b][row] = rng.permutation(columns)[: row.stop - row.start]
    return data, indices, indptr


def dense_of(data, indices, indptr, columns):
    """Or the blocks into dense matrices, one by one."""
    (*batch, rows), (bm, bk) = indptr.shape, data.shape[-2:]
    dense = np.zeros((*batch, (rows - 1) * bm, columns * bk), bool)
    for b in np.ndindex(*batch):
        for i in range(rows - 1):
            for p in range(indptr[b][i], indptr[b][i + 1]):
                j = indices[b][p]
                dense[b][i * bm : (i + 1) * bm, j * bk : (j + 1) * bk] |= data[b][p]
    return dense


def mask_of(engine, rng, blocksize, batch=(), **sizes):
    """Return a mask of the engine, and its dense form."""
    drawn_parts = parts(rng, blocksize, batch, **sizes)
    columns = sizes.get("blocks", (3, 4))[1]
    dense = dense_of(*drawn_parts, columns)
    bsr = bsr_array(tuple(map(engine.array, drawn_parts)), shape=dense.shape[-2:])
    return BlockMask.from_bsr(bsr), dense


# -- fields -------------------------------------------------------------------------------------


@covered(blocksize=BLOCKSIZES, batch=[(), (2,), (2, 3)])
def test_fields(engine, rng, blocksize, batch):
    data, indices, indptr = parts(rng, blocksize, batch)
    columns = 4
    given = tuple(map(engine.array, (data, indices, indptr)))
    bsr = bsr_array(given, shape=(3 * blocksize[0], columns * blocksize[1]))
    engine.look(bsr)
    with engine.runs(None):
        mask = BlockMask.from_bsr(bsr)
    assert mask.pattern is bsr.pattern and mask.dtype == bool and mask.shape == bsr.shape
    assert mask.kind.dtype == np.uint8 and mask.bits.dtype == np.uint32
    kind = np.where(data.all((-2, -1)), 1, np.where(data.any((-2, -1)), 2, 0))
    np.testing.assert_array_equal(engine.host(mask.kind), kind)
    bm, bk = blocksize
    partial, bits = data[kind == 2], engine.host(mask.bits)
    assert bits.shape == (len(partial), bm, -(-bk // 32))
    for n, block in enumerate(partial):
        for i in range(bm):
            number = sum(1 << int(j) for j in np.flatnonzero(block[i]))
            assert [number >> 32 * w & 0xFFFFFFFF for w in range(bits.shape[2])] == list(bits[n, i])
    fields = (mask.kind, mask.bits, mask.indices, mask.indptr)
    assert mask.nbytes == sum(field.nbytes for field in fields)


@covered(blocksize=BLOCKSIZES, batch=[(), (2,)])
def test_there_and_back(engine, rng, blocksize, batch):
    mask, dense = mask_of(engine, rng, blocksize, batch)
    with engine.runs("bsr_scatter"):
        back, made = mask.tobsr(), mask.toarray()
    assert type(back) is bsr_array and back.pattern is mask.pattern and back.dtype == bool
    np.testing.assert_array_equal(engine.host(back.toarray()), dense)
    np.testing.assert_array_equal(engine.host(made), dense)
    same = BlockMask(mask.pattern, mask.kind, mask.bits)
    np.testing.assert_array_equal(engine.host(same.todense()), dense)
    assert bsr_array(mask).pattern is mask.pattern


@drawn(40)
@given(
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.tuples(st.integers(1, 5), st.integers(1, 70)),
    st.integers(0, 2**32),
)
def test_any_dense_mask(engine, blocks, blocksize, seed):
    rng = np.random.default_rng(seed)
    shape = tuple(n * b for n, b in zip(blocks, blocksize))
    dense = rng.random(shape) < rng.choice([0.02, 0.5, 0.98])
    bsr = bsr_array(engine.array(dense), blocksize=blocksize)
    mask = BlockMask.from_bsr(bsr)
    np.testing.assert_array_equal(engine.host(mask.tobsr().toarray()), dense)
    assert bool((mask.kind != 0).all())


def test_repeated_blocks_are_or_ed(engine):
    data = np.zeros((4, 1, 2), bool)
    data[0, 0, 0] = data[2, 0, 1] = data[3] = True
    given = data, np.array([1, 0, 1, 0]), np.array([0, 4])
    mask = BlockMask.from_bsr(bsr_array(tuple(map(engine.array, given)), shape=(1, 4)))
    assert engine.host(mask.indices).tolist() == [0, 1]
    assert engine.host(mask.kind).tolist() == [1, 1] and mask.bits.shape == (0, 1, 1)
    # In a mask that was given such a pattern, too.
    pattern = Pattern(*map(engine.array, (np.array([0, 2]), np.array([0, 0]))), (1, 2), (1, 2))
    bits = engine.array(np.array([[[1]], [[2]]], np.uint32))
    mask = BlockMask(pattern, engine.array(np.array([2, 2])), bits)
    assert engine.host(mask.toarray()).all()


def test_whole_blocks_cost_a_byte(engine):
    """Nothing is expanded: not by `tobsr`, nor by `from_bsr` of what it returned."""
    pattern = Pattern(*map(engine.array, (np.array([0, 3]), np.arange(3))), (256, 768), (256, 256))
    kind = engine.array(np.array([1, 0, 1]))
    mask = BlockMask(pattern, kind, engine.xp.zeros((0, 256, 8), np.uint32))
    bsr = mask.tobsr()
    assert bsr.data.strides[-2:] == (0, 0)
    assert engine.host(BlockMask.from_bsr(bsr).kind).tolist() == [1, 0, 1]
    own = mask.tobsr(copy=True).data
    own[0] = False  # memory of its own, to be written to
    assert engine.host(mask.tobsr().data).any((1, 2)).tolist() == [True, False, True]


def test_memory_of_conversions():
    """They go piece by piece: a mask of 64 MB, all partial, takes few beside it."""
    data = np.zeros((1024, 256, 256), bool)
    data[:, ::2] = True
    bsr = bsr_array((data, np.arange(1024), np.array([0, 1024])), shape=(256, 256 * 1024))
    bsr.pattern.has_canonical_format, bsr.pattern.indices  # noqa: B018
    tracemalloc.start()
    try:
        mask = BlockMask.from_bsr(bsr)
        assert tracemalloc.get_traced_memory()[1] < mask.nbytes + 20 * 2**20
        tracemalloc.reset_peak()
        back = mask.tobsr()
        assert tracemalloc.get_traced_memory()[1] < mask.nbytes + data.nbytes + 20 * 2**20
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(back.data, data)


@pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning")
def test_fields_are_copied_and_cannot_be_changed(engine, rng):
    kind = engine.array(np.array([2, 1]))
    bits = engine.array(np.array([[[1]]], np.uint32))
    pattern = Pattern(*map(engine.array, (np.array([0, 2]), np.arange(2))), (1, 4), (1, 2))
    mask = BlockMask(pattern, kind, bits)
    kind[...], bits[...] = 0, 0
    mask.kind.shape, mask.bits.shape = (2, 1), (1,)
    assert engine.host(mask.toarray()).tolist() == [[True, False, True, True]]
    if not engine.on_gpu:
        with pytest.raises(ValueError, match="read-only"):
            mask.kind[0] = 1


# -- as a container -----------------------------------------------------------------------------


def test_repr_and_picture(engine, rng):
    mask, _ = mask_of(engine, rng, (2, 3))
    where = "cuda:0" if engine.on_gpu else "cpu"
    partial = mask.bits.shape[0]
    assert repr(mask) == (
        "<sparsegpu.BlockMask, shape (6, 12), 7 blocks of 2x3 stored (density 0.583), "
        f"{partial} partial, on {where}>"
    )
    drawn = sum(map(int, re.findall(r'<rect[^>]* width="(\d+)"', mask._repr_html_())))
    assert drawn == int((mask.kind != 0).sum())


def test_spy(engine):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    pattern = Pattern(*map(engine.array, (np.array([0, 3]), np.arange(3))), (2, 6), (2, 2))
    bits = engine.array(np.ones((1, 2, 1), np.uint32))
    ax = BlockMask(pattern, engine.array(np.array([2, 0, 1])), bits).spy()
    np.testing.assert_array_equal(ax.images[0].get_array(), [[1, 0, 1]])
    plt.close(ax.figure)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_copies_pickles_and_files(engine, rng, tmp_path, batch):
    mask, dense = mask_of(engine, rng, (4, 33), batch)
    mask.save_npz(tmp_path / "mask")
    file = io.BytesIO()
    mask.save_npz(file, compressed=False)
    file.seek(0)
    read = BlockMask.load_npz(tmp_path / "mask.npz"), BlockMask.load_npz(file)
    pickled = pickle.loads(pickle.dumps(mask))
    for other in (mask.copy(), copy.copy(mask), copy.deepcopy(mask), pickled, mask.get(), *read):
        assert type(other) is BlockMask and other.blocksize == (4, 33)
        np.testing.assert_array_equal(other.get().toarray(), dense)
    assert all(isinstance(other.bits, np.ndarray) for other in (mask.get(), *read))
    assert mask.copy().pattern is mask.pattern
    assert mask.get() is mask or engine.on_gpu


def test_device(cuda_engine, rng):
    from conftest import Engine

    mask, dense = mask_of(Engine("reference"), rng, (4, 33))
    moved = mask.to_device()
    assert isinstance(moved.bits, cuda_engine.xp.ndarray) and moved.to_device() is moved
    np.testing.assert_array_equal(moved.get().toarray(), dense)


def test_comparisons(engine, rng):
    mask, dense = mask_of(engine, rng, (2, 3))
    other = BlockMask(mask.pattern, mask.kind * 0, mask.bits[:0])
    with engine.runs(None):
        differs = mask != other
        backwards = mask.tobsr() != other
    for result in (differs, backwards):
        np.testing.assert_array_equal(engine.host(result.toarray()), dense)
    assert int((mask != mask.copy()).sum()) == 0
    with pytest.raises(NotImplementedError, match=r"^BlockMask ==: a comparison that"):
        mask == mask  # noqa: B015
    with pytest.raises(ValueError, match="the truth value of a BlockMask is ambiguous"):
        bool(mask)
    with pytest.raises(TypeError, match="BlockMask: expected a dense array"):
        np.asarray(mask)
    with pytest.raises(TypeError, match=r"argument 'bsr': .*BlockMask \(bsr\.tobsr\(\) makes one"):
        sparsegpu.bsr_matmul(mask, dense)


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"pattern": "no"}, TypeError, "'pattern': expected a Pattern.*got str"),
        ({"kind": np.zeros(2)}, TypeError, "'kind': expected an integer dtype, got float64"),
        ({"kind": np.zeros(3, int)}, ValueError, r"'kind': expected shape \(2,\).*got \(3,\)"),
        ({"kind": np.array([2, 3])}, ValueError, "'kind': expected 0, 1 or 2.*got 3"),
        ({"kind": np.array([2, -1])}, ValueError, "'kind': .*got -1"),
        ({"kind": np.array([2, 256])}, ValueError, "'kind': .*got 256"),
        ({"kind": np.array([2, 2])}, ValueError, "'bits': expected 2 blocks.*got 1"),
        ({"kind": np.array([1, 1])}, ValueError, "'bits': expected 0 blocks.*got 1"),
        ({"bits": np.ones((1, 1, 2), np.int32)}, TypeError, "'bits': expected dtype uint32"),
        ({"bits": np.ones((1, 1, 1), np.uint32)}, ValueError, r"'bits': .*\(partial, 1, 2\)"),
        ({"bits": np.ones((1, 2), np.uint32)}, ValueError, r"'bits': expected shape"),
        (
            {"bits": np.full((1, 1, 2), 2, np.uint32)},
            ValueError,
            "'bits': expected zeros beyond the 33",
        ),
    ],
)
def test_fields_that_disagree(engine, change, error, match):
    pattern = Pattern(*map(engine.array, (np.array([0, 2]), np.arange(2))), (1, 66), (1, 33))
    fields = {
        "pattern": pattern,
        "kind": np.array([1, 2]),
        "bits": np.array([[[2**32 - 1, 1]]], np.uint32),
    }
    made = {
        name: engine.array(field) if isinstance(field, np.ndarray) else field
        for name, field in (fields | change).items()
    }
    with engine.runs(None), pytest.raises(error, match=f"^BlockMask: argument {match}"):
        BlockMask(**made)


def test_only_bool_masks_are_taken():
    with pytest.raises(TypeError, match=r"BlockMask.from_bsr: argument 'mask': .*got float64"):
        BlockMask.from_bsr(bsr_array(np.eye(4), blocksize=(2, 2)))
    said = r"BlockMask.from_bsr: argument 'mask': .*got numpy.ndarray"
    with pytest.raises(TypeError, match=said):
        BlockMask.from_bsr(np.eye(4, dtype=bool))


def test_files_of_others(tmp_path):
    bsr_array(np.eye(4), blocksize=(2, 2)).save_npz(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=r"BlockMask.load_npz: argument 'file': expected a saved"):
        BlockMask.load_npz(tmp_path / "a.npz")
    mask = BlockMask.from_bsr(bsr_array(np.eye(4, dtype=bool), blocksize=(2, 2)))
    mask.save_npz(tmp_path / "a.npz")
    stored = dict(np.load(tmp_path / "a.npz"))
    np.savez(tmp_path / "a.npz", **stored | {"kind": stored["kind"] + 1})
    with pytest.raises(ValueError, match="argument 'kind': expected 0, 1 or 2"):
        BlockMask.load_npz(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", **stored | {"indices": stored["indices"] + 1})
    with pytest.raises(ValueError, match=r"BlockMask.load_npz: .*argument 'indices'"):
        BlockMask.load_npz(tmp_path / "a.npz")


def test_a_mask_is_no_operand(engine, rng):
    mask, _ = mask_of(engine, rng, (2, 3))
    with pytest.raises(TypeError, match=r"bsr_softmax: argument .* expected a bsr_array"):
        sparsegpu.bsr_softmax(mask)


# -- attention ----------------------------------------------------------------------------------


@covered(
    dtype=["bfloat16", "float32", "float64"],
    mask_batch=[(), (4,), (2, 4)],
    is_causal=[False, True],
    duplicates=[False, True],
)
def test_attention_takes_it(engine, rng, dtype, mask_batch, is_causal, duplicates):
    if duplicates and mask_batch:
        pytest.skip("batches would keep different numbers of blocks")
    case = Case(
        rng,
        dtype=dtype,
        heads=(4, 2),
        batch=(2,),
        mask_batch=mask_batch,
        duplicates=duplicates,
        lengths=(12, 99),
        blocksize=(3, 33),
    )
    query, key, value, bsr = case.on(engine)
    mask = BlockMask.from_bsr(bsr)
    with engine.runs("bsr_attention_simt"):
        out, lse = attention(query, key, value, mask, is_causal=is_causal, return_lse=True)
    expected, expected_lse = case.expected(is_causal=is_causal)
    assert_attention_close(out, expected)
    assert_attention_close(lse, expected_lse)


def test_attention_over_batches_of_different_counts(engine, rng):
    """Blocks of kind 0 fill up what a matrix of the batch does not store."""
    case = Case(rng, heads=(2, 1), lengths=(4, 6), blocksize=(2, 3), widths=(5, 4))
    indices, indptr = np.array([[0, 1, 1], [1, 0, 1]]), np.array([[0, 2, 3], [0, 1, 3]])
    kind = np.array([[1, 1, 1], [1, 0, 1]])
    whole = np.broadcast_to((kind == 1)[..., None, None], (2, 3, 2, 3))
    case.mask = [whole, indices, indptr]
    query, key, value = (engine.array(a) for a in (case.query, case.key, case.value))
    pattern = Pattern(engine.array(indptr), engine.array(indices), (4, 6), (2, 3))
    mask = BlockMask(pattern, engine.array(kind), engine.xp.zeros((0, 2, 1), np.uint32))
    with engine.runs("bsr_attention_simt"):
        out = attention(query, key, value, mask)
    assert_attention_close(out, case.expected()[0])


def test_attention_with_a_mask_is_captured(cuda_engine, rng):
    case = Case(rng, heads=(2, 1), lengths=(12, 99), blocksize=(3, 33))
    query, key, value, bsr = case.on(cuda_engine)
    mask, made = BlockMask.from_bsr(bsr), []
    with cuda_engine.side_stream() as stream:
        graph = cuda_engine.captured(lambda: made.append(attention(query, key, value, mask)))
        graph.launch(stream)
    assert_attention_close(made[-1], case.expected()[0])


def test_a_host_mask_beside_device_operands(cuda_engine, rng):
    from conftest import Engine

    mask, _ = mask_of(Engine("reference"), rng, (2, 3))
    operands = (cuda_engine.xp.zeros((1, n, 4), np.float32) for n in (6, 12, 12))
    with pytest.raises(TypeError, match="scaled_dot_product_attention: argument 'mask'"):
        attention(*operands, mask)


def test_masks_that_follow_each_other_in_memory(cuda_engine, rng):
    """What is kept of a mask's blocks is not taken for that of the next one at its addresses."""
    cp = cuda_engine.xp
    q, k, v = (cp.asarray(rng.standard_normal((2, 128, 64)), "float16") for _ in range(3))
    pattern = sparsegpu.bsr_array(cp.ones((128, 128), bool), blocksize=(32, 32)).pattern
    none = cp.zeros((0, 32, 1), np.uint32)
    for step in range(6):
        kind = np.ones(16, np.uint8)
        kind[step::6] = 0
        mask = BlockMask(pattern, cp.asarray(kind), none)
        out = attention(q, k, v, mask)
        expected = attention(q, k, v, mask.tobsr(copy=True))
        assert_attention_close(cuda_engine.host(out), cuda_engine.host(expected))
        del mask, out, expected
