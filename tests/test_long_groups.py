"""Long row groups in parts: what is cut, and products in which some are."""

import numpy as np
import pytest

import sparsegpu
from addmm_cases import laid_out, small
from path_contract import Bsr, Epilogues, Gpu, Products
from sparsegpu import bsr_matmul, dense_bsr_matmul
from sparsegpu.engines.cuda._arena import Arrays
from sparsegpu.engines.cuda._schedule import RowGroups
from sparsegpu.engines.cuda.paths._split_k import cut
from sparsegpu.testing import random_values

PATH = {"path": "wgmma", "group_similar_rows": 0}
BLOCKS = [(16, 16), (32, 64), (48, 80), (64, 64), (128, 128), (192, 32)]
KERNELS = ("bsr_addmm_sm90", "bsr_addmm_sm90_reduce")


def groups_of(counts) -> RowGroups:
    counts = np.array(counts, np.int32)
    starts = np.cumsum(np.append([3], counts[:-1] + 2))
    order = np.argsort(-counts, kind="stable").astype(np.int32)
    return RowGroups(Arrays(starts, counts, None, None, order), 1, len(counts))


def test_every_entry_is_in_one_split_of_its_group():
    groups = groups_of([5, 40, 0, 9, 10, 11, 31])
    splits, table, parts = cut(groups, 10, np)
    assert splits.counts.max() <= 10 and splits.groups == len(splits.counts) == 14
    assert (np.diff(splits.counts[splits.order]) <= 0).all()
    assert sorted(splits.order) == list(range(14))
    walked = [[] for _ in groups.counts]
    places = {}
    for start, count, (group, part) in zip(
        splits.starts, splits.counts, splits.splits, strict=True
    ):
        walked[group] += range(start, start + count)
        places[part] = start
    for start, count, entries in zip(groups.starts, groups.counts, walked, strict=True):
        assert sorted(entries) == list(range(start, start + count))
    assert table.tolist() == [[1, 0, 4], [5, 4, 2], [6, 6, 4]] and parts == 10
    for group, first, count in table:  # in their order
        begins = [places[first + i] for i in range(count)]
        assert begins == sorted(begins) and begins[0] == groups.starts[group]


def mask_of(rng, rows, columns, kind):
    """Return which blocks are stored: some full rows or columns, or rows of ever fewer blocks."""
    mask = rng.random((rows, columns)) < 0.01
    if kind == "full row":
        mask[rows // 2] = True
    elif kind == "full column":
        mask[:, columns // 2] = True
    else:
        mask |= rng.random((rows, columns)) < 1 / np.arange(1, rows + 1)[:, None]
    return mask


def operand(engine, rng, blocksize, kind="full row", dtype="bfloat16", *, shape):
    """Return a matrix of so many blocks with long groups, on the host and on the device."""
    mask = np.kron(mask_of(rng, *shape, kind), np.ones(blocksize, bool))
    dense = np.where(mask, small(rng, mask.shape, "float32"), 0)
    stored = engine.array(dense).astype(np.dtype(dtype))
    return dense, sparsegpu.bsr_array(stored, blocksize=blocksize)


class TestProducts(Bsr, Products, Epilogues, Gpu):
    """Of matrices of which some groups are cut, so that the partial sums are added up."""

    NAME, SOURCE = PATH["path"], KERNELS[1]
    CASES = [
        *(("bfloat16", size) for size in BLOCKS),
        *(("int8", size) for size in [(16, 32), (64, 64), (128, 128)]),
        ("float32", (16, 32)),
    ]
    LAYOUTS, COLUMNS = ["rows"], [24, 600, 136]

    def keywords(self):
        return {"config": PATH, "allow_tf32": True}

    def operand(self, engine, rng, case, **keywords):
        dtype, blocksize = case
        shape = (44, (4300 if dtype == "int8" else 2600) // blocksize[1])
        return operand(engine, rng, blocksize, dtype=dtype, shape=shape)[::-1]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("size", "kind", "rows"),
    [
        *((size, "full row", 44) for size in BLOCKS[:4]),
        ((16, 16), "power law", 200),
        ((64, 64), "power law", 100),
    ],
)
@pytest.mark.parametrize("similar", [0, 1])
def test_similar_rows_and_rows_of_every_length(hopper, rng, size, kind, rows, similar):
    dense, a = operand(hopper, rng, size, kind, shape=(rows, 2600 // size[1]))
    x = small(rng, (dense.shape[1], 200), "bfloat16")
    with hopper.runs(*KERNELS):
        how = {"config": PATH | {"group_similar_rows": similar}, "out_dtype": "float32"}
        out = bsr_matmul(a, hopper.array(x), **how)
    np.testing.assert_array_equal(hopper.host(out), dense @ x.astype("float32"))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_from_the_right(hopper, rng, layout):
    dense, a = operand(hopper, rng, (16, 16), "full column", "float16", shape=(150, 44))
    y = small(rng, (104, dense.shape[0]), "float16")
    with hopper.runs(*KERNELS):
        out = dense_bsr_matmul(laid_out(hopper, y, layout), a, config=PATH)
    expected = y.astype("float32") @ dense
    np.testing.assert_array_equal(hopper.host(out), expected.astype("float16"))


@pytest.mark.gpu
def test_batches(hopper, rng):
    """One pattern for several matrices is cut; patterns of their own stay whole, and are right."""
    dense, a = operand(hopper, rng, (64, 64), shape=(20, 40))
    x = small(rng, (3, dense.shape[1], 72), "bfloat16")
    with hopper.runs(*KERNELS):
        out = bsr_matmul(a, hopper.array(x), config=PATH, out_dtype="float32")
    np.testing.assert_array_equal(hopper.host(out), dense @ x.astype("float32"))
    two = np.stack([dense, dense[::-1]])
    batched = sparsegpu.bsr_array(hopper.array(two).astype("bfloat16"), blocksize=(64, 64))
    with hopper.runs("bsr_addmm_sm90"):
        out = bsr_matmul(batched, hopper.array(x[:2]), config=PATH, out_dtype="float32")
    np.testing.assert_array_equal(hopper.host(out), two @ x[:2].astype("float32"))


@pytest.mark.gpu
def test_same_bits_again_and_one_launch_where_nothing_is_long(hopper, rng):
    from sparsegpu.engines.cuda.runtime.launch import launch_counts

    dense, a = operand(hopper, rng, (32, 32), shape=(64, 160))
    x = hopper.array(random_values(rng, (dense.shape[1], 2048), "bfloat16"))
    first = bsr_matmul(a, x, config=PATH)
    for _ in range(5):
        assert (bsr_matmul(a, x, config=PATH) == first).all()
    even = sparsegpu.bsr_array(
        hopper.array(np.tile(np.eye(8, dtype="float32"), (8, 40))).astype("bfloat16"),
        blocksize=(16, 16),
    )
    before = launch_counts().get(KERNELS[1], 0)
    bsr_matmul(even, x[:320], config=PATH)
    assert launch_counts().get(KERNELS[1], 0) == before
