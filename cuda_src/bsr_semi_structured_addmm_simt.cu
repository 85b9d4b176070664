// BSR @ dense of blocks that are 2:4 (float32: 1:2) themselves, without tensor cores: every dtype,
// block and stride; float32 in IEEE arithmetic, exact int8.
//
//     out = act( beta * input + left_alpha[:, None] * (alpha * (bsr @ dense)) * right_alpha )
//
// The packed blocks of a block row, laid side by side, are a row of count * bk / 2 packed terms, as
// the blocks of bsr_addmm_simt.cu are of whole ones. Each term meets the row of `dense` that its
// code points at, as in semi_structured_addmm_simt.cu.
//
// A thread block computes TILE_M x TILE_N outputs of a block row. TILE_P packed terms at a time,
// which are of one block, come to shared memory, and the TILE_K rows of `dense` that they can meet.
//
//   -DT of the operands, -DINDEX of indptr and indices; -DOUT, -DEPILOGUE, -DACT as in
//   common/epilogue.cuh; -DTILE_N
#include "common/epilogue.cuh"
#include "common/semi_structured.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

typedef Acc<T>::type A;
typedef Format24<sizeof(T)> Format;
typedef Meta24<sizeof(T)>::type Meta;

// A pair of columns of metadata says what 32 bytes of packed values are of: no tile of that, or of
// half of it, is of two blocks.
constexpr int TILE_M = 32, TILE_P = sizeof(T) == 4 ? 8 : 16, TILE_K = 2 * TILE_P;
constexpr int THREADS = 128, ROWS = 4, COLUMNS = TILE_N / 16;
static_assert(TILE_N % 16 == 0, "sixteen threads share a row");

struct Sizes {
  long long batches, block_rows, columns;  // of the output; columns is N
  int bm, bk;
};

// indptr and indices are vectors (`row` is their stride); a null indptr means an empty pattern,
// whose blocks are not looked at. Blocks are contiguous; the views of packed and meta span the
// batch only.
extern "C" __global__ void __launch_bounds__(THREADS) bsr_semi_structured_addmm_simt(
    const __grid_constant__ View out, const __grid_constant__ View indptr,
    const __grid_constant__ View indices, const __grid_constant__ View packed,
    const __grid_constant__ View meta, const __grid_constant__ View dense,
    const __grid_constant__ Batch batch, const __grid_constant__ Sizes sizes,
    const __grid_constant__ Epilogue<A> epilogue) {
  __shared__ A left[TILE_M][TILE_P + 1];
  __shared__ unsigned char meets[TILE_M][TILE_P];
  __shared__ A right[TILE_K][TILE_N];

  const int slices = (sizes.bm + TILE_M - 1) / TILE_M;
  const int half = sizes.bk / 2;
  const long long block_values = (long long)sizes.bm * half;
  const long long block_meta = (long long)sizes.bm * (sizes.bk / Format::elements);
  const long long row_tiles = sizes.batches * sizes.block_rows * slices;
  const long long column_tiles = (sizes.columns + TILE_N - 1) / TILE_N;
  const int thread_row = threadIdx.x / 16 * ROWS, thread_col = threadIdx.x % 16;
  const bool by_column = dense.row < dense.col;

  // A thread block takes several tiles only where they are more than a grid may have.
  for (long long tile = blockIdx.x; tile < row_tiles * column_tiles; tile += gridDim.x) {
    const long long x = tile % row_tiles;
    const long long first_col = tile / row_tiles * TILE_N;
    const int first_row = int(x % slices) * TILE_M;  // within the block row
    const long long block_row = x / slices % sizes.block_rows;
    const long long b = x / slices / sizes.block_rows;
    const int rows = min(TILE_M, sizes.bm - first_row);

    A sum[ROWS][COLUMNS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) sum[i][j] = A(0);

    long long p = 0, last = 0;
    if (indptr.ptr) {
      const INDEX* starts = batch_ptr<const INDEX>(indptr, batch, b) + block_row * indptr.row;
      p = starts[0];
      last = starts[indptr.row];
    }
    for (; p < last; ++p) {
      const T* values = batch_ptr<const T>(packed, batch, b) + p * block_values;
      const Meta* codes = batch_ptr<const Meta>(meta, batch, b) + p * block_meta;
      const long long column = batch_ptr<const INDEX>(indices, batch, b)[p * indices.row];
      const T* panel = batch_ptr<const T>(dense, batch, b) + column * sizes.bk * dense.row +
                       first_col * dense.col;
      for (int start = 0; start < half; start += TILE_P) {
        for (int e = threadIdx.x; e < TILE_M * TILE_P; e += THREADS) {
          const int m = e / TILE_P, q = e % TILE_P;
          if (m >= rows) continue;
          left[m][q] = to_acc(values[(long long)(first_row + m) * half + start + q]);
          meets[m][q] =
              (unsigned char)(q / Format::kept * Format::group +
                              place_in_group<sizeof(T)>(codes, first_row + m, start + q, sizes.bm));
        }
        for (int e = threadIdx.x; e < TILE_K * TILE_N; e += THREADS) {
          const int k = by_column ? e % TILE_K : e / TILE_N;
          const int n = by_column ? e / TILE_K : e % TILE_N;
          if (first_col + n < sizes.columns)
            right[k][n] = to_acc(panel[(2 * start + k) * dense.row + n * dense.col]);
        }
        __syncthreads();
        for (int q = 0; q < TILE_P; ++q) {
#pragma unroll
          for (int i = 0; i < ROWS; ++i) {
            if (thread_row + i >= rows) continue;
            const A a = left[thread_row + i][q];
            const A* met = right[meets[thread_row + i][q]];
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
              sum[i][j] = fma_acc(a, met[thread_col + 16 * j], sum[i][j]);
          }
        }
        __syncthreads();
      }
    }

    const Finish<A, OUT> finish(epilogue, batch, b);
    OUT* out_matrix = batch_ptr<OUT>(out, batch, b);
    const long long top = block_row * sizes.bm + first_row;
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        const long long m = top + thread_row + i, n = first_col + thread_col + 16 * j;
        if (thread_row + i < rows && n < sizes.columns)
          out_matrix[element_offset(out, m, n)] = finish(sum[i][j], m, n);
      }
  }
}
