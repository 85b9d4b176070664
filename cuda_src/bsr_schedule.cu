// Row groups of a block pattern: a group is `rows` consecutive block rows of a matrix, and has an
// entry for each block column in which any of them has a block (sparsegpu/engines/cuda/_schedule.py
// says what each array holds).
//
// A thread block makes one group, a window of columns at a time. In shared memory every row has one
// bit for each column; the bitwise or of the rows is the union, and the number of an entry is the
// count of the union's bits below its column. The bits of 1024 columns are interleaved over 32
// words, so that neighbouring columns, which the lanes of a warp mostly have, are in different
// words.
//
// A bit that was set before means a repeated block. Then the window is done again, in narrower ones
// that count blocks: a column gets as many entries as the row with most blocks there needs. A warp
// goes through each row in order, so the entry of a block is the number of earlier blocks in its
// row and column: deterministic, whatever the order of the atomics.
//
// Rows may be permuted: then `indptr` and positions are those of the permuted rows, and each row
// has the offset from there to where it is stored.
//
// If `order` is given, the last thread block to finish ranks the groups by their lengths. That
// saves a launch, but one thread block is too slow for very many groups. Until then the first
// number of `order`, zero at the launch, counts finished thread blocks.
//
// -DINDEX: of the pattern (s32, s64); -DBLOCK: of block numbers (s32, s64).

#include "bsr_schedule/rank_descending.cuh"
#include "common/ceil_div.cuh"
#include "common/last_at_most.cuh"
#include "common/last_block.cuh"
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int MOST_THREADS = 1024;
constexpr int MOST_ROWS = 256;
constexpr int TILE = 1024;    // columns whose bits are interleaved over 32 words
constexpr int IN_FLIGHT = 4;  // loads of a thread
constexpr unsigned ALL = 0xffffffffu;

struct Group {
  const INDEX* indices;
  const long long* blocks_from;  // or null
  const long long* starts;       // positions of its rows, rows + 1 of them
  const long long* to_stored;    // of each row, from a position to where that block is stored
  int* columns;                  // of its first entry, as are the blocks
  BLOCK* blocks;
  int rows;
};

// Shared memory. `table` holds the bits or counts of the rows, followed by those of the union.
struct Scratch {
  unsigned* table;
  int* partials;
};

__device__ __forceinline__ unsigned below(int bit) {
  return (1u << bit) - 1;
}

// Call visit(position in storage, row, j) once for each block of the group in a column c0 + j with
// j < width.
template <typename Visit>
__device__ __forceinline__ void for_each_block(const Group& group, INDEX c0, int width,
                                               Visit visit) {
  const long long end = group.starts[group.rows];
  int row = last_at_most(group.starts, 0, group.rows, group.starts[0] + threadIdx.x);
  for (long long p0 = group.starts[0] + threadIdx.x; p0 < end; p0 += IN_FLIGHT * blockDim.x) {
    INDEX column[IN_FLIGHT];
    long long stored[IN_FLIGHT];
    int of_row[IN_FLIGHT];
#pragma unroll
    for (int k = 0; k < IN_FLIGHT; ++k) {
      const long long p = p0 + k * blockDim.x;
      while (p < end && p >= group.starts[row + 1]) ++row;
      of_row[k] = row;
      stored[k] = p + group.to_stored[row];
      column[k] = p < end ? group.indices[stored[k]] : INDEX(-1);
    }
#pragma unroll
    for (int k = 0; k < IN_FLIGHT; ++k) {
      if (column[k] >= c0 && column[k] - c0 < width) {
        visit(stored[k], of_row[k], (unsigned)(column[k] - c0));
      }
    }
  }
}

// The block that is stored at p.
__device__ __forceinline__ BLOCK block_at(const Group& group, long long p) {
  return BLOCK(group.blocks_from ? group.blocks_from[p] : p);
}

__device__ __forceinline__ void clear_blocks(const Group& group, BLOCK* blocks, int entries) {
  for (long long i = threadIdx.x; i < (long long)entries * group.rows; i += blockDim.x) {
    blocks[i] = -1;
  }
}

// Inclusive sum over the lanes of the warp.
__device__ __forceinline__ int inclusive_sum(int value) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int lower = __shfl_up_sync(ALL, value, offset);
    if (threadIdx.x % 32 >= offset) value += lower;
  }
  return value;
}

// Exclusive sum over the threads of the thread block; `total` is the sum over all.
__device__ __forceinline__ int exclusive_sum(int value, int* partials, int& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int sum = inclusive_sum(value);
  if (lane == 31) partials[warp] = sum;
  __syncthreads();
  const int warps = inclusive_sum(lane < blockDim.x / 32 ? partials[lane] : 0);
  total = __shfl_sync(ALL, warps, 31);
  const int lower = __shfl_sync(ALL, warps, (warp + 31) % 32);
  __syncthreads();
  return sum - value + (warp ? lower : 0);
}

// Write the entries of columns c0 .. c0 + width - 1 from entry `first` on, if no row has a column
// twice. Returns how many they are, or -1.
__device__ int add_distinct(const Group& group, const Scratch& scratch, INDEX c0, int width,
                            long long first) {
  const int words = ceil_div(width, TILE) * 32;
  unsigned* seen = scratch.table;
  unsigned* any = seen + group.rows * words;
  int* before = (int*)(any + words);

  __syncthreads();
  for (int i = threadIdx.x; i < group.rows * words; i += blockDim.x) seen[i] = 0;
  __syncthreads();
  bool repeated = false;
  for_each_block(group, c0, width, [&](long long, int row, unsigned j) {
    const unsigned word = j / TILE * 32 + j % 32, bit = j / 32 % 32;
    repeated |= atomicOr(&seen[row * words + word], 1u << bit) >> bit & 1;
  });
  if (__syncthreads_or(repeated)) return -1;

  int entries = 0;
  for (int w0 = 0; w0 < words; w0 += blockDim.x) {
    const int w = w0 + threadIdx.x;
    unsigned mine = 0;
    if (w < words) {  // whole warps
      unsigned interleaved = 0;
      for (int r = 0; r < group.rows; ++r) interleaved |= seen[r * words + w];
      for (int bit = 0; bit < 32; ++bit) {
        const unsigned in_order = __ballot_sync(ALL, interleaved >> bit & 1);
        if (threadIdx.x % 32 == bit) mine = in_order;
      }
      any[w] = mine;
    }
    int total;
    const int lower = exclusive_sum(__popc(mine), scratch.partials, total);
    if (w < words) before[w] = entries + lower;
    entries += total;
  }
  int* columns = group.columns + first;
  BLOCK* blocks = group.blocks + first * group.rows;
  clear_blocks(group, blocks, entries);
  __syncthreads();
  const auto entry = [&](unsigned j) {
    return before[j / 32] + __popc(any[j / 32] & below(j % 32));
  };
  for (unsigned j = threadIdx.x; j < width; j += blockDim.x) {
    if (any[j / 32] >> j % 32 & 1) columns[entry(j)] = int(c0 + j);
  }
  for_each_block(group, c0, width, [&](long long p, int row, unsigned j) {
    blocks[entry(j) * group.rows + row] = block_at(group, p);
  });
  return entries;
}

// The same where rows may have a column more than once.
__device__ int add_repeated(const Group& group, const Scratch& scratch, INDEX c0, int width,
                            long long first) {
  const int lane = threadIdx.x % 32;
  int* found = (int*)scratch.table;
  int* before = found + group.rows * width;

  __syncthreads();
  for (int i = threadIdx.x; i < group.rows * width; i += blockDim.x) found[i] = 0;
  __syncthreads();
  for_each_block(group, c0, width,
                 [&](long long, int row, unsigned j) { atomicAdd(&found[row * width + j], 1); });
  __syncthreads();
  int entries = 0;
  for (int j0 = 0; j0 < width; j0 += blockDim.x) {
    const int j = j0 + threadIdx.x;
    int most = 0;
    if (j < width) {
      for (int r = 0; r < group.rows; ++r) {
        most = max(most, found[r * width + j]);
        found[r * width + j] = 0;
      }
    }
    int total;
    const int lower = exclusive_sum(most, scratch.partials, total);
    for (int k = 0; k < most; ++k) group.columns[first + entries + lower + k] = int(c0 + j);
    if (j < width) before[j] = entries + lower;
    entries += total;
  }
  BLOCK* blocks = group.blocks + first * group.rows;
  clear_blocks(group, blocks, entries);
  __syncthreads();
  for (int r = threadIdx.x / 32; r < group.rows; r += blockDim.x / 32) {
    for (long long p0 = group.starts[r]; p0 < group.starts[r + 1]; p0 += 32) {
      const long long p = p0 + lane;
      const long long stored = p + group.to_stored[r];
      const INDEX column = p < group.starts[r + 1] ? group.indices[stored] : INDEX(-1);
      const bool inside = column >= c0 && column - c0 < width;
      const int j =
          inside ? (int)(column - c0) : ~lane;  // a unique key, so match_any finds no peer
      const unsigned peers = __match_any_sync(ALL, j);
      const int earlier = __popc(peers & below(lane));
      if (inside) {
        const long long entry = before[j] + found[r * width + j] + earlier;
        blocks[entry * group.rows + r] = block_at(group, stored);
      }
      __syncwarp();
      if (inside && earlier == 0) found[r * width + j] += __popc(peers);
      __syncwarp();
    }
  }
  return entries;
}

// The kernel's argument (engines/cuda/_schedule.py).
struct Schedule {
  // What is written; `order` may be null.
  long long* starts;
  int* counts;
  int* columns;
  BLOCK* blocks;
  int* order;
  // Of the pattern. `of_rows`, where rows are permuted, says which they are, as many for each
  // group: -1 behind the last. `indptr` is that of the permuted rows.
  const INDEX* indptr;
  const INDEX* indices;
  const int* of_rows;
  const INDEX* stored_indptr;
  const long long* blocks_from;
  long long groups, groups_per_matrix, block_rows, block_columns, nnzb;
  int rows, width, narrow_width;
};

extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1)
    bsr_schedule(const __grid_constant__ Schedule s) {
  extern __shared__ unsigned table[];
  __shared__ long long row_starts[MOST_ROWS + 1], to_stored[MOST_ROWS + 1];
  __shared__ int partials[32];
  const int rows = s.rows;

  for (long long g = blockIdx.x; g < s.groups; g += gridDim.x) {
    const long long b = g / s.groups_per_matrix, i = g % s.groups_per_matrix * rows;
    const long long of_matrix = b * (s.block_rows + 1);
    __syncthreads();  // no thread uses the group before this one any more
    for (int r = threadIdx.x; r <= rows; r += blockDim.x) {
      const long long row = min(i + r, s.block_rows);  // rows past the last are empty
      const INDEX start = s.indptr[of_matrix + row];
      row_starts[r] = b * s.nnzb + start;
      const bool permuted = s.of_rows && r < rows && row < s.block_rows;
      to_stored[r] = permuted ? s.stored_indptr[of_matrix + s.of_rows[g * rows + r]] - start : 0;
    }
    __syncthreads();
    const long long start = row_starts[0];
    const Group group = {s.indices,         s.blocks_from,           row_starts, to_stored,
                         s.columns + start, s.blocks + start * rows, rows};
    const Scratch scratch = {table, partials};

    long long entries = 0;
    for (long long c0 = 0; c0 < s.block_columns; c0 += s.width) {
      const int here = (int)min((long long)s.width, s.block_columns - c0);
      const int added = add_distinct(group, scratch, INDEX(c0), here, entries);
      for (int j = 0; added < 0 && j < here; j += s.narrow_width) {
        const int narrow = min(s.narrow_width, here - j);
        entries += add_repeated(group, scratch, INDEX(c0 + j), narrow, entries);
      }
      entries += max(added, 0);
    }
    if (threadIdx.x == 0) {
      s.starts[g] = start;
      s.counts[g] = (int)entries;
    }
  }
  if (s.order && last_done((unsigned*)s.order, gridDim.x)) {
    int* values = (int*)table;
    const int groups = (int)s.groups, per_matrix = (int)s.groups_per_matrix;
    for (int g = threadIdx.x; g < groups; g += blockDim.x) values[g] = __ldcg(s.counts + g);
    __syncthreads();
    for (int g = threadIdx.x / 32; g < groups; g += blockDim.x / 32) {
      rank_descending(s.order, values, g, per_matrix);
    }
  }
}
