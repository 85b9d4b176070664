// What every thread block of bsr_addmm_skinny_sm90.cu does (common/row_shares.cuh): once a pattern.
//
// Clusters of CLUSTER thread blocks take TOGETHER row tiles each. Row tiles stand in the order of
// their lengths, and are dealt out to the clusters back and forth, so that a long row meets a short
// one:
//
//     cluster   0      1      2     ...           row tiles 0, 1, 2, ..., the longest first
//     takes     0      1      2     ...  c - 1
//             2c - 1  2c - 2  ...        c
//
// Each row tile has a thread block, and each of the others goes where it shortens the longest way.
// The steps of a row tile are cut into even runs.
//
// A thread writes a share.
//
// -DINDEX: of the pattern (s32, s64); -DCLUSTER, -DTOGETHER; -DSLICES: row tiles of a block,
// -DPARTS: steps of a block.
#include "common/row_shares.cuh"
#include "common/types.cuh"

using namespace sparsegpu;

constexpr int THREADS = 256;
static_assert(TOGETHER <= CLUSTER, "every row tile has a thread block");

// How the thread blocks of a cluster fall to its row tiles.
struct Deal {
  int row_tile[TOGETHER], steps[TOGETHER], parts[TOGETHER];

  // `order` are the block rows, the longest first; c of `clusters`.
  __device__ __forceinline__ Deal(const INDEX* order, const INDEX* indptr, long long c,
                                  long long clusters, long long row_tiles) {
    int idle = CLUSTER;
#pragma unroll
    for (int g = 0; g < TOGETHER; ++g) {
      const long long at = g % 2 ? (g + 1) * clusters - 1 - c : g * clusters + c;
      parts[g] = at < row_tiles;
      idle -= parts[g];
      const long long row = parts[g] ? order[at / SLICES] : 0;
      row_tile[g] = int(row * SLICES + at % SLICES);
      steps[g] = int(indptr[row + 1] - indptr[row]) * PARTS;
    }
    for (; idle; --idle) {
      int neediest = -1, longest = 1;
#pragma unroll
      for (int g = 0; g < TOGETHER; ++g) {
        const int way = parts[g] ? (steps[g] + parts[g] - 1) / parts[g] : 0;
        if (way > longest) neediest = g, longest = way;
      }
#pragma unroll
      for (int g = 0; g < TOGETHER; ++g) parts[g] += g == neediest;
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    bsr_row_shares(Share* shares, const INDEX* order, const INDEX* indptr, const INDEX* indices,
                   long long matrices, long long block_rows, long long nnzb) {
  const long long row_tiles = block_rows * SLICES;
  const long long clusters = (row_tiles + TOGETHER - 1) / TOGETHER;
  const long long count = matrices * clusters * CLUSTER;
  for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count;
       i += (long long)gridDim.x * THREADS) {
    const long long cluster = i / CLUSTER, b = cluster / clusters;
    const INDEX* starts = indptr + b * (block_rows + 1);
    const Deal deal(order + b * block_rows, starts, cluster % clusters, clusters, row_tiles);
    Share::Head head = {};
    long long begin = 0;
    int base = 0;
    const int rank = int(i % CLUSTER);
#pragma unroll
    for (int g = 0; g < TOGETHER; ++g) {
      const int part = rank - base, parts = deal.parts[g];
      if (part >= 0 && part < parts) {
        const int even = deal.steps[g] / parts, more = deal.steps[g] % parts;
        head = {deal.row_tile[g], even + (part < more), short(part), short(parts), base};
        begin = (long long)starts[deal.row_tile[g] / SLICES] * PARTS + (long long)part * even +
                min(part, more);
      }
      base += parts;
    }
    Share& share = shares[i];
    share.head = head;
    share.begin = begin;
#pragma unroll 1
    for (int s = 0; s < SHARE_COLUMNS; ++s) {
      const long long step = begin + s;
      share.column[s] =
          s < head.steps ? int(indices[b * nnzb + step / PARTS]) * PARTS + int(step % PARTS) : 0;
    }
  }
}
