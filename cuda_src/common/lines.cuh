// How operand tiles lie in shared memory: lines of 16-byte pieces, in such an order that the eight
// rows of an ldmatrix are in different banks.
#pragma once

namespace sparsegpu {

constexpr bool is_power_of_two(int n) {
  return (n & (n - 1)) == 0;
}

// Lines of PIECES pieces. Where these are a power of two, 128 bytes of lines are 128 bytes of
// shared memory, whose pieces are in another order, told by the line (a tile must begin in the
// first bank). Other lines are an odd number of pieces apart, which the copies pay for: what
// straddles two rows of the banks was measured to take a cycle for every 32 bytes.
//
// TOGETHER pieces stay neighbours: two where a warp reads 32 bytes of each of four lines.
template <int PIECES, int TOGETHER = 1>
struct Lines {
  static constexpr bool TURNED = is_power_of_two(PIECES);
  static constexpr int PITCH = (TURNED ? PIECES : PIECES | 1) * 16;
  static constexpr int TURNS = PIECES < 8 ? PIECES : 8;
  static_assert(TURNED || TOGETHER == 1, "other lines are in order");

  // Where a piece of a line is.
  static __device__ __forceinline__ unsigned place(int line, int piece) {
    const int turn = line / (8 / TURNS) % (TURNS / TOGETHER) * TOGETHER;
    return line * PITCH + (TURNED ? piece ^ turn : piece) * 16;
  }
  // From there, where the piece is that comes `lines` (a multiple of 8 / TOGETHER) and `pieces`
  // later: none of the bits of these numbers are in those of the first one.
  static __device__ __forceinline__ unsigned later(unsigned at, int lines, int pieces) {
    return (TURNED ? (at + pieces / 8 * 128) ^ pieces % 8 * 16 : at + pieces * 16) + lines * PITCH;
  }
};

}  // namespace sparsegpu
