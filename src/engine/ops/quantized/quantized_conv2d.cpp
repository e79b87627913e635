#include "engine/ops/quantized/quantized.h"

namespace linnet {
namespace {

constexpr int64_t kMostPixels = 1 << 24;  // of an axis, a filter or a step: products of two stay within 64 bits
constexpr double kMostElements = 1e12;

bool is_valid(const WindowAxis& axis, int64_t length) {
  const auto within = [](int64_t x, int64_t least) { return x >= least && x <= kMostPixels; };
  return within(axis.size, 1) && within(axis.stride, 1) && within(axis.dilation, 1) && within(axis.before, 0) &&
         within(axis.after, 0) && length <= kMostPixels && axis.count(length) > 0;
}

// A rounding to bytes.
bool is_valid(const RoundingAttrs& r) {
  return r.zero >= 0 && r.zero <= 255 && r.least >= 0 && r.least <= r.most && r.most <= 255;
}

// x, y or a residual: floats, or codes by a rounding with a scale.
bool has_form(const TensorType& type, const RoundingAttrs& rounding) {
  return type.dtype == DType::kU8 ? rounding.scale > 0 && is_valid(rounding) : is_float(type.dtype);
}

// The operands after the weight, for results of this type.
void expect_epilogue(const InferArgs& args, const TensorType& y) {
  const auto& attrs = args.attrs.as<QuantizedConv2dAttrs>();
  const Shape row{y.shape[-1]};
  const auto expect_row = [&](bool wanted, size_t at) {
    if (wanted)
      expect(is_float(args.in[at].dtype) && args.in[at].shape == row, "got ", args.in[at],
             ", expected a number for each filter");
  };
  expect_row(attrs.scale, attrs.scale_at());
  expect_row(attrs.bias, attrs.bias_at());
  if (!attrs.residual) return;
  const TensorType& residual = args.in[attrs.residual_at()];
  expect(residual.shape == y.shape && has_form(residual, attrs.residual_rounding) &&
             (residual.dtype == DType::kU8) == (attrs.residual_rounding.scale > 0),
         "got a residual ", residual, " for results ", y);
}

std::vector<TensorType> infer_quantized_conv2d(const InferArgs& args) {
  const auto& attrs = args.attrs.as<QuantizedConv2dAttrs>();
  expect_inputs(args, static_cast<size_t>(2 + attrs.scale + attrs.bias + attrs.residual));
  const TensorType& x = args.in[0];
  expect_packed(args.in[1], attrs.weight);
  expect(attrs.weight.format == WeightFormat::kInt8 && has_form(x, attrs.rounding) && x.shape.rank() == 4, "got ", x,
         ", expected floats or codes [N, H, W, C] and filters of 8 bits");
  expect(is_valid(attrs.vertical, x.shape[1]) && is_valid(attrs.horizontal, x.shape[2]),
         "windows that do not fit images of ", x);
  const Int8ConvolutionSizes sizes = attrs.sizes(x.shape);
  const double padded = static_cast<double>(attrs.vertical.padded(x.shape[1])) *
                        static_cast<double>(attrs.horizontal.padded(x.shape[2])) * static_cast<double>(x.shape[0]) *
                        static_cast<double>(x.shape[3]);
  expect(padded <= kMostElements, "images of ", x, " with zeros around them are too large");
  // The number of columns is limited, so that these divisions tell sizes whose product would overflow.
  const int64_t columns = attrs.weight.weight.shape[1], taps = columns / std::max<int64_t>(1, x.shape[3]);
  expect(taps / sizes.vertical.size == sizes.horizontal.size && columns == sizes.patch(), "filters of ",
         attrs.weight.weight, " for ", x);
  const bool is_dynamic = attrs.rounding.scale == 0 && (attrs.rounding.zero == 0 || attrs.rounding.zero == 128);
  expect((attrs.rounding.scale > 0 || is_dynamic) && is_valid(attrs.rounding) && is_valid(attrs.result_rounding) &&
             attrs.result_rounding.scale >= 0,
         "a rounding to other numbers than bytes");
  const DType floats = x.dtype == DType::kU8 ? attrs.weight.weight.dtype : x.dtype;
  const TensorType y{attrs.result_rounding.scale > 0 ? DType::kU8 : floats,
                     {x.shape[0], sizes.out_height(), sizes.out_width(), attrs.weight.weight.shape[0]}};
  expect_epilogue(args, y);
  return {y};
}

std::string quantized_conv2d_label(const Node& node) {
  const auto& attrs = node.attrs.as<QuantizedConv2dAttrs>();
  std::string text = "quantized_conv2d";
  if (attrs.scale) text += "+scale";
  if (attrs.bias) text += "+bias";
  if (attrs.residual) text += "+residual";
  if (attrs.relu) text += "+relu";
  return attrs.result_rounding.scale > 0 ? text + "+codes" : text;
}

double quantized_conv2d_flops(const FlopsArgs& args) {
  const auto& attrs = args.attrs<QuantizedConv2dAttrs>();
  return 2.0 * static_cast<double>(args.out[0].shape.elements()) * static_cast<double>(attrs.weight.weight.shape[1]);
}

}  // namespace

const OpDef kQuantizedConv2d{.name = "quantized_conv2d",
                             .infer = infer_quantized_conv2d,
                             .label = quantized_conv2d_label,
                             .flops = quantized_conv2d_flops};

Tensor quantized_conv2d(At x, Tensor packed, const PackedShape& shape, const StaticRounding& rounding,
                        const WindowAxis& vertical, const WindowAxis& horizontal) {
  const QuantizedConv2dAttrs attrs{
      .weight = {.format = shape.format, .weight = {x.value.type().dtype, {shape.rows, shape.columns}}},
      .rounding = rounding_attrs(rounding),
      .vertical = vertical,
      .horizontal = horizontal};
  return op_result(kQuantizedConv2d, x, {packed}, attrs);
}

}  // namespace linnet
