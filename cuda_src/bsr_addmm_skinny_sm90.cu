// BSR @ few columns on Hopper (9.0a), for 16-bit blocks of multiples of 64 and N up to 128: bound
// by the latency of one launch and of memory, one after the other, not by arithmetic.
//
// A row tile is 64 rows of one block row, and its terms (bsr_addmm_simt.cu says what these are) are
// steps of 64. A cluster of thread blocks takes a few row tiles, and every thread block a run of
// steps of one of them, so that all have about as many (bsr_cluster_work.cu):
//
//     row tile 7    steps  0 .. 3    4 .. 7    8 .. 10       row tile 2    0 .. 2
//                   rank   0         1         2                           3
//
// Its work item is one cache line that includes the block columns, so that addresses of values and
// `dense` are both known after one read. It starts the copies of its first STAGES steps before it
// waits for any of them (by cp.async: TMA would have to fetch its tensor maps first), and one
// warpgroup multiplies them. Then it writes its sums to the inboxes of the thread blocks of the row
// tile, each of which owns some fragments of it and adds them in the order of the steps: one
// launch, no workspace, deterministic.
//
//   -DDENSE=rows     rows of 16-byte vectors, or -DDENSE=columns     columns of such
//
// -DT (f16 or bf16), -DINDEX, -DOUT, -DEPILOGUE, -DACT as in bsr_addmm_simt.cu; -DBM, -DBK the
// block, multiples of 64; -DTILE_N (16, 32, 64 or 128), -DSTAGES, -DCLUSTER (1, 2, 4 or 8);
// -DBATCHED=0: one matrix; -DCOLUMN_TILES=0: N <= TILE_N. data starts at multiples of
// 16 bytes.
#include "bsr_addmm_skinny_sm90/cluster_work.cuh"
#include "common/ceil_div.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/types.cuh"
#include "common/vector16.cuh"
#include "common/view.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

constexpr Layout LAYOUT = Layout::DENSE;
constexpr int SIDE = WORK_TILE, THREADS = 128;
constexpr int LINE = SIDE * 2;    // bytes of a line of wgmma's operands
constexpr int BOX = SIDE * LINE;  // bytes of 64 x 64 elements
constexpr int BOXES_N = ceil_div(TILE_N, SIDE);
constexpr int STAGE_BYTES = BOX * (1 + BOXES_N);
constexpr int SLICES_K = BK / SIDE;    // steps of a block
constexpr int SLICES_M = BM / SIDE;    // row tiles of a block
constexpr int FRAGMENTS = TILE_N / 8;  // of a warp's sums: 16 x 8
static_assert(BM % SIDE == 0 && BK % SIDE == 0, "blocks of whole tiles");
static_assert(TILE_N == 16 || TILE_N == 32 || TILE_N == 64 || TILE_N == 128, "few columns");
static_assert(STAGES >= 2, "a thread block's sums fit its stages");

// Fragments of sums in shared memory: 32 vectors of 16 bytes. Lane 4r + t of a warp holds rows r
// and r + 8, columns 2t and 2t + 1; vector_of() avoids bank conflicts both for the lanes of a
// quarter warp and for the same t of eight rows.
constexpr int VECTOR = 16, FRAGMENT_BYTES = 32 * VECTOR;
constexpr int TILE_FRAGMENTS = 4 * FRAGMENTS;  // of a row tile
__device__ __forceinline__ constexpr int vector_of(int r, int t) {
  return t * 8 + (r ^ t * 2);
}
constexpr int INBOX_BYTES = CLUSTER > 1 ? (TILE_FRAGMENTS + CLUSTER) * FRAGMENT_BYTES : 0;

// Which of the thread blocks of a row tile owns which of its fragments: even runs.
struct Owners {
  int splits;
  __device__ __forceinline__ int first(int split) const { return split * TILE_FRAGMENTS / splits; }
  __device__ __forceinline__ int count(int split) const { return first(split + 1) - first(split); }
  __device__ __forceinline__ int of(int fragment) const {
    return ((fragment + 1) * splits - 1) / TILE_FRAGMENTS;
  }
};

struct SkinnyProblem {
  int thread_blocks, n, column_tiles, padding;  // thread_blocks: of a matrix and column tile
};

// Copies of all threads that fill a box of lines of 128 bytes (or, with fewer than 8 VECTORS, of as
// many vectors of 16 bytes at their start) as wgmma reads it: vector v of line r is at v ^ r % 8.
template <int VECTORS, int LINES>
struct BoxCopy {
  static constexpr int APART = THREADS / VECTORS;  // lines between a thread's copies
  static constexpr int COPIES = LINES / APART;
  static_assert(LINES % APART == 0 && (APART % 8 == 0),
                "all lines of a thread have the same swizzle");

  static __device__ __forceinline__ int line() { return threadIdx.x / VECTORS; }
  static __device__ __forceinline__ int vector() { return threadIdx.x % VECTORS; }
  static __device__ __forceinline__ int place() {
    const int v = vector(), r = line();
    return v / 8 * BOX + r * LINE + (v % 8 ^ r % 8) * 16;
  }
  // Copy `size` bytes of this thread's vector of each of its lines; Partial: of the first `count`.
  template <bool Partial = false>
  static __device__ __forceinline__ void copy(unsigned char* to, const T* from, long long stride,
                                              int size, int count = LINES) {
#pragma unroll
    for (int i = 0; i < COPIES; ++i)
      if (!Partial || line() + i * APART < count)
        cp_async_partial<16, false>(to + i * APART * LINE, from + stride * (i * APART), size);
  }
};

// Stores results: eight columns from n on, of the rows m and m + 8 of the tile.
struct Writer {
  const KernelEpilogue<A, OUT>& finish;
  OUT* at;  // the tile
  long long row, col, top;
  int first_col, columns;
  bool whole;  // all TILE_N columns exist, and may be stored in vectors

  __device__ __forceinline__ void store(int m, int n, const float4 (&sums)[4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h, m += 8) {
      Vec<OUT, 8> results;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float4& of = sums[i / 2];
        const A sum = h ? (i % 2 ? of.w : of.z) : (i % 2 ? of.y : of.x);
        if (whole || n + i < columns) results.value[i] = finish(sum, top + m, first_col + n + i);
      }
      if (whole) {
        results.store(at + m * row + n);
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (n + i < columns) at[m * row + (n + i) * col] = results.value[i];
      }
    }
  }
};

extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER)
#endif
    __launch_bounds__(THREADS)
        bsr_addmm_skinny_sm90(const __grid_constant__ View out, const __grid_constant__ View work,
                              const __grid_constant__ View indices,
                              const __grid_constant__ View data, const __grid_constant__ View dense,
                              const __grid_constant__ Batch batch,
                              const __grid_constant__ SkinnyProblem problem,
                              const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles_before = BATCHED || COLUMN_TILES ? int(blockIdx.x / problem.thread_blocks) : 0;
  const int number = int(blockIdx.x) - tiles_before * problem.thread_blocks;
  const int b = BATCHED ? tiles_before / problem.column_tiles : 0;
  const int first_col = COLUMN_TILES ? (tiles_before - b * problem.column_tiles) * TILE_N : 0;
  const int columns = COLUMN_TILES ? min(TILE_N, problem.n - first_col) : problem.n;
  const unsigned stages = shared_address(shared);
  const unsigned inbox = stages + STAGES * STAGE_BYTES, delivered = inbox + INBOX_BYTES;
  if (CLUSTER > 1 && threadIdx.x == 0) {
    mbarrier_init(delivered, 1);
    mbarrier_init_fence();
  }
  __syncwarp();
  if (CLUSTER > 1) cluster_arrive();

  const ClusterWork* item =
      reinterpret_cast<const ClusterWork*>(batch_ptr<const s32>(work, batch, b)) + number;
  const ClusterWork::Head head = item->head;
  const long long begin = item->begin;
  const INDEX* column_of = batch_ptr<const INDEX>(indices, batch, b);
  auto column = [&](int i) {  // of the thread block's step i, in steps
    if (i < WORK_COLUMNS) return item->column[i];
    const long long step = begin + i;
    return int(column_of[step / SLICES_K]) * SLICES_K + int(step % SLICES_K);
  };
  int first[STAGES];
#pragma unroll
  for (int i = 0; i < STAGES; ++i) first[i] = column(i);

  typedef BoxCopy<8, SIDE> Left;
  const T* left_from = batch_ptr<const T>(data, batch, b) +
                       (head.row_tile % SLICES_M * SIDE + Left::line()) * BK + Left::vector() * 8;
  auto load_left = [&](int i) {
    const long long step = begin + i;
    const T* from = left_from + step / SLICES_K * (BM * BK) + step % SLICES_K * SIDE;
    Left::copy(shared + i % STAGES * STAGE_BYTES + Left::place(), from, BK, 16);
  };
  constexpr bool MN_MAJOR = LAYOUT == Layout::rows;
  typedef BoxCopy<MN_MAJOR ? TILE_N / 8 : 8, MN_MAJOR ? SIDE : TILE_N> Right;
  const long long line = MN_MAJOR ? dense.row : dense.col;
  const T* right_from = batch_ptr<const T>(dense, batch, b) + first_col * dense.col +
                        Right::line() * line + Right::vector() * 8;
  const int right_size = MN_MAJOR ? min(max(columns - Right::vector() * 8, 0) * 2, 16) : 16;
  auto load_right = [&](int i, int column) {
    const long long k = (long long)column * SIDE;
    Right::template copy<!MN_MAJOR>(shared + i % STAGES * STAGE_BYTES + BOX + Right::place(),
                                    right_from + k * (MN_MAJOR ? dense.row : 1), line, right_size,
                                    columns);
  };
#pragma unroll
  for (int i = 0; i < STAGES; ++i) {
    if (i < head.steps) {
      load_left(i);
      load_right(i, first[i]);
    }
    cp_async_commit();
  }
  int next = STAGES < head.steps ? column(STAGES) : 0;

  // Addresses of the results are computed while the operands are copied.
  const KernelEpilogue<A, OUT> finish(epilogue, batch, b);
  const long long top = (long long)head.row_tile * SIDE;
  OUT* at = batch_ptr<OUT>(out, batch, b) + element_offset(out, top, first_col);
  const bool whole = out.col == 1 && out.row % (16 / int(sizeof(OUT))) == 0 && columns == TILE_N &&
                     reinterpret_cast<unsigned long long>(at) % 16 == 0;
  const Writer writer{finish, at, out.row, out.col, top, first_col, columns, whole};

  f32 sum[BOXES_N * 32];
#pragma unroll
  for (int i = 0; i < BOXES_N * 32; ++i) sum[i] = 0;
#pragma unroll 1
  for (int i = 0; i < head.steps; ++i) {
    const unsigned left = stages + i % STAGES * STAGE_BYTES, right = left + BOX;
    cp_async_wait<STAGES - 1>();
    fence_async_proxy();  // wgmma reads through the async proxy
    __syncthreads();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < SIDE / 16; ++k)
      wgmma<T, false, MN_MAJOR>(sum, smem_descriptor<LINE>(left + k * 32, 8 * LINE, 16),
                                MN_MAJOR
                                    ? smem_descriptor<LINE>(right + k * 16 * LINE, 8 * LINE, BOX)
                                    : smem_descriptor<LINE>(right + k * 32, 8 * LINE, 16));
    wgmma_commit();
    if (i + STAGES < head.steps) {
      const int here = next;
      if (i + STAGES + 1 < head.steps) next = column(i + STAGES + 1);
      wgmma_wait<0>();
      __syncthreads();  // no warp reads the stage any more
      load_left(i + STAGES);
      load_right(i + STAGES, here);
    }
    cp_async_commit();
  }
  wgmma_wait<0>();

  const auto sums_of = [&](int j) {  // of fragment j of this warp
    return make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
  };
  const int mine = vector_of(lane / 4, lane % 4) * VECTOR;  // within a fragment
  const Owners owners{CLUSTER > 1 ? max(head.splits, 1) : 1};
  const int first_fragment = owners.first(head.split), owned = owners.count(head.split);
  const unsigned char* sums = shared;
  if constexpr (CLUSTER > 1) {
    if (threadIdx.x == 0)
      mbarrier_arrive_expect_tx(delivered, head.splits * owned * FRAGMENT_BYTES);
    __syncwarp();
    cluster_wait();  // all thread blocks have initialised their barriers
    if (head.splits == 0) return;
#pragma unroll
    for (int j = 0; j < FRAGMENTS; ++j) {
      const int f = warp * FRAGMENTS + j, owner = owners.of(f);
      const int slot = head.split * owners.count(owner) + f - owners.first(owner);
      st_async(cluster_address(inbox, head.first_rank + owner) + slot * FRAGMENT_BYTES + mine,
               sums_of(j), cluster_address(delivered, head.first_rank + owner));
    }
    mbarrier_wait(delivered, 0);
    sums += STAGES * STAGE_BYTES;
  } else {
    __syncthreads();  // no stage is read any more
#pragma unroll
    for (int j = 0; j < FRAGMENTS; ++j)
      *reinterpret_cast<float4*>(shared + (warp * FRAGMENTS + j) * FRAGMENT_BYTES + mine) =
          sums_of(j);
    __syncthreads();
  }

  // A thread stores eight columns of rows r and r + 8 of a fragment.
#pragma unroll 1
  for (int e = threadIdx.x; e < owned * 8; e += THREADS) {
    const int r = e % 8, f = first_fragment + e / 8;
    float4 total[4] = {};
#pragma unroll
    for (int c = 0; c < CLUSTER; ++c) {
      if (c < owners.splits) {
        const unsigned char* from = sums + (c * owned + e / 8) * FRAGMENT_BYTES;
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          const float4 x = *reinterpret_cast<const float4*>(from + vector_of(r, t) * VECTOR);
          total[t].x += x.x, total[t].y += x.y, total[t].z += x.z, total[t].w += x.w;
        }
      }
    }
    writer.store(f / FRAGMENTS * 16 + r, f % FRAGMENTS * 8, total);
  }
}
