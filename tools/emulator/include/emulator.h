// A thread block on the host: what CUDA C++ needs to be compiled by a C++ compiler and run.
//
// Every thread is a fiber with a stack of its own. A fiber runs until it waits: for the others of
// its warp (shuffles, votes, mma), of its block (__syncthreads), or for a barrier (ptx/mbarrier).
// Thread blocks run one after the other, in the order of their numbers. Shared memory is static
// memory, filled with NaN bytes before every launch.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __align__(n)

using std::exp;
using std::fabs;
using std::fma;
using std::fmaf;
using std::hypot;
using std::isinf;
using std::log;
using std::max;
using std::min;
using std::sqrt;
using std::tanh;

struct Index3 {
  unsigned x, y, z;
};
static Index3 threadIdx, blockIdx, blockDim, gridDim;

struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct double2 {
  double x, y;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline double2 make_double2(double x, double y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

namespace emulator {

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "emulated kernel: %s (block %u, thread %u)\n", what, blockIdx.x,
               threadIdx.x);
  std::abort();
}

// -- fibers ---------------------------------------------------------------------------------

constexpr size_t STACK_BYTES = 1 << 17;
constexpr long MOST_SWITCHES = 200000;  // that a fiber waits without progress

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  bool done;
};
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static unsigned running;

// Let the other threads of the block run.
inline void give_way() {
  swapcontext(&fibers[running].context, &scheduler);
  threadIdx.x = running;
}

template <typename Condition>
void wait_until(Condition reached, const char* what) {
  for (long switches = 0; !reached(); give_way())
    if (++switches > MOST_SWITCHES) fail(what);
}

struct Rendezvous {
  unsigned here, generation;

  void wait(unsigned all, const char* what) {
    const unsigned before = generation;
    if (++here == all) {
      here = 0;
      ++generation;
    } else {
      wait_until([&] { return generation != before; }, what);
    }
  }
};
static Rendezvous of_block, of_warp[32];

inline void sync_warp() {
  of_warp[threadIdx.x / 32].wait(32, "threads of its warp never came");
}

// The values that the threads of a warp exchange: post(), then read those of others, then leave().
template <typename X>
struct Exchange {
  static inline X posted[1024];

  static const X* post(const X& x) {
    posted[threadIdx.x] = x;
    sync_warp();
    return posted + threadIdx.x / 32 * 32;
  }
  static void leave() { sync_warp(); }
};

// -- shared memory --------------------------------------------------------------------------

constexpr unsigned SHARED_BYTES = 1 << 18;
// The bytes of what has not arrived, or is not computed yet: small numbers of every type. Of a NaN
// kernels may notice that it is none, and compute what it is part of in another way.
constexpr unsigned char NOT_YET = 0x3f;
// Not a multiple of 1024, as on the device: kernels align what they need aligned, or declare it.
constexpr unsigned FIRST_DYNAMIC = 272;
alignas(1024) static unsigned char shared_memory[SHARED_BYTES];
inline unsigned char* dynamic_shared(unsigned alignment) {
  return shared_memory + (FIRST_DYNAMIC + alignment - 1) / alignment * alignment;
}

// -- launches -------------------------------------------------------------------------------

static void** arguments;
static void (*kernel)();

template <typename... P, size_t... I>
void call(void (*function)(P...), std::index_sequence<I...>) {
  function(*static_cast<std::remove_const_t<P>*>(arguments[I])...);
}
template <typename... P>
void call(void (*function)(P...)) {
  call(function, std::index_sequence_for<P...>());
}

inline void body() {
  kernel();
  fibers[running].done = true;
  swapcontext(&fibers[running].context, &scheduler);
}

// The order of the threads of a block, each until it waits, drawn anew for every turn where
// EMULATOR_ORDER is set to a seed: upwards or downwards, and half of the warps stand still, so that
// others are ahead of them by as much as barriers allow. Else by their numbers.
struct Turn {
  static inline const char* const seed = std::getenv("EMULATOR_ORDER");
  static inline uint64_t state = seed ? 2 * std::strtoull(seed, nullptr, 10) + 1 : 0;
  uint64_t drawn = 0;

  Turn() {
    if (!seed) return;
    state = state * 6364136223846793005u + 1442695040888963407u;
    drawn = state >> 24;
  }
  unsigned thread(unsigned i, unsigned block) const { return drawn >> 32 & 1 ? block - 1 - i : i; }
  bool stands_still(unsigned thread) const { return drawn >> thread / 32 & 1; }
};

inline void run(unsigned grid, unsigned block, void** given, void (*entry)()) {
  arguments = given;
  kernel = entry;
  gridDim = {grid, 1, 1};
  blockDim = {block, 1, 1};
  fibers.resize(block);
  std::memset(shared_memory, 0xff, SHARED_BYTES);
  for (unsigned b = 0; b < grid; ++b) {
    blockIdx = {b, 0, 0};
    of_block = {};
    for (auto& warp : of_warp) warp = {};
    for (auto& fiber : fibers) {
      fiber.stack.resize(STACK_BYTES);
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.data();
      fiber.context.uc_stack.ss_size = STACK_BYTES;
      fiber.context.uc_link = nullptr;
      fiber.done = false;
      makecontext(&fiber.context, body, 0);
    }
    for (bool left = true; left;) {
      left = false;
      const Turn turn;
      for (unsigned i = 0; i < block; ++i) {
        running = turn.thread(i, block);
        if (fibers[running].done) continue;
        left = true;
        if (turn.stands_still(running)) continue;
        threadIdx.x = running;
        swapcontext(&scheduler, &fibers[running].context);
      }
    }
  }
}

}  // namespace emulator

// -- what kernels call ----------------------------------------------------------------------

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return unsigned(((uint64_t(high) << 32) | low) >> (by & 31));
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t bytes = (uint64_t(high) << 32) | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= unsigned(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return result;
}
inline void __syncthreads() {
  emulator::of_block.wait(blockDim.x, "threads of its block never came");
}
inline bool __syncthreads_or(bool vote) {
  const bool* votes = emulator::Exchange<bool>::posted;
  emulator::Exchange<bool>::posted[threadIdx.x] = vote;
  __syncthreads();
  bool any = false;
  for (unsigned i = 0; i < blockDim.x; ++i) any |= votes[i];
  __syncthreads();
  return any;
}
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* to, unsigned x) {
  return std::exchange(*to, *to + x);
}
// A host may read from any address; a device may not.
template <typename X>
X load_aligned(const X* at) {
  if (reinterpret_cast<size_t>(at) % sizeof(X)) emulator::fail("a load from a misaligned address");
  return *at;
}
template <typename X>
X __ldcg(const X* at) {
  return load_aligned(at);
}
template <typename X>
X __ldcs(const X* at) {
  return load_aligned(at);
}
template <typename X>
X __ldg(const X* at) {
  return load_aligned(at);
}
inline void __syncwarp() {
  emulator::sync_warp();
}
template <typename X>
X __shfl_sync(unsigned, X x, int from) {
  const X got = emulator::Exchange<X>::post(x)[from & 31];
  emulator::Exchange<X>::leave();
  return got;
}
template <typename X>
X __shfl_xor_sync(unsigned mask, X x, int bits) {
  return __shfl_sync(mask, x, int(threadIdx.x % 32) ^ bits);
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  const bool* votes = emulator::Exchange<bool>::post(vote);
  unsigned all = 0;
  for (int i = 0; i < 32; ++i) all |= unsigned(votes[i]) << i;
  emulator::Exchange<bool>::leave();
  return all;
}
inline bool __any_sync(unsigned mask, bool vote) {
  return __ballot_sync(mask, vote) != 0;
}
inline bool __all_sync(unsigned mask, bool vote) {
  return __ballot_sync(mask, vote) == ~0u;
}
template <typename X>
unsigned __match_any_sync(unsigned, X x) {
  const X* all = emulator::Exchange<X>::post(x);
  unsigned peers = 0;
  for (int i = 0; i < 32; ++i) peers |= unsigned(all[i] == x) << i;
  emulator::Exchange<X>::leave();
  return peers;
}
// Threads are fibers, which give way only where they wait: these are atomic as they stand.
template <typename X>
X atomicAdd(X* to, X x) {
  const X before = *to;
  *to += x;
  return before;
}
template <typename X>
X atomicMax(X* to, X x) {
  const X before = *to;
  *to = before < x ? x : before;
  return before;
}
inline unsigned atomicOr(unsigned* to, unsigned x) {
  const unsigned before = *to;
  *to |= x;
  return before;
}
inline unsigned atomicCAS(unsigned* to, unsigned expected, unsigned x) {
  const unsigned before = *to;
  if (before == expected) *to = x;
  return before;
}
inline int __ffs(unsigned x) {
  return __builtin_ffs(int(x));
}
inline int __clz(unsigned x) {
  return x ? __builtin_clz(x) : 32;
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return unsigned(uint64_t(a) * b >> 32);
}
inline float __int_as_float(int bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline float __uint_as_float(unsigned bits) {
  return __int_as_float(int(bits));
}
inline int __float_as_int(float x) {
  int bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline unsigned __float_as_uint(float x) {
  return unsigned(__float_as_int(x));
}
inline long long __double_as_longlong(double x) {
  long long bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline double __longlong_as_double(long long bits) {
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
// Products and sums that are rounded each; the compiler is told not to contract any (build.py).
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline float __double2float_rn(double x) {
  return float(x);
}
inline float __int2float_rn(int x) {
  return float(x);
}
inline int __float2int_rn(float x) {
  return int(std::nearbyint(x));
}
inline int __double2int_rn(double x) {
  return int(std::nearbyint(x));
}
