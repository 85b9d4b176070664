"""Replayed products on the GPU: what was launched before is launched again, and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import sparsegpu
from addmm_cases import Operand, small
from sparsegpu.engines.cuda.runtime import replay
from sparsegpu.ops import _bsr_product, _product_24

pytestmark = pytest.mark.gpu


@dataclass
class Products:
    """The products of a kind of sparse matrix, and one such matrix."""

    kernel: str
    sparse: Any
    values: Any
    matmul: Callable
    addmm: Callable
    from_the_right: Callable

    def expected(self, x):
        return self.sparse.toarray().astype("float64") @ x.astype("float64")

    def calls(self) -> int:
        """Return how many calls of products are kept."""
        bsr = self.kernel == "bsr_addmm"
        kept = self.sparse.pattern.kept if bsr else self.sparse.held(False)[0].kept
        keys = [key for workspace in kept.values() for key in workspace.calls]
        return sum(key[0] == self.kernel for key in keys)


def bsr(engine, rng) -> Products:
    a = Operand(engine, rng, (64, 128), (16, 16), "float16", duplicates=False).bsr
    names = "bsr_matmul", "bsr_addmm", "dense_bsr_matmul"
    return Products("bsr_addmm", a, a.data, *(getattr(sparsegpu, name) for name in names))


def two_of_four(engine, rng) -> Products:
    from sparsegpu.ops.semi_structured import dense_semi_structured_matmul

    pruned = sparsegpu.prune_24(engine.array(small(rng, (64, 128), "float16")))
    a = sparsegpu.to_semi_structured(pruned)
    products = sparsegpu.semi_structured_matmul, sparsegpu.semi_structured_addmm
    return Products("semi_structured_addmm", a, a.packed, *products, dense_semi_structured_matmul)


@pytest.fixture(params=[bsr, two_of_four])
def a(request, cuda_engine, rng):
    return request.param(cuda_engine, rng)


@pytest.fixture
def x(cuda_engine, rng):
    return cuda_engine.array(small(rng, (128, 40), "float16"))


@pytest.fixture
def checks(monkeypatch):
    """Count the calls that are checked, which replayed ones are not."""
    made, check = [], _bsr_product.check_product
    for module in (_bsr_product, _product_24):
        monkeypatch.setattr(
            module, "check_product", lambda *a, **k: made.append(1) or check(*a, **k)
        )
    return made


def test_values_are_read_anew(cuda_engine, a, x, checks):
    out = cuda_engine.xp.empty((64, 40), "float16")
    with cuda_engine.runs(a.kernel):
        for step in range(4):
            a.values[...] = a.values + 1
            x[...] = -x
            out.fill(np.nan)
            assert a.matmul(a.sparse, x, out=out) is out
            assert (out == a.expected(x)).all(), step
    assert len(checks) == 1


def test_new_results_are_allocated(a, x, checks):
    kept = [a.sparse @ x for _ in range(3)]
    assert len({r.data.ptr for r in kept}) == 3 and len(checks) == 3
    del kept
    for _ in range(3):
        result = a.sparse @ x
        assert (result == a.expected(x)).all()
        del result
    assert len(checks) == 3


def test_what_differs_is_checked_again(cuda_engine, a, x, checks):
    out = cuda_engine.xp.empty((64, 40), "float16")
    bias = cuda_engine.xp.ones((64, 1), "float16")
    calls = [
        lambda: a.matmul(a.sparse, x, out=out),
        lambda: a.matmul(a.sparse, x, out=out, alpha=2),
        lambda: a.matmul(a.sparse, x, out=out, activation="relu"),
        lambda: a.addmm(bias, a.sparse, x, out=out),
        lambda: a.addmm(bias, a.sparse, x, out=out, left_alpha=bias.ravel()),
        lambda: a.matmul(a.sparse, x[:, :32], out=out[:, :32]),
        lambda: a.matmul(a.sparse, x, out=out, config={"path": "simt"}),
        lambda: a.from_the_right(out[:, :40].T[:, :64], a.sparse, out_dtype="float32"),
    ]
    for call in calls:
        call()
    assert len(checks) == len(calls)
    with pytest.raises(ValueError, match="dense"):
        a.matmul(a.sparse, x[:80], out=out)
    with pytest.raises(ValueError, match="out"):
        a.matmul(a.sparse, x, out=out[:, :39])


def test_other_values_are_checked_again(cuda_engine, rng, checks):
    a = bsr(cuda_engine, rng).sparse
    x = cuda_engine.array(small(rng, (128, 40), "float16"))
    for operand in (a, a.with_data(a.data.copy())):
        sparsegpu.bsr_matmul(operand, x)
    assert len(checks) == 2


def test_settings_are_told_apart_by_type(cuda_engine, a, x, checks):
    out, wide = (cuda_engine.xp.empty((64, 40), dtype) for dtype in ("float16", "float32"))
    for _ in range(2):
        for alpha in (1, 1.0, True, np.float64(1), np.float32(1)):
            assert (a.matmul(a.sparse, x, alpha=alpha, out=out) == a.expected(x)).all()
        a.matmul(a.sparse, x, out=wide, out_dtype=np.dtype("float32"))
        assert (wide == a.expected(x)).all()
    assert len(checks) == a.calls() == 6


def test_other_settings_are_checked_again(cuda_engine, a, x, checks):
    """An array of no dimensions may hold another number by then."""
    out, alpha = cuda_engine.xp.empty((64, 40), "float16"), np.array(1.0)
    for _ in range(2):
        alpha[...] *= 2
        a.matmul(a.sparse, x, alpha=alpha, out=out)
        assert (out == float(alpha) * a.expected(x)).all()
    assert len(checks) == 2 and a.calls() == 0


def test_both_sides_of_a_square_24_matrix(cuda_engine, rng, checks):
    """`A @ x` and `A.T @ x` share what they keep, and are told apart."""
    rows, columns = np.indices((64, 64))
    weight = small(rng, (64, 64), "float16") * ((rows + columns) % 2 == 0)
    a = sparsegpu.to_semi_structured(cuda_engine.array(weight))
    x = cuda_engine.array(small(rng, (64, 40), "float16"))
    wide = weight.astype("float64")
    out = cuda_engine.xp.empty((64, 40), "float16")
    for _ in range(3):
        for operand, dense in ((a, wide), (a.T, wide.T)):
            sparsegpu.semi_structured_matmul(operand, x, out=out)
            assert (cuda_engine.host(out) == dense @ cuda_engine.host(x).astype("float64")).all()
    assert len(checks) == 2


def test_copied_blocks_are_not_kept(cuda_engine, rng, checks):
    """Blocks that had to be copied for the kernel are gone after the call."""
    a = Operand(cuda_engine, rng, (64, 96), (16, 16), "float16", duplicates=False)
    turned = a.bsr.with_data(cuda_engine.xp.asfortranarray(a.bsr.data))
    x = cuda_engine.array(small(rng, (96, 40), "float16"))
    for _ in range(3):
        expected = turned.toarray().astype("float64") @ x.astype("float64")
        assert (turned @ x == expected).all()
        turned.data[...] *= 2
    assert len(checks) == 3


def test_padded_operands_are_not_kept(cuda_engine, rng, checks):
    """Their copies are gone after the call."""
    pruned = sparsegpu.prune_24(cuda_engine.array(small(rng, (40, 100), "float16")))
    a = sparsegpu.SemiStructuredArray.from_dense(pruned, pad=True)
    x = cuda_engine.array(small(rng, (100, 40), "float16"))
    for _ in range(3):
        assert (a @ x == pruned.astype("float64") @ x.astype("float64")).all()
        x[...] = -x
    assert len(checks) == 3


def test_each_stream_has_its_own(cuda_engine, a, x):
    odd = cuda_engine.xp.empty((128, 41), "float16")[:, :40]  # needs workspace on Hopper
    odd[...] = x
    out = cuda_engine.xp.empty((64, 40), "float16")
    right = a.expected(x)
    for _ in range(2):
        for stream in (cuda_engine.xp.cuda.Stream(non_blocking=True) for _ in range(2)):
            cuda_engine.xp.cuda.Device().synchronize()
            out.fill(0)
            cuda_engine.xp.cuda.Device().synchronize()
            with stream:
                a.matmul(a.sparse, odd, out=out)
                a.matmul(a.sparse, odd, out=out)
            stream.synchronize()
            assert (out == right).all()


def test_a_chosen_engine_counts(a, x):
    a.sparse @ x
    with sparsegpu.use_engine("cpu"), pytest.raises(TypeError, match="numpy arrays"):
        a.sparse @ x


def test_capacity(a, x):
    for n in range(1, 40):
        for alpha in (1, 2, 3):
            a.matmul(a.sparse, x[:, :n], alpha=alpha)
    assert 0 < a.calls() <= replay.CAPACITY
