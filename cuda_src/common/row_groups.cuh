// The schedule of a product of row groups (engines/cuda/_schedule.py, RowGroups).
//
// A group is some block rows of a matrix that share tiles of the dense operand. Its entries are the
// block columns in which any of its rows has a block.
#pragma once

namespace sparsegpu {

// What is computed at once: all entries of a group (split is -1), or a run of them, split number
// `split`, whose sums are added to others (common/split_k.cuh, common/attention_parts.cuh).
struct SplitGroup {
  int group, split;
};

template <typename Index>
struct RowGroups {
  const long long* starts;   // the first entry of each group
  const int* counts;         // how many entries it has
  const int* columns;        // block column of each entry
  const Index* blocks;       // of each entry, a block for each row; negative: there is none
  const int* order;          // groups of each matrix, those with most entries first
  const int* block_rows;     // of each row of each group; null: they are consecutive
  const SplitGroup* splits;  // what starts, counts and order are numbered by; null: whole groups
};

}  // namespace sparsegpu
