"""Kernels that hide addresses, and kernels as people write them, labelled like `ptx_kernels`."""

from __future__ import annotations

from ptx_kernels import Case

_TWO = "float* a, float* b, int n"
_U = "typedef unsigned long long U;\n"

#: What hides addresses in integers, floats, bytes, lanes, memory and calls.
ADVERSARIAL = {
    "swap_by_xor": Case(_TWO, "U x = (U)a, y = (U)b; x ^= y; y ^= x; x ^= y; *(float*)x = n;",
                        {1}, set(), helpers=_U),
    "in_a_double": Case(_TWO, """
        __shared__ double kept[64];
        kept[threadIdx.x] = __longlong_as_double((long long)(n > 3 ? a : b));
        __syncthreads();
        *(float*)__double_as_longlong(kept[threadIdx.x ^ 1]) = 1;""", {0, 1}, set()),
    "in_two_floats": Case(_TWO, """
        __shared__ float low[64], high[64];
        low[threadIdx.x] = __uint_as_float((unsigned)(U)b);
        high[threadIdx.x] = __uint_as_float((unsigned)((U)b >> 32));
        __syncthreads();
        U x = (U)__float_as_uint(high[n & 63]) << 32 | __float_as_uint(low[n & 63]);
        *(float*)x = 1;""", {1}, set(), helpers=_U),
    "byte_by_byte": Case(_TWO, """
        unsigned char bytes[8];
        for (int i = 0; i < 8; ++i) bytes[i] = (unsigned char)((U)b >> 8 * i);
        U x = 0;
        for (int i = n & 1; i < 8; ++i) x |= (U)bytes[i] << 8 * i;
        if (!(n & 1)) *(float*)x = 1;""", {1}, set(), helpers=_U),
    "without_its_low_bits": Case(_TWO, "unsigned short_ = (unsigned)((U)b >> 8);"
                                 " *(float*)((U)short_ << 8) = 1;", {1}, set(), helpers=_U),
    "with_a_tag": Case(_TWO, "U x = (U)(n > 0 ? a : b) | 1; if (x & 1) *(float*)(x & ~1ull) = 1;",
                       {0, 1}, set(), helpers=_U),
    "of_another_lane": Case(_TWO, """
        U x = (U)(threadIdx.x & 1 ? a : b);
        x = __shfl_xor_sync(~0u, x, 1);
        *(float*)x = 1;""", {0, 1}, set(), helpers=_U),
    "blended_by_masks": Case(_TWO, "U m = -(U)(n > 3); *(float*)((U)a & m | (U)b & ~m) = 1;",
                             {0, 1}, set(), helpers=_U),
    "exchanged_in_shared_memory": Case(_TWO, """
        __shared__ U slot;
        if (threadIdx.x == 0) slot = (U)a;
        __syncthreads();
        U old = atomicExch(&slot, (U)b);
        *(float*)old = 1;""", {0, 1}, set(), opaque=True, helpers=_U),
    # One cell for all of shared memory: what is loaded through its pointers may be loaded twice.
    "list_in_shared_memory": Case(_TWO, """
        __shared__ Node nodes[4];
        if (threadIdx.x < 4) nodes[I & 3] = {I & 1 ? a : b, &nodes[I & 3 ^ 2]};
        __syncthreads();
        Node* at = nodes;
        for (int i = 0; i < n; ++i) at = at->next;
        at->data[0] = 1;""", {0, 1}, set(),
        helpers="struct Node { float* data; Node* next; };"),
    "through_a_reference": Case(_TWO, "float *p = a, *q = b; order(p, q, n); p[0] = q[1];",
        {0, 1}, {0, 1}, helpers="__device__ __noinline__ void order(float*& p, float*& q, int n)"
        " { if (n > 0) { float* t = p; p = q; q = t; } }"),
    "exchanged_by_recursion": Case(_TWO, "walk(a, b, n);", {0, 1}, set(), helpers=
        "__device__ __noinline__ void walk(float* p, float* q, int n)"
        " { if (n > 0) walk(q, p + 1, n - 1); else p[0] = 1; }"),
    "virtual_call": Case(_TWO, "First f(a); Second s(b); Base* o = n & 1 ? (Base*)&f : &s;"
        " o->put(n);", {0, 1}, set(), helpers="""
        struct Base { __device__ virtual void put(int n) = 0; };
        struct First : Base { float* p; __device__ First(float* p) : p(p) {}
          __device__ __noinline__ void put(int n) override { p[n] = 1; } };
        struct Second : Base { float* p; __device__ Second(float* p) : p(p) {}
          __device__ __noinline__ void put(int n) override { p[n] = 2; } };"""),
    "from_its_end": Case(_TWO, "const float* end = a + n; for (float* p = b; a < end; --end, ++p)"
                         " *p = end[-1];", {1}, {0}),
    "states_that_rotate": Case("float* a, float* b, float* c, int n", """
        float* p = a; int state = n;
        while (state != 7) {
          switch (state & 3) {
            case 0: p = b; state += n; break;
            case 1: *p = state; p = c; state *= 3; break;
            case 2: p = a + state; state ^= n; break;
            default: state = 7;
          }
        }""", {0, 1, 2}, set()),
    "the_larger_of_two": Case(_TWO, "U x = (U)a, y = (U)b; *(float*)(x > y ? x : y) = 1;",
                              {0, 1}, set(), helpers=_U),
    "loaded_plus_a_difference": Case("char** t, char* a, char* b", "t[0][b - a] = 1; *a = *b;",
                                     {0, 1, 2}, {0, 2}, opaque=True),
}  # fmt: skip

#: Kernels as they are found in libraries and courses.
REALISTIC = {
    "grid_stride": Case("float* y, const float* x, float a, long long n", """
        for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
             i += (long long)gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];""", {0}, {0, 1}),
    "tiled_product": Case("float* c, const float* a, const float* b, int m, int n, int k", """
        __shared__ float ta[16][17], tb[16][17];
        int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
        float sum = 0;
        for (int t = 0; t < k; t += 16) {
          ta[y][x] = row < m && t + x < k ? a[row * k + t + x] : 0;
          tb[y][x] = col < n && t + y < k ? b[(t + y) * n + col] : 0;
          __syncthreads();
          for (int i = 0; i < 16; ++i) sum += ta[y][i] * tb[i][x];
          __syncthreads();
        }
        if (row < m && col < n) c[row * n + col] = sum;""", {0}, {1, 2}),
    "layer_norm": Case("float* out, float* mean, float* scale, const float* x, const float* gamma,"
                       " const float* beta, int n, float eps", """
        const float* row = x + (long long)blockIdx.x * n;
        float s = 0, q = 0;
        for (int i = threadIdx.x; i < n; i += 32) { s += row[i]; q += row[i] * row[i]; }
        for (int d = 16; d; d /= 2) {
          s += __shfl_xor_sync(~0u, s, d); q += __shfl_xor_sync(~0u, q, d);
        }
        float mu = s / n, r = rsqrtf(q / n - mu * mu + eps);
        for (int i = threadIdx.x; i < n; i += 32)
          out[(long long)blockIdx.x * n + i] = (row[i] - mu) * r * gamma[i] + beta[i];
        if (threadIdx.x == 0) { mean[blockIdx.x] = mu; scale[blockIdx.x] = r; }""",
        {0, 1, 2}, {3, 4, 5}),
    "histogram": Case("unsigned* counts, const unsigned char* x, int n", """
        __shared__ unsigned own[256];
        for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
        __syncthreads();
        for (int i = I; i < n; i += gridDim.x * blockDim.x) atomicAdd(&own[x[i]], 1u);
        __syncthreads();
        for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(counts + i, own[i]);""",
        {0}, {0, 1}),
    "compressed_rows": Case("float* y, const int* indptr, const int* indices, const float* data,"
                            " const float* x, int rows", """
        int row = I / 32, lane = threadIdx.x % 32;
        if (row >= rows) return;
        float sum = 0;
        for (int j = indptr[row] + lane; j < indptr[row + 1]; j += 32)
          sum += data[j] * x[indices[j]];
        for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
        if (lane == 0) y[row] = sum;""", {0}, {1, 2, 3, 4}),
    "frontier": Case("int* level, int* queue, int* size, const int* indptr, const int* indices,"
                     " const int* from, int count, int depth", """
        if (I >= count) return;
        int v = from[I];
        for (int j = indptr[v]; j < indptr[v + 1]; ++j)
          if (atomicCAS(level + indices[j], -1, depth) == -1)
            queue[atomicAdd(size, 1)] = indices[j];""", {0, 1, 2}, {0, 2, 3, 4, 5}),
    "scan_that_looks_back": Case("int* out, const int* x, volatile long long* state, int* ticket,"
                                 " int n", """
        __shared__ int tile, before, sums[8];
        if (threadIdx.x == 0) tile = atomicAdd(ticket, 1);
        __syncthreads();
        int i = tile * 256 + threadIdx.x, value = i < n ? x[i] : 0, sum = value;
        for (int d = 1; d < 32; d *= 2) {
          int other = __shfl_up_sync(~0u, sum, d);
          if (threadIdx.x % 32 >= d) sum += other;
        }
        if (threadIdx.x % 32 == 31) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        for (int w = 0; w < threadIdx.x / 32; ++w) sum += sums[w];
        if (threadIdx.x == 255) {
          state[tile] = 1ll << 32 | (unsigned)sum;
          __threadfence();
          int total = 0;
          for (int t = tile - 1; t >= 0; --t) {
            long long found;
            do found = state[t]; while (!(found >> 32));
            total += (int)found;
            if (found >> 33) break;
          }
          before = total;
          state[tile] = 2ll << 32 | (unsigned)(total + sum);
        }
        __syncthreads();
        if (i < n) out[i] = before + sum - value;""", {0, 2, 3}, {1, 2, 3}),
    "optimiser": Case("float* w, float* m, float* v, const float* g, float rate, float b1,"
                      " float b2, float eps, int n", """
        if (I >= n) return;
        float d = g[I];
        m[I] = b1 * m[I] + (1 - b1) * d;
        v[I] = b2 * v[I] + (1 - b2) * d * d;
        w[I] -= rate * m[I] / (sqrtf(v[I]) + eps);""", {0, 1, 2}, {0, 1, 2, 3}),
    "compaction": Case("int* out, int* count, const int* x, int n", """
        bool keep = I < n && x[I] > 0;
        unsigned lanes = __ballot_sync(~0u, keep);
        int at = 0;
        if (threadIdx.x % 32 == 0) at = atomicAdd(count, __popc(lanes));
        at = __shfl_sync(~0u, at, 0) + __popc(lanes & ((1u << threadIdx.x % 32) - 1));
        if (keep) out[at] = x[I];""", {0, 1}, {1, 2}),
    "hash_table": Case("unsigned long long* table, int* found, const unsigned* keys, int n,"
                       " unsigned mask", """
        if (I >= n) return;
        unsigned key = keys[I], at = key * 2654435761u & mask;
        unsigned long long entry = (unsigned long long)key << 32 | I;
        while (true) {
          unsigned long long old = atomicCAS(table + at, ~0ull, entry);
          if (old == ~0ull || old >> 32 == key) { found[I] = (int)old; return; }
          at = (at + 1) & mask;
        }""", {0, 1}, {0, 2}),
    "stencil_of_constants": Case("float* out, const float* x, int width, int height", """
        int c = I % width, r = I / width;
        if (r < 1 || r >= height - 1 || c < 1 || c >= width - 1) return;
        float sum = 0;
        for (int i = 0; i < 9; ++i) sum += weights[i] * x[(r + i / 3 - 1) * width + c + i % 3 - 1];
        out[I] = sum;""", {0}, {1}, helpers="__constant__ float weights[9];"),
    "bodies": Case("float4* to, const float4* from, float3* speed, int n, float step", """
        __shared__ float4 tile[128];
        float4 own = from[I]; float3 sum = {0, 0, 0};
        for (int t = 0; t < n; t += 128) {
          tile[threadIdx.x] = from[t + threadIdx.x];
          __syncthreads();
          for (int j = 0; j < 128; ++j) {
            float x = tile[j].x - own.x, y = tile[j].y - own.y, z = tile[j].z - own.z;
            float r = rsqrtf(x * x + y * y + z * z + 1e-6f), f = tile[j].w * r * r * r;
            sum.x += f * x; sum.y += f * y; sum.z += f * z;
          }
          __syncthreads();
        }
        float3 s = speed[I]; s.x += step * sum.x; s.y += step * sum.y; s.z += step * sum.z;
        speed[I] = s;
        to[I] = {own.x + step * s.x, own.y + step * s.y, own.z + step * s.z, own.w};""",
        {0, 2}, {1, 2}),
    "batch_of_pointers": Case("float** c, const float* const* a, int n", """
        if (threadIdx.x < n) c[blockIdx.x][threadIdx.x] += a[blockIdx.x][threadIdx.x];""",
        {0}, {0, 1}, opaque=True),
}  # fmt: skip
