// One stage of a 2:4 product by wgmma.sp: the metadata of its packed values, and its products.
//
// Counted in bytes all dtypes are the same: one wgmma.sp reads 32 bytes of each of a warpgroup's
// packed rows, the 64 bytes of k that they were chosen from, and a pair of columns of metadata in
// CUTLASS's order (common/semi_structured.cuh).
#pragma once

#include "common/dense_tile_tma.cuh"
#include "common/semi_structured.cuh"
#include "common/types.cuh"
#include "ptx/wgmma_sp.cuh"

namespace sparsegpu {

template <typename E>
constexpr int META_SIZE = sizeof(typename Meta24<sizeof(E)>::type);  // bytes of a metadata element
template <typename E, int M>
constexpr int META_PAIR_BYTES = M * 2 * META_SIZE<E>;  // of two columns of M rows of metadata
template <typename E>
constexpr int PRODUCTS_PER_WORD = META_SIZE<E> == 2 ? 2 : 1;  // that a word of metadata is for

// Word `word` of a thread's metadata of two products, number `pair` of those there are. Each warp
// has sixteen rows. Metadata is stored in runs of M rows; with RunBytes, each block has a run, that
// many bytes after that of the block before.
template <typename E, int M, int RunBytes = 0>
__device__ __forceinline__ unsigned meta_word(const unsigned char* meta, int word, int pair = 0) {
  // A pair of columns of 32 rows (8-bit types: 16) is 32 words. 16 bits: one word is for two
  // products, told apart by the selector; rows eight apart are four words apart.
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  constexpr int WARPS_PER_RUN = M / 16, COLUMN_PAIR = META_PAIR_BYTES<E, M> / 4;
  const int sixteen = RunBytes ? warp % WARPS_PER_RUN : warp;  // of the run's rows
  const unsigned* from =
      reinterpret_cast<const unsigned*>(meta + (RunBytes ? warp / WARPS_PER_RUN * RunBytes : 0)) +
      pair * (2 * COLUMN_PAIR);
  if constexpr (META_SIZE<E> == 4) return from[word * COLUMN_PAIR + sixteen * 32 + lane];
  return from[(2 * word + lane % 4 / 2) * COLUMN_PAIR + sixteen / 2 * 32 + lane / 4 * 4 +
              sixteen % 2 * 2 + lane % 2];
}

// A thread's metadata of a stage of two products.
template <typename E, int M, int RunBytes = 0>
struct StageMeta {
  static constexpr bool TWO_WORDS = PRODUCTS_PER_WORD<E> == 1;
  unsigned words[2];  // 16 bits: the first one is for both

  __device__ __forceinline__ void read(const unsigned char* meta, int pair = 0) {
    words[0] = meta_word<E, M, RunBytes>(meta, 0, pair);
    if (TWO_WORDS) words[1] = meta_word<E, M, RunBytes>(meta, 1, pair);
  }
  // Products in flight read these registers, and the compiler does not know: keep it from using the
  // registers for anything else before this point.
  __device__ __forceinline__ void fence_operands() {
    asm volatile("" : "+r"(words[0]));
    if (TWO_WORDS) asm volatile("" : "+r"(words[1]));
  }
};

// Start both products of a stage: of a warpgroup's rows of `left`, whose lines have LeftWidth
// bytes, and of the dense tile `right`.
template <int LeftWidth, typename DenseTile, typename A, int Sums, typename Meta>
__device__ __forceinline__ void start_products(A (&sum)[Sums], unsigned left, unsigned right,
                                               const Meta& meta, int warpgroup) {
  typedef typename DenseTile::Element E;
  constexpr bool MN_MAJOR = DenseTile::MN_MAJOR;
  left += warpgroup * (64 * LeftWidth);
  auto a = [&](int k) { return smem_descriptor<LeftWidth>(left + k * 32, 8 * LeftWidth, 16); };
  auto b = [&](int k) { return DenseTile::descriptor(right, k * 64); };
  wgmma_fence();
  wgmma_sp<E, 0, MN_MAJOR>(sum, a(0), b(0), meta.words[0]);
  wgmma_sp<E, !Meta::TWO_WORDS, MN_MAJOR>(sum, a(1), b(1), meta.words[Meta::TWO_WORDS]);
  wgmma_commit();
}

}  // namespace sparsegpu
