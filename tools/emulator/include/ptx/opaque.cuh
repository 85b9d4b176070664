// Values as they are.
#pragma once

namespace sparsegpu {

inline int opaque(int x) {
  return x;
}
inline unsigned opaque(unsigned x) {
  return x;
}

}  // namespace sparsegpu
