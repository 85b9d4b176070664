// The epilogue that a kernel is compiled for: its -D names become template arguments here.
//
//   -DEPILOGUE=identity|scaled|exact           what is computed (common/epilogue.cuh)
//   -DACT=none|relu|gelu|gelu_erf|silu
//   -DINPUT, -DLEFT, -DRIGHT   element types of input, left_alpha and right_alpha; none: absent
//
// The host side is engines/cuda/_epilogue_args.py, which chooses them.
#pragma once

#include "common/epilogue.cuh"

#ifndef EPILOGUE
#define EPILOGUE identity
#endif
#ifndef ACT
#define ACT none
#endif
#ifndef INPUT
#define INPUT none
#endif
#ifndef LEFT
#define LEFT none
#endif
#ifndef RIGHT
#define RIGHT none
#endif

namespace sparsegpu {

// From accumulators A to outputs Out.
template <typename A, typename Out>
using KernelEpilogue =
    EpilogueOp<A, Out, EpilogueMode::EPILOGUE, Activation::ACT, INPUT, LEFT, RIGHT>;

template <typename A>
using KernelEpilogueArgs = EpilogueArgs<typename Compute<A, EpilogueMode::EPILOGUE>::type>;

}  // namespace sparsegpu
