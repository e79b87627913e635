#include <cstring>

#include "engine/ops/resident/resident.h"

namespace linnet {
namespace {

// The cursor, which must be below `steps`.
int64_t read_cursor(const TensorView& cursor, int64_t steps) {
  const int32_t step = *cursor.as<int32_t>();
  if (step < 0 || step >= steps) fail_internal("a cursor beyond the steps that were prepared");
  return step;
}

// One row of the data, or none.
void gather_row(const TensorView& data, int64_t wanted, std::byte* to, size_t bytes) {
  if (wanted >= data.shape()[0]) fail_internal("a row beyond the data");
  if (wanted < 0)
    std::memset(to, data.type.dtype == DType::kI32 ? 0xff : 0, bytes);
  else
    std::memcpy(to, data.as<std::byte>() + static_cast<size_t>(wanted) * bytes, bytes);
}

void run_gather(const KernelArgs& args) {
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

void run_write(const KernelArgs& args) {
  const TensorView& table = args.out[0];
  const int64_t step = read_cursor(args.in[1], table.shape()[0]), width = table.shape()[1];
  if (args.in[0].data != table.data) std::memcpy(table.data, args.in[0].data, table.type.bytes());
  for_float(table.type.dtype, [&]<class T>() {
    for (int64_t i = 0; i < width; ++i) table.as<T>()[step * width + i] = *args.in[static_cast<size_t>(i) + 2].as<T>();
  });
  *args.out[1].as<int32_t>() = static_cast<int32_t>(step + 1);
}

constexpr Kernel kGatherKernels[] = {{"reference", nullptr, nullptr, run_gather}};
constexpr Kernel kPickKernels[] = {{"reference", nullptr, nullptr, run_pick}};
constexpr Kernel kWriteKernels[] = {{"reference", nullptr, nullptr, run_write}};

}  // namespace

KernelList gather_rows_kernels() { return kGatherKernels; }
KernelList pick_rows_kernels() { return kPickKernels; }
KernelList write_row_kernels() { return kWriteKernels; }

}  // namespace linnet
