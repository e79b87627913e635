#include <algorithm>
#include <cmath>
#include "engine/kernels/rope.h"
#include "engine/ops/rope/rope.h"

namespace linnet {
namespace {

void run_rope_reference(const KernelArgs& args) {
  const auto& attrs = args.attrs<RopeAttrs>();
  const TensorView &in = args.in[0], &out = args.out[0];
  const int64_t length = in.shape()[1], width = in.shape()[2], half = attrs.half();
  const int32_t* positions = attrs.has_positions ? args.in[1].as<int32_t>() : nullptr;
  for_float(in.type.dtype, [&]<class T>() {
    for (int64_t row = 0; row < in.shape()[0] * length; ++row) {
      const int64_t b = row / length, t = row % length;
      const double position = positions ? positions[row % args.in[1].elements()] : static_cast<double>(t);
      const T* x = in.as<T>() + b * in.strides[0] + t * in.strides[1];
      T* y = out.as<T>() + b * out.strides[0] + t * out.strides[1];
      for (int64_t i = 0; i < attrs.heads * half; ++i) {
        const double angle = position * rope_frequency(attrs, i % half);
        const double c = std::cos(angle) * attrs.scaling.magnitude;
        const double s = std::sin(angle) * (attrs.inverse ? -attrs.scaling.magnitude : attrs.scaling.magnitude);
        const int64_t at = i / half * attrs.head_size + i % half;
        const double first = x[at], second = x[at + half];
        y[at] = static_cast<T>(first * c - second * s);
        y[at + half] = static_cast<T>(second * c + first * s);
      }
      if (x == y) continue;
      for (int64_t head = 0; head < attrs.heads * attrs.head_size; head += attrs.head_size)
        std::copy(x + head + 2 * half, x + head + attrs.head_size, y + head + 2 * half);
      std::copy(x + attrs.heads * attrs.head_size, x + width, y + attrs.heads * attrs.head_size);
    }
  });
}

bool supports_rope(const KernelQuery& query) {
  return all_f32_or_bf16(query) && query.in[0].dtype == query.out[0].dtype &&
         query.attrs<RopeAttrs>().head_size <= kRopeMaxHeadSize;
}

size_t rope_workspace(const KernelQuery& query) {
  return static_cast<size_t>(query.attrs<RopeAttrs>().half()) * sizeof(double);
}

void run_rope(const KernelArgs& args) {
  const auto& attrs = args.attrs<RopeAttrs>();
  const TensorView &in = args.in[0], &out = args.out[0];
  auto* frequencies = reinterpret_cast<double*>(args.workspace);
  for (int64_t i = 0; i < attrs.half(); ++i) frequencies[i] = rope_frequency(attrs, i);
  RopeArgs call;
  call.batch = in.shape()[0], call.length = in.shape()[1], call.width = in.shape()[2];
  call.heads = attrs.heads, call.head_size = attrs.head_size, call.inverse = attrs.inverse;
  call.half = attrs.half(), call.magnitude = static_cast<float>(attrs.scaling.magnitude);
  call.positions = attrs.has_positions ? args.in[1].as<int32_t>() : nullptr;
  call.position_stride = attrs.has_positions && args.in[1].shape()[0] > 1 ? call.length : 0;
  call.frequencies = frequencies;
  call.x = stored(in), call.x_batch_stride = in.strides[0], call.x_row_stride = in.strides[1];
  call.y = mutable_stored(out), call.y_batch_stride = out.strides[0], call.y_row_stride = out.strides[1];
  rope_rows(call, args.pool);
}

}  // namespace

LINNET_KERNELS(rope, {"simd", supports_rope, rope_workspace, run_rope},
               {"reference", nullptr, nullptr, run_rope_reference})

}  // namespace linnet
