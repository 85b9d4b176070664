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

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    dense_rows(T* out, const __grid_constant__ View in, const __grid_constant__ Batch batch,
               long long batches, long long rows, long long columns, long long pitch) {
  __shared__ T square[SIDE][SIDE + 2];
  const long long across = (columns + SIDE - 1) / SIDE, down = (rows + SIDE - 1) / SIDE;
  const bool by_column = in.row < in.col;
  for (long long tile = blockIdx.x; tile < batches * down * across; tile += gridDim.x) {
    const long long b = tile / across / down;
    const long long first_row = tile / across % down * SIDE, first_col = tile % across * SIDE;
    const T* matrix = batch_ptr<const T>(in, batch, b);
    __syncthreads();  // the square before this one has been written
#pragma unroll 8
    for (int e = threadIdx.x; e < SIDE * SIDE; e += THREADS) {
      const int r = by_column ? e % SIDE : e / SIDE, c = by_column ? e / SIDE : e % SIDE;
      if (first_row + r < rows && first_col + c < columns)
        square[r][c] = matrix[element_offset(in, first_row + r, first_col + c)];
    }
    __syncthreads();
    T* to = out + (b * rows + first_row) * pitch + first_col;
#pragma unroll 8
    for (int e = threadIdx.x; e < SIDE * SIDE; e += THREADS) {
      const int r = e / SIDE, c = e % SIDE;
      if (first_row + r < rows && first_col + c < columns) to[r * pitch + c] = square[r][c];
    }
  }
}
