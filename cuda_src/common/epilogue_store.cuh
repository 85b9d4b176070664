// The epilogue store of a warp's sixteen rows of tensor-core fragments: through a buffer in shared
// memory of 128 bytes a row, so that global memory is written in whole vectors.
//
// A fragment scatters its elements over rows and columns. The buffer holds rows (or columns, for an
// output that is contiguous along columns). Rows have the 128-byte swizzle of TMA, so that the
// eight rows of a fragment fall into different banks; columns have sixteen elements each.
#pragma once

#include "common/epilogue.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/ldmatrix.cuh"

namespace sparsegpu {

// How a matrix is stored: by TMA in boxes of rows or columns, in 16-byte vectors of unaligned rows,
// or element by element.
enum class Store { rows, columns, unaligned, elementwise };
template <Store How>
constexpr bool BY_TMA = How == Store::rows || How == Store::columns;

constexpr int BUFFER_ROWS = 16;
constexpr int BUFFER_BYTES = BUFFER_ROWS * 128;

// Element n of a row.
template <typename E, bool InColumns = false>
__device__ __forceinline__ E& buffer_at(unsigned char* buffer, int row, int n) {
  const int size = sizeof(E);
  return *reinterpret_cast<E*>(buffer + (InColumns ? (n * BUFFER_ROWS + row) * size
                                                   : row * 128 + (n * size ^ row % 8 * 16)));
}

// Set elements n and n + 1 of a row, n being even.
template <typename E, bool InColumns = false>
__device__ __forceinline__ void put_pair(unsigned char* buffer, int row, int n, E low, E high) {
  if constexpr (InColumns) {
    buffer_at<E, true>(buffer, row, n) = low;
    buffer_at<E, true>(buffer, row, n + 1) = high;
  } else {
    reinterpret_cast<Pair<E>&>(buffer_at<E>(buffer, row, n)) = {low, high};
  }
}

// Write a warp's fragment values of 128 / sizeof(E) columns to a buffer.
template <typename E, bool InColumns = false, typename Value, typename Convert>
__device__ __forceinline__ void fill_buffer(unsigned char* buffer, const Value* values,
                                            Convert convert) {
  if constexpr (sizeof(E) == 2) {
    const int lane = threadIdx.x % 32;
    // Sixteen columns at a time are four matrices: two of the upper eight rows, two of the lower.
    const unsigned to =
        shared_address(buffer) +
        (InColumns ? (lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16 : lane % 16 * 128);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Value* v = values + 8 * j;
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Pair<E> two = {convert(v[2 * i]), convert(v[2 * i + 1])};
        words[i] = reinterpret_cast<const unsigned&>(two);
      }
      if constexpr (InColumns)
        stmatrix_x4_trans(to + j * 16 * 32, words);
      else
        stmatrix_x4(to + ((2 * j + lane / 16) * 16 ^ lane % 8 * 16), words);
    }
  } else {
    const int row = threadIdx.x % 32 / 4, n = threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < int(16 / sizeof(E)); ++j) {
      const Value* v = values + 4 * j;
      put_pair<E, InColumns>(buffer, row, 8 * j + n, convert(v[0]), convert(v[1]));
      put_pair<E, InColumns>(buffer, row + 8, 8 * j + n, convert(v[2]), convert(v[3]));
    }
  }
}

// Unaligned rows pass through circular buffers of Capacity bytes, one for each row. An element is
// at its global address modulo Capacity, so that aligned vectors of sixteen bytes are stored as
// they are, eight lanes to a line of 128 bytes. The vectors are swizzled by row, as in other
// buffers.
template <int Capacity>
__device__ __forceinline__ unsigned char* circular_at(unsigned char* circular, int row,
                                                      unsigned address) {
  return circular + row * Capacity + (address % Capacity ^ row % 8 * 16);
}

template <typename E>
__device__ __forceinline__ unsigned low_address(const E* p) {
  return unsigned(reinterpret_cast<unsigned long long>(p));
}

// Write a warp's fragment values to circular buffers; the first one's global address is `to`.
template <typename E, int Capacity, typename Value, typename Convert>
__device__ __forceinline__ void fill_circular(unsigned char* circular, const E* to, long long apart,
                                              const Value* values, Convert convert) {
  const int row = threadIdx.x % 32 / 4, n = threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned address = low_address(to + (row + 8 * i) * apart + n);
#pragma unroll
    for (int j = 0; j < int(16 / sizeof(E)); ++j) {
#pragma unroll
      for (int k = 0; k < 2; ++k)
        *reinterpret_cast<E*>(circular_at<Capacity>(circular, row + 8 * i,
                                                    address + unsigned(sizeof(E)) * (8 * j + k))) =
            convert(values[4 * j + 2 * i + k]);
    }
  }
}

// Store the whole vectors of line number `line` of each of sixteen rows of `count` elements. Lines
// are aligned to 128 bytes and counted from the one in which the row begins.
template <typename E, int Capacity>
__device__ __forceinline__ void store_line(unsigned char* circular, E* to, long long apart,
                                           int line, int count) {
  const int lane = threadIdx.x % 32, end = count * int(sizeof(E));
  E* row = to + lane / 8 * apart;
#pragma unroll
  for (int m = 0; m < BUFFER_ROWS; m += 4, row += 4 * apart) {
    // The first byte of the lane's vector, counted from the row's first byte.
    const int byte = line * 128 + lane % 8 * 16 - int(low_address(row) % 128);
    if (byte >= 0 && byte + 16 <= end)
      *reinterpret_cast<uint4*>(row + byte / int(sizeof(E))) = *reinterpret_cast<const uint4*>(
          circular_at<Capacity>(circular, m + lane / 8, low_address(row) + byte));
  }
}

// Store the elements of each row before its first whole vector (half a warp: a lane for each row),
// and those behind its last one (the other half).
template <typename E, int Capacity>
__device__ __forceinline__ void store_ends(unsigned char* circular, E* to, long long apart,
                                           int count, bool fronts, bool backs) {
  constexpr int SIZE = sizeof(E), MOST = 16 / SIZE - 1;
  const int lane = threadIdx.x % 32, row = lane % BUFFER_ROWS;
  E* first = to + row * apart;
  const unsigned address = low_address(first);
  const int front = min(int(-address % 16) / SIZE, count);
  const int back = max(front, count - int((address + count * SIZE) % 16) / SIZE);
  const bool at_front = lane < BUFFER_ROWS;
  const int begin = at_front ? 0 : back;
  const int end = at_front ? (fronts ? front : 0) : (backs ? count : 0);
  E some[MOST];
#pragma unroll
  for (int i = 0; i < MOST; ++i)
    if (begin + i < end)
      some[i] = *reinterpret_cast<const E*>(
          circular_at<Capacity>(circular, row, address + unsigned(begin + i) * SIZE));
#pragma unroll
  for (int i = 0; i < MOST; ++i)
    if (begin + i < end) first[begin + i] = some[i];
}

// Apply the epilogue to this warp's sixteen rows of a tile and store them, 128 bytes of each at a
// time.
//
// `sum` is a fragment, times alpha, of 2 * Sums columns from first_col on, and `top` its first row.
// `buffers` are Buffers free ones: two, or one where TMA stores, the only side operand is
// left_alpha and the activation's code is short. `batch` is the third coordinate of out_map, and
// `matrix` points to the same matrix.
template <Store How, int Buffers = 2, typename Access, typename A, int Sums, typename Op>
__device__ __forceinline__ void write_tile(Access access, const A (&sum)[Sums],
                                           unsigned char* buffers, const View& out,
                                           typename Op::Out* matrix, const TensorMap& out_map,
                                           long long top, long long first_col, long long columns,
                                           int batch, const Op& finish) {
  typedef typename Op::Out E;
  typedef typename Op::C Value;
  constexpr int COLUMNS = 2 * Sums;
  constexpr Activation ACTIVATION = Op::ACTIVATION;
  constexpr bool SHORT = Access::FRAGMENTS && ACTIVATION != Activation::gelu_erf;
  constexpr bool IN_COLUMNS = How == Store::columns;
  constexpr int WIDE = 128 / sizeof(E);  // columns of a buffer
  static_assert(COLUMNS % WIDE == 0, "a tile of int8 outputs is one or two buffers wide");
  const int lane = threadIdx.x % 32;
  const long long row = top + lane / 4;
  const auto rows = finish.rows(access, row);
  // Scales of columns are loaded one buffer ahead where there are registers for it.
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
    // 64-bit values, and the many values of a buffer of bytes, are rounded early: unrounded they do
    // not fit registers.
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
    // The two buffers alternate unless the second one is needed otherwise; at the start of a tile
    // both are free.
    static_assert(Buffers == 2 || (SHORT && BY_TMA<How>), "the second buffer has another use");
    unsigned char* buffer = buffers + (SHORT ? c % Buffers * BUFFER_BYTES : 0);
    if (BY_TMA<How> && lane == 0) {
      if (SHORT && Buffers == 2 && c > 0)
        tma_store_wait_read<1>();
      else
        tma_store_wait_read<0>();
    }
    __syncwarp();
    constexpr bool UNALIGNED = How == Store::unaligned;
    constexpr int CAPACITY = SHORT ? 256 : 128;
    E* const to = matrix + (top * out.row + col);  // unaligned
    if constexpr (SHORT) {
      const auto convert = [&](auto x) {
        if constexpr (EARLY)
          return x;
        else
          return round_to<E>(x);
      };
      if constexpr (UNALIGNED)
        fill_circular<E, CAPACITY>(buffers, to, out.row, values, convert);
      else
        fill_buffer<E, IN_COLUMNS>(buffer, values, convert);
    } else {
      // The code of this epilogue is long: values pass through a second buffer, so that it can be
      // in a loop that is not fully unrolled.
      typedef typename Conditional<Access::FRAGMENTS, Value, A>::type Waiting;
      static_assert(sizeof(Waiting) == 4, "32 columns to a buffer");
      unsigned char* waiting = buffers + BUFFER_BYTES;
#pragma unroll
      for (int part = 0; part < WIDE; part += 32) {
        const auto same = [](Waiting x) { return x; };
        if constexpr (Access::FRAGMENTS)
          fill_buffer<Waiting>(waiting, values + part / 2, same);
        else
          fill_buffer<Waiting>(waiting, sum + (c * WIDE + part) / 2, same);
        __syncwarp();
#pragma unroll(Access::FRAGMENTS ? 2 : 1)
        for (int i = 0; i < 8; ++i) {
          const int m = lane / 16 + 2 * i, n = lane % 16 * 2;
          const Pair<Waiting> two =
              reinterpret_cast<Pair<Waiting>&>(buffer_at<Waiting>(waiting, m, n));
          // Columns past the last one repeat it in the epilogue, and are never stored.
          auto finished = [&](Waiting x, long long column) {
            if constexpr (Access::FRAGMENTS)
              return finish.output(x);
            else
              return finish.after_alpha(x, top + m, min(column, columns - 1));
          };
          const E low = finished(two.low, col + part + n);
          const E high = finished(two.high, col + part + n + 1);
          if constexpr (UNALIGNED) {
            const unsigned address = low_address(to + m * out.row + part + n);
            *reinterpret_cast<E*>(circular_at<CAPACITY>(buffers, m, address)) = low;
            *reinterpret_cast<E*>(
                circular_at<CAPACITY>(buffers, m, address + unsigned(sizeof(E)))) = high;
          } else {
            put_pair<E, IN_COLUMNS>(buffer, m, part + n, low, high);
          }
        }
        __syncwarp();
      }
    }
    if constexpr (BY_TMA<How>) {
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) {
        const int x = int(IN_COLUMNS ? top : col);
        const int y = int(IN_COLUMNS ? col : top);
        if (col < columns) tma_store(out_map, shared_address(buffer), x, y, batch);
        tma_store_commit();
      }
    } else if constexpr (How == Store::unaligned) {
      // A line that ends within these columns is complete; the rest follows after the last ones.
      __syncwarp();
      const int from = SHORT ? c * WIDE : 0;
      const int count = int(min(columns - col, (long long)(SHORT ? COLUMNS - from : WIDE)));
      const bool first = !SHORT || c == 0, last = !SHORT || c == (from + count - 1) / WIDE;
      store_line<E, CAPACITY>(buffers, to - from, out.row, SHORT ? c : 0, from + count);
      if (!SHORT || c == COLUMNS / WIDE - 1)
        store_line<E, CAPACITY>(buffers, to - from, out.row, SHORT ? c + 1 : 1, from + count);
      if (first || last)
        store_ends<E, CAPACITY>(buffers, to - from, out.row, from + count, first, last);
    } else {
      __syncwarp();
      const bool by_column = out.row < out.col;
#pragma unroll 2
      for (int i = 0; i < WIDE / 2; ++i) {
        const int e = 32 * i + lane;
        const int m = by_column ? e % 16 : e / WIDE, n = by_column ? e / 16 : e % WIDE;
        if (col + n < columns)
          matrix[element_offset(out, top + m, col + n)] = buffer_at<E>(buffer, m, n);
      }
    }
  }
}

// Apply the epilogue to this warp's sixteen rows of a tile of matrix `b` of the output, and store
// them.
template <Store How, typename Op, int Buffers = 2, typename A, int Sums>
__device__ __forceinline__ void finish_tile(const typename Op::Args& epilogue, A (&sum)[Sums],
                                            unsigned char* buffers, const View& out,
                                            const Batch& batch, const TensorMap& out_map,
                                            long long b, long long top, long long first_col,
                                            long long columns) {
  const Op finish(epilogue, batch, b);
  finish.times_alpha(sum);
  finish.dispatch_access(first_col, 2 * Sums, columns, [&](auto access) {
    write_tile<How, Buffers>(access, sum, buffers, out, batch_ptr<typename Op::Out>(out, batch, b),
                             out_map, top, first_col, columns, int(b), finish);
  });
}

}  // namespace sparsegpu
