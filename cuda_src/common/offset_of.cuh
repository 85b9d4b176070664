// Where a field lies in a struct, in bytes, as a constant that an assertion can take. NVRTC before
// 13.5 has no __builtin_offsetof, and other compilers have no __INTADDR__, which is what CUDA's own
// offsetof is made of.
#pragma once

#ifdef __CUDACC_RTC__
#define OFFSET_OF(type, field) __INTADDR__(&((type*)0)->field)
#else
#define OFFSET_OF(type, field) __builtin_offsetof(type, field)
#endif
