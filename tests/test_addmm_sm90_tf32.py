"""float32 operands on the Hopper product, as TF32 where the caller allows it."""

import numpy as np
import pytest

from addmm_cases import check_batches, check_epilogue, laid_out, ragged_operand, small
from sparsegpu import bsr_matmul, dense_bsr_matmul
from sparsegpu.engines.cuda.runtime.hopper_tile import hopper_tile
from sparsegpu.testing import assert_within_bound, random_values

BLOCKS = [(16, 8), (16, 16), (32, 32), (48, 24), (64, 16), (64, 64), (128, 32), (144, 40)]
TF32 = {"config": {"path": "wgmma"}, "allow_tf32": True}


@pytest.mark.parametrize("blocksize", BLOCKS)
@pytest.mark.parametrize("n", [17, 100, 256, 4096])
def test_tile_fits(blocksize, n):
    tile = hopper_tile(np.dtype("float32"), blocksize, n, False)
    assert tile.stages >= 3 and tile.shared_memory <= 227 * 1024
    assert tile.step_k in {8, 16, 32} and blocksize[1] % tile.step_k == 0
    assert hopper_tile(np.dtype("float32"), blocksize, n, True) is None


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", BLOCKS)
@pytest.mark.parametrize("layout", ["rows", "columns", "strided", "backwards"])
@pytest.mark.parametrize("n", [17, 100, 520])
def test_exact_on_small_integers(hopper, rng, blocksize, layout, n):
    a = ragged_operand(hopper, rng, blocksize)
    x = small(rng, (a.dense.shape[1], n))
    kernels = ["bsr_addmm_sm90"]
    if layout != "columns":
        kernels.append("dense_lines")
    with hopper.runs(*kernels):
        out = bsr_matmul(a.bsr, laid_out(hopper, x, layout), **TF32)
    np.testing.assert_array_equal(hopper.host(out), a.dense @ x)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (64, 64)])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_within_the_bound_of_tf32(hopper, rng, blocksize, layout):
    """Rounded or cut off, what TF32 lacks of two operands is at most 2**-9 of a product."""
    a = ragged_operand(hopper, rng, blocksize, small_integers=False, duplicates=False)
    x = random_values(rng, (a.dense.shape[1], 200), "float32")
    with hopper.runs("bsr_addmm_sm90"):
        out = bsr_matmul(a.bsr, laid_out(hopper, x, layout), **TF32)
    assert_within_bound(hopper.host(out), a.dense, x, dtype="float32", allow_tf32=True)


@pytest.mark.gpu
@pytest.mark.parametrize("blocksize", [(16, 16), (128, 32)])
@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16"])
def test_epilogue(hopper, rng, blocksize, out_dtype):
    a = ragged_operand(hopper, rng, blocksize, small_integers=False, duplicates=False)
    how = {"kernels": ["bsr_addmm_sm90", "dense_lines"], "dtype": "float32", "activation": "gelu"}
    check_epilogue(hopper, rng, a.bsr, a.dense, out_dtype, **how, **TF32)


@pytest.mark.gpu
def test_batches(hopper, rng):
    how = {"kernels": ["bsr_addmm_sm90", "dense_lines"], "dtype": "float32"}
    check_batches(hopper, rng, (32, 32), **how, **TF32)


@pytest.mark.gpu
def test_what_is_left_to_others(hopper, rng):
    """IEEE products, and blocks that lie transposed: wgmma takes TF32 with k contiguous only."""
    a = ragged_operand(hopper, rng, (64, 64))
    x, y = small(rng, (a.dense.shape[1], 48)), small(rng, (48, a.dense.shape[0]))
    with pytest.raises(ValueError, match=r"config\['path'\].*not for 'wgmma'"):
        bsr_matmul(a.bsr, hopper.array(x), config=TF32["config"])
    with pytest.raises(ValueError, match=r"config\['path'\].*not for 'wgmma'"):
        dense_bsr_matmul(hopper.array(y), a.bsr, **TF32)
    with hopper.runs("bsr_addmm_sm80"):
        out = dense_bsr_matmul(hopper.array(y), a.bsr, allow_tf32=True)
    np.testing.assert_array_equal(hopper.host(out), y @ a.dense)
