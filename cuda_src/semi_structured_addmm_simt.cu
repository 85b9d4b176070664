// 2:4 @ dense without tensor cores: every dtype, float32 in IEEE arithmetic (1:2), exact int8, and
// e4m3 before 8.9. To be read before semi_structured_addmm_sm80.cu.
//
// A thread block computes TILE_M x TILE_N outputs. Sixteen packed values of each row at a time
// come to shared memory, each with the row of `dense` that it meets; so do these 32 rows. A thread
// sums 4 rows by TILE_N / 16 columns, one product after the other.
//
//   -DT dtype of the operands; -DOUT, -DEPILOGUE, -DACT as in common/epilogue.cuh; -DTILE_N
#include "common/epilogue.cuh"
#include "common/semi_structured.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

typedef Acc<T>::type A;
typedef Format24<sizeof(T)> Format;
typedef Meta24<sizeof(T)>::type Meta;

constexpr int TILE_M = 64, TILE_P = 16, TILE_K = 2 * TILE_P;  // packed and dense terms at a time
constexpr int THREADS = 256, ROWS = 4, COLUMNS = TILE_N / 16;
static_assert(TILE_N % 16 == 0, "sixteen threads share a row");

// sizes: m, n, packed columns, packed terms to multiply (0 where alpha is 0), batches
struct Sizes {
  long long m, n, packed_columns, terms, batches;
};

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    semi_structured_addmm_simt(const __grid_constant__ View out, const T* packed, const Meta* meta,
                               const __grid_constant__ View dense,
                               const __grid_constant__ Batch batch,
                               const __grid_constant__ Sizes sizes,
                               const __grid_constant__ Epilogue<A> epilogue) {
  __shared__ A left[TILE_M][TILE_P + 1];
  __shared__ unsigned char meets[TILE_M][TILE_P];
  __shared__ A right[TILE_K][TILE_N];

  const long long row_tiles = (sizes.m + TILE_M - 1) / TILE_M;
  const long long column_tiles = (sizes.n + TILE_N - 1) / TILE_N;
  const long long tiles = row_tiles * column_tiles * sizes.batches;
  const int thread_row = threadIdx.x / 16 * ROWS, thread_col = threadIdx.x % 16;

  // The grid covers all tiles unless they are more than a grid may have.
  for (long long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const long long top = tile % row_tiles * TILE_M;
    const long long first_col = tile / row_tiles % column_tiles * TILE_N;
    const long long b = tile / row_tiles / column_tiles;
    const T* panel = batch_ptr<const T>(dense, batch, b) + first_col * dense.col;
    const bool by_column = dense.row < dense.col;

    A sum[ROWS][COLUMNS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) sum[i][j] = A(0);

    for (long long start = 0; start < sizes.terms; start += TILE_P) {
      const int terms = int(min((long long)TILE_P, sizes.terms - start));
      for (int e = threadIdx.x; e < TILE_M * TILE_P; e += THREADS) {
        const int m = e / TILE_P, p = e % TILE_P;
        if (top + m >= sizes.m || p >= terms) continue;
        left[m][p] = to_acc(packed[(top + m) * sizes.packed_columns + start + p]);
        meets[m][p] = (unsigned char)(p / Format::kept * Format::group +
                                      place_in_group<sizeof(T)>(meta, top + m, start + p, sizes.m));
      }
      for (int e = threadIdx.x; e < TILE_K * TILE_N; e += THREADS) {
        const int k = by_column ? e % TILE_K : e / TILE_N;
        const int n = by_column ? e / TILE_K : e % TILE_N;
        if (k < 2 * terms && first_col + n < sizes.n)
          right[k][n] = to_acc(panel[(2 * start + k) * dense.row + n * dense.col]);
      }
      __syncthreads();
      for (int p = 0; p < terms; ++p) {
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          if (top + thread_row + i >= sizes.m) continue;
          const A a = left[thread_row + i][p];
          const A* met = right[meets[thread_row + i][p]];
#pragma unroll
          for (int j = 0; j < COLUMNS; ++j)
            sum[i][j] = fma_acc(a, met[thread_col + 16 * j], sum[i][j]);
        }
      }
      __syncthreads();
    }

    const Finish<A, OUT> finish(epilogue, batch, b);
    OUT* out_matrix = batch_ptr<OUT>(out, batch, b);
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
      for (int j = 0; j < COLUMNS; ++j) {
        const long long m = top + thread_row + i, n = first_col + thread_col + 16 * j;
        if (m < sizes.m && n < sizes.n)
          out_matrix[element_offset(out, m, n)] = finish(sum[i][j], m, n);
      }
  }
}
