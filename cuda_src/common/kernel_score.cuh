// The score that a kernel is compiled for: its -D names become template arguments here.
//
//   -DMASK             element type of the mask: b8, or a float that is added; BlockCode<INDEX> of
//                      a mask with bits of partial blocks only
//   -DSOFTCAP=0|1, -DSLOPES=0|1     whether there is one (common/score.cuh)
//
// The host side is engines/cuda/_score_args.py, which chooses them.
#pragma once

#include "common/score.cuh"

#ifndef SOFTCAP
#define SOFTCAP 0
#endif
#ifndef SLOPES
#define SLOPES 0
#endif

namespace sparsegpu {

#ifdef MASK
template <typename A>
using KernelScore = ScoreOp<A, MASK, SOFTCAP, SLOPES>;
#endif

}  // namespace sparsegpu
