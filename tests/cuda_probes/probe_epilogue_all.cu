// Every epilogue of operand type T, so that each is seen to compile.
#include "common/kernel_epilogue.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;
typedef EpilogueArgs<Compute<A, EpilogueMode::scaled>::type> Scaled;

template <typename OUT, EpilogueMode MODE, Activation F>
__device__ void run(A acc, void* out, const EpilogueArgs<typename Compute<A, MODE>::type>& e,
                    const Batch& batch) {
  EpilogueOp<A, OUT, MODE, F, INPUT, LEFT, RIGHT> finish(e, batch, blockIdx.x);
  static_cast<OUT*>(out)[threadIdx.x] = finish(acc, threadIdx.x, threadIdx.y);
}

template <typename OUT>
__device__ void every_mode(A acc, void* out, const Scaled& e, const Batch& batch) {
  run<OUT, EpilogueMode::identity, Activation::none>(acc, out, e, batch);
  run<OUT, EpilogueMode::scaled, Activation::none>(acc, out, e, batch);
#if REAL
  run<OUT, EpilogueMode::scaled, Activation::relu>(acc, out, e, batch);
  run<OUT, EpilogueMode::scaled, Activation::gelu>(acc, out, e, batch);
  run<OUT, EpilogueMode::scaled, Activation::gelu_erf>(acc, out, e, batch);
  run<OUT, EpilogueMode::scaled, Activation::silu>(acc, out, e, batch);
#endif
}

extern "C" __global__ void probe_epilogue_all(const A* acc, void* out, Batch batch,
                                              const __grid_constant__ Scaled e,
                                              const __grid_constant__ EpilogueArgs<s64> exact) {
  A value = acc[threadIdx.x];
#if OUTPUTS == 1
  every_mode<T>(value, out, e, batch);
#else
  every_mode<f16>(value, out, e, batch);
  every_mode<bf16>(value, out, e, batch);
  every_mode<f32>(value, out, e, batch);
#endif
#if INTEGER
  every_mode<s32>(value, out, e, batch);
  every_mode<s8>(value, out, e, batch);
  run<s32, EpilogueMode::exact, Activation::none>(value, out, exact, batch);
  run<s32, EpilogueMode::exact, Activation::relu>(value, out, exact, batch);
#endif
}
