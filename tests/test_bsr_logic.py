"""``& | ^ ~`` of bool masks, held against dense NumPy: of arrays, and of kinds and bits."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import scipy.sparse

import sparsegpu as sg
from covering import covered
from operator_cases import check, make
from sparsegpu import BlockMask
from sparsegpu._block_bits import EVERYTHING, NOTHING
from sparsegpu.ops._canonical import canonical_bits
from sparsegpu.pattern import Pattern
from test_block_mask import BLOCKSIZES, mask_of

OPERATORS = [operator.and_, operator.or_, operator.xor]


@covered(operate=OPERATORS, duplicates=[False, True], batch=[(), (2,)])
def test_bool_arrays(engine, rng, operate, duplicates, batch):
    if batch and duplicates:
        return  # sums would leave different numbers of blocks
    a, dense_a = make(engine, rng, dtype="bool", duplicates=duplicates)
    density = 1.0 if batch else 0.3
    b, dense_b = make(
        engine, rng, dtype="bool", duplicates=duplicates, batch=batch, density=density
    )
    check(engine, operate(a, b), operate(dense_a, dense_b))
    check(engine, operate(a, a), operate(dense_a, dense_a))
    c, dense_c = make(engine, rng, dtype="bool", blocksize=(6, 5))
    check(engine, operate(a, c), operate(dense_a, dense_c))
    full = engine.array(rng.random((12, 20)) < 0.5)
    check(engine, operate(a, full), operate(dense_a, engine.host(full)))
    check(engine, operate(full, a), operate(dense_a, engine.host(full)))
    if not engine.on_gpu:
        theirs = scipy.sparse.csr_array(dense_c)
        check(engine, operate(a, theirs), operate(dense_a, dense_c))


@pytest.mark.parametrize("duplicates", [False, True])
def test_not_is_within_the_blocks(engine, rng, duplicates):
    a, dense = make(engine, rng, dtype="bool", duplicates=duplicates)
    stored = a.with_data(engine.xp.ones_like(a.data))
    check(engine, ~a, engine.host(stored.toarray()) & ~dense)
    check(engine, np.invert(a), engine.host(stored.toarray()) & ~dense)
    assert duplicates or (~a).pattern is a.pattern


@covered(operate=OPERATORS, blocksize=BLOCKSIZES, batch=[(), (2,), (2, 3)])
def test_block_masks(engine, rng, operate, blocksize, batch):
    # In a batch all blocks are stored, some of them of kind 0.
    sizes = dict(blocks=(3, 4), stored=12 if batch else 7)
    (a, dense_a), (b, dense_b) = (mask_of(engine, rng, blocksize, batch, **sizes) for _ in range(2))
    got = operate(a, b)
    assert type(got) is BlockMask and got.blocksize == blocksize
    expected = operate(dense_a, dense_b)
    np.testing.assert_array_equal(engine.host(got.toarray()), expected)
    again = BlockMask(got.pattern, got.kind, got.bits)  # checked
    kinds = engine.host(BlockMask.from_bsr(got.tobsr()).kind)
    np.testing.assert_array_equal(engine.host(again.kind), kinds)
    bsr = b.tobsr()
    for other in (operate(a, bsr), operate(bsr, a)):
        assert type(other) is sg.bsr_array
        np.testing.assert_array_equal(engine.host(other.toarray()), expected)
    np.testing.assert_array_equal(
        engine.host((~a).toarray()), ~dense_a & engine.host(stored_of(a).toarray())
    )


def stored_of(mask):
    """Return the mask whose stored blocks are full."""
    xp, (bm, _) = mask.pattern.xp, mask.blocksize
    bits = xp.zeros((0, bm, mask.bits.shape[2]), np.uint32)
    return BlockMask(mask.pattern, xp.ones(mask.kind.shape, np.uint8), bits)


def test_block_masks_of_whole_blocks_and_of_none(engine, rng):
    a, dense = mask_of(engine, rng, (2, 33))
    full, none = stored_of(a), a & ~a
    assert none.nnzb == 0 and none.shape == a.shape
    for got, expected in ((a | none, dense), (a & full, dense), (a ^ a, dense & ~dense)):
        np.testing.assert_array_equal(engine.host(got.toarray()), expected)
    assert (a | full).bits.shape[0] == 0 and (full & full).kind.tolist() == full.kind.tolist()


def test_repeated_blocks_are_or_ed_first(engine):
    pattern = sg.pattern.Pattern(
        *map(engine.array, (np.array([0, 2]), np.array([0, 0]))), (1, 2), (1, 2)
    )
    bits = engine.array(np.array([[[1]], [[2]]], np.uint32))
    mask = BlockMask(pattern, engine.array(np.array([2, 2])), bits)
    assert engine.host((~mask).toarray()).tolist() == [[False, False]]
    assert engine.host((mask & mask).toarray()).tolist() == [[True, True]]


def test_of_another_block_size(engine, rng):
    a, dense_a = mask_of(engine, rng, (2, 3), blocks=(3, 4))
    b, dense_b = mask_of(engine, rng, (3, 4), blocks=(2, 3), stored=4)
    got = a | b
    assert type(got) is BlockMask and got.blocksize == (2, 3)
    np.testing.assert_array_equal(engine.host(got.toarray()), dense_a | dense_b)


def test_a_long_mask_stays_compact():
    """Nothing is expanded: a document mask over a causal one, an element of which is no byte."""
    length, block = 16384, 128
    documents = sg.masks.documents([1000, 15000, 384], block, causal=False, compact=True)
    mask = sg.causal(length, block, compact=True) & documents
    assert mask.nbytes < 2e6
    i, j = [1000, 1000, 15999, 999], [999, 1000, 15000, 1000]
    dense = np.array([bool(mask.tobsr()[int(r), int(c)]) for r, c in zip(i, j)])
    assert dense.tolist() == [False, True, True, False]


@pytest.mark.parametrize("sign", "&|^")
def test_errors(sign):
    operate = dict(zip("&|^", OPERATORS))[sign]
    a = sg.bsr_array(np.eye(4, dtype=bool), blocksize=(2, 2))
    mask = sg.causal(4, 2, compact=True)
    for array, name in ((a, "bsr_array"), (mask, "BlockMask")):
        said = rf"^{name} \{sign}: argument 'other': expected "
        with pytest.raises(TypeError, match=said + "dtype bool"):
            operate(array, np.eye(4))
        with pytest.raises(TypeError, match=said + "a bool bsr_array, .* got int"):
            operate(array, 1)
        with pytest.raises(ValueError, match=said):
            operate(array, sg.causal(6, 2, compact=True))
    with pytest.raises(TypeError, match=rf"^bsr_array \{sign}: argument 'self': .*float64"):
        operate(a.astype("float64"), a)
    with pytest.raises(TypeError, match=r"^bsr_array ~: argument 'self': .*int8"):
        ~a.astype("int8")


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("columns", [[0, 2, 1], [2, 0, 1]])
def test_codes_of_blocks(engine, partial, columns):
    kind = [1, 0, 2 if partial else 1]
    indices, indptr = np.array([*columns, 1]), np.array([0, 3, 4])
    pattern = Pattern(engine.array(indptr), engine.array(indices), (2, 3), (1, 1))
    bits = engine.xp.zeros((2 * partial, 1, 1), np.uint32)
    kinds = engine.array(np.array([*kind, 2 if partial else 0]))
    ordered, packed = canonical_bits(BlockMask(pattern, kinds, bits), "f", "mask")
    assert packed.codes.dtype == ordered._indices.dtype
    codes = [{0: NOTHING, 1: EVERYTHING, 2: 0}[k] for k in kind]
    expected = [codes[i] for i in np.argsort(columns)] + [1 if partial else NOTHING]
    assert engine.host(packed.codes).tolist() == expected
