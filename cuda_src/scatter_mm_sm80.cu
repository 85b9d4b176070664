// Products of pairs of blocks, added where index lists say, on tensor cores through mma.sync (8.0
// and later): bfloat16, float16 and int8.
//
// The idea is that of scatter_mm_simt.cu, to be read first: the products of a tile's pairs, laid
// end to end, are one long sum. Here its terms go through shared memory TILE_K at a time, in a
// pipeline of STAGES such slices. A slice may span pairs. Where it is a part of one or some whole
// ones, all threads look up the same places, a slice before its copies. What a tile holds beyond
// the block's rows, beyond Ns or beyond the last term is zero.
//
// Blocks and others are copied in 16-byte vectors of their rows, so a row of a block is a whole
// number of them, and rows begin at multiples of 16 bytes. Where a pair's other begins between such
// places, its elements are copied one by one. Others of int8 are transposed on the way, four
// columns of four rows at a time.
//
// The sums pass through shared memory, so that accumulators are read and written in vectors, too,
// where their rows allow it: some are read before the first is written.
//
// -DT, -DINDEX, -DFORMAT, -DOUT, -DEPILOGUE, -DGROUP_SIZE as in scatter_mm_simt.cu; -DKS columns of
// a block; -DTILE_M, -DTILE_N outputs of a thread block, shared by WARPS_M x WARPS_N warps;
// -DTILE_K terms of a slice; -DSTAGES.
#include "common/dense_tile_cp_async.cuh"
#include "common/kernel_epilogue.cuh"
#include "common/pair_sum.cuh"
#include "common/scatter_store.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
constexpr ListFormat LIST_FORMAT = ListFormat::FORMAT;
typedef PairSum<LIST_FORMAT> Pairs;

constexpr int VECTOR = 16 / sizeof(T);  // elements of a 16-byte copy
constexpr int THREADS = 32 * WARPS_M * WARPS_N;
constexpr int WARP_M = TILE_M / WARPS_M, WARP_N = TILE_N / WARPS_N;
// A slice is a part of a pair, or some pairs: then all threads look up the same few places.
constexpr bool WHOLE_PAIRS = KS % TILE_K == 0 || TILE_K % KS == 0;
constexpr int PAIRS = KS < TILE_K ? TILE_K / KS : 1;  // of a slice, if WHOLE_PAIRS
// Thread blocks of a multiprocessor that its 65536 registers suffice for.
constexpr int REGISTERS = WARP_M * WARP_N > 1024 ? 256 : WHOLE_PAIRS && PAIRS == 1 ? 128 : 168;
constexpr int RESIDENT = 65536 / (REGISTERS * THREADS);
// Each warp stages sixteen rows of sums where the stages were.
constexpr int STAGING_PITCH = WARP_N + 8;
static_assert(KS % VECTOR == 0, "a vector lies within one block");
static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "a warp multiplies 16 x 16 outputs at a time");

typedef OperandTile<T, TILE_M, TILE_K, true> Left;  // by row
typedef OperandTile<T, TILE_N, TILE_K, sizeof(T) == 1>
    Right;  // by k, as others lie; int8 by column
constexpr int STAGE_BYTES = Left::BYTES + Right::BYTES;
typedef WarpOutputs<A, WARP_M, WARP_N, WARPS_N> Outputs;
typedef OutputMatrix<KernelEpilogue<A, OUT>> Accumulators;
static_assert(WARPS_M * WARPS_N * 16 * STAGING_PITCH * 4 <= STAGES * STAGE_BYTES, "they fit");

// The operands of one tile of the output: where they begin, and how many rows and columns count.
struct Operands {
  const Pairs& tile;
  const Lists<INDEX>& lists;
  const ScatterProblem& problem;
  const View &blocks, &others;
  const T *block, *other;
  int rows, columns;
  const T *left_at[PAIRS], *right_at[PAIRS];  // WHOLE_PAIRS: the next slice

  // Where the block and the other of the pair are that term k belongs to; k becomes its number
  // within the pair.
  __device__ __forceinline__ void locate(long long& k, const T*& left, const T*& right) const {
    const long long pair = k / KS;
    long long block_at, other_at;
    tile.locate(lists, problem, blocks, others, tile.first + pair, block_at, other_at);
    left = block + block_at;
    right = other + other_at;
    k -= pair * KS;
  }
  // Look up where the slice from term `start` on lies, of which `here` count. That loads what the
  // copies would wait for.
  __device__ __forceinline__ void find(long long start, int here) {
    if constexpr (WHOLE_PAIRS) {
#pragma unroll
      for (int i = 0; i < PAIRS; ++i) {
        if (i * KS >= here) break;
        long long k = start + i * KS;
        locate(k, left_at[i], right_at[i]);
        left_at[i] += k;
        right_at[i] += k * others.row;
      }
    }
  }
  static __device__ __forceinline__ const T* choose(const T* const (&places)[PAIRS], int pair) {
    const T* place = places[0];
#pragma unroll
    for (int i = 1; i < PAIRS; ++i)
      if (pair == i) place = places[i];
    return place;
  }

  // Start to copy the slice from term `start` on, of which `here` count.
  __device__ __forceinline__ void load(unsigned char* stage, long long start, int here) const {
    const int x = threadIdx.x % (TILE_K / VECTOR) * VECTOR;  // this thread's terms of each row
    const T *left = block, *unused;
    const int there = x < here ? rows : 0;
    if constexpr (WHOLE_PAIRS) {
      left = choose(left_at, x / KS) + x % (PAIRS == 1 ? TILE_K : KS);
    } else if (there) {
      long long k = start + x;
      locate(k, left, unused);
      left += k;
    }
    share_copies<THREADS, TILE_K / VECTOR, TILE_M>([&](int, int y, int c) {
      cp_async<16>(stage + Left::offset(y + c, x), left + (y + c) * blocks.row, y + c < there);
    });
    if constexpr (sizeof(T) == 1)
      transpose_right(stage + Left::BYTES, start, here);
    else
      load_right(stage + Left::BYTES, start, here);
  }

  // Copy the rows of others that the slice's terms meet, as they lie ...
  __device__ __forceinline__ void load_right(unsigned char* to, long long start, int here) const {
    const T* unused;
    share_copies<THREADS, TILE_N / VECTOR, TILE_K>([&](int vector, int y, int c) {
      constexpr int DOWN = THREADS / (TILE_N / VECTOR);  // y is less
      const int n = vector * VECTOR;
      const int count = y + c < here ? min(max(columns - n, 0), VECTOR) : 0;
      const T* right = other;
      if constexpr (WHOLE_PAIRS) {
        const int pair = PAIRS == 1 ? 0 : KS % DOWN == 0 ? c / KS : (y + c) / KS;
        right = choose(right_at, pair) + (y + c - pair * KS) * others.row + n;
      } else if (count) {
        long long term = start + y + c;
        locate(term, unused, right);
        right += term * others.row + n;
      }
      // blocks and others of stacks begin at multiples of 16 bytes
      if (LIST_FORMAT == ListFormat::pairs ||
          reinterpret_cast<unsigned long long>(right) % 16 == 0) {
        cp_async_partial<16, false>(to + Right::offset(n, y + c), right, count * int(sizeof(T)));
      } else {
#pragma unroll
        for (int e = 0; e < VECTOR; ++e)
          *reinterpret_cast<T*>(to + Right::offset(n + e, y + c)) =
              e < count ? right[e] : zero_of<T>();
      }
    });
  }

  // ... or transposed.
  __device__ __forceinline__ void transpose_right(unsigned char* to, long long start,
                                                  int here) const {
    transpose_bytes<Right, TILE_N, TILE_K, THREADS>(to, [&](int k, int n) {
      const int count = k < here ? min(columns - n, 4) : 0;
      if (count <= 0) return 0u;
      const T *right, *unused;
      if constexpr (WHOLE_PAIRS) {
        const int pair = PAIRS == 1 ? 0 : k / KS;
        right = choose(right_at, pair) + (k - pair * KS) * others.row + n;
      } else {
        long long term = start + k;
        locate(term, unused, right);
        right += term * others.row + n;
      }
      if (count == 4 && reinterpret_cast<unsigned long long>(right) % 4 == 0)
        return *reinterpret_cast<const unsigned*>(right);
      unsigned word = 0;
      for (int i = 0; i < count; ++i)
        word |= unsigned(reinterpret_cast<const unsigned char*>(right)[i]) << (8 * i);
      return word;
    });
  }
};

// Add the products of one slice, 32 bytes of k at a time.
__device__ __forceinline__ void multiply(Outputs& outputs, const unsigned char* stage) {
  const FragmentLoader<Left, SixteenRows> rows(stage, outputs.row);
  const FragmentLoader<Right, SixteenColumns> columns(stage + Left::BYTES, outputs.col);
#pragma unroll
  for (int step = 0; step < TILE_K * int(sizeof(T)) / 32; ++step) {
    unsigned a[WARP_M / 16][4];
#pragma unroll
    for (int i = 0; i < WARP_M / 16; ++i) rows.load(a[i], 16 * i, 2 * step);
#pragma unroll
    for (int j = 0; j < WARP_N / 8; j += 2) {
      unsigned b[4];
      columns.load(b, 8 * j, 2 * step);
      const unsigned first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
#pragma unroll
      for (int i = 0; i < WARP_M / 16; ++i) {
        mma<T>(outputs.sum[i][j], a[i], first);
        mma<T>(outputs.sum[i][j + 1], a[i], second);
      }
    }
  }
}

// Add a warp's sums to the accumulators. `staging` has room for sixteen rows.
__device__ __forceinline__ void store(const Outputs& outputs, A* staging,
                                      const TileAccumulators<Accumulators>& accumulators) {
#pragma unroll
  for (int sixteen = 0; sixteen < WARP_M / 16; ++sixteen) {
    outputs.sixteen_rows(sixteen,
                         [&](int m, int n, A sum) { staging[m * STAGING_PITCH + n] = sum; });
    __syncwarp();
    accumulators.add<WARP_N, STAGING_PITCH>(staging, outputs.row + 16 * sixteen, outputs.col);
    __syncwarp();
  }
}

typedef ScatterPart<LIST_FORMAT, TILE_M, TILE_N, GROUP_SIZE> Part;

// A thread block computes one TILE_M x TILE_N part of one tile of one batch. The arguments are
// those of scatter_mm_simt.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    scatter_mm_sm80(const __grid_constant__ View accumulators, const __grid_constant__ View blocks,
                    const __grid_constant__ View others, const __grid_constant__ Lists<INDEX> lists,
                    const __grid_constant__ Batch batch,
                    const __grid_constant__ ScatterProblem problem,
                    const __grid_constant__ KernelEpilogueArgs<A> epilogue) {
  extern __shared__ __align__(128) unsigned char dynamic[];
  const long long parts = Part::count(problem);

  for (long long x = blockIdx.x; x < parts; x += gridDim.x) {
    const Part part(problem, x);
    const int rows = part.rows, columns = part.columns;

    const Pairs tile(lists, problem, part.tile);
    const T* block = static_cast<const T*>(blocks.ptr) + part.first_row * blocks.row;
    const T* other = static_cast<const T*>(others.ptr) + part.first_col;
    if constexpr (LIST_FORMAT != ListFormat::pairs)
      other += batch_offset(others, batch, part.batch);
    Operands operands = {tile, lists, problem, blocks, others, block, other, rows, columns};

    Outputs outputs;
    CpAsyncPipeline<STAGES, STAGE_BYTES> pipeline;
    const long long terms = (tile.end - tile.first) * KS;
    long long loaded = 0;
    const auto slice = [&](long long start) { return int(min((long long)TILE_K, terms - start)); };
    auto load = [&] {
      if (loaded < terms) operands.load(dynamic + pipeline.stage, loaded, slice(loaded));
      loaded += TILE_K;
      if (loaded < terms) operands.find(loaded, slice(loaded));
      pipeline.advance();
    };
    if (terms > 0) operands.find(0, slice(0));
#pragma unroll 1
    for (int step = 0; step < STAGES - 1; ++step) load();
#pragma unroll 1
    for (long long done = 0; done < terms; done += TILE_K) {
      pipeline.wait();
      load();
      multiply(outputs, dynamic + pipeline.stage);
    }
    pipeline.drain();

    const Accumulators matrix(accumulators, batch, epilogue, part.batch);
    A* staging = reinterpret_cast<A*>(dynamic) + threadIdx.x / 32 * 16 * STAGING_PITCH;
    store(outputs, staging,
          {matrix, tile.row + part.first_row, tile.col + part.first_col, rows, columns});
    __syncthreads();
  }
}
