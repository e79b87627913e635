// Rotary positions: a block for each row, which computes its angles once for all heads.
#include <cmath>
#include <numbers>
#include "engine/kernels/cuda/storage.cuh"
#include "engine/ops/rope/rope.h"

namespace linnet {
namespace {
constexpr int kThreads = 128;
constexpr int64_t kMaxHalf = 128;  // pairs of a head

// Turns per position, in units of 2^-64: whole turns overflow away in a product with a position, so that an angle is as
// exact at position 100 000 as at 1, without float64.
struct RopeTurns {
  uint64_t at[kMaxHalf];
};

struct RopeRows {
  int64_t length, width, heads, head_size, half;
  float magnitude;
  const int32_t* positions;                // null: the row within its sample
  int64_t position_rows;                   // rows after which positions repeat
  int64_t x_batch, x_row, y_batch, y_row;  // strides
};

// Turns the pairs of a row, kStep neighbors at once, 4 or 1.
template <int kStep, class T>
LINNET_DEVICE void turn_pairs(const RopeRows& rows, const float* cosines, const float* sines, const T* x, T* y) {
  const int half = static_cast<int>(rows.half), pairs = static_cast<int>(rows.heads) * half;
  for (int i = static_cast<int>(threadIdx.x) * kStep; i < pairs; i += kThreads * kStep) {
    const int in_head = i % half, at = i / half * static_cast<int>(rows.head_size) + in_head;
    float first[kStep], second[kStep], low[kStep], high[kStep];
    load_vector(x + at, first);
    load_vector(x + at + half, second);
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
      const float c = cosines[in_head + k], s = sines[in_head + k];
      low[k] = first[k] * c - second[k] * s;
      high[k] = second[k] * c + first[k] * s;
    }
    store_vector(y + at, low);
    store_vector(y + at + half, high);
  }
}

template <class T> __global__ void __launch_bounds__(kThreads)
    rope_kernel(RopeRows rows, RopeTurns turns, bool inverse, bool aligned, const T* x, T* y) {
  begin_kernel();
  __shared__ float cosines[kMaxHalf], sines[kMaxHalf];
  const int64_t row = blockIdx.x;
  const auto [b, t] = divided(row, rows.length);
  const int half = static_cast<int>(rows.half);
  const int64_t position = rows.positions ? rows.positions[divided(row, rows.position_rows).remainder] : t;
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
    const uint64_t turn = turns.at[i] * static_cast<uint64_t>(position);
    const float angle = static_cast<float>(static_cast<int32_t>(turn >> 32)) * 0x1p-31f;  // in half turns, -1 to 1
    float s, c;
    sincospif(angle, &s, &c);
    cosines[i] = c * rows.magnitude, sines[i] = (inverse ? -s : s) * rows.magnitude;
  }
  __syncthreads();
  x += b * rows.x_batch + t * rows.x_row, y += b * rows.y_batch + t * rows.y_row;
  const int head_size = static_cast<int>(rows.head_size), tail = head_size - 2 * half;
  const int heads_end = static_cast<int>(rows.heads) * head_size;
  if (aligned) turn_pairs<4>(rows, cosines, sines, x, y);
  else turn_pairs<1>(rows, cosines, sines, x, y);
  if (x == y) return;
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(rows.heads) * tail; i += kThreads) {
    const int at = i / tail * head_size + 2 * half + i % tail;
    y[at] = x[at];
  }
  for (int64_t i = heads_end + threadIdx.x; i < rows.width; i += kThreads) y[i] = x[i];
}

bool supports(const KernelQuery& query) { return query.attrs<RopeAttrs>().half() <= kMaxHalf; }

template <class T> bool is_aligned(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % sizeof(Four<T>) == 0 && view.strides[0] % 4 == 0 &&
         view.strides[1] % 4 == 0;
}

void run(const KernelArgs& args) {
  const auto& attrs = args.attrs<RopeAttrs>();
  const TensorView &in = args.in[0], &out = args.out[0];
  RopeTurns turns{};
  for (int64_t i = 0; i < attrs.half(); ++i) {
    const double per_position = rope_frequency(attrs, i) / (2 * std::numbers::pi);
    turns.at[i] = static_cast<uint64_t>(std::ldexp(per_position - std::floor(per_position), 64));
  }
  const RopeRows rows{.length = in.shape()[1],
      .width = in.shape()[2],
      .heads = attrs.heads,
      .head_size = attrs.head_size,
      .half = attrs.half(),
      .magnitude = static_cast<float>(attrs.scaling.magnitude),
      .positions = attrs.has_positions ? args.in[1].as<int32_t>() : nullptr,
      .position_rows = attrs.has_positions ? args.in[1].elements() : 1,
      .x_batch = in.strides[0],
      .x_row = in.strides[1],
      .y_batch = out.strides[0],
      .y_row = out.strides[1]};
  for_storage(in.type.dtype, [&]<class T>() {
    const bool aligned = rows.half % 4 == 0 && rows.head_size % 4 == 0 && is_aligned<T>(in) && is_aligned<T>(out);
    launch(args.device, rope_kernel<T>, static_cast<unsigned>(in.shape()[0] * rows.length), kThreads, 0, rows, turns,
        attrs.inverse, aligned, in.as<T>(), out.as<T>());
  });
}
}  // namespace

LINNET_KERNELS(rope_cuda, {"rows", run, supports})
}  // namespace linnet
