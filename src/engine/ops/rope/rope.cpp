#include "engine/ops/rope/rope.h"
#include <algorithm>
#include <cmath>
#include <numbers>
#include "engine/kernels/rope.h"

namespace linnet {
namespace {
std::vector<TensorType> infer_rope(const InferArgs& args) {
  const auto& attrs = args.attrs.as<RopeAttrs>();
  expect_inputs(args, 1u + attrs.has_positions);
  const TensorType& x = args.in[0];
  expect(x.shape.rank() == 3 && is_float(x.dtype), "got ", x, ", expected [B, T, heads * size]");
  expect(attrs.head_size > 0 && (attrs.turned > 0 ? attrs.turned : attrs.head_size) % 2 == 0 && attrs.turned >= 0 &&
             attrs.turned <= attrs.head_size,
      "a head of ", attrs.head_size, " elements, of which ", attrs.turned, " turn, has no two halves");
  expect(attrs.scaling.kind != RopeScaling::Kind::kDivided || std::ssize(attrs.scaling.divisors) == attrs.half(),
      "frequencies need a divisor each");
  expect(attrs.heads >= 0 && attrs.heads * attrs.head_size <= x.shape[2], "got ", x, " for ", attrs.heads, " heads of ",
      attrs.head_size);
  if (attrs.has_positions)
    expect(args.in[1] == TensorType{DType::kI32, {x.shape[0], x.shape[1]}} ||
               args.in[1] == TensorType{DType::kI32, {1, x.shape[1]}},
        "got ", x, " with positions ", args.in[1]);
  return {x};
}

std::vector<Tensor> rope_gradient(const GradientArgs& args) {
  RopeAttrs attrs = args.attrs<RopeAttrs>();
  attrs.inverse = !attrs.inverse;
  std::vector<Tensor> gradients = args.add(kRope, with_more({args.out_grad[0]}, args.in.subspan(1)), attrs);
  gradients.resize(args.in.size());  // positions have none
  return gradients;
}

// The share of yarn's pair i that is not scaled.
double kept_share(int64_t i, const RopeAttrs& attrs) {
  const RopeScaling& scaling = attrs.scaling;
  const auto pair_of = [&](double turns) {
    return static_cast<double>(attrs.half()) * std::log(scaling.original_length / (turns * 2 * std::numbers::pi)) /
           std::log(attrs.theta);
  };
  double first = pair_of(scaling.high_factor), last = pair_of(scaling.low_factor);
  if (scaling.whole_pairs) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0), last = std::min(last, static_cast<double>(2 * attrs.half() - 1));
  return 1 - std::clamp((static_cast<double>(i) - first) / (first == last ? 0.001 : last - first), 0.0, 1.0);
}

double scaled(double frequency, int64_t i, const RopeAttrs& attrs) {
  const RopeScaling& scaling = attrs.scaling;
  if (scaling.kind == RopeScaling::Kind::kNone) return frequency;
  if (scaling.kind == RopeScaling::Kind::kLinear) return frequency / scaling.factor;
  if (scaling.kind == RopeScaling::Kind::kDivided) return frequency / static_cast<double>(scaling.divisors[i]);
  double blend = 0;
  if (scaling.kind == RopeScaling::Kind::kYarn) {
    blend = kept_share(i, attrs);
  } else {
    const double turns = scaling.original_length * frequency / (2 * std::numbers::pi);
    if (turns < scaling.low_factor) return frequency / scaling.factor;
    if (turns > scaling.high_factor) return frequency;
    blend = (turns - scaling.low_factor) / (scaling.high_factor - scaling.low_factor);
  }
  return (1 - blend) * frequency / scaling.factor + blend * frequency;
}

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

size_t rope_workspace(const KernelQuery& query) { return bytes_for<double>(query.attrs<RopeAttrs>().half()); }

void run_rope(const KernelArgs& args) {
  const auto& attrs = args.attrs<RopeAttrs>();
  const TensorView &in = args.in[0], &out = args.out[0];
  auto* frequencies = reinterpret_cast<double*>(args.workspace);
  for (int64_t i = 0; i < attrs.half(); ++i) frequencies[i] = rope_frequency(attrs, i);
  RopeArgs call{.batch = in.shape()[0], .length = in.shape()[1], .width = in.shape()[2]};
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

// A point's two halves are read before they are written.
const OpDef kRope{.name = "rope",
    .infer = infer_rope,
    .gradient = rope_gradient,
    .may_overwrite = overwrites_first,
    .strided_inputs = 0b1,
    .strided_outputs = 0b1,
    .storage = reduced<0b1, 0b1>};

double rope_frequency(const RopeAttrs& attrs, int64_t i) {
  const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(2 * attrs.half());
  return scaled(std::pow(attrs.theta, exponent), i, attrs);
}

Tensor rope(At x, RopeAttrs attrs, Tensor positions) {
  if (attrs.turned == attrs.head_size) attrs.turned = 0;
  attrs.has_positions = positions.defined();
  return op_result(kRope, x, with_defined({}, {positions}), attrs);
}

LINNET_KERNELS(rope, {"simd", run_rope, supports_rope, rope_workspace}, {"reference", run_rope_reference})
}  // namespace linnet
