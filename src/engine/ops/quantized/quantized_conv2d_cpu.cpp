#include <algorithm>
#include <cmath>
#include <vector>
#include "engine/ops/quantized/quantized.h"

namespace linnet {
namespace {

PackedWeight filters(const KernelArgs& args, const QuantizedConv2dAttrs& attrs) {
  return {attrs.weight.packed(), args.in[1].as<const std::byte>()};
}

size_t quantized_conv2d_workspace(const KernelQuery& query) {
  const auto& attrs = query.attrs<QuantizedConv2dAttrs>();
  return int8_convolution_workspace(attrs.sizes(query.in[0].shape), attrs.weight.packed().rows, query.threads);
}

void run_quantized_conv2d(const KernelArgs& args) {
  const auto& attrs = args.attrs<QuantizedConv2dAttrs>();
  Int8Convolution c{.sizes = attrs.sizes(args.in[0].shape()), .rounding = attrs.rounding.rounding()};
  const auto take = [](const TensorView& view, const float*& floats, const uint8_t*& codes) {
    if (view.type.dtype == DType::kU8) codes = view.as<const uint8_t>();
    else floats = view.as<const float>();
  };
  take(args.in[0], c.x, c.x_codes);
  if (attrs.scale) c.scale = args.in[attrs.scale_at()].as<const float>();
  if (attrs.bias) c.bias = args.in[attrs.bias_at()].as<const float>();
  if (attrs.residual) take(args.in[attrs.residual_at()], c.residual, c.residual_codes);
  c.residual_rounding = attrs.residual_rounding.rounding();
  c.relu = attrs.relu;
  if (attrs.result_rounding.scale > 0)
    c.y_codes = args.out[0].as<uint8_t>(), c.y_rounding = attrs.result_rounding.rounding();
  else c.y = args.out[0].as<float>();
  int8_convolution(c, filters(args, attrs), args.workspace, args.pool);
}

// The definition.
class QuantizedConv2dReference {
 public:
  explicit QuantizedConv2dReference(const KernelArgs& args)
      : args_(args), attrs_(args.attrs<QuantizedConv2dAttrs>()), s_(attrs_.sizes(args.in[0].shape())) {}

  void run() const {
    const PackedWeight weight = filters(args_, attrs_);
    const int64_t filters = weight.shape.rows, results = s_.out_height() * s_.out_width();
    std::vector<float> filter(static_cast<size_t>(weight.shape.columns));
    for (int64_t image = 0; image < s_.images; ++image) {
      const RoundingAttrs rounding = rounding_of(image);
      for (int64_t o = 0; o < filters; ++o) {
        dequantize_row(weight, o, filter.data());
        for (int64_t result = 0; result < results; ++result)
          store(((image * results) + result) * filters + o, o, sum(image, result, filter, rounding));
      }
    }
  }

 private:
  static double number(const TensorView& view, int64_t index, const RoundingAttrs& rounding) {
    if (view.type.dtype == DType::kU8)
      return static_cast<double>(rounding.scale) * (view.as<const uint8_t>()[index] - rounding.zero);
    return view.type.dtype == DType::kF64 ? view.as<const double>()[index] : view.as<const float>()[index];
  }

  RoundingAttrs rounding_of(int64_t image) const {
    RoundingAttrs rounding = attrs_.rounding;
    if (rounding.scale > 0) return rounding;
    double most = 0;
    const int64_t size = s_.height * s_.width * s_.channels;
    for (int64_t i = image * size; i < (image + 1) * size; ++i)
      most = std::max(most, std::abs(number(args_.in[0], i, rounding)));
    rounding.least = rounding.zero == 0 ? 0 : 1, rounding.most = 255;
    rounding.scale = most > 0 ? static_cast<float>(most) / static_cast<float>(255 - rounding.zero) : 1;
    return rounding;
  }

  double sum(int64_t image, int64_t result, const std::vector<float>& filter, const RoundingAttrs& rounding) const {
    const int64_t top = result / s_.out_width() * s_.vertical.stride - s_.vertical.before;
    const int64_t left = result % s_.out_width() * s_.horizontal.stride - s_.horizontal.before;
    double sum = 0;
    for (int64_t tap = 0; tap < s_.vertical.size * s_.horizontal.size; ++tap) {
      const int64_t i = top + tap / s_.horizontal.size * s_.vertical.dilation;
      const int64_t j = left + tap % s_.horizontal.size * s_.horizontal.dilation;
      if (i < 0 || i >= s_.height || j < 0 || j >= s_.width) continue;
      for (int64_t c = 0; c < s_.channels; ++c) {
        const double x = number(args_.in[0], ((image * s_.height + i) * s_.width + j) * s_.channels + c, rounding);
        sum += rounding.rounded(x) * static_cast<double>(filter[static_cast<size_t>(tap * s_.channels + c)]);
      }
    }
    return sum;
  }

  void store(int64_t index, int64_t o, double y) const {
    if (attrs_.scale) y *= number(args_.in[attrs_.scale_at()], o, {});
    if (attrs_.bias) y += number(args_.in[attrs_.bias_at()], o, {});
    if (attrs_.residual) y += number(args_.in[attrs_.residual_at()], index, attrs_.residual_rounding);
    if (attrs_.relu && y < 0) y = 0;
    const RoundingAttrs& r = attrs_.result_rounding;
    if (r.scale > 0)
      args_.out[0].as<uint8_t>()[index] = static_cast<uint8_t>(std::lround(r.rounded(y) / r.scale) + r.zero);
    else for_float(args_.out[0].type.dtype, [&]<class T>() { args_.out[0].as<T>()[index] = static_cast<T>(y); });
  }

  const KernelArgs& args_;
  const QuantizedConv2dAttrs& attrs_;
  const Int8ConvolutionSizes s_;
};

void run_quantized_conv2d_reference(const KernelArgs& args) { QuantizedConv2dReference(args).run(); }

}  // namespace

LINNET_KERNELS(quantized_conv2d, {"int8", all_f32, quantized_conv2d_workspace, run_quantized_conv2d},
               {"reference", nullptr, nullptr, run_quantized_conv2d_reference})

}  // namespace linnet
