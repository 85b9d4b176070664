// BSR @ few columns on tensor cores, for 16-bit operands and N up to 128: bound by memory and by
// the latency of one launch, not by arithmetic.
//
// A thread block owns TILE_M rows of one block row (a slice of it, so that matrices of few block
// rows still give every multiprocessor work) and TILE_N columns. Its terms (bsr_addmm_simt.cu says
// what these are) are distributed to its warps, 32 at a time:
//
//     terms   0 ..  31   32 ..  63   64 ..  95  ...
//             warp 0     warp 1      warp 2     ...
//
// Each warp has a pipeline of its own in shared memory, so that no warp waits for another before
// the end; then the warps' sums are added in the order of the warps (split-K within a thread
// block). Nothing is added across thread blocks: one launch, no workspace, deterministic.
//
// The terms of a sum may be permuted: lane t of four takes terms 8t .. 8t + 7 of a step, sixteen
// bytes of a row of the block, as its share of two mma steps:
//
//     term 8t + 4u + 2h + e   is k = 2t + 8h + e of the mma number u,   u, h, e = 0, 1
//
// and the rows of `dense` are stored in the order of these mma.
//
//   -DDENSE=rows|columns     whose 16-byte vectors are copied (Layout, common/view.cuh)
//
// -DT (f16 or bf16), -DINDEX, -DOUT, -DEPILOGUE, -DACT as in bsr_addmm_simt.cu; -DBM, -DBK the
// block, BK a multiple of 8; -DTILE_M, -DTILE_N, -DWARPS_K, -DWARPS_N, -DSTAGES; -DBATCHED=0: one
// matrix; -DCOLUMN_TILES=0: N <= TILE_N. data starts at multiples of 16 bytes.
#include "common/ceil_div.cuh"
#include "common/kernel_epilogue.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

constexpr Layout LAYOUT = Layout::DENSE;
constexpr int STEP = 32;  // terms of a warp's step
constexpr int WARP_N = TILE_N / WARPS_N;
constexpr int WARPS = WARPS_K * WARPS_N;
constexpr int THREADS = 32 * WARPS;
constexpr int LEFT_PITCH = STEP * 2;
constexpr int LEFT_BYTES = TILE_M * LEFT_PITCH;
constexpr int N_PITCH = WARP_N * 2 + 16;  // eight rows of an ldmatrix are in different banks
constexpr int K_PITCH = STEP * 2;
constexpr int RIGHT_BYTES = LAYOUT == Layout::rows ? STEP * N_PITCH : WARP_N * K_PITCH;
constexpr int STAGE_BYTES = LEFT_BYTES + RIGHT_BYTES;
constexpr int SUM_PITCH = WARP_N + 8;
static_assert(TILE_M % 16 == 0 && WARP_N % 16 == 0, "a warp multiplies 16 x 16 outputs at a time");
static_assert(BK % 8 == 0, "sixteen bytes of a row stay within a block");
constexpr int SUM_BYTES = TILE_M * SUM_PITCH * 4;
// A warp's pipeline (the host computes this, too), where its sums are staged at the end.
constexpr int PIPELINE_BYTES = STAGES * STAGE_BYTES > SUM_BYTES ? STAGES * STAGE_BYTES : SUM_BYTES;

struct SkinnyProblem {
  unsigned row_tiles, block_rows;  // row_tiles over all batches, block_rows of one
  int n, padding;
};

// A step meets SEGMENTS runs of SEGMENT consecutive rows of dense.
constexpr int SEGMENT = BK % 32 == 0 ? 32 : BK % 16 == 0 ? 16 : 8;
constexpr int SEGMENTS = STEP / SEGMENT;

// The row of term k of a step in the order of the mma; place(a + b) = place(a) + place(b) where a
// and b have no bit in common.
__device__ __forceinline__ constexpr int place(int k) {
  return k % 8 / 4 * 16 + k % 4 / 2 * 8 + k / 8 * 2 + k % 2;
}

// The operands of one tile: left[m][t] and right[t][n], where t counts terms.
struct Operands {
  const T* block;          // data, at the tile's first row of the block row's first block
  const T* panel;          // dense, at the warp's first column
  const INDEX* column_of;  // block column of the block row's first block
  long long row, col;      // strides of dense
  long long terms;
  int rows, columns, lane;

  // The rows of dense where the segments of a step begin; unused beyond the last term.
  __device__ __forceinline__ void find_rows(long long (&found)[SEGMENTS], long long start) const {
#pragma unroll
    for (int s = 0; s < SEGMENTS; ++s) {
      const long long t = start + s * SEGMENT;
      found[s] = t < terms ? (long long)__ldg(column_of + t / BK) * BK + t % BK : 0;
    }
  }

  // Copy the terms start .. start + 31 of the blocks. Lane (g, t) copies what it will read.
  __device__ __forceinline__ void load_left(unsigned char* left, long long start) const {
    const long long t = start + lane % 4 * 8;
    const T* at = block + t / BK * (BM * BK) + t % BK + lane / 4 * BK;
    left += lane / 4 * LEFT_PITCH + lane % 4 * 16;
#pragma unroll
    for (int m = 0; m < TILE_M; m += 8) {
      const bool valid = (BK % 32 == 0 || t < terms) && (BM % TILE_M == 0 || m + lane / 4 < rows);
      cp_async<16>(left + m * LEFT_PITCH, valid ? at + m * BK : block, valid);
    }
  }

  // Copy the rows of dense that meet them, beginning with `found`.
  __device__ __forceinline__ void load_right(unsigned char* right, long long start,
                                             const long long (&found)[SEGMENTS]) const {
    if constexpr (LAYOUT == Layout::rows) {
      constexpr int VECTORS = WARP_N / 8, APART = 32 / VECTORS;
      const int k = lane / VECTORS, n = lane % VECTORS * 8;  // and k + APART, k + 2 APART ...
      const int bytes = min(max(columns - n, 0) * 2, 16);
      right += place(k) * N_PITCH + n * 2;
#pragma unroll
      for (int i = 0; i < VECTORS; ++i) {
        const int segment = APART <= SEGMENT ? APART * i / SEGMENT : (k + APART * i) / SEGMENT;
        long long from = found[0];
#pragma unroll
        for (int s = 1; s < SEGMENTS; ++s)
          if (segment == s) from = found[s];
        from += k % SEGMENT + APART * i % SEGMENT;
        const int here = BK % 32 == 0 || start + k + APART * i < terms ? bytes : 0;
        cp_async_partial<16>(right + place(APART * i) * N_PITCH,
                             panel + (here ? from : 0) * row + (here ? n : 0), here);
      }
    } else {
      const int vector = lane % 4;
      long long from = found[0];
#pragma unroll
      for (int s = 1; s < SEGMENTS; ++s)
        if (vector * 8 / SEGMENT == s) from = found[s];
      from += vector * 8 % SEGMENT;
      const T* at = panel + from + lane / 4 * col;
      right += lane / 4 * K_PITCH + vector * 16;
#pragma unroll
      for (int n = 0; n < WARP_N; n += 8) {
        const bool valid = (BK % 32 == 0 || start + vector * 8 < terms) && n + lane / 4 < columns;
        cp_async<16>(right + n * K_PITCH, valid ? at + n * col : panel, valid);
      }
    }
  }
};

struct WarpSums {
  A sum[TILE_M / 16][WARP_N / 8][4] = {};  // the mma's d fragments (ptx/mma.cuh)
  int lane;

  __device__ __forceinline__ explicit WarpSums(int lane) : lane(lane) {}

  static __device__ __forceinline__ uint4 load_vector(const unsigned char* from) {
    return *reinterpret_cast<const uint4*>(from);
  }

  __device__ __forceinline__ void multiply(const unsigned char* left, const unsigned char* right) {
    unsigned b[WARP_N / 16][2]
              [4];  // of both mma: columns 16j .. 16j + 7 first, then the next eight
#pragma unroll
    for (int j = 0; j < WARP_N / 16; ++j) {
      if constexpr (LAYOUT == Layout::rows) {
#pragma unroll
        for (int u = 0; u < 2; ++u)
          ldmatrix_x4_trans(b[j][u],
                            right + (u * 16 + lane % 16) * N_PITCH + j * 32 + lane / 16 * 16);
      } else {
        const unsigned char* at = right + (16 * j + lane / 4) * K_PITCH + lane % 4 * 16;
        const uint4 first = load_vector(at), second = load_vector(at + 8 * K_PITCH);
        b[j][0][0] = first.x, b[j][0][1] = first.y, b[j][1][0] = first.z, b[j][1][1] = first.w;
        b[j][0][2] = second.x, b[j][0][3] = second.y, b[j][1][2] = second.z, b[j][1][3] = second.w;
      }
    }
    // A warp has 32 columns at most, but up to 64 rows: the fragments of all rows would spill.
#pragma unroll
    for (int i = 0; i < TILE_M / 16; ++i) {
      const unsigned char* at = left + (16 * i + lane / 4) * LEFT_PITCH + lane % 4 * 16;
      const uint4 low = load_vector(at), high = load_vector(at + 8 * LEFT_PITCH);
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const unsigned a[4] = {u ? low.z : low.x, u ? high.z : high.x, u ? low.w : low.y,
                               u ? high.w : high.y};
#pragma unroll
        for (int j = 0; j < WARP_N / 16; ++j) {
          const unsigned first[2] = {b[j][u][0], b[j][u][1]};
          const unsigned second[2] = {b[j][u][2], b[j][u][3]};
          mma<T>(sum[i][2 * j], a, first);
          mma<T>(sum[i][2 * j + 1], a, second);
        }
      }
    }
  }

  __device__ __forceinline__ void stage_sums(A* sums) const {
#pragma unroll
    for (int i = 0; i < TILE_M / 16; ++i)
#pragma unroll
      for (int j = 0; j < WARP_N / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int m = 16 * i + 8 * h + lane / 4, n = 8 * j + lane % 4 * 2;
          *reinterpret_cast<float2*>(sums + m * SUM_PITCH + n) =
              make_float2(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
        }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_addmm_skinny(const __grid_constant__ View out, const __grid_constant__ View indptr,
                     const __grid_constant__ View indices, const __grid_constant__ View data,
                     const __grid_constant__ View dense, const __grid_constant__ Batch batch,
                     const __grid_constant__ SkinnyProblem problem,
                     const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_k = warp / WARPS_N, warp_n = warp % WARPS_N * WARP_N;
  unsigned char* stages = shared + warp * PIPELINE_BYTES;

  constexpr unsigned SLICES = ceil_div(BM, TILE_M);
  const unsigned row_tiles = problem.row_tiles;  // of all batches
  const unsigned column_tile = COLUMN_TILES ? blockIdx.x / row_tiles : 0;
  const unsigned row_tile = blockIdx.x - column_tile * row_tiles;
  const long long first_col = (long long)column_tile * TILE_N;
  const int first_row = int(row_tile % SLICES) * TILE_M;  // within the block row
  const unsigned rows_before = row_tile / SLICES;
  const unsigned b = BATCHED ? rows_before / problem.block_rows : 0;
  const long long block_row = rows_before - b * problem.block_rows;

  const INDEX* starts = batch_ptr<const INDEX>(indptr, batch, b) + block_row;
  Operands operands;
  operands.lane = lane;
  operands.rows = min(TILE_M, BM - first_row);
  const int columns = min(TILE_N, problem.n - int(first_col));
  operands.columns = columns - warp_n;  // of the warp, if it has so many
  const long long first_block = starts[0];
  operands.terms = (long long)(starts[1] - starts[0]) * BK;
  operands.column_of = batch_ptr<const INDEX>(indices, batch, b) + first_block;
  operands.block =
      batch_ptr<const T>(data, batch, b) + (first_block * BM + first_row) * (long long)BK;
  operands.panel = batch_ptr<const T>(dense, batch, b) + (first_col + warp_n) * dense.col;
  operands.row = dense.row;
  operands.col = dense.col;

  // Step s of the tile is this warp's when s % WARPS_K == warp_k.
  const int steps = int(ceil_div(operands.terms, STEP));
  const int mine = steps > warp_k ? (steps - warp_k - 1) / WARPS_K + 1 : 0;
  auto start_of = [&](int i) { return ((long long)i * WARPS_K + warp_k) * STEP; };
  auto load_left = [&](int i) {
    if (i < mine) operands.load_left(stages + i % STAGES * STAGE_BYTES, start_of(i));
  };
  auto load_right = [&](int i, const long long (&found)[SEGMENTS]) {
    if (i < mine)
      operands.load_right(stages + i % STAGES * STAGE_BYTES + LEFT_BYTES, start_of(i), found);
    cp_async_commit();
  };

  // The copies of blocks do not depend on block columns, so they go first.
  long long found[STAGES][SEGMENTS];
#pragma unroll
  for (int i = 0; i < STAGES; ++i) operands.find_rows(found[i], start_of(i));
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) load_left(i);
#pragma unroll
  for (int i = 0; i < STAGES - 1; ++i) load_right(i, found[i]);
  long long (&next)[SEGMENTS] = found[STAGES - 1];

  WarpSums outputs(lane);
  for (int i = 0; i < mine; ++i) {
    load_left(i + STAGES - 1);
    load_right(i + STAGES - 1, next);
    operands.find_rows(next, start_of(i + STAGES));
    cp_async_wait<STAGES - 1>();
    __syncwarp();
    const unsigned char* stage = stages + i % STAGES * STAGE_BYTES;
    outputs.multiply(stage, stage + LEFT_BYTES);
    __syncwarp();  // the stage is no longer read
  }
  cp_async_wait<0>();
  if (mine) outputs.stage_sums(reinterpret_cast<A*>(stages));
  __syncthreads();

  const KernelEpilogue<A, OUT> finish(epilogue, batch, b);
  OUT* out_matrix = batch_ptr<OUT>(out, batch, b);
  const long long top = block_row * BM + first_row;
  OUT* top_row = out_matrix + element_offset(out, top, first_col);
  const bool by_column = out.row < out.col;
  const int partials = min(steps, WARPS_K);
#pragma unroll 2
  for (int e = threadIdx.x; e < TILE_M * TILE_N / 2; e += THREADS) {
    const int m = by_column ? e % TILE_M : e / (TILE_N / 2);
    const int n = (by_column ? e / TILE_M : e % (TILE_N / 2)) * 2;
    A first = A(0), second = A(0);
#pragma unroll
    for (int w = 0; w < WARPS_K; ++w) {
      if (w < partials) {
        const unsigned char* sums = shared + (w * WARPS_N + n / WARP_N) * PIPELINE_BYTES;
        const float2 pair = reinterpret_cast<const float2*>(sums)[(m * SUM_PITCH + n % WARP_N) / 2];
        first += pair.x;
        second += pair.y;
      }
    }
    if (m < operands.rows && n < columns)
      top_row[element_offset(out, m, n)] = finish(first, top + m, first_col + n);
    if (m < operands.rows && n + 1 < columns)
      top_row[element_offset(out, m, n + 1)] = finish(second, top + m, first_col + n + 1);
  }
}
