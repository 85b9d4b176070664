"""Small CUDA kernels, and what each of them writes and reads by the numbers of its parameters.

``python tests/ptx_kernels.py`` compiles them and keeps the PTX in ``tests/ptx``, so that the
analysis is tested where NVRTC is not installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "ptx"
KEPT = ("80", "100")


class Case(NamedTuple):
    """A kernel ``k(parameters) { body }``, after helpers of its own."""

    parameters: str
    body: str
    writes: set[int]
    reads: set[int] | None = None
    opaque: bool = False
    effects: set[str] = frozenset()
    helpers: str = ""

    @property
    def source(self) -> str:
        entry = f'extern "C" __global__ void k({self.parameters}) {{\n{self.body}\n}}\n'
        return f"{self.helpers}\n#define I (blockIdx.x * blockDim.x + threadIdx.x)\n{entry}"


_TWO = "float* a, float* b, int n"
_S = "struct S { float* a; int n; float* b; };"
_STORE = "__device__ __noinline__ void put(float* p, int i, float v) { p[i] = v; }"

CASES = {
    "add": Case("const float* a, const float* b, float* out, int n",
                "if (I < n) out[I] = a[I] + b[I];", {2}, {0, 1}),
    "multiply_in_place": Case("float* p, float s, int n", "if (I < n) p[I] *= s;", {0}, {0}),
    "out_of_order": Case("int n, float* out, float s, const float* x",
                         "if (I < n) out[I] = s * x[I];", {1}, {3}),
    "long_scalars": Case("float* out, const float* x, long long n, unsigned long long m",
                         "out[I * n + m] = x[I - n];", {0}, {1}),
    "helper": Case("float* a, float* b, int n, float v", "put(b, n, v); a[0] = a[1];", {0, 1}, {0},
                   helpers=_STORE),
    "helper_returns": Case(_TWO, "float* p = at(a, n); *p = b[0];", {0}, {1},
        helpers="__device__ __noinline__ float* at(float* p, int i) { return p + i; }"),
    "helper_returns_two": Case(_TWO, "Pair p = both(a, b, n); *p.x = 1; *p.y = 2;", {0, 1},
        helpers="struct Pair { float *x, *y; };\n"
        "__device__ __noinline__ Pair both(float* a, float* b, int n) { return {a + n, b + n}; }"),
    "one_of_two": Case(_TWO, "*pick(a, b, n) = 1;", {0, 1},
        helpers="__device__ __noinline__ float* pick(float* a, float* b, int n)"
        " { return n ? a : b; }"),
    "nested_branches": Case(_TWO + ", const float* c",
        "if (n > 1) { if (n > 2) { if (I > 3) a[I] = c[0]; } else b[I] = c[1]; }", {0, 1}, {3}),
    "early_return": Case(_TWO, "if (I >= n) return; if (n == 7) { b[0] = 1; return; } a[I] = 2;",
                         {0, 1}),
    "select": Case(_TWO, "float* p = n > 3 ? a : b; p[I] = 1;", {0, 1}),
    "loop_of_two": Case(_TWO, "float *p = a, *q = b;\n#pragma unroll 1\n"
        "for (int i = 0; i < n; ++i) { p[i] = 1; float* t = p; p = q; q = t; }", {0, 1}),
    "advanced": Case(_TWO, "float* p = a + I;\n#pragma unroll 1\n"
        "for (int i = 0; i < n; ++i, p += 32) *p = b[i];", {0}, {1}),
    "loaded_index": Case("float* out, const int* index, const float* x, int n",
                         "if (I < n) out[index[I]] = x[I];", {0}, {1, 2}),
    "reduction": Case("const float* x, float* out, int n", """
        __shared__ float part[256];
        part[threadIdx.x] = I < n ? x[I] : 0;
        for (int s = 128; s > 0; s >>= 1) {
          __syncthreads();
          if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        }
        if (threadIdx.x == 0) out[blockIdx.x] = part[0];""", {1}, {0}),
    "arg_max": Case("const float* x, int* where, float* most, int n", """
        float best = -1e30f; int at = 0;
        for (int i = threadIdx.x; i < n; i += 32) if (x[i] > best) { best = x[i]; at = i; }
        for (int d = 16; d > 0; d >>= 1) {
          float other = __shfl_down_sync(~0u, best, d); int place = __shfl_down_sync(~0u, at, d);
          if (other > best) { best = other; at = place; }
        }
        if (threadIdx.x == 0) { *where = at; *most = best; }""", {1, 2}, {0}),
    "atomics": Case("float* out, int* counter, const float* x",
        "if (atomicAdd(counter, 1) < 7) atomicAdd(out + I % 8, x[I]);", {0, 1}, {0, 1, 2}),
    "exchange": Case("int* lock, float* out",
        "while (atomicCAS(lock, 0, 1)); out[0] += 1; atomicExch(lock, 0);", {0, 1}, {0, 1}),
    "vector": Case("float4* out, const float4* x", "out[I] = x[I];", {0}, {1}),
    "volatile": Case("volatile int* flag, const int* x", "flag[I] = x[I];", {0}, {1}),
    "release": Case("int* flag, int* out", 'out[I] = 1; asm volatile("st.release.gpu.global.u32 '
        '[%0], 1;" :: "l"(flag) : "memory");', {0, 1}),
    "pure_asm": Case("float* out, const float* x", 'float y; asm("add.f32 %0, %1, %1;" : "=f"(y) :'
        ' "f"(x[I])); out[I] = y;', {0}, {1}),
    "asm_store": Case("float* out, const float* x", 'asm volatile("{ .reg .pred p; setp.gt.f32 p, '
        '%1, 0f00000000; @p st.global.f32 [%0], %1; }" :: "l"(out), "f"(x[I]) : "memory");',
        {0}, {1}),
    "struct_field": Case("S s, const float* x", "s.b[s.n] = x[I] + s.a[0];", {0}, {0, 1},
                         helpers=_S),
    "packed_struct": Case("P s, const float* x", "s.p[I] = x[I];", {0}, {1},
        helpers="struct __attribute__((packed)) P { char c; float* p; };"),
    "union": Case("U u, const float* x", "u.p[I] = x[u.half[0] & 1];", {0}, {1},
                  helpers="union U { float* p; unsigned half[2]; };"),
    "local_array": Case("float* a, float* b, float* c, int n, const float* x",
        "float* all[3] = {a, b, c}; all[n % 3][I] = x[I];", {0, 1, 2}, {4}),
    "shared_array": Case("float* a, float* b, int n",
        "__shared__ float* all[2]; if (threadIdx.x == 0) { all[0] = a; all[1] = b; }"
        " __syncthreads(); all[n & 1][I] = 1;", {0, 1}),
    "pointer_table": Case("float** table, int n", "table[n][I] = 1;", {0}, {0}, opaque=True),
    "loaded_pointer_is_read": Case("float** table, float* out", "out[I] = table[I][0];", {1},
                                   {0, 1}),
    "difference": Case(_TWO, "long long d = (char*)b - (char*)a; *(float*)((char*)a + d) = 1;",
                       {1}),
    "recursion": Case(_TWO, "fill(a, n);", {0}, set(), helpers=
        "__device__ __noinline__ void fill(float* p, int n)"
        " { if (n > 0) { p[n] = n; fill(p + 1, n - 2); fill(p + 2, n - 3); } }"),
    "indirect_call": Case(_TWO, "F f = n ? one : two; f(b);", {1}, helpers=
        "__device__ __noinline__ void one(float* p) { p[1] = 1; }\n"
        "__device__ __noinline__ void two(float* p) { p[2] = 2; }\ntypedef void (*F)(float*);"),
    "table_of_functions": Case(_TWO, "table[n & 1](b);", {1}, helpers=
        "__device__ __noinline__ void one(float* p) { p[1] = 1; }\n"
        "__device__ __noinline__ void two(float* p) { p[2] = 2; }\ntypedef void (*F)(float*);\n"
        "__device__ F table[2] = {one, two};"),
    "module_array": Case("const float* x", "kept[threadIdx.x] = x[I];", set(), {0},
                         effects={"module"}, helpers="__device__ float kept[256];"),
    "printed": Case("float* out, int n", 'printf("%d", n); out[0] = 1;', {0}, set(),
                    effects={"printf"}, helpers='extern "C" int printf(const char*, ...);'),
    "trap": Case("float* out, int n", "if (n < 0) __trap(); out[0] = 1;", {0}, set(),
                 effects={"trap"}),
    "escape": Case("float** table, float* x", "table[0] = x;", {0}, set()),
    "copy_async": Case("float* out, const float* x", """
        __shared__ __align__(16) float tile[512];
        unsigned to = (unsigned)__cvta_generic_to_shared(tile + 4 * threadIdx.x);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(x + 4 * I));
        asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
        out[I] = tile[threadIdx.x];""", {0}, {1}),
    "aligned_down": Case(_TWO, "float* p = (float*)((unsigned long long)(a + n) & ~63ull);"
        " p[I] = b[I];", {0}, {1}),
    "nothing": Case("float* a, int n", "", set(), set()),
    "numbers_to_a_helper": Case("float* a, long long n, unsigned long long m, float v",
                                "put(a, (int)(n + m), v);", {0}, set(), helpers=_STORE),
    "divergent": Case(_TWO + ", float* c", "float* p = c;\n if (threadIdx.x & 1) p = a;"
                      " else if (threadIdx.x & 2) p = b; __syncwarp(); p[I] = n;",
                      {0, 1, 3}, set()),
    "scan": Case("int* out, const int* x, int n", """
        __shared__ int sums[2][256];
        int from = 0, t = threadIdx.x;
        sums[0][t] = I < n ? x[I] : 0;
        for (int d = 1; d < 256; d *= 2, from ^= 1) {
          __syncthreads();
          sums[from ^ 1][t] = sums[from][t] + (t >= d ? sums[from][t - d] : 0);
        }
        if (I < n) out[I] = sums[from][t];""", {0}, {1}),
    "two_selects": Case("float* a, float* b, float* c, int n",
                        "float* p = n > 3 ? (n > 5 ? a : b) : c; *p = n;"
                        " p = n & 1 ? b : c; p[1] = 2;",
                        {0, 1, 2}, set()),
    "address_of_32_bits": Case("unsigned p, const float* x", "*(float*)(p * 16ull) = x[I];",
                               {1}, {1}, opaque=True),
    "constant_table": Case("const float* x, float* out", "tables[out == x][I] = x[I];", {1}, {0},
                           opaque=True, helpers="__constant__ float* tables[2];"),
}  # fmt: skip

#: For compute capability 9.0.
HOPPER = {
    "bulk_store": Case("float* out, const float* x", """
        __shared__ __align__(128) float tile[256];
        tile[threadIdx.x] = x[I];
        __syncthreads();
        unsigned from = (unsigned)__cvta_generic_to_shared(tile);
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;"
                     :: "l"(out), "r"(from) : "memory");""", {0}, {1}),
    "bulk_reduce": Case("float* out, const float* x", """
        __shared__ __align__(128) float tile[256];
        tile[threadIdx.x] = x[I];
        __syncthreads();
        unsigned from = (unsigned)__cvta_generic_to_shared(tile);
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 1024;"
                     :: "l"(out), "r"(from) : "memory");""", {0}, {0, 1}),
    "tensor_map_store": Case("const __grid_constant__ M map, const float* x", """
        __shared__ __align__(128) float tile[256];
        tile[threadIdx.x] = x[I];
        unsigned from = (unsigned)__cvta_generic_to_shared(tile);
        asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];"
                     :: "l"(&map), "r"(from), "r"(0) : "memory");""", {0}, {1},
        helpers="struct __align__(64) M { char bytes[128]; };"),
    "tensor_map_load": Case("const __grid_constant__ M map, float* out", """
        __shared__ __align__(128) float tile[256];
        __shared__ long long barrier;
        unsigned to = (unsigned)__cvta_generic_to_shared(tile);
        unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
        asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.tile."
                     "mbarrier::complete_tx::bytes [%0], [%1, {%3}], [%2];"
                     :: "r"(to), "l"(&map), "r"(at), "r"(0) : "memory");
        out[I] = tile[threadIdx.x];""", {1}, {0},
        helpers="struct __align__(64) M { char bytes[128]; };"),
    "tensor_map_in_memory": Case("const char* map", """
        __shared__ __align__(128) float tile[256];
        unsigned from = (unsigned)__cvta_generic_to_shared(tile);
        asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];"
                     :: "l"(map), "r"(from), "r"(0) : "memory");""", {0}, {0}, opaque=True),
}  # fmt: skip


def compiled(case: Case, arch: str, *options: str) -> str:
    """Return the PTX of a case, from NVRTC."""
    from sparsegpu.engines.cuda.runtime.compile import compile_text

    flags = (f"--gpu-architecture=sm_{arch}", "--std=c++17", *options)
    return compile_text("k", case.source, flags).ptx


def main() -> None:
    from ptx_blackwell_kernels import BLACKWELL
    from ptx_more_kernels import ADVERSARIAL, REALISTIC

    FOLDER.mkdir(exist_ok=True)
    builds = [(n, c, a) for n, c in CASES.items() for a in KEPT]
    builds += [(n, c, "90a") for n, c in HOPPER.items()]
    builds += [(n, c, "100a") for n, c in BLACKWELL.items()]
    builds += [(n, c, KEPT[0]) for n, c in {**ADVERSARIAL, **REALISTIC}.items()]
    for name, case, arch in builds:
        text = compiled(case, arch)
        kept = [line for line in text.splitlines() if line.strip() and line[:2] != "//"]
        (FOLDER / f"{name}.{arch}.ptx").write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
