// A matrix of any strides copied to rows that begin at multiples of 16 bytes, as the copy engine
// wants them: out[b][k][n] = in[b][k][n], rows of `out` being `pitch` elements apart.
//
// Through shared memory in squares of SIDE, so that both sides are met along their unit strides.
//
// -DT: element type.
#include "common/types.cuh"
#include "common/view.cuh"

constexpr int SIDE = 64;
constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS, 8)
    dense_rows(T* out, const __grid_constant__ View in, const __grid_constant__ Batch batch,
               long long batches, long long rows, long long columns, long long pitch) {
  __shared__ T square[SIDE][SIDE + 2];
  const long long across = (columns + SIDE - 1) / SIDE, down = (rows + SIDE - 1) / SIDE;
  // A thread reads, then writes, every STEP-th line of a square, at one place in each.
  constexpr int STEP = THREADS / SIDE;
  const int place = threadIdx.x % SIDE, line = threadIdx.x / SIDE;
  const bool by_column = in.row < in.col;
  const long long along = by_column ? in.row : in.col, next = by_column ? in.col : in.row;
  for (long long tile = blockIdx.x; tile < batches * down * across; tile += gridDim.x) {
    const long long b = tile / across / down;
    const long long first_row = tile / across % down * SIDE, first_col = tile % across * SIDE;
    const int height = int(min(rows - first_row, (long long)SIDE));
    const int width = int(min(columns - first_col, (long long)SIDE));
    const int lines = by_column ? width : height, places = by_column ? height : width;
    const T* from = batch_ptr<const T>(in, batch, b) + element_offset(in, first_row, first_col) +
                    line * next + place * along;
    __syncthreads();  // the square before this one has been written
    if (place < places) {
#pragma unroll 8
      for (int i = 0; i < SIDE / STEP; ++i) {
        const int at = line + i * STEP;
        if (at < lines) (by_column ? square[place][at] : square[at][place]) = from[i * STEP * next];
      }
    }
    __syncthreads();
    T* to = out + (b * rows + first_row + line) * pitch + first_col + place;
    if (place < width) {
#pragma unroll 8
      for (int i = 0; i < SIDE / STEP; ++i) {
        const int at = line + i * STEP;
        if (at < height) to[i * STEP * pitch] = square[at][place];
      }
    }
  }
}
