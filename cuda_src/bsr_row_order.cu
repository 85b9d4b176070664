// Block rows put next to each other that have many block columns in common, so that groups of
// `rows` consecutive ones (bsr_schedule.cu) walk short unions.
//
// A thread block orders a window of up to WINDOW rows, which `sorted` has put near to each other
// already: the longest row begins a group, and as long as it has less than `rows`, that row joins
// which has most columns in common with the group's union, less those that it would add. Ties go
// to the row that comes first: the result depends on the pattern alone.
//
// Columns are bits in shared memory; a thread looks after a row. Where there are more columns than
// bits, several share one: an estimate then, which is all that an order needs. Every warp keeps
// the union in its lanes. Rows that are taken leave their threads, four times in a window: counting
// bits is what takes the time.
//
// -DINDEX: of the pattern (s32, s64).
#include "common/types.cuh"

constexpr int WINDOW = 512;
constexpr int WARPS = WINDOW / 32;
constexpr int AT_ONCE = 4;         // words; `words` is a multiple
constexpr int MOST_WORDS = 64;     // two a lane
constexpr int PITCH = WINDOW + 1;  // a warp meets words of one row, and one word of its rows
constexpr unsigned ALL = 0xffffffffu;
constexpr int PLACE_BITS = 10;  // of a place in the window, in a key
constexpr int LAST_PLACE = (1 << PLACE_BITS) - 1;
static_assert(WINDOW <= LAST_PLACE && 64 * MOST_WORDS < 1 << (31 - PLACE_BITS), "keys fit");

// The greatest of all threads' keys; `partials` holds one for each warp.
__device__ __forceinline__ unsigned greatest(unsigned key, unsigned* partials) {
  const int lane = threadIdx.x % 32;
  const unsigned of_warp = __reduce_max_sync(ALL, key);
  if (lane == 0) partials[threadIdx.x / 32] = of_warp;
  __syncthreads();
  return __reduce_max_sync(ALL, lane < WARPS ? partials[lane] : 0);
}

// The union of a group, word by word in the lanes of a warp.
struct Union {
  unsigned words[MOST_WORDS / 32] = {};

  __device__ __forceinline__ void add(const unsigned* bits, int count, int row) {
#pragma unroll
    for (int i = 0; i < MOST_WORDS / 32; ++i) {
      const int word = threadIdx.x % 32 + 32 * i;
      if (word < count) words[i] |= bits[word * PITCH + row];
    }
  }

  // Columns that it has in common with a row.
  __device__ __forceinline__ int common(const unsigned* bits, int count, int row) const {
    int sum = 0;
    for (int w = 0; w < count; w += AT_ONCE) {
#pragma unroll
      for (int i = 0; i < AT_ONCE; ++i) {
        const unsigned any = __shfl_sync(ALL, w < 32 ? words[0] : words[1], (w + i) % 32);
        sum += __popc(bits[(w + i) * PITCH + row] & any);
      }
    }
    return sum;
  }
};

extern "C" __global__ void __launch_bounds__(WINDOW)
    bsr_row_order(long long* out, const long long* sorted, const INDEX* indptr,
                  const INDEX* indices, long long windows_per_matrix, long long block_rows,
                  long long nnzb, int rows, int words) {
  extern __shared__ unsigned bits[];  // [words][PITCH]
  __shared__ unsigned partials[2][WARPS];
  __shared__ int sizes[WINDOW];  // columns of each row
  __shared__ int left[WINDOW];   // rows that no group has yet, as they are dealt out to threads
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  const auto row_at = [&](long long place) { return sorted ? sorted[place] : place; };
  const long long w = blockIdx.x, b = w / windows_per_matrix;
  const long long first = b * block_rows + w % windows_per_matrix * WINDOW;
  const int here = int(min((b + 1) * block_rows - first, (long long)WINDOW));
  for (int i = threadIdx.x; i < words * PITCH; i += WINDOW) bits[i] = 0;
  __syncthreads();
  for (int r = warp; r < here; r += WARPS) {
    const INDEX* of_row = indptr + row_at(first + r) + b;  // every matrix has one more
    for (long long p = of_row[0] + lane; p < of_row[1]; p += 32) {
      const unsigned bit = unsigned(indices[b * nnzb + p] % (32 * words));
      atomicOr(&bits[bit / 32 * PITCH + r], 1u << bit % 32);
    }
  }
  __syncthreads();

  int row = threadIdx.x;  // the one of this thread
  int size = 0;
  for (int i = 0; i < words; ++i) size += __popc(bits[i * PITCH + row]);
  sizes[row] = size;
  bool waiting = row < here;
  int threads = here;  // that have rows
  Union group;
  for (int step = 0; step < here; ++step) {
    // A key is a score above the place of the row, earlier ones greater; zero without a row.
    unsigned key = 0;
    if (32 * warp < threads) {
      int score = size;
      if (step % rows != 0) score = 2 * group.common(bits, words, row) - size + 32 * words;
      if (waiting) key = unsigned(score + 1) << PLACE_BITS | (LAST_PLACE - row);
    }
    const unsigned best = greatest(key, partials[step % 2]);
    const int chosen = LAST_PLACE - int(best % (LAST_PLACE + 1));
    if (step % rows == 0) group = {};
    group.add(bits, words, chosen);
    if (waiting && row == chosen) {
      out[first + step] = row_at(first + row);
      waiting = false;
    }

    if ((step + 1) % (WINDOW / 4) == 0) {
      const unsigned mine = __ballot_sync(ALL, waiting);
      __syncthreads();  // the partials of this step have been read
      if (lane == 0) partials[0][warp] = __popc(mine);
      __syncthreads();
      int place = __popc(mine & ((1u << lane) - 1));
      threads = 0;
      for (int i = 0; i < WARPS; ++i) {
        if (i < warp) place += partials[0][i];
        threads += partials[0][i];
      }
      if (waiting) left[place] = row;
      __syncthreads();
      waiting = threadIdx.x < threads;
      if (waiting) row = left[threadIdx.x];
      size = sizes[row];
    }
  }
}
