// How a warpgroup multiplies the stages of a ring by wgmma.sp (common/sparse_stage.cuh), two of
// them under way at a time.
#pragma once

#include "common/sparse_stage.cuh"

namespace sparsegpu {

// Multiply `count` stages of a ring; those that is_here() denies are passed over. read(codes) looks
// at the stage in turn, start(codes) starts its products, and give_back(barrier) gives one back.
//
// The products of two stages are under way at a time: codes take turns, and the stage before this
// one is given back when its products have ended. Then the codes of the next stage are read.
// Between two of the instructions that start products, the compiler allows that only before a wait;
// else it waits for every single product of 8-bit types (C7513).
template <typename StageCodes, typename Stages, typename Here, typename Read, typename Start,
          typename GiveBack>
__device__ __forceinline__ void multiply_stages(int count, Stages& ring, Here is_here, Read read,
                                                Start start, GiveBack give_back) {
  StageCodes two[2] = {};
  unsigned before = 0;  // the barrier of the stage before, or 0
  int turn = 0;
  auto look = [&](StageCodes& codes) {
    for (; turn < count; ++turn) {
      mbarrier_wait(ring.full_barrier(), ring.parity);
      if (is_here()) {
        read(codes);
        wgmma_wait<1>();  // there is one at most
        return;
      }
      // The producer may need what the products under way still read before it brings more.
      wgmma_wait<0>();
      give_back(before);
      before = 0;
      give_back(ring.empty_barrier());
      ring.advance();
    }
  };
  auto take_turn = [&](const StageCodes& mine, StageCodes& others) {
    start(mine);
    wgmma_wait<1>();
    others.hold();
    give_back(before);
    before = ring.empty_barrier();
    ring.advance();
    ++turn;
    look(others);
  };
  look(two[0]);
  while (turn < count) {
    take_turn(two[0], two[1]);
    if (turn < count) take_turn(two[1], two[0]);
  }
  wgmma_wait<0>();
  two[0].hold();
  two[1].hold();
  give_back(before);
}

}  // namespace sparsegpu
