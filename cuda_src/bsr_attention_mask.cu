// What the tensor-core kernels of attention read of a bool mask, for every entry of a schedule of
// row groups and every block row of its group (common/query_tile.cuh): the state of its block, and
// the bits of blocks that are neither all True nor all False.
//
// One warp takes one block of bytes. It packs 32 columns at a time, a ballot each. Of a mask that
// has bits already, a thread looks a state up.
//
// `origins`, if it is not null, are the blocks of the mask that those of a transposed pattern are.
//
//   -DINDEX of the schedule's blocks; -DBM, -DBK of the mask
//   -DCODES                           type of the codes of blocks: bits are there; absent for bytes
#include "common/ceil_div.cuh"
#include "common/query_tile.cuh"
#include "common/score.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

constexpr int WORDS = ceil_div(BK, 32);
constexpr int WARPS = 8;
static_assert(NOT_STORED == NOTHING && ALL_TRUE == EVERYTHING, "codes are states");

// A byte an element, at these strides; blocks are numbered through the matrices of the pattern.
struct MaskBlocks {
  const void* elements;
  long long matrix, block, row, column;
  long long nnzb;
};

// The state of a block whose bytes are elements; its bits where it needs them.
__device__ __forceinline__ INDEX packed(long long block, const MaskBlocks& mask, unsigned* bits) {
  const int lane = threadIdx.x % 32;
  const unsigned char* elements = static_cast<const unsigned char*>(mask.elements) +
                                  block / mask.nnzb * mask.matrix + block % mask.nnzb * mask.block;
  const bool one = mask.row == 0 && mask.column == 0;
  if (one) return elements[0] ? ALL_TRUE : NOT_STORED;
  bool some = false, all = true;
  for (int i = 0; i < BM; ++i) {
    for (int w = 0; w < WORDS; ++w) {
      const int j = 32 * w + lane;
      const bool here = j < BK && elements[i * mask.row + j * mask.column] != 0;
      const unsigned word = __ballot_sync(~0u, here);
      const unsigned full = BK - 32 * w >= 32 ? ~0u : (1u << (BK - 32 * w) % 32) - 1;
      some |= word != 0;
      all &= word == full;
      if (lane == 0) bits[(block * BM + i) * WORDS + w] = word;
    }
  }
  return all ? INDEX(ALL_TRUE) : some ? INDEX(block) : INDEX(NOT_STORED);
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    bsr_attention_mask(const __grid_constant__ RowGroups<INDEX> schedule,
                       const __grid_constant__ MaskBlocks mask, INDEX* states, unsigned* bits,
                       int block_rows, const long long* origins) {
  const long long group = blockIdx.x;
  const long long first = schedule.starts[group] * block_rows;
  const int count = schedule.counts[group] * block_rows;
#ifdef CODES
  const CODES* codes = static_cast<const CODES*>(mask.elements);
  for (int i = threadIdx.x; i < count; i += WARPS * 32) {
    const INDEX block = schedule.blocks[first + i];
    states[first + i] =
        block < 0 ? INDEX(NOT_STORED) : INDEX(codes[origins ? origins[block] : block]);
  }
#else
  for (int i = threadIdx.x / 32; i < count; i += WARPS) {
    const INDEX block = schedule.blocks[first + i];
    const INDEX state =
        block < 0 ? INDEX(NOT_STORED) : packed(origins ? origins[block] : block, mask, bits);
    if (threadIdx.x % 32 == 0) states[first + i] = state;
  }
#endif
}
