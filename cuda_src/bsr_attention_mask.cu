// What the tensor-core kernels of attention read of a bool mask, for every entry of a schedule of
// row groups and every block row of its group (common/query_tile.cuh): the state of its block, and
// the bits of blocks that are neither all True nor all False.
//
// One warp takes one block. It packs 32 columns at a time, a ballot each.
//
//   -DINDEX of the schedule's blocks; -DBM, -DBK
//   -DCOMPACT=0: `mask` holds a byte an element; bits go to the block's place in `bits`
//   -DCOMPACT=1: of a BlockMask: `kind` holds a byte a block, `places` where its bits are
#include "common/query_tile.cuh"
#include "common/types.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

constexpr int WORDS = (BK + 31) / 32;
constexpr int WARPS = 8;

struct MaskBlocks {
  const unsigned char* elements;  // block p, element (i, j) at p * block + i * row + j * column
  long long block, row, column, matrix;
  const unsigned char* kind;
  const int* places;
  long long nnzb;
};

// The state of a block whose bytes are elements; its bits where it needs them.
__device__ __forceinline__ INDEX packed(long long block, const MaskBlocks& mask, unsigned* bits) {
  const int lane = threadIdx.x % 32;
  const unsigned char* elements = mask.elements + block / mask.nnzb * mask.matrix +
                                  block % mask.nnzb * mask.block;
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
                       int block_rows) {
  const long long group = blockIdx.x;
  const long long first = schedule.starts[group] * block_rows;
  const int count = schedule.counts[group] * block_rows;
  for (int i = threadIdx.x / 32; i < count; i += WARPS) {
    const INDEX block = schedule.blocks[first + i];
    INDEX state = NOT_STORED;
    if (block >= 0) {
#if COMPACT
      const int kind = mask.kind[block];
      state = kind == 2 ? mask.places[block] : kind == 1 ? ALL_TRUE : NOT_STORED;
#else
      state = packed(block, mask, bits);
#endif
    }
    if (threadIdx.x % 32 == 0) states[first + i] = state;
  }
}
