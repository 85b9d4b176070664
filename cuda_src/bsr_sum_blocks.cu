// Sums of blocks: out[c] = blocks[order[starts[c]]] + ... + blocks[order[starts[c + 1] - 1]].
//
// One thread owns an element and adds in the order given, rounding once (bool: or): deterministic.
//
// -DT: element type.

#include "common/types.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    bsr_sum_blocks(T* out, const T* blocks, const long long* order, const long long* starts,
                   long long count, long long items, int blocks_per_item, int area) {
  for (long long item = blockIdx.x; item < items; item += gridDim.x) {
    const long long first = item * blocks_per_item;
    const long long left = count - first;
    const int here = left < blocks_per_item ? (int)left : blocks_per_item;
    for (int place = threadIdx.x; place < here * area; place += THREADS) {
      const int local = place / area, within = place - local * area;
      const long long c = first + local;
      typename Acc<T>::type sum = to_acc(blocks[order[starts[c]] * area + within]);
      for (long long s = starts[c] + 1; s < starts[c + 1]; ++s) {
        sum += to_acc(blocks[order[s] * area + within]);
      }
      out[c * area + within] = round_to<T>(sum);
    }
  }
}
