#include "engine/ops/resident/resident.h"

namespace linnet {
namespace {
const TensorType kCursor{DType::kI32, {1}};

void expect_cursor(const TensorType& type) { expect(type == kCursor, "got cursor ", type, ", expected ", kCursor); }

std::vector<TensorType> infer_resident_gather(const InferArgs& args) {  // order, cursor, data...
  expect(args.in.size() >= 3, "got nothing to gather");
  const TensorType& order = args.in[0];
  const int64_t rows = args.attrs.as<GatherRowsAttrs>().rows;
  expect(order.dtype == DType::kI32 && order.shape.rank() == 1, "got order ", order, ", expected i32 [M]");
  expect(
      rows > 0 && order.shape[0] % rows == 0, "an order of ", order.shape[0], " does not divide into ", rows, " rows");
  expect_cursor(args.in[1]);
  return mapped(args.in.subspan(2), [&](const TensorType& data) {
    expect(data.shape.rank() >= 1, "got data ", data);
    return TensorType{data.dtype, with_size(data.shape, 0, rows)};
  });
}

std::vector<TensorType> infer_pick(const InferArgs& args) {  // cursor, tables...
  expect(args.in.size() >= 2, "got no table");
  expect_cursor(args.in[0]);
  return mapped(args.in.subspan(1), [](const TensorType& table) {
    expect(table.shape.rank() == 2, "got table ", table, ", expected [S, n]");
    return TensorType{table.dtype, {table.shape[1]}};
  });
}

std::vector<TensorType> infer_resident_write(const InferArgs& args) {  // table, cursor, scalars...
  expect(args.in.size() >= 3, "got nothing to write");
  const TensorType& table = args.in[0];
  const auto scalars = static_cast<int64_t>(args.in.size()) - 2;
  expect(is_float(table.dtype) && table.shape.rank() == 2 && table.shape[1] == scalars, "got table ", table, " and ",
      scalars, " scalars");
  expect_cursor(args.in[1]);
  for (const TensorType& scalar : args.in.subspan(2))
    expect(scalar == TensorType{table.dtype, {}}, "got ", scalar, " for table ", table);
  return {table, kCursor};
}

int64_t read_cursor(const TensorView& cursor, int64_t steps) {  // must be below `steps`
  const int32_t step = *cursor.as<int32_t>();
  if (step < 0 || step >= steps) fail_internal("a cursor beyond the steps that were prepared");
  return step;
}

void gather_row(const TensorView& data, int64_t wanted, std::byte* to, size_t bytes) {
  const int64_t row = wanted < 0 ? ~wanted : wanted;
  if (row >= data.shape()[0]) fail_internal("a row beyond the data");
  if (wanted < 0 && data.type.dtype == DType::kI32) std::memset(to, 0xff, bytes);
  else std::memcpy(to, data.as<std::byte>() + static_cast<size_t>(row) * bytes, bytes);
}

void run_resident_gather(const KernelArgs& args) {
  const TensorView& order = args.in[0];
  const int64_t rows = args.out[0].shape()[0];
  const int32_t* wanted = order.as<int32_t>() + read_cursor(args.in[1], order.elements() / rows) * rows;
  args.pool.run(rows, [&](int64_t r, int) {
    for (size_t i = 0; i < args.out.size(); ++i) {
      const size_t bytes = args.out[i].type.bytes() / static_cast<size_t>(rows);
      gather_row(args.in[2 + i], wanted[r], args.out[i].as<std::byte>() + static_cast<size_t>(r) * bytes, bytes);
    }
  });
}

void run_pick(const KernelArgs& args) {
  for (size_t i = 0; i < args.out.size(); ++i) {
    const TensorView& table = args.in[1 + i];
    const size_t bytes = args.out[i].type.bytes();
    const int64_t row = read_cursor(args.in[0], table.shape()[0]);
    std::memcpy(args.out[i].data, table.as<std::byte>() + static_cast<size_t>(row) * bytes, bytes);
  }
}

void run_resident_write(const KernelArgs& args) {
  const TensorView& table = args.out[0];
  const int64_t step = read_cursor(args.in[1], table.shape()[0]), width = table.shape()[1];
  copy_operand(args.in[0], table);
  for_float(table.type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < width; ++i) table.as<T>()[step * width + i] = *args.in[static_cast<size_t>(i) + 2].as<T>();
  });
  *args.out[1].as<int32_t>() = static_cast<int32_t>(step + 1);
}
}  // namespace

const OpDef kGatherRows{.name = "gather_rows", .infer = infer_resident_gather};
const OpDef kPickRows{.name = "pick_rows", .infer = infer_pick};
const OpDef kWriteRow{.name = "write_row", .infer = infer_resident_write, .may_overwrite = overwrites_same};

std::vector<Tensor> gather_rows(At order, Tensor cursor, std::span<const Tensor> data, int64_t rows) {
  return op_results(kGatherRows, order, with_more({cursor}, data), GatherRowsAttrs{rows});
}

std::vector<Tensor> pick_rows(At cursor, std::span<const Tensor> tables) {
  return op_results(kPickRows, cursor, {tables.begin(), tables.end()});
}

RowWrite write_row(At table, Tensor cursor, std::span<const Tensor> scalars) {
  const std::vector<Tensor> out = op_results(kWriteRow, table, with_more({cursor}, scalars));
  return {out[0], out[1]};
}

LINNET_KERNELS(gather_rows, {"reference", run_resident_gather})
LINNET_KERNELS(pick_rows, {"reference", run_pick})
LINNET_KERNELS(write_row, {"reference", run_resident_write})
}  // namespace linnet
