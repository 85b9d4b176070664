"""What cuSPARSELt computes for us, on a GPU: beside float64 and beside our own kernels."""

import numpy as np
import pytest

import sparsegpu as sg
from covering import covered
from sparsegpu._arrays import bfloat16, float8_e4m3fn
from sparsegpu.engines.cusparselt import availability, library
from sparsegpu.testing import assert_within_bound, random_values

pytestmark = pytest.mark.gpu

HALF, SINGLE, INT8 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.int8)


@pytest.fixture
def vendor(cuda_engine):
    """The cuda engine where the library is, too."""
    error = availability.why_not("tests")
    if error is not None:
        pytest.skip(str(error))
    return cuda_engine


def operands(cp, rng, dtype, m=128, k=256, n=64, order="C"):
    dense = sg.prune_24(
        cp.asarray(random_values(rng, (m, k), dtype)), keep="1:2" if dtype == SINGLE else "2:4"
    )
    return dense, cp.asarray(random_values(rng, (k, n), dtype), order=order)


@covered(dtype=[HALF, bfloat16, SINGLE, INT8], order=["C", "F"], n=[1, 24, 64, 257])
def test_products_in_both_orders(vendor, rng, dtype, order, n):
    cp = vendor.xp
    dense, x = operands(cp, rng, dtype, n=n, order=order)
    A = sg.to_semi_structured(dense, backend="cusparselt")
    tf32 = dtype == SINGLE
    for result_order in ("C", "F"):
        out = cp.empty((128, n), np.int32 if dtype == INT8 else dtype, order=result_order)
        answer = sg.semi_structured_matmul(A, x, out=out, allow_tf32=tf32)
        assert answer is out
        assert_within_bound(out, dense, x, terms=256, allow_tf32=tf32)
        again = out.copy()
        sg.semi_structured_matmul(A, x, out=out, allow_tf32=tf32)
        assert (out == again).all()  # the same bits


@pytest.mark.parametrize("dtype", [HALF, bfloat16, INT8], ids=str)
def test_small_integers_are_exact(vendor, rng, dtype):
    cp = vendor.xp
    dense = sg.prune_24(cp.asarray(rng.integers(-3, 4, (96, 192)).astype(dtype)))
    x = cp.asarray(rng.integers(-3, 4, (192, 40)).astype(dtype))
    ours = sg.to_semi_structured(dense) @ x
    assert (sg.to_semi_structured(dense, backend="cusparselt") @ x == ours).all()


@covered(dtype=[HALF, bfloat16, INT8], activation=[None, "relu"], form=["none", "bias", "whole"])
def test_epilogues_agree_with_the_native_ones(vendor, rng, dtype, activation, form):
    cp = vendor.xp
    dense, x = operands(cp, rng, dtype)
    out_dtype = bfloat16 if dtype == INT8 else dtype
    shape = {"none": None, "bias": (128, 1), "whole": (128, 64)}[form]
    input = None if shape is None else cp.asarray(random_values(rng, shape, out_dtype))
    keywords = dict(activation=activation, out_dtype=out_dtype, alpha=0.25)
    native = sg.to_semi_structured(dense)
    how = {"alpha": 0.25, "beta": 1, "input": input, "activation": activation}
    for sparse in (native, native.to_backend("cusparselt")):
        out = sg.semi_structured_addmm(input, sparse, x, **keywords)
        assert_within_bound(out, dense, x, **how)


@pytest.mark.parametrize("activation", ["gelu", "gelu_erf", "silu"])
def test_our_kernel_finishes_what_the_library_sums(vendor, rng, activation):
    cp = vendor.xp
    dense, x = operands(cp, rng, INT8)
    native = sg.to_semi_structured(dense)
    scales = cp.full(128, 0.01, np.float32), cp.full(64, 0.5, np.float32)
    keywords = dict(activation=activation, out_dtype="float32")
    ours = sg.scaled_mm(native, x, *scales, **keywords)
    theirs = sg.scaled_mm(native.to_backend("cusparselt"), x, *scales, **keywords)
    assert (ours == theirs).all()  # the accumulators are integers, the kernel's formula is ours


def test_fp8(vendor, rng):
    cp = vendor.xp
    values = random_values(rng, (128, 256), float8_e4m3fn)
    native = sg.to_semi_structured(sg.prune_24(cp.asarray(values.view(np.uint8))))
    x = cp.asarray(random_values(rng, (64, 256), float8_e4m3fn).view(np.uint8)).T
    for out_dtype in ("bfloat16", "float32"):
        keywords = dict(out_dtype=out_dtype, dense_dtype="float8_e4m3fn")
        for sparse in (native, native.to_backend("cusparselt")):
            out = sg.scaled_mm(sparse, x, 0.5, 2.0, **keywords)
            a, b = (vendor.host(bits).view(float8_e4m3fn) for bits in (native.todense(), x))
            assert_within_bound(out, a, b)


def test_batches_padding_and_the_other_side(vendor, rng):
    cp = vendor.xp
    dense, _ = operands(cp, rng, bfloat16)
    A = sg.to_semi_structured(dense[:100, :250], pad=True, strict=False)
    B = A.to_backend("cusparselt")
    x = cp.asarray(random_values(rng, (2, 3, 250, 40), bfloat16))
    out = cp.empty((2, 3, 100, 40), bfloat16)
    sg.semi_structured_matmul(B, x, out=out)
    whole = A.todense()
    for i, j in np.ndindex(2, 3):
        assert_within_bound(out[i, j], whole, x[i, j], terms=256)
    left = cp.asarray(random_values(rng, (48, 100), bfloat16))
    assert_within_bound(left @ B, left, whole, terms=256)
    assert_within_bound(B.T @ left.T, whole.T, left.T, terms=256)
    assert B.to_backend("native").backend == "native" and B.get().backend == "native"


def test_no_product_is_made_where_alpha_is_zero(vendor, rng):
    cp = vendor.xp
    dense, x = operands(cp, rng, HALF)
    x[...] = np.nan
    A = sg.to_semi_structured(dense, backend="cusparselt")
    input = cp.asarray(random_values(rng, (128, 64), HALF))
    assert (sg.semi_structured_addmm(input, A, x, alpha=0, beta=2) == 2 * input).all()


def test_float32_only_as_tf32(vendor, rng):
    dense, x = operands(vendor.xp, rng, SINGLE)
    A = sg.to_semi_structured(dense, backend="cusparselt")
    with pytest.raises(NotImplementedError, match=r"allow_tf32=True.*native"):
        A @ x


def test_a_second_call_can_be_captured(vendor, rng):
    cp = vendor.xp
    dense, x = operands(cp, rng, bfloat16)
    A = sg.to_semi_structured(dense, backend="cusparselt")
    out = cp.empty((128, 64), bfloat16)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        sg.semi_structured_matmul(A, x, out=out)
        stream.begin_capture()
        sg.semi_structured_matmul(A, x, out=out)
        graph = stream.end_capture()
        library._plan.cache_clear()  # the graph has what it needs
        x[...] = cp.asarray(random_values(rng, x.shape, bfloat16))
        graph.launch(stream)
    stream.synchronize()
    assert_within_bound(out, dense, x, terms=256)


@pytest.mark.parametrize("op", ["semi_structured_addmm", "semi_structured_linear"])
def test_tune_keeps_what_it_finds(vendor, rng, op, monkeypatch):
    cp = vendor.xp
    kept = []
    monkeypatch.setattr("sparsegpu.tuning.tune_cusparselt.keep", kept.append)
    dense, x = operands(cp, rng, bfloat16)
    A = sg.to_semi_structured(dense, backend="cusparselt")
    x = x if op == "semi_structured_addmm" else cp.ascontiguousarray(x.T)
    config = sg.tune(A, x, op=op, progress=False)
    (winner,) = kept
    assert winner.config == config and winner.kind.family.op == "cusparselt"
    if op == "semi_structured_addmm":
        out = sg.semi_structured_matmul(A, x, config=config)
        assert_within_bound(out, dense, x, terms=256)
    else:
        out = sg.semi_structured_linear(x, A, config=config)
        assert_within_bound(out, x, dense.T, terms=256)


def test_nan_passes_through_relu(vendor, rng):
    dense, x = operands(vendor.xp, rng, HALF)
    A = sg.to_semi_structured(dense, backend="cusparselt")
    x[:, 3] = np.nan
    out = sg.semi_structured_matmul(A, x, activation="relu")
    assert np.isnan(vendor.host(out)[:, 3]).all() and np.isfinite(vendor.host(out)[:, :3]).all()
