#include "engine/ops/resident/resident.h"

#include "engine/ops/graph_of.h"

namespace linnet {
namespace {

const TensorType kCursor{DType::kI32, {1}};

void expect_cursor(const TensorType& type) {
  expect(type == kCursor, "got cursor " + type.text() + ", expected " + kCursor.text());
}

// order, cursor, data...
std::vector<TensorType> infer_gather(const InferArgs& args) {
  expect(args.in.size() >= 3, "got nothing to gather");
  const TensorType& order = args.in[0];
  const int64_t rows = args.attrs.as<GatherRowsAttrs>().rows;
  expect(order.dtype == DType::kI32 && order.shape.rank() == 1, "got order " + order.text() + ", expected i32 [M]");
  expect(rows > 0 && order.shape[0] % rows == 0,
         "an order of " + std::to_string(order.shape[0]) + " does not divide into " + std::to_string(rows) + " rows");
  expect_cursor(args.in[1]);
  std::vector<TensorType> out;
  for (const TensorType& data : args.in.subspan(2)) {
    expect(data.shape.rank() >= 1, "got data " + data.text());
    out.push_back(data);
    out.back().shape.set(0, rows);
  }
  return out;
}

// cursor, tables...
std::vector<TensorType> infer_pick(const InferArgs& args) {
  expect(args.in.size() >= 2, "got no table");
  expect_cursor(args.in[0]);
  std::vector<TensorType> out;
  for (const TensorType& table : args.in.subspan(1)) {
    expect(table.shape.rank() == 2, "got table " + table.text() + ", expected [S, n]");
    out.push_back({table.dtype, {table.shape[1]}});
  }
  return out;
}

// table, cursor, scalars...
std::vector<TensorType> infer_write(const InferArgs& args) {
  expect(args.in.size() >= 3, "got nothing to write");
  const TensorType& table = args.in[0];
  const auto scalars = static_cast<int64_t>(args.in.size()) - 2;
  expect(is_float(table.dtype) && table.shape.rank() == 2 && table.shape[1] == scalars,
         "got table " + table.text() + " and " + std::to_string(scalars) + " scalars");
  expect_cursor(args.in[1]);
  for (const TensorType& scalar : args.in.subspan(2))
    expect(scalar == TensorType{table.dtype, {}}, "got " + scalar.text() + " for table " + table.text());
  return {table, kCursor};
}

}  // namespace

const OpDef kGatherRows{.name = "gather_rows", .infer = infer_gather};
const OpDef kPickRows{.name = "pick_rows", .infer = infer_pick};
const OpDef kWriteRow{.name = "write_row",
                      .infer = infer_write,
                      .may_overwrite = [](const Node&, int output, int input) { return output == input; }};

std::vector<Tensor> gather_rows(At order, Tensor cursor, std::span<const Tensor> data, int64_t rows) {
  std::vector<Tensor> in{order.value, cursor};
  in.insert(in.end(), data.begin(), data.end());
  return graph_of(order)->add(kGatherRows, in, GatherRowsAttrs{rows}, order.where);
}

std::vector<Tensor> pick_rows(At cursor, std::span<const Tensor> tables) {
  std::vector<Tensor> in{cursor.value};
  in.insert(in.end(), tables.begin(), tables.end());
  return graph_of(cursor)->add(kPickRows, in, {}, cursor.where);
}

WrittenRow write_row(At table, Tensor cursor, std::span<const Tensor> scalars) {
  std::vector<Tensor> in{table.value, cursor};
  in.insert(in.end(), scalars.begin(), scalars.end());
  const std::vector<Tensor> out = graph_of(table)->add(kWriteRow, in, {}, table.where);
  return {out[0], out[1]};
}

}  // namespace linnet
