// A mask of whole blocks whose rows are lists of block columns, all of one length: the pattern and
// kinds of a BlockMask.
//
// -DT of the lists, -DINDEX of the pattern (s32, s64).
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;
constexpr unsigned char FULL = 1;

// entries, bounds: elements of indices and indptr. kind: null: not wanted.
extern "C" __global__ void __launch_bounds__(THREADS)
    mask_of_lists(INDEX* indptr, INDEX* indices, unsigned char* kind, const T* lists,
                  long long entries, long long bounds, long long rows, long long length) {
  const long long step = (long long)gridDim.x * THREADS;
  for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < max(entries, bounds);
       i += step) {
    if (i < bounds) indptr[i] = INDEX(i % (rows + 1) * length);
    if (i < entries) {
      indices[i] = INDEX(lists[i]);
      if (kind) kind[i] = FULL;
    }
  }
}
