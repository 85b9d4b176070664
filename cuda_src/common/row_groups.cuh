// What the schedule of a product says (engines/cuda/_schedule.py, RowGroups).
#pragma once

namespace sparsegpu {

// A piece of a group: all of it (part is -1), or a part whose sums are added to those of others.
struct GroupPiece {
  int group, part;
};

template <typename Index>
struct RowGroups {
  const long long* starts;
  const int* counts;
  const int* columns;
  const Index* blocks;
  const int* order;
  const int* block_rows;     // of each row of each group; null: they are consecutive
  const GroupPiece* pieces;  // whose starts, counts and order these are; null: whole groups
};

}  // namespace sparsegpu
