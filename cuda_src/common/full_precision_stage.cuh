// A stage of a product at full precision, and how stages and outputs pass through shared memory:
// what sampled_full_precision.cuh, pairs_full_precision.cuh and scatter_full_precision.cuh share.
//
// A stage holds a slice of tile_k terms: left[k][m] or left[m][k], as the warps' Outputs read it,
// and right[k][n].
#pragma once

#include "common/cp_async_pipeline.cuh"
#include "common/tile_copies.cuh"

namespace sparsegpu {

// `Config` has the types Element and Outputs (of a warp); tile_m, tile_n (outputs of a thread
// block), tile_k, stages and warps. LEFT_ORDER is the order in which threads copy the left operand.
template <typename Config, CopyOrder LEFT_ORDER>
struct FullPrecisionStage {
  typedef typename Config::Element Element;
  typedef typename Config::Outputs Outputs;
  static constexpr int tile_m = Config::tile_m, tile_n = Config::tile_n, tile_k = Config::tile_k;
  static constexpr int THREADS = 32 * Config::warps, VECTOR = 16 / int(sizeof(Element));
  static constexpr bool BY_TERM = Outputs::LEFT_BY_TERM;  // left[k][m], not left[m][k]
  typedef TileCopies<Element, THREADS, LEFT_ORDER, BY_TERM ? tile_k : tile_m,
                     BY_TERM ? tile_m : tile_k, Outputs::LEFT_PITCH>
      LeftCopies;
  typedef LeftPlaces<LeftCopies, BY_TERM> Left;
  template <CopyOrder ORDER>
  using RightCopies = TileCopies<Element, THREADS, ORDER, tile_k, tile_n, Outputs::RIGHT_PITCH>;
  static constexpr int LEFT_BYTES = (BY_TERM ? tile_k : tile_m) * Outputs::LEFT_PITCH;
  static constexpr int BYTES = LEFT_BYTES + tile_k * Outputs::RIGHT_PITCH;
  typedef CpAsyncPipeline<Config::stages, BYTES> Pipeline;
  static constexpr int STAGING_PITCH = Outputs::WARP_N + VECTOR;
  static constexpr int STAGING = Outputs::PART_ROWS * STAGING_PITCH;  // elements of a warp

  // Copy a thread's share of the left operand to a stage. Its first copy is at `left`; `down` and
  // `along` lead to the next row and term; `rows` and `terms` exist from the first copy's row, and
  // from the slice's first term, unless all that a tile has do.
  template <bool WHOLE_ROWS, bool WHOLE_TERMS, typename Down, typename Along>
  static __device__ __forceinline__ void copy_left(unsigned char* stage, const Element* left,
                                                   Down down, Along along, int rows, int terms) {
    LeftCopies::run(
        stage,
        [&](int r, int c) { return left + Left::m_of(r, c) * down + Left::k_of(r, c) * along; },
        [&](int r, int c) { return WHOLE_ROWS || Left::m_of(r, c) < rows; },
        [&](int r, int c) { return WHOLE_TERMS || Left::first_k() + Left::k_of(r, c) < terms; });
  }

  // Multiply `slices` slices of blocks of `depth` terms, the last slice of a block of what is left.
  // load(n) copies the next slice to the pipeline's stage where n > 0 are left, and advances it.
  template <int depth, typename Load>
  static __device__ __forceinline__ void multiply(Outputs& outputs, const unsigned char* stages,
                                                  Pipeline& pipeline, long long slices, Load load) {
    int multiplied = 0;  // terms of the block
#pragma unroll 1
    for (int step = 0; step < Config::stages - 1; ++step) load(slices - step);
#pragma unroll 1
    for (long long to_multiply = slices; to_multiply > 0; --to_multiply) {
      pipeline.wait();
      const unsigned char* slice = stages + pipeline.next;
      outputs.multiply(slice, slice + LEFT_BYTES, depth % tile_k == 0 ? tile_k : depth - multiplied,
                       [&] { load(to_multiply - (Config::stages - 1)); });
      multiplied = multiplied + tile_k < depth ? multiplied + tile_k : 0;
    }
    pipeline.drain();
  }

  // Call store(staged, row) for a warp's outputs, PART_ROWS rows at a time: they pass through
  // shared memory, from where the stages were on, so that neighbouring lanes write neighbouring
  // ones.
  template <typename Store>
  static __device__ __forceinline__ void store(const Outputs& outputs, unsigned char* stages,
                                               Store store) {
    Element* staged = reinterpret_cast<Element*>(stages) + threadIdx.x / 32 * STAGING;
#pragma unroll
    for (int part = 0; part < Outputs::PARTS; ++part) {
      outputs.stage(part, staged, STAGING_PITCH);
      __syncwarp();
      store(staged, outputs.row + part * Outputs::PART_ROWS);
      __syncwarp();
    }
  }
};

}  // namespace sparsegpu
