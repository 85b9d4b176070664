// A matrix of any strides copied to lines that are aligned to 16 bytes, as TMA and wgmma need them:
// out[b][line][i] = in[b][line][i], lines of `out` being `pitch` elements apart. Elements between
// the end of a line and the next one are undefined afterwards.
//
// Where a stride of `in` is 1, threads copy vectors of sixteen bytes without shared memory.
//
// -DT: element type: s8, f16, bf16, or f32, which is rounded to TF32.
// -DFROM=along    elements of a line are neighbours in memory: only the alignment changes
//        across   the lines' elements at an i are neighbours in memory: squares of vectors are
//                 transposed in registers
//        any      through squares in shared memory, along the smaller stride of `in`
// -DALIGNED=0|1   (across) at every i, `in` consists of whole aligned vectors
#include "common/ceil_div.cuh"
#include "common/types.cuh"
#include "common/view.cuh"
#include "common/vector16.cuh"
#include "ptx/mma.cuh"
#include "ptx/st_vector.cuh"

using namespace sparsegpu;

enum class From { along, across, any };
constexpr From READING = From::FROM;
constexpr int E = PER_VEC16<T>;
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

// Thread blocks of a multiprocessor: enough to keep the memory busy.
constexpr int RESIDENT = READING == From::along ? 5 : READING == From::any ? 8 : E == 4 ? 4 : 2;

// What a thread block copies at a time (engines/cuda/_dense_lines.py). Along: LINES_PER_WARP lines
// for each warp. Across: squares of vectors; a warp reads SQUARES neighbouring ones, 64 bytes, and
// writes twice as many, whole lines of 128 bytes, which is faster than the reverse. Any: SIDE x
// SIDE elements.
constexpr int LINES_PER_WARP = 3;
constexpr int SQUARES = 4;
constexpr int SIDE = 64;
constexpr int PAD = 4 / sizeof(T);  // against bank conflicts
constexpr int LINES = READING == From::along    ? WARPS * LINES_PER_WARP
                      : READING == From::across ? 16 * E
                                                : SIDE;
constexpr int LENGTH = READING == From::along ? 32 * E : READING == From::across ? 16 * E : SIDE;

// The addresses of one matrix, from its first byte to one past its last.
struct Span {
  const unsigned char *low, *high;

  __device__ __forceinline__ Span(const T* first, const View& in, long long lines,
                                  long long length) {
    const long long down = (lines - 1) * in.row, right = (length - 1) * in.col;
    low = reinterpret_cast<const unsigned char*>(first + min(down, 0ll) + min(right, 0ll));
    high = reinterpret_cast<const unsigned char*>(first + max(down, 0ll) + max(right, 0ll) + 1);
  }
};

__device__ __forceinline__ Vec16 stored(Vec16 vector) {
  if constexpr (E == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) vector.words[i] = to_tf32(__uint_as_float(vector.words[i]));
  }
  return vector;
}
__device__ __forceinline__ T stored(T x) {
  if constexpr (E == 4)
    return __uint_as_float(to_tf32(x));
  else
    return x;
}

// A tile of the copy, in which E elements from (line, i) on are a vector.
struct CopiedTile {
  const T* matrix;
  T* out;
  Span span;
  const View& in;
  long long first_line, first, lines, length, pitch;

  __device__ __forceinline__ bool inside(long long line, long long i) const {
    return line < lines && i < length;
  }
  __device__ __forceinline__ const T* from(long long line, long long i) const {
    return matrix + element_offset(in, line, i);
  }
  __device__ __forceinline__ void put(long long line, long long i, const Vec16& vector) const {
    if (!inside(line, i)) return;
    const Vec16 v = stored(vector);
    st_vector(out + line * pitch + i, v.words[0], v.words[1], v.words[2], v.words[3]);
  }
};

__device__ __forceinline__ void copy_along(const CopiedTile& tile) {
  const long long i = tile.first + threadIdx.x % 32 * E;
  const long long line = tile.first_line + threadIdx.x / 32;
  UnalignedVec16 vectors[LINES_PER_WARP];
#pragma unroll
  for (int l = 0; l < LINES_PER_WARP; ++l) {
    if (tile.inside(line + l * WARPS, i))
      vectors[l].load(tile.from(line + l * WARPS, i), tile.span);
  }
#pragma unroll
  for (int l = 0; l < LINES_PER_WARP; ++l) {
    const long long at = line + l * WARPS;
    if (tile.inside(at, i)) tile.put(at, i, vectors[l].get(tile.from(at, i), tile.span));
  }
}

__device__ __forceinline__ void copy_across(const CopiedTile& tile) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const long long line = tile.first_line + (warp % 4 * SQUARES + lane % SQUARES) * E;
  const long long i = tile.first + (warp / 4 * (32 / SQUARES) + lane / SQUARES) * E;
  Vec16 square[E];
#if ALIGNED
#pragma unroll
  for (int j = 0; j < E; ++j) {
    square[j] = {};
    if (tile.inside(line, i + j))
      square[j] = *reinterpret_cast<const Vec16*>(tile.from(line, i + j));
  }
#else
  constexpr int IN_FLIGHT = sizeof(T) == 1 ? 4 : E;  // as many as registers allow
#pragma unroll
  for (int part = 0; part < E; part += IN_FLIGHT) {
    UnalignedVec16 vectors[IN_FLIGHT];
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; ++j) {
      const long long at = i + part + j;
      if (tile.inside(line, at)) vectors[j].load(tile.from(line, at), tile.span);
    }
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; ++j) {
      square[part + j] = {};
      const long long at = i + part + j;
      if (tile.inside(line, at)) square[part + j] = vectors[j].get(tile.from(line, at), tile.span);
    }
  }
#endif
#pragma unroll
  for (int j = 0; j < E; ++j) tile.put(line + j, i, transposed<T>(square, j));
}

__device__ __forceinline__ void copy_any(const CopiedTile& tile, T (*square)[SIDE + PAD]) {
  // A thread reads, then writes, every STEP-th row of the square, at one place in each.
  constexpr int STEP = THREADS / SIDE;
  const int place = threadIdx.x % SIDE, row = threadIdx.x / SIDE;
  const bool swapped = abs(tile.in.row) < abs(tile.in.col);
  const int height = int(min(tile.lines - tile.first_line, (long long)SIDE));
  const int width = int(min(tile.length - tile.first, (long long)SIDE));
  const long long along = swapped ? tile.in.row : tile.in.col;
  const long long next = swapped ? tile.in.col : tile.in.row;
  const T* from = tile.from(tile.first_line, tile.first) + row * next + place * along;
  T* to = tile.out + (tile.first_line + row) * tile.pitch + tile.first + place;
  __syncthreads();  // the square before this one has been read
  if (place < (swapped ? height : width)) {
#pragma unroll 8
    for (int k = 0; k < SIDE / STEP; ++k) {
      const int at = row + k * STEP;
      if (at < (swapped ? width : height))
        (swapped ? square[place][at] : square[at][place]) = from[k * STEP * next];
    }
  }
  __syncthreads();
  if (place < width) {
#pragma unroll 8
    for (int k = 0; k < SIDE / STEP; ++k) {
      const int at = row + k * STEP;
      if (at < height) to[k * STEP * tile.pitch] = stored(square[at][place]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    dense_lines(T* out, const __grid_constant__ View in, const __grid_constant__ Batch batch,
                long long batches, long long lines, long long length, long long pitch) {
  // Lines of the copy have 128 bytes or more: 32 bits number the tiles of all the memory there is.
  const unsigned across = unsigned(ceil_div(length, LENGTH));
  const unsigned down = unsigned(ceil_div(lines, LINES));
  for (long long t = blockIdx.x; t < batches * down * across; t += gridDim.x) {
    const unsigned above = unsigned(t) / across, b = above / down;
    const T* matrix = batch_ptr<const T>(in, batch, b);
    const CopiedTile tile = {matrix,
                             out + b * lines * pitch,
                             Span(matrix, in, lines, length),
                             in,
                             (long long)(above - b * down) * LINES,
                             (long long)(unsigned(t) - above * across) * LENGTH,
                             lines,
                             length,
                             pitch};
    if constexpr (READING == From::along) {
      copy_along(tile);
    } else if constexpr (READING == From::across) {
      copy_across(tile);
    } else {
      __shared__ T square[SIDE][SIDE + PAD];
      copy_any(tile, square);
    }
  }
}
