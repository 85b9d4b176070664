// 2:4 @ few columns on Hopper's sparse tensor cores (9.0a): bound by reading the packed matrix,
// once.
//
// A row tile is 128 rows. The thread blocks of a cluster each take a run of its k, so that even few
// rows are read by all multiprocessors:
//
//     row tile 0    k  0 .. 31    32 .. 63       row tile 1    0 .. 31    32 .. 63
//                   rank    0            1                     0           1
//
// A producer thread starts TMA copies, STAGES stages ahead; two warpgroups multiply 64 rows each. A
// stage holds what 256 bytes of a dense column are multiplied by:
//
//       left      128 packed rows, 128 bytes of each
//       right     256 bytes of k of TILE_N columns of `dense`
//       meta      metadata of 128 rows and four pairs of columns, in CUTLASS's order
//                 (common/semi_structured.cuh)
//
// Then every thread block writes its sums to the inboxes of the others. Each owns as many rows of
// the tile, and adds the sums of them in the order of k: one launch, no workspace, deterministic.
//
//   -DT, -DOUT, -DEPILOGUE, -DACT as in semi_structured_addmm_sm90.cu
//   -DDENSE=rows|columns  which of its strides is 1; rows only for 16-bit types (wgmma)
//   -DSTORE=rows|columns  along which `out` is stored
//   -DTILE_N=16|32|64|128, -DCLUSTER=1|2|4|8, -DSTAGES
#include "common/kernel_epilogue.cuh"
#include "common/sparse_wgmma.cuh"
#include "common/tma_pipeline.cuh"
#include "common/types.cuh"
#include "common/vector16.cuh"
#include "common/view.cuh"
#include "common/warp_arrive.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"

using namespace sparsegpu;

typedef Acc<T>::type Sum;
typedef TmaPipeline<STAGES> Pipeline;
constexpr bool STORE_ROWS = Layout::STORE == Layout::rows;
constexpr bool MN_MAJOR = Layout::DENSE == Layout::rows;  // as wgmma reads `dense`
constexpr int SIZE = sizeof(T);
static_assert(SIZE == 2 || !MN_MAJOR, "k is contiguous but for 16-bit types");

constexpr int TILE_M = 128;
constexpr int PRODUCTS = 4;  // of a stage: wgmma takes 64 bytes of k
constexpr int STAGE_K = PRODUCTS * 64 / SIZE;
constexpr int LEFT_BYTES = TILE_M * 128;
constexpr int RIGHT_BYTES = TILE_N * 256;
constexpr int STAGE_BYTES = LEFT_BYTES + RIGHT_BYTES + PRODUCTS * META_PAIR_BYTES<T, TILE_M>;
static_assert(STAGE_BYTES % 1024 == 0, "every stage begins where a swizzle's pattern does");

// Boxes of `dense` have lines of k or of n, as wide as a swizzle may be: 128 bytes unless TILE_N is
// less.
constexpr int WIDTH = MN_MAJOR && TILE_N * SIZE < 128 ? TILE_N * SIZE : 128;
constexpr int BOX_BYTES = WIDTH * (MN_MAJOR ? STAGE_K : TILE_N);
constexpr int BOXES = RIGHT_BYTES / BOX_BYTES;
static_assert(TILE_N == 16 || TILE_N == 32 || TILE_N == 64 || TILE_N == 128, "few columns");

constexpr int CONSUMERS = 8;  // warps
constexpr int THREADS = 32 * CONSUMERS + 32;

struct SemiStructuredSkinnyProblem {
  long long m, n;
  unsigned column_tiles, batches;
  int stages;       // of k
  int stage_bytes;  // that copies load
  int dense_batched, padding;
};

// Fragments of sums, 16 x 8, for other thread blocks: 32 elements of 16 bytes. Lane 4r + t of a
// warp holds rows r and r + 8, columns 2t and 2t + 1. element_of() avoids bank conflicts for the
// lanes of a quarter warp that write fragments, for those that read along rows, and for those that
// read along columns of two fragments.
struct alignas(16) FragmentElement {
  Sum row[2][2];
};
constexpr int FRAGMENT_BYTES = 32 * sizeof(FragmentElement);
__device__ __forceinline__ constexpr int element_of(int fragment, int r, int t) {
  return t * 8 + (r ^ t * 2 ^ fragment % 2);
}
constexpr int FRAGMENTS = TILE_N / 8;                   // of sixteen rows
constexpr int OWNED = CONSUMERS / CLUSTER * FRAGMENTS;  // of a thread block
constexpr int INBOX_BYTES = CLUSTER * OWNED * FRAGMENT_BYTES;
static_assert(INBOX_BYTES <= STAGES * STAGE_BYTES, "the inbox takes the place of the stages");

// Copy stages `begin` to `end`. Boxes of columns past the last one may be absent: products of stale
// shared memory there are never stored.
__device__ __forceinline__ void produce(unsigned stages, Pipeline pipeline, const TensorMap& packed,
                                        const TensorMap& meta, const TensorMap& dense,
                                        int stage_bytes, int begin, int end, int row, int col,
                                        int batch) {
  for (int s = begin; s < end; ++s) {
    mbarrier_wait(pipeline.empty_barrier(), pipeline.parity ^ 1);
    const unsigned full = pipeline.full_barrier();
    const unsigned left = stages + pipeline.stage * STAGE_BYTES, right = left + LEFT_BYTES;
    mbarrier_arrive_expect_tx(full, stage_bytes);
    tma_load(left, packed, full, s * (STAGE_K / 2), row);
    tma_load(right + RIGHT_BYTES, meta, full, 2 * row, s * PRODUCTS);
#pragma unroll
    for (int b = 0; b < BOXES; ++b) {
      const int along = b * (WIDTH / SIZE);
      if (MN_MAJOR)
        tma_load(right + b * BOX_BYTES, dense, full, col + along, s * STAGE_K, batch);
      else
        tma_load(right + b * BOX_BYTES, dense, full, s * STAGE_K + along, col, batch);
    }
    pipeline.advance();
  }
}

// sum += the products of a stage.
__device__ __forceinline__ void multiply(Sum (&sum)[TILE_N / 2], unsigned stage,
                                         const unsigned char* meta) {
  constexpr int EACH = PRODUCTS_PER_WORD<T>;
  unsigned words[PRODUCTS / EACH];
#pragma unroll
  for (int w = 0; w < PRODUCTS / EACH; ++w) words[w] = meta_word<T, TILE_M>(meta, w);
  const unsigned left = stage + threadIdx.x / 128 * 64 * 128, right = stage + LEFT_BYTES;
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < PRODUCTS; ++k) {
    const auto a = smem_descriptor<128>(left + k * 32, 1024, 16);
    const auto b = MN_MAJOR
                       ? smem_descriptor<WIDTH>(right + k * 32 * WIDTH, 8 * WIDTH, BOX_BYTES)
                       : smem_descriptor<128>(right + k / 2 * BOX_BYTES + k % 2 * 64, 1024, 16);
    if (k % EACH)
      wgmma_sp<T, EACH - 1, MN_MAJOR>(sum, a, b, words[k / EACH]);
    else
      wgmma_sp<T, 0, MN_MAJOR>(sum, a, b, words[k / EACH]);
  }
  wgmma_commit();
  wgmma_wait<0>();
}

template <typename U>
__device__ __forceinline__ void add_products(Sum (&sum)[TILE_N / 2], unsigned stage,
                                             const unsigned char* meta) {
  if constexpr (PROMOTED<U>) {
    Sum products[TILE_N / 2] = {};
    multiply(products, stage, meta);
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] += products[i];
  } else {
    multiply(sum, stage, meta);
  }
}

// Thread blocks of a multiprocessor, by its registers.
constexpr int RESIDENT = PROMOTED<T> && TILE_N == 128 ? 1 : 2;

// Add and store the sums that this thread block owns: a thread stores two vectors of eight outputs
// at a time, each along a row of `out` or along a column. Where vectors would be unaligned,
// neighbouring threads store neighbouring elements.
__device__ __forceinline__ void store_owned(const unsigned char* inbox,
                                            const KernelEpilogue<Sum, OUT>& finish, OUT* out,
                                            const View& view, long long first_row,
                                            long long first_col,
                                            const SemiStructuredSkinnyProblem& problem) {
  const auto elements = [&](int rank, int fragment) {
    return reinterpret_cast<const FragmentElement*>(inbox +
                                                    (rank * OWNED + fragment) * FRAGMENT_BYTES);
  };
  const long long along = STORE_ROWS ? view.col : view.row,
                  across = STORE_ROWS ? view.row : view.col;
  const bool aligned = along == 1 && across * sizeof(OUT) % alignof(Vec<OUT, 8>) == 0 &&
                       reinterpret_cast<unsigned long long>(out) % alignof(Vec<OUT, 8>) == 0;
  if (!aligned) {
    constexpr int ROWS = TILE_M / CLUSTER;
#pragma unroll 1
    for (int e = threadIdx.x; e < ROWS * TILE_N; e += THREADS) {
      const int m = STORE_ROWS ? e / TILE_N : e % ROWS, n = STORE_ROWS ? e % TILE_N : e / ROWS;
      const int f = m / 16 * FRAGMENTS + n / 8;
      Sum sum = 0;
#pragma unroll
      for (int c = 0; c < CLUSTER; ++c)
        sum += elements(c, f)[element_of(f, m % 8, n % 8 / 2)].row[m / 8 % 2][n % 2];
      const long long row = first_row + m, col = first_col + n;
      if (row < problem.m && col < problem.n)
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
      for (int i = 0; i < (STORE_ROWS ? 4 : 8); ++i) {
        if (STORE_ROWS) {
          const FragmentElement element = elements(c, f)[element_of(f, r, i)];
#pragma unroll
          for (int x = 0; x < 4; ++x) sum[x / 2][2 * i + x % 2] += element.row[x / 2][x % 2];
        } else {
          const Pair<Sum> two =
              reinterpret_cast<const Pair<Sum>&>(elements(c, f)[element_of(f, i, t)].row[half]);
          sum[0][i] += two.low, sum[1][i] += two.high;
        }
      }
    }
    const long long row = first_row + f / FRAGMENTS * 16 + (STORE_ROWS ? r : 8 * half);
    const long long col = first_col + f % FRAGMENTS * 8 + (STORE_ROWS ? 0 : 2 * t);
    if (row >= problem.m) continue;  // sixteen rows are all there, or none
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const long long m = row + (STORE_ROWS ? 8 * x : 0), n = col + (STORE_ROWS ? 0 : x);
      const int count = int(STORE_ROWS ? min(problem.n - n, 8ll) : n < problem.n ? 8 : 0);
      OUT* to = out + element_offset(view, m, n);
      Vec<OUT, 8> results;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (i < count)
          results.value[i] = finish(sum[x][i], m + (STORE_ROWS ? 0 : i), n + (STORE_ROWS ? i : 0));
      if (count == 8) {
        results.store(to);
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (i < count) to[i] = results.value[i];
      }
    }
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER) __launch_bounds__(THREADS, RESIDENT)
    semi_structured_addmm_skinny_sm90(const __grid_constant__ TensorMap packed,
                                      const __grid_constant__ TensorMap meta,
                                      const __grid_constant__ TensorMap dense,
                                      const __grid_constant__ View out,
                                      const __grid_constant__ Batch batch,
                                      const __grid_constant__ SemiStructuredSkinnyProblem problem,
                                      const __grid_constant__ KernelEpilogueArgs<Sum> epilogue) {
  extern __shared__ unsigned char dynamic[];
  __shared__ __align__(8) unsigned long long barriers[2][STAGES], delivery;
  unsigned char* memory = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const unsigned stages = shared_address(memory), delivered = shared_address(&delivery);
  Pipeline pipeline(barriers);
  if (threadIdx.x == 0) {
    pipeline.init(1, CONSUMERS * WARP_ARRIVALS);
    mbarrier_init(delivered, 1);
    mbarrier_init_fence();
    mbarrier_arrive_expect_tx(delivered, INBOX_BYTES / CLUSTER * (CLUSTER - 1));  // of the others
  }
  __syncthreads();

  // Column tiles and matrices with the same rows of `packed` are neighbours, and run at the same
  // time.
  const unsigned tile = blockIdx.x / CLUSTER, rank = blockIdx.x % CLUSTER;
  const unsigned others = problem.column_tiles * problem.batches, other = tile % others;
  const unsigned b = other / problem.column_tiles;
  const long long top = (long long)(tile / others) * TILE_M;
  const long long first_col = (long long)(other % problem.column_tiles) * TILE_N;
  const int begin = int((long long)problem.stages * rank / CLUSTER);
  const int end = int((long long)problem.stages * (rank + 1) / CLUSTER);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  if (warp == CONSUMERS) {
    if (lane == 0)
      produce(stages, pipeline, packed, meta, dense, problem.stage_bytes, begin, end, int(top),
              int(first_col), problem.dense_batched ? int(b) : 0);
    __syncwarp();
    cluster_arrive();
    cluster_wait();
  } else {
    Sum sum[TILE_N / 2];
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) sum[i] = 0;
#pragma unroll 1
    for (int s = begin; s < end; ++s) {
      mbarrier_wait(pipeline.full_barrier(), pipeline.parity);
      add_products<T>(sum, stages + pipeline.stage * STAGE_BYTES,
                      memory + pipeline.stage * STAGE_BYTES + LEFT_BYTES + RIGHT_BYTES);
      warp_arrive(pipeline.empty_barrier());
      pipeline.advance();
    }
    // All thread blocks have read all their stages, so inboxes may overwrite them.
    cluster_arrive();
    cluster_wait();
    constexpr int EACH = CONSUMERS / CLUSTER;  // runs of sixteen rows that a thread block owns
    const unsigned owner = warp / EACH;
    const unsigned inbox = cluster_address(stages, owner);
    const unsigned counter = cluster_address(delivered, owner);
#pragma unroll
    for (int j = 0; j < FRAGMENTS; ++j) {
      const int f = warp % EACH * FRAGMENTS + j;
      const int at = (rank * OWNED + f) * FRAGMENT_BYTES +
                     element_of(f, lane / 4, lane % 4) * int(sizeof(FragmentElement));
      const FragmentElement element = {
          {{sum[4 * j], sum[4 * j + 1]}, {sum[4 * j + 2], sum[4 * j + 3]}}};
      if (owner == rank)
        *reinterpret_cast<FragmentElement*>(memory + at) = element;
      else
        st_async(inbox + at, reinterpret_cast<const float4&>(element), counter);
    }
  }
  __syncthreads();
  mbarrier_wait(delivered, 0);
  const KernelEpilogue<Sum, OUT> finish(epilogue, batch, b);
  store_owned(memory, finish, batch_ptr<OUT>(out, batch, b), out, top + rank * (TILE_M / CLUSTER),
              first_col, problem);
}
