// Merges the pieces of block rows that bsr_attention_decode.cu cut, in their order: maxima, sums of
// weights and sums over the values (common/attention_parts.cuh). A warp takes a row of one head.
//
//   -DOUT, -DINDEX, -DBM, -DHEADS, -DVALUE_FEATURES   as in bsr_attention_decode.cu
#include "common/attention_parts.cuh"
#include "common/cut_rows.cuh"

using namespace sparsegpu;

constexpr int THREADS = 128, ROWS = HEADS * BM;
constexpr int ROW_FLOATS = PART_HEADER + VALUE_FEATURES;

struct PartsProblem {
  long long pieces;   // of a head
  long long queries;  // of all heads
  int rows;           // block rows of a matrix
  int length;         // blocks of a piece
  int group;          // heads that share a key head
  int tiles;          // of those heads
  int value_features;
};

extern "C" __global__ void __launch_bounds__(THREADS) bsr_attention_decode_reduce(
    const __grid_constant__ View out, const __grid_constant__ View lse,
    const __grid_constant__ View matrices, const __grid_constant__ View sinks,
    const __grid_constant__ Batch batch, const __grid_constant__ RowGroups<INDEX> schedule,
    const __grid_constant__ PartsProblem problem, float kept_scale, const float* parts) {
  const long long number = blockIdx.x * (THREADS / 32LL) + threadIdx.x / 32;
  if (number >= problem.queries) return;
  const long long head = number / (problem.rows * BM);
  const int query = int(number % (problem.rows * BM)), block_row = query / BM;
  const BatchIndex at(batch, head);
  const CutRows<INDEX> pieces(schedule, at.offset(matrices) * problem.rows, problem.rows,
                              problem.length);
  const int count = pieces.count(block_row);
  if (count == 1) return;  // written already

  const int among = int(head % problem.group);
  const long long tile = head / problem.group * problem.tiles + among / HEADS;
  const int row = among % HEADS * BM + query % BM;
  const long long first = tile * problem.pieces + pieces.first(block_row);
  auto part = [&](int p) {
    return PartialRow<const float>{parts + ((first + p) * ROWS + row) * ROW_FLOATS};
  };

  const float sink = sinks.ptr ? *at.pointer<const float>(sinks) : minus_infinity<float>();
  merge_parts<OUT, VALUE_FEATURES>(count, part, sink, kept_scale, problem.value_features,
                                   at.pointer<OUT>(out) + query * out.row, out.col,
                                   lse.ptr ? at.pointer<float>(lse) + query * lse.row : nullptr);
}
