"""Long int8 sums of 2:4 products: half of K is stored. See `test_long_sums.py`."""

from itertools import pairwise

import numpy as np
import pytest

import sparsegpu as sg
from long_sums_cases import LARGEST, assert_equal, bsr, ones, product, random_int8
from semi_structured_cases import KERNEL
from sparsegpu.engines.cusparselt import availability

K = 1 << 18  # 131,072 stored products, one more than int32 holds the sum of


def two_of_four(rng, m, k):
    """Return a dense 2:4 matrix whose long sums leave int32."""
    dense = random_int8(rng, (m, k))
    groups = dense[:, : k // 4 * 4].reshape(m, -1, 4)
    groups[np.arange(m)[:, None], np.arange(k // 4), rng.integers(0, 2, (m, k // 4))] = 0
    groups[..., rng.integers(2, 4)] = 0
    return dense


@pytest.mark.parametrize("k", [K - 64, K])
def test_at_the_limit(engine, k):
    dense = np.zeros((16, k), np.int8)
    dense.reshape(-1, 4)[:, :2] = -128
    a, x = sg.to_semi_structured(engine.array(dense)), ones(engine, k, 3)
    with engine.runs(KERNEL):
        out, wide = a @ x, sg.semi_structured_matmul(a, x, out_dtype="float32")
    assert_equal(engine, out, np.full((16, 3), k // 2 * 2**14), "int32")
    assert_equal(engine, wide, np.full((16, 3), k // 2 * 2**14), "float32")


@pytest.mark.parametrize("shape", [(32, 2 * K + 64), (21, K + 60_008)])
def test_formula(engine, rng, shape):
    m, k = shape
    dense, x = two_of_four(rng, m, k), random_int8(rng, (2, k, 2))
    a = sg.to_semi_structured(engine.array(dense), pad=True)
    exact = product(dense, x)
    assert exact.max() > LARGEST
    input, left = random_int8(rng, (m, 2)), np.linspace(-3, 3, m).astype(np.float32)
    operands = engine.array(input), a, engine.array(x)
    with engine.runs(KERNEL):
        plain = a @ engine.array(x)
        whole = sg.semi_structured_addmm(*operands, alpha=-2, beta=3, activation="relu")
        scaled = sg.semi_structured_addmm(
            *operands, alpha=0.5, left_alpha=engine.array(left), out_dtype="bfloat16"
        )
        small = sg.semi_structured_addmm(*operands, alpha=2.0**-26, out_dtype="int8")
    assert_equal(engine, plain, exact, "int32")
    assert_equal(engine, whole, np.maximum(3 * input.astype(np.int64) - 2 * exact, 0), "int32")
    assert_equal(engine, scaled, left[:, None] * (0.5 * exact) + input)
    assert_equal(engine, small, 2.0**-26 * exact + input, "int8")


def test_from_the_right(engine, rng):
    weight, x = two_of_four(rng, 16, K + 65_536), random_int8(rng, (3, K + 65_536))
    a, bias = sg.to_semi_structured(engine.array(weight)), random_int8(rng, (16,))
    exact = product(x, weight.T)
    assert exact.max() > LARGEST
    with engine.runs(KERNEL):
        out = sg.semi_structured_linear(engine.array(x), a, engine.array(bias))
    assert_equal(engine, out, exact + bias, "int32")
    # The transpose of this one is not 2:4: it is kept as two, side by side.
    tall = random_int8(rng, (K // 2 + 32_768, 64))
    tall[:, 2::4] = tall[:, 3::4] = 0
    a, x = sg.to_semi_structured(engine.array(tall)), random_int8(rng, (3, K // 2 + 32_768))
    exact = product(x, tall)
    assert exact.max() > LARGEST
    with engine.runs(KERNEL):
        assert_equal(engine, engine.array(x) @ a, exact, "int32")


def test_scaled_mm(engine, rng):
    dense, x = two_of_four(rng, 16, 2 * K), random_int8(rng, (2 * K, 2))
    rows, columns = np.linspace(1, 2, 16).astype(np.float32), np.float32([2**-20, -1])
    a, scales = sg.to_semi_structured(engine.array(dense)), map(engine.array, (rows, columns))
    with engine.runs(KERNEL):
        out = sg.scaled_mm(a, engine.array(x), *scales, out_dtype="float32")
    assert_equal(engine, out, rows[:, None].astype(np.float64) * product(dense, x) * columns)


def test_cusparselt_leaves_them_to_the_native_kernels(cuda_engine, rng):
    error = availability.why_not("tests")
    if error is not None:
        pytest.skip(str(error))
    dense, x = two_of_four(rng, 32, 2 * K), cuda_engine.array(random_int8(rng, (2 * K, 16)))
    a = sg.to_semi_structured(cuda_engine.array(dense), backend="cusparselt")
    with cuda_engine.runs(KERNEL):
        out = a @ x
    assert_equal(cuda_engine, out, product(dense, x), "int32")
    with pytest.raises(NotImplementedError, match="an algorithm of cuSPARSELt's for int8 rows"):
        sg.semi_structured_matmul(a, x, config={"path": "cusparselt"})


def test_a_second_call_can_be_captured(cuda_engine, rng):
    dense = two_of_four(rng, 16, K)
    a, x = sg.to_semi_structured(cuda_engine.array(dense)), ones(cuda_engine, K, 16)
    out = a @ x
    with cuda_engine.side_stream() as stream:
        graph = cuda_engine.captured(lambda: sg.semi_structured_matmul(a, x, out=out))
        out.fill(0)
        graph.launch(stream)
    assert_equal(cuda_engine, out, product(dense, cuda_engine.host(x)), "int32")


def test_blocks_of_two_of_four(engine, rng, cuts):
    counts = np.array([2, 0, 1300])  # 128 products a block
    data = random_int8(rng, (counts.sum(), 16, 256))
    data.reshape(-1, 4)[:, 2:] = 0
    indices, indptr = rng.integers(0, 40, len(data)), np.concatenate([[0], np.cumsum(counts)])
    a = bsr(engine, data, indices, indptr, 40 * 256)
    sparse, x = a.semi_structured(), random_int8(rng, (40 * 256, 2))
    panels = x.reshape(40, 256, 2).astype(np.float64)[indices]
    terms = data.astype(np.float64) @ panels
    exact = np.stack([terms[i:j].sum(axis=0) for i, j in pairwise(indptr)])
    exact = exact.reshape(48, 2).astype(np.int64)
    assert exact.max() > LARGEST
    with engine.runs("bsr_semi_structured_addmm"):
        out = sparse @ engine.array(x)
    assert_equal(engine, out, exact, "int32")
    assert len(cuts) == 1
    with engine.runs("bsr_semi_structured_addmm"):
        out = sg.bsr_matmul(sparse, engine.array(x), out_dtype="bfloat16", alpha=0.5)
    assert_equal(engine, out, exact * 0.5)
    assert len(cuts) == 1
