// Row-wise pruning: of each GROUP elements of a row the half with the largest keys stays.
//
//   T           dtype of the values
//   GROUP       4 (two stay) or 2 (one stays)
//   IMPORTANCE  dtype of a given importance (f32 or f64); not defined: the absolute value
//   FLAT        1: all rows are one run of memory, every pointer a multiple of 16 bytes
//
// A thread takes a group. A partial group at the end of a row is copied. FLAT: a thread takes
// kVectors vectors of eight or more bytes of the run, all loaded before the first is used.

#include "common/ceil_div.cuh"
#include "common/selection.cuh"
#include "common/view.cuh"

using namespace sparsegpu;

#ifdef IMPORTANCE
typedef IMPORTANCE Weight;
#else
typedef T Weight;
#endif

constexpr int kElements = 16 / sizeof(T) > GROUP ? 16 / sizeof(T) : GROUP;  // of a vector
constexpr int kVectors = 4;
constexpr int kThreads = 256;

struct alignas(16) Values {
  T value[kElements];
};
struct alignas(kElements * sizeof(Weight) % 16 ? 8 : 16) Weights {
  Weight value[kElements];
};

template <typename W>
__device__ __forceinline__ auto weight_key(W w) {
#ifdef IMPORTANCE
  return order_key(w);
#else
  return order_key(magnitude(w));
#endif
}

// Which elements of a group are kept, a bit an element.
__device__ __forceinline__ unsigned choose_in_group(const Weight* weight, long long stride) {
  decltype(weight_key(weight[0])) key[GROUP];
#pragma unroll
  for (int i = 0; i < GROUP; ++i) key[i] = weight_key(weight[i * stride]);
  return largest<GROUP / 2>(key);
}

#ifndef IMPORTANCE
// Two groups of four 1- or 2-byte values in registers, without branches: below a key comes one bit
// that marks its value; those of the two largest keys, as signs of bytes, become the mask.
template <typename V>
__device__ __forceinline__ void keep_two(u32& left, u32& right) {
  u32 a = lane_keys<true>(left, V()), b = lane_keys<true>(right, V());
  int k0 = int(a * 0x10000u + 0x8000u), k1 = int((a & 0xffff0000u) | 0x4000u);
  int k2 = int(b * 0x10000u + 0x80u), k3 = int((b & 0xffff0000u) | 0x40u);
  int ab = max(k0, k1), cd = max(k2, k3);
  u32 kept = max(ab, cd) | max(min(ab, cd), max(min(k0, k1), min(k2, k3)));
  left &= permute(kept, kept << 1, 0xdd99u);
  right &= permute(kept, kept << 1, 0xcc88u);
}
#endif

template <typename V>  // T
__device__ __forceinline__ void prune(Values& values, const Weight* weight) {
#ifndef IMPORTANCE
  if constexpr (sizeof(V) <= 2 && GROUP == 4) {
    u32* word = reinterpret_cast<u32*>(&values);
#pragma unroll
    for (int w = 0; w < 4; w += sizeof(T)) {
      if constexpr (sizeof(V) == 2) {
        keep_two<V>(word[w], word[w + 1]);
      } else {
        u32 left = permute(word[w], 0, 0x4140), right = permute(word[w], 0, 0x4342);
        keep_two<V>(left, right);
        word[w] = permute(left, right, 0x6420);
      }
    }
    return;
  }
#endif
#pragma unroll
  for (int g = 0; g < kElements; g += GROUP) {
    unsigned kept = choose_in_group(weight + g, 1);
#pragma unroll
    for (int i = 0; i < GROUP; ++i)
      if (!(kept >> i & 1)) values.value[g + i] = zero_of<T>();
  }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    prune_24(View out, View dense, View importance, Batch batch, long long rows, long long columns,
             long long total) {
#if FLAT
  // `total` vectors; rows end where groups end.
  long long here = blockIdx.x * (long long)(kThreads * kVectors) + threadIdx.x;
  Values values[kVectors];
#pragma unroll
  for (int p = 0; p < kVectors; ++p)
    if (here + p * kThreads < total)
      values[p] = static_cast<const Values*>(dense.ptr)[here + p * kThreads];
#pragma unroll
  for (int p = 0; p < kVectors; ++p) {
    if (here + p * kThreads >= total) break;
#ifdef IMPORTANCE
    Weights weights = static_cast<const Weights*>(importance.ptr)[here + p * kThreads];
    prune<T>(values[p], weights.value);
#else
    prune<T>(values[p], values[p].value);
#endif
    static_cast<Values*>(out.ptr)[here + p * kThreads] = values[p];
  }
#else
  long long here = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (here >= total) return;
  long long groups = ceil_div(columns, GROUP);
  long long column = here % groups * GROUP;
  long long row = here / groups % rows, b = here / groups / rows;
  const T* from = batch_ptr<T>(dense, batch, b) + element_offset(dense, row, column);
  T* to = batch_ptr<T>(out, batch, b) + element_offset(out, row, column);
  if (column + GROUP > columns) {
    for (int i = 0; i < columns - column; ++i) to[i * out.col] = from[i * dense.col];
    return;
  }
#ifdef IMPORTANCE
  unsigned kept = choose_in_group(
      batch_ptr<Weight>(importance, batch, b) + element_offset(importance, row, column),
      importance.col);
#else
  unsigned kept = choose_in_group(from, dense.col);
#endif
#pragma unroll
  for (int i = 0; i < GROUP; ++i)
    to[i * out.col] = kept >> i & 1 ? from[i * dense.col] : zero_of<T>();
#endif
}
