// One tensor-core product, its fragments loaded as ptx/mma.cuh and ptx/mma_sp.cuh describe them.
//
//   a  dense: 16 x K; sparse: 16 x K/2 packed. Rows of 32 bytes.
//   b  K x 8, row-major
//   e  metadata of each lane
//
// -DT, -DSPARSE (0 or 1), -DSELECTOR, -DLDMATRIX (fragments through shared memory; b only 16-bit)
#include "ptx/ldmatrix.cuh"
#include "ptx/mma.cuh"
#include "ptx/mma_sp.cuh"

using namespace sparsegpu;

typedef Acc<T>::type A;

__device__ unsigned word(const T* b, int column, int byte) {
  const int k = byte / int(sizeof(T));
  unsigned result;
  T* element = reinterpret_cast<T*>(&result);
  for (int j = 0; j < int(4 / sizeof(T)); ++j) element[j] = b[(k + j) * 8 + column];
  return result;
}

extern "C" __global__ void probe_mma(const T* a, const T* b, const unsigned* e, A* out) {
  __shared__ __align__(16) char rows[512];
  __shared__ __align__(16) char panel[512];
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  unsigned fa[4], fb[4] = {};
#if LDMATRIX
  cp_async<16>(rows + lane * 16, reinterpret_cast<const char*>(a) + lane * 16);
  cp_async<16>(panel + lane * 16, reinterpret_cast<const char*>(b) + lane * 16,
               lane < Mma<T>::k * (SPARSE ? 2 : 1));
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  ldmatrix_x4(fa, rows + lane % 16 * 32 + lane / 16 * 16);
#if SPARSE
  ldmatrix_x4_trans(fb, panel + lane * 16);
#else
  unsigned two[2];
  ldmatrix_x2_trans(two, shared_address(panel + lane % 16 * 16));
  fb[0] = two[0];
  fb[1] = two[1];
#endif
#else
  const unsigned* words = reinterpret_cast<const unsigned*>(a);
  for (int i = 0; i < 4; ++i) fa[i] = words[(g + i % 2 * 8) * 8 + t + i / 2 * 4];
  for (int i = 0; i < (SPARSE ? 4 : 2); ++i) fb[i] = word(b, g, 16 * i + 4 * t);
#endif
  A d[4] = {};
#if SPARSE
  MmaSp<T>::template run<SELECTOR>(d, fa, fb, e[lane]);
#else
  const unsigned half[2] = {fb[0], fb[1]};
  mma<T>(d, fa, half);
#endif
  for (int i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}
