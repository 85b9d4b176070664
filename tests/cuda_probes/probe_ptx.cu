// Every instruction wrapper once, so that each is seen to compile for every architecture.
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/mma_sp.cuh"
#include "common/epilogue.cuh"
#include "common/philox.cuh"

using namespace sparsegpu;

template <typename T>
__device__ void dense(unsigned (&a)[4], unsigned (&b)[4], float* out) {
  typename Acc<T>::type d[4] = {};
  unsigned half[2] = {b[0], b[1]};
  mma<T>(d, a, half);
  MmaSp<T>::template run<0>(d, a, b, a[0]);
  if constexpr (MmaSp<T>::k < 64) MmaSp<T>::template run<1>(d, a, b, a[1]);
  for (int i = 0; i < 4; ++i) out[i * 32 + threadIdx.x] += float(d[i]);
}

extern "C" __global__ void probe_ptx(const char* in, float* out, View view, Batch batch) {
  __shared__ __align__(16) char tile[2048];
  cp_async<16>(tile + threadIdx.x * 16, in + threadIdx.x * 16, threadIdx.x != 3);
  cp_async<8>(tile + 512 + threadIdx.x * 8, in + 512 + threadIdx.x * 8);
  cp_async<4>(tile + 768 + threadIdx.x * 4, in + 768 + threadIdx.x * 4);
  cp_async_partial<16>(tile + 1024 + threadIdx.x * 16, in + threadIdx.x * 16, 7);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  unsigned a[4], b[4], two[2], one;
  const unsigned row = shared_address(tile + threadIdx.x * 16);
  ldmatrix_x4(a, row);
  ldmatrix_x4_trans(b, row);
  ldmatrix_x2(two, row);
  b[0] ^= two[0] ^ two[1];
  ldmatrix_x2_trans(two, row);
  b[1] ^= two[0] ^ two[1];
  ldmatrix_x1(one, row);
  b[2] ^= one;
  b[3] ^= to_tf32(out[0]);
  dense<bf16>(a, b, out);
  dense<f16>(a, b, out);
  dense<f32>(a, b, out);
  dense<s8>(a, b, out);
#if __CUDA_ARCH__ >= 890
  dense<e4m3>(a, b, out);
#endif
  f64 d[2] = {};
  mma_f64_m8n8k4(d, f64(a[0]), f64(b[0]));
  out[threadIdx.x] += float(d[0] + d[1]) * (philox_word(a[0], 7) > highest_dropped(0.5));
  out[batch_offset(view, batch, threadIdx.x)] = 0;
}
