// How the thread blocks of bsr_addmm_skinny_sm90.cu share row tiles out; bsr_row_shares.cu says it.
#pragma once

namespace sparsegpu {

constexpr int SHARE_TILE = 64;     // rows of a row tile, and terms of a step
constexpr int SHARE_COLUMNS = 26;  // that a share brings with it

// What one thread block does: some steps of one row tile, a whole line of memory, so that all of it
// comes at once.
struct Share {
  struct alignas(16) Head {
    int row_tile;       // of the matrix
    int steps;          // of 64 terms
    short part, parts;  // it is number `part` of `parts` on this row tile; none: nothing to do
    int base;           // rank in the cluster of the first of these
  };
  Head head;
  long long begin;            // its first step, among all of the matrix
  int column[SHARE_COLUMNS];  // of its first steps: k / 64
};
static_assert(sizeof(Share) == 128, "a line of memory");

}  // namespace sparsegpu
