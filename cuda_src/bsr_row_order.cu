// Orders block rows so that neighbours have many block columns in common, and the unions of groups
// of `rows` consecutive ones (bsr_schedule.cu) are short.
//
// A thread block orders a window of rows, which `sorted` has already made roughly similar: the
// longest row begins a group, and until the group has `rows`, the row joins it that has most
// columns in common with the group's union, less those that it would add. Ties go to the row that
// comes first: the result depends on the pattern alone.
//
// Columns are bits, in shared memory and in registers, and a thread owns a row. It holds the
// columns that the group does not have yet, and clears and counts those of each row that joins: so
// the union itself is not stored and there is one barrier a row. Where there are more columns than
// bits, several share one: the counts are estimates then, which suffices for an order.
//
// -DINDEX: of the pattern (s32, s64); -DWINDOW: threads, and the most rows of a window; -DWORDS: of
// a row's bits.
#include "common/warp_reduce.cuh"

using namespace sparsegpu;

constexpr int WARPS = WINDOW / 32;
constexpr int VECTORS = WORDS / 4;
constexpr int PITCH = (WORDS | 4) / 4;  // odd: neighbours' vectors lie in different banks
constexpr int AT_ONCE = 16;             // rows whose columns a warp loads at once
constexpr unsigned ALL = 0xffffffffu;
constexpr int PLACE_BITS = 10;  // of a place in the window, in a key
constexpr int LAST_PLACE = (1 << PLACE_BITS) - 1;
static_assert(WINDOW <= LAST_PLACE && 64 * WORDS < 1 << (31 - PLACE_BITS), "keys fit");

// The greatest of all threads' keys; `partials` holds one for each warp. Every thread reduces these
// itself: that is faster than a second reduction across threads.
__device__ __forceinline__ unsigned greatest(unsigned key, uint4* partials) {
  const int lane = threadIdx.x % 32;
  const unsigned of_warp = __reduce_max_sync(ALL, key);
  if (lane == 0) ((unsigned*)partials)[threadIdx.x / 32] = of_warp;
  __syncthreads();
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < WARPS / 4; ++i) {
    const uint4 four = partials[i];
    all = max(all, max(max(four.x, four.y), max(four.z, four.w)));
  }
  return all;
}

// How many bits are set. Population counts take longest here: a carry-save adder reduces three
// words to two first.
__device__ __forceinline__ int bits_of(unsigned x, unsigned y, unsigned z, unsigned w) {
  return __popc(x ^ y ^ z) + 2 * __popc((x & y) | (z & (x | y))) + __popc(w);
}

// The columns of a row that its group does not have.
struct Fresh {
  uint4 words[VECTORS];

  __device__ __forceinline__ void all_of(const uint4* row) {
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) words[i] = row[i];
  }

  __device__ __forceinline__ int count() const {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i)
      sum += bits_of(words[i].x, words[i].y, words[i].z, words[i].w);
    return sum;
  }

  // Clear the columns of a row that joins the group, and return how many were set.
  __device__ __forceinline__ int lose(const uint4* row) {
    int sum = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i) {
      const uint4 lost = row[i];
      sum += bits_of(words[i].x & lost.x, words[i].y & lost.y, words[i].z & lost.z,
                     words[i].w & lost.w);
      words[i].x &= ~lost.x, words[i].y &= ~lost.y;
      words[i].z &= ~lost.z, words[i].w &= ~lost.w;
    }
    return sum;
  }
};

extern "C" __global__ void __launch_bounds__(WINDOW)
    bsr_row_order(int* out, INDEX* out_indptr, const int* sorted, const INDEX* indptr,
                  const INDEX* indices, long long windows_a_matrix, long long block_rows,
                  long long padded_rows, long long nnzb, int window, int rows) {
  extern __shared__ uint4 bits[];  // [WINDOW][PITCH]
  __shared__ uint4 partials[2][WARPS / 4];
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

  for (int i = threadIdx.x; i < WINDOW * PITCH; i += WINDOW) bits[i] = make_uint4(0, 0, 0, 0);
  long long at = 0;  // blocks of the rows before this window
  for (long long i = threadIdx.x; i < first; i += WINDOW) {
    const int other = row_at(i);
    at += begins[other + 1] - begins[other];
  }
  at = warp_sum(at);
  if (lane == 0) sums[warp] = at;
  __syncthreads();
  at = 0;
  for (int i = 0; i < WARPS; ++i) at += sums[i];

  // Each warp marks the columns of its own rows.
  const int number = row < here ? row_at(first + row) : 0;
  const long long begin = row < here ? begins[number] : 0;
  const long long end = row < here ? begins[number + 1] : 0;
  lengths[row] = int(end - begin);
  for (int r0 = 0; r0 < 32; r0 += AT_ONCE) {
    long long begins_at[AT_ONCE];
    int length[AT_ONCE], longest = 0;
#pragma unroll
    for (int r = 0; r < AT_ONCE; ++r) {
      begins_at[r] = __shfl_sync(ALL, begin, r0 + r);
      length[r] = int(__shfl_sync(ALL, end, r0 + r) - begins_at[r]);
      longest = max(longest, length[r]);
    }
    for (int i = lane; i < longest; i += 32) {
      INDEX column[AT_ONCE];
#pragma unroll
      for (int r = 0; r < AT_ONCE; ++r)
        column[r] = i < length[r] ? indices[b * nnzb + begins_at[r] + i] : INDEX(-1);
#pragma unroll
      for (int r = 0; r < AT_ONCE; ++r) {
        if (column[r] < 0) continue;
        const unsigned bit = unsigned(column[r]) % (32 * WORDS);
        unsigned* of_row = (unsigned*)(bits + (32 * warp + r0 + r) * PITCH);
        atomicOr(of_row + bit / 32, 1u << bit % 32);
      }
    }
  }
  __syncthreads();

  Fresh fresh;
  fresh.all_of(bits + row * PITCH);
  const int size = fresh.count();
  bool waiting = row < here;
  int common = 0;  // columns that the row has in common with the group
  for (int step = 0, member = 0; step < here; ++step) {
    // A key is a score, then the place of the row, earlier ones greater; zero once the row is
    // taken.
    const int score = member == 0 ? size : 2 * common - size + 32 * WORDS;
    const unsigned key = waiting ? unsigned(score + 1) << PLACE_BITS | (LAST_PLACE - row) : 0;
    const int chosen = LAST_PLACE - int(greatest(key, partials[step % 2]) % (LAST_PLACE + 1));
    common += fresh.lose(bits + chosen * PITCH);
    if (row == chosen) {
      waiting = false;
      out[b * padded_rows + first + step] = number;
      out_indptr[b * (block_rows + 1) + first + step] = INDEX(at);
    }
    at += lengths[chosen];
    if (++member == rows) {
      member = common = 0;
      fresh.all_of(bits + row * PITCH);
    }
  }
  if (first + here == block_rows) {
    if (threadIdx.x == 0) out_indptr[b * (block_rows + 1) + block_rows] = INDEX(nnzb);
    for (long long i = block_rows + threadIdx.x; i < padded_rows; i += WINDOW)
      out[b * padded_rows + i] = -1;
  }
}
