// Row-wise pruning: of each GROUP elements of a row the half with the largest keys stays.
//
//   T           dtype of the values
//   GROUP       4 (two stay) or 2 (one stays)
//   IMPORTANCE  dtype of a given importance (f32 or f64); not defined: the absolute value
//
// A thread takes a group. A ragged end of a row stays as it is.

#include "common/selection.cuh"
#include "common/view.cuh"

extern "C" __global__ void prune_24(View out, View dense, View importance, Batch batch,
                                    long long rows, long long columns, long long total) {
  long long here = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (here >= total) return;
  long long groups = (columns + GROUP - 1) / GROUP;
  long long column = here % groups * GROUP;
  long long row = here / groups % rows, b = here / groups / rows;
  const T* from = batch_ptr<T>(dense, batch, b) + element_offset(dense, row, column);
  T* to = batch_ptr<T>(out, batch, b) + element_offset(out, row, column);
  if (column + GROUP > columns) {
    for (int i = 0; i < columns - column; ++i) to[i * out.col] = from[i * dense.col];
    return;
  }
  T value[GROUP];
#pragma unroll
  for (int i = 0; i < GROUP; ++i) value[i] = from[i * dense.col];
#ifdef IMPORTANCE
  const IMPORTANCE* weight =
      batch_ptr<IMPORTANCE>(importance, batch, b) + element_offset(importance, row, column);
  decltype(order_key(weight[0])) key[GROUP];
#pragma unroll
  for (int i = 0; i < GROUP; ++i) key[i] = order_key(weight[i * importance.col]);
#else
  decltype(order_key(magnitude(value[0]))) key[GROUP];
#pragma unroll
  for (int i = 0; i < GROUP; ++i) key[i] = order_key(magnitude(value[i]));
#endif
  unsigned kept = largest<GROUP / 2>(key);
#pragma unroll
  for (int i = 0; i < GROUP; ++i) to[i * out.col] = kept >> i & 1 ? value[i] : zero_of<T>();
}
