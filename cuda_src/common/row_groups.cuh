// What the schedule of a product says (engines/cuda/_schedule.py, RowGroups).
//
// -DINDEX: of block numbers (s32, s64).
#pragma once

struct Groups {
  const long long* starts;
  const int* counts;
  const int* columns;
  const INDEX* blocks;
  const int* order;
  const int* block_rows;  // of each row of each group; null: they are consecutive
};
