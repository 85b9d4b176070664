// Strips: sixteen rows of a warp's outputs, 128 bytes of each, on their way through shared memory.
//
// Fragments of a tensor core lie scattered over rows and columns; a strip turns them to what memory
// wants, whole pieces of rows (or columns, for an output stored by them). Rows are swizzled as the
// copy engine's 128-byte swizzle has them, so that the eight rows of a fragment fall into different
// banks; columns have sixteen elements each.
#pragma once

#include "common/epilogue.cuh"
#include "ptx/bulk_tensor.cuh"

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
  const int row = threadIdx.x % 32 / 4, n = threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < int(16 / sizeof(E)); ++j) {
    const Value* v = values + 4 * j;
    put<E, BY_COLUMN>(strip, row, 8 * j + n, convert(v[0]), convert(v[1]));
    put<E, BY_COLUMN>(strip, row + 8, 8 * j + n, convert(v[2]), convert(v[3]));
  }
}

// Write a part of rows that begin anywhere: `count` columns in all, `apart` elements from one to
// the next, of which strip number c has those from c * 128 / sizeof(E) on, in the one of two strips
// that is c's turn. A warp writes whole lines of memory, so that hardly a sector is written in
// parts: the line of each row that ends in strip c, and behind the last strip what is left.
template <typename E>
__device__ __forceinline__ void store_rows(unsigned char* strips, E* to, long long apart, int c,
                                           int count, bool last) {
  static_assert(sizeof(E) == 2 || sizeof(E) == 4, "elements are words or halves");
  constexpr int LINE = 128 / sizeof(E), A_WORD = 4 / sizeof(E), TOGETHER = 4;
  const int lane = threadIdx.x % 32;
  auto word = [&](int m, unsigned n) {
    return at<unsigned>(strips + n / LINE % 2 * STRIP_BYTES, m, n % LINE / A_WORD);
  };
  for (int line = c; line <= c + last; ++line) {
    E* row = to;
#pragma unroll
    for (int m0 = 0; m0 < STRIP_ROWS; m0 += TOGETHER) {
      unsigned words[TOGETHER];
      int begin[TOGETHER];  // element of the row that a lane's word begins with
#pragma unroll
      for (int i = 0; i < TOGETHER; ++i) {
        const unsigned address = unsigned(reinterpret_cast<unsigned long long>(row + i * apart));
        const unsigned n = line * LINE - address / sizeof(E) % LINE + lane * A_WORD;
        begin[i] = int(n);
        // Where the row begins in the middle of a word, words are made of the halves of two.
        words[i] = word(m0 + i, n);
        if (A_WORD == 2) words[i] = __funnelshift_r(words[i], word(m0 + i, n + 1), address % 4 * 8);
      }
#pragma unroll
      for (int i = 0; i < TOGETHER; ++i, row += apart) {
        const int n = begin[i];
        if (n >= 0 && n + A_WORD <= count) *reinterpret_cast<unsigned*>(row + n) = words[i];
        if (A_WORD == 2 && (n == -1 || n + 1 == count))
          reinterpret_cast<unsigned short*>(row)[max(n, 0)] = n < 0 ? words[i] >> 16 : words[i];
      }
    }
  }
}

// Write this warp's sixteen rows of a tile, 128 bytes of each at a time.
//
// `sum` is a fragment of REGISTERS / 2 * 4 columns from first_col on, `top` the first of its rows,
// and `strips` are two of them, free. `batch` is the third coordinate of out_map, `matrix` the same
// matrix.
template <Store STORING, typename Walk, typename A, typename E, int REGISTERS>
__device__ __forceinline__ void write_tile(Walk walk, const A (&sum)[REGISTERS],
                                           unsigned char* strips, const View& out, E* matrix,
                                           const TensorMap& out_map, long long top,
                                           long long first_col, long long columns, int batch,
                                           const Finish<A, E>& finish) {
  typedef typename Finish<A, E>::C Value;
  constexpr int COLUMNS = 2 * REGISTERS;
  constexpr Activation ACTIVATION = Activation::ACT;
  constexpr bool SHORT =
      Walk::FRAGMENTS && ACTIVATION != Activation::gelu_erf && ACTIVATION != Activation::silu;
  constexpr bool BY_COLUMN = STORING == Store::columns;
  constexpr int WIDE = 128 / sizeof(E);  // columns of a strip
  static_assert(COLUMNS % WIDE == 0, "a tile of int8 outputs is a strip wide, or two");
  const int lane = threadIdx.x % 32;
  const long long row = top + lane / 4;
  const auto rows = finish.rows(walk, row);
#pragma unroll
  for (int c = 0; c < COLUMNS / WIDE; ++c) {
    const long long col = first_col + c * WIDE;
    // 64-bit values are rounded at once: registers would not hold them.
    constexpr bool EARLY = SHORT && sizeof(Value) == 8;
    constexpr int PAIRS = EARLY ? 1 : 4;
    typename Either<EARLY, E, Value>::type values[WIDE / 2];
#pragma unroll
    for (int part = 0; part < WIDE; part += 8 * PAIRS) {
      if constexpr (Walk::FRAGMENTS) {
        Value some[4 * PAIRS];
        finish.template fragment<PAIRS>(walk, rows, sum + (c * WIDE + part) / 2, some, row,
                                        col + part + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4 * PAIRS; ++i) {
          if constexpr (EARLY)
            values[part / 2 + i] = finish.output(some[i]);
          else
            values[part / 2 + i] = some[i];
        }
      }
    }
    // Strips take turns where nothing else needs the second one; each tile begins with both free.
    unsigned char* strip = strips + (SHORT ? c % 2 * STRIP_BYTES : 0);
    if (BY_ENGINE<STORING> && lane == 0) {
      if (SHORT && c > 0)
        bulk_wait_read<1>();
      else
        bulk_wait_read<0>();
    }
    __syncwarp();
    if constexpr (SHORT) {
      fill_strip<E, BY_COLUMN>(strip, values, [&](auto x) {
        if constexpr (EARLY)
          return x;
        else
          return finish.output(x);
      });
    } else {
      // The code is long: the values pass through a strip of their own, so that it stands in a
      // loop that is not unrolled.
      typedef typename Either<Walk::FRAGMENTS, Value, A>::type Waiting;
      static_assert(sizeof(Waiting) == 4, "32 columns to a strip");
      unsigned char* waiting = strips + STRIP_BYTES;
#pragma unroll
      for (int part = 0; part < WIDE; part += 32) {
        const auto same = [](Waiting x) { return x; };
        if constexpr (Walk::FRAGMENTS)
          fill_strip<Waiting>(waiting, values + part / 2, same);
        else
          fill_strip<Waiting>(waiting, sum + (c * WIDE + part) / 2, same);
        __syncwarp();
#pragma unroll(Walk::FRAGMENTS ? 2 : 1)
        for (int i = 0; i < 8; ++i) {
          const int m = lane / 16 + 2 * i, n = lane % 16 * 2;
          const Pair<Waiting> two = reinterpret_cast<Pair<Waiting>&>(at<Waiting>(waiting, m, n));
          // What lies outside is computed as its neighbour inside is, and never written.
          auto finished = [&](Waiting x, long long column) {
            if constexpr (Walk::FRAGMENTS)
              return finish.output(x);
            else
              return finish(x, top + m, min(column, columns - 1));
          };
          put<E, BY_COLUMN>(strip, m, part + n, finished(two.low, col + part + n),
                            finished(two.high, col + part + n + 1));
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
      __syncwarp();
      const int count = int(min(columns - first_col, (long long)COLUMNS));
      E* rows_from = matrix + (top * out.row + first_col);
      if (SHORT)
        store_rows(strips, rows_from, out.row, c, count, c == COLUMNS / WIDE - 1);
      else
        store_rows(strips, rows_from + c * WIDE, out.row, 0, min(count - c * WIDE, WIDE), true);
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
