// Strips: sixteen rows of a warp's outputs, 128 bytes of each, on their way through shared memory.
//
// Fragments of a tensor core lie scattered over rows and columns; a strip turns them to what memory
// wants, whole pieces of rows (or columns, for an output stored by them). Rows are swizzled as the
// copy engine's 128-byte swizzle has them, so that the eight rows of a fragment fall into different
// banks; columns have sixteen elements each.
#pragma once

#include "common/epilogue.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/ldmatrix.cuh"

namespace sparsegpu {

// How a matrix is written: in boxes of rows or columns by the copy engine, in words of rows that
// begin anywhere, or element by element.
enum class Store { rows, columns, skewed, any };
template <Store HOW>
constexpr bool BY_ENGINE = HOW == Store::rows || HOW == Store::columns;

constexpr int STRIP_ROWS = 16;
constexpr int STRIP_BYTES = STRIP_ROWS * 128;

// Element n of a row.
template <typename E, bool BY_COLUMN = false>
__device__ __forceinline__ E& at(unsigned char* strip, int row, int n) {
  const int size = sizeof(E);
  return *reinterpret_cast<E*>(
      strip + (BY_COLUMN ? (n * STRIP_ROWS + row) * size : row * 128 + (n * size ^ row % 8 * 16)));
}

// Set elements n and n + 1 (n is even) of a row.
template <typename E, bool BY_COLUMN = false>
__device__ __forceinline__ void put(unsigned char* strip, int row, int n, E low, E high) {
  if constexpr (BY_COLUMN) {
    at<E, true>(strip, row, n) = low;
    at<E, true>(strip, row, n + 1) = high;
  } else {
    reinterpret_cast<Pair<E>&>(at<E>(strip, row, n)) = {low, high};
  }
}

// Put a warp's values of 128 / sizeof(E) columns, as a fragment has them, into a strip.
template <typename E, bool BY_COLUMN = false, typename Value, typename Convert>
__device__ __forceinline__ void fill_strip(unsigned char* strip, const Value* values,
                                           Convert convert) {
  if constexpr (sizeof(E) == 2) {
    const int lane = threadIdx.x % 32;
    // Sixteen columns at a time: their upper and lower halves are two and two matrices.
    const unsigned to =
        shared_address(strip) +
        (BY_COLUMN ? (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16 : lane % 16 * 128);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Value* v = values + 8 * j;
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Pair<E> two = {convert(v[2 * i]), convert(v[2 * i + 1])};
        words[i] = reinterpret_cast<const unsigned&>(two);
      }
      if constexpr (BY_COLUMN)
        stmatrix_x4_trans(to + j * 16 * 32, words);
      else
        stmatrix_x4(to + ((2 * j + lane / 16) * 16 ^ lane % 8 * 16), words);
    }
  } else {
    const int row = threadIdx.x % 32 / 4, n = threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < int(16 / sizeof(E)); ++j) {
      const Value* v = values + 4 * j;
      put<E, BY_COLUMN>(strip, row, 8 * j + n, convert(v[0]), convert(v[1]));
      put<E, BY_COLUMN>(strip, row + 8, 8 * j + n, convert(v[2]), convert(v[3]));
    }
  }
}

// Rows that begin anywhere pass through rings of RING bytes, one for each row: an element lies in
// its row's ring where its address in memory says, modulo RING, so that pieces of sixteen bytes
// leave as they lie, by eight lanes a line. The pieces are swizzled by row, like strips.
template <int RING>
__device__ __forceinline__ unsigned char* ring_at(unsigned char* rings, int row, unsigned address) {
  return rings + row * RING + (address % RING ^ row % 8 * 16);
}

template <typename E>
__device__ __forceinline__ unsigned low_address(const E* p) {
  return unsigned(reinterpret_cast<unsigned long long>(p));
}

// Put a warp's values, as a fragment has them, into rings; the first goes to `to` in memory.
template <typename E, int RING, typename Value, typename Convert>
__device__ __forceinline__ void fill_rings(unsigned char* rings, const E* to, long long apart,
                                           const Value* values, Convert convert) {
  const int row = threadIdx.x % 32 / 4, n = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned address = low_address(to + (row + 8 * i) * apart + n);
#pragma unroll
    for (int j = 0; j < int(16 / sizeof(E)); ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k)
        *reinterpret_cast<E*>(
            ring_at<RING>(rings, row + 8 * i, address + unsigned(sizeof(E)) * (8 * j + k))) =
            convert(values[4 * j + 2 * i + k]);
    }
  }
}

// Write what is whole pieces of line number `line` of each of sixteen rows, of `count` elements.
// Lines of 128 bytes are counted as they lie in memory, from the one in which the row begins.
template <typename E, int RING>
__device__ __forceinline__ void store_line(unsigned char* rings, E* to, long long apart, int line,
                                           int count) {
  const int lane = threadIdx.x % 32, end = count * int(sizeof(E));
  E* row = to + lane / 8 * apart;
#pragma unroll
  for (int m = 0; m < STRIP_ROWS; m += 4, row += 4 * apart) {
    // The first byte of the lane's piece, counted from the row's first.
    const int byte = line * 128 + lane % 8 * 16 - int(low_address(row) % 128);
    if (byte >= 0 && byte + 16 <= end)
      *reinterpret_cast<uint4*>(row + byte / int(sizeof(E))) = *reinterpret_cast<const uint4*>(
          ring_at<RING>(rings, m + lane / 8, low_address(row) + byte));
  }
}

// Write the elements before the first whole piece of each row (half a warp: a lane for each row),
// and those behind the last.
template <typename E, int RING>
__device__ __forceinline__ void store_ends(unsigned char* rings, E* to, long long apart, int count,
                                           bool fronts, bool backs) {
  constexpr int SIZE = sizeof(E), MOST = 16 / SIZE - 1;
  const int lane = threadIdx.x % 32, row = lane % STRIP_ROWS;
  E* first = to + row * apart;
  const unsigned address = low_address(first);
  const int front = min(int(-address % 16) / SIZE, count);
  const int back = max(front, count - int((address + count * SIZE) % 16) / SIZE);
  const bool at_front = lane < STRIP_ROWS;
  const int begin = at_front ? 0 : back;
  const int end = at_front ? (fronts ? front : 0) : (backs ? count : 0);
  E some[MOST];
#pragma unroll
  for (int i = 0; i < MOST; ++i)
    if (begin + i < end)
      some[i] = *reinterpret_cast<const E*>(
          ring_at<RING>(rings, row, address + unsigned(begin + i) * SIZE));
#pragma unroll
  for (int i = 0; i < MOST; ++i)
    if (begin + i < end) first[begin + i] = some[i];
}

// Write this warp's sixteen rows of a tile, 128 bytes of each at a time.
//
// `sum` is a fragment, times alpha, of REGISTERS / 2 * 4 columns from first_col on, `top` the first
// of its rows, and `strips` are HELD of them, free: two, or one where the copy engine writes, side
// operands are absent but for left_alpha, and the activation's code is short. `batch` is the third
// coordinate of out_map, `matrix` the same matrix.
template <Store STORING, int HELD = 2, typename Access, typename A, int REGISTERS, typename Op>
__device__ __forceinline__ void write_tile(Access access, const A (&sum)[REGISTERS],
                                           unsigned char* strips, const View& out,
                                           typename Op::Out* matrix, const TensorMap& out_map,
                                           long long top, long long first_col, long long columns,
                                           int batch, const Op& finish) {
  typedef typename Op::Out E;
  typedef typename Op::C Value;
  constexpr int COLUMNS = 2 * REGISTERS;
  constexpr Activation ACTIVATION = Op::ACTIVATION;
  constexpr bool SHORT = Access::FRAGMENTS && ACTIVATION != Activation::gelu_erf;
  constexpr bool BY_COLUMN = STORING == Store::columns;
  constexpr int WIDE = 128 / sizeof(E);  // columns of a strip
  static_assert(COLUMNS % WIDE == 0, "a tile of int8 outputs is a strip wide, or two");
  const int lane = threadIdx.x % 32;
  const long long row = top + lane / 4;
  const auto rows = finish.rows(access, row);
  // What depends on the column alone is fetched a strip ahead, where there are registers for it.
  constexpr bool AHEAD = Access::PER_ROW && sizeof(Value) == 4 && sizeof(E) > 1;
  Value scales[WIDE / 4] = {};
  const auto fetch = [&](int c) {
    if constexpr (Access::FRAGMENTS)
      finish.template columns<WIDE / 8>(scales, first_col + c * WIDE + lane % 4 * 2);
  };
#pragma unroll
  for (int c = 0; c < COLUMNS / WIDE; ++c) {
    const long long col = first_col + c * WIDE;
    if (!AHEAD || c == 0) fetch(c);
    // 64-bit values, and the many of a strip of bytes, are rounded at once: registers would not
    // hold them.
    constexpr bool EARLY =
        SHORT && (sizeof(Value) == 8 || (sizeof(E) == 1 && LOGISTIC<ACTIVATION>));
    constexpr int PAIRS = sizeof(Value) == 8 ? 1 : 4;
    typename Conditional<EARLY, E, Value>::type values[WIDE / 2];
#pragma unroll
    for (int part = 0; part < WIDE; part += 8 * PAIRS) {
      if constexpr (Access::FRAGMENTS) {
        Value some[4 * PAIRS];
        finish.template fragment<PAIRS>(access, rows, scales + part / 4,
                                        sum + (c * WIDE + part) / 2, some, row,
                                        col + part + lane % 4 * 2);
        if constexpr (SHORT) finish.template activated<4 * PAIRS>(some);
#pragma unroll
        for (int i = 0; i < 4 * PAIRS; ++i) {
          if constexpr (EARLY)
            values[part / 2 + i] = round_to<E>(some[i]);
          else
            values[part / 2 + i] = some[i];
        }
      }
    }
    if (AHEAD && c + 1 < COLUMNS / WIDE) fetch(c + 1);
    // Strips take turns where nothing else needs the second one; each tile begins with both free.
    static_assert(HELD == 2 || (SHORT && BY_ENGINE<STORING>), "the second strip has another use");
    unsigned char* strip = strips + (SHORT ? c % HELD * STRIP_BYTES : 0);
    if (BY_ENGINE<STORING> && lane == 0) {
      if (SHORT && HELD == 2 && c > 0)
        bulk_wait_read<1>();
      else
        bulk_wait_read<0>();
    }
    __syncwarp();
    constexpr bool SKEWED = STORING == Store::skewed;
    constexpr int RING = SHORT ? 256 : 128;
    E* const to = matrix + (top * out.row + col);  // skewed
    if constexpr (SHORT) {
      const auto convert = [&](auto x) {
        if constexpr (EARLY)
          return x;
        else
          return round_to<E>(x);
      };
      if constexpr (SKEWED)
        fill_rings<E, RING>(strips, to, out.row, values, convert);
      else
        fill_strip<E, BY_COLUMN>(strip, values, convert);
    } else {
      // The code is long: the values pass through a strip of their own, so that it stands in a
      // loop that is not unrolled.
      typedef typename Conditional<Access::FRAGMENTS, Value, A>::type Waiting;
      static_assert(sizeof(Waiting) == 4, "32 columns to a strip");
      unsigned char* waiting = strips + STRIP_BYTES;
#pragma unroll
      for (int part = 0; part < WIDE; part += 32) {
        const auto same = [](Waiting x) { return x; };
        if constexpr (Access::FRAGMENTS)
          fill_strip<Waiting>(waiting, values + part / 2, same);
        else
          fill_strip<Waiting>(waiting, sum + (c * WIDE + part) / 2, same);
        __syncwarp();
#pragma unroll(Access::FRAGMENTS ? 2 : 1)
        for (int i = 0; i < 8; ++i) {
          const int m = lane / 16 + 2 * i, n = lane % 16 * 2;
          const Pair<Waiting> two = reinterpret_cast<Pair<Waiting>&>(at<Waiting>(waiting, m, n));
          // What lies outside is computed as its neighbour inside is, and never written.
          auto finished = [&](Waiting x, long long column) {
            if constexpr (Access::FRAGMENTS)
              return finish.output(x);
            else
              return finish.after_alpha(x, top + m, min(column, columns - 1));
          };
          const E low = finished(two.low, col + part + n);
          const E high = finished(two.high, col + part + n + 1);
          if constexpr (SKEWED) {
            const unsigned address = low_address(to + m * out.row + part + n);
            *reinterpret_cast<E*>(ring_at<RING>(strips, m, address)) = low;
            *reinterpret_cast<E*>(ring_at<RING>(strips, m, address + unsigned(sizeof(E)))) = high;
          } else {
            put<E, BY_COLUMN>(strip, m, part + n, low, high);
          }
        }
        __syncwarp();
      }
    }
    if constexpr (BY_ENGINE<STORING>) {
      bulk_fence();
      __syncwarp();
      if (lane == 0) {
        const int x = int(BY_COLUMN ? top : col);
        const int y = int(BY_COLUMN ? col : top);
        if (col < columns) bulk_store(out_map, shared_address(strip), x, y, batch);
        bulk_commit();
      }
    } else if constexpr (STORING == Store::skewed) {
      // A line of memory that ends in this strip is complete; what is left comes behind the last.
      __syncwarp();
      const int from = SHORT ? c * WIDE : 0;
      const int count = int(min(columns - col, (long long)(SHORT ? COLUMNS - from : WIDE)));
      const bool first = !SHORT || c == 0, last = !SHORT || c == (from + count - 1) / WIDE;
      store_line<E, RING>(strips, to - from, out.row, SHORT ? c : 0, from + count);
      if (!SHORT || c == COLUMNS / WIDE - 1)
        store_line<E, RING>(strips, to - from, out.row, SHORT ? c + 1 : 1, from + count);
      if (first || last) store_ends<E, RING>(strips, to - from, out.row, from + count, first, last);
    } else {
      __syncwarp();
      const bool by_column = out.row < out.col;
#pragma unroll 2
      for (int i = 0; i < WIDE / 2; ++i) {
        const int e = 32 * i + lane;
        const int m = by_column ? e % 16 : e / WIDE, n = by_column ? e / 16 : e % WIDE;
        if (col + n < columns) matrix[element_offset(out, top + m, col + n)] = at<E>(strip, m, n);
      }
    }
  }
}

// Finish this warp's sixteen rows of a tile of matrix `b` of the output, and write them.
template <Store STORING, typename Op, int HELD = 2, typename A, int REGISTERS>
__device__ __forceinline__ void finish_tile(const typename Op::Args& epilogue, A (&sum)[REGISTERS],
                                            unsigned char* strips, const View& out,
                                            const Batch& batch, const TensorMap& out_map,
                                            long long b, long long top, long long first_col,
                                            long long columns) {
  const Op finish(epilogue, batch, b);
  finish.times_alpha(sum);
  finish.dispatch_access(first_col, 2 * REGISTERS, columns, [&](auto access) {
    write_tile<STORING, HELD>(access, sum, strips, out, batch_ptr<typename Op::Out>(out, batch, b),
                              out_map, top, first_col, columns, int(b), finish);
  });
}

}  // namespace sparsegpu
