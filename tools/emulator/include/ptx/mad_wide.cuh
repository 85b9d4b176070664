// Of ptx/mad_wide.cuh on the host.
#pragma once

namespace sparsegpu {

inline unsigned long long mad_wide(unsigned a, unsigned b, unsigned long long c) {
  return (unsigned long long)a * b + c;
}

}  // namespace sparsegpu
