// 2:4 to dense: every kept value to its position, zeros between.
//
//   BYTES  1, 2 or 4: size of a value
//
// A block takes 32 rows of 16 metadata columns (512 bytes of each row); a thread four times half a
// metadata element: 8 bytes in, 16 bytes out. The metadata comes in contiguous runs, through shared
// memory.

#include "common/lanes.cuh"
#include "common/semi_structured.cuh"

typedef Format24<BYTES> Format;
typedef Bits<BYTES>::type Value;
typedef Meta24<BYTES>::type Meta;
typedef Bits<sizeof(Meta) / 2>::type Half;

constexpr int kRows = 32, kColumns = 16, kThreads = 256;
constexpr int kPieces = kRows * kColumns * 2 / kThreads;
constexpr int kRowStep = kThreads / (2 * kColumns);

// Four bytes of selectors that put the first and the second of a group's kept values where its
// code says, zeros (byte 4 of the permuted words) elsewhere.
__device__ __forceinline__ u32 place_of_four(u32 code, u32 zeros, u32 first, u32 second,
                                             int width) {
  u32 mask = (1u << width) - 1, i = (code & 3) * width, j = (code >> 2 & 3) * width;
  u32 selector = (zeros & ~(mask << i)) | first << i;
  return (selector & ~(mask << j)) | second << j;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    semi_structured_expand(Value* dense, const Value* packed, const Meta* meta, long long m,
                           long long columns) {
  alignas(4) __shared__ Meta chunks[kColumns / 2][kChunk];
  unsigned column_blocks = unsigned((columns + kColumns - 1) / kColumns);
  long long row0 = (long long)(blockIdx.x / column_blocks) * kRows;
  long long column0 = (long long)(blockIdx.x % column_blocks) * kColumns;
  int half = threadIdx.x % (2 * kColumns), row = threadIdx.x / (2 * kColumns);
  bool inside = column0 + half / 2 < columns;
  int rows = m - row0 < kRows ? int(m - row0) : kRows;

  uint2 in[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    long long here = (row0 + row + p * kRowStep) * columns * 2 + column0 * 2 + half;
    if (inside && row + p * kRowStep < rows) in[p] = reinterpret_cast<const uint2*>(packed)[here];
  }
  constexpr int kPerWord = 4 / sizeof(Meta);
#pragma unroll
  for (int w = threadIdx.x; w < kColumns / 2 * kChunk / kPerWord; w += kThreads) {
    int pair = w / (kChunk / kPerWord), place = w % (kChunk / kPerWord);
    // A chunk of 16 rows (int32 alone) is its first half.
    if (column0 + 2 * pair < columns && place * kPerWord < 2 * rows)
      reinterpret_cast<u32*>(chunks[pair])[place] =
          reinterpret_cast<const u32*>(meta + chunk_offset(row0, column0 + 2 * pair, m))[place];
  }
  __syncthreads();

#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    int r = row + p * kRowStep;
    if (!inside || r >= rows) continue;
    int place = place_in_chunk<sizeof(Meta)>(r, half / 2 % 2);
    u32 codes = reinterpret_cast<const Half*>(chunks[half / 4])[2 * place + half % 2];
    u32 out[4];
    if constexpr (BYTES == 4) {
      out[0] = codes & 2 ? 0 : in[p].x;
      out[1] = codes & 2 ? in[p].x : 0;
      out[2] = codes & 32 ? 0 : in[p].y;
      out[3] = codes & 32 ? in[p].y : 0;
    } else if constexpr (BYTES == 2) {
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        u32 kept = g ? in[p].y : in[p].x;
        u32 selector = place_of_four(codes >> (4 * g), 0x44444444u, 0x10, 0x32, 8);
        out[2 * g] = permute(kept, 0, selector);
        out[2 * g + 1] = permute(kept, 0, selector >> 16);
      }
    } else {
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        u32 kept = g / 2 ? in[p].y : in[p].x, first = g % 2 * 2;
        out[g] = permute(kept, 0, place_of_four(codes >> (4 * g), 0x4444u, first, first + 1, 4));
      }
    }
    long long here = (row0 + r) * columns * 2 + column0 * 2 + half;
    reinterpret_cast<uint4*>(dense)[here] = make_uint4(out[0], out[1], out[2], out[3]);
  }
}
