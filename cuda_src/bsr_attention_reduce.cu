// Merges the splits of the keys of long groups that bsr_attention_sm80.cu and bsr_attention_sm90.cu
// left in workspace, in their order (common/attention_parts.cuh). A warp takes a row of one head.
//
//   -DOUT, -DBM, -DTILE_Q   as in bsr_attention_sm80.cu
//   -DVALUE_FEATURES        columns, rounded up as there
#include "common/attention_parts.cuh"
#include "common/query_tile.cuh"

using namespace sparsegpu;

typedef QueryTile<BM, TILE_Q, true> Tile;
constexpr int THREADS = 128;
constexpr int GROUP_ROWS = Tile::ROWS * BM, PART_ROWS = Tile::SLICES * TILE_Q;
constexpr int ROW_FLOATS = PART_HEADER + VALUE_FEATURES;

struct SplitsProblem {
  long long heads;
  int groups;   // that are split
  int queries;  // of a head
  int value_features;
};

// A group whose keys are split: its number, its first split, and how many it has.
struct CutGroup {
  int group, first, count;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_attention_reduce(const __grid_constant__ View out, const __grid_constant__ View lse,
                         const __grid_constant__ View sinks, const __grid_constant__ Batch batch,
                         const CutGroup* cut, const __grid_constant__ SplitsProblem problem,
                         float kept_scale, const float* parts, long long splits) {
  const long long number = blockIdx.x * (THREADS / 32LL) + threadIdx.x / 32;
  const long long head = number / GROUP_ROWS / problem.groups;
  if (head >= problem.heads) return;
  const int row = int(number % GROUP_ROWS);
  const CutGroup group = cut[number / GROUP_ROWS % problem.groups];
  const long long query = (long long)group.group * GROUP_ROWS + row;
  if (query >= problem.queries) return;

  const BatchIndex at(batch, head);
  auto part = [&](int p) {
    return PartialRow<const float>{
        split_row(parts, splits, head, group.first + p, PART_ROWS, row, ROW_FLOATS)};
  };
  const float sink = sinks.ptr ? *at.pointer<const float>(sinks) : minus_infinity<float>();
  merge_parts<OUT, VALUE_FEATURES>(group.count, part, sink, kept_scale, problem.value_features,
                                   at.pointer<OUT>(out) + query * out.row, out.col,
                                   lse.ptr ? at.pointer<float>(lse) + query * lse.row : nullptr);
}
