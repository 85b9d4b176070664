// Blocks whose rows begin at multiples of 16 bytes, as the tensor-core products copy them:
//
//     out[p][m][k] = blocks[p][m][k], and zero from k = bk up to the next multiple of eight.
//
// -DT: a 16-bit element type. -DTRANSPOSED=1: blocks lie as (bk, bm), and are turned.
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;
constexpr int PIECE = 8;

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_pad_blocks(T* out, const T* blocks, long long pieces, int bm, int bk) {
  const int pieces_a_row = (bk + PIECE - 1) / PIECE, pieces_a_block = bm * pieces_a_row;
  for (long long e = (long long)blockIdx.x * THREADS + threadIdx.x; e < pieces;
       e += (long long)gridDim.x * THREADS) {
    const long long p = e / pieces_a_block;
    const int within = int(e - p * pieces_a_block);
    const int m = within / pieces_a_row, k = within % pieces_a_row * PIECE;
    const T* from = blocks + p * bm * bk + (TRANSPOSED ? k * bm + m : m * bk + k);
    struct alignas(16) Piece {
      T elements[PIECE];
    } piece;
#pragma unroll
    for (int i = 0; i < PIECE; ++i)
      piece.elements[i] = k + i < bk ? from[i * (TRANSPOSED ? bm : 1)] : zero_of<T>();
    reinterpret_cast<Piece*>(out)[e] = piece;
  }
}
