"""The kernel that copies bytes, emulated on the host (tools/emulator)."""

from __future__ import annotations

import numpy as np
import pytest

from tools.emulator.build import HostKernel
from tools.emulator.host import device_array

THREADS = 256


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("size", [
    1, 15, 16, 17, 4095, 4096, 16 * THREADS + 8, 5 * 16 * THREADS, 3 * 4 * 16 * THREADS + 16 + 9,
])  # fmt: skip
def test_every_byte_and_no_other(directory, rng, size, blocks):
    """A tail, vectors, both; fewer than there are threads, and more than are in flight at once."""
    source = device_array(size, np.uint8)
    source[...] = rng.integers(0, 256, size)
    memory = device_array(size + 40, np.uint8)
    HostKernel("copy_bytes", {}, directory)(blocks, THREADS, [memory, source, np.int64(size)])
    np.testing.assert_array_equal(memory[:size], source)
    assert (memory[size:] == 0xFF).all()
