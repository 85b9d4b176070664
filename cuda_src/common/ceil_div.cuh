// Division that rounds up: how many tiles of a size cover a length.
#pragma once

namespace sparsegpu {

// a / b rounded up, in the type of a + b; a is not negative, b is positive. References, because
// with values the compiler orders some kernels' instructions otherwise than with the expression.
template <typename A, typename B>
__device__ __forceinline__ constexpr auto ceil_div(const A& a, const B& b) {
  return (a + b - 1) / b;
}

}  // namespace sparsegpu
