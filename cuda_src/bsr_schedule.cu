// Row groups of a block pattern: `rows` consecutive block rows of a matrix walk the union of their
// block columns together (sparsegpu/engines/cuda/_schedule.py says what each array holds).
//
// A thread block makes one group, a stretch of columns at a time. Every row has a bit a column in
// shared memory; the rows' bits or-ed are the union, and an entry's number is the count of the
// union's bits below its column. The bits of 1024 columns lie in 32 words crosswise, so that
// neighbouring columns, which the lanes of a warp mostly meet, fall into different words.
//
// A bit that is set already tells of a repeated block. That stretch is done again, in narrower ones
// that count: a column then takes as many entries as its fullest row has blocks there. A warp walks
// each row in order, so the entry of a block is the number of blocks like it before it:
// deterministic, whatever the order of the atomics.
//
// Rows may come in another order than they are stored in: `indptr` and positions are those of the
// order then, and every row has the way from there to where it is stored.
//
// The thread block that is done last puts the groups in the order of their lengths, where `order`
// is given: that saves a launch, but one thread block is no match for very many groups. Until then
// the first number of `order`, zero at the launch, counts those that are done.
//
// -DINDEX: of the pattern (s32, s64); -DBLOCK: of block numbers (s32, s64).

#include "common/falling_order.cuh"
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int MOST_THREADS = 1024;
constexpr int MOST_ROWS = 256;
constexpr int TILE = 1024;  // columns whose bits lie crosswise in 32 words
constexpr int AT_ONCE = 4;  // loads in flight a thread
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

// Shared memory. `table` holds the bits or counts of the rows, and behind them those of the union.
struct Scratch {
  unsigned* table;
  int* partials;
};

__device__ __forceinline__ unsigned below(int bit) {
  return (1u << bit) - 1;
}

// The row of a position.
__device__ __forceinline__ int row_of(const Group& group, long long p) {
  int low = 0, high = group.rows;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (group.starts[middle] <= p ? low : high) = middle;
  }
  return low;
}

// Calls visit(where it is stored, row, j) once for each block of the group in a column c0 + j,
// j < width.
template <typename Visit>
__device__ __forceinline__ void for_each_block(const Group& group, INDEX c0, int width,
                                               Visit visit) {
  const long long end = group.starts[group.rows];
  int row = row_of(group, group.starts[0] + threadIdx.x);
  for (long long p0 = group.starts[0] + threadIdx.x; p0 < end; p0 += AT_ONCE * blockDim.x) {
    INDEX column[AT_ONCE];
    long long stored[AT_ONCE];
    int of_row[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
      const long long p = p0 + k * blockDim.x;
      while (p < end && p >= group.starts[row + 1]) ++row;
      of_row[k] = row;
      stored[k] = p + group.to_stored[row];
      column[k] = p < end ? group.indices[stored[k]] : INDEX(-1);
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
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

__device__ __forceinline__ void place_none(const Group& group, BLOCK* blocks, int entries) {
  for (long long i = threadIdx.x; i < (long long)entries * group.rows; i += blockDim.x) {
    blocks[i] = -1;
  }
}

// Sum over the lanes up to this one.
__device__ __forceinline__ int sum_to(int value) {
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int lower = __shfl_up_sync(ALL, value, offset);
    if (threadIdx.x % 32 >= offset) value += lower;
  }
  return value;
}

// Sum over the threads below this one; `total` becomes that over all.
__device__ __forceinline__ int sum_before(int value, int* partials, int& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int sum = sum_to(value);
  if (lane == 31) partials[warp] = sum;
  __syncthreads();
  const int warps = sum_to(lane < blockDim.x / 32 ? partials[lane] : 0);
  total = __shfl_sync(ALL, warps, 31);
  const int lower = __shfl_sync(ALL, warps, (warp + 31) % 32);
  __syncthreads();
  return sum - value + (warp ? lower : 0);
}

// Writes the entries of columns c0 .. c0 + width - 1 from entry `first` on, if no row has one of
// them twice. Returns how many, or -1.
__device__ int once_each(const Group& group, const Scratch& scratch, INDEX c0, int width,
                         long long first) {
  const int words = (width + TILE - 1) / TILE * 32;
  unsigned* seen = scratch.table;
  unsigned* any = seen + group.rows * words;
  int* before = (int*)(any + words);

  __syncthreads();
  for (int i = threadIdx.x; i < group.rows * words; i += blockDim.x) seen[i] = 0;
  __syncthreads();
  bool twice = false;
  for_each_block(group, c0, width, [&](long long, int row, unsigned j) {
    const unsigned word = j / TILE * 32 + j % 32, bit = j / 32 % 32;
    twice |= atomicOr(&seen[row * words + word], 1u << bit) >> bit & 1;
  });
  if (__syncthreads_or(twice)) return -1;

  int entries = 0;
  for (int w0 = 0; w0 < words; w0 += blockDim.x) {
    const int w = w0 + threadIdx.x;
    unsigned mine = 0;
    if (w < words) {  // whole warps
      unsigned crosswise = 0;
      for (int r = 0; r < group.rows; ++r) crosswise |= seen[r * words + w];
      for (int bit = 0; bit < 32; ++bit) {
        const unsigned along = __ballot_sync(ALL, crosswise >> bit & 1);
        if (threadIdx.x % 32 == bit) mine = along;
      }
      any[w] = mine;
    }
    int total;
    const int lower = sum_before(__popc(mine), scratch.partials, total);
    if (w < words) before[w] = entries + lower;
    entries += total;
  }
  int* columns = group.columns + first;
  BLOCK* blocks = group.blocks + first * group.rows;
  place_none(group, blocks, entries);
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

// The same where rows may have a column several times.
__device__ int counted(const Group& group, const Scratch& scratch, INDEX c0, int width,
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
    const int lower = sum_before(most, scratch.partials, total);
    for (int k = 0; k < most; ++k) group.columns[first + entries + lower + k] = int(c0 + j);
    if (j < width) before[j] = entries + lower;
    entries += total;
  }
  BLOCK* blocks = group.blocks + first * group.rows;
  place_none(group, blocks, entries);
  __syncthreads();
  for (int r = threadIdx.x / 32; r < group.rows; r += blockDim.x / 32) {
    for (long long p0 = group.starts[r]; p0 < group.starts[r + 1]; p0 += 32) {
      const long long p = p0 + lane;
      const long long stored = p + group.to_stored[r];
      const INDEX column = p < group.starts[r + 1] ? group.indices[stored] : INDEX(-1);
      const bool inside = column >= c0 && column - c0 < width;
      const int j = inside ? (int)(column - c0) : ~lane;  // alike with nobody
      const unsigned alike = __match_any_sync(ALL, j);
      const int earlier = __popc(alike & below(lane));
      if (inside) {
        const long long entry = before[j] + found[r * width + j] + earlier;
        blocks[entry * group.rows + r] = block_at(group, stored);
      }
      __syncwarp();
      if (inside && earlier == 0) found[r * width + j] += __popc(alike);
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
  // Of the pattern. `of_rows`, where its rows come in another order, says which they are: with -1
  // behind the last, as many for each group. `indptr` is that of the order.
  const INDEX* indptr;
  const INDEX* indices;
  const int* of_rows;
  const INDEX* stored_indptr;
  const long long* blocks_from;
  long long groups, groups_per_matrix, block_rows, block_columns, nnzb;
  int rows, width, narrow_width;
};

// Whether all other thread blocks of the grid are done, what they wrote to be seen in the L2;
// `done` was zero before the launch.
__device__ __forceinline__ bool last_done(unsigned* done) {
  __threadfence();
  __syncthreads();
  const bool last = threadIdx.x == 0 && atomicAdd(done, 1u) == gridDim.x - 1;
  return __syncthreads_or(last);
}

extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1)
    bsr_schedule(const __grid_constant__ Schedule s) {
  extern __shared__ unsigned table[];
  __shared__ long long row_starts[MOST_ROWS + 1], to_stored[MOST_ROWS + 1];
  __shared__ int partials[32];
  const int rows = s.rows;

  for (long long g = blockIdx.x; g < s.groups; g += gridDim.x) {
    const long long b = g / s.groups_per_matrix, i = g % s.groups_per_matrix * rows;
    const long long of_matrix = b * (s.block_rows + 1);
    __syncthreads();  // the group before this one is done
    for (int r = threadIdx.x; r <= rows; r += blockDim.x) {
      const long long row = min(i + r, s.block_rows);  // rows past the last are empty
      const INDEX start = s.indptr[of_matrix + row];
      row_starts[r] = b * s.nnzb + start;
      const bool moved = s.of_rows && r < rows && row < s.block_rows;
      to_stored[r] = moved ? s.stored_indptr[of_matrix + s.of_rows[g * rows + r]] - start : 0;
    }
    __syncthreads();
    const long long start = row_starts[0];
    const Group group = {s.indices,         s.blocks_from,           row_starts, to_stored,
                         s.columns + start, s.blocks + start * rows, rows};
    const Scratch scratch = {table, partials};

    long long entries = 0;
    for (long long c0 = 0; c0 < s.block_columns; c0 += s.width) {
      const int here = (int)min((long long)s.width, s.block_columns - c0);
      const int added = once_each(group, scratch, INDEX(c0), here, entries);
      for (int j = 0; added < 0 && j < here; j += s.narrow_width) {
        const int narrow = min(s.narrow_width, here - j);
        entries += counted(group, scratch, INDEX(c0 + j), narrow, entries);
      }
      entries += max(added, 0);
    }
    if (threadIdx.x == 0) {
      s.starts[g] = start;
      s.counts[g] = (int)entries;
    }
  }
  if (s.order && last_done((unsigned*)s.order)) {
    int* values = (int*)table;
    const int groups = (int)s.groups, per_matrix = (int)s.groups_per_matrix;
    for (int g = threadIdx.x; g < groups; g += blockDim.x) values[g] = __ldcg(s.counts + g);
    __syncthreads();
    for (int g = threadIdx.x / 32; g < groups; g += blockDim.x / 32) {
      put_in_order(s.order, values, g, per_matrix);
    }
  }
}
