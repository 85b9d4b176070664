// Values as they are.
#pragma once

namespace sparsegpu {

inline int opaque(int x) {
  return x;
}
inline unsigned opaque(unsigned x) {
  return x;
}
inline long long opaque(long long x) {
  return x;
}
template <typename E>
const E* opaque(const E* x) {
  return x;
}

}  // namespace sparsegpu
