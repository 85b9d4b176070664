"""Repeated calls on the GPU: what was launched before is launched again, and nothing else."""

import numpy as np
import pytest

import sparsegpu
from addmm_cases import Operand, small
from sparsegpu import bsr_addmm, bsr_matmul, dense_bsr_matmul
from sparsegpu.ops import _repeat

pytestmark = pytest.mark.gpu


@pytest.fixture
def operands(cuda_engine, rng):
    a = Operand(cuda_engine, rng, (64, 96), (16, 16), "float16", duplicates=False)
    return a, cuda_engine.array(small(rng, (96, 40), "float16"))


def expected(a, x):
    return a.bsr.toarray().astype("float64") @ x.astype("float64")


@pytest.fixture
def checks(monkeypatch):
    """Count the calls that are checked, which repeated ones are not."""
    from sparsegpu.ops import addmm

    made, check = [], addmm.check_product
    monkeypatch.setattr(addmm, "check_product", lambda *a, **k: made.append(1) or check(*a, **k))
    return made


def test_values_are_read_anew(cuda_engine, operands, checks):
    a, x = operands
    out = cuda_engine.xp.empty((64, 40), "float16")
    with cuda_engine.runs("bsr_addmm"):
        for step in range(4):
            a.bsr.data[...] = a.bsr.data + 1
            x[...] = -x
            out.fill(np.nan)
            assert bsr_matmul(a.bsr, x, out=out) is out
            assert (out == expected(a, x)).all(), step
    assert len(checks) == 1


def test_new_results_are_allocated(cuda_engine, operands, checks):
    a, x = operands
    kept = [a.bsr @ x for _ in range(3)]
    assert len({r.data.ptr for r in kept}) == 3 and len(checks) == 3
    del kept
    for _ in range(3):
        result = a.bsr @ x
        assert (result == expected(a, x)).all()
        del result
    assert len(checks) == 3


def test_what_differs_is_checked_again(cuda_engine, operands, checks):
    a, x = operands
    out = cuda_engine.xp.empty((64, 40), "float16")
    bias = cuda_engine.xp.ones((64, 1), "float16")
    calls = [
        lambda: bsr_matmul(a.bsr, x, out=out),
        lambda: bsr_matmul(a.bsr, x, out=out, alpha=2),
        lambda: bsr_matmul(a.bsr, x, out=out, activation="relu"),
        lambda: bsr_addmm(bias, a.bsr, x, out=out),
        lambda: bsr_addmm(bias, a.bsr, x, out=out, left_alpha=bias.ravel()),
        lambda: bsr_matmul(a.bsr, x[:, :32], out=out[:, :32]),
        lambda: bsr_matmul(a.bsr.with_data(a.bsr.data.copy()), x, out=out),
        lambda: dense_bsr_matmul(out[:, :40].T[:, :64], a.bsr, out_dtype="float32"),
    ]
    for call in calls:
        call()
    assert len(checks) == len(calls)
    with pytest.raises(ValueError, match="dense"):
        bsr_matmul(a.bsr, x[:80], out=out)
    with pytest.raises(ValueError, match="out"):
        bsr_matmul(a.bsr, x, out=out[:, :39])


def test_copied_blocks_are_not_kept(cuda_engine, rng, checks):
    """Blocks that had to be copied for the kernel are gone after the call."""
    a = Operand(cuda_engine, rng, (64, 96), (16, 16), "float16", duplicates=False)
    turned = a.bsr.with_data(cuda_engine.xp.asfortranarray(a.bsr.data))
    x = cuda_engine.array(small(rng, (96, 40), "float16"))
    for _ in range(3):
        assert (turned @ x == expected(a, x)).all()
        turned.data[...] *= 2
        a.bsr.data[...] *= 2
    assert len(checks) == 3


def test_each_stream_has_its_own(cuda_engine, operands):
    a, x = operands
    odd = cuda_engine.xp.empty((96, 41), "float16")[:, :40]  # needs workspace on Hopper
    odd[...] = x
    out = cuda_engine.xp.empty((64, 40), "float16")
    right = expected(a, x)
    for _ in range(2):
        for stream in (cuda_engine.xp.cuda.Stream(non_blocking=True) for _ in range(2)):
            cuda_engine.xp.cuda.Device().synchronize()
            out.fill(0)
            cuda_engine.xp.cuda.Device().synchronize()
            with stream:
                bsr_matmul(a.bsr, odd, out=out)
                bsr_matmul(a.bsr, odd, out=out)
            stream.synchronize()
            assert (out == right).all()


def test_a_chosen_engine_counts(cuda_engine, operands):
    a, x = operands
    a.bsr @ x
    with sparsegpu.use_engine("cpu"), pytest.raises(TypeError, match="numpy arrays"):
        a.bsr @ x


def test_capacity(cuda_engine, operands):
    a, x = operands
    for n in range(1, 40):
        for alpha in (1, 2, 3):
            bsr_matmul(a.bsr, x[:, :n], alpha=alpha)
    assert len(a.bsr.pattern.calls) <= _repeat.CAPACITY
