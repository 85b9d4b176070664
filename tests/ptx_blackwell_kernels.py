"""Small CUDA kernels for compute capability 10.0, and what each of them writes and reads."""

from __future__ import annotations

from ptx_kernels import Case

_MAP = "struct __align__(64) M { char bytes[128]; };\n"
_SHARED = "#define SHARED(p) ((unsigned)__cvta_generic_to_shared(p))\n"

BLACKWELL = {
    "product_in_tensor_memory": Case(
        "const __grid_constant__ M a, const __grid_constant__ M b, float* out, int steps", """
        __shared__ __align__(1024) char tiles[2][16384];
        __shared__ __align__(8) unsigned long long arrived, done;
        __shared__ unsigned home;
        if (threadIdx.x < 32)
          asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 64;"
                       :: "r"(SHARED(&home)) : "memory");
        if (threadIdx.x == 0) {
          asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(SHARED(&arrived)));
          asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(SHARED(&done)));
        }
        __syncthreads();
        for (int step = 0; step < steps && threadIdx.x == 0; ++step) {
          load(SHARED(tiles[0]), &a, SHARED(&arrived), step);
          load(SHARED(tiles[1]), &b, SHARED(&arrived), step);
          wait(SHARED(&arrived), step & 1);
          unsigned long long first = (SHARED(tiles[0]) & 0x3FFFF) >> 4 | 1ull << 46;
          unsigned long long second = (SHARED(tiles[1]) & 0x3FFFF) >> 4 | 1ull << 46;
          asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0;"
                       "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }"
                       :: "r"(home), "l"(first), "l"(second), "r"(0x8100490u), "r"(step));
          asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                       :: "r"(SHARED(&done)) : "memory");
          wait(SHARED(&done), step & 1);
        }
        __syncthreads();
        asm volatile("tcgen05.fence::after_thread_sync;");
        for (int at = 0; at < 64; at += 4) {
          float r[4];
          asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]) : "r"(home + at));
          asm volatile("tcgen05.wait::ld.sync.aligned;");
          for (int i = 0; i < 4; ++i) out[I * 64 + at + i] = r[i];
        }
        if (threadIdx.x < 32) {
          asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 64;" :: "r"(home));
          asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
        }""", {2}, {0, 1},
        helpers=_MAP + _SHARED + """
        __device__ void load(unsigned to, const M* map, unsigned barrier, int step) {
          asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                       ".mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                       :: "r"(to), "l"(map), "r"(barrier), "r"(step), "r"(0) : "memory");
        }
        __device__ void wait(unsigned barrier, unsigned phase) {
          unsigned passed = 0;
          while (!passed)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
                         "selp.u32 %0, 1, 0, p; }"
                         : "=r"(passed) : "r"(barrier), "r"(phase) : "memory");
        }"""),
    "through_tensor_memory": Case("float* out, const float* x", """
        unsigned home = 0, bits = __float_as_uint(x[I]), read;
        asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" :: "r"(home), "r"(bits));
        asm volatile("tcgen05.wait::st.sync.aligned;");
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(read) : "r"(home));
        out[I] = __uint_as_float(read);""", {0}, {1}),
    "pointer_through_tensor_memory": Case("float* a, float* b", """
        unsigned home = 0, low, high;
        unsigned long long p = (unsigned long long)b;
        asm volatile("tcgen05.st.sync.aligned.32x32b.x2.b32 [%0], {%1, %2};"
                     :: "r"(home), "r"((unsigned)p), "r"((unsigned)(p >> 32)));
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%0, %1}, [%2];"
                     : "=r"(low), "=r"(high) : "r"(home));
        *(float*)((unsigned long long)high << 32 | low) = 1;""", {1}, opaque=True),
    "cancelled_clusters": Case("float* out, const float* x, int n", """
        __shared__ __align__(16) uint4 answer;
        __shared__ __align__(8) unsigned long long barrier;
        unsigned block = blockIdx.x, more = 1;
        while (more) {
          unsigned long long low, high;
          asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta"
                       ".mbarrier::complete_tx::bytes.b128 [%0], [%1];"
                       :: "r"(SHARED(&answer)), "r"(SHARED(&barrier)) : "memory");
          int i = block * blockDim.x + threadIdx.x;
          if (i < n) out[i] = 2 * x[i];
          __syncthreads();
          low = ((unsigned long long*)&answer)[0], high = ((unsigned long long*)&answer)[1];
          asm volatile("{ .reg .pred p; .reg .b128 h; mov.b128 h, {%2, %3};"
                       "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, h;"
                       "selp.u32 %0, 1, 0, p;"
                       "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, h; }"
                       : "=r"(more), "+r"(block) : "l"(low), "l"(high));
        }""", {0}, {1}, helpers=_SHARED),
    "filled_shared_memory": Case("int* counts, const int* x, int n", """
        __shared__ __align__(16) int bins[256];
        if (threadIdx.x == 0)
          asm volatile("st.bulk.weak.shared::cta [%0], 1024, 0;" :: "r"(SHARED(bins)) : "memory");
        __syncthreads();
        if (I < n) atomicAdd(&bins[x[I] & 255], 1);
        __syncthreads();
        counts[blockIdx.x * 256 + threadIdx.x] = bins[threadIdx.x];""", {0}, {1}, helpers=_SHARED),
    "counted_by_a_cluster": Case("int* counts, const int* x", """
        __shared__ int count;
        __shared__ __align__(8) unsigned long long barrier;
        unsigned there, its;
        asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(SHARED(&count)));
        asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(its) : "r"(SHARED(&barrier)));
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes"
                     ".add.u32 [%0], %1, [%2];" :: "r"(there), "r"(x[I]), "r"(its) : "memory");
        __syncthreads();
        counts[blockIdx.x] = count;""", {0}, {1}, helpers=_SHARED),
    "changed_tensor_map": Case("char* maps, const float* x, float* out", """
        __shared__ __align__(128) float tile[256];
        __shared__ __align__(128) char map[128];
        __shared__ __align__(8) unsigned long long barrier;
        map[threadIdx.x & 127] = maps[threadIdx.x & 127];
        __syncthreads();
        asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;"
                     :: "r"(SHARED(map)), "l"(x) : "memory");
        asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic"
                     ".release.gpu.sync.aligned [%0], [%1], 128;"
                     :: "l"(maps), "r"(SHARED(map)) : "memory");
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(maps));
        asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile"
                     ".mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];"
                     :: "r"(SHARED(tile)), "l"(maps), "r"(SHARED(&barrier)), "r"(0) : "memory");
        out[I] = tile[threadIdx.x];""", {0, 2}, {0, 1, 2}, helpers=_SHARED),
    "sum_over_devices": Case("const float* everywhere, float* out, int n", """
        float sum;
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];"
                     : "=f"(sum) : "l"(everywhere + I) : "memory");
        if (I < n) out[I] = sum;""", {1}, {0, 1}),
    "store_on_all_devices": Case("float* everywhere, const float* x", """
        asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;"
                     :: "l"(everywhere + I), "f"(x[I]) : "memory");""", {0, 1}, opaque=True),
    "bytes_of_pixels": Case("unsigned* out, const unsigned* x, const unsigned* y, int n", """
        unsigned mean, far, sum;
        asm("vavrg4.u32.u32.u32 %0, %1, %2, %1;" : "=r"(mean) : "r"(x[I]), "r"(y[I]));
        asm("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;" : "=r"(far) : "r"(x[I]), "r"(y[I]), "r"(n));
        asm("vmad.u32.u32.u32.shr7 %0, %1.b1, %2.h0, %1;" : "=r"(sum) : "r"(mean), "r"(far));
        out[sum & 255] = far;""", {0}, {1, 2}),
}  # fmt: skip
