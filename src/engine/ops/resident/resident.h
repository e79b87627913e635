// Lets many training steps run without the host: data and what varies between steps are in memory for many steps, and a
// cursor i32 [1] that counts steps selects this one's part (training/trainer/resident.h).
#pragma once
#include "engine/ops/kernel.h"

namespace linnet {
struct GatherRowsAttrs {
  int64_t rows = 0;
  void fields(FieldVisitor& visit) { visit("rows", rows); }
};

extern const OpDef kGatherRows, kPickRows, kWriteRow;

// order i32 [M], each of the data [N, ...] of any type -> [rows, ...]: row r is data[order[cursor * rows + r]]. An
// order ~i is row i too, but -1 for i32 data (a label that does not count). One node: a GPU starts one kernel.
std::vector<Tensor> gather_rows(At order, Tensor cursor, std::span<const Tensor> data, int64_t rows);

// Each of the tables [S, n] -> [n]: its row `cursor`.
std::vector<Tensor> pick_rows(At cursor, std::span<const Tensor> tables);

// Writes the n scalars to row `cursor` of the table [S, n] and increments the cursor; in place if not read later.
struct RowWrite {
  Tensor table, cursor;
};
RowWrite write_row(At table, Tensor cursor, std::span<const Tensor> scalars);
}  // namespace linnet
