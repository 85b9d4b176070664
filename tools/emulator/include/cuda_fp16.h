// float16, as the compiler has it.
#pragma once

#include "emulator.h"

struct __half {
  uint16_t bits;
};
inline float __half2float(__half x) {
  _Float16 wide;
  std::memcpy(&wide, &x, 2);
  return float(wide);
}
inline __half __float2half_rn(float x) {
  const _Float16 narrow = _Float16(x);
  __half half;
  std::memcpy(&half, &narrow, 2);
  return half;
}
inline __half __double2half(double x) {
  const _Float16 narrow = _Float16(x);
  __half half;
  std::memcpy(&half, &narrow, 2);
  return half;
}
inline __half __int2half_rn(int x) {
  return __float2half_rn(float(x));
}
inline unsigned short __half_as_ushort(__half x) {
  return x.bits;
}

struct __half2 {
  __half x, y;
};
inline __half __hmax(__half a, __half b) {
  return __float2half_rn(std::fmax(__half2float(a), __half2float(b)));
}
inline __half2 __hmax2(__half2 a, __half2 b) {
  return {__hmax(a.x, b.x), __hmax(a.y, b.y)};
}
