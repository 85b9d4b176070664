// Rows of a schedule (common/row_groups.cuh) as pieces of so many entries, numbered without a table
// and without a look at the lengths on the host.
//
// With L entries a piece, row r, whose entries begin at s, has the numbers from s / L + r on: its
// own are never more than the numbers before the next row's, and at least one, for a row without
// entries. Numbers that no row needs have nothing to do; there are fewer of them than rows.
#pragma once

#include "common/ceil_div.cuh"
#include "common/row_groups.cuh"

namespace sparsegpu {

// The rows of one matrix.
template <typename Index>
struct CutRows {
  const long long* starts;
  const int* counts;
  int rows;
  int length;  // entries of a piece

  __device__ __forceinline__ CutRows(const RowGroups<Index>& schedule, long long first_row,
                                     int rows, int length)
      : starts(schedule.starts + first_row),
        counts(schedule.counts + first_row),
        rows(rows),
        length(length) {}

  __device__ __forceinline__ long long first(int row) const {
    return (starts[row] - starts[0]) / length + row;
  }
  __device__ __forceinline__ int count(int row) const {
    return max(1, ceil_div(counts[row], length));
  }

  // The row that a number belongs to; where no row needs it, the one before. All lanes of the warp
  // ask for the same number: each step compares it with 32 rows.
  __device__ __forceinline__ int row_of(long long number) const {
    const int lane = threadIdx.x % 32;
    int low = 0, high = rows;  // low <= row < high
    while (high - low > 1) {
      const int step = ceil_div(high - low, 32);
      const int row = low + lane * step;
      const unsigned before = __ballot_sync(~0u, row < high && first(row) <= number);
      low += (31 - __clz(before)) * step;
      high = min(low + step, high);
    }
    return low;
  }
};

}  // namespace sparsegpu
