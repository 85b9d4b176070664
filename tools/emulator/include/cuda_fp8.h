// e4m3, only declared: no emulated kernel has it.
#pragma once

struct __nv_fp8_e4m3 {
  unsigned char __x;
  __nv_fp8_e4m3() = default;
  explicit __nv_fp8_e4m3(float);
  explicit operator float() const;
};
