// Of ptx/or_if_le.cuh on the host.
#pragma once

namespace sparsegpu {

inline void or_if_le(unsigned& bits, unsigned bit, unsigned a, unsigned b) {
  if (a <= b) bits |= bit;
}

}  // namespace sparsegpu
