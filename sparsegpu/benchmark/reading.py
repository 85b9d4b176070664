"""What products of few columns are held against: a kernel that finds the stored blocks and reads.

It is text beside the case, not one of the library's kernels: nothing else launches it. A thread
block reads a slice of every block of a block row, and the number of the block's column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .workload import Product

#: Threads of a thread block, which divide a block row among several; blocks whose loads a thread
#: issues before it waits for any. No others of those tried are faster on an H100.
THREADS, AT_ONCE = 64, 16
OPTIONS = (f"-DAT_ONCE={AT_ONCE}",)
VECTOR_BYTES = 16
NAME = "read_blocks"
#: ``mask`` is 0 where the kernel is timed, so that it writes nothing. The compiler does not know
#: that and has to keep the loads.
SOURCE = r"""
extern "C" __global__ void read_blocks(const int* indptr, const int* indices, const uint4* blocks,
                                       int vectors, unsigned mask, unsigned* total) {
  const int last = indptr[blockIdx.x + 1];
  const uint4* mine = blocks + blockIdx.y * blockDim.x + threadIdx.x;
  unsigned sum = 0;
  for (int first = indptr[blockIdx.x]; first < last; first += AT_ONCE) {
    uint4 found[AT_ONCE] = {};
    int column[AT_ONCE] = {};
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      if (first + i < last) {
        found[i] = mine[(long long)(first + i) * vectors];
        column[i] = indices[first + i];
      }
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
      sum += found[i].x + found[i].y + found[i].z + found[i].w + column[i];
  }
  if (sum & mask) atomicAdd(total, sum);
}
"""


def reader(product: Product, mask: int = 0) -> tuple[Callable[[], Any], Any]:
    """Return a call that reads a product's sparse operand, and what it writes.

    Parameters
    ----------
    product : Product
        Of CuPy arrays; its blocks are of a multiple of 1 KB.
    mask : int
        With all 32 bits set, the sums of all threads are added to what is written.
    """
    import cupy
    import numpy as np

    matrix = product.left
    vectors = matrix.data[0].nbytes // VECTOR_BYTES
    kernel = cupy.RawKernel(SOURCE, NAME, OPTIONS)
    grid = (matrix.pattern.block_shape[0], vectors // THREADS)
    total = cupy.zeros(1, np.uint32)
    arguments = (matrix.indptr, matrix.indices, matrix.data, np.int32(vectors), np.uint32(mask))
    return lambda: kernel(grid, (THREADS,), (*arguments, total)), total
