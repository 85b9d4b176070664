// Blocks over the union of two patterns: out[c] = a[of_left[c]] + b[of_right[c]], each rounded once
// (bool: or). A block that only one of them stores, where the number of the other is -1, is copied.
//
// A thread block takes `blocks_per_item` consecutive blocks; its threads write consecutive values.
//
// -DT: element type; -DOPERATION: sum, difference, or left, which is a alone with zeros where it
// stores nothing; -DNUMBER of blocks (s32, s64); -DWIDE: elements of a block loaded at once.
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;

enum Operation { left, sum, difference };

struct alignas(sizeof(T) * WIDE) Pack {
  T element[WIDE];
};

// int8 wraps, as NumPy's does.
template <typename E, typename A>
__device__ __forceinline__ E element_of(A x) {
  return round_to<E>(x);
}
template <>
__device__ __forceinline__ s8 element_of<s8, s32>(s32 x) {
  return s8(x);
}

template <typename Combine>
__device__ __forceinline__ Pack each(Combine combine) {
  Pack out;
#pragma unroll
  for (int i = 0; i < WIDE; ++i) out.element[i] = element_of<T>(combine(i));
  return out;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_union_blocks(Pack* out, const Pack* a, const NUMBER* of_left, const Pack* b,
                     const NUMBER* of_right, long long count, long long items, int blocks_per_item,
                     int packs) {
  typedef typename Acc<T>::type A;
  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const long long first = item * blocks_per_item, rest = count - first;
    const int here = rest < blocks_per_item ? int(rest) : blocks_per_item;
    for (int place = threadIdx.x; place < here * packs; place += THREADS) {
      const int local = place / packs, within = place - local * packs;
      const long long c = first + local, l = of_left[c];
      Pack made;
      if constexpr (OPERATION == left) {
        made = l >= 0 ? a[l * packs + within] : each([](int) { return A(0); });
      } else {
        const long long r = of_right[c];
        Pack x, y;
        if (l >= 0) x = a[l * packs + within];
        if (r >= 0) y = b[r * packs + within];
        if (r < 0)
          made = x;
        else if (l >= 0)
          made = each([&](int i) {
            const A u = to_acc(x.element[i]), v = to_acc(y.element[i]);
            return OPERATION == sum ? u + v : u - v;
          });
        else if (OPERATION == sum)
          made = y;
        else
          made = each([&](int i) { return -to_acc(y.element[i]); });
      }
      out[c * packs + within] = made;
    }
  }
}
