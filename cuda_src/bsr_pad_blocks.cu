// Blocks whose rows begin at multiples of 16 bytes, as the tensor-core products copy them:
//
//     out[p][m][k] = blocks[p][m][k], and zero from k = bk up to the next multiple of eight.
//
// -DT: a 16-bit element type. -DTRANSPOSED=1: blocks are stored as (bk, bm), and are transposed.
#include "common/ceil_div.cuh"
#include "common/types.cuh"
#include "common/vector16.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;
constexpr int VECTOR = 8;

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_pad_blocks(T* out, const T* blocks, long long vectors, int bm, int bk) {
  const int vectors_a_row = ceil_div(bk, VECTOR), vectors_a_block = bm * vectors_a_row;
  for (long long e = (long long)blockIdx.x * THREADS + threadIdx.x; e < vectors;
       e += (long long)gridDim.x * THREADS) {
    const long long p = e / vectors_a_block;
    const int within = int(e - p * vectors_a_block);
    const int m = within / vectors_a_row, k = within % vectors_a_row * VECTOR;
    const T* from = blocks + p * bm * bk + (TRANSPOSED ? k * bm + m : m * bk + k);
    Vec<T, VECTOR> vector;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i)
      vector.value[i] = k + i < bk ? from[i * (TRANSPOSED ? bm : 1)] : zero_of<T>();
    reinterpret_cast<Vec<T, VECTOR>*>(out)[e] = vector;
  }
}
