// ldmatrix: 8 x 8 matrices of 16-bit elements from shared memory into a warp's registers.
// PTX ISA, "Warp-level matrix instructions: ldmatrix".
//
// Every row is 16 contiguous bytes at an address aligned to 16. Lane i gives the address of row
// i % 8 of matrix i / 8 (x1 uses the addresses of lanes 0..7, x2 of 0..15, x4 of 0..31). Lane
// (g = lane / 4, t = lane % 4) receives in r[j] the bytes 4t .. 4t+3 of row g of matrix j; with
// .trans the 16-bit elements (row 2t, column g) and (row 2t + 1, column g).
//
// So the a of an m16n8 product (ptx/mma.cuh) is one x4 whose lane gives the address of row
// (lane % 16), byte 16 * (lane / 16); b from K-contiguous columns is one x2 whose lane gives
// column (lane % 8), byte 16 * (lane / 8 % 2); b from a row-major K x N tile of 16-bit elements is
// one x2.trans whose lane gives row k = lane % 16 (16 bytes are 8 columns).
#pragma once

#include "ptx/cp_async.cuh"

namespace sparsegpu {

__device__ __forceinline__ void ldmatrix_x1(unsigned& r, unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];\n"
               : "=r"(r)
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x2(unsigned (&r)[2], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], const void* shared) {
  ldmatrix_x4(r, shared_address(shared));
}

__device__ __forceinline__ void ldmatrix_x2_trans(unsigned (&r)[2], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], const void* shared) {
  ldmatrix_x4_trans(r, shared_address(shared));
}

// The way back: lane (g, t) gives bytes 4t .. 4t+3 of row g of matrix j in r[j] (9.0 and later).
__device__ __forceinline__ void stmatrix_x4(unsigned address, const unsigned (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
// With .trans lane (g, t) gives the 16-bit elements (row 2t, column g) and (row 2t + 1, column g).
__device__ __forceinline__ void stmatrix_x4_trans(unsigned address, const unsigned (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(address),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

}  // namespace sparsegpu
