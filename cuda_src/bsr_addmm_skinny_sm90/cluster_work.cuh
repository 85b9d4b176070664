// What each thread block of bsr_addmm_skinny_sm90.cu does, as bsr_cluster_work.cu computes it.
#pragma once

namespace sparsegpu {

constexpr int WORK_TILE = 64;     // rows of a row tile, and terms of a step
constexpr int WORK_COLUMNS = 26;  // columns of steps that a work item holds

// The work of one thread block: some steps of one row tile. It fills one cache line, so that one
// access reads all of it.
struct ClusterWork {
  struct alignas(16) Head {
    int row_tile;         // of the matrix
    int steps;            // of 64 terms
    short split, splits;  // it is number `split` of `splits` on this row tile; 0 splits: no work
    int first_rank;       // in the cluster, of the first of these
  };
  Head head;
  long long begin;           // its first step, among all of the matrix
  int column[WORK_COLUMNS];  // of its first steps: k / 64
};
static_assert(sizeof(ClusterWork) == 128, "a cache line");

}  // namespace sparsegpu
