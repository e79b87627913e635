// Data, order, tables and cursor are read on the device: the host need not know the position of a replayed step.
#include <algorithm>
#include "engine/kernels/cuda/copy.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/resident/resident.h"

namespace linnet {
namespace {
constexpr int kThreads = 256, kMaxScalars = 8, kMaxTables = 8;

template <class Word> LINNET_DEVICE Word ones() { return static_cast<Word>(~0u); }
template <> LINNET_DEVICE Word16 ones<Word16>() { return {{~0u, ~0u, ~0u, ~0u}}; }

// Of data, or of a table of steps: `count` rows of `width` words of `word` bytes.
struct Table {
  const void* from;
  void* to;
  int64_t count, width;
  int word;    // 16, 4 or 1
  bool marks;  // writes ones for the row of a negative order
};
struct Tables {
  Table at[kMaxTables];
};
struct Order {
  const int32_t *rows, *cursor;
  int64_t per_step, steps;
};

template <class Word> LINNET_DEVICE void gather_word(int64_t i, const Table& table, const Order& order) {
  const int64_t row = i / table.width, step = *order.cursor;
  const int64_t ordered = step >= 0 && step < order.steps ? order.rows[step * order.per_step + row] : -1;
  const int64_t wanted = ordered < 0 ? ~ordered : ordered;
  const auto* from = static_cast<const Word*>(table.from);
  static_cast<Word*>(table.to)[i] = wanted < table.count && !(ordered < 0 && table.marks)
                                        ? from[wanted * table.width + (i - row * table.width)]
                                        : ones<Word>();
}

// A thread for each word of the table blockIdx.y. Never reads outside data and order, whatever the cursor is.
__global__ void __launch_bounds__(kThreads) gather_kernel(Tables tables, Order order) {
  begin_kernel();
  const Table table = tables.at[blockIdx.y];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= order.per_step * table.width) return;
  if (table.word == 16) gather_word<Word16>(i, table, order);
  else if (table.word == 4) gather_word<uint32_t>(i, table, order);
  else gather_word<uint8_t>(i, table, order);
}

__global__ void __launch_bounds__(kThreads) pick_kernel(Tables tables, const int32_t* __restrict__ cursor) {
  begin_kernel();
  const Table table = tables.at[blockIdx.y];
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, step = *cursor;
  if (i < table.width && step >= 0 && step < table.count)
    static_cast<uint32_t*>(table.to)[i] = static_cast<const uint32_t*>(table.from)[step * table.width + i];
}

struct Scalars {
  const float* at[kMaxScalars];
};

// One warp: all read the cursor before it is incremented.
__global__ void __launch_bounds__(kWarp) write_kernel(
    int count, int64_t steps, Scalars scalars, const int32_t* cursor, float* __restrict__ table, int32_t* next) {
  begin_kernel();
  const int i = static_cast<int>(threadIdx.x);
  const int64_t step = *cursor;
#pragma unroll
  for (int k = 0; k < kMaxScalars; ++k)
    if (k == i && k < count && step >= 0 && step < steps) table[step * count + k] = *scalars.at[k];
  __syncthreads();
  if (i == 0) *next = static_cast<int32_t>(step + 1);
}

Table table_of(const TensorView& from, const TensorView& to, int64_t rows) {
  const int64_t bytes = static_cast<int64_t>(to.type.bytes()) / rows;
  const auto locations = reinterpret_cast<uintptr_t>(from.data) | reinterpret_cast<uintptr_t>(to.data);
  const auto fits = [&](int word) { return bytes % word == 0 && locations % static_cast<unsigned>(word) == 0; };
  const int word = fits(16) ? 16 : fits(4) ? 4 : 1;
  return {from.data, to.data, from.shape()[0], bytes / word, word, from.type.dtype == DType::kI32};
}

// Calls queue(tables, how many, most words of a row) for up to kMaxTables at once.
template <class TableOf, class Queue> void for_tables(size_t count, const TableOf& table_of, const Queue& queue) {
  for (size_t begin = 0; begin < count; begin += kMaxTables) {
    Tables tables{};
    const size_t here = std::min<size_t>(count - begin, kMaxTables);
    int64_t widest = 0;
    for (size_t i = 0; i < here; ++i) {
      tables.at[i] = table_of(begin + i);
      widest = std::max(widest, tables.at[i].width);
    }
    queue(tables, static_cast<unsigned>(here), widest);
  }
}

void run_gather(const KernelArgs& args) {
  const int64_t rows = args.out[0].shape()[0];
  const Order order{args.in[0].as<const int32_t>(), args.in[1].as<const int32_t>(), rows, args.in[0].elements() / rows};
  for_tables(
      args.out.size(), [&](size_t i) { return table_of(args.in[2 + i], args.out[i], rows); },
      [&](const Tables& tables, unsigned count, int64_t widest) {
        launch(args.device, gather_kernel, {blocks_for(rows * widest, kThreads), count}, kThreads, 0, tables, order);
      });
}

// Elements of 4 bytes, as in all kernels of a device.
bool supports_pick(const KernelQuery& query) {
  return std::ranges::all_of(query.out, [](const TensorType& out) { return dtype_size(out.dtype) == 4; });
}

void run_pick(const KernelArgs& args) {
  for_tables(
      args.out.size(),
      [&](size_t i) {
        const TensorView& table = args.in[1 + i];
        return Table{table.data, args.out[i].data, table.shape()[0], table.shape()[1], 4, 0};
      },
      [&](const Tables& tables, unsigned count, int64_t widest) {
        launch(args.device, pick_kernel, {blocks_for(widest, kThreads), count}, kThreads, 0, tables,
            args.in[0].as<const int32_t>());
      });
}

bool supports_write(const KernelQuery& query) { return all_f32(query) && query.in.size() <= 2 + kMaxScalars; }

void run_write(const KernelArgs& args) {
  const TensorView& table = args.out[0];
  copy_operand_on_device(args, args.in[0], table);
  Scalars scalars{};
  const auto count = static_cast<int>(args.in.size()) - 2;
  for (int i = 0; i < count; ++i) scalars.at[i] = args.in[static_cast<size_t>(i) + 2].as<const float>();
  launch(args.device, write_kernel, 1, kWarp, 0, count, table.shape()[0], scalars, args.in[1].as<const int32_t>(),
      table.as<float>(), args.out[1].as<int32_t>());
}
}  // namespace

LINNET_KERNELS(gather_rows_cuda, {"words", run_gather})
LINNET_KERNELS(pick_rows_cuda, {"words", run_pick, supports_pick})
LINNET_KERNELS(write_row_cuda, {"warp", run_write, supports_write})
}  // namespace linnet
