// Data, order, tables and cursor are read on the device: the host need not know where a replayed step stands.
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/storage.cuh"
#include "ops/cuda_kernels.h"
#include "ops/resident/resident.h"

namespace linnet {
namespace {

constexpr int kThreads = 256, kMaxScalars = 8;

template <class Word>
LINNET_DEVICE Word filled(uint32_t bits) {
  return static_cast<Word>(bits);
}
template <>
LINNET_DEVICE Word16 filled<Word16>(uint32_t bits) {
  return {{bits, bits, bits, bits}};
}

// Rows of `width` words, a thread for each word. Nothing is read outside data and order, whatever the cursor says.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(int64_t rows, int64_t width, int64_t count, int64_t steps, uint32_t absent,
                  const Word* __restrict__ data, const int32_t* __restrict__ order, const int32_t* __restrict__ cursor,
                  Word* __restrict__ to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= rows * width) return;
  const int64_t row = i / width, step = *cursor;
  const int64_t wanted = step >= 0 && step < steps ? order[step * rows + row] : -1;
  to[i] = wanted >= 0 && wanted < count ? data[wanted * width + (i - row * width)] : filled<Word>(absent);
}

template <class Word>
__global__ void __launch_bounds__(kThreads) pick_kernel(int64_t width, int64_t steps, const Word* __restrict__ table,
                                                        const int32_t* __restrict__ cursor, Word* __restrict__ to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, step = *cursor;
  if (i < width && step >= 0 && step < steps) to[i] = table[step * width + i];
}

struct Scalars {
  const float* at[kMaxScalars];
};

// One warp: all have read the cursor before it counts on.
__global__ void __launch_bounds__(kWarp) write_kernel(int count, int64_t steps, Scalars scalars, const int32_t* cursor,
                                                      float* __restrict__ table, int32_t* next) {
  const int i = static_cast<int>(threadIdx.x);
  const int64_t step = *cursor;
#pragma unroll
  for (int k = 0; k < kMaxScalars; ++k)
    if (k == i && k < count && step >= 0 && step < steps) table[step * count + k] = *scalars.at[k];
  __syncthreads();
  if (i == 0) *next = static_cast<int32_t>(step + 1);
}

void run_gather(const KernelArgs& args) {
  const TensorView &data = args.in[0], &to = args.out[0];
  const int64_t rows = to.shape()[0], bytes = static_cast<int64_t>(to.type.bytes()) / rows;
  const auto locations = reinterpret_cast<uintptr_t>(data.data) | reinterpret_cast<uintptr_t>(to.data);
  const auto queue = [&]<class Word>() {
    const int64_t width = bytes / static_cast<int64_t>(sizeof(Word));
    launch(args.device, gather_kernel<Word>, blocks_for(rows * width, kThreads), kThreads, 0, rows, width,
           data.shape()[0], args.in[1].elements() / rows, data.type.dtype == DType::kI32 ? ~0u : 0u,
           data.as<const Word>(), args.in[1].as<const int32_t>(), args.in[2].as<const int32_t>(), to.as<Word>());
  };
  if (bytes % 16 == 0 && locations % 16 == 0)
    queue.template operator()<Word16>();
  else if (bytes % 4 == 0 && locations % 4 == 0)
    queue.template operator()<uint32_t>();
  else
    queue.template operator()<uint8_t>();
}

// Of elements of 4 bytes, as all kernels of a device.
bool supports_pick(const KernelQuery& query) { return dtype_size(query.in[0].dtype) == 4; }

void run_pick(const KernelArgs& args) {
  const int64_t width = args.out[0].elements();
  launch(args.device, pick_kernel<uint32_t>, blocks_for(width, kThreads), kThreads, 0, width, args.in[0].shape()[0],
         args.in[0].as<const uint32_t>(), args.in[1].as<const int32_t>(), args.out[0].as<uint32_t>());
}

bool supports_write(const KernelQuery& query) { return all_f32(query) && query.in.size() <= 2 + kMaxScalars; }

void run_write(const KernelArgs& args) {
  const TensorView& table = args.out[0];
  if (args.in[0].data != table.data)
    args.device->copy(table.as<std::byte>(), args.in[0].as<const std::byte>(), table.type.bytes());
  Scalars scalars{};
  const auto count = static_cast<int>(args.in.size()) - 2;
  for (int i = 0; i < count; ++i) scalars.at[i] = args.in[static_cast<size_t>(i) + 2].as<const float>();
  launch(args.device, write_kernel, 1, kWarp, 0, count, table.shape()[0], scalars, args.in[1].as<const int32_t>(),
         table.as<float>(), args.out[1].as<int32_t>());
}

constexpr Kernel kGatherKernels[] = {{"words", nullptr, nullptr, run_gather}};
constexpr Kernel kPickKernels[] = {{"words", supports_pick, nullptr, run_pick}};
constexpr Kernel kWriteKernels[] = {{"warp", supports_write, nullptr, run_write}};

}  // namespace

KernelList gather_rows_cuda_kernels() { return kGatherKernels; }
KernelList pick_row_cuda_kernels() { return kPickKernels; }
KernelList write_row_cuda_kernels() { return kWriteKernels; }

}  // namespace linnet
