// An int8 matrix of any strides copied to columns that begin at multiples of 16 bytes, as wgmma and
// the copy engine want them: out[b][n][k] = in[b][k][n], columns being `pitch` elements apart.
//
// Squares of SIDE pass through shared memory. A thread reads sixteen neighbours of four rows, turns
// them in registers to words of four k, and writes sixteen bytes of k of four columns. So either
// side meets whole lines of 128 bytes.
//
// -DT=s8
// -DPIECE=16|4|1   elements of a row of `in` that are read at once: where this is more than one,
//                  they are neighbours in memory and every row begins at a multiple of them
//
// rows must be a multiple of 16.
#include "common/types.cuh"
#include "common/view.cuh"

constexpr int SIDE = 128;
constexpr int THREADS = 256;
constexpr int RUNS = SIDE / 16;  // of a line of the square: a column's k

static_assert(sizeof(T) == 1, "words of four");

// Element i of a run of sixteen is byte i of the words.
struct alignas(16) Run {
  unsigned words[4];
};

#if PIECE == 16
typedef Run Piece;
#elif PIECE == 4
typedef unsigned Piece;
#else
typedef u8 Piece;
#endif
static_assert(sizeof(Piece) == PIECE, "16, 4 or 1");

// Read `count` neighbours of a row, or sixteen if that is more; the others become zero.
template <bool WHOLE>
__device__ __forceinline__ Run read_run(const T* from, long long apart, long long count) {
  Run run = {};
  u8* bytes = reinterpret_cast<u8*>(run.words);
#pragma unroll
  for (int i = 0; i < 16; i += PIECE) {
    if (WHOLE || i + PIECE <= count) {
      *reinterpret_cast<Piece*>(bytes + i) = *reinterpret_cast<const Piece*>(from + i * apart);
    } else {
#pragma unroll
      for (int j = i; j < i + PIECE; ++j)
        if (j < count) bytes[j] = u8(from[j * apart]);
    }
  }
  return run;
}

// Words of four k, from words of four n of four rows: words[n] has byte n of each.
__device__ __forceinline__ void turn(unsigned (&words)[4], unsigned a, unsigned b, unsigned c,
                                     unsigned d) {
  const unsigned ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
  const unsigned cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
  words[0] = __byte_perm(ab_low, cd_low, 0x5410);
  words[1] = __byte_perm(ab_low, cd_low, 0x7632);
  words[2] = __byte_perm(ab_high, cd_high, 0x5410);
  words[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

extern "C" __global__ void __launch_bounds__(THREADS, 4)
    dense_columns(T* out, const __grid_constant__ View in, const __grid_constant__ Batch batch,
                  long long batches, long long rows, long long columns, long long pitch) {
  // Lines are rotated by a run for every sixteen: what the eight runs that a warp has turned put
  // down at a time then meets different banks.
  __shared__ Run square[SIDE][RUNS];
  const long long across = (columns + SIDE - 1) / SIDE, down = (rows + SIDE - 1) / SIDE;
  const int run = threadIdx.x % RUNS, line = threadIdx.x / RUNS;
  for (long long tile = blockIdx.x; tile < batches * down * across; tile += gridDim.x) {
    const long long b = tile / across / down;
    const long long first_row = tile / across % down * SIDE, first_col = tile % across * SIDE;
    __syncthreads();  // the square before this one has been written

    const long long row = first_row + 4 * line, left = columns - first_col - 16 * run;
    if (row < rows && left > 0) {
      const T* from =
          batch_ptr<const T>(in, batch, b) + element_offset(in, row, first_col + 16 * run);
      Run four[4];
      if (left >= 16) {
#pragma unroll
        for (int i = 0; i < 4; ++i) four[i] = read_run<true>(from + i * in.row, in.col, left);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) four[i] = read_run<false>(from + i * in.row, in.col, left);
      }
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        unsigned words[4];
        turn(words, four[0].words[w], four[1].words[w], four[2].words[w], four[3].words[w]);
#pragma unroll
        for (int n = 0; n < 4; ++n)
          square[16 * run + 4 * w + n][(line / 4 + run) % RUNS].words[line % 4] = words[n];
      }
    }
    __syncthreads();

#pragma unroll
    for (int n = line; n < SIDE; n += THREADS / RUNS) {
      const long long k = first_row + 16 * run, column = first_col + n;
      if (k < rows && column < columns)
        *reinterpret_cast<Run*>(out + (b * columns + column) * pitch + k) =
            square[n][(run + n / 16) % RUNS];
    }
  }
}
