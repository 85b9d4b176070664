// The epilogue as a kernel of its own: out[b] = epilogue(acc[b]) for contiguous matrices. The
// activation is chosen at run time, by its number: one module has all that the epilogue can have.
#include "common/kernel_epilogue.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

template <typename C>
constexpr bool REAL = true;
template <typename R>
constexpr bool REAL<Complex<R>> = false;

constexpr EpilogueMode MODE = EpilogueMode::EPILOGUE;
constexpr int ACTIVATIONS = MODE == EpilogueMode::identity || !REAL<A> ? 1
                            : MODE == EpilogueMode::exact              ? 2
                                                                       : 5;

template <int F>
__device__ OUT finished(int activation, const KernelEpilogueArgs<A>& epilogue, const Batch& batch,
                        long long b, A acc, long long r, long long c) {
  if constexpr (F + 1 < ACTIVATIONS) {
    if (activation > F) return finished<F + 1>(activation, epilogue, batch, b, acc, r, c);
  }
  EpilogueOp<A, OUT, MODE, Activation(F), INPUT, LEFT, RIGHT> finish(epilogue, batch, b);
  return finish(acc, r, c);
}

extern "C" __global__ void probe_epilogue(const A* acc, OUT* out, int rows, int cols, Batch batch,
                                          const __grid_constant__ KernelEpilogueArgs<A> epilogue,
                                          int activation) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const long long matrix = (long long)rows * cols;
  const long long b = blockIdx.y;
  if (at >= matrix) return;
  const long long from = b * matrix + at;
  out[from] = finished<0>(activation, epilogue, batch, b, acc[from], at / cols, at % cols);
}
