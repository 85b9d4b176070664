// A stage of a 2:4 product by wgmma.sp: which k its packed values are of, and its products. -DT and
// -DDENSE are those of the source.
//
// Counted in bytes all dtypes are the same: a product takes 32 bytes of a warpgroup's packed rows,
// the 64 bytes of k that they were chosen from, and a pair of columns of metadata, which lie in
// CUTLASS's order (common/semi_structured.cuh).
#pragma once

#include "common/dense_panel.cuh"
#include "common/tma_pipeline.cuh"
#include "common/semi_structured.cuh"
#include "common/types.cuh"
#include "ptx/wgmma_sp.cuh"

namespace sparsegpu {

static_assert(SIZE == 2 || LAYOUT == Layout::columns, "k is contiguous but for 16-bit types");

typedef Acc<T>::type Sum;
constexpr int CODE = sizeof(Meta24<SIZE>::type);  // bytes of an element of metadata
template <int ROWS>
constexpr int PAIR_BYTES = ROWS * 2 * CODE;          // of two columns of metadata
constexpr int PRODUCTS_OF_WORD = CODE == 2 ? 2 : 1;  // that a word has the codes of

// Word `word` of what a thread knows of the codes of two products, number `two` of those there are.
// Each warp has sixteen rows; with BLOCK_BYTES they are of blocks of ROWS rows, whose metadata lies
// so far apart.
template <int ROWS, int BLOCK_BYTES = 0>
__device__ __forceinline__ unsigned code_word(const unsigned char* codes, int word, int two = 0) {
  // A pair of columns of 32 rows (8-bit types: 16) is 32 words. 16 bits: one word has the codes of
  // two products, told apart by the selector; rows of eight apart lie four words apart.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int WARPS = ROWS / 16, NEXT = PAIR_BYTES<ROWS> / 4;
  const int rows = BLOCK_BYTES ? warp % WARPS : warp;  // sixteens, of the block
  const unsigned* from =
      reinterpret_cast<const unsigned*>(codes + (BLOCK_BYTES ? warp / WARPS * BLOCK_BYTES : 0)) +
      two * (2 * NEXT);
  if constexpr (CODE == 4) return from[word * NEXT + rows * 32 + lane];
  return from[(2 * word + lane % 4 / 2) * NEXT + rows / 2 * 32 + lane / 4 * 4 + rows % 2 * 2 +
              lane % 2];
}

// What a thread knows of the codes of a stage of two products.
template <int ROWS, int BLOCK_BYTES = 0>
struct Codes {
  unsigned words[2];  // 16 bits: the first one has both

  __device__ __forceinline__ void read(const unsigned char* codes, int two = 0) {
    words[0] = code_word<ROWS, BLOCK_BYTES>(codes, 0, two);
    if (CODE == 4) words[1] = code_word<ROWS, BLOCK_BYTES>(codes, 1, two);
  }
  // Products under way read these registers: until they have ended nothing else may be put there,
  // of which the compiler does not take care.
  __device__ __forceinline__ void hold() {
    asm volatile("" : "+r"(words[0]));
    if (CODE == 4) asm volatile("" : "+r"(words[1]));
  }
};

// Start both products of a stage: of a warpgroup's rows of `left`, which are LEFT_WIDTH bytes
// apart, and of the panel `right`.
template <int LEFT_WIDTH, typename Panel, int SUMS, typename StageCodes>
__device__ __forceinline__ void start_products(Sum (&sum)[SUMS], unsigned left, unsigned right,
                                               const StageCodes& codes, int warpgroup) {
  left += warpgroup * (64 * LEFT_WIDTH);
  auto a = [&](int k) { return wgmma_operand<LEFT_WIDTH>(left + k * 32, 8 * LEFT_WIDTH, 16); };
  auto b = [&](int k) { return Panel::operand(right, k * 64); };
  wgmma_fence();
  wgmma_sp<T, 0, BY_N>(sum, a(0), b(0), codes.words[0]);
  wgmma_sp<T, CODE == 2, BY_N>(sum, a(1), b(1), codes.words[CODE == 4]);
  wgmma_commit();
}

}  // namespace sparsegpu
