// Sparse times sparse on tensor cores through mma.sync (8.0 and later): bfloat16, float16 and int8.
//
// A thread block computes TILE_M x TILE_N outputs of one block of the result. The products of its
// pairs (common/block_pairs.cuh) laid end to end are one long sum, whose terms go through shared
// memory 64 bytes at a time, in a pipeline of STAGES slices, and from there as fragments into the
// tensor cores (common/warp_mma.cuh). A slice has terms of one pair; behind the last ones of a
// block it is zero. The left block is stored by line, the right one by k, as they lie in memory;
// the right block of int8 by column: transposed on the way.
//
// -DT, -DOUT, -DPAIR as in bsr_spgemm_simt.cu, to be read first; -DTILE_M, -DTILE_N shared by
// WARPS_M x WARPS_N warps; -DSTAGES; -DDATA_VECTORS=1 where 16-byte vectors of a left block's rows,
// and of a right block's (int8: words of 4 bytes), are whole, and pairs of a result's: 0 copies
// element by element.
#include "common/block_pairs.cuh"
#include "common/ceil_div.cuh"
#include "common/dense_tile_cp_async.cuh"

using namespace sparsegpu;

constexpr int TILE_K = 64 / sizeof(T), VECTOR = 16 / sizeof(T), THREADS = 32 * WARPS_M * WARPS_N;
constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "a warp multiplies 16 x 16 outputs at a time");

typedef OperandTile<T, TILE_M, TILE_K, true> Left;
typedef OperandTile<T, TILE_N, TILE_K, sizeof(T) == 1> Right;
constexpr int STAGE_BYTES = Left::BYTES + Right::BYTES;
typedef Acc<T>::type A;
typedef WarpOutputs<A, WARP_M, WARP_N, WARPS_N> Outputs;

// Two neighbouring outputs.
struct alignas(2 * sizeof(OUT)) Two {
  OUT low, high;
};

// The slices of a tile, in their order.
struct Slices {
  const PAIR* pair;
  const T *a, *b;  // the tile's rows of left block 0, its columns of right block 0
  int k, bm, bk, bn, rows, columns;

  // Start to copy the next slice.
  __device__ __forceinline__ void load(unsigned char* stage) {
    const T* left = a + (long long)pair[0] * bm * bk + k;
    const T* right = b + ((long long)pair[1] * bk + k) * bn;
    const int here = bk - k;
    if constexpr (!DATA_VECTORS) {
      copy<Left, TILE_M, true>(stage, rows, here,
                               [&](int m, int at) { return left + (long long)m * bk + at; });
      copy<Right, TILE_N, false>(stage + Left::BYTES, columns, here,
                                 [&](int n, int at) { return right + (long long)at * bn + n; });
    } else {
      share_copies<THREADS, TILE_K / VECTOR, TILE_M>([&](int x, int y, int c) {
        const int m = y + c, at = x * VECTOR;
        cp_async<16>(stage + Left::offset(m, at), left + (long long)m * bk + at,
                     m < rows && at < here);
      });
      load_right(stage + Left::BYTES, right, here);
    }
    k += TILE_K;
    if (k >= bk) {
      k = 0;
      pair += 2;
    }
  }

 private:
  // Copy a slice by elements, neighbouring threads what lies side by side in memory.
  template <typename Tile, int LINES, bool LEFT, typename From>
  static __device__ __forceinline__ void copy(unsigned char* tile, int lines, int here, From from) {
#pragma unroll 4
    for (int e = threadIdx.x; e < LINES * TILE_K; e += THREADS) {
      const int line = LEFT ? e / TILE_K : e % LINES, at = LEFT ? e % TILE_K : e / LINES;
      *reinterpret_cast<T*>(tile + Tile::offset(line, at)) =
          line < lines && at < here ? *from(line, at) : zero_of<T>();
    }
  }

  __device__ __forceinline__ void load_right(unsigned char* tile, const T* right, int here) const {
    if constexpr (sizeof(T) == 1) {
      transpose_bytes<Right, TILE_N, TILE_K, THREADS>(tile, [&](int at, int n) {
        return n < columns && at < here ? four_bytes(right + (long long)at * bn + n, 4) : 0;
      });
    } else {
      share_copies<THREADS, TILE_N / VECTOR, TILE_K>([&](int x, int y, int c) {
        const int n = x * VECTOR, at = y + c;
        cp_async<16>(tile + Right::offset(n, at), right + (long long)at * bn + n,
                     n < columns && at < here);
      });
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_spgemm_sm80(OUT* out, const T* a, const T* b, const long long* starts, const PAIR* pairs,
                    const __grid_constant__ PairsProblem problem) {
  extern __shared__ __align__(128) unsigned char dynamic[];
  unsigned char* stages = dynamic + (128 - shared_address(dynamic) % 128) % 128;
  const int bm = problem.bm, bk = problem.bk, bn = problem.bn;
  const int row_slices = ceil_div(bm, TILE_M), col_slices = ceil_div(bn, TILE_N);
  const long long tiles = problem.blocks * row_slices * col_slices;
  for (long long x = blockIdx.x; x < tiles; x += gridDim.x) {
    const int first_row = int(x % row_slices) * TILE_M;
    const int first_col = int(x / row_slices % col_slices) * TILE_N;
    const long long g = problem.first + x / row_slices / col_slices;
    const int rows = bm - first_row, columns = bn - first_col;
    const long long begin = starts[g] - problem.base;
    const long long count = (starts[g + 1] - problem.base - begin) * ceil_div(bk, TILE_K);
    Slices slices = {pairs + 2 * begin, a + (long long)first_row * bk, b + first_col, 0, bm, bk, bn,
                     min(rows, TILE_M), min(columns, TILE_N)};
    Outputs outputs;
    CpAsyncPipeline<STAGES, STAGE_BYTES> pipeline;
    for (long long i = 1 - STAGES; i < count; ++i) {
      if (i >= 0) pipeline.wait();
      if (i + STAGES - 1 < count) slices.load(stages + pipeline.stage);
      pipeline.advance();
      if (i >= 0)
        multiply_slice<Left, Right>(outputs, stages + pipeline.stage,
                                    stages + pipeline.stage + Left::BYTES);
    }
    pipeline.drain();

    OUT* block = out + g * bm * bn + (long long)first_row * bn + first_col;
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
      for (int j = 0; j < WARP_N / 8; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int m = outputs.row + 16 * i + outputs.lane / 4 + 8 * r;
          const int n = outputs.col + 8 * j + outputs.lane % 4 * 2;
          const A* sum = outputs.sum[i][j] + 2 * r;
          OUT* to = block + (long long)m * bn + n;
          if (m >= rows) continue;
          if (DATA_VECTORS && n < columns) {  // bn is a multiple of eight, so that both are there
            *reinterpret_cast<Two*>(to) = {round_to<OUT>(sum[0]), round_to<OUT>(sum[1])};
          } else if (!DATA_VECTORS) {
            if (n < columns) to[0] = round_to<OUT>(sum[0]);
            if (n + 1 < columns) to[1] = round_to<OUT>(sum[1]);
          }
        }
  }
}
