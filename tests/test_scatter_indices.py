"""The index lists of `scatter_mm`, computed again by the loops of the contract."""

import numpy as np
import pytest

import sparsegpu
from covering import covered
from scatter_cases import FORMATS
from sparsegpu.testing import dense_from_blocks, random_blocks, random_values


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


@covered(name=FORMATS, split=[1, 2, 3, 12], batch=[(), (2,), (2, 1, 3)])
def test_lists(engine, rng, name, split, batch):
    triple = random_blocks(rng, (24, 20), (4, 2), density=0.2)
    bsr = engine.bsr(triple, (24, 20))
    other = engine.array(np.zeros((*batch, 20, 12), np.float32))
    with engine.runs("scatter_indices"):
        made = sparsegpu.bsr_scatter_mm_indices_data(bsr, other, name, SPLIT_N=split)
    expected = expected_lists(triple, (24, 20), (4, 2), other.shape, name, split)
    assert made[0] == name
    assert len(made) == 1 + len(expected) + (name != "scatter_mm")
    for array, values in zip(made[1:], expected):
        assert engine.host(array).tolist() == np.array(values).tolist()
        assert array.dtype == np.int64
    if name != "scatter_mm":
        assert made[-1]["SPLIT_N"] == split


@covered(name=FORMATS, n=[0, 1, 7, 48, 64, 97, 128, 192, 1009, 1024])
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
    bsr = engine.bsr(triple, (16, 16))
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
    bsr = engine.bsr(triple, (8, 8))
    summed = bsr.copy()
    summed.sum_duplicates()
    other = random_values(rng, (8, 6), "float32", small_integers=True)
    with engine.runs("bsr_addmm", "scatter_indices"):
        made = sparsegpu.bsr_scatter_mm_indices_data(bsr, engine.array(other), name)
        result = sparsegpu.bsr_scatter_mm(bsr, engine.array(other), made)
    fresh = sparsegpu.bsr_scatter_mm_indices_data(summed, engine.array(other), name)
    for array, same in zip(made[1:], fresh[1:]):
        assert isinstance(array, dict) or engine.host(array).tolist() == engine.host(same).tolist()
    assert (engine.host(result) == dense_from_blocks(*triple, (8, 8)) @ other).all()
