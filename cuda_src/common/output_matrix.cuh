// One matrix of the output, whose elements are stored through the epilogue.
#pragma once

#include "common/epilogue.cuh"

namespace sparsegpu {

// Op: the epilogue.
template <typename Op>
struct OutputMatrix {
  typedef typename Op::Out Out;
  const Op finish;
  Out* out;
  const View& view;

  __device__ __forceinline__ OutputMatrix(const View& view, const Batch& shape,
                                          const typename Op::Args& epilogue, long long b)
      : finish(epilogue, shape, b), out(batch_ptr<Out>(view, shape, b)), view(view) {}

  template <typename A>
  __device__ __forceinline__ void store(A sum, long long r, long long c) const {
    out[element_offset(view, r, c)] = finish(sum, r, c);
  }
};

}  // namespace sparsegpu
