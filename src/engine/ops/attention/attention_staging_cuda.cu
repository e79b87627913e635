#include "engine/kernels/cuda/philox.cuh"
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/attention/attention.h"

namespace linnet {
namespace {
constexpr int kThreads = 256;

struct alignas(16) Eight {
  bf16 at[8];
};

__global__ void __launch_bounds__(kThreads) prepare_kernel(AttentionExtras e) {
  begin_kernel();
  for (int64_t b = threadIdx.x; b < e.batch; b += kThreads) {
    if (e.query_lengths) e.query_lengths[b] = e.queries;
    if (e.key_lengths) e.key_lengths[b] = min(max(e.lengths[b], 1), e.keys);
  }
  if (threadIdx.x != 0 || !e.seed) return;
  e.seed[0] = e.random ? static_cast<int64_t>(dropout_key(e.random, e.site)) : 0;
  e.offset[0] = 0;
}

constexpr int kRowsAtOnce = kThreads / kWarp;

struct MaskedResults {
  MaskedRows of[3];
  int64_t first_row[4];  // in the grid, of each result and behind the last
};

// A warp for each row; most return at once.
__global__ void __launch_bounds__(kThreads)
    zero_rows_kernel(MaskedResults results, int count, const int32_t* __restrict__ lengths) {
  begin_kernel();
  int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsAtOnce + threadIdx.x / kWarp;
  int i = 0;
  while (i < count && row >= results.first_row[i + 1]) ++i;
  if (i == count) return;
  const MaskedRows& result = results.of[i];
  row -= results.first_row[i];
  const int64_t sample = row / result.length, position = row % result.length;
  if (result.of_keys ? position < lengths[sample] : lengths[sample] > 0) return;
  bf16* const to = static_cast<bf16*>(result.data) + sample * result.sample + position * result.row;
  for (int64_t j = 8 * (threadIdx.x % kWarp); j < result.width; j += 8 * kWarp)
    *reinterpret_cast<Eight*>(to + j) = Eight{};
}

struct Strided {
  int64_t length, width, sample, row;
  LINNET_DEVICE int64_t location(int64_t i) const {
    return i / width / length * sample + i / width % length * row + i % width;
  }
};

LINNET_DEVICE void pack(int64_t i, Strided at, const float* from, bf16* to) {
  to[i] = from_float<bf16>(from[at.location(i)]);
}
LINNET_DEVICE void unpack(int64_t i, Strided at, const bf16* from, float* to) {
  to[at.location(i)] = to_float(from[i]);
}

Strided strided(const TensorView& x) { return {x.shape()[1], x.shape()[2], x.strides[0], x.strides[1]}; }
}  // namespace

void prepare_attention(Device* device, const AttentionExtras& extras) {
  launch(device, prepare_kernel, 1, kThreads, 0, extras);
}

void zero_masked_rows(Device* device, int64_t batch, const int32_t* lengths, std::span<const MaskedRows> results) {
  MaskedResults list{};
  for (size_t i = 0; i < results.size(); ++i) {
    list.of[i] = results[i];
    list.first_row[i + 1] = list.first_row[i] + batch * results[i].length;
  }
  launch(device, zero_rows_kernel, blocks_for(list.first_row[results.size()], kRowsAtOnce), kThreads, 0, list,
      static_cast<int>(results.size()), lengths);
}

void pack_bf16(Device* device, const TensorView& from, void* to) {
  launch_elements<pack>(device, from.elements(), strided(from), from.as<const float>(), static_cast<bf16*>(to));
}

void unpack_bf16(Device* device, const void* from, const TensorView& to) {
  launch_elements<unpack>(device, to.elements(), strided(to), static_cast<const bf16*>(from), to.as<float>());
}
}  // namespace linnet
