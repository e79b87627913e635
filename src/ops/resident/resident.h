// What lets many training steps run one after another without the host: data, and what varies from step to step, lie in
// memory for many steps, and a cursor i32 [1] that counts the steps says which part is this one's (train/resident.h).
#pragma once
#include "ir/graph.h"
#include "ops/kernel.h"

namespace linnet {

struct GatherRowsAttrs {
  int64_t rows = 0;
  void fields(FieldVisitor& visit) { visit("rows", rows); }
};

extern const OpDef kGatherRows, kPickRow, kWriteRow;
KernelList gather_rows_kernels();
KernelList pick_row_kernels();
KernelList write_row_kernels();

// data [N, ...] of any type, order i32 [M] -> [rows, ...]: row r is data[order[cursor * rows + r]]. Where order is
// negative there is no row: zeros, and -1 where data are i32 (a label that does not count).
Tensor gather_rows(At data, Tensor order, Tensor cursor, int64_t rows);

// table [S, n] -> [n]: its row `cursor`.
Tensor pick_row(At table, Tensor cursor);

// The scalars become row `cursor` of the table [S, n], n = scalars.size(), and the cursor counts on. Both in place,
// where nothing else reads them later.
struct WrittenRow {
  Tensor table, cursor;
};
WrittenRow write_row(At table, Tensor cursor, std::span<const Tensor> scalars);

}  // namespace linnet
