// The 2:4 format: which elements a group keeps, and where CUTLASS stores the codes that say which.
//
// Values of 2 and 1 bytes come in groups of four that keep two, values of 4 bytes in pairs that
// keep one. A group has a 4-bit code; a metadata element holds 4 codes (16 bits; 1-byte values: 8
// codes in 32 bits), low bits first. So for every value size a metadata element describes 32 bytes
// of a dense row and 16 bytes of the packed row.
//
// CUTLASS reorders the elements (`reorder_meta`, cutlass/util/host_reorder.h) in the order in which
// the lanes of a warp feed them to mma.sp (ptx/mma_sp.cuh). Two neighbouring columns of 32 rows
// fill a chunk of 64 elements; chunks ascend by row, then by pair of columns.
#pragma once

namespace sparsegpu {

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// The format of values of SIZE bytes.
template <int SIZE>
struct Format24 {
  static constexpr int group = SIZE == 4 ? 2 : 4;  // elements with one code
  static constexpr int kept = group / 2;
  static constexpr int elements = 32 / SIZE;      // dense elements of a metadata element
  static constexpr int codes = elements / group;  // codes of a metadata element
};
template <int SIZE>
struct Bits;  // an unsigned integer of SIZE bytes
template <>
struct Bits<1> {
  typedef unsigned char type;
};
template <>
struct Bits<2> {
  typedef u16 type;
};
template <>
struct Bits<4> {
  typedef u32 type;
};
// The metadata element for values of SIZE bytes.
template <int SIZE>
struct Meta24 {
  typedef u16 type;
};
template <>
struct Meta24<1> {
  typedef u32 type;
};

enum { kChunk = 64 };  // metadata elements of 32 rows and two columns

// Place in its chunk of the element at row 0..31, column 0..1 (SIZE: 2 or 4).
template <int SIZE>
__device__ __forceinline__ int place_in_chunk(int row, int column) {
  int rows16 = row / 16;
  int rest = (row % 8) * 4 + column * 2 + row / 8 % 2;
  return SIZE == 4 ? rows16 * 32 + rest : (row % 8) * 8 + rows16 * 4 + column * 2 + row / 8 % 2;
}

// First element of the chunk with `row` (a multiple of 32) and `column` (even) of m rows.
__device__ __forceinline__ long long chunk_offset(long long row, long long column, long long m) {
  return column * m + row * 2;
}

// Flat place of the element (row, column) of m rows.
template <int SIZE>
__device__ __forceinline__ long long meta_offset(long long row, long long column, long long m) {
  return chunk_offset(row / 32 * 32, column / 2 * 2, m) +
         place_in_chunk<SIZE>(int(row % 32), int(column % 2));
}

// The code of a pair: its first or its second element, as four 16-bit halves (PTX ISA, mma.sp).
constexpr int kFirstOfPair = 0b0100, kSecondOfPair = 0b1110;
__device__ __forceinline__ int code_of_pair(int f) {
  return f & 1 ? kFirstOfPair : kSecondOfPair;
}

// Where, within its group, packed value number p of a row of m rows comes from.
template <int SIZE, typename Index>
__device__ __forceinline__ int place_in_group(const typename Meta24<SIZE>::type* meta, Index row,
                                              Index p, Index m) {
  typedef Format24<SIZE> Format;
  const Index group = p / Format::kept;
  const u32 word = meta[meta_offset<sizeof(*meta)>(row, group / Format::codes, m)];
  const int code = word >> (4 * (group % Format::codes)) & 15;
  if constexpr (Format::group == 2) return code >> 1 & 1;  // kFirstOfPair or kSecondOfPair
  return p % 2 ? code >> 2 : code & 3;
}

// A value's bits without the sign where -0.0 exists: zero exactly for what counts as zero.
template <int SIZE, bool SIGNED>
__device__ __forceinline__ bool is_nonzero_bits(u32 bits) {
  return (SIGNED ? bits & ((1u << (8 * SIZE - 1)) - 1) : bits) != 0;
}

}  // namespace sparsegpu
