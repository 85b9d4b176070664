"""The BSR products in every engine: values, layouts, batches, sizes, errors.

Each product is held against the dense one: bit by bit on small integers, whose sums are exact,
and within the contract's bound on normal data.
"""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sparsegpu
from addmm_cases import DTYPES, LAYOUTS, Operand, small
from covering import covered
from path_contract import Batches, Bsr, Epilogues, FromTheRight, Patterns, Products, UnalignedBlocks
from properties import drawn
from sparsegpu import bsr_addmm, bsr_matmul, dense_bsr_matmul, int_bsr_addmm
from sparsegpu.testing import assert_within_bound, random_values

BLOCKSIZES = [(1, 1), (2, 3), (8, 8), (5, 16), (16, 16), (24, 48), (33, 7), (70, 40)]


class TestEveryEngine(Bsr, FromTheRight, UnalignedBlocks, Products, Patterns, Epilogues, Batches):
    """Every block with float32, every dtype with a block of odd sides and one of even sides.

    Of blocks the engines see no more of the dtype than its size and its arithmetic.
    """

    SOURCE = "bsr_addmm"
    RIGHT = [*product(DTYPES, [(5, 16), (2, 3)])]
    CASES = [
        *(("float32", size) for size in BLOCKSIZES),
        *RIGHT[:4],
        *RIGHT[6:],
        ("int8", (70, 40)),
    ]
    LAYOUTS, COLUMNS = LAYOUTS, [1, 67]
    ACTIVATIONS = [None, "relu", "gelu", "gelu_erf", "silu"]


# -- values -------------------------------------------------------------------------------------


@drawn(20)
@given(
    dtype=st.sampled_from(DTYPES),
    blocksize=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    blocks=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    n=st.integers(1, 70),
    density=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_random_shapes(engine, dtype, blocksize, blocks, n, density, seed):
    rng = np.random.default_rng(seed)
    shape = (blocksize[0] * blocks[0], blocksize[1] * blocks[1])
    a = Operand(engine, rng, shape, blocksize, dtype, density=density)
    x = small(rng, (shape[1], n), dtype)
    with engine.runs("bsr_addmm"):
        out = bsr_matmul(a.bsr, engine.array(x))
    product = a.dense @ x.astype(a.dense.dtype)
    np.testing.assert_array_equal(engine.host(out), product.astype(out.dtype))


@pytest.mark.parametrize("blocksize", [(256, 256), (256, 1), (1, 256)])
def test_largest_blocks(engine, rng, blocksize):
    a = Operand(engine, rng, (512, 512), blocksize, "float32", density=0.3)
    x = small(rng, (512, 9))
    with engine.runs("bsr_addmm"):
        out = bsr_matmul(a.bsr, engine.array(x))
    np.testing.assert_array_equal(engine.host(out), a.dense @ x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
def test_long_sums_of_small_integers_are_exact(engine, rng, dtype):
    a = Operand(engine, rng, (16, 8192), (16, 32), dtype, density=1, duplicates=False)
    x = small(rng, (8192, 8), dtype)
    wide = "int32" if dtype == "int8" else "float32"
    with engine.runs("bsr_addmm"):
        out = bsr_matmul(a.bsr, engine.array(x), out_dtype=wide)
    np.testing.assert_array_equal(engine.host(out), a.dense @ x.astype(a.dense.dtype))


def test_float32_is_ieee_unless_tf32_is_allowed(engine, rng):
    """1 + 2**-12 is a float32, and no TF32."""
    near_one = np.float32(1 + 2.0**-12)
    a = sparsegpu.bsr_array(
        engine.array(np.kron(np.eye(2), np.full((16, 16), near_one)).astype(np.float32)),
        blocksize=(16, 16),
    )
    x = np.zeros((32, 16), np.float32)
    x[::16] = 1
    with engine.runs("bsr_addmm"):
        out = bsr_matmul(a, engine.array(x))
    assert (engine.host(out) == near_one).all()
    # Stored twice, a block is multiplied twice: what TF32 cuts off is not of their sum.
    b = Operand(engine, rng, (48, 64), (16, 16), small_integers=False, duplicates=False)
    y = random_values(rng, (64, 40), "float32")
    with engine.runs("bsr_addmm"):
        out = bsr_matmul(b.bsr, engine.array(y), allow_tf32=True)
    assert_within_bound(out, b.dense, y, dtype="float32", allow_tf32=True)
    c = Operand(engine, rng, (48, 64), (16, 16))
    y = small(rng, (64, 40))
    with engine.runs("bsr_addmm"):
        out = bsr_matmul(c.bsr, engine.array(y), allow_tf32=True)
    np.testing.assert_array_equal(engine.host(out), c.dense @ y)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_nan_and_infinity_stay_where_they_belong(engine, rng, dtype):
    """Padding of tiles is not multiplied into anybody's result."""
    blocksize, shape = (10, 9), (60, 72)
    a = Operand(engine, rng, shape, blocksize, dtype, density=0.5, duplicates=False)
    x = small(rng, (72, 19), dtype)
    clean = a.dense @ x.astype(np.float64)
    poisoned = a.data.copy()
    poisoned[0, 3, 2] = np.nan
    bad_row = int(np.searchsorted(a.indptr, 0, side="right") - 1) * 10 + 3
    bsr = a.bsr.with_data(engine.array(poisoned))
    with engine.runs("bsr_addmm"):
        out = engine.host(bsr_matmul(bsr, engine.array(x)))
    assert np.isnan(out[bad_row]).all()
    rest = np.arange(60) != bad_row
    np.testing.assert_array_equal(out[rest], clean[rest].astype(dtype))
    x[18, 18] = np.inf  # in block row 2 of x
    meets = (a.dense[:, 18:27] != 0).reshape(6, 10, 9).any((1, 2)).repeat(10)
    with engine.runs("bsr_addmm"):
        out = engine.host(bsr_matmul(a.bsr, engine.array(x)))
    np.testing.assert_array_equal(out[:, :18], clean[:, :18].astype(dtype))
    np.testing.assert_array_equal(out[~meets], clean[~meets].astype(dtype))
    assert not np.isfinite(out[meets, 18]).all()


# -- layouts ------------------------------------------------------------------------------------


@covered(allow_tf32=[False, True], blocksize=[(16, 16), (4, 6)])
def test_broadcast_dense_is_not_expanded(engine, rng, blocksize, allow_tf32):
    a = Operand(engine, rng, (48, 48), blocksize)
    column = engine.array(small(rng, (48, 1)))
    x = engine.xp.broadcast_to(column, (48, 20))
    with engine.runs("bsr_addmm"):
        out = bsr_matmul(a.bsr, x, allow_tf32=allow_tf32)
    np.testing.assert_array_equal(engine.host(out), a.dense @ engine.host(x).astype(np.float64))


@pytest.mark.parametrize("blocksize", [(16, 16), (4, 6)])
def test_strided_blocks(engine, rng, blocksize):
    """A.data is the user's: any strides."""
    a = Operand(engine, rng, (48, 48), blocksize, "float16")
    swapped = np.ascontiguousarray(a.data.swapaxes(-1, -2))
    data = engine.array(swapped).swapaxes(-1, -2)
    every_second = engine.array(np.repeat(a.data, 2, axis=0))[::2]
    x = small(rng, (48, 24), "float16")
    for values in (data, every_second):
        with engine.runs("bsr_addmm"):
            out = bsr_matmul(a.bsr.with_data(values), engine.array(x))
        np.testing.assert_array_equal(engine.host(out), a.dense @ x.astype(np.float64))


def test_complex_numbers_that_begin_at_any_float(engine, rng):
    """The GPU loads both halves at once: it refuses them, where a load would end all its work."""
    a = Operand(engine, rng, (6, 8), (2, 4), "complex128", density=1.0)
    x = engine.xp.zeros(1 + 2 * 8 * 3)[1:].view("complex128").reshape(8, 3)
    if engine.on_gpu:
        with pytest.raises(ValueError, match=r"address.*a multiple of the item size 16"):
            bsr_matmul(a.bsr, x)
        return
    x[...] = small(rng, x.shape, "complex128")
    np.testing.assert_array_equal(bsr_matmul(a.bsr, x), a.dense @ x)


# -- batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern_batch", "dense_batch"),
    [
        ((), (3,)),
        ((2,), ()),
        ((2,), (2,)),
        ((2, 1), (3,)),
        ((1,), (4,)),
        ((2,), (2, 2)),
        ((0,), ()),
    ],
)
@pytest.mark.parametrize(("dtype", "blocksize"), [("float16", (8, 16)), ("float32", (3, 4))])
def test_batches_broadcast(engine, rng, dtype, blocksize, pattern_batch, dense_batch):
    shape = (24, 48)
    a = Operand(engine, rng, shape, blocksize, dtype, batch=pattern_batch)
    x = small(rng, (*dense_batch, 48, 10), dtype)
    bias = small(rng, (*np.broadcast_shapes(pattern_batch, dense_batch), 24, 1), dtype)
    scale = small(rng, (*dense_batch, 24), dtype)
    empty = 0 in pattern_batch
    with engine.runs(None if empty else "bsr_addmm"):
        out = bsr_addmm(
            engine.array(bias),
            a.bsr,
            engine.array(x),
            beta=2,
            left_alpha=engine.array(scale),
        )
    product = a.dense @ x.astype(np.float64)
    expected = 2 * bias.astype(np.float64) + scale.astype(np.float64)[..., None] * product
    np.testing.assert_array_equal(engine.host(out), expected.astype(dtype))


# -- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "n", "batch"),
    [((0, 16), 5, ()), ((16, 0), 5, ()), ((16, 16), 0, ()), ((0, 0), 0, ()), ((16, 16), 5, (0,))],
)
def test_zero_sizes(engine, rng, shape, n, batch):
    indptr = np.zeros(shape[0] // 8 + 1, np.int32)
    empty = (np.zeros((0, 8, 8), np.float32), np.zeros(0, np.int32), indptr)
    bsr = engine.bsr(empty, shape)
    x = engine.array(np.ones((*batch, shape[1], n), np.float32))
    bias = engine.array(np.ones((shape[0], 1), np.float32))
    with engine.runs("bsr_addmm" if n and any(shape) and 0 not in batch else None):
        out = bsr_addmm(bias, bsr, x)
        other = dense_bsr_matmul(engine.array(np.ones((*batch, n, shape[0]), np.float32)), bsr)
    assert out.shape == (*batch, shape[0], n) and (engine.host(out) == 1).all()
    assert other.shape == (*batch, n, shape[1]) and (engine.host(other) == 0).all()


@covered(dtype=["float16", "float64", "int8"], blocksize=[(1, 1), (16, 16), (3, 40)])
def test_vector(engine, rng, dtype, blocksize):
    shape = (48, 80)
    a = Operand(engine, rng, shape, blocksize, dtype, batch=(2,))
    x, y = small(rng, (80,), dtype), small(rng, (48,), dtype)
    bias = small(rng, (48,), dtype)
    with engine.runs("bsr_addmm"):
        right = bsr_addmm(engine.array(bias), a.bsr, engine.array(x), beta=2)
        left = dense_bsr_matmul(engine.array(y), a.bsr)
    wide = a.dense.dtype
    np.testing.assert_array_equal(
        engine.host(right), 2 * bias.astype(wide) + a.dense @ x.astype(wide)
    )
    np.testing.assert_array_equal(engine.host(left), y.astype(wide) @ a.dense)


# -- the other side -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("blocksize", "m"), [((16, 16), 33), ((3, 8), 5), ((24, 8), 64)])
def test_dense_times_bsr(engine, rng, dtype, blocksize, m):
    a = Operand(engine, rng, (48, 64), blocksize, dtype, batch=(2,))
    x = small(rng, (m, 48), dtype)
    left, right = small(rng, (m,), dtype), small(rng, (2, 64), dtype)
    bias = small(rng, (1, 64), dtype)
    wide = a.dense.dtype
    product = left.astype(wide)[:, None] * (x.astype(wide) @ a.dense) * right.astype(wide)[:, None]
    expected = bias.astype(wide) + 2 * product
    kept = np.dtype("int32") if dtype == "int8" else x.dtype
    out = engine.xp.zeros((2, m, 64), kept)
    with engine.runs("bsr_addmm"):
        result = dense_bsr_matmul(
            engine.array(x),
            a.bsr,
            input=engine.array(bias),
            beta=1,
            alpha=2,
            left_alpha=engine.array(left),
            right_alpha=engine.array(right),
            out=out,
        )
    assert result is out
    np.testing.assert_array_equal(engine.host(out), expected.astype(kept))


@pytest.mark.parametrize(
    ("pattern_batch", "dense_batch"), [((2,), ()), ((), (3,)), ((2, 1), (3,)), ((2,), (2, 2))]
)
@pytest.mark.parametrize(("dtype", "blocksize"), [("float16", (16, 8)), ("float32", (4, 3))])
def test_dense_times_bsr_batches_broadcast(
    engine, rng, dtype, blocksize, pattern_batch, dense_batch
):
    a = Operand(engine, rng, (48, 24), blocksize, dtype, batch=pattern_batch)
    x = small(rng, (*dense_batch, 10, 48), dtype)
    with engine.runs("bsr_addmm"):
        out = dense_bsr_matmul(engine.array(x), a.bsr)
    expected = x.astype(np.float64) @ a.dense
    np.testing.assert_array_equal(engine.host(out), expected.astype(dtype))


# -- errors -------------------------------------------------------------------------------------


def test_errors_name_what_is_wrong(engine, rng):
    a = Operand(engine, rng, (48, 32), (16, 16))
    x = engine.array(np.ones((32, 5), np.float32))
    bsr, f64 = a.bsr, engine.array(np.ones((48, 1)))
    cases = [
        (TypeError, r"bsr_addmm: argument 'bsr'", lambda: bsr_addmm(None, x, x)),
        (ValueError, r"'dense': expected at least one", lambda: bsr_addmm(None, bsr, x[0, 0])),
        (ValueError, r"'dense': expected shape", lambda: bsr_addmm(None, bsr, x[:31])),
        (ValueError, r"'dense': .*M, 48", lambda: dense_bsr_matmul(x.T, bsr)),
        (TypeError, r"'input': expected dtype", lambda: bsr_addmm(f64, bsr, x)),
        (ValueError, r"'input': .*broadcasts", lambda: bsr_addmm(x[:7], bsr, x)),
        (ValueError, r"'left_alpha'", lambda: bsr_matmul(bsr, x, left_alpha=x[:, 0])),
        (ValueError, r"'right_alpha'", lambda: bsr_matmul(bsr, x, right_alpha=x[:, 0])),
        (ValueError, r"'activation': .*'relu'", lambda: bsr_matmul(bsr, x, activation="tanh")),
        (TypeError, r"'alpha'", lambda: bsr_matmul(bsr, x, alpha=1j)),
        (TypeError, r"'out_dtype'", lambda: bsr_matmul(bsr, x, out_dtype="int8")),
        (TypeError, r"int_bsr_addmm: .*int8", lambda: int_bsr_addmm(None, bsr, x)),
    ]
    for kind, message, call in cases:
        with sparsegpu.use_engine(engine.name), pytest.raises(kind, match=message):
            call()
