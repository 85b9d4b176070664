// The main loop of a warpgroup over the stages of a pipeline, by wgmma.sp
// (common/sparse_wgmma.cuh).
#pragma once

#include "common/sparse_wgmma.cuh"
#include "ptx/mbarrier.cuh"

namespace sparsegpu {

// Multiply `count` stages of a pipeline; those that is_present() denies are skipped. read(meta)
// loads the metadata of the current stage, start(meta) starts its products, and release(barrier)
// gives a stage back to its producer (0: nothing to do).
//
// Two stages are in flight at a time, each with metadata registers of its own. Once the products of
// the older one have ended it is released, and its registers take the metadata of the next stage.
// That must happen before a wait: if registers were written between the instructions that start
// products, the compiler would serialise all products of 8-bit types (ptxas C7513).
template <typename Meta, typename Pipeline, typename Present, typename Read, typename Start,
          typename Release>
__device__ __forceinline__ void multiply_stages(int count, Pipeline& pipeline, Present is_present,
                                                Read read, Start start, Release release) {
  Meta meta[2] = {};
  unsigned previous = 0;  // the barrier of the stage before, or 0
  int done = 0;
  auto find_next = [&](Meta& next) {
    for (; done < count; ++done) {
      mbarrier_wait(pipeline.full_barrier(), pipeline.parity);
      if (is_present()) {
        read(next);
        wgmma_wait<1>();  // at most one is in flight
        return;
      }
      // The producer may wait for the stage that is in flight before it fills another one.
      wgmma_wait<0>();
      release(previous);
      previous = 0;
      release(pipeline.empty_barrier());
      pipeline.advance();
    }
  };
  auto multiply = [&](const Meta& current, Meta& other) {
    start(current);
    wgmma_wait<1>();
    other.fence_operands();
    release(previous);
    previous = pipeline.empty_barrier();
    pipeline.advance();
    ++done;
    find_next(other);
  };
  find_next(meta[0]);
  while (done < count) {
    multiply(meta[0], meta[1]);
    if (done < count) multiply(meta[1], meta[0]);
  }
  wgmma_wait<0>();
  meta[0].fence_operands();
  meta[1].fence_operands();
  release(previous);
}

}  // namespace sparsegpu
