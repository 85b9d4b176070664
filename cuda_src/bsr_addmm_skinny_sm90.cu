// BSR @ few columns on Hopper (9.0a), for 16-bit blocks of multiples of 64 and N up to 128: bound
// by the latency of one launch and of memory, one after the other, not by arithmetic.
//
// A row tile is 64 rows of one block row, and its terms (bsr_addmm_simt.cu says what these are) are
// steps of 64. A cluster of thread blocks takes a few row tiles, and every thread block a run of
// steps of one of them, so that all have about as many (bsr_row_shares.cu):
//
//     row tile 7    steps  0 .. 3    4 .. 7    8 .. 10       row tile 2    0 .. 2
//                   rank   0         1         2                           3
//
// What it has to do comes as one line of memory, block columns and all, so that values and `dense`
// are both one dependent read away. It brings the first STAGES of its steps before it waits for any
// of them (cp.async: the copy engine would first fetch its tensor maps), and one warpgroup
// multiplies them. Then it pushes its sums into the inboxes of the thread blocks of the row tile,
// each of which owns some fragments of it and adds them in the order of the steps: one launch, no
// workspace, deterministic.
//
//   -DDENSE=rows     rows of 16-byte pieces, or -DDENSE=columns     columns of such
//
// -DT (f16 or bf16), -DINDEX, -DOUT, -DEPILOGUE, -DACT as in bsr_addmm_simt.cu; -DBM, -DBK the
// block, multiples of 64; -DTILE_N (16, 32, 64 or 128), -DSTAGES, -DCLUSTER (1, 2, 4 or 8);
// -DBATCHED=0: one matrix; -DCOLUMN_TILES=0: N <= TILE_N. data starts at multiples of
// 16 bytes.
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/vector16.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/row_shares.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/cluster.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/wgmma.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

constexpr Layout LAYOUT = Layout::DENSE;
constexpr int SIDE = SHARE_TILE, THREADS = 128;
constexpr int LINE = SIDE * 2;    // bytes of a row of wgmma's operands
constexpr int BOX = SIDE * LINE;  // bytes of 64 x 64 elements
constexpr int PANELS = (TILE_N + SIDE - 1) / SIDE;
constexpr int STAGE_BYTES = BOX * (1 + PANELS);
constexpr int PARTS = BK / SIDE;       // steps of a block
constexpr int SLICES = BM / SIDE;      // row tiles of a block
constexpr int FRAGMENTS = TILE_N / 8;  // of a warp's sums: 16 x 8
static_assert(BM % SIDE == 0 && BK % SIDE == 0, "blocks of whole tiles");
static_assert(TILE_N == 16 || TILE_N == 32 || TILE_N == 64 || TILE_N == 128, "few columns");
static_assert(STAGES >= 2, "a thread block's sums fit its ring");

// Sums as they pass through shared memory: 32 pieces of 16 bytes a fragment. Lane 4r + t of a warp
// holds rows r and r + 8, columns 2t and 2t + 1; where it puts them, neither the lanes of a quarter
// warp nor eight rows meet in a bank.
constexpr int PIECE = 16, FRAGMENT_BYTES = 32 * PIECE;
constexpr int ALL = 4 * FRAGMENTS;  // fragments of a row tile
__device__ __forceinline__ constexpr int piece_of(int r, int t) {
  return t * 8 + (r ^ t * 2);
}
constexpr int INBOX_BYTES = CLUSTER > 1 ? (ALL + CLUSTER) * FRAGMENT_BYTES : 0;

// The fragments of a row tile by the thread blocks that own them, in even runs.
struct Owners {
  int parts;
  __device__ __forceinline__ int first(int part) const { return part * ALL / parts; }
  __device__ __forceinline__ int count(int part) const { return first(part + 1) - first(part); }
  __device__ __forceinline__ int of(int fragment) const {
    return ((fragment + 1) * parts - 1) / ALL;
  }
};

struct Sizes {
  int shares, columns, column_tiles, padding;  // thread blocks of a matrix; N
};

// Lines of 128 bytes (or, with fewer PIECES, their first pieces of 16) that the threads bring
// together into a box as wgmma reads it: piece p of line r lies at piece p ^ r % 8.
template <int PIECES, int LINES>
struct Lines {
  static constexpr int APART = THREADS / PIECES;  // lines between a thread's copies
  static constexpr int COPIES = LINES / APART;
  static_assert(LINES % APART == 0 && (APART % 8 == 0), "a thread's lines have one pattern");

  static __device__ __forceinline__ int line() { return threadIdx.x / PIECES; }
  static __device__ __forceinline__ int piece() { return threadIdx.x % PIECES; }
  static __device__ __forceinline__ int place() {
    const int p = piece(), r = line();
    return p / 8 * BOX + r * LINE + (p % 8 ^ r % 8) * 16;
  }
  // Bring `size` bytes of this thread's piece of each of its lines; RAGGED: of the first `count`.
  template <bool RAGGED = false>
  static __device__ __forceinline__ void bring(unsigned char* to, const T* from, long long stride,
                                               int size, int count = LINES) {
#pragma unroll
    for (int i = 0; i < COPIES; ++i)
      if (!RAGGED || line() + i * APART < count)
        cp_async_partial<16, false>(to + i * APART * LINE, from + stride * (i * APART), size);
  }
};

// Where results go: eight columns from n on, of the rows m and m + 8 of the tile.
struct Writer {
  const KernelEpilogue<A, OUT>& finish;
  OUT* at;  // the tile
  long long row, col, top;
  int first_col, columns;
  bool whole;  // all of TILE_N columns, eight of which 16-byte stores write

  __device__ __forceinline__ void write(int m, int n, const float4 (&sums)[4]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h, m += 8) {
      Vec<OUT, 8> eight;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float4& of = sums[i / 2];
        const A sum = h ? (i % 2 ? of.w : of.z) : (i % 2 ? of.y : of.x);
        if (whole || n + i < columns) eight.value[i] = finish(sum, top + m, first_col + n + i);
      }
      if (whole) {
        eight.store(at + m * row + n);
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (n + i < columns) at[m * row + (n + i) * col] = eight.value[i];
      }
    }
  }
};

extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER)
#endif
    __launch_bounds__(THREADS)
        bsr_addmm_skinny_sm90(const __grid_constant__ View out, const __grid_constant__ View shares,
                              const __grid_constant__ View indices,
                              const __grid_constant__ View data, const __grid_constant__ View dense,
                              const __grid_constant__ Batch batch,
                              const __grid_constant__ Sizes sizes,
                              const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles_before = BATCHED || COLUMN_TILES ? int(blockIdx.x / sizes.shares) : 0;
  const int number = int(blockIdx.x) - tiles_before * sizes.shares;
  const int b = BATCHED ? tiles_before / sizes.column_tiles : 0;
  const int first_col = COLUMN_TILES ? (tiles_before - b * sizes.column_tiles) * TILE_N : 0;
  const int columns = COLUMN_TILES ? min(TILE_N, sizes.columns - first_col) : sizes.columns;
  const unsigned ring = shared_address(shared);
  const unsigned inbox = ring + STAGES * STAGE_BYTES, delivered = inbox + INBOX_BYTES;
  if (CLUSTER > 1 && threadIdx.x == 0) {
    mbarrier_init(delivered, 1);
    mbarrier_init_fence();
  }
  __syncwarp();
  if (CLUSTER > 1) cluster_arrive();

  const Share* share =
      reinterpret_cast<const Share*>(batch_ptr<const s32>(shares, batch, b)) + number;
  const Share::Head head = share->head;
  const long long begin = share->begin;
  const INDEX* column_of = batch_ptr<const INDEX>(indices, batch, b);
  auto column = [&](int i) {  // of the thread block's step i, in steps
    if (i < SHARE_COLUMNS) return share->column[i];
    const long long step = begin + i;
    return int(column_of[step / PARTS]) * PARTS + int(step % PARTS);
  };
  int first[STAGES];
#pragma unroll
  for (int i = 0; i < STAGES; ++i) first[i] = column(i);

  typedef Lines<8, SIDE> Left;
  const T* left_from = batch_ptr<const T>(data, batch, b) +
                       (head.row_tile % SLICES * SIDE + Left::line()) * BK + Left::piece() * 8;
  auto load_left = [&](int i) {
    const long long step = begin + i;
    const T* from = left_from + step / PARTS * (BM * BK) + step % PARTS * SIDE;
    Left::bring(shared + i % STAGES * STAGE_BYTES + Left::place(), from, BK, 16);
  };
  constexpr bool BY_N = LAYOUT == Layout::rows;
  typedef Lines<BY_N ? TILE_N / 8 : 8, BY_N ? SIDE : TILE_N> Right;
  const long long line = BY_N ? dense.row : dense.col;
  const T* right_from = batch_ptr<const T>(dense, batch, b) + first_col * dense.col +
                        Right::line() * line + Right::piece() * 8;
  const int right_size = BY_N ? min(max(columns - Right::piece() * 8, 0) * 2, 16) : 16;
  auto load_right = [&](int i, int column) {
    const long long k = (long long)column * SIDE;
    Right::template bring<!BY_N>(shared + i % STAGES * STAGE_BYTES + BOX + Right::place(),
                                 right_from + k * (BY_N ? dense.row : 1), line, right_size,
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

  // The results' places are looked up while the operands are on their way.
  const KernelEpilogue<A, OUT> finish(epilogue, batch, b);
  const long long top = (long long)head.row_tile * SIDE;
  OUT* at = batch_ptr<OUT>(out, batch, b) + element_offset(out, top, first_col);
  const bool whole = out.col == 1 && out.row % (16 / int(sizeof(OUT))) == 0 && columns == TILE_N &&
                     reinterpret_cast<unsigned long long>(at) % 16 == 0;
  const Writer writer{finish, at, out.row, out.col, top, first_col, columns, whole};

  f32 sum[PANELS * 32];
#pragma unroll
  for (int i = 0; i < PANELS * 32; ++i) sum[i] = 0;
#pragma unroll 1
  for (int i = 0; i < head.steps; ++i) {
    const unsigned left = ring + i % STAGES * STAGE_BYTES, right = left + BOX;
    cp_async_wait<STAGES - 1>();
    bulk_fence();  // wgmma reads as the copy engine does
    __syncthreads();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < SIDE / 16; ++k)
      wgmma<T, false, BY_N>(sum, wgmma_operand<LINE>(left + k * 32, 8 * LINE, 16),
                            BY_N ? wgmma_operand<LINE>(right + k * 16 * LINE, 8 * LINE, BOX)
                                 : wgmma_operand<LINE>(right + k * 32, 8 * LINE, 16));
    wgmma_commit();
    if (i + STAGES < head.steps) {
      const int here = next;
      if (i + STAGES + 1 < head.steps) next = column(i + STAGES + 1);
      wgmma_wait<0>();
      __syncthreads();  // the stage is no longer read
      load_left(i + STAGES);
      load_right(i + STAGES, here);
    }
    cp_async_commit();
  }
  wgmma_wait<0>();

  const auto piece = [&](int j) {  // of fragment j of this warp
    return make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
  };
  const int mine = piece_of(lane / 4, lane % 4) * PIECE;  // within a fragment
  const Owners owners{CLUSTER > 1 ? max(head.parts, 1) : 1};
  const int first_fragment = owners.first(head.part), owned = owners.count(head.part);
  const unsigned char* sums = shared;
  if constexpr (CLUSTER > 1) {
    if (threadIdx.x == 0) mbarrier_expect(delivered, head.parts * owned * FRAGMENT_BYTES);
    __syncwarp();
    cluster_wait();  // all thread blocks run, and have made their barriers
    if (head.parts == 0) return;
#pragma unroll
    for (int j = 0; j < FRAGMENTS; ++j) {
      const int f = warp * FRAGMENTS + j, owner = owners.of(f);
      const int slot = head.part * owners.count(owner) + f - owners.first(owner);
      cluster_store(cluster_address(inbox, head.base + owner) + slot * FRAGMENT_BYTES + mine,
                    piece(j), cluster_address(delivered, head.base + owner));
    }
    mbarrier_wait(delivered, 0);
    sums += STAGES * STAGE_BYTES;
  } else {
    __syncthreads();  // nothing of the ring is read any more
#pragma unroll
    for (int j = 0; j < FRAGMENTS; ++j)
      *reinterpret_cast<float4*>(shared + (warp * FRAGMENTS + j) * FRAGMENT_BYTES + mine) =
          piece(j);
    __syncthreads();
  }

  // A thread writes two rows of eights: rows r and r + 8 of a fragment.
#pragma unroll 1
  for (int e = threadIdx.x; e < owned * 8; e += THREADS) {
    const int r = e % 8, f = first_fragment + e / 8;
    float4 total[4] = {};
#pragma unroll
    for (int c = 0; c < CLUSTER; ++c) {
      if (c < owners.parts) {
        const unsigned char* from = sums + (c * owned + e / 8) * FRAGMENT_BYTES;
#pragma unroll
        for (int t = 0; t < 4; ++t) {
          const float4 x = *reinterpret_cast<const float4*>(from + piece_of(r, t) * PIECE);
          total[t].x += x.x, total[t].y += x.y, total[t].z += x.z, total[t].w += x.w;
        }
      }
    }
    writer.write(f / FRAGMENTS * 16 + r, f % FRAGMENTS * 8, total);
  }
}
