"""The dense operand copied to aligned lines, from every layout and alignment."""

import numpy as np
import pytest

from covering import covered
from sparsegpu.testing import random_values


def laid_out(xp, array, layout: str, begin: int, gap: int):
    """Return a copy of matrices whose first element and rows begin anywhere in memory."""
    *batch, k, n = array.shape
    shape = {
        "rows": (*batch, k, n + gap),
        "columns": (*batch, n, k + gap),
        "strided": (*batch, 2 * k, 3 * n + gap),
        "backwards": (*batch, k, n + gap),
    }[layout]
    size = int(np.prod(shape))
    memory = xp.zeros(begin + size, array.dtype)[begin:].reshape(shape)
    view = {
        "rows": lambda: memory[..., :n],
        "columns": lambda: memory[..., :k].swapaxes(-1, -2),
        "strided": lambda: memory[..., ::2, : 3 * n : 3],
        "backwards": lambda: memory[..., ::-1, :n],
    }[layout]()
    view[...] = array
    return view


@pytest.mark.gpu
@covered(
    dtype=["bfloat16", "float16", "int8"],
    layout=["rows", "columns", "strided", "backwards"],
    shape=[(32, 17), (96, 256), (2, 160, 301), (3, 1, 32, 130)],
)
def test_aligned_lines(cuda_engine, rng, dtype, layout, shape):
    from sparsegpu.engines.cuda.paths._dense_lines import aligned_lines
    from sparsegpu.engines.cuda.runtime.launch import submit

    array = cuda_engine.array(random_values(rng, shape, dtype))
    for begin, gap in ((0, 0), (3, 0), (16, 16), (0, 1), (7, 5)):
        dense = laid_out(cuda_engine.xp, array, layout, begin, gap)
        for by_column in (False, True):
            with cuda_engine.runs("dense_lines"):
                copy, launch = aligned_lines(dense, by_column)
                submit(launch)
            lines = copy.swapaxes(-1, -2) if by_column else copy
            assert lines.strides[-1] == lines.itemsize
            assert lines.data.ptr % 128 == 0 and all(s % 128 == 0 for s in lines.strides[:-1])
            np.testing.assert_array_equal(cuda_engine.host(copy), cuda_engine.host(array))
