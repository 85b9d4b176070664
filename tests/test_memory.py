"""Peak device memory of every operation: its result, and the workspace that its case states."""

import pytest

import memory_cases_24  # noqa: F401  (adds its cases)
from memory_cases import CASES


@pytest.mark.gpu
@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_peak_is_result_and_workspace(cuda_engine, rng, make):
    kernels, call, workspace = make(cuda_engine.xp, rng)
    first = call()
    result = cuda_engine.nbytes(*(first if isinstance(first, tuple) else (first,)))
    with cuda_engine.runs(*kernels, peak_bytes=result + workspace):
        call()
