"""The watch that `Engine.runs` keeps: a test that names no kernel, or the wrong one, fails."""

import numpy as np
import pytest

import sparsegpu as sg


@pytest.fixture
def product(cuda_engine):
    """A product that launches one kernel and allocates 512 bytes."""
    a = sg.bsr_array(cuda_engine.array(np.eye(4, dtype=np.float32)), blocksize=(2, 2))
    x = cuda_engine.array(np.ones(4, np.float32))
    return lambda: sg.bsr_matmul(a, x)


def test_a_kernel_or_none_must_be_named(engine):
    with pytest.raises(TypeError, match="kernel"):
        engine.runs()


@pytest.mark.gpu
def test_what_was_not_launched_is_missed(cuda_engine, product):
    with cuda_engine.runs("bsr_addmm"):
        product()
    for names in (("sampled_addmm",), ("bsr_addmm", "sampled_addmm"), (None,)):
        with (
            pytest.raises(AssertionError, match=r"launched were .*bsr_addmm"),
            cuda_engine.runs(*names),
        ):
            product()


@pytest.mark.gpu
def test_a_block_inside_answers_for_itself(cuda_engine, product):
    with cuda_engine.runs(None), cuda_engine.runs("bsr_addmm"):
        product()
    with (
        pytest.raises(AssertionError, match=r"no kernel 'bsr_addmm\*' was launched"),
        cuda_engine.runs("bsr_addmm"),
        cuda_engine.runs("bsr_addmm"),
    ):
        product()


@pytest.mark.gpu
def test_memory_over_what_is_allowed_is_seen(cuda_engine, product):
    product()
    with cuda_engine.runs("bsr_addmm", peak_bytes=512):
        product()
    with (
        pytest.raises(AssertionError, match="peak device memory 512 over the 511 allowed"),
        cuda_engine.runs("bsr_addmm", peak_bytes=511),
    ):
        product()


@pytest.mark.gpu
def test_moving_data_to_the_host_is_refused(cuda_engine):
    array = cuda_engine.xp.ones(9)
    with pytest.raises(AssertionError, match="moved to the host"), cuda_engine.runs(None):
        array.get()
    assert array.get().sum() == 9
