// Each warp sleeps for a random time at the place of every barrier. Without the barrier, accesses
// that it orders then come in another order in nearly every run.
#pragma once

constexpr int MOST_PLACES = 64;

// How many warps passed each place: a place that none passes proves nothing.
extern "C" __device__ unsigned long long passes_of_place[MOST_PLACES] = {};

__device__ __forceinline__ void random_delay(int place) {
  const unsigned thread =
      threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * (unsigned)threadIdx.z);
  if (thread % 32 == 0) atomicAdd(&passes_of_place[place], 1ull);
  // A hash of thread, place and time (the finaliser of MurmurHash3).
  unsigned x = (unsigned)clock64() ^ (thread / 32 * 0x9e3779b9u) ^ (blockIdx.x * 0x7feb352du);
  x ^= (unsigned)place << 24;
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  x ^= x >> 16;
  // Half of the calls do not sleep; the others up to 128 ns, 256 ns, ... 16 us, long times rarely.
  if (x & 1) __nanosleep((x >> 8) & ((128u << (__ffs((int)(x >> 1 & 127) | 128) - 1)) - 1));
}
