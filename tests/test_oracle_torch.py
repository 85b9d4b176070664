"""Our 2:4 formats beside torch's own, bit for bit, where torch is installed with a GPU.

torch's CUTLASS conversions are what others' checkpoints were written with, so being equal to them
is what the layout promises. They are oracles here, nothing is required of torch elsewhere.
"""

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from sparsegpu._arrays import dtype_of
from sparsegpu._format_24 import FORMATS
from sparsegpu.testing import random_values

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

DTYPES = ["float16", "bfloat16", "float32", "int8"]
#: In the smallest matrix that a dtype's format allows: once, wide, tall, many, prime.
SHAPES = [(1, 1), (1, 9), (9, 1), (2, 2), (3, 5), (8, 16), (13, 11), (31, 37)]


@pytest.fixture
def cp(cuda_engine):
    return cuda_engine.xp


def pruned(cp, rng, shape, dtype, zeros=0.0):
    """Return a 2:4 matrix; with ``zeros``, of groups that hold fewer values or none, too."""
    values = random_values(rng, shape, dtype)
    values[rng.random(shape) < zeros] = 0
    dense = cp.asarray(values)
    return sg.prune_24(dense, keep="1:2" if dtype == "float32" else "2:4")


def shape_of(times, dtype):
    form = FORMATS[dtype_of(dtype)]
    return times[0] * form.rows, times[1] * form.columns


def bits(array):
    """Return raw bits, so that -0.0 and NaN count too."""
    return array.view(f"uint{8 * array.itemsize}")


@covered(dtype=DTYPES, times=SHAPES)
def test_compression_equals_torch_s(cp, rng, times, dtype):
    conversions = pytest.importorskip("torch.sparse._semi_structured_conversions")
    dense = pruned(cp, rng, shape_of(times, dtype), dtype, zeros=0.3)
    theirs, their_meta = conversions.sparse_semi_structured_from_dense_cutlass(
        torch.from_dlpack(dense)
    )
    packed, meta = sg.semi_structured_from_dense(dense)
    assert (bits(packed) == bits(cp.from_dlpack(theirs))).all()
    assert (meta == cp.from_dlpack(their_meta).reshape(meta.shape)).all()
    back = conversions.sparse_semi_structured_to_dense_cutlass(
        torch.from_dlpack(packed), torch.from_dlpack(meta)
    )
    assert (bits(cp.from_dlpack(back)) == bits(dense)).all()
    assert (bits(sg.semi_structured_to_dense(packed, meta)) == bits(dense)).all()


@covered(dtype=DTYPES, times=SHAPES)
def test_torch_s_matrices_are_read(cp, rng, times, dtype):
    """What torch compressed is expanded, restored and multiplied as our own."""
    conversions = pytest.importorskip("torch.sparse._semi_structured_conversions")
    dense = pruned(cp, rng, shape_of(times, dtype), dtype, zeros=0.3)
    theirs, their_meta = conversions.sparse_semi_structured_from_dense_cutlass(
        torch.from_dlpack(dense)
    )
    packed, meta = cp.from_dlpack(theirs), cp.from_dlpack(their_meta)
    meta = meta.reshape(packed.shape[0], -1)
    assert (bits(sg.semi_structured_to_dense(packed, meta)) == bits(dense)).all()
    matrix = sg.SemiStructuredArray(dense.shape, packed, meta)
    x = cp.asarray(random_values(rng, (dense.shape[1], 5), dtype, small_integers=True))
    sg.testing.assert_within_bound(matrix @ x, dense, x)


@covered(dtype=["int16", "int32"], times=SHAPES)
def test_metadata_is_where_torch_puts_it(cp, times, dtype):
    conversions = pytest.importorskip("torch.sparse._semi_structured_conversions")
    m, columns = times[0] * (32 if dtype == "int16" else 16), 2 * times[1]
    theirs = conversions._calculate_meta_reordering_scatter_offsets(
        m, columns, getattr(torch, dtype), "cuda"
    )
    ours = sg.meta_reorder_offsets(m, columns, dtype, cp)
    assert (ours == cp.from_dlpack(theirs)).all()


@covered(dtype=["float16", "bfloat16"], shape=[(128, 128), (128, 256), (384, 256)])
def test_tiles_keep_what_torch_keeps(cp, rng, shape, dtype):
    # Distinct values in every tile: torch leaves open which of two equal ones it keeps.
    order = rng.random((shape[0] // 4, shape[1] // 4, 16)).argsort(axis=-1) - 7.5
    tiles = order.reshape(shape[0] // 4, shape[1] // 4, 4, 4).transpose(0, 2, 1, 3)
    dense = cp.asarray(tiles.reshape(shape).astype(dtype_of(dtype)))
    # The bitmask says which values are kept. torch's packed forms are not compared: where the
    # greedy choice leaves a group with one value, its codes name that place twice.
    bitmask = torch._sparse_semi_structured_tile(torch.from_dlpack(dense), "", True)[-1]
    ours = sg.semi_structured_tile(dense, "largest_values_greedy")[-1]
    assert (ours.ravel() == cp.from_dlpack(bitmask.contiguous()).ravel()).all()


@covered(dtype=["float16", "bfloat16"], shape=[(128, 128), (256, 384)])
def test_vendor_layout_equals_cusparselt_s(cp, rng, shape, dtype):
    if not torch.backends.cusparselt.is_available():
        pytest.skip("torch was built without cuSPARSELt")
    # Two values in every group: of zeros the library keeps others than CUTLASS's rule.
    dense = pruned(cp, rng, shape, dtype)
    theirs = torch._cslt_compress(torch.from_dlpack(dense))
    packed, meta = sg.semi_structured_from_dense(dense)
    ours = sg.to_cusparselt_layout(packed, meta)
    assert (bits(ours) == bits(cp.from_dlpack(theirs)).ravel()).all()
    again, again_meta = sg.from_cusparselt_layout(ours, shape)
    assert (bits(again) == bits(packed)).all() and (again_meta == meta).all()


def test_products_agree_with_cusparselt(cp, rng):
    """Both within the bound of the same float64 product, so of each other."""
    if not torch.backends.cusparselt.is_available():
        pytest.skip("torch was built without cuSPARSELt")
    dense = pruned(cp, rng, (256, 512), "bfloat16")
    x = cp.asarray(random_values(rng, (512, 128), "bfloat16"))
    theirs = torch._cslt_sparse_mm(
        torch._cslt_compress(torch.from_dlpack(dense)), torch.from_dlpack(x)
    )
    ours = sg.to_semi_structured(dense) @ x
    for out in (ours, cp.from_dlpack(theirs)):
        sg.testing.assert_within_bound(out, dense, x, terms=256)
    assert np.isfinite(ours.astype("float32").get()).all()
