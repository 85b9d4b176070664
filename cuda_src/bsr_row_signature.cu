// Signatures of block rows, by which similar rows are sorted next to each other: the upper halves
// of the minima of two hashes over a row's block columns (A. Broder, "On the resemblance and
// containment of documents", 1997: two rows agree in a minimum with the probability of their
// Jaccard similarity: columns in common over columns in either).
//
// A warp takes a row.
//
// -DINDEX: of the pattern (s32, s64).
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;

// A hash of 64 bits, each of which depends on all input bits (S. Vigna, splitmix64).
__device__ __forceinline__ unsigned long long hash64(unsigned long long x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_row_signature(int* out, const INDEX* indptr, const INDEX* indices, long long rows,
                      long long block_rows, long long nnzb) {
  const int lane = threadIdx.x % 32;
  for (long long row = (long long)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; row < rows;
       row += (long long)gridDim.x * (THREADS / 32)) {
    const long long b = row / block_rows;
    const INDEX* of_row = indptr + row + b;  // every matrix has one more
    unsigned least = ~0u, other = ~0u;
    for (long long p = of_row[0] + lane; p < of_row[1]; p += 32) {
      const unsigned long long hashes = hash64(indices[b * nnzb + p]);
      least = min(least, unsigned(hashes));
      other = min(other, unsigned(hashes >> 32));
    }
    least = __reduce_min_sync(~0u, least);
    other = __reduce_min_sync(~0u, other);
    if (lane == 0) out[row] = int((least & 0xffff0000u) | other >> 16);
  }
}
