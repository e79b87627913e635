#include "ops/resident/resident.h"

#include "ops/graph_of.h"

namespace linnet {
namespace {

const TensorType kCursor{DType::kI32, {1}};

void expect_cursor(const TensorType& type) {
  expect(type == kCursor, "got cursor " + type.text() + ", expected " + kCursor.text());
}

std::vector<TensorType> infer_gather(const InferArgs& args) {
  expect_inputs(args, 3);
  const TensorType &data = args.in[0], &order = args.in[1];
  const int64_t rows = args.attrs.as<GatherRowsAttrs>().rows;
  expect(data.shape.rank() >= 1, "got data " + data.text());
  expect(order.dtype == DType::kI32 && order.shape.rank() == 1, "got order " + order.text() + ", expected i32 [M]");
  expect(rows > 0 && order.shape[0] % rows == 0,
         "an order of " + std::to_string(order.shape[0]) + " does not divide into " + std::to_string(rows) + " rows");
  expect_cursor(args.in[2]);
  TensorType out = data;
  out.shape.set(0, rows);
  return {out};
}

std::vector<TensorType> infer_pick(const InferArgs& args) {
  expect_inputs(args, 2);
  const TensorType& table = args.in[0];
  expect(table.shape.rank() == 2, "got table " + table.text() + ", expected [S, n]");
  expect_cursor(args.in[1]);
  return {{table.dtype, {table.shape[1]}}};
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

const OpDef kGatherRows{.name = "gather_rows", .infer = infer_gather, .read_attrs = read_attrs<GatherRowsAttrs>};
const OpDef kPickRow{.name = "pick_row", .infer = infer_pick};
const OpDef kWriteRow{.name = "write_row",
                      .infer = infer_write,
                      .may_overwrite = [](const Node&, int output, int input) { return output == input; }};

Tensor gather_rows(At data, Tensor order, Tensor cursor, int64_t rows) {
  return graph_of(data)->add_one(kGatherRows, std::array{data.value, order, cursor}, GatherRowsAttrs{rows}, data.where);
}

Tensor pick_row(At table, Tensor cursor) {
  return graph_of(table)->add_one(kPickRow, std::array{table.value, cursor}, {}, table.where);
}

WrittenRow write_row(At table, Tensor cursor, std::span<const Tensor> scalars) {
  std::vector<Tensor> in{table.value, cursor};
  in.insert(in.end(), scalars.begin(), scalars.end());
  const std::vector<Tensor> out = graph_of(table)->add(kWriteRow, in, {}, table.where);
  return {out[0], out[1]};
}

}  // namespace linnet
