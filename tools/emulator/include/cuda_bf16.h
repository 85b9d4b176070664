// bfloat16: the upper half of a float32, rounded to nearest even.
#pragma once

#include "emulator.h"

struct __nv_bfloat16 {
  uint16_t bits;
};
inline float __bfloat162float(__nv_bfloat16 x) {
  return __int_as_float(int(unsigned(x.bits) << 16));
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  if (x != x) return {0x7fff};
  unsigned word;
  std::memcpy(&word, &x, 4);
  return {uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16)};
}
inline __nv_bfloat16 __double2bfloat16(double x) {
  return __float2bfloat16_rn(float(x));
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) {
  return x.bits;
}

struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __float2bfloat16_rn(std::fmax(__bfloat162float(a), __bfloat162float(b)));
}
inline __nv_bfloat162 __hmax2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return {__hmax(a.x, b.x), __hmax(a.y, b.y)};
}
