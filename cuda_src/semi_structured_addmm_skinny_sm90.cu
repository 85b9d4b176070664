// 2:4 @ few columns on Hopper's sparse tensor cores (9.0a): bound by reading the packed matrix,
// once.
//
// A row tile is 128 rows. The thread blocks of a cluster each take a run of its k, so that all
// multiprocessors read however few rows there are:
//
//     row tile 0    k  0 .. 31    32 .. 63       row tile 1    0 .. 31    32 .. 63
//                   rank    0            1                     0           1
//
// A producer thread keeps the copy engine STAGES stages ahead; two warpgroups multiply 64 rows
// each. A stage holds what 256 bytes of a dense column meet:
//
//       left      128 packed rows, 128 bytes of each
//       right     256 bytes of k of TILE_N columns of `dense`
//       codes     the elements of 128 rows and four pairs of columns of metadata, in CUTLASS's
//                 order (common/semi_structured.cuh)
//
// Then every thread block pushes its sums into the inboxes of the others, each of which owns as
// many rows of the tile and adds what came in the order of k: one launch, no workspace,
// deterministic.
//
//   -DT, -DOUT, -DEPILOGUE, -DACT as in semi_structured_addmm_sm90.cu
//   -DDENSE=rows|columns  which of its strides is 1; rows only for 16-bit types (wgmma)
//   -DSTORE=rows|columns  along which `out` is written
//   -DTILE_N=16|32|64|128, -DCLUSTER=1|2|4|8, -DSTAGES
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/vector16.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/tma_pipeline.cuh"
#include "common/sparse_stage.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"

using namespace sparsegpu;

constexpr Layout STORING = Layout::STORE;

constexpr int TILE_M = 128;
constexpr int PRODUCTS = 4;  // of a stage: wgmma takes 64 bytes of k
constexpr int STAGE_K = PRODUCTS * 64 / SIZE;
constexpr int LEFT_BYTES = TILE_M * 128;
constexpr int RIGHT_BYTES = TILE_N * 256;
constexpr int STAGE_BYTES = LEFT_BYTES + RIGHT_BYTES + PRODUCTS * PAIR_BYTES<TILE_M>;
static_assert(STAGE_BYTES % 1024 == 0, "every stage begins where a swizzle's pattern does");

// Boxes of `dense` have rows of k or n, as wide as a swizzle may be: of k always 128 bytes.
constexpr int WIDTH = BY_N && TILE_N * SIZE < 128 ? TILE_N * SIZE : 128;
constexpr int BOX_BYTES = WIDTH * (BY_N ? STAGE_K : TILE_N);
constexpr int BOXES = RIGHT_BYTES / BOX_BYTES;
static_assert(TILE_N == 16 || TILE_N == 32 || TILE_N == 64 || TILE_N == 128, "few columns");

constexpr int CONSUMERS = 8;  // warps
constexpr int THREADS = 32 * CONSUMERS + 32;

struct Sizes {
  long long rows, columns;
  unsigned panels, batches;  // TILE_N columns each
  int stages;                // of k
  int brought;               // bytes of a stage
  int dense_batched, padding;
};

// Sums as they pass from thread block to thread block, in fragments of 16 x 8: 32 pieces of 16
// bytes. Lane 4r + t of a warp holds rows r and r + 8, columns 2t and 2t + 1. Where its piece lies,
// neither the lanes of a quarter warp that write fragments meet in a bank, nor those that read
// along rows or, of two fragments, along columns.
struct alignas(16) Piece {
  Sum row[2][2];
};
constexpr int FRAGMENT_BYTES = 32 * sizeof(Piece);
__device__ __forceinline__ constexpr int piece_of(int fragment, int r, int t) {
  return t * 8 + (r ^ t * 2 ^ fragment % 2);
}
constexpr int FRAGMENTS = TILE_N / 8;                   // of sixteen rows
constexpr int OWNED = CONSUMERS / CLUSTER * FRAGMENTS;  // of a thread block
constexpr int INBOX_BYTES = CLUSTER * OWNED * FRAGMENT_BYTES;
static_assert(INBOX_BYTES <= STAGES * STAGE_BYTES, "where stages were, sums come in");

// Bring stages `begin` to `end`. Of columns that there are not (only of them) the boxes may bring
// nothing: what is multiplied there is never written.
__device__ __forceinline__ void produce(unsigned stages, TmaPipeline<STAGES> ring,
                                        const TensorMap& packed, const TensorMap& codes,
                                        const TensorMap& dense, int brought, int begin, int end,
                                        int row, int col, int batch) {
  for (int s = begin; s < end; ++s) {
    mbarrier_wait(ring.empty_barrier(), ring.parity ^ 1);
    const unsigned left = stages + ring.stage * STAGE_BYTES, right = left + LEFT_BYTES;
    mbarrier_expect(ring.full_barrier(), brought);
    bulk_load(left, packed, ring.full_barrier(), s * (STAGE_K / 2), row);
    bulk_load(right + RIGHT_BYTES, codes, ring.full_barrier(), 2 * row, s * PRODUCTS);
#pragma unroll
    for (int b = 0; b < BOXES; ++b) {
      const int along = b * (WIDTH / SIZE);
      if (BY_N)
        bulk_load(right + b * BOX_BYTES, dense, ring.full_barrier(), col + along, s * STAGE_K,
                  batch);
      else
        bulk_load(right + b * BOX_BYTES, dense, ring.full_barrier(), s * STAGE_K + along, col,
                  batch);
    }
    ring.advance();
  }
}

// sum += the products of a stage.
__device__ __forceinline__ void multiply(Sum (&sum)[TILE_N / 2], unsigned stage,
                                         const unsigned char* codes) {
  constexpr int EACH = PRODUCTS_OF_WORD;
  unsigned words[PRODUCTS / EACH];
#pragma unroll
  for (int w = 0; w < PRODUCTS / EACH; ++w) words[w] = code_word<TILE_M>(codes, w);
  const unsigned left = stage + threadIdx.x / 128 * 64 * 128, right = stage + LEFT_BYTES;
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < PRODUCTS; ++k) {
    const auto a = wgmma_operand<128>(left + k * 32, 1024, 16);
    const auto b = BY_N ? wgmma_operand<WIDTH>(right + k * 32 * WIDTH, 8 * WIDTH, BOX_BYTES)
                        : wgmma_operand<128>(right + k / 2 * BOX_BYTES + k % 2 * 64, 1024, 16);
    if (k % EACH)
      wgmma_sp<T, EACH - 1, BY_N>(sum, a, b, words[k / EACH]);
    else
      wgmma_sp<T, 0, BY_N>(sum, a, b, words[k / EACH]);
  }
  wgmma_commit();
  wgmma_wait<0>();
}

template <typename U>
__device__ __forceinline__ void add_products(Sum (&sum)[TILE_N / 2], unsigned stage,
                                             const unsigned char* codes) {
  if constexpr (PROMOTED<U>) {
    Sum part[TILE_N / 2] = {};
    multiply(part, stage, codes);
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] += part[i];
  } else {
    multiply(sum, stage, codes);
  }
}

// Thread blocks that a multiprocessor has registers for.
constexpr int TOGETHER = PROMOTED<T> && TILE_N == 128 ? 1 : 2;

// Write what this thread block owns: two lines of eight sums a thread and turn, each along a row of
// `out` or along a column; or single elements, side by side, where lines do not lie well.
__device__ __forceinline__ void write(const unsigned char* inbox,
                                      const KernelEpilogue<Sum, OUT>& finish, OUT* out,
                                      const View& view, long long first_row, long long first_col,
                                      const Sizes& sizes) {
  constexpr bool BY_ROW = STORING == Layout::rows;
  const auto pieces = [&](int rank, int fragment) {
    return reinterpret_cast<const Piece*>(inbox + (rank * OWNED + fragment) * FRAGMENT_BYTES);
  };
  const long long along = BY_ROW ? view.col : view.row, across = BY_ROW ? view.row : view.col;
  const bool lies_well = along == 1 && across * sizeof(OUT) % alignof(Vec<OUT, 8>) == 0 &&
                         reinterpret_cast<unsigned long long>(out) % alignof(Vec<OUT, 8>) == 0;
  if (!lies_well) {
    constexpr int ROWS = TILE_M / CLUSTER;
#pragma unroll 1
    for (int e = threadIdx.x; e < ROWS * TILE_N; e += THREADS) {
      const int m = BY_ROW ? e / TILE_N : e % ROWS, n = BY_ROW ? e % TILE_N : e / ROWS;
      const int f = m / 16 * FRAGMENTS + n / 8;
      Sum sum = 0;
#pragma unroll
      for (int c = 0; c < CLUSTER; ++c)
        sum += pieces(c, f)[piece_of(f, m % 8, n % 8 / 2)].row[m / 8 % 2][n % 2];
      const long long row = first_row + m, col = first_col + n;
      if (row < sizes.rows && col < sizes.columns)
        out[element_offset(view, row, col)] = finish(sum, row, col);
    }
    return;
  }
#pragma unroll 1
  for (int e = threadIdx.x; e < OWNED * 8; e += THREADS) {
    const int f = e / 8, r = e % 8, t = e / 2 % 4, half = e % 2;
    Sum sum[2][8] = {};
#pragma unroll
    for (int c = 0; c < CLUSTER; ++c) {
#pragma unroll
      for (int i = 0; i < (BY_ROW ? 4 : 8); ++i) {
        if (BY_ROW) {
          const Piece piece = pieces(c, f)[piece_of(f, r, i)];
#pragma unroll
          for (int x = 0; x < 4; ++x) sum[x / 2][2 * i + x % 2] += piece.row[x / 2][x % 2];
        } else {
          const Pair<Sum> two =
              reinterpret_cast<const Pair<Sum>&>(pieces(c, f)[piece_of(f, i, t)].row[half]);
          sum[0][i] += two.low, sum[1][i] += two.high;
        }
      }
    }
    const long long row = first_row + f / FRAGMENTS * 16 + (BY_ROW ? r : 8 * half);
    const long long col = first_col + f % FRAGMENTS * 8 + (BY_ROW ? 0 : 2 * t);
    if (row >= sizes.rows) continue;  // sixteen rows are all there, or none
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const long long m = row + (BY_ROW ? 8 * x : 0), n = col + (BY_ROW ? 0 : x);
      const int count = int(BY_ROW ? min(sizes.columns - n, 8ll) : n < sizes.columns ? 8 : 0);
      OUT* to = out + element_offset(view, m, n);
      Vec<OUT, 8> eight;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (i < count)
          eight.value[i] = finish(sum[x][i], m + (BY_ROW ? 0 : i), n + (BY_ROW ? i : 0));
      if (count == 8) {
        eight.store(to);
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (i < count) to[i] = eight.value[i];
      }
    }
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, TOGETHER)
    semi_structured_addmm_skinny_sm90(const __grid_constant__ TensorMap packed,
                                      const __grid_constant__ TensorMap codes,
                                      const __grid_constant__ TensorMap dense,
                                      const __grid_constant__ View out,
                                      const __grid_constant__ Batch batch,
                                      const __grid_constant__ Sizes sizes,
                                      const __grid_constant__ KernelEpilogueArgs<Sum> epilogue) {
  extern __shared__ unsigned char dynamic[];
  __shared__ __align__(8) unsigned long long barriers[2][STAGES], delivery;
  unsigned char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const unsigned stages = shared_address(memory), delivered = shared_address(&delivery);
  TmaPipeline<STAGES> ring(barriers);
  if (threadIdx.x == 0) {
    ring.init(1, CONSUMERS);
    mbarrier_init(delivered, 1);
    mbarrier_init_fence();
    mbarrier_expect(delivered, INBOX_BYTES / CLUSTER * (CLUSTER - 1));  // of the others
  }
  __syncthreads();

  // The panels and matrices that meet the same rows run at the same time.
  const unsigned tile = blockIdx.x / CLUSTER, rank = blockIdx.x % CLUSTER;
  const unsigned others = sizes.panels * sizes.batches, other = tile % others;
  const unsigned b = other / sizes.panels;
  const long long top = (long long)(tile / others) * TILE_M;
  const long long first_col = (long long)(other % sizes.panels) * TILE_N;
  const int begin = int((long long)sizes.stages * rank / CLUSTER);
  const int end = int((long long)sizes.stages * (rank + 1) / CLUSTER);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  if (warp == CONSUMERS) {
    if (lane == 0)
      produce(stages, ring, packed, codes, dense, sizes.brought, begin, end, int(top),
              int(first_col), sizes.dense_batched ? int(b) : 0);
    __syncwarp();
    cluster_arrive();
    cluster_wait();
  } else {
    Sum sum[TILE_N / 2];
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] = 0;
#pragma unroll 1
    for (int s = begin; s < end; ++s) {
      mbarrier_wait(ring.full_barrier(), ring.parity);
      add_products<T>(sum, stages + ring.stage * STAGE_BYTES,
                      memory + ring.stage * STAGE_BYTES + LEFT_BYTES + RIGHT_BYTES);
      __syncwarp();
      if (lane == 0) mbarrier_arrive(ring.empty_barrier());
      ring.advance();
    }
    // All stages of all thread blocks have been read (their values are here: nothing to release).
    cluster_arrive();
    cluster_wait();
    constexpr int EACH = CONSUMERS / CLUSTER;  // sixteens of rows that a thread block owns
    const unsigned owner = warp / EACH;
    const unsigned inbox = cluster_address(stages, owner);
    const unsigned counter = cluster_address(delivered, owner);
#pragma unroll
    for (int j = 0; j < FRAGMENTS; ++j) {
      const int f = warp % EACH * FRAGMENTS + j;
      const int at = (rank * OWNED + f) * FRAGMENT_BYTES +
                     piece_of(f, lane / 4, lane % 4) * int(sizeof(Piece));
      const Piece piece = {{{sum[4 * j], sum[4 * j + 1]}, {sum[4 * j + 2], sum[4 * j + 3]}}};
      if (owner == rank)
        *reinterpret_cast<Piece*>(memory + at) = piece;
      else
        cluster_store(inbox + at, reinterpret_cast<const float4&>(piece), counter);
    }
  }
  __syncthreads();
  mbarrier_wait(delivered, 0);
  const KernelEpilogue<Sum, OUT> finish(epilogue, batch, b);
  write(memory, finish, batch_ptr<OUT>(out, batch, b), out, top + rank * (TILE_M / CLUSTER),
        first_col, sizes);
}
