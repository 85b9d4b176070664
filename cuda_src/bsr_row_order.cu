// Block rows put next to each other that have many block columns in common, so that groups of
// `rows` consecutive ones (bsr_schedule.cu) walk short unions.
//
// A thread block orders a window of rows, which `sorted` has put near to each other already: the
// longest row begins a group, and as long as it has less than `rows`, that row joins which has
// most columns in common with the group's union, less those that it would add. Ties go to the row
// that comes first: the result depends on the pattern alone.
//
// Columns are bits in shared memory; a thread looks after a row. Where there are more columns than
// bits, several share one: an estimate then, which is all that an order needs. Every warp keeps
// the union in its lanes, so that there is one barrier a row.
//
// -DINDEX: of the pattern (s32, s64); -DWINDOW: threads, and the most rows of a window.
#include "common/types.cuh"

constexpr int WARPS = WINDOW / 32;
constexpr int AT_ONCE = 4;         // words; `words` is a multiple
constexpr int MOST_WORDS = 128;    // several a lane
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
  unsigned words[MOST_WORDS / 32];

  __device__ __forceinline__ void add(const unsigned* bits, int count, int row, bool first) {
#pragma unroll
    for (int i = 0; i < MOST_WORDS / 32; ++i) {
      const int word = threadIdx.x % 32 + 32 * i;
      if (word < count) words[i] = (first ? 0 : words[i]) | bits[word * PITCH + row];
    }
  }

  // Columns that it has in common with a row.
  __device__ __forceinline__ int common(const unsigned* bits, int count, int row) const {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < MOST_WORDS / 32; ++i) {
#pragma unroll 4
      for (int w = 32 * i; w < min(count, 32 * i + 32); w += AT_ONCE) {
#pragma unroll
        for (int j = 0; j < AT_ONCE; ++j)
          sum += __popc(bits[(w + j) * PITCH + row] & __shfl_sync(ALL, words[i], w + j));
      }
    }
    return sum;
  }
};

extern "C" __global__ void __launch_bounds__(WINDOW)
    bsr_row_order(int* out, INDEX* out_indptr, const int* sorted, const INDEX* indptr,
                  const INDEX* indices, long long windows_a_matrix, long long block_rows,
                  long long padded_rows, long long nnzb, int window, int rows, int words) {
  extern __shared__ unsigned bits[];  // [words][PITCH]
  __shared__ unsigned partials[2][WARPS];
  __shared__ long long sums[WARPS];
  __shared__ int lengths[WINDOW];  // of rows, in blocks
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = threadIdx.x;

  const long long b = blockIdx.x / windows_a_matrix;
  const long long first = blockIdx.x % windows_a_matrix * window;
  const int here = int(min(block_rows - first, (long long)window));
  const INDEX* begins = indptr + b * (block_rows + 1);
  const auto row_at = [&](long long place) {
    return int(sorted ? sorted[b * block_rows + place] - b * block_rows : place);
  };

  for (int i = threadIdx.x; i < words * PITCH; i += WINDOW) bits[i] = 0;
  long long at = 0;  // blocks of the rows before this window
  for (long long i = threadIdx.x; i < first; i += WINDOW) {
    const int other = row_at(i);
    at += begins[other + 1] - begins[other];
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) at += __shfl_xor_sync(ALL, at, offset);
  if (lane == 0) sums[warp] = at;
  __syncthreads();
  at = 0;
  for (int i = 0; i < WARPS; ++i) at += sums[i];

  // Each warp marks the columns of its own rows.
  const int number = row < here ? row_at(first + row) : 0;
  const long long begin = row < here ? begins[number] : 0;
  const long long end = row < here ? begins[number + 1] : 0;
  lengths[row] = int(end - begin);
#pragma unroll 4
  for (int r = 0; r < 32; ++r) {
    const long long stop = __shfl_sync(ALL, end, r);
    for (long long p = __shfl_sync(ALL, begin, r) + lane; p < stop; p += 32) {
      const unsigned bit = unsigned(indices[b * nnzb + p]) % unsigned(32 * words);
      atomicOr(&bits[bit / 32 * PITCH + 32 * warp + r], 1u << bit % 32);
    }
  }
  __syncthreads();

  int size = 0;
  for (int i = 0; i < words; ++i) size += __popc(bits[i * PITCH + row]);
  bool waiting = row < here;
  Union group;
  for (int step = 0, member = 0; step < here; ++step) {
    // A key is a score above the place of the row, earlier ones greater; zero once it is taken.
    const int score = member == 0 ? size : 2 * group.common(bits, words, row) - size + 32 * words;
    const unsigned key = waiting ? unsigned(score + 1) << PLACE_BITS | (LAST_PLACE - row) : 0;
    const int chosen = LAST_PLACE - int(greatest(key, partials[step % 2]) % (LAST_PLACE + 1));
    group.add(bits, words, chosen, member == 0);
    if (row == chosen) {
      waiting = false;
      out[b * padded_rows + first + step] = number;
      out_indptr[b * (block_rows + 1) + first + step] = INDEX(at);
    }
    at += lengths[chosen];
    if (++member == rows) member = 0;
  }
  if (first + here == block_rows) {
    if (row == 0) out_indptr[b * (block_rows + 1) + block_rows] = INDEX(nnzb);
    for (long long i = block_rows + row; i < padded_rows; i += WINDOW)
      out[b * padded_rows + i] = -1;
  }
}
